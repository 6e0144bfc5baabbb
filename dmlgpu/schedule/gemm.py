"""Matrix products: in which schedule, in which units, in how many kernels.

1. ``choose`` (gemm_choice) picks schedule, tile and parts from the sizes and the target alone; ``Target.schedule``
   overrides it by name.
2. Rows and columns are exchanged where memory runs along rows (element-wise sources only).
3. Each operand gets a ``Form``: read in units of four along its own dimension (ACROSS), along the inner one (ALONG),
   or element by element (SINGLE).
4. Where a tile in registers would read or convert the elements of an operand again and again, it is first laid out anew
   (``_relaid``), in units of four along its own dimension: by the initialisation, in a persistent tensor, if it is
   OWNED_BY_DML; else in a temporary tensor before each product.
5. With parts, the sums go to a temporary tensor, and a map adds them up and computes the epilogue.

Sums run over at most ``CHUNK`` products before they are added to a total, so that the rounding error of long ones does
not grow with their length.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.enums import DataType
from dmlgpu.kernels.packing import UNIT, running_dimension
from dmlgpu.kernels.sources import CONVERT, identity, leaves, nodes, permuted, rewrite
from dmlgpu.plan import (
    Apply,
    Body,
    Contract,
    Element,
    Held,
    Map,
    Product,
    Sizes,
    Source,
    Space,
    Tensor,
    View,
    apply,
    constants,
    element,
)
from dmlgpu.schedule.gemm_choice import Choice, Shape, broadcasts, choose
from dmlgpu.schedule.launch import Launch, fold, loop_launch
from dmlgpu.schedule.operands import pack_output, packed, packs, packs_along
from dmlgpu.schedule.scheduling import schedule_step
from dmlgpu.schedule.steps import Form, Operand, ProductSchedule, ScheduledContract, ScheduledMap, Steps
from dmlgpu.schedule.walk import choose_walk
from dmlgpu.target import Profile, Target
from dmlgpu.tensor import packed_strides

CHUNK = 1024
"""Products that are added up one after the other."""

SMALL = "schedules/gemm_small"
MERGE = "schedules/gemm_merge"


@schedule_step.register
def _contract(step: Contract, target: Target) -> Steps:
    step = _oriented(step)
    shape = Shape.of(step.product.space, along=packs_along(step.product))
    return _Planner(step, choose(shape, target), target).steps()


def chunk_of(inner: Sizes, share: int) -> int:
    """Return the steps along the first inner dimension that ``CHUNK`` products take; 0 where a sum has no more."""
    rest = math.prod(inner[1:])
    return 0 if share * rest <= CHUNK else max(1, CHUNK // rest)


# ---- rows and columns


def _oriented(step: Contract) -> Contract:
    """Return the same product with memory running along the columns of the output, if it runs along either.

    Also a product of very few columns and many rows is turned round.
    """
    product, space = step.product, step.product.space
    trees = (product.a, product.b, step.epilogue)
    if not all(_is_elementwise(tree) for tree in trees) or not _is_turned(space, step.output):
        return step
    batch, rows, columns, inner = (len(group) for group in (space.batch, space.rows, space.columns, space.inner))
    turned = Product(
        Space(space.batch, space.columns, space.rows, space.inner),
        permuted(product.b, _order(batch, inner, columns)),
        permuted(product.a, _order(batch, rows, inner)),
        product.accumulator,
        product.b_owned,
        product.a_owned,
        product.b_stays,
        product.a_stays,
    )
    order = _order(batch, rows, columns)
    epilogue, output = permuted(step.epilogue, order), permuted(step.output, order)
    return replace(step, product=turned, epilogue=epilogue, output=output)


FEW_COLUMNS = 4
MANY_ROWS = 16


def _is_turned(space: Space, output: Tensor) -> bool:
    shape, running = Shape.of(space), running_dimension(output)
    if running is not None:
        first_row, first_column = len(space.batch), len(space.batch) + len(space.rows)
        if first_row <= running < first_column:
            return shape.columns < MANY_ROWS or shape.rows >= FEW_COLUMNS
    return shape.columns < FEW_COLUMNS and shape.rows >= MANY_ROWS


def _order(first: int, second: int, third: int) -> Sizes:
    """Return the dimensions of three groups, the last two groups exchanged."""
    return (*range(first), *range(first + second, first + second + third), *range(first, first + second))


def _is_elementwise(source: Source) -> bool:
    return all(isinstance(node, Tensor | Held | Apply) for node in nodes(source))


# ---- steps

LEAST_REUSE = 16
"""Times that each element of an operand is read, from which on laying it out anew pays."""

LEAST_REUSE_OF_ROWS = 128
"""The same for elements of a that need no conversion: a workgroup reads one at a time, all invocations the same."""


LEAST_REUSE_OF_PANELS = 256
"""The same for operands that lie in units already: only panels are gained."""


class _Planner:
    """The steps of one product, under a schedule that is chosen already."""

    def __init__(self, step: Contract, choice: Choice, target: Target):
        self.step, self.product, self.space = step, step.product, step.product.space
        self.choice, self.target = choice, target
        self.shape = Shape.of(self.space)
        self.before, self.initialization = Steps(), Steps()

    def steps(self) -> Steps:
        """Return all kernels: what is laid out anew, the product, and the sum of its parts."""
        step, accumulator = self.step, self.product.accumulator
        share, parts = self._shares()
        if parts == 1:
            last = self._contract(step.epilogue, step.output, share, parts, keeps_neighbours=step.keeps_neighbours)
        else:
            partials = Tensor.temporary("partial sums", accumulator, (parts, *step.output.sizes))
            held = Held.product(accumulator, step.output.sizes)
            sums = apply(CONVERT, accumulator, step.output.sizes, portable=True, input=held)
            total = _with_sum(step.epilogue, _merged(partials))
            merge = Map("sum of parts", total, step.output, step.keeps_neighbours)
            merged = schedule_step(merge, self.target).because(f"adds up the {parts} parts of each sum")
            last = self._contract(sums, partials, share, parts) + merged
        return self.before + self.initialization.as_initialization + last

    def _shares(self) -> tuple[int, int]:
        """Return the steps along the first inner dimension of each part, in whole slabs, and the number of parts."""
        size = self.space.inner[0]
        whole = max(self.choice.tile.depth, 2 * UNIT) if len(self.space.inner) == 1 else 1
        share = -(-size // self.choice.parts)
        share = min(size, -(-share // whole) * whole)
        return share, -(-size // share)

    def _contract(
        self, epilogue: Body, output: Tensor, share: int, parts: int, *, keeps_neighbours: bool = False
    ) -> Steps:
        product, choice, target = self.product, self.choice, self.target
        a = self._operand(product.a, self.space.rows, True, product.a_owned)
        b = self._operand(product.b, self.space.columns, False, product.b_owned)
        label = f"{choice.schedule}{' split' if parts > 1 else ''}"
        if choice.schedule is ProductSchedule.SMALL:
            if a.form is not b.form:
                a, b = (
                    replace(operand, source=source, form=Form.SINGLE)
                    for operand, source in ((a, product.a), (b, product.b))
                )
            body = self._small_body((a, b), epilogue, output, share=share, parts=parts)
            walk = choose_walk(output, keeps_neighbours)
            launch = loop_launch(walk.items(output), target)
            return Steps((ScheduledMap(label, launch, output, body, walk, reason=choice.reason),))
        epilogue, output = pack_output(epilogue, output)
        across, down = choice.tile.groups(self.shape.rows, self.shape.columns)
        total = across * down * self.shape.batch * parts
        launch = Launch(choice.tile.workgroup, 1, fold(total, target), total)
        chunk = chunk_of(self.space.inner, share)
        kernel = ScheduledContract(
            label,
            launch,
            output,
            self.space,
            a,
            b,
            product.accumulator,
            epilogue,
            choice.schedule,
            choice.tile,
            parts,
            share,
            chunk,
            broadcasts(choice.tile, target) and product.accumulator.bits == DataType.FLOAT32.bits,
            reason=f"{choice.reason}; {_tile_text(choice)}",
        )
        return Steps((kernel,))

    def _small_body(
        self, operands: tuple[Operand, Operand], epilogue: Body, output: Tensor, *, share: int, parts: int
    ) -> Body:
        """Return the whole of a ``small`` product as one tree: each output sums its products by itself."""
        a, b = operands
        values = constants(
            batch=len(self.space.batch),
            rows=len(self.space.rows),
            inner=self.space.inner,
            step=UNIT if a.form is Form.ALONG else 1,
            parts=parts,
            share=share,
            chunk=chunk_of(self.space.inner, share),
        )
        inputs = {"a": a.source, "b": b.source}
        accumulator = self.product.accumulator
        total = element(SMALL, accumulator, output.sizes, portable=True, values=values, **inputs)
        return _with_sum(epilogue, total)

    def _operand(self, source: Source, own: Sizes, own_first: bool, owned: bool) -> Operand:
        """Return an operand in the best form that the schedule reads, laid out anew if that pays."""
        operand = Operand(source, Form.SINGLE, self.space.batch, own, own_first)
        forms = self._forms(own_first)
        form = next((form for form in forms if packs(operand, form)), Form.SINGLE)
        if self._is_worth_relaying(operand, form, owned):
            operand, form = self._relaid(operand, owned), Form.ACROSS
        return packed(operand, form)

    def _forms(self, is_a: bool) -> tuple[Form, ...]:
        """Return the forms in which the schedule can read an operand, the best first."""
        match self.choice.schedule:
            case ProductSchedule.SMALL:
                return (Form.ALONG,)
            case ProductSchedule.REGISTER if is_a:
                return (Form.ACROSS,) if self.choice.tile.rows % UNIT == 0 else ()
            case _:
                return (Form.ACROSS, Form.ALONG)

    # ---- laying out anew

    def _is_worth_relaying(self, operand: Operand, form: Form, owned: bool) -> bool:
        """Only tiles in registers gain: the others read each element few times, or convert it once per slab."""
        is_a, shape, tile = operand.own_first, self.shape, self.choice.tile
        if self.choice.schedule is not ProductSchedule.REGISTER or (is_a and tile.rows % UNIT):
            return False
        if self.product.a_stays if is_a else self.product.b_stays:
            return False
        if self.target.profile is not Profile.CPU and not owned:
            return False
        reuse = shape.columns if is_a else shape.rows
        fits = 4 * _relaid_units(operand, self.space.inner) <= self.target.max_binding_size
        return fits and reuse >= self._least_reuse(operand, form, owned)

    def _least_reuse(self, operand: Operand, form: Form, owned: bool) -> float:
        plain = isinstance(operand.source, Tensor) and operand.source.data_type.bits == DataType.FLOAT32.bits
        if plain and form is Form.ACROSS:
            return LEAST_REUSE_OF_PANELS if self._panels(operand)[0] > 1 else math.inf
        return LEAST_REUSE_OF_ROWS if plain and operand.own_first and not owned else LEAST_REUSE

    def _relaid(self, operand: Operand, owned: bool) -> Operand:
        """Return the operand in units of four along its own dimensions, in panels of a tile's width where these divide
        it.

        A workgroup then reads its panel from end to end. Without panels the last unit may be half empty; what lies
        there is never written and of no account: it only reaches outputs that are not stored.
        """
        inner, batch = self.space.inner, _varying(operand)
        panels, width = self._panels(operand)
        if panels > 1:
            operand = _split(operand, width)
        laid = (*batch, panels, *inner, width)
        strides = packed_strides(laid)
        batch_strides = tuple(stride if size > 1 else 0 for size, stride in zip(batch, strides, strict=False))
        inner_strides, own_strides = strides[len(batch) + 1 : -1], (strides[len(batch)], 1)
        make = Tensor.persistent if owned else Tensor.temporary
        room = make("operand laid out", self.product.accumulator, laid, strides)

        def over(own: Sizes, own_strides: Sizes, batch_sizes: Sizes) -> Tensor:
            middle = ((own, own_strides), (inner, inner_strides))
            groups = middle if operand.own_first else middle[::-1]
            return replace(
                room,
                sizes=batch_sizes + groups[0][0] + groups[1][0],
                strides=batch_strides + groups[0][1] + groups[1][1],
            )

        written = over(operand.own, own_strides if panels > 1 else packed_strides(operand.own), batch)
        label = f"lay out {'a' if operand.own_first else 'b'}"
        reuse = self.shape.columns if operand.own_first else self.shape.rows
        copied = schedule_step(Map(label, self._copied(operand, written), written), self.target).because(
            f"the product reads each element {reuse} times, faster from units that lie as its tiles do"
        )
        if owned:
            self.initialization += copied
        else:
            self.before += copied
        return replace(operand, source=over((panels, width), own_strides, operand.batch), own=(panels, width))

    def _panels(self, operand: Operand) -> tuple[int, int]:
        """Return the panels of an operand and the width of each; one that is rounded up to units where it can't be
        split."""
        tile, count = self.choice.tile, math.prod(operand.own)
        width = tile.down * tile.rows if operand.own_first else tile.across * tile.units * UNIT
        if len(operand.own) == 1 and count % width == 0 and width % UNIT == 0 and _is_elementwise(operand.source):
            return count // width, width
        return 1, -(-count // UNIT) * UNIT

    def _copied(self, operand: Operand, written: Tensor) -> Body:
        """Return what is written: bits where the type stays, else converted elements."""
        source = _narrowed(operand.source, written.sizes)
        if isinstance(source, Tensor) and source.data_type is written.data_type:
            return identity(replace(source, view=View.RAW))
        if isinstance(source, Body) and source.data_type is written.data_type:
            return source
        return apply(CONVERT, written.data_type, written.sizes, portable=True, input=source)


def _split(operand: Operand, width: int) -> Operand:
    """Return an element-wise operand with its only own dimension as two: the number of a panel, the place in it."""
    at = operand.own_at

    def split_sizes(sizes: Sizes) -> Sizes:
        return (*sizes[:at], sizes[at] // width, width, *sizes[at + 1 :])

    def split(node: Source) -> Source:
        if not isinstance(node, Tensor):
            return replace(node, sizes=split_sizes(node.sizes))
        stride = node.strides[at]
        strides = (*node.strides[:at], stride * width, stride, *node.strides[at + 1 :])
        return replace(node, sizes=split_sizes(node.sizes), strides=strides)

    own = (operand.own[0] // width, width)
    return replace(operand, source=rewrite(operand.source, split), own=own)


def _varying(operand: Operand) -> Sizes:
    """Return the batch dimensions, those along which an element-wise operand does not change as 1."""
    if not _is_elementwise(operand.source):
        return operand.batch
    tensors = list(leaves(operand.source))
    return tuple(
        size if any(tensor.strides[dimension] for tensor in tensors) else 1
        for dimension, size in enumerate(operand.batch)
    )


def _narrowed(source: Source, sizes: Sizes) -> Source:
    """Return an element-wise tree over the first of the elements along some dimensions."""
    if source.sizes == sizes:
        return source

    def narrow(node: Source) -> Source:
        return replace(node, sizes=sizes)

    return rewrite(source, narrow)


def _relaid_units(operand: Operand, inner: Sizes) -> int:
    return math.prod(_varying(operand)) * math.prod(inner) * -(-math.prod(operand.own) // UNIT) * UNIT


def _tile_text(choice: Choice) -> str:
    tile = choice.tile
    parts = f", sums in {choice.parts} parts" if choice.parts > 1 else ""
    return f"each invocation computes {tile.rows} x {tile.units * UNIT} outputs{parts}"


# ---- sums that are not held in a tile


def _merged(partials: Tensor) -> Body:
    """Return the sums of all parts."""
    parts, *sizes = partials.sizes
    follows = tuple(range(1, partials.rank))
    values = constants(parts=parts)
    inputs = (("partials", partials),)
    return Element(MERGE, partials.data_type, tuple(sizes), inputs, values, True, follows=(follows,))


def _with_sum(epilogue: Body, total: Body) -> Body:
    """Return an epilogue on sums that a body computes."""
    return rewrite(epilogue, lambda node: total if isinstance(node, Held) else node)
