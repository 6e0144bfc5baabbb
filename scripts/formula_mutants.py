"""Which formulas that are nearly right each operator's own quick cases tell from its own.

    python scripts/formula_mutants.py [-a ADAPTER] [PART_OF_A_NAME ...]

For each mutant of ``dmlgpu/conformance/mutation/formulas.py`` and each operator whose kernels it changes, the
operator's quick cases run until one fails. Writes the table of docs/formulas.md, if no part of a name is given.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from dmlgpu.conformance.mutation.coverage import KernelCoverage
from dmlgpu.conformance.mutation.rules import Mutant, mutant_by_name
from dmlgpu.conformance.mutation.runs import SEPARATOR, UNCHANGED
from dmlgpu.conformance.mutation.suite import RUN_LIMIT, formula_names
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.running.pool import Job, WorkerProcess
from dmlgpu.conformance.suites.operators import OperatorSuite
from dmlgpu.conformance.suites.special_values import SpecialValueSuite
from dmlgpu.device.adapters import adapters, choose
from dmlgpu.device.device import Device
from dmlgpu.target import AdapterInfo

PAGE = Path(__file__).resolve().parents[1] / "docs" / "formulas.md"
NO_SHADER = "no shader"
CHANGES_NOTHING = ""


class Runs:
    """Runs of mutants on an adapter."""

    def __init__(self, info: AdapterInfo):
        self.names = tuple(name for suite in (OperatorSuite(), SpecialValueSuite()) for name in suite.names("quick"))
        device = Device(info)
        self._coverage = KernelCoverage(self.names, device.backend.target.exact)
        device.remove()
        self._worker = WorkerProcess(Job("mutant_runs", adapters().index(info), RUN_LIMIT))

    def results(self, mutant: Mutant) -> Iterator[tuple[str, str]]:
        """Each operator that a mutant changes, with the case that notices it; nothing where none does."""
        cases = sorted(self._coverage.cases_of(mutant), key=lambda found: (_stem(found[1]), found[0] != "cpu"))
        for stem, found in groupby(cases, key=lambda one: _stem(one[1])):
            caught, changed = "", False
            for profile, case in found:
                outcome = self._worker.run(SEPARATOR.join((str(mutant), profile, case)))
                changed |= outcome.message != UNCHANGED
                if outcome.status is Status.NOT_SUPPORTED:
                    yield stem, NO_SHADER
                    return
                if outcome.status.is_failure:
                    caught = f"{case} ({profile})"
                    break
            if changed:
                yield stem, caught


def _stem(case: str) -> str:
    return case.partition("-")[0]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-a", "--adapter", default="Vulkan")
    parser.add_argument("parts", nargs="*", metavar="PART_OF_A_NAME")
    arguments = parser.parse_args()
    runs = Runs(choose(arguments.adapter))
    for name in formula_names():
        if arguments.parts and not any(part in name for part in arguments.parts):
            continue
        for stem, caught in runs.results(mutant_by_name(name)):
            print(f"{name}\t{stem}\t{caught or 'MISSED'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
