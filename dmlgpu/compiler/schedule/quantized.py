"""Products of few rows with quantized columns: dequantized in registers, never stored as floats.

The graph pass ``prologues`` computes a DEQUANTIZE in the product that reads it, whose inner dimensions then are blocks
and their elements. Such a product of up to ``MAX_ROWS`` rows waits for its columns, so it reads their words once, in
units of up to 16 bytes, and multiplies by the scale of a block once per block and row. Products of more rows are those
of ``gemm``, which dequantize tiles.

The scale multiplies the sum of a block, where the operators round each dequantized element first. Results differ by
less than the rounding of the products; they are the closer ones.

Rows that are quantized as well, to INT8 without a zero point and in the blocks of the columns, stay integers: GPUs
multiply four of them by four of the columns with ``dot4I8Packed``, and scale the sum of a block. The graph pass
``integers`` stores such rows for these products, and for those of more rows, which ``gemm`` multiplies likewise in
tiles.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import (
    PAIR,
    Apply,
    Body,
    ColumnRange,
    Contract,
    Lookup,
    Map,
    PlanTensor,
    Product,
    RegisterValue,
    RotatedContract,
    Scatter,
    Source,
    View,
    apply,
)
from dmlgpu.compiler.rewrites.packing import (
    UNIT,
    WIDEST_UNIT_BITS,
    pack_source,
    pack_tensor,
    packs_source,
    packs_tensor,
    running_dimension,
)
from dmlgpu.compiler.rewrites.sources import CONVERT, is_plain, leaves, nodes, rewrite, split
from dmlgpu.compiler.schedule.gemm_choice import longest, power_of_two
from dmlgpu.compiler.schedule.launch import Launch, choose_walk, fold, tile_launch
from dmlgpu.compiler.schedule.registry import Condition, at_least, at_most, no, only_if
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.quantized import (
    ADJACENT,
    NormalizedRows,
    QuantizedColumns,
    QuantizedRows,
    QuantizedSchedule,
    ScheduledColumns,
    ScheduledDequantize,
    ScheduledQuantizedProduct,
)
from dmlgpu.compiler.target import Target

MAX_ROWS = 16
"""Maximum rows of a product that is bound by loads of its columns."""

DEQUANTIZE = "quantization/dequantize"
GATHER = "indexing/gather_nd1"
NO_ZERO_POINT = "quantization/no_zero_point"
NUMBER = "elementwise/number"
SUBTRACT, MULTIPLY = "elementwise/element_wise_subtract", "elementwise/element_wise_multiply"

LANES = 8
"""Number of invocations of a workgroup on CPU adapters, which run them in lockstep."""

MAX_ROWS_ON_CPU = 8
"""Number of rows per invocation on CPU adapters."""

WORKGROUP, BUSY = 64, 128
"""Invocations of a workgroup on GPUs, and the workgroups that keep one busy."""

_TYPES = frozenset({DataType.INT4, DataType.UINT4, DataType.INT8, DataType.UINT8})


@dataclass(frozen=True)
class QuantizedProduct:
    """A product with quantized columns, over blocks and their elements.

    Attributes:
        step: The product.
        columns: Its columns.
        sums: Sums of an element of the output: two for a ``PairedContract``.
        target: The compile target.
        rotation: How its columns are stored, if not by the epilogue; then the product has a column for each pair.
    """

    step: Contract
    columns: QuantizedColumns
    sums: int
    target: Target
    rotation: RotatedContract | None = None

    @classmethod
    def of(
        cls, step: Contract, sums: int, target: Target, rotation: RotatedContract | None = None
    ) -> QuantizedProduct | None:
        """Return a product with its columns as integers; None if they are not quantized."""
        if not isinstance(step.product.b, Apply):
            return None
        step = _with_one_block(step)
        space = step.product.space
        if len(space.inner) != 2 or step.product.accumulator is not DataType.FLOAT32:
            return None
        b, selection = without_selection(step.product.b)
        columns = quantized_columns(b, len(space.batch) + 1)
        if columns is None or (selection is not None and math.prod(space.rows) > MAX_ROWS):
            return None
        if columns.is_e2m1 and (step.product.integers_owned or math.prod(space.rows) > MAX_ROWS):
            return None  # other kernels compute the tree
        return cls(step, replace(columns, selection=selection), sums, target, rotation)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return math.prod(self.step.product.space.rows)

    @functools.cached_property
    def integers(self) -> QuantizedRows | None:
        """Rows as words, if they are integers and the adapter multiplies words of four; else None."""
        a = self.step.product.a
        if self.columns.is_e2m1 or not self.target.multiplies_words:
            return None
        return quantized_rows(a, len(a.sizes) - 1, self.columns.words.lanes)


def has_few_rows(problem: QuantizedProduct) -> Condition:
    """Return whether a product is bound by loads of its columns: it has few rows, and its loop is not too long."""
    lead = len(problem.step.product.space.batch)
    units = math.prod(problem.columns.words.sizes[lead : lead + 2])
    return at_most(problem.rows, MAX_ROWS, "rows") and at_most(units, longest(problem.target), "units of a column")


def has_many_rows(problem: QuantizedProduct) -> Condition:
    """Return whether many rows read each column."""
    return at_least(problem.rows, MAX_ROWS + 1, "rows")


def reads_selections(step: Contract, target: Target) -> bool:
    """Return whether a kernel of a product reads the quantized matrices that lookups select where they are."""
    problem = QuantizedProduct.of(step, 1, target)
    return problem is not None and problem.columns.selection is not None and bool(has_few_rows(problem))


def packs_rows(product: Product) -> bool:
    """Return whether the rows of a product, and what multiplies them if they are normalized, can be read in units."""
    last = len(product.a.sizes) - 1
    sources = [product.a, *([product.norm.gain] if product.norm and product.norm.gain else [])]
    return all(source.sizes[last] % UNIT == 0 and packs_source(source, last, UNIT) for source in sources)


def _with_one_block(step: Contract) -> Contract:
    """Return a product with one inner dimension as one with a single block of all elements."""
    product, space = step.product, step.product.space
    lead, inner = len(space.batch), space.inner
    if len(inner) != 1 or not is_plain(product.a) or not is_plain(product.b):
        return step
    at = lead + len(space.rows)
    a, b, norm = split(product.a, at, inner[0]), split(product.b, lead, inner[0]), product.norm
    if norm is not None and norm.gain is not None:
        norm = replace(norm, gain=split(norm.gain, at, inner[0]))
    return replace(step, product=replace(product, space=replace(space, inner=(1, *inner)), a=a, b=b, norm=norm))


def in_floats(problem: QuantizedProduct) -> ScheduledSteps:
    """Return the dequantization to a temporary tensor, and the product of floats."""
    step, target, product, space = problem.step, problem.target, problem.step.product, problem.step.product.space
    lead, (blocks, block) = len(space.batch), space.inner
    sizes = (*space.batch, *space.inner, *space.columns)
    floats = PlanTensor.temporary("dequantized columns", DataType.FLOAT32, sizes)
    body = apply(CONVERT, DataType.FLOAT32, sizes, portable=True, input=product.b)
    plain = replace(
        product,
        space=replace(space, inner=(blocks * block,)),
        a=_joined(product.a, lead + len(space.rows)),
        b=_joined(floats, lead),
    )
    why = f"{problem.rows} rows read each of the columns"
    dequantized = schedule_step(Map("dequantize", body, floats), target).because(why)
    return dequantized + schedule_step(replace(step, product=plain), target.with_overrides(schedule=""))


def _joined(source: Source, dimension: int) -> Source:
    """Return a plain tree with the dimension of blocks, and the next one, of their elements, merged."""
    after = dimension + 2

    def joined(node: Source) -> Source:
        sizes = (*node.sizes[:dimension], math.prod(node.sizes[dimension:after]), *node.sizes[after:])
        if not isinstance(node, PlanTensor):
            return replace(node, sizes=sizes)
        return replace(node, sizes=sizes, strides=(*node.strides[:dimension], *node.strides[dimension + 1 :]))

    return rewrite(source, joined)


# ---- the columns


def without_selection(source: Source) -> tuple[Source, PlanTensor | None]:
    """Return columns without lookups of matrices by number, and these numbers; None if there are no such lookups, or
    some columns are not selected by them."""
    lookups = [node for node in nodes(source) if isinstance(node, Lookup)]
    if not lookups or any(lookup.file != GATHER or lookup.inputs[1:] != lookups[0].inputs[1:] for lookup in lookups):
        return source, None
    _, (_, numbers) = lookups[0].inputs
    if not isinstance(numbers, PlanTensor):
        return source, None
    others = leaves(rewrite(source, lambda node: numbers if isinstance(node, Lookup) else node))
    if any(leaf.strides[numbers.rank - 2] for leaf in others if leaf != numbers):
        return source, None
    return rewrite(source, lambda node: node.children[0] if isinstance(node, Lookup) else node), numbers


def quantized_columns(source: Source, inner: int) -> QuantizedColumns | None:
    """Return columns that are dequantized in blocks, in a form that kernels read by words; None for other columns.

    Args:
        source: over (batch.., blocks, elements of a block, columns..).
        inner: its dimension of the elements.
    """
    plain = _without_e2m1(source)
    parts = _dequantized(source if plain is None else plain)
    if parts is None:
        return None
    values, scale, zero_point = parts
    bits, block = values.data_type.bits, values.sizes[inner]
    fixed = scale.strides[inner] == 0 and (not isinstance(zero_point, PlanTensor) or zero_point.strides[inner] == 0)
    bits_of_values = replace(values, view=View.RAW)
    lanes = next((unit // bits for unit in _UNIT_BITS if packs_tensor(bits_of_values, inner, unit // bits)), 0)
    if values.data_type not in _TYPES or not scale.data_type.is_float or not fixed or not lanes or block % lanes:
        return None
    zero, known = (zero_point, 0) if isinstance(zero_point, PlanTensor) else (None, zero_point)
    signed = values.data_type.is_signed
    return QuantizedColumns(
        pack_tensor(bits_of_values, inner, lanes), bits, signed, scale, zero, known, plain is not None
    )


def _without_e2m1(source: Source) -> Source | None:
    """Return columns whose integers are multiplied by scales, instead of twice the floats of 4 bits for which they
    stand: 4 n - clip(n, -4, 4) - 2 clip(n, -6, 6); None for other columns."""
    if not isinstance(source, Body):
        return None
    if source.file == CONVERT and source.data_type.is_float:
        plain = _without_e2m1(source.children[0])
        return None if plain is None else source.over([plain])
    if source.file != MULTIPLY:
        return None
    doubled, scale = source.children
    integers = doubled
    while isinstance(integers, Body) and integers.file != DEQUANTIZE and integers.children:
        integers = integers.children[0]
    return source.over([integers, scale]) if _form(doubled, integers) == _E2M1 else None


def _form(source: Source, leaf: Source) -> Hashable:
    """Return the files, numbers and inputs of a tree, down to a leaf."""
    if source == leaf:
        return "n"
    if not isinstance(source, Body):
        return None
    numbers = tuple(value for _, value in source.constants if isinstance(value, float))
    return (source.file.rpartition("/")[2], *numbers, *(_form(child, leaf) for child in source.children))


_E2M1 = (
    "element_wise_subtract",
    ("element_wise_subtract", ("scale_bias", 4.0, 0.0, "n"), ("element_wise_clip1", -4.0, 4.0, "n")),
    ("scale_bias", 2.0, 0.0, ("element_wise_clip1", -6.0, 6.0, "n")),
)


_UNIT_BITS = (WIDEST_UNIT_BITS, WIDEST_UNIT_BITS // 2, WORD_BITS)


def _dequantized(source: Source) -> tuple[PlanTensor, PlanTensor, PlanTensor | int] | None:
    """Return integers, their scale and their zero point, of a tree that dequantizes; None for other trees."""
    if not isinstance(source, Apply):
        return None
    operands = dict(source.inputs)
    if source.file == CONVERT and source.data_type.is_float:
        return _dequantized(operands["input"])
    if source.file == DEQUANTIZE:
        values, scale, zero = operands["input"], operands["scale"], _known(operands["zero_point"])
        return _all_present(values, scale, zero)
    if source.file == MULTIPLY:
        difference, scale = source.children
        integers, zero = _difference(difference)
        return _all_present(integers, scale, zero)
    return None


def _all_present(
    values: Source | None, scale: Source, zero: PlanTensor | int | None
) -> tuple[PlanTensor, PlanTensor, PlanTensor | int] | None:
    if not isinstance(values, PlanTensor) or not isinstance(scale, PlanTensor) or zero is None:
        return None
    return values, scale, zero


def _known(source: Source) -> PlanTensor | int | None:
    """Return a zero point, as a number if it is constant; None if it is computed."""
    if isinstance(source, PlanTensor):
        return source
    if isinstance(source, Body) and source.file == NO_ZERO_POINT:
        return 0
    return dict(source.constants)["number"] if isinstance(source, Body) and source.file == NUMBER else None


def _difference(source: Source) -> tuple[Source | None, PlanTensor | int | None]:
    """Return the integers that are converted, and the zero point that is subtracted from them."""
    if not isinstance(source, Apply):
        return None, None
    if source.file == SUBTRACT:
        integers, zero = source.children
        converted, none = _difference(integers)
        return converted, _known(zero) if none == 0 else None
    if source.file == CONVERT and source.data_type.is_float:
        (integers,) = source.children
        return _difference(integers) if isinstance(integers, Apply) else (integers, 0)
    operands = dict(source.inputs)
    if source.file == DEQUANTIZE and _known(operands["scale"]) == 1:
        return operands["input"], _known(operands["zero_point"])
    return None, None


def quantized_rows(source: Source, inner: int, most: int) -> QuantizedRows | None:
    """Return rows of 8-bit integers that are dequantized in blocks, without a zero point; None for other rows.

    Args:
        source: over (batch.., rows.., blocks, elements of a block).
        inner: its dimension of the elements.
        most: maximum elements of a unit.
    """
    if not isinstance(source, Apply) or source.file != DEQUANTIZE:
        return None
    operands = dict(source.inputs)
    values, scale = operands["input"], operands["scale"]
    if not isinstance(values, PlanTensor) or values.data_type is not DataType.INT8:
        return None
    bits = replace(values, view=View.RAW)
    units = (unit // 8 for unit in _UNIT_BITS if unit // 8 <= most)
    lanes = next((lanes for lanes in units if packs_tensor(bits, inner, lanes)), 0)
    fixed = is_plain(scale) and all(leaf.strides[inner] == 0 or leaf.sizes[inner] == 1 for leaf in leaves(scale))
    if _known(operands["zero_point"]) != 0 or not fixed or not lanes:
        return None
    return QuantizedRows(pack_tensor(bits, inner, lanes), scale)


# ---- kernels


def _kernel(
    problem: QuantizedProduct,
    kind: QuantizedSchedule,
    launch: Launch,
    reason: str,
    a: Source | QuantizedRows,
    *,
    unit: int,
    **tile: Any,
) -> ScheduledQuantizedProduct:
    """Return the kernel with its rows in units along the inner dimension, if they can be."""
    step, space, b, sums = problem.step, problem.step.product.space, problem.columns, problem.sums
    last = len(step.product.a.sizes) - 1
    if not isinstance(a, QuantizedRows) and unit > 1 and a.sizes[last] % unit == 0 and packs_source(a, last, unit):
        a = pack_source(a, last, unit)
    label, norm = f"quantized {kind}", NormalizedRows.of(step.product)
    return ScheduledQuantizedProduct(
        label, launch, step.output, space, a, b, step.epilogue, kind, sums=sums, **tile, norm=norm, reason=reason
    )


MAX_SUMS, MAX_COLUMNS = 8, 4
"""Maximum sums per invocation of a CPU adapter, and their columns, which share loads of rows. With four
columns instead of two, one row takes 0.87 to 1.04 of the CPU time on lavapipe, and 0.96 on SwiftShader."""

MIN_GROUPS = 8
"""Number of workgroups that keep a CPU adapter busy."""

PAIRS = 2
"""Elements of a row that a CPU adapter loads as one 64-bit integer: 0.89 to 0.91 of the CPU time on lavapipe."""


def by_columns(problem: QuantizedProduct) -> ScheduledSteps:
    """Return the kernel for CPU adapters: every lane of a subgroup has its own columns."""
    space, columns, target = problem.step.product.space, problem.columns, problem.target
    rows, sums = problem.rows, problem.sums
    block, count = space.inner[1], math.prod(space.columns)
    lanes = min(target.subgroup_lanes, LANES) if target.has("subgroup") else 1
    sharing = lanes if lanes > 1 and columns.words.lanes % lanes == 0 else 1
    in_pairs = target.moves_doubles and columns.words.lanes % (sharing * PAIRS) == 0
    unit = UNIT if sharing == 1 else PAIRS if in_pairs else 1
    across, each = LANES, max(1, MAX_COLUMNS // sums)
    while each > 1 and (rows * each * sums > MAX_SUMS or count < MIN_GROUPS * across * each):
        each //= 2
    tiles = -(-rows * sums // MAX_ROWS_ON_CPU)
    own = -(-rows // tiles)
    groups = tiles * -(-count // (across * each)) * math.prod(space.batch)
    reason = (
        f"{rows} rows by columns in blocks of {block} integers of {columns.bits} bits on a CPU adapter: "
        f"each invocation dequantizes {each * sums} columns in registers"
    )
    launch = Launch(across, 1, fold(groups, target), groups)
    tile = {"rows": own, "columns": each, "across": 1, "down": across}
    a = problem.step.product.a
    kernel = _kernel(problem, QuantizedSchedule.COLUMNS, launch, reason, a, unit=unit, sharing=sharing, **tile)
    return ScheduledSteps((kernel,))


def by_lanes(problem: QuantizedProduct) -> ScheduledSteps:
    """Return the kernel for GPUs: adjacent lanes read adjacent units of a column."""
    space, columns, target = problem.step.product.space, problem.columns, problem.target
    rows, sums, integers = problem.rows, problem.sums, problem.integers
    blocks, block = space.inner
    units, count = blocks * columns.words.sizes[len(space.batch) + 1], math.prod(space.columns)
    across = min(32, power_of_two(units))
    down = WORKGROUP // across
    each = max(1, 4 // (rows * sums))
    while each > 1 and -(-count // (down * each)) < BUSY:
        each //= 2
    if problem.rotation is not None:
        each = ADJACENT
    groups = -(-count // (down * each)) * math.prod(space.batch)
    sharing = min(target.subgroup_lanes, across) if target.has("subgroup") else 1
    reason = (
        f"{rows} rows by columns in blocks of {block} integers of {columns.bits} bits: {across} invocations share the "
        f"sums of {each * sums} columns, read in units of {columns.words.unit_bits // 8} bytes and "
        + ("dequantized in registers" if integers is None else "multiplied by integers, four at a time")
    )
    launch = Launch(WORKGROUP, 1, fold(groups, target), groups)
    tile = {"rows": rows, "columns": each, "across": across, "down": down, "sharing": sharing}
    a = integers or problem.step.product.a
    kernel = _kernel(problem, QuantizedSchedule.LANES, launch, reason, a, unit=UNIT, **tile)
    return ScheduledSteps((kernel if problem.rotation is None else _rotated(kernel, problem.rotation),))


MAX_ROTATED_ROWS = 4
"""Rows of which an invocation holds the sums of two adjacent columns and their partners. With eight, RADV spills."""


def rotates_ranges(problem: QuantizedProduct) -> Condition:
    """Return whether a product of few rows stores its ranges of columns in units."""
    assert problem.rotation is not None
    return at_most(problem.rows, MAX_ROTATED_ROWS, "rows") and only_if(
        all(map(_packs_range, problem.rotation.ranges)), "ranges of columns have no whole units"
    )


def _packs_range(columns: ColumnRange) -> bool:
    last, output = _last_dimension(columns)
    return packs_source(columns.tree, columns.columns[-1], ADJACENT) and (
        last is not None and packs_tensor(output, last, ADJACENT)
    )


def _last_dimension(columns: ColumnRange) -> tuple[int | None, PlanTensor]:
    """Return the dimension of the output along which adjacent columns lie, None if there is none, and the output."""
    step, last = columns.step, columns.columns[-1]
    return step.follows[last] if isinstance(step, Scatter) else last, step.output


def _rotated(kernel: ScheduledQuantizedProduct, rotation: RotatedContract) -> ScheduledQuantizedProduct:
    """Return the kernel of a product with the ranges that store its columns."""
    ranges, starts, end = [], [], 0
    for columns in rotation.ranges:
        step, (last, output) = columns.step, _last_dimension(columns)
        assert last is not None
        place = (step.file, step.inputs, step.constants) if isinstance(step, Scatter) else ()
        tree = rewrite(pack_source(columns.tree, columns.columns[-1], ADJACENT), _in_vector)
        assert isinstance(tree, Body)
        packed = pack_tensor(output, last, ADJACENT)
        ranges.append(ScheduledColumns("", kernel.launch, packed, tree, columns.rows, columns.columns, *place))
        starts.append(end)
        end += columns.count
    first, *_ = ranges
    stored = replace(kernel, apart=rotation.apart, ranges=tuple(ranges), starts=tuple(starts))
    return replace(stored, output=first.output, epilogue=first.epilogue)


def _in_vector(source: Source) -> Source:
    """Return a sum of a pair as one of adjacent ones, which are components of one vector."""
    names = dict(zip(PAIR, ("product.xy", "product.zw"), strict=True))
    return replace(source, name=names[source.name]) if isinstance(source, RegisterValue) else source


# ---- columns as floats


def find_dequantized(step: Map, target: Target) -> ScheduledDequantize | Condition:
    """Return the kernel that dequantizes words of one dimension into memory that is contiguous along another."""
    output, column = step.output, running_dimension(step.output)
    if output.data_type is not DataType.FLOAT32 or column is None or step.keeps_neighbors:
        return no("the output is not contiguous float32")
    for inner in range(output.rank):
        columns = quantized_columns(step.body, inner) if inner != column else None
        if columns is None or columns.is_e2m1 or output.sizes[inner] <= 1:
            continue
        if not packs_tensor(output, column, UNIT):
            return no("the output has no whole units of {} elements", UNIT)
        written, lanes = pack_tensor(output, column, UNIT), columns.words.lanes
        sizes = tuple(size // lanes if at == inner else size for at, size in enumerate(written.sizes))
        walk = choose_walk(replace(written, sizes=sizes))
        reason = f"integers of {columns.bits} bits: words of {UNIT} columns become {lanes} units of {UNIT} floats"
        launch = tile_launch(walk.count, target)
        return ScheduledDequantize(step.label, launch, written, columns, walk, inner, column, reason=reason)
    return no("it does not dequantize words along another dimension")
