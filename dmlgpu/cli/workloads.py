"""Workloads that the words of ``dmlgpu bench`` and ``dmlgpu tune`` name: what ``show`` takes, and suites."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dmlgpu.bench.choosing import of_case, of_operator
from dmlgpu.bench.specs import BenchSpec, suite_names, suite_rows
from dmlgpu.bench.workload import Workload, read_contents, read_desc
from dmlgpu.cli import subjects
from dmlgpu.cli.subjects import find_subjects, operator_named
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.graph.description import GraphDesc


@dataclass(frozen=True)
class BenchSubject:
    """A workload, and the schedules under which it is measured.

    Attributes:
        workload: what is measured.
        schedules: by name, ``all``, or none for the choice.
        more: further keys of a suite's row: what peers compute.
    """

    workload: Workload
    schedules: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


def find_workloads(specs: Sequence[BenchSpec]) -> tuple[BenchSubject, ...]:
    """Return everything that is asked for; the rows of suites in place of their names.

    Raises:
        InvalidArgument: for what names nothing, and sizes that a subject does not have.
        ModelError, MissingFile, OSError: for a model or a suite that is malformed or missing.
    """
    workloads_of_rows = [
        BenchSubject(replace(workload, name=_named(workload, row, several)), row.schedules, row.more)
        for row in _rows(specs)
        for workloads in (_workloads(row),)
        for several in (len(workloads) > 1,)
        for workload in workloads
    ]
    return tuple({(subject.workload.name, subject.schedules): subject for subject in workloads_of_rows}.values())


def _named(workload: Workload, row: BenchSpec, several: bool) -> str:
    """Return a row's own name; with that of the workload where the row has several."""
    if not row.name:
        return workload.name
    return f"{row.name}: {workload.name}" if several else row.name


def _rows(specs: Iterable[BenchSpec]) -> Iterator[BenchSpec]:
    for spec in specs:
        suite = suite_rows(spec.what)
        if suite is None:
            yield spec
            continue
        path, rows = suite
        if any(spec.sizes) or spec.layouts:
            raise InvalidArgument(f"the rows of {spec.what} have their own sizes and layouts")
        for row in rows:
            beside = path.parent / row.what.partition(":")[0]
            what = str(path.parent / row.what) if beside.suffix == ".py" and beside.is_file() else row.what
            yield replace(row, what=what, types=spec.types or row.types, schedules=spec.schedules or row.schedules)


def _workloads(row: BenchSpec) -> list[Workload]:
    name = operator_named(row.what)
    if row.desc or row.contents:
        return [_described(row, name)]
    if name is not None and not row.shapes:
        return of_operator(name, row.sizes, row.types, row.layouts)
    if any(row.sizes) or row.types or row.layouts:
        raise InvalidArgument(f"{row.what} has its own sizes, types and layouts; those of operators can be given")
    if row.shapes and not row.what.lower().endswith(".onnx"):
        raise InvalidArgument(f"{row.what} is no model in ONNX, which are those that have shapes")
    if row.what.lower().endswith(".onnx"):
        path = Path(row.what)
        if not path.is_file():
            raise InvalidArgument(f"there is no file {row.what!r}")
        sizes = "".join(f" {name}={'x'.join(map(str, shape))}" for name, shape in row.shapes.items())
        return [Workload(f"{path.name}{sizes}", "MODEL", model=str(path.resolve()), shapes=row.shapes)]
    try:
        matches = find_subjects(row.what)
    except InvalidArgument as error:
        if subjects.TAKEN not in str(error):
            raise
        what = str(error).partition("; show takes")[0]
        taken = f"{subjects.TAKEN}, or a suite ({', '.join(suite_names())}, FILE.toml)"
        raise InvalidArgument(f"{what}; bench takes {taken}") from None
    return [_of_subject(subject) for subject in matches]


def _described(row: BenchSpec, operator: str | None) -> Workload:
    """Return the workload of a row that describes its operator itself."""
    if operator is None or not row.desc or not row.name:
        raise InvalidArgument(f"{row.what}: a row with desc or contents must have an operator, a desc and a name")
    if any(row.sizes) or row.types or row.layouts or row.shapes:
        raise InvalidArgument(f"{row.name} has a desc, which says its sizes, types and layouts")
    desc = read_desc(operator, row.desc)
    tensors = [slot.tensor for slot in (*desc.inputs, *desc.outputs) if slot.tensor is not None]
    data_type = tensors[0].data_type.name.lower() if tensors else ""
    return Workload(row.name, operator, desc, data_type=data_type, contents=read_contents(row.name, row.contents))


def _of_subject(subject: subjects.Subject) -> Workload:
    is_graph = isinstance(subject.desc, GraphDesc)
    if subject.case and not is_graph:
        return of_case(subject.case)
    return Workload(
        subject.case or subject.title,
        "GRAPH" if isinstance(subject.desc, GraphDesc) else subject.desc.operator,
        subject.desc,
        case=subject.case,
        half_precision=subject.half_precision,
    )
