"""Loops of many iterations, and their results by onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
TRIPS = 300
"""More iterations than one submission has."""


def _node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attributes)


def _loop(
    nodes: list[onnx.NodeProto], states: dict[str, tuple[int, list[int]]], gathered: list[str], **constants: Any
) -> onnx.ModelProto:
    """A Loop of 300 trips whose body computes ``goes_on`` and ``next_NAME`` of each state; it sees the matrix x."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        nodes,
        "body",
        [info("trip", INT64, []), info("before", BOOL, []), *(info(name, *kind) for name, kind in states.items())],
        [
            info("goes_on", BOOL, []),
            *(info(f"next_{name}", kind, None) for name, (kind, _) in states.items()),
            *(info(name, FLOAT, None) for name in gathered),
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    outputs = [*(f"last_{name}" for name in states), *(f"all_{name}" for name in gathered)]
    kinds = [*(kind for kind, _ in states.values()), *(FLOAT for _ in gathered)]
    loop = helper.make_node("Loop", ["count", "", *(f"first_{name}" for name in states)], outputs, body=body)
    graph = helper.make_graph(
        [loop],
        "trips",
        [info("x", FLOAT, [TRIPS, 4]), *(info(f"first_{name}", *kind) for name, kind in states.items())],
        [info(name, kind, None) for name, kind in zip(outputs, kinds, strict=True)],
        [numpy_helper.from_array(np.array(TRIPS, np.int64), "count")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


ALWAYS = _node("Identity", "before", "goes_on")
STEP = [_node("Mul", "s half", "scaled"), _node("Add", "scaled row", "next_s")]
ROW = [_node("Gather", "x trip", "row", axis=0)]
HALF = np.array(0.5, np.float32)
STATE = {"s": (FLOAT, [4])}


def _inner() -> onnx.GraphProto:
    """The body of a loop within a body: it sees x and the trip number of both loops."""
    info = helper.make_tensor_value_info
    nodes = [
        _node("Identity", "inner_before", "inner_goes_on"),
        _node("Add", "trip number", "both"),
        _node("Cast", "both", "as_float", to=FLOAT),
        _node("Gather", "x number", "row", axis=0),
        _node("Mul", "v half", "scaled"),
        _node("Add", "scaled row", "moved"),
        _node("Add", "moved as_float", "next_v"),
        _node("Neg", "next_v", "result"),
    ]
    inputs = [info("number", INT64, []), info("inner_before", BOOL, []), info("v", FLOAT, [4])]
    outputs = [info("inner_goes_on", BOOL, []), info("next_v", FLOAT, None), info("result", FLOAT, None)]
    return helper.make_graph(nodes, "inner", inputs, outputs)


def counted(model: onnx.ModelProto, trips: int) -> onnx.ModelProto:
    """Return one of the loops with another trip count."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    changed.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(trips, np.int64), "count"))
    return changed


def loops() -> dict[str, onnx.ModelProto]:
    """Return loops, named by their special property."""
    counter = {"s": (FLOAT, [4]), "n": (INT64, [])}
    count = [_node("Add", "n one", "next_n")]
    two = np.array(2, np.int64)
    return {
        "states alone": _loop(
            [ALWAYS, _node("Mul", "s half", "scaled"), _node("Add", "scaled half", "next_s")], STATE, [], half=HALF
        ),
        "trip numbers and results": _loop([ALWAYS, *ROW, *STEP], STATE, ["next_s", "row"], half=HALF),
        "old states as results": _loop([ALWAYS, *ROW, *STEP, _node("Identity", "s", "old")], STATE, ["old"], half=HALF),
        "an end that the host computes": _loop(
            [_node("Less", "trip limit", "goes_on"), *ROW, *STEP], STATE, ["row"], half=HALF, limit=np.array(41)
        ),
        "an end that the device computes": _loop(
            [*ROW, *STEP, _node("ReduceMax", "next_s", "most", keepdims=0), _node("Less", "most limit", "goes_on")],
            STATE,
            ["row"],
            half=HALF,
            limit=np.array(1.9, np.float32),
        ),
        "a counter that the device reads": _loop(
            [
                ALWAYS,
                *count,
                _node("Cast", "n", "as_float", to=FLOAT),
                _node("Mul", "s half", "scaled"),
                _node("Add", "scaled as_float", "next_s"),
            ],
            counter,
            ["next_s"],
            half=HALF,
            one=two,
        ),
        "states that change places": _loop(
            [ALWAYS, _node("Mul", "s half", "next_t"), _node("Identity", "t", "next_s")],
            {"s": (FLOAT, [4]), "t": (FLOAT, [4])},
            [],
            half=HALF,
        ),
        "a state that stays": _loop(
            [ALWAYS, _node("Mul", "s t", "next_s"), _node("Identity", "t", "next_t")],
            {"s": (FLOAT, [4]), "t": (FLOAT, [4])},
            ["next_s"],
        ),
        "a state that grows": _loop(
            [ALWAYS, *ROW, _node("Concat", "s row", "longer", axis=0), _node("Slice", "longer low high", "next_s")],
            STATE,
            [],
            low=np.array([0]),
            high=np.array([22]),
        ),
        "a bool state": _loop(
            [
                ALWAYS,
                _node("Not", "b", "next_b"),
                _node("Where", "b s half", "masked"),
                _node("Mul", "masked half", "next_s"),
            ],
            {"s": (FLOAT, [4]), "b": (BOOL, [4])},
            ["next_s"],
            half=HALF,
        ),
        "an empty state": _loop(
            [ALWAYS, *ROW, *STEP, _node("Add", "e e", "next_e")],
            {"s": (FLOAT, [4]), "e": (FLOAT, [0, 3])},
            ["next_e", "next_s"],
            half=HALF,
        ),
        "a loop within": _loop(
            [ALWAYS, helper.make_node("Loop", ["inner_count", "", "s"], ["next_s", "inner"], body=_inner())],
            STATE,
            ["inner"],
            half=HALF,
            inner_count=np.array(7),
        ),
        "two states of one result": _loop(
            [
                ALWAYS,
                _node("Add", "s t", "sum"),
                _node("Mul", "sum half", "next_s"),
                _node("Identity", "next_s", "next_t"),
            ],
            {"s": (FLOAT, [4]), "t": (FLOAT, [4])},
            ["next_s"],
            half=HALF,
        ),
    }


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return inputs of one of the loops."""
    rng = np.random.default_rng(5)
    feeds: dict[str, np.ndarray] = {}
    for declared in model.graph.input:
        shape = [size.dim_value for size in declared.type.tensor_type.shape.dim]
        kind = declared.type.tensor_type.elem_type
        if kind == FLOAT:
            feeds[declared.name] = rng.uniform(0.1, 1, shape).astype(np.float32)
        else:
            feeds[declared.name] = rng.random(shape) < 0.5 if kind == BOOL else np.array(3, np.int64)
    return feeds


def scan(backward: int, axis: int, output_axis: int) -> onnx.ModelProto:
    """A Scan over 300 rows or columns of x."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [_node("Mul", "s half", "scaled"), _node("Add", "scaled row", "next_s"), _node("Neg", "next_s", "result")],
        "body",
        [info("s", FLOAT, [4]), info("row", FLOAT, [4])],
        [info("next_s", FLOAT, [4]), info("result", FLOAT, [4])],
        [numpy_helper.from_array(HALF, "half")],
    )
    node = helper.make_node(
        "Scan",
        ["first_s", "x"],
        ["last_s", "all"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[backward],
        scan_output_axes=[output_axis],
        scan_output_directions=[backward],
    )
    shape = [TRIPS, 4] if axis == 0 else [4, TRIPS]
    graph = helper.make_graph(
        [node],
        "scan",
        [info("first_s", FLOAT, [4]), info("x", FLOAT, shape)],
        [info("last_s", FLOAT, [4]), info("all", FLOAT, [TRIPS, 4] if output_axis == 0 else [4, TRIPS])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
