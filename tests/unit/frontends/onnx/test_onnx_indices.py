"""ONNX operators by index, along axes and by chance, on the adapter numpy, against onnxruntime and ONNX's reference."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from dmlgpu import NotSupported
from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.onnx_against import (
    check_node,
    check_reference,
    expected_of,
    model_of,
    model_of_node,
    normal,
)

F = np.float32


def places(size: int, *shape: int) -> np.ndarray:
    return np.random.default_rng((size, *shape)).integers(-size, size, shape)


def numbers(kind: Any, *shape: int) -> np.ndarray:
    if np.dtype(kind).kind == "f":
        return normal(*shape).astype(kind)
    return np.random.default_rng(shape).integers(0 if np.dtype(kind).kind == "u" else -4, 5, shape).astype(kind)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("kind", [np.float32, np.int64, np.int32, np.uint8])
def test_scatter_elements(reduction: str, kind: Any) -> None:
    where = places(5, 3, 4, 6)
    if reduction == "none":  # of several updates of one element any wins
        where = np.argsort(normal(3, 5, 6), axis=1)[:, :4] - 5
    inputs = [numbers(kind, 4, 5, 6), where[:3], numbers(kind, 3, 4, 6)]
    version = 18 if kind is not np.uint8 else 16
    if reduction in ("max", "min") and version == 16:
        return
    check_reference("ScatterElements", inputs, ["y"], axis=1, reduction=reduction, version=version)


@pytest.mark.parametrize("reduction", ["add", "mul"])
def test_scattered_booleans_stay_booleans(reduction: str) -> None:
    """A sum of booleans equals true, and is no larger number."""
    x, updates = np.array([True, True, False, False]), np.array([True, True, True, False])
    nodes = [
        helper.make_node("ScatterElements", ["x", "places", "updates"], ["sums"], reduction=reduction),
        helper.make_node("Equal", ["sums", "x"], ["y"]),
    ]
    inputs = {"x": (TensorProto.BOOL, [4]), "updates": (TensorProto.BOOL, [4])}
    model = model_of(nodes, inputs, {"y": TensorProto.BOOL}, {"places": np.array([0, 0, 2, 1])})
    feeds = {"x": x, "updates": updates}
    np.testing.assert_array_equal(load(model, "numpy").run(feeds)["y"], expected_of(model, feeds)[0])


def test_large_integers_are_scattered_exactly() -> None:
    x = np.array([2**53 + 1, 2**62, -7], np.int64)
    inputs = [x, np.array([0, 0, 1]), np.array([2, -(2**53), 2**61 + 1], np.int64)]
    check_reference("ScatterElements", inputs, ["y"], axis=0, reduction="add", tolerance=0)


def test_many_updates_are_applied_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmlgpu.frontends.onnx.operators.scatter.MAX_PAIRS", 64)
    inputs = [normal(16), places(16, 30), normal(30)]
    check_reference("ScatterElements", inputs, ["y"], axis=0, reduction="add")


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("tuples", [1, 2, 3])
def test_scatter_nd(reduction: str, tuples: int) -> None:
    shape = (4, 3, 5)
    where = np.stack([places(size, 2, 3) for size in shape[:tuples]], axis=-1)
    if reduction == "none":
        flat = np.random.default_rng(0).permutation(4)[:2].reshape(2, 1)
        where = np.concatenate([flat] + [np.zeros((2, 1), np.int64)] * (tuples - 1), axis=1)
    updates = normal(*where.shape[:-1], *shape[tuples:])
    check_node("ScatterND", [normal(*shape), where, updates], ["y"], reduction=reduction, version=18)


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_unique(is_sorted: int, axis: int | None, kind: Any) -> None:
    x = np.random.default_rng(3).integers(0, 2, (12, 3)).astype(kind)
    attributes = {"sorted": is_sorted} | ({} if axis is None else {"axis": axis})
    check_node("Unique", [x], ["y", "first", "inverse", "counts"], version=11, **attributes)


@pytest.mark.parametrize("weights", [(), (3, 4), (1, 3, 4), (2, 3, 4), (1, 2, 3, 4)])
@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_slices_far_beyond_the_ends(kind: Any, weights: tuple[int, ...]) -> None:
    """Integers are sliced on the host where it knows them."""
    far = (-(1 << 40), -7, -1, 0, 4, 1 << 31, (1 << 62) + 1)
    x = np.arange(10).reshape(2, 5).astype(kind)
    for start, end, step in itertools.product(far, far[::3], (-2, 3)):
        inputs = [x, np.array([start]), np.array([end]), np.array([-1]), np.array([step])]
        check_node("Slice", inputs, ["y"], version=16, weights=weights if kind is np.float32 else (0, *weights))


def test_wide_rows_are_not_compared() -> None:
    model, feeds = model_of_node("Unique", [normal(2, 100)], ["y"], axis=0)
    with pytest.raises(NotSupported, match="subtensors of at most 64 elements are compared, got 100"):
        load(model, "numpy").run(feeds)


@pytest.mark.parametrize("axis", [None, 0, -2])
def test_compress(axis: int | None) -> None:
    attributes = {} if axis is None else {"axis": axis}
    condition = np.array([False, True, True])
    check_node("Compress", [normal(3, 3, 2), condition], ["y"], **attributes)
    check_node("Compress", [normal(3, 3, 2), ~condition], ["y"], **attributes)
    check_node("Compress", [normal(3, 3, 2), condition & ~condition], ["y"], **attributes)


@pytest.mark.parametrize(("batch", "time"), [(0, 1), (1, 0)])
def test_sequences_are_reversed(batch: int, time: int) -> None:
    lengths = np.array([3, 1, 4], np.int64)
    shape = (3, 4, 2) if batch == 0 else (4, 3, 2)
    check_node("ReverseSequence", [normal(*shape), lengths], ["y"], batch_axis=batch, time_axis=time)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("op_type", ["CumSum", "CumProd"])
def test_cumulative(op_type: str, exclusive: int, reverse: int) -> None:
    for kind in (np.float32, np.int64):
        inputs = [numbers(kind, 3, 5), np.array(-1)]
        check_reference(op_type, inputs, ["y"], exclusive=exclusive, reverse=reverse, version=26)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_determinant(size: int) -> None:
    x = normal(2, 3, size, size)
    x[0, 0, :, 0] = 0  # singular
    if size > 1:
        x[1, 1, 0, 0] = 0
    check_node("Det", [x], ["y"], tolerance=1e-4)


@pytest.mark.parametrize(
    "equation",
    [
        "bij,bjk->bik",
        "ij->ji",
        "ii->i",
        "ii",
        "i,i->",
        "i,j",
        "bij,bkj,k->bi",
        "...ij,...jk->...ik",
        "ijk->j",
        "bi,bi->bi",
    ],
)
@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_einsum(equation: str, kind: Any) -> None:
    sizes = {"b": 2, "i": 3, "j": 4, "k": 5}
    terms = equation.partition("->")[0].split(",")
    if equation.startswith("ii"):
        sizes["i"] = 3
    inputs = [
        numbers(kind, *([2, 2] if "..." in term else []), *(sizes[c] for c in term if c != ".")) for term in terms
    ]
    check_reference("Einsum", inputs, ["y"], equation=equation)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("length", [None, 6, 11])
@pytest.mark.parametrize(("inverse", "onesided"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_spectrum(parts: int, length: int | None, inverse: int, onesided: int) -> None:
    if (onesided and not inverse and parts == 2) or (inverse and parts == 1):
        return
    inputs = [normal(2, 8, 3, parts), None if length is None else np.array(length), np.array(1)]
    check_reference("DFT", inputs, ["y"], version=20, inverse=inverse, onesided=onesided, tolerance=1e-4)


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("onesided", [0, 1])
def test_short_spectra(windowed: bool, onesided: int) -> None:
    window = normal(8) if windowed else None
    inputs = [normal(2, 31, 1), np.array(5), window, np.array(8)]
    check_node("STFT", inputs, ["y"], weights=(1, 3), onesided=onesided, version=17, tolerance=1e-4)


def test_bands() -> None:
    inputs = [np.array(8), np.array(64), np.array(16000), np.array(20.0, F), np.array(7000.0, F)]
    check_node("MelWeightMatrix", inputs, ["y"], weights=(0, 1, 2, 3, 4), version=17)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_padding(mode: str) -> None:
    x = normal(3, 4, 5)
    check_node("Pad", [x, np.array([1, 0, 2, 2, 3, 1])], ["y"], weights=(1,), mode=mode)
    check_node("Pad", [x, np.array([1, -1, -2, 1]), None, np.array([2, 0])], ["y"], weights=(1, 3), mode=mode)
    check_node("Pad", [x, np.array([0, 0, -1, 0, -2, 0])], ["y"], weights=(1,), mode=mode)


def test_padding_by_a_computed_value() -> None:
    model, feeds = model_of_node("Pad", [normal(2, 3), np.array([1, 0, 0, 2]), np.array(2.5, F)], ["y"])
    result = load(model, "numpy").run(feeds)["y"]
    np.testing.assert_array_equal(result, np.pad(normal(2, 3), ((1, 0), (0, 2)), constant_values=2.5))


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("kind", [np.float32, np.int64, np.uint8])
def test_largest(largest: int, kind: Any) -> None:
    inputs = [numbers(kind, 3, 7, 2), np.array([4])]
    check_node(
        "TopK", inputs, ["values", "where"], axis=1, largest=largest, sorted=1, version=24 if kind is np.uint8 else 11
    )


@pytest.mark.parametrize("axis", [0, -1])
def test_one_hot(axis: int) -> None:
    inputs = [np.array([[1, -2], [5, 9]]), np.array(6), np.array([2, 7], F)]
    check_node("OneHot", inputs, ["y"], weights=(1,), axis=axis)


def test_groups_are_normalized() -> None:
    inputs = [normal(2, 6, 4, 3), normal(6), normal(6, seed=1)]
    check_reference("GroupNormalization", inputs, ["y"], num_groups=2, version=21, tolerance=1e-4)


def test_batch_statistics() -> None:
    channels = [normal(3), normal(3, seed=1), normal(3, seed=2), np.abs(normal(3, seed=3))]
    inputs = [normal(4, 3, 5), *channels]
    check_reference("BatchNormalization", inputs, ["y", "mean", "var"], training_mode=1, momentum=0.8, version=15)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("op_type", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_losses(op_type: str, reduction: str) -> None:
    labels = np.array([[0, 2, 1], [2, 2, 0]])
    inputs = [normal(2, 4, 3), labels, np.abs(normal(4))]
    check_node(op_type, inputs, ["y"], reduction=reduction, ignore_index=1, version=13)


# ---- by chance -------------------------------------------------------------------------------------------------------


def drawn(op_type: str, runs: int = 1, **attributes: Any) -> list[np.ndarray]:
    node = helper.make_node(op_type, [], ["y"], **attributes)
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    session = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), "numpy")
    return [session.run({})["y"] for _ in range(runs)]


def test_a_seed_repeats_a_stream() -> None:
    first, second = drawn("RandomUniform", 2, shape=[5, 3], seed=4.0)
    again = drawn("RandomUniform", 2, shape=[5, 3], seed=4.0)
    np.testing.assert_array_equal([first, second], again)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, drawn("RandomUniform", shape=[5, 3], seed=5.0)[0])
    other, more = drawn("RandomUniform", 2, shape=[5, 3])
    assert not np.array_equal(other, more)


def test_distributions() -> None:
    (uniform,) = drawn("RandomUniform", shape=[200, 101], low=-3.0, high=5.0, seed=1.0)
    assert -3 <= uniform.min() < -2.9
    assert 4.9 < uniform.max() <= 5
    assert abs(uniform.mean() - 1) < 0.1
    (some,) = drawn("RandomNormal", shape=[201, 101], mean=2.0, scale=0.5, seed=1.0)
    assert abs(some.mean() - 2) < 0.02
    assert abs(some.std() - 0.5) < 0.02
    inside = np.mean(np.abs(some - 2) < 0.5)
    assert abs(inside - 0.6827) < 0.02


def test_classes_are_drawn_by_their_likelihood() -> None:
    likely = np.log(np.array([[0.1, 0.0, 0.6, 0.3], [0.25, 0.25, 0.25, 0.25]], F) + 1e-30)
    model, feeds = model_of_node("Multinomial", [likely], ["y"], sample_size=4000, seed=2.0, dtype=7)
    result = load(model, "numpy").run(feeds)["y"]
    assert result.dtype == np.int64
    shares = np.stack([np.bincount(row, minlength=4) / 4000 for row in result])
    np.testing.assert_allclose(shares, np.exp(likely), atol=0.03)


def test_elements_are_dropped_in_training() -> None:
    x = np.ones((50, 40), F)
    inputs = [x, np.array(0.25, F), np.array(True)]
    model, feeds = model_of_node("Dropout", inputs, ["y", "mask"], seed=3)
    results = load(model, "numpy").run(feeds)
    np.testing.assert_allclose(results["y"], results["mask"] / 0.75)
    assert abs(results["mask"].mean() - 0.75) < 0.05
    inputs[2] = np.array(False)
    check_node("Dropout", inputs, ["y", "mask"])


def test_bernoulli() -> None:
    model, feeds = model_of_node("Bernoulli", [np.array([0, 0.3, 1], F).repeat(500)], ["y"], seed=1.0)
    result = load(model, "numpy").run(feeds)["y"].reshape(3, 500).mean(axis=1)
    np.testing.assert_allclose(result, [0, 0.3, 1], atol=0.06)


# ---- optimizers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize(
    ("op_type", "states", "attributes"),
    [
        ("Adam", 2, {"norm_coefficient": 0.01, "norm_coefficient_post": 0.02, "alpha": 0.8, "beta": 0.99}),
        ("Adagrad", 1, {"norm_coefficient": 0.01, "decay_factor": 0.1}),
        ("Momentum", 1, {"norm_coefficient": 0.01, "alpha": 0.9, "beta": 0.7, "mode": "nesterov"}),
        ("Momentum", 1, {"norm_coefficient": 0.01, "alpha": 0.9, "beta": 0.7, "mode": "standard"}),
    ],
)
def test_optimizers(op_type: str, states: int, attributes: dict[str, Any], steps: int) -> None:
    tensors = [np.abs(normal(*shape, seed=part)) for part in range(states + 2) for shape in ((3, 2), (4,))]
    names = [f"x{index}" for index in range(len(tensors) + 2)]
    outputs = [f"y{index}" for index in range(2 * (states + 1))]
    node = helper.make_node(op_type, names, outputs, domain="ai.onnx.preview.training", **attributes)
    feeds = dict(zip(names, [np.array(0.1, F), np.array(steps, np.int64), *tensors], strict=True))
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
    )
    sets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.preview.training", 1)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=sets)
    results = load(model, "numpy").run(feeds)
    for result, expected in zip(results.values(), ReferenceEvaluator(model).run(None, feeds), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
