"""Distribution of items over workers of unequal speed that may be lost; results come in order or as they complete.

Items are read as they are needed, by the thread that takes the results; each worker has a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from dmlgpu.common.errors import DeviceRemoved

ITEMS_PER_WORKER = 4
"""Items per worker that are read but not yet returned as results, which bounds how far fast workers get ahead."""

MAX_LOSSES = 3
"""Number of workers lost on an item before it counts as failed, and of items in a row lost by a worker."""

MAX_STARTS = 2
"""Number of times in a row that a worker may fail to start."""

POLL_INTERVAL = 0.2
"""Seconds between searches for new workers."""


class WorkerLost(Exception):
    """A worker was lost with its item; it may start again."""


class WorkerGone(WorkerLost):
    """A worker is lost for good."""


class ItemWorker(Protocol):
    """Worker that processes one item at a time.

    Attributes:
        name: Name in messages.
    """

    name: str

    def start(self) -> None:
        """Start, also after a loss.

        Raises:
            WorkerLost: If the worker cannot start now.
            WorkerGone: If it will never start.
        """

    def run(self, item: Any) -> Any:
        """Return an item's result.

        Raises:
            WorkerLost: If another worker should try. Other exceptions are the item's own.
        """

    def interrupt(self) -> None:
        """End the current item and the worker, from another thread."""

    def close(self) -> None:
        """Release its resources."""


Value = TypeVar("Value")


@dataclass(frozen=True)
class ItemResult(Generic[Value]):
    """Result of an item.

    Attributes:
        index: Index of the item.
        item: The item.
        worker: The worker that processed it.
        value: Returned value; None if it failed.
        error: The exception if it failed.
    """

    index: int
    item: Any
    worker: str
    value: Value | None = None
    error: Exception | None = None


@dataclass(eq=False)
class _Task:
    index: int
    item: Any
    losses: int = 0
    lost_by: set[str] = field(default_factory=set)


class WorkerPool(Generic[Value]):
    """Pool of workers that processes items.

    Args:
        workers: Workers with unique names.
        ordered: Whether results are yielded in the order of items, or as they complete.
        in_flight: Maximum items read and not yet yielded; None for ``ITEMS_PER_WORKER`` per worker.
        recruit: Returns workers that joined; None if none can join.
        patience: Seconds to wait for a worker if there is none.
        warn: Called with messages about lost workers, in the thread that takes the results.
    """

    def __init__(
        self,
        workers: Sequence[ItemWorker],
        *,
        ordered: bool = True,
        in_flight: int | None = None,
        recruit: Callable[[], Sequence[ItemWorker]] | None = None,
        patience: float = 0.0,
        warn: Callable[[str], None] = lambda text: None,
    ):
        self._first, self._ordered, self._in_flight = tuple(workers), ordered, in_flight
        self._recruit, self._patience, self._warn = recruit, patience, warn
        self._condition = threading.Condition()
        self._waiting: deque[_Task] = deque()
        self._done: dict[int, ItemResult[Value]] = {}
        self._live: dict[str, ItemWorker] = {}
        self._hired: list[tuple[ItemWorker, threading.Thread]] = []
        self._notes: list[str] = []
        self._last_loss = ""
        self._closing = False

    def run(self, items: Iterable[Any]) -> Iterator[ItemResult[Value]]:
        """Yield one result for each item; a caller that stops early ends the workers.

        Raises:
            DeviceRemoved: If no worker is left.
        """
        unread = enumerate(items)
        more, outstanding, following = True, 0, 0
        alone_since: float | None = None
        try:
            self._hire(self._first)
            while more or outstanding:
                if self._recruit is not None:
                    self._hire(self._recruit())
                has_room = more and outstanding < self._bound()
                if has_room and (entry := next(unread, None)) is not None:
                    outstanding += 1
                    with self._condition:
                        self._waiting.append(_Task(*entry))
                        self._condition.notify_all()
                elif has_room:
                    more = False
                    continue
                results = self._take(following, 0.0 if has_room else POLL_INTERVAL)
                for result in results:
                    outstanding, following = outstanding - 1, following + 1
                    yield result
                self._tell()
                if results or self._live:
                    alone_since = None
                    continue
                now = time.monotonic()
                alone_since = now if alone_since is None else alone_since
                if now - alone_since >= self._patience:
                    raise DeviceRemoved(f"map: no worker is left: {self._last_loss or 'none came'}")
        finally:
            self._stop()

    def _bound(self) -> int:
        return self._in_flight or ITEMS_PER_WORKER * max(1, len(self._live))

    def _take(self, following: int, timeout: float) -> list[ItemResult[Value]]:
        """Return the results that are due; wait up to ``timeout`` seconds for the first."""

        def is_ready() -> bool:
            return following in self._done if self._ordered else bool(self._done)

        with self._condition:
            self._condition.wait_for(lambda: is_ready() or not self._live, timeout)
            if not is_ready():
                if not self._live:
                    self._condition.wait(min(timeout, POLL_INTERVAL))
                return []
            if self._ordered:
                return [self._done.pop(following)]
            results = list(self._done.values())
            self._done.clear()
            return results

    def _tell(self) -> None:
        with self._condition:
            notes, self._notes = self._notes, []
        for note in notes:
            self._warn(note)

    def _hire(self, workers: Sequence[ItemWorker]) -> None:
        for worker in workers:
            thread = threading.Thread(target=self._employ, args=(worker,), name=worker.name, daemon=True)
            self._hired.append((worker, thread))
            with self._condition:
                self._live[worker.name] = worker
            thread.start()

    def _stop(self) -> None:
        with self._condition:
            self._closing = True
            self._condition.notify_all()
        for worker, _ in self._hired:
            worker.interrupt()
        for worker, thread in self._hired:
            thread.join()
            worker.close()

    # ---- in a worker's thread ----------------------------------------------------------------------------------------

    def _employ(self, worker: ItemWorker) -> None:
        """Run a worker until there are no more items, or it is lost."""
        try:
            self._work(worker)
        except WorkerLost as loss:
            self._note(f"{worker.name} does no more: {loss}")
        except Exception as error:
            self._note(f"{worker.name} does no more: {type(error).__name__}: {error}")
        finally:
            with self._condition:
                if self._live.get(worker.name) is worker:  # not a later worker with the same name
                    del self._live[worker.name]
                self._condition.notify_all()

    def _work(self, worker: ItemWorker) -> None:
        in_a_row = 0
        self._start(worker)
        while (task := self._next(worker)) is not None:
            try:
                result = ItemResult[Value](task.index, task.item, worker.name, worker.run(task.item))
            except WorkerLost as loss:
                in_a_row += worker.name not in task.lost_by
                self._put_back(worker, task, loss)
                if isinstance(loss, WorkerGone) or in_a_row == MAX_LOSSES:
                    raise
                if not self._closing:
                    self._note(f"{worker.name} was lost, and starts again: {loss}")
                    self._start(worker)
            except Exception as error:
                self._finish(ItemResult(task.index, task.item, worker.name, error=error))
            else:
                in_a_row = 0
                self._finish(result)

    def _start(self, worker: ItemWorker) -> None:
        for attempt in range(1, MAX_STARTS + 1):
            try:
                return worker.start()
            except WorkerLost as loss:
                if attempt == MAX_STARTS or self._closing or isinstance(loss, WorkerGone):
                    raise
                self._note(f"{worker.name} was lost, and starts again: {loss}")

    def _next(self, worker: ItemWorker) -> _Task | None:
        """Return a worker's next item; None if it should end. It gets items that it lost only if no other can try."""
        with self._condition:
            while not self._closing:
                for task in self._waiting:
                    if worker.name not in task.lost_by or self._live.keys() <= task.lost_by:
                        self._waiting.remove(task)
                        return task
                self._condition.wait()
            return None

    def _put_back(self, worker: ItemWorker, task: _Task, loss: WorkerLost) -> None:
        """Give an item to another worker, or fail it if too many workers were lost on it."""
        task.losses += 1
        task.lost_by.add(worker.name)
        if task.losses < MAX_LOSSES:
            with self._condition:
                self._waiting.appendleft(task)
                self._condition.notify_all()
            return
        error = DeviceRemoved(f"{MAX_LOSSES} workers were lost with it, the last one: {loss}")
        self._finish(ItemResult(task.index, task.item, worker.name, error=error))

    def _finish(self, result: ItemResult[Value]) -> None:
        with self._condition:
            self._done[result.index] = result
            self._condition.notify_all()

    def _note(self, text: str) -> None:
        with self._condition:
            if not self._closing:
                self._notes.append(text)
                self._last_loss = text
