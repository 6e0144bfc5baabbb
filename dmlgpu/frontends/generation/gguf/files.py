"""GGUF files: metadata and memory-mapped tensors, checked before anything is allocated.

``gguf.GGUFReader`` trusts the lengths in a file: a damaged one makes it allocate unbounded memory. It also takes half a
minute for 150,000 tokens and their merges.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from numpy.typing import NDArray

from dmlgpu.common.errors import ModelError, NotSupported, shown
from dmlgpu.common.files import GGUF, lfs_advice

_VERSIONS = (2, 3)

_MAX_ENTRIES = 1 << 24
"""Maximum number of values in the metadata of a file, elements of arrays included."""

_MAX_DIMENSIONS = 4
_MAX_NESTED = 4
_MAX_PARTS = 1000
"""Maximum number of files of a split model."""

_SMALLEST_TENSOR = 8 + 4 + 8 + 4 + 8
"""Bytes of the header of a tensor with an empty name and one dimension."""

_FORMATS: Mapping[GGUFValueType, str] = {
    GGUFValueType.UINT8: "<u1",
    GGUFValueType.INT8: "<i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.BOOL: "<u1",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT64: "<f8",
}


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of a file.

    Attributes:
        name: Name in the file.
        kind: Quantization.
        shape: Shape in NumPy's order: the last dimension is contiguous.
        data: Its bytes {rows, bytes of a row}, memory-mapped; rows are those of the last dimension.
    """

    name: str
    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    data: NDArray[np.uint8]

    def release(self) -> None:
        """Let the operating system drop the pages of the file that were read; another read maps them again."""
        base: Any = self.data
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            base.madvise(mmap.MADV_DONTNEED)

    def __str__(self) -> str:
        """Return ``'output.weight' (Q6_K, [32000, 4096])``."""
        return f"{shown(self.name)} ({self.kind.name}, {list(self.shape)})"


@dataclass(frozen=True)
class GgufFile:
    """A file, or all files of a split model.

    Attributes:
        name: Name in messages.
        metadata: Values by key: numbers, booleans, strings, lists of strings, arrays of numbers.
        tensors: Tensors by name.
        size: Bytes of the files.
    """

    name: str
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]
    size: int

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text of the metadata.

        Raises:
            ModelError: If it is missing and has no default, or is not text.
        """
        value = self._value(key, default)
        if not isinstance(value, str):
            raise ModelError(self.name, f"{key} must be a text, got {shown(value)}")
        return value

    def integer(self, key: str, default: int | None = None, *, low: int = 1, high: int = 2**31 - 1) -> int:
        """Return an integer of the metadata; of an array, the element that all entries equal.

        Raises:
            ModelError: If it is missing and has no default, no integer, or outside the inclusive limits.
            NotSupported: If it is an array with different elements.
        """
        value = self._value(key, default)
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu":
            if (value != value.flat[0]).any():
                raise NotSupported(f"model {self.name!r}: {key} must be equal for all layers")
            value = int(value.flat[0])
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ModelError(self.name, f"{key} must be an integer from {low} to {high}, got {shown(value)}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a finite number of the metadata.

        Raises:
            ModelError: If it is missing and has no default, or is not a finite number.
        """
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ModelError(self.name, f"{key} must be a finite number, got {shown(value)}")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a boolean of the metadata."""
        return bool(self.metadata.get(key, default))

    def _value(self, key: str, default: Any) -> Any:
        if default is None and key not in self.metadata:
            raise ModelError(self.name, f"metadata {key} are missing")
        return self.metadata.get(key, default)


_SIZE = struct.Struct("<Q")
"""Size of a text."""


class _Cursor:
    """A position in the header of a file; reading past the end raises an exception."""

    def __init__(self, data: NDArray[np.uint8], name: str):
        self._data, self._name, self.at, self._entries = data.data, name, 0, _MAX_ENTRIES

    def raw(self, size: int) -> memoryview:
        """Return the next bytes."""
        if size > len(self._data) - self.at:
            raise self.error(f"is truncated or damaged: {size} bytes from byte {self.at} on are outside the file")
        self.at += size
        return self._data[self.at - size : self.at]

    def integer(self, form: str) -> int:
        """Return an integer of 4 (``I``) or 8 bytes (``Q``)."""
        return int.from_bytes(self.raw(8 if form == "Q" else 4), "little")

    def count(self, smallest: int, what: str) -> int:
        """Read a number of entries, given the minimum size of one."""
        count = self.integer("Q")
        left = len(self._data) - self.at
        if count > left // smallest:
            raise self.error(f"is truncated or damaged: {count} {what} do not fit into the remaining {left} bytes")
        self._entries -= count
        if self._entries < 0:
            raise self.error(f"must have at most {_MAX_ENTRIES} metadata values, got more")
        return count

    def text(self) -> str:
        """Return a text."""
        start = self.at
        raw = self.raw(self.integer("Q"))
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"is damaged: the text at byte {start} is not UTF-8: {error.reason}") from None

    def _strings(self, count: int) -> list[str]:
        """Return strings, in a loop without calls: vocabularies have 100,000 of them."""
        strings: list[str] = []
        data, end, unpack = self._data, len(self._data), _SIZE.unpack_from
        while len(strings) < count:
            start = self.at + _SIZE.size
            stop = start + unpack(data, self.at)[0] if start <= end else end + 1
            try:
                text = str(data[start:stop], "utf-8") if stop <= end else None
            except UnicodeDecodeError:
                text = None
            if text is None:
                return [*strings, self.text()]  # which raises
            strings.append(text)
            self.at = stop
        return strings

    def value(self, depth: int = 0) -> Any:
        """Return a value of the metadata: its type, then its content."""
        return self._content(self._kind(), depth)

    def _kind(self) -> GGUFValueType:
        code = self.integer("I")
        if code not in GGUFValueType._value2member_map_:
            raise self.error(f"is damaged: type {code} of a value before byte {self.at} is unknown")
        return GGUFValueType(code)

    def _content(self, kind: GGUFValueType, depth: int) -> Any:
        if kind is GGUFValueType.STRING:
            return self.text()
        if kind is not GGUFValueType.ARRAY:
            form = np.dtype(_FORMATS[kind])
            value = np.frombuffer(self.raw(form.itemsize), form)[0].item()
            return bool(value) if kind is GGUFValueType.BOOL else value
        if depth >= _MAX_NESTED:
            raise self.error(f"is damaged: arrays of metadata are nested more than {_MAX_NESTED} deep")
        kind = self._kind()
        if kind in _FORMATS:
            form = np.dtype(_FORMATS[kind])
            return np.array(np.frombuffer(self.raw(form.itemsize * self.count(form.itemsize, "elements")), form))
        if kind is GGUFValueType.STRING:
            return self._strings(self.count(_SIZE.size, "elements"))
        return [self._content(kind, depth + 1) for _ in range(self.count(12, "elements"))]

    def error(self, reason: str) -> ModelError:
        """Return an exception about the file."""
        return ModelError(self._name, reason)


def read_file(path: str | os.PathLike[str]) -> GgufFile:
    """Read the header of a GGUF file, and map its tensors; of a split model, those of all files.

    Args:
        path: The file; of a split model, the first (``model-00001-of-00003.gguf``).

    Raises:
        ModelError: If the file cannot be read, is not a GGUF file, or is truncated or damaged.
        NotSupported: If its version, byte order or a quantization is not supported.
    """
    path = Path(path)
    file = _read_part(path)
    if "split.count" not in file.metadata or (count := file.integer("split.count", high=_MAX_PARTS)) == 1:
        return file
    index = file.integer("split.no", low=0, high=_MAX_PARTS)
    match = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.gguf", path.name)
    if index or match is None or int(match[3]) != count:
        raise ModelError(
            file.name, f"is part {index + 1} of {count}: pass the path of the first, NAME-00001-of-{count:05}.gguf"
        )
    parts = [file]
    parts += [_read_part(path.with_name(f"{match[1]}-{after:05}-of-{count:05}.gguf")) for after in range(2, count + 1)]
    tensors: dict[str, GgufTensor] = {}
    for other in parts:
        for name in sorted(tensors.keys() & other.tensors.keys()):
            raise ModelError(other.name, f"tensor {shown(name)} is in another part as well")
        tensors |= other.tensors
    return GgufFile(file.name, file.metadata, tensors, sum(other.size for other in parts))


def _read_part(path: Path) -> GgufFile:
    if not path.is_file():
        raise ModelError(path.name, "is not a file" if path.exists() else "does not exist")
    try:
        size = path.stat().st_size
        data = np.memmap(path, np.uint8, "r") if size else np.zeros(0, np.uint8)
    except (OSError, ValueError) as error:
        raise ModelError(path.name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    cursor = _Cursor(data, path.name)
    if not size:
        raise ModelError(path.name, "is empty, not a GGUF file")
    if size < len(GGUF) or cursor.raw(len(GGUF)).tobytes() != GGUF:
        raise ModelError(path.name, f"is not a GGUF file: its first bytes are not 'GGUF'{lfs_advice(bytes(data[:64]))}")
    version = cursor.integer("I")
    if version and not version & 0xFFFF:
        raise NotSupported(f"model {path.name!r}: its byte order is big-endian; convert it to little-endian")
    if version not in _VERSIONS:
        raise NotSupported(f"model {path.name!r}: GGUF version must be 2 or 3, got {version}")
    tensor_count = cursor.integer("Q")
    metadata: dict[str, Any] = {}
    for _ in range(cursor.count(8 + 4 + 1, "metadata")):
        key = cursor.text()
        if key in metadata:
            raise cursor.error(f"is damaged: metadata {shown(key)} occur twice")
        metadata[key] = cursor.value()
    left = size - cursor.at
    if tensor_count > left // _SMALLEST_TENSOR:
        raise cursor.error(
            f"is truncated or damaged: {tensor_count} tensors do not fit into the remaining {left} bytes"
        )
    headers = [_header(cursor) for _ in range(tensor_count)]
    alignment = GgufFile(path.name, metadata, {}, size).integer("general.alignment", 32, high=1 << 20)
    start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for tensor in _mapped(headers, data, start, path.name):
        if tensor.name in tensors:
            raise cursor.error(f"is damaged: tensor {shown(tensor.name)} occurs twice")
        tensors[tensor.name] = tensor
    return GgufFile(path.name, metadata, tensors, size)


@dataclass(frozen=True)
class _Header:
    """Name, sizes (the contiguous one first), number of the type, and offset of a tensor."""

    name: str
    sizes: tuple[int, ...]
    kind: int
    offset: int


def _header(cursor: _Cursor) -> _Header:
    name = cursor.text()
    rank = cursor.integer("I")
    if not 1 <= rank <= _MAX_DIMENSIONS:
        message = f"tensor {shown(name)} must have 1 to {_MAX_DIMENSIONS} dimensions, got {rank}"
        raise cursor.error(f"is damaged: {message}")
    sizes = tuple(cursor.integer("Q") for _ in range(rank))
    return _Header(name, sizes, cursor.integer("I"), cursor.integer("Q"))


def _mapped(headers: list[_Header], data: NDArray[np.uint8], start: int, name: str) -> Iterator[GgufTensor]:
    """Return the tensors of headers, whose bytes are views of the file."""
    for header in headers:
        label = f"tensor {shown(header.name)}"
        if header.kind not in GGMLQuantizationType._value2member_map_:
            raise NotSupported(f"model {name!r}: {label} has the unknown quantization type {header.kind}")
        kind = GGMLQuantizationType(header.kind)
        block, block_bytes = GGML_QUANT_SIZES[kind]
        shape = header.sizes[::-1]
        if 0 in shape or shape[-1] % block:
            raise ModelError(
                name, f"{label} must have rows of a multiple of {block} elements ({kind.name}), got shape {list(shape)}"
            )
        rows, row_bytes = math.prod(shape[:-1]), shape[-1] // block * block_bytes
        begin = start + header.offset
        if begin + rows * row_bytes > len(data):
            raise ModelError(
                name,
                f"is truncated or damaged: {label} with shape {list(shape)} ({kind.name}) takes {rows * row_bytes} "
                f"bytes from byte {begin} on; the file has {len(data)}",
            )
        raw = data[begin : begin + rows * row_bytes].reshape(rows, row_bytes)
        yield GgufTensor(header.name, kind, shape, raw)
