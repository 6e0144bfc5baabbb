"""Which adapters there are, and whether they compute: all in child processes, so that no driver ends the report."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass

from dmlgpu.cli.test import reproduce
from dmlgpu.conformance.drivers.discovery import Discovery, LocatedAdapter, all_drivers, process_adapters
from dmlgpu.conformance.running.outcome import Outcome
from dmlgpu.conformance.running.pool import Job, run_cases
from dmlgpu.device.adapters import environment_choice, pick

SUITE = "operators"
CASES = (
    "element_wise_add1-float32-33x5x7-packed-fused-s0",
    "gemm-float32-31x64-padded-softmax-s0",
    "argmin-example1",
)
"""The computations: element by element, a matrix product, a reduction; each is compared with the reference."""

TIME_LIMIT = 60.0
"""Seconds for one of them."""


@dataclass(frozen=True)
class Examined:
    """An adapter and what came of computing on it.

    Attributes:
        located: the adapter.
        is_reached: whether a process like this one reaches it, without other variables.
        is_default: whether dmlgpu takes it where no other is named.
        outcomes: one per computation.
        again: commands that run those again that are not as they should be.
    """

    located: LocatedAdapter
    is_reached: bool
    is_default: bool
    outcomes: tuple[Outcome, ...]
    again: tuple[str, ...]

    @property
    def works(self) -> bool:
        """Whether no computation was wrong."""
        return all(outcome.status.is_good for outcome in self.outcomes)


@dataclass(frozen=True)
class Examination:
    """What there is to compute on.

    Attributes:
        adapters: all of them.
        problems: what could not be listed.
        unmatched: what DMLGPU_ADAPTER asks for where no adapter matches; empty else.
    """

    adapters: tuple[Examined, ...]
    problems: tuple[str, ...]
    unmatched: str = ""


def examine() -> Examination:
    """Find the adapters of all drivers of the machine, and compute on each."""
    # Without wgpu no driver is reached, so none is asked.
    found = all_drivers() if importlib.util.find_spec("wgpu") else Discovery(process_adapters())
    reached = sorted((one for one in found.adapters if _is_reached(one)), key=lambda one: one.number)
    wanted = environment_choice() or None
    default = pick(wanted, [one.info for one in reached]) if reached else None
    return Examination(
        tuple(_examined(one, _is_reached(one), one.info == default) for one in found.adapters),
        found.problems,
        wanted if wanted and default is None else "",
    )


def _is_reached(adapter: LocatedAdapter) -> bool:
    """Whether this process's environment has what brings an adapter."""
    return all(os.environ.get(name) == value for name, value in adapter.environment)


def _examined(adapter: LocatedAdapter, is_reached: bool, is_default: bool) -> Examined:
    job = Job(SUITE, adapter.number, TIME_LIMIT, environment=dict(adapter.environment), adapter_text=str(adapter.info))
    outcomes = tuple(run_cases(job, CASES, 1))
    wrong = (outcome for outcome in outcomes if not outcome.status.is_good)
    again = tuple(reproduce(outcome, job, adapter) for outcome in wrong)
    return Examined(adapter, is_reached, is_default and is_reached, outcomes, again)
