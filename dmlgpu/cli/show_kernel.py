"""``dmlgpu show FILE.wgsl``: declarations of a user's kernel, and whether it compiles."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from dmlgpu.bench.kernel_files import kernels_of
from dmlgpu.bench.specs import KernelOptions
from dmlgpu.cli import tables
from dmlgpu.cli.devices import choose_adapter
from dmlgpu.common.errors import DmlError
from dmlgpu.runtime import shader_source
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.executor import ShaderBackend
from dmlgpu.tensors.kernels import Kernel

_USES = {"uniform": "--uniform", "read-only-storage": "--input", "storage": "--output"}
"""The options of ``dmlgpu bench`` that set a binding."""


@dataclass(frozen=True)
class EntryPoint:
    """An entry point of a file.

    Attributes:
        name: Name of the function.
        workgroup: Its workgroup size, as written.
        compiles: Whether it compiles; None if the adapter runs no shaders.
        text: The same as a sentence; for a failure, the messages of the compiler.
    """

    name: str
    workgroup: str
    compiles: bool | None
    text: str


def show_kernel(path: Path, adapter: str | None, options: KernelOptions, *, as_text: bool) -> None:
    """Print the declarations of a kernel, and whether it compiles on an adapter.

    Args:
        path: A WGSL file.
        adapter: Part of an adapter's name, or its index; None selects the default.
        options: Its entry point, empty for all, and the values of overrides.
        as_text: Print text; else JSON.

    Raises:
        InvalidArgument: If there is no such file, it holds no kernel, or an option is malformed.
        AdapterNotFound: If no adapter matches.
        typer.Exit: If it does not compile.
    """
    kernels = kernels_of(path, options)
    plain = shader_source.without_comments(kernels[0].source)
    device = Device(choose_adapter(adapter))
    entries = [
        EntryPoint(kernel.name, shader_source.workgroup_text(plain, kernel.name), *_compiled(kernel, device))
        for kernel in kernels
    ]
    overrides = shader_source.override_declarations(plain)
    if as_text:
        _print(path, device, entries, kernels[0], overrides)
    else:
        print(json.dumps(_as_json(path, device, entries, kernels[0], overrides), indent=2, ensure_ascii=False))
    if any(entry.compiles is False for entry in entries):
        raise typer.Exit(1)


def _compiled(kernel: Kernel, device: Device) -> tuple[bool | None, str]:
    """Return whether a kernel compiles (None if the adapter runs no shaders), and a sentence."""
    try:
        kernel.compile(device)
    except DmlError as error:
        return (False if isinstance(device.backend, ShaderBackend) else None), str(error)
    return True, f"{kernel.name} compiles"


def _print(path: Path, device: Device, entries: list[EntryPoint], kernel: Kernel, overrides: tuple[str, ...]) -> None:
    tables.facts(
        f"{path} on '{device.adapter}'",
        [
            ("entry points", "\n".join(f"{entry.name}, workgroups of {entry.workgroup}" for entry in entries)),
            ("overrides", "\n".join(overrides)),
        ],
    )
    if kernel.bindings:
        print()
        rows = [
            (str(binding.number), binding.name, binding.type, _access(binding.kind), _USES[binding.kind])
            for binding in kernel.bindings
        ]
        tables.table(("", "binding", "type", "access", "bench"), rows, right=(0,))
    print()
    for entry in entries:
        print(entry.text)


def _access(kind: str) -> str:
    return {"storage": "read_write", "read-only-storage": "read"}.get(kind, kind)


def _as_json(
    path: Path, device: Device, entries: list[EntryPoint], kernel: Kernel, overrides: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "adapter": str(device.adapter),
        "kernel": str(path),
        "entry_points": [
            {"name": entry.name, "workgroup_size": entry.workgroup, "compiles": entry.compiles, "text": entry.text}
            for entry in entries
        ],
        "bindings": [
            {"number": item.number, "name": item.name, "type": item.type, "access": _access(item.kind)}
            for item in kernel.bindings
        ],
        "overrides": list(overrides),
    }
