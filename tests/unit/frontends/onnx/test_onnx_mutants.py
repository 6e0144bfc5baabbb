"""Invalid nodes raise an exception of dmlgpu, or give the result of ONNX's reference or onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dmlgpu import DmlError, NotSupported
from dmlgpu.frontends.onnx import load
from tests.onnx_mutants import mutants
from tests.onnx_samples import samples
from tests.unit.frontends.onnx.onnx_against import model_of, model_of_node, normal

F = np.float32
STEP = 9
"""Step through the mutants."""


@pytest.mark.parametrize("number", range(len(samples())), ids=lambda number: f"{number}-{samples()[number].label}")
def test_nothing_else_is_raised(number: int) -> None:
    sample = samples()[number]
    for index, (what, mutant) in enumerate(mutants(sample)):
        if (index + number) % STEP:
            continue
        for constants in ((), tuple(range(1, len(mutant.inputs)))):
            try:
                load(mutant.model(constants), "numpy").run(mutant.feeds(constants))
            except DmlError as error:
                assert str(error), what
            except Exception as error:
                raise AssertionError(f"{sample.label}, {what}, constants {constants}: {error!r}") from error


def ids(case: Any) -> str:
    return str(case[0])


X = normal(1, 2, 4, 4)
REJECTED: tuple[tuple[str, list[Any], dict[str, Any], str], ...] = (
    ("Einsum", [normal(2, 3), normal(3, 2)], {"equation": "ij,jk->iz"}, "the result must name labels"),
    ("Einsum", [normal(3, 3)], {"equation": "ij->ii"}, "the result must name labels"),
    ("Resize", [X, None, np.array([1, 1, np.nan, 2], F)], {}, "input 2 must be finite, got .1.0, 1.0, nan, 2.0."),
    ("Resize", [X, None, np.array([1, 1, np.inf, 2], F)], {}, "input 2 must be finite"),
    ("Resize", [X, None, np.array([1, 2], F)], {}, "input 2 must have 4 elements, got 2"),
    ("Resize", [X, None, None, np.array([1, 2, 3])], {}, "input 3 must have 4 elements, got 3"),
    ("Resize", [X, None, None, np.array([3, 3])], {"axes": [2, 2]}, "axes must differ"),
    *(
        ("Resize", [X, None, np.full(4, 1.5, F)], {"mode": "cubic", "cubic_coeff_a": number}, "must be finite")
        for number in (np.inf, -np.inf, np.nan)
    ),
    ("Range", [np.array(0, F), np.array(np.nan, F), np.array(1, F)], {}, "input 1 must be finite, got .nan."),
    ("Range", [np.array(0, F), np.array(np.inf, F), np.array(1, F)], {}, "input 1 must be finite, got .inf."),
    ("Range", [np.array(0, F), np.array(3e38, F), np.array(1e-30, F)], {}, "sizes must be"),
    ("Range", [np.array(0, F), np.array(-np.inf, F), np.array(1, F)], {}, "input 1 must be finite, got .-inf."),
    ("Unsqueeze", [np.array(3), np.array([-(1 << 63)])], {}, ""),
    *(
        (
            "RoiAlign",
            [X, np.ones((1, 4), F), np.zeros(1, int)],
            {"mode": mode, "output_height": size},
            "must be at leas",
        )
        for mode in ("avg", "max")
        for size in (0, -2)
    ),
    ("BitShift", [normal(3), normal(3)], {"direction": "LEFT"}, "must be of type uint16, uint32, uint64, uint8"),
    ("Col2Im", [normal(1, 4, 4), np.array([3, 3]), np.array([0, 2])], {}, "block_shape must divide 4"),
    ("ConvTranspose", [X, normal(2, 2, 2, 2)], {"strides": [2]}, "attribute strides must have 2 elements, got 1"),
    (
        "Slice",
        [X, np.array([0, 1]), np.array([1])],
        {},
        "(must have 2 elements|ends must have the length)",
    ),
    ("TopK", [normal(2, 3), np.zeros(0, np.int64)], {}, "input 1 must have 1 elements, got 0"),
    ("Attention", [np.ones((1, 2, 3, 4), np.int32)] * 3, {"version": 23}, "must be of type"),
    ("MatMul", [normal(2, 3), np.zeros((0, 4), F)], {}, "tensors without elements"),
    ("Attention", [normal(1, 1, 2, 4)] * 3 + [np.ones((2, 2), np.int32)], {"version": 23}, "attn_mask must be"),
    ("AffineGrid", [normal(1, 2, 3), np.zeros(0, np.int64)], {}, "size must have 4 or 5 elements"),
    ("Attention", [normal(1, 2, 8)] * 3, {"q_num_heads": -2, "kv_num_heads": 2, "version": 23}, "q_num_heads must be"),
    *(
        (
            "Attention",
            [normal(1, 2, 8)] * 3,
            {"q_num_heads": heads, "kv_num_heads": shared, "version": 23},
            "must be mu",
        )
        for heads, shared in ((16, 2), (6, 2), (3, 3))
    ),
    *(
        ("Attention", [normal(2, 1, 2, 4)] * 3 + [normal(*shape)], {"is_causal": 1, "version": 23}, "must broadcast to")
        for shape in ((3, 2), (8,), (3, 1, 2, 2), (1, 2, 1, 2, 2))
    ),
    (
        "Attention",
        [normal(2, 1, 2, 4)] * 3 + [None] * 3 + [np.ones(3, int)],
        {"is_causal": 1, "version": 24},
        "nonpad_kv_seqlen must have shape .2., got .3.",
    ),
    ("NegativeLogLikelihoodLoss", [normal(2), np.array([0, 1])], {}, "inputs must be {N, C, ...} and {N, ...}"),
    ("SoftmaxCrossEntropyLoss", [normal(2, 3), np.array([[0], [1]])], {}, "inputs must be {N, C, ...} and {N, ...}"),
    ("Tile", [normal(2, 3), np.array([2])], {}, "input 1 must have 2 elements, got 1"),
    (
        "MelWeightMatrix",
        [np.array(8), np.array(64), np.array(8000), np.array(100, np.float32), np.array(1e30, np.float32)],
        {},
        "edges must be between 0 and half the rate",
    ),
)


@pytest.mark.parametrize("case", REJECTED, ids=ids)
@pytest.mark.parametrize("held", [True, False])
def test_errors_name_the_invalid_input(case: tuple[str, list[Any], dict[str, Any], str], held: bool) -> None:
    op, inputs, attributes, message = case
    outputs = ["y", "z"] if op == "TopK" else ["y"]
    weights = tuple(range(1, len(inputs))) if held else ()
    model, feeds = model_of_node(op, inputs, outputs, weights=weights, **attributes)
    with pytest.raises(NotSupported, match=f"'it'.*{message}"):
        load(model, "numpy").run(feeds)


VALUE = helper.make_tensor_value_info


def body_of(*inputs: Any) -> onnx.GraphProto:
    nodes = [helper.make_node("Constant", [], ["more"], value_int=1), helper.make_node("Identity", ["a"], ["b"])]
    return helper.make_graph(nodes, "body", inputs, [VALUE("more", TensorProto.INT64, []), VALUE("b", 1, None)])


NUMBER, MORE, STATE = VALUE("n", TensorProto.INT64, []), VALUE("m", TensorProto.BOOL, []), VALUE("s", 1, None)


@pytest.mark.parametrize(
    ("op", "names", "rest", "message"),
    [
        ("Loop", ["two", "yes"], {"body": body_of(NUMBER, MORE, STATE)}, "body must have 2 inputs and at least 1"),
        ("Loop", ["two", "yes", "a", "a"], {"body": body_of(NUMBER, MORE, STATE)}, "body must have 4 inputs and"),
        ("Loop", ["none", "yes"], {"body": body_of(NUMBER, MORE)}, "conditions must have one element, got shape .0."),
        ("Loop", ["two", "none"], {"body": body_of(NUMBER, MORE)}, "conditions must have one element, got shape .0."),
        ("Scan", ["a"], {"body": body_of(), "num_scan_inputs": 1}, "body must have 1 inputs and at least 0"),
        ("If", ["none"], {"then_branch": body_of(), "else_branch": body_of()}, "condition must have one element"),
    ],
)
def test_errors_of_control_flow_name_the_invalid_input(
    op: str, names: list[str], rest: dict[str, Any], message: str
) -> None:
    outputs = ["y", "z"] if op == "If" else ["y"]
    feeds = {"a": normal(3), "two": np.array(2), "yes": np.array(True), "none": np.zeros(0, np.int64)}
    if op != "Loop" or names[1] == "none":
        feeds["none"] = np.zeros(0, bool)
    model = model_of(
        [helper.make_node(op, names, outputs, name="it", **rest)],
        {name: (helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape)) for name, array in feeds.items()},
        dict.fromkeys(outputs, TensorProto.FLOAT),
    )
    with pytest.raises(NotSupported, match=f"^{op}.*{message}"):
        load(model, "numpy").run(feeds)


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("backward", [0, 1])
def test_scans_of_no_steps(steps: int, backward: int) -> None:
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Add", ["state", "part"], ["next"]), helper.make_node("Neg", ["next"], ["out"])]
    inputs = [value("state", TensorProto.FLOAT, [3]), value("part", TensorProto.FLOAT, [3])]
    outputs = [value("next", TensorProto.FLOAT, [3]), value("out", TensorProto.FLOAT, [3])]
    rest: dict[str, Any] = {"scan_output_directions": [backward], "scan_output_axes": [1]}
    body = helper.make_graph(nodes, "body", inputs, outputs)
    node = helper.make_node("Scan", ["s", "x"], ["last", "all"], body=body, num_scan_inputs=1, **rest)
    feeds = {"s": normal(3), "x": normal(steps, 3)}
    model = model_of(
        [node],
        {name: (TensorProto.FLOAT, list(array.shape)) for name, array in feeds.items()},
        {"last": TensorProto.FLOAT, "all": TensorProto.FLOAT},
    )
    last, gathered = load(model, "numpy").run(feeds).values()
    sums = feeds["s"] + np.concatenate([np.zeros((1, 3), F), np.cumsum(feeds["x"], 0)])
    np.testing.assert_allclose(last, sums[-1], rtol=1e-6)
    np.testing.assert_allclose(gathered, -sums[1:][:: -1 if backward else 1].T, rtol=1e-6)
