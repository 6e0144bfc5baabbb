"""Pipelines, made once per rendered text."""

from __future__ import annotations

import re
import threading
from typing import Any

import wgpu

from dmlgpu.errors import ShaderError
from dmlgpu.gpu.context import Context, reason_of
from dmlgpu.program import Kernel
from dmlgpu.target import PARAMETER_BYTES

_LINES_AROUND = 3


class Pipelines:
    """The device's pipelines by text and number of bindings, and their layouts by that number.

    Layouts are explicit: automatic ones drop the bindings that a shader does not use.
    """

    def __init__(self, context: Context):
        self._context = context
        self._lock = threading.Lock()
        self._layouts: dict[tuple[int, bool], tuple[Any, Any]] = {}
        self._pipelines: dict[tuple[str, int, bool], Any] = {}

    def __len__(self) -> int:
        return len(self._pipelines)

    def layout(self, bindings: int, immediates: bool) -> Any:
        """Return the bind-group layout of kernels with so many bindings."""
        return self._layout(bindings, immediates)[0]

    def get(self, operator: str, kernel: Kernel, immediates: bool) -> tuple[Any, bool]:
        """Return a kernel's pipeline, and whether it is new.

        Raises:
            ShaderError: when the text does not compile.
        """
        key = kernel.wgsl, kernel.binding_count, immediates
        pipeline = self._pipelines.get(key)
        if pipeline is not None:
            return pipeline, False
        with self._lock, self._context.lock:
            if key in self._pipelines:
                return self._pipelines[key], False
            pipeline = self._pipelines[key] = self._compile(operator, kernel, immediates)
            return pipeline, True

    def _compile(self, operator: str, kernel: Kernel, immediates: bool) -> Any:
        device = self._context.device
        _, layout = self._layout(kernel.binding_count, immediates)
        try:
            module = device.create_shader_module(label=kernel.label, code=kernel.wgsl)
            compute = {"module": module, "entry_point": "main"}
            return device.create_compute_pipeline(label=kernel.label, layout=layout, compute=compute)
        except wgpu.GPUValidationError as error:
            if "is lost" in str(error):
                raise self._context.translate(error, operator) from error
            raise ShaderError(compile_error(operator, kernel, str(self._context.info), error)) from error
        except wgpu.GPUError as error:
            raise self._context.translate(error, f"{operator}: kernel {kernel.label!r}") from error

    def _layout(self, bindings: int, immediates: bool) -> tuple[Any, Any]:
        key = bindings, immediates
        if key not in self._layouts:
            device = self._context.device
            types = ["storage"] * bindings + ([] if immediates else ["uniform"])
            group = device.create_bind_group_layout(
                entries=[
                    {"binding": binding, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                    for binding, kind in enumerate(types)
                ]
            )
            self._layouts[key] = (
                group,
                device.create_pipeline_layout(
                    bind_group_layouts=[group], immediate_size=PARAMETER_BYTES if immediates else 0
                ),
            )
        return self._layouts[key]


def compile_error(operator: str, kernel: Kernel, adapter: str, error: Exception) -> str:
    """Return the text of a ShaderError: what failed and why, then the lines around the fault with their numbers."""
    text = str(error)
    place = re.search(r"┌─ .*:(\d+):\d+", text)
    head = f"{operator}: kernel {kernel.label!r} does not compile on {adapter}: {_fault(text) or reason_of(error)}"
    if place is None:
        return head
    line = int(place[1])
    file = template_of(kernel.wgsl, line)
    return f"{head}{f' (in {file})' if file else ''}\n{excerpt(kernel.wgsl, line)}"


def template_of(source: str, line: int) -> str | None:
    """Return the shader file that a line of rendered WGSL came from: rendering puts its name above the text of each
    file."""
    above = "\n".join(source.splitlines()[:line])
    names = re.findall(r"^// ---- (\S+)$", above, re.MULTILINE)
    return names[-1] if names else None


def _fault(text: str) -> str | None:
    """Return what naga says in several places of its report: the headline, and what the headline leaves out."""
    if parsing := re.search(r"parsing error: (.*)", text):
        notes = re.findall(r"│ +[\^-]+ (.*)", text)
        return "; ".join([parsing[1], *(note for note in notes if note not in parsing[1])])
    if validation := re.search(r"Shader.* validation error: (.*)", text):
        causes = re.findall(r"^ += (.*)", text, re.MULTILINE)
        return ": ".join([validation[1], *causes[-1:]])
    return None


def excerpt(source: str, line: int) -> str:
    """Return the lines of a source around one (counted from 1), numbered, with an arrow at it."""
    lines = source.splitlines()
    first, last = max(line - _LINES_AROUND, 1), min(line + _LINES_AROUND, len(lines))
    width = len(str(last))
    return "\n".join(
        f"{'>' if number == line else ' '} {number:{width}} | {lines[number - 1]}".rstrip()
        for number in range(first, last + 1)
    )
