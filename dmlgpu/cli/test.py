"""``dmlgpu test``: does this adapter compute the right thing?"""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from dmlgpu.cli import tables
from dmlgpu.cli.adapter import choose_adapter
from dmlgpu.conformance import expectations as known
from dmlgpu.conformance.expectations import Expectation, judged
from dmlgpu.conformance.outcome import Outcome, Status
from dmlgpu.conformance.records import facts, write_run
from dmlgpu.conformance.session import Job, run_session
from dmlgpu.conformance.suites import select, suite_by_name
from dmlgpu.device.adapters import adapters
from dmlgpu.target import AdapterInfo


def list_cases(suite: str, profile: str, pattern: str) -> None:
    """Print the names of the cases that would run.

    Raises:
        InvalidArgument: for an unknown suite or profile, or where nothing matches.
    """
    print("\n".join(select(suite_by_name(suite), profile, pattern)))


def test(
    wanted: Sequence[str],
    *,
    suite: str,
    profile: str,
    pattern: str,
    output: Path | None,
    expectations: Sequence[Path],
    workers: int,
    time_limit: float,
    repeat: int,
) -> bool:
    """Run cases on adapters, one after the other, and print what is wrong and a table.

    Args:
        wanted: the adapters, by number or part of a name; none takes the default, ``all`` every one.
        expectations: files beside dmlgpu's own.

    Returns:
        Whether everything was as expected.

    Raises:
        AdapterNotFound, InvalidArgument: for what does not exist.
        OSError: when a file cannot be read or written.
    """
    names = select(suite_by_name(suite), profile, pattern)
    expected = (*known.load(), *(entry for path in expectations for entry in known.load(path)))
    infos = adapters() if list(wanted) == ["all"] else tuple(choose_adapter(one) for one in wanted or (None,))
    counted: dict[AdapterInfo, Counter[Status]] = {}
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(output.open("w", encoding="utf-8")) if output else None
        for info in infos:
            job = Job(suite, adapters().index(info), time_limit, repeat)
            outcomes = _judged(run_session(job, names, workers), info, expected)
            if file is not None:
                outcomes = write_run(file, facts(info, suite, profile, pattern, names), outcomes)
            counted[info] = _report(outcomes, job, len(names))
    _summarize(counted)
    return all(status.is_good for counts in counted.values() for status in counts)


def _judged(outcomes: Iterable[Outcome], info: AdapterInfo, expected: Sequence[Expectation]) -> Iterator[Outcome]:
    return (judged(outcome, info, expected) for outcome in outcomes)


def _report(outcomes: Iterable[Outcome], job: Job, count: int) -> Counter[Status]:
    """Print what is wrong as it comes, and how far the run is."""
    counts: Counter[Status] = Counter()
    for outcome in outcomes:
        counts[outcome.status] += 1
        if not outcome.status.is_good:
            print("\n".join(_lines(outcome, job)), flush=True)
        _progress(sys.stderr, counts, count)
    return counts


def _lines(outcome: Outcome, job: Job) -> Iterator[str]:
    """What is wrong, and how to see it again."""
    yield f"{outcome.status}: {outcome.case}"
    if outcome.message:
        yield f"  {outcome.message}"
    if outcome.wrong:
        given = f" from {', '.join(outcome.inputs)}" if outcome.inputs else ""
        yield (
            f"  {outcome.wrong} of {outcome.elements} elements are wrong; the worst, at {list(outcome.worst)}: "
            f"expected {outcome.expected}, got {outcome.got}{given}; {outcome.max_ulp:g} ULP, "
            f"allowed difference {outcome.bound:g} ({outcome.tolerance})"
        )
    if outcome.reason:
        yield f"  a failure was expected: {outcome.reason}"
    yield f"  again: {reproduce(outcome, job)}"


def reproduce(outcome: Outcome, job: Job) -> str:
    """The command that runs one case again."""
    suite = "" if job.suite == "operators" else f" --suite {shlex.quote(job.suite)}"
    return f"dmlgpu test{suite} --adapter {job.adapter} -k {shlex.quote(outcome.case)}"


def _progress(file: TextIO, counts: Counter[Status], count: int) -> None:
    """One line that overwrites itself, on a terminal only."""
    if file.isatty():
        done = counts.total()
        bad = sum(number for status, number in counts.items() if not status.is_good)
        end = "\n" if done == count else ""
        print(f"\r{done} of {count} cases, {bad} not as they should be", end=end, file=file, flush=True)


def _summarize(counted: dict[AdapterInfo, Counter[Status]]) -> None:
    shown = [status for status in Status if any(counts[status] for counts in counted.values())]
    rows = [(str(info), *(str(counts[status]) for status in shown)) for info, counts in counted.items()]
    tables.table(("adapter", *shown), rows, right=range(1, len(shown) + 1))
