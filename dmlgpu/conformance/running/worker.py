"""The child process in which cases run, so that a crash or a hang costs one case.

    python -m dmlgpu.conformance.running.worker SUITE ADAPTER TEXT [FOLDER POISON]

ADAPTER is a number of ``dmlgpu devices``, TEXT that adapter's name and driver, or empty: if another is there now, the
process ends. Each line of standard input is a case's name; for each a line of JSON
answers, an ``Outcome``. What drivers print to standard output goes to standard error. With a folder, nothing is
compared: a case's outputs are left there as files of NumPy's, computed in memory whose bytes were POISON.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from dmlgpu.conformance.drivers.outputs import OutputSuite, as_output_suite
from dmlgpu.conformance.running.child_process import exit_with_parent, reserved_stdout
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.runner import digest
from dmlgpu.conformance.suites.registry import suite_by_name
from dmlgpu.device.device import Device
from dmlgpu.errors import DeviceRemoved, DmlError, NotSupported
from dmlgpu.files import whole_file, write_array


class RunsCases(Protocol):
    """Something that runs cases: a suite, or what only keeps their outputs."""

    def run(self, name: str, device: Device) -> Outcome:
        """Run a case."""


@dataclass(frozen=True)
class OutputWriter:
    """Leaves a case's outputs in a folder, as ``0.npy`` and so on, instead of judging them."""

    suite: OutputSuite
    folder: Path
    poison: int

    def run(self, name: str, device: Device) -> Outcome:
        """Run a case: that it passes means that there are outputs."""
        start = time.perf_counter()
        outputs = self.suite.outputs(name, device, self.poison)
        for number, array in enumerate(outputs):
            with whole_file(self.folder / f"{number}.npy") as stream:
                write_array(stream, array)
        # Where several results are right, two runs may differ, which makes no case flaky.
        found = digest(outputs) if self.suite.allowance(name).is_unique else ""
        count, seconds = sum(array.size for array in outputs), time.perf_counter() - start
        return Outcome(name, Status.PASS, elements=count, digest=found, seconds=seconds)


def run(suite: RunsCases, name: str, device: Device) -> Outcome:
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


def serve(suite: RunsCases, device: Device, requests: TextIO, responses: TextIO) -> None:
    """Answer requests until they end, or the device is lost."""
    for line in requests:
        outcome = run(suite, line.strip(), device)
        print(json.dumps(outcome.to_json()), file=responses, flush=True)
        if outcome.status is Status.DEVICE_LOST:
            return
    device.remove()


def main() -> int:
    """The command."""
    name, adapter, text, *writing = sys.argv[1:]
    exit_with_parent()
    with reserved_stdout() as responses:
        suite = suite_by_name(name)
        runner = OutputWriter(as_output_suite(suite, name), Path(writing[0]), int(writing[1])) if writing else suite
        device = Device(int(adapter))
        if text and str(device.adapter) != text:
            print(f"adapter {adapter} is {device.adapter} here, not {text}", file=sys.stderr)
            return 1
        serve(runner, device, sys.stdin, responses)
    return 0


if __name__ == "__main__":
    sys.exit(main())
