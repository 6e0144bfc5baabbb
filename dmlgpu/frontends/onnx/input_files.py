"""Files as inputs of a model: NumPy arrays and images."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.frontends.onnx.model import Declared

ARRAYS = (".npy", ".npz")
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm")

_WILD = "*?["


@dataclass(frozen=True)
class PictureOptions:
    """Conversion of pixels to elements of an input: ``(pixel * scale - mean) / std``.

    Attributes:
        size: Height and width; None for the model's input size, or else the size of the image.
        scale: Factor of a pixel, which is from 0 to 255. Integer inputs get unscaled pixels.
        mean, std: A number, or one per channel.
    """

    size: tuple[int, int] | None = None
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


def find_files(patterns: Sequence[str]) -> list[Path]:
    """Return the files that patterns match, each once, sorted within a pattern.

    Args:
        patterns: Files, folders (their arrays and images), or patterns with ``*``, ``?`` and ``**``.

    Raises:
        InvalidArgument: If a pattern matches no file.
    """
    files: dict[Path, None] = {}
    for pattern in patterns:
        path = Path(pattern)
        if path.is_file():
            matches = [path]
        elif path.is_dir():
            matches = sorted(file for file in path.iterdir() if file.suffix.lower() in ARRAYS + PICTURES)
        elif any(character in pattern for character in _WILD):
            matches = sorted(file for file in map(Path, glob.glob(pattern, recursive=True)) if file.is_file())
        else:
            matches = []
        if not matches:
            raise InvalidArgument(
                f"run: --inputs must be files, a folder or a pattern such as 'pictures/*.png', "
                f"got {pattern!r}, which matches no file"
            )
        files |= dict.fromkeys(matches)
    return list(files)


def read_inputs(path: Path, inputs: Sequence[Declared], options: PictureOptions) -> dict[str, NDArray[Any]]:
    """Return the inputs in a file: an .npz by names, a .npy or an image for a model with one input.

    Raises:
        InvalidArgument: If the file cannot be read, or does not fit the model.
    """
    suffix = path.suffix.lower()
    if suffix == ".npz":
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays.items())
        except Exception as error:  # a damaged archive raises exceptions of zipfile and zlib
            raise InvalidArgument(f"cannot be read: {error}") from None
    if len(inputs) != 1:
        names = ", ".join(declared.name for declared in inputs) or "none"
        raise InvalidArgument(
            f"the model has {len(inputs)} inputs ({names}); save arrays with these names in an .npz file"
        )
    (declared,) = inputs
    if suffix == ".npy":
        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InvalidArgument(f"cannot be read: {error}") from None
        return {declared.name: array}
    return {declared.name: read_picture(path, declared, options)}


def read_picture(path: Path, declared: Declared, options: PictureOptions) -> NDArray[Any]:
    """Return an image as an input of shape {1, channels, height, width}, or {1, height, width, channels}.

    Raises:
        InvalidArgument: If it cannot be read, or the input does not take images.
    """
    is_last, channels, declared_size = picture_layout(declared)
    try:
        from dmlgpu.common.files import load_picture  # noqa: PLC0415  an extra
    except ImportError:
        raise InvalidArgument(
            "reading images requires pillow: pip install 'dmlgpu[demo]', or pass .npy files"
        ) from None
    try:
        picture = load_picture(path)
    except OSError as error:
        raise InvalidArgument(f"cannot be read: {error}") from None
    height, width = (
        chosen or own
        for chosen, own in zip(options.size or declared_size, (picture.height, picture.width), strict=True)
    )
    if (width, height) != picture.size:
        picture = picture.resize((width, height), 2)  # bilinear
    pixels = np.asarray(picture if channels == 3 else picture.convert("L"))
    expected = declared.data_type.numpy
    elements: NDArray[Any] = pixels.reshape(height, width, channels)
    if expected.kind == "f":
        scaled = elements.astype(np.float32) * np.float32(options.scale)
        elements = (scaled - np.array(options.mean, np.float32)) / np.array(options.std, np.float32)
    planes = elements if is_last else elements.transpose(2, 0, 1)
    return np.ascontiguousarray(planes[np.newaxis].astype(expected))


def picture_layout(declared: Declared) -> tuple[bool, int, tuple[int, int]]:
    """Return whether channels come last, their number, and height and width (0 if symbolic).

    Raises:
        InvalidArgument: If the input does not take images.
    """
    shape = declared.shape or (None, 3, None, None)
    if (len(shape) == 4 and shape[0] in (1, None)) or (len(shape) == 4 and isinstance(shape[0], str)):
        for axis, height in ((1, 2), (3, 1)):
            if shape[axis] in (1, 3) or (axis == 1 and not isinstance(shape[1], int) and shape[3] not in (1, 3)):
                channels = 1 if shape[axis] == 1 else 3
                first, second = (size if isinstance(size, int) else 0 for size in shape[height : height + 2])
                return axis == 3, channels, (first, second)
    raise InvalidArgument(
        f"input {declared.name!r} of shape {list(shape)} cannot take an image, which needs [1, 3, height, width], "
        "[1, height, width, 3], or 1 for 3; give .npy files"
    )


def check_options(options: PictureOptions, inputs: Sequence[Declared]) -> None:
    """Raise InvalidArgument if the number of means does not match the channels."""
    texts: Mapping[str, tuple[float, ...]] = {"mean": options.mean, "std": options.std}
    for name, numbers in texts.items():
        if len(inputs) == 1 and len(numbers) not in (1, picture_layout(inputs[0])[1]):
            channels = picture_layout(inputs[0])[1]
            raise InvalidArgument(f"run: --{name} must be 1 number, or {channels}, one per channel, got {len(numbers)}")
        if name == "std" and 0.0 in numbers:
            raise InvalidArgument("run: --std must not be 0")
