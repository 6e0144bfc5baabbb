"""``dmlgpu test --scheduler``: test the adapters of a Dask cluster."""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dmlgpu.cli.devices import ALL, matching, reject_reference_alone
from dmlgpu.cli.main import invocation
from dmlgpu.cli.tables import Progress as ProgressLines
from dmlgpu.cli.test import ConformanceRequest, FailurePrinter, summarize
from dmlgpu.common.dask_client import connect
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.common.files import NamedFile, growing_file
from dmlgpu.conformance.cluster import Cluster, ClusterAdapter, ClusterJob, is_lost
from dmlgpu.conformance.drivers.discovery import LocatedAdapter, in_environment, kernel_environment, with_labels
from dmlgpu.conformance.running.expectations import known_line, with_expectation
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.pool import Job
from dmlgpu.conformance.running.records import facts, write_run
from dmlgpu.conformance.suites.registry import suite_option
from dmlgpu.runtime.adapters import check_variables


def test(request: ConformanceRequest, scheduler: str, patience: float) -> bool:
    """Run cases on every distinct adapter of a cluster at once; print failures and a table.

    Args:
        request: Options; adapters are chosen among those of the workers, all by default.
        scheduler: Address of the scheduler, ``tcp://HOST:PORT``.
        patience: Seconds to wait for another worker after the last one with an adapter is lost.

    Returns:
        True if every result was as expected.

    Raises:
        AdapterNotFound, InvalidArgument: If an adapter or case does not exist, or workers cannot run the same cases.
        NotSupported: If there is no GPU adapter and the reference was not requested.
        ModelError, OSError: If a file is malformed, or cannot be read or written.
    """
    if request.drivers:
        raise InvalidArgument(
            "--drivers cannot be combined with --scheduler: the workers of a cluster have their own drivers"
        )
    check_variables()
    job = Job(request.suite, 0, request.time_limit, request.repeat, dict(kernel_environment()), precise=request.precise)
    with connect(scheduler) as client:
        cluster_job = ClusterJob(job, request.profile, request.selecting, request.names, request.workers or 1, patience)
        cluster = Cluster(client, cluster_job, _warn)
        chosen = _chosen(request.adapters, cluster.adapters)
        reject_reference_alone((adapter.info for adapter in chosen.values()), request.adapters)
        counted = _run(cluster, chosen, request, scheduler)
    summarize(counted)
    return all(status.is_good for counts in counted.values() for status in counts)


def _chosen(requested: Sequence[str], adapters: Sequence[ClusterAdapter]) -> dict[str, LocatedAdapter]:
    """Return the requested adapters, by the names of their Dask resources; all by default.

    Raises:
        AdapterNotFound: If nothing matches; the message lists all adapters.
    """
    known = with_labels(LocatedAdapter(adapter.info, index) for index, adapter in enumerate(adapters))
    matches = dict.fromkeys(adapter for text in requested or (ALL,) for adapter in matching(text, known))
    return {adapters[adapter.index].resource: adapter for adapter in matches}


def _run(
    cluster: Cluster, chosen: dict[str, LocatedAdapter], request: ConformanceRequest, scheduler: str
) -> dict[LocatedAdapter, Counter[Status]]:
    """Run the cases and print failures as they occur."""
    adapters = [adapter for adapter in cluster.adapters if adapter.resource in chosen]
    headers = {
        adapter.resource: {**facts(adapter.info, **request.selection), **adapter.machine} for adapter in adapters
    }
    counted = {chosen[adapter.resource]: Counter[Status]() for adapter in adapters}
    printers = {located: FailurePrinter(located.label) for located in counted}
    with side_by_side(request.output, headers) as write, _progress_bars(list(counted), len(request.names)) as show:
        for adapter, result in cluster.run(adapters):
            located = chosen[adapter.resource]
            outcome = result if is_lost(result) else with_expectation(result, adapter.info, request.expected)
            write(adapter.resource, outcome)
            counted[located][outcome.status] += 1
            if not outcome.status.is_good:
                printers[located].tell(outcome, reproduce(outcome, located, request, scheduler))
            elif line := known_line(outcome, adapter.info):
                print(f"{line} on {located.label}", flush=True)
            show(located, counted[located])
        for resource in headers:
            write(resource, None)
    for printer in printers.values():
        printer.finish()
    return counted


def reproduce(outcome: Outcome, adapter: LocatedAdapter, request: ConformanceRequest, scheduler: str) -> str:
    """Return the command that runs one case again."""
    where = ["--scheduler", scheduler, "--adapter", adapter.label, *(["--precise"] if request.precise else [])]
    command = [*invocation(), "test", *suite_option(request.suite), *where, "-k", outcome.case]
    return in_environment(shlex.join(command), dict(kernel_environment()))


def _warn(text: str) -> None:
    print(f"dmlgpu: {text}", file=sys.stderr)


@contextlib.contextmanager
def _progress_bars(
    adapters: Sequence[LocatedAdapter], count: int
) -> Iterator[Callable[[LocatedAdapter, Counter[Status]], None]]:
    """Return a function that shows the progress of an adapter: a bar each on a terminal, else a line for all
    together."""
    console = Console(stderr=True)
    if not console.is_terminal:
        all_lines = ProgressLines(sys.stderr, count * len(adapters))
        everything: dict[LocatedAdapter, Counter[Status]] = {}

        def tell(adapter: LocatedAdapter, counts: Counter[Status]) -> None:
            everything[adapter] = counts
            done = sum(counts_of_adapter.total() for counts_of_adapter in everything.values())
            all_lines.show(done, sum(map(_bad, everything.values())))

        yield tell
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[bad]}"))
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        redirect_stdout=sys.stdout.isatty(),
    ) as progress:
        tasks = {adapter: progress.add_task(adapter.label, total=count, bad="") for adapter in adapters}

        def show(adapter: LocatedAdapter, counts: Counter[Status]) -> None:
            bad = _bad(counts)
            progress.update(tasks[adapter], completed=counts.total(), bad=f"{bad} unexpected" if bad else "")

        yield show


def _bad(counts: Counter[Status]) -> int:
    """Return the number of unexpected results."""
    return sum(count for status, count in counts.items() if not status.is_good)


Write: TypeAlias = Callable[[str, Outcome | None], None]
"""A function that writes the next result of a run, by name; None ends the run."""


class _Part:
    """A file with one of several simultaneous runs."""

    def __init__(self, path: Path, header: dict[str, Any]):
        self.path = path
        self._file = io.TextIOWrapper(io.BufferedWriter(NamedFile(path, "wb", str(path))), encoding="utf-8")
        self._inbox: deque[Outcome | None] = deque()
        self._written = write_run(self._file, header, iter(self._inbox.popleft, None))

    def put(self, outcome: Outcome | None) -> None:
        self._inbox.append(outcome)
        next(self._written, None)

    def close(self) -> str:
        """Close the file; return its content."""
        self._file.close()
        return self.path.read_text(encoding="utf-8")


@contextlib.contextmanager
def side_by_side(output: Path | None, headers: Mapping[str, dict[str, Any]]) -> Iterator[Write]:
    """Write several simultaneous runs, by name, into one output. Writes nothing without an output.

    While running, each run has its own file next to the output (``results.jsonl.0`` and so on). They are merged at
    the end, after an interrupt into ``results.jsonl.part``. If the process is killed or the disk is full, each file
    holds the beginning of its run.

    Raises:
        OSError: If a file cannot be written.
    """
    if output is None:
        yield lambda name, outcome: None
        return
    numbered = enumerate(headers.items())
    with growing_file(output) as file:
        parts = {name: _Part(output.with_name(f"{output.name}.{index}"), header) for index, (name, header) in numbered}
        try:
            yield lambda name, outcome: parts[name].put(outcome)
        finally:
            file.writelines(part.close() for part in parts.values())
            file.flush()
            for part in parts.values():
                part.path.unlink()
