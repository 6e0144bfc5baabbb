"""What ``dmlgpu test`` is asked for."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

from dmlgpu.conformance.drivers.discovery import LocatedAdapter
from dmlgpu.conformance.running import expectations as known
from dmlgpu.conformance.running.expectations import Expectation
from dmlgpu.conformance.running.pool import Job
from dmlgpu.conformance.suites.registry import DEFAULT, Suite, select, suite_by_name, suite_option
from dmlgpu.files import growing_file


@dataclass(frozen=True)
class Request:
    """The options of the command.

    Attributes:
        adapters: parts of names, numbers, or ``all``.
        drivers: ``all``, or manifests of Vulkan drivers, where it is not this process's adapters.
        suite, profile: which cases.
        patterns: of their names, one of which must match; all cases where there are none.
        output: where everything is written down, or None.
        expectations: files beside dmlgpu's own.
        workers: processes at once.
        time_limit: seconds for one case.
        repeat: how often each case is run.
        pages: how many pages of browsers are waited for, to be tested too.
        precise: whether the devices are ``Device(precise=True)``.
    """

    adapters: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    suite: str = DEFAULT
    profile: str = "quick"
    patterns: tuple[str, ...] = ()
    output: Path | None = None
    expectations: tuple[Path, ...] = ()
    workers: int = 1
    time_limit: float = 60.0
    repeat: int = 1
    pages: int = 0
    precise: bool = False

    @cached_property
    def cases(self) -> Suite:
        """The suite.

        Raises:
            InvalidArgument: when there is none of that name.
        """
        return suite_by_name(self.suite)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The cases' names.

        Raises:
            InvalidArgument: for an unknown suite or profile, or where nothing matches.
        """
        return select(self.cases, self.profile, self.patterns)

    @property
    def selection(self) -> dict[str, Any]:
        """Which cases on what kind of device, as a file's header says it."""
        pattern = " or ".join(self.patterns)
        selected = {"suite": self.suite, "profile": self.profile, "pattern": pattern, "names": self.names}
        return {**selected, "precise": self.precise}

    @property
    def pairwise_command(self) -> tuple[str, ...]:
        """What compares the same adapters again, but for the case's name."""
        drivers = [text for one in self.drivers for text in ("--drivers", one)]
        adapters = [text for one in self.adapters for text in ("--adapter", one)]
        precise = ("--precise",) if self.precise else ()
        return ("dmlgpu", "test", "--pairwise", *drivers, *adapters, *suite_option(self.suite), *precise)

    @cached_property
    def expected(self) -> tuple[Expectation, ...]:
        """What is expected to fail: as dmlgpu knows, and as the files say.

        Raises:
            ModelError: when a file is malformed.
            OSError: when it cannot be read.
        """
        return tuple(entry for path in (*known.BUILT_IN, *self.expectations) for entry in known.load(path))

    def job(self, adapter: LocatedAdapter) -> Job:
        """What children run on an adapter."""
        environment = dict(adapter.environment)
        return Job(
            self.suite, adapter.number, self.time_limit, self.repeat, environment, str(adapter.info), self.precise
        )

    def opened(self) -> contextlib.AbstractContextManager[TextIO | None]:
        """The output, if one is wanted; it lies in ``NAME.part`` until the run ends.

        Raises:
            OSError: when it cannot be written.
        """
        return growing_file(self.output) if self.output else contextlib.nullcontext()
