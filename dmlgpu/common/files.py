"""Atomic writing of files, first records of JSON Lines, tables of TOML files, and reading of images."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import secrets
import shutil
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TextIO

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common.errors import ModelError

if TYPE_CHECKING:
    from PIL import Image

GGUF = b"GGUF"
"""First bytes of a GGUF file."""

PARTIAL_SUFFIX = ".part"
"""Suffix of files that are being written."""


def is_gguf(path: Path) -> bool:
    """Return whether a file is a language model in GGUF: by its suffix, or its first bytes.

    Args:
        path: The file; it may be missing.
    """
    if path.suffix.lower() == ".gguf":
        return True
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(GGUF)) == GGUF
    except (OSError, ValueError):
        return False


def lfs_advice(head: bytes) -> str:
    """Return a hint for an error message about a file that Git LFS has not downloaded yet; empty for other files.

    Args:
        head: First bytes of the file.
    """
    is_pointer = head.startswith(b"version https://git-lfs.github.com/spec/")
    return "; it is a pointer of Git LFS: run 'git lfs pull' in its folder" if is_pointer else ""


_MAX_OF_LINE = 1 << 24
"""Bytes of a first line that are read."""


def first_record(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file's first line; empty if there is none, or it cannot be read."""
    try:
        with path.open("rb") as file:
            record = json.loads(file.readline(_MAX_OF_LINE))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def toml_tables(
    text: str, where: str, name: str, kinds: Mapping[str, type | tuple[type]], required: Collection[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the tables ``[[name]]`` of a TOML text, each with its place for messages.

    Args:
        text: The text, which has no other keys.
        where: File, for messages.
        name: Name of the tables.
        kinds: Type of the value of each key. A tuple stands for a list of such values, or one of them.
        required: Keys that must not be missing or empty.

    Raises:
        ModelError: If the text is malformed; the message names file, line and key.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(where, f"is not TOML: {error}") from error
    for other in sorted(document.keys() - {name}):
        raise ModelError(f"{where}: {other}", f"is unknown; the only key is [[{name}]]")
    tables = document.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ModelError(f"{where}: {name}", f"must be tables, as [[{name}]] writes them")
    lines = [line for line, each in enumerate(text.splitlines(), 1) if each.startswith(f"[[{name}]]")]
    for index, table in enumerate(tables):
        line = f", line {lines[index]}" if len(lines) == len(tables) else ""
        place = f"{where}{line}: {name}[{index}]"
        for key in sorted(table.keys() - kinds.keys()):
            raise ModelError(f"{place}.{key}", f"is unknown; there are {', '.join(kinds)}")
        for key in required:
            if not table.get(key):
                raise ModelError(f"{place}.{key}", "is missing")
        yield place, {key: _toml_value(f"{place}.{key}", kinds[key], value) for key, value in table.items()}


_TOML_TYPES = {str: "a string", int: "an integer", bool: "true or false", dict: "a table"}


def _toml_value(where: str, kind: type | tuple[type], value: Any) -> Any:
    """Return a value of a TOML file if it is of a type."""
    if isinstance(kind, tuple):
        return tuple(_toml_value(where, kind[0], each) for each in (value if isinstance(value, list) else [value]))
    if type(value) is not kind:
        raise ModelError(where, f"must be {_TOML_TYPES[kind]}, got {value!r}")
    return value


def file_stem(text: str) -> str:
    """Return a text as a valid part of a file name, at most 80 characters; empty if it has no letters or digits."""
    return re.sub(r"[^\w.]+", "-", text).strip("-.")[:80]


class NamedFile(io.FileIO):
    """A file open for writing whose errors name it; those of ``write`` do not.

    Args:
        file: A path or a descriptor.
        mode: As for ``open``.
        name: Name of the file in errors.
    """

    def __init__(self, file: Path | int, mode: str, name: str):
        self._name = name
        with _named(name):
            super().__init__(file, mode, closefd=not isinstance(file, int))

    def write(self, data: Any, /) -> int:
        """Write bytes and return their number."""
        with _named(self._name):
            return super().write(data)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for atomic writing: an existing file is unchanged until the new one is on disk.

    The bytes go to a temporary file in the same folder, which is removed on failure. Pipes and devices are written
    directly.

    Raises:
        OSError: If the file cannot be written, or the disk is full; the error names ``path``.
    """
    target = Path(os.path.realpath(path))
    partial = None if _is_special(target) else target.with_name(f".dmlgpu-{secrets.token_hex(8)}{PARTIAL_SUFFIX}")
    try:
        with io.BufferedWriter(NamedFile(partial or target, "xb" if partial else "wb", str(path))) as stream:
            yield stream
            _store(stream, target, partial, str(path))
    except BaseException:
        if partial is not None:
            with contextlib.suppress(OSError):
                partial.unlink()
        raise


@contextlib.contextmanager
def growing_file(path: Path) -> Iterator[TextIO]:
    """Open a text file whose beginning is useful: it is called ``NAME.part`` while it is written.

    It is renamed at the end. ``NAME.part`` remains after an exception, or if it cannot be stored, for example on a full
    disk. Other than regular files are written directly.

    Raises:
        OSError: If the file cannot be written, or the disk is full; the error names the remaining file.
    """
    target = Path(os.path.realpath(path))
    partial = None if _is_special(target) else target.with_name(target.name + PARTIAL_SUFFIX)
    name = str(path) + PARTIAL_SUFFIX * (partial is not None)
    with _named(str(path)):
        file = NamedFile(partial or target, "wb", name)
    with io.TextIOWrapper(io.BufferedWriter(file), encoding="utf-8") as stream:
        yield stream
        _store(stream, target, partial, name)


def write_array(stream: BinaryIO, array: NDArray[Any]) -> None:
    """Write an array in NumPy's .npy format, in C order; unlike ``np.save`` it raises OSError when the disk is full."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(array))
    write_bytes(stream, array)


def write_bytes(stream: BinaryIO, array: NDArray[Any]) -> None:
    """Write the bytes of a contiguous array; unlike ``ndarray.tofile`` it raises OSError when the disk is full."""
    stream.write(array.reshape(-1).view(np.uint8).data)


def _is_special(target: Path) -> bool:
    """Return whether a path is a pipe, a device or another file that cannot be replaced.

    Raises:
        OSError: If the file exists and may not be written.
    """
    if target.is_file() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    return target.exists() and not target.is_file()


def _store(stream: IO[Any], target: Path, partial: Path | None, name: str) -> None:
    """Close a stream, and rename its file once it is on the disk."""
    stream.flush()
    if partial is None:
        return
    with _named(name):
        os.fsync(stream.fileno())
        stream.close()
        if target.exists():
            shutil.copymode(target, partial)
        partial.replace(target)


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Add a file's name to errors of the operating system."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = name, None
        raise


def load_picture(path: Path) -> Image.Image:
    """Return an image in RGB, rotated as its metadata says. Needs the ``demo`` extra.

    Raises:
        OSError: If the file is missing or is not an image.
    """
    from PIL import Image, ImageOps  # noqa: PLC0415 - not installed with dmlgpu

    try:
        with Image.open(path) as opened:
            return ImageOps.exif_transpose(opened).convert("RGB")
    except (Image.DecompressionBombError, SyntaxError, ValueError) as error:  # exceptions of Pillow besides OSError
        raise OSError(f"{path}: {error}") from error
