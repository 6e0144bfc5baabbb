"""The programs of the quick profile's cases for an adapter with the features of the WebGPU standard only."""

from __future__ import annotations

import functools
from collections.abc import Callable

from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Program, Slot
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.cases.registry import case_by_name, case_names

PROFILES = (Profile.CPU, Profile.DISCRETE)
"""The two families of schedules."""

STANDARD = {profile: Target("a browser", profile) for profile in PROFILES}
"""Default limits, no feature."""


@functools.cache
def quick_programs(profile: Profile, specialized: bool = True) -> tuple[dict[str, Program], dict[str, str]]:
    """The programs by case, and why the others are refused."""
    programs, refusals = {}, {}
    target = STANDARD[profile] if specialized else STANDARD[profile].general
    for name in case_names("quick"):
        try:
            programs[name] = compile_operator(case_by_name(name).desc, target)
        except NotSupported as error:
            refusals[name] = str(error)
    return programs, refusals


Place = Callable[[Slot], tuple[object, int]]
"""Where a slot's resource lies: the buffer and the offset."""


def packed(program: Program) -> Place:
    """All tensors in one buffer, 16 bytes or less between them; temporary and persistent resources after them."""
    ends: dict[tuple[Role, int], int] = {}
    for kernel in (*program.initialization, *program.kernels):
        for slot in kernel.slots:
            key = slot.role, slot.index
            ends[key] = max(ends.get(key, 0), slot.offset + slot.size)
    offsets, end = {}, 16
    for key in sorted(ends, key=lambda key: (key[0] in (Role.TEMPORARY, Role.PERSISTENT), key)):
        grain = 256 if key[0] in (Role.TEMPORARY, Role.PERSISTENT) else 16
        offsets[key] = -(-end // grain) * grain
        end = offsets[key] + ends[key]
    return lambda slot: ("arena", offsets[slot.role, slot.index])
