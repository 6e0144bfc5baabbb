"""Products of few rows on CPU adapters with float columns that the initialization lays out in panels.

Such a product waits for its columns. Rows of a matrix are far apart in memory, so that a workgroup that reads a few
columns of each touches a page per step. In panels, a workgroup reads one stream instead, and its units are a
workgroup's width apart: the first lane touches every cache line first. (lavapipe reads lane by lane, and
hardware prefetchers do not see the masked loads of later lanes.)
"""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.plan import Contract, Map, PlanTensor, Product, Source, View
from dmlgpu.compiler.rewrites.packing import UNIT, pack_source, pack_tensor, packs_source, packs_tensor
from dmlgpu.compiler.rewrites.sources import as_type
from dmlgpu.compiler.schedule.gemm_choice import CHUNK, FEW_ROWS, longest, power_of_two
from dmlgpu.compiler.schedule.launch import LOCKSTEP, Launch, fold
from dmlgpu.compiler.schedule.registry import Condition, at_least, at_most, only_if
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.products import ProductTile, ScheduledFloatPanels
from dmlgpu.compiler.target import Target

WIDTH = 8 * LOCKSTEP
"""Columns of a panel: those of a workgroup."""

MAX_ROWS = 8
"""Rows of an invocation."""

MIN_PADDED = 8 * WIDTH
"""Minimum columns that may leave the last panel partly empty."""

MIN_ELEMENTS = 1 << 16
"""Minimum elements of columns: fewer stay in a cache, and other schedules have kernels for them that products of other
sizes share."""

MAX_TURNS = 4 * CHUNK
"""Maximum sums of four products that are added sequentially."""


def fits_float_panels(product: Product, target: Target) -> Condition:
    """Return whether the initialization may lay out the columns in panels, which must be matrices of floats."""
    space, b, last = product.space, product.b, len(product.a.sizes) - 1
    is_float = isinstance(b, PlanTensor) and b.data_type in (DataType.FLOAT32, DataType.FLOAT16)
    return (
        only_if(product.b_owned and not product.b_stays, "its columns are not known at initialization")
        and only_if(is_float and product.accumulator is DataType.FLOAT32, "its columns are no floats in memory")
        and only_if(len(space.columns) == len(space.inner) == 1, "its columns are no matrix")
        and at_least(space.inner[0] * space.columns[0], MIN_ELEMENTS, "elements of columns")
        and only_if(_is_shared(product), "its products have columns of their own")
        and only_if(packs_source(product.a, last, UNIT), "its rows have no units of {}", UNIT)
        and only_if(_fills_panels(b), "its columns do not fill panels of {}", WIDTH)
        and at_most(space.inner[0] // UNIT, min(MAX_TURNS, longest(target)), "units of a column")
    )


def _fills_panels(b: Source) -> bool:
    """Return whether columns fill panels, or many columns all but the last one; not those of a table of embeddings,
    whose rows a gather might read: it reads whole panels, else they would be in memory twice."""
    assert isinstance(b, PlanTensor)
    return b.sizes[-1] % WIDTH == 0 or (b.sizes[-1] >= MIN_PADDED and b.strides[-1] == 1)


def _is_shared(product: Product) -> bool:
    """Return whether all products of a batch have the same columns."""
    b = product.b
    assert isinstance(b, PlanTensor)
    return all(size == 1 or stride == 0 for size, stride in zip(product.space.batch, b.strides, strict=False))


def shared_columns(product: Product, target: Target) -> PlanTensor | None:
    """Return the columns of a product as a matrix, if all that reads them can read whole panels; else None."""
    b = product.b
    if not fits_float_panels(product, target) or product.space.columns[0] % WIDTH:
        return None
    assert isinstance(b, PlanTensor)
    return replace(b, sizes=b.sizes[-2:], strides=b.strides[-2:], view=View.RAW)


def columns_in_panels(product: Product, target: Target) -> tuple[PlanTensor, ScheduledSteps] | None:
    """Return the columns of a product of many rows over its dimensions, the last of which is split, in the panels of
    products of few rows, so that models have them in memory once; None if it does not have such columns."""
    columns = shared_columns(product, target) if target.runs_in_lockstep else None
    if columns is None or columns.data_type is not DataType.FLOAT32:
        return None
    panels, laid_out = lay_out_columns(columns, target)
    batch, (count, inner, width), (apart, down, _) = product.space.batch, panels.sizes, panels.strides
    sizes, strides = (*batch, inner, count, width), (*(0 for _ in batch), down, apart, 1)
    return replace(panels, sizes=sizes, strides=strides), laid_out.as_initialization


def has_few_float_rows(step: Contract) -> Condition:
    """Return whether a product waits for its columns."""
    space = step.product.space
    return at_most(math.prod(space.batch) * math.prod(space.rows), FEW_ROWS, "rows")


def float_panel_steps(step: Contract, target: Target) -> ScheduledSteps:
    """Return the kernel of a product with its columns in panels, and their layout by the initialization."""
    product, space = step.product, step.product.space
    last = len(space.batch) + len(space.rows)
    rows = math.prod(space.batch) * math.prod(space.rows)
    own = power_of_two(-(-rows // -(-rows // MAX_ROWS)))
    panels, laid_out = lay_out_columns(product.b, target)
    lanes = 2 if panels.data_type is DataType.FLOAT32 and target.moves_doubles else UNIT
    epilogue, output = step.epilogue, step.output
    column = output.rank - 1
    if packs_tensor(output, column, lanes) and packs_source(epilogue, column, lanes):
        epilogue, output = pack_source(epilogue, column, lanes), pack_tensor(output, column, lanes)
    groups = -(-rows // own) * panels.sizes[0]
    kernel = ScheduledFloatPanels(
        "panels",
        Launch(LOCKSTEP, 1, fold(groups, target), groups),
        output,
        space,
        pack_source(product.a, last, UNIT),
        pack_tensor(panels, panels.rank - 1, lanes),
        epilogue,
        ProductTile(own, WIDTH // LOCKSTEP // UNIT, LOCKSTEP),
        reason=f"{rows} rows wait for their columns, which a workgroup reads as one stream",
    )
    return laid_out.as_initialization + ScheduledSteps((kernel,))


def lay_out_columns(b: Source, target: Target) -> tuple[PlanTensor, ScheduledSteps]:
    """Return columns over (panels, steps, columns of a panel), and the steps that lay them out. The rest of the last
    panel is undefined, and only affects outputs that are not stored."""
    assert isinstance(b, PlanTensor)
    (inner, columns), (down, across) = b.sizes[-2:], b.strides[-2:]
    sizes = (-(-columns // WIDTH), inner, WIDTH)
    panels = PlanTensor.persistent("columns in panels", b.data_type, sizes)
    steps = ScheduledSteps()
    whole, rest = columns // WIDTH, columns % WIDTH
    for first, count, width in ((0, whole, WIDTH), (whole, 1 if rest else 0, rest)):
        if count:
            part = (count, inner, width)
            read = replace(
                b, sizes=part, strides=(across * WIDTH, down, across), offset=b.offset + first * WIDTH * across
            )
            written = replace(panels, sizes=part, strides=packed_strides(sizes), offset=first * inner * WIDTH)
            steps += schedule_step(Map("lay out b", as_type(read, b.data_type), written, is_once=True), target)
    return replace(panels, view=View.COMPUTE), steps
