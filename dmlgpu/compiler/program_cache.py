"""Caches of rendered programs: in memory, and in files, so that the next process need not plan and render them.

A file holds one program as JSON, or the plans of a network for all sizes as a pickle, under a line with the hash of it:
damaged files are ignored, and so are those of other users: pickles can run code, as files of ``__pycache__`` can.
The name of a file is the hash of all that its content depends on, the compiler's own source files among it, so that
another version of dmlgpu never finds it. Files that cannot be read or written raise nothing: programs are made again.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import json
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.folders import FOLDER_VARIABLE, cache_folder
from dmlgpu.compiler.linker import BufferInterface, Interface
from dmlgpu.compiler.plan.sources import Role
from dmlgpu.compiler.program import Checks, Copy, KernelSource, Program, RenderedKernel, Slot
from dmlgpu.compiler.target import Target

programs: Final[Cache[tuple[OperatorDesc, Target], Program]] = Cache(CacheLimits(entries=1024, size=16 << 20))
"""Recently used programs of operators, by description and target; devices of the same kind share them."""

_PROGRAM_BYTES = 12 << 10
"""Estimated bytes of a program and its description, without sources."""

OFF = "off"

LIMITS: Final = CacheLimits(entries=1024, size=64 << 20)
"""Limits of a folder; the least recently used programs are evicted."""

_FORMAT = 1
_MAX_BYTES = 8 << 20  # per file
_SUFFIX, _PLANS_SUFFIX = ".json", ".plans"
_without_files: list[object] = []

_INVALID = OSError, ValueError, LookupError, TypeError, RecursionError, AttributeError, ImportError, pickle.PickleError
"""What reading a file raises that cannot be read, or is no program and no plans."""

Stored = TypeVar("Stored")


def memory_of(program: Program) -> int:
    """Return the estimated bytes of a program."""
    kernels = (*program.kernels, *program.initialization)
    return _PROGRAM_BYTES + sum(sys.getsizeof(kernel.source.body) for kernel in kernels)


class ProgramFiles:
    """A folder of programs. Safe for several threads and processes: files are written atomically.

    Args:
        folder: The folder, created at the first write.
        version: Version of the compiler (``version_of``); programs depend on it in addition to their keys.
        limits: Limits of the cache. Each process counts only its own additions between two scans of the folder.
    """

    def __init__(self, folder: Path, version: str, limits: CacheLimits = LIMITS):
        self.folder = folder
        self._version, self._limits = version, limits
        self._lock = threading.Lock()
        self._entries = self._bytes = -1  # not counted yet

    def load(self, key: str) -> Program | None:
        """Return the program that was saved under a key, which counts as a use; None if it is missing or damaged."""

        name = self._name(key)

        def decoded(body: bytes) -> Program:
            record = json.loads(body)
            if record["key"] != name:
                raise ValueError("renamed")
            return decode_program(record)

        return self._load(f"{name}{_SUFFIX}", decoded)

    def save(self, key: str, program: Program) -> None:
        """Store a program under a key, unless it is too large."""
        name = self._name(key)
        body = json.dumps({"key": name, **encode_program(program)}, separators=(",", ":")).encode()
        self._save(f"{name}{_SUFFIX}", body)

    def load_plans(self, key: str) -> list[Any] | None:
        """Return the plans that were saved under a key (see ``load``)."""
        name = self._name(key)

        def decoded(body: bytes) -> list[Any]:
            saved, plans = pickle.loads(body)
            if saved != name:
                raise ValueError("renamed")
            return _of(list, plans)

        return self._load(f"{name}{_PLANS_SUFFIX}", decoded)

    def save_plans(self, key: str, plans: list[Any]) -> None:
        """Store plans under a key (see ``save``). Raises what pickling raises."""
        name = self._name(key)
        self._save(f"{name}{_PLANS_SUFFIX}", pickle.dumps((name, plans), pickle.HIGHEST_PROTOCOL))

    def _load(self, name: str, decode: Callable[[bytes], Stored]) -> Stored | None:
        """Return the content of a file; None if it is missing or damaged."""
        if _without_files:
            return None
        path = self.folder / name
        try:
            with path.open("rb") as stream:
                if os.name == "posix" and os.fstat(stream.fileno()).st_uid != os.getuid():
                    return None
                data = stream.read(_MAX_BYTES + 1)
            digest, _, body = data.partition(b"\n")
            if hashlib.sha256(body).hexdigest().encode() != digest:
                raise ValueError("damaged")
            content = decode(body)
        except FileNotFoundError:
            return None
        except _INVALID:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return content

    def _save(self, name: str, body: bytes) -> None:
        """Write a file, unless it is too large."""
        if _without_files:
            return
        data = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
        if len(data) > min(_MAX_BYTES, self._limits.size):
            return
        partial = self.folder / f".{name}-{os.getpid()}-{threading.get_ident()}.part"
        with contextlib.suppress(OSError):
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                # Not synchronized to disk: a file truncated by a crash of the machine fails the hash.
                partial.write_bytes(data)
                partial.replace(self.folder / name)
            except OSError:
                partial.unlink(missing_ok=True)
                raise
            with self._lock:
                self._make_room(len(data))

    def _name(self, key: str) -> str:
        return hashlib.sha256(f"{_FORMAT}\n{self._version}\n{key}".encode()).hexdigest()

    def _make_room(self, added: int) -> None:
        """Count a new file, and remove old ones beyond the limits."""
        limits = self._limits
        self._entries, self._bytes = self._entries + 1, self._bytes + added
        if 0 < self._entries <= limits.entries and self._bytes <= limits.size:
            return
        files = sorted(self._files())  # least recently used first
        self._entries, self._bytes = len(files), sum(size for _, size, _ in files)
        if self._entries <= limits.entries and self._bytes <= limits.size:
            return
        # Evict more than necessary, so that not every later addition scans the folder.
        for _, size, path in files:
            if self._entries <= limits.entries * 3 // 4 and self._bytes <= limits.size * 3 // 4:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            self._entries, self._bytes = self._entries - 1, self._bytes - size

    def _files(self) -> Iterator[tuple[int, int, Path]]:
        """Yield last use, size and path of each file, including partial files that another process left."""
        for entry in os.scandir(self.folder):
            with contextlib.suppress(OSError):
                if entry.name.endswith((_SUFFIX, _PLANS_SUFFIX, ".part")) and entry.is_file(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    yield stat.st_mtime_ns, stat.st_size, Path(entry.path)


@contextlib.contextmanager
def without_files() -> Iterator[None]:
    """Disable reading and writing of program files within the context: the compiler or its shaders are not those on the
    disk, or the compiler is under test."""
    _without_files.append(None)
    try:
        yield
    finally:
        _without_files.pop()


def default_folder() -> Path | None:
    """Return the folder of programs: the one that the environment variable DMLGPU_CACHE names, else ``programs`` in
    dmlgpu's folder among the user's caches; None if it is ``off``, or there is no such folder."""
    folder = os.environ.get(FOLDER_VARIABLE, "").strip()
    if folder.lower() == OFF:
        return None
    if folder:
        return Path(folder)
    try:
        return cache_folder() / "programs"
    except FileNotFoundError:
        return None


def version_of(folders: Sequence[Path]) -> str | None:
    """Return a string that changes with the source files in the folders: names, sizes and times, not contents.

    None if they are not folders, as in an archive.
    """
    facts: list[str] = [np.__version__]  # it computes constants
    waiting = [str(folder) for folder in folders]
    try:
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    if entry.is_dir():
                        waiting.append(entry.path)
                    elif entry.name.endswith((".py", ".wgsl")):
                        stat = entry.stat()
                        facts.append(f"{entry.path} {stat.st_size} {stat.st_mtime_ns}")
    except OSError:
        return None
    return hashlib.sha256("\n".join(facts).encode(errors="surrogateescape")).hexdigest()


def encode_program(program: Program) -> dict[str, Any]:
    """Return a program in JSON types; a source shared by several kernels is stored once."""
    sources: dict[KernelSource, int] = {}

    def kernels(some: Sequence[RenderedKernel]) -> list[Any]:
        return [
            [
                kernel.label,
                sources.setdefault(kernel.source, len(sources)),
                [[slot.role.value, slot.index, slot.offset, slot.size, slot.is_continued] for slot in kernel.slots],
                kernel.grid,
                kernel.bindings,
                kernel.parameters,
                None if kernel.copy is None else dataclasses.astuple(kernel.copy),
                kernel.is_special,
                kernel.varies,
            ]
            for kernel in some
        ]

    return {
        "operator": program.operator,
        "kernels": kernels(program.kernels),
        "initialization": kernels(program.initialization),
        "sources": [dataclasses.astuple(source) for source in sources],
        "sizes": [program.temporary_size, program.persistent_size, program.least_temporary_size],
        "immediates": program.immediates,
        "constants": [base64.b64encode(data).decode() for data in program.constants],
    }


def decode_program(record: dict[str, Any]) -> Program:
    """Return the program of a record. Raises ValueError, KeyError or TypeError if the record is invalid."""
    sources = [_source(*values) for values in record["sources"]]

    def kernels(some: Any) -> tuple[RenderedKernel, ...]:
        return tuple([kernel(*values) for values in some])

    def kernel(*values: Any) -> RenderedKernel:
        label, source, slots, grid, bindings, parameters, copy, is_special, varies = values
        x, y, z = _numbers(grid)
        if not 0 <= source < len(sources):
            raise ValueError(f"no source {source}")
        decoded = tuple([slot(*values) for values in slots])
        return RenderedKernel(
            _of(str, label),
            sources[source],
            decoded,
            (x, y, z),
            _numbers(bindings),
            _numbers(parameters),
            None if copy is None else copied(*copy),
            _of(bool, is_special),
            varies=_of(bool, varies),
        )

    def copied(*values: Any) -> Copy:
        *places, preferred = values
        source, source_offset, destination, destination_offset, size = _numbers(places)
        return Copy(source, source_offset, destination, destination_offset, size, _of(bool, preferred))

    def slot(role: Any, index: Any, offset: Any, size: Any, is_continued: Any) -> Slot:
        index, offset, size = _numbers((index, offset, size))
        return Slot(Role(role), index, offset, size, _of(bool, is_continued))

    temporary, persistent, least_temporary = _numbers(record["sizes"])
    return Program(
        _of(str, record["operator"]),
        kernels(record["kernels"]),
        kernels(record["initialization"]),
        temporary,
        persistent,
        _of(bool, record["immediates"]),
        tuple([base64.b64decode(_of(str, data), validate=True) for data in record["constants"]]),
        least_temporary,
    )


def _source(body: Any, interface: Any, workgroup: Any, checks: Any, files: Any) -> KernelSource:
    files = tuple([_of(str, file) for file in files])
    return KernelSource(_of(str, body), _interface(*interface), _of(int, workgroup), Checks(checks), files)


def _interface(buffers: Any, sizes: Any, divisors: Any, *more: Any) -> Interface:
    *flags, extensions = more
    immediates, has_barriers, has_u64 = (_of(bool, flag) for flag in flags)
    return Interface(
        tuple([_buffer(*values) for values in buffers]),
        _of(int, sizes),
        _numbers(divisors),
        immediates,
        has_barriers,
        has_u64,
        tuple([_of(str, extension) for extension in extensions]),
    )


def _buffer(block: Any, stored: Any, loads: Any, stores: Any, *parts: Any) -> BufferInterface:
    part_blocks, count = _numbers(parts)
    return BufferInterface(_of(str, block), _of(str, stored), _of(bool, loads), _of(bool, stores), part_blocks, count)


def _of(cls: type, value: Any) -> Any:
    if type(value) is not cls:
        raise TypeError(f"{value!r} is no {cls.__name__}")
    return value


def _numbers(values: Any) -> tuple[int, ...]:
    return tuple([_of(int, value) for value in values])
