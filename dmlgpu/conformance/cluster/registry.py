"""The workers of a cluster: what they announced, and whether they can run the same cases."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.cluster.worker import Announcement, announce_task, differences
from dmlgpu.conformance.running.pool import Job
from dmlgpu.conformance.running.records import machine
from dmlgpu.conformance.suites.registry import list_digest

ANSWER_LIMIT = 180.0
"""Seconds for the workers to say what they have: they look at every driver, and may have other tasks to end first."""

RESULT_LIMIT = 10.0
"""Seconds for a result to come from where it lies."""


@dataclass(frozen=True)
class ClusterJob:
    """What the workers are to do.

    Attributes:
        job: the suite and the limits of its cases; each worker puts in its own adapter.
        profile, patterns: by which the cases were selected.
        names: the cases.
        processes: children at once for one adapter of a worker.
        patience: seconds to wait for another worker when the last one that has an adapter is lost.
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
        resource: what Dask knows it by.
        info: the adapter.
        machine: software and computer of the first worker that announced it.
    """

    resource: str
    info: AdapterInfo
    machine: Mapping[str, str]


def workers(client: Client) -> dict[str, Any]:
    """What a scheduler says of its workers, by their addresses: nothing while it does not answer."""
    # Asked for anew: `Client.scheduler_info` now and then returns what the client keeps, where workers are left out.
    if client.scheduler is None:  # the connection broke
        return {}
    try:
        found: dict[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    except OSError:
        return {}
    return found


class WorkerRegistry:
    """The workers of a cluster. Those that come later are asked too, and get cases if they are like this machine."""

    def __init__(self, client: Client, job: ClusterJob, warn: Callable[[str], None]):
        self._client, self._job, self._warn = client, job, warn
        self._address = client.scheduler.address
        self._own, self._cases = machine(), list_digest(job.names)
        self._present: dict[str, dict[str, float]] = {}  # resources by address
        self._known: dict[str, Future | Announcement | str] = {}  # a text says why there are no cases

    def query_all(self) -> tuple[ClusterAdapter, ...]:
        """Ask all workers that are there; each distinct adapter once.

        Raises:
            InvalidArgument: when there is no worker, or one that could not run the same cases.
        """
        self._refresh()
        if not self._known:
            raise InvalidArgument(f"the cluster at {self._address} has no workers")
        end = time.monotonic() + ANSWER_LIMIT
        while self._pending() and time.monotonic() < end:
            time.sleep(0.1)
            self._refresh()
        refused = [f"{address}: {why}" for address, why in self._known.items() if isinstance(why, str)]
        if refused:
            raise InvalidArgument("\n  ".join(["these workers cannot run the same cases:", *refused]))
        for address in self._pending():
            self._warn(f"{address} did not say within {ANSWER_LIMIT:g} s which adapters it has")
        if not self._answers():
            raise InvalidArgument(f"no worker of the cluster at {self._address} says which adapters it has")
        return self._adapters()

    def _adapters(self) -> tuple[ClusterAdapter, ...]:
        found: dict[str, ClusterAdapter] = {}
        for answer in self._answers().values():
            for name, info in answer.adapters.items():
                found.setdefault(name, ClusterAdapter(name, info, answer.machine))
        return tuple(sorted(found.values(), key=lambda adapter: str(adapter.info)))

    def capacity(self) -> Counter[str]:
        """How many shards the workers that are there now can run at once, by resource; newcomers are asked."""
        for address in self._refresh():
            self._warn(f"{address} gets no cases: {self._known[address]}")
        found: Counter[str] = Counter()
        for address, answer in self._answers().items():
            found.update({name: int(self._present[address].get(name, 0)) for name in answer.adapters})
        return found

    def _refresh(self) -> list[str]:
        """Ask who has come, forget who has gone, take what was answered; whom that leaves without cases."""
        self._present = {address: facts["resources"] for address, facts in workers(self._client).items()}
        self._known = {address: state for address, state in self._known.items() if address in self._present}
        refused = []
        for address, resources in self._present.items():
            state = self._known.get(address)
            if isinstance(state, Future) and state.done():
                self._known[address] = self._answer(address, state)
                state.release()
                refused += [address] if isinstance(self._known[address], str) else []
            elif state is None or (isinstance(state, Announcement) and not state.adapters.keys() <= resources.keys()):
                self._known[address] = self._ask(address)
        return refused

    def _answers(self) -> dict[str, Announcement]:
        return {address: state for address, state in self._known.items() if isinstance(state, Announcement)}

    def _pending(self) -> list[str]:
        return [address for address, state in self._known.items() if isinstance(state, Future)]

    def _ask(self, address: str) -> Future:
        ask = announce_task(self._job.job.suite, self._job.profile, self._job.patterns)
        return self._client.submit(ask, key=f"announce-{uuid.uuid4()}", workers=[address], allow_other_workers=False)

    def _answer(self, address: str, future: Future) -> Announcement | str:
        """What a worker announced, or why it gets no cases."""
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
