"""Products on CPU adapters with quantized columns that the initialization lays out in panels.

CPU adapters read storage buffers lane by lane, and check every index, so loads cost more than arithmetic. A lane
therefore has ``PANEL`` adjacent columns, which it reads in the widest units that a load moves. Units that the lanes of
a workgroup read at once are adjacent, so that the first lane is the first to touch every cache line: drivers for
AVX-512 load most other lanes by masked instructions, which do not train the prefetcher. Integers are dequantized in
registers for any number of rows, and never stored as floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS, packed_strides
from dmlgpu.compiler.plan import (
    Body,
    Contract,
    GatherColumns,
    Lookup,
    Map,
    PlanTensor,
    RegisterValue,
    Source,
    View,
    apply,
    constants,
)
from dmlgpu.compiler.rewrites.packing import UNIT, PackedTensor, in_pairs, pack_source, pack_tensor, packs_source
from dmlgpu.compiler.rewrites.sources import CONVERT, identity, leaves, nodes, rewrite
from dmlgpu.compiler.schedule.float_panels import lay_out_columns, shared_columns
from dmlgpu.compiler.schedule.gemm_choice import longest
from dmlgpu.compiler.schedule.launch import Launch, fold
from dmlgpu.compiler.schedule.operands import pack_output
from dmlgpu.compiler.schedule.quantized import LANES, QuantizedProduct
from dmlgpu.compiler.schedule.registry import CPU, Condition, at_most, only_if
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.products import ProductTile
from dmlgpu.compiler.schedule.steps.quantized import QuantizedColumns, QuantizedPanels, ScheduledPanels
from dmlgpu.compiler.target import Target

PANEL = 8
"""Number of columns of an invocation."""

WIDE = PANEL * LANES
"""Columns of a panel, if they fill such panels: those of a workgroup, which reads memory in one stream then."""

GATHER_PANELS = "indexing/gather_panels"

_WIDENED = {DataType.UINT4: DataType.UINT8, DataType.INT4: DataType.INT8}
"""Types of zero points that have whole bytes in panels."""

MAX_ROWS, MAX_PRODUCTS = 12, 768
"""Rows per invocation, and multiplications per loop iteration: with more, the loop outgrows the instruction cache of
the CPU, and takes seconds to compile."""

DEQUANTIZED_ROWS = 5
"""Rows from which on it is less work to scale the columns than to scale the sums of each turn of the loop."""

ROWS_ALONE, PRODUCTS_ALONE = 8, 512
"""Rows and multiplications if invocations read all rows themselves, because there are no subgroups."""


def fits_panels(problem: QuantizedProduct) -> Condition:
    """Return whether the initialization may lay out columns in panels, which must be whole, and rows have units."""
    product, last = problem.step.product, len(problem.step.product.a.sizes) - 1
    columns, steps = product.space.columns, math.prod(product.space.inner) // problem.columns.in_word
    return (
        only_if(product.integers_owned, "its columns are not known at initialization")
        and only_if(len(columns) == 1 and columns[0] % PANEL == 0, "its columns do not fill panels of {}", PANEL)
        and only_if(packs_source(product.a, last, UNIT), "its rows have no units of {}", UNIT)
        and at_most(steps, longest(problem.target), "words of a column")
    )


def panel_steps(problem: QuantizedProduct) -> ScheduledSteps:
    """Return the kernel of a product with its columns in panels, and their layout by the initialization."""
    step, columns, sums, target = problem.step, problem.columns, problem.sums, problem.target
    space, last = step.product.space, len(step.product.a.sizes) - 1
    rows, block = problem.rows, space.inner[1]
    sharing = min(target.subgroup_lanes, LANES) if target.has("subgroup") else 1
    most_rows, most_products = (MAX_ROWS, MAX_PRODUCTS) if sharing > 1 else (ROWS_ALONE, PRODUCTS_ALONE)
    own = -(-rows // -(-rows * sums // most_rows))
    words = block // columns.in_word
    while words % 2 == 0 and own * PANEL * sums * words * columns.in_word > most_products:
        words //= 2
    after = ScheduledSteps()
    if target.policies.varying and own > 1 and (parts := _without_operands(step)) is not None:
        step, rest = parts
        after = schedule_step(rest, target).because("products of all epilogues share a kernel, which compiles slowly")
    panels, laid_out = _laid_out(columns, len(space.batch), _width(space.columns[0]), target)
    tile = ProductTile(own, PANEL * sums // UNIT, LANES)
    groups = -(-rows // own) * -(-space.columns[0] // (PANEL * LANES)) * math.prod(space.batch)
    epilogue, output = (step.epilogue, step.output) if sums > 1 else pack_output(step.epilogue, step.output)
    kernel = ScheduledPanels(
        "quantized panels",
        Launch(LANES, 1, fold(groups, target), groups),
        in_pairs(output) if target.moves_pairs else output,
        space,
        pack_source(step.product.a, last, UNIT),
        panels,
        epilogue,
        tile,
        words,
        sums,
        sharing,
        own >= DEQUANTIZED_ROWS,
        reason=f"{rows} rows by columns in blocks of {block} integers of {columns.bits} bits on a CPU adapter: each "
        f"invocation dequantizes {PANEL * sums} adjacent columns in registers",
    )
    return laid_out.as_initialization + ScheduledSteps((kernel,)) + after


def _without_operands(step: Contract) -> tuple[Contract, Map] | None:
    """Return a product whose epilogue reads no tensors, and a map of the rest of its epilogue; None if it reads none,
    or nothing of it can be computed without them."""
    alone: Source = step.epilogue
    path: list[Body] = []
    while isinstance(alone, Body) and any(leaves(alone)):
        path.append(alone)
        inner = [child for child in alone.children if any(isinstance(node, RegisterValue) for node in nodes(child))]
        if len(inner) != 1:
            return None
        (alone,) = inner
    if not path or not isinstance(alone, Body):
        return None
    products = PlanTensor.temporary("products", alone.data_type, step.output.sizes)
    rest: Source = products
    before: Source = alone
    for body in reversed(path):
        rest, before = body.over([rest if child is before else child for child in body.children]), body
    assert isinstance(rest, Body)
    return replace(step, epilogue=alone, output=products), Map("epilogue", rest, step.output)


def panel_matrices(step: Contract, target: Target) -> Sequence[PlanTensor]:
    """Return the matrices, over (.., columns), that the initialization only moves to panels for a product without
    batches."""
    if target.profile not in CPU:
        return ()
    if (columns := shared_columns(step.product, target)) is not None:
        return (columns,)
    problem = QuantizedProduct.of(step, 1, target)
    if problem is None or step.product.space.batch or not fits_panels(problem):
        return ()
    matrices = _matrices(problem.columns, 0)
    return tuple(matrix for matrix in matrices if matrix is not None and matrix.view is View.RAW)


@schedule_step.register
def _gather_columns(step: GatherColumns, target: Target) -> ScheduledSteps:
    """Read columns from panels, which equal those of a product: models have equal ones in memory once."""
    steps = ScheduledSteps()
    panels = {}
    for matrix in step.matrices:
        if step.are_quantized:
            room, laid_out = _in_panels("columns", matrix, 0, _width(matrix.sizes[-1]), target)
            count, *inner, pieces, lanes, unit = room.sizes
            elements = math.prod(inner)
        else:
            room, laid_out = lay_out_columns(matrix, target)
            (count, elements, unit), pieces, lanes = room.sizes, 1, 1
        steps += laid_out.as_initialization
        width = pieces * lanes * unit
        panels[matrix.binding] = replace(
            room,
            sizes=(count, lanes, pieces, unit, elements),
            strides=(elements * width, unit, lanes * unit, 1, width),
        )

    def in_panels(node: Source) -> Source:
        if not isinstance(node, Lookup) or not isinstance(data := node.children[0], PlanTensor):
            return node
        if data.binding not in panels:
            return node
        columns = replace(panels[data.binding], view=data.view)
        values = constants(lead=dict(node.constants)["lead"])
        follows = ((*(None,) * (node.rank - 1), columns.rank - 1), node.follows[1])
        inputs = (("input", columns), node.inputs[1])
        return replace(node, file=GATHER_PANELS, inputs=inputs, constants=values, follows=follows)

    body = rewrite(step.body, in_panels)
    assert isinstance(body, Body)
    return steps + schedule_step(Map(step.label, body, step.output, step.keeps_neighbors), target)


def _matrices(columns: QuantizedColumns, lead: int) -> tuple[PlanTensor, PlanTensor, PlanTensor | None]:
    """Return the words, scales and zero points of columns, over (batch.., blocks, words of a block, columns..): scales
    and zero points without the dimension of words."""
    integers = columns.in_words(lead + 1)
    words = PlanTensor(
        integers.binding, DataType.UINT32, integers.sizes, integers.strides, View.RAW, offset=integers.offset
    )

    def of_blocks(tensor: PlanTensor) -> PlanTensor:
        place = lead + 1
        sizes, strides = ((*part[:place], *part[place + 1 :]) for part in (tensor.sizes, tensor.strides))
        view = View.COMPUTE if tensor.data_type in _WIDENED else View.RAW
        return replace(tensor, sizes=sizes, strides=strides, view=view)

    zero = columns.zero_point
    return words, of_blocks(columns.scale), None if zero is None else of_blocks(zero)


def _width(columns: int) -> int:
    """Return the columns of a panel."""
    return WIDE if columns % WIDE == 0 else PANEL


def _in_panels(
    label: str, matrix: PlanTensor, lead: int, width: int, target: Target
) -> tuple[PlanTensor, ScheduledSteps]:
    """Return a matrix over (batch.., panels, .., units of a lane, lanes, columns of a unit), and the step that lays it
    out.

    Args:
        label: Name of the matrix.
        matrix: The matrix over (batch.., .., columns).
        lead: Number of batch dimensions.
        width: Columns of a panel.
        target: Target of the step.
    """
    order = (*range(lead), matrix.rank - 1, *range(lead, matrix.rank - 1))
    sizes = tuple(matrix.sizes[place] for place in order)
    strides = tuple(matrix.strides[place] for place in order)
    distinct = tuple(size if stride else 1 for size, stride in zip(sizes[:lead], strides[:lead], strict=True))
    unit = UNIT // 2 if matrix.data_type.bits == WORD_BITS and target.moves_doubles else UNIT
    column = strides[lead]
    split = (*distinct, sizes[lead] // width, *sizes[lead + 1 :], PANEL // unit, width // PANEL, unit)
    across = (*strides[:lead], column * width, *strides[lead + 1 :], column * unit, column * PANEL, column)
    data_type = _WIDENED.get(matrix.data_type, matrix.data_type)
    room = PlanTensor.persistent(f"{label} in panels", data_type, split)
    read: Source = replace(matrix, sizes=split, strides=across)
    stays = matrix.data_type is data_type
    body = identity(read) if stays else apply(CONVERT, data_type, split, portable=True, input=read)
    steps = schedule_step(Map(f"lay out {label}", body, room, is_once=True), target)
    packed = packed_strides(split)
    repeated = tuple(stride if size > 1 else 0 for size, stride in zip(distinct, packed, strict=False))
    return replace(room, sizes=(*sizes[:lead], *split[lead:]), strides=(*repeated, *packed[lead:])), steps


def _laid_out(
    columns: QuantizedColumns, lead: int, width: int, target: Target
) -> tuple[QuantizedPanels, ScheduledSteps]:
    """Return columns in panels, and the steps that repack them.

    Args:
        columns: The columns.
        lead: Number of their batch dimensions.
        target: Target of the steps.
    """
    steps = ScheduledSteps()

    def panels(label: str, matrix: PlanTensor) -> PackedTensor:
        nonlocal steps
        room, own = _in_panels(label, matrix, lead, width, target)
        steps += own
        return pack_tensor(room, room.rank - 1, room.sizes[-1])

    words, scale, zero = _matrices(columns, lead)
    result = QuantizedPanels(
        panels("words", words),
        columns.bits,
        panels("scales", scale),
        None if zero is None else panels("zero points", zero),
        *_signs(columns),
    )
    return result, steps


def _signs(columns: QuantizedColumns) -> tuple[int, int]:
    """Return the bits of a word to invert, and the center of integers afterwards, less a zero point in memory.

    Integers of 4 bits are read unsigned: a mask extracts them unchanged. Those of 8 bits are read signed:
    else the sums of an iteration would be several times as large as the result.
    """
    flip = sum(1 << (columns.bits * place + columns.bits - 1) for place in range(columns.in_word))
    half = 1 << (columns.bits - 1)
    known = 0 if columns.zero_point is not None else columns.known
    if columns.bits < DataType.INT8.bits:
        return (flip, known + half) if columns.signed else (0, known)
    return (0, known) if columns.signed else (flip, known - half)
