"""Regions of interest: loops split below every driver's limit, and gradients gathered in tiles of channels."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import (
    Body,
    Loop,
    Map,
    PlanTensor,
    Reduction,
    RegionAxis,
    RegionGradient,
    Sizes,
    Source,
    constants,
    element,
)
from dmlgpu.compiler.rewrites.windows import reduced
from dmlgpu.compiler.schedule.registry import by_profile
from dmlgpu.compiler.schedule.scheduling import schedule_in_parts, schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.tiles import tiles, unchanged
from dmlgpu.compiler.target import Target

FLOAT32, UINT32 = DataType.FLOAT32, DataType.UINT32
SUM = Reduction("reduction/reduce_sum_float", FLOAT32, 2, portable=True)

WALKS = 16
"""Maximum items per invocation of a map or of a short reduction."""

MAX_SHARES = 256
"""Maximum number of kernels on a driver that limits loops."""

BLOCK = 32
"""Number of output elements along an axis per bit mask."""

GROUP = 32
"""Number of regions per bit mask."""

ELEMENTS = 8
"""Number of elements along an axis whose weights an invocation computes at once."""

CHANNELS = by_profile(cpu=8, gpus=4)
"""Number of channels that an invocation takes at once."""

CHANNELS_OF_MAXIMA, ACROSS = 4, 4
"""Channels and elements in a row whose gradients of maxima an invocation on a CPU adapter sums: the same maxima affect
adjacent elements."""

IN_TURN = 32
"""Number of channels that an invocation takes sequentially."""

ENOUGH = 4096
"""Number of invocations that keep an adapter busy: with more, each takes all regions."""

CHANNEL = 1
"""Dimension of channels."""

SIDES = ("row", "column")
GRADIENT, REGIONS = "regions/roi_align_grad", "regions/roi_align_grad_regions"
WEIGHTS, TOUCHED, REACHING = "regions/weights", "regions/touched", "regions/reaching"
WINNER, PLACE = "regions/winner", "regions/winning_place"


# ---- shares


@dataclass(frozen=True)
class Shares:
    """A block of places, rows by columns, split into shares of one invocation.

    Attributes:
        rows, columns: size of one share.
        across: number of shares along columns.
        count: total number of shares.
    """

    rows: int
    columns: int
    across: int
    count: int

    @property
    def iterations(self) -> int:
        """Number of iterations of the loops over one share."""
        return self.rows * (self.columns + 1)

    @classmethod
    def of(cls, rows: int, columns: int, target: Target) -> Shares:
        """Return the largest shares that the target's loop limit allows; loops may also run once along each side of the
        block.

        Raises:
            NotSupported: when there would be too many shares.
        """
        if target.loop_limit is None:
            return cls(rows, columns, 1, 1)
        room = target.loop_limit // WALKS - rows - columns
        wide = max(1, min(columns, room // 2))
        high = max(1, min(rows, room // (wide + 1)))
        across = -(-columns // wide)
        count = across * -(-rows // high)
        if room < 2 or count > MAX_SHARES:
            raise NotSupported(
                f"{rows} x {columns} input elements of one output element exceed the loops that {target.name!r} runs to"
                f" their end ({target.loop_limit})"
            )
        return cls(high, wide, across, count)


def in_shares(body: Body, output: PlanTensor, shares: Shares) -> Iterator[tuple[str, Body, PlanTensor]]:
    """Yield label, body and output of the kernel of each share; each but the first continues from the result of the
    previous share, its input ``previous``. Intermediate results have the body's data type."""
    between = output
    if shares.count > 1 and output.data_type is not body.data_type:
        between = PlanTensor.temporary("shares", body.data_type, output.sizes)
    for share in range(shares.count):
        result = output if share == shares.count - 1 else between
        inputs = {**dict(body.inputs), **({"previous": between} if share else {})}
        values = (*body.constants, ("share", share), ("shares", shares))
        yield (
            f"share {share}",
            element(body.file, result.data_type, body.sizes, portable=True, values=values, **inputs),
            result,
        )


@schedule_step.register
def _loop(step: Loop, target: Target) -> ScheduledSteps:
    """Return a map per share of the block."""
    maps = [
        Map(f"{step.label} {label}".lstrip(), body, output, step.keeps_neighbors and output is step.output)
        for label, body, output in in_shares(step.body, step.output, Shares.of(*step.block, target))
    ]
    return sum((schedule_in_parts(share, target) for share in maps), ScheduledSteps())


# ---- gradients


@schedule_step.register
def _region_gradient(step: RegionGradient, target: Target) -> ScheduledSteps:
    """Return the kernels of the maxima, if needed, then of either gradient, gathered element by element."""
    work = _Gradients(step, target)
    if step.output is not None:
        work.add_input_gradient(step.output)
    if step.region_output is not None:
        work.add_region_gradient(step.region_output)
    return work.steps


class _Gradients:
    """Builder of the kernels of the gradients."""

    def __init__(self, step: RegionGradient, target: Target):
        self.target, self.steps = target, ScheduledSteps()
        self.sampling, self.gradient, self.maximum = step.sampling, step.gradient, step.maximum
        self.shares = Shares.of(*step.sampling.block, target)
        self.regions: dict[str, Source] = {"roi": step.regions, "batch": step.batches}
        self.input: dict[str, Source] = {} if step.input is None else {"input": step.input}

    def turns(self, most: int, iterations: int) -> int:
        """Return the number of times that one invocation may run loops of ``iterations``: ``most``, or fewer if the
        target has a loop limit."""
        limit = self.target.loop_limit
        return most if limit is None else max(1, min(most, limit // (2 * iterations + 2)))

    def tile(self, label: str, body: Body, tile: Sizes, output: PlanTensor, alike: int | None = None) -> None:
        """Add a kernel whose invocations compute a whole tile each.

        Args:
            label, body, tile, output: Parts of the kernel.
            alike: A dimension along which all tiles run the same loops, or None.
        """
        epilogue = unchanged(output.data_type, output.sizes)
        first = alike if self.target.runs_in_lockstep else None
        kernel = tiles(label, body, tile, epilogue, output, target=self.target, first=first)
        by = "x".join(map(str, tile))
        self.steps += kernel.because(f"an invocation computes {by} elements, from what it reads only once")

    def map(self, body: Body) -> PlanTensor:
        """Add a map into a temporary tensor."""
        stored = PlanTensor.temporary("map", body.data_type, body.sizes)
        self.steps += schedule_step(Map("map", body, stored), self.target)
        return stored

    def sum(self, source: PlanTensor, output: PlanTensor) -> None:
        """Add the sum over a tensor's dimensions that the output lacks."""
        self.steps += schedule_step(reduced(SUM, source, output, source.rank - output.rank), self.target)

    @functools.cached_property
    def winner(self) -> dict[str, Source]:
        """Return the input with the index of each output element's largest sample; none for means."""
        if not self.maximum:
            return {}
        winner = PlanTensor.temporary("winner", DataType.UINT64, self.gradient.sizes)
        inputs = {**self.input, **self.regions}
        tile = self._channels()
        values = self.sampling.values(tile=tile[1])
        body = element(WINNER, DataType.UINT64, winner.sizes, portable=True, values=values, **inputs)
        for label, share, output in in_shares(body, winner, self.shares):
            self.tile(label, share, tile, output)
        return {"winner": winner}

    def add_input_gradient(self, output: PlanTensor) -> None:
        """Add the steps in which each element of the input sums its shares of the output elements that it affects."""
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
        summed = output if shares == 1 else PlanTensor.temporary("shares", FLOAT32, (*output.sizes, shares))
        body = element(GRADIENT, FLOAT32, summed.sizes, portable=True, values=values, **inputs)
        self.tile("input gradient", body, (*tile, 1)[: summed.rank], summed, alike=CHANNEL)
        if shares > 1:
            self.sum(summed, output)

    def _reaching(self, touched: PlanTensor, group: int, batches: int | None) -> PlanTensor:
        """Return bit masks of the regions of a group that affect an element along an axis, for each batch."""
        regions, blocks, spatial = touched.sizes
        sizes = (batches or 1, -(-regions // group), blocks, spatial)
        inputs = {"touched": touched, **({"batch": self.regions["batch"]} if batches else {})}
        values = constants(group=group, batches=batches is not None)
        return self.map(element(REACHING, UINT32, sizes, portable=True, values=values, **inputs))

    def _places(self) -> PlanTensor:
        """Return the position of the largest sample of each output element."""
        places = PlanTensor.temporary("places", DataType.UINT64, self.gradient.sizes)
        tile = self._channels()
        inputs = {"roi": self.regions["roi"], **self.winner}
        values = self.sampling.values(tile=tile[1])
        body = element(PLACE, places.data_type, places.sizes, portable=True, values=values, **inputs)
        self.tile("places", body, tile, places)
        return places

    def _channels(self) -> Sizes:
        """Return the tile of channels per invocation: they differ only in the elements."""
        return (1, min(CHANNELS[self.target.profile], self.gradient.sizes[1]), 1, 1)

    def _summed(self, sizes: Sizes) -> tuple[Sizes, int]:
        """Return the tile of input elements per invocation, and the number of them in a row."""
        if not self.maximum or self.target.needs_many_invocations:
            return self._channels(), 1
        across = min(ACROSS, sizes[-1])
        return (1, min(CHANNELS_OF_MAXIMA, sizes[CHANNEL]), 1, across), across

    def _weights(self, axis: RegionAxis) -> PlanTensor:
        """Return the weights of elements along an axis in the output elements of each region."""
        weights = PlanTensor.temporary("weights", FLOAT32, (self.gradient.sizes[0], axis.outputs, axis.spatial))
        tile = min(ELEMENTS, axis.spatial)
        values = self.sampling.values(axis=axis, tile=tile)
        body = element(WEIGHTS, FLOAT32, weights.sizes, portable=True, values=values, roi=self.regions["roi"])
        self.tile("weights", body, (1, 1, tile), weights)
        return weights

    def _touched(self, weights: PlanTensor, across: int) -> PlanTensor:
        """Return, as a bit mask per block of output elements, those for which any of ``across`` adjacent input elements
        along an axis has weight."""
        regions, outputs, spatial = weights.sizes
        sizes = (regions, -(-outputs // BLOCK), -(-spatial // across))
        values = constants(block=BLOCK, across=across)
        return self.map(element(TOUCHED, UINT32, sizes, portable=True, values=values, weights=weights))

    def add_region_gradient(self, output: PlanTensor) -> None:
        """Add the steps in which each number of a region sums the shares of all its samples."""
        shares = Shares(0, 0, 1, 1) if self.maximum else self.shares
        _, channels, *outputs = self.gradient.sizes
        together = self.turns(min(channels, IN_TURN), shares.iterations)
        sizes = (*output.sizes, -(-channels // together), *outputs, shares.count)
        parts = PlanTensor.temporary("parts", FLOAT32, sizes)
        values = self.sampling.values(maximum=self.maximum, shares=shares, channels=together)
        inputs = {"gradient": self.gradient, **self.input, **self.regions, **self.winner}
        body = element(REGIONS, FLOAT32, sizes, portable=True, values=values, **inputs)
        self.tile("region gradient", body, (1, 4, 1, 1, 1, 1), parts)
        self.sum(parts, output)
