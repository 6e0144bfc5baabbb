"""Find the test cases that an operator or a file affects, and run them on all drivers of the machine.

python -m checking.cases NAME...    run the named cases
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from dmlgpu import reference
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.cli.test import ConformanceRequest, test
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler import operators
from dmlgpu.compiler.operators.lowering import lowering
from dmlgpu.compiler.stages import compile_operator, programs
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.linker import declared
from dmlgpu.conformance.cases.keys import quick_names
from dmlgpu.conformance.cases.registry import OPERATOR_CASES, case_by_name

from .imports import importing
from .parts import ROOT

TARGETS = (
    Target("CPU", Profile.CPU, frozenset({"immediates", "shader-int64", "shader-f64"})),
    Target("GPU", Profile.DISCRETE),
)
"""Adapters for which cases are compiled, to see what they use."""

PARTS: dict[str, Callable[[str], object]] = {
    "dmlgpu/compiler/operators": lowering,
    "dmlgpu/reference": reference.find,
    "dmlgpu/conformance/cases/families": lambda operator: type(OPERATOR_CASES[operator.lower()]),
}
"""The packages whose modules hold a part of each operator, and how to find an operator's."""

COMPILING = ("dmlgpu/catalog/", "dmlgpu/compiler/")
RUNNING = ("dmlgpu/runtime/", "dmlgpu/conformance/cases/", "dmlgpu/conformance/running/")

_INCLUDE = re.compile(r"\{% (?:include|import) ([^%]*)%\}")
_QUOTED = re.compile(r'"(\w+/\w+)"')
_RENDERED = re.compile(r"^// ---- shaders/([\w/]+)\.wgsl$", re.MULTILINE)


def cases_of_operator(operator: str, most: int) -> list[str]:
    """Return cases of an operator: the quick ones, then the first of the standard ones, which cover most."""
    stem = operator.lower()
    return list(dict.fromkeys([*quick_names().get(stem, ()), *OPERATOR_CASES[stem].names("standard")]))[:most]


def cases_of_file(file: str, most: int) -> list[str]:
    """Return quick cases that a file concerns, in even steps over the operators; none where no case depends on it."""
    folder = file.rpartition("/")[0]
    everything = [name for names in quick_names().values() for name in names]
    if folder in PARTS:
        stems = {operator.lower() for operator in operators_of_module(file)}
        return spread([name for stem in sorted(stems) for name in quick_names().get(stem, ())], most)
    if file.startswith("shaders/"):
        uses = functools.partial(renders, file.removeprefix("shaders/").removesuffix(".wgsl"))
    elif file.startswith(COMPILING):
        uses = functools.partial(runs_through, ROOT / file)
    else:
        return spread(everything, most) if file.startswith(RUNNING) else []
    descs = {name: case_by_name(name).desc for name in everything}
    return spread([name for name, desc in descs.items() if any(uses(desc, target) for target in TARGETS)], most)


def spread(names: Sequence[str], most: int) -> list[str]:
    """Return at most ``most`` names, in even steps."""
    step = max(1.0, len(names) / most)
    return [names[int(number * step)] for number in range(min(most, len(names)))]


def operators_of_module(file: str) -> list[str]:
    """Return the operators of which a module, or one of its package that imports it, directly or not, holds a part."""
    package = file.rpartition("/")[0]
    modules = {path.removesuffix(".py").replace("/", ".") for path in importing(file, ROOT / package)}
    return [name for name in sorted(operators.implemented()) if PARTS[package](name).__module__ in modules]


def runs_through(path: Path, desc: OperatorDesc, target: Target) -> bool:
    """Return whether compiling a description calls a function of a file."""
    filename, called = str(path), False

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal called
        called = called or (event == "call" and frame.f_code.co_filename == filename)

    programs.clear()
    sys.setprofile(note)
    try:
        compile_operator(desc, target)
    except NotSupported:
        pass
    finally:
        sys.setprofile(None)
    return called


def renders(shader: str, desc: OperatorDesc, target: Target) -> bool:
    """Return whether a shader file, or one that includes it, is part of a description's kernels."""
    try:
        program = compile_operator(desc, target)
    except NotSupported:
        return False
    texts = [kernel.wgsl for kernel in (*program.kernels, *program.initialization)]
    if shader.startswith("lib/"):
        functions = declared(templates.source(shader))
        return any(not declared(text).isdisjoint(functions) for text in texts)
    return any(not including(shader).isdisjoint(_RENDERED.findall(text)) for text in texts)


@functools.cache
def including(shader: str) -> frozenset[str]:
    """Return a shader file and all that include it, directly or not."""
    files = [file for folder in templates.folders() for file in templates.files(folder)]
    includes = {file: set(_QUOTED.findall(" ".join(_INCLUDE.findall(templates.source(file))))) for file in files}
    changed = {shader}
    while more := {other for other, included in includes.items() if included & changed} - changed:
        changed |= more
    return frozenset(changed)


@dataclass(frozen=True)
class Named(ConformanceRequest):
    """A request for some cases by name."""

    chosen: tuple[str, ...] = ()

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The cases' names."""
        return self.chosen


if __name__ == "__main__":
    everywhere = Named(drivers=("all",), suite="operators", workers=os.cpu_count() or 1, chosen=tuple(sys.argv[1:]))
    sys.exit(not test(everywhere))
