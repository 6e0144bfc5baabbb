"""``dmlgpu test``: compare adapters with the reference, or with each other."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

from dmlgpu.cli import tables
from dmlgpu.cli.devices import ALL, choose_adapters, reject_reference_alone, with_pages
from dmlgpu.cli.main import invocation
from dmlgpu.cli.tables import Progress
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.common.files import PARTIAL_SUFFIX, growing_file, whole_file
from dmlgpu.common.memory import host_memory
from dmlgpu.compiler.target import SCHEDULES, SCHEDULES_VARIABLE, AdapterInfo
from dmlgpu.conformance.cases.keys import gpu_sample
from dmlgpu.conformance.drivers.discovery import LocatedAdapter, in_environment, kernel_environment, under_schedules
from dmlgpu.conformance.drivers.pairwise import AdapterPair, Agreement, Comparison, expected_to_disagree, outlier
from dmlgpu.conformance.drivers.pairwise_run import as_output_suite, run_pairwise
from dmlgpu.conformance.report.junit import as_junit
from dmlgpu.conformance.report.model import Report
from dmlgpu.conformance.report.pairs import PairReport, difference, kernels_of
from dmlgpu.conformance.report.suspects import ShaderCounts, suspect_lines
from dmlgpu.conformance.running import expectations as known
from dmlgpu.conformance.running.exercised import Exercised, RunNotes
from dmlgpu.conformance.running.expectations import ExpectedFailure, with_expectation
from dmlgpu.conformance.running.outcome import DEVICE, Outcome, Status, bound_text
from dmlgpu.conformance.running.pool import TIME_LIMIT, Job, run_cases, time_limit_option
from dmlgpu.conformance.running.records import comparison_facts, facts, read_file, write_comparison, write_run
from dmlgpu.conformance.suites.registry import DEFAULT, Suite, operator_pattern, select, suite_by_name, suite_option
from dmlgpu.runtime.adapters import BROWSER, check_variables, show_in_page
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

QUICK = "quick"
"""Name of the profile of which samples run under the schedules for GPUs."""

GPU = "gpu"
"""Value of ``--schedules`` for their schedules."""

BOTH = "both"
"""Value of ``--schedules`` that runs every adapter twice."""


@dataclass(frozen=True)
class ConformanceRequest:
    """Options of ``dmlgpu test``.

    Attributes:
        adapters: Parts of names, numbers, or ``all``.
        drivers: ``all``, or manifests of Vulkan drivers; empty selects this process's adapters.
        suite, profile: The test suite.
        operators: Operators, names of cases or shell patterns; empty selects all.
        patterns: Patterns of names, one of which must match; empty selects all cases.
        output: File for JSON Lines, or None.
        expectations: Files of known failures besides dmlgpu's own.
        workers: Number of worker processes; None selects a default for the adapter.
        time_limit: Timeout of one case, in seconds.
        repeat: Runs of each case.
        pages: Number of browser pages to wait for and test.
        precise: Whether devices are ``Device(precise=True)``.
        fail_fast: Whether the run ends at the first unexpected result.
        exercised: Whether to print all that kernels used, avoided and never used.
        schedules: ``cpu`` or ``gpu`` to run all adapters under these schedules, ``both``, or empty for those of each
            adapter's kind, and a sample of the whole quick profile under those for GPUs on CPU adapters.
    """

    adapters: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    suite: str = DEFAULT
    profile: str = QUICK
    operators: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    output: Path | None = None
    expectations: tuple[Path, ...] = ()
    workers: int | None = None
    time_limit: float = TIME_LIMIT
    repeat: int = 1
    pages: int = 0
    precise: bool = False
    fail_fast: bool = False
    exercised: bool = False
    schedules: str = ""

    @cached_property
    def cases(self) -> Suite:
        """The suite.

        Raises:
            InvalidArgument: If there is no suite of that name.
        """
        return suite_by_name(self.suite)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the selected cases.

        Raises:
            InvalidArgument: If suite, profile or operator is unknown, or nothing matches.
        """
        of_operators = [operator_pattern(self.cases, word) for word in self.operators]
        if not of_operators:
            return select(self.cases, self.profile, self.patterns)
        names = select(self.cases, self.profile, of_operators)
        if not self.patterns:
            return names
        matching = set(select(self.cases, self.profile, self.patterns))
        both = tuple(name for name in names if name in matching)
        if not both:
            raise InvalidArgument(
                f"no case of {', '.join(self.operators)} in the profile {self.profile!r} matches "
                f"-k {' or -k '.join(self.patterns)}"
            )
        return both

    @property
    def selecting(self) -> tuple[str, ...]:
        """Patterns that select the same cases on another machine."""
        return self.names if self.operators else self.patterns

    def workers_on(self, adapter: LocatedAdapter, adapters: int = 1) -> int:
        """Return the number of worker processes on an adapter, if that many adapters run at once."""
        return self.workers or default_workers(adapter.info, adapters)

    @property
    def selection(self) -> dict[str, Any]:
        """Selected cases and kind of device, for the header of the output."""
        pattern = " and ".join(filter(None, (" or ".join(self.operators), " or ".join(self.patterns))))
        selected = {"suite": self.suite, "profile": self.profile, "pattern": pattern, "names": self.names}
        return {**selected, "precise": self.precise}

    @property
    def pairwise_command(self) -> tuple[str, ...]:
        """Command that compares the same adapters again, without the name of the case."""
        drivers = [text for driver in self.drivers for text in ("--drivers", driver)]
        adapters = [text for adapter in self.adapters for text in ("--adapter", adapter)]
        precise = ("--precise",) if self.precise else ()
        schedules = ("--schedules", self.schedules) if self.schedules else ()
        options = (*drivers, *adapters, *suite_option(self.suite), *precise, *schedules)
        return ("dmlgpu", "test", "--pairwise", *options)

    def scheduled(self, adapters: Sequence[LocatedAdapter]) -> tuple[LocatedAdapter, ...]:
        """Return adapters under the schedules of the request.

        Raises:
            InvalidArgument: If there are no such schedules.
        """
        if self.schedules not in ("", *SCHEDULES, BOTH):
            known = ", ".join((*SCHEDULES, BOTH))
            raise InvalidArgument(f"--schedules must be one of {known}, got {shown(self.schedules)}")
        if not self.schedules:
            return tuple(adapters)
        return under_schedules(adapters, tuple(SCHEDULES) if self.schedules == BOTH else (self.schedules,))

    def runs(self, adapters: Sequence[LocatedAdapter]) -> tuple[tuple[LocatedAdapter, tuple[str, ...]], ...]:
        """Return adapters under the schedules of the request, and the cases of each. Samples run first: they are short.

        Raises:
            InvalidArgument: If there are no such schedules.
        """
        sample = tuple(name for name in self.names if name in gpu_sample()) if self.has_sample else ()
        on_cpu = [adapter for adapter in adapters if sample and adapter.info.is_software]
        sampled = ((adapter, sample) for adapter in under_schedules(on_cpu, (GPU,)) if adapter.info != NUMPY_ADAPTER)
        return (*sampled, *((adapter, self.names) for adapter in self.scheduled(adapters)))

    @property
    def has_sample(self) -> bool:
        """Whether CPU adapters run a sample under the schedules for GPUs: neither cases nor schedules are selected."""
        selects = self.operators or self.patterns or self.schedules or SCHEDULES_VARIABLE in os.environ
        return self.profile == QUICK and not selects

    @cached_property
    def expected(self) -> tuple[ExpectedFailure, ...]:
        """Known failures, those of dmlgpu and of files.

        Raises:
            ModelError: If a file is malformed.
            OSError: If a file cannot be read.
        """
        return tuple(entry for path in (*known.BUILT_IN, *self.expectations) for entry in known.load(path))

    def job(self, adapter: LocatedAdapter) -> Job:
        """Return the job that child processes run on an adapter."""
        environment = {**dict(adapter.environment + kernel_environment()), **dict(adapter.environment)}
        return Job(
            self.suite, adapter.index, self.time_limit, self.repeat, environment, str(adapter.info), self.precise
        )

    def opened(self) -> contextlib.AbstractContextManager[TextIO | None]:
        """Open the output, if there is one; it is named ``NAME.part`` until the run ends.

        Raises:
            OSError: If it cannot be written.
        """
        return growing_file(self.output) if self.output else contextlib.nullcontext()


MAX_WORKERS = 8
"""Default maximum of worker processes: each holds a device and the largest tensors of its case."""

MEMORY_OF_WORKER = 4 << 30
"""Bytes of host memory per worker: the largest cases take over 2 GiB."""

MAX_ON_GPU = 4
"""Default maximum of worker processes on a GPU, where they mostly wait for each other."""


def default_workers(info: AdapterInfo, adapters: int = 1) -> int:
    """Return the default number of workers of an adapter: one per core, limited by memory and adapter; one for a
    page."""
    if info.backend.lower() == BROWSER:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    on_cpu = info.is_software or info == NUMPY_ADAPTER
    in_memory = (host_memory() or MAX_WORKERS * MEMORY_OF_WORKER) // MEMORY_OF_WORKER
    return max(1, min(cores, in_memory, MAX_WORKERS if on_cpu else MAX_ON_GPU) // adapters)


class FailurePrinter:
    """Prints failures as they occur. A compile error shared by several cases is printed once; the names of the other
    cases follow at the end.

    Args:
        where: Name of the adapter to print, if any.
    """

    def __init__(self, where: str = ""):
        self._where = where
        self._compile_errors: dict[str, list[str]] = {}

    def tell(self, outcome: Outcome, again: str) -> None:
        """Print a failure and the command that reproduces it, unless its compile error was printed before."""
        error = outcome.compile_error
        if error:
            cases = self._compile_errors.setdefault(error, [])
            cases.append(outcome.case)
            if len(cases) > 1:
                return
        print("\n".join(failure_lines(outcome, again, self._where)), flush=True)

    def finish(self) -> None:
        """Print the further cases that failed with compile errors printed before."""
        on = f" on {self._where}" if self._where else ""
        for first, *others in self._compile_errors.values():
            if others:
                count = len(others) + 1
                print(f"{count} cases{on} do not compile, with the same error as {first}:")
                print("\n".join(f"  {case}" for case in (first, *others)), flush=True)


def failure_lines(outcome: Outcome, again: str, where: str) -> Iterator[str]:
    """Return the lines of a failure: message, adapter, kernels, command that reproduces it."""
    yield f"{outcome.status} on {where}: {outcome.case}" if where else f"{outcome.status}: {outcome.case}"
    if outcome.message:
        yield f"  {outcome.message}"
    if outcome.wrong:
        yield f"  {outcome.wrong_elements}"
    if outcome.kernels:
        yield f"  {'would run' if outcome.compile_error else 'ran'} as: {'; '.join(outcome.kernels)}"
    if outcome.reason:
        yield f"  expected to fail: {outcome.reason}"
    yield f"  again: {again}"


def list_cases(request: ConformanceRequest, as_json: bool = False) -> None:
    """Print the names of the selected cases, one per line or as a JSON list.

    Raises:
        InvalidArgument: If suite or profile is unknown, or nothing matches.
    """
    print(json.dumps(request.names, indent=2) if as_json else "\n".join(request.names))


def test(request: ConformanceRequest) -> bool:
    """Run cases on adapters, one adapter after the other; print failures and a table.

    Returns:
        True if every result was as expected, and a device could be created on some adapter besides ``numpy``.

    Raises:
        AdapterNotFound, InvalidArgument: If an adapter, driver or case does not exist.
        NotSupported: If there is no GPU adapter and the reference was not requested.
        ModelError, OSError: If a file is malformed, or cannot be read or written.
    """
    check_variables()
    expected = request.expected
    adapters = choose_adapters(request.adapters, request.drivers)
    if request.pages:
        adapters = with_pages(adapters, request.pages, bool(request.adapters))
    reject_reference_alone((adapter.info for adapter in adapters), request.adapters)
    runs = request.runs(adapters)
    counted: dict[LocatedAdapter, Counter[Status]] = {}
    unusable: dict[LocatedAdapter, str] = {}
    total = sum(len(names) for _, names in runs)
    with telling_interruption(request, counted, total), request.opened() as file:
        for adapter, names in runs:
            job = request.job(adapter)
            where = adapter.label if len(runs) > 1 else ""
            progress, notes = Progress(sys.stderr, len(names), where), RunNotes()
            ran = run_cases(job, names, request.workers_on(adapter), progress.start, notes)
            outcomes = _noting_unusable(_with_expected(ran, adapter.info, expected), adapter, unusable)
            if file is not None:
                header = facts(
                    adapter.info,
                    environment=tuple(job.environment.items()),
                    time_limit=job.time_limit,
                    index=adapter.index,
                    **{**request.selection, "names": names},
                )
                outcomes = write_run(file, header, outcomes, notes)
            if request.fail_fast:
                outcomes = _until_unexpected(outcomes)
            counts = counted[adapter] = Counter[Status]()
            _report(outcomes, counts, adapter=adapter, job=job, progress=progress, where=where)
            _print_exercised(notes.exercised(), where, all_names=request.exercised)
            if request.fail_fast and any(not status.is_good for status in counts):
                print(f"stopped after {counts.total():,} of {len(names):,} cases, since --fail-fast is given")
                break
    summarize(counted)
    for adapter, reason in unusable.items():
        print(f"{adapter} is skipped: {reason}")
    gpus = [adapter for adapter, _ in runs if adapter.info != NUMPY_ADAPTER]
    is_tested = not gpus or len(unusable) < len(gpus)
    return is_tested and all(status.is_good for counts in counted.values() for status in counts)


@contextlib.contextmanager
def telling_interruption(
    request: ConformanceRequest, counted: Mapping[LocatedAdapter, Counter[Status]], total: int
) -> Iterator[None]:
    """If the block is interrupted, print the counts so far, and where the results are recorded."""
    try:
        yield
    except KeyboardInterrupt:
        print()
        summarize(counted)
        done = sum(counts.total() for counts in counted.values())
        recorded = f", recorded in {request.output}{PARTIAL_SUFFIX}" if request.output else ""
        print(f"interrupted after {done:,} of {total:,} cases{recorded}")
        raise


def with_junit(request: ConformanceRequest, path: Path, run: Callable[[ConformanceRequest], bool]) -> bool:
    """Run cases and also write the results as JUnit XML.

    Returns:
        True if every result was as expected.

    Raises:
        OSError: If the file cannot be written; before the run if its folder does not exist.
        DmlError: As the run.
    """
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.absolute().parent))
    with tempfile.TemporaryDirectory(prefix="dmlgpu-") as folder:
        output = request.output or Path(folder, "runs.jsonl")
        passed = run(replace(request, output=output))
        records = read_file(output)
    with whole_file(path) as stream:
        stream.write(as_junit(Report(tuple(records.runs), tuple(records.comparisons))).encode())
    return passed


def _with_expected(
    outcomes: Iterable[Outcome], info: AdapterInfo, expected: Sequence[ExpectedFailure]
) -> Iterator[Outcome]:
    return (with_expectation(outcome, info, expected) for outcome in outcomes)


def _until_unexpected(outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """Yield outcomes up to the first unexpected one; the children stop there, and the record of the run stays open."""
    for outcome in outcomes:
        yield outcome
        if not outcome.status.is_good:
            return


def _noting_unusable(
    outcomes: Iterable[Outcome], adapter: LocatedAdapter, unusable: dict[LocatedAdapter, str]
) -> Iterator[Outcome]:
    """Yield outcomes, and note an adapter on which no device can be created, with the reason."""
    for outcome in outcomes:
        if outcome.missing == DEVICE:
            unusable[adapter] = outcome.message.removeprefix(f"{adapter.info}: ")
        yield outcome


def _report(
    outcomes: Iterable[Outcome],
    counts: Counter[Status],
    *,
    adapter: LocatedAdapter,
    job: Job,
    progress: Progress,
    where: str,
) -> None:
    """Print failures as they occur, and progress; count results."""
    of_page = adapter.info.backend.lower() == BROWSER
    printer, count, shaders = FailurePrinter(where), progress.count, ShaderCounts()
    for outcome in outcomes:
        counts[outcome.status] += 1
        shaders.add(outcome)
        if not outcome.status.is_good:
            progress.clear()
            printer.tell(outcome, reproduce(outcome, job, adapter))
        elif line := known.known_line(outcome, adapter.info):
            progress.clear()
            print(f"{line} on {where}" if where else line, flush=True)
        wrong = sum(count for status, count in counts.items() if not status.is_good)
        progress.show(counts.total(), wrong)
        if of_page:
            show_in_page(adapter.info, now=outcome.case, done=counts.total(), count=count)
    printer.finish()
    for line in suspect_lines(shaders.suspects()):
        print(line)
    if of_page:
        verdict = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
        show_in_page(adapter.info, now="nothing", verdict=f"{count} cases: {verdict}")


def _print_exercised(exercised: Exercised | None, where: str, *, all_names: bool) -> None:
    """Print what the kernels of a run used and avoided."""
    if exercised is None:
        return
    for line in exercised.summary():
        print(f"{where}: {line}" if where else line)
    if all_names:
        tables.table(("kind", "name", "kernels", "avoided because"), exercised.rows(), right=(2,))
        for kind, never in exercised.never_used().items():
            if never:
                print(textwrap.fill(f"never used, {kind}: {', '.join(never)}", 100, subsequent_indent="  "))
        print()


def reproduce(outcome: Outcome, job: Job, adapter: LocatedAdapter) -> str:
    """Return the command that runs one case again, with ``--adapter numpy`` or ``--browser`` if needed."""
    is_page = adapter.info.backend.lower() == BROWSER
    target = "numpy" if adapter.info == NUMPY_ADAPTER else BROWSER if is_page else str(adapter.index)
    options = [*(["--precise"] if job.precise else ()), *time_limit_option(job.time_limit)]
    command = [*invocation(), "test", *suite_option(job.suite), "--adapter", target, *options, "-k", outcome.case]
    return in_environment(shlex.join(command), job.environment)


def summarize(counted: Mapping[LocatedAdapter, Counter[Status]]) -> None:
    """Print a table of adapters by the results of their cases."""
    shown = [status for status in Status if any(counts[status] for counts in counted.values())]
    rows = [(_row_name(adapter), *(str(counts[status]) for status in shown)) for adapter, counts in counted.items()]
    tables.table(("adapter", *shown), rows, right=range(1, len(shown) + 1))


def _row_name(adapter: LocatedAdapter) -> str:
    family = dict(adapter.environment).get(SCHEDULES_VARIABLE)
    return f"{adapter.info}, {family} schedules" if family else str(adapter.info)


def compare_adapters(request: ConformanceRequest) -> bool:
    """Run cases on several adapters (all by default), compare the results pairwise, and print differences and tables.

    Returns:
        True if no two adapters disagree and each had a result.

    Raises:
        AdapterNotFound, InvalidArgument: If an adapter, driver or case does not exist, or there are fewer than two
            adapters.
        ModelError, OSError: If a file is malformed, or cannot be read or written.
    """
    check_variables()
    names, expected = request.names, request.expected
    suite = as_output_suite(request.cases, request.suite)
    adapters = request.scheduled(choose_adapters(request.adapters or [ALL], request.drivers))
    if len(adapters) < 2:
        raise InvalidArgument(f"--pairwise needs at least two adapters, got only {adapters[0].info}")
    jobs = {adapter.label: request.job(adapter) for adapter in adapters}
    workers = min(request.workers_on(adapter, len(adapters)) for adapter in adapters)
    header = comparison_facts(adapters, request.pairwise_command, **request.selection)
    with request.opened() as file:
        cases = _pairs_with_expected(run_pairwise(jobs, suite, names, workers), adapters, expected)
        if file is not None:
            cases = write_comparison(file, header, cases)
        pairs = tuple(pair for case_pairs in _reported_pairs(cases, request) for pair in case_pairs)
    _summarize_pairs(PairReport(Comparison(header, pairs)), adapters)
    return all(pair.agreement.is_good for pair in pairs)


def _pairs_with_expected(
    cases: Iterable[tuple[AdapterPair, ...]], adapters: Sequence[LocatedAdapter], expected: Sequence[ExpectedFailure]
) -> Iterator[tuple[AdapterPair, ...]]:
    """Return the comparisons with known failures of either adapter marked."""
    infos = {adapter.label: adapter.info for adapter in adapters}
    for pairs in cases:
        yield tuple(_with_expectations(pair, infos, expected) for pair in pairs)


def _with_expectations(
    pair: AdapterPair, infos: Mapping[str, AdapterInfo], expected: Sequence[ExpectedFailure]
) -> AdapterPair:
    for entry in expected:
        if any(entry.applies(pair.case, infos[label]) for label in pair.adapters):
            return expected_to_disagree(pair, entry.reason)
    return pair


# ---- printing --------------------------------------------------------------------------------------------------------


def _reported_pairs(
    cases: Iterable[tuple[AdapterPair, ...]], request: ConformanceRequest
) -> Iterator[tuple[AdapterPair, ...]]:
    """Print disagreements as they occur, and progress."""
    bad, progress = 0, Progress(sys.stderr, len(request.names))
    for done, pairs in enumerate(cases, start=1):
        if not all(pair.agreement.is_good for pair in pairs):
            bad += 1
            progress.clear()
            print("\n".join(_pair_lines(pairs, request)), flush=True)
        progress.show(done, bad)
        yield pairs


def _pair_lines(pairs: Sequence[AdapterPair], request: ConformanceRequest) -> Iterator[str]:
    """Return the lines of a disagreement: adapters, difference, command that reproduces it."""
    wrong = [pair for pair in pairs if not pair.agreement.is_good]
    apart = [pair for pair in wrong if pair.agreement is Agreement.DISAGREE]
    yield f"{(apart or wrong)[0].agreement}: {wrong[0].case}"
    alone = outlier(pairs)
    if alone:
        yield f"  {alone} differs from the others, which agree"
    yield from (f"  {' / '.join(pair.adapters)}: {difference(pair)}" for pair in apart)
    yield from (f"  {text}" for text in kernels_of(apart))
    yield from dict.fromkeys(f"  {pair.message}" for pair in wrong if pair not in apart)
    yield f"  again: {shlex.join([*invocation(), *request.pairwise_command[1:], '-k', wrong[0].case])}"


def _summarize_pairs(report: PairReport, adapters: Sequence[LocatedAdapter]) -> None:
    """Print two tables: cases on which an adapter alone differs, and agreements of each pair."""
    rows = [(adapter.label, str(report.alone[adapter.label]), str(adapter.info)) for adapter in adapters]
    tables.table(("adapter", "alone", "is"), rows, right=(1,))
    print()
    tables.table(
        ("pair", "same bits", *report.agreements, "worst"),
        [
            (
                " / ".join(row.adapters),
                str(row.same_bits),
                *(str(row.counts[agreement]) for agreement in report.agreements),
                bound_text(row.of_bound) or "-",
            )
            for row in report.rows
        ],
        right=range(1, len(report.agreements) + 3),
    )
