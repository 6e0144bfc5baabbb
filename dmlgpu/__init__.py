"""DirectML's operators and dispatch model on every GPU that wgpu reaches.

Everything public is reachable from here and loaded at its first use: importing ``dmlgpu`` loads no driver.
``dir(dmlgpu)`` lists it.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmlgpu import array as array
    from dmlgpu import ops as ops
    from dmlgpu.catalog import descs as descs
    from dmlgpu.catalog import enums as enums
    from dmlgpu.catalog.enums import DataType as DataType
    from dmlgpu.catalog.enums import ExecutionFlags as ExecutionFlags
    from dmlgpu.catalog.enums import FeatureLevel as FeatureLevel
    from dmlgpu.catalog.enums import TensorFlags as TensorFlags
    from dmlgpu.catalog.operator_desc import OperatorDesc as OperatorDesc
    from dmlgpu.catalog.operator_desc import ScaleBias as ScaleBias
    from dmlgpu.catalog.operator_desc import Size2D as Size2D
    from dmlgpu.catalog.tensor_desc import TensorDesc as TensorDesc
    from dmlgpu.common import errors as errors
    from dmlgpu.common.cache import CacheInfo as CacheInfo
    from dmlgpu.common.cache import CacheLimits as CacheLimits
    from dmlgpu.common.errors import AdapterNotFound as AdapterNotFound
    from dmlgpu.common.errors import BindingError as BindingError
    from dmlgpu.common.errors import DeviceRemoved as DeviceRemoved
    from dmlgpu.common.errors import DmlError as DmlError
    from dmlgpu.common.errors import InvalidArgument as InvalidArgument
    from dmlgpu.common.errors import InvalidDescription as InvalidDescription
    from dmlgpu.common.errors import InvalidGraph as InvalidGraph
    from dmlgpu.common.errors import InvalidState as InvalidState
    from dmlgpu.common.errors import ModelError as ModelError
    from dmlgpu.common.errors import NotSupported as NotSupported
    from dmlgpu.common.errors import OperatorNotImplemented as OperatorNotImplemented
    from dmlgpu.common.errors import OutOfMemory as OutOfMemory
    from dmlgpu.common.errors import ShaderError as ShaderError
    from dmlgpu.common.errors import TimedOut as TimedOut
    from dmlgpu.common.timings import Timings as Timings
    from dmlgpu.compiler.graph.description import ConstantNode as ConstantNode
    from dmlgpu.compiler.graph.description import GraphDesc as GraphDesc
    from dmlgpu.compiler.graph.description import InputEdge as InputEdge
    from dmlgpu.compiler.graph.description import IntermediateEdge as IntermediateEdge
    from dmlgpu.compiler.graph.description import OperatorNode as OperatorNode
    from dmlgpu.compiler.graph.description import OutputEdge as OutputEdge
    from dmlgpu.compiler.target import AdapterInfo as AdapterInfo
    from dmlgpu.frontends import onnx as onnx
    from dmlgpu.frontends import onnxruntime as onnxruntime
    from dmlgpu.frontends.onnx.session import load as load
    from dmlgpu.runtime.adapters import SoftwareAdapterWarning as SoftwareAdapterWarning
    from dmlgpu.runtime.adapters import adapters as adapters
    from dmlgpu.runtime.binding import BindingTable as BindingTable
    from dmlgpu.runtime.binding import BufferArrayBinding as BufferArrayBinding
    from dmlgpu.runtime.binding import BufferBinding as BufferBinding
    from dmlgpu.runtime.buffer import Buffer as Buffer
    from dmlgpu.runtime.buffer import Readback as Readback
    from dmlgpu.runtime.commands import CommandList as CommandList
    from dmlgpu.runtime.commands import CommandRecorder as CommandRecorder
    from dmlgpu.runtime.commands import Fence as Fence
    from dmlgpu.runtime.commands import Queue as Queue
    from dmlgpu.runtime.device import Device as Device
    from dmlgpu.runtime.device import default_device as default_device
    from dmlgpu.runtime.evaluate import evaluate as evaluate
    from dmlgpu.runtime.features import FeatureLevels as FeatureLevels
    from dmlgpu.runtime.features import FeatureLevelsQuery as FeatureLevelsQuery
    from dmlgpu.runtime.features import OperatorSupport as OperatorSupport
    from dmlgpu.runtime.features import OperatorSupportQuery as OperatorSupportQuery
    from dmlgpu.runtime.features import TensorDataTypeSupport as TensorDataTypeSupport
    from dmlgpu.runtime.features import TensorDataTypeSupportQuery as TensorDataTypeSupportQuery
    from dmlgpu.runtime.operator import BindingProperties as BindingProperties
    from dmlgpu.runtime.operator import CompiledOperator as CompiledOperator
    from dmlgpu.runtime.operator import Operator as Operator
    from dmlgpu.runtime.operator import OperatorInitializer as OperatorInitializer
    from dmlgpu.tensors import directmlx as directmlx
    from dmlgpu.tensors.array_like import Float64Warning as Float64Warning
    from dmlgpu.tensors.array_like import set_float64 as set_float64
    from dmlgpu.tensors.gradients.differentiation import grad as grad
    from dmlgpu.tensors.gradients.differentiation import value_and_grad as value_and_grad
    from dmlgpu.tensors.graphs.graph import Expression as Expression
    from dmlgpu.tensors.graphs.graph import Graph as Graph
    from dmlgpu.tensors.kernels import ElementwiseKernel as ElementwiseKernel
    from dmlgpu.tensors.kernels import Kernel as Kernel
    from dmlgpu.tensors.tensor import Tensor as Tensor
    from dmlgpu.tensors.tracing.compiled import compile as compile

__version__ = "0.1.0"

_HOMES = {
    "tensors.array_like": ("Float64Warning", "set_float64"),
    "tensors.tensor": ("Tensor",),
    "tensors.gradients.differentiation": ("grad", "value_and_grad"),
    "tensors.graphs.graph": ("Expression", "Graph"),
    "tensors.kernels": ("ElementwiseKernel", "Kernel"),
    "common.cache": ("CacheInfo", "CacheLimits"),
    "compiler.target": ("AdapterInfo",),
    "runtime.adapters": ("SoftwareAdapterWarning", "adapters"),
    "runtime.binding": ("BindingTable", "BufferArrayBinding", "BufferBinding"),
    "runtime.buffer": ("Buffer", "Readback"),
    "runtime.commands": ("CommandList", "CommandRecorder", "Fence", "Queue"),
    "runtime.device": ("Device", "default_device"),
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
        similar = [] if name.startswith("_") else difflib.get_close_matches(name, __all__, 1)
        suggestion = f"; did you mean {similar[0]}?" if similar else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{suggestion}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_SOURCES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
