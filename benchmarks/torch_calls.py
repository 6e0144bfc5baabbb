"""CPU time of eager calls on PyTorch's device, of the thread that calls: tensors of 16 elements, and a layer.

    python benchmarks/torch_calls.py [ADAPTER] [NAME ...]
    python benchmarks/torch_calls.py ADAPTER --ratio [NAME ...]
    python benchmarks/torch_calls.py ADAPTER --samples PATTERN ...     "*" for all operators

Prints the minimum of three series of 300 calls (20 of the layer), in microseconds. ``ADAPTER`` may be ``cpu``, for
PyTorch's own CPU kernels. Compare two versions by runs in turn.

``--ratio`` prints units of an addition ``a + b`` instead, on which the load of a machine has less influence: the median
of 15 groups of 32 calls, each between two groups of additions, each group after a wait for the device. Then the ATen
calls that PyTorch's CPU makes, the views among them, the units per call that is no view, and the recorded calls and
kernels of a call. ``--samples`` prints the same for the first sample of OpInfo (float32) of operators, by name or
pattern, without gradients. ``PYTHONPATH`` chooses the dmlgpu that is measured.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

SERIES, CALLS, CALLS_OF_LAYER, GROUP = 3, 300, 20, 20
ROUNDS, GROUP_OF_RATIO = 15, 32

Call = Callable[[], Any]


def operators(device: str) -> dict[str, Call]:
    """Return calls of operators by name."""
    torch.manual_seed(0)
    a, b = torch.randn(4, 4).to(device), torch.randn(4, 4).to(device)
    weight, bias = torch.ones(4).to(device), torch.zeros(4).to(device)
    image, kernel = torch.randn(1, 1, 4, 4).to(device), torch.randn(1, 1, 3, 3).to(device)
    indices, targets = torch.tensor([1, 2, 3]).to(device), torch.tensor([0, 2, 1, 3]).to(device)
    mask, running = a > b, (torch.zeros(1).to(device), torch.ones(1).to(device))

    def assign(x: torch.Tensor, indices: torch.Tensor) -> None:
        x[indices] = 1.0

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
        "rand": lambda: torch.rand(4, 4, device=device),
        "max along an axis": lambda: a.max(-1),
        "topk": lambda: a.topk(2),
        "var": lambda: a.var(-1),
        "cross_entropy": lambda: functional.cross_entropy(a, targets),
        "nll_loss": lambda: functional.nll_loss(a, targets),
        "x[mask] = 1.0": lambda: assign(a, mask),
        "x[indices] = 1.0": lambda: assign(a, indices),
        "batch_norm in training": lambda: functional.batch_norm(image, *running, training=True),
        "max_pool2d": lambda: functional.max_pool2d(image, 2),
        "sdpa": lambda: functional.scaled_dot_product_attention(image, image, image),
        "einsum": lambda: torch.einsum("ij,jk->ik", a, b),
        "one_hot": lambda: functional.one_hot(indices, 4),
        "clamp_": lambda: a.clamp_(-1, 1),
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


class AtenCalls(TorchDispatchMode):
    """Counts ATen calls, and the views among them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.views = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count a call and make it."""
        self.calls += 1
        self.views += func.is_view
        return func(*args, **kwargs or {})


def group_time(call: Call, calls: int, synchronize: Callable[[], None]) -> float:
    """Return the CPU time of a call in seconds: the mean of a group that begins after a wait for the device."""
    synchronize()
    start = time.thread_time()
    for _ in range(calls):
        call()
    return (time.thread_time() - start) / calls


def ratio_line(call: Call, on_cpu: Call, synchronize: Callable[[], None]) -> str:
    """Return the units of a call, and what it consists of."""
    from dmlgpu.tensors.session import EagerSession  # noqa: PLC0415 - the adapter is chosen before

    a, b = torch.randn(4, 4).to("dml"), torch.randn(4, 4).to("dml")
    for _ in range(4):
        call()
    calls = max(1, min(GROUP_OF_RATIO, int(0.02 / group_time(call, 2, synchronize))))
    for _ in range(GROUP_OF_RATIO):
        a + b
        if calls == GROUP_OF_RATIO:
            call()
    ratios = []
    gc.collect()
    gc.disable()
    before = group_time(lambda: a + b, GROUP_OF_RATIO, synchronize)
    for _ in range(ROUNDS):
        spent = group_time(call, calls, synchronize)
        after = group_time(lambda: a + b, GROUP_OF_RATIO, synchronize)
        ratios.append(2 * spent / (before + after))
        before = after
    gc.enable()
    with AtenCalls() as aten:
        on_cpu()
    work: list[int] = []
    submit = EagerSession.submit

    def counted(session: Any, recorded: Any, *args: Any, **kwargs: Any) -> int:
        work.append(len(recorded))
        return submit(session, recorded, *args, **kwargs)

    EagerSession.submit = counted  # type: ignore[method-assign]
    call()
    EagerSession.submit = submit  # type: ignore[method-assign]
    units, computing = statistics.median(ratios), aten.calls - aten.views
    each = units / max(computing, 1)
    return f"{units:7.2f} {computing:4} + {aten.views:<3} {each:7.2f} {len(work):5} {sum(work):5}"


def samples(patterns: list[str]) -> Iterator[tuple[str, Call, Call]]:
    """Yield the name of each operator of OpInfo, and calls of its first sample on the device and the CPU."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
    from torch_operators import chosen, moved  # noqa: PLC0415

    for info in chosen(patterns):
        name = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
        torch.manual_seed(0)
        try:
            sample = next(iter(info.sample_inputs("cpu", torch.float32)))
            inputs = moved(sample, info)
        except Exception as error:  # the dtype is not supported, or there are no samples
            print(f"{name:45} {type(error).__name__}", flush=True)
            continue
        yield (
            name,
            lambda: info(inputs.input, *inputs.args, **inputs.kwargs),  # noqa: B023 - called before the next
            lambda: info(sample.input, *sample.args, **sample.kwargs),  # noqa: B023
        )


def print_ratios(calls: Iterator[tuple[str, Call, Call]], synchronize: Callable[[], None]) -> None:
    """Print units and parts of calls."""
    print(f"{'call':45} {'units':>7} {'ATen + views':>10} {'each':>5} {'runs':>5} {'kernels'}")
    for name, call, on_cpu in calls:
        try:
            print(f"{name:45} {ratio_line(call, on_cpu, synchronize)}", flush=True)
        except Exception as error:  # unsupported
            print(f"{name:45} {type(error).__name__}: {str(error)[:60]!r}", flush=True)


def main() -> None:
    """Print the time of each call, or of those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter", nargs="?", default="llvmpipe")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--ratio", action="store_true", help="units of an addition")
    parser.add_argument("--samples", action="store_true", help="names are patterns of OpInfo")
    options = parser.parse_intermixed_args()
    adapter, names = options.adapter, options.names
    device, synchronize = adapter, lambda: None
    calls: dict[str, Call] = {}
    if adapter != "cpu":
        os.environ["DMLGPU_ADAPTER"] = adapter
        import dmlgpu.torch  # noqa: F401, PLC0415 - registers the device

        device, synchronize = "dml", torch.dml.synchronize  # type: ignore[attr-defined]
    if options.samples:
        with torch.no_grad():
            print_ratios(samples(names), synchronize)
        return
    calls = operators(device)
    if options.ratio:
        on_cpu = operators("cpu")
        with torch.no_grad():
            print_ratios(((name, calls[name], on_cpu[name]) for name in names or calls), synchronize)
        return
    if adapter != "cpu":
        calls |= floor() | arrays()
    calls |= layers(device)
    for name in names or calls:
        count = CALLS_OF_LAYER if name.startswith("layer,") else CALLS
        print(f"{name:28} {microseconds(calls[name], count, synchronize):9.1f}", flush=True)


if __name__ == "__main__":
    main()
