"""Which cases a mutant can change: those whose shaders hold the changed text. The rest need not run."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler import aliasing
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Kernel, Slot
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.compiler.wgsl import linker, templates
from dmlgpu.compiler.wgsl.sharing import share, shared_texts
from dmlgpu.conformance.accuracy.functions import FUNCTIONS, LibraryFunction, kernel
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.registry import case_by_name
from dmlgpu.conformance.mutation.rules import Mutant
from dmlgpu.conformance.suites.hazards import HazardSuite
from dmlgpu.conformance.suites.programs import DispatchStep
from dmlgpu.conformance.suites.special_values import INFIX, SpecialValueSuite

PROFILES = (Profile.CPU, Profile.DISCRETE)
"""Schedules for processors and for GPUs: each adapter runs those of both kinds."""

HAZARDS = HazardSuite()

_TAKEN_IN = re.compile(r"\{% (?:include|import) ([^%]*)%\}")
_PATH = re.compile(r"\"(\w+/\w+)\"")
_RENDERED = re.compile(r"^// ---- shaders/([\w/]+)\.wgsl$", re.MULTILINE)
_DECLARED = re.compile(r"^(?:fn|const|struct|alias)\s+(\w+)")


def case_of(name: str) -> Case:
    """A case of the operators, or of their special values."""
    return SpecialValueSuite().case(name) if INFIX in name else case_by_name(name)


def function_of(name: str) -> LibraryFunction | None:
    """The function of the math library that a case measures; None for another case."""
    return next((function for function in FUNCTIONS if function.name == name.partition("-")[0]), None)


def clear_caches() -> None:
    """Make rendering start anew: what is kept from the shader files is no longer true."""
    compiler.programs.clear()
    shared_texts.clear()
    for kept in (linker.library, linker.calls):
        kept.cache_clear()


def shaders(name: str, target: Target) -> tuple[str, ...]:
    """The text of the kernels of a case; nothing where the adapter lacks what it needs."""
    function = function_of(name)
    if function is not None:
        return (kernel(function.name, function.operands, 1, target.has("immediates")),)
    if HAZARDS.has(name):
        program = HAZARDS.program(name)
        target = replace(target, deterministic=target.deterministic or program.deterministic)
        steps = dict.fromkeys(step for steps in program.lists for step in steps)
        return tuple(dict.fromkeys(text for step in steps for text in _shaders_as_bound(step, target)))
    return tuple(kernel.wgsl for kernel in _kernels_of(case_of(name).desc, target))


def _kernels_of(desc: OperatorDesc, target: Target) -> tuple[Kernel, ...]:
    try:
        program = compiler.compile_operator(desc, target)
    except NotSupported:
        return ()
    return (*program.kernels, *program.initialization)


def _shaders_as_bound(step: DispatchStep, target: Target) -> Iterator[str]:
    """The text of a dispatch's kernels, rendered for the slots that meet in its memory."""
    tensors = {Role.INPUT: step.sources, Role.OUTPUT: step.targets}

    def place(slot: Slot) -> aliasing.Range:
        bound = tensors[slot.role][slot.index] if slot.role in tensors else None
        if bound is None:
            return (slot.role, slot.index), slot.offset, slot.size
        return bound[1].buffer, bound[1].offset + slot.offset, slot.size

    for alone in _kernels_of(step.desc, target):
        layout = aliasing.layout(list(map(place, alone.slots)), alone.bindings, aliasing.OFFSET_ALIGNMENT)
        yield share(step.desc.operator, alone, layout.bindings).wgsl


class KernelCoverage:
    """The cases of a list, on a target, by what they are made of.

    Args:
        names: of the cases.
        target: of the adapter; its profile does not matter.
    """

    def __init__(self, names: Sequence[str], target: Target):
        self._texts = {
            (profile, name): "\n".join(shaders(name, replace(target, profile=profile)))
            for profile in PROFILES
            for name in names
            if profile is Profile.CPU or function_of(name) is None
        }

    def cases_of(self, mutant: Mutant) -> Iterator[tuple[Profile, str]]:
        """What a mutant may change."""
        if mutant.file.startswith("lib/"):
            word = re.compile(rf"\b{_declaration(mutant)}\b")
            yield from (key for key, text in self._texts.items() if word.search(text))
            return
        files = _including(mutant.file)
        for key, text in self._texts.items():
            if not files.isdisjoint(_RENDERED.findall(text)):
                yield key


def _declaration(mutant: Mutant) -> str:
    """The name of the library's function or constant that a mutant changes."""
    lines = templates.original(mutant.file).split("\n")[: mutant.line]
    found = (_DECLARED.match(line) for line in reversed(lines))
    return next(match[1] for match in found if match)


@functools.cache
def _includes() -> Mapping[str, frozenset[str]]:
    """What each file takes in."""
    files = (file for folder in templates.folders() for file in templates.files(folder))
    return {file: frozenset(_PATH.findall(" ".join(_TAKEN_IN.findall(templates.original(file))))) for file in files}


@functools.cache  # bounded by the files
def _including(file: str) -> frozenset[str]:
    """A file and all that take it in, directly or not."""
    found = {file}
    while more := {other for other, taken in _includes().items() if taken & found} - found:
        found |= more
    return frozenset(found)
