"""The process in which a peer computes, in that peer's own environment, where dmlgpu need not be installed.

Each line of standard input is a request as JSON, each line of standard output its answer, as for
``dmlgpu.bench.worker``. What the peer prints goes to standard error.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TextIO

from .calls import Array, Call, NotOffered, save_outputs


class LineServer(ABC):
    """Answers requests, of which ``do`` says what is asked for. Errors are answers, too: one is not the end of others.

    Attributes:
        refusals: exceptions that say what cannot be had here.
        failures: exceptions whose text says all; others are told with their type.
    """

    refusals: ClassVar[tuple[type[Exception], ...]] = ()
    failures: ClassVar[tuple[type[Exception], ...]] = ()

    @abstractmethod
    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what is asked for, and return the answer."""

    def serve(self, requests: TextIO, answers: TextIO) -> None:
        """Answer requests, a line of JSON each, until they end."""
        gc.disable()  # while nothing is measured it is done by hand
        for line in requests:
            print(json.dumps(self.answer(json.loads(line))), file=answers, flush=True)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return what ``handle`` does, else ``refused`` or ``failed`` with a sentence."""
        try:
            return self.handle(request)
        except self.refusals as refusal:
            return {"refused": str(refusal)}
        except self.failures as error:
            return {"failed": str(error)}
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}"}


class Running(Protocol):
    """A call that is ready."""

    def run(self, number: int) -> object:
        """Compute it on the inputs' set of that number, modulo their count, and wait for the end."""

    def results(self) -> Sequence[Array]:
        """Return what the first set gives."""


class Peer(Protocol):
    """A peer, as its module has it: functions ``versions`` and ``prepare``."""

    def versions(self) -> dict[str, str]:
        """Return the versions of what computes, by the packages' names."""

    def prepare(self, call: Call) -> Running:
        """Make a call ready.

        Raises:
            NotOffered: it has no such operator.
        """


class PeerServer(LineServer):
    """Answers requests about calls.

    Args:
        load: returns the peer; an ImportError says that it is not installed.
        clock: returns seconds.
    """

    refusals = (NotOffered, ImportError)

    def __init__(self, load: Callable[[], Peer], clock: Callable[[], float] = time.perf_counter):
        self._load, self._clock = load, clock
        self._ready: dict[str, Running] = {}
        self._numbers: dict[str, int] = {}

    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "versions":
                return {"versions": {"python": sys.version.split()[0], **self._load().versions()}}
            case "prepare":
                gc.collect()
                return {"ready": self._prepare(request["key"], Path(request["folder"]))}
            case "round":
                return {"sample": self._round(request["key"], request["calls"])}
            case "close":
                self._ready.pop(request["key"], None)
                return {}
        raise ValueError(f"unknown request {request['do']!r}")

    def _prepare(self, key: str, folder: Path) -> dict[str, Any]:
        call = Call.load(folder)
        peer = self._load()
        start = self._clock()
        running = peer.prepare(call)
        total = self._clock() - start
        start = self._clock()
        running.run(0)
        cold = self._clock() - start
        save_outputs(folder, running.results())
        self._ready[key], self._numbers[key] = running, 0
        size = sum(array.nbytes for array in call.inputs.values())
        return {"init": {"total": total}, "cold": cold, "sets": call.sets, "footprint": size * call.sets}

    def _round(self, key: str, calls: int) -> dict[str, float | None]:
        run, first = self._ready[key].run, self._numbers[key]
        self._numbers[key] += calls
        cpu, start = time.thread_time(), self._clock()
        for number in range(first, first + calls):
            run(number)
        wall = self._clock() - start
        return {"gpu": None, "wall": wall / calls, "cpu": (time.thread_time() - cpu) / calls}


def main(module: str) -> int:
    """Serve the peer that a module of the folder ``programs`` calls."""

    def load() -> Any:
        return importlib.import_module(f".programs.{module}", __package__)

    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        PeerServer(load).serve(sys.stdin, answers)
    return 0


def _exit_with_parent(parent: int) -> None:
    """End this process when its parent is gone, even while a peer hangs."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
