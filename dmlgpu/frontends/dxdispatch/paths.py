"""Which files a model may read and write: a model that somebody sends must not reach those of whoever runs it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from dmlgpu.common.errors import ModelError
from dmlgpu.frontends.dxdispatch.node import Node, quoted


class MissingFile(ModelError, FileNotFoundError):
    """A file that a model refers to, or the model itself, does not exist."""


@dataclass(frozen=True)
class Access:
    """What a model may reach.

    Attributes:
        folder: the model's; what it reads lies there or below.
        everywhere: whether it may read and write any regular file. Relative references are then looked up in the
            current directory too.
    """

    folder: Path
    everywhere: bool = False

    def source(self, node: Node) -> Path:
        """Return the regular file that a string names, with its symbolic links resolved.

        Raises:
            MissingFile: when there is none.
            ModelError: when it lies elsewhere, or is a device, a pipe or a folder.
        """
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
            file: as the model names it.
            folder: the output directory.
            path: where in the model, for messages.

        Raises:
            ModelError: when it lies elsewhere, or is a device, a pipe or a folder.
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
            raise ValueError(f"{quoted(str(resolved))} is no regular file")
        return resolved


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long for the file system, a folder that may not be entered, a NUL
        return False
