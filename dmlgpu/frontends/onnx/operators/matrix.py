"""Products of matrices: MatMul and Gemm."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dmlgpu.catalog.enums import MatrixTransform, ReduceFunction
from dmlgpu.frontends.onnx.node import Node, broadcast_to, reshaped, transposed
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Shape, Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression


@operator("MatMul")
def matmul(node: Node) -> Value:
    """Multiply matrices or stacks of them; one by a matrix that the adapter cannot bind at once, piece by piece."""
    pieces = node.pieces(1, len(node.shape(1)) - 1) if len(node.shape(1)) == 2 else [node.tensor(1)]
    if len(pieces) == 1:
        found, shape = product(node, node.tensor(0), node.shape(0), pieces[0], node.shape(1))
        return node.valued(found, shape)
    products = [product(node, node.tensor(0), node.shape(0), one, one.sizes) for one in pieces]
    shape = (*products[0][1][:-1], node.shape(1)[1])
    parts = [reshaped(one, sizes) for one, sizes in products]
    return node.valued(dml.join(parts, len(shape) - 1), shape)


def product(node: Node, a: Expression, left: Shape, b: Expression, right: Shape) -> tuple[Expression, Shape]:
    """Return the product of stacks of matrices as NumPy's matmul has it, and its shape.

    Integers are multiplied as integers, element by element, since GEMM has floats only.
    """
    if not left or not right:
        raise node.refusal(f"factors must have at least 1 dimension, got {list(left)} and {list(right)}")
    rows, columns = left[-2:-1], right[-1:] if len(right) > 1 else ()
    left = left if len(left) > 1 else (1, *left)
    right = right if len(right) > 1 else (*right, 1)
    if left[-1] != right[-2]:
        raise node.refusal(f"inner sizes must be equal, got {list(left)} and {list(right)}")
    stack = _stack(node, left[:-2], right[:-2])
    shape = (*stack, *rows, *columns)
    a, b = reshaped(a, left), reshaped(b, right)
    if not a.data_type.is_float:
        return _integers(a, b, stack), shape
    if stack and math.prod(right[:-2]) == 1:  # one matrix on the right: one product of all rows
        flat = reshaped(broadcast_to(a, (*stack, *left[-2:])), (math.prod(stack) * left[-2], left[-1]))
        return functions.gemm(flat, reshaped(b, right[-2:])), shape
    a, b = broadcast_to(a, (*stack, *left[-2:])), broadcast_to(b, (*stack, *right[-2:]))
    if len(stack) > 2:
        a, b = (reshaped(one, (math.prod(stack), *one.sizes[-2:])) for one in (a, b))
        a, b = (reshaped(one, (1, *one.sizes)) for one in (a, b))
    elif len(stack) == 1:
        a, b = (one.reinterpret((1, *one.sizes), (0, *one.desc.element_strides)) for one in (a, b))
    return functions.gemm(a, b), shape


def _stack(node: Node, left: Shape, right: Shape) -> Shape:
    try:
        return np.broadcast_shapes(left, right)
    except ValueError:
        raise node.refusal(f"stacks of matrices must broadcast, got {list(left)} and {list(right)}") from None


def _integers(a: Expression, b: Expression, stack: Shape) -> Expression:
    """Return the product of matrices of integers: products of all elements, summed."""
    (*_, m, k), n = a.sizes, b.sizes[-1]
    a = broadcast_to(reshaped(a, (*a.sizes, 1)), (*stack, m, k, n))
    b = broadcast_to(reshaped(b, (*b.sizes[:-2], 1, k, n)), (*stack, m, k, n))
    found = dml.reduce(dml.multiply(a, b), ReduceFunction.SUM, axes=(len(stack) + 1,))
    return reshaped(found, (*stack, m, n))


@operator("Gemm")
def gemm(node: Node) -> Value:
    """alpha * A' * B' + beta * C, exact for integers."""
    return _gemm(node) if node.data_type(0).is_float else _integer_gemm(node)


def _integer_gemm(node: Node) -> Value:
    """Return the result for integers, whose alpha and beta are integers, too."""
    a, b = node.tensor(0), node.tensor(1)
    if len(a.sizes) != 2 or len(b.sizes) != 2:
        raise node.refusal(f"factors must have 2 dimensions, got {list(a.sizes)} and {list(b.sizes)}")
    a = transposed(a, (1, 0)) if node.flag("transA") else a
    b = transposed(b, (1, 0)) if node.flag("transB") else b
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    if not (alpha.is_integer() and beta.is_integer()):
        raise node.refusal(f"alpha and beta must be integers for elements of {a.data_type.name}, got {alpha}, {beta}")
    found, shape = product(node, a, a.sizes, b, b.sizes)
    found = found if alpha == 1 else found * int(alpha)
    if node.has(2) and beta != 0:
        c = broadcast_to(node.tensor(2), shape)
        found = dml.add(found, c if beta == 1 else c * int(beta))
    return node.valued(found)


def _gemm(node: Node) -> Value:
    """Return the result for floats."""
    a = node.tensor(0)
    turned = [node.flag("transA"), node.flag("transB")]
    if len(node.shape(0)) != 2 or len(node.shape(1)) != 2:
        raise node.refusal(f"factors must have 2 dimensions, got {list(node.shape(0))} and {list(node.shape(1))}")
    columns = 0 if turned[1] else 1
    pieces = node.pieces(1, columns)
    m, n = a.sizes[1 if turned[0] else 0], node.shape(1)[columns]
    transforms = [MatrixTransform.TRANSPOSE if one else MatrixTransform.NONE for one in turned]
    added: Sequence[Expression | None] = [None] * len(pieces)
    if node.has(2):
        whole = broadcast_to(node.tensor(2), (m, n))
        added = dml.split(whole, 1, [one.sizes[columns] for one in pieces]) if len(pieces) > 1 else [whole]
    products = []
    for b, c in zip(pieces, added, strict=True):
        products.append(
            functions.gemm(
                a,
                b,
                c,
                trans_a=transforms[0],
                trans_b=transforms[1],
                alpha=node.number("alpha", 1.0),
                beta=node.number("beta", 1.0) if c is not None else 0.0,
            )
        )
    found = products[0] if len(products) == 1 else dml.join(products, 1)
    return node.valued(found, (m, n))
