"""Einsum: sums of products by a formula, as products of matrices."""

from __future__ import annotations

import math
import re
from collections import Counter

from dmlgpu.catalog.enums import ReduceFunction
from dmlgpu.frontends.onnx.node import Node, reshaped, transposed
from dmlgpu.frontends.onnx.operators.matrix import product
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs.expression import Expression

Labels = tuple[str, ...]


@operator("Einsum", since=12)
def einsum(node: Node) -> Value:
    """Multiply the operands one after the other, and sum what no later one and the result do not name."""
    terms, result = _parsed(node)
    operands = [
        _diagonal(node, node.tensor(number), labels, len(node.shape(number))) for number, labels in enumerate(terms)
    ]
    sizes: dict[str, int] = {}
    for x, labels in operands:
        for label, size in zip(labels, x.sizes, strict=False):
            if sizes.setdefault(label, size) != size and 1 not in (size, sizes[label]):
                raise node.refusal(f"sizes of {label!r} must be equal, got {sizes[label]} and {size}")
            sizes[label] = max(size, sizes[label])
    found, labels = operands[0]
    for number, (other, others) in enumerate(operands[1:], 1):
        later = {one for _, rest in operands[number + 1 :] for one in rest} | set(result)
        found, labels = _multiplied(node, (found, labels), (other, others), later)
    found, labels = _summed(found, labels, set(result))
    shape = tuple(sizes[one] for one in result)
    found = transposed(found, [labels.index(one) for one in result]) if labels else found
    found = found.broadcast_to(shape) if shape and found.sizes != shape else found
    return node.valued(found, shape)


def _parsed(node: Node) -> tuple[list[Labels], Labels]:
    """Return the labels of operands and of the result; ``...`` stands for labels of its own."""
    text = node.text("equation").replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(node) or not all(re.fullmatch(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*", one) for one in (*terms, right)):
        raise node.refusal(f"equation must have a term for each of {len(node)} inputs, got {text!r}")
    extra = [len(node.shape(number)) - len(one.replace("...", "")) for number, one in enumerate(terms)]
    if any(more < 0 or (more and "..." not in one) for more, one in zip(extra, terms, strict=True)):
        raise node.refusal(f"terms must name all dimensions of their inputs, got {text!r}")
    most = max(extra, default=0)
    rest = [f"...{number}" for number in range(most)]

    def labels(term: str, count: int) -> Labels:
        before, dots, behind = term.partition("...")
        return (*before, *(rest[most - count :] if dots else ()), *behind)

    found = [labels(one, more) for one, more in zip(terms, extra, strict=True)]
    if arrow:
        result = labels(right, most)
        unknown = sorted(set(result).difference(*found))
        if unknown or len(set(result)) != len(result):
            raise node.refusal(f"the result must name labels of the inputs, each once, got {text!r}")
        return found, result
    counts = Counter(one for term in found for one in term if not one.startswith("."))
    return found, (*rest, *sorted(one for one, count in counts.items() if count == 1))


def _diagonal(node: Node, x: Expression, labels: Labels, rank: int) -> tuple[Expression, Labels]:
    """Return an operand with each label once: equal ones name a diagonal, whose stride is the sum of theirs."""
    if not rank:
        return x, ()
    kept = tuple(dict.fromkeys(labels))
    if len(kept) == len(labels):
        return x, labels
    strides = x.desc.element_strides
    sizes = []
    for label in kept:
        several = {x.sizes[place] for place, one in enumerate(labels) if one == label}
        if len(several) > 1:
            raise node.refusal(f"sizes of {label!r} must be equal, got {sorted(several)}")
        sizes.append(several.pop())
    steps = [sum(strides[place] for place, one in enumerate(labels) if one == label) for label in kept]
    return x.reinterpret(sizes, steps), kept


def _summed(x: Expression, labels: Labels, wanted: set[str]) -> tuple[Expression, Labels]:
    """Return an operand summed over the labels that nothing wants."""
    axes = [number for number, one in enumerate(labels) if one not in wanted]
    if not axes:
        return x, labels
    kept = tuple(one for one in labels if one in wanted)
    found = dml.reduce(x, ReduceFunction.SUM, axes=axes)
    return reshaped(found, [size for size, one in zip(x.sizes, labels, strict=True) if one in wanted] or (1,)), kept


def _multiplied(
    node: Node, first: tuple[Expression, Labels], second: tuple[Expression, Labels], later: set[str]
) -> tuple[Expression, Labels]:
    """Return the product of two operands, summed over what nothing later wants: a stack of matrix products."""
    a, left = _summed(*first, later | set(second[1]))
    b, right = _summed(*second, later | set(first[1]))
    shared = [one for one in left if one in right]
    stack, inner = [one for one in shared if one in later], [one for one in shared if one not in later]
    rows, columns = [one for one in left if one not in right], [one for one in right if one not in left]
    sizes: dict[str, int] = {}
    for x, labels in ((a, left), (b, right)):
        for label, size in zip(labels, x.sizes, strict=False):
            sizes[label] = max(size, sizes.get(label, 1))

    def matrices(x: Expression, labels: Labels, order: list[str], extents: tuple[int, ...]) -> Expression:
        if labels:
            x = transposed(x, [labels.index(one) for one in order]).broadcast_to([sizes[one] for one in order])
        return reshaped(x, extents)

    count, m, n, k = (math.prod(sizes[one] for one in part) for part in (stack, rows, columns, inner))
    found, _ = product(
        node,
        matrices(a, left, [*stack, *rows, *inner], (count, m, k)),
        (count, m, k),
        matrices(b, right, [*stack, *inner, *columns], (count, k, n)),
        (count, k, n),
    )
    labels = (*stack, *rows, *columns)
    return reshaped(found, [sizes[one] for one in labels] or (1,)), labels
