"""Quirks: faults of drivers and WebGPU libraries that compiled kernels avoid (``quirks.toml``)."""

from __future__ import annotations

import fnmatch
import functools
import operator
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from typing import Any, Final

from dmlgpu.common.errors import InvalidArgument, ModelError, shown
from dmlgpu.common.files import toml_tables
from dmlgpu.compiler.target import AdapterInfo, Facts, Target, api_of

VARIABLE: Final = "DMLGPU_QUIRKS"
"""Environment variable that ignores the quirks of all adapters if it is ``OFF``."""

OFF: Final = "off"
CASE: Final = "quirk-"
"""Beginning of the names of the conformance cases that show quirks."""


@dataclass(frozen=True)
class Quirk:
    """A fault of some adapters, and what kernels do without because of it.

    Attributes:
        name: Name, in kebab case.
        why: The fault, as a clause.
        link: A page about it.
        wgsl: Shader that shows it, whose only binding, number 0 of group 0, is an array of u32.
        before, after: Words of this array before one workgroup has run, and afterwards on a correct driver.
        backend, vendor, device: Shell patterns of the adapter's facts, in any case; empty ones match all.
        driver, library: Versions of the driver and of the package of the WebGPU library: ``Mesa <25``.
        schedules: Schedules that are not taken, by kind and name: ``map/transpose``.
        features: Features that are not used, by their WebGPU names.
        sets: Values of ``Facts`` by name, and of ``checked``.
        remedy: What to install instead. Opening such an adapter warns if it is given: kernels of the user have the
            fault too.
    """

    name: str
    why: str
    link: str
    wgsl: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    backend: str = ""
    vendor: str = ""
    device: str = ""
    driver: str = ""
    library: str = ""
    schedules: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    sets: Mapping[str, int] = field(default_factory=dict, hash=False)
    remedy: str = ""

    @property
    def case(self) -> str:
        """Name of the conformance case that shows it."""
        return f"{CASE}{self.name}"

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"

    def has(self, adapter: AdapterInfo | Facts) -> bool:
        """Return whether an adapter has the fault."""
        return describes(adapter, self.backend, self.vendor, self.device, driver=self.driver, library=self.library)


def describes(
    adapter: AdapterInfo | Facts, backend: str, vendor: str, device: str, *, driver: str, library: str
) -> bool:
    """Return whether patterns describe an adapter; empty ones match all.

    Args:
        adapter: The adapter.
        backend, vendor, device: Shell patterns of its facts, in any case.
        driver, library: Versions of its driver, and of the package of the WebGPU library (see ``in_versions``).
    """
    texts = ((backend, api_of(adapter.backend)), (vendor, adapter.vendor), (device, adapter.name))
    are_alike = all(fnmatch.fnmatchcase(text.lower(), (pattern or "*").lower()) for pattern, text in texts)
    is_driven = are_alike and in_versions(driver, adapter.driver)
    return is_driven and (not library or in_versions(library, _library(adapter)))


_COMPARISONS: Final = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_BOUND = re.compile(r"([<>]=?|[=!]=) *(\d+(?:\.\d+)*)")


def in_versions(versions: str, text: str) -> bool:
    """Return whether a description of a driver or library names one of some versions.

    Args:
        versions: A name and bounds, ``Mesa >=22, <25``. Without a name, they hold for the first number with a dot.
            Empty matches all.
        text: The text, such as ``4.5 (Core Profile) Mesa 22.3.6``.

    Raises:
        ValueError: If `versions` has another form.
    """
    if not versions:
        return True
    name = re.split("[<>=!]", versions)[0].strip()
    bounds = [_BOUND.fullmatch(bound.strip()) for bound in versions.strip().removeprefix(name).split(",")]
    named = re.search(rf"\b{re.escape(name)} *(\d[\d.]*)" if name else r"(\d+(?:\.\d+)+)", text, re.IGNORECASE)
    if None in bounds:
        raise ValueError(f"must be versions such as '>=25.0, <25.1' or 'Mesa <25', got {versions!r}")
    return named is not None and all(
        _COMPARISONS[bound[1]](_numbers(named[1]), _numbers(bound[2])) for bound in bounds if bound
    )


def _numbers(version: str) -> list[int]:
    """Return the numbers of a version without zeros at its end: 25.0 is 25."""
    return [int(number) for number in re.sub(r"(\.0*)+$", "", version).split(".")]


def _library(adapter: AdapterInfo | Facts) -> str:
    """Return the library that runs an adapter, with its version: a browser, NumPy, or the package wgpu or wgpudawn."""
    from importlib import metadata  # noqa: PLC0415 - few quirks need it

    if adapter.backend in ("Browser", "NumPy"):
        return adapter.driver
    package = "wgpu" if adapter.backend == api_of(adapter.backend) else "wgpudawn"
    return f"{package} {metadata.version(package)}"


# ---- the quirks of an adapter ----------------------------------------------------------------------------------------


def quirks_of(adapter: AdapterInfo | Facts) -> tuple[Quirk, ...]:
    """Return the quirks of an adapter, in the file's order, also if they are ignored."""
    return tuple(quirk for quirk in quirks() if quirk.has(adapter))


def quirks_in_force(adapter: AdapterInfo | Facts) -> tuple[Quirk, ...]:
    """Return the quirks of an adapter that kernels avoid: none if the environment variable DMLGPU_QUIRKS is ``off``.

    Raises:
        InvalidArgument: If the variable has another value.
    """
    return () if are_ignored() else quirks_of(adapter)


def are_ignored() -> bool:
    """Return whether quirks are ignored. Raises InvalidArgument as ``quirks_in_force``."""
    value = os.environ.get(VARIABLE, "").strip().lower()
    if value not in ("", OFF):
        raise InvalidArgument(f"{VARIABLE} must be {OFF}, or not set, got {shown(value)}")
    return value == OFF


def with_quirks(target: Target) -> Target:
    """Return the target without what the quirks of its adapter exclude."""
    for quirk in quirks_in_force(target):
        values: dict[str, Any] = dict(quirk.sets)
        checked = bool(values.pop("checked", target.policies.checked))
        excluded = target.overrides.excluded.union(quirk.schedules)
        target = replace(target, features=target.features.difference(quirk.features), **values)
        target = target.with_policies(checked=checked).with_overrides(excluded=excluded)
    return target


# ---- the file --------------------------------------------------------------------------------------------------------

_KINDS: Final[Mapping[str, type | tuple[type]]] = {
    **dict.fromkeys(("name", "backend", "vendor", "device", "driver", "library", "why", "remedy", "link", "wgsl"), str),
    **dict.fromkeys(("schedules", "features"), (str,)),
    "sets": dict,
    **dict.fromkeys(("before", "after"), (int,)),
}
"""Types of the values of a quirk, by key."""

_SETS: Final = {
    fact.name: type(fact.default) if isinstance(fact.default, int) else int
    for fact in fields(Facts)
    if isinstance(fact.default, int) or fact.name in ("least_copy", "loop_limit")
} | {"checked": bool}
"""Types of the values that a quirk may set, by name."""


@functools.cache
def quirks() -> tuple[Quirk, ...]:
    """Return all quirks of the file."""
    return read_quirks((files("dmlgpu.compiler") / "quirks.toml").read_text(encoding="utf-8"), "quirks.toml")


def read_quirks(text: str, where: str) -> tuple[Quirk, ...]:
    """Return the quirks of a TOML text.

    Raises:
        ModelError: If it is malformed; the message names file, line and key.
    """
    required = ("name", "why", "link", "wgsl", "before", "after")
    return tuple(_quirk(place, values) for place, values in toml_tables(text, where, "quirk", _KINDS, required))


def _quirk(place: str, values: Mapping[str, Any]) -> Quirk:
    """Return one quirk, validated."""
    quirk = Quirk(**values)
    for name, value in quirk.sets.items():
        if name not in _SETS:
            raise ModelError(f"{place}.sets.{name}", f"is unknown; there are {', '.join(_SETS)}")
        if type(value) is not _SETS[name]:
            kind = "true or false" if _SETS[name] is bool else "an integer"
            raise ModelError(f"{place}.sets.{name}", f"must be {kind}, got {value!r}")
    for key in ("driver", "library"):
        try:
            in_versions(values.get(key, ""), "")
        except ValueError as error:
            raise ModelError(f"{place}.{key}", str(error)) from error
    if not (quirk.schedules or quirk.features or quirk.sets):
        raise ModelError(place, "has no effect: it needs schedules, features or sets")
    return quirk
