"""Reductions: which schedule, in how many steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dmlgpu.enums import DataType
from dmlgpu.kernels.collapse import merge_dimensions
from dmlgpu.plan import Binding, Constants, Reduce, ReduceSchedule, Role, Source, Tensor
from dmlgpu.target import Profile, Target
from dmlgpu.tensor import packed_strides


@dataclass(frozen=True)
class Reduction:
    """A reduction as an operator describes it.

    Attributes:
        file: the shader with ``acc_t``, ``lift``, ``merge``, ``finish``.
        accumulator, lanes: type and count of the numbers that an accumulator consists of.
        words: as for ``plan.Body``.
        constants: values for the shader.
    """

    file: str
    accumulator: DataType
    lanes: int
    words: bool
    constants: Constants = ()


def reduce_steps(
    reduction: Reduction, source: Tensor, axes: Sequence[int], output: Tensor, target: Target, *, temporary: int = 0
) -> tuple[tuple[Reduce, ...], tuple[int, ...]]:
    """The steps that reduce a tensor in memory along axes, and the sizes in bytes of the temporaries they use.

    One step where a row is short enough for its schedule, two where it is not: partial results, then their reduction.

    Args:
        temporary: the place in the plan of the first temporary tensor that the steps may use.
    """
    return canonical_steps(reduction, *canonical(source, axes, output), target, temporary=temporary)


def canonical_steps(
    reduction: Reduction, source: Source, axes: tuple[int, ...], output: Tensor, target: Target, *, temporary: int = 0
) -> tuple[tuple[Reduce, ...], tuple[int, ...]]:
    """As ``reduce_steps``, along the last dimensions, already merged, of a tensor that may be virtual."""
    rows = math.prod(source.sizes[: len(source.sizes) - len(axes)])
    count = math.prod(source.sizes[axis] for axis in axes)
    parts = choose_parts(rows, count, target)

    def step(schedule: ReduceSchedule, given: Source, result: Tensor, of_partials: bool = False) -> Reduce:
        return Reduce(
            schedule.value if not of_partials else f"{schedule.value} of partials",
            reduction.file,
            source.data_type,
            given,
            axes,
            result,
            schedule,
            of_partials,
            reduction.constants,
            reduction.words,
        )

    if parts == 1:
        return (step(choose_schedule(rows, count, target), source, output),), ()
    sizes = (*output.sizes, parts)
    partials = Tensor(
        Binding(Role.TEMPORARY, temporary), reduction.accumulator, sizes, packed_strides(sizes), lanes=reduction.lanes
    )
    steps = (
        step(ReduceSchedule.PARTIAL, source, partials),
        step(choose_schedule(rows, parts, target), partials, output, of_partials=True),
    )
    return steps, (math.prod(sizes) * partials.unit_bits // 8,)


def canonical(source: Tensor, axes: Sequence[int], output: Tensor) -> tuple[Tensor, tuple[int, ...], Tensor]:
    """The same reduction with merged dimensions: kept ones first, reduced ones last.

    The row-major order over the axes, and so the numbers that ARGMIN gives, stay as they are.
    """
    reduced = sorted(axes)
    kept = [dimension for dimension in range(source.rank) if dimension not in reduced]

    def pick(values: Sequence[int], dimensions: Sequence[int]) -> tuple[int, ...]:
        return tuple(values[dimension] for dimension in dimensions)

    kept_sizes, (kept_strides, output_strides) = merge_dimensions(
        pick(source.sizes, kept), pick(source.strides, kept), pick(output.strides, kept)
    )
    row_sizes, (row_strides,) = merge_dimensions(pick(source.sizes, reduced), pick(source.strides, reduced))
    ones = (1,) * len(row_sizes)
    return (
        replace(source, sizes=kept_sizes + row_sizes, strides=kept_strides + row_strides),
        tuple(range(len(kept_sizes), len(kept_sizes) + len(row_sizes))),
        replace(output, sizes=kept_sizes + ones, strides=output_strides + (0,) * len(ones)),
    )


SERIAL_ON_CPU = 16384
"""Longest row that one invocation walks on a CPU adapter."""

SERIAL_ON_GPU = 32
TREE_ON_GPU = 65536
PARTS_IN_FLIGHT = 1024
"""Partial results that a CPU adapter works on together: enough to fill its lanes and threads."""


def choose_parts(rows: int, count: int, target: Target) -> int:
    """Partial results per row; 1 means that a single step does."""
    if target.profile is Profile.CPU:
        for_lanes = min(-(-count // 64), PARTS_IN_FLIGHT // rows) if rows < 64 else 1
        wanted = max(-(-count // _longest_walk(target)), for_lanes)
    else:
        wanted = 1 if count <= TREE_ON_GPU else min(TREE_ON_GPU, -(-count // 256))
    return max(1, min(wanted, count))


def _longest_walk(target: Target) -> int:
    """Elements that one invocation may walk: a few such walks stay below the iterations at which it is stopped."""
    return SERIAL_ON_CPU if target.loop_limit is None else min(SERIAL_ON_CPU, target.loop_limit // 4)


def choose_schedule(rows: int, count: int, target: Target) -> ReduceSchedule:
    """Serial where there are rows enough or a row is short; else a workgroup per row."""
    longest = _longest_walk(target) if target.profile is Profile.CPU else SERIAL_ON_GPU
    return ReduceSchedule.SERIAL if count <= longest else ReduceSchedule.TREE
