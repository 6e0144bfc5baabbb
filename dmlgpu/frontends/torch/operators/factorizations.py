"""Cholesky, LU and QR factorizations, eigenvalues and singular values of matrices, by ``dmlgpu.ops.linalg``."""

from __future__ import annotations

import torch

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.torch.operators.matrix import check_square
from dmlgpu.frontends.torch.operators.registry import Unsupported, aten
from dmlgpu.ops import directml
from dmlgpu.ops.diagonals import diagonal_of
from dmlgpu.ops.linalg import factorizations
from dmlgpu.ops.linalg.decompositions import eigh_of, svd_of, values_of
from dmlgpu.ops.linalg.factorizations import cholesky_factor, first_failure, identities, qr_factor
from dmlgpu.ops.linalg.operands import stacked
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.recorded_call import refuse_repetition
from dmlgpu.tensors.tensor import Tensor, matmul


def check_float32(a: Tensor, name: str) -> None:
    """Check that matrices are float32.

    Raises:
        Unsupported: If they are not.
    """
    if a.data_type is not DataType.FLOAT32:
        raise Unsupported(f"{name} computes float32")


def check_info(info: Tensor, name: str, is_matrix: bool) -> None:
    """Raise PyTorch's error if a factorization failed; reads the indices of failed columns."""
    refuse_repetition()
    torch.ops.aten._linalg_check_errors(torch.from_numpy(info.numpy()), name, is_matrix=is_matrix)


@aten("linalg_cholesky_ex")
def cholesky(a: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """Return the factors of symmetric matrices, and the order of the first minor that is not positive."""
    check_square(a.sizes, "linalg.cholesky")
    batch = a.sizes[:-2]
    if not a.size:
        return filled(a, a.sizes), filled(a, batch, 0, DataType.INT32)
    check_float32(a, "linalg_cholesky_ex")
    matrices = stacked(a)
    lower, pivots = cholesky_factor(matrices.mT if upper else matrices)
    info = first_failure(~(pivots > 0)).reshape(batch)
    if check_errors:
        check_info(info, "linalg.cholesky_ex", not batch)
    return (lower.mT if upper else lower).reshape(a.sizes), info


@aten("linalg_lu_factor_ex")
def lu_factor(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return L, without its diagonal of ones, and U in one matrix, the pivots, and the index of the first pivot that is
    0."""
    batch, count = a.sizes[:-2], min(a.sizes[-2:])
    if not a.size:
        return a.copy(), filled(a, (*batch, count), 0, DataType.INT32), filled(a, batch, 0, DataType.INT32)
    check_float32(a, "linalg_lu_factor_ex")
    factors, pivots = factorizations.lu_factor(stacked(a), pivot)
    info = first_failure(diagonal_of(factors) == 0).reshape(batch)
    if check_errors:
        check_info(info, "linalg.lu_factor_ex", not batch)
    return factors.reshape(a.sizes), pivots.reshape(*batch, count), info


@aten("lu_unpack")
def lu_unpack(
    factors: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Return P, L and U of `linalg_lu_factor_ex`; tensors without elements for those that were not requested."""
    (height, width), batch = factors.sizes[-2:], factors.sizes[:-2]
    count = min(height, width)
    lower = upper = permutation = filled(factors, (0,))
    if unpack_data and factors.size:
        lower, upper = factorizations.lu_triangles(stacked(factors))
        lower, upper = lower.reshape(*batch, height, count), upper.reshape(*batch, count, width)
    elif unpack_data:
        lower, upper = filled(factors, (*batch, height, count)), filled(factors, (*batch, count, width))
    if unpack_pivots:
        permutation = filled(factors, (*batch, height, height))
        if permutation.size:
            permutation = factorizations.permutation(pivots.reshape(-1, count), height).astype(factors.data_type)
            permutation = permutation.reshape(*batch, height, height)
    return permutation, lower, upper


@aten("linalg_qr")
def qr(a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Return Q and R, signed as LAPACK does; Q has no elements if it was not requested."""
    (height, width), batch = a.sizes[-2:], a.sizes[:-2]
    size = height if mode == "complete" else min(height, width)
    if not a.size:
        return identities(a, height, size), filled(a, (*batch, size, width))
    check_float32(a, "linalg_qr")
    q, upper = qr_factor(stacked(a), size, mode != "r")
    upper = upper.reshape(*batch, size, width)
    return filled(a, (0,)) if q is None else q.reshape(*batch, height, size), upper


@aten("_linalg_svd")
def svd(
    a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return U, singular values, and the transpose of V; U and V have no elements if they were not requested."""
    check_float32(a, "_linalg_svd")
    if driver is not None:
        raise RuntimeError("torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs")
    return svd_of(a, full_matrices) if compute_uv else (filled(a, (0,)), values_of(a), filled(a, (0,)))


@aten("_linalg_eigh")
def eigh(a: Tensor, UPLO: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    """Return eigenvalues in ascending order, and eigenvectors, which have no elements if they were not requested."""
    check_square(a.sizes, "linalg.eigh")
    check_float32(a, "_linalg_eigh")
    values, vectors = eigh_of(a.mT if UPLO.upper() == "U" else a)
    return values, vectors if compute_v else filled(a, (0,))


@aten("linalg_matrix_sqrth")
def matrix_sqrth(a: Tensor) -> Tensor:
    """Return the square roots of symmetric positive-definite matrices, of which the lower triangles are read."""
    values, vectors = eigh(a)
    return matmul(vectors * directml.element_wise_sqrt(values).expand_dims(-2), vectors.mT)


@aten("linalg_polar")
def polar(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return matrices of orthonormal columns, and symmetric positive-semidefinite ones, whose product is the input."""
    u, values, v = svd(a)
    return matmul(u, v), matmul(v.mT * values.expand_dims(-2), v)
