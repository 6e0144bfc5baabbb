"""Products of float16 by cooperative matrices, on adapters with matrix units (``Target.matrices``).

An adapter has them if they compute the same as the ordinary product, and faster (``runtime.wgpu.cooperative``).
Sums are of float32, of products that float32 holds exactly. Other products keep the schedules of ``gemm_choice``.
"""

from __future__ import annotations

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Contract
from dmlgpu.compiler.rewrites.sources import is_plain
from dmlgpu.compiler.schedule.gemm_choice import ProductChoice, Shape
from dmlgpu.compiler.schedule.launch import Launch, fold
from dmlgpu.compiler.schedule.operands import ProductOperands, pack_output
from dmlgpu.compiler.schedule.registry import Condition, at_least, no, only_if
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.cooperative import PADDING, SUBGROUPS, ScheduledCooperative, Slab, tile_of
from dmlgpu.compiler.schedule.steps.products import ProductSchedule, ProductTile
from dmlgpu.compiler.sizes import is_symbolic
from dmlgpu.compiler.target import Matrices, Target

DEPTHS = (32, 16)
"""Numbers of steps that may be in workgroup memory, best first: multiples of the steps of all matrices."""

_CHOICE = ProductChoice(ProductSchedule.SHARED, ProductTile(8, 2, 16, 16, 16))
_FLOAT16_BYTES, _FLOAT32_BYTES = 2, 4


def fits_matrix_units(step: Contract, target: Target) -> Condition:
    """Return whether an adapter has matrix units, and a product is of float16."""
    product, matrices = step.product, target.matrices
    if matrices is None:
        return no("the adapter has no usable matrix units")
    room = at_least(target.max_workgroup_invocations, SUBGROUPS * matrices.lanes, "invocations of a workgroup")
    is_float = only_if(product.accumulator is DataType.FLOAT32, "its sums are not float32")
    are_halves = only_if(
        all(is_plain(source) and source.data_type is DataType.FLOAT16 for source in (product.a, product.b)),
        "its operands are not float16",
    )
    may = (
        room
        and is_float
        and only_if(not target.keeps_digits, "float16 loses digits, which the device forbids")
        and only_if(_memory(matrices, DEPTHS[-1]) <= target.max_workgroup_storage, "workgroup memory is too small")
        and are_halves
    )
    return may and only_if(len(product.space.inner) == 1, "its sums are over several dimensions")


def fills_matrices(step: Contract, target: Target) -> Condition:
    """Return whether a product has rows and columns for half a tile or more, and steps for a slab."""
    assert target.matrices is not None
    shape = Shape.of(step.product.space)
    rows, columns = (size // 2 for size in tile_of(target.matrices))
    return (
        at_least(shape.rows, rows, "rows")
        and at_least(shape.columns, columns, "columns")
        and at_least(shape.inner, DEPTHS[-1], "products per sum")
    )


def cooperative_steps(step: Contract, target: Target) -> ScheduledSteps | Condition:
    """Return the kernel of a product on matrix units."""
    assert target.matrices is not None
    matrices, space, shape = target.matrices, step.product.space, Shape.of(step.product.space)
    rows, columns = tile_of(matrices)
    operands = ProductOperands(step.product, _CHOICE, target)
    a, b = operands.a(), operands.b()
    depth = _depth(shape.inner, matrices, target)
    epilogue, output = pack_output(step.epilogue, step.output)
    total = shape.batch * -(-shape.rows // rows) * -(-shape.columns // columns)
    launch = Launch(SUBGROUPS * matrices.lanes, 1, fold(total, target), total)
    size = f"{matrices.rows} x {matrices.columns} x {matrices.steps}"
    kernel = ScheduledCooperative(
        "cooperative",
        launch,
        output,
        space,
        a,
        b,
        epilogue,
        (Slab.of(a, rows, depth, turns=matrices.turns), Slab.of(b, columns, depth, turns=matrices.turns)),
        matrices,
        (_is_partial(shape.rows, rows), _is_partial(shape.columns, columns), _is_partial(shape.inner, depth)),
        reason=f"the adapter multiplies matrices of float16, {size}: tiles of {rows} x {columns} by four subgroups",
    )
    return operands.before + operands.initialization.as_initialization + ScheduledSteps((kernel,))


def _depth(inner: int, matrices: Matrices, target: Target) -> int:
    """Return the steps of a slab: the most that fit workgroup memory and divide the inner size, or that fit."""
    fitting = [depth for depth in DEPTHS if _memory(matrices, depth) <= target.max_workgroup_storage]
    return next((depth for depth in fitting if not _is_partial(inner, depth)), fitting[0])


def _memory(matrices: Matrices, depth: int) -> int:
    """Return the most bytes of workgroup memory that slabs of some steps and the sums take."""
    slabs = sum(max(own * (depth + PADDING), depth * (own + PADDING)) for own in tile_of(matrices))
    return slabs * _FLOAT16_BYTES + SUBGROUPS * matrices.rows * matrices.columns * _FLOAT32_BYTES


def _is_partial(size: int, whole: int) -> bool:
    """Return whether a size may not be a multiple of another: kernels for sizes that vary check indices."""
    return is_symbolic(size) or size % whole != 0
