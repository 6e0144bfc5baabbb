#!/usr/bin/env python
"""Repeat one action many times, and check that the process stops growing once the caches are full.

    scripts/soak.py shapes                 # evaluate 5,000 shapes of one softmax
    scripts/soak.py calls                  # call operators eagerly with 5,000 shapes
    scripts/soak.py model                  # run an ONNX model with 2,000 shapes
    scripts/soak.py operators              # create 20,000 operators, compile none
    scripts/soak.py devices                # create and drop 400 devices, each evaluating an operator
    scripts/soak.py shapes -n 60 -e 10     # fewer, with caches of ten entries

Prints the resident memory of the process, and exits with 1 if it grows by more than -g MiB after the caches are full.
Works on Linux only, because it reads /proc.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import dmlgpu
from dmlgpu import CacheLimits, DataType, Device, TensorDesc, descs, ops
from dmlgpu.common.cache import Cache
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.program_cache import without_files
from dmlgpu.compiler.sizes.networks import RecordedNetwork
from dmlgpu.compiler.sizes.programs import PlannedNetwork
from dmlgpu.frontends.onnx.session import runner_of
from dmlgpu.runtime.specialization import Specialize
from dmlgpu.tensors.session import session_of

COUNTS = {"shapes": 5000, "calls": 5000, "model": 2000, "operators": 20000, "devices": 400}
FIRST_DEVICES = 10
"""Devices after which what all of them share is there."""
LINES = 20
STATUS = Path("/proc/self/status")


def resident() -> float:
    """The process's resident memory in MiB."""
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def softmax(index: int) -> descs.ActivationSoftmax1:
    """One of any number of shapes."""
    tensor = TensorDesc(DataType.FLOAT32, (2 + index, 4))
    return descs.ActivationSoftmax1(input_tensor=tensor, output_tensor=tensor, axes=(1,))


def evaluate(index: int, device: Device) -> None:
    """Run a softmax and check what it computes."""
    desc = softmax(index)
    ones = np.ones(desc.input_tensor.sizes, np.float32)
    (result,) = dmlgpu.evaluate(desc, [ones], device)
    assert np.allclose(result, ones / ones.shape[1], rtol=1e-5), f"softmax of {ones.shape} is wrong"


def shapes(count: int, adapter: str | None, limits: CacheLimits | None) -> Iterator[bool]:
    """Evaluate shapes; says each time whether the caches are full."""
    device = Device(adapter)
    if limits is not None:
        device.pipeline_cache.limits = limits
    for index in range(count):
        evaluate(index, device)
        shares = device.backend.specializer.policy is Specialize.NEVER
        yield compiler.programs.info.evictions > 0 and (shares or device.pipeline_cache.info.evictions > 0)
    print(device.pipeline_cache.info)


def small_caches(device: Device) -> tuple[Cache[Any, Any], ...]:
    """Caches of thousands of small entries, each some KiB of the process: uniforms, and work on some memory."""
    return device.backend.binder.uniforms, session_of(device).recorded


def calls(count: int, adapter: str | None, limits: CacheLimits | None) -> Iterator[bool]:
    """Call operators with ever larger tensors; says each time whether the caches are full."""
    device = Device(adapter)
    session = session_of(device)
    caches = {"pipelines": device.pipeline_cache, "operators": session.calls, "recordings": session.recorded}
    for cache in (*caches.values(), *small_caches(device)) if limits else ():
        cache.limits = limits
    for index in range(count):
        x = np.ones((2 + index, 4), np.float32)
        result = ops.softmax(dmlgpu.Tensor(x, device=device)).numpy()
        assert np.allclose(result, 0.25), f"softmax of {x.shape} is wrong"
        yield session.calls.info.evictions > 0
    for name, cache in caches.items():
        print(name, cache.info)


def model(count: int, adapter: str | None, limits: CacheLimits | None) -> Iterator[bool]:
    """Run a model with ever larger inputs; says each time whether the caches are full."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4]) for name in "xy")
    weights = numpy_helper.from_array(np.eye(4, dtype=np.float32), "weights")
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["product"]),
        helper.make_node("Softmax", ["product"], ["y"], axis=-1),
    ]
    device = Device(adapter)
    session = dmlgpu.load(
        helper.make_model(
            helper.make_graph(nodes, "softmax", [x], [y], [weights]),
            opset_imports=[helper.make_opsetid("", 20)],
            ir_version=9,
        ),
        device,
    )
    for cache in (device.pipeline_cache, *small_caches(device)) if limits else ():
        cache.limits = limits
    for index in range(count):
        array = np.ones((2 + index, 4), np.float32)
        assert np.allclose(session.run({"x": array})["y"], 0.25), f"the model is wrong for {array.shape}"
        yield runner_of(session).stages.info.evictions > 0
    print("pipelines", device.pipeline_cache.info)
    print("stages", runner_of(session).stages.info)
    print("plans", sum(isinstance(known, PlannedNetwork | RecordedNetwork) for known in gc.get_objects()))


def operators(count: int, adapter: str | None, _: CacheLimits | None) -> Iterator[bool]:
    """Create operators; says each time whether the cache is full."""
    device = Device(adapter)
    for index in range(count):
        device.create_operator(softmax(index))
        yield compiler.programs.info.evictions > 0


def devices(count: int, adapter: str | None, _: CacheLimits | None) -> Iterator[bool]:
    """Make and drop devices; says each time whether those that come first were there."""
    for index in range(count):
        evaluate(0, Device(adapter))
        yield index >= FIRST_DEVICES


def watch(soak: Callable[[int, str | None, CacheLimits | None], Iterator[bool]], options: argparse.Namespace) -> float:
    """Print the resident memory on the way; return by how many MiB it grew after the caches were full."""
    limits = None if options.entries is None else CacheLimits(entries=options.entries, size=1 << 40)
    compiler.programs.limits = limits or compiler.programs.limits
    begin, start, first = resident(), time.perf_counter(), None
    print(f"{'count':>7} {'seconds':>8} {'MiB':>8}")
    for count, is_full in enumerate(soak(options.count, options.adapter, limits), 1):
        if is_full and first is None:
            first = resident()
            print(f"{count:7} {time.perf_counter() - start:8.1f} {first:8.1f} the caches are full")
        elif count % max(1, options.count // LINES) == 0:
            print(f"{count:7} {time.perf_counter() - start:8.1f} {resident():8.1f}", flush=True)
    print(compiler.programs.info)
    if first is None:
        raise SystemExit("the caches never became full; do it more often, or give them fewer entries")
    end = resident()
    print(f"begin {begin:.1f} MiB, caches full {first:.1f}, end {end:.1f}: grown by {end - first:.1f}")
    return end - first


def main() -> None:
    """Return 1 if the process grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=COUNTS)
    parser.add_argument("-n", "--count", type=int, help="number of repetitions")
    parser.add_argument("-e", "--entries", type=int, help="entries of each cache; the default limits otherwise")
    parser.add_argument("-g", "--growth", type=float, default=32, help="MiB by which the process may grow")
    parser.add_argument("-a", "--adapter", help="part of an adapter's name")
    options = parser.parse_args()
    options.count = options.count or COUNTS[options.what]
    soak = {"shapes": shapes, "calls": calls, "model": model, "operators": operators, "devices": devices}[options.what]
    with without_files():
        grown = watch(soak, options)
    sys.exit(grown > options.growth)


if __name__ == "__main__":
    main()
