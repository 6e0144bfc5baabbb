#!/usr/bin/env python
"""Hash the programs of all standard cases, to show which kernels a change of the compiler changed.

    scripts/hash_programs.py write BEFORE.json       # before the change
    scripts/hash_programs.py compare BEFORE.json     # after the change: every difference, by case and target

Three targets represent all adapters: a CPU, a discrete GPU, and an adapter without immediates and 64-bit types. A
kernel is compared by its WGSL, its grid and its bindings.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import DmlError
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.cases.registry import OPERATOR_CASES

TARGETS = {
    "cpu": Target("CPU", Profile.CPU, frozenset({"immediates", "shader-int64", "shader-f64", "shader-f16"})),
    "discrete": Target("GPU", Profile.DISCRETE, frozenset({"immediates", "shader-int64", "shader-f64"})),
    "plain": Target("GPU", Profile.DISCRETE),
}
PARTS = ("label", "WGSL", "grid", "bindings")
Kernel = list[str]
"""The four parts of a kernel, its text as a hash."""
Programs = dict[str, dict[str, list[Kernel]]]
"""Kernels by case and target."""


def programs_of(stem: str) -> Programs:
    """The kernels of an operator's standard cases."""
    cases = OPERATOR_CASES[stem]
    descs = {name: cases.case(name).desc for name in cases.names("standard")}
    return {name: {key: _kernels(desc, target) for key, target in TARGETS.items()} for name, desc in descs.items()}


def _kernels(desc: OperatorDesc, target: Target) -> list[Kernel]:
    try:
        program = compile_operator(desc, target)
    except DmlError as error:
        return [["refused", str(error), "", ""]]
    kernels = [
        *(("initialize ", kernel) for kernel in program.initialization),
        *(("", kernel) for kernel in program.kernels),
    ]
    sizes = ["sizes", "", "", f"{program.temporary_size} {program.persistent_size}"]
    return [sizes] + [
        [
            when + kernel.label,
            hashlib.sha256(kernel.wgsl.encode()).hexdigest()[:16],
            str(kernel.grid),
            str([(str(slot.role), slot.index, slot.offset, slot.size) for slot in kernel.slots]),
        ]
        for when, kernel in kernels
    ]


def compare(before: Programs, after: Programs) -> int:
    """Print every difference, by case and target; return 1 if there is one."""
    different = 0
    for name, target in itertools.product(sorted(before.keys() & after.keys()), TARGETS):
        if before[name][target] != after[name][target]:
            different += 1
            print(f"{name} on {target}: {difference(before[name][target], after[name][target])}")
    print(f"{len(after)} cases for {len(TARGETS)} targets: {different} different")
    return int(different > 0)


def difference(old: list[Kernel], new: list[Kernel]) -> str:
    """What became other, kernel by kernel."""
    if len(old) != len(new):
        return f"{[kernel[0] for kernel in old]} became {[kernel[0] for kernel in new]}"
    changes = []
    for before, after in zip(old, new, strict=True):
        parts = [part for part, a, b in zip(PARTS, before, after, strict=True) if a != b]
        if parts:
            changes.append(f"{before[0]}: {', '.join(parts)}")
    return "; ".join(changes)


def main() -> int:
    """Write the hashes of this checkout, or compare them with some written before."""
    parser = argparse.ArgumentParser(description="Hash the programs of all standard cases.")
    parser.add_argument("action", choices=["write", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("-k", default="", help="only operators whose name contains this")
    arguments = parser.parse_args()
    stems = [stem for stem in OPERATOR_CASES if arguments.k in stem]
    with ProcessPoolExecutor() as pool:
        hashes = {name: kernels for programs in pool.map(programs_of, stems) for name, kernels in programs.items()}
    if arguments.action == "write":
        arguments.file.write_text(json.dumps(hashes))
        print(f"{len(hashes)} cases for {len(TARGETS)} targets")
        return 0
    return compare(json.loads(arguments.file.read_text()), hashes)


if __name__ == "__main__":
    sys.exit(main())
