"""Cholesky, LU and QR factorizations of matrices, column by column, all matrices of a batch at the same time."""

from __future__ import annotations

import numpy as np
import torch

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.torch import adapters
from dmlgpu.frontends.torch.operators.matrix import check_square, triangular_inverse
from dmlgpu.frontends.torch.operators.registry import Unsupported, aten
from dmlgpu.frontends.torch.storage import torch_of
from dmlgpu.ops import directml
from dmlgpu.ops.creation import sequence, tril, triu
from dmlgpu.ops.reductions import argmax, reduced
from dmlgpu.ops.shape import joined
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.session import refuse_repetition
from dmlgpu.tensors.tensor import Tensor, matmul

_IF = directml.element_wise_if

_BLOCK = 32
"""Columns of a Cholesky factor that are computed one by one."""


def _matrices(a: Tensor, name: str) -> Tensor:
    """Return matrices as {batch, rows, columns}."""
    if a.data_type is not DataType.FLOAT32:
        raise Unsupported(f"{name} computes float32")
    return a.reshape(-1, *a.sizes[-2:])


def _check(info: Tensor, name: str, is_matrix: bool) -> None:
    """Raise PyTorch's error if a factorization failed; reads the numbers of failed columns."""
    refuse_repetition()
    torch._linalg_check_errors(torch_of(info, adapters.index_of(info.device)), name, is_matrix=is_matrix)


def _first(failed: Tensor) -> Tensor:
    """Return for each row {batch, columns} the number from 1 on of the first column that failed, 0 if none did."""
    count = failed.sizes[-1]
    numbers = sequence(count, 1, 1, DataType.INT32, failed.device).expand_dims(0)
    first = reduced(numbers.broadcast_to(failed.sizes)._chosen(failed, count + 1), ReduceFunction.MIN, 1, False)
    return first._chosen(first <= count, 0)


# ---- Cholesky --------------------------------------------------------------------------------------------------------


@aten("linalg_cholesky_ex")
def cholesky(a: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """Return the factors of symmetric matrices, and the order of the first minor that is not positive."""
    check_square(a.sizes, "linalg.cholesky")
    batch, order = a.sizes[:-2], a.sizes[-1]
    if not a.size:
        return filled(a, a.sizes), filled(a, batch, 0, DataType.INT32)
    matrices = _matrices(a, "linalg_cholesky_ex")
    lower, pivots = _cholesky(matrices.mT if upper else matrices)
    info = _first(~(pivots > 0)).reshape(batch)
    if check_errors:
        _check(info, "linalg.cholesky_ex", not batch)
    return (lower.mT if upper else lower).reshape(*batch, order, order), info


def _cholesky(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return lower factors of {batch, n, n}, and the squares of their diagonals {batch, n}."""
    order = a.sizes[-1]
    if order > _BLOCK:
        half = -(-order // (2 * _BLOCK)) * _BLOCK
        first, first_pivots = _cholesky(a[:, :half, :half])
        coupling = matmul(a[:, half:, :half], triangular_inverse(first, False).mT)
        second, second_pivots = _cholesky(a[:, half:, half:] - matmul(coupling, coupling.mT))
        zeros = filled(a, (a.sizes[0], half, order - half))
        rows = joined([joined([first, zeros], 2), joined([coupling, second], 2)], 1)
        return rows, joined([first_pivots, second_pivots], 1)
    columns, pivots = list[Tensor](), list[Tensor]()
    for number in range(order):
        pivot = a[:, number : number + 1, number : number + 1]
        column = a[:, :, number : number + 1] / directml.element_wise_sqrt(pivot)
        columns.append(column)
        pivots.append(pivot)
        if number < order - 1:
            a = a - column * column.mT
    return tril(joined(columns, 2)), joined(pivots, 1).squeeze(2)


# ---- LU --------------------------------------------------------------------------------------------------------------


def _swapped(rows: Tensor, number: int, pivot: Tensor) -> Tensor:
    """Return row numbers {1, n, 1} with one and that of a pivot {batch, 1, 1} swapped."""
    swapped: Tensor = _IF(rows == number, pivot, _IF(rows == pivot, number, rows))
    return swapped


def _row_numbers(a: Tensor) -> Tensor:
    return sequence(a.sizes[1], 0, 1, DataType.INT32, a.device).expand_dims((0, 2))


@aten("linalg_lu_factor_ex")
def lu_factor(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return L, without its diagonal of ones, and U in one matrix, the rows swapped, and the first pivot that is 0."""
    batch, count = a.sizes[:-2], min(a.sizes[-2:])
    if not a.size:
        return a.copy(), filled(a, (*batch, count), 0, DataType.INT32), filled(a, batch, 0, DataType.INT32)
    factors, pivots = _lu(_matrices(a, "linalg_lu_factor_ex"), pivot)
    diagonal = joined([factors[:, number, number : number + 1] for number in range(count)], 1)
    info = _first(diagonal == 0).reshape(batch)
    if check_errors:
        _check(info, "linalg.lu_factor_ex", not batch)
    return factors.reshape(a.sizes), pivots.reshape(*batch, count), info


def _lu(a: Tensor, with_pivots: bool) -> tuple[Tensor, Tensor]:
    """Return the factors of {batch, m, n} and the numbers of swapped rows, from 1 on."""
    rows, columns = _row_numbers(a), sequence(a.sizes[2], 0, 1, DataType.INT32, a.device).expand_dims((0, 1))
    pivots = list[Tensor]()
    for number in range(min(a.sizes[1:])):
        place = filled(rows, (a.sizes[0], 1, 1), number)
        if with_pivots:
            magnitudes = abs(a[:, :, number : number + 1])._chosen(rows >= number, -1.0)
            place = argmax(magnitudes, 1, True).astype(DataType.INT32)
            order = _swapped(rows, number, place)
            a = directml.gather_elements(a, order.broadcast_to(a.sizes), axis=1)
        pivots.append(place + 1)
        below, column = rows > number, a[:, :, number : number + 1]
        pivot = column[:, number : number + 1]
        factors = (column / filled(pivot, (1, 1, 1), 1)._chosen(pivot == 0, pivot))._chosen(below, 0.0)
        row = a[:, number : number + 1]._chosen(columns > number, 0.0)
        a = factors._chosen(below & (columns == number), a - factors * row)
    return a, joined(pivots, 1).squeeze(2)


@aten("lu_unpack")
def lu_unpack(
    factors: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Return P, L and U of `linalg_lu_factor_ex`; tensors without elements for those that were not requested."""
    nothing = filled(factors, (0,))
    (height, width), batch = factors.sizes[-2:], factors.sizes[:-2]
    count = min(height, width)
    lower = upper = permutation = nothing
    if unpack_data:
        upper = triu(factors[..., :count, :]) if factors.size else filled(factors, (*batch, count, width))
        lower = filled(factors, (*batch, height, count))
        if factors.size:
            unit = factors._beside(np.eye(height, count, dtype=factors.dtype))
            lower = tril(factors[..., :, :count], -1) + unit
    if unpack_pivots:
        permutation = filled(factors, (*batch, height, height))
        if permutation.size:
            permutation = _permutation(pivots.reshape(-1, count), height).astype(factors.data_type)
            permutation = permutation.reshape(*batch, height, height)
    return permutation, lower, upper


def _permutation(pivots: Tensor, height: int) -> Tensor:
    """Return the matrices {batch, n, n} that bring rows swapped by pivots {batch, k} back."""
    rows = sequence(height, 0, 1, DataType.INT32, pivots.device).expand_dims((0, 2))
    sources = rows.broadcast_to((pivots.sizes[0], height, 1))
    for number in range(pivots.sizes[1]):
        place = pivots[:, number : number + 1].expand_dims(2) - 1
        sources = directml.gather_elements(sources, _swapped(rows, number, place).broadcast_to(sources.sizes), axis=1)
    return rows == sources.mT


# ---- QR --------------------------------------------------------------------------------------------------------------


@aten("linalg_qr")
def qr(a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Return Q and R, signed as LAPACK does: reflections make the columns of R 0 one by one."""
    (height, width), batch = a.sizes[-2:], a.sizes[:-2]
    count = min(height, width)
    size = height if mode == "complete" else count
    if not a.size:
        unit = a._beside(np.eye(height, size, dtype=a.dtype))
        q = unit.broadcast_to((*batch, height, size)) if height and size and 0 not in batch else None
        return filled(a, (*batch, height, size)) if q is None else q, filled(a, (*batch, size, width))
    r = _matrices(a, "linalg_qr")
    reflections = list[tuple[Tensor, Tensor]]()
    rows = _row_numbers(r)
    for number in range(count):
        vector, scale = _reflection(r[:, :, number : number + 1], rows, number)
        reflections.append((vector, scale))
        r = _reflected(r, vector, scale)
    upper = triu(r[:, :size]).reshape(*batch, size, width)
    if mode == "r":
        return filled(a, (0,)), upper
    q = r._beside(np.eye(height, size, dtype=a.dtype)).broadcast_to((r.sizes[0], height, size))
    for vector, scale in reversed(reflections):
        q = _reflected(q, vector, scale)
    return q.reshape(*batch, height, size), upper


def _reflection(column: Tensor, rows: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Return v and t of the reflection 1 - t v v^T that makes a column {batch, n, 1} 0 below a row."""
    head = column[:, number : number + 1]
    tail = column._chosen(rows > number, 0.0)
    rest = reduced(tail, ReduceFunction.SUM_SQUARE, 1, True)
    norm = directml.element_wise_sqrt(head * head + rest)
    end = (-norm)._chosen(head >= 0, norm)
    is_zero = rest == 0
    ones = filled(head, (1, 1, 1), 1.0)
    scale = ((end - head) / ones._chosen(is_zero, end))._chosen(~is_zero, 0.0)
    vector = tail / ones._chosen(is_zero, head - end)
    return ones._chosen(rows == number, vector), scale


def _reflected(x: Tensor, vector: Tensor, scale: Tensor) -> Tensor:
    return x - (vector * scale) * matmul(vector.mT, x)
