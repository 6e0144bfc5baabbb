"""Table of probes: measured facts about drivers, what overrides them, and the fields of ``Target`` they decide."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import wgpu

from dmlgpu.compiler.target import (
    COOPERATIVE,
    AdapterInfo,
    Division,
    Float16Conversions,
    Float16Encoding,
    Profile,
    Target,
)
from dmlgpu.runtime.wgpu import checks, cooperative, division, float16, subgroups
from dmlgpu.runtime.wgpu.measured import Probe


def _with_division(target: Target, facts: Collection[str]) -> Target:
    methods = (method for method in (Division.NATIVE, Division.FUSED) if method in facts)
    return replace(target, division=next(methods, Division.SOFTWARE))


def _with_conversions(target: Target, facts: Collection[str]) -> Target:
    usable = [Float16Encoding.PACK, *((Float16Encoding.F16,) if target.has("shader-f16") else ())]
    encoding = next((encoding for encoding in usable if encoding in facts), Float16Encoding.SOFTWARE)
    return replace(target, float16=Float16Conversions(float16.UNPACK in facts, encoding))


def _with_matrices(target: Target, facts: Collection[str]) -> Target:
    if cooperative.FASTER not in facts:
        return replace(_without(COOPERATIVE, target), matrices=None)
    # Only schedules for GPUs use matrix units. CPU adapters have them if the environment says so.
    return replace(target, profile=Profile.DISCRETE) if target.profile is Profile.CPU else target


def _with_float_matrices(target: Target, facts: Collection[str]) -> Target:
    if target.matrices is None or cooperative.FASTER in facts:
        return target
    return replace(target, matrices=replace(target.matrices, floats=None))


def _with_integer_matrices(target: Target, facts: Collection[str]) -> Target:
    if target.matrices is None or cooperative.FASTER in facts:
        return target
    return replace(target, matrices=replace(target.matrices, integers=None))


def _without(feature: str, target: Target) -> Target:
    return replace(target, features=target.features - {feature})


DIVISION: Final = Probe(
    name="division",
    measure=division.measure,
    decide=_with_division,
    variable="DMLGPU_DIVISION",
    values={"software": (), "fused": (Division.FUSED,), "native": (Division.NATIVE,)},
    assumed={"cpu": (Division.NATIVE,)},  # llvmpipe and SwiftShader use the CPU's operations
    avoided={Division.NATIVE: "quotients and square roots of the driver (not rounded correctly)"},
    builtins={Division.NATIVE: ("sqrt",)},
)

FLOAT16: Final = Probe(
    name="float16",
    measure=float16.measure,
    decide=_with_conversions,
    variable="DMLGPU_FLOAT16",
    values={
        "software": (),
        "pack": (float16.UNPACK, Float16Encoding.PACK),
        "f16": (float16.UNPACK, Float16Encoding.F16),
    },
    assumed={"cpu": ()},  # LLVM's code for conversions is no faster than integer arithmetic
    avoided={float16.UNPACK: "unpack2x16float (not exact)", Float16Encoding.PACK: "pack2x16float (not exact)"},
    builtins={float16.UNPACK: ("unpack2x16float",), Float16Encoding.PACK: ("pack2x16float",)},
)

CHECKS: Final = Probe(
    name="bounds",
    measure=checks.measure,
    decide=lambda target, facts: target.with_policies(checked=checks.LIMITED not in facts),
    variable="DMLGPU_CHECKS",
    values={"auto": None, "always": (), "never": (checks.LIMITED,)},
    # On CPU adapters, kernels without checks are slower: llvmpipe unrolls their loops too far.
    assumed={"cpu": (), "unknown": ()},
    # On Metal, Direct3D 12 and OpenGL, wgpu's checks are the only ones that limit accesses of buffers. Dawn keeps or
    # omits checks per device, and devices also run shaders of the user.
    applies=lambda info, features: info.backend == "Vulkan",
    avoided={checks.LIMITED: "kernels without checks of indices (the driver does not limit accesses of buffers)"},
)

SUBGROUPS: Final = Probe(
    name="subgroups",
    measure=subgroups.measure,
    decide=lambda target, facts: target if subgroups.FULL in facts else _without("subgroup", target),
    variable="DMLGPU_SUBGROUPS",
    values={"auto": None, "always": (subgroups.FULL,), "never": ()},
    assumed={"cpu": (subgroups.FULL,)},  # only llvmpipe and SwiftShader are known
    applies=lambda info, features: "subgroup" in features,
    avoided={subgroups.FULL: "subgroup operations (subgroups are not full, or shuffles are wrong)"},
)

MATRICES: Final = Probe(
    name="matrices",
    measure=cooperative.measure,
    decide=_with_matrices,
    variable="DMLGPU_MATRICES",
    values={"auto": None, "always": (cooperative.EQUAL, cooperative.FASTER), "never": ()},
    assumed={"cpu": ()},  # emulated: slower, and LLVM compiles them for up to a minute
    applies=lambda info, features: set(features) >= cooperative.NEEDED,
    avoided={cooperative.EQUAL: "matrix units (products are wrong)"},
)

FLOAT_MATRICES: Final = replace(
    MATRICES,
    name="float-matrices",
    measure=cooperative.measure_floats,
    decide=_with_float_matrices,
    avoided={cooperative.EQUAL: "matrix units for float32 (products are wrong)"},
)

INTEGER_MATRICES: Final = replace(
    MATRICES,
    name="integer-matrices",
    measure=cooperative.measure_integers,
    decide=_with_integer_matrices,
    avoided={cooperative.EQUAL: "matrix units for integers (products are wrong)"},
)

PROBES: Final = (DIVISION, FLOAT16, CHECKS, SUBGROUPS, MATRICES, FLOAT_MATRICES, INTEGER_MATRICES)
"""All probes, in the order in which they decide: matrices need subgroups, and those of float32 and integers are used
with those of float16."""


def with_facts(info: AdapterInfo, target: Target, device: wgpu.GPUDevice | None = None) -> Target:
    """Return a target with the fields that depend on facts about the driver.

    Args:
        info: The adapter.
        target: Target with the enabled features of the adapter.
        device: Device on which unknown facts are measured; without one, the fields that depend on them do not change.

    Raises:
        InvalidArgument: If an environment variable has an unknown value.
    """
    for probe in PROBES:
        facts = probe.facts(info, target.features, device)
        if facts is not None:
            target = probe.decide(target, facts)
    return target


def avoided(info: AdapterInfo) -> list[str]:
    """Return what kernels avoid on an adapter because a measurement found it wrong: ``pack2x16float (not exact)``.

    Raises:
        InvalidArgument: If an environment variable has an unknown value.
    """
    measured = [(probe, probe.known(info)) for probe in PROBES if probe.given(info, info.features) is None]
    return [
        description
        for probe, facts in measured
        if facts is not None
        for fact, description in probe.avoided.items()
        if fact not in facts
    ]
