"""Contestants in child processes: one process per adapter, which hangs or crashes for itself."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dmlgpu.bench.ceilings import Ceilings
from dmlgpu.bench.prepared import Sample
from dmlgpu.bench.worker import pack
from dmlgpu.bench.workload import Workload
from dmlgpu.common.errors import DmlError, NotSupported
from dmlgpu.conformance.drivers.discovery import LocatedAdapter
from dmlgpu.conformance.running.child_process import ChildLost, LineProcess, NoAnswer


class Child:
    """A process that answers requests, started at the first one, and anew after it was lost.

    Args:
        command: what is run.
        environment: variables that it gets beside this process's.
        time_limit: seconds for one answer.
    """

    def __init__(self, command: tuple[str, ...], environment: Mapping[str, str] | None = None, time_limit: float = 60):
        self._process, self._limit = LineProcess(command, dict(environment or {})), time_limit

    @property
    def generation(self) -> int:
        """How often it was started: what an earlier process knew is lost."""
        return self._process.generation

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the answer.

        Raises:
            NotSupported: the child refused; DmlError: it failed, crashed or gave no answer in time.
        """
        try:
            line = next(self._process.ask(json.dumps(request), self._limit))
        except (NoAnswer, ChildLost) as error:
            raise DmlError(str(error)) from None
        answer: dict[str, Any] = json.loads(line)
        if "refused" in answer:
            raise NotSupported(answer["refused"])
        if "failed" in answer:
            raise DmlError(answer["failed"])
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.close()


def child_of(adapter: LocatedAdapter, time_limit: float) -> Child:
    """Return a child that runs workloads on an adapter."""
    command = (sys.executable, "-m", "dmlgpu.bench.worker", str(adapter.number), str(adapter.info))
    return Child(command, dict(adapter.environment), time_limit)


_KEYS = itertools.count()


@dataclass
class ChildContestant(ABC):
    """What a child has ready under a key, and measures: a ``Contestant``.

    Attributes:
        child: where it runs.
        adapter: what the adapter is called.
    """

    child: Child
    adapter: str
    _key: str = field(init=False, default_factory=lambda: str(next(_KEYS)))
    _generation: int = field(init=False, default=0)

    @abstractmethod
    def prepare(self) -> dict[str, Any]:
        """Make it ready (see ``Contestant``)."""

    def round(self, calls: int) -> Sample:
        """Run it (see ``Contestant``)."""
        if self.child.generation != self._generation:
            raise DmlError("its process was lost while another workload ran in it")
        return Sample(**self.child.ask({"do": "round", "key": self._key, "calls": calls})["sample"])

    def close(self) -> None:
        """Give back what the child holds for it."""
        if self._generation and self.child.generation == self._generation:
            with contextlib.suppress(DmlError):
                self.child.ask({"do": "close", "key": self._key})

    def _prepare(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Have the child make ready what a request says, and return what it tells of it."""
        ready: dict[str, Any] = self.child.ask({"do": "prepare", "key": self._key, **request})["ready"]
        self._generation = self.child.generation
        return ready


@dataclass
class Remote(ChildContestant):
    """A workload on a child's adapter, under a schedule.

    Attributes:
        workload: what runs.
        schedule: by name; empty for the one that is chosen.
        checked: whether its results are compared with the reference.
        plain: whether it is computed in plain NumPy instead.
    """

    workload: Workload
    schedule: str = ""
    checked: bool = True
    plain: bool = False

    def prepare(self) -> dict[str, Any]:
        """Make it ready (see ``Contestant``)."""
        workload = replace(self.workload, schedule=self.schedule)
        return self._prepare({"workload": pack(workload), "checked": self.checked, "plain": self.plain})


def ceilings_of(child: Child) -> Ceilings:
    """Have a child measure its adapter's ceilings.

    Raises:
        DmlError: it cannot.
    """
    return Ceilings.from_json(child.ask({"do": "ceilings"})["ceilings"])
