"""The child process in which cases run, so that a crash or a hang costs one case.

    python -m dmlgpu.conformance.worker SUITE ADAPTER

ADAPTER is a number of ``dmlgpu devices``. Each line of standard input is a case's name; for each a line of JSON
answers, an ``Outcome``. What drivers print to standard output goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TextIO

from dmlgpu.conformance.outcome import Outcome, Status
from dmlgpu.conformance.suites import Suite, suite_by_name
from dmlgpu.device.device import Device
from dmlgpu.errors import DeviceRemoved, DmlError, NotSupported


def run(suite: Suite, name: str, device: Device) -> Outcome:
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


def answer(suite: Suite, adapter: int, questions: TextIO, answers: TextIO) -> None:
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
    suite, adapter = sys.argv[1:]
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        answer(suite_by_name(suite), int(adapter), sys.stdin, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
