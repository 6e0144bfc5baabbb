"""A function per operator of DirectML that runs it on tensors or arrays, made from the catalog at first use.

Sizes and types of outputs follow from the operands; where they do not, ``output_sizes`` and ``output_type`` say them.
Inputs that must have equal sizes broadcast; numbers take the type of the tensors beside them; axes may be negative;
enumerations, data types and activations may be given by name. ``device`` is where arrays are computed: None is where
the tensors are, or ``default_device()``. Arrays alone give arrays. Where the operator's rules are broken,
InvalidArgument is raised in the function's words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dmlgpu.catalog import descs
from dmlgpu.catalog.functions import EagerFunctionSource, FunctionModule
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias, Size2D
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.calls import Array, Operand
from dmlgpu.tensors.execution import call_op
from dmlgpu.tensors.types import TypeLike

_NAMES = {
    "Array": Array,
    "Device": Device,
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
_FUNCTIONS = FunctionModule(globals(), EagerFunctionSource, _NAMES)


def __getattr__(name: str) -> Any:
    return _FUNCTIONS.get(name)


def __dir__() -> list[str]:
    return _FUNCTIONS.names()
