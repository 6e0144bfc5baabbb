"""The file of ``dmlgpu survey``: records of tests, measurements and predictions, without personal data."""

from __future__ import annotations

import contextlib
import getpass
import gzip
import json
import platform
import re
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dmlgpu
from dmlgpu.bench import predicting
from dmlgpu.bench import records as bench_records
from dmlgpu.bench.records import BenchRun
from dmlgpu.common.errors import ModelError
from dmlgpu.common.files import first_record, whole_file
from dmlgpu.common.folders import home
from dmlgpu.conformance.running import fields
from dmlgpu.conformance.running.records import RecordedRun, read_lines

RECORD, FORMAT = "survey", 1
NAME = "survey.json.gz"

MAX_BYTES = 1 << 28
"""Maximum size of an uncompressed file that is read."""

_GZIP = b"\x1f\x8b"
_HIDDEN = "…"

# ---- removing personal data

_PATH = re.compile(
    r"(?:(?<![\w.)\]])(?<!:/)[/~…]|(?<!\w)[A-Za-z]:\\|\\\\)(?:[^\s/\\:;,'\"()<>|]+[/\\])+(?P<name>[^\s/\\:;,'\"()<>|]*)"
)
"""An absolute path, not the address of a web page; ``name`` is its last part."""

_OWN = frozenset(
    {
        *("record", "case", "operator", "suite", "profile", "pattern", "status", "case_list"),
        *("commit", "shaders", "digest", "kernels", "schedule", "tolerance"),
    }
)
"""Fields whose values dmlgpu chooses, which have no personal data."""

_COMMON = frozenset({"", "admin", "localhost", "root", "user"})
"""Common names of users and computers, which are no personal data."""


def personal_words() -> tuple[str, ...]:
    """Return the names of the user and of the computer."""
    computer, folder = platform.node(), home()
    names = {computer, computer.partition(".")[0], folder.name if folder else ""}
    with contextlib.suppress(KeyError, OSError, ImportError):  # no user database has the process's user
        names.add(getpass.getuser())
    return tuple(sorted({name for name in names if name.lower() not in _COMMON}, key=lambda name: -len(name)))


def personal_folders() -> tuple[str, ...]:
    """Return folders that ``_PATH`` may miss, because their paths may have spaces; the longest first."""
    folders = {home(), Path.cwd(), Path(sys.prefix), Path(dmlgpu.__file__).parent, Path(tempfile.gettempdir())}
    texts = {str(path) for folder in folders if folder is not None for path in (folder, folder.resolve())}
    return tuple(sorted((text for text in texts if len(text) > 1), key=lambda text: -len(text)))


def without_personal_data(value: Any) -> Any:
    """Return a JSON value without names of the user and the computer, and with the names of files only."""
    return _scrubbed(value, personal_words(), personal_folders())


def _scrubbed(value: Any, words: tuple[str, ...], folders: tuple[str, ...]) -> Any:
    if isinstance(value, Mapping):
        return {
            name: entry if name in _OWN and isinstance(entry, str) else _scrubbed(entry, words, folders)
            for name, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return [_scrubbed(entry, words, folders) for entry in value]
    return _scrubbed_text(value, words, folders) if isinstance(value, str) else value


def _scrubbed_text(text: str, words: tuple[str, ...], folders: tuple[str, ...]) -> str:
    for folder in folders:
        text = text.replace(folder, _HIDDEN)
    text = _PATH.sub(lambda match: match["name"] if "." in match["name"].strip(".") else _HIDDEN, text)
    for word in words:
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", _HIDDEN, text, flags=re.IGNORECASE)
    return text


# ---- writing and reading


@dataclass(frozen=True)
class SurveyFile:
    """Content of a file.

    Attributes:
        facts: Versions, adapters, parts.
        runs: Runs of test suites.
        measured: Runs of benchmarks.
        predicted: Predicted seconds by names of adapters and workloads.
        problems: Descriptions of truncated runs.
    """

    facts: dict[str, Any]
    runs: tuple[RecordedRun, ...]
    measured: tuple[BenchRun, ...]
    predicted: Mapping[tuple[str, str], float]
    problems: tuple[str, ...]

    @property
    def not_run(self) -> Iterator[str]:
        """Descriptions of incomplete parts, as text."""
        for part in self.facts["parts"]:
            if part["why"]:
                yield f"{part['part']} on {part['adapter']}: {part['done']:,} of {part['total']:,}, {part['why']}"


def write_survey(path: Path, facts: Mapping[str, Any], records: Mapping[str, Any]) -> None:
    """Write a survey, compressed and without personal data.

    Args:
        path: The file.
        facts: Versions, adapters, parts.
        records: Lists of records under ``conformance`` and ``benchmark``, and by adapter under ``predictions``.

    Raises:
        OSError: If it cannot be written.
    """
    content = without_personal_data({"record": RECORD, "format": FORMAT, **facts, **records})
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    with whole_file(path) as file:
        file.write(gzip.compress(text.encode(errors="replace"), mtime=0))


def is_survey_file(path: Path) -> bool:
    """Return whether a file is a survey, compressed or not; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_GZIP))
    except OSError:
        return False
    return head == _GZIP or first_record(path).get("record") == RECORD


_FACTS: Mapping[str, fields.Reader[Any]] = {
    "adapters": fields.list_of(fields.mapping),
    "conformance": fields.list_of(fields.list_of(fields.mapping)),
    "benchmark": fields.list_of(fields.list_of(fields.mapping)),
    "predictions": fields.mapping_of(fields.list_of(fields.mapping)),
}
_PART: Mapping[str, fields.Reader[Any]] = {
    **dict.fromkeys(("part", "adapter", "why"), fields.text),
    **dict.fromkeys(("done", "total"), fields.count),
}


def read_survey(path: Path) -> SurveyFile:
    """Read a survey.

    Raises:
        ModelError: If it is malformed; the message says why.
        OSError: If the file cannot be read.
    """
    content = _content(path)
    if content.get("record") != RECORD:
        raise ModelError(str(path), "was not written by `dmlgpu survey`")
    if content.get("format") != FORMAT:
        raise ModelError(f"{path}: format", f"must be {FORMAT}, got {content.get('format')!r}")
    try:
        fields.read_known(content, _FACTS, *_FACTS)
        fields.read_known(content, {"parts": fields.list_of(fields.mapping)}, "parts")
        for part in content["parts"]:
            fields.read_known(part, _PART, *_PART)
    except ValueError as error:
        raise ModelError(str(path), f"is not a valid survey: {error}") from error
    files = [read_lines(f"{path}, conformance", _lines(records)) for records in content["conformance"]]
    measured = [bench_records.read_lines(f"{path}, benchmark", _lines(records)) for records in content["benchmark"]]
    predictions = {
        adapter: predicting.read_lines(f"{path}, predictions", _lines(records))
        for adapter, records in content["predictions"].items()
    }
    return SurveyFile(
        {name: value for name, value in content.items() if name not in ("conformance", "benchmark", "predictions")},
        tuple(run for file in files for run in file.runs),
        tuple(run for runs in measured for run in runs),
        {(adapter, each.name): each.seconds for adapter, rows in predictions.items() for each in rows},
        tuple(problem for file in files for problem in file.problems),
    )


def _content(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            is_compressed = file.read(len(_GZIP)) == _GZIP
        with gzip.open(path, "rb") if is_compressed else path.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES >> 20} MiB")
        content = json.loads(text)
    except (EOFError, ValueError, RecursionError, gzip.BadGzipFile, zlib.error) as error:
        raise ModelError(str(path), f"is not a survey: {error}") from error
    return content if isinstance(content, dict) else {}


def _lines(records: Iterable[Any]) -> Iterator[bytes]:
    for record in records:
        yield json.dumps(record).encode() + b"\n"
