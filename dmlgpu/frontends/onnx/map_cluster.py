"""``Session.map`` on a Dask cluster: a child process per adapter of a worker, which gets the model once."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from distributed import CancelledError, Client, Future

from dmlgpu.common.dask_client import workers
from dmlgpu.common.worker_pool import WorkerGone, WorkerLost
from dmlgpu.frontends.onnx.mapping import ALL, AdapterWorker, Batch, Feeds, MapAdapter, MapOptions, Outputs
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

POLL_INTERVAL = 0.5
"""Seconds between two queries for workers."""

RESULT_LIMIT = 10.0
"""Timeout of fetching a result, in seconds."""

FORGET_LIMIT = 5.0
"""Timeout of stopping workers, in seconds."""

Value = TypeVar("Value")


# ---- in a worker of the cluster --------------------------------------------------------------------------------------


class _Job:
    """A model on this worker, and the child processes that run it, by adapter."""

    def __init__(self, model: bytes):
        self.folder = tempfile.TemporaryDirectory(prefix="dmlgpu-map-", ignore_cleanup_errors=True)
        self.model = Path(self.folder.name, "model")
        self.model.write_bytes(model)
        self.workers: dict[int, AdapterWorker] = {}
        self.busy: dict[int, threading.Lock] = {}


_jobs: dict[str, _Job] = {}
"""Jobs of clients on this worker, by unique names, until the clients end them."""


def versions() -> tuple[str, str]:
    """Return the versions that two processes must share to exchange models: this package's sources, and Python."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.rglob("*.py"))))
    return digest.hexdigest()[:12], platform.python_version().rpartition(".")[0]


def announce() -> tuple[tuple[str, str], list[tuple[int, str, bool]]]:
    """Return this worker's versions, and its adapters: index, text, whether it is the reference."""
    return versions(), [(index, str(info), info == NUMPY_ADAPTER) for index, info in enumerate(adapters())]


def announce_task() -> Callable[[], Any]:
    """Return ``announce`` for a worker that may have another version of dmlgpu, or none."""

    # Defined in no module, it is sent by value: Dask drops a worker that cannot import what it receives.
    def ask() -> Any:
        from dmlgpu.frontends.onnx.map_cluster import announce  # noqa: PLC0415

        return announce()

    return ask


def has_job(job: str) -> bool:
    """Return whether this worker has the model."""
    return job in _jobs


def take_model(job: str, model: bytes) -> None:
    """Store a model for later batches."""
    _jobs[job] = _Job(model)


def start(job: str, adapter: MapAdapter, options: MapOptions) -> None:
    """Load the model on an adapter of this worker.

    Raises:
        WorkerLost: As ``AdapterWorker.start``.
    """
    own = _job(job)
    with own.busy.setdefault(adapter.index, threading.Lock()):
        _job(job)  # the job may have ended meanwhile
        if adapter.index not in own.workers:
            own.workers[adapter.index] = AdapterWorker(own.model, adapter, options)
        own.workers[adapter.index].start()


def run_batch(job: str, adapter: int, feeds: Feeds) -> Outputs:
    """Return the outputs of a batch.

    Raises:
        WorkerLost: As ``AdapterWorker.run_arrays``, or this process is another than the one that was started.
    """
    own = _job(job)
    if adapter not in own.workers:
        raise WorkerLost("the worker was restarted")
    with own.busy[adapter]:
        return own.workers[adapter].run_arrays(feeds)


def forget(job: str) -> None:
    """End a job."""
    ended = _jobs.pop(job, None)
    if ended is not None:
        for index, worker in list(ended.workers.items()):
            worker.interrupt()
            with ended.busy[index]:  # once no caller waits for its answer
                worker.close()
        ended.folder.cleanup()


def _job(job: str) -> _Job:
    if job not in _jobs:
        raise WorkerLost("the worker was restarted")
    return _jobs[job]


# ---- in the client ---------------------------------------------------------------------------------------------------


class ClusterWorker:
    """An adapter of a worker of the cluster."""

    def __init__(self, machine: _Machine, adapter: MapAdapter):
        self.name = f"{machine.address} {adapter.index} {adapter.text}"
        self._machine, self._adapter = machine, adapter

    def start(self) -> None:
        """Load the model there, after sending it if it is not there yet.

        Raises:
            WorkerLost: If the child process ended, WorkerGone: the worker did, or the model does not run there.
        """
        self._machine.send_model()
        self._machine.call(start, self._machine.recruiter.job, self._adapter, self._machine.recruiter.options)

    def run(self, batch: Batch) -> Outputs:
        """Return the outputs of a batch, which is read here."""
        return self._machine.call(run_batch, self._machine.recruiter.job, self._adapter.index, dict(batch.read()))

    def interrupt(self) -> None:
        """Stop waiting."""
        self._machine.recruiter.ended.set()

    def close(self) -> None:
        """Do nothing: the recruiter ends the jobs of workers."""


class _Machine:
    """A Dask worker: a process with all adapters of its environment."""

    def __init__(self, recruiter: Recruiter, address: str):
        self.recruiter, self.address = recruiter, address
        self._sending = threading.Lock()

    def call(self, function: Callable[..., Value], *arguments: Any) -> Value:
        """Call a function there.

        Raises:
            WorkerGone: If the worker is gone; any other exception is the function's.
        """
        client, ended = self.recruiter.client, self.recruiter.ended
        placement: dict[str, Any] = {"workers": [self.address], "allow_other_workers": False, "pure": False}
        future = client.submit(function, *arguments, **placement)
        try:
            while not self._is_done(future):
                if ended.is_set():
                    raise WorkerGone("interrupted")
                if self.address not in self.recruiter.present():
                    raise WorkerGone("the worker is gone")
            result: Value = future.result(RESULT_LIMIT)
        except (CancelledError, TimeoutError) as error:
            raise WorkerGone(f"the worker is gone: {error}") from None
        except Exception as error:
            if type(error).__name__ == "KilledWorker":
                raise WorkerGone("the worker is gone") from None
            raise
        finally:
            future.release()
        return result

    def _is_done(self, future: Future) -> bool:
        with contextlib.suppress(TimeoutError, CancelledError):
            future.exception(POLL_INTERVAL)
        return bool(future.done())

    def send_model(self) -> None:
        """Send the model, once."""
        job = self.recruiter.job
        with self._sending:
            if not self.call(has_job, job):
                (sent,) = self.recruiter.client.scatter([self.recruiter.model], workers=[self.address], hash=False)
                self.call(take_model, job, sent)


class Recruiter:
    """Finds workers of the cluster and their adapters, including later ones.

    Args:
        client: The connection.
        model: The pickled model.
        requested: Parts of adapter names or ``"all"``; None for all but the reference.
        options: Options of the run.
        warn: Called with messages about workers that are not used.
    """

    def __init__(
        self,
        client: Client,
        model: bytes,
        requested: Sequence[str] | None,
        options: MapOptions,
        warn: Callable[[str], None],
    ):
        self.client, self.model, self.options = client, model, options
        self.job = f"dmlgpu-map-{uuid.uuid4().hex}"
        self.ended = threading.Event()
        self._requested, self._warn = requested or (ALL,), warn
        self._known: dict[str, Future | None] = {}
        self._taken: set[str] = set()
        self._present: frozenset[str] = frozenset()
        self._looked_at = 0.0
        self._looking = threading.Lock()

    def __enter__(self) -> Recruiter:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        with contextlib.suppress(Exception):  # workers that are gone have nothing to end
            addresses = sorted(self._taken & self.present())
            self.client.sync(self.client._run, forget, self.job, workers=addresses, callback_timeout=FORGET_LIMIT)

    def present(self) -> frozenset[str]:
        """Addresses of connected workers, at most half a second old."""
        with self._looking:
            if time.monotonic() - self._looked_at >= POLL_INTERVAL:
                self._present = frozenset(workers(self.client))
                self._looked_at = time.monotonic()
            return self._present

    def recruit(self) -> list[ClusterWorker]:
        """Return the adapters of workers that joined since the last call and have announced them."""
        present = self.present()
        self._known = {address: state for address, state in self._known.items() if address in present}
        recruits: list[ClusterWorker] = []
        for address in present:
            if address not in self._known:
                ask = announce_task()
                self._known[address] = self.client.submit(
                    ask, key=f"announce-{uuid.uuid4()}", workers=[address], allow_other_workers=False
                )
            future = self._known[address]
            if future is not None and future.done():
                self._known[address] = None
                recruits += self._adapters_of(address, future)
        return recruits

    def _adapters_of(self, address: str, future: Future) -> list[ClusterWorker]:
        try:
            theirs, listed = future.result(RESULT_LIMIT)
        except Exception as error:  # another version of dmlgpu, or none, may raise any exception
            self._warn(f"{address} gets no batches: {type(error).__name__}: {error}")
            return []
        if theirs != versions():
            own, other = (f"the ONNX front end {digest} on Python {python}" for digest, python in (versions(), theirs))
            self._warn(f"{address} gets no batches: it has {other}, this machine {own}")
            return []
        machine = _Machine(self, address)
        chosen = [
            MapAdapter(index, text)
            for index, text, is_reference in listed
            if any(self._matches(name, index, text, is_reference) for name in self._requested)
        ]
        if not chosen:
            names = ", ".join(text for _, text, _ in listed)
            self._warn(f"{address} gets no batches: it has {names}; {', '.join(self._requested)} was requested")
        self._taken.add(address)
        return [ClusterWorker(machine, adapter) for adapter in chosen]

    @staticmethod
    def _matches(requested: str, index: int, text: str, is_reference: bool) -> bool:
        if requested == ALL:
            return not is_reference
        return requested == str(index) if requested.isdecimal() else requested.casefold() in text.casefold()
