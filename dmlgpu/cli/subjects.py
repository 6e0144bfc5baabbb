"""Subjects of ``dmlgpu show``, ``bench`` and ``tune``: cases, operators, models, kernels, rows of suites."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from dmlgpu.bench.choosing import of_case, of_operator
from dmlgpu.bench.kernel_files import compiled_workloads_of, kernel_workload
from dmlgpu.bench.specs import BenchSpec, KernelOptions, is_kernel_file, suite_names, suite_rows
from dmlgpu.bench.workload import Workload, read_contents, read_desc
from dmlgpu.catalog import catalog, operator
from dmlgpu.catalog.enums import DataType, ExecutionFlags
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.schedule.registry import check_name
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases
from dmlgpu.conformance.cases.registry import OPERATOR_CASES, case_names
from dmlgpu.conformance.suites import graphs
from dmlgpu.conformance.suites.combined import CombinedSuite
from dmlgpu.conformance.suites.operators import CaseSuite, OperatorSuite
from dmlgpu.conformance.suites.programs import ProgramSuite
from dmlgpu.frontends import dxdispatch
from dmlgpu.frontends.dxdispatch.model import GraphDispatchable, OperatorDispatchable
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.tensor import Tensor

Desc: TypeAlias = OperatorDesc | GraphDesc

TAKEN = (
    "a case of `dmlgpu test`, an operator's name, a DxDispatch model (MODEL.json), a model in ONNX (MODEL.onnx), a"
    " language model (a folder, MODEL.gguf), a kernel (FILE.wgsl), or a Python file that describes operators or graphs"
    " (FILE.py, FILE.py:NAME)"
)

_PYTHON = re.compile(r"(?P<file>.+\.py)(?::(?P<name>\w+))?")


@dataclass(frozen=True)
class Subject:
    """Something to show.

    Attributes:
        title: Title.
        desc: Description.
        half_precision: Whether float16 arithmetic is allowed.
        case: Name of its test case, or empty.
    """

    title: str
    desc: Desc
    half_precision: bool = False
    case: str = ""


def find_subjects(what: str) -> tuple[Subject, ...]:
    """Return the subjects that an argument of the command line names, one or several.

    Raises:
        InvalidArgument: If it names nothing; the message lists what is accepted and similar names.
        ModelError, MissingFile: If a model is malformed or missing.
    """
    if what.lower().endswith(".json"):
        return _of_model(Path(what))
    python = _PYTHON.fullmatch(what)
    if python is not None:
        return tuple(_of_python(Path(python["file"]), python["name"]))
    name = operator_named(what)
    return _of_case(what) if name is None else (_typical(name),)


def operator_named(what: str) -> str | None:
    """Return the DirectML operator with this name or alias, or None."""
    name = what.upper()
    aliases = {alias: entry.name for entry in catalog().values() for alias in entry.aliases}
    name = aliases.get(name, name)
    return name if name in catalog() else None


# ---- operators and cases


def _typical(name: str) -> Subject:
    """Return the plainest standard case of an operator."""
    cases = OPERATOR_CASES[name.lower()]
    case = cases.case(min(cases.names("standard"), key=lambda case: _peculiarity(cases, case)))
    return Subject(f"{name}, its typical case {case.name}", case.desc)


def _peculiarity(cases: OperatorCases, name: str) -> tuple[bool, ...]:
    """Return the ways in which a case differs from common use, most important first, as a sort key."""
    parts = name.removeprefix(f"{cases.stem}-").split("-")
    return (
        parts[0].startswith("example"),
        TensorLayout.PACKED.value not in parts,
        parts[0] != DataType.FLOAT32.name.lower(),
        len(parts) > len(cases.types[0]) + len(("sizes", "layout", "seed")),  # there is a variant
    )


def _of_case(what: str) -> tuple[Subject, ...]:
    stem = what.partition("-")[0]
    part = next((part for part in CombinedSuite().parts if part.has(what)), None)
    match part:
        case CaseSuite():
            # Other suites describe cases of the same name differently.
            own = what if isinstance(part, OperatorSuite) else ""
            return (Subject(f"case {what}", part.case(what).desc, case=own),)
        case graphs.GraphSuite():
            return (Subject(f"case {what}", graphs.example(what).graph, case=what),)
        case ProgramSuite():
            descs = part.program(what).descs
            return tuple(Subject(f"case {what}, {desc.operator}", desc) for desc in descs)
        case None if stem in OPERATOR_CASES and stem != what:
            OPERATOR_CASES[stem].case(what)  # raises with the reason
        case None:
            try:
                operator(what)
            except InvalidArgument as error:
                raise InvalidArgument(f"{error}; show takes {TAKEN}") from None
    raise InvalidArgument(f"{what!r} is a case without a description to show; show takes {TAKEN}")


# ---- models


def _of_model(path: Path) -> tuple[Subject, ...]:
    model = dxdispatch.load(path)
    half = ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION
    subjects = []
    for dispatchable in model.dispatchables.values():
        match dispatchable:
            case OperatorDispatchable():
                subjects.append(
                    Subject(
                        f"{path}: {dispatchable.name}, {dispatchable.desc.operator}",
                        dispatchable.desc,
                        bool(dispatchable.flags & half),
                    )
                )
            case GraphDispatchable():
                subjects.append(
                    Subject(f"{path}: {dispatchable.name}, graph", dispatchable.graph, bool(dispatchable.flags & half))
                )
    if not subjects and model.dispatchables:
        raise InvalidArgument(f"{path} has no operators and no graphs; show takes {TAKEN}")
    return tuple(subjects)


def _of_python(path: Path, name: str | None) -> Iterator[Subject]:
    """Run a Python file and yield the description of that name, or every public one."""
    if not path.is_file():
        raise InvalidArgument(f"there is no file {str(path)!r}; show takes {TAKEN}")
    module = _run(path)
    if name is not None:
        if name not in module:
            raise InvalidArgument(f"{path} defines no {name!r}")
        desc = _described(module[name])
        if desc is None:
            kind = type(module[name]).__name__
            hint = "; a Graph does not declare its outputs: name a list of them" if kind == Graph.__name__ else ""
            raise InvalidArgument(
                f"{path}:{name} must be a GraphDesc, an OperatorDesc, or outputs of a Graph (a Tensor or a list of"
                f" them), got {kind}{hint}"
            )
        yield Subject(f"{path}:{name}", desc)
        return
    public = {key: value for key, value in module.items() if not key.startswith("_")}
    descs = {key: value for key, value in public.items() if isinstance(value, OperatorDesc | GraphDesc)}
    outputs = _described(public.get("outputs"))
    if outputs is not None:
        descs["outputs"] = outputs
    if not descs:
        raise InvalidArgument(
            f"{path} must define a GraphDesc, an OperatorDesc, or a list 'outputs' of a Graph's expressions;"
            f" or name what to show: {path}:NAME"
        )
    for key, desc in descs.items():
        yield Subject(f"{path}:{key}", desc)


def _run(path: Path) -> dict[str, Any]:
    """Run a file, which may import files of its folder, and return its globals."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path), run_name=path.stem)
    finally:
        sys.path.remove(folder)


def _described(value: Any) -> Desc | None:
    """Return the description that a value of a Python file is or builds, or None."""
    if isinstance(value, OperatorDesc | GraphDesc):
        return value
    if isinstance(value, Tensor) and value.graph is not None:
        value = (value,)
    if isinstance(value, list | tuple) and value and all(isinstance(item, Tensor) for item in value):
        return value[0].graph.desc(value)
    return None


@dataclass(frozen=True)
class BenchSubject:
    """A workload, and the schedules under which to measure it.

    Attributes:
        workload: Workload to measure.
        schedules: Names, ``all``, or empty for the chosen schedule.
        more: Further keys of a suite's row: the computation of peers.
    """

    workload: Workload
    schedules: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


def find_workloads(specs: Sequence[BenchSpec]) -> tuple[BenchSubject, ...]:
    """Return the requested workloads; suites are replaced by their rows.

    Raises:
        InvalidArgument: If a name or size is unknown.
        ModelError, MissingFile, OSError: If a model or a suite is malformed or missing.
    """
    workloads_of_rows = [
        BenchSubject(replace(workload, name=_named(workload, row, several), cache=row.cache), row.schedules, row.more)
        for row in _rows(specs)
        for workloads in (_workloads(row),)
        for several in (len(workloads) > 1,)
        for workload in workloads
    ]
    return tuple({(subject.workload.name, subject.schedules): subject for subject in workloads_of_rows}.values())


def compiled_workloads(specs: Sequence[BenchSpec], profile: str = "") -> tuple[Workload, ...]:
    """Return workloads for a compiler, which needs neither inputs nor sizes of kernels in WGSL.

    Args:
        specs: Workloads to compile, as for ``find_workloads``; each named schedule is a workload of its own.
        profile: Add all operator cases of a profile of the test suite.

    Raises:
        InvalidArgument: If a name, size, schedule or profile is unknown.
        ModelError, MissingFile, OSError: If a model or a suite is malformed or missing.
    """
    workloads: list[Workload] = []
    for spec in specs:
        if is_kernel_file(spec.what):
            workloads += compiled_workloads_of(Path(spec.what), spec.kernel)
            continue
        for subject in find_workloads([spec]):
            for schedule in subject.schedules or ("",):
                if schedule:
                    check_name(schedule)
                name = f"{subject.workload.name}, schedule {schedule}" if schedule else subject.workload.name
                workloads.append(replace(subject.workload, name=name, schedule=schedule))
    workloads += [of_case(name) for name in (case_names(profile) if profile else ())]
    return tuple({workload.name: workload for workload in workloads}.values())


def subject_workload(subject: Subject) -> Workload:
    """Return the workload of a subject, under its title."""
    return replace(_of_subject(subject), name=subject.title)


def _named(workload: Workload, row: BenchSpec, several: bool) -> str:
    """Return the name of a row, extended by that of the workload if the row has several, and by ``--cache``.

    Raises:
        InvalidArgument: If a model, whose buffers are not chosen, is to have cold or warm caches.
    """
    if row.cache and workload.model:
        raise InvalidArgument(f"--cache applies to operators, graphs and kernels, got {row.what!r}")
    name = f"{row.name}: {workload.name}" if row.name and several else row.name or workload.name
    return f"{name}, {row.cache} caches" if row.cache else name


def _rows(specs: Iterable[BenchSpec]) -> Iterator[BenchSpec]:
    for spec in specs:
        suite = suite_rows(spec.what)
        if suite is None:
            yield spec
            continue
        path, rows = suite
        if any(spec.sizes) or spec.layouts:
            raise InvalidArgument(f"the rows of {spec.what} have fixed sizes and layouts")
        for row in rows:
            beside = path.parent / row.what.partition(":")[0]
            what = str(path.parent / row.what) if beside.suffix == ".py" and beside.is_file() else row.what
            yield replace(
                row,
                what=what,
                types=spec.types or row.types,
                schedules=spec.schedules or row.schedules,
                cache=spec.cache,
            )


def _workloads(row: BenchSpec) -> list[Workload]:
    name = operator_named(row.what)
    if is_kernel_file(row.what):
        if any(row.sizes) or row.types or row.layouts or row.schedules or row.shapes:
            raise InvalidArgument(
                f"{row.what} takes --input SIZES:TYPE and --output SIZES:TYPE in place of sizes,"
                " types, layouts, schedules and shapes"
            )
        return [kernel_workload(Path(row.what), row.kernel)]
    if row.kernel != KernelOptions():
        raise InvalidArgument(
            f"--input, --output, --uniform, --define, --reference, --grid, --entry-point,"
            f" --flops and --tolerance are for kernels in WGSL (FILE.wgsl), got {row.what!r}"
        )
    if row.desc or row.contents:
        return [_row_workload(row, name)]
    if name is not None and not row.shapes:
        return of_operator(name, row.sizes, row.types, row.layouts)
    if any(row.sizes) or row.types or row.layouts:
        raise InvalidArgument(f"{row.what} has fixed sizes, types and layouts; only operators take them as options")
    if row.shapes and not row.what.lower().endswith(".onnx"):
        raise InvalidArgument(f"{row.what} is not an ONNX model; --shape applies only to those")
    if row.what.lower().endswith(".onnx"):
        path = Path(row.what)
        if not path.is_file():
            raise InvalidArgument(f"there is no file {row.what!r}")
        sizes = "".join(f" {name}={'x'.join(map(str, shape))}" for name, shape in row.shapes.items())
        return [Workload(f"{path.name}{sizes}", "MODEL", model=str(path.resolve()), shapes=row.shapes)]
    try:
        matches = find_subjects(row.what)
    except InvalidArgument as error:
        if TAKEN not in str(error):
            raise
        what = str(error).partition("; show takes")[0]
        taken = f"{TAKEN}, or a suite ({', '.join(suite_names())}, FILE.toml)"
        raise InvalidArgument(f"{what}; bench takes {taken}") from None
    return [_of_subject(subject) for subject in matches]


def _row_workload(row: BenchSpec, operator: str | None) -> Workload:
    """Return the workload of a row that describes its operator itself."""
    if operator is None or not row.desc or not row.name:
        raise InvalidArgument(f"{row.what}: a row with desc or contents must have an operator, a desc and a name")
    if any(row.sizes) or row.types or row.layouts or row.shapes:
        raise InvalidArgument(f"{row.name} has a desc, which sets its sizes, types and layouts")
    desc = read_desc(operator, row.desc)
    tensors = [slot.tensor for slot in (*desc.inputs, *desc.outputs) if slot.tensor is not None]
    data_type = tensors[0].data_type.name.lower() if tensors else ""
    return Workload(row.name, operator, desc, data_type=data_type, contents=read_contents(row.name, row.contents))


def _of_subject(subject: Subject) -> Workload:
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
