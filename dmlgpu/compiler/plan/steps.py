"""Base of all steps; maps, repeated steps, sorts, scatters, regions of interest; plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan.sources import Body, Constants, PlanBinding, PlanTensor, Source, constants


@dataclass(frozen=True)
class Step:
    """Step of a plan; each kind is a subclass.

    Attributes:
        label: its purpose, if the kind does not say it; for profilers and messages.
    """

    label: str


@dataclass(frozen=True)
class Map(Step):
    """Computes every element of the output independently.

    Attributes:
        keeps_neighbors: the output is part of a tensor whose other elements belong to other steps: only bits of its
            own elements change.
        is_once: it runs once, at initialization: one kernel for many sizes is worth more than a fast one.
    """

    body: Body
    output: PlanTensor
    keeps_neighbors: bool = False
    is_once: bool = False


@dataclass(frozen=True)
class GatherColumns(Map):
    """A map with lookups of columns of products, which read the layout that the initialization makes for products.

    Attributes:
        matrices: over (.., columns), of which lookups read the same bytes: equal ones of steps are laid out alike.
        are_quantized: whether the columns of these products are quantized, whose panels have another order.
    """

    matrices: tuple[PlanTensor, ...] = ()
    are_quantized: bool = False


MAX_KERNELS = 1 << 13
"""Kernels of one execution: each is bound by itself, which takes about a tenth of a millisecond."""


@dataclass(frozen=True)
class Repeat(Step):
    """A loop over steps, whose bindings advance: all iterations share the steps' kernels.

    Attributes:
        steps: of the first iteration.
        turns: number of iterations.
        advances: bytes, a multiple of 16, by which the binding of a resource advances per iteration; other resources
            do not advance.
    """

    steps: tuple[Step, ...]
    turns: int
    advances: tuple[tuple[PlanBinding, int], ...]


@dataclass(frozen=True)
class Plan:
    """Computation of an operator.

    Attributes:
        operator: DirectML's operator name, for labels and messages.
        steps: executed at each dispatch, in order.
        initialization: executed once, when the operator is initialized: they read inputs that are OWNED_BY_DML and data
            of the plan, and write persistent tensors, where ``steps`` find them.
    """

    operator: str
    steps: tuple[Step, ...]
    initialization: tuple[Step, ...] = ()

    def __str__(self) -> str:
        """Return a readable text: the equations of each step, and the tensors that it reads and writes."""
        from dmlgpu.compiler.plan.text import describe  # noqa: PLC0415 - it knows all kinds of steps, which know this module

        return describe(self)


@dataclass(frozen=True)
class Sort(Step):
    """Finds the first elements along an axis in sorted order, or all of them.

    Elements are sorted as *records*: their rank, an unsigned number that compares as they do, and their position on the
    axis. No two records are equal, so the result depends neither on the order of invocations nor on a stable sort.

    Attributes:
        source: the elements.
        decreasing: the largest one comes first.
        output: the records, UINT32 in lanes of ``record_lanes`` words: the source's other dimensions in order, then the
            axis with the requested number of records.
    """

    source: PlanTensor
    axis: int
    decreasing: bool
    output: PlanTensor


def record_lanes(data_type: DataType) -> int:
    """Return the number of words of a record: one or two of the rank, one of the position, rounded up to 2 or 4."""
    return 4 if data_type.bits == 64 else 2


@dataclass(frozen=True)
class Scatter(Step):
    """Writes every element of ``source`` to the position in the output that a shader computes.

    It defines ``fn place(at: source_at, target: ptr<function, output_at>) -> bool``; false drops the element.

    Attributes:
        file: the shader; ``constants`` are its values.
        source: a tensor, which is moved as raw bits, or an elementwise tree if the graph compiler fuses a map.
        output: its elements have a word or more if the source is a tree.
        inputs: the tensors from which positions are computed, by name.
        follows: for each dimension of the source, the dimension of the output with the same coordinate for all inputs,
            or None.
        distinct: no two elements go to one place. If they do, any of them wins; on a deterministic device the last one
            in row-major order wins.
        rest: the first of the last dimensions, along which source and output have equal coordinates and the shader
            names none, so that they may be split; None if there are none.
    """

    file: str
    source: Source
    inputs: tuple[tuple[str, PlanTensor], ...]
    output: PlanTensor
    constants: Constants
    follows: tuple[int | None, ...]
    distinct: bool = False
    rest: int | None = None


@dataclass(frozen=True)
class Together(Step):
    """Maps and scatters that one kernel may compute: none reads or writes what another one writes.

    Attributes:
        steps: of which a schedule may nevertheless compute each by kernels of its own.
    """

    steps: tuple[Map | Scatter, ...]


@dataclass(frozen=True)
class RegionAxis:
    """Sampling of regions along one axis, for shaders.

    Attributes:
        name: ``y`` or ``x``.
        entry: index of the near end in a region; the far end has index ``entry + 2``.
        spatial, outputs: elements of the input and of the output.
        scale_bits: factor of the coordinates of regions, as a word.
        lowest, highest: samples between these coordinates lie on the input.
        longest: maximum samples of one output element.
    """

    name: str
    entry: int
    spatial: int
    outputs: int
    scale_bits: int
    lowest: int
    highest: int
    longest: int


@dataclass(frozen=True)
class Sampling:
    """Sampling of the regions of a description.

    Attributes:
        axes: y and x.
        fewest, most: samples of one output element along an axis.
        linear: linear interpolation, else the nearest element.
        aligned: the outermost samples lie at the ends of the region.
        input_offset_bits, output_offset_bits: the pixel offsets, as words.
    """

    axes: tuple[RegionAxis, RegionAxis]
    fewest: int
    most: int
    linear: bool
    aligned: bool
    input_offset_bits: int
    output_offset_bits: int

    @property
    def block(self) -> tuple[int, int]:
        """Maximum rows and columns of samples of one output element."""
        return self.axes[0].longest, self.axes[1].longest

    def values(self, **others: Any) -> Constants:
        """Return the fields as template values, with others."""
        return constants(**vars(self), **others)


@dataclass(frozen=True)
class Loop(Map):
    """A map whose body loops, for each element, over a block of places: samples of a region, elements of an image.

    Attributes:
        block: maximum rows and columns of the block.
    """

    block: tuple[int, int] = (1, 1)


@dataclass(frozen=True)
class RegionGradient(Step):
    """Propagates a gradient of sampled regions to the images, to the regions, or to both.

    Attributes:
        sampling: how the regions are sampled.
        gradient: {regions, channels, height, width} of the samples' means or maxima.
        regions, batches: {regions, 4} and {regions}: the regions, and the image of each.
        input: the images; None if neither maxima nor slopes are needed.
        maximum: the largest sample of each element gets its gradient, else all samples an equal share.
        output: the gradient of the images; None if it is not requested.
        region_output: the gradient of the regions, which are sampled by linear interpolation; None likewise.
    """

    sampling: Sampling
    gradient: PlanTensor
    regions: PlanTensor
    batches: PlanTensor
    input: PlanTensor | None
    maximum: bool
    output: PlanTensor | None
    region_output: PlanTensor | None
