"""Products of float16 by cooperative matrices, on adapters with the feature ``cooperative-matrix``.

An adapter has the feature if its matrix units compute the same as the ordinary product (``runtime.wgpu.cooperative``).
Sums are of float32, of products that float32 holds exactly. Other products keep the schedules of ``gemm_choice``.
"""

from __future__ import annotations

import math

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Contract, PlanTensor
from dmlgpu.compiler.rewrites.packing import UNIT
from dmlgpu.compiler.schedule.gemm_choice import ProductChoice, Shape
from dmlgpu.compiler.schedule.launch import Launch, fold
from dmlgpu.compiler.schedule.operands import ProductOperands, pack_output
from dmlgpu.compiler.schedule.registry import Condition, at_least, no, only_if
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.cooperative import INVOCATIONS, SIDE, TILE, ScheduledCooperative
from dmlgpu.compiler.schedule.steps.products import Operand, OperandLayout, ProductSchedule, ProductTile
from dmlgpu.compiler.target import COOPERATIVE, Target

DEPTHS = (2 * SIDE, SIDE)
"""Numbers of steps that may be in workgroup memory, best first."""

_CHOICE = ProductChoice(ProductSchedule.SHARED, ProductTile(TILE // SIDE, 2, SIDE, SIDE, SIDE))
_FLOAT16_BYTES, _FLOAT32_BYTES = 2, 4


def fits_matrix_units(step: Contract, target: Target) -> Condition:
    """Return whether an adapter has matrix units, and a product is of whole tiles of them."""
    product, inner = step.product, step.product.space.inner
    units = only_if(target.has(COOPERATIVE), "the adapter has no feature {}", COOPERATIVE)
    room = at_least(target.max_workgroup_invocations, INVOCATIONS, "invocations of a workgroup")
    is_float = only_if(product.accumulator is DataType.FLOAT32, "its sums are not float32")
    may = (
        units
        and room
        and is_float
        and only_if(not target.keeps_digits, "float16 loses digits, which the device forbids")
    )
    if not may:
        return may  # before any guards on symbolic sizes
    shape = Shape.of(product.space)
    whole = shape.rows % TILE == 0 and shape.columns % TILE == 0 and len(inner) == 1
    return only_if(whole and _depth(math.prod(inner), target), "its sizes are not whole tiles of {} x {}", TILE, TILE)


def cooperative_steps(step: Contract, target: Target) -> ScheduledSteps | Condition:
    """Return the kernels of a product on matrix units, after those that repack its operands."""
    space, shape = step.product.space, Shape.of(step.product.space)
    operands, depth = ProductOperands(step.product, _CHOICE, target), _depth(math.prod(space.inner), target)
    a, b = operands.a(), operands.b()
    if not (_is_float16(a) and _is_float16(b)) or depth is None:
        return no("its operands are not float16 in units of {}", UNIT)
    epilogue, output = pack_output(step.epilogue, step.output)
    total = shape.batch * (shape.rows // TILE) * (shape.columns // TILE)
    launch = Launch(INVOCATIONS, 1, fold(total, target), total)
    reason = f"the adapter multiplies matrices of float16: tiles of {TILE} x {TILE} by four subgroups"
    kernel = ScheduledCooperative("cooperative", launch, output, space, a, b, epilogue, depth, reason=reason)
    return operands.before + operands.initialization.as_initialization + ScheduledSteps((kernel,))


def _depth(inner: int, target: Target) -> int | None:
    """Return the steps of a slab; None if none divides the inner size, or workgroup memory is too small."""
    sums = INVOCATIONS * 4 * _FLOAT32_BYTES
    fitting = (depth for depth in DEPTHS if 2 * TILE * depth * _FLOAT16_BYTES + sums <= target.max_workgroup_storage)
    return next((depth for depth in fitting if inner % depth == 0), None)


def _is_float16(operand: Operand) -> bool:
    is_unit = operand.layout in (OperandLayout.ACROSS, OperandLayout.ALONG)
    return is_unit and isinstance(operand.source, PlanTensor) and operand.source.data_type is DataType.FLOAT16
