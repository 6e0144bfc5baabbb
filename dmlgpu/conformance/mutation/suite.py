"""The suite ``mutants``: does the quick profile catch faults in shaders?

Its cases are mutants (see ``rules.py``), named ``indexing/gather_nd1:14:58:true_for_false``. One passes when a quick
case of the operators, of their special values, of the hazards or of the math library fails with it, crashes or hangs;
it fails when all of them pass. Each mutant meets the cases whose kernels it changes, under the schedules for processors
and under those for GPUs.

Mutants that make no shader are refused; those that change no kernel of any of these cases fail as well. Those that
change no result are expected to fail, with the reason why, in ``survivors.toml``.
"""

from __future__ import annotations

import functools
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.mutation.coverage import KernelCoverage
from dmlgpu.conformance.mutation.rules import (
    NEARLY_RIGHT,
    SLIPS,
    Mutant,
    mutant_by_name,
    mutants_of,
    sample,
    shader_files,
)
from dmlgpu.conformance.mutation.runs import SEPARATOR, UNCHANGED
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.pool import Job, WorkerProcess
from dmlgpu.conformance.suites.accuracy import AccuracySuite
from dmlgpu.conformance.suites.hazards import HazardSuite
from dmlgpu.conformance.suites.operators import OperatorSuite
from dmlgpu.conformance.suites.special_values import SpecialValueSuite
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.device import Device

PER_FILE = {"quick": 1, "standard": 4, "full": None}
"""Slips of each shader file, by profile. From standard on, all formulas that are nearly right come too."""

RUN_LIMIT = 20.0
"""Seconds for one case with a mutant; what hangs is caught."""

UNREACHED = "changes no kernel of these cases"


@functools.cache
def formula_names() -> tuple[str, ...]:
    """The names of all mutants that have a formula which is nearly right."""
    return tuple(str(mutant) for file in shader_files() for mutant in mutants_of(file, NEARLY_RIGHT))


class MutantSuite:
    """Mutants of every shader file."""

    profiles = tuple(PER_FILE)

    def __init__(self) -> None:
        self._worker: WorkerProcess | None = None
        self._done: dict[str, Outcome] = {}

    def names(self, profile: str) -> tuple[str, ...]:
        """The names of the mutants of a profile."""
        most = PER_FILE[profile]
        found = (mutants_of(file, SLIPS) if most is None else sample(file, most) for file in shader_files())
        slips = [str(mutant) for mutants in found for mutant in mutants]
        return tuple(slips) if profile == "quick" else (*slips, *formula_names())

    def has(self, name: str) -> bool:
        """Whether a name spells a mutant."""
        try:
            mutant_by_name(name)
        except InvalidArgument:
            return False
        return True

    def run(self, name: str, device: Device) -> Outcome:
        """Run cases with a mutant until one notices it. A second run gives what the first one gave.

        Raises:
            InvalidArgument: when the shader file has nothing to change there any more.
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
        """The cases that a mutant may change, operators mixed: most faults show in many of them."""
        found = list(self._coverage(device.backend.target.exact).cases_of(mutant))
        order = np.random.default_rng(zlib.crc32(str(mutant).encode())).permutation(len(found))
        yield from sorted((found[number] for number in order), key=lambda found: found[0] is not Profile.CPU)

    def _run_one(self, name: str, device: Device) -> Outcome:
        if self._worker is None:
            number = adapters().index(device.adapter)
            self._worker = WorkerProcess(Job("mutant_runs", number, RUN_LIMIT, precise=device.backend.target.precise))
        return self._worker.run(name)

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        suites = OperatorSuite(), SpecialValueSuite(), HazardSuite(), AccuracySuite()
        return tuple(name for suite in suites for name in suite.names("quick"))

    @functools.lru_cache(maxsize=1)  # noqa: B019 - one suite per process
    def _coverage(self, target: Target) -> KernelCoverage:
        return KernelCoverage(self._names, target)


def _outcome(name: str, status: Status, message: str, start: float) -> Outcome:
    """What came of a mutant whose runs began then."""
    return Outcome(name, status, message=message, seconds=time.perf_counter() - start)
