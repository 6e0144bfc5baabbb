"""Running cases on several adapters at once, without the reference, to compare these with each other."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from dmlgpu.common.errors import DmlError, InvalidArgument, NotSupported
from dmlgpu.conformance.cases.case import Array, Case
from dmlgpu.conformance.cases.tolerance import Bound
from dmlgpu.conformance.drivers.pairwise import AdapterPair, Agreement, Allowance, Distance, distance
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.pool import Job, WorkerProcess, map_unordered, run_repeatedly
from dmlgpu.conformance.running.runner import POISON, inputs_without_subnormals, outputs_of
from dmlgpu.conformance.suites.registry import Suite
from dmlgpu.runtime.device import Device


@runtime_checkable
class OutputSuite(Protocol):
    """A suite that returns outputs, so that adapters can be compared."""

    def outputs(self, name: str, device: Device, poison: int) -> tuple[Array, ...]:
        """Return a device's outputs, in memory filled with ``poison``. Raises as a suite's ``run``."""

    def allowance(self, name: str) -> Allowance:
        """Return the allowed distance of a case's outputs from the true ones."""


@runtime_checkable
class SuiteWithCases(Protocol):
    """A suite that hands out the cases that its names spell."""

    def case(self, name: str) -> Case:
        """Return the case with a name."""


def as_output_suite(suite: Suite, name: str) -> OutputSuite:
    """Return a suite, by its name, as one that can be run without the reference.

    Raises:
        InvalidArgument: If it cannot.
    """
    if isinstance(suite, OutputSuite):
        return suite
    if isinstance(suite, SuiteWithCases):
        return CaseOutputs(suite)
    raise InvalidArgument(f"the suite {name!r} cannot be run pairwise: it returns no outputs")


@dataclass(frozen=True)
class CaseOutputs:
    """The cases of a suite."""

    suite: SuiteWithCases

    def outputs(self, name: str, device: Device, poison: int) -> tuple[Array, ...]:
        """Return the outputs of a device.

        Raises:
            NotSupported: If the adapter lacks what the case needs.
            DmlError: If the case cannot be run although the adapter has what it needs.
        """
        case = self.suite.case(name)
        try:
            with np.errstate(all="ignore"):  # the numpy adapter, on special values
                return outputs_of(case, device, poison)
        except NotSupported as error:
            if case.needs is None or case.needs in device.adapter.features:
                raise DmlError(f"every adapter must run it, but: {error}") from error
            raise

    def allowance(self, name: str) -> Allowance:
        """Return the case's tolerance."""
        case = self.suite.case(name)

        def measure() -> tuple[Bound | None, ...]:
            with np.errstate(all="ignore"):
                bounds = case.magnitudes(inputs_without_subnormals(case))
            return tuple(
                bound for bound, slot in zip(bounds, case.desc.outputs, strict=True) if slot.tensor is not None
            )

        return Allowance(case.tolerance, measure, case.alternatives is None)


def run_pairwise(
    jobs: Mapping[str, Job], suite: OutputSuite, names: Sequence[str], workers: int = 1
) -> Iterator[tuple[AdapterPair, ...]]:
    """Compare adapters case by case, several cases at once; yield the pairs of each case as they complete.

    The children are stopped if the caller stops early or raises.

    Args:
        jobs: Jobs by label of the adapter.
        suite: Suite of the jobs.
        names: Names of cases.
        workers: Number of cases that run at a time, each on one adapter after the other.
    """
    return map_unordered(
        [AdapterProcesses(jobs, suite) for _ in range(min(workers, len(names)))], names, AdapterProcesses.run
    )


class AdapterProcesses:
    """A child process per adapter. Their outputs are in a temporary folder until they are compared."""

    def __init__(self, jobs: Mapping[str, Job], suite: OutputSuite):
        self._suite, self._labels = suite, tuple(jobs)
        self._folder = Path(tempfile.mkdtemp(prefix="dmlgpu-"))
        self._folders = [self._folder / str(index) for index in range(len(jobs))]
        for folder in self._folders:
            folder.mkdir()
        # Outputs start different on each adapter, so that what none of them writes differs.
        self._workers = [
            WorkerProcess(job, str(folder), str(POISON + index & 0xFF))
            for index, (job, folder) in enumerate(zip(jobs.values(), self._folders, strict=True))
        ]

    def run(self, name: str) -> tuple[AdapterPair, ...]:
        """Run a case on all adapters and compare each two."""
        results = [
            AdapterResult(label, run_repeatedly(worker, name), folder)
            for label, worker, folder in zip(self._labels, self._workers, self._folders, strict=True)
        ]
        are_two = sum(result.outcome.status is Status.PASS for result in results) > 1
        allowance = self._suite.allowance(name) if are_two else None
        pairs = tuple(compare_results(result, other, allowance) for result, other in itertools.combinations(results, 2))
        for path in self._folder.glob("*/*.npy"):
            path.unlink()
        return pairs

    def interrupt(self) -> None:
        """End the children from another thread, for good."""
        for worker in self._workers:
            worker.interrupt()

    def close(self) -> None:
        """Stop the children and remove their files."""
        for worker in self._workers:
            worker.close()
        shutil.rmtree(self._folder)


@dataclass(frozen=True)
class AdapterResult:
    """A case on one adapter: its label, the outcome, which passes where there are outputs, and their folder."""

    label: str
    outcome: Outcome
    folder: Path

    @property
    def outputs(self) -> tuple[Array, ...]:
        """Outputs of a child, read from its files on demand."""
        paths = sorted(self.folder.glob("*.npy"), key=lambda path: int(path.stem))
        return tuple(np.load(path, mmap_mode="r") for path in paths)

    @property
    def problem(self) -> str:
        """Why there are no outputs, and which kernels ran; or ""."""
        outcome = self.outcome
        ran = f"; ran as: {'; '.join(outcome.kernels)}" if outcome.kernels else ""
        return "" if outcome.status is Status.PASS else f"{self.label}: {outcome.status}: {outcome.message}{ran}"


def compare_results(result: AdapterResult, other: AdapterResult, allowance: Allowance | None) -> AdapterPair:
    """Two results compared, as far as they are there; the allowance is needed where both are."""
    tolerance = "" if allowance is None else str(allowance.tolerance)
    pair = AdapterPair(result.outcome.case, (result.label, other.label), Agreement.AGREE, tolerance)
    statuses = result.outcome.status, other.outcome.status
    if statuses != (Status.PASS, Status.PASS) or allowance is None:
        failed = any(status.is_failure for status in statuses)
        message = "; ".join(filter(None, (result.problem, other.problem)))
        return replace(pair, agreement=Agreement.NO_RESULT if failed else Agreement.NOT_SUPPORTED, message=message)
    if result.outcome.digest and result.outcome.digest == other.outcome.digest:
        return replace(pair, distance=Distance(result.outcome.elements))
    try:
        difference = distance(result.outputs, other.outputs, allowance)
    except InvalidArgument as error:
        return replace(pair, agreement=Agreement.DISAGREE, message=str(error))
    if not difference.wrong:
        return replace(pair, distance=difference)
    kernels = result.outcome.kernels, other.outcome.kernels
    pair = replace(pair, distance=difference, kernels=kernels if any(kernels) else ())
    if allowance.is_unique:
        return replace(pair, agreement=Agreement.DISAGREE)
    return replace(pair, agreement=Agreement.UNDECIDED, message="several results are correct")
