"""Activations, normalizations, products and convolutions of com.microsoft, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlgpu import NotSupported
from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.onnx_against import check_node, model_of_node, normal

MS = "com.microsoft"


@pytest.mark.parametrize(
    ("op_type", "shapes", "attributes"),
    [
        ("Gelu", [(2, 3, 8)], {}),
        ("BiasGelu", [(2, 3, 8), (8,)], {}),
        ("FastGelu", [(2, 3, 8)], {}),
        ("FastGelu", [(2, 3, 8), (8,)], {}),
        ("QuickGelu", [(2, 3, 8)], {"alpha": 1.3}),
        ("FusedConv", [(1, 4, 7, 7), (6, 2, 3, 3), (6,)], {"activation": "Relu", "group": 2, "pads": [1, 1, 1, 1]}),
        ("FusedConv", [(1, 4, 7, 7), (6, 4, 3, 3), (6,), (1, 6, 5, 5)], {"activation": "Tanh"}),
        ("FusedConv", [(1, 4, 7), (6, 4, 3)],
         {"activation": "LeakyRelu", "activation_params": [0.3]}),
        ("FusedConv", [(1, 4, 7, 7), (6, 4, 3, 3)], {"activation": "Clip", "activation_params": [-0.5, 0.5]}),
        ("FusedConv", [(1, 4, 7, 7), (6, 4, 3, 3)], {"activation": "Clip", "activation_params": [-1.0, -7.25]}),
        ("FusedConv", [(1, 4, 7, 7), (6, 4, 3, 3)], {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}),
        ("FusedGemm", [(3, 4), (5, 4), (5,)],
         {"transB": 1, "alpha": 0.5, "beta": 2.0, "activation": "LeakyRelu", "activation_alpha": 0.2}),
        ("FusedMatMul", [(2, 3, 4, 5), (2, 3, 6, 5)], {"transB": 1, "alpha": 0.25}),
        ("FusedMatMul", [(4, 3), (4, 5)], {"transA": 1}),
        ("FusedMatMul", [(3, 2, 4), (2, 4, 5)], {"transBatchA": 1}),
        ("FusedMatMul", [(4, 2, 3), (2, 5, 4)], {"transBatchA": 1, "transA": 1, "transB": 1}),
        ("TransposeMatMul", [(3, 4), (5, 4)], {"transB": 1}),
    ],
)  # fmt: skip
def test_of_one_output(op_type: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any]) -> None:
    inputs = [normal(*shape, seed=index) for index, shape in enumerate(shapes)]
    check_node(op_type, inputs, ["y"], domain=MS, **attributes)


@pytest.mark.parametrize("present", [(3,), (3, 4), (4,), ()])
def test_skip_layer_normalization(present: tuple[int, ...]) -> None:
    """With and without beta and bias; the sum is an output."""
    x, skip, row = normal(2, 5, 16), normal(2, 5, 16, seed=1), normal(16)
    optional = [row * (index + 1) if index in present else None for index in (3, 4)]
    check_node("SkipLayerNormalization", [x, skip, row, *optional], ["y", "", "", "sum"], domain=MS)
    simplified = [x, skip, row, optional[0]]
    check_node("SkipSimplifiedLayerNormalization", simplified, ["y", "", "", "sum"], domain=MS, epsilon=1e-3)


def test_skip_that_broadcasts() -> None:
    x, row = normal(2, 5, 16), normal(16)
    for skip in (normal(1, 5, 16), normal(5, 16)):
        check_node("SkipLayerNormalization", [x, skip, row, row], ["y"], domain=MS)


def test_layer_normalizations() -> None:
    x, row = normal(2, 5, 16), normal(16)
    check_node("SimplifiedLayerNormalization", [x, row], ["y", "inverse"], version=16, axis=-1)
    check_node("LayerNormalization", [x, row, row], ["y", "mean", "inverse"], version=16, axis=-1)
    check_node("LayerNormalization", [x, normal(5, 16)], ["y"], version=17, axis=1)
    check_node("RMSNormalization", [x, normal(5, 16)], ["y"], version=23, axis=1, epsilon=1e-2)


def test_embeddings() -> None:
    rng = np.random.default_rng(0)
    words, segments = rng.integers(0, 20, (2, 5)).astype(np.int32), rng.integers(0, 2, (2, 5)).astype(np.int32)
    tables = [normal(20, 8), normal(9, 8), normal(2, 8)]
    row = normal(8)
    mask = np.array([[1, 1, 1, 0, 5], [1, 1, 1, 1, 1]], np.int32)
    places = rng.integers(0, 9, (2, 5)).astype(np.int32)
    outputs = ["y", "count", "sum"]
    check_node("EmbedLayerNormalization", [words, segments, *tables, row, row, mask], outputs, domain=MS)
    check_node(
        "EmbedLayerNormalization", [words, None, *tables[:2], None, row, row, None, places], outputs[:2], domain=MS
    )


def found_of(op_type: str, inputs: list[Any], outputs: list[str], **attributes: Any) -> list[np.ndarray]:
    model, feeds = model_of_node(op_type, inputs, outputs, domain=MS, **attributes)
    return list(load(model, "numpy").run(feeds).values())


@pytest.mark.parametrize("last", [0, 1])
def test_group_norm(last: int) -> None:
    """onnxruntime's CPU provider has none: from its definition."""
    x, skip, bias = normal(2, 6, 3, 4), normal(2, 6, 3, 4, seed=1), normal(6)
    gamma, beta = normal(6, seed=2), normal(6, seed=3)
    total = x + skip + bias[:, None, None]
    groups = total.reshape(2, 3, -1)
    normed = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-4)
    expected = normed.reshape(x.shape) * gamma[:, None, None] + beta[:, None, None]
    expected = expected / (1 + np.exp(-expected))
    turned = [array.transpose(0, 2, 3, 1) if last else array for array in (x, skip, expected, total)]
    inputs = [turned[0], gamma, beta, turned[1], bias]
    settings = {"groups": 3, "activation": 1, "channels_last": last, "epsilon": 1e-4}
    y, result = found_of("SkipGroupNorm", inputs, ["y", "sum"], **settings)
    np.testing.assert_allclose(y, turned[2], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result, turned[3], rtol=1e-6)
    (plain,) = found_of("GroupNorm", [turned[3], gamma, beta], ["y"], **settings)
    np.testing.assert_allclose(plain, turned[2], rtol=1e-4, atol=1e-5)


def test_without_a_cpu_kernel() -> None:
    """BiasSplitGelu, BiasAdd and NhwcConv, which onnxruntime's CPU provider lacks."""
    x, bias = normal(2, 4, 6), normal(6, seed=1)
    (result,) = found_of("BiasSplitGelu", [x, bias], ["y"])
    left, right = np.split(x + bias, 2, -1)
    (half,) = found_of("Gelu", [right], ["y"])
    np.testing.assert_allclose(result, left * half, rtol=1e-5, atol=1e-6)
    (result,) = found_of("BiasAdd", [x, bias, 2 * x], ["y"])
    np.testing.assert_allclose(result, 3 * x + bias, rtol=1e-6)
    picture, filters, shift = normal(1, 4, 5, 5), normal(6, 4, 3, 3), normal(6)
    (expected,) = found_of("FusedConv", [picture, filters, shift], ["y"], pads=[1, 1, 1, 1])
    turned = [picture.transpose(0, 2, 3, 1), filters.transpose(0, 2, 3, 1), shift]
    (result,) = found_of("NhwcConv", turned, ["y"], pads=[1, 1, 1, 1])
    np.testing.assert_allclose(result, expected.transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("known", [True, False])
def test_padding_as_an_input(known: bool) -> None:
    inputs = [normal(1, 4, 5, 5), normal(4, 3, 3, 3), np.array([1, 0, 1, 2]), normal(3)]
    weights = (1, 2) if known else (1,)
    check_node("ConvTransposeWithDynamicPads", inputs, ["y"], domain=MS, weights=weights, strides=[2, 2])


def test_rejected() -> None:
    inputs = [normal(1, 4, 7, 7), normal(6, 4, 3, 3)]
    with pytest.raises(NotSupported, match="FusedConv 'it': activation 'Mish' is not supported"):
        found_of("FusedConv", inputs, ["y"], activation="Mish")
    with pytest.raises(NotSupported, match="GroupNorm 'it': groups must divide 4 channels, got 3"):
        found_of("GroupNorm", [inputs[0], normal(4), normal(4)], ["y"], groups=3, channels_last=0)
