"""Pow: exact for integers of every width."""

from __future__ import annotations

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.onnx.constants import same
from dmlgpu.frontends.onnx.node import Node
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs.expression import Expression

_MOST = 63
"""Greatest exponent of 64-bit integers: larger powers of all but -1, 0 and 1 overflow, of which the parity decides."""


@operator("Pow")
def power(node: Node) -> Value:
    """Raise to a power of whatever type; the result is of the base's, truncated where that is of integers."""
    exponent = node.value(1)
    known = exponent.array
    if known is not None and known.size == 1 and node.data_type(0).is_float:
        shape = np.broadcast_shapes(node.shape(0), exponent.shape)
        return node.valued(dml.pow(_spread(node, shape), float(known.reshape(-1)[0])), shape)
    (a, b), shape = node.broadcast(node.value(0), exponent)
    if a.data_type.is_float:
        return node.valued(dml.pow(a, _narrow(b)), shape)
    if not b.data_type.is_float:
        return node.valued(_of_integers(a, b, known), shape)
    if known is not None and bool((known == np.trunc(known)).all() and (np.abs(known) < 1 << 24).all()):
        return node.valued(_of_integers(a, dml.cast(b, DataType.INT32), known), shape)
    whole = dml.cast(b, DataType.INT32)
    rounded = dml.cast(dml.pow(dml.cast(a, DataType.FLOAT32), dml.cast(b, DataType.FLOAT32)), a.data_type)
    is_whole = dml.equals(dml.cast(whole, b.data_type), b)
    return node.valued(dml.if_(is_whole, _of_integers(a, whole, None), rounded), shape)


def _spread(node: Node, shape: tuple[int, ...]) -> Expression:
    """Return the base with the sizes of the result."""
    return node.tensor(0).broadcast_to(shape or (1,)) if node.shape(0) != shape else node.tensor(0)


def _narrow(exponent: Expression) -> Expression:
    """Return an exponent of a type that POW takes; integers of 64 bits saturate."""
    if exponent.data_type.bits < 64:
        return exponent
    low = 0 if exponent.data_type is DataType.UINT64 else -(1 << 31)
    return dml.cast(dml.clip(exponent, low, (1 << 31) - 1), DataType.INT32)


def _of_integers(base: Expression, exponent: Expression, known: np.ndarray | None) -> Expression:
    """Return powers that wrap as products do; POW has them up to 32 bits."""
    exponent = _narrow(exponent)
    if base.data_type.bits < 64:
        return dml.pow(base, exponent)
    exponent = dml.cast(exponent, DataType.INT32)
    one = same(base, 1)
    odd = dml.cast(exponent & 1, base.data_type)
    most = int(min(known.max(), _MOST)) if known is not None and known.min() >= 0 else _MOST
    found, square = None, base
    for bit in range(max(most.bit_length(), 1)):
        is_set = dml.equals(exponent & (1 << bit), same(exponent, 1 << bit))
        factor = dml.if_(is_set, square, one)
        found = factor if found is None else dml.multiply(found, factor)
        square = dml.multiply(square, square) if 2 << bit <= most else square
    assert found is not None
    if known is not None and known.min() >= 0:
        return found
    is_unit = dml.equals(dml.multiply(base, base), one)  # of 1 and -1 the reciprocal is whole
    sign = dml.if_(dml.equals(odd, one), base, one)
    below = dml.if_(is_unit, sign, same(base, 0))
    return dml.if_(dml.less_than(exponent, same(exponent, 0)), below, found)
