"""The queue of one adapter's cases, in shards: what waits, what is missing; nothing is counted twice."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from dmlgpu.conformance.running.outcome import Outcome, Status

Shard: TypeAlias = tuple[str, ...]

SHARD_SIZE = 32
"""Cases at once: enough to make up for starting a child process, few enough that progress is seen."""


LOST = "lost by the cluster: "
"""How the messages of cases begin that no worker ran to an end."""


def is_lost(outcome: Outcome) -> bool:
    """Whether the cluster lost a case, which says nothing about the adapter."""
    return outcome.message.startswith(LOST)


class ShardQueue:
    """The cases that one adapter has to run. Every one of them gets exactly one outcome, whatever happens to workers.

    Attributes:
        missing: cases without an outcome, in order.
    """

    def __init__(self, names: Sequence[str], size: int = SHARD_SIZE):
        self.missing = dict.fromkeys(names)
        starts = range(0, len(names), size)
        self._waiting: deque[Shard] = deque(tuple(names[start : start + size]) for start in starts)

    def next(self) -> Shard | None:
        """The next shard to run, without what came in meanwhile; None when none waits."""
        while self._waiting:
            left = self._left(self._waiting.popleft())
            if left:
                return left
        return None

    def put_back(self, shard: Shard) -> None:
        """A shard that nobody runs after all goes first."""
        self._waiting.appendleft(shard)

    def complete(self, shard: Shard, outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
        """What came of a shard: the first outcome of each case counts, a second one does not."""
        for outcome in outcomes:
            if outcome.case in self.missing:
                del self.missing[outcome.case]
                yield outcome
        if self._left(shard):
            yield from self.fail(shard, "the worker returned no outcome of it")

    def fail(self, shard: Shard, reason: str) -> Iterator[Outcome]:
        """A shard came to nothing: its cases are tried one by one, and one that failed alone is lost."""
        left = self._left(shard)
        if len(shard) > 1:
            self._waiting.extend((name,) for name in left)
        else:
            yield from self._lose(left, reason)

    def give_up(self, reason: str) -> Iterator[Outcome]:
        """Nothing runs any more: what is missing is lost."""
        self._waiting.clear()
        yield from self._lose(tuple(self.missing), reason)

    def _lose(self, names: Shard, reason: str) -> Iterator[Outcome]:
        for name in names:
            del self.missing[name]
            yield Outcome(name, Status.DEVICE_LOST, message=LOST + reason)

    def _left(self, shard: Shard) -> Shard:
        return tuple(name for name in shard if name in self.missing)
