"""Hand-written programs, in the form that the renderer gives them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from dmlgpu.compiler.linker import BufferInterface, Interface
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import KernelSource, Program, RenderedKernel, Slot
from dmlgpu.runtime.wgpu import GpuBackend


def shader(statement: str, size: int = 64) -> str:
    """A body that runs a statement per invocation; ``s0[b0 + i]`` is element i of slot 0."""
    statement = re.sub(r"s(\d)\[([^\]]*)\] \+= ([^;]*);", r"s\1[\2] = s\1[\2] + \3;", statement)
    statement = re.sub(r"s(\d)\[([^\]]*)\] = ([^;]*);", r"store\1(\2, \3);", statement)
    statement = re.sub(r"s(\d)\[([^\]]*)\]", r"load\1(\2)", statement)
    statement = re.sub(r"\bb(\d)\b", r"base\1()", statement)
    return (
        f"@compute @workgroup_size({size})\n"
        f"fn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n"
        f"    let i = id.x;\n    {statement}\n}}\n"
    )


def kernel(
    backend: GpuBackend, statement: str, slots: list[Slot], grid: int = 1, label: str = "kernel"
) -> RenderedKernel:
    """A kernel for an executor with or without immediates."""
    words = BufferInterface("u32", "u32", stores=True)
    interface = Interface((words,) * len(slots), immediates=backend.target.has("immediates"))
    return RenderedKernel(label, KernelSource(shader(statement), interface, 64), tuple(slots), (grid, 1, 1))


def with_text(kernel: RenderedKernel, text: str) -> RenderedKernel:
    """A kernel with another text."""
    return replace(kernel, source=replace(kernel.source, body=text, interface=None))


def program(backend: GpuBackend, *kernels: RenderedKernel, **rest: object) -> Program:
    """A program for an executor with or without immediates."""
    return Program("TEST", kernels, immediates=backend.target.has("immediates"), **rest)  # type: ignore[arg-type]


def input_slot(index: int = 0, size: int = 256) -> Slot:
    return Slot(Role.INPUT, index, 0, size)


def output_slot(index: int = 0, size: int = 256) -> Slot:
    return Slot(Role.OUTPUT, index, 0, size)


def add(backend: GpuBackend, value: int, label: str = "add") -> Program:
    """output[i] = input[i] + value over 64 words."""
    return program(
        backend, kernel(backend, f"s1[b1 + i] = s0[b0 + i] + {value}u;", [input_slot(), output_slot()], label=label)
    )


def words(values: object) -> np.ndarray:
    """Integers as the bytes of 32-bit words."""
    return np.asarray(values, np.uint32).view(np.uint8)
