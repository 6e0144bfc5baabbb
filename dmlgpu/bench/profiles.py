"""Profiles of models: time by kernel, node, operator and module, relative to the device's ceilings."""

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
    """A row of a profile.

    Attributes:
        name: Label of a kernel; operator and name of a node; an operator; a module.
        seconds: Total seconds.
        part: Fraction of the time of all kernels.
        share: Fraction of the device's ceiling (minimum time for the work divided by ``seconds``), and the ceiling that
            contributes most. None if the work is unknown.
    """

    name: str
    seconds: float
    part: float
    share: Share | None


@dataclass(frozen=True)
class KernelRow(ProfileRow):
    """Kernels with one label.

    Attributes:
        times: Number of runs.
        nodes: Operators and names of the nodes that they compute.
        bytes, operations: Total work; None if unknown.
    """

    times: int
    nodes: tuple[str, ...]
    bytes: int | None
    operations: int | None


@dataclass(frozen=True)
class ProfileTables:
    """A profile by kernel and node. A kernel of several nodes counts equally for each.

    Attributes:
        total: All kernels together.
        kernels, nodes, operators: The slowest first.
        modules: By names of nodes up to the last slash, ``""`` for those without; empty if none has one.
    """

    total: ProfileRow
    kernels: tuple[KernelRow, ...]
    nodes: tuple[ProfileRow, ...]
    operators: tuple[ProfileRow, ...]
    modules: tuple[ProfileRow, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the tables as JSON."""
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
    """Sum of times, and of the minimum times set by each ceiling."""

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
    """Return the tables of a profile.

    Args:
        profile: Profile of runs.
        placement: Kernels of the nodes of the model.
        ceilings: Ceilings of the device; None if unknown.
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
    """Return the work of kernels by label, over all runs of segments.

    Args:
        runs: One segment per run.
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
    """Return the labels of a segment's kernels with their work; on ``numpy``, the work of the whole graph."""
    explanation = segment.kernels.explanation
    if explanation is None:
        return [(segment.ALL_NODES, count(segment.desc))]
    return [(label.removeprefix("graph "), work) for label, work in kernel_counts(explanation)]
