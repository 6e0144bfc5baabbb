"""What a new input shape costs a model: CPU seconds of its first run and pipelines, with and without shared kernels.

    python benchmarks/new_shapes.py MODEL.onnx 1x3x160x224 1x3x192x320 1x3x320x480 [-a ADAPTER] [-r ROUNDS]

Each policy of ``Device(specialize=...)`` runs in processes of its own, in turn, with the drivers' caches off. CPU
seconds (user and system, all threads) hardly depend on what else the machine does. The last column compares the median
time of later runs with that of ``always``, and gives the interval of the ratio over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

import dmlgpu
from dmlgpu import Device
from dmlgpu.runtime.specialization import Specialize

UNCACHED = {"MESA_SHADER_CACHE_DISABLE": "true", "DMLGPU_CACHE": "off"}
RUNS = 30


def measure(model: str, shapes: list[str], adapter: str | None, policy: str) -> list[tuple[float, float, int]]:
    """Return for each shape the CPU seconds of its first run, the seconds of a later one, and the pipelines so far."""
    device = Device(adapter, specialize=policy)
    session = dmlgpu.load(model, device)
    rows = []
    for shape in shapes:
        inputs = {session.inputs[0].name: np.zeros([int(size) for size in shape.split("x")], np.float32)}
        start = time.process_time()
        session.run(inputs)
        first, later = time.process_time() - start, []
        for _ in range(RUNS):
            start = time.perf_counter()
            session.run(inputs)
            later.append(time.perf_counter() - start)
        rows.append((first, min(later), device.pipeline_cache.info.entries))
    return rows


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("shapes", nargs="+")
    parser.add_argument("-a", "--adapter", help="a part of an adapter's name")
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("--policy", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.policy:
        print(json.dumps(measure(options.model, options.shapes, options.adapter, options.policy)))
        return
    rows: dict[str, list[list[tuple[float, float, int]]]] = {policy: [] for policy in Specialize}
    for _ in range(options.rounds):
        for policy, measured in rows.items():
            command = [sys.executable, *sys.argv, "--policy", policy]
            done = subprocess.run(command, env=os.environ | UNCACHED, stdout=subprocess.PIPE, text=True, check=True)
            measured.append(json.loads(done.stdout))
    print(f"{'policy':8} {'shape':16} {'first run':>10} {'/ first shape':>14} {'pipelines':>10} {'later / always':>20}")
    for policy, measured in rows.items():
        for number, shape in enumerate(options.shapes):
            first = statistics.median(each[number][0] for each in measured)
            of_first = first / statistics.median(each[0][0] for each in measured)
            ratios = sorted(
                each[number][1] / base[number][1] for each, base in zip(measured, rows[Specialize.ALWAYS], strict=True)
            )
            later = f"{statistics.median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]"
            pipelines = measured[0][number][2]
            print(f"{policy:8} {shape:16} {first:8.1f} s {of_first:14.2f} {pipelines:10} {later:>20}", flush=True)


if __name__ == "__main__":
    main()
