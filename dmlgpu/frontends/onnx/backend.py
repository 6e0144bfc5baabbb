"""ONNX's backend interface, through which its own test suite runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx.backend.base import Backend, BackendRep, DeviceType, namedtupledict
from onnx.backend.base import Device as OnnxDevice

from dmlgpu.common.errors import DmlError
from dmlgpu.frontends.onnx.model import check_supported, read
from dmlgpu.frontends.onnx.session import Session, load
from dmlgpu.runtime.device import Device, default_device

Array = NDArray[Any]


class OnnxBackendModel(BackendRep):
    """A model that runs on arrays in the order of its inputs."""

    def __init__(self, session: Session):
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Array, ...]:
        """Compute all outputs.

        Args:
            inputs: Arrays in the order of the model's inputs, or by name; one that is missing keeps its initializer.
            kwargs: None is known.

        Raises:
            DmlError: As ``Session.run``.
        """
        names = [declared.name for declared in self.session.inputs]
        feeds = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=False))
        results = self.session.run({name: _as_input(value) for name, value in feeds.items()})
        return namedtupledict("Outputs", list(results))(*results.values())


def _as_input(value: Any) -> Any:
    """Convert an input for ``Session.run``: to an array, except for sequences and None."""
    return value if value is None or isinstance(value, list | tuple) else np.asarray(value)


class DmlBackend(Backend):
    """dmlgpu as a backend of ONNX: devices ``CPU`` and ``CUDA`` stand for the default device."""

    device: Device | None = None
    """Device of models; None for ``default_device()``."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> OnnxBackendModel:
        """Load a model.

        Raises:
            DmlError: As ``load``.
        """
        target = kwargs.get("dml_device") or cls.device or default_device()
        return OnnxBackendModel(load(model, target))

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Return whether all operators and types of a model are supported."""
        try:
            check_supported(read(model))
        except DmlError:
            return False
        return True

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Array, ...]:
        """Prepare a model and run it once.

        Raises:
            DmlError: As ``load`` and ``Session.run``.
        """
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Sequence[Array],
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Array, ...]:
        """Run one node on arrays.

        Raises:
            DmlError: As ``load`` and ``Session.run``.
        """
        names = [name for name in node.input if name]
        declared = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), np.shape(array)
            )
            for name, array in zip(names, inputs, strict=True)
        ]
        outputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output if name]
        model = helper.make_model(helper.make_graph([node], "node", declared, outputs), **kwargs)
        return cls.run_model(model, inputs, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether a device of ONNX is supported."""
        return OnnxDevice(device).type in (DeviceType.CPU, DeviceType.CUDA)


prepare = DmlBackend.prepare
run_model = DmlBackend.run_model
run_node = DmlBackend.run_node
supports_device = DmlBackend.supports_device
is_compatible = DmlBackend.is_compatible
