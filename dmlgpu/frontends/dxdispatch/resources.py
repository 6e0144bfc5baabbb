"""Resources of a model: buffers and their initial values."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument, abridged
from dmlgpu.common.memory import check_host_memory
from dmlgpu.frontends.dxdispatch.files import IMAGE_SUFFIXES, FileAccess, parse_resample, read_image
from dmlgpu.frontends.dxdispatch.json_node import (
    UINT32_MAX,
    UINT64_MAX,
    JsonNode,
    optional,
    parse_array,
    parse_data_type,
    parse_scalar,
    quoted,
)

_KEYS = (
    "type",
    "initialValues",
    "initialValuesDataType",
    "initialValuesOffsetInBytes",
    "sizeInBytes",
    "resampleSize",
    "resampleMode",
)
_FORMS = {
    "value": ("valueCount", "value"),
    "valueStart": ("valueCount", "valueStart", "valueDelta"),
    "sourcePath": ("sourcePath",),
}


@dataclass(frozen=True)
class InitialValues:
    """Initial values of a resource, computed only when it is uploaded.

    Attributes:
        data_type: Data type; UNKNOWN for a list of mixed types, which counts as bytes.
        count: Number of elements.
        make: Returns the elements, one-dimensional; one byte for each 4-bit integer.
        sizes: Shape, if the source has one (.npy files).
    """

    data_type: DataType
    count: int
    make: Callable[[], NDArray[Any]]
    sizes: tuple[int, ...] | None = None

    @property
    def byte_count(self) -> int:
        """Size of the elements in bytes."""
        return -(-self.count * (self.data_type.bits or 8) // 8)

    @property
    def memory(self) -> int:
        """Bytes of memory needed to create the elements and to pack 4-bit ones."""
        return max(2, 32 // (self.data_type.bits or 8)) * self.byte_count

    def to_bytes(self) -> NDArray[np.uint8]:
        """Return the elements as bytes; 4-bit integers are packed, low nibble first."""
        elements = self.make()
        if self.data_type.bits != 4:
            return elements.view(np.uint8)
        nibbles = np.zeros(2 * self.byte_count, np.uint8)
        nibbles[: self.count] = elements.view(np.uint8) & 15
        return (nibbles[0::2] | nibbles[1::2] << 4).astype(np.uint8)


@dataclass(frozen=True)
class Resource:
    """A buffer of the model.

    Attributes:
        name: The model's name for it.
        values: Its initial values.
        offset: Byte at which the initial values begin.
        size: Its size in bytes: ``sizeInBytes``, else the end of the initial values.
        deferred: Whether it has no memory of its own: it becomes the output of an ONNX model that it is bound to.
    """

    name: str
    values: InitialValues
    offset: int
    size: int
    deferred: bool = False

    @property
    def data_type(self) -> DataType:
        """Type of the initial values, in which the resource is printed."""
        return self.values.data_type

    @property
    def allocated_size(self) -> int:
        """Bytes to allocate: the size rounded up to a multiple of 4."""
        return -(-self.size // 4) * 4

    @property
    def extent(self) -> int:
        """Bytes up to the end of the initial values: the part that is printed and returned."""
        return self.offset + self.values.byte_count

    @property
    def element_count(self) -> int:
        """Whole elements of ``data_type`` in the extent (bytes for UNKNOWN)."""
        if self.offset == 0:
            return self.values.count
        return self.extent * 8 // (self.data_type.bits or 8)

    def to_bytes(self) -> NDArray[np.uint8]:
        """Return the initial bytes of the whole allocation, zeros outside the initial values."""
        needed = self.allocated_size + self.values.memory
        check_host_memory(needed, f"resource {quoted(self.name)}", "make its initial values")
        raw = np.zeros(self.allocated_size, np.uint8)
        raw[self.offset : self.extent] = self.values.to_bytes()
        return raw


def parse_resource(name: str, node: JsonNode, access: FileAccess) -> Resource:
    """Return a resource from its JSON form.

    Args:
        name: The model's name for it.
        node: The member of ``resources``.
        access: Files that the model may read.
    """
    node.allow(_KEYS, "a resource")
    kind = node.get("type")
    if kind is not None and kind.string().lower() != "buffer":
        raise kind.error(f"resources of type {quoted(kind.string())} are not supported, only 'buffer'")
    if node.require("initialValues", "a resource").value == "deferred":
        return _deferred(name, node)
    values = _initial_values(node, access)
    resampled = node.get("resampleSize") or node.get("resampleMode")
    if resampled is not None and values.sizes is None:
        raise resampled.error("is for resources whose initial values are an image")
    if values.count == 0:
        raise node.require("initialValues", "a resource").error("must hold at least one value")
    offset = optional(node.get("initialValuesOffsetInBytes"), lambda at: at.integer(0, UINT64_MAX), 0)
    end = offset + values.byte_count
    size_node = node.get("sizeInBytes")
    size = end if size_node is None else size_node.integer(1, UINT64_MAX)
    if size_node is not None and size < end:
        where = f" at offset {offset}" if offset else ""
        raise size_node.error(
            f"must be at least {end}, the end of the initial values ({values.byte_count} bytes{where}), got {size}"
        )
    return Resource(name, values, offset, size)


def _deferred(name: str, node: JsonNode) -> Resource:
    node.allow(("type", "initialValues", "initialValuesDataType"), "a deferred resource")
    data_type = optional(node.get("initialValuesDataType"), parse_data_type, DataType.UNKNOWN)
    nothing = np.empty(0, np.uint8 if data_type is DataType.UNKNOWN else data_type.numpy)
    return Resource(name, InitialValues(data_type, 0, lambda: nothing), 0, 0, deferred=True)


def _initial_values(node: JsonNode, access: FileAccess) -> InitialValues:
    data_type = optional(node.get("initialValuesDataType"), parse_data_type, DataType.UNKNOWN)
    source = node.require("initialValues", "a resource")
    if isinstance(source.value, list | tuple):
        if data_type is DataType.UNKNOWN:
            return _from_list(source)
        elements = parse_array(source, data_type)
        return InitialValues(data_type, elements.size, lambda: elements)
    if not isinstance(source.value, Mapping):
        raise source.expected("an array or an object")
    form = next((key for key in _FORMS if source.get(key) is not None), None)
    if form is None:
        raise source.error("must have one of the keys 'value', 'valueStart' and 'sourcePath'")
    source.allow(_FORMS[form], f"an initializer with {form!r}")
    if form == "sourcePath":
        resample = parse_resample(node.get("resampleSize"), node.get("resampleMode"))
        return _from_file(source.require(form, "it"), data_type, access, resample)
    if data_type is DataType.UNKNOWN:
        raise node.require("initialValuesDataType", f"a resource initialized by {form!r}").error(
            f"must be a data type other than UNKNOWN for a resource initialized by {form!r}"
        )
    return (_from_constant if form == "value" else _from_sequence)(source, data_type)


def _from_list(source: JsonNode) -> InitialValues:
    """Return elements of mixed types, one after the other without gaps."""
    parts = []
    for element in source.elements():
        if not isinstance(element.value, Mapping):
            raise element.error(
                "must be an object with 'type' and 'value', as initialValuesDataType is not given or UNKNOWN"
            )
        element.allow(("name", "type", "value"), "an element of a list")
        kind = element.require("type", "an element of a list")
        data_type = parse_data_type(kind)
        if data_type.bits < 8:
            raise kind.error(f"{data_type.name} cannot be in a list of mixed types")
        value = element.require("value", "an element of a list")
        parts.append(parse_array(JsonNode([parse_scalar(value, data_type)]), data_type).view(np.uint8))
    raw = np.concatenate(parts) if parts else np.empty(0, np.uint8)
    return InitialValues(DataType.UNKNOWN, raw.size, lambda: raw)


def _from_constant(source: JsonNode, data_type: DataType) -> InitialValues:
    count = _value_count(source)
    value = _element(source, "value", data_type)
    return InitialValues(data_type, count, lambda: np.full(count, value))


def _from_sequence(source: JsonNode, data_type: DataType) -> InitialValues:
    """Return start, start + delta, ..., accumulated in the data type itself, with the rounding and wrapping of
    DxDispatch."""
    count = _value_count(source)
    start, delta = (_element(source, key, data_type) for key in ("valueStart", "valueDelta"))

    def make() -> NDArray[Any]:
        terms = np.full(count, delta)
        terms[0] = start
        with np.errstate(over="ignore", invalid="ignore"):
            return np.add.accumulate(terms, dtype=data_type.numpy)

    return InitialValues(data_type, count, make)


def _value_count(source: JsonNode) -> int:
    return source.require("valueCount", "an initializer").integer(1)


def _element(source: JsonNode, key: str, data_type: DataType) -> Any:
    value = parse_scalar(source.require(key, "an initializer"), data_type)
    return parse_array(JsonNode([value]), data_type)[0]


# -- files ----------------------------------------------------------------------------------------------------------


def _from_file(
    source: JsonNode, data_type: DataType, access: FileAccess, resample: tuple[int, ...] | None
) -> InitialValues:
    path = access.source(source)
    suffix = path.suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        sizes, make = read_image(source, path, data_type, resample)
        return InitialValues(data_type, math.prod(sizes), make, sizes)
    if resample is not None:
        raise source.error(f"resampleSize is for images, got the file {quoted(path.name)}")
    try:
        # Files can be sparse: check their size against the memory of the host.
        check_host_memory(2 * path.stat().st_size, source.path, f"read {quoted(str(path))}")
        return _from_npy(source, path, data_type) if suffix == ".npy" else _from_raw(source, path, data_type)
    except OSError as error:
        raise source.error(f"cannot read {quoted(str(path))}: {error.strerror or error}") from error


def _from_npy(source: JsonNode, path: Path, data_type: DataType) -> InitialValues:
    _check_header(source, path)
    try:
        array = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise source.error(f"{quoted(str(path))} is not a .npy file of numbers: {abridged(str(error))}") from error
    array = array.view(np.uint8) if array.dtype == bool else array.astype(array.dtype.newbyteorder("="), copy=False)
    try:
        stored = DataType.from_numpy(array.dtype)
    except InvalidArgument as error:
        raise source.error(f"{quoted(str(path))}: {error}") from error
    if data_type not in (DataType.UNKNOWN, stored):
        raise source.error(f"{quoted(str(path))} holds {stored.name}, but initialValuesDataType is {data_type.name}")
    flat = np.ascontiguousarray(array).reshape(-1)
    return InitialValues(stored, flat.size, lambda: flat, array.shape or (1,))


def _check_header(source: JsonNode, path: Path) -> None:
    """Reject a .npy file whose header announces more data than the file has: NumPy would allocate all of it at once."""
    with path.open("rb") as stream:
        try:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(stream)
            promised = math.prod(shape) * dtype.itemsize
        except OSError:
            raise
        except Exception as error:  # NumPy does not catch the errors of the Python parser that it uses
            raise source.error(f"{quoted(str(path))} is not a .npy file of numbers: {abridged(str(error))}") from error
        held = os.fstat(stream.fileno()).st_size - stream.tell()
    if any(type(size) is not int or not 0 <= size <= UINT32_MAX for size in shape):
        raise source.error(f"{quoted(str(path))} has sizes outside 0 to {UINT32_MAX}")
    if promised > held and not dtype.hasobject:
        raise source.error(f"{quoted(str(path))} declares {promised:,} bytes of elements, but holds {held:,}")


def _from_raw(source: JsonNode, path: Path, data_type: DataType) -> InitialValues:
    if data_type is DataType.UNKNOWN:
        raise source.error(f"the raw file {quoted(str(path))} has no type: initialValuesDataType must be given")
    raw = np.fromfile(path, np.uint8)
    if data_type.bits == 4:
        nibbles = np.stack([raw & 15, raw >> 4], -1).ravel()
        return InitialValues(data_type, nibbles.size, lambda: nibbles)
    if raw.size * 8 % data_type.bits:
        element = data_type.bits // 8
        raise source.error(
            f"{quoted(str(path))} has {raw.size} bytes, not a multiple of the {element} bytes of a {data_type.name}"
        )
    elements = raw.view(data_type.numpy)
    return InitialValues(data_type, elements.size, lambda: elements)
