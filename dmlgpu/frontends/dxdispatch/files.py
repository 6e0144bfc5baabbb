"""Files that a model reads and writes: access rules, and images as values of resources."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import ModelError
from dmlgpu.common.memory import check_host_memory
from dmlgpu.frontends.dxdispatch.json_node import JsonNode, quoted


class MissingFile(ModelError, FileNotFoundError):
    """A file that a model refers to, or the model itself, does not exist."""


@dataclass(frozen=True)
class FileAccess:
    """Files that a model may access.

    Attributes:
        folder: Folder of the model; it may read files there and below.
        everywhere: Whether it may read and write any regular file. Relative paths are then also looked up in the
            current directory.
    """

    folder: Path
    everywhere: bool = False

    def source(self, node: JsonNode) -> Path:
        """Return the regular file that a string names, with its symbolic links resolved."""
        name = node.string()
        candidates = tuple(dict.fromkeys((self.folder / name, *((Path(name),) if self.everywhere else ()))))
        path = next((path for path in candidates if _exists(path)), None)
        if path is None:
            raise MissingFile(node.path, f"there is no file {' nor '.join(quoted(str(path)) for path in candidates)}")
        try:
            return self._checked(path, self.folder, "read")
        except ValueError as error:
            raise node.error(str(error)) from error

    def target(self, file: Path, folder: Path, path: str) -> Path:
        """Return a file to write, with its symbolic links resolved.

        Args:
            file: As the model names it.
            folder: The output directory.
            path: Where in the model, for messages.
        """
        try:
            return self._checked(folder / file, folder, "write")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ModelError(path, f"cannot write {quoted(str(folder / file))}: {reason}") from error

    def _checked(self, path: Path, folder: Path, verb: str) -> Path:
        resolved = Path(os.path.realpath(path))
        if not self.everywhere and not resolved.is_relative_to(os.path.realpath(folder)):
            where = "the model's folder" if verb == "read" else "the output directory"
            raise ValueError(
                f"{quoted(str(resolved))} lies outside {where}; a model may {verb} it only with --allow-paths "
                "(in Python allow_paths=True)"
            )
        if resolved.exists() and not stat.S_ISREG(resolved.stat().st_mode):
            raise ValueError(f"{quoted(str(resolved))} is not a regular file")
        return resolved


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long for the file system, a folder that may not be entered, a NUL
        return False


IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg"})
"""Suffixes of image files."""

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_TYPES = (DataType.FLOAT32, DataType.FLOAT16)
_FORMATS = ("PNG", "JPEG")
_MAX_PIXELS = 1 << 27


def _pillow(node: JsonNode) -> ModuleType:
    try:
        from PIL import Image  # noqa: PLC0415  an extra
    except ImportError:
        raise node.error("reading images requires pillow: pip install 'dmlgpu[demo]'") from None
    return Image


def read_image(
    source: JsonNode, path: Path, data_type: DataType, sizes: tuple[int, ...] | None
) -> tuple[tuple[int, ...], Callable[[], NDArray[Any]]]:
    """Return the shape (1, channels, height, width) of an image, and a function that loads its elements, 0 to 1.

    Args:
        source: Value in the model that names the file.
        path: The file.
        data_type: FLOAT32 or FLOAT16.
        sizes: N, C, H, W to bring it to, by cubic interpolation; None keeps its own, with three channels.
    """
    pillow = _pillow(source)
    if data_type not in _TYPES:
        raise source.error(
            f"images become FLOAT32 or FLOAT16: initialValuesDataType must name one of them, got {data_type.name}"
        )
    try:
        with pillow.open(path, formats=_FORMATS) as image:
            width, height = image.size
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise source.error(f"{quoted(path.name)} is not a PNG or JPEG image: {error}") from error
    shape = (1, 3, height, width) if sizes is None else sizes
    if width * height > _MAX_PIXELS:
        raise source.error(f"{quoted(path.name)} must have at most {_MAX_PIXELS:,} pixels, got {width:,} x {height:,}")
    check_host_memory(4 * width * height + 8 * math.prod(shape), source.path, "read an image")

    def make() -> NDArray[Any]:
        try:
            with pillow.open(path, formats=_FORMATS) as image:
                pixels = image.convert(_MODES[shape[1]])
        except (OSError, ValueError, SyntaxError) as error:
            raise source.error(f"cannot read {quoted(path.name)}: {error}") from error
        if pixels.size != (shape[3], shape[2]):
            pixels = pixels.resize((shape[3], shape[2]), pillow.Resampling.BICUBIC)
        planes = np.asarray(pixels).reshape(shape[2], shape[3], shape[1]).transpose(2, 0, 1)
        return (planes.astype(np.float32) / np.float32(255)).astype(data_type.numpy).reshape(-1)

    return shape, make


def parse_resample(size: JsonNode | None, mode: JsonNode | None) -> tuple[int, ...] | None:
    """Return ``resampleSize``: N, C, H, W with N = 1; None if it is absent or empty."""
    if mode is not None and mode.string().lower() != "scale":
        raise mode.error(f"must be 'scale', got {quoted(mode.string())}")
    sizes = () if size is None else size.integers(1)
    if not sizes or size is None:
        return None
    if len(sizes) != 4 or sizes[0] != 1 or sizes[1] not in _MODES or sizes[2] * sizes[3] > _MAX_PIXELS:
        raise size.error(
            f"must be [1, channels, height, width] with 1, 3 or 4 channels and at most {_MAX_PIXELS:,} pixels, "
            f"got {list(sizes)[:8]}"
        )
    return sizes


def check_writable(target: JsonNode, resource: Any, dimensions: tuple[int, ...] | None) -> None:
    """Raise ModelError unless a resource can be written as an image.

    Args:
        target: Value in the model that names the file.
        resource: The ``Resource``.
        dimensions: Dimensions of the command.
    """
    _pillow(target)
    if resource.data_type not in _TYPES:
        raise target.error(f"only FLOAT32 and FLOAT16 can be written as images, got {resource.data_type.name}")
    if dimensions is not None and not _is_image(dimensions):
        raise target.error(_expected_shape(dimensions))


def image_bytes(array: NDArray[Any], suffix: str, path: str) -> bytes:
    """Return an image as the bytes of a file.

    Args:
        array: (1, channels, height, width), 0 to 1; other values are clipped.
        suffix: Suffix of the file, which selects the format.
        path: Where in the model, for messages.
    """
    pillow = _pillow(JsonNode(None, path))
    if not _is_image(array.shape):
        raise ModelError(path, _expected_shape(array.shape))
    planes = np.nan_to_num(array[0].astype(np.float32)).clip(0, 1) * 255
    pixels = planes.astype(np.uint8).transpose(1, 2, 0)
    mode = "RGB" if suffix != ".png" and pixels.shape[2] == 4 else _MODES[pixels.shape[2]]
    image = pillow.fromarray(np.ascontiguousarray(pixels[:, :, 0] if mode == "L" else pixels[:, :, : len(mode)]))
    stream = BytesIO()
    image.save(stream, "PNG" if suffix == ".png" else "JPEG")
    return stream.getvalue()


def _is_image(sizes: tuple[int, ...]) -> bool:
    return len(sizes) == 4 and sizes[0] == 1 and sizes[1] in _MODES and max(sizes) < 1 << 16


def _expected_shape(sizes: tuple[int, ...]) -> str:
    return f"an image must have dimensions [1, channels, height, width] with 1, 3 or 4 channels, got {list(sizes)}"
