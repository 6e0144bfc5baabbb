"""Every schedule that computes a workload on a target, each once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dmlgpu.bench.workload import Workload
from dmlgpu.compiler import compile_operator
from dmlgpu.errors import DmlError, InvalidArgument
from dmlgpu.graph.compiler import compile_network
from dmlgpu.graph.description import GraphDesc
from dmlgpu.graph.resolve import resolve
from dmlgpu.program import Program
from dmlgpu.schedule import convolution_choice, gemm_choice
from dmlgpu.target import Target

NAMES = tuple(dict.fromkeys((*convolution_choice.NAMES, *gemm_choice.NAMES)))
"""What ``Target.schedule`` may be for some operator."""


def schedules_of(workload: Workload, target: Target) -> tuple[str, ...]:
    """Return the names under which a workload becomes kernels that no other name makes, after the empty one, which
    stands for the choice.

    Raises:
        DmlError: the workload cannot be compiled for the target.
    """
    target = target.for_operators(workload.half_precision)
    render = _renderer(workload)
    known = {_texts(render(target)): ""}
    for name in NAMES:
        try:
            made = _texts(render(replace(target, schedule=name)))
        except DmlError:  # it does not fit, or is of another operator
            continue
        known.setdefault(made, name)
    return tuple(known.values())


def _renderer(workload: Workload) -> Callable[[Target], Program]:
    desc = workload.desc
    if desc is None:
        raise InvalidArgument(f"{workload.name}: models in ONNX have no schedules of their own to compare")
    if isinstance(desc, GraphDesc):
        network = resolve(desc)
        return lambda target: compile_network(network, target, ()).program
    return lambda target: compile_operator(desc, target)


def _texts(program: Program) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((kernel.wgsl, tuple(kernel.grid)) for kernel in program.kernels)
