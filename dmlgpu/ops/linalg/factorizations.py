"""Cholesky, LU and QR factorizations of float32 matrices, column by column, all matrices of a batch at the same time.

Matrices are {batch, rows, columns}, none of them 0. ``dmlgpu.ops.linalg`` and the PyTorch device are computed by these.
"""

from __future__ import annotations

import numpy as np

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.ops import directml
from dmlgpu.ops.creation import sequence, tril, triu
from dmlgpu.ops.reductions import argmax, reduced
from dmlgpu.ops.shape import joined
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.tensor import Tensor, matmul

_IF = directml.element_wise_if

_BLOCK = 32
"""Columns of a Cholesky factor that are computed one by one."""


def identity(like: Tensor, rows: int, columns: int | None = None) -> Tensor:
    """Return the identity matrix on the device of a tensor, in its dtype."""
    return like._beside(np.eye(rows, columns, dtype=like.dtype))


def identities(like: Tensor, rows: int, columns: int) -> Tensor:
    """Return identity matrices {..., rows, columns} for the batch of matrices without elements."""
    sizes = (*like.sizes[:-2], rows, columns)
    return filled(like, sizes) if 0 in sizes else identity(like, rows, columns).broadcast_to(sizes)


def first_failure(failed: Tensor) -> Tensor:
    """Return for each row {batch, columns} the number from 1 on of the first column that failed, 0 if none did."""
    count = failed.sizes[-1]
    numbers = sequence(count, 1, 1, DataType.INT32, failed.device).expand_dims(0)
    first = reduced(numbers.broadcast_to(failed.sizes)._chosen(failed, count + 1), ReduceFunction.MIN, 1, False)
    return first._chosen(first <= count, 0)


def _row_numbers(a: Tensor) -> Tensor:
    return sequence(a.sizes[1], 0, 1, DataType.INT32, a.device).expand_dims((0, 2))


# ---- Cholesky --------------------------------------------------------------------------------------------------------


def cholesky_factor(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return lower factors of {batch, n, n}, and the squares of their diagonals {batch, n}; reads the lower triangle.

    From the first square on that is not positive, factors are NaN.
    """
    order = a.sizes[-1]
    if order > _BLOCK:
        half = -(-order // (2 * _BLOCK)) * _BLOCK
        first, first_pivots = cholesky_factor(a[:, :half, :half])
        coupling = matmul(a[:, half:, :half], triangular_inverse(first, False).mT)
        second, second_pivots = cholesky_factor(a[:, half:, half:] - matmul(coupling, coupling.mT))
        zeros = filled(a, (a.sizes[0], half, order - half))
        rows = joined([joined([first, zeros], 2), joined([coupling, second], 2)], 1)
        return rows, joined([first_pivots, second_pivots], 1)
    columns, pivots = list[Tensor](), list[Tensor]()
    for index in range(order):
        pivot = a[:, index : index + 1, index : index + 1]
        column = a[:, :, index : index + 1] / directml.element_wise_sqrt(pivot)
        columns.append(column)
        pivots.append(pivot)
        if index < order - 1:
            a = a - column * column.mT
    return tril(joined(columns, 2)), joined(pivots, 1).squeeze(2)


def triangular_inverse(lower: Tensor, has_unit_diagonal: bool) -> Tensor:
    """Return the inverse of lower triangular matrices, from inverses of diagonal blocks of 1, 2, 4 ... rows.

    The inverse of [[a, 0], [c, b]] is [[1/a, 0], [-1/b c 1/a, 1/b]]: as a product with the block diagonal inverses on
    both sides, it is computed for all blocks of all matrices at the same time.
    """
    rows = np.arange(lower.sizes[-1])
    unit = identity(lower, rows.size)
    inverse = unit.broadcast_to(lower.sizes)
    if not has_unit_diagonal:
        inverse = unit / lower._chosen(unit != 0, 1.0)
    block = 1
    while block < rows.size:
        block_index = rows // block
        below = (block_index[:, None] % 2 == 1) & (block_index[None, :] == block_index[:, None] - 1)
        couplings = lower._chosen(lower._beside(below), 0.0)
        inverse = inverse - matmul(matmul(inverse, couplings), inverse)
        block *= 2
    return inverse


def triangular_solution(a: Tensor, b: Tensor, upper: bool, has_unit_diagonal: bool = False) -> Tensor:
    """Return the solution x of a @ x = b for triangular matrices; the other triangle is not read."""
    inverse = triangular_inverse(a.mT if upper else a, has_unit_diagonal)
    return matmul(inverse.mT if upper else inverse, b)


# ---- LU --------------------------------------------------------------------------------------------------------------


def _swapped(rows: Tensor, index: int, pivot: Tensor) -> Tensor:
    """Return row numbers {1, n, 1} with one and that of a pivot {batch, 1, 1} swapped."""
    return _IF(rows == index, pivot, _IF(rows == pivot, index, rows))


def lu_factor(a: Tensor, with_pivots: bool = True) -> tuple[Tensor, Tensor]:
    """Return L, without its diagonal of ones, and U in one matrix {batch, m, n}, and the numbers of swapped rows, from
    1 on."""
    rows, columns = _row_numbers(a), sequence(a.sizes[2], 0, 1, DataType.INT32, a.device).expand_dims((0, 1))
    pivots = list[Tensor]()
    for index in range(min(a.sizes[1:])):
        place = filled(rows, (a.sizes[0], 1, 1), index)
        if with_pivots:
            magnitudes = abs(a[:, :, index : index + 1])._chosen(rows >= index, -1.0)
            place = argmax(magnitudes, 1, True).astype(DataType.INT32)
            order = _swapped(rows, index, place)
            a = directml.gather_elements(a, order.broadcast_to(a.sizes), axis=1)
        pivots.append(place + 1)
        below, column = rows > index, a[:, :, index : index + 1]
        pivot = column[:, index : index + 1]
        factors = (column / filled(pivot, (1, 1, 1), 1)._chosen(pivot == 0, pivot))._chosen(below, 0.0)
        row = a[:, index : index + 1]._chosen(columns > index, 0.0)
        a = factors._chosen(below & (columns == index), a - factors * row)
    return a, joined(pivots, 1).squeeze(2)


def lu_triangles(factors: Tensor) -> tuple[Tensor, Tensor]:
    """Return L and U of the factors of matrices."""
    height, width = factors.sizes[1:]
    count = min(height, width)
    lower = tril(factors[:, :, :count], -1) + identity(factors, height, count)
    return lower, triu(factors[:, :count])


def permutation(pivots: Tensor, height: int) -> Tensor:
    """Return the matrices {batch, n, n} of booleans that bring rows swapped by pivots {batch, k} back."""
    rows = sequence(height, 0, 1, DataType.INT32, pivots.device).expand_dims((0, 2))
    sources = rows.broadcast_to((pivots.sizes[0], height, 1))
    for index in range(pivots.sizes[1]):
        place = pivots[:, index : index + 1].expand_dims(2) - 1
        sources = directml.gather_elements(sources, _swapped(rows, index, place).broadcast_to(sources.sizes), axis=1)
    return rows == sources.mT


def lu_solution(factors: Tensor, pivots: Tensor, b: Tensor, transposed: bool = False) -> Tensor:
    """Return the solution x of a @ x = b from the factors {..., n, n} and pivots {..., n} of a, or of its transpose.

    Batches broadcast.
    """
    order = factors.sizes[-1]
    swaps = permutation(pivots.reshape(-1, order), order).astype(b.data_type).reshape(factors.sizes)
    if transposed:
        y = triangular_solution(factors.mT, b, False)
        return matmul(swaps, triangular_solution(factors.mT, y, True, True))
    y = triangular_solution(factors, matmul(swaps.mT, b), False, True)
    return triangular_solution(factors, y, True)


def swap_signs(pivots: Tensor) -> Tensor:
    """Return 1, or -1 for an odd number of swapped rows {..., n}, in float32."""
    if not pivots.size:
        return filled(pivots, pivots.sizes[:-1], 1.0, DataType.FLOAT32)
    rows = sequence(pivots.sizes[-1], 1, 1, DataType.INT32, pivots.device)
    swaps = reduced((pivots != rows).astype(DataType.FLOAT32), ReduceFunction.SUM, -1, False)
    return 1.0 - (swaps % 2.0) * 2.0


# ---- QR --------------------------------------------------------------------------------------------------------------


def qr_factor(a: Tensor, size: int, with_q: bool = True) -> tuple[Tensor | None, Tensor]:
    """Return Q {batch, m, size} and R {batch, size, n}, signed as LAPACK does.

    Reflections make the columns of R 0 one by one.
    """
    batch, height, width = a.sizes
    r, rows = a, _row_numbers(a)
    reflections = list[tuple[Tensor, Tensor]]()
    for index in range(min(height, width)):
        vector, scale = _reflection(r[:, :, index : index + 1], rows, index)
        reflections.append((vector, scale))
        r = _reflected(r, vector, scale)
    upper = triu(r[:, :size])
    if not with_q:
        return None, upper
    q = identity(a, height, size).broadcast_to((batch, height, size))
    for vector, scale in reversed(reflections):
        q = _reflected(q, vector, scale)
    return q, upper


def _reflection(column: Tensor, rows: Tensor, index: int) -> tuple[Tensor, Tensor]:
    """Return v and t of the reflection 1 - t v v^T that makes a column {batch, n, 1} 0 below a row."""
    head = column[:, index : index + 1]
    tail = column._chosen(rows > index, 0.0)
    rest = reduced(tail, ReduceFunction.SUM_SQUARE, 1, True)
    norm = directml.element_wise_sqrt(head * head + rest)
    end = (-norm)._chosen(head >= 0, norm)
    is_zero = rest == 0
    ones = filled(head, (1, 1, 1), 1.0)
    scale = ((end - head) / ones._chosen(is_zero, end))._chosen(~is_zero, 0.0)
    vector = tail / ones._chosen(is_zero, head - end)
    return ones._chosen(rows == index, vector), scale


def _reflected(x: Tensor, vector: Tensor, scale: Tensor) -> Tensor:
    return x - (vector * scale) * matmul(vector.mT, x)
