"""A function per operator of DirectML that adds it to the graph of its operands, made from the catalog at first use.

Sizes and types of outputs follow from the operands; where they do not, ``output_sizes`` and ``output_type`` say them.
Where the operator's rules are broken, InvalidDescription is raised, and its message ends with the caller's line.
``dmlgpu.tensors.graphs.directmlx`` has DirectMLX's names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dmlgpu.catalog import descs
from dmlgpu.catalog.functions import FunctionModule, FunctionSource
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias, Size2D
from dmlgpu.tensors.graphs.calls import several, single
from dmlgpu.tensors.graphs.expression import Expression
from dmlgpu.tensors.graphs.graph import Graph

_NAMES = {
    "Expression": Expression,
    "Graph": Graph,
    "NamedTuple": NamedTuple,
    "OperatorDesc": OperatorDesc,
    "ScaleBias": ScaleBias,
    "Sequence": Sequence,
    "Size2D": Size2D,
    "descs": descs,
    "several": several,
    "single": single,
}
_FUNCTIONS = FunctionModule(globals(), FunctionSource, _NAMES)


def __getattr__(name: str) -> Any:
    return _FUNCTIONS.get(name)


def __dir__() -> list[str]:
    return _FUNCTIONS.names()
