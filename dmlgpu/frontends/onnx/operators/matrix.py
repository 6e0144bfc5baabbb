"""Matrix products (MatMul, Gemm and their fused variants), Einsum and Det."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from dmlgpu.catalog.enums import AxisDirection, DataType, MatrixTransform, ReduceFunction
from dmlgpu.frontends.onnx.expressions import (
    broadcast_shapes,
    broadcast_to,
    cast,
    choose,
    divide,
    multiply,
    reshaped,
    sequence,
    spread,
    subtract,
    transposed,
)
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators import MICROSOFT
from dmlgpu.frontends.onnx.operators.activation import activated
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import OnnxValue, Shape
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.calls import widened
from dmlgpu.tensors.tensor import Tensor


@operator("MatMul")
def matmul(node: OnnxNode) -> OnnxValue:
    """Multiply matrices or stacks of them; a matrix too large for a binding is multiplied piece by piece."""
    pieces = node.pieces(1, len(node.shape(1)) - 1) if len(node.shape(1)) == 2 else [node.tensor(1)]
    if len(pieces) == 1:
        return node.valued(*product(node, node.tensor(0), node.shape(0), pieces[0], node.shape(1)))
    products = [product(node, node.tensor(0), node.shape(0), piece, piece.sizes) for piece in pieces]
    shape = (*products[0][1][:-1], node.shape(1)[1])
    parts = [reshaped(part, sizes) for part, sizes in products]
    return node.valued(dml.join(parts, len(shape) - 1), shape)


def product(node: OnnxNode, a: Tensor, left: Shape, b: Tensor, right: Shape) -> tuple[Tensor, Shape]:
    """Return the product of stacks of matrices as in NumPy's matmul, and its shape.

    Integers are multiplied as integers, element by element, since GEMM has floats only.
    """
    left, right, stack, shape = stacks_of_matrices(node, left, right)
    a, b = reshaped(a, left), reshaped(b, right)
    if not a.data_type.is_float:
        return _integers(a, b, stack), shape
    if stack and math.prod(right[:-2]) == 1:  # one matrix on the right: one product of all rows
        flat = reshaped(broadcast_to(a, (*stack, *left[-2:])), (math.prod(stack) * left[-2], left[-1]))
        return directml.gemm(flat, reshaped(b, right[-2:])), shape
    a, b = broadcast_to(a, (*stack, *left[-2:])), broadcast_to(b, (*stack, *right[-2:]))
    if len(stack) > 2:
        a, b = (reshaped(factor, (1, math.prod(stack), *factor.sizes[-2:])) for factor in (a, b))
    elif len(stack) == 1:
        a, b = (factor.reinterpret((1, *factor.sizes), (0, *factor.desc.element_strides)) for factor in (a, b))
    return directml.gemm(a, b), shape


def stacks_of_matrices(node: OnnxNode, left: Shape, right: Shape) -> tuple[Shape, Shape, Shape, Shape]:
    """Return the factors' shapes as stacks of matrices, the shape of the stack, and that of NumPy's matmul."""
    if not left or not right:
        raise node.rejection(f"factors must have at least 1 dimension, got {list(left)} and {list(right)}")
    rows, columns = left[-2:-1], right[-1:] if len(right) > 1 else ()
    left = left if len(left) > 1 else (1, *left)
    right = right if len(right) > 1 else (*right, 1)
    if left[-1] != right[-2]:
        raise node.rejection(f"inner sizes must be equal, got {list(left)} and {list(right)}")
    try:
        stack = broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        got = f"{list(left[:-2])} and {list(right[:-2])}"
        raise node.rejection(f"stacks of matrices must broadcast, got {got}") from None
    return left, right, stack, (*stack, *rows, *columns)


def _integers(a: Tensor, b: Tensor, stack: Shape) -> Tensor:
    """Return the product of integer matrices: products of all elements, summed."""
    (*_, m, k), n = a.sizes, b.sizes[-1]
    a = broadcast_to(reshaped(a, (*a.sizes, 1)), (*stack, m, k, n))
    b = broadcast_to(reshaped(b, (*b.sizes[:-2], 1, k, n)), (*stack, m, k, n))
    product = dml.reduce(dml.multiply(a, b), ReduceFunction.SUM, axes=(len(stack) + 1,))
    return reshaped(product, (*stack, m, n))


@operator("Gemm")
def gemm(node: OnnxNode) -> OnnxValue:
    """alpha * A' * B' + beta * C, exact for integers."""
    return _gemm(node) if node.data_type(0).is_float else _integer_gemm(node)


def _integer_gemm(node: OnnxNode) -> OnnxValue:
    """Return the result for integers, whose alpha and beta are integers, too."""
    a, b = node.tensor(0), node.tensor(1)
    if len(a.sizes) != 2 or len(b.sizes) != 2:
        raise node.rejection(f"factors must have 2 dimensions, got {list(a.sizes)} and {list(b.sizes)}")
    a = transposed(a, (1, 0)) if node.flag("transA") else a
    b = transposed(b, (1, 0)) if node.flag("transB") else b
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    if not (alpha.is_integer() and beta.is_integer()):
        raise node.rejection(f"alpha and beta must be integers for elements of {a.data_type.name}, got {alpha}, {beta}")
    result, shape = product(node, a, a.sizes, b, b.sizes)
    result = result if alpha == 1 else result * int(alpha)
    if node.has(2) and beta != 0:
        c = broadcast_to(node.tensor(2), shape)
        result = dml.add(result, c if beta == 1 else c * int(beta))
    return node.valued(result)


def _gemm(node: OnnxNode) -> OnnxValue:
    """Return the result for floats."""
    a = node.tensor(0)
    turned = [node.flag("transA"), node.flag("transB")]
    if len(node.shape(0)) != 2 or len(node.shape(1)) != 2:
        raise node.rejection(f"factors must have 2 dimensions, got {list(node.shape(0))} and {list(node.shape(1))}")
    columns = 0 if turned[1] else 1
    pieces = node.pieces(1, columns)
    m, n = a.sizes[1 if turned[0] else 0], node.shape(1)[columns]
    transforms = [MatrixTransform.TRANSPOSE if is_transposed else MatrixTransform.NONE for is_transposed in turned]
    added: Sequence[Tensor | None] = [None] * len(pieces)
    if node.has(2):
        bias = broadcast_to(node.tensor(2), (m, n))
        added = dml.split(bias, 1, [piece.sizes[columns] for piece in pieces]) if len(pieces) > 1 else [bias]
    products = []
    for b, c in zip(pieces, added, strict=True):
        products.append(
            directml.gemm(
                a,
                b,
                c,
                trans_a=transforms[0],
                trans_b=transforms[1],
                alpha=node.number("alpha", 1.0),
                beta=node.number("beta", 1.0) if c is not None else 0.0,
            )
        )
    result = products[0] if len(products) == 1 else dml.join(products, 1)
    return node.valued(result, (m, n))


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(node: OnnxNode) -> OnnxValue:
    """Gemm, then an activation."""
    plain = gemm(node)
    parameters = [node.attribute(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    if node.text("activation") == "Selu":
        parameters = [parameters[0], parameters[2]]
    return node.valued(activated(node, node.expression(plain), parameters), plain.shape)


@operator("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul(node: OnnxNode) -> OnnxValue:
    """Multiply stacks of matrices, optionally transposed; scale; then apply an activation."""
    (a, left), (b, right) = (_factor(node, index, letter) for index, letter in enumerate("AB"))
    result, shape = product(node, a, left, b, right)
    alpha = node.number("alpha", 1.0)
    result = result if alpha == 1 else result * alpha
    if node.op_type == "FusedMatMulActivation":
        result = activated(node, result, [node.attribute(f"activation_{name}") for name in ("alpha", "beta")])
    return node.valued(result, shape)


def _factor(node: OnnxNode, index: int, letter: str) -> tuple[Tensor, Shape]:
    """Return a factor, transposed as the node's attributes say, and its shape."""
    factor, shape = node.tensor(index), node.shape(index)
    rank = len(shape)
    if rank < 2:
        return factor, shape
    order = list(range(rank))
    if node.flag(f"transBatch{letter}"):
        order = [*order[1:-1], 0, order[-1]]
    if node.flag(f"trans{letter}"):
        order[-2:] = order[:-3:-1]
    turned = factor if order == sorted(order) else dml.identity(transposed(factor, order))
    return turned, tuple(shape[axis] for axis in order)


Labels = tuple[str, ...]


@operator("Einsum", since=12)
def einsum(node: OnnxNode) -> OnnxValue:
    """Multiply the operands one after the other; sum over labels that neither a later operand nor the result names."""
    terms, result = _parsed(node)
    operands = [
        _diagonal(node, node.tensor(index), labels, len(node.shape(index))) for index, labels in enumerate(terms)
    ]
    data_type = operands[0][0].data_type
    if len(terms) > 2 or (len(terms) == 2 and (set(terms[0]) ^ set(terms[1])) - set(result)):
        operands = [(widened(x), labels) for x, labels in operands]  # operands of products are not rounded
    sizes: dict[str, int] = {}
    for x, labels in operands:
        for label, size in zip(labels, x.sizes, strict=False):
            if sizes.setdefault(label, size) != size and 1 not in (size, sizes[label]):
                raise node.rejection(f"sizes of {label!r} must be equal, got {sizes[label]} and {size}")
            sizes[label] = max(size, sizes[label])
    total, labels = operands[0]
    for index, (other, others) in enumerate(operands[1:], 1):
        later = {label for _, rest in operands[index + 1 :] for label in rest} | set(result)
        total, labels = _contracted(node, (total, labels), (other, others), later)
    total, labels = _summed(total, labels, set(result))
    total = cast(total, data_type)
    shape = tuple(sizes[label] for label in result)
    total = transposed(total, [labels.index(label) for label in result]) if labels else total
    total = total.broadcast_to(shape) if shape and total.sizes != shape else total
    return node.valued(total, shape)


def _parsed(node: OnnxNode) -> tuple[list[Labels], Labels]:
    """Return the labels of operands and of the result; ``...`` stands for labels of its own."""
    text = node.text("equation").replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(node) or not all(
        re.fullmatch(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*", term) for term in (*terms, right)
    ):
        raise node.rejection(f"equation must have a term for each of {len(node)} inputs, got {text!r}")
    extra = [len(node.shape(index)) - len(term.replace("...", "")) for index, term in enumerate(terms)]
    if any(count < 0 or (count and "..." not in term) for count, term in zip(extra, terms, strict=True)):
        raise node.rejection(f"terms must name all dimensions of their inputs, got {text!r}")
    max_extra = max(extra, default=0)
    rest = [f"...{index}" for index in range(max_extra)]

    def labels(term: str, count: int) -> Labels:
        before, dots, behind = term.partition("...")
        return (*before, *(rest[max_extra - count :] if dots else ()), *behind)

    operands = [labels(term, count) for term, count in zip(terms, extra, strict=True)]
    if arrow:
        result = labels(right, max_extra)
        unknown = sorted(set(result).difference(*operands))
        if unknown or len(set(result)) != len(result):
            raise node.rejection(f"the result must name labels of the inputs, each once, got {text!r}")
        return operands, result
    counts = Counter(label for operand in operands for label in operand if not label.startswith("."))
    return operands, (*rest, *sorted(label for label, count in counts.items() if count == 1))


def _diagonal(node: OnnxNode, x: Tensor, labels: Labels, rank: int) -> tuple[Tensor, Labels]:
    """Return an operand with unique labels: equal labels name a diagonal, whose stride is the sum of their strides."""
    if not rank:
        return x, ()
    distinct = tuple(dict.fromkeys(labels))
    if len(distinct) == len(labels):
        return x, labels
    strides = x.desc.element_strides
    sizes = []
    for label in distinct:
        several = {x.sizes[index] for index, other in enumerate(labels) if other == label}
        if len(several) > 1:
            raise node.rejection(f"sizes of {label!r} must be equal, got {sorted(several)}")
        sizes.append(several.pop())
    steps = [sum(strides[index] for index, other in enumerate(labels) if other == label) for label in distinct]
    return x.reinterpret(sizes, steps), distinct


def _summed(x: Tensor, labels: Labels, needed: set[str]) -> tuple[Tensor, Labels]:
    """Sum an operand over labels that are no longer needed."""
    axes = [index for index, label in enumerate(labels) if label not in needed]
    if not axes:
        return x, labels
    rest = [(label, size) for label, size in zip(labels, x.sizes, strict=True) if label in needed]
    total = dml.reduce(x, ReduceFunction.SUM, axes=axes)
    return reshaped(total, [size for _, size in rest] or (1,)), tuple(label for label, _ in rest)


def _contracted(
    node: OnnxNode, first: tuple[Tensor, Labels], second: tuple[Tensor, Labels], later: set[str]
) -> tuple[Tensor, Labels]:
    """Multiply two operands and sum over labels that are no longer needed: a stack of matrix products."""
    a, left = _summed(*first, later | set(second[1]))
    b, right = _summed(*second, later | set(first[1]))
    shared = [label for label in left if label in right]
    stack, inner = [label for label in shared if label in later], [label for label in shared if label not in later]
    rows, columns = [label for label in left if label not in right], [label for label in right if label not in left]
    sizes: dict[str, int] = {}
    for x, labels in ((a, left), (b, right)):
        for label, size in zip(labels, x.sizes, strict=False):
            sizes[label] = max(size, sizes.get(label, 1))

    def matrices(x: Tensor, labels: Labels, order: list[str], extents: tuple[int, ...]) -> Tensor:
        if labels:
            x = transposed(x, [labels.index(label) for label in order]).broadcast_to([sizes[label] for label in order])
        return reshaped(x, extents)

    count, m, n, k = (math.prod(sizes[label] for label in part) for part in (stack, rows, columns, inner))
    result, _ = product(
        node,
        matrices(a, left, [*stack, *rows, *inner], (count, m, k)),
        (count, m, k),
        matrices(b, right, [*stack, *inner, *columns], (count, k, n)),
        (count, k, n),
    )
    labels = (*stack, *rows, *columns)
    return reshaped(result, [sizes[label] for label in labels] or (1,)), labels


_MAX_ROWS = 64


@operator("Det", since=11)
def determinant(node: OnnxNode) -> OnnxValue:
    """Eliminate column by column, each by the row with the largest element in it."""
    shape = node.shape(0)
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] > _MAX_ROWS:
        raise node.rejection(f"matrices must be square, of at most {_MAX_ROWS} rows, got shape {list(shape)}")
    data_type, batch = node.data_type(0), math.prod(shape[:-2])
    matrix = reshaped(cast(node.tensor(0), DataType.FLOAT32), (batch, *shape[-2:]))
    product: Tensor | None = None
    for size in range(shape[-1], 0, -1):
        factor, matrix = _eliminated(matrix, size)
        product = factor if product is None else multiply(product, factor)
    assert product is not None
    return node.valued(cast(product, data_type), shape[:-2])


def _eliminated(matrix: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the factor {B, 1, 1} of one step of elimination, and the remaining matrix, a row and a column smaller."""
    batch = matrix.sizes[0]
    if size == 1:
        return matrix, matrix
    column = dml.abs(dml.slice(matrix, (0, 0, 0), (batch, size, 1)))
    best = directml.argmax(
        column, axes=(1,), axis_direction=AxisDirection.INCREASING, output_type=DataType.INT32
    )  # {B, 1, 1}
    row = directml.gather_nd1(
        matrix,
        reshaped(best, (1, batch, 1)),
        input_dimension_count=3,
        indices_dimension_count=2,
        batch_dimension_count=1,
    )
    row = reshaped(row, (batch, 1, size))
    numbers = sequence(matrix, (1, size, 1), DataType.INT32)
    first = dml.slice(matrix, (0, 0, 0), (batch, 1, size))
    swapped = choose(spread(dml.equals, numbers, best), first, matrix)
    rest = dml.slice(swapped, (0, 1, 0), (batch, size - 1, size))
    pivot = dml.slice(row, (0, 0, 0), (batch, 1, 1))
    divisor = choose(spread(dml.equals, pivot, 0.0), 1.0, pivot)
    factors = divide(dml.slice(rest, (0, 0, 0), (batch, size - 1, 1)), divisor)
    beside = dml.slice(row, (0, 0, 1), (batch, 1, size - 1))
    left = subtract(dml.slice(rest, (0, 0, 1), (batch, size - 1, size - 1)), multiply(factors, beside))
    return choose(spread(dml.equals, best, 0), pivot, dml.negate(pivot)), left
