"""Rows as steps: reductions of each row, then a body over its elements and the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Body, Rows, Source, Stage, Tensor, stage_results

RowBody = Callable[[DataType, Mapping[str, Source]], Body]
"""Makes the body that computes an element, of a type, from ``input``, the results of the stages and other sources."""


def rows(
    stages: tuple[Stage, ...],
    body: RowBody,
    source: Tensor,
    axes: Sequence[int],
    output: Tensor,
    *,
    others: Mapping[str, Tensor] | None = None,
) -> Rows:
    """Return the step for a tensor whose rows lie along axes.

    Args:
        others: further tensors that the body reads, by name, with the source's sizes.
    """
    results = stage_results(stages, source.sizes, tuple(axes))
    tree = body(output.data_type, {"input": source, **results, **(others or {})})
    return Rows("", stages, source, tuple(axes), tree, output)
