"""Elementwise operators and activations of the PyTorch device, against the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

functional = torch.nn.functional

NUMBERS = (-math.inf, -3.5, -2.5, -1.0, -0.75, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 3.0, 7.25, 30.0, math.inf, math.nan)
WHOLE = (-7, -3, -2, -1, 1, 2, 3, 5, 64)
FLOATS = torch.tensor(NUMBERS)
INTEGERS = torch.tensor(WHOLE)
BOOLEANS = torch.tensor([True, False, True, False])

OF_ONE = [
    "abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "deg2rad", "erf",
    "erfc", "exp", "exp2", "expm1", "floor", "frac", "i0", "isfinite", "isinf", "isnan", "isneginf", "isposinf",
    "lgamma", "log", "log10", "log1p", "log2", "logical_not", "logit", "nan_to_num", "neg", "rad2deg", "reciprocal",
    "relu", "round", "rsqrt", "sgn", "sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "sqrt", "square", "tan",
    "tanh", "trunc",
]  # fmt: skip

ACTIVATIONS = [
    "celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish",
    "relu6", "selu", "silu", "softplus", "softshrink", "softsign", "tanhshrink",
]  # fmt: skip

OF_TWO = [
    "add", "atan2", "copysign", "div", "eq", "floor_divide", "fmax", "fmin", "fmod", "ge", "gt", "heaviside", "hypot",
    "isclose", "le", "logaddexp", "logical_and", "logical_or", "logical_xor", "lt", "maximum", "minimum", "mul", "ne",
    "nextafter", "pow", "remainder", "sub", "xlogy",
]  # fmt: skip

OF_TWO_INTEGERS = [
    "add", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "div", "eq",
    "floor_divide", "fmod", "gcd", "lcm", "maximum", "minimum", "mul", "remainder", "sub",
]  # fmt: skip


def compare(function: Callable[..., Any], *operands: Any, **options: Any) -> None:
    """Compare the results of a function on both devices, shapes and dtypes included."""
    theirs = function(*operands, **options)
    ours = function(*(x.to("dml") if isinstance(x, torch.Tensor) else x for x in operands), **options)
    pairs = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
    for our, their in pairs:
        torch.testing.assert_close(our.cpu(), their, rtol=2e-5, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("name", OF_ONE)
def test_functions_of_one_float(name: str) -> None:
    function = getattr(torch, name)
    compare(function, FLOATS)
    compare(function, FLOATS[3])
    compare(function, FLOATS[:0].reshape(3, 0))


@pytest.mark.parametrize(
    "name", ["exp", "sqrt", "sigmoid", "sin", "erfc", "log1p", "reciprocal", "round", "neg", "abs"]
)
def test_functions_of_one_integer(name: str) -> None:
    compare(getattr(torch, name), INTEGERS.abs())


@pytest.mark.parametrize("name", ["exp", "logical_not", "isnan", "bitwise_not"])
def test_functions_of_one_boolean(name: str) -> None:
    compare(getattr(torch, name), BOOLEANS)


@pytest.mark.parametrize("name", OF_TWO)
def test_functions_of_two_floats(name: str) -> None:
    function = getattr(torch, name)
    compare(function, FLOATS.reshape(-1, 1), FLOATS)


@pytest.mark.parametrize("name", OF_TWO_INTEGERS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8])
def test_functions_of_two_integers(name: str, dtype: Any) -> None:
    other = INTEGERS.abs() if "shift" in name else INTEGERS
    other = other[other < 8] if "shift" in name else other
    compare(getattr(torch, name), INTEGERS.to(dtype).reshape(-1, 1), other.to(dtype))


@pytest.mark.parametrize("name", ["add", "mul", "maximum", "eq", "logical_xor", "bitwise_and", "bitwise_or"])
def test_functions_of_two_booleans(name: str) -> None:
    compare(getattr(torch, name), BOOLEANS.reshape(-1, 1), BOOLEANS)


OPERANDS = {
    "float": FLOATS[1:12],
    "integer": INTEGERS[:1].expand(11),
    "byte": torch.arange(11, dtype=torch.uint8),
    "boolean": torch.tensor([True] * 11),
    "half": FLOATS[1:12].half(),
    "scalar": torch.tensor(2.5),
    "whole scalar": torch.tensor(3),
    "2": 2,
    "2.5": 2.5,
    "True": True,
}


@pytest.mark.parametrize("right", OPERANDS)
@pytest.mark.parametrize("left", list(OPERANDS)[:7])
def test_promotion(left: str, right: str) -> None:
    for function in (torch.add, torch.mul, torch.div, torch.eq):
        compare(function, OPERANDS[left], OPERANDS[right])


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
@pytest.mark.parametrize("x", [FLOATS[1:-2], INTEGERS])
def test_rounded_divisions(x: Any, mode: Any) -> None:
    divisors = x[x != 0]
    compare(torch.div, x.reshape(-1, 1), divisors, rounding_mode=mode)
    compare(torch.div, x, 3, rounding_mode=mode)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 0.5, -1, -2, 2.5])
def test_powers(exponent: Any) -> None:
    compare(torch.pow, FLOATS, exponent)
    if exponent >= 0:
        compare(torch.pow, INTEGERS, exponent)
    else:
        with pytest.raises(RuntimeError, match="Integers to negative integer powers are not allowed"):
            torch.pow(INTEGERS.to("dml"), exponent)


@pytest.mark.parametrize("name", ["add", "mul", "exp", "clamp_min", "pow"])
def test_in_place_and_out(name: str) -> None:
    arguments = () if name == "exp" else (2.0,)
    host = torch.tensor([[1.0, -2.0], [3.0, 0.5]])
    theirs, ours = host.clone(), host.to("dml")
    getattr(theirs[:, 1], f"{name}_")(*arguments)
    getattr(ours[:, 1], f"{name}_")(*arguments)
    assert torch.equal(ours.cpu(), theirs)
    target = torch.empty(0, device="dml")
    getattr(torch, name)(ours, *arguments, out=target)
    torch.testing.assert_close(target.cpu(), getattr(torch, name)(theirs, *arguments))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_their_gradients(name: str) -> None:
    function = getattr(functional, name)
    host = torch.linspace(-6.125, 6.25, 41)
    compare(function, host)
    gradients = []
    for device in ("cpu", "dml"):
        x = host.clone().to(device).requires_grad_()
        function(x).backward(torch.linspace(-1, 2, 41).to(device))
        gradients.append(x.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0], rtol=2e-5, atol=2e-6)


def test_softmax_of_infinities() -> None:
    rows = torch.tensor([[-math.inf, 0.0, 1.0], [-math.inf] * 3, [1000.0, 999.0, 0.0]])
    for function in (torch.softmax, torch.log_softmax):
        for axis in (0, 1):
            compare(function, rows, axis)


def test_bounds() -> None:
    compare(torch.clamp, FLOATS, -1, 2)
    compare(torch.clamp, FLOATS, 2, -1)  # the upper bound wins
    compare(torch.clamp, INTEGERS, -1.5, 2)
    compare(torch.clamp, FLOATS, None, FLOATS.flip(0))


def test_bits_of_floats() -> None:
    numbers = torch.tensor([0.0, -0.0, 1.0, 1e-45, -1e-45, 1.1754944e-38, 3e38, math.inf, -math.inf, math.nan, 0.7])
    compare(torch.frexp, numbers)
    compare(torch.nextafter, numbers.reshape(-1, 1), numbers)
    compare(torch.ldexp, numbers, torch.tensor(3))


def test_selection() -> None:
    mask = FLOATS > 0
    compare(torch.where, mask, FLOATS, INTEGERS[:1])
    compare(torch.where, mask, 1, 2.5)
    compare(torch.masked_fill, FLOATS, mask, 7)
    compare(torch.lerp, FLOATS, FLOATS.flip(0), 0.25)
    for weight in torch.tensor(2), torch.tensor(0.25, dtype=torch.float16), torch.tensor(True):
        compare(torch.lerp, FLOATS, FLOATS.flip(0), weight)
    compare(torch.addcmul, FLOATS, FLOATS, FLOATS.flip(0), value=0.5)
    assert torch.equal(FLOATS[:5].to("dml"), FLOATS[:5].to("dml"))
    assert not torch.equal(FLOATS.to("dml"), FLOATS.to("dml"))  # NaN


@pytest.mark.parametrize("order", range(4))
def test_polygamma(order: int) -> None:
    x = torch.tensor([-4.25, -0.5, 0.25, 1.0, 1.5, 2.0, 8.5, 33.0])
    torch.testing.assert_close(
        torch.polygamma(order, x.to("dml")).cpu(), torch.polygamma(order, x.double()).float(), rtol=2e-5, atol=1e-6
    )


@pytest.mark.parametrize("order", [2, 3, 5])
def test_polygamma_between_poles(order: int) -> None:
    """Halfway between two poles, the cotangent of the reflection is 0, and its coefficients are large."""
    x = torch.tensor([-8.5, -8.4375, -8.5625, -0.5, -20.75])
    torch.testing.assert_close(
        torch.polygamma(order, x.to("dml")).cpu(), torch.polygamma(order, x.double()).float(), rtol=2e-5, atol=1e-6
    )


@pytest.mark.parametrize("name", ["digamma", "lgamma", "erfinv", "erfc", "expm1", "log1p"])
def test_special_functions_are_accurate(name: str) -> None:
    x = torch.linspace(-0.999, 0.999, 101) if name == "erfinv" else torch.linspace(-0.95, 12.0, 301)
    exact = getattr(torch, name)(x.double())
    ours = getattr(torch, name)(x.to("dml")).cpu().double()
    torch.testing.assert_close(ours, exact, rtol=2e-6, atol=2e-6)
