"""Operators that compute each element from itself and from what its whole row adds up to: softmax, normalisations.

Where a row is short enough for one invocation (CPU adapters) or one workgroup (GPUs), one kernel does it all. Else each
stage becomes a reduction of its own, with partial results, and a map ends it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dmlgpu.enums import DataType
from dmlgpu.kernels.collapse import merge_dimensions
from dmlgpu.kernels.packing import pack_along, pack_source, pack_tensor
from dmlgpu.kernels.reduce import Reduction, canonical_steps, choose_parts, choose_schedule
from dmlgpu.plan import Body, Held, Map, Reduce, ReduceSchedule, Rows, Source, Stage, Step, Tensor, apply
from dmlgpu.target import Target

WORD_BITS = 32

RowBody = Callable[[DataType, Mapping[str, Source]], Body]
"""Makes the body that computes an element, of a type, from ``input``, the results of the stages and other sources."""


@dataclass(frozen=True)
class RowOperation:
    """What is done to a row: the stages, then a body for each element (see ``plan.Rows``)."""

    stages: tuple[Stage, ...]
    body: RowBody


def row_operation(stages: tuple[Stage, ...], file: str) -> RowOperation:
    """The operation whose body is an ``apply`` of a file on ``input`` and the results of all stages."""
    return RowOperation(stages, functools.partial(apply_to_row, file))


def apply_to_row(file: str, data_type: DataType, sources: Mapping[str, Source]) -> Body:
    """An ``apply`` body on the elements of a row and the results of stages, in float32."""
    return apply(file, data_type, sources["input"].sizes, portable=True, values=(), **sources)


def row_steps(
    operation: RowOperation,
    source: Tensor,
    axes: Sequence[int],
    output: Tensor,
    target: Target,
    *,
    others: Mapping[str, Tensor] | None = None,
) -> tuple[Step, ...]:
    """The steps for a tensor whose rows lie along axes.

    Args:
        others: further tensors that the body reads, by name, with the source's sizes.
    """
    given = others or {}
    (source, output, *merged), row_axes = canonical_rows((source, output, *given.values()), axes)
    rows = _Rows(operation, source, row_axes, output, dict(zip(given, merged, strict=True)))
    whole = _whole_rows(rows, target)
    return _split_rows(rows, target) if whole is None else (whole,)


def canonical_rows(tensors: Sequence[Tensor], axes: Sequence[int]) -> tuple[list[Tensor], tuple[int, ...]]:
    """The same rows, of tensors of equal sizes, with merged dimensions: those across rows first, those along them last,
    in ascending order."""
    sizes = tensors[0].sizes
    across = [dimension for dimension in range(len(sizes)) if dimension not in axes]
    row_sizes, row_strides = _merge(tensors, across)
    item_sizes, item_strides = _merge(tensors, sorted(axes))
    merged = [
        replace(tensor, sizes=row_sizes + item_sizes, strides=row_strides[number] + item_strides[number])
        for number, tensor in enumerate(tensors)
    ]
    return merged, tuple(range(len(row_sizes), len(row_sizes) + len(item_sizes)))


def _merge(tensors: Sequence[Tensor], dimensions: Sequence[int]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Merged sizes of some dimensions, and the strides along them of all tensors."""
    sizes, *strides = (
        tuple(values[dimension] for dimension in dimensions)
        for values in (tensors[0].sizes, *(tensor.strides for tensor in tensors))
    )
    return merge_dimensions(sizes, *strides)


@dataclass(frozen=True)
class _Rows:
    """An operation on tensors whose rows lie along their last dimensions."""

    operation: RowOperation
    source: Tensor
    axes: tuple[int, ...]
    output: Tensor
    others: Mapping[str, Tensor]

    @property
    def result_sizes(self) -> tuple[int, ...]:
        """One result per row."""
        return row_sizes(self.source.sizes, self.axes)

    def body(self, results: Mapping[str, Source]) -> Body:
        """What computes an element, over given results of the stages."""
        return self.operation.body(self.output.data_type, {"input": self.source, **results, **self.others})


def row_sizes(sizes: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Sizes with 1 along the axes."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(sizes))


# ---- one kernel


def _whole_rows(rows: _Rows, target: Target) -> Rows | None:
    """All in one kernel, if rows are short enough for that and no word of the output is shared between rows."""
    stages, axes = rows.operation.stages, rows.axes
    results = _held_results(stages, rows.source.sizes, axes)
    body, output, dimension = _pack(rows.body(results), rows.output, axes, target)
    if output.unit_bits < WORD_BITS:
        return None
    source = rows.source if dimension is None else pack_tensor(rows.source, dimension, output.lanes)
    if dimension is not None:
        results = {name: pack_source(held, dimension, output.lanes) for name, held in results.items()}
    count = math.prod(source.sizes[: axes[0]])
    units = math.prod(source.sizes[axis] for axis in axes)
    if choose_parts(count, units, target) > 1:
        return None
    schedule = choose_schedule(count, units, target)
    across = dimension is not None and dimension < axes[0]
    return Rows(schedule.value, stages, source, axes, body, tuple(results.items()), output, schedule, across)


def _held_results(stages: tuple[Stage, ...], sizes: tuple[int, ...], axes: tuple[int, ...]) -> dict[str, Held]:
    """What stands for the results of the stages while a kernel holds them: each repeated along its row."""
    return {name: Held(name, DataType.FLOAT32, sizes, axes) for stage in stages for name in stage.results}


def _pack(body: Body, output: Tensor, axes: tuple[int, ...], target: Target) -> tuple[Body, Tensor, int | None]:
    """All tensors in units along the rows, or else, for invocations that take whole rows, across them; and the
    dimension of these units."""
    dimensions = [axes[-1]]
    if axes[0] and choose_schedule(1, math.prod(output.sizes[axis] for axis in axes), target) is ReduceSchedule.SERIAL:
        dimensions.append(axes[0] - 1)
    for dimension in dimensions:
        packed = pack_along(body, output, dimension)
        if packed is not None:
            return *packed, dimension
    return body, output, None


# ---- a kernel per stage


def _split_rows(rows: _Rows, target: Target) -> tuple[Step, ...]:
    """A reduction per stage, its results in temporary tensors, and a map."""
    steps: list[Step] = []
    results: dict[str, Source] = {}
    for stage in rows.operation.stages:
        given: Source = rows.source
        if stage.prepare:
            given = apply_to_row(stage.prepare, DataType.FLOAT32, {"input": rows.source, **results})
        found, more = reduce_stage(stage, given, rows.axes, target)
        steps += more
        results |= found
    return (*steps, Map("map", rows.body(results), rows.output))


def reduce_stage(
    stage: Stage, source: Source, axes: tuple[int, ...], target: Target
) -> tuple[dict[str, Tensor], tuple[Step, ...]]:
    """Return a stage as a reduction of its own, along the last dimensions of a source.

    Returns:
        The results by name, each repeated along its row, and the steps.
    """
    sizes = row_sizes(source.sizes, axes)
    lanes = 1 << (len(stage.results) - 1).bit_length()
    result = Tensor.temporary(stage.name, DataType.FLOAT32, sizes, lanes=lanes)
    reduction = Reduction(stage.file, DataType.FLOAT32, stage.lanes, portable=True, constants=stage.constants)
    steps = canonical_steps(reduction, source, axes, result, _patient(target, stage.longest))
    if lanes > 1:
        steps = tuple(_row_by_row(step, source, result) for step in steps)
    labelled = tuple(replace(step, label=f"{stage.name} {step.label}") for step in steps)
    strides = tuple(lanes * stride for stride in result.strides)
    parts = {
        name: repeated(replace(result, lanes=1, strides=strides, offset=number), source.sizes)
        for number, name in enumerate(stage.results)
    }
    return parts, labelled


def _row_by_row(step: Reduce, source: Source, result: Tensor) -> Reduce:
    """A step that stores results of several numbers: its invocations take a row each, never neighbouring ones."""
    if step.across is None or step.schedule is not ReduceSchedule.SERIAL:
        return step
    return replace(step, source=source, output=result, across=None, width=1)


def _patient(target: Target, longest: int | None) -> Target:
    """The target as one that would stop longer walks than a stage allows: what is planned for it walks no further."""
    if longest is None:
        return target
    return replace(target, loop_limit=min(4 * longest, target.loop_limit or 4 * longest))


def repeated(tensor: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """A tensor repeated along the dimensions in which it has size 1 and ``sizes`` more: the results of rows, say."""
    strides = tuple(0 if one == 1 else stride for one, stride in zip(tensor.sizes, tensor.strides, strict=True))
    return replace(tensor, sizes=sizes, strides=strides)
