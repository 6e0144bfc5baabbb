"""What ``dmlgpu show`` and ``dmlgpu bench`` are asked for: a case, an operator, or the descriptions of a model."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from dmlgpu.catalog import catalog, operator
from dmlgpu.catalog.enums import DataType, ExecutionFlags
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases
from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from dmlgpu.conformance.suites import graphs
from dmlgpu.conformance.suites.combined import CombinedSuite
from dmlgpu.conformance.suites.operators import CaseSuite, OperatorSuite
from dmlgpu.conformance.suites.programs import ProgramSuite
from dmlgpu.frontends import dxdispatch
from dmlgpu.frontends.dxdispatch.model import GraphDispatchable, OperatorDispatchable
from dmlgpu.tensors.graphs.expression import Expression
from dmlgpu.tensors.graphs.graph import Graph

Desc: TypeAlias = OperatorDesc | GraphDesc

TAKEN = (
    "a case of `dmlgpu test`, an operator's name, a DxDispatch model (MODEL.json), a model in ONNX (MODEL.onnx), or a"
    " Python file that describes operators or graphs (FILE.py, FILE.py:NAME)"
)

_PYTHON = re.compile(r"(?P<file>.+\.py)(?::(?P<name>\w+))?")


@dataclass(frozen=True)
class Subject:
    """Something to show.

    Attributes:
        title: what it is called.
        desc: its description.
        half_precision: native 16-bit arithmetic is allowed.
        case: the name of the operator's or graph's case that it is, or empty.
    """

    title: str
    desc: Desc
    half_precision: bool = False
    case: str = ""


def find_subjects(what: str) -> tuple[Subject, ...]:
    """Return what a word of the command line names, one or several.

    Raises:
        InvalidArgument: for what names nothing; the message says what is taken, and what has a similar name.
        ModelError, MissingFile: for a model that is malformed or missing.
    """
    if what.lower().endswith(".json"):
        return _of_model(Path(what))
    python = _PYTHON.fullmatch(what)
    if python is not None:
        return tuple(_of_python(Path(python["file"]), python["name"]))
    name = operator_named(what)
    return _of_case(what) if name is None else (_typical(name),)


def operator_named(what: str) -> str | None:
    """Return DirectML's name of the operator that a word is the name or an alias of; None for other words."""
    name = what.upper()
    aliases = {alias: entry.name for entry in catalog().values() for alias in entry.aliases}
    name = aliases.get(name, name)
    return name if name in catalog() else None


# ---- operators and cases


def _typical(name: str) -> Subject:
    """Return the typical case of an operator: of its standard cases the plainest one."""
    cases = OPERATOR_CASES[name.lower()]
    case = cases.case(min(cases.names("standard"), key=lambda case: _peculiarity(cases, case)))
    return Subject(f"{name}, its typical case {case.name}", case.desc)


def _peculiarity(cases: OperatorCases, name: str) -> tuple[bool, ...]:
    """Return in what a case is not as most uses of its operator are, what counts most first."""
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
            # What another suite makes of a name is not what the operators' cases make of it.
            own = what if isinstance(part, OperatorSuite) else ""
            return (Subject(f"case {what}", part.case(what).desc, case=own),)
        case graphs.GraphSuite():
            return (Subject(f"case {what}", graphs.example(what).graph, case=what),)
        case ProgramSuite():
            descs = part.program(what).descs
            return tuple(Subject(f"case {what}, {desc.operator}", desc) for desc in descs)
        case None if stem in OPERATOR_CASES and stem != what:
            OPERATOR_CASES[stem].case(what)  # says what is wrong with the name
        case None:
            try:
                operator(what)
            except InvalidArgument as error:
                raise InvalidArgument(f"{error}; show takes {TAKEN}") from None
    raise InvalidArgument(f"{what!r} is a case without a description that could be shown; show takes {TAKEN}")


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
    """Run a Python file and yield what it describes: what has the name, or every public description."""
    if not path.is_file():
        raise InvalidArgument(f"there is no file {str(path)!r}; show takes {TAKEN}")
    module = _run(path)
    if name is not None:
        if name not in module:
            raise InvalidArgument(f"{path} defines no {name!r}")
        desc = _described(module[name])
        if desc is None:
            kind = type(module[name]).__name__
            hint = "; a Graph does not say what its outputs are: name a list of them" if kind == Graph.__name__ else ""
            raise InvalidArgument(
                f"{path}:{name} must be a GraphDesc, an OperatorDesc, or outputs of a Graph (an Expression or a list of"
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
    """Run a file, which may import what lies beside it, and return what it defines."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path), run_name=path.stem)
    finally:
        sys.path.remove(folder)


def _described(value: Any) -> Desc | None:
    """Return the description that a value of a Python file is, or that its expressions make up; None for others."""
    if isinstance(value, OperatorDesc | GraphDesc):
        return value
    if isinstance(value, Expression) and value.graph is not None:
        value = (value,)
    if isinstance(value, list | tuple) and value and all(isinstance(item, Expression) for item in value):
        return value[0].graph.desc(value)
    return None
