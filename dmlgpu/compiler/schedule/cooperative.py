"""Products of float16 by cooperative matrices, on adapters with the feature ``cooperative-matrix``.

An adapter has the feature if its matrix units compute the same as the ordinary product (``runtime.wgpu.cooperative``).
Sums are of float32, of products that float32 holds exactly. Other products keep the schedules of ``gemm_choice``.
"""

from __future__ import annotations

import math

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Contract, PlanTensor
from dmlgpu.compiler.schedule.gemm_choice import ProductChoice, Shape
from dmlgpu.compiler.schedule.launch import Launch, fold
from dmlgpu.compiler.schedule.operands import ProductOperands, pack_output
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.cooperative import INVOCATIONS, SIDE, TILE, ScheduledCooperative
from dmlgpu.compiler.schedule.steps.products import Operand, OperandLayout, ProductSchedule, ProductTile
from dmlgpu.compiler.target import COOPERATIVE, Profile, Target

DEPTHS = (2 * SIDE, SIDE)
"""Numbers of steps that may be in workgroup memory, best first."""

_CHOICE = ProductChoice(ProductSchedule.SHARED, ProductTile(TILE // SIDE, 2, SIDE, SIDE, SIDE))
_FLOAT16_BYTES, _FLOAT32_BYTES = 2, 4


def cooperative_steps(step: Contract, target: Target) -> ScheduledSteps | None:
    """Return the kernels of a product on matrix units, after those that repack its operands; None if the adapter has
    none, or the product is not of whole tiles of float16."""
    product, space = step.product, step.product.space
    if not _has_matrix_units(target) or product.accumulator is not DataType.FLOAT32:
        return None  # before any guards on symbolic sizes
    shape, depth = Shape.of(space), _depth(math.prod(space.inner), target)
    is_whole = shape.rows % TILE == 0 and shape.columns % TILE == 0 and len(space.inner) == 1
    if depth is None or not is_whole:
        return None
    operands = ProductOperands(product, _CHOICE, target)
    a, b = operands.a(), operands.b()
    if not (_is_float16(a) and _is_float16(b)):
        return None
    epilogue, output = pack_output(step.epilogue, step.output)
    total = shape.batch * (shape.rows // TILE) * (shape.columns // TILE)
    launch = Launch(INVOCATIONS, 1, fold(total, target), total)
    reason = f"the adapter multiplies matrices of float16: tiles of {TILE} x {TILE} by four subgroups"
    kernel = ScheduledCooperative("cooperative", launch, output, space, a, b, epilogue, depth, reason=reason)
    return operands.before + operands.initialization.as_initialization + ScheduledSteps((kernel,))


def _has_matrix_units(target: Target) -> bool:
    is_free = not target.keeps_digits and not target.overrides.schedule and target.profile is not Profile.CPU
    return is_free and target.has(COOPERATIVE) and target.max_workgroup_invocations >= INVOCATIONS


def _depth(inner: int, target: Target) -> int | None:
    """Return the steps of a slab; None if none divides the inner size, or workgroup memory is too small."""
    sums = INVOCATIONS * 4 * _FLOAT32_BYTES
    fitting = (depth for depth in DEPTHS if 2 * TILE * depth * _FLOAT16_BYTES + sums <= target.max_workgroup_storage)
    return next((depth for depth in fitting if inner % depth == 0), None)


def _is_float16(operand: Operand) -> bool:
    is_unit = operand.layout in (OperandLayout.ACROSS, OperandLayout.ALONG)
    return is_unit and isinstance(operand.source, PlanTensor) and operand.source.data_type is DataType.FLOAT16
