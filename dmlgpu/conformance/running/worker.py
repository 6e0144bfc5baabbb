"""The child process in which cases run, so that a crash or a hang costs one case.

    python -m dmlgpu.conformance.running.worker SUITE ADAPTER [FOLDER POISON]

ADAPTER is a number of ``dmlgpu devices``. Each line of standard input is a case's name; for each a line of JSON
answers, an ``Outcome``. What drivers print to standard output goes to standard error. With a folder, nothing is judged:
a case's outputs are left there as files of NumPy's, computed in memory whose bytes were POISON.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

import numpy as np

from dmlgpu.conformance.drivers.outputs import Unjudged, unjudged
from dmlgpu.conformance.running.child_process import end_with_parent, own_output
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.runner import digest
from dmlgpu.conformance.suites.registry import suite_by_name
from dmlgpu.device.device import Device
from dmlgpu.errors import DeviceRemoved, DmlError, NotSupported


class Runs(Protocol):
    """Something that runs cases: a suite, or what only keeps their outputs."""

    def run(self, name: str, device: Device) -> Outcome:
        """Run a case."""


@dataclass(frozen=True)
class Keeper:
    """Leaves a case's outputs in a folder, as ``0.npy`` and so on, instead of judging them."""

    suite: Unjudged
    folder: Path
    poison: int

    def run(self, name: str, device: Device) -> Outcome:
        """Run a case: that it passes means that there are outputs."""
        start = time.perf_counter()
        outputs = self.suite.outputs(name, device, self.poison)
        for number, array in enumerate(outputs):
            np.save(self.folder / f"{number}.npy", array)
        # Where several results are right, two runs may differ, which makes no case flaky.
        found = digest(outputs) if self.suite.allowance(name).is_unique else ""
        count, seconds = sum(array.size for array in outputs), time.perf_counter() - start
        return Outcome(name, Status.PASS, elements=count, digest=found, seconds=seconds)


def run(suite: Runs, name: str, device: Device) -> Outcome:
    """Run a case, whatever it raises."""
    try:
        return suite.run(name, device)
    except NotSupported as refusal:
        return Outcome(name, Status.NOT_SUPPORTED, message=str(refusal))
    except DeviceRemoved as error:
        return Outcome(name, Status.DEVICE_LOST, message=str(error))
    except DmlError as error:
        return Outcome(name, Status.FAIL, message=str(error))
    except Exception as error:  # a fault of the case or of dmlgpu is this case's failure, not the end of the run
        return Outcome(name, Status.FAIL, message=f"{type(error).__name__}: {error}")


def answer(suite: Runs, adapter: int, questions: TextIO, answers: TextIO) -> None:
    """Answer until the questions end, or the device is lost."""
    device = Device(adapter)
    for line in questions:
        outcome = run(suite, line.strip(), device)
        print(json.dumps(outcome.to_json()), file=answers, flush=True)
        if outcome.status is Status.DEVICE_LOST:
            return
    device.remove()


def main() -> int:
    """The command."""
    name, adapter, *keeping = sys.argv[1:]
    end_with_parent()
    with own_output() as answers:
        suite = suite_by_name(name)
        runs = Keeper(unjudged(suite, name), Path(keeping[0]), int(keeping[1])) if keeping else suite
        answer(runs, int(adapter), sys.stdin, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
