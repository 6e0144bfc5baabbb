"""The function that renders a scheduled step of any kind: each module beside this one registers its own."""

from __future__ import annotations

import functools

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.schedule.steps import Scheduled
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.builder import Builder
from dmlgpu.compiler.wgsl.expressions import Value
from dmlgpu.compiler.wgsl.types import Scalar


@functools.singledispatch
def render_step(step: Scheduled, builder: Builder) -> str:
    """Return the text of a step's kernel, without its head.

    Raises:
        NotSupported: when the adapter lacks a feature that it needs.
    """
    raise TypeError(f"no renderer for {type(step).__name__}")


_OPERANDS = {"input": "value", "a": "a", "b": "b"}
"""What the functions of a monoid call the values that templates know as ``input``, ``a`` and ``b``."""


def monoid_operands(kind: Scalar, data_type: DataType, target: Target) -> dict[str, Value]:
    """Return the arguments of ``lift``, ``merge`` and ``finish`` as typed expressions."""
    return {name: Value(text, kind, data_type, target) for name, text in _OPERANDS.items()}
