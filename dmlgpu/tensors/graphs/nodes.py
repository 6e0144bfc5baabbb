"""What a graph under construction holds: its inputs and nodes, and what they read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dmlgpu.catalog import operator
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.tensors.memory import Origin


@dataclass(frozen=True)
class GraphInput:
    """An input of a graph.

    Attributes:
        desc: the tensor to bind.
        name: for messages and pictures.
    """

    desc: TensorDesc
    name: str


@dataclass(frozen=True)
class BuiltNode:
    """An operator or a constant of a graph.

    Attributes:
        desc: the operator; the tensor of a constant.
        fed: what feeds each flat input of the operator; None where an optional one is absent.
        name: the name scopes and its own name; None for none.
        location: the caller's ``file:line``.
        data: the bytes of a constant.
    """

    desc: OperatorDesc | TensorDesc
    fed: tuple[Origin | None, ...]
    name: str | None
    location: str
    data: bytes = b""

    def __str__(self) -> str:
        kind = self.desc.operator if isinstance(self.desc, OperatorDesc) else "constant"
        return f"{kind} {self.name!r}" if self.name else kind


def used(nodes: Sequence[BuiltNode], outputs: Sequence[Origin]) -> list[int]:
    """Return the numbers of the nodes that outputs need, in the order in which they were built."""
    found: set[int] = set()
    waiting = [origin.number for origin in outputs if origin.kind != "input"]
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting += [origin.number for origin in nodes[number].fed if origin is not None and origin.kind != "input"]
    return sorted(found)


def unread(nodes: Sequence[BuiltNode], outputs: Sequence[Origin]) -> list[tuple[Origin, TensorDesc]]:
    """Return the required outputs of the nodes that outputs need which nothing reads."""
    needed = used(nodes, outputs)
    wanted = {*outputs, *(origin for number in needed for origin in nodes[number].fed if origin is not None)}
    found = []
    for number in needed:
        node = nodes[number].desc
        if isinstance(node, OperatorDesc):
            for position, slot in enumerate(node.outputs):
                origin = Origin("operator", number, position)
                if slot.tensor and origin not in wanted and not operator(node.operator).field(slot.field).optional:
                    found.append((origin, slot.tensor))
    return found


def shown(desc: TensorDesc) -> str:
    """Return type and sizes as messages and pictures have them: ``FLOAT32 [2, 3]``."""
    return f"{desc.data_type.name} {list(desc.sizes)}"
