"""``dmlgpu devices``: list the adapters; and the choice that ``--adapter`` and ``--drivers`` make among them."""

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
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.drivers.discovery import Discovery, LocatedAdapter, all_drivers, of_drivers, process_adapters
from dmlgpu.runtime.adapters import (
    SoftwareAdapterWarning,
    adapters,
    choose,
    environment_choice,
    wait_for_pages,
    why_no_gpu,
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
    """Print the adapters, or the one that ``adapter`` picks.

    Raises:
        AdapterNotFound: when it picks none.
    """
    known = adapters()
    default = choose_adapter(None, announce=False)
    shown = known if adapter is None else (choose_adapter(adapter),)
    if as_json:
        print(json.dumps([as_json_of(known.index(info), info, info == default) for info in shown], indent=2))
        return
    for number, info in enumerate(shown):
        if number:
            print()
        mark = " (default)" if info == default else ""
        tables.facts(f"{known.index(info)}  {info.backend}: {info.name}{mark}", facts_of(info))


def show_drivers(drivers: Sequence[str], adapter: str | None = None, as_json: bool = False) -> None:
    """Print the adapters that some drivers bring, or those of them that ``adapter`` picks.

    Args:
        drivers: ``all``, manifests of Vulkan drivers, folders of such.
        adapter: part of a name, or a number.
        as_json: print JSON, with the environment that brings each.

    Raises:
        AdapterNotFound: when it picks none.
        InvalidArgument: when there is no such driver, or the drivers bring no adapter.
    """
    known = adapters_of(drivers)
    shown = known if adapter is None else matching(adapter, known)
    if as_json:
        print(json.dumps([_located_as_json(known.index(located), located) for located in shown], indent=2))
        return
    for number, located in enumerate(shown):
        if number:
            print()
        environment = "\n".join(f"{name}={value}" for name, value in located.environment)
        title = f"{known.index(located)}  {located.info.backend}: {located.info.name}"
        tables.facts(title, [*facts_of(located.info), ("environment", environment)])


def facts_of(info: AdapterInfo) -> list[tuple[str, str]]:
    """Return what people read of an adapter: what it is, its features, data types and the limits that matter."""
    support = data_type_support(info)
    types = [
        f"{way}: {', '.join(name for name, how in support.items() if how == way)}"
        for way in dict.fromkeys(support.values())
    ]
    limits = [
        f"{what} {info.limits[name] // unit:,}{_UNITS[unit]}" for name, what, unit in _LIMITS if name in info.limits
    ]
    return [
        ("kind", info.kind + (", software: it computes on the CPU" if info.is_software else "")),
        ("vendor", info.vendor),
        ("driver", info.driver),
        ("features", ", ".join(info.features)),
        ("data types", "\n".join([*types, *_half_precision(info)])),
        ("limits", "\n".join(", ".join(limits[first : first + 4]) for first in range(0, len(limits), 4))),
    ]


def _half_precision(info: AdapterInfo) -> tuple[str, ...]:
    """Why float16 is computed with in 32 bits on an adapter that has the feature for 16; nothing for others."""
    if "shader-f16" not in info.features or info.backend == "NumPy":
        return ()
    return (
        "FLOAT16 uses shader-f16 only with the flag ALLOW_HALF_PRECISION_COMPUTATION, as in DirectML: 16-bit "
        "arithmetic loses digits",
    )


def _located_as_json(index: int, adapter: LocatedAdapter) -> dict[str, Any]:
    located = {"label": adapter.label, "number": adapter.number, "environment": dict(adapter.environment)}
    return {**as_json_of(index, adapter.info), **located}


def as_json_of(index: int, info: AdapterInfo, is_default: bool | None = None) -> dict[str, Any]:
    """Return an adapter as JSON has it.

    Args:
        index: its number among the adapters that are listed.
        info: the adapter.
        is_default: whether it is taken where no other is named; None leaves that out.
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
    """The adapter whose number or part of a name is given; None leaves the choice to dmlgpu.

    A software adapter that nobody asked for is announced on standard error in one line, once in a process.

    Raises:
        AdapterNotFound: nothing matches; the message lists all adapters.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SoftwareAdapterWarning)
        info = choose(name, announce=announce)
    for warning in caught:
        print(f"dmlgpu: {warning.message}", file=sys.stderr)
    return info


ALL = "all"


def choose_adapters(requested: Sequence[str], drivers: Sequence[str] = ()) -> tuple[LocatedAdapter, ...]:
    """Adapters and what brings their drivers.

    Args:
        requested: parts of names, or numbers; ``all``. None takes the default adapter, or with drivers all of theirs.
        drivers: ``all``, manifests of Vulkan drivers, folders of such; none takes this process's adapters.

    Raises:
        AdapterNotFound: when nothing matches; the message lists all adapters, and says whether another driver of the
            machine has one that would.
        InvalidArgument: when there is no such driver, or the drivers bring no adapter.
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
    """Wait for pages of browsers, and return adapters with theirs; without the reference, unless that is asked for.

    Raises:
        AdapterNotFound: when what browsers need is not installed.
        DmlError: when the server of pages does not answer.
    """
    infos = wait_for_pages(count)
    known = process_adapters()
    local = [adapter for adapter in chosen if keep_reference or adapter.info != NUMPY_ADAPTER]
    return tuple(dict.fromkeys([*local, *(adapter for adapter in known if adapter.info in infos)]))


@contextlib.contextmanager
def _pointing_to_drivers() -> Iterator[None]:
    """Have an error about an adapter that this process does not reach say that ``--drivers all`` finds it, if it does.

    Raises:
        AdapterNotFound: as what is done here.
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
    """The adapter; the reference in place of a GPU is not announced, since it is refused in a sentence of its own."""
    info = choose_adapter(requested, announce=False)
    return info if info == NUMPY_ADAPTER else choose_adapter(requested)


def refuse_reference_alone(chosen: Iterable[AdapterInfo], requested: Sequence[str]) -> None:
    """Refuse to compare the reference with itself, which always passes, unless somebody asked for that.

    Args:
        chosen: the adapters to test.
        requested: names, as ``choose_adapters`` takes it. A part of a name asks for the reference if it
            chose it; ``all`` and numbers, which are a GPU's while its driver is there, do not. A part of numpy's name
            in the environment variable DMLGPU_ADAPTER asks for it too.

    Raises:
        NotSupported: when there is no GPU adapter among those that were not asked for by name.
    """
    variable = environment_choice()
    by_variable = variable and variable.lower() in str(NUMPY_ADAPTER).lower()
    names = [*requested, *([variable] if by_variable else [])]
    is_requested = any(text and text != ALL and not text.isdecimal() for text in names)
    if not is_requested and all(info.backend == NUMPY_ADAPTER.backend for info in chosen):
        why = why_no_gpu() or "no GPU adapter was found"
        raise NotSupported(f"{why}, and the reference would only be compared with itself; --adapter numpy does so")


def adapters_of(drivers: Sequence[str]) -> tuple[LocatedAdapter, ...]:
    """All adapters of some drivers. What cannot be listed is said on standard error.

    Raises:
        InvalidArgument: when there is no such driver, or none brings an adapter.
    """
    discovery = _look([Path(driver) for driver in drivers if driver != ALL], everything=ALL in drivers)
    for problem in discovery.problems:
        print(f"dmlgpu: {problem}", file=sys.stderr)
    if not discovery.adapters:
        raise InvalidArgument(f"--drivers {' --drivers '.join(drivers)}: there is no adapter")
    return discovery.adapters


def _look(paths: Sequence[Path], *, everything: bool) -> Discovery:
    return all_drivers(paths) if everything else of_drivers(paths)


def matching(requested: str, known: Sequence[LocatedAdapter]) -> Sequence[LocatedAdapter]:
    """Every adapter whose label or name holds a text, or the one with a number; ``all`` of them.

    Raises:
        AdapterNotFound: when nothing matches; the message lists all adapters.
    """
    if requested == ALL:
        return known
    if requested.isascii() and requested.isdecimal():
        matches = [adapter for number, adapter in enumerate(known) if str(number) == requested]
    else:
        matches = [adapter for adapter in known if _is_named(requested, adapter)]
    if not matches:
        raise AdapterNotFound(requested, [str(adapter.info) for adapter in known], why_no_gpu())
    return matches


def _is_named(text: str, adapter: LocatedAdapter) -> bool:
    """Whether an adapter's label or name holds a text, in any case."""
    return text.lower() in f"{adapter.label}\n{adapter.info}".lower()
