"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dmlgpu.frontends.torch.operators.registry import aten, check_same_dtype
from dmlgpu.ops import directml
from dmlgpu.ops.linalg.products import crossed
from dmlgpu.tensors.tensor import Tensor, matmul


@aten("mm", "bmm", "mv", "dot", "vdot")
def product(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of two matrices, stacks of matrices, or vectors."""
    check_same_dtype(a, b)
    return matmul(a, b)


@aten("addmm", "baddbmm")
def add_product(addend: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta * addend + alpha * a @ b; the addend is not read if beta is 0."""
    check_same_dtype(addend, a, b)
    sizes = (*a.sizes[:-1], b.sizes[-1])
    if a.data_type.is_float and a.size and b.size:
        summand = addend.broadcast_to(sizes) if beta else None
        result: Tensor = directml.gemm(a, b, summand, alpha=float(alpha), beta=float(beta))
        return result
    return _sum(addend, matmul(a, b), beta, alpha)


@aten("addmv")
def add_matrix_vector(addend: Tensor, matrix: Tensor, vector: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta * addend + alpha * matrix @ vector."""
    column = addend.broadcast_to(matrix.sizes[:1]).expand_dims(1)
    return add_product(column, matrix, vector.expand_dims(1), beta=beta, alpha=alpha).squeeze(1)


@aten("addr")
def add_outer(addend: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta * addend + alpha times the outer product of two vectors."""
    if a.is_boolean:
        outer = a.expand_dims(1) & b.expand_dims(0)
        outer = outer if alpha else outer & ~outer
        return outer | addend if beta else outer
    return _sum(addend, a.expand_dims(1) * b.expand_dims(0), beta, alpha)


@aten("addbmm")
def add_summed_products(addend: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta * addend + alpha times the sum of the products of two stacks of matrices."""
    rows = a.transpose(1, 0, 2).reshape(a.sizes[1], a.sizes[0] * a.sizes[2])
    columns = b.reshape(b.sizes[0] * b.sizes[1], b.sizes[2])
    return add_product(addend, rows, columns, beta=beta, alpha=alpha)


@aten("_addmm_activation")
def add_product_activated(
    addend: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1, use_gelu: bool = False
) -> Tensor:
    """Return `addmm` followed by GELU or ReLU."""
    result = add_product(addend, a, b, beta=beta, alpha=alpha)
    activation: Any = directml.activation_gelu if use_gelu else directml.activation_relu
    activated: Tensor = activation(result)
    return activated


@aten("linalg_cross", fused=True)
def cross(a: Tensor, b: Tensor, *, dim: int = -1) -> Tensor:
    """Return the cross products of vectors of three elements along a dimension."""
    return crossed(a, b, dim % a.ndim)


def check_square(sizes: Sequence[int], name: str) -> None:
    """Check that matrices are square.

    Raises:
        RuntimeError: If they are not, in PyTorch's words.
    """
    if len(sizes) < 2 or sizes[-1] != sizes[-2]:
        shape = f"they are {sizes[-2]} by {sizes[-1]} matrices" if len(sizes) > 1 else f"got {len(sizes)} dimensions"
        raise RuntimeError(f"{name}: A must be batches of square matrices, but {shape}")


def _sum(addend: Tensor, result: Tensor, beta: float, alpha: float) -> Tensor:
    """Return beta * addend + alpha * result, of the dtype of the result; integers are multiplied by integers."""
    if not result.data_type.is_float:
        beta, alpha = int(beta), int(alpha)
    if alpha != 1:
        result = result * alpha
    if not beta:
        return result
    summand = addend if addend.data_type is result.data_type else addend.astype(result.data_type)
    return result + (summand if beta == 1 else summand * beta)
