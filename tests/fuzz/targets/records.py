"""Runs, comparisons and measurements as `dmlgpu test` and `bench` write them, changed: `report`, `compare` and
`bench compare` read or refuse them."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from dmlgpu.bench.records import write_run as write_measurements
from dmlgpu.cli.main import FAILED, OK, USAGE, main
from dmlgpu.conformance.running.records import write_comparison, write_run
from tests.fuzz.json_mutations import MARK, damaged, mutated
from tests.fuzz.monitor import Monitor, Refused
from tests.unit.bench import bench_fakes
from tests.unit.conformance import report_runs

FORMATS = (".html", ".md", ".xml")


def run(seed: int, monitor: Monitor) -> None:
    """Change some lines, and read them with one of the commands."""
    rng = random.Random(f"records {seed}")
    with tempfile.TemporaryDirectory(prefix="dmlgpu-fuzz-") as name:
        before, after = Path(name) / "before.jsonl", Path(name) / "after.jsonl"
        before.write_bytes(_text(rng))
        after.write_bytes(_text(rng) if rng.random() < 0.3 else _as_bytes(_lines()[0]))
        what = rng.choice(("compare", "compare back", "bench compare", "bench compare back", *FORMATS))
        if what.startswith("bench"):
            before.write_bytes(_text(rng, _lines()[-1:]))
            after.write_bytes(_as_bytes(_lines()[-1]))
        replay(before, after, what, monitor)


def replay(before: Path, after: Path, what: str, monitor: Monitor) -> None:
    """Compare two files, or write a report on both."""
    text = before.read_bytes()[:3000].decode(errors="backslashreplace")
    monitor.subject = lambda: f"{what}: {text}"
    if what in FORMATS:
        output = before.with_name(f"report{what}")
        code, _ = _command(["report", str(before), str(after), "-o", str(output)], monitor)
        if code == OK:
            _check_report(output, monitor)
        return
    files = [str(before), str(after)]
    words = what.removesuffix(" back").split()
    code, printed = _command([*words, *(files[::-1] if what.endswith("back") else files)], monitor)
    monitor.check(code in (None, OK, FAILED, USAGE), "exit code", " ".join(words), f"{code}: {printed}")


def _command(arguments: list[str], monitor: Monitor) -> tuple[Any, str]:
    """Exit code of a command and what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = monitor.call(main, arguments)
    monitor.check("Traceback" not in printed.getvalue(), "traceback", arguments[0], printed.getvalue())
    return (None if isinstance(code, Refused) else code), printed.getvalue()


def _check_report(file: Path, monitor: Monitor) -> None:
    """What was in the records is text in the report, and no markup."""
    text = file.read_text(encoding="utf-8")
    monitor.check(MARK not in text, "markup", f"report{file.suffix}")
    if file.suffix == ".xml":
        try:
            ElementTree.fromstring(text)
        except ElementTree.ParseError as error:
            monitor.note("malformed", f"report{file.suffix}", str(error))


@functools.cache
def _lines() -> tuple[tuple[Any, ...], ...]:
    """The records of two runs, a comparison, and measurements."""
    this, that = report_runs.mixed().runs
    compared, timed = report_runs.compared(), bench_fakes.run()
    return (
        _written(lambda file: write_run(file, this.facts, this.outcomes)),
        _written(lambda file: write_run(file, that.facts, that.outcomes)),
        _written(lambda file: write_comparison(file, compared.facts, [compared.pairs])),
        _written(lambda file: write_measurements(file, timed.facts, timed.measurements)),
    )


def _written(write: Callable[[io.StringIO], Any]) -> tuple[Any, ...]:
    file = io.StringIO()
    for _ in write(file):
        pass
    return tuple(json.loads(line) for line in file.getvalue().splitlines())


def _text(rng: random.Random, known: tuple[tuple[Any, ...], ...] = ()) -> bytes:
    """Changed lines: their order, a few of them, at times the text itself."""
    lines = list(rng.choice(known or _lines()))
    if rng.random() < 0.2:
        lines += rng.choice(_lines())
    match rng.randrange(12):
        case 0:
            rng.shuffle(lines)
        case 1:
            del lines[rng.randrange(len(lines))]
        case 2:
            lines.insert(rng.randrange(len(lines)), rng.choice(lines))
        case _:
            at = rng.randrange(len(lines))
            lines[at] = mutated(lines[at], rng, lines)
    text = _as_bytes(tuple(lines))
    return damaged(text, rng) if rng.random() < 0.2 else text


def _as_bytes(lines: tuple[Any, ...]) -> bytes:
    return b"".join(json.dumps(line).encode("utf-8", "surrogatepass") + b"\n" for line in lines)
