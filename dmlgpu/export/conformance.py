"""The conformance page: test cases that run in the browser of the visitor, without Python, and results to send back."""

from __future__ import annotations

import gzip
import importlib.resources
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.running.records import FORMAT as RECORDS_FORMAT
from dmlgpu.conformance.running.records import machine
from dmlgpu.conformance.suites.combined import CombinedSuite
from dmlgpu.conformance.suites.registry import DEFAULT, list_digest, select
from dmlgpu.export.cases import Blob, Entry, can_be_exported, case_entry
from dmlgpu.export.compiling import ExportChoices
from dmlgpu.export.folder import page_file, write_files
from dmlgpu.runtime.browser import frames

FORMAT: Final = 1
"""Version of ``cases.json`` and its parts."""

PART_BYTES: Final = 4 << 20
"""Bytes of tensors after which a new part of the cases begins."""

PAGE_FILES: Final = {
    "index.html": "conformance.html",
    "conformance.js": "conformance.js",
    "facts.js": "facts.js",
    "judge.js": "judge.js",
    "cases.js": "cases.js",
    "device.js": "device.js",
    "tensors.js": "tensors.js",
    "page.css": "page.css",
}
"""Files besides the cases, with their sources."""


@dataclass(frozen=True)
class ExportedSuite:
    """Summary of an export.

    Attributes:
        folder: Output folder.
        files: Sizes of all files in bytes, by name.
        cases: Names of the cases that the page runs.
        left_out: Names of the cases of the profile that need Python.
    """

    folder: Path
    files: dict[str, int]
    cases: tuple[str, ...]
    left_out: tuple[str, ...]


def write_suite(
    folder: Path, profile: str = "quick", patterns: Sequence[str] = (), *, schedules: str = "gpu"
) -> ExportedSuite:
    """Export a page that runs the cases of a profile: those of operators and graphs.

    Args:
        folder: Output folder; created if it does not exist.
        profile: ``quick``, ``standard`` or ``full``.
        patterns: Patterns of names, one of which must match; empty selects all cases.
        schedules: As for ``write``.

    Raises:
        InvalidArgument: If the profile is unknown, or nothing matches.
        OSError: If a file cannot be written.
    """
    suite, choice = CombinedSuite(), ExportChoices(schedules)
    parts = {name: suite.part(name) for name in select(suite, profile, patterns)}
    names = tuple(name for name, part in parts.items() if can_be_exported(part, name))
    if not names:
        raise InvalidArgument(f"export: all cases that match {' or '.join(patterns)!r} need Python; use dmlgpu test")
    left_out = tuple(name for name in parts if name not in names)
    entries = [partial(case_entry, parts[name], name, choice.target) for name in names]
    files = page_files(
        entries, profile=profile, pattern=" or ".join(patterns), schedules=schedules, left_out=len(left_out)
    )
    write_files(folder, files)
    return ExportedSuite(folder, {name: len(data) for name, data in files.items()}, names, left_out)


def page_files(
    entries: Sequence[Callable[[Blob], Entry]], *, profile: str, pattern: str, schedules: str, left_out: int = 0
) -> dict[str, bytes]:
    """Return the files of a page that runs cases.

    Args:
        entries: Returns the entry of each case, and adds its bytes.
        profile, pattern, schedules, left_out: Recorded in the results of the page.
    """
    files: dict[str, bytes] = {}
    listed = []
    names: list[str] = []
    for part_index, (case_names, data) in enumerate(_parts(entries)):
        names += case_names
        file = f"cases-{part_index:03}.bin"
        files[file] = data
        listed.append({"file": file, "bytes": len(data), "cases": case_names})
    software = {name: value for name, value in machine().items() if name in ("dmlgpu", "commit", "shaders")}
    header = {
        "format": RECORDS_FORMAT,
        **software,
        "suite": DEFAULT,
        "profile": profile,
        "pattern": pattern,
        "cases": len(names),
        "case_list": list_digest(names),
    }
    index = {
        "format": FORMAT,
        "header": header,
        "schedules": schedules,
        "parts": listed,
        "left_out": left_out,
    }
    files["cases.json"] = json.dumps(index, separators=(",", ":")).encode()
    files |= {name: page_file(source) for name, source in PAGE_FILES.items()}
    files["frames.js"] = importlib.resources.files("dmlgpu.runtime.browser").joinpath("page", "frames.js").read_bytes()
    return files


def _parts(cases: Sequence[Callable[[Blob], Entry]]) -> Iterator[tuple[list[str], bytes]]:
    """Yield the names of the cases of each part, and the part, a compressed frame."""
    blob, entries = Blob(), list[Entry]()
    for index, entry_of in enumerate(cases, start=1):
        entries.append(entry_of(blob))
        if blob.uploads.end >= PART_BYTES or index == len(cases):
            frame = frames.encode({"format": FORMAT, "cases": entries}, [blob.uploads.data])
            yield [entry["name"] for entry in entries], gzip.compress(frame, mtime=0)
            blob, entries = Blob(), []
