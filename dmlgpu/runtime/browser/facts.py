"""Facts that a page reports about its browser and adapter, which are not trusted, and the target made of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.quirks import with_quirks
from dmlgpu.compiler.target import AdapterInfo, Matrices, MatrixDialect, Policies, Profile, Target
from dmlgpu.runtime.matrix_products import combined, configured_units

BACKEND: Final = "Browser"
"""The backend of pages' adapters."""

PACKED_PRODUCTS: Final = "packed_4x8_integer_dot_product"
"""WGSL language feature of products of packed 8-bit integers."""

SUBGROUP_MATRIX: Final = "chromium-experimental-subgroup-matrix"
"""Feature of matrix units, which pages report if they also have subgroups."""

FEATURES: Final = ("shader-f16", "timestamp-query", PACKED_PRODUCTS, SUBGROUP_MATRIX)
"""Features that are used if the page's adapter, or the browser's WGSL, has them."""

_MATRIX: Final = {"rows": "M", "columns": "N", "steps": "K"}
_LANES: Final = "max-subgroup-size"
_UNITS: Final = {"f16": "matrix", "f32": "float-matrix", "i8": "integer-matrix"}

# Per limit of WebGPU its name as wgpu writes it, the least and the most that is believed.
_LIMITS: Final = {
    "maxStorageBuffersPerShaderStage": ("max-storage-buffers-per-shader-stage", 8, 1024),
    "maxStorageBufferBindingSize": ("max-storage-buffer-binding-size", 1 << 16, 1 << 40),
    "maxBufferSize": ("max-buffer-size", 1 << 16, 1 << 40),
    "minStorageBufferOffsetAlignment": ("min-storage-buffer-offset-alignment", 16, 256),
    "maxComputeInvocationsPerWorkgroup": ("max-compute-invocations-per-workgroup", 64, 1 << 16),
    "maxComputeWorkgroupStorageSize": ("max-compute-workgroup-storage-size", 1 << 12, 1 << 24),
    "maxComputeWorkgroupsPerDimension": ("max-compute-workgroups-per-dimension", 1 << 10, 1 << 31),
}
_INTEGRATED = ("apple", "arm", "qualcomm", "img-tec", "samsung", "intel", "broadcom")
_SOFTWARE = ("swiftshader", "llvmpipe", "basic render")
_BROWSERS = (
    ("Edge", r"Edg[A-Z]*/(\d+)"),
    ("Opera", r"OPR/(\d+)"),
    ("Firefox", r"(?:Firefox|FxiOS)/(\d+)"),
    ("Chrome", r"(?:Chrome|CriOS)/(\d+)"),
    ("Safari", r"Version/(\d+[.\d]*) .*Safari/"),
)
_PROFILES = {"cpu": Profile.CPU, "integrated": Profile.INTEGRATED}


def plain(text: object, limit: int = 80) -> str:
    """Return a page's text, reduced to letters, digits and a few signs, at most ``limit`` characters."""
    allowed = re.sub(r"[^A-Za-z0-9 ._/()+-]+", " ", text) if isinstance(text, str) else ""
    return " ".join(allowed.split())[:limit].strip()


def adapter_info(facts: object, index: int) -> AdapterInfo:
    """Return a page's adapter.

    Args:
        facts: Report of the page: ``vendor``, ``architecture``, ``device``, ``description``, ``browser`` (its user
            agent), ``fallback``, ``features`` (also those of WGSL), ``limits`` and ``matrices``, as WebGPU names them.
        index: 1-based index of the page on the server.

    Raises:
        InvalidArgument: If a limit is missing, no integer, or beyond all reason.
    """
    if not isinstance(facts, Mapping):
        raise InvalidArgument(f"page: facts must be an object, got {type(facts).__name__}")
    vendor, architecture = plain(facts.get("vendor")), plain(facts.get("architecture"))
    device = plain(facts.get("description")) or plain(facts.get("device"))
    name = device or " ".join(filter(None, (vendor, architecture))) or "unknown adapter"
    features = facts.get("features")
    names = features if isinstance(features, list) else []
    driver = _browser(facts.get("browser")) + (f", page {index}" if index > 1 else "")
    return AdapterInfo(
        name=name,
        backend=BACKEND,
        kind=_kind(f"{vendor} {architecture} {device}".lower(), vendor.lower(), facts.get("fallback") is True),
        vendor=vendor,
        driver=driver,
        features=tuple(feature for feature in FEATURES if feature in names),
        limits=_limits(facts.get("limits")) | _matrix_limits(facts.get("matrices"), vendor),
    )


def target_of(
    info: AdapterInfo, *, deterministic: bool = False, precise: bool = False, disabled_features: Collection[str] = ()
) -> Target:
    """Return the target of a page's adapter; the arguments are those of ``Device``."""
    limits, features = info.limits, frozenset(info.features) - set(disabled_features)
    target = Target(
        name=info.name,
        profile=_PROFILES.get(info.kind, Profile.DISCRETE),
        features=features,
        backend=info.backend,
        vendor=info.vendor,
        driver=info.driver,
        multiplies_words=PACKED_PRODUCTS in features,
        max_storage_buffers=limits["max-storage-buffers-per-shader-stage"],
        max_workgroups_per_dimension=limits["max-compute-workgroups-per-dimension"],
        max_workgroup_invocations=limits["max-compute-invocations-per-workgroup"],
        max_workgroup_storage=limits["max-compute-workgroup-storage-size"],
        max_binding_size=limits["max-storage-buffer-binding-size"],
        policies=Policies(deterministic, precise),
    )
    return with_quirks(target)


def units_of(info: AdapterInfo) -> Matrices | None:
    """Return the matrix units that a page reported; None if it has none."""
    return combined(*(_units_of(info, name, component) for component, name in _UNITS.items()))


def _units_of(info: AdapterInfo, name: str, component: str) -> Matrices | None:
    rows, columns, steps = (info.limits.get(f"{name}-{size}", 0) for size in _MATRIX)
    if not {SUBGROUP_MATRIX, "shader-f16"} <= set(info.features) or not rows:
        return None
    lanes, turns = info.limits[_LANES], info.vendor.lower() != "nvidia"
    return Matrices(rows, columns, steps, lanes=lanes, dialect=MatrixDialect.TINT, turns=turns, component=component)


def _matrix_limits(listed: object, vendor: str) -> dict[str, int]:
    """Return the sizes of matrices that kernels use, among those that a page lists; ones that are beyond all reason do
    not count."""
    configurations = [
        {
            "component_type": each.get("componentType"),
            "result_component_type": each.get("resultComponentType"),
            **{name.lower(): each[name] for name in _MATRIX.values()},
            "max_subgroup_size": each["lanes"],
        }
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, Mapping)
        and all(type(each.get(name)) is int and 4 <= each[name] <= 128 for name in (*_MATRIX.values(), "lanes"))
    ]
    units = configured_units(configurations, turns=vendor.lower() != "nvidia")
    limits: dict[str, int] = {}
    for matrices in (units, units.floats, units.integers) if units else ():
        if matrices is not None:
            name = _UNITS[matrices.component]
            limits |= {f"{name}-{size}": getattr(matrices, size) for size in _MATRIX} | {_LANES: matrices.lanes}
    return limits


def _limits(limits: object) -> dict[str, int]:
    known = {}
    for name, (written, minimum, maximum) in _LIMITS.items():
        value: Any = limits.get(name) if isinstance(limits, Mapping) else None
        if type(value) is not int or not minimum <= value <= maximum:
            raise InvalidArgument(
                f"page: limit {name} must be an integer from {minimum:,} to {maximum:,}, got {value!r:.40}"
            )
        known[written] = value
    if known["min-storage-buffer-offset-alignment"] & (known["min-storage-buffer-offset-alignment"] - 1):
        raise InvalidArgument("page: limit minStorageBufferOffsetAlignment must be a power of two")
    return known


def _kind(text: str, vendor: str, fallback: bool) -> str:
    """Return the kind of an adapter; WebGPU reports it only for fallback adapters, which run on the CPU."""
    if fallback or any(name in text for name in _SOFTWARE):
        return "cpu"
    return "integrated" if vendor in _INTEGRATED else "unknown"


def _browser(agent: object) -> str:
    """Return a browser's name and version."""
    for name, pattern in _BROWSERS:
        if isinstance(agent, str) and (match := re.search(pattern, agent[:500])):
            return f"{name} {match[1]}"[:40]
    return "unknown browser"
