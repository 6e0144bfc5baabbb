"""Operators of the table on complex numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dmlgpu.frontends.torch.complex_numbers import Complex, constant
from dmlgpu.frontends.torch.dtypes import cast, reject_dtype
from dmlgpu.frontends.torch.operators import arithmetic, basics, comparison, norms, random, reductions
from dmlgpu.frontends.torch.operators.registry import ENTRIES, Unsupported, aten, of_complex
from dmlgpu.ops import directml
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.layout import broadcast_sizes
from dmlgpu.tensors.tensor import Tensor, matmul

_IF = directml.element_wise_if

# ---- part by part ----------------------------------------------------------------------------------------------------

_LINEAR = (
    "_unsafe_index.Tensor", "_unsafe_index_put", "_index_put_impl", "add.Scalar", "add.Tensor", "cat",
    "channel_shuffle", "col2im", "cumsum", "diag_embed", "embedding", "flip", "gather", "im2col", "index.Tensor",
    "index_add", "index_copy", "index_put", "index_select", "masked_scatter", "masked_select", "neg", "pixel_shuffle",
    "pixel_unshuffle", "put", "repeat", "roll", "rsub.Scalar", "rsub.Tensor", "scatter.src", "scatter_add",
    "select_backward", "slice_backward", "stack", "sub.Scalar", "sub.Tensor", "take", "trace", "tril", "triu",
    "unfold_backward", "where.self",
    *(f"{kind}_pad{rank}d{suffix}" for kind in ("reflection", "replication") for rank in (1, 2, 3)
      for suffix in ("", "_backward")),
)  # fmt: skip
"""Operators whose parts are those of the parts: they move elements, or are linear with real factors."""


def _parts(value: Any, name: str) -> Any:
    """Return an argument with complex numbers replaced by one of their parts."""
    if isinstance(value, Complex):
        return getattr(value, name)
    return [_parts(item, name) for item in value] if isinstance(value, list) else value


def _each_part(entry: str) -> Callable[..., Any]:
    """Return a function of complex numbers that computes their parts by the function of an operator."""

    def compute(*values: Any, **keywords: Any) -> Complex:
        function = ENTRIES[entry].function
        return Complex(
            *(
                function(
                    *[_parts(value, name) for value in values],
                    **{key: _parts(value, name) for key, value in keywords.items()},
                )
                for name in ("real", "imag")
            )
        )

    return compute


for _name in _LINEAR:
    of_complex(_name)(_each_part(_name))


def _with_factor(name: str) -> None:
    """Let a sum or difference take a complex factor."""
    plain = _each_part(name)

    def compute(x: Complex, other: Complex, alpha: Any = 1) -> Complex:
        if not isinstance(alpha, complex):
            return plain(x, other, alpha)
        factor = Complex(alpha.real, alpha.imag)
        return plain(mul(x, factor), other) if name.startswith("rsub") else plain(x, mul(other, factor))

    of_complex(name)(compute)


for _name in ("add", "sub", "rsub"):
    for _kind in ("Tensor", "Scalar"):
        _with_factor(f"{_name}.{_kind}")


@of_complex("constant_pad_nd")
def constant_pad(x: Complex, pad: Any, value: Any = 0) -> Complex:
    function = ENTRIES["constant_pad_nd"].function
    return Complex(function(x.real, pad, float(value.real)), function(x.imag, pad, float(value.imag)))


def _filling(name: str) -> None:
    """Let an operator whose last argument fills elements take complex numbers."""
    plain = _each_part(name)

    def compute(*values: Any) -> Complex:
        *others, value = values
        if isinstance(value, Tensor):
            value = Complex.of_real(value)
        elif not isinstance(value, Complex):
            value = Complex(float(value.real), float(value.imag))
        return plain(*others, value)

    of_complex(name)(compute)


for _name in (
    "fill.Scalar", "fill.Tensor", "index_fill.int_Scalar", "index_fill.int_Tensor", "masked_fill.Scalar",
    "masked_fill.Tensor", "scatter.value",
):  # fmt: skip
    _filling(_name)


@of_complex("zero")
def zero(x: Complex) -> Complex:
    return x.each(basics.zero)


def _scaled_sums(name: str) -> None:
    """Let a sum or mean take a dtype."""

    def compute(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
        function = ENTRIES[name].function
        x = x if dtype is None else cast(x, dtype)
        if not isinstance(x, Complex):
            return function(x, dim, keepdim)
        return x.each(lambda part: function(part, dim, keepdim))

    of_complex(name)(compute)


for _name in ("sum", "sum.dim_IntList", "mean", "mean.dim"):
    _scaled_sums(_name)

# ---- made of parts, and their parts ----------------------------------------------------------------------------------


def _broadcast(x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    if x.sizes == other.sizes:
        return x, other
    sizes = broadcast_sizes("complex", [("real", x.sizes), ("imag", other.sizes)])
    return x.broadcast_to(sizes), other.broadcast_to(sizes)


@aten("complex")
def from_parts(real: Tensor, imag: Tensor) -> Complex:
    _check_parts(real)
    return Complex(*_broadcast(real, imag))


def _check_parts(x: Tensor) -> None:
    """Check that there are complex numbers whose parts have the dtype of a tensor."""
    if x.data_type.is_reduced_float:
        reject_dtype(torch.complex32)


@aten("polar")
def polar(abs: Tensor, angle: Tensor) -> Complex:
    """Return the numbers of these magnitudes and angles."""
    _check_parts(abs)
    return Complex(abs * directml.element_wise_cos(angle), abs * directml.element_wise_sin(angle))


@aten("_conj_physical")
@of_complex("_conj_physical")
def conj(x: Any) -> Any:
    return Complex(x.real, -x.imag) if isinstance(x, Complex) else x


@of_complex("abs")
def absolute(x: Complex) -> Tensor:
    magnitude: Tensor = arithmetic.hypot(x.real, x.imag)
    return magnitude


@of_complex("angle")
def angle(x: Complex) -> Any:
    return directml.element_wise_atan_yx(x.imag, x.real)


@of_complex("sgn")
def sgn(x: Complex) -> Complex:
    """Return numbers of magnitude 1, or 0 for 0."""
    magnitude = absolute(x)
    divisor = _IF(magnitude == 0, 1.0, magnitude)
    return x.each(lambda part: part / divisor)


# ---- arithmetic ------------------------------------------------------------------------------------------------------


@of_complex("mul.Tensor", "mul.Scalar")
def mul(x: Complex, other: Complex) -> Complex:
    return Complex(x.real * other.real - x.imag * other.imag, x.real * other.imag + x.imag * other.real)


@of_complex("div.Tensor", "div.Scalar")
def div(x: Complex, other: Complex) -> Complex:
    """Divide by numbers that are scaled to magnitude 1 first, so that their squares do not overflow."""
    if not isinstance(other.real, Tensor):
        other = Complex(constant(x.real, other.real), constant(x.real, other.imag))
    scale = directml.element_wise_max(directml.element_wise_abs(other.real), directml.element_wise_abs(other.imag))
    divisor = other.each(lambda part: part / scale)
    square = divisor.real * divisor.real + divisor.imag * divisor.imag
    product = mul(x, Complex(divisor.real, -divisor.imag))
    return product.each(lambda part: part / square / scale)


@of_complex("reciprocal")
def reciprocal(x: Complex) -> Complex:
    return div(Complex(1.0, 0.0), x)


@of_complex("addcmul")
def addcmul(x: Complex, tensor1: Complex, tensor2: Complex, *, value: Any = 1) -> Complex:
    return _sum(x, mul(_times(tensor1, value), tensor2))


@of_complex("addcdiv")
def addcdiv(x: Complex, tensor1: Complex, tensor2: Complex, *, value: Any = 1) -> Complex:
    return _sum(x, div(_times(tensor1, value), tensor2))


def _times(x: Complex, factor: Any) -> Complex:
    """Return numbers times a Python number."""
    if not isinstance(factor, complex):
        return x if factor == 1 else x.each(lambda part: part * float(factor))
    return mul(x, Complex(factor.real, factor.imag))


def _sum(x: Complex, other: Complex) -> Complex:
    return Complex(x.real + other.real, x.imag + other.imag)


_MAX_EXPONENT = 4
"""Largest integer power that is computed by multiplication."""


@of_complex("pow.Tensor_Scalar")
def pow_by_number(x: Complex, exponent: Complex) -> Complex:
    """Raise to a number; small integers by multiplication."""
    real = exponent.real
    if exponent.imag or real != int(real) or abs(real) > _MAX_EXPONENT:
        return power(x, exponent)
    if not real:
        return Complex(basics.fill(x.real, 1), basics.zero(x.imag))
    result = x
    for _ in range(int(abs(real)) - 1):
        result = mul(result, x)
    return result if real > 0 else reciprocal(result)


@of_complex("pow.Scalar", "pow.Tensor_Tensor")
def power(x: Complex, exponent: Complex) -> Complex:
    """Return exponentials of multiples of logarithms; powers of 0 are 0, and 1 for the exponent 0."""
    like = exponent.real if isinstance(exponent.real, Tensor) else x.real
    x, exponent = (_tensors(value, like) for value in (x, exponent))
    is_zero = equals(x, Complex(0.0, 0.0))
    is_one = equals(exponent, Complex(0.0, 0.0))
    result = exp(mul(log(Complex(_IF(is_zero, 1.0, x.real), x.imag)), exponent))
    return Complex(_IF(is_one, 1.0, _IF(is_zero, 0.0, result.real)), _IF(is_one, 0.0, _IF(is_zero, 0.0, result.imag)))


def _tensors(x: Complex, like: Tensor) -> Complex:
    """Return numbers as scalar tensors, tensors as they are."""
    return x if isinstance(x.real, Tensor) else x.each(lambda part: constant(like, part))


# ---- exponentials and logarithms -------------------------------------------------------------------------------------


@of_complex("exp")
def exp(x: Complex) -> Complex:
    return polar(directml.element_wise_exp(x.real), x.imag)


@of_complex("log")
def log(x: Complex) -> Complex:
    return Complex(directml.element_wise_log(absolute(x)), angle(x))


@of_complex("log2")
def log2(x: Complex) -> Complex:
    return log(x).each(lambda part: part / math.log(2))


@of_complex("log10")
def log10(x: Complex) -> Complex:
    return log(x).each(lambda part: part / math.log(10))


@of_complex("sqrt")
def sqrt(x: Complex) -> Complex:
    """Return the root with a positive real part; the smaller part by division, which cancels no digits."""
    larger = directml.element_wise_sqrt((absolute(x) + directml.element_wise_abs(x.real)) * 0.5)
    is_zero = larger == 0
    smaller = _IF(is_zero, 0.0, directml.element_wise_abs(x.imag) / _IF(is_zero, 1.0, larger) * 0.5)
    is_right = x.real >= 0
    return Complex(_IF(is_right, larger, smaller), arithmetic.copysign(_IF(is_right, smaller, larger), x.imag))


@of_complex("rsqrt")
def rsqrt(x: Complex) -> Complex:
    return reciprocal(sqrt(x))


def _turned(x: Complex) -> Complex:
    """Return numbers times i."""
    return Complex(-x.imag, x.real)


@of_complex("sinh")
def sinh(x: Complex) -> Complex:
    return Complex(
        directml.element_wise_sinh(x.real) * directml.element_wise_cos(x.imag),
        directml.element_wise_cosh(x.real) * directml.element_wise_sin(x.imag),
    )


@of_complex("cosh")
def cosh(x: Complex) -> Complex:
    return Complex(
        directml.element_wise_cosh(x.real) * directml.element_wise_cos(x.imag),
        directml.element_wise_sinh(x.real) * directml.element_wise_sin(x.imag),
    )


@of_complex("sin")
def sin(x: Complex) -> Complex:
    turned = sinh(_turned(x))
    return Complex(turned.imag, -turned.real)


@of_complex("cos")
def cos(x: Complex) -> Complex:
    return cosh(_turned(x))


_MAX_TANH = 40.0
"""Real part from which on tanh is 1 in float32, and cosh of twice it is finite."""


@of_complex("tanh")
def tanh(x: Complex) -> Complex:
    bounded = directml.element_wise_max(directml.element_wise_min(x.real, _MAX_TANH), -_MAX_TANH)
    real, imag = bounded * 2, x.imag * 2
    divisor = directml.element_wise_cosh(real) + directml.element_wise_cos(imag)
    return Complex(directml.element_wise_sinh(real) / divisor, directml.element_wise_sin(imag) / divisor)


@of_complex("tan")
def tan(x: Complex) -> Complex:
    turned = tanh(_turned(x))
    return Complex(turned.imag, -turned.real)


@of_complex("sigmoid")
def sigmoid(x: Complex) -> Complex:
    exponential = exp(x.each(lambda part: -part))
    return reciprocal(Complex(exponential.real + 1, exponential.imag))


@of_complex("silu")
def silu(x: Complex) -> Complex:
    return mul(x, sigmoid(x))


@of_complex("sigmoid_backward")
def sigmoid_backward(gradient: Complex, result: Complex) -> Complex:
    return mul(gradient, conj(mul(result, Complex(1 - result.real, -result.imag))))


@of_complex("tanh_backward")
def tanh_backward(gradient: Complex, result: Complex) -> Complex:
    square = mul(result, result)
    return mul(gradient, conj(Complex(1 - square.real, -square.imag)))


# ---- comparisons -----------------------------------------------------------------------------------------------------


@of_complex("eq.Tensor", "eq.Scalar")
def equals(x: Complex, other: Complex) -> Any:
    return (x.real == other.real) & (x.imag == other.imag)


@of_complex("ne.Tensor", "ne.Scalar")
def differs(x: Complex, other: Complex) -> Any:
    return (x.real != other.real) | (x.imag != other.imag)


@of_complex("equal")
def equal(x: Any, other: Any) -> bool:
    if not (isinstance(x, Complex) and isinstance(other, Complex)):
        raise Unsupported("it compares tensors of one dtype")
    return comparison.equal(x.real, other.real) and comparison.equal(x.imag, other.imag)


@of_complex("isclose")
def isclose(x: Complex, other: Complex, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    difference = absolute(Complex(x.real - other.real, x.imag - other.imag))
    is_near = isfinite(x) & isfinite(other) & (difference <= absolute(other) * rtol + atol)
    close = equals(x, other) | is_near
    return close | (isnan(x) & isnan(other)) if equal_nan else close


@of_complex("isnan")
def isnan(x: Complex) -> Any:
    return directml.element_wise_is_nan(x.real) | directml.element_wise_is_nan(x.imag)


@of_complex("isinf")
def isinf(x: Complex) -> Any:
    return directml.element_wise_is_infinity(x.real) | directml.element_wise_is_infinity(x.imag)


@of_complex("isfinite")
def isfinite(x: Complex) -> Any:
    return directml.element_wise_abs(x.real) + directml.element_wise_abs(x.imag) * 0 < math.inf


def _as_masks(name: str) -> None:
    """Let an operator of masks take complex numbers."""

    def compute(*values: Any, **keywords: Any) -> Any:
        masks = [cast(value, torch.bool) if isinstance(value, Complex) else value for value in values]
        return ENTRIES[name].function(*masks, **keywords)

    of_complex(name)(compute)


for _name in (
    "all", "all.dim", "all.dims", "any", "any.dim", "any.dims", "count_nonzero", "count_nonzero.dim_IntList",
    "logical_and", "logical_not", "logical_or", "logical_xor", "nonzero",
):  # fmt: skip
    _as_masks(_name)

# ---- statistics ------------------------------------------------------------------------------------------------------


@of_complex("linalg_vector_norm")
def vector_norm(x: Complex, *args: Any, **kwargs: Any) -> Tensor:
    return norms.vector_norm(absolute(x), *args, **kwargs)


@of_complex("var.correction")
def var(x: Complex, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """Return the sum of the variances of the parts."""
    real, imag = (reductions.var(part, dim, correction=correction, keepdim=keepdim) for part in (x.real, x.imag))
    return real + imag


@of_complex("std.correction")
def std(x: Complex, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return directml.element_wise_sqrt(var(x, dim, correction=correction, keepdim=keepdim))


@of_complex("var_mean.correction")
def var_mean(x: Complex, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> tuple[Any, Any]:
    means = x.each(lambda part: reductions.mean(part, dim, keepdim))
    return var(x, dim, correction=correction, keepdim=keepdim), means


@of_complex("std_mean.correction")
def std_mean(x: Complex, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> tuple[Any, Any]:
    variance, means = var_mean(x, dim, correction=correction, keepdim=keepdim)
    return directml.element_wise_sqrt(variance), means


# ---- random numbers --------------------------------------------------------------------------------------------------


@of_complex("normal_functional")
def normal(x: Complex, mean: Any = 0.0, std: float = 1.0, *, generator: torch.Generator | None = None) -> Complex:
    """Return numbers whose parts have half of the variance each."""
    parts = zip((x.real, x.imag), (mean.real, mean.imag), strict=True)
    return Complex(*(random.normal(part, center, std / math.sqrt(2), generator=generator) for part, center in parts))


@of_complex("randn")
def randn(size: Sequence[int], *, dtype: torch.dtype | None = None, device: Device) -> Complex:
    """Return numbers of variance 1, whose parts have half of it each."""
    return Complex(*(random.randn(size, dtype=torch.float32, device=device) * math.sqrt(0.5) for _ in range(2)))


# ---- products of matrices --------------------------------------------------------------------------------------------


@of_complex("mm", "bmm", "mv", "dot")
def product(a: Complex, b: Complex) -> Complex:
    if not (isinstance(a, Complex) and isinstance(b, Complex)):
        raise Unsupported("it multiplies tensors of one dtype")
    return Complex(
        matmul(a.real, b.real) - matmul(a.imag, b.imag),
        matmul(a.real, b.imag) + matmul(a.imag, b.real),
    )


@of_complex("vdot")
def conjugate_product(a: Complex, b: Complex) -> Complex:
    return product(conj(a), b)


def _added(addend: Complex, result: Complex, beta: Any, alpha: Any) -> Complex:
    """Return beta * addend + alpha * result; the addend is not read if beta is 0."""
    result = _times(result, alpha)
    return _sum(_times(addend, beta), result) if beta else result


@of_complex("addmm", "baddbmm", "addmv")
def add_product(addend: Complex, a: Complex, b: Complex, *, beta: Any = 1, alpha: Any = 1) -> Complex:
    return _added(addend, product(a, b), beta, alpha)


@of_complex("addbmm")
def add_summed_products(addend: Complex, a: Complex, b: Complex, *, beta: Any = 1, alpha: Any = 1) -> Complex:
    products = product(a, b).each(lambda part: reductions.summed(part, 0))
    return _added(addend, products, beta, alpha)


@of_complex("addr")
def add_outer(addend: Complex, a: Complex, b: Complex, *, beta: Any = 1, alpha: Any = 1) -> Complex:
    column, row = a.each(lambda part: part.expand_dims(1)), b.each(lambda part: part.expand_dims(0))
    return _added(addend, mul(column, row), beta, alpha)
