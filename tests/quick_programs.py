"""The programs of the quick profile's cases for an adapter with nothing but what the WebGPU standard gives."""

from __future__ import annotations

import functools

from dmlgpu.compiler import compile_operator
from dmlgpu.conformance.cases import case_by_name
from dmlgpu.conformance.suites.operators import quick_names
from dmlgpu.errors import NotSupported
from dmlgpu.program import Program
from dmlgpu.target import Profile, Target

PROFILES = (Profile.CPU, Profile.DISCRETE)
"""The two families of schedules."""

STANDARD = {profile: Target("a browser", profile) for profile in PROFILES}
"""Default limits, no feature."""


@functools.cache
def quick_programs(profile: Profile) -> tuple[dict[str, Program], dict[str, str]]:
    """The programs by case, and why the others are refused."""
    programs, refusals = {}, {}
    for name in quick_names():
        try:
            programs[name] = compile_operator(case_by_name(name).desc, STANDARD[profile])
        except NotSupported as error:
            refusals[name] = str(error)
    return programs, refusals
