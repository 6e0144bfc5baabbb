"""DirectML's operators and dispatch model on every GPU that wgpu reaches.

Everything public is reachable from here and loaded when it is first used: importing ``dmlgpu`` loads no driver.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmlgpu import array as array
    from dmlgpu import descs as descs
    from dmlgpu import ops as ops
    from dmlgpu.builder.expression import Expression as Expression
    from dmlgpu.builder.graph import Graph as Graph
    from dmlgpu.cache import CacheInfo as CacheInfo
    from dmlgpu.cache import CacheLimits as CacheLimits
    from dmlgpu.device.adapters import SoftwareAdapterWarning as SoftwareAdapterWarning
    from dmlgpu.device.adapters import adapters as adapters
    from dmlgpu.device.binding import BufferArrayBinding as BufferArrayBinding
    from dmlgpu.device.binding import BufferBinding as BufferBinding
    from dmlgpu.device.buffer import Buffer as Buffer
    from dmlgpu.device.commands import CommandList as CommandList
    from dmlgpu.device.commands import CommandRecorder as CommandRecorder
    from dmlgpu.device.commands import Fence as Fence
    from dmlgpu.device.commands import Queue as Queue
    from dmlgpu.device.device import Device as Device
    from dmlgpu.device.evaluate import evaluate as evaluate
    from dmlgpu.device.features import FeatureLevels as FeatureLevels
    from dmlgpu.device.features import FeatureLevelsQuery as FeatureLevelsQuery
    from dmlgpu.device.features import OperatorSupport as OperatorSupport
    from dmlgpu.device.features import OperatorSupportQuery as OperatorSupportQuery
    from dmlgpu.device.features import TensorDataTypeSupport as TensorDataTypeSupport
    from dmlgpu.device.features import TensorDataTypeSupportQuery as TensorDataTypeSupportQuery
    from dmlgpu.device.operator import BindingProperties as BindingProperties
    from dmlgpu.device.operator import CompiledOperator as CompiledOperator
    from dmlgpu.device.operator import Operator as Operator
    from dmlgpu.device.operator import OperatorInitializer as OperatorInitializer
    from dmlgpu.device.readback import Readback as Readback
    from dmlgpu.device.shared import default_device as default_device
    from dmlgpu.device.table import BindingTable as BindingTable
    from dmlgpu.eager.tensor import Tensor as Tensor
    from dmlgpu.enums import DataType as DataType
    from dmlgpu.enums import ExecutionFlags as ExecutionFlags
    from dmlgpu.enums import FeatureLevel as FeatureLevel
    from dmlgpu.enums import TensorFlags as TensorFlags
    from dmlgpu.errors import AdapterNotFound as AdapterNotFound
    from dmlgpu.errors import BindingError as BindingError
    from dmlgpu.errors import DeviceRemoved as DeviceRemoved
    from dmlgpu.errors import DmlError as DmlError
    from dmlgpu.errors import InvalidArgument as InvalidArgument
    from dmlgpu.errors import InvalidDescription as InvalidDescription
    from dmlgpu.errors import InvalidGraph as InvalidGraph
    from dmlgpu.errors import InvalidState as InvalidState
    from dmlgpu.errors import ModelError as ModelError
    from dmlgpu.errors import NotSupported as NotSupported
    from dmlgpu.errors import OperatorNotImplemented as OperatorNotImplemented
    from dmlgpu.errors import OutOfMemory as OutOfMemory
    from dmlgpu.errors import ShaderError as ShaderError
    from dmlgpu.errors import TimedOut as TimedOut
    from dmlgpu.graph.description import ConstantNode as ConstantNode
    from dmlgpu.graph.description import GraphDesc as GraphDesc
    from dmlgpu.graph.description import InputEdge as InputEdge
    from dmlgpu.graph.description import IntermediateEdge as IntermediateEdge
    from dmlgpu.graph.description import OperatorNode as OperatorNode
    from dmlgpu.graph.description import OutputEdge as OutputEdge
    from dmlgpu.operator_desc import OperatorDesc as OperatorDesc
    from dmlgpu.operator_desc import ScaleBias as ScaleBias
    from dmlgpu.operator_desc import Size2D as Size2D
    from dmlgpu.target import AdapterInfo as AdapterInfo
    from dmlgpu.tensor import TensorDesc as TensorDesc
    from dmlgpu.timings import Timings as Timings
    from dmlgpu.tracing.compiled import compile as compile

__version__ = "0.1.0"

_HOMES = {
    "eager.tensor": ("Tensor",),
    "builder.expression": ("Expression",),
    "builder.graph": ("Graph",),
    "cache": ("CacheInfo", "CacheLimits"),
    "target": ("AdapterInfo",),
    "device.adapters": ("SoftwareAdapterWarning", "adapters"),
    "device.binding": ("BufferArrayBinding", "BufferBinding"),
    "device.buffer": ("Buffer",),
    "device.commands": ("CommandList", "CommandRecorder", "Fence", "Queue"),
    "device.device": ("Device",),
    "device.evaluate": ("evaluate",),
    "device.features": (
        "FeatureLevels",
        "FeatureLevelsQuery",
        "OperatorSupport",
        "OperatorSupportQuery",
        "TensorDataTypeSupport",
        "TensorDataTypeSupportQuery",
    ),
    "device.operator": ("BindingProperties", "CompiledOperator", "Operator", "OperatorInitializer"),
    "device.readback": ("Readback",),
    "device.shared": ("default_device",),
    "device.table": ("BindingTable",),
    "enums": ("DataType", "ExecutionFlags", "FeatureLevel", "TensorFlags"),
    "errors": (
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
    "graph.description": (
        "ConstantNode",
        "GraphDesc",
        "InputEdge",
        "IntermediateEdge",
        "OperatorNode",
        "OutputEdge",
    ),
    "operator_desc": ("OperatorDesc", "ScaleBias", "Size2D"),
    "tensor": ("TensorDesc",),
    "timings": ("Timings",),
    "tracing.compiled": ("compile",),
}
_SOURCES = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("array", "descs", "ops")

__all__ = sorted((*_SOURCES, *_MODULES))  # noqa: PLE0605 - a list of strings, in one place only


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _SOURCES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_SOURCES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
