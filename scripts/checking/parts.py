"""The parts that every operator and every schedule needs, and how to add a missing one.

python -m checking.parts    print the missing ones
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dmlgpu import catalog as schema
from dmlgpu import reference
from dmlgpu.catalog.descs import by_name
from dmlgpu.cli.ops import shader_paths
from dmlgpu.compiler import operators
from dmlgpu.compiler.operators.lowering import lowering
from dmlgpu.compiler.plan import Step
from dmlgpu.compiler.schedule.scheduling import plain_steps, schedule_step
from dmlgpu.compiler.schedule.steps.base import KernelStep
from dmlgpu.conformance.cases.keys import quick_names
from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from dmlgpu.conformance.cases.registry import implemented as with_cases

from . import cases, tests
from .names import ROOT

SCHEDULES = "dmlgpu.compiler.schedule."
"""Names of the modules of schedules begin so."""

WORD = re.compile(rf"{re.escape(SCHEDULES)}\w+|\w+")
"""Names in a test: of a module of schedules, or of any object."""

AnyStep = TypeVar("AnyStep")


@dataclass(frozen=True)
class Part:
    """One of the parts.

    Attributes:
        name: what messages call it.
        operators: DirectML's names of the operators that have it.
        where: say where an operator's stands.
        remedy: what to do where it is missing, with ``{desc}``, ``{family}`` and ``{stem}``.
        generated: whether a script writes it from the others, so that it may stand without them.
    """

    name: str
    operators: frozenset[str]
    where: Callable[[str], str]
    remedy: str
    generated: bool = False


def parts() -> tuple[Part, ...]:
    """Return the parts of the operators of this checkout."""
    quick = {stem.upper(): names for stem, names in quick_names().items()}
    return (
        Part(
            "class",
            operators.implemented(),
            lambda operator: _place(lowering(operator)),
            "add a class with `desc = descs.{desc}` to dmlgpu/compiler/operators/{family}.py",
        ),
        Part(
            "shader",
            frozenset(name for name in operators.implemented() if _has_shaders(name)),
            lambda operator: ", ".join(shader_paths(schema.operator(operator))),
            "write shaders/{family}/{stem}.wgsl, or name other files or the newer operator in the class",
        ),
        Part(
            "reference",
            reference.implemented(),
            lambda operator: _place(reference.find(operator)),
            "add a function under `@reference(descs.{desc})` to dmlgpu/reference/{family}.py",
        ),
        Part(
            "cases",
            with_cases(),
            lambda operator: _place(type(OPERATOR_CASES[operator.lower()])),
            "add a class under `@cases(descs.{desc})`, or a row, to dmlgpu/conformance/cases/families/{family}.py",
        ),
        Part(
            "quick cases",
            frozenset(quick),
            lambda operator: f"{len(quick[operator])} in dmlgpu/conformance/cases/quick.txt and quick_faults.txt",
            "run python scripts/choose_quick.py",
            generated=True,
        ),
    )


def lacking(every: Sequence[Part]) -> list[str]:
    """Say which operator lacks which part, what it has, and what to do; nothing where all operators are complete."""
    begun = frozenset[str]().union(*(part.operators for part in every if not part.generated))
    return [
        f"{operator} has {_listed(part.name for part in every if operator in part.operators)} but no {missing.name}: "
        f"{missing.remedy.format(desc=by_name(operator).__name__, family=family(operator), stem=operator.lower())}; "
        "see docs/internals/operators.md"
        for operator in sorted(begun)
        for missing in every
        if operator not in missing.operators
    ]


def lacking_schedules(scheduled: Iterable[type[KernelStep]], planned: Iterable[type[Step]]) -> list[str]:
    """Return a message for every part that a kind of step lacks: what it is, and what to do."""
    builders = {file: _text(file) for file in sorted((ROOT / "dmlgpu" / "compiler" / "schedule").glob("*.py"))}
    tested = {word for file in (ROOT / "tests").rglob("*.py") for word in WORD.findall(_text(file))}

    def modules(step: type) -> list[str]:
        named = rf"^(?!from |import |    \w+,$).*\b{step.__name__}\b"  # also a class that is called by another name
        return [file.stem for file, text in builders.items() if re.search(named, text, re.MULTILINE)]

    def is_tested(step: type) -> bool:
        return not tested.isdisjoint((step.__name__, *(f"{SCHEDULES}{module}" for module in modules(step))))

    schedules = {*schedule_step.registry, *plain_steps.registry}
    needs = [
        *(
            (step, *need)
            for step in scheduled
            for need in (
                ("template", step.template is not KernelStep.template, "name its shader file in the class"),
                (
                    "builder",
                    bool(modules(step)),
                    "write it in dmlgpu/compiler/schedule/, and list it with those of its kind",
                ),
                (
                    "place in a list",
                    not unlisted(step.__name__, builders.values()),
                    "name its builder in the list of its kind, such as MAP_SCHEDULES",
                ),
                ("test", is_tested(step), "test when it is chosen, and when not, in tests/unit/compiler/schedule/"),
            )
        ),
        *(
            (step, "schedule", step in schedules, "register a function in dmlgpu/compiler/schedule/")
            for step in planned
        ),
    ]
    return [
        f"{step.__name__} has no {part}: {remedy}; see docs/internals/schedules.md"
        for step, part, is_there, remedy in needs
        if not is_there
    ]


def unlisted(step: str, modules: Iterable[str]) -> list[str]:
    """Return the functions of some modules that make a kind of step, but that nothing names or registers."""
    nodes = [node for module in modules for node in _nodes(module)]
    named = {node.id for node in nodes if isinstance(node, ast.Name)}
    named |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return [
        function.name
        for function in nodes
        if isinstance(function, ast.FunctionDef)
        and any(isinstance(node, ast.Call) and getattr(node.func, "id", "") == step for node in ast.walk(function))
        and not function.decorator_list
        and function.name not in named
    ]


@functools.cache
def _nodes(module: str) -> tuple[ast.AST, ...]:
    """Return the nodes of a module's syntax tree."""
    return tuple(ast.walk(ast.parse(module)))


def scheduled_steps() -> list[type[KernelStep]]:
    """Return the kinds of steps that schedules consist of."""
    return [step for step in _subclasses(KernelStep) if step.__module__.startswith("dmlgpu.compiler.schedule.")]


def planned_steps() -> list[type[Step]]:
    """Return the kinds of steps that plans consist of."""
    return [step for step in _subclasses(Step) if step.__module__.startswith("dmlgpu.compiler.plan.")]


def _subclasses(base: type[AnyStep]) -> Iterator[type[AnyStep]]:
    for subclass in base.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def family(operator: str) -> str:
    """Return the module in which an operator's class, reference or cases stand; ``FAMILY`` where it has none."""
    stem = operator.lower()
    objects: list[Any] = [lowering(operator)] if operator in operators.implemented() else []
    objects += [reference.find(operator)] if operator in reference.implemented() else []
    objects += [OPERATOR_CASES[stem]] if stem in OPERATOR_CASES else []
    return objects[0].__module__.rpartition(".")[2] if objects else "FAMILY"


def _has_shaders(operator: str) -> bool:
    paths = shader_paths(schema.operator(operator))
    return bool(paths) and all((ROOT / path).is_file() for path in paths)


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _place(item: Any) -> str:
    """Where a class or function is defined: ``dmlgpu/compiler/operators/indexing.py:28 GatherNd1``."""
    path = Path(inspect.getfile(item))
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return f"{shown}:{_line(item, path)} {item.__name__}"


def _line(item: Any, path: Path) -> int:
    """Return the line of a definition, or of an operator's row in a table of its module."""
    try:
        return inspect.getsourcelines(item)[1]
    except OSError:
        lines = path.read_text(encoding="utf-8").splitlines()
        return next(line_number for line_number, line in enumerate(lines, 1) if f"descs.{item.__name__}" in line)


def lines(operator: str) -> list[str]:
    """Return an operator's name, and a line for each of its parts."""
    places = ((part.name, part.where(operator) if operator in part.operators else "MISSING") for part in parts())
    return [operator, *(f"  {name:12} {place}" for name, place in places)]


def selection(operator: str) -> tests.Selection:
    """Return the tests of an operator."""
    shaders = shader_paths(schema.operator(operator))
    return tests.select_for_operator(
        (operator, operator.lower(), by_name(operator).__name__), family(operator), shaders
    )


def cases_of(operator: str, most: int) -> list[str]:
    """Return cases of an operator; none if it has none."""
    return cases.cases_of_operator(operator, most) if operator in with_cases() else []


def main() -> int:
    """Print the missing parts of operators and schedules."""
    messages = [*lacking(parts()), *lacking_schedules(scheduled_steps(), planned_steps())]
    print("\n".join(messages), end="\n" if messages else "")
    return bool(messages)


if __name__ == "__main__":
    sys.exit(main())
