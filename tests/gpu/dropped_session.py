"""Runs a model for several lengths and drops it; fails if most of its memory is not freed within ten seconds."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from dmlgpu import CacheLimits, Device
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.session import runner_of
from dmlgpu.runtime.wgpu import adapters

MIN_ESTIMATED = 24  # MiB, above the garbage that is collected before memory is freed
LENGTHS = range(40, 60)
LAYERS = 4


def resident() -> float:
    """Return the MiB of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def model() -> bytes:
    """Return a model whose softmaxes, of different axes, need a kernel each."""
    nodes, name = [], "x"
    for layer in range(LAYERS):
        shape = helper.make_tensor(f"s{layer}", TensorProto.INT64, [2], [layer + 2, -1])
        nodes += [
            helper.make_node("Constant", [], [f"shape{layer}"], value=shape),
            helper.make_node("Reshape", [name, f"shape{layer}"], [f"r{layer}"]),
            helper.make_node("Softmax", [f"r{layer}"], [f"y{layer}"], axis=-1),
        ]
        name = f"y{layer}"
    graph = helper.make_graph(
        nodes,
        "softmaxes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [60, "n"])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString()


def main(adapter: str) -> int:
    """Return the exit status."""
    info = next(info for info in adapters() if info.name == adapter and info.backend == "Vulkan")
    device = Device(info, specialize="always")  # else lengths share kernels, and there is little to free
    device.pipeline_cache.limits = CacheLimits(entries=0, size=0)
    session = load(model(), device)
    session.run({"x": np.zeros((60, 3), np.float32)})
    before = resident()
    for length in LENGTHS:
        session.run({"x": np.zeros((60, length), np.float32)})
        estimate = runner_of(session).stages.info.size / 2**20
        if estimate > MIN_ESTIMATED:
            break
    grown = resident() - before
    del session
    deadline = time.monotonic() + 10
    while (unreleased := resident() - before) > grown / 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    print(f"{grown:.1f} MiB grown, {estimate:.1f} MiB estimated, {unreleased:.1f} MiB kept")
    return int(unreleased > grown / 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
