"""Run a model on many batches: on the session's device, on several adapters, or on a Dask cluster."""

from __future__ import annotations

import pickle
import tempfile
import uuid
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common import errors
from dmlgpu.common.errors import DeviceRemoved, DmlError, InvalidArgument, InvalidState, shown
from dmlgpu.common.files import write_array
from dmlgpu.common.processes import STARTUP_LIMIT, ChildLost, ChildProcess, NoAnswer, python_command
from dmlgpu.common.worker_pool import ItemResult, WorkerGone, WorkerLost, WorkerPool
from dmlgpu.runtime.adapters import adapters as known_adapters
from dmlgpu.runtime.adapters import choose
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from dmlgpu.tensors.tensor import Tensor

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.model import OnnxModel

Feeds: TypeAlias = Mapping[str, NDArray[Any]]
Outputs: TypeAlias = dict[str, NDArray[Any]]

ALL = "all"
"""Selects every adapter but the reference."""

TIME_LIMIT = 600.0
"""Timeout of one batch, in seconds; the first batch of a worker includes compilation."""

PATIENCE = 60.0
"""Seconds to wait for the first worker of a cluster."""


LOAD = "load"
"""Kind of the first request."""

PLAIN_ERRORS = ("InvalidArgument", "NotSupported", "OutOfMemory", "InvalidState", "DeviceRemoved")
"""Errors that are re-created from their message; others become ``DmlError``."""


@dataclass(frozen=True)
class Batch:
    """Inputs of one run.

    Attributes:
        name: Name in messages and file names.
        read: Returns the inputs; called in the thread of a worker when the batch is due.
    """

    name: str
    read: Callable[[], Feeds]


class FailedBatch(dict[str, NDArray[Any]]):
    """Stands for the outputs of a failed batch. Accessing an output raises the error.

    Args:
        name: Name of the batch.
        error: Why it failed.
    """

    def __init__(self, name: str, error: DmlError):
        super().__init__()
        self.name, self.error = name, error

    def __missing__(self, key: str) -> NoReturn:
        raise self.error

    def __repr__(self) -> str:
        return f"FailedBatch({self.name!r}, {self.error!r})"


@dataclass(frozen=True)
class MapOptions:
    """Options of a run over batches.

    Attributes:
        strict: As for ``load``.
        precise: Whether devices are ``Device(precise=True)``.
        time_limit: Timeout of one batch, in seconds.
    """

    strict: bool = False
    precise: bool = False
    time_limit: float = TIME_LIMIT


@dataclass(frozen=True)
class MapAdapter:
    """An adapter of a machine.

    Attributes:
        index: Index in ``dmlgpu.adapters()``.
        text: Its text, which child processes must find under this index.
        environment: Environment variables that child processes need to find it.
    """

    index: int
    text: str
    environment: Mapping[str, str] = field(default_factory=dict)


def choose_adapters(requested: Sequence[str | int] | str | int) -> list[MapAdapter]:
    """Return the requested adapters; an adapter requested twice occurs twice.

    Args:
        requested: Names or numbers, as for ``Device``, or ``"all"`` for every adapter but the reference, which is used
            if there is no other.

    Raises:
        AdapterNotFound: If no adapter matches.
        InvalidArgument: If the request is empty.
    """
    texts = [requested] if isinstance(requested, str | int) else list(requested)
    if not texts:
        raise InvalidArgument(f'map: adapters must name at least one adapter, or be "{ALL}", got {shown(requested)}')
    available = known_adapters()
    chosen = []
    for text in texts:
        if text == ALL:
            chosen += [info for info in available if info != NUMPY_ADAPTER] or list(available)
        else:
            chosen.append(choose(text))
    return [MapAdapter(available.index(info), str(info)) for info in chosen]


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """Write arrays one after the other; return their names."""
    with path.open("wb") as stream:
        for array in arrays.values():
            write_array(stream, array)
    return list(arrays)


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read the arrays written by ``write_arrays``."""
    with path.open("rb") as stream:
        return {name: np.lib.format.read_array(stream, allow_pickle=False) for name in names}


def failure(error: Exception) -> dict[str, str]:
    """Return the message that reports a failed batch or model."""
    name = type(error).__name__
    text = str(error) if isinstance(error, DmlError) else f"{name}: {error}"
    return {"failed": text, "type": name}


def error_of(answer: Mapping[str, str]) -> DmlError:
    """Return the error reported by ``failure``."""
    error: DmlError = getattr(errors, answer["type"] if answer["type"] in PLAIN_ERRORS else "DmlError")(
        answer["failed"]
    )
    return error


class AdapterWorker:
    """Runs a model on an adapter of this machine, in a child process.

    Args:
        model: File of the pickled model.
        adapter: Adapter to run on.
        options: Options of the run.
        label: Distinguishes two workers on one adapter.
    """

    def __init__(self, model: Path, adapter: MapAdapter, options: MapOptions, label: str = ""):
        self.name = f"{label}{adapter.text}"
        self._exchange, self._limit = str(model.with_name(uuid.uuid4().hex)), options.time_limit
        flags = ("strict" if options.strict else "", "precise" if options.precise else "")
        words = (str(model), str(adapter.index), adapter.text, *flags, self._exchange)
        self._child = ChildProcess(python_command("dmlgpu.frontends.onnx.map_worker", *words), adapter.environment)

    def start(self) -> None:
        """Load the model.

        Raises:
            WorkerLost: If the child process ended.
            WorkerGone: If the model cannot run there.
        """
        self._child.stop()
        answer = self._ask(LOAD, STARTUP_LIMIT)
        if "failed" in answer:
            raise WorkerGone(answer["failed"])

    def run(self, batch: Batch) -> Outputs:
        """Return the outputs of a batch."""
        return self.run_arrays(batch.read())

    def run_arrays(self, feeds: Feeds) -> Outputs:
        """Return the outputs for inputs.

        Raises:
            WorkerLost: If the child process ended, or the device was removed. Other errors are caused by the inputs.
        """
        arrays = {
            name: value.numpy() if isinstance(value, Tensor) else np.asarray(value) for name, value in feeds.items()
        }
        answer = self._ask(write_arrays(Path(f"{self._exchange}.in"), arrays), self._limit)
        if "lost" in answer:
            raise WorkerLost(answer["lost"])
        if "failed" in answer:
            raise error_of(answer)
        return read_arrays(Path(f"{self._exchange}.out"), answer["outputs"])

    def interrupt(self) -> None:
        """Kill the child process from another thread."""
        self._child.interrupt()

    def close(self) -> None:
        """Stop the child process."""
        self._child.close()

    def _ask(self, request: Any, time_limit: float) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = next(self._child.ask(request, time_limit))
        except (ChildLost, NoAnswer) as error:
            raise WorkerLost(str(error)) from None
        return answer


@contextmanager
def model_file(model: bytes) -> Iterator[Path]:
    """Write a pickled model into a temporary folder, which is removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="dmlgpu-map-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "model")
        path.write_bytes(model)
        yield path


def map_adapters(
    model: OnnxModel,
    batches: Iterable[Batch],
    adapters: Sequence[MapAdapter],
    options: MapOptions,
    *,
    ordered: bool = True,
    in_flight: int | None = None,
    warn: Callable[[str], None] = warnings.warn,
) -> Generator[ItemResult[Outputs], None, None]:
    """Run batches on adapters of this machine, each in a child process; yield one result per batch.

    Raises:
        DeviceRemoved: If no worker is left.
    """
    several = len({adapter.text for adapter in adapters}) < len(adapters)
    with model_file(pickle.dumps(model)) as path:
        workers = [
            AdapterWorker(path, adapter, options, f"worker {index} on " if several else "")
            for index, adapter in enumerate(adapters)
        ]
        pool = WorkerPool[Outputs](workers, ordered=ordered, in_flight=in_flight, warn=warn)
        yield from pool.run(batches)


def map_cluster(
    model: OnnxModel,
    batches: Iterable[Batch],
    scheduler: str,
    adapters: Sequence[str] | None,
    options: MapOptions,
    *,
    ordered: bool = True,
    in_flight: int | None = None,
    warn: Callable[[str], None] = warnings.warn,
) -> Generator[ItemResult[Outputs], None, None]:
    """Run batches on the adapters of a Dask cluster's workers; yield one result per batch.

    Args:
        model, batches, options, ordered, in_flight, warn: As for ``map_adapters``.
        scheduler: Address of the scheduler.
        adapters: Parts of names; None for every adapter but the reference.

    Raises:
        InvalidArgument: If no scheduler answers, or the package ``distributed`` is not installed.
        DeviceRemoved: If no worker is left, or none came within ``PATIENCE`` seconds.
    """
    try:
        from dmlgpu.common.dask_client import connect  # noqa: PLC0415  an extra
        from dmlgpu.frontends.onnx.map_cluster import Recruiter  # noqa: PLC0415
    except ImportError as error:
        raise InvalidArgument(f"map: a scheduler needs the extra `dmlgpu[cluster]`: {error}") from None
    with connect(scheduler) as client, Recruiter(client, pickle.dumps(model), adapters, options, warn) as recruiter:
        pool = WorkerPool[Outputs](
            (), ordered=ordered, in_flight=in_flight, recruit=recruiter.recruit, patience=PATIENCE, warn=warn
        )
        yield from pool.run(batches)


# ---- Session.map -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MappedSession:
    """The parts of a session that ``Session.map`` needs.

    Attributes:
        model: The model.
        run: Runs it in this process.
        inputs: Names of inputs.
        bound: Names of bound inputs.
        options: Options of the run in other processes.
    """

    model: OnnxModel
    run: Callable[[Mapping[str, Any]], Outputs]
    inputs: Sequence[str]
    bound: Sequence[str]
    options: MapOptions


def map_session(
    session: MappedSession,
    batches: Iterable[Mapping[str, Any] | NDArray[Any]],
    *,
    adapters: Sequence[str | int] | str | int | None,
    scheduler: str | None,
    strict: bool,
    in_flight: int | None,
) -> Iterator[Outputs]:
    """Run ``Session.map``. Arguments are checked at once; batches are read lazily."""
    if in_flight is not None and (not isinstance(in_flight, int) or in_flight < 1):
        raise InvalidArgument(f"map: in_flight must be a number of batches from 1 on, got {shown(in_flight)}")
    time_limit = session.options.time_limit
    if not isinstance(time_limit, int | float) or not 0 < time_limit < float("inf"):
        raise InvalidArgument(f"map: time_limit must be a number of seconds above 0, got {shown(time_limit)}")
    if not isinstance(batches, Iterable) or isinstance(batches, Mapping | str | bytes):
        raise InvalidArgument(
            f"map: batches must be an iterable of inputs, such as [{{'x': array}}, ...], got {shown(batches)}"
        )
    if (adapters is not None or scheduler is not None) and session.bound:
        raise InvalidState(
            f"map: inputs that are bound ({', '.join(session.bound)}) are on the session's device; "
            "unbind them and pass them in the batches, or omit adapters and scheduler"
        )
    named = (Batch(f"batch {index}", _reader(session, feeds)) for index, feeds in enumerate(batches))
    if scheduler is not None:
        texts = None if adapters is None else [str(text) for text in _as_list(adapters)]
        results = map_cluster(session.model, named, scheduler, texts, session.options, in_flight=in_flight)
    elif adapters is not None:
        results = map_adapters(session.model, named, choose_adapters(adapters), session.options, in_flight=in_flight)
    else:
        results = _map_here(session, named)
    return _outputs(results, strict)


def _as_list(adapters: Sequence[str | int] | str | int) -> Sequence[str | int]:
    return [adapters] if isinstance(adapters, str | int) else adapters


def _reader(session: MappedSession, feeds: Any) -> Callable[[], Feeds]:
    """Return a function that returns the inputs of a batch; a bare array is the only input."""
    if isinstance(feeds, np.ndarray | Tensor) and len(session.inputs) == 1:
        feeds = {session.inputs[0]: feeds}

    def read() -> Feeds:
        if not isinstance(feeds, Mapping):
            raise InvalidArgument(f"a batch must be a mapping from names to arrays, got {shown(feeds)}")
        return feeds

    return read


def _map_here(session: MappedSession, batches: Iterable[Batch]) -> Generator[ItemResult[Outputs], None, None]:
    for index, batch in enumerate(batches):
        try:
            result = ItemResult(index, batch, "", session.run(batch.read()))
        except DeviceRemoved:
            raise
        except Exception as error:
            result = ItemResult(index, batch, "", error=error)
        yield result


def _outputs(results: Generator[ItemResult[Outputs], None, None], strict: bool) -> Iterator[Outputs]:
    with closing(results):  # ends the workers when the caller stops
        for result in results:
            if result.value is not None:
                yield result.value
                continue
            error = named_error(result)
            if strict:
                raise error
            yield FailedBatch(result.item.name, error)


def named_error(result: ItemResult[Outputs]) -> DmlError:
    """Return the error of a failed batch, with its name in the message."""
    name, error = result.item.name, result.error
    if not isinstance(error, DmlError):
        return DmlError(f"{name}: {type(error).__name__}: {error}")
    kind = type(error) if type(error).__name__ in PLAIN_ERRORS else DmlError
    return kind(f"{name}: {error}")
