"""``dmlgpu test --scheduler``: do the adapters of a Dask cluster's workers compute the right thing?"""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dmlgpu.cli.places import ALL, matching
from dmlgpu.cli.request import Request
from dmlgpu.cli.side_by_side import side_by_side
from dmlgpu.cli.test import lines, summarize
from dmlgpu.conformance.cluster.cluster import Fleet, connect
from dmlgpu.conformance.cluster.registry import Member, Work
from dmlgpu.conformance.cluster.shards import is_lost
from dmlgpu.conformance.drivers.discovery import Place, labelled
from dmlgpu.conformance.running.expectations import judged
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.pool import Job
from dmlgpu.conformance.running.records import facts
from dmlgpu.conformance.suites.registry import option
from dmlgpu.errors import InvalidArgument


def test(request: Request, scheduler: str, patience: float) -> bool:
    """Run cases on every distinct adapter of a cluster at once, and print what is wrong and a table.

    Args:
        request: the options; adapters are chosen among the workers', all where none is named.
        scheduler: its address.
        patience: seconds to wait for another worker when the last one that has an adapter is lost.

    Returns:
        Whether everything was as expected.

    Raises:
        AdapterNotFound, InvalidArgument: for what does not exist, and for workers that could not run the same cases.
        ModelError, OSError: when a file is malformed, or cannot be read or written.
    """
    if request.drivers:
        raise InvalidArgument("--drivers is for this machine; the workers of a cluster have drivers of their own")
    job = Job(request.suite, 0, request.time_limit, request.repeat)
    with connect(scheduler) as client:
        work = Work(job, request.profile, request.pattern, request.names, request.workers, patience)
        fleet = Fleet(client, work, _note)
        counted = _run(fleet, _chosen(request.adapters, fleet.members), request, scheduler)
    summarize(counted)
    return all(status.is_good for counts in counted.values() for status in counts)


def _chosen(wanted: Sequence[str], members: Sequence[Member]) -> dict[str, Place]:
    """The adapters that are wanted, all where none is named, by the names of their resources.

    Raises:
        AdapterNotFound: when nothing matches; the message lists all adapters.
    """
    known = labelled(Place(member.info, number) for number, member in enumerate(members))
    found = dict.fromkeys(place for one in wanted or (ALL,) for place in matching(one, known))
    return {members[place.number].resource: place for place in found}


def _run(fleet: Fleet, chosen: dict[str, Place], request: Request, scheduler: str) -> dict[Place, Counter[Status]]:
    """Run the cases; what is wrong is printed as it comes."""
    members = [member for member in fleet.members if member.resource in chosen]
    headers = {one.resource: {**facts(one.info, **request.selection), **one.machine} for one in members}
    counted = {chosen[member.resource]: Counter[Status]() for member in members}
    with side_by_side(request.output, headers) as write, _bars(list(counted), len(request.names)) as show:
        for member, found in fleet.run(members):
            place = chosen[member.resource]
            outcome = found if is_lost(found) else judged(found, member.info, request.expected)
            write(member.resource, outcome)
            counted[place][outcome.status] += 1
            if not outcome.status.is_good:
                print("\n".join(lines(outcome, reproduce(outcome, place, request, scheduler), place.label)), flush=True)
            show(place, counted[place])
        for resource in headers:
            write(resource, None)
    return counted


def reproduce(outcome: Outcome, place: Place, request: Request, scheduler: str) -> str:
    """The command that runs one case again."""
    where = ["--scheduler", scheduler, "--adapter", place.label]
    return shlex.join(["dmlgpu", "test", *option(request.suite), *where, "-k", outcome.case])


def _note(text: str) -> None:
    print(f"dmlgpu: {text}", file=sys.stderr)


@contextlib.contextmanager
def _bars(places: Sequence[Place], count: int) -> Iterator[Callable[[Place, Counter[Status]], None]]:
    """A bar per adapter, on a terminal only; the function says how far one is."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[bad]}"))
    console = Console(stderr=True)
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),
    ) as progress:
        tasks = {place: progress.add_task(place.label, total=count, bad="") for place in places}

        def show(place: Place, counts: Counter[Status]) -> None:
            bad = sum(number for status, number in counts.items() if not status.is_good)
            progress.update(tasks[place], completed=counts.total(), bad=f"{bad} not as they should be" if bad else "")

        yield show
