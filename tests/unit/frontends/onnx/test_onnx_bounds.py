"""Indices and lengths out of range: an error if the host knows them, as in ONNX and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from dmlgpu import InvalidArgument, Tensor
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.session import runner_of
from tests.unit.frontends.onnx.onnx_against import expected_of, model_of, model_of_node, normal
from tests.unit.frontends.onnx.test_onnx_attention import group_inputs, table

MS = "com.microsoft"
X = normal(3, 4)
F = np.float32
GROUP = {"num_heads": 4, "kv_num_heads": 2}
RNN = {"hidden_size": 2}


def layer(gates: int, last: int) -> list[Any]:
    return [normal(4, 2, 3), normal(1, 2 * gates, 3), normal(1, 2 * gates, 2), None, np.array([2, last], np.int32)]


def grouped(rows: int, past: int, last: int, total: int) -> list[Any]:
    inputs = group_inputs(rows, past, [last])
    inputs[6] = np.array(total, np.int32)
    return inputs


def embedded(word: int) -> list[Any]:
    return [np.array([[0, word]], np.int32), None, normal(5, 4), normal(3, 4), None, normal(4), normal(4)]


ROTARY = table(4, 4)
HEADS = [normal(1, 1, 2, 3), normal(1, 1, 3, 3), normal(1, 1, 3, 3), None, None, None]

Case = tuple[str, list[Any], dict[str, Any], str]

CASES: list[Case] = [
    ("Gather", [X, np.array([3])], {}, "indices must be between -3 and 2, got 3"),
    ("Gather", [X, np.array([0, -4], np.int32)], {}, "indices must be between -3 and 2, got -4"),
    ("Gather", [X, np.array(4)], {"axis": 1}, "indices must be between -4 and 3, got 4"),
    ("GatherElements", [X, np.array([[5, 0, 0, 0]])], {}, "indices must be between -3 and 2, got 5"),
    ("GatherND", [X, np.array([[2, 3], [0, 4]])], {}, "indices must be between -4 and 3, got 4"),
    ("GatherND", [X, np.array([[-4]])], {}, "indices must be between -3 and 2, got -4"),
    ("ScatterElements", [X, np.array([[4, 0, 0, 0]]), normal(1, 4)], {}, "indices must be between -3 and 2, got 4"),
    ("ScatterND", [X, np.array([[3]]), normal(1, 4)], {}, "indices must be between -3 and 2, got 3"),
    ("ReverseSequence", [X, np.array([1, 4, 0, 2])], {"batch_axis": 1, "time_axis": 0},
     "sequence_lens must be between 0 and 3, got 4"),
    ("LSTM", layer(4, 5), RNN, "sequence_lens must be between 0 and 4, got 5"),
    ("GRU", layer(3, -1), RNN, "sequence_lens must be between 0 and 4, got -1"),
    ("RNN", layer(1, 5), RNN, "sequence_lens must be between 0 and 4, got 5"),
    ("RoiAlign", [normal(2, 1, 4, 4), np.array([[0, 0, 2, 2]], F), np.array([2])], {},
     "batch_indices must be between 0 and 1, got 2"),
    ("MaxRoiPool", [normal(2, 1, 4, 4), np.array([[-1, 0, 0, 2, 2]], F)], {"pooled_shape": [2, 2]},
     "batch indices of rois must be between 0 and 1, got -1.0"),
    ("MaxUnpool", [normal(1, 1, 2, 2), np.array([[[[0, 3], [9, 16]]]])], {"kernel_shape": [2, 2], "strides": [2, 2]},
     "I must be between 0 and 15, got 16"),
    ("NegativeLogLikelihoodLoss", [normal(2, 3), np.array([0, 3])], {}, "labels must be between 0 and 2, got 3"),
    ("SoftmaxCrossEntropyLoss", [normal(2, 3), np.array([-9, -2])], {"ignore_index": -9},
     "labels must be between 0 and 2, got -2"),
    ("Attention", [*HEADS, np.array([4])], {}, "nonpad_kv_seqlen must be between 0 and 3, got 4"),
    ("Attention", [*HEADS, np.array([-1])], {}, "nonpad_kv_seqlen must be between 0 and 3, got -1"),
    ("TensorScatter", [normal(1, 3, 4), normal(1, 2, 4), np.array([2])], {},
     "write_indices must be between 0 and 1, got 2"),
    ("TensorScatter", [normal(1, 3, 4), normal(1, 2, 4), np.array([-1])], {"mode": "circular"},
     "write_indices must be between 0 and 2147483645, got -1"),
    ("TensorScatter", [normal(1, 3, 4), normal(1, 2, 4), np.array([1 << 32])], {"mode": "circular"},
     "write_indices must be between 0 and 2147483645, got 4294967296"),
    ("RotaryEmbedding", [normal(1, 2, 16), *ROTARY, np.array([[0, -1]])], {"num_heads": 2},
     "position_ids must be between 0 and 3, got -1"),
]  # fmt: skip

CASES_OF_MICROSOFT: list[Case] = [
    ("GroupQueryAttention", grouped(1, 4, 4, 4), GROUP, "seqlens_k must be between 0 and 3, got 4"),
    ("GroupQueryAttention", grouped(1, 4, -2, 1), GROUP, "seqlens_k must be between 0 and 3, got -2"),
    ("GroupQueryAttention", grouped(3, 0, 3, 3), GROUP, "seqlens_k must be between 0 and 2, got 3"),
    ("GroupQueryAttention", grouped(1, 4, 2, 0), GROUP, "total_sequence_length must be between 1 and 5, got 0"),
    ("GroupQueryAttention", grouped(1, 4, 2, 1 << 30), GROUP, "total_sequence_length must be between 1 and 5, got 107"),
    ("GroupQueryAttention", [*grouped(1, 8, 6, 7)[:7], *table(4, 8)], {**GROUP, "do_rotary": 1},
     "places in cos_cache must be between 0 and 3, got 6"),
    ("GroupQueryAttention", [*grouped(1, 8, 6, 7)[:7], *table(4, 8), np.array([[-1]])], {**GROUP, "do_rotary": 1},
     "places in cos_cache must be between 0 and 3, got -1"),
    ("RotaryEmbedding", [normal(1, 2, 16), np.array([3]), *ROTARY], {"num_heads": 2},
     "position_ids must be between 0 and 2, got 3"),
    ("RotaryEmbedding", [normal(1, 2, 16), np.array([[3, 4]]), *ROTARY], {"num_heads": 2},
     "position_ids must be between 0 and 3, got 4"),
    ("EmbedLayerNormalization", embedded(5), {}, "input_ids must be between 0 and 4, got 5"),
    ("GatherBlockQuantized", [np.ones((4, 16), np.uint8), np.array([4]), np.ones((4, 1), F)],
     {"bits": 8, "block_size": 16}, "indices must be between -4 and 3, got 4"),
]  # fmt: skip


@pytest.mark.parametrize("known", ["of the run", "of the model"])
@pytest.mark.parametrize(("op_type", "inputs", "attributes", "message"), CASES)
def test_out_of_range(op_type: str, inputs: list[Any], attributes: dict[str, Any], message: str, known: str) -> None:
    _check_rejected(op_type, inputs, attributes, message, known, version=24)


@pytest.mark.parametrize("known", ["of the run", "of the model"])
@pytest.mark.parametrize(("op_type", "inputs", "attributes", "message"), CASES_OF_MICROSOFT)
def test_out_of_range_of_com_microsoft(
    op_type: str, inputs: list[Any], attributes: dict[str, Any], message: str, known: str
) -> None:
    _check_rejected(op_type, inputs, attributes, message, known, domain=MS)


def _check_rejected(op_type: str, inputs: list[Any], attributes: Any, message: str, known: str, **rest: Any) -> None:
    outputs = ["y", "k", "v"] if op_type == "GroupQueryAttention" else ["y"]
    outputs = ["y", "mask"] if op_type == "EmbedLayerNormalization" else outputs
    indices = range(len(inputs)) if op_type == "EmbedLayerNormalization" else range(1, len(inputs))
    weights = tuple(indices) if known == "of the model" else ()
    model, feeds = model_of_node(op_type, inputs, outputs, weights=weights, **rest, **attributes)
    with pytest.raises(InvalidArgument, match=f"^{op_type} 'it': {message}"):
        load(model, "numpy").run(feeds)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Gather", [X, np.array([-3, 2])], {}),
        ("GatherND", [X, np.array([[-3, 3], [2, -4]])], {}),
        ("ScatterND", [X, np.array([[-3], [2]]), normal(2, 4)], {}),
        ("ReverseSequence", [X, np.array([0, 3, 1, 2])], {"batch_axis": 1, "time_axis": 0}),
        ("LSTM", layer(4, 0), RNN),
        ("LSTM", layer(4, 4), RNN),
        ("SoftmaxCrossEntropyLoss", [normal(2, 3), np.array([-9, 2])], {"ignore_index": -9}),
    ],
)
def test_the_limits_themselves(op_type: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    model, feeds = model_of_node(op_type, inputs, ["y"], version=18, **attributes)
    result = load(model, "numpy").run(feeds)["y"]
    np.testing.assert_allclose(result, expected_of(model, feeds)[0], rtol=1e-5, atol=1e-6)


def test_checks_compile_nothing() -> None:
    model, feeds = model_of_node("Gather", [X, np.array([1, 2])], ["y"])
    session = load(model, "numpy")
    for _ in range(2):
        np.testing.assert_array_equal(session.run(feeds)["y"], X[[1, 2]])
        with pytest.raises(InvalidArgument, match="got 7"):
            session.run({**feeds, "x1": np.array([7, 0])})
    assert len(runner_of(session).stages) == 1


def test_indices_on_the_device_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """DirectML's rules hold for it: an index out of range takes 0."""
    model, feeds = model_of_node("Gather", [X, np.array([1, 9])], ["y"])
    session = load(model, "numpy")
    indices = Tensor(feeds["x1"], device=session.device)
    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "numpy", lambda self: pytest.fail("a tensor is read"))
        result = session.run_tensors({**feeds, "x1": indices})["y"]
    np.testing.assert_array_equal(np.asarray(result), [X[1], np.zeros(4)])


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
def test_updates_out_of_range_are_dropped(reduction: str) -> None:
    """An index beyond one dimension does not reach into the next one."""
    x, updates = np.zeros((3, 4, 2), F), 1 + np.arange(12, dtype=F).reshape(6, 2)
    indices = np.array([[0, 1], [0, 4], [1, -5], [3, 0], [-4, 3], [-1, -1]])
    model, feeds = model_of_node("ScatterND", [x, indices, updates], ["y"], version=18, reduction=reduction)
    session = load(model, "numpy")
    tensor = Tensor(indices, device=session.device)
    result = np.asarray(session.run_tensors({**feeds, "x1": tensor})["y"])
    expected = x.copy()
    expected[0, 1], expected[2, 3] = updates[0], updates[5]
    np.testing.assert_array_equal(result, expected)


def test_a_rejected_step_leaves_the_cache() -> None:
    inputs = grouped(1, 4, 0, 4)
    model, feeds = model_of_node("GroupQueryAttention", inputs, ["y", "k", "v"], domain=MS, **GROUP)
    session = load(model, "numpy")
    session.bind("x3", feeds.pop("x3"), updated_by="k")
    session.bind("x4", feeds.pop("x4"), updated_by="v")
    session.run(feeds)
    before = session.bound["x3"].numpy()
    with pytest.raises(InvalidArgument, match="seqlens_k must be between 0 and 3, got 4"):
        session.run({**feeds, "x5": np.array([4], np.int32)})
    np.testing.assert_array_equal(session.bound["x3"].numpy(), before)


INDICES = (TensorProto.INT32, [2])


def test_indices_from_small_arithmetic() -> None:
    """A Cast and an Add of a few integers of the run: the host computes the result."""
    nodes = [
        helper.make_node("Cast", ["i"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Add", ["wide", "one"], ["next"]),
        helper.make_node("Gather", ["x", "next"], ["y"], name="it"),
    ]
    inputs = {"x": (TensorProto.FLOAT, [3, 4]), "i": INDICES}
    session = load(model_of(nodes, inputs, {"y": TensorProto.FLOAT}, {"one": np.array([1])}), "numpy")
    np.testing.assert_array_equal(session.run({"x": X, "i": np.array([0, 1], np.int32)})["y"], X[[1, 2]])
    with pytest.raises(InvalidArgument, match="Gather 'it': indices must be between -3 and 2, got 3"):
        session.run({"x": X, "i": np.array([0, 2], np.int32)})


def test_indices_that_are_used_after_a_read() -> None:
    """The graph before NonZero has uploaded them; the run still has the array."""
    nodes = [
        helper.make_node("Gather", ["wide", "i"], ["first"]),
        helper.make_node("NonZero", ["first"], ["places"]),
        helper.make_node("Gather", ["x", "i"], ["second"], name="it"),
    ]
    inputs = {"x": (TensorProto.FLOAT, [3, 4]), "wide": (TensorProto.FLOAT, [9]), "i": INDICES}
    outputs = {"places": TensorProto.INT64, "second": TensorProto.FLOAT}
    session = load(model_of(nodes, inputs, outputs), "numpy")
    feeds = {"x": X, "wide": np.ones(9, F)}
    np.testing.assert_array_equal(session.run({**feeds, "i": np.array([0, 2], np.int32)})["second"], X[[0, 2]])
    with pytest.raises(InvalidArgument, match="Gather 'it': indices must be between -3 and 2, got 5"):
        session.run({**feeds, "i": np.array([0, 5], np.int32)})


def test_the_number_of_an_iteration_as_an_index() -> None:
    body = helper.make_graph(
        [helper.make_node("Gather", ["x", "n"], ["row"], name="it"), helper.make_node("Identity", ["go"], ["goes"])],
        "body",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("row", TensorProto.FLOAT, [4]),
        ],
    )
    nodes = [helper.make_node("Loop", ["count", ""], ["y"], body=body)]
    inputs = {"x": (TensorProto.FLOAT, [3, 4]), "count": (TensorProto.INT64, [])}
    session = load(model_of(nodes, inputs, {"y": TensorProto.FLOAT}), "numpy")
    np.testing.assert_array_equal(session.run({"x": X, "count": np.array(3)})["y"], X)
    with pytest.raises(InvalidArgument, match="Gather 'it': indices must be between -3 and 2, got 3"):
        session.run({"x": X, "count": np.array(4)})
