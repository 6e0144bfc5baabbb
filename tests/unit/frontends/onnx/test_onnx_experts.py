"""Rows grouped by expert, and products of groups with quantized matrices, against NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from dmlgpu.frontends.onnx.model import read
from dmlgpu.frontends.onnx.session import Session
from dmlgpu.runtime.device import Device

RANDOM = np.random.default_rng(3)


def model_of(nodes: list[Any], inputs: dict[str, Any], outputs: list[str], weights: dict[str, Any]) -> ModelProto:
    kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
    graph = helper.make_graph(
        nodes,
        "experts",
        [helper.make_tensor_value_info(name, kinds[array.dtype], array.shape) for name, array in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("dmlgpu", 1)], ir_version=10
    )


def run(
    nodes: list[Any], inputs: dict[str, Any], outputs: list[str], weights: dict[str, Any], largest: int = 0
) -> dict[str, Any]:
    """Run nodes on the adapter numpy, with bindings of a largest size."""
    device = Device("numpy")
    if largest:
        device.backend.target = replace(device.backend.target, max_binding_size=largest)
    return dict(Session(read(model_of(nodes, inputs, outputs, weights)), device).run(inputs))


@pytest.mark.parametrize(("rows", "selected", "experts"), [(1, 4, 8), (3, 2, 8), (40, 2, 4), (64, 3, 7), (33, 1, 2)])
def test_groups_have_rows_of_one_expert(rows: int, selected: int, experts: int) -> None:
    indices = np.stack([RANDOM.permutation(experts)[:selected] for _ in range(rows)]).astype(np.int64)
    node = helper.make_node(
        "GroupByExpert", ["indices"], ["tokens", "experts", "places"], domain="dmlgpu", experts=experts
    )
    result = run([node], {"indices": indices}, ["tokens", "experts", "places"], {})
    tokens, of_group, places = (result[name] for name in ("tokens", "experts", "places"))
    size = tokens.shape[1]
    assert size == (1 if rows * selected <= 16 * experts // 15 else 16)
    assert len(set(places.ravel().tolist())) == places.size
    np.testing.assert_array_equal(of_group[places // size], indices)
    np.testing.assert_array_equal(tokens.ravel()[places], np.broadcast_to(np.arange(rows)[:, None], indices.shape))
    if size == 1:
        assert tokens.size == places.size


@pytest.mark.parametrize(("bits", "block", "zero"), [(4, 32, True), (4, 16, False), (8, 32, False), (8, 16, True)])
@pytest.mark.parametrize(("sizes", "largest"), [((5, 1), 0), ((3, 16), 0), ((5, 1), 2048)])
def test_products(bits: int, block: int, zero: bool, sizes: tuple[int, int], largest: int) -> None:
    """Matrices that exceed a binding are cut between experts."""
    groups, rows = sizes
    experts, columns, inner = 4, 24, 64
    blocks = inner // block
    integers = RANDOM.integers(0, 1 << bits, (experts, columns, inner)).astype(np.uint8)
    codes = integers if bits == 8 else integers[..., ::2] | integers[..., 1::2] << 4
    weights: dict[str, NDArray[Any]] = {
        "codes": codes.reshape(experts, -1).view(np.uint32),
        "scales": RANDOM.uniform(0.5, 1, (experts, columns, blocks)).astype(np.float32),
    }
    middle: Any = float(1 << (bits - 1))
    if zero:
        weights["zero"] = RANDOM.uniform(0, 10, (experts, columns, blocks)).astype(np.float32)
        middle = weights["zero"][..., None]
    x = RANDOM.standard_normal((groups, rows, inner)).astype(np.float32)
    of_group = RANDOM.integers(0, experts, groups)
    node = helper.make_node(
        "ExpertMatMulNBits", ["x", "experts", *weights], ["y"], domain="dmlgpu", bits=bits, block_size=block
    )
    result = run([node], {"x": x, "experts": of_group}, ["y"], weights, largest)["y"]
    matrices = (integers.reshape(experts, columns, blocks, block) - middle) * weights["scales"][..., None]
    expected = x.astype(np.float64) @ matrices.reshape(experts, columns, inner)[of_group].swapaxes(1, 2)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12])
"""Twice the floats of 4 bits, whose positions are codes less 8."""


def test_products_with_floats_of_4_bits() -> None:
    experts, columns, inner, groups = 3, 8, 64, 5
    positions = RANDOM.integers(-7, 8, (experts, columns, inner))
    codes = (positions + 8).astype(np.uint8)
    weights = {
        "codes": (codes[..., ::2] | codes[..., 1::2] << 4).reshape(experts, -1).view(np.uint32),
        "scales": RANDOM.uniform(0.5, 1, (experts, columns, inner // 32)).astype(np.float32),
    }
    x = RANDOM.standard_normal((groups, 2, inner)).astype(np.float32)
    of_group = RANDOM.integers(0, experts, groups)
    options = {"bits": 4, "block_size": 32, "values": "e2m1"}
    node = helper.make_node("ExpertMatMulNBits", ["x", "experts", *weights], ["y"], domain="dmlgpu", **options)
    result = run([node], {"x": x, "experts": of_group}, ["y"], weights)["y"]
    matrices = DOUBLED[np.abs(positions)] * np.sign(positions) * np.repeat(weights["scales"], 32, -1)
    expected = x.astype(np.float64) @ matrices[of_group].swapaxes(1, 2)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
