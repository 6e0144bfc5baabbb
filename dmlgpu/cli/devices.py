"""``dmlgpu devices``, and the selection of adapters by ``--adapter`` and ``--drivers``."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmlgpu.cli import tables
from dmlgpu.common.errors import AdapterNotFound, InvalidArgument, NotSupported
from dmlgpu.compiler.quirks import quirks_in_force
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.drivers.discovery import Discovery, LocatedAdapter, all_drivers, of_drivers, process_adapters
from dmlgpu.runtime.adapters import (
    SoftwareAdapterWarning,
    adapters,
    choose,
    environment_choice,
    wait_for_pages,
    why_no_gpu,
    why_unusable,
)
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

if TYPE_CHECKING:
    from dmlgpu.conformance.drivers.discovery import LocatedAdapter


_DATA_TYPES = (
    "FLOAT32",
    "FLOAT16",
    "UINT32",
    "UINT16",
    "UINT8",
    "INT32",
    "INT16",
    "INT8",
    "FLOAT64",
    "UINT64",
    "INT64",
    "UINT4",
    "INT4",
)
_LIMITS = (
    ("max-storage-buffers-per-shader-stage", "buffers per kernel", 1),
    ("max-storage-buffer-binding-size", "binding", 1 << 20),
    ("max-buffer-size", "buffer", 1 << 20),
    ("min-storage-buffer-offset-alignment", "binding alignment", 1),
    ("max-compute-invocations-per-workgroup", "invocations per workgroup", 1),
    ("max-compute-workgroup-storage-size", "workgroup memory", 1 << 10),
    ("max-compute-workgroups-per-dimension", "workgroups per axis", 1),
)
_UNITS = {1: "", 1 << 10: " KiB", 1 << 20: " MiB"}


def show(adapter: str | None = None, as_json: bool = False) -> None:
    """Print the adapters, or the one selected by `adapter`.

    Raises:
        AdapterNotFound: If no adapter matches.
    """
    known = adapters()
    default = choose_adapter(None, announce=False)
    shown = known if adapter is None else (choose_adapter(adapter),)
    if as_json:
        print(json.dumps([as_json_of(known.index(info), info, info == default) for info in shown], indent=2))
        return
    for index, info in enumerate(shown):
        if index:
            print()
        mark = " (default)" if info == default else ""
        tables.facts(f"{known.index(info)}  {info.backend}: {info.name}{mark}", facts_of(info))


def show_drivers(drivers: Sequence[str], adapter: str | None = None, as_json: bool = False) -> None:
    """Print the adapters of some drivers, or those of them that match `adapter`.

    Args:
        drivers: ``all``, manifests of Vulkan drivers, or folders of manifests.
        adapter: Part of a name, or a number.
        as_json: Print JSON, with the environment that selects each driver.

    Raises:
        AdapterNotFound: If no adapter matches.
        InvalidArgument: If a driver does not exist, or the drivers have no adapter.
    """
    known = adapters_of(drivers)
    shown = known if adapter is None else matching(adapter, known)
    if as_json:
        print(json.dumps([_located_as_json(known.index(located), located) for located in shown], indent=2))
        return
    for index, located in enumerate(shown):
        if index:
            print()
        environment = "\n".join(f"{name}={value}" for name, value in located.environment)
        title = f"{known.index(located)}  {located.info.backend}: {located.info.name}"
        tables.facts(title, [*facts_of(located.info), ("environment", environment)])


def facts_of(info: AdapterInfo) -> list[tuple[str, str]]:
    """Return the printed facts of an adapter: kind, driver, features, data types and limits."""
    support = data_type_support(info)
    types = [
        f"{way}: {', '.join(name for name, how in support.items() if how == way)}"
        for way in dict.fromkeys(support.values())
    ]
    limits = [
        f"{what} {info.limits[name] // unit:,}{_UNITS[unit]}" for name, what, unit in _LIMITS if name in info.limits
    ]
    return [
        ("kind", info.kind + (", software: runs on the CPU" if info.is_software else "")),
        ("unusable", why_unusable(info)),
        ("vendor", info.vendor),
        ("driver", info.driver),
        ("features", ", ".join(info.features)),
        ("data types", "\n".join([*types, *_half_precision(info)])),
        *_probed(info),
        ("quirks", "\n".join(map(str, quirks_in_force(info)))),
        ("limits", "\n".join(", ".join(limits[first : first + 4]) for first in range(0, len(limits), 4))),
    ]


_CHECKS = {
    True: "kernels are compiled without wgpu's checks that they do not need",
    False: "kernels keep wgpu's checks of indices and loops",
    None: "measured when the adapter is opened for the first time",
}


def _probed(info: AdapterInfo) -> list[tuple[str, str]]:
    """Return the facts that are measured on an adapter; none for adapters whose kernels wgpu does not compile."""
    if info.backend in ("NumPy", "Browser"):
        return []
    from dmlgpu.runtime.wgpu import adapter, context, probes  # noqa: PLC0415 - loads wgpu, which listed the adapter

    limits = probes.CHECKS.facts(info, info.features)
    try:
        matrices = context.matrix_support(adapter.wgpu_adapter(info), info)
    except AdapterNotFound:  # in this process
        matrices = ""
    return [
        ("checks", f"{_CHECKS[limits if limits is None else bool(limits)]} (docs/adapters.md)"),
        ("avoided", "\n".join(probes.avoided(info))),
        ("matrix units", matrices),
    ]


def _half_precision(info: AdapterInfo) -> tuple[str, ...]:
    """Explain why float16 is computed in 32 bits on an adapter with shader-f16; empty for others."""
    if "shader-f16" not in info.features or info.backend == "NumPy":
        return ()
    return (
        "FLOAT16 uses shader-f16 only with the flag ALLOW_HALF_PRECISION_COMPUTATION, as in DirectML: float16 "
        "arithmetic is less accurate",
    )


def _located_as_json(index: int, adapter: LocatedAdapter) -> dict[str, Any]:
    located = {"label": adapter.label, "number": adapter.index, "environment": dict(adapter.environment)}
    return {**as_json_of(index, adapter.info), **located}


def as_json_of(index: int, info: AdapterInfo, is_default: bool | None = None) -> dict[str, Any]:
    """Return an adapter as JSON.

    Args:
        index: Its number in the list of adapters.
        info: The adapter.
        is_default: Whether it is the default adapter; None omits the field.
    """
    return {
        "index": index,
        "name": info.name,
        "backend": info.backend,
        "kind": info.kind,
        "vendor": info.vendor,
        "driver": info.driver,
        **({} if is_default is None else {"default": is_default}),
        "features": list(info.features),
        "quirks": [quirk.name for quirk in quirks_in_force(info)],
        "limits": info.limits,
        "data_types": data_type_support(info),
    }


def data_type_support(info: AdapterInfo) -> dict[str, str]:
    """Return how an adapter handles each data type: native, in 32-bit arithmetic, as pairs of words, moved and cast."""
    return {name: _way(name, info) for name in _DATA_TYPES}


def _way(data_type: str, info: AdapterInfo) -> str:
    if info.backend == "NumPy" or data_type.endswith("32"):
        return "native"
    if not data_type.endswith("64"):
        return "in 32-bit arithmetic"
    if data_type == "FLOAT64":
        return "native" if "shader-f64" in info.features else "moved and cast"
    return "native" if "shader-int64" in info.features else "as pairs of words"


def choose_adapter(name: str | None, announce: bool = True) -> AdapterInfo:
    """Return the adapter with this index or name; None selects the default adapter.

    A software adapter that was not requested is announced on standard error, once per process.

    Raises:
        AdapterNotFound: If nothing matches; the message lists all adapters.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SoftwareAdapterWarning)
        info = choose(name, announce=announce)
    for warning in caught:
        if isinstance(warning.message, SoftwareAdapterWarning):
            print(f"dmlgpu: {warning.message.text('--adapter {}')}", file=sys.stderr)
    return info


ALL = "all"


def choose_adapters(requested: Sequence[str], drivers: Sequence[str] = ()) -> tuple[LocatedAdapter, ...]:
    """Return adapters with their drivers.

    Args:
        requested: Parts of names, numbers, or ``all``. None selects the default adapter, or all adapters of `drivers`.
        drivers: ``all``, manifests of Vulkan drivers, or folders of manifests; empty selects this process's adapters.

    Raises:
        AdapterNotFound: If nothing matches; the message lists all adapters, and names another driver of the machine
            that has a match.
        InvalidArgument: If a driver does not exist, or the drivers have no adapter.
    """
    if drivers:
        known = adapters_of(drivers)
        matches = [adapter for text in requested for adapter in matching(text, known)] if requested else known
        return tuple(dict.fromkeys(matches))
    if list(requested) == [ALL]:
        return process_adapters()
    with _pointing_to_drivers():
        chosen = [
            _choose(adapter) for adapter in requested or (None,)
        ]  # before listing: one may be a page that is waited for
    known, infos = process_adapters(), adapters()
    return tuple(known[infos.index(info)] for info in chosen)


def with_pages(chosen: Sequence[LocatedAdapter], count: int, keep_reference: bool) -> tuple[LocatedAdapter, ...]:
    """Wait for pages of browsers and return adapters including theirs; without the reference unless it was requested.

    Raises:
        AdapterNotFound: If the extra `browser` is not installed.
        DmlError: If the server of pages does not answer.
    """
    infos = wait_for_pages(count)
    known = process_adapters()
    without = (*infos, *(() if keep_reference else (NUMPY_ADAPTER,)))
    local = [adapter for adapter in chosen if adapter.info not in without]
    return tuple(dict.fromkeys([*local, *(adapter for adapter in known if adapter.info in infos)]))


@contextlib.contextmanager
def _pointing_to_drivers() -> Iterator[None]:
    """Extend an AdapterNotFound raised in this context if ``--drivers all`` finds the adapter.

    Raises:
        AdapterNotFound: As raised in the context.
    """
    try:
        yield
    except AdapterNotFound as error:
        requested = str(error.requested)
        if requested.isdecimal() or why_no_gpu():  # numbers are other adapters' there; without wgpu there is none
            raise
        matches = [adapter for adapter in all_drivers(()).adapters if _is_named(requested, adapter)]
        if not matches:
            raise
        raise AdapterNotFound(requested, error.available, f"--drivers all finds {matches[0].info}") from None


def _choose(requested: str | None) -> AdapterInfo:
    """Return the adapter, without a warning about the reference, which is rejected with an error of its own."""
    info = choose_adapter(requested, announce=False)
    return info if info == NUMPY_ADAPTER else choose_adapter(requested)


def reject_reference_alone(chosen: Iterable[AdapterInfo], requested: Sequence[str]) -> None:
    """Reject a comparison of the reference with itself, which always passes, unless it was requested.

    Args:
        chosen: Adapters to test.
        requested: Names, as for ``choose_adapters``. Part of the name numpy requests the reference, also in the
            environment variable DMLGPU_ADAPTER. ``all`` and numbers do not, since they mean a GPU on other machines.

    Raises:
        NotSupported: If there is no GPU adapter and the reference was not requested.
    """
    variable = environment_choice()
    by_variable = variable and variable.lower() in str(NUMPY_ADAPTER).lower()
    names = [*requested, *([variable] if by_variable else [])]
    is_requested = any(text and text != ALL and not text.isdecimal() for text in names)
    if not is_requested and all(info.backend == NUMPY_ADAPTER.backend for info in chosen):
        why = why_no_gpu() or "no GPU adapter was found"
        raise NotSupported(f"{why}; pass --adapter numpy to compare the reference with itself")


def adapters_of(drivers: Sequence[str]) -> tuple[LocatedAdapter, ...]:
    """Return all adapters of some drivers. Problems are reported on standard error.

    Raises:
        InvalidArgument: If a driver does not exist, or none has an adapter.
    """
    discovery = _look([Path(driver) for driver in drivers if driver != ALL], everything=ALL in drivers)
    for problem in discovery.problems:
        print(f"dmlgpu: {problem}", file=sys.stderr)
    if not discovery.adapters:
        raise InvalidArgument(f"--drivers {' --drivers '.join(drivers)}: no adapter was found")
    return discovery.adapters


def _look(paths: Sequence[Path], *, everything: bool) -> Discovery:
    return all_drivers(paths) if everything else of_drivers(paths)


def matching(requested: str, known: Sequence[LocatedAdapter]) -> Sequence[LocatedAdapter]:
    """Return every adapter whose label or name contains the text, or the one with that index, or ``all``.

    Raises:
        AdapterNotFound: If nothing matches; the message lists all adapters.
    """
    if requested == ALL:
        return known
    if requested.isascii() and requested.isdecimal():
        matches = [adapter for index, adapter in enumerate(known) if str(index) == requested]
    else:
        matches = [adapter for adapter in known if _is_named(requested, adapter)]
    if not matches:
        raise AdapterNotFound(requested, [str(adapter.info) for adapter in known], why_no_gpu())
    return matches


def _is_named(text: str, adapter: LocatedAdapter) -> bool:
    """Return whether the label or name of an adapter contains a text, ignoring case."""
    return text.lower() in f"{adapter.label}\n{adapter.info}".lower()
