"""The names that people look for, against NumPy, SciPy and ONNX."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from dmlgpu import DataType, Device, DmlError, Tensor, ops
from dmlgpu.catalog import catalog
from dmlgpu.ops import (
    activations,
    adaptive_pooling,
    contraction,
    conv,
    creation,
    diagonals,
    directml,
    elementwise,
    equality,
    histograms,
    interpolation,
    logic,
    nan_reductions,
    nn,
    pooling,
    products,
    recurrent,
    reductions,
    searching,
    shape,
    statistics,
    training,
    transcendental,
)
from tests.eager_functions import EXAMPLES, Example, floats
from tests.reference.onnx_oracle import onnx_runtime
from tests.unit.device_objects import raises
from tests.wrong_arguments import HUGE, Hostile

EXACT = 2e-5
MODULES = (
    activations,
    adaptive_pooling,
    contraction,
    conv,
    creation,
    diagonals,
    elementwise,
    equality,
    histograms,
    interpolation,
    logic,
    nan_reductions,
    nn,
    pooling,
    products,
    recurrent,
    reductions,
    searching,
    shape,
    statistics,
    training,
    transcendental,
)


@pytest.fixture(scope="module")
def device() -> Device:
    return Device("numpy")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_results_match_other_libraries(example: Example, device: Device) -> None:
    result = example.call(*(Tensor(operand, device=device) for operand in example.operands))
    assert isinstance(result, Tensor)
    assert result.shape == np.shape(example.expected)
    np.testing.assert_allclose(result.numpy(), example.expected, rtol=EXACT, atol=EXACT)


def test_each_function_has_an_example() -> None:
    names = {name for module in MODULES for name in module.__all__ if name[0].islower()}
    elsewhere = {"conv1d", "conv2d", "conv3d", "conv_transpose2d", "lstm", "gru"}
    elsewhere |= {*pooling.__all__, *adaptive_pooling.__all__}  # tests/unit/ops/test_ops_pooling.py
    elsewhere |= {"arange", "empty", "eye", "full", "linspace", "ones", "zeros"}  # tests/unit/ops/test_ops_creation.py
    assert names - {example.name.split()[0] for example in EXAMPLES} == elsewhere
    assert all(hasattr(directml, operator.stem) for operator in catalog().values())
    assert names < set(ops.__all__) and dir(ops) == ops.__all__
    assert set(ops.__all__) - {name for module in MODULES for name in module.__all__} == {
        *("directml", "fft", "free_memory", "linalg", "memory_info")
    }


def test_names_of_directml_lead_to_the_usual_ones() -> None:
    start = "module 'dmlgpu.ops' has no attribute"
    for name, rest in {
        "activation_relu": "; DirectML's operator is ops.directml.activation_relu, the usual function is ops.relu",
        "max_pooling2": (
            "; DirectML's operator is ops.directml.max_pooling2, "
            "the usual function is ops.max_pool1d or ops.max_pool2d or ops.max_pool3d"
        ),
        "nonzero_coordinates": (
            "; DirectML's operator is ops.directml.nonzero_coordinates, the usual function is ops.nonzero"
        ),
        "fold": "; DirectML's operator is ops.directml.fold",
        "no_such_name": "",
    }.items():
        with raises(AttributeError, f"{start} '{name}'{rest}"):
            getattr(ops, name)


def test_other_keywords_lead_to_the_usual_ones(device: Device) -> None:
    x = floats(2, 4, 5, 6)
    for text, call in {
        "layer_norm() got an unexpected keyword argument 'epsilon'; it is called 'eps'": (
            lambda: ops.layer_norm(x, epsilon=1e-3)  # type: ignore[call-arg]
        ),
        "astype() got an unexpected keyword argument 'data_type'; it is called 'dtype'": (
            lambda: ops.astype(x, data_type="int8")  # type: ignore[call-arg]
        ),
        "argmax() got an unexpected keyword argument 'output_type'; it is called 'dtype'": (
            lambda: ops.argmax(x, output_type="int64")  # type: ignore[call-arg]
        ),
        "conv2d() got an unexpected keyword argument 'filter'; it is called 'weight'": (
            lambda: ops.conv2d(x, filter=x)  # type: ignore[call-arg]
        ),
        "max_pool2d() got an unexpected keyword argument 'window'; it is called 'kernel_size'": (
            lambda: ops.max_pool2d(x, window=2)  # type: ignore[call-arg]
        ),
        "attention() got an unexpected keyword argument 'heads'; it is called 'num_heads'": (
            lambda: ops.attention(x, x, x, heads=2)  # type: ignore[call-arg]
        ),
        "pad() got an unexpected keyword argument 'widths'; it is called 'pad_width'": (
            lambda: ops.pad(x, widths=1)  # type: ignore[call-arg]
        ),
        "sum() got an unexpected keyword argument 'out'": lambda: ops.sum(x, out=x),  # type: ignore[call-arg]
    }.items():
        with raises(TypeError, text):
            call()


@pytest.mark.parametrize("dtype", [np.int64, np.dtype("int64"), "int64", DataType.INT64])
def test_dtypes_may_be_named_in_every_way(dtype: Any, device: Device) -> None:
    x = floats(2, 3)
    for result in (
        ops.cast(x, dtype, device=device),
        ops.astype(x, dtype, device="numpy"),
        ops.argmax(x, 1, False, dtype, device=device),
        ops.one_hot(np.array([1, 2]), 3, dtype=dtype, device=device),
    ):
        assert result.dtype == np.int64


def test_arrays_give_arrays(device: Device) -> None:
    x = floats(2, 3)
    result = ops.add(x, 1, device="numpy")
    assert isinstance(result, np.ndarray) and np.array_equal(result, x + 1)
    values, indices = ops.topk(x, 1, device=device)
    assert isinstance(values, np.ndarray) and isinstance(indices, np.ndarray)
    beside = ops.add(Tensor(x, device=device), x)
    assert isinstance(beside, Tensor) and beside.device is device


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_convolution(spatial: int, device: Device) -> None:
    x, filters, bias = floats(2, 4, *(7, 6, 5)[:spatial]), floats(6, 2, *(3, 2, 1)[:spatial]), floats(6)
    expected = onnx_runtime(
        "Conv",
        [x, filters, bias],
        pads=[1] * (2 * spatial),
        strides=[2] * spatial,
        dilations=[1] * spatial,
        group=2,
    )
    function = (ops.conv1d, ops.conv2d, ops.conv3d)[spatial - 1]
    result = function(x, filters, bias, stride=2, padding=1, groups=2, activation="relu", device=device)
    np.testing.assert_allclose(result, np.maximum(expected, 0), rtol=EXACT, atol=EXACT)


def test_transposed_convolution(device: Device) -> None:
    x, filters, bias = floats(1, 3, 4, 5), floats(3, 2, 3, 3), floats(2)
    pads, steps = [1, 0, 0, 1], [2, 1]
    expected = onnx_runtime("ConvTranspose", [x, filters, bias], pads=pads, strides=steps, output_padding=[1, 0])
    result = ops.conv_transpose2d(
        x, filters, bias, stride=steps, padding=[(1, 0), (0, 1)], output_padding=(1, 0), device=device
    )
    np.testing.assert_allclose(result, expected, rtol=EXACT, atol=EXACT)


def test_pooling(device: Device) -> None:
    x = floats(1, 2, 7, 6)
    expected = onnx_runtime("MaxPool", [x], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 0])
    result = ops.max_pool2d(x, (3, 2), stride=(2, 1), padding=(1, 0), device=device)
    assert np.array_equal(result, expected)
    for included in (0, 1):
        expected = onnx_runtime(
            "AveragePool", [x], kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 0, 0], count_include_pad=included
        )
        result = ops.avg_pool2d(x, 2, padding=[(1, 0), (1, 0)], include_padding=bool(included), device=device)
        np.testing.assert_allclose(result, expected, rtol=EXACT, atol=EXACT)


def test_resizing(device: Device) -> None:
    x, none = floats(1, 2, 4, 5), np.zeros(0, np.float32)
    for mode, sizes in (("linear", (8, 10)), ("linear", (6, 5)), ("nearest", (8, 10)), ("nearest", (7, 3))):
        scales = np.array([1, 1, sizes[0] / 4, sizes[1] / 5], np.float32)
        expected = onnx_runtime("Resize", [x, none, scales], mode=mode, coordinate_transformation_mode="half_pixel")
        result = ops.resize(x, sizes, mode=mode, device=device)
        np.testing.assert_allclose(result, expected, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_recurrent_networks(direction: str, device: Device) -> None:
    ways, hidden = 2 if direction == "bidirectional" else 1, 3
    x = floats(4, 2, 5)
    for operator, function, gates in (("LSTM", ops.lstm, 4), ("GRU", ops.gru, 3)):
        weights = [
            floats(ways, gates * hidden, 5),
            floats(ways, gates * hidden, hidden),
            floats(ways, 2 * gates * hidden),
        ]
        expected = onnx_runtime(operator, [x, *weights], hidden_size=hidden, direction=direction)
        result = function(x, *weights, direction=direction, device=device)
        np.testing.assert_allclose(result.sequence, expected, rtol=1e-4, atol=1e-5)
        assert result.hidden.shape == (ways, 2, hidden)
        assert np.array_equal(result.hidden[0], result.sequence[-1, 0])


WRONG = (
    "x",
    b"x",
    [],
    [object()],
    {},
    object(),
    HUGE,
    Hostile(),
    np.array([None]),
    1.5,
    -99,
    (1, 2, 3, 4, 5, 6, 7, 8, 9),
)
"""Wrong values for most arguments; what some of them take is taken."""


@pytest.mark.parametrize("module", MODULES)
def test_wrong_arguments_are_rejected(module: Any, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    # For arrays without a tensor among the operands.
    monkeypatch.setattr("dmlgpu.runtime.device._Default.by_environment", device)
    operands = {example.name.split()[0]: example.operands for example in reversed(EXAMPLES)}
    image = floats(1, 2, 4, 4)
    refused = 0
    for name in module.__all__:
        function = getattr(module, name)
        if inspect.isclass(function):
            continue
        parameters = inspect.signature(function).parameters
        arrays = operands.get(name, (image,) * 3)
        tensors = [Tensor(array, device=device) for array in arrays]
        if name in ("cat", "concat", "concatenate", "stack"):
            tensors = [tensors]  # type: ignore[list-item]
        names = [parameter for parameter in parameters if "Operand" in str(parameters[parameter].annotation)]
        several = [name for name in names if parameters[name].kind is inspect.Parameter.VAR_POSITIONAL]
        good: dict[str, Any] = {} if several else dict(zip(names, tensors, strict=False))
        for parameter in parameters:
            for wrong in WRONG:
                try:
                    arguments = {**good, parameter: wrong}
                    first = [arguments.pop("subscripts", "ijk,ljk")] if name == "einsum" else []
                    rest = [arguments.pop(several[0], tensors[0]), *tensors[1:]] if several else []
                    function(*first, *rest, **arguments)
                except (DmlError, TypeError) as error:
                    if isinstance(error, TypeError):  # for want of a required argument
                        assert "missing" in str(error), f"{name}({parameter}): {error}"
                    refused += 1
                    assert len(str(error)) < 1000
                except Exception as error:
                    raise AssertionError(f"{name}({parameter}={type(wrong).__name__}): {error!r}") from error
    assert refused > 20


@pytest.mark.slow
def test_masks_are_counted_in_every_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")
    rng = np.random.default_rng(0)
    for sizes in ((), (1,), (4,), (2001,), (2000,), (8, 12), (3, 4, 500), (0, 4), (4, 0)):
        mask = rng.random(sizes) > 0.4
        suffixes = (tuple(range(first, len(sizes))) for first in range(len(sizes)))
        for axis in (None, (), *range(-len(sizes), len(sizes)), *suffixes):
            for keepdims in (False, True):
                expected = np.asarray(mask.sum(axis=axis, keepdims=keepdims))
                for function in (ops.sum, ops.count_nonzero):
                    result = function(Tensor(mask), axis=axis, keepdims=keepdims).numpy()
                    assert result.dtype == np.int64, (sizes, axis)
                    np.testing.assert_array_equal(result, expected, err_msg=f"{sizes} along {axis}")
    mask = rng.random((9, 16)) > 0.5
    for index in (slice(1, None), (slice(None), slice(1, 5)), slice(None, None, 2), (slice(None), 3)):
        assert ops.sum(Tensor(mask)[index]).item() == mask[index].sum(), index
    assert ops.sum(Tensor(mask).reshape(-1)[1:13]).item() == mask.reshape(-1)[1:13].sum()
