"""Data for the inputs of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.pydirectml.calls import surface
from dmlgpu.frontends.pydirectml.errors import InvalidCall, WrongArgument
from dmlgpu.frontends.pydirectml.expression import Expression, unwrap
from dmlgpu.frontends.pydirectml.tensors import as_floats, as_numbers
from dmlgpu.tensors.tensor import Tensor as Node


class Binding:
    """Data for an input.

    Args:
        expr: the input, whose description says how many bytes there are.
        data: an array of numbers, which becomes FLOAT32, in the order in which the elements lie in memory: for strided
            inputs with as many elements as their strides reach. Inputs of other types take arrays of their own type, or
            their bits as FLOAT32. It is copied.

    Raises:
        WrongArgument: no expression, no array of numbers, or one of a type that is neither the input's nor FLOAT32.
        InvalidCall: too few or too many bytes, or an empty expression.
    """

    @surface
    def __init__(self, expr: Expression, data: Any) -> None:
        self._node = unwrap(expr)
        self._raw = _raw(self._node, data)


def _raw(node: Node, data: Any) -> NDArray[np.uint8]:
    """Return a copy of a tensor's bytes in memory."""
    desc, array = node.desc, as_numbers("Binding", data)
    if desc.data_type is DataType.FLOAT32 or array.dtype == np.float32:
        array = as_floats("Binding", array)
    elif array.dtype != desc.data_type.numpy:
        raise WrongArgument(
            f"Binding: data for {node!r} must be an array of {desc.data_type.numpy}, or its bits as float32, "
            f"got {array.dtype}"
        )
    given = array.tobytes()
    missing = -len(given) % 4  # tensors take whole words
    if len(given) + missing != desc.byte_size:
        raise InvalidCall(
            f"Binding: data for {node!r} must have {desc.byte_size} bytes, as the tensor has in memory, "
            f"got {len(given)} ({array.dtype} with shape {array.shape})"
        )
    return np.frombuffer(given + bytes(missing), np.uint8)
