"""Find the test cases that an operator or a file affects, and run them on all drivers of the machine.

python -m checking.cases [--require-driver] NAME...    run the named cases
"""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from dmlgpu import catalog, reference
from dmlgpu.cli.ops import shader_paths
from dmlgpu.cli.test import ConformanceRequest, test
from dmlgpu.compiler import operators
from dmlgpu.conformance.cases.keys import quick_names
from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from dmlgpu.runtime.wgpu import adapters

from .tests import record, spread

REQUIRED = "--require-driver"
"""The option that makes a machine without a driver a failure."""

EVERY_OPERATOR = ("dmlgpu/runtime/wgpu/", "dmlgpu/conformance/running/")
"""Files that take part in every case begin so."""


def cases_of_operator(operator: str, most: int) -> list[str]:
    """Return cases of an operator: the quick ones, then the first of the standard ones, which cover most."""
    stem = operator.lower()
    return list(dict.fromkeys([*quick_names().get(stem, ()), *OPERATOR_CASES[stem].names("standard")]))[:most]


def cases_of_file(file: str, most: int) -> list[str]:
    """Return the recorded cases of a file that still exist, those that run most of it first; none if none are known."""
    everything = [name for names in quick_names().values() for name in names]
    if file.startswith(EVERY_OPERATOR):
        return spread(everything, most)
    if file.startswith("docs/examples/"):
        return cases_of_operator(Path(file).stem.upper(), most) if Path(file).stem in OPERATOR_CASES else []
    if of_module := operators_of_module(file):
        return spread([name for stem in of_module for name in quick_names().get(stem, ())], most)
    known = frozenset(everything)
    if file.startswith("shaders/") and file not in record()["cases"]:  # newer than the record
        own = (name for name in sorted(operators.implemented()) if file in shader_paths(catalog.operator(name)))
        return spread([case for name in own for case in cases_of_operator(name, most)], most)
    return [name for name in record()["cases"].get(file, ()) if name in known][:most]


def operators_of_module(file: str) -> list[str]:
    """Return the stems of the operators whose reference or cases are defined in a module."""
    module = file.removesuffix(".py").replace("/", ".")
    if file.startswith("dmlgpu/reference/"):
        return [name.lower() for name in sorted(reference.implemented()) if reference.find(name).__module__ == module]
    if file.startswith("dmlgpu/conformance/cases/families/"):
        return [stem for stem, cases in sorted(OPERATOR_CASES.items()) if type(cases).__module__ == module]
    return []


@dataclass(frozen=True)
class Named(ConformanceRequest):
    """A request for some cases by name."""

    chosen: tuple[str, ...] = ()

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The cases' names."""
        return self.chosen


def main() -> int:
    """Run the cases that the command line names on all drivers; fail if there is none and one is required."""
    names = [name for name in sys.argv[1:] if name != REQUIRED]
    if not adapters():
        print("no driver: the cases were not run")
        return int(REQUIRED in sys.argv)
    everywhere = Named(drivers=("all",), suite="operators", workers=os.cpu_count() or 1, chosen=tuple(names))
    return int(not test(everywhere))


if __name__ == "__main__":
    sys.exit(main())
