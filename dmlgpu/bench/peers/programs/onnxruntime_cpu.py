"""onnxruntime, on the processor or by its WebGPU provider.

On the provider tensors stay on its device. Its own way to wait returns before the work is done, so each model hands one
element of its first output back to the processor; that costs it about 0.1 ms a run.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from ..calls import Array, Call

OPSET = 21


def versions() -> dict[str, str]:
    """Return onnxruntime's version."""
    return {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__}


def prepare(call: Call) -> Session:
    """Make a call ready on the processor."""
    return Session(call, [])


class Session:
    """A session with its inputs bound.

    Args:
        call: what is computed.
        devices: of a provider; none for the processor.
    """

    def __init__(self, call: Call, devices: Sequence[Any]):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        place = "cpu"
        if devices:
            options.add_provider_for_devices(devices, {})
            place = "webgpu"
        providers = {} if devices else {"providers": ["CPUExecutionProvider"]}
        made = model(call).SerializeToString()
        self._session = onnxruntime.InferenceSession(made, options, **providers)
        self._outputs = call.outputs
        value = onnxruntime.OrtValue
        bind = functools.partial(value.ortvalue_from_numpy, device_type=place, device_id=0)
        self._bindings = []
        self._first: list[Any] = []
        for _ in range(call.sets):
            binding = self._session.io_binding()
            for name, array in call.inputs.items():
                binding.bind_ortvalue_input(name, bind(array.copy()))
            for name in call.outputs:
                binding.bind_output(name, place, 0)
            binding.bind_output("first", "cpu", 0)
            self._bindings.append(binding)

    def run(self, number: int) -> object:
        """Run once and wait."""
        binding = self._bindings[number % len(self._bindings)]
        self._session.run_with_iobinding(binding)
        return binding.get_outputs()[-1].numpy()

    def results(self) -> list[Array]:
        """Return the first set's outputs."""
        self.run(0)
        values = self._bindings[0].get_outputs()
        return [value.numpy() for value in values[: len(self._outputs)]]


def model(call: Call) -> onnx.ModelProto:
    """Return the call as a model, and the first element of its first output as another output."""
    fixed = [numpy_helper.from_array(call.arrays[name], name) for name in sorted(call.fixed)]
    line = {"flat": [-1], "zero": [0], "one": [1]}
    fixed += [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in line.items()]
    nodes = [helper.make_node(one.op, one.inputs, one.outputs, **one.attributes) for one in call.nodes]
    nodes.append(helper.make_node("Reshape", [call.outputs[0], "flat"], ["line"]))
    nodes.append(helper.make_node("Slice", ["line", "zero", "one"], ["first"]))
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in call.inputs.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in (*call.outputs, "first")]
    graph = helper.make_graph(nodes, "call", inputs, outputs, fixed)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(made, strict_mode=True, data_prop=True)
    types = {one.name: one for one in (*inferred.graph.output, *inferred.graph.value_info)}
    del inferred.graph.output[:]
    inferred.graph.output.extend(types[name] for name in (*call.outputs, "first"))
    return inferred
