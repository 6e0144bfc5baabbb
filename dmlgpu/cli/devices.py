"""``dmlgpu devices``: list the adapters; and the choice that ``--adapter`` makes among them."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dmlgpu.cli import tables
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.adapters import SoftwareAdapterWarning, adapters, choose

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
    # Looking for drivers takes more than the plain list of adapters needs.
    from dmlgpu.cli.adapters import adapters_of, matching  # noqa: PLC0415

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
        ("kind", info.kind + (", on the processor" if info.is_software else "")),
        ("vendor", info.vendor),
        ("driver", info.driver),
        ("features", ", ".join(info.features)),
        ("data types", "\n".join(types)),
        ("limits", "\n".join(", ".join(limits[first : first + 4]) for first in range(0, len(limits), 4))),
    ]


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
