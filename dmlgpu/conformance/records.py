"""Runs as JSON Lines: one line that says what ran on what, one per case, one at the end.

A file may hold several runs, one after the other: files are merged by putting them together.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import dmlgpu
from dmlgpu.conformance.outcome import Outcome
from dmlgpu.conformance.suites import list_digest
from dmlgpu.errors import ModelError
from dmlgpu.target import AdapterInfo
from dmlgpu.wgsl import templates

FORMAT = 1


@dataclass(frozen=True)
class Run:
    """Some cases on one adapter.

    Attributes:
        facts: what ran on what: versions, adapter, case list.
        outcomes: one per case.
        is_complete: whether it came to its end.
    """

    facts: dict[str, Any]
    outcomes: tuple[Outcome, ...] = field(repr=False)
    is_complete: bool = True

    @property
    def adapter(self) -> str:
        """The adapter as people name it."""
        return str(AdapterInfo(**{**self.facts["adapter"], "features": tuple(self.facts["adapter"]["features"])}))


def facts(info: AdapterInfo, suite: str, profile: str, pattern: str, names: tuple[str, ...]) -> dict[str, Any]:
    """What a run is about to do, and with what: everything that somebody needs to do it again."""
    return {
        "format": FORMAT,
        "dmlgpu": dmlgpu.__version__,
        "commit": _commit(),
        "shaders": shader_digest(),
        "wgpu": version("wgpu"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "os": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "adapter": asdict(info),
        "suite": suite,
        "profile": profile,
        "pattern": pattern,
        "cases": len(names),
        "case_list": list_digest(names),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def shader_digest() -> str:
    """Of the text of all shader files."""
    found = hashlib.sha256()
    for name in (file for folder in templates.folders() for file in templates.files(folder)):
        found.update(f"{name}\n{templates.source(name)}".encode())
    return found.hexdigest()[:16]


def _commit() -> str:
    """The commit of the checkout that dmlgpu lies in, with a + where files differ from it; empty elsewhere."""
    folder = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*", "--abbrev=12"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()


# ---- files ----------------------------------------------------------------------------------------------------------


def write_run(file: TextIO, header: dict[str, Any], outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """Write a run down while it goes on; the outcomes are handed through."""
    _write(file, {"record": "run", **header})
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        _write(file, {"record": "case", **outcome.to_json()})
        counts[outcome.status] += 1
        yield outcome
    ended = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    _write(file, {"record": "end", "ended": ended, "counts": dict(counts)})


def _write(file: TextIO, record: dict[str, Any]) -> None:
    print(json.dumps(record), file=file, flush=True)


def read_runs(path: Path) -> tuple[Run, ...]:
    """The runs of a file, those that were cut off included.

    Raises:
        ModelError: when a line is not one of a run; the message says which and why.
        OSError: when the file cannot be read.
    """
    runs: list[tuple[dict[str, Any], list[Outcome], list[bool]]] = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}, line {number}"
            record = _record(where, line)
            kind = record.pop("record")
            if kind == "run":
                runs.append((_checked(where, record), [], []))
            elif not runs:
                raise ModelError(where, "stands before any run")
            elif kind == "case":
                runs[-1][1].append(_outcome(where, record))
            else:
                runs[-1][2].append(True)
    return tuple(Run(header, tuple(outcomes), bool(ended)) for header, outcomes, ended in runs)


def _record(where: str, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ModelError(where, f"is no JSON: {error}") from error
    if not isinstance(record, dict) or record.get("record") not in ("run", "case", "end"):
        raise ModelError(where, "must be an object whose 'record' is 'run', 'case' or 'end'")
    return record


def _checked(where: str, header: dict[str, Any]) -> dict[str, Any]:
    if header.get("format") != FORMAT:
        raise ModelError(f"{where}: format", f"must be {FORMAT}, got {header.get('format')!r}")
    return header


def _outcome(where: str, record: dict[str, Any]) -> Outcome:
    try:
        return Outcome.from_json(record)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(where, f"is no outcome of a case: {error}") from error
