"""Pool of child processes that run cases: a hang or crash fails one case, and the run continues."""

from __future__ import annotations

import queue
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from dmlgpu.common.processes import ChildLost, ChildProcess, NoAnswer, python_command
from dmlgpu.conformance.running.exercised import EXERCISED, RunNotes
from dmlgpu.conformance.running.outcome import KERNELS, Outcome, Status, bound_text

CASES_PER_CHILD = 250
"""Cases after which a child is replaced: a device caches pipelines, which would reach gigabytes."""

TIME_LIMIT = 60.0
"""Default timeout of one case, in seconds."""

PRECISE = "precise"
"""Requests a precise device from a child."""


@dataclass(frozen=True)
class Job:
    """Cases to run on an adapter.

    Attributes:
        suite: Name of the suite.
        adapter: Index in ``dmlgpu.adapters()``, in the environment of the children.
        time_limit: Timeout of one case, in seconds.
        repeat: Runs of each case; different results make it flaky. A failed case always runs twice; one that
            does not end, once.
        environment: Additional environment variables of the children, such as VK_DRIVER_FILES.
        adapter_text: Text of the adapter, which children must find under the index, so that a missing driver does not
            select another adapter; empty accepts any.
        precise: Whether devices are ``Device(precise=True)``.
    """

    suite: str
    adapter: int
    time_limit: float = TIME_LIMIT
    repeat: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    adapter_text: str = ""
    precise: bool = False


def time_limit_option(seconds: float) -> list[str]:
    """Return the option of ``dmlgpu test`` that sets a timeout; empty for the default."""
    return [] if seconds == TIME_LIMIT else ["--time-limit", f"{seconds:g}"]


class WorkerProcess:
    """A child process that returns results. Started for the first case, and again after each loss.

    Args:
        job: The job.
        arguments: Further arguments of the child's command.
        notes: Gets what kernels use of WGSL.
    """

    def __init__(self, job: Job, *arguments: str, notes: RunNotes | None = None):
        self.job, self.notes = job, RunNotes() if notes is None else notes
        words = (job.suite, str(job.adapter), job.adapter_text, PRECISE if job.precise else "", *arguments)
        self.child = ChildProcess(python_command("dmlgpu.conformance.running.worker", *words), job.environment)

    def run(self, name: str) -> Outcome:
        """Run a case once."""
        kernels: dict[str, None] = {}
        try:
            for record in self.child.ask(name, self.job.time_limit):
                if record.keys() == {EXERCISED}:
                    self.notes.add(record[EXERCISED])
                elif record.keys() == {KERNELS}:
                    kernels |= dict.fromkeys(record[KERNELS])
                else:
                    break
        except NoAnswer as error:
            message = f"no result after {error.seconds:g} s"
            return Outcome(name, Status.TIME_OUT, message=message, seconds=error.seconds, kernels=tuple(kernels))
        except ChildLost as error:
            return Outcome(name, Status.CRASH, message=str(error), kernels=tuple(kernels))
        outcome = Outcome.from_json(record)
        if outcome.status is Status.DEVICE_LOST or self.child.requests == CASES_PER_CHILD:
            self.child.stop()
        return outcome

    def interrupt(self) -> None:
        """Kill the child from another thread; its current case counts as crashed."""
        self.child.interrupt()

    def close(self) -> None:
        """Stop the child."""
        self.child.close()


def run_repeatedly(worker: WorkerProcess, name: str) -> Outcome:
    """Run a case as often as the job requires, twice if it fails, once if it does not end; flaky if two runs differ."""
    first = worker.run(name)
    times = max(worker.job.repeat, 2 if first.status.is_failure else 1)
    if first.status is Status.TIME_OUT:
        return first
    for index in range(2, times + 1):
        other = worker.run(name)
        if (other.status, other.digest) != (first.status, first.digest):
            message = f"run 1: {_summary(first)}; run {index}: {_summary(other)}"
            worse = max(first, other, key=lambda outcome: outcome.of_bound or 0.0)
            return replace(worse, status=Status.FLAKY, message=message)
    return first


def _summary(outcome: Outcome) -> str:
    bits = f"bits {outcome.digest}" if outcome.digest else ""
    return ", ".join(filter(None, (outcome.status, bound_text(outcome.of_bound), bits)))


def run_cases(
    job: Job,
    names: Sequence[str],
    workers: int = 1,
    started: Callable[[str], object] = lambda name: None,
    notes: RunNotes | None = None,
) -> Iterator[Outcome]:
    """Run cases in several child processes; yield results as they complete.

    The children are stopped if the caller stops early or raises.

    Args:
        job: The job.
        names: Names of cases.
        workers: Number of child processes.
        started: Called with the name of each case that starts, from another thread.
        notes: Gets what kernels use of WGSL.
    """

    def run(worker: WorkerProcess, name: str) -> Outcome:
        started(name)
        return run_repeatedly(worker, name)

    return map_unordered([WorkerProcess(job, notes=notes) for _ in range(min(workers, len(names)))], names, run)


class CaseWorker(Protocol):
    """Worker that runs one case at a time, in child processes of its own."""

    def interrupt(self) -> None:
        """Kill the children from another thread."""

    def close(self) -> None:
        """Stop the children."""


AnyWorker = TypeVar("AnyWorker", bound=CaseWorker)
Result = TypeVar("Result")


def by_hash(names: Sequence[str]) -> list[str]:
    """Return cases in the order of hashes: the slow cases of a suite stand together, and every beginning must be a
    sample of all cases, from which the remaining time is estimated."""
    return sorted(names, key=lambda name: zlib.crc32(name.encode()))


def map_unordered(
    workers: Sequence[AnyWorker], names: Sequence[str], work: Callable[[AnyWorker, str], Result]
) -> Iterator[Result]:
    """Map a function over cases with several workers; yield results as they complete.

    The order is by hash. The children are stopped if the caller stops early or raises.
    """
    names = by_hash(names)
    idle: queue.SimpleQueue[AnyWorker] = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def run(name: str) -> Result:
        worker = idle.get()
        try:
            return work(worker, name)
        finally:
            idle.put(worker)

    pool = ThreadPoolExecutor(len(workers))
    try:
        for future in as_completed([pool.submit(run, name) for name in names]):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.interrupt()
        pool.shutdown()
        for worker in workers:
            worker.close()
