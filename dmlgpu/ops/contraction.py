"""``einsum``: products and sums of tensors by Einstein's notation, computed by views, GEMM and REDUCE."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops.reductions import reduced
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, tensor_of, widened
from dmlgpu.tensors.tensor import Tensor, matmul
from dmlgpu.tensors.types import promoted

__all__ = ["einsum"]

Label: TypeAlias = str | int
"""A letter, or an axis that ``...`` stands for, counted from its end: -1, -2."""

_TERM = re.compile(r"([A-Za-z]*)(?:(\.\.\.)([A-Za-z]*))?")


@eager
def einsum(subscripts: str, *operands: Operand, device: Where = None) -> Array:
    """Return sums of products of tensors, by Einstein's notation as NumPy and PyTorch read it.

    Args:
        subscripts: Letters that name the axes of each operand, ``"ij,jk->ik"``. Axes of one letter have one size, or
            size 1. Products are summed along letters that are missing after ``->``. A letter that occurs twice in an
            operand takes its diagonal. ``...`` stands for any number of axes, which broadcast. Without ``->`` the
            result has the axes of ``...``, then the letters that occur once, in alphabetical order.
        operands: Tensors or arrays, as many as terms, promoted to a common dtype. They are combined from left to right.
            Sums and products of masks are logical.
        device: Device or adapter name that computes arrays; defaults to that of the tensors, else to the default
            device.

    Returns:
        Tensor of the common dtype (an array if all operands are arrays); a view if nothing is computed.

    Raises:
        InvalidArgument: If the subscripts do not fit the operands, there is no common dtype, or an intermediate result
            would have more than 8 axes.

    Examples:
        >>> a = np.array([[1, 2], [3, 4]], np.float32)
        >>> ops.einsum("ij,kj->ik", a, a).tolist()
        [[5.0, 11.0], [11.0, 25.0]]
        >>> float(ops.einsum("ii", a))
        5.0

    See also:
        `matmul`, `sum`, `transpose`.

    Computed by GEMM (`ns-directml-dml_gemm_operator_desc`), ELEMENT_WISE_MULTIPLY
    (`ns-directml-dml_element_wise_multiply_operator_desc`) and REDUCE (`ns-directml-dml_reduce_operator_desc`).
    """
    named = {f"operands[{index}]": tensor_of(f"operands[{index}]", x) for index, x in enumerate(operands)}
    terms, output = _parsed(subscripts, list(named.values()))
    tensors = promoted(caller(), named)
    if not tensors[0].is_boolean:
        return _contracted(subscripts, terms, output, tensors)
    return _contracted(subscripts, terms, output, [x.astype(DataType.FLOAT32) for x in tensors]) != 0


def _contracted(
    subscripts: str, terms: Sequence[list[Label]], output: Sequence[Label], operands: Sequence[Tensor]
) -> Tensor:
    """Return the sum of products of operands of one dtype, pair by pair."""
    data_type = operands[0].data_type
    if len(terms) > 2 or (len(terms) == 2 and (set(terms[0]) ^ set(terms[1])) - set(output)):
        operands = [widened(x) for x in operands]  # intermediate products are not rounded
    tensors = [_diagonal(x, term) for x, term in zip(operands, terms, strict=True)]
    sizes = _sizes(subscripts, tensors)
    result, labels = _widened(*tensors[0], sizes)
    for index, following in enumerate(tensors[1:], 1):
        needed = set(output).union(*(names for _, names in tensors[index + 1 :]))
        result, labels = _product((result, labels), _widened(*following, sizes), needed)
    result, labels = _summed(result, labels, set(output))
    result = result.astype(data_type)
    if not labels:
        return result
    order = [labels.index(label) for label in output]
    return result._same() if order == list(range(len(order))) else result.transpose(order)


def _parsed(subscripts: Any, operands: Sequence[Tensor]) -> tuple[list[list[Label]], list[Label]]:
    """Return the labels of each operand's axes and of the result's."""
    if not isinstance(subscripts, str):
        raise InvalidArgument(
            f"{caller()}: subscripts must be a string as in einsum('ij,jk->ik', a, b), got {shown(subscripts)}"
        )
    inputs, arrow, result = subscripts.replace(" ", "").partition("->")
    written = inputs.split(",")
    if len(written) != len(operands) or not operands:
        raise InvalidArgument(
            f"{caller()}: subscripts must have a term for each of {len(operands)} operands, got {shown(subscripts)}"
        )
    terms = [_labels(subscripts, term, x.ndim) for term, x in zip(written, operands, strict=True)]
    elided = sorted({label for term in terms for label in term if isinstance(label, int)})
    letters = [label for term in terms for label in term if isinstance(label, str)]
    if not arrow:
        return terms, [*elided, *sorted(letter for letter in set(letters) if letters.count(letter) == 1)]
    if elided and "..." not in result:
        raise InvalidArgument(f"{caller()}: subscripts must have '...' after '->', too, got {shown(subscripts)}")
    output = _labels(subscripts, result, len(elided) + len(result.replace(".", "")))
    for label in output:
        if output.count(label) > 1 or (label not in letters and label not in elided):
            raise InvalidArgument(
                f"{caller()}: subscripts must have each letter after '->' once, and before it, got {shown(subscripts)}"
            )
    return terms, output


def _labels(subscripts: str, term: str, rank: int) -> list[Label]:
    """Return a label for each of an operand's axes."""
    match = _TERM.fullmatch(term)
    if match is None:
        raise InvalidArgument(
            f"{caller()}: subscripts must be letters, ',', '...' and '->', got {shown(term)} in {shown(subscripts)}"
        )
    before, ellipsis, after = match[1], match[2], match[3] or ""
    elided = rank - len(before) - len(after)
    if elided < 0 or (elided and not ellipsis):
        raise InvalidArgument(
            f"{caller()}: subscripts must name each axis of an operand, got {shown(term)} for {rank} axes in "
            f"{shown(subscripts)}"
        )
    return [*before, *range(-elided, 0), *after]


def _diagonal(x: Tensor, labels: list[Label]) -> tuple[Tensor, list[Label]]:
    """Return a view in which each label has one axis: the diagonal of those that it had."""
    if len(set(labels)) == len(labels):
        return x, labels
    sizes: dict[Label, int] = {}
    strides: dict[Label, int] = {}
    for label, size, stride in zip(labels, x.sizes, x.strides, strict=True):
        if sizes.setdefault(label, size) != size:
            raise InvalidArgument(
                f"{caller()}: subscripts must name axes of one size by {shown(label)}, got {list(x.sizes)}"
            )
        strides[label] = strides.get(label, 0) + stride
    return x._view(tuple(sizes.values()), tuple(strides.values())), list(sizes)


def _sizes(subscripts: str, tensors: Sequence[tuple[Tensor, list[Label]]]) -> dict[Label, int]:
    """Return the size of each label's axes: all of one size, or 1."""
    sizes: dict[Label, int] = {}
    for x, labels in tensors:
        for label, size in zip(labels, x.sizes, strict=True):
            known = sizes.get(label, 1)
            if known not in (1, size) and size != 1:
                name = shown(label) if isinstance(label, str) else "'...'"
                raise InvalidArgument(
                    f"{caller()}: operands must have axes of one size, or 1, for {name} of {shown(subscripts)}, got "
                    f"{known} and {size}"
                )
            sizes[label] = size if known == 1 else known
    return sizes


def _widened(x: Tensor, labels: list[Label], sizes: dict[Label, int]) -> tuple[Tensor, list[Label]]:
    """Return a view with axes of size 1 repeated to the size of their label."""
    shape = tuple(sizes[label] for label in labels)
    return x if shape == x.sizes else x.broadcast_to(shape), labels


def _summed(x: Tensor, labels: list[Label], needed: set[Label]) -> tuple[Tensor, list[Label]]:
    """Return sums along the axes whose labels are not needed."""
    axes = tuple(axis for axis, label in enumerate(labels) if label not in needed)
    if not axes:
        return x, labels
    return reduced(x, ReduceFunction.SUM, axes, False), [label for label in labels if label in needed]


def _product(
    first: tuple[Tensor, list[Label]], second: tuple[Tensor, list[Label]], needed: set[Label]
) -> tuple[Tensor, list[Label]]:
    """Return the product of two operands, summed along the axes whose labels are not needed."""
    a, of_a = _summed(*first, needed | set(second[1]))
    b, of_b = _summed(*second, needed | set(of_a))
    stack = [label for label in of_a if label in of_b and label in needed]
    inner = [label for label in of_a if label in of_b and label not in needed]
    rows = [label for label in of_a if label not in of_b]
    columns = [label for label in of_b if label not in of_a]
    labels = [*stack, *rows, *columns]
    if len(labels) > MAX_DIMENSIONS:
        raise InvalidArgument(
            f"{caller()}: subscripts must lead to at most {MAX_DIMENSIONS} axes at a time, got {len(labels)}"
        )
    left = _ordered(a, of_a, [*stack, *rows, *inner])
    right = _ordered(b, of_b, [*stack, *inner, *columns])
    outer = left.sizes[: len(stack)]
    heights, widths = left.sizes[len(stack) : len(stack) + len(rows)], right.sizes[len(stack) + len(inner) :]
    if not inner:
        wide = left.reshape((*outer, *heights, *(1 for _ in widths)))
        return wide * right.reshape((*outer, *(1 for _ in heights), *widths)), labels
    depth = math.prod(right.sizes[len(stack) : len(stack) + len(inner)])
    matrices = left.reshape((*outer, math.prod(heights), depth)), right.reshape((*outer, depth, math.prod(widths)))
    return matmul(*matrices, caller())._renamed((*outer, *heights, *widths)), labels


def _ordered(x: Tensor, labels: list[Label], order: list[Label]) -> Tensor:
    return x.transpose([labels.index(label) for label in order]) if x.ndim > 1 else x
