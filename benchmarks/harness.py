"""What the benchmarks share: operators and hand-written kernels as calls that run once and wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import adapters
from dmlgpu.backend import Range, Resources
from dmlgpu.gpu import GpuBackend
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.plan import Kernel, Program, Role, Slot

Call = Callable[[int], object]

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

    def operator(self, desc: OperatorDesc, *inputs: NDArray[Any]) -> Call:
        """An operator on NumPy arrays of its inputs' sizes (placed by the description's strides)."""
        executable = self.backend.compile(desc)
        runs = []
        for _ in range(self.sets):
            tensors = [slot.tensor for slot in desc.inputs if slot.tensor is not None]
            bound = [self._upload(tensor.encode(array)) for tensor, array in zip(tensors, inputs, strict=True)]
            outputs = [self._empty(slot.tensor.byte_size) for slot in desc.outputs if slot.tensor is not None]
            temporary = self._empty(executable.temporary_size) if executable.temporary_size else None
            runs.append(executable.bind(Resources(tuple(bound), tuple(outputs), temporary)))
        return self._rotated(runs)

    def kernel(self, body: str, grid: tuple[int, int, int], buffers: Sequence[int | NDArray[Any]]) -> Call:
        """A hand-written kernel over buffers given as arrays or sizes in bytes; its bindings are buffers 0, 1, ..."""
        sizes = [given if isinstance(given, int) else given.nbytes for given in buffers]
        slots = tuple(Slot(Role.INPUT, number, 0, size) for number, size in enumerate(sizes))
        program = Program("HAND_WRITTEN", (Kernel("hand-written", HEAD + body, slots, grid),))
        executable = self.backend.prepare(program)
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
