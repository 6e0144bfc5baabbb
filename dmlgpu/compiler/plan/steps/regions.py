"""Regions of interest: how they are sampled, and the steps that only they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dmlgpu.compiler.plan.sources import Constants, constants
from dmlgpu.compiler.plan.steps.base import Map, Step
from dmlgpu.compiler.plan.tensors import Tensor


@dataclass(frozen=True)
class RegionAxis:
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

    axes: tuple[RegionAxis, RegionAxis]
    fewest: int
    most: int
    linear: bool
    aligned: bool
    input_offset_bits: int
    output_offset_bits: int

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of the samples of one output element, at most."""
        return self.axes[0].longest, self.axes[1].longest

    def values(self, **others: Any) -> Constants:
        """Return what shaders know of it, and more."""
        return constants(**vars(self), **others)


@dataclass(frozen=True)
class Loop(Map):
    """A map whose body loops, for each element, over a block of places: samples of a region, elements of an image.

    Attributes:
        block: rows and columns of the block, at most.
    """

    block: tuple[int, int] = (1, 1)


@dataclass(frozen=True)
class RegionGradient(Step):
    """Computes what a gradient of sampled regions means for the image, for the regions, or for both.

    Attributes:
        sampling: how the regions are sampled.
        gradient: {regions, channels, height, width} of the samples' means or maxima.
        regions, batches: {regions, 4} and {regions}: the regions, and the image that each lies in.
        input: the images; None where neither maxima nor slopes are asked for.
        maximum: the largest sample of each element gets its gradient, else all samples an equal share.
        output: the gradient of the images; None where it is not asked for.
        region_output: the gradient of the regions, which are sampled by linear interpolation; None likewise.
    """

    sampling: Sampling
    gradient: Tensor
    regions: Tensor
    batches: Tensor
    input: Tensor | None
    maximum: bool
    output: Tensor | None
    region_output: Tensor | None
