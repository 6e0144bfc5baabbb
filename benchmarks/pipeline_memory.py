"""Memory of pipelines per character of their source: the numbers in ``dmlgpu/runtime/wgpu/pipelines.py``.

    DMLGPU_ADAPTER=llvmpipe python benchmarks/pipeline_memory.py 60

compiles that many sizes of each operator and prints by how much the process has grown. Linux only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from dmlgpu import DataType, Device, TensorDesc, default_device, descs
from dmlgpu.catalog.enums import ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.runtime.wgpu import GpuBackend, pipelines, releases


def _tensor(*sizes: int) -> TensorDesc:
    return TensorDesc(DataType.FLOAT32, (1, 1, *sizes))


OPERATORS: Mapping[str, Callable[[int], OperatorDesc]] = {
    "softmax": lambda n: descs.ActivationSoftmax(input_tensor=_tensor(n, n + 1), output_tensor=_tensor(n, n + 1)),
    "addition": lambda n: descs.ElementWiseAdd(
        a_tensor=_tensor(n, n + 1), b_tensor=_tensor(n, n + 1), output_tensor=_tensor(n, n + 1)
    ),
    "GELU": lambda n: descs.ActivationGelu(input_tensor=_tensor(n, n + 1), output_tensor=_tensor(n, n + 1)),
    "GEMM": lambda n: descs.Gemm(a_tensor=_tensor(n, 32), b_tensor=_tensor(32, n + 8), output_tensor=_tensor(n, n + 8)),
    "reduction": lambda n: descs.Reduce(
        function=ReduceFunction.SUM, input_tensor=_tensor(n, 100 + n), output_tensor=_tensor(n, 1), axes=(3,)
    ),
}


def resident() -> int:
    """Return the resident memory of the process in bytes, after unused heap is returned to the system."""
    releases.trim()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(count: int) -> None:
    """Print a line per operator."""
    device: Device = default_device()
    backend = device._state.backend
    assert isinstance(backend, GpuBackend), "choose a GPU by DMLGPU_ADAPTER"
    per_character = pipelines.bytes_per_character(backend.info)
    for name, desc in OPERATORS.items():
        compiled = [device.compile_operator(device.create_operator(desc(size))) for size in (202, 203)]
        backend.wait(backend.submit())
        before, size_before = resident(), device.pipeline_cache.info.size
        compiled += [device.compile_operator(device.create_operator(desc(33 + n))) for n in range(count)]
        backend.wait(backend.submit())
        size = resident() - before
        characters = (device.pipeline_cache.info.size - size_before) / per_character
        print(f"{name:10} {size / 2**20:7.1f} MiB, {size / characters:4.0f} bytes per character")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
