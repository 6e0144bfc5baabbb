"""What the benchmarks share: operators and hand-written kernels as calls that run once and wait, targets, a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import adapters, compiler
from dmlgpu.backend import Range, Resources
from dmlgpu.bench.ratios import Ratio, ratio
from dmlgpu.gpu import GpuBackend
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.plan import Role
from dmlgpu.program import Kernel, Program, Slot

Call = Callable[[int], object]
Part = Callable[[str], "Iterator[Result]"]
"""Measures on the adapter with a name."""

HEAD = """struct Params { bases: vec4<u32>, more_bases: vec4<u32>, zero: u32 }
var<immediate> params: Params;
"""


def open_backend(adapter: str) -> GpuBackend:
    """The executor of the first adapter whose name contains the text."""
    found = next(info for info in adapters() if adapter.lower() in str(info).lower())
    return GpuBackend(found)


class Bench:
    """Buffers and runs on one adapter. Inputs are rotated: call number n uses the n-th set of buffers."""

    def __init__(self, backend: GpuBackend, sets: int = 2):
        self.backend, self.sets = backend, sets

    def operator(self, desc: OperatorDesc, *inputs: NDArray[Any], schedule: str = "") -> Call:
        """An operator on NumPy arrays of its inputs' sizes (placed by the description's strides).

        Args:
            schedule: by name; the one that the operator chooses without one.
        """
        executable = self.backend.prepare(
            compiler.compile_operator(desc, replace(self.backend.target, schedule=schedule))
        )
        runs = []
        for _ in range(self.sets):
            tensors = [slot.tensor for slot in desc.inputs if slot.tensor is not None]
            bound = [self._upload(tensor.encode(array)) for tensor, array in zip(tensors, inputs, strict=True)]
            outputs = [self._empty(slot.tensor.byte_size) for slot in desc.outputs if slot.tensor is not None]
            temporary = self._empty(executable.temporary_size) if executable.temporary_size else None
            runs.append(executable.bind(Resources(tuple(bound), tuple(outputs), temporary)))
        return self._rotated(runs)

    def program(self, program: Program, inputs: Sequence[NDArray[Any]], outputs: Sequence[int]) -> Call:
        """A program on arrays of its inputs, those that it owns among them, and outputs of so many bytes."""
        executable = self.backend.prepare(program)
        runs = []
        for _ in range(self.sets):
            bound = tuple(self._upload(array) for array in inputs)
            written = tuple(self._empty(size) for size in outputs)
            temporary = self._empty(executable.temporary_size) if executable.temporary_size else None
            persistent = self._empty(executable.persistent_size) if executable.persistent_size else None
            resources = Resources(bound, written, temporary, persistent)
            self.backend.submit(executable.bind_initialization(resources))
            runs.append(executable.bind(resources))
        return self._rotated(runs)

    def kernel(self, body: str, grid: tuple[int, int, int], buffers: Sequence[int | NDArray[Any]]) -> Call:
        """A hand-written kernel over buffers given as arrays or sizes in bytes; its bindings are buffers 0, 1, ..."""
        return self.kernels([(body, grid)], buffers)

    def kernels(
        self, bodies: Sequence[tuple[str, tuple[int, int, int]]], buffers: Sequence[int | NDArray[Any]]
    ) -> Call:
        """Hand-written kernels with their grids, one after the other over the same buffers."""
        sizes = [given if isinstance(given, int) else given.nbytes for given in buffers]
        slots = tuple(Slot(Role.INPUT, number, 0, size) for number, size in enumerate(sizes))
        kernels = tuple(Kernel("hand-written", HEAD + body, slots, grid) for body, grid in bodies)
        executable = self.backend.prepare(Program("HAND_WRITTEN", kernels))
        runs = []
        for _ in range(self.sets):
            bound = [self._empty(given) if isinstance(given, int) else self._upload(given) for given in buffers]
            runs.append(executable.bind(Resources(tuple(bound), ())))
        return self._rotated(runs)

    def _rotated(self, runs: Sequence[Any]) -> Call:
        return lambda number: self.backend.wait(self.backend.submit(runs[number % len(runs)]))

    def _upload(self, array: NDArray[Any]) -> Range:
        data = np.ascontiguousarray(array).view(np.uint8).ravel()
        bound = self._empty(data.nbytes)
        self.backend.write(bound.buffer, 0, data)
        return bound

    def _empty(self, size: int) -> Range:
        return Range(self.backend.create_buffer(size, "benchmark"), 0, size)


def storage(*blocks: str) -> str:
    """Declarations of read_write storage buffers b0, b1, ... of these block types."""
    return "".join(
        f"@group(0) @binding({number}) var<storage, read_write> b{number}: array<{block}>;\n"
        for number, block in enumerate(blocks)
    )


# ---- hand-written kernels ---------------------------------------------------------------------------------------


def vec4_maps(
    bench: Bench, expression: str, arrays: Sequence[NDArray[Any]], block: str = "vec4<f32>", functions: str = ""
) -> Iterator[tuple[str, Call]]:
    """Maps over units of 16 bytes in every shape that is good on some adapter, each with a name.

    Args:
        expression: unit ``i`` of the result in WGSL, from ``b0[i]``, ``b1[i]``, ... of the arrays (all of one size).
        functions: WGSL that the expression calls.
    """
    units, output = arrays[0].nbytes // 16, len(arrays)
    declared = storage(*[block] * (output + 1)) + functions
    for workgroup in (64, 256):
        for each in (1, 4):
            groups = -(-units // (workgroup * each))
            rows = -(-groups // 65535)
            width = -(-groups // rows)
            stores = "".join(
                f"if (start + {k}u < {units}u) {{ let i = start + {k}u; b{output}[i] = {expression}; }} "
                for k in range(each)
            )
            body = declared + (
                f"@compute @workgroup_size({workgroup}) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{"
                f" let start = (id.x + id.y * {width * workgroup}u) * {each}u; {stores} }}"
            )
            call = bench.kernel(body, (width, rows, 1), [*arrays, arrays[0].nbytes])
            yield f"workgroup {workgroup}, {each} each", call


def fastest(calls: Iterator[tuple[str, Call]], what: str = "copy") -> Call:
    """The fastest of several calls, by a knock-out of interleaved comparisons."""
    best_name, best = next(calls)
    for name, call in calls:
        if ratio(best, call).median > 1:
            best_name, best = name, call
    print(f"  fastest hand-written {what}: {best_name}", file=sys.stderr)
    return best


def fastest_copy(bench: Bench, array: NDArray[Any]) -> Call:
    """The fastest hand-written copy of an array of whole 16-byte units."""
    return fastest(vec4_maps(bench, "b0[i]", [array], "vec4<u32>"))


# ---- targets ----------------------------------------------------------------------------------------------------


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


def main(doc: str | None, parts: Mapping[str, Part]) -> int:
    """The command line of a benchmark: ``[ADAPTER] [-k PART]``; prints a table; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter", nargs="?", default="vulkan")
    parser.add_argument("-k", dest="part", default="", help="only parts whose name contains this")
    options = parser.parse_args()
    met = True
    for name, part in parts.items():
        if options.part in name:
            for result in part(options.adapter):
                print(result, flush=True)
                met = met and result.met
    return 0 if met else 1
