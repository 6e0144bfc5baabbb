"""Normalizations against onnxruntime, ONNX's evaluator and plain loops; gradients against central differences."""

import itertools

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from dmlgpu import descs, reference
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference.helpers import run, sizes, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

BOTH = pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
EPSILON = 1e-3
CLOSE = {"rtol": 2e-6, "atol": 2e-6}


def normal(*shape, seed=1, dtype=np.float32):
    return (2 * np.random.default_rng([seed, *shape]).standard_normal(shape) + 1).astype(dtype)


def described(shape):
    return TensorDesc(DataType.FLOAT32, shape)


def channels(values, rank=4):
    """Return one number per channel in DirectML's sizes."""
    return values.reshape(1, -1, *(1,) * (rank - 2))


# ---- batch normalization


def batch_normalization(x, mean, variance, scale, bias, *, activation=None):
    statistics = [channels(values, x.ndim) for values in (mean, variance, scale, bias)]
    fields = ("mean_tensor", "variance_tensor", "scale_tensor", "bias_tensor")
    desc = descs.BatchNormalization(
        input_tensor=tensor(x),
        output_tensor=tensor(x),
        spatial=True,
        epsilon=EPSILON,
        fused_activation=activation,
        **{field: tensor(values) for field, values in zip(fields, statistics, strict=True)},
    )
    return run(desc, x, *statistics)


@BOTH
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5), (2, 3, 4, 5, 2)])
def test_batch_normalization_agrees_with_onnx(evaluate, shape):
    x = normal(*shape)
    mean, scale, bias = (normal(3, seed=seed) for seed in (2, 3, 4))
    variance = np.array([0.25, 1, 7], np.float32)
    want = evaluate("BatchNormalization", [x, scale, bias, mean, variance], epsilon=EPSILON)
    np.testing.assert_allclose(batch_normalization(x, mean, variance, scale, bias), want, **CLOSE)


def test_every_parameter_broadcasts_in_its_own_way():
    x = normal(2, 3, 4)
    shapes = [(1, 3, 1), (2, 1, 4), (1, 1, 1), (2, 3, 4)]
    mean, variance, scale, bias = (np.abs(normal(*shape, seed=seed)) for seed, shape in enumerate(shapes))
    desc = descs.BatchNormalization(
        input_tensor=tensor(x),
        mean_tensor=tensor(mean),
        variance_tensor=tensor(variance),
        scale_tensor=tensor(scale),
        bias_tensor=tensor(bias),
        output_tensor=tensor(x),
        spatial=False,
        epsilon=EPSILON,
    )
    got = run(desc, x, mean, variance, scale, bias)
    for n, c, w in np.ndindex(x.shape):
        factor = float(scale[0, 0, 0]) / np.sqrt(float(variance[n, 0, w]) + EPSILON)
        want = factor * (float(x[n, c, w]) - float(mean[0, c, 0])) + float(bias[n, c, w])
        assert got[n, c, w] == pytest.approx(want, rel=1e-6, abs=1e-6)


def test_a_fused_activation_works_on_the_rounded_result():
    x = normal(2, 3, 4, dtype=np.float16)
    ones, zeros = np.ones(3, np.float16), np.zeros(3, np.float16)
    plain = batch_normalization(x, zeros, ones, ones, ones)
    scaled = batch_normalization(x, zeros, ones, ones, ones, activation=descs.ActivationLinear(alpha=3.0, beta=0.0))
    np.testing.assert_array_equal(scaled, (3 * plain.astype(np.float32)).astype(np.float16))
    rectified = batch_normalization(x, zeros, ones, ones, ones, activation=descs.ActivationRelu())
    np.testing.assert_array_equal(rectified, np.maximum(plain, 0))


def training_of(x, scale, bias, added=None, activation=None):
    desc = descs.BatchNormalizationTraining(
        input_tensor=tensor(x),
        scale_tensor=tensor(scale),
        bias_tensor=tensor(scale),
        fused_add_tensor=None if added is None else tensor(x),
        output_tensor=tensor(x),
        output_mean_tensor=tensor(scale),
        output_variance_tensor=tensor(scale),
        epsilon=EPSILON,
        fused_activation=activation,
    )
    return reference.evaluate(desc, [x, scale, bias, added])


def onnx_training(x, scale, bias, run_model):
    """Return output, mean and variance by ONNX's training mode, which ignores running statistics."""
    names = ["x", "scale", "bias", "mean", "variance"]
    node = helper.make_node(
        "BatchNormalization", names, ["y", "m", "v"], training_mode=1, momentum=0.0, epsilon=EPSILON
    )
    arrays = [x, scale, bias, np.zeros(3, np.float32), np.ones(3, np.float32)]
    declared = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
        for name, array in zip(names, arrays, strict=True)
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "ymv"]
    graph = helper.make_graph([node], "training", declared, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return run_model(model, dict(zip(names, arrays, strict=True)))


def by_reference(model, feed):
    return ReferenceEvaluator(model).run(None, feed)


def by_runtime(model, feed):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)


@pytest.mark.parametrize("run_model", [by_reference, by_runtime])
def test_training_agrees_with_onnx(run_model):
    x, scale, bias = normal(2, 3, 4, 5), normal(3, seed=2), normal(3, seed=3)
    output, mean, variance = training_of(x, channels(scale), channels(bias))
    want = onnx_training(x, scale, bias, run_model)
    np.testing.assert_allclose(output, want[0], **CLOSE)
    np.testing.assert_allclose(mean.ravel(), want[1], **CLOSE)
    np.testing.assert_allclose(variance.ravel(), want[2], **CLOSE)


def test_training_adds_before_the_activation():
    x, scale, bias, added = normal(2, 3, 4), np.ones((1, 3, 1), np.float32), normal(1, 3, 1), normal(2, 3, 4, seed=5)
    plain, *_ = training_of(x, scale, bias)
    got, *_ = training_of(x, scale, bias, added, descs.ActivationRelu())
    np.testing.assert_allclose(got, np.maximum(plain + added, 0), **CLOSE)


# ---- mean and variance


def normalized(x, axes, scale=None, bias=None, *, use_mean=True, use_variance=True, epsilon=EPSILON):
    desc = descs.MeanVarianceNormalization2(
        input_tensor=tensor(x),
        scale_tensor=None if scale is None else tensor(scale),
        bias_tensor=None if bias is None else tensor(bias),
        output_tensor=tensor(x),
        axes=axes,
        use_mean=use_mean,
        use_variance=use_variance,
        epsilon=epsilon,
    )
    return run(desc, x, scale, bias)


@BOTH
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_layer_normalization_agrees_with_onnx(evaluate, axis):
    x = normal(2, 3, 4, 5)
    scale, bias = normal(*x.shape[axis:], seed=2), normal(*x.shape[axis:], seed=3)
    want = evaluate("LayerNormalization", [x, scale, bias], axis=axis, epsilon=EPSILON)
    lead = (1,) * axis
    got = normalized(x, tuple(range(axis, 4)), scale.reshape(lead + scale.shape), bias.reshape(lead + bias.shape))
    np.testing.assert_allclose(got, want, **CLOSE)


@BOTH
def test_instance_normalization_agrees_with_onnx(evaluate):
    x, scale, bias = normal(2, 3, 4, 5), normal(3, seed=2), normal(3, seed=3)
    want = evaluate("InstanceNormalization", [x, scale, bias], epsilon=EPSILON)
    np.testing.assert_allclose(normalized(x, (2, 3), channels(scale), channels(bias)), want, **CLOSE)


@BOTH
@pytest.mark.parametrize("axes", [(0, 2, 3), (1,), (0, 1, 2, 3)])
def test_mean_variance_normalization_agrees_with_onnx(evaluate, axes):
    x = normal(2, 3, 4, 5)
    want = evaluate("MeanVarianceNormalization", [x], axes=axes)
    np.testing.assert_allclose(normalized(x, axes, epsilon=0.0), want, 2e-6, 2e-6)


def test_without_the_mean_it_is_root_mean_square_normalization():
    x, scale = normal(6, 8), normal(8, seed=2)
    want = onnx_runtime("SimplifiedLayerNormalization", [x, scale], axis=-1, epsilon=EPSILON)
    np.testing.assert_allclose(normalized(x, (1,), scale[np.newaxis], use_mean=False), want, **CLOSE)


def test_without_the_variance_nothing_is_divided():
    x, scale = normal(6, 8), normal(6, 1, seed=2)
    wide = x.astype(np.float64)
    want = scale * (wide - wide.mean(1, keepdims=True))
    np.testing.assert_allclose(normalized(x, (1,), scale, use_variance=False), want, 1e-6)
    got = normalized(x, (1,), scale, scale, use_mean=False, use_variance=False)
    np.testing.assert_allclose(got, scale * wide + scale, 1e-6, 1e-7)


@given(st.data())
def test_the_older_operators_agree_with_the_newer_ones(data):
    crossed, variance = data.draw(st.booleans()), data.draw(st.booleans())
    x = normal(*data.draw(sizes(4, 5, 4)))
    scale = normal(*(1 if data.draw(st.booleans()) else size for size in x.shape), seed=2)
    common = {"input_tensor": tensor(x), "scale_tensor": tensor(scale), "output_tensor": tensor(x), "epsilon": EPSILON}
    axes = (1, 2, 3) if crossed else (2, 3)
    oldest = descs.MeanVarianceNormalization(cross_channel=crossed, normalize_variance=variance, **common)
    older = descs.MeanVarianceNormalization1(axes=axes, normalize_variance=variance, **common)
    want = normalized(x, axes, scale, use_variance=variance)
    np.testing.assert_array_equal(run(oldest, x, scale, None), want)
    np.testing.assert_array_equal(run(older, x, scale, None), want)


# ---- norms, scales


@BOTH
@pytest.mark.parametrize(("p", "axis"), list(itertools.product([1, 2], [0, 1, 2])))
def test_lp_normalization_agrees_with_onnx(evaluate, p, axis):
    x = normal(3, 4, 5)
    if evaluate is onnx_reference:  # it adds numbers up with their signs
        x = np.abs(x)
    desc = descs.LpNormalization(input_tensor=tensor(x), output_tensor=tensor(x), axis=axis, p=p, epsilon=1e-5)
    np.testing.assert_allclose(run(desc, x), evaluate("LpNormalization", [x], axis=axis, p=p), **CLOSE)


def test_epsilon_is_the_minimum_norm():
    x = np.array([[0, 0], [3e-6, 4e-6], [3, 4]], np.float32)
    desc = descs.LpNormalization(input_tensor=tensor(x), output_tensor=tensor(x), axis=1, p=2, epsilon=1e-5)
    np.testing.assert_allclose(run(desc, x), [[0, 0], [0.3, 0.4], [0.6, 0.8]], 1e-6)


def test_value_scale_adds_a_bias_per_channel():
    x = normal(2, 3, 2, 2)
    desc = descs.ValueScale2d(input_tensor=tensor(x), output_tensor=tensor(x), scale=0.5, bias=(1.0, -2.0, 3.0))
    want = np.stack([0.5 * x[:, 0] + 1, 0.5 * x[:, 1] - 2, 0.5 * x[:, 2] + 3], 1)
    np.testing.assert_allclose(run(desc, x), want, 1e-6)


# ---- local response


def local_response(x, size, *, crossed=True, alpha=0.5, beta=0.75, bias=1.5):
    attributes = {"cross_channel": crossed, "local_size": size, "alpha": alpha, "beta": beta, "bias": bias}
    desc = descs.LocalResponseNormalization(input_tensor=tensor(x), output_tensor=tensor(x), **attributes)
    return run(desc, x)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9, 100])
def test_local_response_across_channels_agrees_with_onnx(size):
    x = normal(7, 7, 3, 4)  # ONNX's evaluator takes the batch size for the number of channels
    attributes = {"size": size, "alpha": 0.5, "beta": 0.75, "bias": 1.5}
    np.testing.assert_allclose(local_response(x, size), onnx_reference("LRN", [x], **attributes), **CLOSE)
    if size % 2:
        np.testing.assert_allclose(local_response(x, size), onnx_runtime("LRN", [x], **attributes), **CLOSE)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 10])
def test_local_response_within_channels_sums_over_height_and_width(size):
    x = normal(2, 2, 5, 6)
    got = local_response(x, size, crossed=False)
    for n, c, h, w in np.ndindex(x.shape):
        rows = [i for i in range(5) if -((size - 1) // 2) <= i - h <= size // 2]
        columns = [j for j in range(6) if -((size - 1) // 2) <= j - w <= size // 2]
        total = sum(float(x[n, c, i, j]) ** 2 for i in rows for j in columns)
        assert got[n, c, h, w] == pytest.approx(float(x[n, c, h, w]) / (1.5 + 0.5 / size * total) ** 0.75, rel=1e-6)


# ---- gradients


def slopes(function, x, gradient, step=1e-5):
    """Return the gradient of ``sum(gradient * function(x))`` by central differences."""
    result = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        moved = x.copy()
        moved[place] = x[place] + step
        above = function(moved)
        moved[place] = x[place] - step
        result[place] = (gradient * (above - function(moved))).sum() / (2 * step)
    return result


@pytest.mark.parametrize(("crossed", "size"), list(itertools.product([True, False], [1, 2, 3, 4, 9])))
def test_the_gradient_of_local_response(crossed, size):
    x, gradient = normal(2, 4, 3, 4, dtype=np.float64), normal(2, 4, 3, 4, seed=2, dtype=np.float64)
    attributes = {"cross_channel": crossed, "local_size": size, "alpha": 0.5, "beta": 0.75, "bias": 1.5}
    tensor_desc = described(x.shape)
    forward = descs.LocalResponseNormalization(input_tensor=tensor_desc, output_tensor=tensor_desc, **attributes)
    backward = descs.LocalResponseNormalizationGrad(
        input_tensor=tensor_desc, input_gradient_tensor=tensor_desc, output_gradient_tensor=tensor_desc, **attributes
    )
    (got,) = reference.evaluate(backward, [x, gradient])
    want = slopes(lambda moved: reference.evaluate(forward, [moved])[0], x, gradient)
    np.testing.assert_allclose(got, want, 1e-7, 1e-8)


SMALL = [(1, 3, 1, 1), (1, 1, 1, 1), (2, 3, 1, 4), (2, 3, 2, 4)]


def batch_gradients(desc_class, x, gradient, statistics):
    mean, variance, scale = statistics
    whole, small = described(x.shape), described(scale.shape)
    fields = ("mean_tensor", "variance_tensor", "scale_tensor")
    fields += ("output_scale_gradient_tensor", "output_bias_gradient_tensor")
    desc = desc_class(
        input_tensor=whole,
        input_gradient_tensor=whole,
        output_gradient_tensor=whole,
        epsilon=EPSILON,
        **dict.fromkeys(fields, small),
    )
    return reference.evaluate(desc, [x, gradient, mean, variance, scale])


@pytest.mark.parametrize("small", SMALL)
def test_the_gradients_of_batch_normalization(small):
    x, gradient = normal(2, 3, 2, 4, dtype=np.float64), normal(2, 3, 2, 4, seed=2, dtype=np.float64)
    mean, scale, bias = (normal(*small, seed=seed, dtype=np.float64) for seed in (3, 4, 5))
    variance = np.abs(normal(*small, seed=6, dtype=np.float64)) + 0.5
    desc = descs.BatchNormalization(
        input_tensor=described(x.shape),
        output_tensor=described(x.shape),
        spatial=True,
        epsilon=EPSILON,
        **dict.fromkeys(("mean_tensor", "variance_tensor", "scale_tensor", "bias_tensor"), described(small)),
    )

    def forward(x, scale, bias):
        return reference.evaluate(desc, [x, mean, variance, scale, bias])[0]

    got = batch_gradients(descs.BatchNormalizationGrad, x, gradient, (mean, variance, scale))
    np.testing.assert_allclose(got[0], slopes(lambda moved: forward(moved, scale, bias), x, gradient), 1e-7, 1e-8)
    np.testing.assert_allclose(got[1], slopes(lambda moved: forward(x, moved, bias), scale, gradient), 1e-7, 1e-8)
    np.testing.assert_allclose(got[2], slopes(lambda moved: forward(x, scale, moved), bias, gradient), 1e-7, 1e-8)


@pytest.mark.parametrize("small", SMALL)
def test_the_gradients_of_batch_normalization_in_training(small):
    x, gradient = normal(2, 3, 2, 4, dtype=np.float64), normal(2, 3, 2, 4, seed=2, dtype=np.float64)
    scale, bias = (normal(*small, seed=seed, dtype=np.float64) for seed in (4, 5))
    fields = ("scale_tensor", "bias_tensor", "output_mean_tensor", "output_variance_tensor")
    desc = descs.BatchNormalizationTraining(
        input_tensor=described(x.shape),
        output_tensor=described(x.shape),
        epsilon=EPSILON,
        **dict.fromkeys(fields, described(small)),
    )

    def forward(x, scale, bias):
        return reference.evaluate(desc, [x, scale, bias, None])

    _, mean, variance = forward(x, scale, bias)
    got = batch_gradients(descs.BatchNormalizationTrainingGrad, x, gradient, (mean, variance, scale))
    np.testing.assert_allclose(got[0], slopes(lambda moved: forward(moved, scale, bias)[0], x, gradient), 1e-6, 1e-7)
    np.testing.assert_allclose(got[1], slopes(lambda moved: forward(x, moved, bias)[0], scale, gradient), 1e-6, 1e-7)
    np.testing.assert_allclose(got[2], slopes(lambda moved: forward(x, scale, moved)[0], bias, gradient), 1e-6, 1e-7)
