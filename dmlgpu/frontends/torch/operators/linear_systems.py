"""Systems of linear equations, inverses, determinants and exponentials of matrices, by their factorizations."""

from __future__ import annotations

import math

import torch

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.torch.operators.matrix import check_square
from dmlgpu.frontends.torch.operators.registry import Unsupported, aten, composes
from dmlgpu.ops import directml
from dmlgpu.ops.creation import eye
from dmlgpu.ops.reductions import reduced
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.tensor import Tensor, matmul

Matrix = torch.Tensor

_ATEN = torch.ops.aten


def _factors_of_determinant(a: Matrix) -> tuple[Matrix, Matrix]:
    """Return the factors and pivots that PyTorch's gradients expect: of the transpose if matrices are contiguous."""
    check_square(a.shape, "linalg.det")
    factors, pivots, _ = _ATEN.linalg_lu_factor_ex(a.mT if a.is_contiguous() else a)
    return factors, pivots


def _solve(lower_or_upper: Matrix, b: Matrix, upper: bool, unitriangular: bool = False) -> Matrix:
    solution: Matrix = _ATEN.linalg_solve_triangular(lower_or_upper, b, upper=upper, unitriangular=unitriangular)
    return solution


def _unit(a: Matrix) -> Matrix:
    """Return an identity matrix of the order of others."""
    return torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)


# ---- by LU -----------------------------------------------------------------------------------------------------------


@composes("linalg_lu_solve")
def lu_solve(factors: Matrix, pivots: Matrix, b: Matrix, *, left: bool = True, adjoint: bool = False) -> Matrix:
    """Return the solution x of a @ x = b, or of x @ a = b, from the factors of a, or of its
    transpose."""
    if not left:
        return lu_solve(factors, pivots, b.mT, adjoint=not adjoint).mT
    permutation, lower, upper = _ATEN.lu_unpack(factors, pivots)
    if adjoint:
        y = _solve(upper.mT, b, False)
        return torch.matmul(permutation, _solve(lower.mT, y, True, True))
    y = _solve(lower, torch.matmul(permutation.mT, b), False, True)
    return _solve(upper, y, True)


@composes("_linalg_solve_ex")
def solve(
    a: Matrix, b: Matrix, *, left: bool = True, check_errors: bool = False
) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return the solutions of systems, the factors, their pivots, and the number of the first pivot that is 0."""
    check_square(a.shape, "linalg.solve")
    is_vector = b.dim() == 1 or b.shape == a.shape[:-1]
    columns = b.unsqueeze(-1) if is_vector else b
    batch = torch.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    factors, pivots, info = _ATEN.linalg_lu_factor_ex(a)
    columns = columns.expand(*batch, *columns.shape[-2:])
    x = lu_solve(factors, pivots, columns, left=left)
    if check_errors:
        torch._linalg_check_errors(info, "torch.linalg.solve_ex", is_matrix=a.dim() == 2)
    return (x.squeeze(-1) if is_vector else x).contiguous(), factors, pivots, info


@composes("linalg_inv_ex")
def inverse(a: Matrix, *, check_errors: bool = False) -> tuple[Matrix, Matrix]:
    """Return inverses, and the number of the first pivot that is 0."""
    check_square(a.shape, "linalg.inv")
    x, _, _, info = solve(a, _unit(a))
    if check_errors:
        torch._linalg_check_errors(info, "linalg.inv_ex", is_matrix=a.dim() == 2)
    return x, info


def _signs(factors: Matrix, pivots: Matrix) -> Matrix:
    """Return 1, or -1 for an odd number of swaps."""
    rows = torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype, device=pivots.device)
    odd = (pivots != rows).sum(-1) % 2
    return 1 - 2 * odd.to(factors.dtype)


@composes("_linalg_det")
def determinant(a: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Return determinants, the factors and their pivots."""
    factors, pivots = _factors_of_determinant(a)
    return factors.diagonal(0, -2, -1).prod(-1) * _signs(factors, pivots), factors, pivots


@composes("_linalg_slogdet")
def log_determinant(a: Matrix) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return signs and logarithms of the magnitudes of determinants, the factors and their pivots."""
    factors, pivots = _factors_of_determinant(a)
    diagonal = factors.diagonal(0, -2, -1)
    signs = diagonal.sign().prod(-1) * _signs(factors, pivots)
    return signs, diagonal.abs().log().sum(-1), factors, pivots


@composes("linalg_lu")
def lu(a: Matrix, *, pivot: bool = True) -> tuple[Matrix, Matrix, Matrix]:
    """Return P, L and U, whose product is the matrix."""
    factors, pivots, _ = _ATEN.linalg_lu_factor_ex(a, pivot=pivot)
    result: tuple[Matrix, Matrix, Matrix] = _ATEN.lu_unpack(factors, pivots, True, pivot)
    return result


# ---- by Cholesky and QR ----------------------------------------------------------------------------------------------


@composes("cholesky")
def cholesky(a: Matrix, upper: bool = False) -> Matrix:
    """Return the factor of symmetric matrices."""
    factor, info = _ATEN.linalg_cholesky_ex(a, upper=upper)
    torch._linalg_check_errors(info, "cholesky", is_matrix=a.dim() == 2)
    result: Matrix = factor
    return result


@composes("_cholesky_solve_helper")
def cholesky_solve(b: Matrix, factor: Matrix, upper: bool) -> Matrix:
    """Return the solution of a @ x = b for the Cholesky factor of a."""
    lower = factor.mT if upper else factor
    return _solve(lower.mT, _solve(lower, b, False), True)


@composes("cholesky_inverse")
def cholesky_inverse(factor: Matrix, upper: bool = False) -> Matrix:
    """Return the inverse of matrices from their Cholesky factors."""
    part = _solve(factor.mT if upper else factor, _unit(factor), False)
    return torch.matmul(part.mT, part)


@composes("triangular_solve")
def triangular_solve(
    b: Matrix, a: Matrix, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Matrix, Matrix]:
    """Return the solution of a @ x = b, or of a^T @ x = b, for triangular matrices, and these."""
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    return _solve(a.mT if transpose else a, b, upper != transpose, unitriangular), a.clone()


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
        x = _solve(r, torch.matmul(q.mT, columns), True)
        if height > width:
            residuals = (torch.matmul(a, x) - columns).square().sum(-2)
    else:
        q, r = _ATEN.linalg_qr(a.mT)
        x = torch.matmul(q, _solve(r.mT, columns, False))
    return x.squeeze(-1) if is_vector else x, residuals, a.new_empty(0, dtype=torch.int64), a.new_empty(0)


# ---- exponentials ----------------------------------------------------------------------------------------------------

_TERMS = 11
"""Terms of the Taylor series, for norms up to 1."""

_SQUARINGS = 16
"""Most times that a matrix is halved, for norms up to 65536."""


@aten("linalg_matrix_exp")
def matrix_exp(a: Tensor) -> Tensor:
    """Return exponentials of matrices: a Taylor series of the matrix halved some times, squared as often."""
    check_square(a.sizes, "linalg.matrix_exp")
    if not a.size:
        return filled(a, a.sizes)
    if a.data_type is not DataType.FLOAT32:
        raise Unsupported("linalg_matrix_exp computes float32")
    matrices = a.reshape(-1, *a.sizes[-2:])
    norms = reduced(reduced(abs(matrices), ReduceFunction.SUM, 1, True), ReduceFunction.MAX, 2, True)
    halvings = directml.element_wise_ceil(directml.element_wise_log(norms) * (1 / math.log(2)))
    halvings = directml.element_wise_clip1(halvings, min=0.0, max=float(_SQUARINGS))
    small = matrices * directml.element_wise_exp(halvings * -math.log(2))
    unit = eye(a.sizes[-1], dtype="float32", device=a.device).expand_dims(0)
    result: Tensor = unit.broadcast_to(matrices.sizes)
    for term in range(_TERMS, 0, -1):
        result = unit + matmul(small * (1 / term), result)
    for step in range(_SQUARINGS):
        result = matmul(result, result)._chosen(halvings > step, result)
    return result.reshape(a.sizes)
