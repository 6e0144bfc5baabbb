"""Programs as documents: buffers, uploads and dispatches, with all decisions made.

Decisions of an executor at binding are made here once: each resource is a separate buffer, bindings begin at
multiples of the largest offset alignment that WebGPU permits, and kernels are rendered again where slots share a
binding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dmlgpu.compiler.aliasing import OFFSET_ALIGNMENT, layout, with_bindings
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Program, RenderedKernel, Slot, uniform_bytes

_WORKGROUP: Final = re.compile(r"@workgroup_size\(([\d, ]+)\)")
_ENABLED: Final = re.compile(r"^enable (\w+);", re.MULTILINE)
_FEATURES: Final = {
    "f16": "shader-f16",
    "subgroups": "subgroups",
    "chromium_experimental_subgroup_matrix": "chromium-experimental-subgroup-matrix",
}
"""WebGPU features by WGSL extension."""

UPLOAD_ALIGNMENT = 16
"""Alignment of the bytes of buffers among the uploads."""


class Uploads:
    """Initial contents of buffers, one after the other; equal ones are stored once."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._end = 0

    @property
    def end(self) -> int:
        """Total bytes."""
        return self._end

    def place(self, data: bytes) -> int:
        """Return the offset of bytes, added if new."""
        if data not in self._places:
            self._places[data] = self._end
            self._end += -(-len(data) // UPLOAD_ALIGNMENT) * UPLOAD_ALIGNMENT
        return self._places[data]

    @property
    def data(self) -> bytes:
        """All bytes."""
        buffer = bytearray(self._end)
        for data, start in self._places.items():
            buffer[start : start + len(data)] = data
        return bytes(buffer)


@dataclass
class Document:
    """Programs as JSON. Buffers, shaders and parameter blocks are referred to by index in these lists. Equal shaders,
    parameter blocks, constants and initializations of programs are one.

    Attributes:
        buffers: Name and size of each; ``initial`` if only the initialization reads it.
        uploads: Buffer, offset in it, offset among the uploads, size.
        shaders: Label, source and number of storage buffers of each.
        parameters: Words of each parameter block.
    """

    buffers: list[dict[str, Any]] = field(default_factory=list)
    uploads: list[list[int]] = field(default_factory=list)
    shaders: list[dict[str, Any]] = field(default_factory=list)
    parameters: list[list[int]] = field(default_factory=list)
    _shaders: dict[tuple[str, int], int] = field(default_factory=dict, repr=False)
    _parameters: dict[tuple[int, ...], int] = field(default_factory=dict, repr=False)
    _constants: dict[tuple[str, bytes], int] = field(default_factory=dict, repr=False)
    _persistent: dict[Any, int] = field(default_factory=dict, repr=False)

    def buffer(self, name: str, size: int) -> int:
        """Add a buffer; return its index."""
        self.buffers.append({"name": name, "bytes": max(size, 16)})
        return len(self.buffers) - 1

    def constant(self, uploads: Uploads, name: str, data: bytes) -> int:
        """Return the index of a buffer with an initial content, added if new."""
        if (name, data) not in self._constants:
            self._constants[name, data] = self.buffer(name, len(data))
            if data:
                self.upload(uploads, self._constants[name, data], data)
        return self._constants[name, data]

    def persistent(self, program: Program, inputs: Sequence[tuple[int, int] | None]) -> tuple[int, bool]:
        """Return the buffer of a program's persistent resource, and whether it is new: programs whose initializations
        are equal, and read the same buffers, share it."""
        read = {slot.index for kernel in program.initialization for slot in kernel.slots if slot.role is Role.INPUT}
        places = tuple((index, inputs[index]) for index in sorted(read))
        key = program.persistent_size, program.initialization, program.constants, places
        is_new = key not in self._persistent
        if is_new:
            self._persistent[key] = self.buffer("persistent", program.persistent_size)
        return self._persistent[key], is_new

    def upload(self, uploads: Uploads, buffer: int, data: bytes, offset: int = 0) -> None:
        """Record the initial content of a buffer."""
        padded = data + bytes(-len(data) % 4)
        self.uploads.append([buffer, offset, uploads.place(padded), len(padded)])

    def dispatch(self, operator: str, kernel: RenderedKernel, ranges: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
        """Return the dispatch of a kernel: shader, bindings, parameter block, grid.

        Args:
            operator: Name in messages.
            kernel: The kernel.
            ranges: Buffer, offset and size per slot.
        """
        bound_ranges = layout(ranges, kernel.bindings, OFFSET_ALIGNMENT)
        if bound_ranges.bindings != kernel.bindings:
            kernel = with_bindings(operator, kernel, bound_ranges.bindings)
        words = tuple(memoryview(uniform_bytes(bound_ranges.bases, kernel.given, False)).cast("I").tolist())
        return {
            "shader": self._shader(kernel),
            "bind": [list(binding) for binding in bound_ranges.bound],
            "parameters": _number(self._parameters, words, self.parameters, list(words)),
            "grid": list(kernel.grid),
        }

    def _shader(self, kernel: RenderedKernel) -> int:
        entry = {"label": kernel.label, "code": kernel.wgsl, "bindings": kernel.binding_count}
        return _number(self._shaders, (kernel.wgsl, kernel.binding_count), self.shaders, entry)

    def needs(self, dispatches: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the features and minimum limits, by WebGPU names, that the device must have."""
        workgroups = [_workgroup(shader["code"]) for shader in self.shaders]
        extensions = {name for shader in self.shaders for name in _ENABLED.findall(shader["code"])}
        limits = {
            "maxBufferSize": [buffer["bytes"] for buffer in self.buffers],
            "maxStorageBufferBindingSize": [size for dispatche in dispatches for _, _, size in dispatche["bind"]],
            "maxStorageBuffersPerShaderStage": [shader["bindings"] for shader in self.shaders],
            "maxComputeInvocationsPerWorkgroup": [math.prod(sizes) for sizes in workgroups],
            "maxComputeWorkgroupSizeX": [sizes[0] for sizes in workgroups],
            "maxComputeWorkgroupsPerDimension": [max(dispatche["grid"]) for dispatche in dispatches],
        }
        features = sorted(_FEATURES.get(name, name) for name in extensions)
        return {"features": features, "limits": {name: max(values, default=0) for name, values in limits.items()}}


def _number(known: dict[Any, int], key: Any, entries: list[Any], entry: Any) -> int:
    """Return the index of an entry, appended if its key is new."""
    if key not in known:
        known[key] = len(entries)
        entries.append(entry)
    return known[key]


def _workgroup(text: str) -> list[int]:
    match = _WORKGROUP.search(text)
    return [int(size) for size in match[1].split(",")] if match else [1]


@dataclass(frozen=True)
class BufferPlaces:
    """Locations of the resources of a program: buffer index and offset.

    Attributes:
        inputs, outputs, constants: By index; None if there is none.
        temporary, persistent: None if not needed.
    """

    inputs: Sequence[tuple[int, int] | None]
    outputs: Sequence[tuple[int, int] | None]
    constants: Sequence[tuple[int, int]] = ()
    temporary: int | None = None
    persistent: int | None = None

    def range(self, slot: Slot) -> tuple[int, int, int]:
        """Return the buffer of a slot, its first byte there, and its bytes."""
        match slot.role:
            case Role.INPUT:
                place = self.inputs[slot.index]
            case Role.OUTPUT:
                place = self.outputs[slot.index]
            case Role.CONSTANT:
                place = self.constants[slot.index]
            case Role.TEMPORARY:
                place = None if self.temporary is None else (self.temporary, 0)
            case Role.PERSISTENT:
                place = None if self.persistent is None else (self.persistent, 0)
        assert place is not None
        return place[0], place[1] + slot.offset, slot.size


def add_program(
    document: Document,
    uploads: Uploads,
    program: Program,
    inputs: Sequence[tuple[int, int] | None],
    outputs: Sequence[tuple[int, int] | None],
    *,
    temporary: int | None = None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Add the resources and kernels of a program; return the dispatches of its initialization, none if an equal one was
    added before, and of a run.

    Args:
        document: Target.
        uploads: Target of its constants.
        program: The program.
        inputs, outputs: Locations; None for unused ones.
        temporary: Buffer of its temporary resource; None for a new one.
    """
    if temporary is None and program.temporary_size:
        temporary = document.buffer("temporary", program.temporary_size)
    constants = [
        (document.constant(uploads, f"constant {index}", data), 0) for index, data in enumerate(program.constants)
    ]
    persistent, is_new = document.persistent(program, inputs) if program.persistent_size else (None, True)
    places = BufferPlaces(inputs, outputs, constants, temporary, persistent)

    def dispatches(kernels: Sequence[RenderedKernel]) -> list[dict[str, Any]]:
        return [
            document.dispatch(program.operator, kernel, [places.range(slot) for slot in kernel.slots])
            for kernel in kernels
        ]

    return dispatches(program.initialization) if is_new else [], dispatches(program.kernels)
