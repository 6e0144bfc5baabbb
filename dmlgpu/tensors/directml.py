"""The functions of ``dmlgpu.ops.directml``, except those that ``dmlgpu.ops`` adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dmlgpu.catalog import descs
from dmlgpu.catalog.functions import FunctionModule
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias, Size2D
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.calls import Array, Operand
from dmlgpu.tensors.execution import call_op
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.types import TypeLike

_NAMES = {
    "Array": Array,
    "Device": Device,
    "Graph": Graph,
    "NamedTuple": NamedTuple,
    "Operand": Operand,
    "OperatorDesc": OperatorDesc,
    "ScaleBias": ScaleBias,
    "Sequence": Sequence,
    "Size2D": Size2D,
    "TypeLike": TypeLike,
    "descs": descs,
    "call_op": call_op,
}
_FUNCTIONS = FunctionModule("dmlgpu.ops.directml", globals(), _NAMES)


def __getattr__(name: str) -> Any:
    return _FUNCTIONS.get(name)


def __dir__() -> list[str]:
    return _FUNCTIONS.names()
