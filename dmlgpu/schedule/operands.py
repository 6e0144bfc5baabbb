"""Operands of products in units: whether a form can read them, and how they lie in it."""

from __future__ import annotations

from dataclasses import replace

from dmlgpu.kernels.packing import UNIT, pack_source, pack_tensor, packs_source, packs_tensor
from dmlgpu.plan import Body, Product, Tensor
from dmlgpu.schedule.steps import Form, Operand


def _dimension(operand: Operand, form: Form) -> int:
    """Return the dimension along which a form takes units: the last own or the last inner one."""
    first, second = len(operand.batch) + len(operand.own) - 1, len(operand.source.sizes) - 1
    if operand.own_first:
        return first if form is Form.ACROSS else second
    return second if form is Form.ACROSS else len(operand.source.sizes) - len(operand.own) - 1


def packs(operand: Operand, form: Form) -> bool:
    """Return whether an operand can be read in a form."""
    dimension = _dimension(operand, form)
    return operand.source.sizes[dimension] % UNIT == 0 and packs_source(operand.source, dimension, UNIT)


def packs_along(product: Product) -> bool:
    """Return whether both operands can be read in units along the inner dimension."""
    space = product.space
    a = Operand(product.a, Form.SINGLE, space.batch, space.rows, own_first=True)
    b = Operand(product.b, Form.SINGLE, space.batch, space.columns, own_first=False)
    return packs(a, Form.ALONG) and packs(b, Form.ALONG)


def packed(operand: Operand, form: Form) -> Operand:
    """Return an operand in the units of a form."""
    if form is Form.SINGLE:
        return operand
    return replace(operand, source=pack_source(operand.source, _dimension(operand, form), UNIT), form=form)


def pack_output(epilogue: Body, output: Tensor) -> tuple[Body, Tensor]:
    """Return epilogue and output in units of four along the last dimension, if both can be."""
    last = output.rank - 1
    own = len(epilogue.sizes) - 1
    if not packs_tensor(output, last, UNIT) or not packs_source(epilogue, own, UNIT):
        return epilogue, output
    return pack_source(epilogue, own, UNIT), pack_tensor(output, last, UNIT)
