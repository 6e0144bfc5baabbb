"""What a new input shape costs a model: CPU seconds of its first run and pipelines, with and without shared kernels.

    python benchmarks/new_shapes.py MODEL.onnx 1x3x160x224 1x3x192x320 1x3x320x480 [-a ADAPTER] [-r ROUNDS]
    python benchmarks/new_shapes.py MODEL.onnx 1x3x160x224 --policies auto --webgpu

First runs of each policy of ``Device(specialize=...)`` are measured in processes of their own, interleaved, with the
drivers' caches off; with ``--webgpu``, so are those of onnxruntime's WebGPU provider. CPU seconds (user and system, all
threads) hardly depend on what else the machine does. They count from the model's file to the result, without imports.
The last column compares the time of later runs with that of ``always``, interleaved in one process, with its confidence
interval. It is omitted if ``always`` is not measured.
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
from dmlgpu import CacheLimits, Device, onnx
from dmlgpu.bench.ratios import Ratio, ratio
from dmlgpu.runtime.specialization import Specialize

UNCACHED = {"MESA_SHADER_CACHE_DISABLE": "true", "DMLGPU_CACHE": "off"}
LATER_ROUNDS = 31
WEBGPU = "webgpu"
"""The provider, in place of a policy."""


def zeros(shape: str) -> np.ndarray:
    """Return an array of a shape."""
    return np.zeros([int(size) for size in shape.split("x")], np.float32)


def inputs(session: onnx.Session, shape: str) -> dict[str, np.ndarray]:
    """Return zeros of a shape for the first input."""
    return {session.inputs[0].name: zeros(shape)}


def measure(model: str, shapes: list[str], adapter: str | None, policy: str) -> list[tuple[float, int]]:
    """Return for each shape the CPU seconds of its first run, and the pipelines compiled so far."""
    device = Device(adapter, specialize=policy)
    device.pipeline_cache.limits = CacheLimits(entries=1 << 20, size=1 << 40)  # nothing is evicted: entries count all
    start = time.process_time()
    session = dmlgpu.load(model, device)
    rows = []
    for shape in shapes:
        session.run(inputs(session, shape))
        rows.append((time.process_time() - start, device.pipeline_cache.info.entries))
        start = time.process_time()
    return rows


def measure_webgpu(model: str, shapes: list[str]) -> list[tuple[float, int]]:
    """Return for each shape the CPU seconds of its first run on onnxruntime's WebGPU provider, and 0."""
    import onnxruntime  # noqa: PLC0415 - a peer

    from dmlgpu.bench.peers.programs.webgpu_provider import devices  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_provider_for_devices(devices(), {})
    start = time.process_time()
    session = onnxruntime.InferenceSession(model, options)
    name, rows = session.get_inputs()[0].name, []
    for shape in shapes:
        session.run(None, {name: zeros(shape)})
        rows.append((time.process_time() - start, 0))
        start = time.process_time()
    return rows


def later_runs(model: str, shapes: list[str], adapter: str | None) -> dict[tuple[str, str], Ratio]:
    """Return the time of later runs relative to ``always``, by policy and shape."""
    sessions = {policy: dmlgpu.load(model, Device(adapter, specialize=policy)) for policy in Specialize}
    base = sessions[Specialize.ALWAYS]
    ratios = {}
    for shape in shapes:  # in the order of the first runs, on which it depends what is shared
        arrays = inputs(base, shape)
        for policy, session in sessions.items():
            ratios[policy, shape] = ratio(
                lambda _, session=session, arrays=arrays: session.run(arrays),
                lambda _, arrays=arrays: base.run(arrays),
                LATER_ROUNDS,
            )
    return ratios


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("shapes", nargs="+")
    parser.add_argument("-a", "--adapter", help="a part of an adapter's name")
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("--policies", nargs="*", default=list(Specialize), choices=list(Specialize))
    parser.add_argument("--webgpu", action="store_true", help="compare with onnxruntime's WebGPU provider")
    parser.add_argument("--policy", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.policy == WEBGPU:
        print(json.dumps(measure_webgpu(options.model, options.shapes)))
        return
    if options.policy:
        print(json.dumps(measure(options.model, options.shapes, options.adapter, options.policy)))
        return
    names = [*options.policies, *[WEBGPU] * options.webgpu]
    rows: dict[str, list[list[tuple[float, int]]]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for policy, measured in rows.items():
            command = [sys.executable, *sys.argv, "--policy", policy]
            done = subprocess.run(command, env=os.environ | UNCACHED, stdout=subprocess.PIPE, text=True, check=True)
            measured.append(json.loads(done.stdout.splitlines()[-1]))
    has_later = Specialize.ALWAYS in options.policies
    later = later_runs(options.model, options.shapes, options.adapter) if has_later else {}
    print(f"{'policy':8} {'shape':16} {'first run':>10} {'/ first shape':>14} {'pipelines':>10} {'later / always':>20}")
    for policy, measured in rows.items():
        for number, shape in enumerate(options.shapes):
            first = statistics.median(each[number][0] for each in measured)
            of_first = first / statistics.median(each[0][0] for each in measured)
            result, pipelines = later.get((policy, shape)), measured[0][number][1] or ""
            text = "" if result is None else f"{result.median:.2f} [{result.low:.2f}, {result.high:.2f}]"
            print(f"{policy:8} {shape:16} {first:8.2f} s {of_first:14.2f} {pipelines:>10} {text:>20}")


if __name__ == "__main__":
    main()
