"""What rendering one step gives, and the function that finds how: each module beside this one registers its own."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from dmlgpu.enums import DataType
from dmlgpu.kernels.grid import Launch
from dmlgpu.plan import Step, Tensor
from dmlgpu.target import Target
from dmlgpu.wgsl.builder import Builder
from dmlgpu.wgsl.expressions import Value
from dmlgpu.wgsl.types import Scalar


@dataclass(frozen=True)
class Rendered:
    """One kernel's text, before the builder puts its head before it.

    Attributes:
        tensors: every tensor in memory that the kernel touches.
        lanes: of a unit; more than one are shown in the kernel's label.
    """

    text: str
    launch: Launch
    tensors: tuple[Tensor, ...]
    lanes: int = 1


@functools.singledispatch
def render_step(step: Step, builder: Builder, target: Target) -> Rendered:
    """The kernel of a step.

    Raises:
        NotSupported: when the adapter lacks a feature or a limit that it needs.
    """
    raise TypeError(f"no renderer for {type(step).__name__}")


_OPERANDS = {"input": "value", "a": "a", "b": "b"}
"""What the functions of a monoid call the values that templates know as ``input``, ``a`` and ``b``."""


def monoid_operands(kind: Scalar, data_type: DataType, target: Target) -> dict[str, Value]:
    """The arguments of ``lift``, ``merge`` and ``finish`` as typed expressions."""
    return {name: Value(text, kind, data_type, target) for name, text in _OPERANDS.items()}
