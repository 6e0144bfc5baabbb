"""ONNX element types and DirectML data types, and the tensors of a model file."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from onnx import TensorProto, helper, numpy_helper

from dmlgpu.catalog.enums import BFLOAT16, DataType
from dmlgpu.catalog.tensor_desc import MAX_ELEMENTS
from dmlgpu.common.errors import ModelError, NotSupported
from dmlgpu.common.files import lfs_advice

Array = NDArray[Any]

DATA_TYPES: Mapping[int, DataType] = {
    TensorProto.FLOAT: DataType.FLOAT32,
    TensorProto.FLOAT16: DataType.FLOAT16,
    TensorProto.BFLOAT16: BFLOAT16,
    TensorProto.DOUBLE: DataType.FLOAT64,
    TensorProto.INT64: DataType.INT64,
    TensorProto.INT32: DataType.INT32,
    TensorProto.INT16: DataType.INT16,
    TensorProto.INT8: DataType.INT8,
    TensorProto.UINT64: DataType.UINT64,
    TensorProto.UINT32: DataType.UINT32,
    TensorProto.UINT16: DataType.UINT16,
    TensorProto.UINT8: DataType.UINT8,
    TensorProto.BOOL: DataType.UINT8,
    TensorProto.INT4: DataType.INT4,
    TensorProto.UINT4: DataType.UINT4,
}
"""Data types by ONNX's numbers; booleans are 0 and 1 of UINT8."""

ELEMENT_TYPES: Mapping[DataType, int] = {
    data_type: element for element, data_type in DATA_TYPES.items() if element != TensorProto.BOOL
}
"""ONNX's numbers by data types."""

_CODES = {
    "BOOL": DataType.UINT8,
    "FLOAT8E4M3FN": DataType.UINT8,
    "FLOAT8E4M3FNUZ": DataType.UINT8,
    "FLOAT8E5M2": DataType.UINT8,
    "FLOAT8E5M2FNUZ": DataType.UINT8,
    "FLOAT8E8M0": DataType.UINT8,
    "FLOAT4E2M1": DataType.UINT8,
    "INT2": DataType.INT8,
    "UINT2": DataType.UINT8,
}

CODED: Mapping[int, DataType] = {
    TensorProto.DataType.Value(name): data_type
    for name, data_type in _CODES.items()
    if name in set(TensorProto.DataType.keys())  # older versions of onnx lack some
}
"""Types that DirectML lacks by ONNX's numbers, with the types that hold them: booleans as 0 and 1, integers as numbers,
floats as their bits."""

_PACKED_BITS = {"FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}

STRINGS_ADVICE = (
    "encode strings as integers outside the model (scikit-learn: LabelEncoder for labels, OrdinalEncoder for features, "
    "before fitting)"
)

_CHUNK_BYTES = 1 << 22
"""Bytes of the rows of a deferred array that are computed at once."""


class DeferredArray:
    """Elements of a weight that are computed at each read instead of being stored.

    It stands for an array in ``OnnxValue.array``: a weight is read once, for its upload, so the host never holds all
    weights of a model in the form that the device has.

    Args:
        shape: Shape, of rank 1 or more.
        dtype: NumPy dtype.
        rows: Computes a range of rows (indices of dimension 0).
        row_bytes: Memory of the inputs of one row, which bounds how many rows are computed at once.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: DTypeLike, rows: Callable[[slice], Array], row_bytes: int | None = None
    ):
        self.shape, self.dtype, self._rows = shape, np.dtype(dtype), rows
        self.size = math.prod(shape)
        self.nbytes = self.size * self.dtype.itemsize
        self._step = max(1, _CHUNK_BYTES // max(1, row_bytes or self.nbytes // max(1, shape[0])))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        """Return the elements."""
        array = np.empty(self.shape, self.dtype)
        for start in range(0, self.shape[0], self._step):
            span = slice(start, min(start + self._step, self.shape[0]))
            array[span] = self._rows(span)
        return array if dtype is None else array.astype(dtype, copy=False)

    def rows(self, span: slice) -> Array:
        """Return a range of rows."""
        return self._rows(span)

    def first(self, count: int) -> DeferredArray:
        """Return the first rows."""
        return DeferredArray((count, *self.shape[1:]), self.dtype, self._rows, max(1, _CHUNK_BYTES // self._step))

    def pieces(self, count: int) -> list[DeferredArray]:
        """Return the rows in a number of pieces, as ``np.array_split`` divides them."""
        ends = np.cumsum([0, *(len(part) for part in np.array_split(np.empty(self.shape[0], np.bool_), count))])
        row_bytes = max(1, _CHUNK_BYTES // self._step)
        return [
            DeferredArray((stop - start, *self.shape[1:]), self.dtype, self._shifted(start), row_bytes)
            for start, stop in itertools.pairwise(map(int, ends))
        ]

    @classmethod
    def joined(cls, arrays: Sequence[Array | DeferredArray]) -> DeferredArray:
        """Return the rows of several arrays of one dtype, one after the other."""
        ends = list(itertools.accumulate(array.shape[0] for array in arrays))

        def rows(span: slice) -> Array:
            parts = []
            for array, end in zip(arrays, ends, strict=True):
                start = end - array.shape[0]
                rows = slice(max(span.start, start) - start, min(span.stop, end) - start)
                if rows.start < rows.stop:
                    parts.append(array._rows(rows) if isinstance(array, DeferredArray) else array[rows])
            return parts[0] if len(parts) == 1 else np.concatenate(parts)

        steps = [array._step for array in arrays if isinstance(array, DeferredArray)]
        row_bytes = _CHUNK_BYTES // min(steps) if steps else None
        return cls((ends[-1], *arrays[0].shape[1:]), arrays[0].dtype, rows, row_bytes)

    def _shifted(self, start: int) -> Callable[[slice], Array]:
        return lambda span: self._rows(slice(span.start + start, span.stop + start))


@lru_cache(maxsize=64)
def type_name(element: int) -> str:
    """Return the name of an ONNX element type as ONNX writes it in lower case: ``float``, ``bfloat16``."""
    is_known = element in TensorProto.DataType.values()
    return TensorProto.DataType.Name(element).lower() if is_known else f"type {element}"


def data_type_of(element: int, what: str) -> DataType:
    """Return the data type for an ONNX element type.

    Args:
        element: ONNX's number of the type.
        what: Name in messages.

    Raises:
        NotSupported: If DirectML has no such type.
    """
    if element not in DATA_TYPES:
        advice = f"; {STRINGS_ADVICE}" if element == TensorProto.STRING else ""
        raise NotSupported(f"{what}: elements of type {type_name(element)} are not supported{advice}")
    return DATA_TYPES[element]


def stored_type(element: int, what: str) -> tuple[DataType, int]:
    """Return the data type that holds an ONNX element type, and the latter if DirectML lacks it, else 0.

    Raises:
        NotSupported: If no data type holds it.
    """
    return (CODED[element], element) if element in CODED else (data_type_of(element, what), 0)


def is_float_code(coded: int) -> bool:
    """Return whether elements are the bits of floats that DirectML lacks."""
    return coded != 0 and "FLOAT" in TensorProto.DataType.Name(coded)


def numpy_type(data_type: DataType, coded: int) -> np.dtype[Any]:
    """Return the NumPy dtype of elements that callers see; 2- and 4-bit integers take a byte each."""
    if coded == TensorProto.BOOL or is_float_code(coded):
        return np.dtype(helper.tensor_dtype_to_np_dtype(coded))
    return data_type.numpy


def as_typed(array: Array, data_type: DataType, coded: int) -> Array:
    """Convert stored elements to the dtype that callers see."""
    dtype = numpy_type(data_type, coded)
    return array.view(dtype) if is_float_code(coded) else array.astype(dtype, copy=False)


def as_coded(array: Array) -> tuple[Array, DataType, int]:
    """Return an array in its stored form, with its type: see ``CODED``."""
    if array.dtype.type.__module__ == np.__name__:  # other types belong to ml_dtypes
        coded = TensorProto.BOOL if array.dtype == np.bool_ else 0
    else:
        element = helper.np_dtype_to_tensor_dtype(array.dtype)
        coded = element if element in CODED else 0
    if not coded:
        return array, DataType.from_numpy(array.dtype), 0
    held = CODED[coded].numpy
    return array.view(held) if is_float_code(coded) else array.astype(held), CODED[coded], coded


def as_held(array: Array, data_type: DataType) -> Array:
    """Return an array in the NumPy type of a data type: booleans as UINT8, 4-bit integers one per byte."""
    return np.ascontiguousarray(array).astype(data_type.numpy, copy=False).reshape(array.shape)


# ---- tensors of a file -----------------------------------------------------------------------------------------------


def as_array(proto: TensorProto, what: str, folder: Path | None = None) -> tuple[DataType, int, Array]:
    """Return the type that holds a tensor, its own type if DirectML lacks it, and its elements; see ``stored_type``.

    Args:
        proto: The tensor.
        what: Name in messages.
        folder: Folder of the model with external data; None if there is none.

    Raises:
        ModelError: If data are missing, too short or too long, or outside the folder.
        NotSupported: If DirectML has no such type.
    """
    data_type, coded = stored_type(proto.data_type, what)
    sizes = tuple(proto.dims)
    if any(size < 0 for size in sizes) or math.prod(sizes) > MAX_ELEMENTS:
        raise ModelError(what, f"its sizes must be at least 0, and at most {MAX_ELEMENTS} elements, got {list(sizes)}")
    if proto.data_location == TensorProto.EXTERNAL:
        array = _external(proto, _bits(proto, data_type), what, folder)
    else:
        _check_length(proto, _bits(proto, data_type), what)
        try:
            array = numpy_helper.to_array(proto)
        except Exception as error:  # onnx may raise any exception for malformed data
            raise ModelError(what, f"its data cannot be read: {error}") from None
    is_viewed = is_float_code(coded) and array.dtype != data_type.numpy
    return data_type, coded, array.view(data_type.numpy) if is_viewed else array.astype(data_type.numpy, copy=False)


def _bits(proto: TensorProto, data_type: DataType) -> int:
    """Return the number of bits of a tensor's element in a file."""
    return _PACKED_BITS.get(TensorProto.DataType.Name(proto.data_type), data_type.bits)


def embed_external(proto: TensorProto, what: str, folder: Path | None) -> None:
    """Load external data of a tensor into it. Arguments and exceptions are those of ``as_array``."""
    if proto.data_location == TensorProto.EXTERNAL:
        data_type, coded, array = as_array(proto, what, folder)
        kind = helper.tensor_dtype_to_np_dtype(proto.data_type)
        typed = as_typed(array, data_type, coded).astype(kind, copy=False)
        proto.CopyFrom(numpy_helper.from_array(typed, proto.name))


def _check_length(proto: TensorProto, bits: int, what: str) -> None:
    needed = -(-math.prod(proto.dims) * bits // 8)
    if proto.HasField("raw_data") and len(proto.raw_data) != needed:
        raise ModelError(
            what, f"its data must be {needed} bytes for sizes {list(proto.dims)}, got {len(proto.raw_data)}"
        )
    count = max(
        *(len(proto.float_data), len(proto.double_data)),
        *(len(proto.int32_data), len(proto.int64_data), len(proto.uint64_data)),
    )
    if not proto.HasField("raw_data") and math.prod(proto.dims) > max(2, 8 // bits) * count:
        raise ModelError(what, f"its data must be {math.prod(proto.dims)} elements, got {count}")


_MAX_POINTER_BYTES = 1024


def _external(proto: TensorProto, bits: int, what: str, folder: Path | None) -> Array:
    """Memory-map the external data of a tensor."""
    entries = {entry.key: entry.value for entry in proto.external_data}
    if folder is None:
        raise ModelError(
            what, "its data are in an external file: pass the path of the model, not bytes or a ModelProto"
        )
    path = _inside(folder, entries.get("location", ""), what)
    needed = -(-math.prod(proto.dims) * bits // 8)
    dtype = helper.tensor_dtype_to_np_dtype(proto.data_type)
    try:
        offset, length = int(entries.get("offset", "0")), int(entries.get("length", str(needed)))
        size = path.stat().st_size
        small = path.read_bytes() if size < _MAX_POINTER_BYTES else b""
    except (ValueError, OSError) as error:
        raise ModelError(what, f"its external data cannot be read: {error}") from None
    if length != needed or offset < 0 or offset + needed > size:
        raise ModelError(
            what,
            f"its external data must be {needed} bytes from byte {offset} on of {path.name}, which has {size}"
            f"{lfs_advice(small)}",
        )
    if not needed:
        return np.zeros(tuple(proto.dims), dtype)
    raw = np.memmap(path, np.uint8, "r", offset, (needed,))
    if bits >= 8:
        return raw.view(dtype).reshape(tuple(proto.dims))
    packed = TensorProto(data_type=proto.data_type, dims=proto.dims, raw_data=raw.tobytes())
    return numpy_helper.to_array(packed)


def _inside(folder: Path, location: str, what: str) -> Path:
    """Resolve the path of a regular file inside a folder, following links."""
    root = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(root / location))
    if not location or "\0" in location or not path.is_relative_to(root) or not path.is_file():
        raise ModelError(what, f"its data must be in a file inside the model's folder, got location {location[:80]!r}")
    return path
