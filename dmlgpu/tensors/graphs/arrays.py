"""The arrays that callers give a graph: data of constants, and values of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common import coercion as kinds
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.runtime.child import as_tuple
from dmlgpu.tensors.graphs.nodes import GraphInput

Array: TypeAlias = NDArray[Any]

_DATA_TYPE = kinds.optional(kinds.member_of(DataType))
_TYPES = {one.numpy: one for one in DataType if one is not DataType.UNKNOWN and one.bits >= 8}


def _numbers(value: Any) -> Array:
    """Take what NumPy makes an array of numbers of, with at least one element."""
    try:
        array = np.asarray(value)
    except Exception:  # whatever a foreign __array__ raises
        array = np.empty(0)
    if array.dtype.kind not in "biuf" or not array.size:
        raise kinds.CoercionError("an array of numbers, at least one", value)
    return array


def encoded(caller: str, array: Any, data_type: Any) -> tuple[TensorDesc, bytes]:
    """Return the tensor of an array, with at least one dimension, and its data.

    Args:
        caller: for messages.
        array: numbers, at least one.
        data_type: the tensor's type; None takes the array's.

    Raises:
        InvalidArgument: the array is of no type of DirectML's, or holds what the type cannot.
    """
    data_type = kinds.argument(caller, "data_type", _DATA_TYPE, data_type)
    given = kinds.argument(caller, "array", _numbers, array)
    if data_type is None:
        data_type = _TYPES.get(given.dtype)
        if data_type is None:
            raise InvalidArgument(f"{caller}: array must be of a type of DirectML's, got {given.dtype}")
    if given.ndim == 0:
        given = given.reshape(1)
    desc = TensorDesc(data_type, given.shape)
    return desc, desc.encode(given.astype(desc.data_type.numpy)).tobytes()


def in_order(
    caller: str,
    inputs: Sequence[GraphInput],
    needed: Sequence[bool],
    given: Mapping[str, Array] | Sequence[Array | None],
) -> list[Array | None]:
    """Return an array per input, None for those that are not needed.

    Args:
        caller: for messages.
        inputs: the graph's.
        needed: which of them must have an array.
        given: arrays by the inputs' names, or in the inputs' order.

    Raises:
        InvalidArgument: an array is missing or superfluous.
    """
    names = [one.name for one in inputs]
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise InvalidArgument(f"{caller}: inputs must be named {', '.join(names)}, got {name!r}")
        arrays: Sequence[Array | None] = [given.get(name) for name in names]
    else:
        arrays = as_tuple(caller, "inputs", given, "arrays")
        if len(arrays) != len(names):
            raise InvalidArgument(f"{caller}: inputs must be {len(names)} arrays, got {len(arrays)}")
    for name, array, is_needed in zip(names, arrays, needed, strict=True):
        if is_needed and array is None:
            raise InvalidArgument(f"{caller}: inputs must have an array for {name!r}")
    return [array if is_needed else None for array, is_needed in zip(arrays, needed, strict=True)]
