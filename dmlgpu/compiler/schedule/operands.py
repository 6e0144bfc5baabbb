"""Operands of products in units: whether a form can read them, and how they lie in it."""

from __future__ import annotations

from dataclasses import replace

from dmlgpu.compiler.plan import Body, Product, Source, Space, Tensor
from dmlgpu.compiler.plan.windows import Windows
from dmlgpu.compiler.rewrites.packing import UNIT, pack_source, pack_tensor, packs_source, packs_tensor
from dmlgpu.compiler.schedule.patches import packed_patch
from dmlgpu.compiler.schedule.steps import Form, Operand
from dmlgpu.compiler.target import Target


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


MOST_TAPS = 8
"""Elements of a window along the last dimension up to which it is read at once: there must be registers for them."""


def with_window(source: Source, windows: Windows, space: Space, target: Target) -> Operand | None:
    """Return the columns of a product as what windows see, a row of the window at once; None where that does not fit.

    Args:
        source: {batch, groups, channels, spatial..}.
        windows: how they slide.
        space: of the product, whose columns are {batch, positions..}.
        target: the adapter.
    """
    *outer, last = windows
    if last.positions % UNIT or not 1 < last.size <= MOST_TAPS:
        return None
    source, window = packed_patch(source, last, UNIT, target)
    return Operand(source, Form.WINDOW, space.batch, space.columns, False, tuple(outer), window)


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
