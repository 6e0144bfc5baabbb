"""Adapters of the machine: listing, description, and compile targets."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection
from typing import Any

from dmlgpu.common.errors import AdapterNotFound, InvalidArgument, shown
from dmlgpu.compiler.quirks import with_quirks
from dmlgpu.compiler.target import (
    MIN_LANES,
    PARAMETER_BYTES,
    SCHEDULES,
    SCHEDULES_VARIABLE,
    AdapterInfo,
    Overrides,
    Policies,
    Profile,
    Target,
    Tuned,
)
from dmlgpu.compiler.tuned_files import tuned_for
from dmlgpu.runtime.wgpu import forks, probes
from dmlgpu.runtime.wgpu.libraries import dawn
from dmlgpu.runtime.wgpu.library import Library
from dmlgpu.runtime.wgpu.native import NATIVE

FEATURES = (
    "immediates",
    "mappable-primary-buffers",
    "shader-f16",
    "shader-f64",
    "shader-int64",
    "subgroup",
    "timestamp-query",
)
"""Features to enable if available. Enabling all fails on drivers with experimental ones."""

_KINDS = {"CPU": "cpu", "IntegratedGPU": "integrated", "DiscreteGPU": "discrete"}
_PROFILES = {"cpu": Profile.CPU, "integrated": Profile.INTEGRATED, "discrete": Profile.DISCRETE}
_MIN_COPY = 64 << 10  # a copy between buffers ends a compute pass
_MAX_CORES = 4  # beyond them, kernels of a software adapter copy faster than one thread, which makes its copies


def describe(library: Library, info: Any, features: Collection[str], limits: dict[str, int]) -> AdapterInfo:
    """Return the description of a library's adapter or device from its ``info``, features and limits."""
    known = library.features(features, limits)
    prefix = "" if library is NATIVE else f"{library.name} "
    return AdapterInfo(
        name=info["device"],
        backend=prefix + info["backend_type"],
        kind=_KINDS.get(info["adapter_type"], "unknown"),
        vendor=info["vendor"],
        driver=library.driver(info),
        features=tuple(feature for feature in FEATURES if feature in known),
        limits=dict(limits),
    )


@functools.cache  # bounded by the number of libraries
def _enumerated(library: Library) -> tuple[tuple[AdapterInfo, Any], ...]:
    forks.use_drivers("adapters")
    return tuple(
        (describe(library, adapter.info, adapter.features, adapter.limits), adapter) for adapter in library.adapters()
    )


def adapters() -> tuple[AdapterInfo, ...]:
    """Return the adapters that wgpu-native reaches, in its order. Enumerated once per process.

    Raises:
        InvalidState: In a process forked from one that had loaded drivers without looking for adapters here.
    """
    return tuple(info for info, _ in _enumerated(NATIVE))


def dawn_adapters() -> tuple[AdapterInfo, ...]:
    """Return the adapters that Dawn reaches, in its order; none if it is not installed. Raises as ``adapters``."""
    library = dawn()
    return () if library is None else tuple(info for info, _ in _enumerated(library))


def wgpu_adapter(info: AdapterInfo) -> Any:
    """Return the adapter of an entry of ``adapters()``, as its library's object.

    Raises:
        AdapterNotFound: If the entry is not one of this machine's.
    """
    library = dawn() if info.is_of_dawn else NATIVE
    enumerated = () if library is None else _enumerated(library)
    # Two equal cards compare equal, so the very object goes first.
    for known, adapter in enumerated:
        if known is info:
            return adapter
    for known, adapter in enumerated:
        if known == info:
            return adapter
    raise AdapterNotFound(str(info), [str(known) for known, _ in enumerated])


def subgroup_lanes(info: AdapterInfo) -> int:
    """Return the minimum subgroup size: four, as WebGPU guarantees, or a value known from the adapter's name.

    wgpu-native does not report it. Mesa's llvmpipe names the width of its vectors, with 32 bits per thread.
    """
    width = re.match(r"llvmpipe \(LLVM [\d.]+, (\d+) bits\)", info.name)
    return max(MIN_LANES, int(width[1]) // 32) if width else MIN_LANES


def least_copy(info: AdapterInfo) -> int | None:
    """Return the minimum bytes for which copies between buffers are faster than kernels; None if they never are."""
    return _MIN_COPY if info.is_software and (os.cpu_count() or 1) <= _MAX_CORES else None


def profile_of(info: AdapterInfo) -> Profile:
    """Return the kind of adapter for which kernels are scheduled: its own, or that of the environment.

    Raises:
        InvalidArgument: If the environment variable has another value than those of ``SCHEDULES``.
    """
    own, profile = _PROFILES.get(info.kind, Profile.DISCRETE), _requested_profile()
    return own if profile is None or (own is Profile.CPU) == (profile is Profile.CPU) else profile


def _requested_profile() -> Profile | None:
    """Return the kind of adapter that the environment names, if any. Raises as ``profile_of``."""
    requested = os.environ.get(SCHEDULES_VARIABLE)
    if requested is None:
        return None
    if requested not in SCHEDULES:
        raise InvalidArgument(f"{SCHEDULES_VARIABLE} must be one of {', '.join(SCHEDULES)}, got {shown(requested)}")
    return SCHEDULES[requested]


def check_variables() -> None:
    """Check the environment variables that override targets, without an adapter.

    Raises:
        InvalidArgument: If a variable has an unknown value.
    """
    _requested_profile()
    for probe in probes.PROBES:
        probe.requested()


def target_of(
    info: AdapterInfo,
    *,
    features: Collection[str] | None = None,
    deterministic: bool = False,
    precise: bool = False,
    disabled_features: Collection[str] = (),
    tuned: Tuned | None = None,
) -> Target:
    """Return the compile target of an adapter.

    Args:
        features: Enabled features; None means all of the adapter.
        deterministic: Whether results must not depend on the order in which threads run.
        precise: Whether to exclude schedules that trade accuracy for speed.
        disabled_features: Features not to use.
        tuned: Choices that were found fastest; None takes those stored for the adapter.

    Raises:
        InvalidArgument: If a variable of the environment that overrides the target has an unknown value.
    """
    usable = set(info.features if features is None else features) - set(disabled_features)
    if info.limits["max-immediate-size"] < PARAMETER_BYTES:
        usable.discard("immediates")
    if not info.is_software:  # memory that the host reads in place is slow on a discrete GPU, as wgpu warns
        usable.discard("mappable-primary-buffers")
    target = Target(
        name=info.name,
        profile=profile_of(info),
        features=frozenset(usable),
        backend=info.backend,
        vendor=info.vendor,
        driver=info.driver,
        least_copy=least_copy(info),
        subgroup_lanes=subgroup_lanes(info),
        max_storage_buffers=info.limits["max-storage-buffers-per-shader-stage"],
        max_workgroups_per_dimension=info.limits["max-compute-workgroups-per-dimension"],
        max_workgroup_invocations=info.limits["max-compute-invocations-per-workgroup"],
        max_workgroup_storage=info.limits["max-compute-workgroup-storage-size"],
        max_binding_size=info.limits["max-storage-buffer-binding-size"],
        policies=Policies(deterministic, precise),
        overrides=Overrides(tuned=tuned_for(info) if tuned is None else tuned),
    )
    return with_quirks(probes.with_facts(info, target))
