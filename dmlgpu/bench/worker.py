"""The child process in which workloads run on one adapter, so that a crash or a hang costs one of them.

    python -m dmlgpu.bench.worker ADAPTER TEXT

ADAPTER is a number of ``dmlgpu devices``, TEXT that adapter's name and driver: if another is there now, the process
ends. Each line of standard input is a request as JSON, each line of standard output its answer; requests come from the
process that started this one alone, since workloads travel pickled. What drivers print goes to standard error.
"""

from __future__ import annotations

import base64
import gc
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from dmlgpu.bench.ceilings import measure_ceilings
from dmlgpu.bench.numpy_baseline import NumpyBaseline
from dmlgpu.bench.peers.worker import LineServer
from dmlgpu.bench.prepared import Prepared, PreparedModel, PreparedOperator
from dmlgpu.bench.workload import Workload
from dmlgpu.common.errors import DmlError, NotSupported
from dmlgpu.conformance.running.child_process import exit_with_parent, reserved_stdout
from dmlgpu.runtime.device import Device

Prepare = Callable[[Device, Workload, bool, bool], Prepared]


def prepare(device: Device, workload: Workload, checked: bool, plain: bool) -> Prepared:
    """Make a workload ready on a device, or in plain NumPy."""
    if plain:
        return NumpyBaseline(workload)
    kind = PreparedModel if workload.model else PreparedOperator
    return kind(device, workload, checked=checked)


def pack(workload: Workload) -> str:
    """Return a workload as text for ``WorkloadServer``."""
    return base64.b64encode(pickle.dumps(workload)).decode()


class WorkloadServer(LineServer):
    """Answers requests about workloads on a device.

    Args:
        device: where they run.
        prepare: makes them ready.
    """

    refusals, failures = (NotSupported,), (DmlError,)

    def __init__(self, device: Device, prepare: Prepare = prepare):
        self._device, self._prepare = device, prepare
        self._ready: dict[str, Prepared] = {}

    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "prepare":
                gc.collect()
                workload = pickle.loads(base64.b64decode(request["workload"]))
                prepared = self._prepare(self._device, workload, request["checked"], request["plain"])
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
    """The command."""
    adapter, text = sys.argv[1:]
    exit_with_parent()
    with reserved_stdout() as answers:
        device = Device(int(adapter))
        if str(device.adapter) != text:
            print(f"adapter {adapter} is {device.adapter} here, not {text}", file=sys.stderr)
            return 1
        WorkloadServer(device).serve(sys.stdin, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
