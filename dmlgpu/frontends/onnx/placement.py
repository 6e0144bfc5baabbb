"""Placement of a model's nodes: where each was computed, and by which kernels."""

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


_LATE = "few integers, computed by the host when needed"


@dataclass(frozen=True)
class Placement:
    """Place at which a node was computed.

    Attributes:
        node: Name of the node; in the body of a loop, after the loop's name and a slash.
        op_type: Operator.
        where: ``"device"``; ``"host"``; ``"read"`` if the host reads elements of its inputs for a decision; or
            ``"none"`` if there is nothing to compute.
        operators: DirectML operators of the node.
        kernels: Kernels that computed it, alone or fused with other nodes, as ``dmlgpu show`` names them; on ``numpy``,
            functions of the reference.
        why: Why it is not on the device.
    """

    node: str
    op_type: str
    where: str
    operators: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    why: str = ""


@dataclass(eq=False)
class PlannedPlacement:
    """Placement of a node during translation.

    Attributes:
        planned: Placement without kernels.
        indices: Indices of the nodes that it added to the graph under construction.
        segment: Compiled graph; None if nothing of it is computed.
        late: Whether the host can compute it from few integers.
    """

    planned: Placement
    indices: range = range(0)
    segment: Segment | None = None
    late: bool = False

    @property
    def placement(self) -> Placement:
        """Placement with kernels."""
        if self.planned.where != "device":
            return self.planned
        kernels = () if self.segment is None else self.segment.kernels.of(self.indices)
        if kernels:
            return replace(self.planned, kernels=kernels)
        if self.late:
            return replace(self.planned, where="host", operators=(), why=_LATE)
        why = None if self.segment is None else self.segment.kernels.why_none(self.indices)
        return replace(self.planned, where="none", operators=(), why=why or "unused: no node reads it")


class PlacementSource(Protocol):
    """A source of placements; implemented by everything that runs a body."""

    @property
    def placement(self) -> tuple[Placement, ...]:
        """Placement of each node in the last run."""


@dataclass(eq=False)
class NodeKernels:
    """Kernels of a segment, by the nodes of its graph.

    Args:
        segment: The segment.
    """

    segment: Segment

    @cached_property
    def explanation(self) -> Explanation | None:
        """Explanation of the graph's compilation for the adapter; None on ``numpy``, which runs no kernels."""
        from dmlgpu.compiler.explain import explain_graph  # noqa: PLC0415 - it loads the compiler

        target = target_of(self.segment.graph.device.adapter)
        return None if target is None else explain_graph("graph", self.segment.desc, target)

    @cached_property
    def _labels(self) -> dict[str, tuple[str, ...]]:
        """Labels by names of nodes of the graph description."""
        by_node: dict[str, dict[str, None]] = {}
        explained = self.explanation
        if explained is None:
            for own in self.segment.desc.nodes:
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
        """Notes about nodes without kernels of their own, by name."""
        explained = self.explanation
        if explained is None or explained.graph is None:
            return {}
        return {note.subject: note.text for note in explained.graph.notes}

    def of(self, indices: Sequence[int]) -> tuple[str, ...]:
        """Return the kernels that computed nodes of the graph."""
        labels = [label for name in self._names(indices) for label in self._labels.get(name, ())]
        if not labels:
            others = [_OTHER.sub("", self._notes.get(name, "")) for name in self._names(indices)]
            labels = [label for name in others for label in self._labels.get(name, ())]
        return tuple(dict.fromkeys(labels))

    def why_none(self, indices: Sequence[int]) -> str | None:
        """Return why nodes have no kernels."""
        return next((self._notes[name] for name in self._names(indices) if name in self._notes), None)

    def _names(self, indices: Sequence[int]) -> list[str]:
        nodes = self.segment.graph.nodes
        return list(dict.fromkeys(abridged(nodes[index].name or "") for index in indices))


_OTHER = re.compile("^(done by the weights of|done by|the same as) ")
"""Prefix of notes of passes that name the node which does the work."""


def _function(desc: OperatorDesc) -> str:
    from dmlgpu import reference  # noqa: PLC0415 - slow to import, and the adapter numpy alone needs it

    function = reference.find(desc.operator)
    assert function is not None
    return f"{function.__module__}.{function.__name__}"
