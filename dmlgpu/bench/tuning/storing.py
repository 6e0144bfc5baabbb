"""Writing tuned choices: into the file of an adapter, for others, and from others."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from dmlgpu import __version__
from dmlgpu.bench.tuning.search import Finding
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.common.files import whole_file
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.compiler.tuned_files import TunedFile, check_adapter, identity, read_tuned, tuned_file, tuned_folder


def kept(info: AdapterInfo, folder: Path | None = None) -> TunedFile:
    """Return what is kept for an adapter; nothing where there is no file, or none that can be used."""
    path = tuned_file(info, folder)
    try:
        content = read_tuned(path)
        check_adapter(path, content, info)
    except (FileNotFoundError, InvalidArgument):
        return TunedFile(identity(info), {}, {}, __version__)
    return content


def keep(info: AdapterInfo, findings: Iterable[Finding], folder: Path | None = None) -> TunedFile:
    """Add the choices that tuning found faster to an adapter's file, and return all of it. Where the built-in choice is
    the fastest, none is kept: it may become another.

    Raises:
        OSError: the file cannot be written.
    """
    before = kept(info, folder)
    answers, ratios = dict(before.answers), dict(before.ratios)
    for finding in findings:
        answers.pop(finding.question, None)
        ratios.pop(finding.question, None)
        if finding.gains and finding.ratio is not None:
            answers[finding.question], ratios[finding.question] = finding.answer, round(finding.ratio.median, 3)
    content = TunedFile(identity(info), answers, ratios, __version__)
    write(tuned_file(info, folder), content)
    return content


def write(path: Path, content: TunedFile) -> None:
    """Write a file of tuned choices.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as stream:
        stream.write((json.dumps(content.to_json(), indent=1, ensure_ascii=False) + "\n").encode())


def take(info: AdapterInfo, path: Path, folder: Path | None = None) -> TunedFile:
    """Add the choices of a file that somebody shared to those of an adapter; the file's go first.

    Raises:
        InvalidArgument: it is no such file, or of another adapter or driver.
        OSError: it cannot be read, or the choices not be written.
    """
    shared = read_tuned(path)
    check_adapter(path, shared, info)
    before = kept(info, folder)
    answers, ratios = {**before.answers, **shared.answers}, {**before.ratios, **shared.ratios}
    content = TunedFile(identity(info), answers, ratios, shared.version)
    write(tuned_file(info, folder), content)
    return content


def clear(info: AdapterInfo, folder: Path | None = None) -> bool:
    """Remove an adapter's file. Returns whether there was one."""
    path = tuned_file(info, folder)
    there = path.exists()
    path.unlink(missing_ok=True)
    return there


def all_kept(folder: Path | None = None) -> list[tuple[Path, TunedFile | None, str]]:
    """Return every file there is, with its content, or why it can't be used."""
    files: list[tuple[Path, TunedFile | None, str]] = []
    for path in sorted((folder or tuned_folder()).glob("*.json")):
        try:
            files.append((path, read_tuned(path), ""))
        except (InvalidArgument, OSError) as error:
            files.append((path, None, str(error)))
    return files
