"""Selection of the cases that a mutant can change: those whose shaders contain the changed text. The others need not
run."""

from __future__ import annotations

import functools
import re
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidArgument, NotSupported, ShaderError
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.program_cache import without_files
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.compiler.wgsl import library, templates
from dmlgpu.conformance.accuracy.functions import FUNCTIONS, LibraryFunction, kernel
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.registry import case_by_name
from dmlgpu.conformance.mutation.rules import (
    NEARLY_RIGHT,
    SLIPS,
    Mutant,
    mutant_by_name,
    mutants_of,
    sample,
    shader_files,
)
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.pool import Job, WorkerProcess
from dmlgpu.conformance.running.runner import run_case, with_folded_grids
from dmlgpu.conformance.suites.accuracy import AccuracySuite
from dmlgpu.conformance.suites.hazards import HazardSuite
from dmlgpu.conformance.suites.operators import OperatorSuite
from dmlgpu.conformance.suites.special_values import INFIX, SpecialValueSuite
from dmlgpu.runtime import wgpu as gpu
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.device import Device

PROFILES = (Profile.CPU, Profile.DISCRETE)
"""Schedules for CPUs and for GPUs: each adapter runs both kinds."""

HAZARDS = HazardSuite()

_TAKEN_IN = re.compile(r"\{% (?:include|import) ([^%]*)%\}")
_PATH = re.compile(r"\"(\w+/\w+)\"")
_RENDERED = re.compile(r"^// ---- shaders/([\w/]+)\.wgsl$", re.MULTILINE)
_DECLARED = re.compile(r"^(?:fn|const|struct|alias)\s+(\w+)")


def case_of(name: str) -> Case:
    """Return a case of the operators, or of their special values."""
    return SpecialValueSuite().case(name) if INFIX in name else case_by_name(name)


def function_of(name: str) -> LibraryFunction | None:
    """Return the function of the math library that a case measures; None for another case."""
    return next((function for function in FUNCTIONS if function.name == name.partition("-")[0]), None)


def clear_caches() -> None:
    """Clear caches of rendered shaders, whose files have changed."""
    compiler.programs.clear()
    for cached in (library.declarations, library.uses):
        cached.cache_clear()


def shaders(name: str, target: Target) -> tuple[str, ...]:
    """Return the source of the kernels of a case; empty if the adapter lacks a required feature."""
    function = function_of(name)
    if function is not None:
        return (kernel(function.name, function.operands, 1, target.has("immediates")).body,)
    if HAZARDS.has(name):
        program = HAZARDS.program(name)
        target = target.with_policies(deterministic=target.policies.deterministic or program.deterministic)
        steps = dict.fromkeys(step for steps in program.lists for step in steps)
        return tuple(dict.fromkeys(text for step in steps for text in _texts_of(step.desc, target)))
    return _texts_of(case_of(name).desc, target)


def _texts_of(desc: OperatorDesc, target: Target) -> tuple[str, ...]:
    """Return the source of the kernels of an operator; shader files do not depend on bindings."""
    try:
        program = compiler.compile_operator(desc, target)
    except NotSupported:
        return ()
    return tuple(kernel.wgsl for kernel in (*program.kernels, *program.initialization))


class KernelCoverage:
    """Cases of a list by the shader files that their kernels contain, on a target.

    Args:
        names: Names of the cases.
        target: Target of the adapter; its profile does not matter.
    """

    def __init__(self, names: Sequence[str], target: Target):
        self._texts = {
            (profile, name): "\n".join(shaders(name, replace(target, profile=profile)))
            for profile in PROFILES
            for name in names
            if profile is Profile.CPU or function_of(name) is None
        }

    def cases_of(self, mutant: Mutant) -> Iterator[tuple[Profile, str]]:
        """Return the cases that a mutant may change."""
        if mutant.file.startswith("lib/"):
            word = re.compile(rf"\b{_declaration(mutant)}\b")
            yield from (key for key, text in self._texts.items() if word.search(text))
            return
        files = _including(mutant.file)
        for key, text in self._texts.items():
            if not files.isdisjoint(_RENDERED.findall(text)):
                yield key


def _declaration(mutant: Mutant) -> str:
    """Return the name of the library's function or constant that a mutant changes."""
    lines = templates.original(mutant.file).split("\n")[: mutant.line]
    matches = (_DECLARED.match(line) for line in reversed(lines))
    return next(match[1] for match in matches if match)


@functools.cache
def _includes() -> Mapping[str, frozenset[str]]:
    """Return the files that each file includes."""
    files = (file for folder in templates.folders() for file in templates.files(folder))
    return {file: frozenset(_PATH.findall(" ".join(_TAKEN_IN.findall(templates.original(file))))) for file in files}


@functools.cache  # bounded by the files
def _including(file: str) -> frozenset[str]:
    """Return a file and all that take it in, directly or not."""
    files = {file}
    while more := {other for other, taken in _includes().items() if taken & files} - files:
        files |= more
    return frozenset(files)


PER_FILE = {"quick": 1, "standard": 4, "full": None}
"""Number of slips of each shader file, by profile. From standard on, all formulas that are nearly correct are
included."""

RUN_LIMIT = 20.0
"""Timeout of one case with a mutant, in seconds; a mutant that hangs is caught."""

UNREACHED = "changes no kernel of these cases"


@functools.cache
def formula_names() -> tuple[str, ...]:
    """Return the names of all mutants that have a formula which is nearly right."""
    return tuple(str(mutant) for file in shader_files() for mutant in mutants_of(file, NEARLY_RIGHT))


class MutantSuite:
    """Mutants of every shader file."""

    profiles = tuple(PER_FILE)

    def __init__(self) -> None:
        self._worker: WorkerProcess | None = None
        self._done: dict[str, Outcome] = {}

    def names(self, profile: str) -> tuple[str, ...]:
        """Return the names of the mutants of a profile."""
        count = PER_FILE[profile]
        mutants_by_file = (mutants_of(file, SLIPS) if count is None else sample(file, count) for file in shader_files())
        slips = [str(mutant) for mutants in mutants_by_file for mutant in mutants]
        return tuple(slips) if profile == "quick" else (*slips, *formula_names())

    def has(self, name: str) -> bool:
        """Return whether a name denotes a mutant."""
        try:
            mutant_by_name(name)
        except InvalidArgument:
            return False
        return True

    def run(self, name: str, device: Device) -> Outcome:
        """Run cases with a mutant until one fails. A second run returns the result of the first.

        Raises:
            InvalidArgument: If the rule no longer applies at this place of the shader file.
        """
        if name not in self._done:
            self._done[name] = self._run(name, device)
        return self._done[name]

    def _run(self, name: str, device: Device) -> Outcome:
        mutant, start = mutant_by_name(name), time.perf_counter()
        change = f"{mutant.before}  ->  {mutant.after}"
        changed = 0
        for profile, case in self._cases(mutant, device):
            outcome = self._run_one(SEPARATOR.join((name, profile, case)), device)
            changed += outcome.message != UNCHANGED
            if outcome.status is Status.NOT_SUPPORTED:
                return _outcome(name, Status.NOT_SUPPORTED, f"{change}: it is no shader", start)
            if outcome.status.is_failure:
                message = f"{change}: caught by {case} ({profile} schedules): {outcome.message}"
                return replace(_outcome(name, Status.PASS, message, start), kernels=outcome.kernels)
        passed = f"passes all {changed} cases whose kernels it changes" if changed else UNREACHED
        return _outcome(name, Status.FAIL, f"{change}: {passed}", start)

    def _cases(self, mutant: Mutant, device: Device) -> Iterator[tuple[Profile, str]]:
        """Yield the cases that a mutant may change, operators mixed: most faults show in many of them."""
        cases = list(self._coverage(device.backend.target.exact).cases_of(mutant))
        order = np.random.default_rng(zlib.crc32(str(mutant).encode())).permutation(len(cases))
        yield from sorted(
            (cases[index] for index in order),
            key=lambda case: case[0] is not Profile.CPU,
        )

    def _run_one(self, name: str, device: Device) -> Outcome:
        if self._worker is None:
            index = adapters().index(device.adapter)
            self._worker = WorkerProcess(
                Job("mutant_runs", index, RUN_LIMIT, precise=device.backend.target.policies.precise)
            )
        return self._worker.run(name)

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        suites = OperatorSuite(), SpecialValueSuite(), HazardSuite(), AccuracySuite()
        return tuple(name for suite in suites for name in suite.names("quick"))

    @functools.lru_cache(maxsize=1)  # noqa: B019 - one suite per process
    def _coverage(self, target: Target) -> KernelCoverage:
        return KernelCoverage(self._names, target)


def _outcome(name: str, status: Status, message: str, start: float) -> Outcome:
    """Return the outcome of a mutant whose runs began at ``start``."""
    return Outcome(name, status, message=message, seconds=time.perf_counter() - start)


SEPARATOR = "|"

UNCHANGED = "the kernels are the same"


class MutantRunSuite:
    """Any case with any mutant."""

    profiles = ("quick",)

    def __init__(self) -> None:
        self._devices: dict[Profile, Device] = {}
        self._cases: dict[str, Case] = {}
        self._targets: dict[Profile, Target] = {}
        self._folded: dict[tuple[str, Profile], Target] = {}
        self._originals: dict[tuple[str, Profile], tuple[str, ...]] = {}

    def names(self, profile: str) -> tuple[str, ...]:
        """None: there are far too many to list."""
        return ()

    def has(self, name: str) -> bool:
        """Return whether a name denotes a run."""
        return name.count(SEPARATOR) == 2

    def run(self, name: str, device: Device) -> Outcome:
        """Run a case with shaders that have a fault.

        Returns:
            A failure where the case notices it, NOT_SUPPORTED where the mutant makes no shader, else a pass.
        """
        mutant, profile, case = name.split(SEPARATOR)
        faulty = self._device(device, Profile(profile))
        faulty.backend.target = self._target(case, Profile(profile))
        sound = self._original_shaders(case, faulty)
        known_mutant = mutant_by_name(mutant)
        clear_caches()  # of programs of another mutant, and of those without any
        with without_files(), templates.replaced(known_mutant.file, known_mutant.text):
            try:
                if shaders(case, faulty.backend.target.exact) == sound:
                    return Outcome(name, Status.PASS, message=UNCHANGED)
            except Exception as error:  # whatever a faulty template does
                return Outcome(name, Status.NOT_SUPPORTED, message=f"{type(error).__name__}: {error}")
            return self._run_case(name, case, faulty)

    def _run_case(self, name: str, case: str, faulty: Device) -> Outcome:
        try:
            if function_of(case) is not None:
                return replace(AccuracySuite().run(case, faulty), case=name)
            if HAZARDS.has(case):
                return replace(HAZARDS.run(case, faulty), case=name)
            verdict = run_case(self._with_reference(case), faulty)
        except ShaderError as error:
            return Outcome(name, Status.NOT_SUPPORTED, message=str(error))
        return Outcome(name, Status.PASS if verdict.ok else Status.FAIL, message=str(verdict), kernels=verdict.kernels)

    def _device(self, device: Device, profile: Profile) -> Device:
        """Return a device that takes the schedules of a profile, on the same adapter."""
        if profile not in self._devices:
            backend = gpu.GpuBackend(device.adapter, precise=device.backend.target.policies.precise)
            backend.target = replace(backend.target, profile=profile)
            self._devices[profile] = Device.from_backend(backend)
            self._targets[profile] = backend.target
        return self._devices[profile]

    def _target(self, case: str, profile: Profile) -> Target:
        """Return the target of a case: for an operator, with grids of two dimensions, found without a mutant."""
        plain = self._targets[profile]
        if function_of(case) is not None or HAZARDS.has(case):
            return plain
        if (case, profile) not in self._folded:
            clear_caches()
            try:
                self._folded[case, profile] = with_folded_grids(case_of(case).desc, plain.exact)
            except NotSupported:
                self._folded[case, profile] = plain
        return self._folded[case, profile]

    def _with_reference(self, name: str) -> Case:
        """Return the case with its reference's results: computed once, compared often."""
        if name not in self._cases:
            case = case_of(name)
            with np.errstate(all="ignore"):
                self._cases[name] = replace(case, documented=case.expected(case.inputs()))
        return self._cases[name]

    def _original_shaders(self, case: str, device: Device) -> tuple[str, ...]:
        """Return the kernels of a case without a mutant."""
        target = device.backend.target.exact
        key = case, target.profile
        if key not in self._originals:
            clear_caches()
            self._originals[key] = shaders(case, target)
        return self._originals[key]
