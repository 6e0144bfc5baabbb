"""What scripts share: lines of a table that may have targets, and their command line. ``dmlgpu.bench`` measures."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dmlgpu.bench import machine_load
from dmlgpu.bench.ratios import Ratio

Call = Callable[[int], object]
"""Does something and waits for it; its argument is a running number."""

Part = Callable[[str], "Iterator[Result]"]
"""Measures on the adapter with a name."""


@dataclass(frozen=True)
class Result:
    """What was measured, and its target if it has one."""

    name: str
    measured: Ratio
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool:
        """Whether the interval reaches the target."""
        if self.at_least is None and self.at_most is None:
            return True
        return self.measured.meets(at_least=self.at_least, at_most=self.at_most)

    def __str__(self) -> str:
        bound = f">= {self.at_least}" if self.at_least is not None else f"<= {self.at_most}"
        verdict = "met   " if self.met else "MISSED"
        if self.at_least is None and self.at_most is None:
            bound, verdict = "", ""
        return f"{verdict:<6} {bound:>7}  {self.name:<58} {self.measured}"


def main(
    doc: str | None, parts: Mapping[str, Part], against: Callable[[Path], Mapping[str, Part]] | None = None
) -> int:
    """The command line of a script: ``[ADAPTER] [-k PART]``; prints a table; 1 when a target is missed.

    Args:
        doc: Text of ``--help``.
        parts: Parts by name.
        against: Function from the root of another checkout to the parts that compare this one with it, for scripts that
            have an option ``--against``.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter", nargs="?", default="vulkan")
    parser.add_argument("-k", dest="part", default="", help="only parts whose name contains this")
    if against is not None:
        parser.add_argument("--against", metavar="FOLDER", type=Path, help="compare with the checkout in this folder")
    options = parser.parse_args()
    if against is not None and options.against is not None:
        parts = against(options.against)
    before = machine_load.measure_load()
    met = True
    for name, part in parts.items():
        if options.part in name:
            for result in part(options.adapter):
                print(result, flush=True)
                met = met and result.met
    for text in machine_load.load_warnings(before, machine_load.measure_load(), 0.0):
        print(f"warning: {text}")
    return 0 if met else 1
