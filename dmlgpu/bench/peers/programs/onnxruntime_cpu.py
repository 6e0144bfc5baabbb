"""onnxruntime, on the CPU or by its WebGPU provider.

On the provider tensors stay on its device. Its own way to wait returns before the work is done, so each model hands one
element of its first output back to the CPU; that costs it about 0.1 ms a run.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import onnx
import onnxruntime

from dmlgpu.bench.peers.programs import onnx_models
from dmlgpu.bench.peers.worker import Array, PeerCall


def versions() -> dict[str, str]:
    """Return onnxruntime's version."""
    return {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__}


def prepare(call: PeerCall) -> OnnxruntimeSession:
    """Prepare a call on the CPU."""
    return OnnxruntimeSession(call, [])


class OnnxruntimeSession:
    """A session with its inputs bound.

    Args:
        call: The computation.
        devices: Devices of a provider; none for the CPU.
    """

    def __init__(self, call: PeerCall, devices: Sequence[Any]):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        place = "cpu"
        if devices:
            options.add_provider_for_devices(devices, {})
            place = "webgpu"
        providers = {} if devices else {"providers": ["CPUExecutionProvider"]}
        serialized = onnx_models.model(call, first="first").SerializeToString()
        self._session = onnxruntime.InferenceSession(serialized, options, **providers)
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

    def run(self, index: int) -> object:
        """Run once and wait."""
        binding = self._bindings[index % len(self._bindings)]
        self._session.run_with_iobinding(binding)
        return binding.get_outputs()[-1].numpy()

    def results(self) -> list[Array]:
        """Return the first set's outputs."""
        self.run(0)
        values = self._bindings[0].get_outputs()
        return [value.numpy() for value in values[: len(self._outputs)]]
