"""Scheduling of matrix products: schedule, units and kernels.

1. ``PRODUCT_SCHEDULES`` are tried in order: those of quantized columns (``quantized``, ``panels``), of matrix units
   (``cooperative``), of few rows by floats known at initialization (``float_panels``), and of tiles. Schedule, tile and
   parts of the latter are one choice (``gemm_choice``), from the sizes and the target alone.
2. Rows and columns are exchanged if memory is contiguous along rows (element-wise sources only), and columns that lie
   contiguously become one dimension.
3. Each operand gets an ``OperandLayout``: read in units of four along its own dimension (ACROSS), along the inner one
   (ALONG), or element by element (SINGLE).
4. If a tile in registers would read or convert the elements of an operand repeatedly, the operand is first repacked
   (``_relaid``), in units of four along its own dimension: by the initialization, in a persistent tensor, if it is
   OWNED_BY_DML; else in a temporary tensor before each product.
5. With parts, the sums go to a temporary tensor, and a map computes their total and the epilogue.

Sums run over at most ``CHUNK`` products before they are added to a total, so that the rounding error of long ones does
not grow with their length.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias, TypeVar

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import (
    PAIR,
    Body,
    Contract,
    PairedContract,
    PlanTensor,
    Product,
    RotatedContract,
    Sizes,
    Space,
    constants,
    element,
)
from dmlgpu.compiler.rewrites.collapse import merge_sizes, merge_tree, mergeable
from dmlgpu.compiler.rewrites.packing import UNIT, in_pairs, running_dimension
from dmlgpu.compiler.rewrites.sources import AnySource, is_plain, leaves, permuted
from dmlgpu.compiler.schedule import gemm_choice
from dmlgpu.compiler.schedule.cooperative import cooperative_steps, exchanged, fills_matrices, fits_matrix_units
from dmlgpu.compiler.schedule.float_panels import fits_float_panels, float_panel_steps, has_few_float_rows
from dmlgpu.compiler.schedule.gemm_choice import CHUNK, FEW_ROWS, SPLIT, TILED, ProductChoice, Shape, ShapeProblem
from dmlgpu.compiler.schedule.launch import Launch, choose_walk, fold, loop_launch
from dmlgpu.compiler.schedule.operands import (
    ProductOperands,
    element_bytes,
    in_parts,
    pack_output,
    packs_along,
    streams,
    window_of,
    with_sum,
)
from dmlgpu.compiler.schedule.packed_products import packed_operands
from dmlgpu.compiler.schedule.panels import fits_panels, panel_steps
from dmlgpu.compiler.schedule.quantized import (
    QuantizedProduct,
    by_columns,
    by_lanes,
    has_few_rows,
    has_many_rows,
    in_floats,
    packs_rows,
    rotates_ranges,
)
from dmlgpu.compiler.schedule.registry import (
    CPU,
    GPUS,
    YES,
    Condition,
    Schedule,
    by_profile,
    choose,
    no,
    pick,
    register,
    requested,
)
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.splitting import exceeds_binding
from dmlgpu.compiler.schedule.steps.base import KernelStep, ScheduledSteps, buffers
from dmlgpu.compiler.schedule.steps.maps import ScheduledMap
from dmlgpu.compiler.schedule.steps.products import (
    Operand,
    OperandLayout,
    ProductSchedule,
    ProductTile,
    ScheduledContract,
)
from dmlgpu.compiler.schedule.units import MULTIPLIED, reads_single
from dmlgpu.compiler.sizes.arithmetic import largest
from dmlgpu.compiler.target import Target

SMALL = "schedules/gemm_small"

NORMALIZING = ("lanes",)
"""Schedules of products that can normalize their rows. On CPU adapters this would save launches and no time, and
another kernel of panels takes most of a second to compile."""


class ProductProblem:
    """A product and its target, in the forms that schedules inspect.

    Args:
        step: The product.
        target: The compile target.
        sums: Sums of an element of the output: two for a ``PairedContract``.
        rotation: How its columns are stored, if not by the epilogue.
    """

    def __init__(self, step: Contract, target: Target, sums: int = 1, rotation: RotatedContract | None = None):
        self.step, self.target, self.label, self.sums, self.rotation = step, target, step.label, sums, rotation

    @functools.cached_property
    def quantized(self) -> QuantizedProduct | None:
        """Product with its columns as integers; None if they are not quantized."""
        return QuantizedProduct.of(self.step, self.sums, self.target, self.rotation)

    @functools.cached_property
    def oriented(self) -> Contract:
        """Product with memory that is contiguous along the columns of the output, and merged columns."""
        return _with_merged_columns(_oriented(self.step))

    @functools.cached_property
    def shape(self) -> Shape:
        """Shape of the oriented product."""
        return _shape(self.oriented.product, self.target)

    @functools.cached_property
    def choice(self) -> ProductChoice:
        """Choice among the schedules in tiles, all of whose numbers are plain."""
        return gemm_choice.choose(self.shape, self.target, requested_tiles(self.target))

    def in_tiles(self) -> ScheduledSteps:
        """Return the kernels of the choice."""
        return _ProductPlanner(self.oriented, self.shape, self.choice, self.target).steps()


@schedule_step.register
def _contract(step: Contract, target: Target) -> ScheduledSteps:
    return choose(_of_rows(step.product, PRODUCT_SCHEDULES), ProductProblem(step, target))


@schedule_step.register
def _paired(step: PairedContract, target: Target) -> ScheduledSteps:
    return choose(_of_rows(step.product, PAIRED_SCHEDULES), _pair(step, target))


def _of_rows(product: Product, schedules: tuple[ProductEntry, ...]) -> tuple[ProductEntry, ...]:
    """Return the schedules of a list that compute a product with its rows, normalized or as they are."""
    return tuple(each for each in schedules if product.norm is None or each.name in NORMALIZING)


def _pair(step: Contract | PairedContract, target: Target) -> ProductProblem:
    return ProductProblem(Contract(step.label, step.product, step.epilogue, step.output), target, len(PAIR))


def is_pairable(step: Contract, target: Target) -> bool:
    """Return whether a kernel computes two columns of a product for each element of a ``PairedContract``. On CPU
    adapters it only saves a launch, and takes seconds longer to compile if it serves all numbers of rows."""
    if target.policies.varying and not target.needs_many_invocations:
        return False
    return pick(PAIRED_SCHEDULES, _pair(step, target)) is not None


def normalizes_rows(step: Contract | PairedContract, target: Target) -> bool:
    """Return whether the kernel of a product normalizes its rows, which then are read in units."""
    if target.profile not in GPUS or not packs_rows(step.product):
        return False  # plans on CPU adapters need no guards of sizes
    if isinstance(step, PairedContract):
        taken = pick(PAIRED_SCHEDULES, _pair(step, target))
    else:
        taken = pick(PRODUCT_SCHEDULES, ProductProblem(step, target))
    return taken is not None and taken.name in NORMALIZING


@schedule_step.register
def _rotated(step: RotatedContract, target: Target) -> ScheduledSteps:
    return choose(_of_rows(step.product, ROTATED_SCHEDULES), _rotation(step, target))


def _rotation(step: RotatedContract, target: Target) -> ProductProblem:
    """Return a product with a column for each pair of partners."""
    space, first = step.product.space, step.ranges[0]
    pairs = replace(step.product, space=replace(space, columns=(space.columns[0] // len(PAIR),)))
    assert isinstance(first.tree, Body)
    return ProductProblem(Contract(step.label, pairs, first.tree, first.step.output), target, len(PAIR), step)


def rotates_columns(step: Contract | RotatedContract, target: Target) -> bool:
    """Return whether a kernel of a product stores ranges of its columns, rotated: some ranges, or certain ones."""
    if target.profile not in GPUS:
        return False  # on CPU adapters it saves a launch and no time, and is another kernel to compile
    if isinstance(step, Contract):
        problem = ProductProblem(step, target)
        return bool(problem.quantized and has_few_rows(problem.quantized) and not exceeds_binding(step, target))
    taken = pick(ROTATED_SCHEDULES, _rotation(step, target))
    return taken is not None and not exceeds_binding(step, target) and _binds(schedule_step(step, target), target)


def _binds(steps: ScheduledSteps, target: Target) -> bool:
    """Return whether kernels can bind their buffers: one for each tensor and size of unit."""
    return all(buffers(kernel) <= target.slots for kernel in steps.steps if isinstance(kernel, KernelStep))


def multiplies_integers(step: Contract, target: Target) -> bool:
    """Return whether a kernel multiplies the integers of quantized rows and columns in words of four."""
    problem = ProductProblem(step, target)
    taken = pick(PRODUCT_SCHEDULES, problem)
    name = "" if taken is None else taken.name.removesuffix(SPLIT)
    of_few_rows = name == "lanes" and problem.quantized and problem.quantized.integers
    return name == ProductSchedule.PACKED or bool(of_few_rows)


def _reads_single(product: Product, shape: Shape, target: Target) -> bool:
    """Return whether a product of sizes that vary has so few activations that its kernel reads single elements, as all
    sizes allow. Few rows wait for memory, and read units."""
    if not target.policies.varying or target.vectorizes_loads or product.in_units or shape.rows <= FEW_ROWS:
        return False
    activations = [
        size
        for size, owned in ((shape.rows, product.a_owned), (shape.columns, product.b_owned or product.integers_owned))
        if not owned
    ]
    return reads_single(largest(1, *activations), shape.work, MULTIPLIED, target)


def _shape(product: Product, target: Target) -> Shape:
    packed = packed_operands(product)
    element = element_bytes(product.b)
    plain = Shape.of(product.space, element=element)
    if packed is None and _reads_single(product, plain, target):
        return replace(plain, single=True)
    columns = window_of(product, target)
    taps = columns.window.axis.size if columns and columns.window else 0
    return Shape.of(
        product.space,
        along=packs_along(product),
        taps=taps,
        packs=packed is not None,
        block=packed.block if packed else 0,
        streams=streams(product),
        element=element,
    )


def interleaved_steps(step: Contract, interleaved: int, target: Target) -> ScheduledSteps | Condition:
    """Schedule a product whose rows, along the last of their dimensions, are interleaved in the output, if a tile holds
    whole units of the output.

    Args:
        step: epilogue and output are over {batch.., rows.. but the last, columns..}; their last dimension has
            ``interleaved`` elements for each column.
        interleaved: the size of the last dimension of rows, 2 or 4.
        target: as for other products.
    """
    name, shape = requested_tiles(target), _shape(step.product, target)
    choice = gemm_choice.choose(shape if name else replace(shape, streams=False), target, name)
    _, output = pack_output(step.epilogue, step.output)
    whole = output.lanes == UNIT and step.product.space.columns[-1] % UNIT == 0 and choice.tile.rows % interleaved == 0
    in_tiles = choice.schedule not in (ProductSchedule.SMALL, ProductSchedule.STREAMED)
    if not in_tiles or choice.parts > 1 or not whole:
        return no("{} has no whole units of the output", choice.text)
    return _ProductPlanner(step, shape, choice, target, interleaved).steps()


def chunk_of(inner: Sizes, share: int) -> int:
    """Return the steps along the first inner dimension that ``CHUNK`` products take; 0 if a sum has at most these."""
    rest = math.prod(inner[1:])
    return 0 if share * rest <= CHUNK else max(1, CHUNK // rest)


# ---- rows and columns


def _oriented(step: Contract) -> Contract:
    """Return the product, transposed if necessary so that memory is contiguous along the columns of the output. A
    product of very few columns and many rows is transposed too."""
    product, space = step.product, step.product.space
    trees = (product.a, product.b, step.epilogue)
    if not all(is_plain(tree) for tree in trees) or not _is_turned(space, step.output):
        return step
    batch, rows, columns, inner = (len(group) for group in (space.batch, space.rows, space.columns, space.inner))
    turned = Product(
        Space(space.batch, space.columns, space.rows, space.inner),
        permuted(product.b, exchanged(batch, inner, columns)),
        permuted(product.a, exchanged(batch, rows, inner)),
        product.accumulator,
        product.b_owned,
        product.a_owned,
        product.b_stays,
        product.a_stays,
    )
    order = exchanged(batch, rows, columns)
    epilogue, output = permuted(step.epilogue, order), permuted(step.output, order)
    return replace(step, product=turned, epilogue=epilogue, output=output)


FEW_COLUMNS = 4
MANY_ROWS = 16


def _is_turned(space: Space, output: PlanTensor) -> bool:
    shape, running = Shape.of(space), running_dimension(output)
    if running is not None:
        first_row, first_column = len(space.batch), len(space.batch) + len(space.rows)
        if first_row <= running < first_column:
            return shape.columns < MANY_ROWS or shape.rows >= FEW_COLUMNS
    return shape.columns < FEW_COLUMNS and shape.rows >= MANY_ROWS


def _with_merged_columns(step: Contract) -> Contract:
    """Return the same product with columns that lie contiguously in one dimension: units may then cross rows of an
    image."""
    product, space, count = step.product, step.product.space, len(step.product.space.columns)
    if count == 1 or not (is_plain(product.b) and is_plain(step.epilogue)):
        return step
    tensors = (*leaves(product.b), *leaves(step.epilogue), step.output)
    columns = mergeable(space.columns, [tensor.strides[-count:] for tensor in tensors], keeps_ones=True)

    def merged(source: AnySource) -> AnySource:
        first = len(source.sizes) - count
        groups = (
            *((d,) for d in range(first)),
            *(tuple(first + dimension for dimension in group) for group in columns),
        )
        return merge_tree(source, groups)

    merged_space = replace(space, columns=merge_sizes(space.columns, columns))
    return replace(
        step,
        product=replace(product, space=merged_space, b=merged(product.b)),
        epilogue=merged(step.epilogue),
        output=merged(step.output),
    )


# ---- steps

NEAR_COLUMNS = 8
"""Maximum elements between columns for which adjacent invocations read the same memory sectors."""

UNROLLED = by_profile(cpu=2, gpus=1)
"""Unrolled steps of the loop. CPU adapters store all sums in each iteration; four steps need too many registers."""


class _ProductPlanner:
    """Builder of the steps of a product for a schedule."""

    def __init__(self, step: Contract, shape: Shape, choice: ProductChoice, target: Target, interleaved: int = 1):
        self.step, self.product, self.space = step, step.product, step.product.space
        self.shape, self.choice, self.target, self.interleaved = shape, choice, target, interleaved
        self.operands = ProductOperands(self.product, choice, target)
        self.packed = packed_operands(self.product) if choice.schedule is ProductSchedule.PACKED else None

    def steps(self) -> ScheduledSteps:
        """Return all kernels: repacking of operands, the product, and the sum of its parts."""
        step = self.step
        share, parts = self._shares()
        if parts == 1:
            last = self._contract(step.epilogue, step.output, share, parts, keeps_neighbors=step.keeps_neighbors)
        else:
            sums, partials, merge = in_parts(step, parts)
            merged = schedule_step(merge, self.target).because(f"combines the {parts} parts of each sum")
            last = self._contract(sums, partials, share, parts) + merged
        return self.operands.before + self.operands.initialization.as_initialization + last

    def _shares(self) -> tuple[int, int]:
        """Return the steps along the first inner dimension of each part, in whole slabs, and the number of parts."""
        size, *rest = self._inner
        whole = self._units if rest else max(2 * self.choice.tile.depth, 2 * UNIT)
        if self.choice.schedule is ProductSchedule.STREAMED:
            whole = self._units if rest else self._iteration
        share = -(-size // self.choice.parts)
        share = min(size, -(-share // whole) * whole)
        return share, -(-size // share)

    def _contract(
        self, epilogue: Body, output: PlanTensor, share: int, parts: int, *, keeps_neighbors: bool = False
    ) -> ScheduledSteps:
        product, choice, target = self.product, self.choice, self.target
        a, b = (self.packed.a, self.packed.b) if self.packed else (self.operands.a(), self.operands.b())
        label = f"{choice.schedule}{' split' if parts > 1 else ''}"
        if choice.schedule is ProductSchedule.SMALL:
            if a.layout is not b.layout:
                a, b = (
                    replace(operand, source=source, layout=OperandLayout.SINGLE)
                    for operand, source in ((a, product.a), (b, product.b))
                )
            body = self._small_body((a, b), epilogue, output, share=share, parts=parts)
            walk = choose_walk(output, keeps_neighbors)
            launch = loop_launch(walk.items(output), target)
            return ScheduledSteps((ScheduledMap(label, launch, output, body, walk, reason=choice.reason),))
        apart = self._apart(b, output)
        if apart == 1 and not choice.shape.single:
            epilogue, output = pack_output(epilogue, output)
        if self._takes_pairs:
            output = in_pairs(output)
            b = replace(b, source=in_pairs(b.source)) if b.layout is OperandLayout.ACROSS else b
        across, down = choice.tile.groups(self.shape.rows, self.shape.columns)
        total = across * down * self.shape.batch * parts
        launch = Launch(choice.tile.workgroup, 1, fold(total, target), total)
        chunk = self._chunk(share)
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
            self._sharing(),
            self.interleaved,
            self._steps(a, b, share, chunk),
            self._takes_pairs,
            self._is_whole(share, parts, chunk),
            self._is_in_float16(a, b),
            apart,
            choice.schedule is ProductSchedule.REGISTER and target.runs_in_lockstep,
            reason=f"{choice.reason}; {_tile_text(choice)}",
        )
        return ScheduledSteps((self.packed.kernel(kernel) if self.packed else kernel,))

    @property
    def _inner(self) -> Sizes:
        """Inner dimensions in the units of the loop: words of four (PACKED), or elements."""
        return (-(-self.shape.inner // UNIT),) if self.packed else self.space.inner

    def _chunk(self, share: int) -> int:
        """Return the steps after which a sum is added to a total: on GPUs, whose registers a second set of sums would
        fill, only if the target keeps digits."""
        if self.packed or self.choice.schedule is ProductSchedule.STREAMED:
            return 0
        chunk = chunk_of(self.space.inner, share)
        if self.choice.schedule is not ProductSchedule.SHARED or chunk == 0:
            return chunk
        if self.target.needs_many_invocations and not self.target.keeps_digits:
            return 0
        return max(1, chunk // self._units) * self._units

    @property
    def _units(self) -> int:
        """Minimum steps along the first inner dimension that are whole units of all steps (SHARED, STREAMED)."""
        in_slabs = self.choice.schedule in (ProductSchedule.SHARED, ProductSchedule.STREAMED)
        return UNIT // math.gcd(UNIT, math.prod(self.space.inner[1:])) if in_slabs else 1

    @property
    def _iteration(self) -> int:
        """Number of steps of all slices of a workgroup in an iteration (STREAMED)."""
        return UNIT * gemm_choice.stream_steps(self.shape) * self.choice.tile.slices

    def _is_whole(self, share: int, parts: int, chunk: int) -> bool:
        """Return whether pairs of slabs, or iterations, divide every sum between two stores, so that no step needs a
        check."""
        size, *rest = self._inner
        lengths = (size, *((share,) if parts > 1 else ()), *((chunk,) if chunk else ()))
        depth = self.choice.tile.depth
        unit = self._iteration if self.choice.schedule is ProductSchedule.STREAMED else 2 * depth
        return depth > 0 and all(length * math.prod(rest) % unit == 0 for length in lengths)

    def _is_in_float16(self, a: Operand, b: Operand) -> bool:
        """Return whether products of float16 are computed in float16, if the caller allows it."""
        in_slabs = self.choice.schedule is ProductSchedule.SHARED and self.target.has("shader-f16")
        return in_slabs and all(
            isinstance(operand.source, PlanTensor) and operand.source.data_type is DataType.FLOAT16
            for operand in (a, b)
        )

    def _apart(self, b: Operand, output: PlanTensor) -> int:
        """Return the columns between the lanes of a unit.

        Columns that are read one by one are adjacent in invocations, not in lanes, on GPUs: adjacent lanes of a unit of
        four would make the loads of a subgroup touch four times as much memory. Columns that are far apart in memory,
        and outputs of half a word, stay in units.
        """
        is_near = not isinstance(b.source, PlanTensor) or b.source.strides[-1] <= NEAR_COLUMNS
        alone = is_near and b.layout in (OperandLayout.SINGLE, OperandLayout.SEEN) and not b.fetch.inner_fastest
        in_slabs = self.choice.schedule is ProductSchedule.SHARED and not self.target.runs_in_lockstep
        if not (alone and in_slabs) or self.interleaved > 1 or output.unit_bits < WORD_BITS:
            return 1
        return self.choice.tile.across * self.choice.tile.units

    def _sharing(self) -> int:
        """Return the number of invocations that share their loads of the rows."""
        tile, is_word = self.choice.tile, self.product.accumulator.bits == DataType.FLOAT32.bits
        return (
            min(self.target.subgroup_lanes, tile.across) if is_word and gemm_choice.broadcasts(tile, self.target) else 1
        )

    @property
    def _takes_pairs(self) -> bool:
        """Return whether invocations have units of columns in pairs, and gain if two are read or written at once."""
        in_registers = self.choice.schedule is ProductSchedule.REGISTER
        return in_registers and self.choice.tile.units % 2 == 0 and self.target.moves_pairs

    def _steps(self, a: Operand, b: Operand, share: int, chunk: int) -> int:
        """Return the steps along the last inner dimension per iteration of the loop."""
        if self.choice.schedule is ProductSchedule.STREAMED:
            return gemm_choice.stream_steps(self.shape)
        if self.choice.schedule is not ProductSchedule.REGISTER:
            return 1
        if b.window is not None:
            return b.window.axis.size
        if OperandLayout.ALONG in (a.layout, b.layout):
            return UNIT
        *outer, last = self.space.inner
        if self.shape.single and self.operands.are_read_once:
            return 1
        steps = UNROLLED[self.target.profile]
        return steps if last % steps == 0 and (outer or (share % steps == 0 and chunk % steps == 0)) else 1

    def _small_body(
        self, operands: tuple[Operand, Operand], epilogue: Body, output: PlanTensor, *, share: int, parts: int
    ) -> Body:
        """Return a ``small`` product as one tree: each output sums its own products."""
        a, b = operands
        values = constants(
            batch=len(self.space.batch),
            rows=len(self.space.rows),
            inner=self.space.inner,
            step=UNIT if a.layout is OperandLayout.ALONG else 1,
            parts=parts,
            share=share,
            chunk=chunk_of(self.space.inner, share),
        )
        inputs = {"a": a.source, "b": b.source}
        accumulator = self.product.accumulator
        total = element(SMALL, accumulator, output.sizes, portable=True, values=values, **inputs)
        return with_sum(epilogue, total)


def _tile_text(choice: ProductChoice) -> str:
    tile = choice.tile
    parts = f", sums in {choice.parts} parts" if choice.parts > 1 else ""
    return f"each invocation computes {tile.rows} x {tile.units * UNIT} outputs{parts}"


# ---- the lists

_Result = TypeVar("_Result")
ProductEntry: TypeAlias = Schedule[ProductProblem, ScheduledSteps]


def _of_columns(function: Callable[[QuantizedProduct], _Result]) -> Callable[[ProductProblem], _Result | Condition]:
    """Return a function of products from one of those with quantized columns."""

    def applied(problem: ProductProblem) -> _Result | Condition:
        return function(problem.quantized) if problem.quantized else no("its columns are not quantized in blocks")

    return applied


def _quantized(kind: str) -> tuple[ProductEntry, ...]:
    """Return the schedules of products that dequantize their columns in registers."""
    entries = (
        ("panels", panel_steps, fits_panels, CPU, "integers in panels: one index gives the words of eight columns"),
        ("columns", by_columns, has_few_rows, CPU, "few rows: every lane dequantizes columns of its own"),
        ("lanes", by_lanes, has_few_rows, GPUS, "few rows: adjacent lanes read adjacent integers of a column"),
    )
    return tuple(
        Schedule(kind, name, _of_columns(build), reason, _of_columns(fits), profiles=profiles)
        for name, build, fits, profiles, reason in entries
    )


def _in_tiles(tiled: Schedule[ShapeProblem, ProductTile], suffix: str) -> ProductEntry:
    """Return the entry of a schedule in tiles, with sums in one part or in several."""

    def fits(problem: ProductProblem) -> Condition:
        return tiled.fits(ShapeProblem(problem.shape, problem.target))

    def pays(problem: ProductProblem) -> Condition:
        choice = problem.choice
        if choice.name == tiled.name + suffix:
            return YES
        return tiled.pays(ShapeProblem(choice.shape, problem.target)) and no("{} is faster", choice.text)

    build = ProductProblem.in_tiles
    return Schedule("product", tiled.name + suffix, build, tiled.reason, fits, pays, tiled.profiles)


PRODUCT_SCHEDULES: tuple[ProductEntry, ...] = register(
    *_quantized("product"),
    Schedule(
        "product",
        "dequantized",
        _of_columns(in_floats),
        "many rows: integers are dequantized to memory first",
        _of_columns(has_many_rows),
        profiles=CPU,
    ),
    Schedule(
        "product",
        "cooperative",
        lambda problem: cooperative_steps(problem.oriented, problem.target),
        "matrix units multiply its numbers",
        lambda problem: fits_matrix_units(problem.oriented, problem.target),
        lambda problem: fills_matrices(problem.oriented, problem.target),
        profiles=GPUS,
    ),
    Schedule(
        "product",
        "float-panels",
        lambda problem: float_panel_steps(problem.oriented, problem.target),
        "few rows: a workgroup reads its columns as one stream",
        lambda problem: fits_float_panels(problem.oriented.product, problem.target),
        lambda problem: has_few_float_rows(problem.oriented),
        profiles=CPU,
    ),
    *(_in_tiles(tiled, suffix) for tiled in TILED for suffix in ("", SPLIT)),
)
"""Schedules of products, in the order in which they are tried."""

PAIRED_SCHEDULES: tuple[ProductEntry, ...] = register(*_quantized("paired-product"))
"""Schedules of products with two columns to an output, in the order in which they are tried."""

ROTATED_SCHEDULES: tuple[ProductEntry, ...] = register(
    Schedule(
        "rotated-product",
        "lanes",
        _of_columns(by_lanes),
        "few rows: adjacent lanes read adjacent integers of columns and of their partners",
        _of_columns(lambda problem: has_few_rows(problem) and rotates_ranges(problem)),
        profiles=GPUS,
    )
)
"""Schedules of products whose columns are stored in ranges, each with its partner."""


def requested_tiles(target: Target) -> str:
    """Return the name of the schedule in tiles that is requested; empty if there is none."""
    name = requested(PRODUCT_SCHEDULES, target)
    return name if name in gemm_choice.NAMES else ""
