"""Sizes as constants in the text (``const``) against WGSL's pipeline-overridable constants (``override``).

    MESA_SHADER_CACHE_DISABLE=true python benchmarks/overridable_sizes.py [ADAPTER] [-k PART] [-r ROUNDS]

Overridable constants would let the general and the special kernel share a shader module. Each row of the suite
``families`` is compiled with either. The first run, compilation included, is measured by CPU time, once; later runs
are interleaved. Ratios are of ``override`` to ``const``.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

from constants import compare, workloads

from dmlgpu import Device, DmlError
from dmlgpu.bench.prepared import PreparedOperator
from dmlgpu.bench.workload import Workload
from dmlgpu.compiler.program import KernelSource, RenderedKernel
from dmlgpu.runtime.specialization import Specialize
from dmlgpu.runtime.wgpu.pipelines import GpuPipelines

_CONSTANTS = re.compile(r"^struct Sizes .*\nconst sizes = Sizes\((.*)\);\n", re.MULTILINE)


@dataclass
class Overrides:
    """Compiles kernels with overridable constants while it is enabled."""

    enabled: bool = False

    def install(self) -> None:
        """Replace the method of the library that compiles kernels."""
        create_compute_pipeline = GpuPipelines._create

        def create(pipelines: GpuPipelines, operator: str, kernel: RenderedKernel, layout: Any) -> Any:
            constants = _CONSTANTS.search(kernel.wgsl) if self.enabled else None
            if constants is None:
                return create_compute_pipeline(pipelines, operator, kernel, layout)
            values = {f"size{index}": float(value[:-1]) for index, value in enumerate(constants[1].split(", "))}
            text = kernel.wgsl.replace(constants[0], "".join(f"override {name}: u32;\n" for name in values))
            source = KernelSource(re.sub(r"\bsizes\.s(\d+)u", r"size\1", text), checks=kernel.checks)
            device = pipelines._context.device
            with_values = _WithConstants(device, values)
            pipelines._context.device = with_values
            try:
                return create_compute_pipeline(pipelines, operator, replace(kernel, source=source), layout)
            finally:
                pipelines._context.device = device

        GpuPipelines._create = create  # type: ignore[method-assign]


class _WithConstants:
    """A device that gives the pipelines that it makes values of overridable constants."""

    def __init__(self, device: Any, values: dict[str, float]):
        self._device, self._values = device, values

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def create_compute_pipeline(self, *, compute: dict[str, Any], **arguments: Any) -> Any:
        """Create a pipeline."""
        return self._device.create_compute_pipeline(compute={**compute, "constants": self._values}, **arguments)


def prepared(adapter: str, workload: Workload) -> tuple[PreparedOperator, float]:
    """Return a workload that has run once, and the CPU time that took in seconds."""
    device = Device(adapter, specialize=Specialize.ALWAYS)
    start = time.process_time()
    operator = PreparedOperator(device, workload, checked=False)
    operator.round(1)
    return operator, time.process_time() - start


def main() -> None:
    """Print a line for each row, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter", nargs="?", default="llvmpipe")
    parser.add_argument("-k", dest="part", default="", help="only rows whose names contain this")
    parser.add_argument("-r", "--rounds", type=int, default=31)
    options = parser.parse_args()
    overrides = Overrides()
    overrides.install()
    runs, first_runs = [], []
    for workload in workloads(options.part):
        operators, seconds = [], []
        try:
            for overrides.enabled in (True, False):
                operator, spent = prepared(options.adapter, workload)
                operators.append(operator)
                seconds.append(spent)
        except DmlError as error:
            print(f"{workload.name}: {error}")
            continue
        ratio = compare(operators, 0, len(operators[0]._work[0]), options.rounds)
        runs.append(ratio.median)
        first_runs.append(seconds[0] / seconds[1])
        print(f"{ratio!s:55} first run {first_runs[-1]:.2f}  {workload.name}", flush=True)
        for operator in operators:
            operator.close()
    print(f"median of {len(runs)} rows: runs {statistics.median(runs):.3f}, first {statistics.median(first_runs):.3f}")


if __name__ == "__main__":
    main()
