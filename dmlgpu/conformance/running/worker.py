"""The child process in which cases run, so that a crash or a hang fails only one case.

Its arguments are SUITE ADAPTER TEXT PRECISE [FOLDER POISON]. ADAPTER is an index of ``dmlgpu devices``. TEXT is that
adapter's name and driver, or empty: if another adapter has this index, the process exits. PRECISE is ``precise`` for a
precise device, or empty. Each request is the name of a case, each answer an ``Outcome``. Answers ``{"kernels": [...]}``
before it name the kernels about to be compiled, in case that crashes or hangs; ``{"exercised": ...}`` tells what
kernels use that no earlier case compiled. With FOLDER, nothing is compared: the
outputs of a case are written there in NumPy's format, computed in memory filled with the byte POISON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TextIO

from dmlgpu.common.errors import DeviceRemoved, DmlError, NotSupported
from dmlgpu.common.files import whole_file, write_array
from dmlgpu.common.processes import answer_stream, exit_with_parent, send_answer, tell_ready
from dmlgpu.compiler.program_cache import without_files
from dmlgpu.conformance.drivers.pairwise_run import OutputSuite, as_output_suite
from dmlgpu.conformance.running.exercised import EXERCISED, KernelNotes
from dmlgpu.conformance.running.outcome import DEVICE, KERNELS, Outcome, Status
from dmlgpu.conformance.running.pool import PRECISE
from dmlgpu.conformance.running.runner import digest
from dmlgpu.conformance.suites.registry import suite_by_name
from dmlgpu.runtime.adapters import choose, open_executor
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from dmlgpu.runtime.rendered import Tell
from dmlgpu.runtime.specialization import Specialize, Specializer


class RunsCases(Protocol):
    """Runs cases: a suite, or a writer of outputs."""

    def run(self, name: str, device: Device) -> Outcome:
        """Run a case."""


@dataclass(frozen=True)
class OutputWriter:
    """Writes the outputs of cases into a folder, as ``0.npy`` and so on, instead of comparing them."""

    suite: OutputSuite
    folder: Path
    poison: int

    def run(self, name: str, device: Device) -> Outcome:
        """Run a case; a pass means that it has outputs."""
        start = time.perf_counter()
        outputs = self.suite.outputs(name, device, self.poison)
        for index, array in enumerate(outputs):
            with whole_file(self.folder / f"{index}.npy") as stream:
                write_array(stream, array)
        # If several results are correct, two runs may differ without being flaky.
        output_digest = digest(outputs) if self.suite.allowance(name).is_unique else ""
        count, seconds = sum(array.size for array in outputs), time.perf_counter() - start
        return Outcome(name, Status.PASS, elements=count, digest=output_digest, seconds=seconds)


def run(suite: RunsCases, name: str, device: Device) -> Outcome:
    """Run a case; an exception becomes an outcome."""
    try:
        return suite.run(name, device)
    except NotSupported as error:
        return Outcome(name, Status.NOT_SUPPORTED, message=str(error))
    except DeviceRemoved as error:
        return Outcome(name, Status.DEVICE_LOST, message=str(error))
    except DmlError as error:
        return Outcome(name, Status.FAIL, message=str(error))
    except Exception as error:  # a fault of the case or of dmlgpu is this case's failure, not the end of the run
        return Outcome(name, Status.FAIL, message=f"{type(error).__name__}: {error}")


class CaseServer:
    """Answers requests for cases.

    Args:
        suite: Runs the cases.
        responses: Stream of answers, a line of JSON each.
    """

    def __init__(self, suite: RunsCases, responses: TextIO):
        self._suite, self._responses = suite, responses
        self._compiled: list[str] = []
        self._notes = KernelNotes()

    def tell_kernels(self, kernels: Sequence[str], texts: Sequence[str] = ()) -> None:
        """Report the kernels about to be compiled for the current case, and note their WGSL."""
        self._notes.add(texts)
        if kernels:
            self._compiled += kernels
            self._answer({KERNELS: list(kernels)})

    def serve(self, device: Device, requests: TextIO) -> None:
        """Answer requests, the name of a case per line, until they end or the device is lost."""
        tell_ready(self._responses)
        for line in requests:
            self._compiled.clear()
            outcome = run(self._suite, json.loads(line), device)
            if not outcome.kernels:  # the case raised something, or its suite does not say what ran
                outcome = replace(outcome, kernels=tuple(dict.fromkeys(self._compiled)))
            if outcome.compile_error:
                self._notes.discard()
            elif (exercised := self._notes.take(device)) is not None:
                self._answer({EXERCISED: exercised})
            self._answer(outcome.to_json())
            if outcome.status is Status.DEVICE_LOST:
                return
        device.remove()

    def reject(self, requests: TextIO, error: DeviceRemoved | NotSupported) -> None:
        """Answer with the error that prevents opening the device: the first request, or all if it is permanent."""
        rejection = Outcome("", Status.DEVICE_LOST, message=str(error))
        if isinstance(error, NotSupported):
            rejection = replace(rejection, status=Status.NOT_SUPPORTED, missing=DEVICE)
        tell_ready(self._responses)
        for line in requests:
            self._answer(replace(rejection, case=json.loads(line)).to_json())
            if rejection.status is Status.DEVICE_LOST:
                return

    def _answer(self, record: Mapping[str, Any]) -> None:
        send_answer(self._responses, record)


def open_device(index: int, tell_kernels: Tell, *, precise: bool = False) -> Device:
    """Open an adapter with a function that gets the kernels of each program before they are compiled."""
    info = choose(index)
    if info == NUMPY_ADAPTER:
        return Device(info, precise=precise)
    backend = open_executor(info, {"precise": precise, "tell": tell_kernels})
    # A result must not depend on the cases before it.
    policy = Specialize.of(None)
    backend.specializer = Specializer(Specialize.ALWAYS if policy is Specialize.AUTO else policy)
    return Device.from_backend(backend)


def main() -> int:
    """Run the child process."""
    name, adapter, text, precise, *writing = sys.argv[1:]
    exit_with_parent()
    with answer_stream() as responses, without_files():
        suite = suite_by_name(name)
        runner = OutputWriter(as_output_suite(suite, name), Path(writing[0]), int(writing[1])) if writing else suite
        server = CaseServer(runner, responses)
        try:
            device = open_device(int(adapter), server.tell_kernels, precise=precise == PRECISE)
        except (DeviceRemoved, NotSupported) as error:  # a browser's page may come back for the next child
            server.reject(sys.stdin, error)
            return 0
        if text and str(device.adapter) != text:
            print(f"adapter {adapter} is {device.adapter} here, not {text}", file=sys.stderr)
            return 1
        server.serve(device, sys.stdin)
    return 0
