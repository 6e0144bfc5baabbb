"""Operands of products: the fastest layout that a schedule can read, by repacking if that pays off."""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS, packed_strides
from dmlgpu.compiler.plan import (
    Body,
    Contract,
    Element,
    Map,
    PlanTensor,
    Product,
    RegisterValue,
    Sizes,
    Source,
    Space,
    constants,
)
from dmlgpu.compiler.plan.windows import Windows
from dmlgpu.compiler.rewrites.collapse import merge_tree, mergeable
from dmlgpu.compiler.rewrites.packing import UNIT, pack_source, pack_tensor, packs_source, packs_tensor
from dmlgpu.compiler.rewrites.sources import MERGE, as_type, cast, is_elementwise, is_plain, leaves, rewrite, split
from dmlgpu.compiler.rewrites.windows import seen_by
from dmlgpu.compiler.schedule.float_panels import columns_in_panels
from dmlgpu.compiler.schedule.gemm_choice import ProductChoice, Shape
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.products import Operand, OperandLayout, ProductSchedule
from dmlgpu.compiler.schedule.tiles import packed_patch
from dmlgpu.compiler.schedule.units import READ_ONCE, reads_single
from dmlgpu.compiler.sizes.arithmetic import is_many
from dmlgpu.compiler.target import Target


def _dimension(operand: Operand, layout: OperandLayout) -> int:
    """Return the dimension of a layout's units: the last own or the last inner one."""
    first, second = len(operand.batch) + len(operand.own) - 1, len(operand.source.sizes) - 1
    if operand.own_first:
        return first if layout is OperandLayout.ACROSS else second
    return second if layout is OperandLayout.ACROSS else len(operand.source.sizes) - len(operand.own) - 1


def packs(operand: Operand, layout: OperandLayout) -> bool:
    """Return whether an operand can be read in a layout."""
    dimension = _dimension(operand, layout)
    return operand.source.sizes[dimension] % UNIT == 0 and packs_source(operand.source, dimension, UNIT)


def packs_along(product: Product) -> bool:
    """Return whether both operands can be read in units along the inner dimension."""
    space = product.space
    a = Operand(product.a, OperandLayout.SINGLE, space.batch, space.rows, own_first=True)
    b = Operand(product.b, OperandLayout.SINGLE, space.batch, space.columns, own_first=False)
    return packs(a, OperandLayout.ALONG) and packs(b, OperandLayout.ALONG)


def streams(product: Product) -> bool:
    """Return whether columns can be read in units of four, steps are multiples of four, and accumulators are one
    word."""
    space = product.space
    b = flat(Operand(product.b, OperandLayout.SINGLE, space.batch, space.columns, own_first=False))
    whole = math.prod(space.inner) % UNIT == 0 and product.accumulator.bits == WORD_BITS
    return whole and any(packs(b, layout) for layout in (OperandLayout.ACROSS, OperandLayout.ALONG))


def element_bytes(source: Source) -> int:
    """Return the bytes of an element of the widest tensor of an operand; at least one."""
    return max((leaf.data_type.bits // 8 for leaf in leaves(source)), default=1) or 1


MAX_TAPS = 8
"""Maximum elements of a window along the last dimension for reading it at once: they are held in registers."""


def with_window(source: Source, windows: Windows, space: Space, target: Target) -> Operand | None:
    """Return the columns of a product as windows that are read a row at once; None if that is impossible.

    Args:
        source: {batch, groups, channels, spatial..}.
        windows: the windows.
        space: of the product, whose columns are {batch, positions..}.
        target: the adapter.
    """
    *outer, last = windows
    if last.positions % UNIT or not 1 < last.size <= MAX_TAPS:
        return None
    source, window = packed_patch(source, last, UNIT, target)
    return Operand(source, OperandLayout.WINDOW, space.batch, space.columns, False, tuple(outer), window)


def packed(operand: Operand, layout: OperandLayout) -> Operand:
    """Return an operand in the units of a layout."""
    if layout is OperandLayout.SINGLE:
        return operand
    return replace(operand, source=pack_source(operand.source, _dimension(operand, layout), UNIT), layout=layout)


def pack_output(epilogue: Body, output: PlanTensor) -> tuple[Body, PlanTensor]:
    """Return epilogue and output in units of four along the last dimension, if both can be."""
    last = output.rank - 1
    own = len(epilogue.sizes) - 1
    if not packs_tensor(output, last, UNIT) or not packs_source(epilogue, own, UNIT):
        return epilogue, output
    return pack_source(epilogue, own, UNIT), pack_tensor(output, last, UNIT)


MIN_REUSE = 16
"""Minimum number of reads of each element of an operand that justifies repacking."""

MIN_REUSE_OF_ROWS = 128
"""Minimum reads of elements of ``a`` without conversion: all invocations of a workgroup read the same one at a time."""

MIN_REUSE_OF_PANELS = 256
"""Minimum reads of operands that are already in units, which gain only panels."""


def window_of(product: Product, target: Target) -> Operand | None:
    """Return the columns of a product as windows that can be read row by row, or None."""
    seen = seen_by(product.b)
    return None if seen is None else with_window(*seen, product.space, target)


class ProductOperands:
    """Operands of one product for a schedule.

    Attributes:
        before, initialization: the kernels that repack them, at every execution or once.
    """

    def __init__(self, product: Product, choice: ProductChoice, target: Target):
        self.product, self.space, self.choice, self.target = product, product.space, choice, target
        self.shape = Shape.of(self.space)
        self.before, self.initialization = ScheduledSteps(), ScheduledSteps()
        self.are_read_once = choice.shape.single and reads_single(1, self.shape.work, READ_ONCE, target)

    def a(self) -> Operand:
        """Return the rows."""
        return self._operand(self.product.a, self.space.rows, True, self.product.a_owned)

    def b(self) -> Operand:
        """Return the columns."""
        windowed = self._window() or self._seen()
        return (
            windowed or self._shared() or self._operand(self.product.b, self.space.columns, False, self.product.b_owned)
        )

    def _shared(self) -> Operand | None:
        """Return the columns in the panels of products of few rows, if these could have the same ones."""
        if self.choice.schedule is not ProductSchedule.REGISTER:
            return None
        shared = columns_in_panels(self.product, self.target)
        if shared is None:
            return None
        source, laid_out = shared
        self.initialization += laid_out
        operand = Operand(source, OperandLayout.SINGLE, self.space.batch, source.sizes[-2:], own_first=False)
        return packed(operand, OperandLayout.ACROSS)

    def _window(self) -> Operand | None:
        """Return the columns as windows that are read row by row, if they are windows, on CPU adapters, which would
        check each element separately."""
        if (
            self.choice.schedule is not ProductSchedule.REGISTER
            or self.target.vectorizes_loads
            or self.choice.shape.single
        ):
            return None
        return window_of(self.product, self.target)

    def _seen(self) -> Operand | None:
        """Return the columns as elements of windows, if they are windows and are copied to workgroup memory."""
        seen = seen_by(self.product.b)
        if self.choice.schedule is not ProductSchedule.SHARED or seen is None:
            return None
        source, windows = seen
        space = self.space
        return Operand(source, OperandLayout.SEEN, space.batch, space.columns, own_first=False, windows=windows)

    def _operand(self, source: Source, own: Sizes, own_first: bool, owned: bool) -> Operand:
        """Return an operand in the fastest layout that the schedule can read, repacked if that pays off."""
        operand = Operand(source, OperandLayout.SINGLE, self.space.batch, own, own_first)
        if self.are_read_once and not owned:
            return operand
        if self.choice.schedule in (ProductSchedule.SHARED, ProductSchedule.STREAMED):
            operand = flat(operand)
        layouts = self._layouts(own_first)
        units = () if self.choice.shape.single and not owned else layouts
        layout = next((layout for layout in units if packs(operand, layout)), OperandLayout.SINGLE)
        if self._is_worth_relaying(operand, layout, owned):
            operand, layout = self._relaid(operand, owned), OperandLayout.ACROSS
        return packed(operand, layout)

    def _layouts(self, is_a: bool) -> tuple[OperandLayout, ...]:
        """Return the layouts in which the schedule can read an operand, the best first."""
        match self.choice.schedule:
            case ProductSchedule.SMALL:
                return (OperandLayout.ALONG,)
            case ProductSchedule.STREAMED if is_a:
                return (OperandLayout.ALONG,)
            case ProductSchedule.REGISTER if is_a:
                return (OperandLayout.ACROSS,) if self.choice.tile.rows % UNIT == 0 else ()
            case _:
                return (OperandLayout.ACROSS, OperandLayout.ALONG)

    def _is_worth_relaying(self, operand: Operand, layout: OperandLayout, owned: bool) -> bool:
        """Return whether repacking pays: only for register tiles, since others read or convert elements few times."""
        is_a, shape, tile = operand.own_first, self.shape, self.choice.tile
        if self.choice.schedule is not ProductSchedule.REGISTER or (is_a and tile.rows % UNIT):
            return False
        if self.product.a_stays if is_a else self.product.b_stays:
            return False
        if self.target.vectorizes_loads and not owned:
            return False
        reuse = shape.columns if is_a else shape.rows
        own = -(-math.prod(operand.own) // UNIT) * UNIT
        size = 4 * math.prod(_varying(operand)) * math.prod(self.space.inner) * own
        fits = size <= self.target.max_binding_size
        return fits and reuse >= self._least_reuse(operand, layout, owned)

    def _least_reuse(self, operand: Operand, layout: OperandLayout, owned: bool) -> float:
        plain = isinstance(operand.source, PlanTensor) and operand.source.data_type.bits == DataType.FLOAT32.bits
        if plain and layout is OperandLayout.ACROSS:
            return MIN_REUSE_OF_PANELS if self._panels(operand)[0] > 1 else math.inf
        return MIN_REUSE_OF_ROWS if plain and operand.own_first and not owned else MIN_REUSE

    def _relaid(self, operand: Operand, owned: bool) -> Operand:
        """Return the operand in units of four along its own dimensions, in panels of a tile's width if these divide it.

        A workgroup then reads its panel sequentially. Without panels the last unit may be half empty; its contents are
        undefined, and only affect outputs that are not stored.
        """
        inner, batch = self.space.inner, _varying(operand)
        panels, width = self._panels(operand)
        # Kernels that run once are shared by one and several panels.
        in_panels = panels > 1 or (owned and operand.own == (width,) and is_plain(operand.source))
        if in_panels:
            operand = _split(operand, width)
        laid = (*batch, panels, *inner, width)
        strides = packed_strides(laid)
        batch_strides = tuple(stride if is_many(size) else 0 for size, stride in zip(batch, strides, strict=False))
        inner_strides, own_strides = strides[len(batch) + 1 : -1], (strides[len(batch)], 1)
        make = PlanTensor.persistent if owned else PlanTensor.temporary
        room = make("operand laid out", self.product.accumulator, laid, strides)

        def over(own: Sizes, own_strides: Sizes, batch_sizes: Sizes) -> PlanTensor:
            middle = ((own, own_strides), (inner, inner_strides))
            groups = middle if operand.own_first else middle[::-1]
            return replace(
                room,
                sizes=batch_sizes + groups[0][0] + groups[1][0],
                strides=batch_strides + groups[0][1] + groups[1][1],
            )

        written = over(operand.own, own_strides if in_panels else packed_strides(operand.own), batch)
        label = f"lay out {'a' if operand.own_first else 'b'}"
        reuse = self.shape.columns if operand.own_first else self.shape.rows
        copied = schedule_step(Map(label, self._copied(operand, written), written, is_once=owned), self.target).because(
            f"the product reads each element {reuse} times, faster from units that lie as its tiles do"
        )
        if owned:
            self.initialization += copied
        else:
            self.before += copied
        return replace(operand, source=over((panels, width), own_strides, operand.batch), own=(panels, width))

    def _panels(self, operand: Operand) -> tuple[int, int]:
        """Return the panels of an operand and the width of each; a single one, rounded up to units, if it cannot be
        split."""
        tile, count = self.choice.tile, math.prod(operand.own)
        width = tile.down * tile.rows if operand.own_first else tile.across * tile.units * UNIT
        owned = self.product.a_owned if operand.own_first else self.product.b_owned
        is_varying = operand.own_first or self.choice.shape.single
        is_fixed = owned or not (is_varying and self.target.policies.varying)
        if is_fixed and len(operand.own) == 1 and count % width == 0 and width % UNIT == 0 and is_plain(operand.source):
            return count // width, width
        if self.choice.shape.single and not owned:
            return 1, (count // UNIT + 1) * UNIT  # never the count, so that no size lets dimensions merge
        return 1, -(-count // UNIT) * UNIT

    def _copied(self, operand: Operand, written: PlanTensor) -> Body:
        """Return the elements to write: bits if the type is unchanged, else converted elements."""
        return as_type(_narrowed(operand.source, written.sizes), written.data_type)


def flat(operand: Operand) -> Operand:
    """Return an elementwise operand with its inner dimensions merged, if they are contiguous."""
    source, first = operand.source, operand.inner_at
    inner = range(first, first + operand.inner)
    if len(inner) == 1 or not is_elementwise(source):
        return operand
    strides = [[leaf.strides[dimension] for dimension in inner] for leaf in leaves(source)]
    merged, *rest = mergeable([source.sizes[dimension] for dimension in inner], strides)
    if rest:
        return operand
    before, after = range(first), range(inner.stop, len(source.sizes))
    groups = (*((d,) for d in before), tuple(first + dimension for dimension in merged), *((d,) for d in after))
    return replace(operand, source=merge_tree(source, groups))


def _split(operand: Operand, width: int) -> Operand:
    """Return an elementwise operand with its only own dimension split: the index of a panel, and the index within
    it."""
    own = (operand.own[0] // width, width)
    return replace(operand, source=split(operand.source, operand.own_at, width), own=own)


def _varying(operand: Operand) -> Sizes:
    """Return the sizes of the batch dimensions, 1 for those along which an elementwise operand is constant."""
    if not is_plain(operand.source):
        return operand.batch
    tensors = list(leaves(operand.source))
    return tuple(
        size if any(tensor.strides[dimension] for tensor in tensors) else 1
        for dimension, size in enumerate(operand.batch)
    )


def _narrowed(source: Source, sizes: Sizes) -> Source:
    """Return an elementwise tree over the first element along some dimensions."""
    if source.sizes == sizes:
        return source

    def narrow(node: Source) -> Source:
        return replace(node, sizes=sizes)

    return rewrite(source, narrow)


# ---- sums outside of the product's kernel


def in_parts(step: Contract, parts: int) -> tuple[Body, PlanTensor, Map]:
    """Return the epilogue of a product whose sums are computed in parts, the tensor of these, and the step that adds
    them up."""
    accumulator = step.product.accumulator
    partials = PlanTensor.temporary("partial sums", accumulator, (parts, *step.output.sizes))
    sums = cast(RegisterValue.product(accumulator, step.output.sizes), accumulator)
    follows = (tuple(range(1, partials.rank)),)
    inputs = (("partials", partials),)
    total = Element(MERGE, accumulator, step.output.sizes, inputs, constants(parts=parts), True, follows=follows)
    merge = Map("sum of parts", with_sum(step.epilogue, total), step.output, step.keeps_neighbors)
    return sums, partials, merge


def with_sum(epilogue: Body, total: Body) -> Body:
    """Return an epilogue on sums that a body computes."""
    return rewrite(epilogue, lambda node: total if isinstance(node, RegisterValue) else node)
