"""Contestants that compute one workload on one device, each under tuned choices of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dmlgpu.bench.prepared import PreparedOperator, Sample, retargeted
from dmlgpu.bench.samples import Contestant, Measured, Patience, measure
from dmlgpu.bench.tuning.search import Race
from dmlgpu.bench.workload import Workload
from dmlgpu.compiler.target import Tuned
from dmlgpu.runtime.device import Device

SHARE_OF_FIRST = 0.2
"""Of the time of a final, what each choice is measured for at first."""


class Tried:
    """A workload under a table of choices.

    Args:
        device: where it runs.
        workload: what.
        tuned: the table.
        checked: whether results are compared with the reference.
    """

    schedule = ""

    def __init__(self, device: Device, workload: Workload, tuned: Tuned, checked: bool):
        self._device, self._workload, self._tuned, self._checked = device, workload, tuned, checked
        self._prepared: PreparedOperator | None = None
        self.adapter = str(device.adapter)

    def prepare(self) -> dict[str, Any]:
        """Compile it, and run it once."""
        with retargeted(self._device, tuned=self._tuned):
            self._prepared = PreparedOperator(self._device, self._workload, checked=self._checked)
        return self._prepared.readiness.to_json()

    def round(self, calls: int) -> Sample:
        """Run it so many times."""
        assert self._prepared is not None
        return self._prepared.round(calls)

    def close(self) -> None:
        """Give its buffers back."""
        if self._prepared is not None:
            self._prepared.close()


def race_on(device: Device, budget: float) -> Race:
    """Return what measures on a device.

    Args:
        device: where.
        budget: seconds for each of two choices in a final.
    """

    def race(workload: Workload, tables: Sequence[Tuned], final: bool) -> list[Measured]:
        patience = Patience(0.02, budget) if final else Patience(0.05, budget * SHARE_OF_FIRST)
        contestants: list[Contestant] = [Tried(device, workload, table, final) for table in tables]
        return measure(contestants, patience)

    return race
