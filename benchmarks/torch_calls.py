"""CPU time of eager calls on PyTorch's device, of the thread that calls: tensors of 16 elements, and a layer.

    python benchmarks/torch_calls.py [ADAPTER] [NAME ...]

Prints the minimum of three series of 300 calls (20 of the layer), in microseconds. ``ADAPTER`` may be ``cpu``, for
PyTorch's own CPU kernels. Compare two versions by runs in turn.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

SERIES, CALLS, CALLS_OF_LAYER, GROUP = 3, 300, 20, 20

Call = Callable[[], Any]


def operators(device: str) -> dict[str, Call]:
    """Return calls of operators by name."""
    torch.manual_seed(0)
    a, b = torch.randn(4, 4).to(device), torch.randn(4, 4).to(device)
    weight, bias = torch.ones(4).to(device), torch.zeros(4).to(device)
    image, kernel = torch.randn(1, 1, 4, 4).to(device), torch.randn(1, 1, 3, 3).to(device)
    indices = torch.tensor([1, 2, 3]).to(device)
    return {
        "add": lambda: a + b,
        "add_": lambda: a.add_(bias),
        "add_ of a view": lambda: a[1].add_(bias),
        "relu": lambda: torch.relu(a),
        "mul by a number": lambda: a * 0.5,
        "gt": lambda: a > b,
        "matmul": lambda: a @ b,
        "softmax": lambda: torch.softmax(a, -1),
        "sum": lambda: torch.sum(a),
        "layer_norm": lambda: functional.layer_norm(a, (4,), weight, bias),
        "linear": lambda: functional.linear(a, b, bias),
        "conv2d": lambda: functional.conv2d(image, kernel, padding=1),
        "embedding": lambda: functional.embedding(indices, a),
        "cat": lambda: torch.cat((a, b)),
        "dropout": lambda: functional.dropout(a),
        "randn": lambda: torch.randn(4, 4, device=device),
        "argmax": lambda: a.argmax(-1),
        "view": lambda: a.view(16),
        "t().contiguous()": lambda: a.t().contiguous(),
        "half": lambda: a.to(torch.float16),
        "zeros_like": lambda: torch.zeros_like(a),
        "float": lambda: float(weight[0]),
    }


def layers(device: str) -> dict[str, Call]:
    """Return calls of a ``TransformerEncoderLayer`` on 2x32x128 elements by name."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True).to(device)
    x = torch.randn(2, 32, 128).to(device)
    optimizer = torch.optim.Adam(layer.parameters())

    def both() -> None:
        layer.zero_grad()
        layer(x).sum().backward()

    def step() -> None:
        both()
        optimizer.step()

    calls: dict[str, Call] = {
        "layer, forward": torch.no_grad()(lambda: layer(x)),
        "layer, forward and backward": both,
        "layer, step of Adam": step,
    }
    if device == "dml":
        compiled = torch.compile(layer, backend="dmlgpu")
        calls["layer, compiled forward"] = torch.no_grad()(lambda: compiled(x))
    return calls


def floor() -> dict[str, Call]:
    """Return a call of an operator that does nothing: what PyTorch takes to call a kernel in Python."""
    x = torch.zeros(4, 4, device="dml")
    library = torch.library.Library("dmlgpu_calls", "DEF")
    library.define("nothing(Tensor x, Tensor y) -> Tensor")
    library.impl("nothing", lambda x, y: x, "PrivateUse1")
    return {"nothing": lambda: (torch.ops.dmlgpu_calls.nothing(x, x), library)}


def arrays() -> dict[str, Call]:
    """Return calls of dmlgpu's own functions."""
    import dmlgpu  # noqa: PLC0415 - the adapter is chosen before
    import dmlgpu.array as xp  # noqa: PLC0415

    x, tensor = xp.asarray([float(i) for i in range(16)], dtype=xp.float32), dmlgpu.Tensor(range(16), "float32")
    return {"dmlgpu.array: add": lambda: x + x, "dmlgpu.ops.relu": lambda: dmlgpu.ops.relu(tensor)}


def microseconds(call: Call, calls: int, synchronize: Callable[[], None]) -> float:
    """Return the CPU time of a call: the minimum of several series, without waits for the device."""
    for _ in range(2 * GROUP):
        call()
    series = []
    for _ in range(SERIES):
        synchronize()
        gc.collect()
        gc.disable()
        spent = 0.0
        for _ in range(calls // GROUP):
            start = time.thread_time()
            for _ in range(GROUP):
                call()
            spent += time.thread_time() - start
            synchronize()
        gc.enable()
        series.append(spent / calls)
    return min(series) * 1e6


def main(adapter: str = "llvmpipe", *names: str) -> None:
    """Print the time of each call, or of those that are named."""
    device, synchronize = adapter, lambda: None
    calls: dict[str, Call] = {}
    if adapter != "cpu":
        os.environ["DMLGPU_ADAPTER"] = adapter
        import dmlgpu.torch  # noqa: F401, PLC0415 - registers the device

        device, synchronize = "dml", torch.dml.synchronize  # type: ignore[attr-defined]
        calls = floor() | arrays()
    calls |= operators(device) | layers(device)
    for name in names or calls:
        count = CALLS_OF_LAYER if name.startswith("layer,") else CALLS
        print(f"{name:28} {microseconds(calls[name], count, synchronize):9.1f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
