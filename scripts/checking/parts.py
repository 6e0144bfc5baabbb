"""The parts that every operator has, where they stand, and what to do where one is missing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlgpu import operators, reference, schema
from dmlgpu.cli.ops import shader_paths
from dmlgpu.conformance.cases.profiles import quick_names
from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from dmlgpu.conformance.cases.registry import implemented as with_cases
from dmlgpu.descs import by_name
from dmlgpu.operators.lowering import lowering

ROOT = Path(__file__).parents[2]


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
            "add a class with `desc = descs.{desc}` to dmlgpu/operators/{family}.py",
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
            "add a class under `@cases(descs.{desc})` to dmlgpu/conformance/cases/families/{family}.py",
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
        "see docs/architecture.md"
        for operator in sorted(begun)
        for missing in every
        if operator not in missing.operators
    ]


def family(operator: str) -> str:
    """Return the module in which an operator's class, reference or cases stand; ``FAMILY`` where it has none."""
    stem = operator.lower()
    found: list[Any] = [lowering(operator)] if operator in operators.implemented() else []
    found += [reference.find(operator)] if operator in reference.implemented() else []
    found += [OPERATOR_CASES[stem]] if stem in OPERATOR_CASES else []
    return found[0].__module__.rpartition(".")[2] if found else "FAMILY"


def _has_shaders(operator: str) -> bool:
    paths = shader_paths(schema.operator(operator))
    return bool(paths) and all((ROOT / path).is_file() for path in paths)


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _place(item: Any) -> str:
    """Where a class or function is defined: ``dmlgpu/operators/indexing.py:28 GatherNd1``."""
    path = Path(inspect.getfile(item))
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return f"{shown}:{inspect.getsourcelines(item)[1]} {item.__name__}"
