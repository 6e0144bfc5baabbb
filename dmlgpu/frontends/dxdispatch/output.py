"""Reading a resource's bytes as an array, as printed text, as a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import ModelError
from dmlgpu.common.files import whole_file, write_array, write_bytes
from dmlgpu.frontends.dxdispatch.images import IMAGE_SUFFIXES, image_bytes
from dmlgpu.frontends.dxdispatch.node import quoted
from dmlgpu.frontends.dxdispatch.resources import Resource


def elements(resource: Resource, raw: NDArray[np.uint8]) -> NDArray[Any]:
    """Return the resource as a flat array of its initial values' type (bytes for mixed types), without what pads it."""
    data_type = DataType.UINT8 if resource.data_type is DataType.UNKNOWN else resource.data_type
    flat = TensorDesc(data_type, (resource.element_count,))
    return flat.decode(raw[: flat.byte_size])


def shaped(
    resource: Resource, raw: NDArray[np.uint8], dimensions: Sequence[int] | None, tensor: TensorDesc | None
) -> NDArray[Any]:
    """Return the resource as an array with its sizes, where they are known.

    Args:
        resource: the resource.
        raw: its bytes.
        dimensions: sizes that the model asks for; they win.
        tensor: what it was last bound to; its sizes and strides apply where it ``covers`` the resource.
    """
    if dimensions is not None:
        return elements(resource, raw)[: math.prod(dimensions)].reshape(dimensions)
    if tensor is not None and covers(tensor, resource):
        array = tensor.decode(raw)
        return (
            array
            if resource.data_type in (DataType.UNKNOWN, tensor.data_type)
            else array.view(resource.data_type.numpy)
        )
    sizes = resource.values.sizes if resource.offset == 0 else None
    return elements(resource, raw).reshape(sizes or -1)


def covers(tensor: TensorDesc, resource: Resource) -> bool:
    """Whether a tensor at offset 0 of a resource takes exactly the part that holds values, in elements of one width."""
    byte_count = -(-tensor.physical_element_count * tensor.data_type.bits // 8)
    same_width = resource.data_type is DataType.UNKNOWN or resource.data_type.bits == tensor.data_type.bits
    if resource.data_type.bits == 4:
        same_width = resource.data_type is tensor.data_type
    return same_width and byte_count == resource.extent


def to_text(array: NDArray[Any], verbose: bool) -> str:
    """Return the elements as DxDispatch prints them: separated by commas, floats with six digits.

    Args:
        array: a flat array.
        verbose: give each element a line with its index and its bits in hexadecimal.
    """
    texts = [f"{value:g}" if array.dtype.kind == "f" else str(value) for value in array.tolist()]
    if not verbose:
        return ", ".join(texts)
    width, digits = len(str(array.size)), 2 * array.dtype.itemsize
    bits = array.view(f"u{array.dtype.itemsize}").tolist()
    lines = zip(texts, bits, strict=True)
    return "".join(f"[{index:{width}}] {text} (0x{word:0{digits}X})\n" for index, (text, word) in enumerate(lines))


def write(file: Path, array: NDArray[Any], raw: NDArray[np.uint8], path: str) -> None:
    """Write a resource: an array to a ``.npy`` file or a picture, the plain bytes to any other.

    Raises:
        ModelError: when the file cannot be written; ``path`` is the model's path in the message.
    """
    suffix = file.suffix.lower()
    picture = np.frombuffer(image_bytes(array, suffix, path), np.uint8) if suffix in IMAGE_SUFFIXES else None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as stream:
            if picture is not None:
                write_bytes(stream, picture)
            elif file.suffix.lower() == ".npy":
                write_array(stream, array)
            else:
                write_bytes(stream, raw)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(path, f"cannot write {quoted(str(file))}: {reason}") from error
