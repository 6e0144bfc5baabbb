"""Regions of interest: where samples lie on the input, and loops over them that end on every driver."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from dmlgpu.catalog.enums import InterpolationMode
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import (
    Body,
    Constants,
    Map,
    Plan,
    Reduce,
    Reduction,
    Sizes,
    Step,
    Tensor,
    Tiles,
    constants,
    element,
)
from dmlgpu.compiler.rewrites.resampling import bits_of_float
from dmlgpu.compiler.target import Target

BESIDE = 8
"""Samples that shaders look at beside those on the input: the edges' own, and what rounding may bring."""

WALKS = 16
"""Items, at most, that one invocation of a map or of a short reduction handles in turn."""

MOST_SHARES = 256
"""Kernels that are still worth it, on a driver that cuts loops short."""

LOOPING = ("regions/largest", "regions/reaching", "regions/roi_align1", "regions/touched", "regions/winner")
"""Bodies that loop over regions or samples, so that they are long."""


def is_costly(body: Body) -> bool:
    """Return whether a body loops so long that it is never computed as part of another kernel."""
    return body.file in LOOPING


# ---- samples


@dataclass(frozen=True)
class Axis:
    """How regions are sampled along one axis, as shaders know it.

    Attributes:
        name: ``y`` or ``x``.
        entry: where the number of a region's near end stands; that of its far end stands two behind it.
        spatial, outputs: elements of the input and of the output.
        scale_bits: what regions are multiplied by, as a word.
        lowest, highest: between these coordinates a sample lies on the input.
        longest: samples, at most, of one output element to look at.
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
    """How the regions of a description are sampled.

    Attributes:
        axes: y and x.
        fewest, most: samples of one output element along an axis.
        linear: between neighbours, else the nearest element.
        aligned: the outermost samples lie at the ends of the region.
        input_offset_bits, output_offset_bits: the pixel offsets, as words.
    """

    axes: tuple[Axis, Axis]
    fewest: int
    most: int
    linear: bool
    aligned: bool
    input_offset_bits: int
    output_offset_bits: int

    @classmethod
    def of(cls, desc: Any, spatial: tuple[int, ...], outputs: tuple[int, ...]) -> Sampling:
        """Return the sampling of ROI_ALIGN1 and its gradient.

        Args:
            desc: the description.
            spatial, outputs: height and width of the forward operator's input and output.
        """
        fewest, most = max(desc.minimum_samples_per_output, 1), desc.maximum_samples_per_output
        inset = 1 if desc.align_regions_to_corners else 0
        scales = (desc.spatial_scale_y, desc.spatial_scale_x)
        y, x = (
            # Samples whose number a region decides lie about one element apart; only a least number brings them closer.
            Axis(name, entry, n, m, bits_of_float(scale), inset - 1, n - inset, min(most, max(fewest, n + BESIDE)))
            for name, entry, n, m, scale in zip("yx", (1, 0), spatial, outputs, scales, strict=True)
        )
        return cls(
            (y, x),
            fewest,
            most,
            desc.interpolation_mode is InterpolationMode.LINEAR,
            desc.align_regions_to_corners,
            bits_of_float(desc.input_pixel_offset),
            bits_of_float(desc.output_pixel_offset),
        )

    def values(self, **others: Any) -> Constants:
        """Return what shaders know of it, and more."""
        return constants(**vars(self), **others)

    def shares(self, target: Target) -> Shares:
        """Return the samples of one output element in shares."""
        return Shares.of(self.axes[0].longest, self.axes[1].longest, target)


@dataclass(frozen=True)
class Shares:
    """A block of places, rows by columns, in shares that one invocation walks.

    Attributes:
        rows, columns: of one share.
        across: shares side by side.
        count: shares in all.
    """

    rows: int
    columns: int
    across: int
    count: int

    @property
    def iterations(self) -> int:
        """Of the loops over one share."""
        return self.rows * (self.columns + 1)

    @classmethod
    def of(cls, rows: int, columns: int, target: Target) -> Shares:
        """Return shares as large as the target's loops allow, which may also run once along each side of the block.

        Raises:
            NotSupported: when there would be too many of them.
        """
        if target.loop_limit is None:
            return cls(rows, columns, 1, 1)
        room = target.loop_limit // WALKS - rows - columns
        wide = max(1, min(columns, room // 2))
        high = max(1, min(rows, room // (wide + 1)))
        across = -(-columns // wide)
        count = across * -(-rows // high)
        if room < 2 or count > MOST_SHARES:
            raise NotSupported(
                f"{rows} x {columns} elements behind one output element exceed the loops that {target.name!r} runs to"
                f" their end ({target.loop_limit})"
            )
        return cls(high, wide, across, count)


# ---- plans


@dataclass
class Work:
    """A plan in the making.

    Attributes:
        target: what it is made for.
        steps: of the plan.
    """

    target: Target
    steps: list[Step] = field(default_factory=list)

    def turns(self, most: int, iterations: int) -> int:
        """Return how often one invocation goes through loops of so many iterations: ``most`` times, if the target lets
        it."""
        limit = self.target.loop_limit
        return most if limit is None else max(1, min(most, limit // (2 * iterations + 2)))

    def stored(self, body: Body) -> Tensor:
        """Adds a map into a temporary tensor."""
        stored = Tensor.temporary("map", body.data_type, body.sizes)
        self.steps.append(Map("map", body, stored))
        return stored

    def in_shares(self, body: Body, output: Tensor, shares: Shares, tile: Sizes | None = None) -> None:
        """Adds a map per share; each but the first goes on from what came of those before, its input ``previous``.

        A body's own type holds what is between the shares. With a tile it computes whole tiles.
        """
        between = output
        if shares.count > 1 and output.data_type is not body.data_type:
            between = Tensor.temporary("shares", body.data_type, output.sizes)
        for share in range(shares.count):
            result = output if share == shares.count - 1 else between
            inputs = {**dict(body.inputs), **({"previous": between} if share else {})}
            values = (*body.constants, ("share", share), ("shares", shares))
            step = element(body.file, result.data_type, body.sizes, portable=True, values=values, **inputs)
            label = f"share {share}"
            self.steps.append(Tiles(label, step, tile, result) if tile else Map(label, step, result))

    def reduce(self, reduction: Reduction, source: Tensor, output: Tensor) -> None:
        """Adds a reduction over the dimensions that a tensor has beyond the output's."""
        axes = tuple(range(output.rank, source.rank))
        results = replace(output, sizes=output.sizes + (1,) * len(axes), strides=output.strides + (0,) * len(axes))
        self.steps.append(Reduce("", reduction, source, axes, results))

    def plan(self, operator: str) -> Plan:
        """Return the plan."""
        return Plan(operator, tuple(self.steps))
