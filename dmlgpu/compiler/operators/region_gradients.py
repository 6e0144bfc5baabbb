"""The gradients of ROI align: with respect to its input, and to the regions."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.compiler.operators.indices import last_dimensions
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, input_tensor, invalid, output_tensor
from dmlgpu.compiler.operators.regions import FLOAT32, INCLUDED, UINT32, check_sampling, region_inputs
from dmlgpu.compiler.plan import Element, Map, Plan, Reduction, Sizes, Source, Tensor, Tiles, constants, element
from dmlgpu.compiler.rewrites.regions import Axis, Sampling, Shares, Work
from dmlgpu.compiler.target import Profile, Target

SUM = Reduction("reduction/reduce_sum_float", FLOAT32, 2, portable=True)

BLOCK = 32
"""Output elements along an axis that the bits of a word name."""

GROUP = 32
"""Regions that the bits of a word name."""

ELEMENTS = 8
"""Elements along an axis whose weights an invocation finds at once."""

CHANNELS_ON_CPU, CHANNELS_ON_GPU = 8, 4
"""Channels that an invocation takes at once."""

CHANNELS_OF_MAXIMA, ACROSS = 4, 4
"""Channels and elements in a row for which an invocation on a CPU adapter sums what maxima give: the same ones reach
neighbours."""

IN_TURN = 32
"""Channels that an invocation takes one after the other."""

ENOUGH = 4096
"""Invocations that keep an adapter busy: beyond them, none takes less than all regions."""

CHANNEL = 1
"""The dimension of channels."""

SIDES = ("row", "column")
GRADIENT, REGIONS = "regions/roi_align_grad", "regions/roi_align_grad_regions"
WEIGHTS, TOUCHED, REACHING = "regions/weights", "regions/touched", "regions/reaching"
WINNER, PLACE = "regions/winner", "regions/winning_place"


class RoiAlignGrad(Lowering):
    """ROI_ALIGN1's derivatives times InputGradient. Where the page is silent or contradicts itself:

    Samples lie as in ROI_ALIGN1. AVERAGE gives each of them an equal share of the gradient; MAX gives all of it to the
    largest, the first of equal ones row by row, where NaN counts as largest and what lies outside the input as 0. Such
    a sample gets the gradient, but nothing comes of it.

    OutputROIGradient follows the chain rule: d coordinate / d x1 = SpatialScaleX * (1 - f) and d coordinate / d x2 =
    SpatialScaleX * f, f being how far into the region the sample lies (the page's pseudo-code has the gradient's
    coordinates and an undefined size in their place, which differ by a factor). As there, the slope of the input at an
    integer coordinate is 0, and so it is where coordinates are clamped to the input. The numbers of samples count as
    constant. Nearest neighbours do not move with the region: with them OutputROIGradient is 0.

    Every element adds up what it gets, in twice the precision of float32 and always in the same order.
    """

    desc = descs.RoiAlignGrad
    shaders = (
        GRADIENT,
        REGIONS,
        WEIGHTS,
        TOUCHED,
        REACHING,
        WINNER,
        PLACE,
        "regions/winning",
        "regions/fractions",
        *INCLUDED,
    )

    @classmethod
    def output_sizes(cls, desc: descs.RoiAlignGrad) -> Mapping[str, tuple[int, ...]]:
        """The regions'; the input's, where there is one."""
        found = {"output_roi_gradient_tensor": desc.roi_tensor}
        if desc.input_tensor is not None:
            found["output_gradient_tensor"] = desc.input_tensor
        return {field: tensor.sizes for field, tensor in found.items() if getattr(desc, field) is not None}

    @classmethod
    def check(cls, desc: descs.RoiAlignGrad) -> None:
        regions = check_sampling(desc)
        check_given(desc)
        whole = "input_tensor" if desc.output_gradient_tensor is None else "output_gradient_tensor"
        sizes = getattr(desc, whole).sizes
        expected = (regions, sizes[1], *desc.input_gradient_tensor.sizes[2:])
        check_sizes(desc, "input_gradient_tensor", expected, "regions, channels, any height and width")
        if desc.input_tensor is not None:
            check_sizes(desc, "input_tensor", sizes, f"{whole}.sizes")
        if desc.output_roi_gradient_tensor is not None:
            check_sizes(desc, "output_roi_gradient_tensor", desc.roi_tensor.sizes, "roi_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.RoiAlignGrad, target: Target) -> Plan:
        """Maxima first, if they decide; then either gradient, gathered element by element."""
        work = _Gradients(desc, target)
        if desc.output_gradient_tensor is not None:
            work.add_input_gradient(output_tensor(desc, "output_gradient_tensor"))
        if desc.output_roi_gradient_tensor is not None:
            work.add_region_gradient(last_dimensions(output_tensor(desc, "output_roi_gradient_tensor"), 2))
        return work.plan(desc.operator)


def check_given(desc: descs.RoiAlignGrad) -> None:
    """Raise InvalidDescription where an optional tensor is missing."""
    if desc.output_gradient_tensor is None and desc.output_roi_gradient_tensor is None:
        raise invalid(desc, "output_gradient_tensor", "must be given where output_roi_gradient_tensor is not, got None")
    if desc.input_tensor is None and desc.output_roi_gradient_tensor is not None:
        raise invalid(desc, "input_tensor", "must be given where output_roi_gradient_tensor is, got None")
    if desc.input_tensor is None and desc.reduction_function is ReduceFunction.MAX:
        raise invalid(desc, "input_tensor", "must be given where reduction_function is MAX, got None")


class _Gradients(Work):
    """The plan of a description in the making."""

    def __init__(self, desc: descs.RoiAlignGrad, target: Target):
        super().__init__(target)
        self.gradient = input_tensor(desc, "input_gradient_tensor")
        whole = desc.output_gradient_tensor or desc.input_tensor
        assert whole is not None
        self.sampling = Sampling.of(desc, whole.sizes[2:], self.gradient.sizes[2:])
        self.shares = self.sampling.shares(target)
        self.regions = region_inputs(desc)
        self.input: dict[str, Source] = {}
        if desc.input_tensor is not None:
            self.input["input"] = input_tensor(desc, "input_tensor")
        self.maximum = desc.reduction_function is ReduceFunction.MAX

    @functools.cached_property
    def winner(self) -> dict[str, Source]:
        """Return the input that numbers each output element's largest sample; nothing for means."""
        if not self.maximum:
            return {}
        winner = Tensor.temporary("winner", DataType.UINT64, self.gradient.sizes)
        inputs = {**self.input, **self.regions}
        tile = self._channels()
        values = self.sampling.values(tile=tile[1])
        body = element(WINNER, DataType.UINT64, winner.sizes, portable=True, values=values, **inputs)
        self.in_shares(body, winner, self.shares, tile)
        return {"winner": winner}

    def add_input_gradient(self, output: Tensor) -> None:
        """Add the steps in which each element of the input sums its shares of the output elements that it touches."""
        tile, across = self._summed(output.sizes)
        rows, columns = (min(BLOCK, axis.outputs) for axis in self.sampling.axes)
        blocks = math.prod(-(-axis.outputs // BLOCK) for axis in self.sampling.axes)
        iterations = blocks * (rows * (columns + 1) + 2)
        group = self.turns(GROUP, iterations)
        inputs: dict[str, Source] = {"gradient": self.gradient}
        for name, axis in zip(SIDES, self.sampling.axes, strict=True):
            weights = self._weights(axis)
            touched = self._touched(weights, 1 if name == SIDES[0] else across)
            batches = output.sizes[0] if name == SIDES[0] else None
            inputs |= {f"{name}s": touched, f"{name}_regions": self._reaching(touched, group, batches)}
            if not self.maximum:
                inputs[f"{name}_weights"] = weights
        if self.maximum:
            inputs["places"] = self._places()
        groups = -(-self.gradient.sizes[0] // group)
        share = max(1, min(groups, groups * math.prod(output.sizes) // math.prod(tile) // ENOUGH))
        share = self.turns(share, group * iterations)
        shares = -(-groups // share)
        values = constants(
            maximum=self.maximum, block=BLOCK, group=group, share=share, shares=shares, tile=tile[1], across=across
        )
        summed = output if shares == 1 else Tensor.temporary("shares", FLOAT32, (*output.sizes, shares))
        body = element(GRADIENT, FLOAT32, summed.sizes, portable=True, values=values, **inputs)
        self.steps.append(Tiles("input gradient", body, (*tile, 1)[: summed.rank], summed, alike=CHANNEL))
        if shares > 1:
            self.reduce(SUM, summed, output)

    def _reaching(self, touched: Tensor, group: int, batches: int | None) -> Tensor:
        """Return, as bits, which of a group of regions touch an element along an axis, in each of some batches."""
        regions, blocks, spatial = touched.sizes
        sizes = (batches or 1, -(-regions // group), blocks, spatial)
        inputs = {"touched": touched, **({"batch": self.regions["batch"]} if batches else {})}
        values = constants(group=group, batches=batches is not None)
        return self.stored(element(REACHING, UINT32, sizes, portable=True, values=values, **inputs))

    def _places(self) -> Tensor:
        """Return where the largest sample of each output element lies."""
        places = Tensor.temporary("places", DataType.UINT64, self.gradient.sizes)
        tile = self._channels()
        inputs = {"roi": self.regions["roi"], **self.winner}
        values = self.sampling.values(tile=tile[1])
        body = element(PLACE, places.data_type, places.sizes, portable=True, values=values, **inputs)
        self.steps.append(Tiles("places", body, tile, places))
        return places

    def _channels(self) -> Sizes:
        """Return the tile of channels that one invocation computes: they have all but the elements in common."""
        most = CHANNELS_ON_CPU if self.target.profile is Profile.CPU else CHANNELS_ON_GPU
        return (1, min(most, self.gradient.sizes[1]), 1, 1)

    def _summed(self, sizes: Sizes) -> tuple[Sizes, int]:
        """Return the tile of elements of the input that one invocation sums, and how many of them lie in a row."""
        if not self.maximum or self.target.profile is not Profile.CPU:
            return self._channels(), 1
        across = min(ACROSS, sizes[-1])
        return (1, min(CHANNELS_OF_MAXIMA, sizes[CHANNEL]), 1, across), across

    def _weights(self, axis: Axis) -> Tensor:
        """Return the weights of elements along an axis in the output elements of each region."""
        weights = Tensor.temporary("weights", FLOAT32, (self.gradient.sizes[0], axis.outputs, axis.spatial))
        tile = min(ELEMENTS, axis.spatial)
        values = self.sampling.values(axis=axis, tile=tile)
        body = element(WEIGHTS, FLOAT32, weights.sizes, portable=True, values=values, roi=self.regions["roi"])
        self.steps.append(Tiles("weights", body, (1, 1, tile), weights))
        return weights

    def _touched(self, weights: Tensor, across: int) -> Tensor:
        """Return, as bits, in which of a block of output elements one of some neighbours along an axis has weight."""
        regions, outputs, spatial = weights.sizes
        sizes = (regions, -(-outputs // BLOCK), -(-spatial // across))
        values = constants(block=BLOCK, across=across)
        return self.stored(element(TOUCHED, UINT32, sizes, portable=True, values=values, weights=weights))

    def add_region_gradient(self, output: Tensor) -> None:
        """Add the steps in which each number of a region sums the shares of all its samples."""
        if not self.sampling.linear:
            self.steps.append(Map("zeros", Element("layout/zero", output.data_type, output.sizes), output))
            return
        shares = Shares(0, 0, 1, 1) if self.maximum else self.shares
        _, channels, *outputs = self.gradient.sizes
        together = self.turns(min(channels, IN_TURN), shares.iterations)
        sizes = (*output.sizes, -(-channels // together), *outputs, shares.count)
        parts = Tensor.temporary("parts", FLOAT32, sizes)
        values = self.sampling.values(maximum=self.maximum, shares=shares, channels=together)
        inputs = {"gradient": self.gradient, **self.input, **self.regions, **self.winner}
        body = element(REGIONS, FLOAT32, sizes, portable=True, values=values, **inputs)
        self.steps.append(Tiles("region gradient", body, (1, 4, 1, 1, 1, 1), parts))
        self.reduce(SUM, parts, output)
