"""Activations against ONNX's evaluator, onnxruntime, SciPy, and the pages' formulas in plain Python."""

import math

import numpy as np
import pytest
from scipy import special

from dmlgpu import descs
from tests.reference import oracles
from tests.reference.helpers import bits, run, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

INF, NAN = math.inf, math.nan
SMALL = 2.0**-30


def activation(desc_class, x, **fields):
    return run(desc_class(input_tensor=tensor(x), output_tensor=tensor(x), **fields), x)


def prelu(x, slope):
    desc = descs.ActivationParameterizedRelu(
        input_tensor=tensor(x), slope_tensor=tensor(slope), output_tensor=tensor(x)
    )
    return run(desc, x, slope)


def relu_grad(x, gradient):
    desc = descs.ActivationReluGrad(
        input_tensor=tensor(x), input_gradient_tensor=tensor(gradient), output_gradient_tensor=tensor(gradient)
    )
    return run(desc, x, gradient)


def sample(dtype=np.float64):
    x = np.random.default_rng(31).normal(0, 4, 400)
    return np.concatenate([x, [0.0, 1.0, -1.0, 20.0, -20.0]]).astype(dtype)


FORMULAS = {
    descs.ActivationElu: (lambda x, alpha: x if x >= 0 else alpha * math.expm1(x), {"alpha": 0.75}),
    descs.ActivationCelu: (
        lambda x, alpha: max(0, x) + min(0, alpha * math.expm1(x / alpha)),
        {"alpha": 1.5},
    ),
    descs.ActivationScaledElu: (
        lambda x, alpha, gamma: gamma * x if x > 0 else gamma * (alpha * math.exp(x) - alpha),
        {"alpha": 1.25, "gamma": 0.5},
    ),
    descs.ActivationHardSigmoid: (
        lambda x, alpha, beta: max(0, min(alpha * x + beta, 1)),
        {"alpha": 0.25, "beta": 0.5},
    ),
    descs.ActivationIdentity: (lambda x: x, {}),
    descs.ActivationLeakyRelu: (lambda x, alpha: x if x >= 0 else alpha * x, {"alpha": 0.125}),
    descs.ActivationLinear: (lambda x, alpha, beta: alpha * x + beta, {"alpha": 3.0, "beta": -0.5}),
    descs.ActivationParametricSoftplus: (
        lambda x, alpha, beta: alpha * math.log1p(math.exp(beta * x)),
        {"alpha": 2.0, "beta": 0.5},
    ),
    descs.ActivationRelu: (lambda x: max(0, x), {}),
    descs.ActivationScaledTanh: (lambda x, alpha, beta: alpha * math.tanh(beta * x), {"alpha": 1.5, "beta": 0.5}),
    descs.ActivationSigmoid: (lambda x: 1 / (1 + math.exp(-x)), {}),
    descs.ActivationSoftplus: (
        lambda x, steepness: math.log1p(math.exp(steepness * x)) / steepness,
        {"steepness": 0.5},
    ),
    descs.ActivationSoftsign: (lambda x: x / (1 + abs(x)), {}),
    descs.ActivationTanh: (lambda x: (1 - math.exp(-2 * x)) / (1 + math.exp(-2 * x)), {}),
    descs.ActivationThresholdedRelu: (lambda x, alpha: x if x > alpha else 0, {"alpha": 1.0}),
    descs.ActivationShrink: (
        lambda x, bias, threshold: x - bias if x > threshold else x + bias if x < -threshold else 0,
        {"bias": 0.25, "threshold": 1.0},
    ),
    descs.ActivationGelu: (lambda x: x * float(special.ndtr(x)), {}),
    descs.ActivationSwish: (
        lambda x, sigmoid_input_scale: x / (1 + math.exp(-sigmoid_input_scale * x)),
        {"sigmoid_input_scale": 1.5},
    ),
    descs.ActivationHardSwish: (
        lambda x, alpha, beta: x * max(0, min(alpha * x + beta, 1)),
        {"alpha": 0.25, "beta": 0.5},
    ),
}


@pytest.mark.parametrize("desc_class", FORMULAS)
def test_activations_follow_the_pages(desc_class):
    formula, attributes = FORMULAS[desc_class]
    x = sample()
    expected = [formula(float(value), **attributes) for value in x]
    np.testing.assert_allclose(activation(desc_class, x, **attributes), expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("desc_class", FORMULAS)
def test_results_are_rounded_once(desc_class, dtype):
    attributes = FORMULAS[desc_class][1]
    x = sample(dtype)
    exact = activation(desc_class, x.astype(np.float64), **attributes)
    expected = np.array([oracles.round_to_float(float(value), dtype) for value in exact], dtype)
    np.testing.assert_array_equal(activation(desc_class, x, **attributes), expected)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize(
    ("desc_class", "operator", "fields", "attributes"),
    [
        (descs.ActivationElu, "Elu", {"alpha": 0.75}, {"alpha": 0.75}),
        (descs.ActivationCelu, "Celu", {"alpha": 1.5}, {"alpha": 1.5}),
        (descs.ActivationScaledElu, "Selu", {"alpha": 1.25, "gamma": 1.5}, {"alpha": 1.25, "gamma": 1.5}),
        (descs.ActivationHardSigmoid, "HardSigmoid", {"alpha": 0.25, "beta": 0.5}, {"alpha": 0.25, "beta": 0.5}),
        (descs.ActivationHardSwish, "HardSwish", {"alpha": 1 / 6, "beta": 0.5}, {}),
        (descs.ActivationLeakyRelu, "LeakyRelu", {"alpha": 0.125}, {"alpha": 0.125}),
        (descs.ActivationRelu, "Relu", {}, {}),
        (descs.ActivationSigmoid, "Sigmoid", {}, {}),
        (descs.ActivationSoftplus, "Softplus", {"steepness": 1.0}, {}),
        (descs.ActivationSoftsign, "Softsign", {}, {}),
        (descs.ActivationTanh, "Tanh", {}, {}),
        (descs.ActivationThresholdedRelu, "ThresholdedRelu", {"alpha": 1.0}, {"alpha": 1.0}),
        (descs.ActivationShrink, "Shrink", {"bias": 0.25, "threshold": 1.0}, {"bias": 0.25, "lambd": 1.0}),
    ],
)
def test_activations_agree_with_onnx(desc_class, operator, fields, attributes, evaluate):
    x = sample(np.float32)
    expected = evaluate(operator, [x], **attributes)
    np.testing.assert_allclose(activation(desc_class, x, **fields), expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_parameterized_relu_agrees_with_onnx(dtype, evaluate):
    rng = np.random.default_rng(32)
    x, slope = (rng.integers(-9, 9, 50).astype(dtype) for _ in "xs")
    np.testing.assert_array_equal(prelu(x, slope), evaluate("PRelu", [x, slope]))


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, np.uint32])
def test_shrink_of_integers_agrees_with_onnx(dtype, evaluate):
    x = np.arange(-60, 60).astype(dtype) if np.dtype(dtype).kind == "i" else np.arange(120).astype(dtype)
    expected = evaluate("Shrink", [x], bias=3.0, lambd=5.0)
    np.testing.assert_array_equal(activation(descs.ActivationShrink, x, bias=3.0, threshold=5.0), expected)


def test_shrink_of_integers_saturates_and_truncates():
    x = np.array([-128, -3, 0, 3, 127], np.int8)
    result = activation(descs.ActivationShrink, x, bias=-2.5, threshold=1.0)
    np.testing.assert_array_equal(result, np.array([-128, -5, 0, 5, 127], np.int8))


@pytest.mark.parametrize(
    ("desc_class", "fields", "at"),
    [
        (descs.ActivationElu, {"alpha": 2.0}, {-INF: -2.0, INF: INF, -0.0: -0.0, NAN: NAN}),
        (descs.ActivationCelu, {"alpha": 2.0}, {-INF: -2.0, INF: INF, NAN: NAN}),
        (descs.ActivationScaledElu, {"alpha": 2.0, "gamma": 3.0}, {-INF: -6.0, INF: INF, NAN: NAN}),
        (descs.ActivationHardSigmoid, {"alpha": 0.5, "beta": 0.5}, {-INF: 0.0, INF: 1.0, NAN: NAN}),
        (descs.ActivationHardSwish, {"alpha": 0.5, "beta": 0.5}, {-INF: NAN, INF: INF, NAN: NAN, -8.0: -0.0}),
        (descs.ActivationLeakyRelu, {"alpha": 0.5}, {-INF: -INF, INF: INF, NAN: NAN, -0.0: -0.0}),
        (descs.ActivationRelu, {}, {-INF: 0.0, INF: INF, NAN: NAN, -0.0: 0.0}),
        (descs.ActivationSigmoid, {}, {-INF: 0.0, INF: 1.0, NAN: NAN, -0.0: 0.5}),
        (descs.ActivationSoftplus, {"steepness": 1.0}, {-INF: 0.0, INF: INF, NAN: NAN, 3e38: 3e38}),
        (descs.ActivationSoftplus, {"steepness": 0.0}, {1.0: INF}),
        (descs.ActivationSoftsign, {}, {-INF: NAN, INF: NAN, NAN: NAN, -0.0: -0.0, 3e38: 1.0}),
        (descs.ActivationTanh, {}, {-INF: -1.0, INF: 1.0, NAN: NAN, -0.0: -0.0}),
        (descs.ActivationThresholdedRelu, {"alpha": 1.0}, {-INF: 0.0, INF: INF, NAN: 0.0, 1.0: 0.0}),
        (descs.ActivationShrink, {"bias": 1.0, "threshold": 1.0}, {-INF: -INF, INF: INF, NAN: 0.0, 1.0: 0.0}),
        (descs.ActivationGelu, {}, {-INF: NAN, INF: INF, NAN: NAN, -0.0: -0.0}),
        (descs.ActivationSwish, {"sigmoid_input_scale": 1.0}, {-INF: NAN, INF: INF, NAN: NAN, -0.0: -0.0}),
    ],
)
def test_special_values(desc_class, fields, at):
    result = activation(desc_class, np.array([*at], np.float32), **fields)
    expected = np.array([*at.values()], np.float32)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(bits(result[numbers]), bits(expected[numbers]))


@pytest.mark.parametrize(
    ("desc_class", "fields", "x", "expected"),
    [
        (descs.ActivationElu, {"alpha": 1.0}, -SMALL, -SMALL + SMALL**2 / 2),
        (descs.ActivationCelu, {"alpha": 2.0}, -SMALL, -SMALL + SMALL**2 / 4),
        (descs.ActivationScaledElu, {"alpha": 2.0, "gamma": 0.5}, -SMALL, -SMALL + SMALL**2 / 2),
        (descs.ActivationSoftplus, {"steepness": 1.0}, -60.0, math.exp(-60.0)),
        (descs.ActivationGelu, {}, -12.0, -12.0 * 1.776482112077679e-33),  # the normal distribution's tail, tabulated
        (descs.ActivationSwish, {"sigmoid_input_scale": 1.0}, -90.0, -90.0 * math.exp(-90.0)),
    ],
)
def test_small_results_keep_their_digits(desc_class, fields, x, expected):
    assert activation(desc_class, np.array([x]), **fields)[0] == pytest.approx(expected, rel=1e-12)


def test_attributes_are_float32():
    assert activation(descs.ActivationLeakyRelu, np.array([-1.0]), alpha=0.1)[0] == -float(np.float32(0.1))


def test_relu_grad_passes_the_gradient_above_zero():
    x = np.array([1.0, 0.0, -0.0, -1.0, NAN, INF, -INF], np.float32)
    gradient = np.array([5.0, 5.0, 5.0, 5.0, 5.0, NAN, NAN], np.float32)
    np.testing.assert_array_equal(relu_grad(x, gradient), np.array([5, 0, 0, 0, 0, NAN, 0], np.float32))


def test_parameterized_relu_of_integers_wraps():
    result = prelu(np.array([-100, 100], np.int8), np.array([3, 3], np.int8))
    np.testing.assert_array_equal(result, np.array([oracles.wrap(-300, np.int8), 100], np.int8))


def test_identity_moves_bits():
    x = np.random.default_rng(33).integers(0, 1 << 16, 500).astype(np.uint16).view(np.float16)
    np.testing.assert_array_equal(bits(activation(descs.ActivationIdentity, x)), bits(x))
