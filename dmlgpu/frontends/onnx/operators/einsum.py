"""Einsum: products of tensors by named dimensions, as products of matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlgpu.builder import directmlx as dml
from dmlgpu.builder.expression import Expression
from dmlgpu.enums import ReduceFunction
from dmlgpu.frontends.onnx.node import Node, broadcast_to, reshaped, transposed
from dmlgpu.frontends.onnx.operators.matrix import product
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value


@dataclass(frozen=True)
class Term:
    """A tensor whose dimensions have names, each once; without any it has sizes (1,)."""

    names: tuple[str, ...]
    tensor: Expression

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes by name."""
        return dict(zip(self.names, self.tensor.sizes, strict=False))

    def placed(self, names: tuple[str, ...]) -> Expression:
        """Return the tensor with its dimensions in an order."""
        return transposed(self.tensor, [self.names.index(one) for one in names]) if names else self.tensor

    def summed(self, kept: frozenset[str]) -> Term:
        """Return the sum over the dimensions that are not kept."""
        axes = [axis for axis, name in enumerate(self.names) if name not in kept]
        if not axes:
            return self
        names = tuple(name for name in self.names if name in kept)
        found = dml.reduce(self.tensor, ReduceFunction.SUM, axes=axes)
        sizes = self.sizes
        return Term(names, reshaped(found, [sizes[name] for name in names] or [1]))


@operator("Einsum", since=12)
def einsum(node: Node) -> Value:
    """Multiply and sum by an equation such as ``bij,bjk->bik``."""
    inputs, output = _equation(node)
    terms = [_term(node, number, names) for number, names in enumerate(inputs)]
    sizes: dict[str, int] = {}
    for term in terms:
        for name, size in term.sizes.items():
            if sizes.setdefault(name, size) == 1:
                sizes[name] = size
            if size not in (1, sizes[name]):
                raise node.refusal(f"dimension {name!r} must have one size, got {sizes[name]} and {size}")
    if not set(output) <= set(sizes) or len(set(output)) != len(output):
        raise node.refusal(f"the output must name dimensions of inputs once each, got {''.join(output)!r}")
    terms = [_without_ones(term, sizes) for term in terms]
    found = terms[0].summed(_needed(terms[1:], output))
    for number, term in enumerate(terms[1:], 1):
        needed = _needed(terms[number + 1 :], output)
        found = _pair(node, found, term, needed)
    missing = tuple(name for name in output if name not in found.names)  # of size 1 everywhere
    whole = Term((*found.names, *missing), reshaped(found.tensor, [*_sizes(found), *(1,) * len(missing)] or [1]))
    return node.valued(whole.placed(output), [sizes[name] for name in output])


def _equation(node: Node) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return names of the dimensions of inputs and output; those of an ellipsis are numbers, counted from behind."""
    text = node.text("equation").replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(node):
        raise node.refusal(f"equation {text!r} must have a term for each of {len(node)} inputs")
    several = 0
    for number, term in enumerate(inputs):
        if "..." in term:
            several = max(several, len(node.shape(number)) - len(term.replace("...", "")))
    names = [_names(term, len(node.shape(number))) for number, term in enumerate(inputs)]
    dots = tuple(str(one) for one in range(several, 0, -1))
    if arrow:
        head, dotted, tail = right.partition("...")
        return names, (*head, *(dots if dotted else ()), *tail)
    letters = left.replace(",", "").replace("...", "")
    return names, (*dots, *sorted(one for one in set(letters) if letters.count(one) == 1))


def _names(term: str, rank: int) -> tuple[str, ...]:
    head, dotted, tail = term.partition("...")
    count = rank - len(head) - len(tail)
    return (*head, *(str(one) for one in range(count, 0, -1)), *tail) if dotted else tuple(term)


def _term(node: Node, number: int, names: tuple[str, ...]) -> Term:
    """Return an input; where a name comes twice, its diagonal, by strides."""
    shape = node.shape(number)
    if len(names) != len(shape):
        raise node.refusal(f"input {number} must have {len(names)} dimensions, got shape {list(shape)}")
    tensor = node.tensor(number)
    if len(set(names)) == len(names):
        return Term(names, tensor)
    strides: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for name, size, stride in zip(names, tensor.sizes, tensor.desc.element_strides, strict=True):
        if sizes.setdefault(name, size) != size:
            raise node.refusal(f"dimension {name!r} must have one size, got {sizes[name]} and {size}")
        strides[name] = strides.get(name, 0) + stride
    return Term(tuple(sizes), tensor.reinterpret(list(sizes.values()), list(strides.values())))


def _sizes(term: Term) -> list[int]:
    return list(term.sizes.values())


def _without_ones(term: Term, sizes: dict[str, int]) -> Term:
    """Return a term without dimensions of size 1, which broadcast."""
    names = tuple(name for name, size in term.sizes.items() if size != 1)
    if names == term.names:
        return term
    return Term(names, reshaped(term.tensor, [term.sizes[name] for name in names] or [1]))


def _needed(terms: list[Term], output: tuple[str, ...]) -> frozenset[str]:
    return frozenset(output).union(*(term.names for term in terms))


def _pair(node: Node, a: Term, b: Term, needed: frozenset[str]) -> Term:
    """Return the product of two terms, summed over what nothing needs."""
    a, b = a.summed(needed | set(b.names)), b.summed(needed | set(a.names))
    shared = [name for name in a.names if name in b.names]
    stack = tuple(name for name in shared if name in needed)
    inner = tuple(name for name in shared if name not in needed)
    rows = tuple(name for name in a.names if name not in shared)
    columns = tuple(name for name in b.names if name not in shared)
    sizes = {**a.sizes, **b.sizes}

    def count(names: tuple[str, ...]) -> int:
        return math.prod(sizes[name] for name in names)

    names = (*stack, *rows, *columns)
    wanted = [sizes[name] for name in names] or [1]
    if not inner:
        first = reshaped(a.placed((*stack, *rows)), (count(stack), count(rows), 1))
        second = reshaped(b.placed((*stack, *columns)), (count(stack), 1, count(columns)))
        whole = (count(stack), count(rows), count(columns))
        return Term(names, reshaped(dml.multiply(broadcast_to(first, whole), broadcast_to(second, whole)), wanted))
    left = (count(stack), count(rows), count(inner))
    right = (count(stack), count(inner), count(columns))
    first = reshaped(a.placed((*stack, *rows, *inner)), left)
    second = reshaped(b.placed((*stack, *inner, *columns)), right)
    found, _ = product(node, first, left, second, right)
    return Term(names, reshaped(found, wanted))
