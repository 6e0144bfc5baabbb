"""Systems of linear equations, inverses, determinants and exponentials of matrices, by ``dmlgpu.ops.linalg``."""

from __future__ import annotations

import torch

from dmlgpu.frontends.torch.operators.factorizations import check_float32, check_info, lu_factor, lu_unpack
from dmlgpu.frontends.torch.operators.matrix import check_square
from dmlgpu.frontends.torch.operators.registry import aten, composes
from dmlgpu.ops.diagonals import diagonal_of
from dmlgpu.ops.linalg import systems
from dmlgpu.ops.linalg.factorizations import (
    first_failure,
    identity,
    lu_solution,
    triangular_inverse,
    triangular_solution,
)
from dmlgpu.ops.linalg.operands import stacked
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.layout import broadcast_sizes
from dmlgpu.tensors.tensor import Tensor, matmul

Matrix = torch.Tensor

_ATEN = torch.ops.aten


# ---- by LU -----------------------------------------------------------------------------------------------------------


def _columns(b: Tensor, a: Tensor) -> Tensor:
    """Return right sides repeated to the batch that they and the matrices have together."""
    batch = broadcast_sizes("linalg.solve", [("A", a.sizes[:-2]), ("B", b.sizes[:-2])])
    return b.broadcast_to((*batch, *b.sizes[-2:]))


@aten("linalg_lu_solve")
def lu_solve(factors: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """Return the solution x of a @ x = b, or of x @ a = b, from the factors of a, or of its transpose."""
    if not left:
        return lu_solve(factors, pivots, b.mT, adjoint=not adjoint).mT
    columns = _columns(b, factors)
    return lu_solution(factors, pivots, columns, adjoint) if columns.size else filled(b, columns.sizes)


@aten("_linalg_solve_ex")
def solve(
    a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the solutions of systems, the factors, their pivots, and the index of the first pivot that is 0."""
    check_square(a.sizes, "linalg.solve")
    is_vector = b.ndim == 1 or b.sizes == a.sizes[:-1]
    factors, pivots, info = lu_factor(a)
    x = lu_solve(factors, pivots, b.expand_dims(-1) if is_vector else b, left=left)
    if check_errors:
        check_info(info, "torch.linalg.solve_ex", a.ndim == 2)
    return x.squeeze(-1) if is_vector else x, factors, pivots, info


@aten("linalg_inv_ex")
def inverse(a: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """Return inverses, and the index of the first pivot that is 0."""
    check_square(a.sizes, "linalg.inv")
    factors, pivots, info = lu_factor(a)
    if check_errors:
        check_info(info, "linalg.inv_ex", a.ndim == 2)
    return lu_solution(factors, pivots, identity(a, a.sizes[-1])) if a.size else a.copy(), info


def _factors_of_determinant(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factors and pivots that PyTorch's gradients expect: of the transpose if matrices are contiguous."""
    check_square(a.sizes, "linalg.det")
    factors, pivots, _ = lu_factor(a.mT if a.desc.is_packed else a)
    return factors, pivots


@aten("_linalg_det")
def determinant(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return determinants, the factors and their pivots."""
    factors, pivots = _factors_of_determinant(a)
    return systems.determinant(factors, pivots), factors, pivots


@aten("_linalg_slogdet")
def log_determinant(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return signs and logarithms of the magnitudes of determinants, the factors and their pivots."""
    factors, pivots = _factors_of_determinant(a)
    return *systems.log_determinant(factors, pivots), factors, pivots


@aten("linalg_lu")
def lu(a: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return P, L and U, whose product is the matrix."""
    factors, pivots, _ = lu_factor(a, pivot=pivot)
    return lu_unpack(factors, pivots, True, pivot)


# ---- by triangles ----------------------------------------------------------------------------------------------------


@aten("linalg_solve_triangular")
def solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """Return the solution x of a @ x = b, or of x @ a = b, for triangular matrices."""
    if left:
        return triangular_solution(a, b, upper, unitriangular)
    return triangular_solution(a.mT, b.mT, not upper, unitriangular).mT


@composes("cholesky")
def cholesky(a: Matrix, upper: bool = False) -> Matrix:
    """Return the factor of symmetric matrices."""
    factor, info = _ATEN.linalg_cholesky_ex(a, upper=upper)
    _ATEN._linalg_check_errors(info, "cholesky", is_matrix=a.dim() == 2)
    result: Matrix = factor
    return result


@aten("_cholesky_solve_helper")
def cholesky_solve(b: Tensor, factor: Tensor, upper: bool) -> Tensor:
    """Return the solution of a @ x = b for the Cholesky factor of a."""
    lower = factor.mT if upper else factor
    return triangular_solution(lower.mT, triangular_solution(lower, b, False), True)


@aten("cholesky_inverse")
def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    """Return the inverse of matrices from their Cholesky factors."""
    inverse = triangular_inverse(factor.mT if upper else factor, False)
    if factor.size and factor.graph is None:
        info = first_failure(diagonal_of(stacked(factor)) == 0).reshape(factor.sizes[:-2])
        check_info(info, "cholesky_inverse", factor.ndim == 2)
    return matmul(inverse.mT, inverse)


@aten("triangular_solve")
def triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the solution of a @ x = b, or of a^T @ x = b, for triangular matrices, and these."""
    matrices = a.mT if transpose else a
    return triangular_solution(matrices, b, upper != transpose, unitriangular), _columns(a, b)


@composes("linalg_lstsq", differentiable=True)
def least_squares(
    a: Matrix, b: Matrix, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return the solutions of least squares, or of the least norm, of matrices of full rank, and squared residuals."""
    if driver not in {None, "gels"}:
        raise RuntimeError(
            f"torch.linalg.lstsq: parameter `driver` should be one of (gels) on the dml device, got {driver!r}"
        )
    is_vector = b.dim() == 1 or b.shape == a.shape[:-1]
    columns = b.unsqueeze(-1) if is_vector else b
    batch = torch.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    a, columns = a.expand(*batch, *a.shape[-2:]), columns.expand(*batch, *columns.shape[-2:])
    height, width = a.shape[-2:]
    residuals = a.new_empty(0)
    if height >= width:
        q, r = _ATEN.linalg_qr(a)
        x = _ATEN.linalg_solve_triangular(r, torch.matmul(q.mT, columns), upper=True)
        if height > width:
            residuals = (torch.matmul(a, x) - columns).square().sum(-2)
    else:
        q, r = _ATEN.linalg_qr(a.mT)
        x = torch.matmul(q, _ATEN.linalg_solve_triangular(r.mT, columns, upper=False))
    return x.squeeze(-1) if is_vector else x, residuals, a.new_empty(0, dtype=torch.int64), a.new_empty(0)


# ---- exponentials ----------------------------------------------------------------------------------------------------


@aten("linalg_matrix_exp", wide=True)
def matrix_exp(a: Tensor) -> Tensor:
    """Return exponentials of matrices."""
    check_square(a.sizes, "linalg.matrix_exp")
    if not a.size:
        return filled(a, a.sizes)
    check_float32(a, "linalg_matrix_exp")
    return systems.exponential(stacked(a)).reshape(a.sizes)
