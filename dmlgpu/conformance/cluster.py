"""Running cases on every adapter that the workers of a Dask cluster have.

A worker says which adapters it has when asked, and offers them to Dask as resources.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from distributed import CancelledError, Client, Future, Worker, get_worker, wait
from distributed.utils import sync

from dmlgpu.common.dask_client import workers
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.drivers import discovery
from dmlgpu.conformance.drivers.discovery import Discovery, LocatedAdapter, info_from_json
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.pool import Job, by_hash, run_cases
from dmlgpu.conformance.running.records import machine
from dmlgpu.conformance.suites.registry import list_digest, select, suite_by_name

# ---- on a worker

SCHEDULER_LIMIT = 30.0
"""Seconds for the scheduler to register resources."""

_DRIVER_FILES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
_COMPARED = ("dmlgpu", "commit", "shaders", "wgpu", "python")
_IDENTITY = ("backend", "name", "vendor", "driver")

_idle: dict[str, queue.SimpleQueue[LocatedAdapter]] = {}
"""This worker's adapters that no shard runs on, by the resources that they were announced as."""


@dataclass(frozen=True)
class Announcement:
    """Facts reported by a worker.

    Attributes:
        machine: Versions and computer, as in records.
        cases: Hash of the names of cases for the same suite, profile and patterns.
        adapters: Its adapters, by names of resources.
        problems: Drivers that could not be examined, a text each.
    """

    machine: dict[str, str]
    cases: str
    adapters: dict[str, AdapterInfo]
    problems: tuple[str, ...] = ()

    @classmethod
    def of_answer(cls, answer: Mapping[str, Any]) -> Announcement:
        """Facts of a worker from the answer of ``announce``."""
        adapters = {name: info_from_json(record) for name, record in answer["adapters"].items()}
        return cls(answer["machine"], answer["cases"], adapters, tuple(answer["problems"]))


def announce(suite: str, profile: str, patterns: Sequence[str]) -> dict[str, Any]:
    """Offer the adapters of the Dask worker in which this runs as its resources, each for one shard at a time.

    Of two equal ones there are two.

    Returns:
        The fields of an ``Announcement`` as plain data, which another version of dmlgpu understands too.

    Raises:
        InvalidArgument: For a suite, profile or pattern that this worker lacks.
    """
    software, cases = machine(), list_digest(select(suite_by_name(suite), profile, patterns))
    discovery_ = discover()
    named = [(_resource(adapter.info, software), adapter) for adapter in discovery_.adapters]
    _idle.update({name: queue.SimpleQueue() for name, _ in named})
    for name, located in named:
        _idle[name].put(located)
    set_resources(get_worker(), Counter(name for name, _ in named))
    adapters = {name: asdict(located.info) for name, located in named}
    return {"machine": software, "cases": cases, "adapters": adapters, "problems": discovery_.problems}


def announce_task(suite: str, profile: str, patterns: Sequence[str]) -> Callable[[], dict[str, Any]]:
    """``announce`` for a worker that may have another dmlgpu, or none."""

    # Defined in no module, it is sent by value: Dask drops a worker that cannot import what it receives.
    def ask() -> dict[str, Any]:
        from dmlgpu.conformance.cluster import announce  # noqa: PLC0415

        return announce(suite, profile, patterns)

    return ask


def discover() -> Discovery:
    """Return the adapters of the drivers that the worker's environment chooses; where it chooses none, of all
    drivers."""
    chosen = any(os.environ.get(name) for name in _DRIVER_FILES)
    return discovery.process_drivers() if chosen else discovery.all_drivers()


@contextlib.contextmanager
def reserved(name: str) -> Iterator[LocatedAdapter]:
    """An adapter that this worker announced under a name, for the caller alone.

    Raises:
        LookupError: If it announced none.
    """
    if name not in _idle:
        raise LookupError(f"this worker has not announced {name}")
    idle = _idle[name]
    adapter = idle.get()
    try:
        yield adapter
    finally:
        idle.put(adapter)


def run_shard(job: Job, resource: str, names: Sequence[str], workers: int) -> tuple[Outcome, ...]:
    """Run cases in child processes of the Dask worker in which this runs.

    Args:
        job: With the suite and limits; adapter and environment are this worker's.
        resource: Under which the adapter was announced.
        workers: Children at once.

    Raises:
        LookupError: If this worker has not announced the adapter.
    """
    with reserved(resource) as adapter:
        there = replace(job, adapter=adapter.index, environment={**job.environment, **dict(adapter.environment)})
        return tuple(run_cases(there, names, workers))


def _resource(info: AdapterInfo, software: Mapping[str, str]) -> str:
    """Return a name that two workers share if they have the same adapter, driver and version of everything.

    Limits are omitted: some depend on how much memory the machine has.
    """
    adapter = [asdict(info)[name] for name in _IDENTITY]
    versions = [_comparable(name, software[name]) for name in _COMPARED if name != "commit"]
    return f"dmlgpu-{hashlib.sha256(json.dumps([adapter, versions]).encode()).hexdigest()[:16]}"


def set_resources(worker: Worker, counts: Mapping[str, int]) -> None:
    """Announce the resources of a worker to the scheduler."""
    sync(worker.loop, worker.set_resources, callback_timeout=SCHEDULER_LIMIT, **counts)


def differences(own: Mapping[str, str], theirs: Mapping[str, str]) -> tuple[str, ...]:
    """Return the versions in which two machines differ, if results depend on them: not the last part of Python's
    version.

    The commit is known only for a checkout.
    """
    pairs = ((name, _comparable(name, own[name]), _comparable(name, theirs[name])) for name in _COMPARED)
    return tuple(
        f"{name} {their_version} there, {own_version} here"
        for name, own_version, their_version in pairs
        if own_version != their_version and not (name == "commit" and "" in (own_version, their_version))
    )


def _comparable(name: str, version: str) -> str:
    return version.rpartition(".")[0] if name == "python" else version


# ---- on the machine that asks

Shard: TypeAlias = tuple[str, ...]

SHARD_SIZE = 32
"""Cases at once: enough to make up for starting a child process, few enough that progress is seen."""


LOST = "lost by the cluster: "
"""Prefix of the messages of cases that no worker completed."""


def is_lost(outcome: Outcome) -> bool:
    """Return whether the cluster lost a case, which is no fault of the adapter."""
    return outcome.message.startswith(LOST)


class ShardQueue:
    """The cases to run on one adapter. Every case gets exactly one outcome, even if workers are lost.

    Attributes:
        missing: Cases without an outcome, in order.
    """

    def __init__(self, names: Sequence[str], size: int = SHARD_SIZE):
        self.missing = dict.fromkeys(names)
        starts = range(0, len(names), size)
        self._waiting: deque[Shard] = deque(tuple(names[start : start + size]) for start in starts)

    def next(self) -> Shard | None:
        """Return the next shard without the cases that have an outcome by now, or None if there is none."""
        while self._waiting:
            left = self._left(self._waiting.popleft())
            if left:
                return left
        return None

    def put_back(self, shard: Shard) -> None:
        """Return a shard that was not run to the front of the queue."""
        self._waiting.appendleft(shard)

    def complete(self, shard: Shard, outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
        """Take the outcomes of a shard, and yield the first one of each case; later ones do not count."""
        for outcome in outcomes:
            if outcome.case in self.missing:
                del self.missing[outcome.case]
                yield outcome
        if self._left(shard):
            yield from self.fail(shard, "the worker returned no result")

    def fail(self, shard: Shard, reason: str) -> Iterator[Outcome]:
        """A shard came to nothing: its cases are tried one by one, and one that failed alone is lost."""
        left = self._left(shard)
        if len(shard) > 1:
            self._waiting.extend((name,) for name in left)
        else:
            yield from self._lose(left, reason)

    def give_up(self, reason: str) -> Iterator[Outcome]:
        """Report all cases without a result as lost."""
        self._waiting.clear()
        yield from self._lose(tuple(self.missing), reason)

    def _lose(self, names: Shard, reason: str) -> Iterator[Outcome]:
        for name in names:
            del self.missing[name]
            yield Outcome(name, Status.DEVICE_LOST, message=LOST + reason)

    def _left(self, shard: Shard) -> Shard:
        return tuple(name for name in shard if name in self.missing)


ANSWER_LIMIT = 180.0
"""Seconds for the workers to report their adapters: they load every driver, and may be busy."""

RESULT_LIMIT = 10.0
"""Timeout of fetching a result from a worker, in seconds."""


@dataclass(frozen=True)
class ClusterJob:
    """Work for the workers.

    Attributes:
        job: Suite and limits of its cases; each worker adds its own adapter.
        profile, patterns: Selection of the cases.
        names: Names of the cases.
        processes: Child processes per adapter of a worker.
        patience: Seconds to wait for another worker after the last one with an adapter is lost.
    """

    job: Job
    profile: str
    patterns: tuple[str, ...]
    names: tuple[str, ...]
    processes: int = 1
    patience: float = 60.0


@dataclass(frozen=True)
class ClusterAdapter:
    """An adapter that at least one worker has.

    Attributes:
        resource: What Dask knows it by.
        info: The adapter.
        machine: Software and computer of the first worker that announced it.
    """

    resource: str
    info: AdapterInfo
    machine: Mapping[str, str]


class WorkerRegistry:
    """The workers of a cluster. Workers that join later are queried too, and get cases if they match this machine."""

    def __init__(self, client: Client, job: ClusterJob, warn: Callable[[str], None]):
        self._client, self._job, self._warn = client, job, warn
        self._address = client.scheduler.address
        self._own, self._cases = machine(), list_digest(job.names)
        self._present: dict[str, dict[str, float]] = {}  # resources by address
        self._known: dict[str, Future | Announcement | str] = {}  # a text says why there are no cases

    def query_all(self) -> tuple[ClusterAdapter, ...]:
        """Ask all workers that are there; each distinct adapter once.

        Raises:
            InvalidArgument: If there is no worker, or one that could not run the same cases.
        """
        self._refresh()
        if not self._known:
            raise InvalidArgument(f"the cluster at {self._address} has no workers")
        end = time.monotonic() + ANSWER_LIMIT
        while self._pending() and time.monotonic() < end:
            time.sleep(0.1)
            self._refresh()
        rejected = [f"{address}: {why}" for address, why in self._known.items() if isinstance(why, str)]
        if rejected:
            raise InvalidArgument("\n  ".join(["these workers cannot run the same cases:", *rejected]))
        for address in self._pending():
            self._warn(f"{address} did not report its adapters within {ANSWER_LIMIT:g} s")
        if not self._answers():
            raise InvalidArgument(f"no worker of the cluster at {self._address} reports its adapters")
        return self._adapters()

    def _adapters(self) -> tuple[ClusterAdapter, ...]:
        adapters: dict[str, ClusterAdapter] = {}
        for answer in self._answers().values():
            for name, info in answer.adapters.items():
                adapters.setdefault(name, ClusterAdapter(name, info, answer.machine))
        return tuple(sorted(adapters.values(), key=lambda adapter: str(adapter.info)))

    def capacity(self) -> Counter[str]:
        """Return the number of shards that the present workers can run at once, by resource; new workers are
        queried."""
        for address in self._refresh():
            self._warn(f"{address} is not used: {self._known[address]}")
        capacity: Counter[str] = Counter()
        for address, answer in self._answers().items():
            capacity.update({name: int(self._present[address].get(name, 0)) for name in answer.adapters})
        return capacity

    def _refresh(self) -> list[str]:
        """Query new workers, forget lost ones, and collect answers; return the workers that get no cases."""
        self._present = {address: facts["resources"] for address, facts in workers(self._client).items()}
        self._known = {address: state for address, state in self._known.items() if address in self._present}
        rejected = []
        for address, resources in self._present.items():
            state = self._known.get(address)
            if isinstance(state, Future) and state.done():
                self._known[address] = self._answer(address, state)
                state.release()
                rejected += [address] if isinstance(self._known[address], str) else []
            elif state is None or (isinstance(state, Announcement) and not state.adapters.keys() <= resources.keys()):
                self._known[address] = self._ask(address)
        return rejected

    def _answers(self) -> dict[str, Announcement]:
        return {address: state for address, state in self._known.items() if isinstance(state, Announcement)}

    def _pending(self) -> list[str]:
        return [address for address, state in self._known.items() if isinstance(state, Future)]

    def _ask(self, address: str) -> Future:
        ask = announce_task(self._job.job.suite, self._job.profile, self._job.patterns)
        return self._client.submit(ask, key=f"announce-{uuid.uuid4()}", workers=[address], allow_other_workers=False)

    def _answer(self, address: str, future: Future) -> Announcement | str:
        """Return the facts that a worker announced, or the reason why it gets no cases."""
        try:
            answer = Announcement.of_answer(future.result(RESULT_LIMIT))
        except Exception as error:  # whatever another version, or none, of dmlgpu raises
            return f"{type(error).__name__}: {error}"
        for problem in answer.problems:
            self._warn(f"{address}: {problem}")
        differing = ", ".join(differences(self._own, answer.machine))
        if not differing and answer.cases != self._cases:
            differing = f"it has other cases in the suite {self._job.job.suite!r}"
        return differing or answer


POLL_INTERVAL = 0.5
"""Seconds between two looks at the cluster, at most."""

SHARDS_PER_SLOT = 2
"""Shards per slot of a worker: one that runs, and one that is queued."""


class _AdapterRun:
    """The shards of one adapter, of which some run."""

    def __init__(self, client: Client, job: ClusterJob, adapter: ClusterAdapter):
        self.adapter, self.queue = adapter, ShardQueue(by_hash(job.names))
        self.running: dict[Future, Shard] = {}
        self._client, self._job = client, job
        self._lost_at: float | None = None

    def poll(self, capacity: int) -> Iterator[Outcome]:
        """Yield outcomes that have arrived, and submit shards up to the capacity of the adapter's workers."""
        for future in [future for future in self.running if future.done()]:
            yield from self._collect(future)
        if capacity:
            self._lost_at = None
            self._submit(SHARDS_PER_SLOT * capacity)
        else:
            yield from self._wait_for_workers()

    def cancel(self) -> None:
        """Cancel the pending work of the cluster."""
        for future, shard in self.running.items():
            future.release()
            self.queue.put_back(shard)
        self.running.clear()

    def _collect(self, future: Future) -> Iterator[Outcome]:
        shard = self.running[future]
        try:
            outcomes = future.result(RESULT_LIMIT)
        except CancelledError:  # somebody restarted the cluster, or the connection broke
            self.queue.put_back(shard)
        except Exception as error:
            if isinstance(error, TimeoutError) and future.status != "error":
                return  # the result was lost with the worker where it lay: Dask runs the shard again
            # Every worker that ran it was lost, or it could start no child.
            yield from self.queue.fail(shard, str(error))
        else:
            yield from self.queue.complete(shard, outcomes)
        del self.running[future]
        future.release()

    def _submit(self, limit: int) -> None:
        while len(self.running) < limit and (shard := self.queue.next()):
            task = (run_shard, self._job.job, self.adapter.resource, shard, self._job.processes)
            # Not pure, so with a name of its own: a shard submitted again is not taken for the one that was lost.
            self.running[self._client.submit(*task, resources={self.adapter.resource: 1}, pure=False)] = shard

    def _wait_for_workers(self) -> Iterator[Outcome]:
        # Dask would keep the shards, yet hand none of them to a worker that announces the adapter after it has come.
        self.cancel()
        now = time.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if now - self._lost_at >= self._job.patience:
            yield from self.queue.give_up(
                f"no worker with this adapter is left, and none joined within {self._job.patience:g} s"
            )


class Cluster:
    """The adapters of a cluster's workers."""

    def __init__(self, client: Client, job: ClusterJob, warn: Callable[[str], None]):
        """Query the workers for their adapters.

        Args:
            client: The connection.
            job: The job to run.
            warn: Called with messages about workers that have problems, while others continue.

        Raises:
            InvalidArgument: If there is no worker, or one whose software differs from this machine's.
        """
        self._client, self._job = client, job
        self._registry = WorkerRegistry(client, job, warn)
        self.adapters = self._registry.query_all()

    def run(self, adapters: Sequence[ClusterAdapter]) -> Iterator[tuple[ClusterAdapter, Outcome]]:
        """Run all cases on each of several adapters; yield outcomes as shards end, one for each adapter and case.

        A caller that stops early takes back what has not begun.
        """
        runs = [_AdapterRun(self._client, self._job, adapter) for adapter in adapters]
        try:
            while any(run.queue.missing for run in runs):
                capacity = self._registry.capacity()
                for run in runs:
                    yield from ((run.adapter, outcome) for outcome in run.poll(capacity[run.adapter.resource]))
                self._pause([future for run in runs for future in run.running])
        finally:
            for run in runs:
                run.cancel()

    def _pause(self, futures: Sequence[Future]) -> None:
        """Until one of them is done, or it is time to look at the workers again."""
        if not futures:
            time.sleep(POLL_INTERVAL)
            return
        with self._client.as_current(), contextlib.suppress(TimeoutError, CancelledError):
            wait(futures, timeout=POLL_INTERVAL, return_when="FIRST_COMPLETED")
