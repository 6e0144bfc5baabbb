"""Running cases on every adapter that the workers of a Dask cluster have."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from distributed import CancelledError, Client, Future, wait
from distributed.comm import parse_address
from distributed.comm.registry import get_backend

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.cluster.registry import RESULT_LIMIT, ClusterAdapter, ClusterJob, WorkerRegistry
from dmlgpu.conformance.cluster.shards import Shard, ShardQueue
from dmlgpu.conformance.cluster.worker import run_shard
from dmlgpu.conformance.running.outcome import Outcome

CONNECT_LIMIT = 10.0
"""Seconds for a scheduler to answer."""

POLL_INTERVAL = 0.5
"""Seconds between two looks at the cluster, at most."""

SHARDS_PER_SLOT = 2
"""Shards per slot of a worker: one that runs, one that is there when it ends."""


def connect(address: str) -> Client:
    """A connection to a cluster's scheduler, such as ``tcp://10.0.0.1:8786``.

    Raises:
        InvalidArgument: when no scheduler answers there.
    """
    try:
        get_backend(parse_address(address)[0])  # refuses what a client would choke on
        return Client(address, timeout=CONNECT_LIMIT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"no Dask scheduler answers at {address!r}: {error}") from error


class _AdapterRun:
    """The shards of one adapter, of which some run."""

    def __init__(self, client: Client, job: ClusterJob, adapter: ClusterAdapter):
        self.adapter, self.queue = adapter, ShardQueue(job.names)
        self.running: dict[Future, Shard] = {}
        self._client, self._job = client, job
        self._lost_at: float | None = None

    def poll(self, capacity: int) -> Iterator[Outcome]:
        """Take what came, submit as much as the workers that have the adapter can use."""
        for future in [future for future in self.running if future.done()]:
            yield from self._collect(future)
        if capacity:
            self._lost_at = None
            self._submit(SHARDS_PER_SLOT * capacity)
        else:
            yield from self._wait_for_workers()

    def cancel(self) -> None:
        """Let the cluster forget what it has not done."""
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

    def _submit(self, most: int) -> None:
        while len(self.running) < most and (shard := self.queue.next()):
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
                f"no worker with this adapter was left, nor came within {self._job.patience:g} s"
            )


class Cluster:
    """The adapters of a cluster's workers."""

    def __init__(self, client: Client, job: ClusterJob, warn: Callable[[str], None]):
        """Ask the workers what they have.

        Args:
            client: the connection.
            job: what is to be run.
            warn: gets texts about workers that have problems, while others go on.

        Raises:
            InvalidArgument: when there is no worker, or one whose software differs from this machine's.
        """
        self._client, self._job = client, job
        self._registry = WorkerRegistry(client, job, warn)
        self.adapters = self._registry.query_all()

    def run(self, adapters: Sequence[ClusterAdapter]) -> Iterator[tuple[ClusterAdapter, Outcome]]:
        """Run all cases on each of some adapters; outcomes come as shards end, one for each adapter and case.

        A caller that stops early takes back what has not begun.
        """
        runs = [_AdapterRun(self._client, self._job, adapter) for adapter in adapters]
        try:
            while any(run.queue.missing for run in runs):
                capacity = self._registry.capacity()
                for run in runs:
                    yield from ((run.adapter, one) for one in run.poll(capacity[run.adapter.resource]))
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
