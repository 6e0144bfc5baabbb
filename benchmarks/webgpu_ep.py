"""onnxruntime's WebGPU provider as a call that runs once and waits, to measure beside ours.

Needs ``pip install .[peers]``. Tensors stay on its device. Its own way to wait returns before the work is done, so each
model hands one element of its first output back to the processor; that costs it about 0.1 ms a call.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from harness import Call
from numpy.typing import NDArray

os.environ.setdefault("ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER", "1")

try:
    import onnx
    import onnxruntime
    import onnxruntime_ep_webgpu
    from onnx import helper
except ImportError as error:
    raise SystemExit(f"{error}: install the benchmarks' peers with: pip install .[peers]") from error

NAME = "WebGpuExecutionProvider"
OPSET = 21


class WebGpuEp:
    """One session per operator, on the provider's first device and never on the processor."""

    def __init__(self) -> None:
        self.devices = _devices()

    def operator(
        self,
        op_type: str,
        inputs: Sequence[NDArray[Any]],
        outputs: Sequence[tuple[Any, tuple[int, ...]]],
        constants: Mapping[int, NDArray[Any]] | None = None,
        **attributes: Any,
    ) -> Call:
        """One ONNX operator.

        Args:
            inputs: of the operator, in order, without those that are constants.
            outputs: data type and sizes of each.
            constants: inputs that are part of the model, by their place among all.
        """
        model = self._model(op_type, inputs, outputs, dict(constants or {}), attributes)
        options = onnxruntime.SessionOptions()
        options.add_provider_for_devices(self.devices, {})
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        binding = session.io_binding()
        for number, array in enumerate(inputs):
            binding.bind_ortvalue_input(f"x{number}", onnxruntime.OrtValue.ortvalue_from_numpy(array, "webgpu", 0))
        results = [_empty(sizes, dtype) for dtype, sizes in outputs]
        for number, value in enumerate(results):
            binding.bind_ortvalue_output(f"y{number}", value)
        first = _empty((1,), outputs[0][0])
        binding.bind_ortvalue_output("first", first)

        def run(_: int) -> object:
            session.run_with_iobinding(binding)
            return first.numpy()

        return run

    def _model(
        self,
        op_type: str,
        inputs: Sequence[NDArray[Any]],
        outputs: Sequence[tuple[Any, tuple[int, ...]]],
        constants: dict[int, NDArray[Any]],
        attributes: dict[str, Any],
    ) -> onnx.ModelProto:
        """The operator, and the first element of its first output."""
        given = iter(range(len(inputs)))
        count = len(inputs) + len(constants)
        names = [f"c{place}" if place in constants else f"x{next(given)}" for place in range(count)]
        fixed = [onnx.numpy_helper.from_array(array, f"c{place}") for place, array in constants.items()]
        fixed += [
            onnx.numpy_helper.from_array(np.array(value, np.int64), name)
            for name, value in (("flat", [-1]), ("zero", [0]), ("one", [1]))
        ]
        nodes = [
            helper.make_node(op_type, names, [f"y{number}" for number in range(len(outputs))], **attributes),
            helper.make_node("Reshape", ["y0", "flat"], ["line"]),
            helper.make_node("Slice", ["line", "zero", "one"], ["first"]),
        ]
        graph = helper.make_graph(
            nodes,
            op_type,
            [_value(f"x{number}", array.dtype, array.shape) for number, array in enumerate(inputs)],
            [_value(f"y{number}", dtype, sizes) for number, (dtype, sizes) in enumerate(outputs)]
            + [_value("first", outputs[0][0], (1,))],
            fixed,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


@functools.cache
def _devices() -> Sequence[Any]:
    """The provider's devices. Its library may be registered only once."""
    onnxruntime.register_execution_provider_library("webgpu", onnxruntime_ep_webgpu.get_library_path())
    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == NAME]


def _value(name: str, dtype: Any, sizes: tuple[int, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), sizes)


def _empty(sizes: tuple[int, ...], dtype: Any) -> Any:
    return onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(sizes), dtype, "webgpu", 0)
