"""Where each node of a model was computed, and by which kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import abridged
from dmlgpu.compiler.graph.description import OperatorNode
from dmlgpu.runtime.adapters import target_of

if TYPE_CHECKING:
    from dmlgpu.compiler.explain import Explanation
    from dmlgpu.frontends.onnx.segments import Segment


_LATE = "few integers, which the host computes where it needs them"


@dataclass(frozen=True)
class Placement:
    """Where a node was computed.

    Attributes:
        node: its name; of a node in the body of a loop, behind the loop's name and a slash.
        op_type: its operator.
        where: ``"device"``; ``"host"``; ``"read"`` where the host reads elements of its inputs, to decide about it; or
            ``"none"`` if nothing is left to compute.
        operators: DirectML's operators that the node became.
        kernels: the kernels that computed it, alone or together with other nodes, as ``dmlgpu show`` names them; on the
            adapter ``numpy`` the functions of the reference.
        why: why it is not on the device.
    """

    node: str
    op_type: str
    where: str
    operators: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    why: str = ""


@dataclass(eq=False)
class Placed:
    """A node's place while a model is translated.

    Attributes:
        planned: the placement without kernels.
        numbers: of the nodes that it added to the graph under construction.
        segment: what the graph became; None if nothing of it is computed.
        late: whether the host can compute it, from few integers.
    """

    planned: Placement
    numbers: range = range(0)
    segment: Segment | None = None
    late: bool = False

    @property
    def placement(self) -> Placement:
        """The placement, with kernels."""
        if self.planned.where != "device":
            return self.planned
        kernels = () if self.segment is None else self.segment.kernels.of(self.numbers)
        if kernels:
            return replace(self.planned, kernels=kernels)
        if self.late:
            return replace(self.planned, where="host", operators=(), why=_LATE)
        why = None if self.segment is None else self.segment.kernels.why_none(self.numbers)
        return replace(self.planned, where="none", operators=(), why=why or "nothing reads it")


class Placing(Protocol):
    """What knows where nodes were computed: whatever runs a body."""

    @property
    def placement(self) -> tuple[Placement, ...]:
        """Where each node was computed in the last run."""


@dataclass(eq=False)
class NodeKernels:
    """The kernels of a segment, by the nodes of the graph that it was made of.

    Args:
        segment: which one.
    """

    segment: Segment

    @cached_property
    def explanation(self) -> Explanation | None:
        """What the graph becomes on the adapter; None on ``numpy``, which runs no kernels."""
        from dmlgpu.compiler.explain import explain_graph  # noqa: PLC0415 - it loads the compiler

        graph = self.segment.graph
        target = target_of(graph.device.adapter)
        return None if target is None else explain_graph("graph", graph.desc(self.segment.all_outputs), target)

    @cached_property
    def _labels(self) -> dict[str, tuple[str, ...]]:
        """Labels by names of nodes of the graph's description."""
        by_node: dict[str, dict[str, None]] = {}
        explained = self.explanation
        if explained is None:
            desc = self.segment.graph.desc(self.segment.all_outputs)
            for own in desc.nodes:
                if isinstance(own, OperatorNode):
                    by_node.setdefault(abridged(own.name or ""), {})[_function(own.desc)] = None
        else:
            for kernel in (*explained.kernels, *explained.initialization):
                for node in () if kernel.step is None else explained.nodes[kernel.step]:
                    label = kernel.kernel.label.removeprefix("graph ")
                    by_node.setdefault(node.name, {})[label] = None
        return {name: tuple(labels) for name, labels in by_node.items()}

    @cached_property
    def _notes(self) -> dict[str, str]:
        """What became of nodes that have no kernels of their own, by name."""
        explained = self.explanation
        if explained is None or explained.graph is None:
            return {}
        return {note.subject: note.text for note in explained.graph.notes}

    def of(self, numbers: Sequence[int]) -> tuple[str, ...]:
        """Return the kernels that computed nodes of the graph, by number."""
        labels = [label for name in self._names(numbers) for label in self._labels.get(name, ())]
        if not labels:
            others = [_OTHER.sub("", self._notes.get(name, "")) for name in self._names(numbers)]
            labels = [label for name in others for label in self._labels.get(name, ())]
        return tuple(dict.fromkeys(labels))

    def why_none(self, numbers: Sequence[int]) -> str | None:
        """Return what became of nodes without kernels."""
        return next((self._notes[name] for name in self._names(numbers) if name in self._notes), None)

    def _names(self, numbers: Sequence[int]) -> list[str]:
        nodes = self.segment.graph.nodes
        return list(dict.fromkeys(abridged(nodes[number].name or "") for number in numbers))


_OTHER = re.compile("^(done by the weights of|done by|the same as) ")
"""How notes of passes say which node does the work of another."""


def _function(desc: OperatorDesc) -> str:
    from dmlgpu import reference  # noqa: PLC0415 - slow to import, and the adapter numpy alone needs it

    function = reference.find(desc.operator)
    assert function is not None
    return f"{function.__module__}.{function.__name__}"
