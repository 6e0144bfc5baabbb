"""DirectML's operators and dispatch model on every GPU that wgpu reaches.

Everything public is reachable from here and loaded at its first use: importing ``dmlgpu`` loads no driver.
``dir(dmlgpu)`` lists it. Type checkers read ``__init__.pyi``, which is made from the tables below.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "tensors.array_like": ("Float64Warning", "set_float64"),
    "tensors.tensor": ("Tensor",),
    "tensors.batching.vmap": ("vmap",),
    "tensors.gradients.differentiation": ("grad", "value_and_grad"),
    "tensors.graphs.graph": ("Expression", "Graph"),
    "tensors.profiling": ("KernelProfile", "profile"),
    "tensors.kernels": ("ElementwiseKernel", "Kernel"),
    "common.cache": ("CacheInfo", "CacheLimits"),
    "common.memory": ("MemoryInfo",),
    "compiler.target": ("AdapterInfo",),
    "runtime.adapters": ("DriverFaultWarning", "SoftwareAdapterWarning", "adapters"),
    "runtime.binding": ("BindingTable", "BufferArrayBinding", "BufferBinding"),
    "runtime.buffer": ("Buffer", "Readback"),
    "runtime.commands": ("CommandList", "CommandRecorder", "Fence", "Queue"),
    "runtime.device": ("Device", "default_device", "device", "set_default_device"),
    "runtime.evaluate": ("evaluate",),
    "runtime.features": (
        "FeatureLevels",
        "FeatureLevelsQuery",
        "OperatorSupport",
        "OperatorSupportQuery",
        "TensorDataTypeSupport",
        "TensorDataTypeSupportQuery",
    ),
    "runtime.operator": ("BindingProperties", "CompiledOperator", "Operator", "OperatorInitializer"),
    "catalog.enums": ("DataType", "ExecutionFlags", "FeatureLevel", "TensorFlags"),
    "common.errors": (
        "AdapterNotFound",
        "BindingError",
        "DeviceRemoved",
        "DmlError",
        "InvalidArgument",
        "InvalidDescription",
        "InvalidGraph",
        "InvalidState",
        "ModelError",
        "NotSupported",
        "OperatorNotImplemented",
        "OutOfMemory",
        "ShaderError",
        "TimedOut",
    ),
    "compiler.graph.description": (
        "ConstantNode",
        "GraphDesc",
        "InputEdge",
        "IntermediateEdge",
        "OperatorNode",
        "OutputEdge",
    ),
    "catalog.operator_desc": ("OperatorDesc", "ScaleBias", "Size2D"),
    "catalog.tensor_desc": ("TensorDesc",),
    "common.timings": ("Timings",),
    "frontends.onnx.session": ("load",),
    "tensors.tracing.compiled": ("compile",),
    "tensors.tracing.control": ("cond", "scan"),
}
_SOURCES = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = {
    "array": "array",
    "descs": "catalog.descs",
    "directmlx": "tensors.directmlx",
    "enums": "catalog.enums",
    "errors": "common.errors",
    "onnx": "frontends.onnx",
    "onnxruntime": "frontends.onnxruntime",
    "ops": "ops",
    "random": "ops.random",
    "torch": "frontends.torch",
}


class _AliasFinder:
    """Imports the modules of ``_MODULES`` by their short names, and those below them.

    A finder of ``sys.meta_path`` and its own loader; without importlib's base classes, which take 10 ms to import.
    """

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, _, below = fullname.partition(".")
        alias, dot, rest = below.partition(".")
        home = _MODULES.get(alias, alias) if package == __name__ else alias
        return None if home == alias else ModuleSpec(fullname, self, origin=f"{package}.{home}{dot}{rest}")  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        assert spec.origin is not None
        module = importlib.import_module(spec.origin)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back, which the import has replaced; it was executed under its own name."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


if not any(type(finder).__name__ == _AliasFinder.__name__ for finder in sys.meta_path):  # there is one after a reload
    sys.meta_path.insert(0, _AliasFinder())

__all__ = sorted((*_SOURCES, *_MODULES))  # noqa: PLE0605 - a list of strings, in one place only


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{_MODULES[name]}")
    if name not in _SOURCES:
        message = f"module {__name__!r} has no attribute {name!r}"
        if name.isidentifier() and importlib.util.find_spec(f"{__name__}.{name}") is None:  # no module to be imported
            message += importlib.import_module(f"{__name__}.common.suggestions").suggestion(name, __name__)
        raise AttributeError(message, name=name, obj=None)  # without an obj Python adds no suggestion of its own
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_SOURCES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
