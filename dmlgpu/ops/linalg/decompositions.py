"""Decompositions of matrices: Cholesky, LU, QR, eigenvalues, singular values."""

from __future__ import annotations

from typing import Any, NamedTuple

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.coercion import argument, boolean
from dmlgpu.ops.linalg import factorizations
from dmlgpu.ops.linalg.factorizations import cholesky_factor, identities, lu_factor, lu_triangles, qr_factor
from dmlgpu.ops.linalg.jacobi import eigen_factor, singular_factor, singular_values
from dmlgpu.ops.linalg.operands import matrices, square_matrices, stacked
from dmlgpu.ops.precision import result_in, result_type
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, filled, word
from dmlgpu.tensors.tensor import Tensor

__all__ = [
    "EighResult", "LUResult", "QRResult", "SVDResult", "cholesky", "eigh", "eigvalsh", "lu", "qr", "svd", "svdvals"
]  # fmt: skip


class EighResult(NamedTuple):
    """Outputs of ``eigh``.

    Attributes:
        eigenvalues: In ascending order, {..., N}.
        eigenvectors: Orthonormal columns, {..., N, N}.
    """

    eigenvalues: Array
    eigenvectors: Array


class LUResult(NamedTuple):
    """Outputs of ``lu``: `P @ L @ U` is the matrix.

    Attributes:
        P: Permutations, {..., M, M}.
        L: Lower triangles with ones on the diagonal, {..., M, K}.
        U: Upper triangles, {..., K, N}.
    """

    P: Array
    L: Array
    U: Array


class QRResult(NamedTuple):
    """Outputs of ``qr``: `Q @ R` is the matrix.

    Attributes:
        Q: Orthonormal columns, {..., M, K}.
        R: Upper triangles, {..., K, N}.
    """

    Q: Array
    R: Array


class SVDResult(NamedTuple):
    """Outputs of ``svd``: `U @ diag(S) @ Vh` is the matrix.

    Attributes:
        U: Orthonormal columns.
        S: Singular values in descending order.
        Vh: Orthonormal rows.
    """

    U: Array
    S: Array
    Vh: Array


@eager
def cholesky(x: Operand, *, upper: bool = False, device: Where = None) -> Array:
    """Return the Cholesky factor L of symmetric positive-definite matrices L @ L.T.

    Args:
        x: Tensor or array {..., N, N} of float32, float16 or integers. Only the lower triangle is read, the upper one
            if `upper`; symmetry is not checked.
        upper: Whether to return the upper factor, L.T; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the shape of `x`, float16 if `x` is, else float32 (an array if `x` is one). The factor of a matrix
        that is not positive definite has NaN; nothing is raised.

    Raises:
        InvalidArgument: If `x` is not square matrices.

    Examples:
        >>> ops.linalg.cholesky([[4.0, 2.0], [2.0, 5.0]])
        array([[2., 0.],
               [1., 2.]], dtype=float32)

    See also:
        `solve`, `qr`.

    Computed in float32 by ELEMENT_WISE_DIVIDE (`ns-directml-dml_element_wise_divide_operator_desc`) and others, column
    by column, blocks of 32 columns by GEMM (`ns-directml-dml_gemm_operator_desc`).
    """
    a = square_matrices("x", x)
    upper = argument(caller(), "upper", boolean, upper)
    if not a.size:
        return result_in(result_type(x), a.copy())
    lower, _ = cholesky_factor(stacked(a.mT if upper else a))
    return result_in(result_type(x), (lower.mT if upper else lower).reshape(a.sizes))


@eager
def lu(x: Operand, *, device: Where = None) -> LUResult:
    """Return the LU decomposition of matrices with rows permuted: P @ L @ U.

    Args:
        x: Tensor or array {..., M, N} of float32, float16 or integers.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        `LUResult`: P {..., M, M}, L {..., M, K} and U {..., K, N} for K = min(M, N), float16 if `x` is, else float32
        (arrays if `x` is one). U of a singular matrix has a 0 on its diagonal.

    Raises:
        InvalidArgument: If `x` has fewer than 2 dimensions.

    Examples:
        >>> P, L, U = ops.linalg.lu([[0.0, 2.0], [4.0, 8.0]])
        >>> U.tolist()
        [[4.0, 8.0], [0.0, 2.0]]

    See also:
        `solve`, `det`.

    Computed in float32 by ARGMAX (`ns-directml-dml_argmax_operator_desc`), GATHER_ELEMENTS
    (`ns-directml-dml_gather_elements_operator_desc`) and elementwise operators, column by column.
    """
    a = matrices("x", x)
    (height, width), batch = a.sizes[-2:], a.sizes[:-2]
    count = min(height, width)
    if a.size:
        factors, pivots = lu_factor(stacked(a))
        swaps = factorizations.permutation(pivots, height).astype(DataType.FLOAT32)
        lower, upper = lu_triangles(factors)
    else:
        swaps, lower, upper = identities(a, height, height), identities(a, height, count), identities(a, count, width)
    return LUResult(
        result_in(result_type(x), swaps.reshape(*batch, height, height)),
        result_in(result_type(x), lower.reshape(*batch, height, count)),
        result_in(result_type(x), upper.reshape(*batch, count, width)),
    )


@eager
def qr(x: Operand, mode: str = "reduced", *, device: Where = None) -> QRResult:
    """Return the QR decomposition of matrices: orthonormal columns Q and upper triangles R.

    Args:
        x: Tensor or array {..., M, N} of float32, float16 or integers.
        mode: ``"reduced"``, the default: Q {..., M, K} and R {..., K, N} for K = min(M, N); ``"complete"``: Q {..., M,
            M} and R {..., M, N}.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        `QRResult`: Q and R, float16 if `x` is, else float32 (arrays if `x` is one). Signs are LAPACK's.

    Raises:
        InvalidArgument: If `x` has fewer than 2 dimensions, or `mode` is neither word.

    Examples:
        >>> Q, R = ops.linalg.qr([[3.0, 1.0], [4.0, 2.0]])
        >>> R.round(3).tolist()
        [[-5.0, -2.200000047683716], [0.0, 0.4000000059604645]]

    See also:
        `lstsq`, `svd`.

    Computed in float32 by REDUCE (`ns-directml-dml_reduce_operator_desc`), GEMM
    (`ns-directml-dml_gemm_operator_desc`) and elementwise operators, one reflection per column.
    """
    a = matrices("x", x)
    (height, width), batch = a.sizes[-2:], a.sizes[:-2]
    size = height if word("mode", mode, ("reduced", "complete")) == "complete" else min(height, width)
    if a.size:
        q, r = qr_factor(stacked(a), size)
        assert q is not None
    else:
        q, r = identities(a, height, size), filled(a, (*batch, size, width))
    return QRResult(
        result_in(result_type(x), q.reshape(*batch, height, size)),
        result_in(result_type(x), r.reshape(*batch, size, width)),
    )


@eager
def svd(x: Operand, full_matrices: bool = True, *, device: Where = None) -> SVDResult:
    """Return the singular value decomposition of matrices.

    Args:
        x: Tensor or array {..., M, N} of float32, float16 or integers.
        full_matrices: Whether U is {..., M, M} and Vh {..., N, N}, as by default; False returns {..., M, K} and
            {..., K, N} for K = min(M, N).
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        `SVDResult`: U, singular values S {..., K} in descending order, and Vh, float16 if `x` is, else float32 (arrays
        if `x` is one). Signs of singular vectors may differ from LAPACK's.

    Raises:
        InvalidArgument: If `x` has fewer than 2 dimensions, or `full_matrices` is not a bool.

    Examples:
        >>> U, S, Vh = ops.linalg.svd([[3.0, 0.0], [0.0, -4.0]])
        >>> S
        array([4., 3.], dtype=float32)

    See also:
        `svdvals`, `pinv`, `eigh`.

    Computed in float32 by Jacobi's rotations of pairs of columns: REDUCE (`ns-directml-dml_reduce_operator_desc`), JOIN
    (`ns-directml-dml_join_operator_desc`) and elementwise operators, some 20 for each of N (log2 N + 4) rounds.
    """
    u, values, vh = svd_of(matrices("x", x), argument(caller(), "full_matrices", boolean, full_matrices))
    kind = result_type(x)
    return SVDResult(result_in(kind, u), result_in(kind, values), result_in(kind, vh))


def svd_of(a: Tensor, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return U, singular values and the transpose of V of matrices {..., M, N} in float32."""
    (height, width), batch = a.sizes[-2:], a.sizes[:-2]
    count = min(height, width)
    rows, columns = (height, width) if full else (count, count)
    if not a.size:
        return identities(a, height, rows), filled(a, (*batch, count)), identities(a, columns, width)
    u, values, vh = singular_factor(stacked(a), full)
    return u.reshape(*batch, height, rows), values.reshape(*batch, count), vh.reshape(*batch, columns, width)


@eager
def svdvals(x: Operand, *, device: Where = None) -> Array:
    """Return the singular values of matrices in descending order.

    Args:
        x: Tensor or array {..., M, N} of float32, float16 or integers.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {..., min(M, N)}, float16 if `x` is, else float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has fewer than 2 dimensions.

    Examples:
        >>> ops.linalg.svdvals([[3.0, 0.0], [0.0, -4.0]])
        array([4., 3.], dtype=float32)

    See also:
        `svd`, `matrix_rank`, `cond`.

    Computed as by `svd`: REDUCE (`ns-directml-dml_reduce_operator_desc`) and others.
    """
    a = matrices("x", x)
    return result_in(result_type(x), values_of(a))


def values_of(a: Tensor) -> Tensor:
    """Return the singular values of matrices {..., M, N} in float32."""
    shape = (*a.sizes[:-2], min(a.sizes[-2:]))
    return singular_values(stacked(a)).reshape(shape) if a.size else filled(a, shape)


@eager
def eigh(x: Operand, UPLO: str = "L", *, device: Where = None) -> EighResult:
    """Return the eigenvalues and eigenvectors of symmetric matrices.

    Args:
        x: Tensor or array {..., N, N} of float32, float16 or integers. Symmetry is not checked.
        UPLO: Triangle that is read: ``"L"``, the lower one, by default, or ``"U"``.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        `EighResult`: eigenvalues {..., N} in ascending order, and eigenvectors as columns {..., N, N}, float16 if `x`
        is, else float32 (arrays if `x` is one). Signs of eigenvectors may differ from LAPACK's.

    Raises:
        InvalidArgument: If `x` is not square matrices, or `UPLO` is neither letter.

    Examples:
        >>> values, vectors = ops.linalg.eigh([[2.0, 0.0], [0.0, -1.0]])
        >>> values
        array([-1.,  2.], dtype=float32)

    See also:
        `eigvalsh`, `svd`.

    Computed in float32 by Jacobi's rotations of pairs of columns: REDUCE (`ns-directml-dml_reduce_operator_desc`), JOIN
    (`ns-directml-dml_join_operator_desc`) and elementwise operators, some 20 for each of N (log2 N + 4) rounds.
    """
    values, vectors = _eigen(x, UPLO)
    return EighResult(result_in(result_type(x), values), result_in(result_type(x), vectors))


@eager
def eigvalsh(x: Operand, UPLO: str = "L", *, device: Where = None) -> Array:
    """Return the eigenvalues of symmetric matrices in ascending order.

    Args:
        x: Tensor or array {..., N, N} of float32, float16 or integers. Symmetry is not checked.
        UPLO: Triangle that is read: ``"L"``, the lower one, by default, or ``"U"``.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {..., N}, float16 if `x` is, else float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` is not square matrices, or `UPLO` is neither letter.

    Examples:
        >>> ops.linalg.eigvalsh([[2.0, 0.0], [0.0, -1.0]])
        array([-1.,  2.], dtype=float32)

    See also:
        `eigh`.

    Computed as by `eigh`: REDUCE (`ns-directml-dml_reduce_operator_desc`) and others.
    """
    return result_in(result_type(x), _eigen(x, UPLO)[0])


def _eigen(x: Any, triangle: Any) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues and eigenvectors of an operand, in float32."""
    a = square_matrices("x", x)
    return eigh_of(a.mT if word("UPLO", triangle, ("L", "U")) == "U" else a)


def eigh_of(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues and eigenvectors of symmetric matrices {..., N, N} in float32, by the lower triangle."""
    if not a.size:
        return filled(a, a.sizes[:-1]), a.copy()
    values, vectors = eigen_factor(stacked(a))
    return values.reshape(a.sizes[:-1]), vectors.reshape(a.sizes)
