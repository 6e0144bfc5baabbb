"""``grad`` and ``value_and_grad``: networks, arguments, results, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Tensor, ops
from dmlgpu.common.errors import InvalidArgument, NotSupported
from dmlgpu.demo import training
from dmlgpu.runtime.device import as_device
from tests.unit.tensors.gradients.gradient_checks import Array, attention, differences, draw, erf, sigmoid

d = ops.directml

pytestmark = pytest.mark.usefixtures("numpy_device")


@pytest.fixture
def numpy_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")


def test_gradients_of_a_layer_are_those_of_the_chain_rule() -> None:
    def loss(parameters: Any, x: Any) -> Any:
        return ops.mean(ops.relu(x @ parameters["weight"] + parameters["bias"]) ** 2)

    x, weight, bias = draw(5, 3), draw(3, 4, seed=1), draw(4, seed=2)
    hidden = x @ weight + bias
    passed = 2 * np.maximum(hidden, 0) / 20
    single = {"weight": weight.astype(np.float32), "bias": bias.astype(np.float32)}
    for function in (dmlgpu.value_and_grad(loss), dmlgpu.compile(dmlgpu.value_and_grad(loss))):
        value, gradients = function(single, x.astype(np.float32))
        np.testing.assert_allclose(value, (np.maximum(hidden, 0) ** 2).mean(), rtol=1e-5)
        np.testing.assert_allclose(gradients["weight"], x.T @ passed, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(gradients["bias"], passed.sum(0), rtol=1e-4, atol=1e-5)
    assert dmlgpu.grad(lambda x: ops.sum(x * x))(Tensor([1.0, 2.0])).tolist() == [2, 4]


# ---- networks --------------------------------------------------------------------------------------------------------


def test_gradients_of_the_demo_network_are_those_of_its_own_graph() -> None:
    """The losses of training with ``value_and_grad`` are those of the demo, whose backward pass is written by hand."""
    numbers = np.random.default_rng(3)
    images = numbers.uniform(0, 1, (20, 1, 8, 8)).astype(np.float32)
    labels = numbers.integers(0, 10, 20).astype(np.uint32)
    digits = training.Digits(images, labels, images, labels)
    order = training.batch_order(20, 4, 5, 0)
    parameters = training.initial_parameters(0, (2, 3))
    trainer = training.Trainer(as_device("test", None), digits, order, parameters)
    trainer.advance(4)

    def loss(parameters: Any, images: Any, right: Any) -> Any:
        values = images
        for number in (1, 2):
            values = ops.conv2d(values, parameters[f"filter{number}"], padding=1)
            scale, shift = parameters[f"scale{number}"], parameters[f"shift{number}"]
            values = d.batch_normalization_training(values, scale, shift, epsilon=training.EPSILON).output
            values = ops.max_pool2d(ops.relu(values), 2)
        scores = ops.linear(values.reshape(len(images), -1), parameters["weights"][0, 0], parameters["bias"][0, 0, 0])
        return -ops.mean(ops.sum(ops.log_softmax(scores) * right, -1))

    adam = training.Adam()
    step = dmlgpu.compile(dmlgpu.value_and_grad(loss))
    moments = {name: (np.zeros_like(array), np.zeros_like(array)) for name, array in parameters.items()}
    losses = []
    for index, batch in enumerate(order, 1):
        value, gradients = step(parameters, images[batch], np.eye(10, dtype=np.float32)[labels[batch]])
        losses.append(float(value))
        assert gradients.keys() == parameters.keys()
        for name, gradient in gradients.items():
            first, second = moments[name]
            first = adam.beta1 * first + (1 - adam.beta1) * gradient
            second = adam.beta2 * second + (1 - adam.beta2) * gradient**2
            moments[name] = first, second
            rate = adam.learning_rate * math.sqrt(1 - adam.beta2**index) / (1 - adam.beta1**index)
            moved = parameters[name] - rate * first / (np.sqrt(second) + adam.epsilon)
            parameters[name] = moved.astype(np.float32)
    np.testing.assert_allclose(losses, trainer.losses(), rtol=1e-3)


def transformer(library: Any, x: Any, p: Any) -> Any:
    """A block before whose parts is the normalization, on 2 heads; ``library`` has what NumPy lacks."""
    hidden = library.layer_norm(x, p["scale1"], p["shift1"])
    parts = [hidden @ p[name] for name in ("query", "key", "value")]
    x = x + library.attention(*parts) @ p["output"]
    hidden = library.gelu(library.layer_norm(x, p["scale2"], p["shift2"]) @ p["up"])
    return x + hidden @ p["down"]


class OfTensors:
    layer_norm = staticmethod(ops.layer_norm)
    gelu = staticmethod(ops.gelu)

    @staticmethod
    def attention(query: Any, key: Any, value: Any) -> Any:
        mask = np.triu(np.full((3, 3), -1e4, np.float32), 1)
        return ops.attention(query, key, value, 2, mask[None, None])


class OfArrays:
    @staticmethod
    def layer_norm(x: Array, scale: Array, shift: Array) -> Array:
        centered = x - x.mean(-1, keepdims=True)
        return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * scale + shift

    @staticmethod
    def gelu(x: Array) -> Array:
        return x * (1 + erf(x / math.sqrt(2))) / 2

    @staticmethod
    def attention(query: Array, key: Array, value: Array) -> Array:
        return attention(query, key, value, np.triu(np.full((3, 3), -1e4), 1)[None, None])


def test_a_transformer_block_learns_as_by_differences() -> None:
    sizes = {
        **dict.fromkeys(("query", "key", "value", "output"), (4, 4)),
        **dict.fromkeys(("scale1", "shift1", "scale2", "shift2"), (4,)),
        "up": (4, 6),
        "down": (6, 4),
    }
    ours = {name: draw(*size, seed=index).astype(np.float32) * 0.5 for index, (name, size) in enumerate(sizes.items())}
    theirs = {name: array.astype(np.float64) for name, array in ours.items()}
    x, target = draw(2, 3, 4, seed=11).astype(np.float32), draw(2, 3, 4, seed=12).astype(np.float32)
    tokens = np.array([[0, 1, 1], [2, 0, 2]], np.int32)
    table = draw(3, 4, seed=13).astype(np.float32)
    ours["table"], theirs["table"] = table, table.astype(np.float64)

    def loss(p: Any) -> Any:
        embedded = ops.take(p["table"], tokens, axis=0) + x
        return ops.mean((transformer(OfTensors, embedded, p) - target) ** 2)

    def formula(p: Any) -> float:
        return float(((transformer(OfArrays, p["table"][tokens] + x, p) - target) ** 2).mean())

    step = dmlgpu.compile(dmlgpu.value_and_grad(loss))
    before = formula(theirs)
    for _ in range(3):
        value, gradients = step(ours)
        np.testing.assert_allclose(value, formula(theirs), rtol=2e-4)
        for name, array in theirs.items():
            exact = differences(
                lambda part, name=name, rest=theirs: np.asarray(formula({**rest, name: part})), [array], np.ones(()), 0
            )
            np.testing.assert_allclose(gradients[name], exact, rtol=2e-3, atol=2e-4)
        ours = {name: array - np.float32(0.2) * gradients[name] for name, array in ours.items()}
        theirs = {name: array.astype(np.float64) for name, array in ours.items()}
    assert formula(theirs) < before


# ---- arguments and results -------------------------------------------------------------------------------------------


def test_gradients_have_the_structure_of_their_arguments() -> None:
    def loss(parameters: Any, scale: Any, labels: Any) -> Any:
        first, (second, third) = parameters["layers"]
        return ops.sum(first * second) * scale + third + labels[0].astype("float32")

    layers = [Tensor([1.0, 2.0]), (Tensor([3.0, 4.0]), Tensor(5.0))]
    arguments = {"layers": layers, "unused": Tensor([[1.0]])}
    value, (gradients, of_scale) = dmlgpu.value_and_grad(loss, (0, -2))(arguments, 2.0, np.array([7]))
    assert value.item() == 34 and of_scale.item() == 11
    assert isinstance(gradients["layers"], list) and isinstance(gradients["layers"][1], tuple)
    assert gradients["layers"][0].tolist() == [6, 8] and gradients["layers"][1][0].tolist() == [2, 4]
    assert gradients["layers"][1][1].item() == 1 and gradients["layers"][1][1].shape == ()
    assert gradients["unused"].tolist() == [[0]]


def test_captured_tensors_are_constant_even_if_they_share_memory() -> None:
    x = Tensor([2.0, 3.0])
    assert dmlgpu.grad(lambda y: ops.sum(x * y))(x).tolist() == [2, 3]
    assert dmlgpu.grad(lambda y, z: ops.sum(z * y))(x, x).tolist() == [2, 3]
    view = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])[:, 1:]
    assert dmlgpu.grad(lambda y: ops.sum(y * y))(view).tolist() == [[4, 6], [10, 12]]
    repeated = Tensor([1.0, 2.0]).broadcast_to((2, 2))
    assert dmlgpu.grad(lambda y: ops.sum(y * y))(repeated).tolist() == [[2, 4], [2, 4]]
    assert dmlgpu.compile(dmlgpu.grad(lambda y: ops.sum(y * y * x[1])))(view[0]).tolist() == [12, 18]


def test_value_and_auxiliary_results() -> None:
    def loss(x: Any) -> Any:
        return ops.sum(x * x), {"doubled": x * 2}

    x = np.array([1, 2], np.float32)
    (value, aux), gradient = dmlgpu.value_and_grad(loss, has_aux=True)(x)
    assert isinstance(gradient, np.ndarray) and isinstance(aux["doubled"], np.ndarray) and value == 5
    gradient, aux = dmlgpu.grad(loss, has_aux=True)(Tensor(x))
    assert isinstance(gradient, Tensor) and aux["doubled"].tolist() == [2, 4]


def test_gradients_of_gradients() -> None:
    def slope(x: Any) -> Any:
        return dmlgpu.grad(lambda y: ops.sum(y**4) + ops.sum(ops.relu(y[1:]) * y[:-1]))(x)

    x = np.array([1, -2, 3], np.float32)
    for function in (slope, dmlgpu.compile(slope)):
        np.testing.assert_allclose(function(x), 4 * x**3 + [0, 3, -2])
    second = dmlgpu.grad(lambda x: ops.sum(slope(x)[0] * x[1]))
    for function in (second, dmlgpu.compile(second)):
        np.testing.assert_allclose(function(x), [12 * x[0] ** 2 * x[1], 4 * x[0] ** 3, 0])


def test_gradients_of_a_compiled_function() -> None:
    @dmlgpu.compile
    def layer(x: Any) -> Any:
        return ops.sum(ops.sigmoid(x))

    x = np.array([0.5, -1], np.float32)
    np.testing.assert_allclose(dmlgpu.grad(layer)(x), sigmoid(x) * (1 - sigmoid(x)), rtol=1e-5)


def test_a_compiled_gradient_is_one_graph() -> None:
    def loss(w: Any, x: Any) -> Any:
        return ops.mean(ops.relu(x @ w) ** 2)

    step = dmlgpu.compile(dmlgpu.value_and_grad(loss))
    w, x = Tensor(draw(3, 2), "float32"), Tensor(draw(4, 3), "float32")
    step(w, x)
    assert step.cache_info().entries == 1
    names = [node.desc.operator for node in step.desc(w, x).nodes if isinstance(node, dmlgpu.OperatorNode)]
    assert names.count("GEMM") == 2 and "ACTIVATION_RELU_GRAD" in names


def refused(function: Callable[[], Any], kind: type[Exception] = InvalidArgument) -> str:
    with pytest.raises(kind) as caught:
        function()
    return str(caught.value)


def test_errors_name_valid_arguments() -> None:
    x = Tensor([1.0, 2.0])

    def square(x: Any) -> Any:
        return x * x

    assert refused(lambda: dmlgpu.grad(square)(x)) == (
        "grad: `square` must return a Tensor of one floating-point number, got FLOAT32 [2]; ops.sum or ops.mean makes "
        "one of many"
    )
    assert "got 3 of type int" in refused(lambda: dmlgpu.value_and_grad(lambda x: 3)(x))
    assert "got INT64 []" in refused(lambda: dmlgpu.grad(ops.argmax)(x))
    assert refused(lambda: dmlgpu.grad(square, 1)(x)) == (
        "grad: argnums must name arguments that are given by position, of which `square` got 1, got 1"
    )
    assert refused(lambda: dmlgpu.grad(square, cast(Any, "x"))) == (
        "grad: argnums must be the position of an argument, or a tuple of some, got 'x'"
    )
    assert "got ()" in refused(lambda: dmlgpu.grad(square, ()))
    assert refused(lambda: dmlgpu.grad(cast(Any, 3))).startswith("grad: function must be callable, got 3")
    assert refused(lambda: dmlgpu.value_and_grad(square)(Tensor([1, 2]))) == (
        "value_and_grad: argument 0 of `square` must hold floating-point numbers to have a gradient, got INT64; "
        "argnums names other arguments, x.astype('float32') converts"
    )
    assert "got none" in refused(lambda: dmlgpu.grad(square)([3, None, Tensor([2])]))
    assert "must return a pair" in refused(lambda: dmlgpu.grad(square, has_aux=True)(x))


def test_operators_without_a_gradient_are_rejected_by_name() -> None:
    x = Tensor([1.0, 2.0])
    message = refused(lambda: dmlgpu.grad(lambda x: ops.sum(ops.cumprod(x)))(x), NotSupported)
    assert message == "grad: CUMULATIVE_PRODUCT, which cumprod calls, has no gradient"
    message = refused(lambda: dmlgpu.grad(lambda x: ops.sum(d.cumulative_product(x, axis=0)))(x), NotSupported)
    assert message == "grad: CUMULATIVE_PRODUCT has no gradient"
    image = Tensor(draw(1, 1, 4, 4), "float32")
    message = refused(lambda: dmlgpu.grad(lambda x: ops.sum(ops.avg_pool2d(x, 2, dilation=2)))(image), NotSupported)
    assert message == "grad: AVERAGE_POOLING1, which avg_pool2d calls, has no gradient with dilations"
    overlapping = dmlgpu.grad(lambda x: ops.sum((x + 0).reinterpret((3, 2), (1, 1)) * 2))
    message = refused(lambda: overlapping(Tensor([1.0, 2.0, 3.0, 4.0])), NotSupported)
    assert "reads elements that overlap" in message
    assert dmlgpu.grad(lambda x: ops.sum(x) + 0 * ops.argmax(ops.cumprod(x)).astype("float32"))(x).tolist() == [1, 1]


def test_a_compiled_gradient_is_traced_again_where_a_variable_holds_another_tensor() -> None:
    factor = Tensor([2.0])
    step = dmlgpu.compile(dmlgpu.grad(lambda x: ops.sum(x * factor)))
    assert step(Tensor([1.0])).tolist() == [2]
    factor = Tensor([3.0])
    assert step(Tensor([1.0])).tolist() == [3]


def test_an_argument_may_be_the_value_and_numbers_are_float32() -> None:
    assert dmlgpu.grad(lambda x: x)(Tensor(2.0)).item() == 1
    assert dmlgpu.compile(dmlgpu.grad(lambda x: x))(Tensor(2.0)).item() == 1
    value, gradient = dmlgpu.value_and_grad(lambda x, options: x * x)(np.float64(3), {1, 2})
    assert value == 9 and gradient == 6 and gradient.dtype == np.float32
    assert dmlgpu.grad(lambda x: Tensor(2.0))(Tensor([1.0])).tolist() == [0]


def test_gradients_in_float16() -> None:
    gradient = dmlgpu.grad(lambda x: ops.sum(ops.relu(x) * x))(np.array([-1, 2], np.float16))
    assert gradient.dtype == np.float16 and gradient.tolist() == [0, 4]


def test_gradients_of_a_graph() -> None:
    graph = dmlgpu.Graph(rules="numpy")
    x = graph.input((2,), name="x")
    value, gradient = dmlgpu.value_and_grad(lambda x: ops.sum(x * x + ops.sigmoid(x)))(x)
    array = np.array([0.5, -1], np.float32)
    results = graph.evaluate([value, gradient], {"x": array})
    np.testing.assert_allclose(results[1], 2 * array + sigmoid(array) * (1 - sigmoid(array)), rtol=1e-5)


def test_gradients_of_quantized_numbers_and_of_a_clip_with_limits_of_a_type() -> None:
    values, zero_point = Tensor([3, 7], "uint8"), Tensor([1, 1], "uint8")
    scaled = dmlgpu.grad(lambda scale: ops.sum(d.element_wise_dequantize_linear(values, scale, zero_point)))
    np.testing.assert_allclose(scaled(np.array([0.5, 2], np.float32)), [2, 6])
    clipped = dmlgpu.grad(lambda x: ops.sum(d.element_wise_clip1(x, min_max_data_type="float32", min=-1, max=1) * 3))
    np.testing.assert_allclose(clipped(np.array([-2, 0.5, 2], np.float32)), [0, 3, 0])


def test_gradients_of_gradient_operators() -> None:
    image = draw(1, 1, 4, 4).astype(np.float32)
    pooled = dmlgpu.grad(lambda x: ops.sum(ops.avg_pool2d(x, 2) ** 3))
    twice = dmlgpu.grad(lambda x: ops.sum(pooled(x)))(image)
    means = image.reshape(1, 1, 2, 2, 2, 2).mean((3, 5))
    np.testing.assert_allclose(twice, (1.5 * means).repeat(2, 2).repeat(2, 3), rtol=1e-4, atol=1e-5)
    sliced = dmlgpu.grad(lambda x: ops.sum(d.slice1(x, **window) ** 3))
    window: Any = {
        "input_window_offsets": (0, 0, 1, 0),
        "input_window_sizes": (1, 1, 2, 4),
        "input_window_strides": (1, 1, 1, 2),
    }
    expected = np.zeros_like(image)
    expected[:, :, 1:3, ::2] = 6 * image[:, :, 1:3, ::2]
    np.testing.assert_allclose(dmlgpu.grad(lambda x: ops.sum(sliced(x)))(image), expected, rtol=1e-4)
