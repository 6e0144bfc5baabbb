"""Winograd's minimal filtering, F(2 x 2, 3 x 3) and F(4 x 4, 3 x 3): 2.25 and 4 times fewer products.

For 3 x 3 windows and tiles of m x m outputs, each of which sees a patch of a x a inputs, a = m + 2 (Lavin and Gray,
arXiv:1509.09308):

    output tile = At [ (G filter Gt) * (Bt patch B) ] A        (* element by element, summed over channels)

1. ``filters``: G filter Gt of all filters, {a * a, groups, channels, outputs}; once, at initialization, where the
   filter is OWNED_BY_DML.
2. ``patches``: Bt patch B of all patches, {a * a, groups, channels, tiles of all images}.
3. ``a * a`` matrix products per group of outputs by tiles, under the schedule chosen for products.
4. ``norm``: the root of the sum of squares of all channels, of each pixel; ``marks``: a bit for each output of a tile
   whose window is too small relative to its patch, {groups, tiles of all images}, as a number. CPU adapters compute
   both in the kernel of patches, whose invocations transform all channels of a patch there.
5. ``results``: At sums A, and the epilogue. Marked outputs are summed directly.

Each of 1, 2 and 5 is a kernel whose invocations transform a whole tile. Outputs and tiles are rounded up to units of
four; what the products make of the padding is never read.

The transforms cost precision: the terms of an output, which mostly cancel, may be 84 times (m = 4) or 7 times (m = 2)
as large as the products of its window; ``Transforms.growth`` is the square root of that factor. The points of m = 4 are
0, 3/4, -3/4, 3/2, -3/2 and infinity: with those that Lavin and Gray print, 0, 1, -1, 2, -2, errors are 2.0 to 2.9
times as large.

All elements of a patch take part in each output of its tile, and cancel where the window does not see them. They leave
rounding errors in proportion to the norm of the patch; the terms of the output are in proportion to the sum of the
norms of the window's pixels. ``MAX_SPREAD`` bounds the ratio of the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import (
    Body,
    Contract,
    Convolution,
    Map,
    PlanTensor,
    Product,
    Reduce,
    Reduction,
    Sizes,
    Space,
    constants,
    element,
)
from dmlgpu.compiler.rewrites.packing import UNIT, pack_tensor, packs_tensor
from dmlgpu.compiler.rewrites.sources import permuted
from dmlgpu.compiler.schedule.gemm_choice import Shape, expected_cost, tolerance_of
from dmlgpu.compiler.schedule.launch import loop_launch, tile_launch
from dmlgpu.compiler.schedule.registry import Condition, at_least, at_most, no
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.products import Patch
from dmlgpu.compiler.schedule.tiles import is_narrow, packed_patch, tiles, unchanged
from dmlgpu.compiler.sizes.arithmetic import decided, largest
from dmlgpu.compiler.target import Target

FILTERS, PATCHES, MARKS, RESULTS = (
    f"convolution/winograd_{kernel}" for kernel in ("filters", "patches", "marks", "results")
)
NORM = Reduction("convolution/winograd_norm", DataType.FLOAT32, 1, portable=True)

WINDOW = 3

MAX_SPREAD = 3
"""Maximum norm of a patch, relative to the sum of the norms of the pixels of a window, of outputs that are not computed
directly. Pixels of equal norms have 6/9, and 5/4 in the corner of a padded image."""

FLOAT32 = DataType.FLOAT32

Matrix = tuple[tuple[Fraction, ...], ...]


def _matrix(text: str) -> Matrix:
    return tuple(tuple(Fraction(word) for word in row.split()) for row in text.split(","))


@dataclass(frozen=True)
class Transforms:
    """Three matrices of F(m, 3).

    Attributes:
        output: At, m x a.
        filter: G, a x 3.
        input: Bt, a x a.
    """

    output: Matrix
    filter: Matrix
    input: Matrix

    @property
    def growth(self) -> float:
        """Bound of the absolute values summed by one output, relative to three products, along one dimension, for
        inputs and filters of at most 1.
        """
        filters, inputs = ([sum(map(abs, row)) for row in matrix] for matrix in (self.filter, self.input))
        sums = (sum(abs(o) * f * i for o, f, i in zip(row, filters, inputs, strict=True)) for row in self.output)
        return float(max(sums)) / WINDOW


TRANSFORMS = {
    2: Transforms(
        _matrix("1 1 1 0, 0 1 -1 -1"),
        _matrix("1 0 0, 1/2 1/2 1/2, 1/2 -1/2 1/2, 0 0 1"),
        _matrix("1 0 -1 0, 0 1 1 0, 0 -1 1 0, 0 1 0 -1"),
    ),
    4: Transforms(
        _matrix("1 1 1 1 1 0, 0 3/4 -3/4 3/2 -3/2 0, 0 9/16 9/16 9/4 9/4 0, 0 27/64 -27/64 27/8 -27/8 1"),
        _matrix("64/81 0 0, -128/243 -32/81 -8/27, -128/243 32/81 -8/27, 32/243 16/81 8/27, 32/243 -16/81 8/27, 0 0 1"),
        _matrix(
            "81/64 0 -45/16 0 1 0, 0 -27/16 -9/4 3/4 1 0, 0 27/16 -9/4 -3/4 1 0, 0 -27/32 -9/16 3/2 1 0,"
            "0 27/32 -9/16 -3/2 1 0, 0 81/64 0 -45/16 0 1"
        ),
    ),
}
"""Transforms by tile."""


def terms(row: Sequence[Fraction]) -> tuple[tuple[int, float], ...]:
    """Return the terms of one row of a transform: the columns with a factor other than 0, and the factors."""
    return tuple((column, float(factor)) for column, factor in enumerate(row) if factor)


@dataclass(frozen=True)
class _Sides:
    """Sizes of tiles, patches and tensors.

    Attributes:
        tile: outputs of a tile along each dimension.
        across, down: tiles of an image.
    """

    tile: int
    batch: int
    groups: int
    channels: int
    outputs: int
    across: int
    down: int

    @classmethod
    def of(cls, convolution: Convolution, tile: int) -> _Sides:
        batch, groups, channels, *_ = convolution.input.sizes
        down, across = (-(-axis.positions // tile) for axis in convolution.windows)
        return cls(tile, batch, groups, channels, convolution.filter.sizes[1], across, down)

    @property
    def patch(self) -> int:
        """Number of inputs along each side of a patch."""
        return self.tile + WINDOW - 1

    @property
    def rows(self) -> int:
        """Number of outputs, rounded up to units."""
        return -(-self.outputs // UNIT) * UNIT

    @property
    def columns(self) -> int:
        """Number of tiles of all images, rounded up to units."""
        return -(-self.tiles // UNIT) * UNIT

    @property
    def tiles(self) -> int:
        """Number of tiles of all images."""
        return self.batch * self.down * self.across

    @property
    def filters(self) -> Sizes:
        return (self.patch**2, self.groups, self.channels, self.rows)

    @property
    def patches(self) -> Sizes:
        return (self.patch**2, self.groups, self.channels, self.columns)

    @property
    def results(self) -> Sizes:
        return (self.patch**2, self.groups, self.rows, self.columns)


def fits_winograd(convolution: Convolution, target: Target, tile: int) -> Condition:
    """Return whether the schedule can compute a convolution: of floats, with dense windows of 3 x 3 in steps of 1.

    Also the transformed tensors must be small enough to be bound, and the target must not keep all digits.
    """
    windows = convolution.windows
    if target.keeps_digits:
        return no("it loses digits, which the device forbids")
    is_dense = all((axis.size, axis.stride, axis.dilation) == (WINDOW, 1, 1) for axis in windows)
    if len(windows) != 2 or convolution.accumulator is not FLOAT32 or not is_dense:
        return no("it is for float32 and dense windows of 3 x 3")
    sides = _Sides.of(convolution, tile)
    elements = largest(*(math.prod(sizes) for sizes in (sides.filters, sides.patches, sides.results)))
    return at_most(4 * elements, target.max_binding_size, "bytes of a transformed tensor")


MIN_CHANNELS = 3
"""Minimum channels, and outputs, of a group for which the transforms cost less than the products save."""

MIN_SHARED = 320
"""The same times the tiles of all images: below, more kernels and products with few columns cost more than that. From
288 (24 outputs in 12 tiles) on they are as fast on llvmpipe, but its compiler takes 0.8 s longer."""


MIN_SHARED_IF_VARYING = 64
"""The same if sizes vary, and others have these kernels."""

MIN_USES, MIN_USES_UNALIGNED = 10, 5
"""Minimum products per transformed element, if kernels move doubles: c inputs and o outputs of a tile have c * o in
c + o. Transforms load single elements, and products over windows pairs of units if these are aligned. Measured on
llvmpipe: products of 8 to 12 channels by 32 outputs, 64 pixels wide, are as fast either way, and those of 16 by 16 take
0.72 of Winograd's time if 48 pixels wide, but 1.6 times if 50."""


def pays_winograd(convolution: Convolution, tile: int, target: Target) -> Condition:
    """Return whether the schedule is estimated to be faster than a product over the windows."""
    sides, varies = _Sides.of(convolution, tile), target.policies.varying
    shared = min(sides.channels, sides.outputs)
    least = MIN_SHARED_IF_VARYING if varies else MIN_SHARED
    pays = at_least(shared, MIN_CHANNELS, "channels or outputs") and at_least(
        shared * sides.tiles, least, "tiles times channels or outputs"
    )
    if not (pays and target.moves_doubles):
        return pays
    is_aligned = not varies and convolution.windows[-1].spatial % UNIT == 0
    uses = MIN_USES if is_aligned else MIN_USES_UNALIGNED
    transformed = sides.channels + sides.outputs
    return at_least(sides.channels * sides.outputs, uses * transformed, "products of a tile")


def winograd_steps(
    convolution: Convolution, epilogue: Body, output: PlanTensor, target: Target, tile: int
) -> ScheduledSteps:
    """Return the steps that compute a convolution that fits.

    Args:
        convolution: the convolution.
        epilogue: over {batch, groups, outputs per group, positions..}, with a leaf ``RegisterValue``.
        output: the result.
        target: the adapter; its ``schedule`` is that of the products.
        tile: 2 or 4.
    """
    sides = _Sides.of(convolution, tile)
    filters = (PlanTensor.persistent if convolution.filter_owned else PlanTensor.temporary)(
        "filters", FLOAT32, sides.filters
    )
    with_marks = _marks_with_patches(target)
    whole = _with_marks(sides)
    _, outer, inner, _ = whole.strides
    patches = replace(whole, sizes=sides.patches, offset=inner)
    marks = replace(whole, sizes=(sides.groups, sides.tiles), strides=(outer, 1))
    product, results = _product(sides, filters, patches, target)
    prepared = _filters(convolution, sides, filters, target=target)
    marking = ScheduledSteps(()) if with_marks else _marks(convolution, sides, marks, target)
    return (
        (prepared.as_initialization if convolution.filter_owned else prepared)
        + _patches(convolution, sides, whole if with_marks else patches, with_marks=with_marks, target=target)
        + schedule_step(product, target)
        + marking
        + _results(convolution, sides, results, marks, epilogue=epilogue, output=output, target=target)
    )


def _with_marks(sides: _Sides) -> PlanTensor:
    """Return the tensor of patches, before whose channels lies one whose first element is the marks."""
    a, c = sides.patch**2, sides.columns
    channels = sides.channels + 1
    return PlanTensor.temporary("patches", FLOAT32, (a, sides.groups, channels, c), (c, channels * a * c, a * c, 1))


def _marks_with_patches(target: Target) -> bool:
    """Return whether the kernel of patches marks outputs as well.

    On a CPU adapter two more kernels cost more than to sum squares in patches, where pixels overlap. A GPU has too few
    invocations for that: one per tile, for all channels. How a reduction is divided among invocations depends on the
    size of the image, so that shapes that share kernels have none.
    """
    return target.policies.varying or not target.needs_many_invocations


def _filters(convolution: Convolution, sides: _Sides, filters: PlanTensor, target: Target) -> ScheduledSteps:
    rows = tuple(map(terms, TRANSFORMS[sides.tile].filter))
    values = constants(rows=rows, outputs=sides.outputs)
    body = element(FILTERS, FLOAT32, filters.sizes, portable=True, values=values, taps=convolution.filter)
    return tiles(
        "winograd filters", body, (sides.patch**2, 1, 1, 1), unchanged(FLOAT32, filters.sizes), filters, target=target
    )


def _patches(
    convolution: Convolution, sides: _Sides, patches: PlanTensor, *, with_marks: bool, target: Target
) -> ScheduledSteps:
    """Return the kernel that transforms patches, and marks outputs.

    On CPU adapters, an invocation that marks the outputs of a tile transforms all channels of its patch as well:
    reading them twice took 1.2 to 1.5 times as long. On GPUs, other invocations transform each channel.
    """
    vertical, horizontal = convolution.windows
    side_by_side = _side_by_side(sides, target)
    single = is_narrow(convolution.input, target)
    all_channels = with_marks and not target.needs_many_invocations
    source, across = packed_patch(convolution.input, horizontal, sides.tile * side_by_side, target, single=single)
    values = constants(
        rows=tuple(map(terms, TRANSFORMS[sides.tile].input)),
        down=Patch(vertical, sides.tile, checked=target.policies.varying),
        across=across,
        tiles=(sides.down, sides.across),
        count=sides.tiles,
        side_by_side=side_by_side,
        with_marks=with_marks,
        all_channels=all_channels,
        channels=sides.channels,
        max_spread=MAX_SPREAD,
    )
    body = element(PATCHES, FLOAT32, patches.sizes, portable=True, values=values, input=source)
    tile = (sides.patch**2, 1, 1, side_by_side)
    rows, launch = (sides.channels + 1, loop_launch) if all_channels else (0, tile_launch)
    unchanged_patches = unchanged(FLOAT32, patches.sizes)
    return tiles("winograd patches", body, tile, unchanged_patches, patches, target=target, launch=launch, rows=rows)


def _side_by_side(sides: _Sides, target: Target) -> int:
    """Return the patches, or tiles of outputs, that an invocation transforms: a unit, one in each lane, on some CPU
    adapters.

    They share their reads. On SwiftShader, single patches take 1.04 to 1.08 of the time. On llvmpipe they are as
    fast, and compiled in a third of the time. The invocations of a GPU would need too many registers.
    """
    is_faster = target.runs_in_lockstep and not target.moves_doubles
    return UNIT if is_faster and sides.across % UNIT == 0 else 1


def _product(sides: _Sides, filters: PlanTensor, patches: PlanTensor, target: Target) -> tuple[Contract, PlanTensor]:
    """Return the products, and their results by outputs and tiles.

    Rows are the outputs and columns the tiles, or vice versa if that is estimated to be faster.
    """
    outputs, count = sides.rows, sides.columns
    size = sides.patch**2 * sides.groups, outputs, count, sides.channels
    turned = decided(_is_turned, target, *size, accepts=_turn_serves)
    rows, columns = (count, outputs) if turned else (outputs, count)
    a, b = (patches, filters) if turned else (filters, patches)
    space = Space(sides.results[:2], (rows,), (columns,), (sides.channels,))
    elements = sides.patch**2
    # Whole matrices apart, the elements of a tile would evict each other from caches: their distance is often a power
    # of two.
    strides = (columns, rows * elements * columns, elements * columns, 1)
    whole = PlanTensor.temporary("results", FLOAT32, (elements, sides.groups, rows, columns))
    results = replace(whole, strides=strides)
    product = Contract(
        "", Product(space, _turned(a), b, FLOAT32, in_units=True), unchanged(FLOAT32, results.sizes), results
    )
    return product, _turned(results) if turned else results


def _is_turned(target: Target, batch: int, outputs: int, count: int, channels: int) -> bool:
    """Return whether products with tiles as rows are estimated to be faster than with outputs as rows."""
    turned, plain = Shape(batch, count, outputs, channels), Shape(batch, outputs, count, channels)
    tolerance = tolerance_of(plain) if target.policies.varying else 1.0
    return tolerance * expected_cost(turned, target) < expected_cost(plain, target)


def _turn_serves(is_turned: bool, target: Target, batch: int, *sizes: int) -> bool:
    """Return whether products are not much slower if tiles are rows, or columns."""
    outputs, count, channels = sizes
    turned, plain = Shape(batch, count, outputs, channels), Shape(batch, outputs, count, channels)
    costs = expected_cost(turned, target), expected_cost(plain, target)
    return costs[not is_turned] <= tolerance_of(plain) * min(costs)


def _turned(matrices: PlanTensor) -> PlanTensor:
    """Return a tensor of transposed matrices."""
    return permuted(matrices, (0, 1, 3, 2))


def _marks(convolution: Convolution, sides: _Sides, marks: PlanTensor, target: Target) -> ScheduledSteps:
    """Return the kernels that compute the norms of pixels, and mark outputs."""
    pixels = permuted(convolution.input, (0, 1, 3, 4, 2))
    norms = PlanTensor.temporary("norms", FLOAT32, (*pixels.sizes[:-1], 1))
    reduce = Reduce("winograd norms", NORM, pixels, (norms.rank - 1,), norms)
    vertical, horizontal = convolution.windows
    values = constants(
        down=Patch(vertical, sides.tile),
        across=Patch(horizontal, sides.tile),
        tiles=(sides.down, sides.across),
        max_spread=MAX_SPREAD,
    )
    body = element(MARKS, FLOAT32, marks.sizes, portable=True, values=values, input=norms)
    return schedule_step(reduce, target) + schedule_step(Map("winograd marks", body, marks), target)


def _results(
    convolution: Convolution,
    sides: _Sides,
    results: PlanTensor,
    marks: PlanTensor,
    *,
    epilogue: Body,
    output: PlanTensor,
    target: Target,
) -> ScheduledSteps:
    """Return the kernel that transforms the products, row by row in a loop on CPU adapters: llvmpipe compiles it in a
    third of the time and runs it as fast. A loop over the rows of patches would take twice as long to run."""
    last = results.rank - 1
    side_by_side = _side_by_side(sides, target) if packs_tensor(results, last, UNIT) else 1
    values = constants(
        rows=tuple(map(terms, TRANSFORMS[sides.tile].output)),
        tile=sides.tile,
        tiles=(sides.down, sides.across),
        windows=convolution.windows,
        channels=sides.channels,
        side_by_side=side_by_side,
        looped=not target.needs_many_invocations,
    )
    sources = {
        "sums": results if side_by_side == 1 else pack_tensor(results, last, UNIT),
        "marks": marks if side_by_side == 1 else pack_tensor(marks, 1, UNIT),
        "input": convolution.input,
        "taps": convolution.filter,
    }
    body = element(RESULTS, FLOAT32, output.sizes, portable=True, values=values, **sources)
    tile = (1, 1, 1, sides.tile, sides.tile * side_by_side)
    return tiles("winograd results", body, tile, epilogue, output, target=target)
