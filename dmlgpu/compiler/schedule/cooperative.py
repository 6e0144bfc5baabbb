"""Products of floats and 8-bit integers by cooperative matrices, on adapters with matrix units (``Target.matrices``).

An adapter has them if they compute the same as the ordinary product, and faster (``runtime.wgpu.cooperative``).
Sums are of float32; products of float16 are exact. Operands of float32 become float16 on the way to workgroup memory if
the operator allows it (ALLOW_HALF_PRECISION_COMPUTATION). If not, only matrices of float32 multiply them. On adapters
that have no others, these multiply float16 too. Other products keep the schedules of ``gemm_choice``.

Convolutions are products with windows, whose elements are gathered on the way to workgroup memory: the channels of one
tap of the window at a time, so that the place of a tap is computed once for all of them. Filters are copied to memory
first, with channels innermost, if they lie otherwise: little work compared with the product's.

Elementwise operands are computed on the way to workgroup memory too. Products by columns that are dequantized in blocks
sum over blocks and their elements; a slab has elements of one block.

Integers are signed ones in words of four steps; zero points and other signs are corrected by sums of rows and columns
(``packed_products``). Rows and columns that are quantized in blocks are no such products: each block has scales of its
own, and WGSL does not tell which elements of a matrix of sums an invocation has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.cards import card_of
from dmlgpu.compiler.plan import Contract, Map, PlanTensor, Product, Sizes, Source, Space
from dmlgpu.compiler.plan.windows import Windows
from dmlgpu.compiler.rewrites.packing import UNIT, pack_source, packs_source
from dmlgpu.compiler.rewrites.sources import as_type, is_plain, permuted
from dmlgpu.compiler.rewrites.windows import seen_in_order
from dmlgpu.compiler.schedule.cost import cost_of, matrix_work, merge_work
from dmlgpu.compiler.schedule.gemm_choice import (
    CLEARLY_CHEAPER,
    FILLED,
    MAX_PARTS,
    MIN_STEPS,
    WORTH_SPLITTING,
    ProductChoice,
    Shape,
)
from dmlgpu.compiler.schedule.launch import Launch, fold
from dmlgpu.compiler.schedule.operands import ProductOperands, flat, in_parts, pack_output, packed, packs
from dmlgpu.compiler.schedule.packed_products import packed_operands
from dmlgpu.compiler.schedule.registry import Condition, at_least, no, only_if
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.cooperative import (
    PADDING,
    SUBGROUPS,
    ScheduledCooperative,
    ScheduledCooperativeIntegers,
    Slab,
    stride_of,
    tile_of,
)
from dmlgpu.compiler.schedule.steps.products import Operand, OperandLayout, ProductSchedule, ProductTile
from dmlgpu.compiler.sizes.arithmetic import decided, is_symbolic
from dmlgpu.compiler.target import Matrices, Target

DEPTHS = (32, 16)
"""Numbers of steps that may be in workgroup memory, best first: multiples of the steps of all matrices."""

INTEGER_DEPTHS = (64, 32)
"""The same of integers, which take as many bytes."""

NAME = "cooperative"
"""Name of the schedule."""

CHANNEL = 2
"""Dimension of the input of windows along which channels lie."""

_CHOICE = ProductChoice(ProductSchedule.SHARED, ProductTile(8, 2, 16, 16, 16))
_FLOAT32_BYTES = 4
_FLOATS = frozenset({DataType.FLOAT16, DataType.FLOAT32})
_NO_ROOM = "workgroup memory is too small"


def units_of(step: Contract, target: Target) -> Matrices | None:
    """Return the matrix units of an adapter for a product."""
    product = step.product
    if target.matrices and product.accumulator is DataType.INT32:
        return target.matrices.integers
    return float_units((product.a, product.b), target)


def float_units(sources: Iterable[Source], target: Target) -> Matrices | None:
    """Return the matrix units of an adapter for operands of floats."""
    matrices = target.matrices
    may_round = target.has("shader-f16") or all(source.data_type is DataType.FLOAT16 for source in sources)
    return matrices if may_round or matrices is None else matrices.floats


def fits_matrix_units(step: Contract, target: Target) -> Condition:
    """Return whether an adapter has matrix units for the numbers of a product."""
    product, matrices = step.product, units_of(step, target)
    if matrices is None:
        return no("the adapter has no usable matrix units for its numbers")
    room = at_least(target.max_workgroup_invocations, SUBGROUPS * matrices.lanes, "invocations of a workgroup")
    if product.accumulator is DataType.INT32:
        return (
            room
            and only_if(packed_operands(product) is not None, "its operands are not 8-bit integers")
            and only_if(target.multiplies_words, "the adapter multiplies no words of four integers")
            and only_if(_integer_memory(matrices, INTEGER_DEPTHS[-1]) <= target.max_workgroup_storage, _NO_ROOM)
        )
    is_float = only_if(product.accumulator is DataType.FLOAT32, "its sums are not float32")
    by_taps = _by_taps(product)
    are_floats = only_if(
        all(source.data_type in _FLOATS for source in (product.a, product.b)),
        "its operands are neither float16 nor float32",
    )
    are_plain = only_if(
        (by_taps.a or is_plain(product.a)) and (by_taps.b or is_plain(product.b)),
        "its operands are neither plain nor windows",
    )
    *outer, steps = product.space.inner
    in_units = only_if(
        by_taps.of_windows or not outer or steps % UNIT == 0, "its last sums are not in units of {}", UNIT
    )
    return (
        room
        and is_float
        and only_if(not target.keeps_digits, "matrix units may lose digits, which the device forbids")
        and only_if(_memory(matrices, DEPTHS[-1]) <= target.max_workgroup_storage, _NO_ROOM)
        and are_floats
        and are_plain
        and in_units
    )


def fills_matrices(step: Contract, target: Target) -> Condition:
    """Return whether a product has rows and columns for the smallest tile, and steps for a slab."""
    matrices = units_of(step, target)
    assert matrices is not None
    shape = Shape.of(step.product.space)
    rows, columns = (
        min(size // 2, least)
        for size, least in zip(tile_of(matrices), tile_of(replace(matrices, block=1)), strict=True)
    )
    is_of_integers = step.product.accumulator is DataType.INT32
    inner = shape.inner if is_of_integers else _by_taps(step.product).space.inner[-1]
    return (
        at_least(shape.rows, rows, "rows")
        and at_least(shape.columns, columns, "columns")
        and at_least(inner, INTEGER_DEPTHS[-1] if is_of_integers else DEPTHS[-1], "products per sum")
    )


def cooperative_steps(step: Contract, target: Target) -> ScheduledSteps | Condition:
    """Return the kernel of a product on matrix units, and the one that copies a filter before."""
    units = units_of(step, target)
    assert units is not None
    if step.product.accumulator is DataType.INT32:
        return _integer_steps(step, target)
    product = _by_taps(step.product)
    space, shape = product.space, Shape.of(product.space)
    taps = math.prod(space.inner[:-1])
    whole_taps = taps if len(space.inner) > 1 else 0
    size = shape.batch, shape.rows, shape.columns, shape.inner
    block, parts = decided(_fastest, target, units, whole_taps, *size)
    matrices = replace(units, block=block)
    rows, columns = tile_of(matrices)
    a, before_a = product.operand(True, units, target)
    b, before_b = product.operand(False, units, target)
    depth = _depth(space.inner[-1], matrices, target)
    share = _share(space.inner, parts, depth)
    epilogue, output, merged = step.epilogue, step.output, ScheduledSteps()
    if parts > 1:
        parts = -(-(space.inner[0] if len(space.inner) == 1 else taps) // share)
        epilogue, output, merge = in_parts(step, parts)
        merged = schedule_step(merge, target).because(f"combines the {parts} parts of each sum")
    epilogue, output = pack_output(epilogue, output)
    total = shape.batch * -(-shape.rows // rows) * -(-shape.columns // columns) * parts
    launch = Launch(SUBGROUPS * matrices.lanes, 1, fold(total, target), total)
    kernel = ScheduledCooperative(
        f"{NAME}{' split' if parts > 1 else ''}",
        launch,
        output,
        space,
        a,
        b,
        epilogue,
        (
            Slab.of(a, rows, depth, own_side=matrices.rows, matrices=matrices),
            Slab.of(b, columns, depth, own_side=matrices.columns, matrices=matrices),
        ),
        matrices,
        (_is_partial(shape.rows, rows), _is_partial(shape.columns, columns), _is_partial(space.inner[-1], depth)),
        parts,
        share,
        reason=_reason(matrices, parts),
    )
    return before_a + before_b + ScheduledSteps((kernel,)) + merged


def _reason(matrices: Matrices, parts: int) -> str:
    rows, columns = tile_of(matrices)
    text = f"the adapter multiplies matrices of {matrices.numbers}, {matrices.size}: tiles of {rows} x {columns}"
    text += " by four subgroups"
    return text + (f", sums in {parts} parts" if parts > 1 else "")


def _integer_steps(step: Contract, target: Target) -> ScheduledSteps:
    """Return the kernel of a product of 8-bit integers on matrix units, and the one that sums its parts."""
    product, units, packed = step.product, units_of(step, target), packed_operands(step.product)
    assert units is not None and packed is not None
    shape = Shape.of(product.space)
    block, parts = decided(_fastest, target, units, 0, shape.batch, shape.rows, shape.columns, shape.inner)
    matrices = replace(units, block=block)
    rows, columns = tile_of(matrices)
    words = next(
        depth // UNIT for depth in INTEGER_DEPTHS if _integer_memory(matrices, depth) <= target.max_workgroup_storage
    )
    all_words = -(-shape.inner // UNIT)
    share = _share((all_words,), parts, words)
    parts = -(-all_words // share)
    epilogue, output, merged = step.epilogue, step.output, ScheduledSteps()
    if parts > 1:
        epilogue, output, merge = in_parts(step, parts)
        merged = schedule_step(merge, target).because(f"combines the {parts} parts of each sum")
    epilogue, output = pack_output(epilogue, output)
    total = shape.batch * -(-shape.rows // rows) * -(-shape.columns // columns) * parts
    kernel = ScheduledCooperativeIntegers(
        f"{NAME} integers{' split' if parts > 1 else ''}",
        Launch(SUBGROUPS * matrices.lanes, 1, fold(total, target), total),
        output,
        product.space,
        packed.a,
        packed.b,
        packed.numbers["a_integers"],
        packed.numbers["b_integers"],
        epilogue,
        matrices,
        words,
        parts,
        share,
        reason=_reason(matrices, parts),
    )
    return ScheduledSteps((kernel,)) + merged


def _share(inner: Sizes, parts: int, depth: int) -> int:
    """Return the taps of a part, or the steps, in whole slabs, if sums are over one dimension."""
    if len(inner) > 1:
        return -(-math.prod(inner[:-1]) // parts)
    return inner[0] if parts == 1 else -(-inner[0] // (parts * depth)) * depth


def _fastest(target: Target, units: Matrices, taps: int, *size: int) -> tuple[int, int]:
    """Return the block of matrices of a subgroup, and the number of parts of each sum, with the least estimated time:
    the largest tile without parts, unless others are clearly faster and the schedule is not requested by name.

    Args:
        target: The compile target.
        units: Its matrix units that multiply.
        taps: Taps of windows, or blocks of integers, of which a part has whole ones; 0 if sums are over one dimension.
        size: Batch, rows, columns and inner size of the product.
    """
    if target.overrides.schedule.endswith(NAME):
        return units.block, 1
    card, (batch, rows, columns, inner) = card_of(target), size
    most = max(1, min(inner // MIN_STEPS, taps or MAX_PARTS))

    def cost(matrices: Matrices, parts: int) -> float:
        depth = _depth(inner // (taps or 1), matrices, target)
        works = [matrix_work((batch, rows, columns, inner), matrices, parts, depth=depth)]
        works += [merge_work(batch * rows * columns, parts, card, 2)] if parts > 1 else []
        estimated: float = cost_of(works, card)
        return estimated

    best, least = (units.block, 1), cost(units, 1)
    for block in (units.block >> halving for halving in range(units.block.bit_length())):
        matrices = replace(units, block=block)
        high, wide = tile_of(matrices)
        groups = batch * -(-rows // high) * -(-columns // wide)
        for parts in sorted({1, *(max(1, min(times * card.cores // groups, most)) for times in (1, FILLED))}):
            needed = CLEARLY_CHEAPER if (parts > 1) <= (best[1] > 1) else WORTH_SPLITTING
            if (estimated := cost(matrices, parts)) < needed * least:
                best, least = (block, parts), estimated
    return best


@dataclass(frozen=True)
class _ByTaps:
    """A product, the last of whose inner dimensions is that of channels if an operand is of windows.

    Attributes:
        product: The product; windows may have another order of inner dimensions than the filter.
        a, b: The input of windows, {batch, groups, channels, spatial..}, and how they slide; None for other operands.
    """

    product: Product
    a: tuple[Source, Windows] | None = None
    b: tuple[Source, Windows] | None = None

    @property
    def space(self) -> Space:
        """Sizes of the product."""
        return self.product.space

    @property
    def of_windows(self) -> bool:
        """Whether an operand is of windows."""
        return bool(self.a or self.b)

    def operand(self, is_a: bool, units: Matrices, target: Target) -> tuple[Operand, ScheduledSteps]:
        """Return an operand of matrices, and the steps that copy it."""
        space = self.space
        windows, own = (self.a, space.rows) if is_a else (self.b, space.columns)
        if windows is not None:
            return _windowed(
                *windows, Operand(windows[0], OperandLayout.SEEN, space.batch, own, is_a)
            ), ScheduledSteps()
        if self.of_windows:
            return self._filter(is_a, units, target)
        operands = ProductOperands(self.product, _CHOICE, target)
        operand = operands.a() if is_a else operands.b()
        return operand, operands.before + operands.initialization.as_initialization

    def _filter(self, is_a: bool, units: Matrices, target: Target) -> tuple[Operand, ScheduledSteps]:
        """Return the filter, with adjacent channels: a copy, if they are not."""
        space, product = self.space, self.product
        source, own, owned = (
            (product.a, space.rows, product.a_owned) if is_a else (product.b, space.columns, product.b_owned)
        )
        layout = OperandLayout.SINGLE if space.inner[-1] % UNIT else OperandLayout.ALONG
        operand = flat(Operand(source, OperandLayout.SINGLE, space.batch, own, is_a))
        is_readable = layout is OperandLayout.SINGLE or packs(operand, layout)
        if isinstance(source, PlanTensor) and operand.inner == 1 and is_readable:
            return packed(operand, layout), ScheduledSteps()
        batch, inner = len(space.batch), len(space.inner)
        sizes = (*space.batch, *own, *space.inner)
        data_type = DataType.FLOAT16 if units.component == "f16" else source.data_type
        room = (PlanTensor.persistent if owned else PlanTensor.temporary)("filters", data_type, sizes)
        if not is_a:
            room = permuted(room, exchanged(batch, len(own), inner))
        copied = schedule_step(Map("lay out filters", as_type(source, data_type), room, is_once=owned), target)
        copied = copied.because("the product reads the channels of a tap, faster where they are adjacent")
        laid_out = packed(flat(replace(operand, source=room)), layout)
        return laid_out, copied.as_initialization if owned else copied


def exchanged(first: int, second: int, third: int) -> Sizes:
    """Return the dimensions of three groups, with the last two groups exchanged."""
    return (*range(first), *range(first + second, first + second + third), *range(first, first + second))


def _windowed(source: Source, windows: Windows, operand: Operand) -> Operand:
    """Return an operand of windows, in units of channels if these are adjacent."""
    in_units = source.sizes[CHANNEL] % UNIT == 0 and packs_source(source, CHANNEL, UNIT)
    return replace(operand, source=pack_source(source, CHANNEL, UNIT) if in_units else source, windows=windows)


def _by_taps(product: Product) -> _ByTaps:
    """Return a product with channels as the last inner dimension if an operand is of windows."""
    for is_a, source in ((True, product.a), (False, product.b)):
        for channels_last in (False, True):
            seen = seen_in_order(source, own_first=is_a, channels_last=channels_last)
            if seen is not None:
                turned = product if channels_last else _with_channels_last(product, is_a)
                return _ByTaps(turned, a=seen if is_a else None, b=None if is_a else seen)
    return _ByTaps(product)


def _with_channels_last(product: Product, is_a: bool) -> Product:
    """Return a product with windows whose filter has the first inner dimension, of channels, as the last one.

    Args:
        product: The product.
        is_a: Whether the windows are the rows.
    """
    space = product.space
    inner = range(1, len(space.inner))
    turned = replace(space, inner=(*space.inner[1:], space.inner[0]))
    first = len(space.batch) + (0 if is_a else len(space.rows))
    filters = product.b if is_a else product.a
    rest = range(first + len(space.inner), len(filters.sizes))
    order = (*range(first), *(first + dimension for dimension in inner), first, *rest)
    filters = permuted(filters, order)
    return replace(product, space=turned, b=filters) if is_a else replace(product, space=turned, a=filters)


def _depth(inner: int, matrices: Matrices, target: Target) -> int:
    """Return the steps of a slab: the most that fit workgroup memory and divide the inner size, or that fit."""
    fitting = [depth for depth in DEPTHS if _memory(matrices, depth) <= target.max_workgroup_storage]
    return next((depth for depth in fitting if not _is_partial(inner, depth)), fitting[0])


def _memory(matrices: Matrices, depth: int) -> int:
    """Return the most bytes of workgroup memory that slabs of some steps and the sums take."""
    slabs = sum(
        depth * own * max(stride_of(line) / line for line in (matrices.steps, side))
        for own, side in zip(tile_of(matrices), (matrices.rows, matrices.columns), strict=True)
    )
    return int(slabs) * matrices.element_bytes + SUBGROUPS * matrices.rows * matrices.columns * _FLOAT32_BYTES


def _integer_memory(matrices: Matrices, depth: int) -> int:
    """Return the bytes of workgroup memory that slabs of some steps of integers, their sums and the results take."""
    slabs = sum(own * (depth + 2 * PADDING + _FLOAT32_BYTES) for own in tile_of(matrices))
    return slabs + SUBGROUPS * matrices.rows * matrices.columns * _FLOAT32_BYTES


def _is_partial(size: int, whole: int) -> bool:
    """Return whether a size may not be a multiple of another: kernels for sizes that vary check indices."""
    return is_symbolic(size) or size % whole != 0
