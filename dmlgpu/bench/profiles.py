"""Where the time of a model's run goes, by kernel, node, operator and module, beside what the device can do at most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dmlgpu.bench.ceilings import Ceilings, Share, share_of
from dmlgpu.bench.counting import Counts, count, kernel_counts

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.placement import Placement
    from dmlgpu.frontends.onnx.segments import Segment
    from dmlgpu.frontends.onnx.watching import RunProfile


@dataclass(frozen=True)
class ProfileRow:
    """What took time: kernels of one label, or what these computed.

    Attributes:
        name: The label; the operator and name of a node; an operator; a module.
        seconds: altogether.
        part: Of the time of all kernels.
        share: Of the device's ceiling: the least time that it needs for this work, divided by ``seconds``, and the
            ceiling that most of that least time comes from. None if nothing is known of the work.
    """

    name: str
    seconds: float
    part: float
    share: Share | None


@dataclass(frozen=True)
class KernelRow(ProfileRow):
    """Kernels of one label.

    Attributes:
        times: How often they ran.
        nodes: The operators and names of the nodes that they compute.
        bytes, operations: What all of them move and compute; None if that is not known.
    """

    times: int
    nodes: tuple[str, ...]
    bytes: int | None
    operations: int | None


@dataclass(frozen=True)
class ProfileTables:
    """A profile by kernel, and what it says of nodes: a kernel of several nodes counts for each an equal share.

    Attributes:
        total: All kernels together.
        kernels, nodes, operators: What took most first.
        modules: The same, by names of nodes up to their last slash, ``""`` for those without; none if none has one.
    """

    total: ProfileRow
    kernels: tuple[KernelRow, ...]
    nodes: tuple[ProfileRow, ...]
    operators: tuple[ProfileRow, ...]
    modules: tuple[ProfileRow, ...]

    def to_json(self) -> dict[str, Any]:
        """The tables as JSON has them."""
        named = {name: getattr(self, f"{name}s") for name in ("kernel", "node", "operator", "module")}
        return {"total": _as_json(self.total)} | {
            f"{name}s": [_as_json(row) for row in rows] for name, rows in named.items()
        }


def _as_json(row: ProfileRow) -> dict[str, Any]:
    record: dict[str, Any] = {"name": row.name, "seconds": row.seconds, "part": row.part}
    record |= {"share": row.share and row.share.share, "bound_by": row.share and row.share.bound_by}
    if isinstance(row, KernelRow):
        record |= {"times": row.times, "nodes": list(row.nodes), "bytes": row.bytes, "operations": row.operations}
    return record


class _Sum:
    """Times added up, and the least times that the device would need, by the ceilings that these come from."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.least: dict[str, float] = defaultdict(float)

    def add(self, seconds: float, share: Share | None, portion: float = 1.0) -> None:
        self.seconds += seconds * portion
        if share is not None:
            self.least[share.bound_by] += seconds * share.share * portion

    def row(self, name: str, total: float) -> ProfileRow:
        share = None
        if self.least and self.seconds:
            bound_by = max(self.least, key=lambda ceiling: self.least[ceiling])
            share = Share(sum(self.least.values()) / self.seconds, bound_by)
        return ProfileRow(name, self.seconds, self.seconds / total, share)


def tables(profile: RunProfile, placement: Sequence[Placement], ceilings: Ceilings | None) -> ProfileTables:
    """Return what a profile says.

    Args:
        profile: Of runs.
        placement: Which kernels compute the nodes of the model.
        ceilings: Of the device; None if they could not be measured, so that no shares are known.
    """
    nodes: dict[str, list[str]] = {}
    for node_placement in placement:
        for label in node_placement.kernels:
            nodes.setdefault(label, []).append(f"{node_placement.op_type} {node_placement.node}")
    counts = {} if ceilings is None else counts_by_label(profile.segments)
    total = sum(seconds for _, _, seconds in profile.kernels) or 1.0
    kernels, whole = [], _Sum()
    by_node, by_operator, by_module = (defaultdict[str, _Sum](_Sum) for _ in range(3))
    for label, (times, seconds) in profile.by_kernel().items():
        work = counts.get(label)
        share = None if work is None or ceilings is None else share_of(seconds, work, ceilings)
        of = tuple(nodes.get(label, ()))
        moved, operations = (None, None) if work is None else (work.bytes, work.operations)
        kernels.append(KernelRow(label, seconds, seconds / total, share, times, of, moved, operations))
        whole.add(seconds, share)
        for name in of:
            operator, _, node = name.partition(" ")
            for sums, key in ((by_node, name), (by_operator, operator), (by_module, node.rpartition("/")[0])):
                sums[key].add(seconds, share, 1 / len(of))
    return ProfileTables(
        whole.row("all kernels", total),
        tuple(kernels),
        _rows(by_node, total),
        _rows(by_operator, total),
        _rows(by_module, total) if any(by_module) else (),
    )


def _rows(sums: Mapping[str, _Sum], total: float) -> tuple[ProfileRow, ...]:
    rows = (entry.row(name, total) for name, entry in sums.items())
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def counts_by_label(runs: Iterable[Segment]) -> dict[str, Counts]:
    """Return what the kernels of a label move and compute, in all runs of segments together.

    Args:
        runs: A segment for each time that it ran.
    """
    counts: dict[str, Counts] = {}
    known: dict[int, list[tuple[str, Counts]]] = {}
    for segment in runs:
        if id(segment) not in known:
            known[id(segment)] = _counts_of(segment)
        for label, work in known[id(segment)]:
            before = counts.get(label, Counts(0, 0))
            counts[label] = Counts(
                before.bytes + work.bytes, before.operations + work.operations, kernels=before.kernels + work.kernels
            )
    return counts


def _counts_of(segment: Segment) -> list[tuple[str, Counts]]:
    """Return the labels of a segment's kernels with their work; on ``numpy`` that of the graph as a whole."""
    explanation = segment.kernels.explanation
    if explanation is None:
        desc = segment.graph.desc(segment.all_outputs)
        return [(segment.ALL_NODES, count(desc))]
    return [(label.removeprefix("graph "), work) for label, work in kernel_counts(explanation)]
