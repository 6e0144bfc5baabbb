"""Every function of PyDirectML with all its parameters, against formulas in NumPy and SciPy."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal, special

from dmlgpu.frontends import pydirectml as dml

Array = NDArray[Any]
RNG = np.random.default_rng(7)
F32 = dml.TensorDataType.FLOAT32
RELU = dml.FusedActivation(dml.OperatorType.ACTIVATION_RELU)


def draw(*sizes: int) -> Array:
    return RNG.standard_normal(sizes).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def numpy_adapter() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DMLGPU_ADAPTER", "numpy")
        yield


def compute(
    build: Callable[..., Any], *arrays: Array, owned: Sequence[int] = (), types: dict[int, Any] | None = None
) -> Any:
    """Return what a function of expressions computes for arrays: one array, or a list for a list."""
    device = dml.Device(True, False)
    builder = dml.GraphBuilder(device)
    inputs, bindings = [], []
    for index, array in enumerate(arrays):
        flags = dml.TensorFlags.OWNED_BY_DML if index in owned else dml.TensorFlags.NONE
        desc = dml.TensorDesc((types or {}).get(index, F32), flags, array.shape)
        inputs.append(dml.input_tensor(builder, index, desc))
        bindings.append(dml.Binding(inputs[-1], array))
    built = build(*inputs)
    outputs = built if isinstance(built, list) else [built]
    model = builder.build(dml.ExecutionFlags.NONE, outputs)
    results = [np.array(output) for output in device.compute(model, bindings, outputs)]
    return results if isinstance(built, list) else results[0]


def close(result: Array, expected: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


A, B = draw(1, 2, 3, 4), draw(1, 2, 3, 4)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (dml.add, A + B),
        (lambda a, b: dml.add(a=a, b=b, fused_activation=RELU), np.maximum(A + B, 0)),
        (lambda a, b: dml.subtract(a=a, b=b), A - B),
        (lambda a, b: dml.multiply(a=a, b=b), A * B),
        (lambda a, b: dml.divide(a=a, b=b), A / B),
        (lambda a, b: dml.activation_relu(input=a) - b, np.maximum(A, 0) - B),
        (lambda a, b: dml.activation_sigmoid(input=a) - b, special.expit(A) - B),
        (lambda a, b: dml.activation_identity(input=a) - b, A - B),
        (lambda a, b: dml.activation_tanh(input=a) - b, np.tanh(A) - B),
        (lambda a, b: dml.activation_linear(input=a, alpha=150, beta=np.float32(-2)) - b, 150 * A - 2 - B),
        (lambda a, b: dml.join(input=[a, b, a], axis=2), np.concatenate([A, B, A], 2)),
        (lambda a, b: a + b, A + B),
        (lambda a, b: a - b, A - B),
        (lambda a, b: a * b, A * B),
        (lambda a, b: a / b, A / B),
        (lambda a, b: a % b, np.fmod(A, B)),
        (lambda a, b: -a - b, -A - B),
        (lambda a, b: a + 1.5 - b, A + 1.5 - B),
        (lambda a, b: a - 2 - b, A - 2 - B),
        (lambda a, b: a * np.float32(3) - b, A * 3 - B),
        (lambda a, b: a / 4.0 - b, A / 4 - B),
        (lambda a, b: True + a - b, 1 + A - B),
        (lambda a, b: 2.5 - a - b, 2.5 - A - B),
        (lambda a, b: np.float64(3) * a - b, 3 * A - B),
        (lambda a, b: 4.0 / a - b, 1 / (4 * A) - B),  # DirectMLX scales the argument of the reciprocal
    ],
)
def test_element_by_element(build: Callable[..., Any], expected: Array) -> None:
    close(compute(build, A, B), expected, 1e-4)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda x, y: x.__iadd__(y), A + B),
        (lambda x, y: x.__isub__(y), A - B),
        (lambda x, y: x.__imul__(y), A * B),
        (lambda x, y: x.__itruediv__(y), A / B),
        (lambda x, y: x.__imod__(y), np.fmod(A, B)),
        (lambda x, _: x.__iadd__(2.0), A + 2),
        (lambda x, _: x.__isub__(2.0), A - 2),
        (lambda x, _: x.__imul__(2.0), A * 2),
        (lambda x, _: x.__itruediv__(2.0), A / 2),
    ],
)
def test_changing_an_expression(change: Callable[..., Any], expected: Array) -> None:
    """C++ objects are changed in place, visible to all references."""

    def build(x: Any, y: Any) -> Any:
        held = x
        assert change(x, y) is x
        return held

    device = dml.Device()
    builder = dml.GraphBuilder(device)
    desc = dml.TensorDesc(F32, A.shape)
    x, y = dml.input_tensor(builder, 0, desc), dml.input_tensor(builder, 1, desc)
    bindings = [dml.Binding(x, A), dml.Binding(y, B)]
    outputs = [build(x, y)]
    close(device.compute(builder.build(dml.ExecutionFlags.NONE, outputs), bindings, outputs)[0], expected, 1e-4)


ACTIVATIONS: dict[str, tuple[tuple[float, ...], Callable[[Array], Array]]] = {
    "ELU": ((0.5,), lambda x: np.where(x < 0, 0.5 * np.expm1(x), x)),
    "HARD_SIGMOID": ((0.3, 0.4), lambda x: np.clip(0.3 * x + 0.4, 0, 1)),
    "IDENTITY": ((), lambda x: x),
    "LEAKY_RELU": ((0.1,), lambda x: np.where(x < 0, 0.1 * x, x)),
    "LINEAR": ((2, -1), lambda x: 2 * x - 1),
    "PARAMETRIC_SOFTPLUS": ((0.5, 2), lambda x: 0.5 * np.log1p(np.exp(2 * x))),
    "RELU": ((), lambda x: np.maximum(x, 0)),
    "SCALED_ELU": ((1.5, 0.75), lambda x: 0.75 * np.where(x > 0, x, 1.5 * np.expm1(x))),
    "SCALED_TANH": ((2, 0.5), lambda x: 2 * np.tanh(0.5 * x)),
    "SHRINK": ((0.25, 0.5), lambda x: np.where(x > 0.5, x - 0.25, np.where(x < -0.5, x + 0.25, 0))),
    "SIGMOID": ((), special.expit),
    "SOFTPLUS": ((2,), lambda x: np.log1p(np.exp(2 * x)) / 2),
    "SOFTSIGN": ((), lambda x: x / (1 + np.abs(x))),
    "TANH": ((), np.tanh),
    "THRESHOLDED_RELU": ((0.5,), lambda x: np.where(x > 0.5, x, 0)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_that_are_fused(name: str) -> None:
    numbers, expected = ACTIVATIONS[name]
    fused = dml.FusedActivation(
        activation=getattr(dml.OperatorType, f"ACTIVATION_{name}"),
        **dict(zip(("param_1", "param_2"), numbers, strict=False)),
    )
    close(compute(lambda a, b: dml.add(a, b, fused), A, B), expected(A.astype(float) + B))


def test_soft_max() -> None:
    x = draw(1, 1, 3, 4)
    close(compute(lambda x: dml.activation_soft_max(input=x), x), special.softmax(x, axis=-1))


def test_scaling_values() -> None:
    x, bias = draw(2, 3, 2, 2), [1, -3.5, True]
    close(compute(lambda x: dml.value_scale_2d(input=x, scale=2, bias=bias), x), 2 * x + np.reshape(bias, (3, 1, 1)))


def correlate(x: Array, w: Array, groups: int = 1) -> Array:
    """A forward convolution without padding in steps of 1."""
    result = []
    for group in range(groups):
        inputs = np.split(x, groups, 1)[group]
        for kernel in np.split(w, groups)[group]:
            result.append(signal.correlate(inputs[0].astype(float), kernel, "valid")[0])
    return np.array([result])


def test_convolutions() -> None:
    x, w, bias = draw(1, 4, 7, 8), draw(6, 2, 3, 2), draw(1, 6, 1, 1)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 2), (0, 1)])
    dilated = np.zeros((6, 2, 5, 2), np.float32)
    dilated[:, :, ::2] = w
    expected = np.maximum(correlate(padded, dilated, 2)[:, :, ::2, ::3] + bias, 0)

    def build(mode: Any) -> Callable[..., Any]:
        return lambda x, w, bias: dml.convolution(
            input=x,
            filter=w,
            bias=bias,
            mode=mode,
            direction=dml.ConvolutionDirection.FORWARD,
            strides=[2, 3],
            dilations=[2, 1],
            start_padding=[1, 0],
            end_padding=[2, 1],
            output_padding=[0, 0],
            group_count=2,
            fused_activation=RELU,
            output_sizes=expected.shape,
        )

    close(compute(build(dml.ConvolutionMode.CROSS_CORRELATION), x, w, bias, owned=[1, 2]), expected)
    flipped = np.ascontiguousarray(w[:, :, ::-1, ::-1])
    close(compute(build(dml.ConvolutionMode.CONVOLUTION), x, flipped, bias, owned=[1]), expected)


def scatter(x: Array, w: Array, stride: int, more: int) -> Array:
    """A backward convolution: each input element adds the filter to the output; ``more`` rows and columns stay 0."""
    _, _, height, width = x.shape
    _, outputs, rows, columns = w.shape
    result = np.zeros((1, outputs, (height - 1) * stride + rows + more, (width - 1) * stride + columns + more))
    for row in range(height):
        for column in range(width):
            top, left = row * stride, column * stride
            result[0, :, top : top + rows, left : left + columns] += np.einsum("i,iojk->ojk", x[0, :, row, column], w)
    return result


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({}, 0),
        ({"output_sizes": [1, 3, 9, 11]}, 0),
        ({"output_padding": [1, 1]}, 1),
        (
            {"output_sizes": [1, 3, 10, 12]},
            1,
        ),  # as in candy.py: a forward convolution of these gives the input's sizes
        ({"output_sizes": [1, 3, 10, 12], "output_padding": [1, 1]}, 1),
    ],
)
def test_backward_convolutions(options: dict[str, Any], more: int) -> None:
    x, w = draw(1, 2, 4, 5), draw(2, 3, 3, 3)

    def build(x: Any, w: Any) -> Any:
        return dml.convolution(x, w, direction=dml.ConvolutionDirection.BACKWARD, strides=[2, 2], **options)

    close(compute(build, x, w), scatter(x, w, 2, more))


def test_backward_convolutions_of_other_sizes_are_rejected() -> None:
    for sizes in ([1, 3, 11, 12], [1, 3, 8, 11], [1, 3, 10]):
        with pytest.raises(RuntimeError, match=r"^CONVOLUTION: output_tensor\.(sizes|dimension_count) must "):
            compute(
                lambda x, w, sizes=sizes: dml.convolution(
                    x, w, direction=dml.ConvolutionDirection.BACKWARD, strides=[2, 2], output_sizes=sizes
                ),
                draw(1, 2, 4, 5),
                draw(2, 3, 3, 3),
            )


def test_products() -> None:
    a, b, c = draw(1, 2, 4, 3), draw(1, 2, 5, 4), draw(1, 2, 3, 5)
    transposed = dml.MatrixTransform.TRANSPOSE
    expected = np.maximum(0.5 * np.swapaxes(a, 2, 3) @ np.swapaxes(b, 2, 3) - 2 * c, 0)
    close(
        compute(
            lambda a, b, c: dml.gemm(
                a=a, b=b, c=c, trans_a=transposed, trans_b=transposed, alpha=0.5, beta=-2, fused_activation=RELU
            ),
            a, b, c, owned=[1],
        ),
        expected,
    )  # fmt: skip
    close(compute(dml.gemm, a, c), a @ c)


def test_normalizations() -> None:
    x, scale, bias = draw(2, 3, 4, 5), draw(1, 3, 1, 1), draw(1, 3, 1, 1)
    mean, variance = draw(1, 3, 1, 1), np.abs(draw(1, 3, 1, 1)) + np.float32(0.1)
    expected = (x - mean) / np.sqrt(variance + 0.25) * scale + bias
    close(
        compute(
            lambda *five: dml.batch_normalization(
                **dict(zip(("input", "mean", "variance", "scale", "bias"), five, strict=True)),
                spatial=1,
                epsilon=0.25,
                fused_activation=RELU,
            ),
            x, mean, variance, scale, bias,
        ),
        np.maximum(expected, 0),
    )  # fmt: skip

    centered = x - x.mean((2, 3), keepdims=True)
    expected = centered / np.sqrt(x.var((2, 3), keepdims=True) + 0.25) * scale + bias
    repeated = [np.ascontiguousarray(np.broadcast_to(vector, (1, 3, 1, 1))) for vector in (scale, bias)]
    close(
        compute(
            lambda x, scale, bias: dml.mean_variance_normalization(
                input=x, scale=scale, bias=bias, axes=[2, 3], normalize_variance=1, epsilon=0.25, fused_activation=RELU
            ),
            x, *repeated, owned=[2],
        ),
        np.maximum(expected, 0),
    )  # fmt: skip
    close(
        compute(lambda x: dml.mean_variance_normalization(x, axes=[2, 3], normalize_variance=False, epsilon=0), x),
        centered,
    )


@pytest.mark.parametrize("cross", [True, False])
def test_local_response_normalization(cross: bool) -> None:
    x = draw(1, 5, 4, 4)
    squares, total = np.pad(x.astype(float) ** 2, [(0, 0), (1, 1), (1, 1), (1, 1)]), np.zeros(x.shape)
    near = [(c, 0, 0) for c in (-1, 0, 1)] if cross else [(0, h, w) for h in (-1, 0, 1) for w in (-1, 0, 1)]
    for c, h, w in near:
        total += squares[:, 1 + c : 6 + c, 1 + h : 5 + h, 1 + w : 5 + w]
    result = compute(
        lambda x: dml.local_response_normalization(
            input=x, cross_channel=cross, local_size=3, alpha=0.5, beta=0.75, bias=2
        ),
        x,
    )
    close(result, x / (2 + 0.5 / 3 * total) ** 0.75)


def test_average_pooling() -> None:
    x = draw(1, 2, 5, 6)
    padded, ones = np.pad(x, [(0, 0), (0, 0), (1, 0), (0, 1)]), np.ones_like(x)
    counted = np.pad(ones, [(0, 0), (0, 0), (1, 0), (0, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 3), (2, 3))[:, :, ::2, ::1].sum((4, 5))
    counts = np.lib.stride_tricks.sliding_window_view(counted, (2, 3), (2, 3))[:, :, ::2, ::1].sum((4, 5))
    for include in (0, 1):
        result = compute(
            lambda x, include=include: dml.average_pooling(
                input=x, strides=[2, 1], window_sizes=[2, 3], start_padding=[1, 0], end_padding=[0, 1],
                include_padding=include,
            ),
            x,
        )  # fmt: skip
        close(result, windows / (6 if include else counts))


def test_max_pooling() -> None:
    x = draw(1, 2, 6, 7)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), (2, 3))[:, :, ::2, ::3, ::2]
    numbers = np.arange(84).reshape(1, 2, 6, 7)
    places = np.lib.stride_tricks.sliding_window_view(numbers, (3, 2), (2, 3))[:, :, ::2, ::3, ::2]
    flat = windows.reshape(*windows.shape[:4], -1)
    expected = np.take_along_axis(places.reshape(flat.shape), flat.argmax(-1)[..., None], -1)

    def build(x: Any) -> list[Any]:
        result = dml.max_pooling(
            input=x, window_sizes=[2, 2], strides=[2, 3], start_padding=[0, 0], end_padding=[0, 0], dilations=[2, 1],
            output_indices=True,
        )  # fmt: skip
        return [result.values, result.indices]

    values, indices = compute(build, x)
    close(values, flat.max(-1))
    assert indices.dtype == np.float32  # the bits, as the original has them
    np.testing.assert_array_equal(indices.view(np.uint32), expected[..., 0])

    def without(x: Any) -> Any:
        result = dml.max_pooling(x, [2, 2], start_padding=[1, 1])
        with pytest.raises(RuntimeError, match=r"^Expression: it is empty, made by Expression\(\) or an output that "):
            result.indices.get_output_desc()
        return result.values

    padded = np.pad(x, [(0, 0), (0, 0), (1, 0), (1, 0)], constant_values=-np.inf)
    close(compute(without, x), np.lib.stride_tricks.sliding_window_view(padded, (2, 2), (2, 3)).max((4, 5)))


def test_up_sampling() -> None:
    x = draw(1, 1, 2, 3)
    result = compute(
        lambda x: dml.up_sample_2d(
            input=x, scale_size=dml.Size2D(2, 3), interpolation_mode=dml.InterpolationMode.NEAREST_NEIGHBOR
        ),
        x,
    )
    np.testing.assert_array_equal(result, x.repeat(3, 2).repeat(2, 3))
    result = compute(lambda x: dml.up_sample_2d(x, dml.Size2D(2, 1), dml.InterpolationMode.LINEAR), x[:, :, :1])
    centers = np.clip((np.arange(6) + 0.5) / 2 - 0.5, 0, 2)
    close(result[0, 0, 0], np.interp(centers, np.arange(3), x[0, 0, 0]))


@pytest.mark.parametrize(("mode", "name"), [("CONSTANT", "constant"), ("EDGE", "edge"), ("REFLECTION", "reflect")])
def test_padding(mode: str, name: str) -> None:
    x = draw(1, 1, 3, 4)
    result = compute(
        lambda x: dml.padding(
            input=x,
            padding_mode=getattr(dml.PaddingMode, mode),
            padding_value=1.5,
            start_padding=[0, 0, 1, 2],
            end_padding=[0, 0, 2, 0],
        ),
        x,
    )
    values = {"constant_values": 1.5} if name == "constant" else {}
    np.testing.assert_array_equal(result, np.pad(x, [(0, 0), (0, 0), (1, 2), (2, 0)], name, **values))


def test_slices() -> None:
    x = draw(1, 2, 6, 7)
    result = compute(
        lambda x: dml.slice(
            input=x,
            input_window_offsets=[0, 1, 1, 2],
            input_window_sizes=[1, 1, 5, 4],
            input_window_strides=[1, 1, 2, -3],
        ),
        x,
    )
    np.testing.assert_array_equal(result, x[:, 1:2, 1:6:2, 5:1:-3])


def test_gathers() -> None:
    x, indices = draw(1, 1, 4, 3), np.array([[[[3, 0, 3]]]], np.uint32)
    result = compute(
        lambda x, indices: dml.gather(input=x, indices=indices, axis=2, index_dimensions=1),
        x, indices, types={1: dml.TensorDataType.UINT32},
    )  # fmt: skip
    np.testing.assert_array_equal(result, x[:, :, [3, 0, 3]])


def test_reinterpreting() -> None:
    x = draw(1, 1, 2, 6)
    result = compute(
        lambda x: dml.reinterpret(input=dml.activation_identity(x), new_type=F32, new_size=[3, 4], new_strides=[1, 3]),
        x,
    )
    np.testing.assert_array_equal(result, x.reshape(4, 3).T)
    result = compute(
        lambda x: (
            dml.reinterpret(x, dml.TensorDataType.UINT32, [1, 12], None)
            + dml.reinterpret(x, dml.TensorDataType.UINT32, [1, 12], None)
        ),
        x,
    )
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result.view(np.uint32), (x.view(np.uint32) * np.uint32(2)).reshape(1, 12))


def gru_expected(x: Array, w: Array, r: Array, bias: Array, *, state: Array, lengths: Array) -> list[Array]:
    """One direction of a GRU whose gates are in ONNX's order: update, reset, new; linear before reset."""
    (update_w, reset_w, new_w), (update_r, reset_r, new_r) = np.split(w, 3), np.split(r, 3)
    update_b, reset_b, new_b, update_rb, reset_rb, new_rb = np.split(bias, 6)
    states = []
    for time, inputs in enumerate(x):
        update = special.expit(inputs @ update_w.T + state @ update_r.T + update_b + update_rb)
        reset = special.expit(inputs @ reset_w.T + state @ reset_r.T + reset_b + reset_rb)
        new = np.tanh(inputs @ new_w.T + new_b + reset * (state @ new_r.T + new_rb))
        state = np.where((time < lengths)[:, None], (1 - update) * new + update * state, state)
        states.append(np.where((time < lengths)[:, None], state, 0))
    return [np.array(states)[:, None], state[None]]


@pytest.mark.parametrize("options", ["Both", "Sequence", "Single"])
def test_gated_recurrent_units(options: str) -> None:
    steps, batch, size, hidden = 4, 2, 3, 5
    x, w, r = draw(1, steps, batch, size), draw(1, 1, 3 * hidden, size), draw(1, 1, 3 * hidden, hidden)
    bias, state = draw(1, 1, 1, 6 * hidden), draw(1, 1, batch, hidden)
    lengths = np.array([[[[4, 2]]]], np.uint32)
    activations = [dml.FusedActivation(dml.OperatorType.ACTIVATION_SIGMOID), dml.FusedActivation(dml.ACTIVATION_TANH)]

    names = "input", "weight", "recurrence", "bias", "hidden_init", "sequence_lengths"

    def build(*six: Any) -> list[Any]:
        result = dml.gru(
            **dict(zip(names, six, strict=True)),
            activation_descs=activations,
            direction=dml.RecurrentNetworkDirection.FORWARD,
            linear_before_reset=1,
            output_options=getattr(dml.OutputOptions, options),
        )
        both = {"sequence": result.sequence, "single": result.single}
        chosen = list(both) if options == "Both" else [options.lower()]
        for name in set(both) - set(chosen):
            with pytest.raises(RuntimeError, match=r"^Expression: it is empty"):
                dml.activation_relu(both[name])
        return [both[name] for name in chosen]

    result = compute(build, x, w, r, bias, state, lengths, types={5: dml.TensorDataType.UINT32})
    expected = gru_expected(x[0], w[0, 0], r[0, 0], bias[0, 0, 0], state=state[0, 0], lengths=lengths[0, 0, 0])
    expected = {"Both": expected, "Sequence": expected[:1], "Single": [expected[1][None]]}[options]
    for output, other in zip(result, expected, strict=True):
        close(output.ravel(), other.ravel())


def test_gated_recurrent_units_in_both_directions() -> None:
    x, w, r = draw(1, 3, 2, 3), draw(1, 2, 12, 3), draw(1, 2, 12, 4)
    sigmoid, tanh = (
        dml.FusedActivation(getattr(dml.OperatorType, f"ACTIVATION_{name}")) for name in ("SIGMOID", "TANH")
    )
    result = compute(
        lambda *three: dml.gru(
            *three,
            activation_descs=[sigmoid, tanh, sigmoid, tanh],
            direction=dml.RecurrentNetworkDirection.BIDIRECTIONAL,
            output_options=dml.OutputOptions.Sequence,
        ).sequence,
        x, w, r,
    )  # fmt: skip
    none, start = np.zeros(24), {"state": np.zeros((2, 4)), "lengths": np.array([3, 3])}
    forward, _ = gru_expected(x[0], w[0, 0], r[0, 0], none, **start)
    backward, _ = gru_expected(x[0, ::-1], w[0, 1], r[0, 1], none, **start)
    close(result, np.concatenate([forward, backward[::-1]], 1))


def test_every_function_is_called_here_with_all_its_parameters() -> None:
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    passed: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("dml."):
            name = ast.unparse(node.func).removeprefix("dml.")
            passed.setdefault(name, set()).update(keyword.arg or "**" for keyword in node.keywords)
            if inspect.isfunction(getattr(dml, name)):
                passed[name].update(list(inspect.signature(getattr(dml, name)).parameters)[: len(node.args)])
    functions = [name for name in dml.__all__ if inspect.isfunction(getattr(dml, name))]
    assert len(functions) == 26
    for name in functions:
        called = passed[name] | (texts if "**" in passed[name] else set())
        assert set(inspect.signature(getattr(dml, name)).parameters) <= called, name
