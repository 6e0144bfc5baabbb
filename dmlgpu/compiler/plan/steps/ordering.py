"""Sorts and scatters."""

from __future__ import annotations

from dataclasses import dataclass

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan.sources import Constants
from dmlgpu.compiler.plan.steps.base import Step
from dmlgpu.compiler.plan.tensors import Tensor


@dataclass(frozen=True)
class Sort(Step):
    """Finds the first elements along an axis in sorted order, or all of them.

    Elements are sorted as *records*: their rank, an unsigned number that compares as they do, and their position on the
    axis. No two records are equal, so the result depends neither on the order of invocations nor on a stable sort.

    Attributes:
        source: the elements.
        decreasing: the largest one comes first.
        output: the records, UINT32 in lanes of ``record_lanes`` words: the source's other dimensions in order, then the
            axis with as many as are asked for.
    """

    source: Tensor
    axis: int
    decreasing: bool
    output: Tensor


def record_lanes(data_type: DataType) -> int:
    """Return the words of a record: the rank in one or two, then the position; where there are four, one is unused."""
    return 4 if data_type.bits == 64 else 2


@dataclass(frozen=True)
class Scatter(Step):
    """Writes every element of ``source`` to a place of the output that a shader computes.

    It defines ``fn place(at: source_at, target: ptr<function, output_at>) -> bool``; false drops the element.

    Attributes:
        file: the shader; ``constants`` are its values.
        source, output: moved as raw bits.
        inputs: the tensors that say where elements go, by name.
        follows: for each dimension of the source, the one of the output that moves with it one to one, whatever the
            inputs say; None where there is none.
        distinct: no two elements go to one place. Where they do, any one of them wins, but on a deterministic device
            the last in row-major order does.
    """

    file: str
    source: Tensor
    inputs: tuple[tuple[str, Tensor], ...]
    output: Tensor
    constants: Constants
    follows: tuple[int | None, ...]
    distinct: bool = False
