"""Every ONNX operator with every size 0 in turn, other inputs as constants and as inputs of the run.

Nodes that ONNX's reference or onnxruntime evaluates give the same result, shape and type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from dmlgpu import DmlError, NotSupported
from dmlgpu.frontends.onnx import load
from tests.onnx_samples import Sample, samples
from tests.unit.frontends.onnx.onnx_against import check_node, expected_of, model_of, model_of_node, normal

F = np.float32
DRAWN = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
RECURRENT = ("GRU", "LSTM", "RNN")  # onnxruntime aborts, or leaves states as the memory was
UNSET = ("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QGemm")  # onnxruntime leaves sums over nothing unset
REJECTED = {
    ("Attention", "q", True): "queries of no steps with a past",
    ("Attention", "k", True): "keys of no steps with a past",
}
"""Nodes that are rejected although the reference computes them."""


def references(model: Any, feeds: dict[str, np.ndarray], op: str) -> list[list[np.ndarray]]:
    """Return the results of ONNX's reference and onnxruntime, if they have any."""
    results = []
    evaluators = [lambda: ReferenceEvaluator(model).run(None, feeds), lambda: expected_of(model, feeds)]
    for evaluate in evaluators[: 1 if op in RECURRENT else 2]:
        try:
            results.append([np.asarray(output) for output in evaluate()])
        except Exception:
            continue
    return results


def agree(results: Sequence[np.ndarray], expected: Sequence[np.ndarray], op: str) -> bool:
    pairs = list(zip(results, expected, strict=True))
    if any((array.shape, array.dtype) != (other.shape, other.dtype) for array, other in pairs):
        return False
    return op in DRAWN or all(np.allclose(array, other, rtol=1e-3, atol=1e-4, equal_nan=True) for array, other in pairs)


def check(sample: Sample, size: str, constants: tuple[int, ...]) -> None:
    model, feeds = sample.model(constants), sample.feeds(constants)
    error, results = None, []
    try:
        results = list(load(model, "numpy").run(feeds).values())
    except DmlError as raised:
        error = raised
    known = references(model, feeds, sample.op)
    where = f"{sample.label}, {size or 'nothing'} 0, constants {constants}"
    if error is None:
        agrees = any(agree(results, reference, sample.op) for reference in known)
        assert not known or agrees, f"{where}: {results}, not {known}"
        assert size or known or sample.op == "GroupQueryAttention", f"{where}: nothing to compare with"
    elif (sample.op, size, sample.outputs > 1) not in REJECTED:
        assert not known, f"{where}: rejected ({error}), though {known}"


@pytest.mark.filterwarnings("ignore::RuntimeWarning:onnx", "ignore::RuntimeWarning:numpy")
@pytest.mark.parametrize("sample", samples(), ids=lambda sample: f"{sample.label}-{len(sample.inputs)}-{sample.opset}")
def test_sizes_of_0(sample: Sample) -> None:
    for size in ("", *sample.sizes):
        if size.startswith("_") or (sample.op in UNSET and size == "q"):
            continue
        sized = sample.sized(**{size: 0}) if size else sample
        check(sized, size, ())
        check(sized, size, tuple(range(1, len(sized.inputs))))


@pytest.mark.parametrize("op", UNSET)
def test_sums_over_no_elements_are_0(op: str) -> None:
    (sample,) = (sample for sample in samples() if sample.op == op)
    sized = sample.sized(q=0)
    (result,) = load(sized.model(), "numpy").run(sized.feeds()).values()
    np.testing.assert_array_equal(result, np.zeros((2, 4), F))


@pytest.mark.parametrize("op", RECURRENT)
def test_layers_without_steps_leave_their_states(op: str) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    states = [normal(1, 2, 2, seed=index) for index in range(2 if op == "LSTM" else 1)]
    weights = [np.zeros((0, 2, 3), F), normal(1, gates * 2, 3), normal(1, gates * 2, 2)]
    outputs = ["y", "h", "c"][: 1 + len(states)]
    for own, expected in ((states, states), ([], [state * 0 for state in states])):
        model, feeds = model_of_node(op, [*weights, None, None, *own], outputs, hidden_size=2)
        first, *rest = load(model, "numpy").run(feeds).values()
        assert first.shape == (0, 1, 2, 2)
        for array, other in zip(rest, expected, strict=True):
            np.testing.assert_array_equal(array, other)


REDUCED = {
    "ReduceLogSum": -np.inf,
    "ReduceLogSumExp": -np.inf,
    "ReduceMax": -np.inf,
    "ReduceMean": np.nan,
    "ReduceMin": np.inf,
    "ReduceProd": 1,
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSum", "ReduceSumSquare"), 0),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("op", REDUCED)
def test_reductions_of_no_elements(op: str) -> None:
    """Infinite results become limits of an integer type; NaN becomes 0."""
    for kind in (F, np.int32, np.int64, np.uint8 if op in ("ReduceMax", "ReduceMin") else np.uint64):
        number = REDUCED[op]
        if kind is not F:
            limits = {np.inf: np.iinfo(kind).max, -np.inf: np.iinfo(kind).min}
            number = 0 if np.isnan(number) else limits.get(number, number)
        for weights, axes in (((), 1), ((1,), 1), ((), -2)):
            inputs = [np.zeros((3, 0, 2), kind), np.array([axes])]
            model, feeds = model_of_node(op, inputs, ["y"], weights=weights, version=18)
            result = load(model, "numpy").run(feeds)["y"]
            assert result.dtype == kind
            np.testing.assert_array_equal(result, np.full((3, 1, 2), number, kind))


@pytest.mark.parametrize("op", REDUCED)
def test_empty_axes_are_all(op: str) -> None:
    for weights in ((), (1,)):
        inputs = [np.abs(normal(2, 3)), np.zeros(0, np.int64)]
        check_node(op, inputs, ["y"], weights=weights, version=18)


@pytest.mark.filterwarnings("error")
def test_a_mean_of_empty_channels() -> None:
    model, feeds = model_of_node("GlobalAveragePool", [np.zeros((2, 3, 0, 4), F)], ["y"])
    np.testing.assert_array_equal(load(model, "numpy").run(feeds)["y"], np.full((2, 3, 1, 1), np.nan, F))


@pytest.mark.filterwarnings("error")
def test_statistics_of_an_empty_batch() -> None:
    inputs = [np.zeros((0, 2, 3), F), *(normal(2, seed=index) for index in range(4))]
    for weights in ((), (3, 4)):
        model, feeds = model_of_node(
            "BatchNormalization", inputs, ["y", "m", "v"], weights=weights, version=14, training_mode=1
        )
        output, *running = load(model, "numpy").run(feeds).values()
        assert output.shape == (0, 2, 3)
        np.testing.assert_array_equal(running, np.full((2, 2), np.nan, F))


def test_a_range_whose_extent_overflows_is_empty() -> None:
    inputs = [np.array(number, np.int32) for number in (-4, 2**31 - 1, -2)]
    check_node("Range", inputs, ["y"], weights=(0, 1, 2))


def test_no_elements_are_scattered() -> None:
    """NonZero finds no positions, so ScatterND writes nothing."""
    nodes = [
        helper.make_node("NonZero", ["mask"], ["places"]),
        helper.make_node("Transpose", ["places"], ["rows"], perm=[1, 0]),
        helper.make_node("GatherND", ["x", "rows"], ["picked"]),
        helper.make_node("Neg", ["picked"], ["changed"]),
        helper.make_node("ScatterND", ["x", "rows", "changed"], ["y"]),
    ]
    inputs = {"mask": (TensorProto.BOOL, [2, 3]), "x": (TensorProto.FLOAT, [2, 3])}
    model = model_of(nodes, inputs, {"y": TensorProto.FLOAT})
    session, x = load(model, "numpy"), normal(2, 3)
    for mask in (np.zeros((2, 3), bool), np.array([[True, False, True], [False] * 3])):
        feeds = {"mask": mask, "x": x}
        (expected,) = expected_of(model, feeds)
        np.testing.assert_array_equal(session.run(feeds)["y"], expected)


@pytest.mark.parametrize("pads", [(-2, 0, 3, 0), (0, -1, 2, -2), (-2, 0, 0, 0), (-1, -1, -1, -2)])
def test_pads_that_crop_to_nothing(pads: tuple[int, ...]) -> None:
    check_node("Pad", [normal(2, 3), np.array(pads), np.array(7, F)], ["y"], weights=(1, 2))
    check_node("Pad", [normal(2, 3), np.array(pads), np.array(7, F)], ["y"])


@pytest.mark.parametrize(
    ("left", "right"), [((0,), (0,)), ((2, 0), (0,)), ((0,), (3, 0, 4)), ((0,), (0, 4)), ((5, 2, 0), (0,))]
)
def test_products_of_vectors_without_elements(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    for constants in ((), (0, 1), (1,)):
        inputs = [normal(*left), normal(*right)]
        check_node("MatMul", inputs, ["y"], weights=constants)
        check_node("FusedMatMul", inputs, ["y"], domain="com.microsoft", alpha=0.5, weights=constants)


def test_products_over_no_elements_leave_the_bias() -> None:
    for constants in ((), (1, 2)):
        inputs = [np.zeros((2, 0), F), np.zeros((0, 3), F), normal(3)]
        check_node("Gemm", inputs, ["y"], weights=constants, beta=0.5)
        inputs = [np.zeros((1, 0, 4), F), np.zeros((3, 0, 2), F), normal(3)]
        check_node("Conv", inputs, ["y"], weights=constants)
        inputs = [np.zeros((1, 2, 0, 3), F), normal(2, 3, 2, 2), normal(3)]
        check_node("ConvTranspose", inputs, ["y"], weights=constants)


def test_large_integers_next_to_empty_inputs_are_not_sizes() -> None:
    bias = np.array([-461, 427, 12345, 6789], np.int32)
    scale, zero = np.array(0.1, F), np.array(0, np.uint8)
    filters = np.ones((4, 2, 1, 1), np.uint8)
    inputs = [np.zeros((0, 2, 3, 3), np.uint8), scale, zero, filters, scale, zero, scale, zero, bias]
    check_node("QLinearConv", inputs, ["y"], weights=tuple(range(1, 9)))
    check_node("Gather", [np.full(4, 1 << 40), np.zeros((0, 2), np.int64)], ["y"], weights=(0,))


@pytest.mark.parametrize("held", [True, False])
def test_huge_shapes_of_no_elements_are_rejected(held: bool) -> None:
    inputs = [np.zeros((0, 3), F), np.array([0, 0, 0, 1 << 61])]
    model, feeds = model_of_node("Pad", inputs, ["y"], weights=(1,) if held else ())
    with pytest.raises(NotSupported, match="'it': sizes of at most"):
        load(model, "numpy").run(feeds)


@pytest.mark.parametrize(("batch", "rows"), [(0, 3), (1, 0)])
def test_all_outputs_of_fused_operators(batch: int, rows: int) -> None:
    x, scale, rest = normal(batch, rows, 4), normal(4), {"domain": "com.microsoft"}
    check_node("SkipLayerNormalization", [x, x, scale, scale], ["y", "", "", "sum"], **rest)
    check_node("SkipSimplifiedLayerNormalization", [x, x, scale], ["y", "", "", "sum"], **rest)
    for past in (0,) if batch else (0, 2):  # a past without new rows is rejected, as by Attention
        cache = [normal(batch, 2, past, 2) if past else None] * 2
        check_node("MultiHeadAttention", [x, x, x, None, None, None, *cache], ["y", "k", "v"], num_heads=2, **rest)
    check_node("Attention", [x, normal(4, 12), normal(12)], ["y", "present"], num_heads=2, **rest)
    inputs = [np.ones((4, 16), np.uint8), np.zeros((batch, rows), np.int64), np.ones((4, 1), F)]
    check_node("GatherBlockQuantized", inputs, ["y"], bits=8, block_size=16, **rest)
    inputs = [normal(batch, 2, 4, 4), normal(2, 1, 2, 2), np.zeros(4, np.int64)]
    check_node("ConvTransposeWithDynamicPads", inputs, ["y"], **rest)
    model, feeds = model_of_node("BiasSplitGelu", [normal(batch, rows, 8), normal(8)], ["y"], **rest)
    assert load(model, "numpy").run(feeds)["y"].shape == (batch, rows, 4)


@pytest.mark.parametrize("sizes", [[4, 8], [4, 4, 2, 2]])
def test_hidden_sizes_are_three(sizes: list[int]) -> None:
    for batch in (0, 2):
        inputs = [normal(batch, 3, 4), normal(4, 12), normal(12)]
        model, feeds = model_of_node(
            "Attention", inputs, ["y"], domain="com.microsoft", num_heads=2, qkv_hidden_sizes=sizes
        )
        with pytest.raises(DmlError, match="qkv_hidden_sizes must have 3 elements"):
            load(model, "numpy").run(feeds)


@pytest.mark.parametrize("last", [0, 1])
def test_quantized_sums_over_no_elements_leave_the_bias(last: int) -> None:
    """onnxruntime leaves them unset."""
    x = np.zeros((1, 4, 3, 0) if last else (1, 0, 4, 3), np.uint8)
    scale, zero, bias = np.array(0.5, F), np.array(3, np.uint8), np.array([-2, 0, 6], np.int32)
    inputs = [x, scale, zero, np.zeros((3, 0, 2, 2), np.uint8), scale, zero, scale, zero, bias]
    model, feeds = model_of_node("QLinearConv", inputs, ["y"], domain="com.microsoft", channels_last=last)
    result = load(model, "numpy").run(feeds)["y"]
    expected = np.broadcast_to(np.array([2, 3, 6], np.uint8), (1, 3, 2, 3))
    np.testing.assert_array_equal(result, expected if last else np.moveaxis(expected, 3, 1))


def test_forms_of_conv_and_matmul_that_onnxruntime_lacks() -> None:
    """NhwcConv against Conv, FusedMatMulActivation against NumPy."""
    for batch, channels in ((0, 2), (2, 0)):
        x, filters, bias = normal(batch, 4, 5, channels), normal(3, 2, 2, channels), normal(3)
        model, feeds = model_of_node("NhwcConv", [x, filters, bias], ["y"], domain="com.microsoft")
        turned = [np.moveaxis(x, 3, 1), np.moveaxis(filters, 3, 1), bias]
        (expected,) = ReferenceEvaluator(model_of_node("Conv", turned, ["y"])[0]).run(
            None, {f"x{index}": array for index, array in enumerate(turned)}
        )
        result = load(model, "numpy").run(feeds)["y"]
        np.testing.assert_allclose(result, np.moveaxis(expected, 1, 3))
    for shapes in (((0, 3), (3, 4)), ((2, 0), (0, 4)), ((2, 3), (3, 0))):
        factors = [normal(*shape) for shape in shapes]
        model, feeds = model_of_node("FusedMatMulActivation", factors, ["y"], domain="com.microsoft", activation="Tanh")
        np.testing.assert_allclose(load(model, "numpy").run(feeds)["y"], np.tanh(np.matmul(*factors)), rtol=1e-6)


@pytest.mark.parametrize("kind", [np.int32, np.uint32])
def test_reductions_over_no_axes_keep_their_type(kind: type) -> None:
    for noop in (0, 1):
        inputs = [np.array([2, 3], kind), np.zeros(0, np.int64)]
        model, feeds = model_of_node(
            "ReduceSumSquare", inputs, ["y"], weights=(0, 1), version=18, noop_with_empty_axes=noop
        )
        result = load(model, "numpy").run(feeds)["y"]
        assert result.dtype == kind
        np.testing.assert_array_equal(result, [4, 9] if noop else [13])


def test_elements_quantized_without_a_zero_point() -> None:
    check_node("QuantizeLinear", [np.zeros((1, 0), F), np.array(0.5, F)], ["y"], domain="com.microsoft")


def test_paddings_of_the_run_are_counted() -> None:
    inputs = [normal(1, 2, 3, 3), normal(2, 1, 2, 2), np.zeros(0, np.int64)]
    for constants in ((), (2,)):
        model, feeds = model_of_node(
            "ConvTransposeWithDynamicPads", inputs, ["y"], domain="com.microsoft", weights=constants
        )
        with pytest.raises(DmlError, match="input 2 must have 4 elements, got 0"):
            load(model, "numpy").run(feeds)


def test_an_empty_region_of_resize_is_none() -> None:
    """Scales are known only in the run, and the roi has no elements."""
    inputs = [normal(1, 1, 3, 4), np.zeros(0, F), np.array([1, 1, 2, 1.5], F)]
    check_node("Resize", inputs, ["y"], version=13, mode="linear")


def test_grids_of_a_single_picture() -> None:
    sizes = ((1, 2, 3, 4), (1, 1, 2, 2, 3), (1, 1, 1, 2), (2, 1, 4, 1, 1), (1, 1, 1, 1))
    for size in sizes:
        theta = normal(size[0], len(size) - 2, len(size) - 1)
        for aligned in (0, 1):
            check_node("AffineGrid", [theta, np.array(size)], ["y"], version=20, align_corners=aligned)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_windows_of_empty_inputs_do_not_begin_in_the_padding(op_type: str) -> None:
    rest = {"kernel_shape": [1, 2], "strides": [3, 2], "pads": [0, 1, 0, 1], "ceil_mode": 1}
    check_node(op_type, [np.zeros((0, 3, 9, 9), F)], ["y"], **rest)


def test_joined_tensors_agree_in_other_sizes() -> None:
    model, feeds = model_of_node("Concat", [normal(1, 3, 2), np.zeros((0, 5, 2), F)], ["y"], axis=1)
    with pytest.raises(DmlError, match=r"equal sizes but for axis 1, got \[1, 3, 2\], \[0, 5, 2\]"):
        load(model, "numpy").run(feeds)


@pytest.mark.parametrize("in_order", [0, 1])
def test_empty_inputs_have_no_unique_elements(in_order: int) -> None:
    model, feeds = model_of_node("Unique", [np.zeros((2, 0), F)], ["y", "first", "inverse", "counts"], sorted=in_order)
    results = load(model, "numpy").run(feeds)
    assert [(result.shape, result.dtype) for result in results.values()] == [((0,), F), *[((0,), np.int64)] * 3]
