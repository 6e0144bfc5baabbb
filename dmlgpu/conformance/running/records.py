"""Runs as JSON Lines: a header with versions and adapter, a line per case, and an end line.

A file may hold several runs; concatenating files merges them.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

import dmlgpu
from dmlgpu.common.errors import ModelError
from dmlgpu.compiler.quirks import quirks_in_force
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.compiler.wgsl import templates
from dmlgpu.conformance.drivers.discovery import Environment, LocatedAdapter
from dmlgpu.conformance.drivers.pairwise import AdapterPair, Comparison
from dmlgpu.conformance.running import fields
from dmlgpu.conformance.running.exercised import EXERCISED, Exercised, RunNotes
from dmlgpu.conformance.running.outcome import Outcome
from dmlgpu.conformance.running.pool import TIME_LIMIT
from dmlgpu.conformance.suites.registry import list_digest

FORMAT = 2


@dataclass(frozen=True)
class RecordedRun:
    """A run of cases on one adapter.

    Attributes:
        facts: Versions, adapter, list of cases.
        outcomes: One result per case.
        is_complete: Whether the run was completed.
        exercised: What its kernels used of WGSL; None if the file does not say, or nothing was compiled.
    """

    facts: dict[str, Any]
    outcomes: tuple[Outcome, ...] = field(repr=False)
    is_complete: bool = True
    exercised: Exercised | None = None

    @property
    def adapter(self) -> str:
        """Full name of the adapter."""
        return str(AdapterInfo(**{**self.facts["adapter"], "features": tuple(self.facts["adapter"]["features"])}))

    @property
    def origin(self) -> str:
        """Date and commit, for pages of results: ``2026-11-29, commit 288a01c2``; ``+`` means uncommitted changes."""
        return f"{self.facts['started'][:10]}, commit {self.facts['commit'] or 'unknown'}"


def facts(
    info: AdapterInfo,
    suite: str,
    profile: str,
    pattern: str,
    names: tuple[str, ...],
    *,
    precise: bool = False,
    environment: Environment = (),
    time_limit: float = TIME_LIMIT,
    index: int | None = None,
) -> dict[str, Any]:
    """Return the header of a run: everything needed to repeat it.

    Args:
        info: The adapter.
        suite, profile, pattern, names: Selected cases.
        precise: Whether on a ``Device(precise=True)``.
        environment: Variables that select the adapter's driver, and those of ``KERNEL_VARIABLES``.
        time_limit: Timeout of one case, in seconds.
        index: Index of the adapter in its environment, which tells equal cards apart.
    """
    brought: dict[str, Any] = {"environment": dict(environment)} if environment else {}
    quirks = [quirk.name for quirk in quirks_in_force(info)]
    return {
        "format": FORMAT,
        **machine(),
        "adapter": asdict(info),
        **({} if index is None else {"index": index}),
        **({"quirks": quirks} if quirks else {}),
        **brought,
        **({} if time_limit == TIME_LIMIT else {"time_limit": time_limit}),
        **_selection(suite, profile, pattern, names, precise=precise),
    }


def comparison_facts(
    adapters: Sequence[LocatedAdapter],
    command: Sequence[str],
    *,
    suite: str,
    profile: str,
    pattern: str,
    names: tuple[str, ...],
    precise: bool = False,
) -> dict[str, Any]:
    """Return the header of a comparison of adapters.

    Args:
        adapters: Adapters, recorded by label.
        command: Compares them again on the cases given by ``-k``.
        suite, profile, pattern, names: Selected cases.
        precise: Whether on ``Device(precise=True)``.
    """
    compared = {
        adapter.label: {**asdict(adapter.info), "number": adapter.index, "environment": dict(adapter.environment)}
        for adapter in adapters
    }
    header = {"format": FORMAT, **machine(), "adapters": compared, "command": list(command)}
    return {**header, **_selection(suite, profile, pattern, names, precise=precise)}


def _selection(suite: str, profile: str, pattern: str, names: tuple[str, ...], *, precise: bool) -> dict[str, Any]:
    return {
        **({"precise": True} if precise else {}),
        "suite": suite,
        "profile": profile,
        "pattern": pattern,
        "cases": len(names),
        "case_list": list_digest(names),
        "started": _now(),
    }


def machine() -> dict[str, str]:
    """Return versions and the computer."""
    return {
        "dmlgpu": dmlgpu.__version__,
        "commit": _commit(),
        "shaders": shader_digest(),
        "wgpu": _version_of_wgpu(),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "os": platform.platform(),
        "processor": platform.processor() or platform.machine(),
    }


def _version_of_wgpu() -> str:
    try:
        return version("wgpu")
    except PackageNotFoundError:
        return "not installed"


def shader_digest() -> str:
    """Return the hash of all shader files."""
    digest = hashlib.sha256()
    for name in (file for folder in templates.folders() for file in templates.files(folder)):
        digest.update(f"{name}\n{templates.source(name)}".encode())
    return digest.hexdigest()[:16]


def _commit() -> str:
    """Return the commit of the checkout, with a + if files differ from it; empty outside of a checkout."""
    folder = Path(__file__).parent
    try:
        process = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*", "--abbrev=12"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return process.stdout.strip()


# ---- files ----------------------------------------------------------------------------------------------------------


def write_run(
    file: TextIO, header: dict[str, Any], outcomes: Iterable[Outcome], notes: RunNotes | None = None
) -> Iterator[Outcome]:
    """Write a run while it proceeds; yield its results.

    Args:
        file: The file.
        header: Facts about the run.
        outcomes: Its results.
        notes: What its kernels use of WGSL, complete when the results end.
    """
    _write(file, {"record": "run", **header})
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        _write(file, {"record": "case", **outcome.to_json()})
        counts[outcome.status] += 1
        yield outcome
    exercised = None if notes is None else notes.exercised()
    table = {} if exercised is None else {EXERCISED: exercised.to_json()}
    _write(file, {"record": "end", "ended": _now(), "counts": dict(counts), **table})


def write_comparison(
    file: TextIO, header: dict[str, Any], cases: Iterable[tuple[AdapterPair, ...]]
) -> Iterator[tuple[AdapterPair, ...]]:
    """Write a comparison of adapters while it proceeds; yield the pairs of each case."""
    _write(file, {"record": "comparison", **header})
    counts: Counter[str] = Counter()
    for pairs in cases:
        for pair in pairs:
            _write(file, {"record": "pair", **pair.to_json()})
            counts[pair.agreement] += 1
        yield pairs
    _write(file, {"record": "end", "ended": _now(), "counts": dict(counts)})


def _write(file: TextIO, record: dict[str, Any]) -> None:
    print(json.dumps(record), file=file, flush=True)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


_KINDS = ("run", "case", "comparison", "pair", "end")
_DEEPEST = 20
"""Maximum nesting of a record; those written by dmlgpu have four levels."""


@dataclass(frozen=True)
class RecordFile:
    """Content of a file.

    Attributes:
        runs, comparisons: In order, including truncated ones.
        problems: Descriptions of truncated parts.
    """

    runs: tuple[RecordedRun, ...]
    comparisons: tuple[Comparison, ...]
    problems: tuple[str, ...]


def read_file(path: Path) -> RecordFile:
    """Read runs and comparisons of adapters. An incomplete last line is ignored.

    Raises:
        ModelError: If a line is invalid; the message says which and why.
        OSError: If the file cannot be read.
    """
    with path.open("rb") as file:
        return read_lines(str(path), file)


def read_lines(name: str, lines: Iterable[bytes]) -> RecordFile:
    """Read the lines of a file. Raises ModelError as ``read_file``.

    Args:
        name: Name of the file, for messages.
        lines: Its lines.
    """
    sections, problems = _sections(name, lines)
    runs, comparisons = [], []
    for section in sections:
        if section.kind == "run":
            runs.append(RecordedRun(section.header, tuple(section.read), section.is_complete, section.exercised))
        else:
            comparisons.append(Comparison(section.header, tuple(section.read), section.is_complete))
        if not section.is_complete:
            cases = len({outcome.case for outcome in section.read})
            problems.append(
                f"{name}: a {section.kind} was truncated: {cases} of {section.header['cases']} cases recorded"
            )
    return RecordFile(tuple(runs), tuple(comparisons), tuple(problems))


def read_runs(path: Path) -> tuple[RecordedRun, ...]:
    """Return the runs of a file. Raises as ``read_file``."""
    return read_file(path).runs


def read_comparisons(path: Path) -> tuple[Comparison, ...]:
    """Return the comparisons of adapters in a file. Raises as ``read_file``."""
    return read_file(path).comparisons


@dataclass
class _Section:
    """Records that follow a header: results of a run, pairs of a comparison."""

    kind: str
    header: dict[str, Any]
    read: list[Any] = field(default_factory=list)
    is_complete: bool = False
    exercised: Exercised | None = None


_CONTENTS: dict[str, tuple[str, str, Callable[[dict[str, Any]], Any]]] = {
    "run": ("case", "outcome of a case", Outcome.from_json),
    "comparison": ("pair", "comparison of a pair", AdapterPair.from_json),
}
"""Kind of the records of a section, their name, and their reader."""

_COMMON: Mapping[str, fields.Reader[Any]] = {
    **dict.fromkeys(("suite", "profile", "pattern", "started", "dmlgpu", "commit"), fields.text),
    "cases": fields.count,
}
_HEADERS: Mapping[str, Mapping[str, fields.Reader[Any]]] = {
    "run": {**_COMMON, "adapter": fields.adapter},
    "comparison": {**_COMMON, "adapters": fields.mapping_of(fields.mapping), "command": fields.list_of(fields.text)},
}
"""Required fields of the header of a section. Others are allowed."""

_OPTIONAL: Mapping[str, fields.Reader[Any]] = {
    "environment": fields.mapping_of(fields.text),
    "precise": fields.flag,
    "index": fields.count,
    "quirks": fields.list_of(fields.text),
    "time_limit": fields.seconds,
}


def _sections(name: str, lines: Iterable[bytes]) -> tuple[list[_Section], list[str]]:
    """Return the sections of a file, and descriptions of truncated parts."""
    sections: list[_Section] = []
    for line_number, line in enumerate(lines, start=1):
        where = f"{name}, line {line_number}"
        try:
            record = _record(where, line)
        except ModelError:
            if line.endswith(b"\n") or not sections:
                raise
            return sections, [f"{where}: incomplete line, ignored"]
        kind = record.pop("record")
        if kind in _CONTENTS:
            sections.append(_Section(kind, _header(where, kind, record)))
        elif not sections:
            raise ModelError(where, "comes before any run")
        elif kind == "end":
            sections[-1].is_complete = True
            sections[-1].exercised = _exercised(where, record)
        else:
            sections[-1].read.append(_content(where, sections[-1].kind, kind, record))
    return sections, []


def _record(where: str, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line.decode())
        # Replace lone surrogates, which JSON can escape but UTF-8 cannot encode.
        record = json.loads(json.dumps(record, ensure_ascii=False).encode(errors="replace"))
    except UnicodeDecodeError as error:
        raise ModelError(where, f"is not UTF-8 text: byte {error.start} is {line[error.start]:#04x}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(where, f"is not JSON: {error}") from error
    if not isinstance(record, dict) or record.get("record") not in _KINDS:
        raise ModelError(where, f"must be an object whose 'record' is one of {', '.join(_KINDS)}")
    if not _is_flat(record, _DEEPEST):
        raise ModelError(where, f"is nested more than {_DEEPEST} deep")
    return record


def _is_flat(value: Any, depth: int) -> bool:
    """Return whether arrays and objects are nested at most so deep."""
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_flat(entry, depth - 1) for entry in inner)


def _header(where: str, kind: str, header: dict[str, Any]) -> dict[str, Any]:
    if header.get("format") != FORMAT:
        raise ModelError(f"{where}: format", f"must be {FORMAT}, got {header.get('format')!r}")
    try:
        fields.read_known(header, {**_HEADERS[kind], **_OPTIONAL}, *_HEADERS[kind])
    except ValueError as error:
        raise ModelError(where, f"is not a valid header of a {kind}: {error}") from error
    return header


def _exercised(where: str, record: Mapping[str, Any]) -> Exercised | None:
    """Return what the kernels of a run used; None if its end does not say."""
    try:
        return Exercised.from_json(record[EXERCISED]) if EXERCISED in record else None
    except ValueError as error:
        raise ModelError(where, f"is not a valid end: {EXERCISED!r} {error}") from error


def _content(where: str, section: str, kind: str, record: dict[str, Any]) -> Any:
    """Return a case or a pair, if such a record is allowed here."""
    due, name, read = _CONTENTS[section]
    if kind != due:
        raise ModelError(where, f"a {section} must have records of the kind {due!r}, got {kind!r}")
    try:
        return read(record)
    except ValueError as error:
        raise ModelError(where, f"is not a valid {name}: {error}") from error
