"""Calls as models in ONNX."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dmlgpu.bench.peers.worker import PeerCall

OPSET = 21


def model(call: PeerCall, *, first: str = "") -> onnx.ModelProto:
    """Return a call as a model.

    Args:
        call: The computation.
        first: The name of one more output, which holds the first element of the first one; empty for none.
    """
    fixed = [numpy_helper.from_array(call.arrays[name], name) for name in sorted(call.fixed)]
    nodes = [helper.make_node(node.op, node.inputs, node.outputs, **node.attributes) for node in call.nodes]
    names: Sequence[str] = call.outputs
    if first:
        line = {"flat": [-1], "zero": [0], "one": [1]}
        fixed += [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in line.items()]
        nodes.append(helper.make_node("Reshape", [call.outputs[0], "flat"], ["line"]))
        nodes.append(helper.make_node("Slice", ["line", "zero", "one"], [first]))
        names = (*call.outputs, first)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in call.inputs.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    graph = helper.make_graph(nodes, "call", inputs, outputs, fixed)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    types = {info.name: info for info in (*inferred.graph.output, *inferred.graph.value_info)}
    del inferred.graph.output[:]
    inferred.graph.output.extend(types[name] for name in names)
    return inferred
