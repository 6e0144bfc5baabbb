"""Workloads in child processes, one per adapter, so that a crash or a hang costs one measurement.

Workloads are pickled; a child takes requests only from the process that started it.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import itertools
import pickle
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dmlgpu.bench.ceilings import CLOCK_RAMP, Ceilings, measure_ceilings
from dmlgpu.bench.numpy_baseline import NumpyBaseline
from dmlgpu.bench.prepared import PreparedOnnxModel, PreparedOperator, PreparedWorkload, Sample
from dmlgpu.bench.prepared_kernel import KernelReference, PreparedKernel
from dmlgpu.bench.prepared_token import PreparedToken
from dmlgpu.bench.samples import MAX_CALLS, ROUND_SECONDS
from dmlgpu.bench.workload import Workload
from dmlgpu.common.errors import DmlError, NotSupported
from dmlgpu.common.processes import (
    ChildLost,
    ChildProcess,
    NoAnswer,
    RequestServer,
    answer_stream,
    exit_with_parent,
    python_command,
)
from dmlgpu.compiler.target import Profile
from dmlgpu.conformance.drivers.discovery import LocatedAdapter
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.executor import ShaderBackend

# ---- in the parent ---------------------------------------------------------------------------------------------------


class Child:
    """A process that answers requests. Started at the first request, and again after a loss.

    Args:
        command: Command line.
        environment: Additional environment variables.
        time_limit: Timeout of an answer, in seconds.
    """

    def __init__(self, command: tuple[str, ...], environment: Mapping[str, str] | None = None, time_limit: float = 60):
        self.process, self.time_limit = ChildProcess(command, environment), time_limit

    @property
    def generation(self) -> int:
        """Number of starts. A new process has lost the state of the earlier one."""
        return self.process.generation

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the answer.

        Raises:
            NotSupported: If the child reports it.
            DmlError: If the child fails, crashes or does not answer in time.
        """
        try:
            answer: dict[str, Any] = next(self.process.ask(request, self.time_limit))
        except (NoAnswer, ChildLost) as error:
            raise DmlError(str(error)) from None
        if "refused" in answer:
            raise NotSupported(answer["refused"])
        if "failed" in answer:
            raise DmlError(answer["failed"])
        return answer

    def interrupt(self) -> None:
        """Kill the process from another thread; a waiting caller and all later ones get a DmlError."""
        self.process.interrupt()

    def close(self) -> None:
        """Stop the process."""
        self.process.close()


def child_of(adapter: LocatedAdapter, time_limit: float) -> Child:
    """Return a child for an adapter."""
    command = python_command("dmlgpu.bench.worker", str(adapter.index), str(adapter.info))
    return Child(command, dict(adapter.environment), time_limit)


_KEYS = itertools.count()


@dataclass
class ChildContestant(ABC):
    """A ``Contestant`` in a child, under a key.

    Attributes:
        child: Child process.
        adapter: Name of the adapter.
    """

    child: Child
    adapter: str
    _key: str = field(init=False, default_factory=lambda: str(next(_KEYS)))
    prepared_in: int = field(init=False, default=0)

    @abstractmethod
    def prepare(self) -> dict[str, Any]:
        """Prepare the workload (see ``Contestant``)."""

    def round(self, calls: int) -> Sample:
        """Run the workload (see ``Contestant``)."""
        if self.child.generation != self.prepared_in:
            raise DmlError("its process was lost while another workload ran in it")
        return Sample(**self.child.ask({"do": "round", "key": self._key, "calls": calls})["sample"])

    def close(self) -> None:
        """Release its resources in the child."""
        if self.prepared_in and self.child.generation == self.prepared_in:
            with contextlib.suppress(DmlError):
                self.child.ask({"do": "close", "key": self._key})

    def _prepare(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Prepare a workload in the child by a request; return its facts."""
        ready: dict[str, Any] = self.child.ask({"do": "prepare", "key": self._key, **request})["ready"]
        self.prepared_in = self.child.generation
        return ready


@dataclass
class Remote(ChildContestant):
    """A workload on a child's adapter, under a schedule.

    Attributes:
        workload: The workload.
        schedule: Name; empty for the chosen one.
        checked: Whether its results are compared with the reference.
        plain: Whether it is computed in plain NumPy.
    """

    workload: Workload
    schedule: str = ""
    checked: bool = True
    plain: bool = False

    def prepare(self) -> dict[str, Any]:
        """Prepare the workload (see ``Contestant``)."""
        workload = replace(self.workload, schedule=self.schedule)
        return self._prepare({"workload": pack(workload), "checked": self.checked, "plain": self.plain})


def ceilings_of(child: Child) -> Ceilings:
    """Measure the ceilings of a child's adapter.

    Raises:
        DmlError: If that fails.
    """
    return Ceilings.from_json(child.ask({"do": "ceilings"})["ceilings"])


# ---- in the child ----------------------------------------------------------------------------------------------------

Prepare = Callable[[Device, Workload, bool, bool], PreparedWorkload]


def prepare(device: Device, workload: Workload, checked: bool, plain: bool) -> PreparedWorkload:
    """Prepare a workload on a device, or in plain NumPy."""
    if workload.kernel is not None:
        return KernelReference(workload) if plain else PreparedKernel(device, workload, checked=checked)
    if plain:
        return NumpyBaseline(workload)
    if workload.model and Path(workload.model).is_dir():
        return PreparedToken(device, Path(workload.model))
    kind = PreparedOnnxModel if workload.model else PreparedOperator
    return kind(device, workload, checked=checked)


def has_clocks(device: Device) -> bool:
    """Return whether a device is a GPU, which lowers its clock when idle."""
    backend = device.backend
    return isinstance(backend, ShaderBackend) and backend.target.profile is not Profile.CPU


def ramp_clocks(prepared: PreparedWorkload, clock: Callable[[], float] = time.perf_counter) -> None:
    """Run a workload until a GPU has its full clock."""
    end, calls = clock() + CLOCK_RAMP, 1
    while clock() < end:
        if prepared.round(calls).wall * calls < ROUND_SECONDS:
            calls = min(2 * calls, MAX_CALLS)


def pack(workload: Workload) -> str:
    """Return a workload as text for ``WorkloadServer``."""
    return base64.b64encode(pickle.dumps(workload)).decode()


class WorkloadServer(RequestServer):
    """Answers requests about workloads on a device.

    Args:
        device: Device to run on.
        prepare: Prepares them.
    """

    refusals, failures = (NotSupported,), (DmlError,)

    def __init__(self, device: Device, prepare: Prepare = prepare):
        self._device, self._prepare = device, prepare
        self._ready: dict[str, PreparedWorkload] = {}

    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "prepare":
                gc.collect()
                workload = pickle.loads(base64.b64decode(request["workload"]))
                prepared = self._prepare(self._device, workload, request["checked"], request["plain"])
                if not request["plain"] and has_clocks(self._device):
                    ramp_clocks(prepared)
                self._ready[request["key"]] = prepared
                return {"ready": prepared.readiness.to_json()}
            case "round":
                return {"sample": asdict(self._ready[request["key"]].round(request["calls"]))}
            case "close":
                if request["key"] in self._ready:
                    self._ready.pop(request["key"]).close()
                return {}
            case "ceilings":
                return {"ceilings": measure_ceilings(self._device).to_json()}
        raise ValueError(f"unknown request {request['do']!r}")


def main() -> int:
    """Serve the adapter with an index, if it has this name and driver."""
    adapter, text = sys.argv[1:]
    exit_with_parent()
    with answer_stream() as answers:
        device = Device(int(adapter), specialize="always")
        if str(device.adapter) != text:
            print(f"adapter {adapter} is {device.adapter} here, not {text}", file=sys.stderr)
            return 1
        WorkloadServer(device).serve(sys.stdin, answers)
    return 0
