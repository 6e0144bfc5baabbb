"""Operators that compute each element from itself and from what its whole row adds up to: softmax, normalisations.

Where a row is short enough for one invocation (CPU adapters) or one workgroup (GPUs), one kernel does it all. Else each
stage becomes a reduction of its own, with partial results, and a map ends it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dmlgpu.enums import DataType
from dmlgpu.kernels.collapse import merge_dimensions
from dmlgpu.kernels.packing import pack_tensor, packs_tensor
from dmlgpu.kernels.reduce import Reduction, canonical_steps, choose_parts, choose_schedule
from dmlgpu.plan import Binding, Body, Map, ReduceSchedule, Role, Rows, Source, Stage, Step, Tensor, apply
from dmlgpu.target import Target
from dmlgpu.tensor import packed_strides

WORD_BITS = 32


@dataclass(frozen=True)
class RowOperation:
    """What is done to a row: the stages, then ``apply`` of a file for each element (see ``plan.Rows``)."""

    stages: tuple[Stage, ...]
    file: str


def row_steps(
    operation: RowOperation, source: Tensor, axes: Sequence[int], output: Tensor, target: Target
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """The steps for a tensor whose rows lie along axes, and the sizes in bytes of the temporaries they use."""
    source, row_axes, output = canonical_rows(source, axes, output)
    whole = _whole_rows(operation, source, row_axes, output, target)
    return ((whole,), ()) if whole is not None else _split_rows(operation, source, row_axes, output, target)


def canonical_rows(source: Tensor, axes: Sequence[int], output: Tensor) -> tuple[Tensor, tuple[int, ...], Tensor]:
    """The same rows with merged dimensions: those across rows first, those along them last, in ascending order."""
    across = [dimension for dimension in range(source.rank) if dimension not in axes]
    row_sizes, row_strides = _merge(source, output, across)
    item_sizes, item_strides = _merge(source, output, sorted(axes))
    source, output = (
        replace(tensor, sizes=row_sizes + item_sizes, strides=row_strides[number] + item_strides[number])
        for number, tensor in enumerate((source, output))
    )
    return source, tuple(range(len(row_sizes), source.rank)), output


def _merge(source: Tensor, output: Tensor, dimensions: Sequence[int]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Merged sizes of some dimensions, and the strides along them of both tensors."""
    sizes, *strides = (
        tuple(values[dimension] for dimension in dimensions)
        for values in (source.sizes, source.strides, output.strides)
    )
    return merge_dimensions(sizes, *strides)


# ---- one kernel


def _whole_rows(
    operation: RowOperation, source: Tensor, axes: tuple[int, ...], output: Tensor, target: Target
) -> Rows | None:
    """All in one kernel, if rows are short enough for that and no word of the output is shared between rows."""
    source, output, across = _pack(source, axes, output, target)
    if output.unit_bits < WORD_BITS:
        return None
    rows = math.prod(source.sizes[: axes[0]])
    units = math.prod(source.sizes[axis] for axis in axes)
    if choose_parts(rows, units, target) > 1:
        return None
    schedule = choose_schedule(rows, units, target)
    return Rows(schedule.value, operation.stages, operation.file, source, axes, output, schedule, across)


def _pack(source: Tensor, axes: tuple[int, ...], output: Tensor, target: Target) -> tuple[Tensor, Tensor, bool]:
    """Both tensors in units along the rows, or else, for invocations that take whole rows, across them."""
    dimensions = [axes[-1]]
    if axes[0] and choose_schedule(1, math.prod(source.sizes[axis] for axis in axes), target) is ReduceSchedule.SERIAL:
        dimensions.append(axes[0] - 1)
    for dimension in dimensions:
        for lanes in (4, 2):
            if packs_tensor(source, dimension, lanes) and packs_tensor(output, dimension, lanes):
                packed = pack_tensor(source, dimension, lanes), pack_tensor(output, dimension, lanes)
                return *packed, dimension != axes[-1]
    return source, output, False


# ---- a kernel per stage


def _split_rows(
    operation: RowOperation, source: Tensor, axes: tuple[int, ...], output: Tensor, target: Target
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """A reduction per stage, its results in temporary tensors, and a map."""
    steps: list[Step] = []
    temporaries: list[int] = []
    results: dict[str, Source] = {}
    sizes = tuple(1 if axis in axes else size for axis, size in enumerate(source.sizes))
    for stage in operation.stages:
        given = apply_to_row(stage.prepare, DataType.FLOAT32, source, results) if stage.prepare else source
        result = Tensor(Binding(Role.TEMPORARY, len(temporaries)), DataType.FLOAT32, sizes, packed_strides(sizes))
        temporaries.append(math.prod(sizes) * DataType.FLOAT32.bits // 8)
        reduction = Reduction(stage.file, DataType.FLOAT32, stage.lanes, words=True)
        more, scratch = canonical_steps(reduction, given, axes, result, target, temporary=len(temporaries))
        steps += [replace(step, label=f"{stage.name} {step.label}") for step in more]
        temporaries += scratch
        results[stage.name] = repeated(result, source.sizes)
    body = apply_to_row(operation.file, output.data_type, source, results)
    return (*steps, Map("map", body, output)), tuple(temporaries)


def repeated(result: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """The results of all rows, each repeated along its row."""
    strides = tuple(0 if one == 1 else stride for one, stride in zip(result.sizes, result.strides, strict=True))
    return replace(result, sizes=sizes, strides=strides)


def apply_to_row(file: str, data_type: DataType, source: Tensor, results: Mapping[str, Source]) -> Body:
    """An ``apply`` body on the elements of a row and the results of stages, in float32."""
    inputs: dict[str, Any] = {"input": source, **results}
    return apply(file, data_type, source.sizes, words=True, **inputs)
