"""Measurements as JSON Lines: one line that says what was measured on what, one per measurement, one at the end."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from dmlgpu.bench.ceilings import Ceilings
from dmlgpu.bench.measurement import Measurement
from dmlgpu.conformance.drivers.discovery import LocatedAdapter
from dmlgpu.conformance.running import fields
from dmlgpu.conformance.running.records import machine
from dmlgpu.errors import ModelError

FORMAT = 1
RECORD = "bench"
"""The kind of the line with which a run of measurements begins."""


@dataclass(frozen=True)
class BenchRun:
    """Measurements of one command.

    Attributes:
        facts: what was measured on what: versions, adapters, ceilings, options.
        measurements: in their order.
        is_complete: whether it came to its end.
    """

    facts: dict[str, Any]
    measurements: tuple[Measurement, ...]
    is_complete: bool = True

    @property
    def is_good(self) -> bool:
        """Whether everything of ours was measured and is right; what peers cannot do is no fault of ours."""
        return all(one.is_good for one in self.measurements if one.adapter not in self.facts.get("peers", {}))

    def ceilings(self, adapter: str) -> Ceilings | None:
        """Return the ceilings of an adapter, by what it is called; None where they are not known."""
        record = self.facts["adapters"].get(adapter, {}).get("ceilings")
        return None if record is None else Ceilings.from_json(record)


def facts(
    adapters: Sequence[LocatedAdapter],
    ceilings: Mapping[str, Ceilings],
    command: Sequence[str],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what a run is about to do, and with what: everything that somebody needs to do it again.

    Args:
        adapters: where it measures.
        ceilings: of adapters, by their labels.
        command: the command line.
        options: when it stops, and how.
    """
    found = {
        one.label: {
            "adapter": asdict(one.info),
            **({"environment": dict(one.environment)} if one.environment else {}),
            **({"ceilings": ceilings[one.label].to_json()} if one.label in ceilings else {}),
        }
        for one in adapters
    }
    return {
        "format": FORMAT,
        **machine(),
        "adapters": found,
        "command": list(command),
        "options": dict(options),
        "started": _now(),
    }


def write_run(file: TextIO, header: Mapping[str, Any], measurements: Iterable[Measurement]) -> Iterator[Measurement]:
    """Write a run down while it goes on; the measurements are handed through."""
    _write(file, {"record": RECORD, **header})
    counts: Counter[str] = Counter()
    for one in measurements:
        _write(file, {"record": "measurement", **one.to_json()})
        counts[one.status if one.check != "wrong" else one.check] += 1
        yield one
    _write(file, {"record": "end", "ended": _now(), "counts": dict(counts)})


def is_bench_file(path: Path) -> bool:
    """Return whether a file begins as runs of measurements do; False for one that cannot be read."""
    try:
        with path.open("rb") as file:
            record = json.loads(file.readline(1 << 24))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and record.get("record") == RECORD


def read_file(path: Path) -> tuple[BenchRun, ...]:
    """Read the runs of a file. A last line that was half written counts as not written.

    Raises:
        ModelError: a line is none of a run; the message says which and why.
        OSError: the file cannot be read.
    """
    runs: list[tuple[dict[str, Any], list[Measurement]]] = []
    complete: set[int] = set()
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}, line {number}"
            try:
                record = json.loads(line)
                # Lone surrogates, which JSON can escape and no file can hold, become question marks.
                record = json.loads(json.dumps(record, ensure_ascii=False).encode(errors="replace"))
            except (ValueError, RecursionError) as error:
                if runs and not line.endswith(b"\n"):
                    break
                raise ModelError(where, f"is no JSON: {error}") from error
            kind = record.get("record") if isinstance(record, dict) else None
            if kind == RECORD:
                runs.append((_header(where, record), []))
            elif not runs or kind not in ("measurement", "end"):
                raise ModelError(where, "is no line of `dmlgpu bench -o`")
            elif kind == "end":
                complete.add(len(runs))
            else:
                runs[-1][1].append(_measurement(where, record))
    if not runs:
        raise ModelError(str(path), "holds no run of `dmlgpu bench`")
    return tuple(BenchRun(head, tuple(found), number in complete) for number, (head, found) in enumerate(runs, start=1))


_HEADER: Mapping[str, fields.Reader[Any]] = {
    **dict.fromkeys(("dmlgpu", "commit", "started"), fields.text),
    "adapters": fields.mapping_of(fields.mapping),
    "command": fields.list_of(fields.text),
}


def _header(where: str, record: dict[str, Any]) -> dict[str, Any]:
    if record.get("format") != FORMAT:
        raise ModelError(f"{where}: format", f"must be {FORMAT}, got {record.get('format')!r}")
    try:
        fields.read_known(record, _HEADER, *_HEADER)
        for one in record["adapters"].values():
            fields.read_known(one, {"adapter": fields.adapter}, "adapter")
    except ValueError as error:
        raise ModelError(where, f"is no header of a run: {error}") from error
    return {name: value for name, value in record.items() if name != "record"}


def _measurement(where: str, record: dict[str, Any]) -> Measurement:
    try:
        return Measurement.from_json(record)
    except ValueError as error:
        raise ModelError(where, f"is no measurement: {error}") from error


def _write(file: TextIO, record: Mapping[str, Any]) -> None:
    print(json.dumps(record), file=file, flush=True)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
