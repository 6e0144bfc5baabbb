"""If, Loop and Scan, with bodies of a few element-wise nodes that read names of the graph around them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz.onnx_nodes.draw import Array, Draw, NodeCase, generator

_BINARY = ("Add", "Sub", "Mul")
_UNARY = ("Tanh", "Neg", "Abs", "Sigmoid", "Relu")


def _info(
    name: str, array: Array | None = None, element: int = onnx.TensorProto.FLOAT, shape: tuple[int, ...] | None = None
) -> onnx.ValueInfoProto:
    if array is not None:
        element = int(helper.np_dtype_to_tensor_dtype(array.dtype))
    return helper.make_tensor_value_info(name, element, shape)


def _chain(
    draw: Draw, name: str, other: Array, prefix: str, *, count: int, captured: dict[str, Array]
) -> tuple[list[onnx.NodeProto], str]:
    """Nodes one after the other on a name, with constants of their own, and tensors of the graph around them."""
    nodes = []
    for index in range(count):
        output = f"{prefix}{index}"
        if draw.chance(0.5):
            nodes.append(helper.make_node(draw.pick(*_UNARY), [name], [output]))
        elif draw.chance(0.5):
            outer = f"outer_{draw.rng.getrandbits(32):x}"
            captured[outer] = draw.tensor("float32", draw.broadcast(other.shape), -2, 2)
            nodes.append(helper.make_node(draw.pick(*_BINARY), [name, outer], [output]))
        else:
            constant = numpy_helper.from_array(draw.array("float32", draw.broadcast(other.shape), -1, 1))
            nodes.append(helper.make_node("Constant", [], [f"{output}c"], value=constant))
            nodes.append(helper.make_node(draw.pick(*_BINARY), [name, f"{output}c"], [output]))
        name = output
    return nodes, name


@generator("If")
def branches(draw: Draw) -> NodeCase:
    graphs = []
    captured: dict[str, Array] = {}
    for label in ("then", "else"):
        start = draw.array("float32", draw.shape(0, 3) if draw.chance(0.3) else (2, 3))
        nodes = [helper.make_node("Constant", [], [f"{label}s"], value=numpy_helper.from_array(start))]
        more, name = _chain(draw, f"{label}s", start, label, count=draw.integer(0, 3), captured=captured)
        graphs.append(helper.make_graph(nodes + more, label, [], [_info(name)]))
    condition = np.array(draw.pick(True, False))
    condition = condition.reshape(1) if draw.chance(0.3) else condition
    return draw.case(condition, then_branch=graphs[0], else_branch=graphs[1], captured=captured)


@generator("Loop")
def loop(draw: Draw) -> NodeCase:
    state = draw.tensor("float32", draw.shape(0, 3), -2, 2)
    captured: dict[str, Array] = {}
    nodes, name = _chain(draw, "state", state, "n", count=draw.integer(1, 3), captured=captured)
    if draw.chance(0.4):
        nodes.append(helper.make_node("Cast", ["i"], ["fi"], to=onnx.TensorProto.FLOAT))
        nodes.append(helper.make_node("Add", [name, "fi"], ["shifted"]))
        name = "shifted"
    # Bounded, so that trips don't overflow.
    nodes.append(helper.make_node("Tanh", [name], ["next"]))
    # Before version 9, Less knows floats only.
    ends = draw.version >= 9 and draw.chance(0.3)
    if ends:
        limit = numpy_helper.from_array(np.array(draw.integer(0, 3)), "limit")
        nodes.append(helper.make_node("Constant", [], ["limit"], value=limit))
        nodes.append(helper.make_node("Less", ["i", "limit"], ["more"]))
    else:
        nodes.append(helper.make_node("Identity", ["cond"], ["more"]))
    outputs = [_info("more", element=onnx.TensorProto.BOOL, shape=()), _info("next")]
    scans = draw.integer(0, 2)
    for index in range(scans):
        nodes.append(helper.make_node("Identity", ["next" if index else "state"], [f"scan{index}"]))
        outputs.append(_info(f"scan{index}"))
    inputs = [
        _info("i", element=onnx.TensorProto.INT64, shape=()),
        _info("cond", element=onnx.TensorProto.BOOL, shape=()),
        _info("state"),
    ]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    trips = np.array(draw.integer(0, 5)) if not ends or draw.chance(0.5) else None
    condition = np.array(not draw.chance(0.1)) if draw.chance(0.6) or trips is None else None
    if condition is None and not ends:
        # Without a condition outside, the one inside is still an input of the body, which onnxruntime leaves undefined.
        condition = np.array(True)
    return draw.case(trips, condition, state, body=body, outputs=1 + scans, length=100, captured=captured)


@generator("Scan")
def scan(draw: Draw) -> NodeCase:
    if draw.version < 9:
        return draw.case()
    shape = draw.shape(0, 2, empty=0)
    steps, axis = draw.integer(1, 4), draw.integer(0, len(shape))
    state = draw.tensor("float32", shape, -2, 2)
    sequence = draw.array("float32", (*shape[:axis], steps, *shape[axis:]), -2, 2)
    captured: dict[str, Array] = {}
    nodes, name = _chain(draw, "mixed", state, "n", count=draw.integer(0, 2), captured=captured)
    nodes.insert(0, helper.make_node(draw.pick(*_BINARY), ["state", "x"], ["mixed"]))
    nodes.append(helper.make_node("Tanh", [name], ["next"]))
    nodes.append(helper.make_node("Identity", ["next"], ["y"]))
    body = helper.make_graph(nodes, "body", [_info("state", state), _info("x", state)], [_info("next"), _info("y")])
    options = {
        "scan_input_axes": [axis] if axis or draw.chance(0.3) else None,
        "scan_input_directions": draw.maybe([0], [1], probability=0.4),
        "scan_output_axes": draw.maybe([draw.integer(0, len(shape))], probability=0.4),
        "scan_output_directions": draw.maybe([0], [1], probability=0.4),
    }
    return draw.case(state, sequence, num_scan_inputs=1, body=body, outputs=2, length=100, captured=captured, **options)
