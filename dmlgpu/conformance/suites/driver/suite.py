"""The suite ``driver``: kernels in plain WGSL that test the driver itself, not the kernels of dmlgpu.

A name has the area, the function, and the number of operands if there is one: ``driver-f32-exp-1024``,
``driver-flow-loop_for``, ``driver-memory-atomic-u32-add``. Results must be those that WGSL allows: integers exactly,
floats within an interval (see ``intervals``). The suite contains the cases of quirks, and a case per fact of a probe.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.cases.keys import PROFILES
from dmlgpu.conformance.running.outcome import Outcome
from dmlgpu.conformance.suites.driver import (
    control_flow,
    facts,
    float_functions,
    integer_functions,
    memory,
    subgroups,
)
from dmlgpu.conformance.suites.driver.kernel_case import KernelCase
from dmlgpu.conformance.suites.quirks import QuirkSuite
from dmlgpu.conformance.suites.registry import Suite
from dmlgpu.runtime.device import Device

PREFIX = "driver-"
TOLERANCE = "WGSL"
COUNTS: Mapping[str, tuple[int, ...]] = {"quick": (1024,), "standard": (1 << 14,), "full": (1 << 14, 1 << 18)}
"""Numbers of operands of a function by profile."""

_MAX_COUNT = 1 << 20
_COUNTED = re.compile(r"(.+)-([1-9]\d*)")


@cache
def _functions() -> Mapping[str, Callable[[int], KernelCase]]:
    """Return functions that make a case from the number of operands, by name."""
    cases: dict[str, Callable[[int], KernelCase]] = {}
    for of in float_functions.TYPES:
        for names, make in (
            (float_functions.functions_of(of), float_functions.function_case),
            (float_functions.vector_names(), float_functions.vector_case),
            (float_functions.matrix_names(), float_functions.matrix_case),
        ):
            for name in names:
                cases[f"{of}-{name}"] = partial(make, of, name)
    for name in integer_functions.FUNCTIONS:
        cases[name] = partial(integer_functions.function_case, name)
    return cases


@cache
def _kernels() -> Mapping[str, Callable[[], KernelCase]]:
    """Return functions that make the other cases, by name."""
    return {
        **{f"flow-{name}": partial(control_flow.flow_case, name) for name in control_flow.FUNCTIONS},
        **{f"memory-{name}": case for name, case in memory.CASES.items()},
        **{f"subgroup-{name}": partial(subgroups.subgroup_case, name) for name in subgroups.FUNCTIONS},
        **{f"subgroup-partial_{name}": partial(subgroups.partial_case, name) for name in subgroups.PARTIAL},
    }


@cache
def _large() -> Mapping[str, Callable[[], KernelCase]]:
    """Return functions that make the cases that the quick profile omits, by name."""
    return {f"memory-{name}": case for name, case in memory.LARGE_CASES.items()}


class DriverSuite(Suite):
    """Suite of builtin functions, control flow, memory, subgroups, facts of probes, and quirks."""

    profiles = PROFILES

    def __init__(self) -> None:
        self.quirks = QuirkSuite()

    def names(self, profile: str) -> tuple[str, ...]:
        names = [f"{name}-{count}" for count in COUNTS[profile] for name in _functions()]
        names += [*_kernels(), *([] if profile == "quick" else _large()), *facts.fact_cases()]
        return (*(f"{PREFIX}{name}" for name in names), *self.quirks.names(profile))

    def has(self, name: str) -> bool:
        return self.quirks.has(name) or self._is_fact(name) or self.case(name) is not None

    def run(self, name: str, device: Device) -> Outcome:
        """Run a case and judge its results by WGSL's rules.

        Raises:
            InvalidArgument: If no case has this name.
            NotSupported: If the adapter lacks a feature, or runs no shaders.
            ShaderError: If the kernel does not compile.
        """
        if self.quirks.has(name):
            return self.quirks.run(name, device)
        start = time.perf_counter()
        if self._is_fact(name):
            outcome = facts.run_fact(name, name.removeprefix(PREFIX), device)
            return replace(outcome, seconds=time.perf_counter() - start)
        case = self.case(name)
        if case is None:
            raise InvalidArgument(f"{name!r} names no case such as driver-f32-exp-1024")
        verdict = case().run(name, device)
        return Outcome.of_verdict(name, TOLERANCE, verdict, time.perf_counter() - start)

    @staticmethod
    def case(name: str) -> Callable[[], KernelCase] | None:
        """Return the function that makes the case of a kernel; None if no kernel has this name."""
        if not name.startswith(PREFIX):
            return None
        rest = name.removeprefix(PREFIX)
        counted = _COUNTED.fullmatch(rest)
        if counted and counted[1] in _functions():
            count = int(counted[2])
            is_valid = count % 64 == 0 and count <= _MAX_COUNT
            return (lambda: _functions()[counted[1]](count)) if is_valid else None
        return {**_kernels(), **_large()}.get(rest)

    @staticmethod
    def _is_fact(name: str) -> bool:
        return name.startswith(f"{PREFIX}{facts.PREFIX}-") and name.removeprefix(PREFIX) in facts.fact_cases()
