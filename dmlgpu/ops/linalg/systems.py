"""Systems of linear equations, inverses, determinants, powers and exponentials of matrices."""

from __future__ import annotations

import contextlib
import math
from typing import NamedTuple

import numpy as np

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.common.coercion import argument, as_index, boolean, real
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import directml
from dmlgpu.ops.diagonals import diagonal_of
from dmlgpu.ops.linalg.decompositions import values_of
from dmlgpu.ops.linalg.factorizations import identity, lu_factor, lu_solution, swap_signs, triangular_solution
from dmlgpu.ops.linalg.jacobi import change_of, singular_factor
from dmlgpu.ops.linalg.operands import matrices, square_matrices, stacked
from dmlgpu.ops.precision import in_float32, result_in, result_type
from dmlgpu.ops.reductions import reduced
from dmlgpu.tensors.calls import NUMERIC, Array, Operand, Where, caller, check_kind, eager, filled, tensor_of
from dmlgpu.tensors.layout import broadcast_sizes
from dmlgpu.tensors.memory import outer_tapes
from dmlgpu.tensors.tensor import Tensor, matmul

__all__ = [
    "LstsqResult", "SlogdetResult", "det", "inv", "lstsq", "matrix_exp", "matrix_power", "matrix_rank", "pinv",
    "slogdet", "solve", "solve_triangular",
]  # fmt: skip


class SlogdetResult(NamedTuple):
    """Outputs of ``slogdet``.

    Attributes:
        sign: 1, -1, or 0 for singular matrices.
        logabsdet: Natural logarithms of the magnitudes of determinants, -inf for singular matrices.
    """

    sign: Array
    logabsdet: Array


class LstsqResult(NamedTuple):
    """Outputs of ``lstsq``.

    Attributes:
        solution: Least-squares solutions, {..., N} or {..., N, K}.
        residuals: Sums of squared residuals of each column of `b`, {...} or {..., K}.
        rank: Ranks of the matrices, int64.
        singular_values: Singular values of the matrices in descending order.
    """

    solution: Array
    residuals: Array
    rank: Array
    singular_values: Array


# ---- by LU -----------------------------------------------------------------------------------------------------------


@eager
def solve(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the solutions x of systems of linear equations a @ x = b.

    Args:
        a: Tensor or array {..., N, N} of float32, float16 or integers.
        b: A vector {N}, or matrices {..., N, K}, as NumPy has it. Leading axes broadcast.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {..., N} if `b` is a vector, else {..., N, K}; float16 if both operands are, else float32 (an array if
        both are arrays). Solutions of singular systems have inf or NaN; nothing is raised.

    Raises:
        InvalidArgument: If `a` is not square matrices, or shapes do not fit.

    Examples:
        >>> ops.linalg.solve([[2.0, 0.0], [0.0, 4.0]], [1.0, 2.0])
        array([0.5, 0.5], dtype=float32)

    See also:
        `inv`, `lstsq`, `solve_triangular`.

    Computed in float32 by the LU decomposition with pivots, as `lu`, then GEMM
    (`ns-directml-dml_gemm_operator_desc`) with inverses of its triangles.
    """
    matrix, right = square_matrices("a", a), in_float32("b", b)
    order = matrix.sizes[-1]
    columns, sizes = _right_side(matrix, right)
    if 0 in (*columns.sizes, *matrix.sizes):
        return result_in(result_type(a, b), filled(right, sizes))
    factors, pivots = lu_factor(stacked(matrix))
    x = lu_solution(factors.reshape(matrix.sizes), pivots.reshape(*matrix.sizes[:-2], order), columns)
    return result_in(result_type(a, b), x.reshape(sizes))


def _right_side(matrix: Tensor, b: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """Return the right side {..., M, K} of systems with matrices {..., M, N}, and the sizes of their solutions."""
    columns = b.expand_dims(1) if b.ndim == 1 else b
    height, width = matrix.sizes[-2:]
    if columns.ndim < 2 or columns.sizes[-2] != height:
        raise InvalidArgument(
            f"{caller()}: b must be a vector of {height} elements or matrices of {height} rows, for matrices of sizes "
            f"{list(matrix.sizes)}, got sizes {list(b.sizes)}"
        )
    batch = broadcast_sizes(caller(), [("a's stack", matrix.sizes[:-2]), ("b's stack", columns.sizes[:-2])])
    return columns, (*batch, width) if b.ndim == 1 else (*batch, width, columns.sizes[-1])


@eager
def inv(x: Operand, *, device: Where = None) -> Array:
    """Return the inverses of matrices.

    Args:
        x: Tensor or array {..., N, N} of float32, float16 or integers.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the shape of `x`, float16 if `x` is, else float32 (an array if `x` is one). Inverses of singular
        matrices have inf or NaN; nothing is raised.

    Raises:
        InvalidArgument: If `x` is not square matrices.

    Examples:
        >>> ops.linalg.inv([[2.0, 0.0], [0.0, 4.0]])
        array([[0.5 , 0.  ],
               [0.  , 0.25]], dtype=float32)

    See also:
        `solve`, `pinv`, `det`.

    Computed in float32 by the LU decomposition with pivots, as `lu`, then GEMM
    (`ns-directml-dml_gemm_operator_desc`) with inverses of its triangles.
    """
    return result_in(result_type(x), inverse_of(square_matrices("x", x)))


def inverse_of(a: Tensor) -> Tensor:
    if not a.size:
        return a.copy()
    factors, pivots = lu_factor(stacked(a))
    return lu_solution(factors, pivots, identity(a, a.sizes[-1])).reshape(a.sizes)


@eager
def det(x: Operand, *, device: Where = None) -> Array:
    """Return the determinants of matrices.

    Args:
        x: Tensor or array {..., N, N} of float32, float16 or integers.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {...}, float16 if `x` is, else float32 (an array if `x` is one); 1 for matrices without elements.

    Raises:
        InvalidArgument: If `x` is not square matrices.

    Examples:
        >>> float(ops.linalg.det([[0.0, 2.0], [3.0, 4.0]]))
        -6.0

    See also:
        `slogdet`, which neither overflows nor underflows; `lu`.

    Computed in float32 by the LU decomposition, as `lu`, and REDUCE (`ns-directml-dml_reduce_operator_desc`) with
    MULTIPLY.
    """
    a = square_matrices("x", x)
    if not a.size:
        return result_in(result_type(x), filled(a, a.sizes[:-2], 1.0))
    factors, pivots = lu_factor(stacked(a))
    return result_in(result_type(x), determinant(factors, pivots).reshape(a.sizes[:-2]))


def determinant(factors: Tensor, pivots: Tensor) -> Tensor:
    """Return determinants from the factors {..., n, n} and pivots {..., n} of matrices."""
    return reduced(diagonal_of(factors), ReduceFunction.MULTIPLY, -1, False) * swap_signs(pivots)


def log_determinant(factors: Tensor, pivots: Tensor) -> tuple[Tensor, Tensor]:
    """Return signs of determinants, and logarithms of their magnitudes, from the factors and pivots of matrices."""
    on_diagonal = diagonal_of(factors)
    signs = reduced(directml.element_wise_sign(on_diagonal), ReduceFunction.MULTIPLY, -1, False)
    logarithms = reduced(directml.element_wise_log(abs(on_diagonal)), ReduceFunction.SUM, -1, False)
    return signs * swap_signs(pivots), logarithms


@eager
def slogdet(x: Operand, *, device: Where = None) -> SlogdetResult:
    """Return the signs of determinants, and the natural logarithms of their magnitudes.

    Args:
        x: Tensor or array {..., N, N} of float32, float16 or integers.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        `SlogdetResult`: sign {...} and logabsdet {...}, float16 if `x` is, else float32 (arrays if `x` is one); 0 and
        -inf for singular matrices.

    Raises:
        InvalidArgument: If `x` is not square matrices.

    Examples:
        >>> sign, logabsdet = ops.linalg.slogdet([[0.0, 1.0], [1.0, 0.0]])
        >>> float(sign), float(logabsdet)
        (-1.0, 0.0)

    See also:
        `det`.

    Computed in float32 by the LU decomposition, as `lu`, ELEMENT_WISE_LOG
    (`ns-directml-dml_element_wise_log_operator_desc`) and REDUCE (`ns-directml-dml_reduce_operator_desc`).
    """
    a = square_matrices("x", x)
    batch = a.sizes[:-2]
    sign, logarithm = filled(a, batch, 1.0), filled(a, batch)
    if a.size:
        factors, pivots = lu_factor(stacked(a))
        sign, logarithm = log_determinant(factors, pivots)
    return SlogdetResult(
        result_in(result_type(x), sign.reshape(batch)), result_in(result_type(x), logarithm.reshape(batch))
    )


@eager
def solve_triangular(
    a: Operand, b: Operand, *, upper: bool, unitriangular: bool = False, device: Where = None
) -> Array:
    """Return the solutions x of systems of linear equations a @ x = b with triangular matrices.

    Args:
        a: Tensor or array {..., N, N} of float32, float16 or integers, of which one triangle is read.
        b: A vector {N}, or matrices {..., N, K}. Leading axes broadcast.
        upper: Whether the upper triangle is read, else the lower one.
        unitriangular: Whether elements on the diagonal are 1 and not read; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {..., N} if `b` is a vector, else {..., N, K}; float16 if both operands are, else float32 (an array if
        both are arrays). A 0 on the diagonal gives inf or NaN; nothing is raised.

    Raises:
        InvalidArgument: If `a` is not square matrices, shapes do not fit, or an option is not a bool.

    Examples:
        >>> ops.linalg.solve_triangular([[2.0, 0.0], [1.0, 1.0]], [4.0, 3.0], upper=False)
        array([2., 1.], dtype=float32)

    See also:
        `solve`, `cholesky`.

    Computed in float32 by GEMM (`ns-directml-dml_gemm_operator_desc`) with the inverse, which is built from blocks of
    1, 2, 4 ... rows.
    """
    matrix, right = square_matrices("a", a), in_float32("b", b)
    upper = argument(caller(), "upper", boolean, upper)
    unitriangular = argument(caller(), "unitriangular", boolean, unitriangular)
    columns, sizes = _right_side(matrix, right)
    if 0 in (*columns.sizes, *matrix.sizes):
        return result_in(result_type(a, b), filled(right, sizes))
    return result_in(result_type(a, b), triangular_solution(matrix, columns, upper, unitriangular).reshape(sizes))


# ---- by singular values ----------------------------------------------------------------------------------------------


@eager
def pinv(x: Operand, rtol: float | None = None, *, device: Where = None) -> Array:
    """Return the Moore-Penrose pseudoinverses of matrices.

    Args:
        x: Tensor or array {..., M, N} of float32, float16 or integers.
        rtol: Singular values up to this share of the largest one count as 0; defaults to None: max(M, N) times the
            epsilon of float32.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {..., N, M}, float16 if `x` is, else float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has fewer than 2 dimensions, or `rtol` is not a number.

    Examples:
        >>> ops.linalg.pinv([[2.0, 0.0], [0.0, 0.0]]).tolist()
        [[0.5, 0.0], [0.0, 0.0]]

    See also:
        `inv`, `lstsq`, `svd`.

    Computed in float32 from the singular value decomposition, as `svd`, by GEMM (`ns-directml-dml_gemm_operator_desc`).
    """
    a = matrices("x", x)
    share = _share(rtol, a)
    if not a.size:
        return result_in(result_type(x), filled(a, a.mT.sizes))
    return result_in(result_type(x), _pseudoinverse(stacked(a), share)[0].reshape(a.mT.sizes))


def _share(rtol: float | None, a: Tensor) -> float:
    """Return the share of the largest singular value up to which others count as 0."""
    if rtol is None:
        return max(a.sizes[-2:]) * float(np.finfo(np.float32).eps)
    return argument(caller(), "rtol", real, rtol)


def _is_significant(values: Tensor, share: float) -> Tensor:
    """Return which singular values {..., n} do not count as 0."""
    return values > reduced(values, ReduceFunction.MAX, -1, True) * share


def _pseudoinverse(a: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Return pseudoinverses of {batch, m, n}, and singular values.

    Gradients are those of matrices whose rank does not change; equal singular values do not matter to them.
    """
    change = change_of(a)
    with contextlib.nullcontext() if change is None else outer_tapes():
        u, values, vt = singular_factor(a, False)
        significant = _is_significant(values, share)
        reciprocals = (1.0 / values._chosen(significant, 1.0))._chosen(significant, 0.0)
        inverse = matmul(vt.mT * reciprocals.expand_dims(1), u.mT)
    if change is None:
        return inverse, values
    values = values + diagonal_of(matmul(matmul(u.mT, change), vt.mT))
    outside_rows = identity(a, a.sizes[1]) - matmul(a, inverse)
    outside_columns = identity(a, a.sizes[2]) - matmul(inverse, a)
    inverse = (
        inverse
        - matmul(matmul(inverse, change), inverse)
        + matmul(matmul(inverse, inverse.mT), matmul(change.mT, outside_rows))
        + matmul(matmul(outside_columns, change.mT), matmul(inverse.mT, inverse))
    )
    return inverse, values


@eager
def matrix_rank(x: Operand, rtol: float | None = None, *, device: Where = None) -> Array:
    """Return the ranks of matrices: the number of singular values that do not count as 0.

    Args:
        x: Tensor or array {..., M, N} of float32, float16 or integers.
        rtol: Singular values up to this share of the largest one count as 0; defaults to None: max(M, N) times the
            epsilon of float32.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {...} of int64 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has fewer than 2 dimensions, or `rtol` is not a number.

    Examples:
        >>> int(ops.linalg.matrix_rank([[1.0, 2.0], [2.0, 4.0]]))
        1

    See also:
        `svdvals`, `lstsq`.

    Computed in float32 from the singular values, as `svd`, by REDUCE (`ns-directml-dml_reduce_operator_desc`).
    """
    a = matrices("x", x)
    share = _share(rtol, a)
    return _rank(values_of(a), share) if a.size else filled(a, a.sizes[:-2], 0, DataType.INT64)


def _rank(values: Tensor, share: float) -> Tensor:
    counts = _is_significant(values, share).astype(DataType.INT32)
    return reduced(counts, ReduceFunction.SUM, -1, False).astype(DataType.INT64)


@eager
def lstsq(a: Operand, b: Operand, rcond: float | None = None, *, device: Where = None) -> LstsqResult:
    """Return the least-squares solutions x of systems of linear equations a @ x = b, those of the least norm.

    Args:
        a: Tensor or array {..., M, N} of float32, float16 or integers, of any rank.
        b: A vector {M}, or matrices {..., M, K}. Leading axes broadcast.
        rcond: Singular values up to this share of the largest one count as 0; defaults to None: max(M, N) times the
            epsilon of float32.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        `LstsqResult`: solutions, sums of squared residuals, ranks and singular values, float16 if both operands are,
        else float32 (arrays if both are arrays). Residuals are returned for every shape and rank, where NumPy returns
        none for some.

    Raises:
        InvalidArgument: If `a` has fewer than 2 dimensions, shapes do not fit, or `rcond` is not a number.

    Examples:
        >>> solution, residuals, rank, _ = ops.linalg.lstsq([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], [1.0, 3.0, 5.0])
        >>> solution.round(4).tolist(), int(rank)
        ([1.0, 2.0], 2)

    See also:
        `pinv`, `solve`, `qr`.

    Computed in float32 from the singular value decomposition, as `svd`, by GEMM (`ns-directml-dml_gemm_operator_desc`).
    """
    matrix, right = matrices("a", a), in_float32("b", b)
    columns, sizes = _right_side(matrix, right)
    share = _share(rcond, matrix) if rcond is None else argument(caller(), "rcond", real, rcond)
    (height, width), outer = matrix.sizes[-2:], matrix.sizes[:-2]
    if matrix.size:
        inverse, values = _pseudoinverse(stacked(matrix), share)
        rank = _rank(values, share).reshape(outer)
        inverse, values = inverse.reshape(*outer, width, height), values.reshape(*outer, min(height, width))
    else:
        inverse, values = filled(matrix, (*outer, width, height)), filled(matrix, (*outer, min(height, width)))
        rank = filled(matrix, outer, 0, DataType.INT64)
    x = matmul(inverse, columns)
    errors = matmul(matrix, x) - columns
    residuals = reduced(errors * errors, ReduceFunction.SUM, -2, False)
    kind = result_type(a, b)
    residuals = residuals.squeeze(-1) if right.ndim == 1 else residuals
    return LstsqResult(result_in(kind, x.reshape(sizes)), result_in(kind, residuals), rank, result_in(kind, values))


# ---- powers and exponentials -----------------------------------------------------------------------------------------


@eager
def matrix_power(x: Operand, n: int, *, device: Where = None) -> Array:
    """Return the product of a matrix with itself, `n` times.

    Args:
        x: Tensor or array {..., N, N} of float32, float16 or integers.
        n: Exponent; a negative one is that of the inverse, 0 returns identity matrices.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the shape of `x` (an array if `x` is one), of its dtype; powers of integers with a negative exponent
        are float32.

    Raises:
        InvalidArgument: If `x` is not square matrices of numbers, or `n` is not an integer.

    Examples:
        >>> ops.linalg.matrix_power([[1, 1], [0, 1]], 5)
        array([[1, 5],
               [0, 1]])

    See also:
        `inv`, `matrix_exp`.

    Computed by GEMM (`ns-directml-dml_gemm_operator_desc`), repeated squaring.
    """
    exponent = as_index(n)
    if exponent is None:
        raise InvalidArgument(f"{caller()}: n must be an integer, got {shown(n, typed=True)}")
    operand = check_kind("x", tensor_of("x", x), NUMERIC)
    is_integer = not operand.data_type.is_float and exponent >= 0
    a = operand if is_integer else square_matrices("x", x)
    if a.ndim < 2 or a.sizes[-1] != a.sizes[-2]:
        raise InvalidArgument(f"{caller()}: x must be square matrices, got sizes {list(a.sizes)}")
    if exponent < 0:
        a = inverse_of(a)
    result: Tensor | None = None
    remaining = abs(exponent)
    while remaining:
        if remaining % 2:
            result = a if result is None else matmul(result, a)
        remaining //= 2
        a = matmul(a, a) if remaining else a
    if result is None:
        result = identity(a, a.sizes[-1]).broadcast_to(a.sizes) if a.size else a
    return result._same() if is_integer else result_in(result_type(x), result._same())


_TERMS = 11
"""Terms of the Taylor series, for norms up to 1."""

_SQUARINGS = 16
"""Most times that a matrix is halved, for norms up to 65536."""


@eager
def matrix_exp(x: Operand, *, device: Where = None) -> Array:
    """Return the exponentials of matrices, the sums of x**k / k!.

    Args:
        x: Tensor or array {..., N, N} of float32, float16 or integers, whose norms are at most 65536.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the shape of `x`, float16 if `x` is, else float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not square matrices.

    Examples:
        >>> ops.linalg.matrix_exp([[0.0, 1.0], [0.0, 0.0]])
        array([[1., 1.],
               [0., 1.]], dtype=float32)

    See also:
        `matrix_power`, `exp`.

    Computed in float32 by GEMM (`ns-directml-dml_gemm_operator_desc`): a Taylor series of the matrix halved some times,
    squared as often.
    """
    a = square_matrices("x", x)
    return result_in(result_type(x), exponential(stacked(a)).reshape(a.sizes) if a.size else a.copy())


def exponential(a: Tensor) -> Tensor:
    """Return exponentials of {batch, n, n}: a Taylor series of the matrix halved some times, squared as often."""
    norms = reduced(reduced(abs(a), ReduceFunction.SUM, 1, True), ReduceFunction.MAX, 2, True)
    halvings = directml.element_wise_ceil(directml.element_wise_log(norms) * (1 / math.log(2)))
    halvings = directml.element_wise_clip1(halvings, min=0.0, max=float(_SQUARINGS))
    small = a * directml.element_wise_exp(halvings * -math.log(2))
    unit = identity(a, a.sizes[-1]).expand_dims(0)
    result: Tensor = unit.broadcast_to(a.sizes)
    for term in range(_TERMS, 0, -1):
        result = unit + matmul(small * (1 / term), result)
    for step in range(_SQUARINGS):
        result = matmul(result, result)._chosen(halvings > step, result)
    return result
