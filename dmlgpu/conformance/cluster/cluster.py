"""Running cases on every adapter that the workers of a Dask cluster have."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from distributed import CancelledError, Client, Future, wait
from distributed.comm import parse_address
from distributed.comm.registry import get_backend

from dmlgpu.conformance.cluster.registry import RESULT_LIMIT, Member, Roll, Work
from dmlgpu.conformance.cluster.shards import Shard, Share
from dmlgpu.conformance.cluster.worker import run_shard
from dmlgpu.conformance.running.outcome import Outcome
from dmlgpu.errors import InvalidArgument

CONNECT_LIMIT = 10.0
"""Seconds for a scheduler to answer."""

TICK = 0.5
"""Seconds between two looks at the cluster, at most."""

AHEAD = 2
"""Shards per place on a worker: one that runs, one that is there when it ends."""


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


class _Lane:
    """One adapter's shards on their way."""

    def __init__(self, client: Client, work: Work, member: Member):
        self.member, self.share = member, Share(work.names)
        self.running: dict[Future, Shard] = {}
        self._client, self._work = client, work
        self._lost_at: float | None = None

    def advance(self, strength: int) -> Iterator[Outcome]:
        """Take what came, hand out as much as the workers that have the adapter can use."""
        for future in [future for future in self.running if future.done()]:
            yield from self._collect(future)
        if strength:
            self._lost_at = None
            self._hand_out(AHEAD * strength)
        else:
            yield from self._wait_for_workers()

    def withdraw(self) -> None:
        """Let the cluster forget what it has not done."""
        for future, shard in self.running.items():
            future.release()
            self.share.put_back(shard)
        self.running.clear()

    def _collect(self, future: Future) -> Iterator[Outcome]:
        shard = self.running[future]
        try:
            outcomes = future.result(RESULT_LIMIT)
        except CancelledError:  # somebody restarted the cluster, or the connection broke
            self.share.put_back(shard)
        except Exception as error:
            if isinstance(error, TimeoutError) and future.status != "error":
                return  # the result was lost with the worker where it lay: Dask runs the shard again
            # Every worker that ran it was lost, or it could start no child.
            yield from self.share.fail(shard, str(error))
        else:
            yield from self.share.complete(shard, outcomes)
        del self.running[future]
        future.release()

    def _hand_out(self, most: int) -> None:
        while len(self.running) < most and (shard := self.share.next()):
            task = (run_shard, self._work.job, self.member.resource, shard, self._work.processes)
            # Not pure, so with a name of its own: a shard handed out again is not taken for the one that was lost.
            self.running[self._client.submit(*task, resources={self.member.resource: 1}, pure=False)] = shard

    def _wait_for_workers(self) -> Iterator[Outcome]:
        # Dask would keep the shards, yet hand none of them to a worker that announces the adapter after it has come.
        self.withdraw()
        now = time.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if now - self._lost_at >= self._work.patience:
            yield from self.share.give_up(
                f"no worker with this adapter was left, nor came within {self._work.patience:g} s"
            )


class Fleet:
    """The adapters of a cluster's workers."""

    def __init__(self, client: Client, work: Work, note: Callable[[str], None]):
        """Ask the workers what they have.

        Args:
            client: the connection.
            work: what is to be run.
            note: gets texts about workers that have problems, while others go on.

        Raises:
            InvalidArgument: when there is no worker, or one whose software differs from this machine's.
        """
        self._client, self._work = client, work
        self._roll = Roll(client, work, note)
        self.members = self._roll.muster()

    def run(self, members: Sequence[Member]) -> Iterator[tuple[Member, Outcome]]:
        """Run all cases on each of some adapters; outcomes come as shards end, one for each adapter and case.

        A caller that stops early takes back what has not begun.
        """
        lanes = [_Lane(self._client, self._work, member) for member in members]
        try:
            while any(lane.share.missing for lane in lanes):
                strength = self._roll.strength()
                for lane in lanes:
                    yield from ((lane.member, one) for one in lane.advance(strength[lane.member.resource]))
                self._pause([future for lane in lanes for future in lane.running])
        finally:
            for lane in lanes:
                lane.withdraw()

    def _pause(self, futures: Sequence[Future]) -> None:
        """Until one of them is done, or it is time to look at the workers again."""
        if not futures:
            time.sleep(TICK)
            return
        with self._client.as_current(), contextlib.suppress(TimeoutError, CancelledError):
            wait(futures, timeout=TICK, return_when="FIRST_COMPLETED")
