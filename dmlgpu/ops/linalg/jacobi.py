"""Singular values and eigenvalues of float32 matrices by Jacobi's rotations, all matrices of a batch at the same time.

Matrices are {batch, rows, columns}, none of them 0. Rotations make pairs of columns orthogonal, half of the columns
with the other half in a round, and a sweep of rounds pairs every column with every other one. The number of sweeps is
fixed, so that nothing is read from the device.

Gradients are those of the first-order change of the results, which is added as a term that is 0; they do not follow the
rotations.
"""

from __future__ import annotations

import math

from dmlgpu.catalog.enums import ReduceFunction
from dmlgpu.ops import directml
from dmlgpu.ops.creation import tril
from dmlgpu.ops.diagonals import diagonal_of
from dmlgpu.ops.linalg.factorizations import identity, qr_factor
from dmlgpu.ops.reductions import ordered, reduced
from dmlgpu.ops.shape import joined
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.memory import outer_tapes, tapes
from dmlgpu.tensors.tensor import Tensor, matmul

_SWEEPS = 3
"""Sweeps in addition to the binary logarithm of the number of columns; convergence is quadratic at the end."""

_TINY = 1e-30
"""Added to gaps that may be 0: orthogonal columns of equal length are not rotated, others by 45 degrees."""


def _total(x: Tensor, axis: int) -> Tensor:
    """Return sums along an axis, which stays."""
    return reduced(x, ReduceFunction.SUM, axis, True)


def _one_if_zero(x: Tensor) -> Tensor:
    return x._chosen(x != 0, 1.0)


def _reciprocal(x: Tensor) -> Tensor:
    """Return reciprocals, 0 of 0."""
    return (1.0 / _one_if_zero(x))._chosen(x != 0, 0.0)


def right_vectors(a: Tensor) -> Tensor:
    """Return orthonormal v {batch, n, n} such that the columns of a @ v are orthogonal, for a of magnitude 1."""
    batch, height, width = a.sizes
    half = -(-width // 2)
    if width % 2:  # a column of zeros is never rotated, and is the last one again after each sweep
        a = joined([a, filled(a, (batch, height, 1))], 2)
    both = joined([a, identity(a, 2 * half).broadcast_to((batch, 2 * half, 2 * half))], 1)
    both = both.reshape(batch, height + 2 * half, 2, half)
    for _ in range((_SWEEPS + math.ceil(math.log2(2 * half))) * (2 * half - 1)):
        columns = both[:, :height]
        products = reduced(columns[:, :, 0] * columns[:, :, 1], ReduceFunction.SUM, 1, True)
        squares = reduced(columns, ReduceFunction.SUM_SQUARE, 1, True)
        gaps = squares[:, :, 1] - squares[:, :, 0] + _TINY
        doubled_angles = directml.element_wise_atan(products / gaps, scale_bias=(2.0, 0.0))
        cosines = both * directml.element_wise_cos(doubled_angles, scale_bias=(0.5, 0.0)).expand_dims(2)
        sines = both * directml.element_wise_sin(doubled_angles, scale_bias=(0.5, 0.0)).expand_dims(2)
        left, right = cosines[:, :, 0] - sines[:, :, 1], sines[:, :, 0] + cosines[:, :, 1]
        parts = [left, right]
        if half > 1:  # the next pairs: all columns but the first move by one place around both halves
            parts = [left[:, :, :1], right[:, :, :1], left[:, :, 1:-1], right[:, :, 1:], left[:, :, -1:]]
        both = joined([part for part in parts if part.size], 2).reshape(both.sizes)
    vectors = both.reshape(batch, height + 2 * half, 2 * half)[:, height : height + width, :width]
    return vectors / _one_if_zero(reduced(vectors, ReduceFunction.L2, 1, True))


def _sorted(keys: Tensor, vectors: Tensor, descending: bool) -> Tensor:
    """Return the columns of {batch, n, n} in the order of their keys {batch, 1, n}."""
    order = ordered(keys, axis=2, descending=descending).indices
    return directml.gather_elements(vectors, order.broadcast_to(vectors.sizes), axis=2)


def change_of(a: Tensor) -> Tensor | None:
    """Return a term that is 0 and has the gradient of `a`; None if no gradients are computed."""
    if not tapes.get():
        return None
    with outer_tapes():
        constant = a + 0.0
    return a - constant


def eigen_factor(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues {batch, n} in ascending order, and eigenvectors {batch, n, n}, of symmetric matrices, of which
    the lower triangle is read."""
    a = tril(a) + tril(a, -1).mT
    if (change := change_of(a)) is not None:
        with outer_tapes():
            values, vectors = eigen_factor(a)
        change = matmul(vectors.mT, matmul(change, vectors))
        gaps = values.expand_dims(1) - values.expand_dims(2)
        turned = vectors + matmul(vectors, change * _reciprocal(gaps))
        return values + diagonal_of(change), turned
    norm = _one_if_zero(reduced(_total(abs(a), 2), ReduceFunction.MAX, 1, True))
    scaled = a / norm
    vectors = right_vectors(scaled + identity(a, a.sizes[1]))  # eigenvalues from 0 to 2
    values = _total(vectors * matmul(scaled, vectors), 1)
    vectors = _sorted(values, vectors, False)
    values = _total(vectors * matmul(scaled, vectors), 1) * norm
    return values.squeeze(1), vectors


def singular_values(a: Tensor) -> Tensor:
    """Return singular values {batch, min(m, n)} in descending order."""
    if tapes.get():
        return singular_factor(a, False)[1]
    a = a.mT if a.sizes[1] < a.sizes[2] else a
    scale = _one_if_zero(reduced(abs(a), ReduceFunction.MAX, (1, 2), True))
    norms = reduced(matmul(a / scale, right_vectors(a / scale)), ReduceFunction.L2, 1, True)
    return (ordered(norms, axis=2, descending=True).values * scale).squeeze(1)


def singular_factor(a: Tensor, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return U, singular values {batch, min(m, n)} in descending order, and the transpose of V.

    Args:
        a: {batch, m, n}.
        full: Whether U and V are square, else they have min(m, n) columns.
    """
    if a.sizes[1] < a.sizes[2]:
        u, values, vt = singular_factor(a.mT, full)
        return vt.mT, values, u.mT
    if (change := change_of(a)) is not None:
        with outer_tapes():
            u, values, vt = singular_factor(a, full)
        return _changed_singular_factor(change, u, values, vt)
    height, width = a.sizes[1:]
    scale = _one_if_zero(reduced(abs(a), ReduceFunction.MAX, (1, 2), True))
    scaled = a / scale
    v = right_vectors(scaled)
    v = _sorted(reduced(matmul(scaled, v), ReduceFunction.L2, 1, True), v, True)
    products = matmul(scaled, v)
    values = reduced(products, ReduceFunction.L2, 1, False) * scale.squeeze(1)
    basis, upper = qr_factor(products, height if full else width)  # orthonormal also where singular values are 0
    assert basis is not None
    signs = filled(upper, (1, 1), 1.0)._chosen(diagonal_of(upper) >= 0, -1.0)
    signs = signs.expand_dims(1)
    if height > width and full:
        signs = joined([signs, filled(signs, (a.sizes[0], 1, height - width), 1.0)], 2)
    return basis * signs, values, v.mT


def _changed_singular_factor(change: Tensor, u: Tensor, values: Tensor, vt: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return U, singular values and the transpose of V of m >= n with the gradients of a change of the matrix.

    The extra columns of a square U span a complement that is not unique: they are constants.
    """
    width = vt.sizes[1]
    basis = u[:, :, :width]
    inner = matmul(matmul(basis.mT, change), vt.mT)
    rows, columns = values.expand_dims(2), values.expand_dims(1)
    gaps = columns * columns - rows * rows
    weights = _reciprocal(gaps)
    outside = matmul(change, vt.mT) - matmul(basis, inner)
    changed = basis + matmul(basis, weights * (inner * columns + rows * inner.mT)) + outside * _reciprocal(columns)
    v = vt.mT + matmul(vt.mT, weights * (rows * inner + inner.mT * columns))
    u = changed if u.sizes[2] == width else joined([changed, u[:, :, width:]], 2)
    return u, values + diagonal_of(inner), v.mT
