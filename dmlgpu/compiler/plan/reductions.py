"""Reductions, rows and scans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan.sources import Body, Constants, PlanTensor, RegisterValue, Sizes, Source
from dmlgpu.compiler.plan.steps import Step
from dmlgpu.compiler.sizes.arithmetic import is_many, is_same_size


@dataclass(frozen=True)
class Reduction:
    """A function that combines the elements of a row.

    Attributes:
        file: the shader with ``acc_t``, ``lift``, ``merge`` and ``finish`` (see shaders/reduction).
        accumulator, lanes: type and count of the numbers that an accumulator consists of.
        portable: as for ``Body``.
        constants: values for the shader.
        ordered: the indices of the elements of a row matter (ARGMIN); else a row is read in memory order.
        longest: maximum number of elements merged sequentially, if rounding errors grow with them; None for any number.
    """

    file: str
    accumulator: DataType
    lanes: int
    portable: bool
    constants: Constants = ()
    ordered: bool = False
    longest: int | None = None


@dataclass(frozen=True)
class Reduce(Step):
    """Combines the elements of each row.

    Attributes:
        source: the reduced source.
        axes: the dimensions along which a row lies; the last ones of a source that changes coordinates.
        output: of the source's sizes, 1 along the axes. Its lanes are the numbers of a result.
        epilogue: computes the stored value, an elementwise tree over the output's sizes with a leaf
            ``RegisterValue.product`` of 32 bits, which stands for the result; None: the result itself.
    """

    reduction: Reduction
    source: Source
    axes: tuple[int, ...]
    output: PlanTensor
    epilogue: Body | None = None


@dataclass(frozen=True)
class Stage:
    """One of the reductions of a row, in float32 for every data type.

    Attributes:
        name: name of its result in later bodies.
        file: the shader with ``acc_t``, ``lift``, ``merge`` and ``finish``.
        lanes: numbers per accumulator.
        prepare: the file of an ``apply`` body on ``input`` and the results of earlier stages, whose result is reduced
            instead of the elements; empty for none.
        parts: names in later bodies of the first components of the result, if it is a vector.
        constants: values for the shader.
        longest: as for ``Reduction``.
    """

    name: str
    file: str
    lanes: int
    prepare: str = ""
    parts: tuple[str, ...] = ()
    constants: Constants = ()
    longest: int | None = None

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the results."""
        return self.parts or (self.name,)


@dataclass(frozen=True)
class Rows(Step):
    """Reduces each row, in stages, computes each of its elements from itself and the results, and optionally stores
    values of the row.

    Attributes:
        stages: the reductions, in order.
        source: the reduced source, an elementwise tree.
        axes: the dimensions along which a row lies.
        body: computes an element, an element-wise tree over the source, other tensors and results of the stages
            (``RegisterValue``), which are repeated along the axes.
        output: of the source's sizes.
        statistics: compute values of a row, element-wise trees over results of the stages and other tensors, of the
            source's sizes but 1 along the axes.
        statistic_outputs: of these sizes, one for each.
    """

    stages: tuple[Stage, ...]
    source: Source
    axes: tuple[int, ...]
    body: Body
    output: PlanTensor
    statistics: tuple[Body, ...] = ()
    statistic_outputs: tuple[PlanTensor, ...] = ()


@dataclass(frozen=True)
class Scanning:
    """Operation that merges elements along a line.

    Attributes:
        file: the shader with ``acc_t``, ``start``, ``lift``, ``merge`` (commutative, too) and ``finish``.
        accumulator, lanes: type and count of the numbers that an accumulator consists of.
        portable: as for ``Body``.
        exclusive: an element's result leaves the element itself out.
        decreasing: lines begin at their last element.
    """

    file: str
    accumulator: DataType
    lanes: int
    portable: bool
    exclusive: bool = False
    decreasing: bool = False


@dataclass(frozen=True)
class Scan(Step):
    """Exclusive or inclusive scan of lines; the output may alias the input.

    Attributes:
        source, output: of equal sizes.
        axis: the scanned axis.
    """

    scanning: Scanning
    source: PlanTensor
    axis: int
    output: PlanTensor


@dataclass(frozen=True)
class Compact(Step):
    """Writes data for each element that a predicate selects, consecutively, and the number of these elements.

    Attributes:
        source: the elements, chosen in row-major order.
        predicate: the file of an ``apply`` body that gives 1 or 0.
        advance: the shader that writes the data of an element; ``constants`` are its values.
        output: {selected elements, data of each}.
        count: the number of chosen elements, a UINT32 tensor of one element, seen raw.
    """

    source: PlanTensor
    predicate: str
    advance: str
    constants: Constants
    output: PlanTensor
    count: PlanTensor


def repeated(tensor: PlanTensor, sizes: Sizes) -> PlanTensor:
    """Broadcast a tensor, such as the results of rows, along its dimensions of size 1 to ``sizes``."""
    dimensions = zip(tensor.sizes, tensor.strides, sizes, strict=True)
    strides = tuple(stride if is_many(has) and is_same_size(has, want) else 0 for has, stride, want in dimensions)
    return replace(tensor, sizes=sizes, strides=strides)


def row_sizes(sizes: Sizes, axes: tuple[int, ...]) -> Sizes:
    """Return the sizes of the results of rows: 1 along the axes."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(sizes))


def stage_results(stages: tuple[Stage, ...], sizes: Sizes, axes: tuple[int, ...]) -> dict[str, RegisterValue]:
    """Return placeholders for the results of stages among the leaves of a row's body, by name."""
    return {name: RegisterValue(name, DataType.FLOAT32, sizes, axes) for stage in stages for name in stage.results}


def reduce_stage(stage: Stage, source: Source, axes: tuple[int, ...]) -> tuple[Reduce, dict[str, PlanTensor]]:
    """Return a stage as a separate reduction, and its results in a temporary tensor, each repeated along its row."""
    sizes = row_sizes(source.sizes, axes)
    lanes = 1 << (len(stage.results) - 1).bit_length()
    result = PlanTensor.temporary(stage.name, DataType.FLOAT32, sizes, lanes=lanes)
    reduction = Reduction(stage.file, DataType.FLOAT32, stage.lanes, True, stage.constants, longest=stage.longest)
    strides = tuple(lanes * stride for stride in result.strides)
    results = {
        name: repeated(replace(result, lanes=1, strides=strides, offset=index), source.sizes)
        for index, name in enumerate(stage.results)
    }
    return Reduce(stage.name, reduction, source, axes, result), results


RowBody = Callable[[DataType, Mapping[str, Source]], Body]
"""Function that makes the body of an element, of a type, from ``input``, results of stages and other sources."""


def rows(
    stages: tuple[Stage, ...],
    body: RowBody,
    source: PlanTensor,
    axes: Sequence[int],
    output: PlanTensor,
    *,
    others: Mapping[str, PlanTensor] | None = None,
    statistics: Sequence[tuple[RowBody, PlanTensor]] = (),
) -> Rows:
    """Return the step for a tensor whose rows lie along axes.

    Args:
        others: further tensors that the body reads, by name, with the source's sizes.
        statistics: for each value of a row that is stored, the function that makes its body from results of stages,
            and its output.
    """
    results = stage_results(stages, source.sizes, tuple(axes))
    tree = body(output.data_type, {"input": source, **results, **(others or {})})
    of_rows = stage_results(stages, row_sizes(source.sizes, tuple(axes)), tuple(axes))
    values = tuple(make(stored.data_type, of_rows) for make, stored in statistics)
    return Rows("", stages, source, tuple(axes), tree, output, values, tuple(stored for _, stored in statistics))
