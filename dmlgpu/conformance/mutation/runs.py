"""The suite ``mutant_runs``: one mutant, one case. It passes where nobody notices the fault.

A run is named ``MUTANT|PROFILE|CASE``. An operator's grids are folded, so that their second dimension counts as well.
Runs are made in a process of their own (see ``suite.py``): mutants hang and crash.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dmlgpu.common.errors import NotSupported, ShaderError
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.compiler.wgsl import templates
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.mutation.coverage import HAZARDS, case_of, clear_caches, function_of, shaders
from dmlgpu.conformance.mutation.rules import mutant_by_name
from dmlgpu.conformance.running.grids import with_folded_grids
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.runner import run_case
from dmlgpu.conformance.suites.accuracy import AccuracySuite
from dmlgpu.runtime import wgpu as gpu
from dmlgpu.runtime.device import Device

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
        """Whether a name spells a run."""
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
        found = mutant_by_name(mutant)
        clear_caches()  # of programs of another mutant, and of those without any
        with templates.replaced(found.file, found.text):
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
        """A device that takes the schedules of a profile, on the same adapter."""
        if profile not in self._devices:
            backend = gpu.GpuBackend(device.adapter, precise=device.backend.target.precise)
            backend.target = replace(backend.target, profile=profile)
            self._devices[profile] = Device.from_backend(backend)
            self._targets[profile] = backend.target
        return self._devices[profile]

    def _target(self, case: str, profile: Profile) -> Target:
        """What a case is compiled for: an operator with grids of two dimensions, found without a mutant."""
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
        """The case with its reference's results: computed once, compared often."""
        if name not in self._cases:
            case = case_of(name)
            with np.errstate(all="ignore"):
                self._cases[name] = replace(case, documented=case.expected(case.inputs()))
        return self._cases[name]

    def _original_shaders(self, case: str, device: Device) -> tuple[str, ...]:
        """The kernels of a case without a mutant."""
        target = device.backend.target.exact
        key = case, target.profile
        if key not in self._originals:
            clear_caches()
            self._originals[key] = shaders(case, target)
        return self._originals[key]
