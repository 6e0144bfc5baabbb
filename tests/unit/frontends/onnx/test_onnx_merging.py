"""Products of one input with several quantized matrices, merged when a model is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dmlgpu.demo.language_model import DecoderSizes, decoder
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.model import read
from dmlgpu.frontends.onnx.tensor_proto import DeferredArray

INNER, BLOCK = 64, 32


class Model:
    """A model of MatMulNBits nodes under construction."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.listed: list[str] = []
        self.expected: dict[str, NDArray[Any]] = {}
        self.x = self.rng.standard_normal((2, 3, INNER)).astype(np.float32)

    def product(
        self, name: str, columns: int, *, x: str = "x", block: int = BLOCK, zero: bool = False, bias: bool = False
    ) -> None:
        """Add a product."""
        blocks = INNER // block
        packed = self.rng.integers(0, 256, (columns, blocks, block // 2), np.uint8)
        scales = self.rng.uniform(0.5, 1, (columns, blocks)).astype(np.float32)
        zeros = self.rng.integers(0, 256, (columns, -(-blocks // 2)), np.uint8)
        added = self.rng.standard_normal(columns).astype(np.float32)
        arrays = {"q": packed, "s": scales.reshape(-1), "z": zeros if zero else None, "b": added if bias else None}
        inputs = [x]
        for part, array in arrays.items():
            inputs.append("" if array is None else f"{name}.{part}")
            if part == "b":
                inputs.insert(-1, "")
            if array is not None:
                self.weights.append(numpy_helper.from_array(array, f"{name}.{part}"))
        while not inputs[-1]:
            inputs.pop()
        sizes = {"K": INNER, "N": columns, "bits": 4, "block_size": block}
        self.nodes.append(helper.make_node("MatMulNBits", inputs, [name], name, domain="com.microsoft", **sizes))
        nibbles = np.stack([packed & 15, packed >> 4], -1).reshape(columns, blocks, block).astype(np.float32)
        middles = np.stack([zeros & 15, zeros >> 4], -1).reshape(columns, -1)[:, :blocks] if zero else np.full(1, 8)
        matrix = (nibbles - middles.astype(np.float32).reshape(-1, blocks if zero else 1, 1)) * scales[..., None]
        self.expected[name] = self.x @ matrix.reshape(columns, INNER).T + (added if bias else 0)

    def proto(self) -> onnx.ModelProto:
        """Return the model."""
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["a", "b", INNER]) for name in ("x", "y")]
        by_name = {weight.name: weight for weight in self.weights}
        for name in self.listed:
            infos.append(helper.make_tensor_value_info(name, by_name[name].data_type, by_name[name].dims))
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["a", "b", None]) for name in self.expected]
        graph = helper.make_graph(self.nodes, "products", infos, outputs, self.weights)
        sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=10)

    def check(self) -> list[str]:
        """Compare with NumPy; return the types of the nodes that were read."""
        proto = self.proto()
        outputs = load(proto, "numpy").run({"x": self.x, "y": self.x})
        for name, array in self.expected.items():
            np.testing.assert_allclose(outputs[name], array, rtol=1e-4, atol=1e-4)
        return [node.op_type for node in read(proto).nodes]


MERGED, TWO = ["MatMulNBits", "Split"], ["MatMulNBits"] * 2


@pytest.mark.parametrize("zero", [False, True], ids=["", "zero points"])
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
def test_products_of_one_input_are_merged(zero: bool, bias: bool) -> None:
    model = Model()
    for name, columns in (("query", 16), ("key", 6), ("value", 10)):
        model.product(name, columns, zero=zero, bias=bias)
    assert model.check() == MERGED


def test_other_products_stay() -> None:
    model = Model()
    model.product("first", 8)
    model.product("other", 8, x="y")
    assert model.check() == TWO


@pytest.mark.parametrize("option", [{"block": 16}, {"zero": True}, {"bias": True}], ids=["block", "zero", "bias"])
def test_products_of_other_kinds_stay(option: dict[str, Any]) -> None:
    model = Model()
    model.product("first", 8)
    model.product("second", 8, **option)
    assert model.check() == TWO


def test_matrices_that_a_run_may_replace_stay() -> None:
    model = Model()
    model.product("first", 8)
    model.product("second", 8)
    model.listed = ["second.q"]
    assert model.check() == TWO


def test_joined_rows_are_those_of_all_arrays() -> None:
    arrays = [np.arange(12).reshape(4, 3), np.arange(6).reshape(2, 3) + 20, np.arange(9).reshape(3, 3) + 40]
    deferred = DeferredArray((2, 3), arrays[1].dtype, lambda span: arrays[1][span], 1 << 22)
    joined = DeferredArray.joined([arrays[0], deferred, arrays[2]])
    assert np.array_equal(np.asarray(joined), np.concatenate(arrays))
    pieces = joined.pieces(4)
    assert np.array_equal(np.concatenate([np.asarray(piece) for piece in pieces]), np.concatenate(arrays))


def test_attention_takes_queries_keys_and_values_together() -> None:
    proto = decoder(DecoderSizes(layers=1, heads=2, kv_heads=1, head_size=32, feed_forward=64, vocabulary=300))
    types = [node.op_type for node in read(proto).nodes]
    assert types.count("MatMulNBits") == 5
    assert types.count("Split") == 1
    proto.graph.output.append(helper.make_tensor_value_info("layers.0.k", TensorProto.FLOAT, ["a", "b", 32]))
    types = [node.op_type for node in read(proto).nodes]
    assert types.count("Split") == 2
