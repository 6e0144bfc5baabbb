"""``dmlgpu test``: does this adapter compute the right thing?"""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dmlgpu.cli import tables
from dmlgpu.cli.adapters import choose_adapters, refuse_reference_alone, with_pages
from dmlgpu.cli.failures import FailurePrinter
from dmlgpu.cli.progress import Progress
from dmlgpu.cli.request import Request
from dmlgpu.conformance.drivers.discovery import LocatedAdapter, in_environment
from dmlgpu.conformance.running.expectations import Expectation, with_expectation
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.pool import Job, run_cases
from dmlgpu.conformance.running.records import facts, write_run
from dmlgpu.conformance.suites.registry import suite_option
from dmlgpu.device.adapters import BROWSER, show_in_page
from dmlgpu.host.adapter import NUMPY_ADAPTER
from dmlgpu.target import AdapterInfo


def list_cases(request: Request, as_json: bool = False) -> None:
    """Print the names of the cases that would run, one a line or as a list in JSON.

    Raises:
        InvalidArgument: for an unknown suite or profile, or where nothing matches.
    """
    print(json.dumps(request.names, indent=2) if as_json else "\n".join(request.names))


def test(request: Request) -> bool:
    """Run cases on adapters, one after the other, and print what is wrong and a table.

    Returns:
        Whether everything was as expected.

    Raises:
        AdapterNotFound, InvalidArgument: for what does not exist.
        NotSupported: without a GPU adapter, unless the reference was asked for.
        ModelError, OSError: when a file is malformed, or cannot be read or written.
    """
    names, expected = request.names, request.expected
    adapters = choose_adapters(request.adapters, request.drivers)
    if request.pages:
        adapters = with_pages(adapters, request.pages, bool(request.adapters))
    refuse_reference_alone((adapter.info for adapter in adapters), request.adapters)
    counted: dict[LocatedAdapter, Counter[Status]] = {}
    with request.opened() as file:
        for adapter in adapters:
            job = request.job(adapter)
            outcomes = _with_expected(run_cases(job, names, request.workers), adapter.info, expected)
            if file is not None:
                outcomes = write_run(
                    file, facts(adapter.info, environment=adapter.environment, **request.selection), outcomes
                )
            where = adapter.label if len(adapters) > 1 else ""
            counted[adapter] = _report(outcomes, adapter, job, len(names), where)
    summarize(counted)
    return all(status.is_good for counts in counted.values() for status in counts)


def _with_expected(
    outcomes: Iterable[Outcome], info: AdapterInfo, expected: Sequence[Expectation]
) -> Iterator[Outcome]:
    return (with_expectation(outcome, info, expected) for outcome in outcomes)


def _report(outcomes: Iterable[Outcome], adapter: LocatedAdapter, job: Job, count: int, where: str) -> Counter[Status]:
    """Print what is wrong as it comes, and how far the run is."""
    counts: Counter[Status] = Counter()
    of_page = adapter.info.backend.lower() == BROWSER
    printer, progress = FailurePrinter(where), Progress(sys.stderr, count, where)
    for outcome in outcomes:
        counts[outcome.status] += 1
        if not outcome.status.is_good:
            printer.tell(outcome, reproduce(outcome, job, adapter))
        wrong = sum(number for status, number in counts.items() if not status.is_good)
        progress.show(counts.total(), wrong)
        if of_page:
            show_in_page(adapter.info, now=outcome.case, done=counts.total(), count=count)
    printer.finish()
    if of_page:
        verdict = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
        show_in_page(adapter.info, now="nothing", verdict=f"{count} cases: {verdict}")
    return counts


def reproduce(outcome: Outcome, job: Job, adapter: LocatedAdapter) -> str:
    """The command that runs one case again; the reference is asked for by its name, as it must be, and a page
    by what waits for one."""
    is_page = adapter.info.backend.lower() == BROWSER
    number = "numpy" if adapter.info == NUMPY_ADAPTER else BROWSER if is_page else str(adapter.number)
    precise = ["--precise"] if job.precise else []
    command = ["dmlgpu", "test", *suite_option(job.suite), "--adapter", number, *precise, "-k", outcome.case]
    return in_environment(shlex.join(command), dict(adapter.environment))


def summarize(counted: Mapping[LocatedAdapter, Counter[Status]]) -> None:
    """Print a table of adapters by what came of their cases."""
    shown = [status for status in Status if any(counts[status] for counts in counted.values())]
    rows = [(str(adapter.info), *(str(counts[status]) for status in shown)) for adapter, counts in counted.items()]
    tables.table(("adapter", *shown), rows, right=range(1, len(shown) + 1))
