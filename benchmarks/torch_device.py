"""PyTorch's device: networks of ``torch.compile`` with the same networks as ONNX models, a training step with a graph.

    python benchmarks/torch_device.py [ADAPTER] [-k PART]
    python benchmarks/torch_device.py [ADAPTER] [-k PART] --against FOLDER

Inputs are arrays and results are read, so that both sides upload and wait alike. Times are CPU time of the process with
``DMLGPU_BENCH_CLOCK=process``, for machines that are busy. Exits with 1 when a target is missed.

With ``--against``, the networks of ``torch.compile`` are compared with the same networks in another checkout, in CPU
time: at most 1.05 times.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checkouts import compare, serve
from targets import Part, Result, main
from torch import nn
from torch.nn import functional

import dmlgpu
import dmlgpu.torch  # registers the device
from dmlgpu.bench.ratios import ratio
from dmlgpu.demo.training import Adam, TorchTrainer, Trainer, batch_order, initial_parameters, load_digits
from dmlgpu.frontends.torch import adapters

CLOCK = time.process_time if os.environ.get("DMLGPU_BENCH_CLOCK") == "process" else time.perf_counter


def mlp() -> tuple[Any, Any]:
    """A perceptron of three layers, and its input."""
    layers = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 10))
    return layers, torch.randn(64, 256)


def cnn(images: int = 1) -> tuple[Any, Any]:
    """Four convolutions with normalization and pooling, and images."""
    layers: list[Any] = []
    for before, after in ((3, 32), (32, 64), (64, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16, 10)), torch.randn(images, 3, 64, 64)


def cnn_of_eight() -> tuple[Any, Any]:
    """The same, and eight images."""
    return cnn(8)


def transformer() -> tuple[Any, Any]:
    """Two blocks of attention and feed-forward layers, and a sequence."""

    class Block(nn.Module):
        def __init__(self, width: int, heads: int):
            super().__init__()
            self.heads = heads
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            q, k, v = (
                part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for part in self.project(self.first(x)).chunk(3, dim=-1)
            )
            x = x + self.join(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            return x + self.down(functional.gelu(self.up(self.second(x))))

    return nn.Sequential(Block(256, 4), Block(256, 4)), torch.randn(1, 128, 256)


def compile_network(adapter: str, model: Any, x: Any) -> Callable[[int], Any]:
    """Return a call that runs a network on the device."""
    os.environ["DMLGPU_ADAPTER"] = adapter
    fast = torch.compile(model.eval().to("dml"), backend="dmlgpu")

    def run(_: int) -> Any:
        with torch.no_grad():
            return fast(x.to("dml")).cpu()

    return run


def compared(adapter: str, make: Callable[[], tuple[Any, Any]]) -> Iterator[Result]:
    """Inference: at most 1.1 times the same network as an ONNX model."""
    os.environ["DMLGPU_ADAPTER"] = adapter
    torch.manual_seed(0)
    model, x = make()
    model.eval()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        torch.onnx.export(model, (x,), str(path), dynamo=False)
        session = dmlgpu.load(path, device=adapters.device_of(0))
    name, array = session.inputs[0].name, x.numpy()
    with torch.no_grad():
        expected = model(x)
        compiled = compile_network(adapter, model, x)

        def loaded(_: int) -> Any:
            return session.run({name: array})

        assert torch.allclose(compiled(0), expected, atol=1e-3)
        measured = ratio(compiled, loaded, 31, calls=5, warm=5, clock=CLOCK)
    yield Result(f"{make.__name__}: torch.compile / ONNX", measured, at_most=1.1)


def compared_with(other: Path, make: Callable[[], tuple[Any, Any]], adapter: str) -> Iterator[Result]:
    """Inference: at most 1.05 times the same network in another checkout."""
    arguments = [__file__, SERVE, make.__name__, adapter]
    measured = compare(other, arguments, rounds=41, calls=10)
    yield Result(f"{make.__name__}: this checkout / {other.name}", measured, at_most=1.05)


def training(adapter: str) -> Iterator[Result]:
    """A training step of the network of ``dmlgpu demo train``: at most 1.5 times the step of its graph."""
    os.environ["DMLGPU_ADAPTER"] = adapter
    digits, parameters = load_digits(0), initial_parameters(0)
    order, steps = batch_order(len(digits.train_images), 2000, 64, 0), 10
    graph = Trainer(adapters.device_of(0), digits, order, parameters)
    trainer = TorchTrainer(digits, order, parameters, Adam(), "dml")

    def stepping(stepper: Any) -> Callable[[int], None]:
        def run(_: int) -> None:
            stepper.advance(steps)
            torch.dml.synchronize()  # type: ignore[attr-defined]

        return run

    measured = ratio(stepping(trainer), stepping(graph), 31, warm=3, clock=CLOCK)
    yield Result("training step: torch.compile / graph", measured, at_most=1.5)
    assert np.allclose(graph.losses()[:5], trainer.losses()[:5], rtol=1e-3)


NETWORKS = (mlp, cnn, cnn_of_eight, transformer)

PARTS: dict[str, Part] = {
    **{make.__name__: functools.partial(compared, make=make) for make in NETWORKS},
    "training": training,
}

SERVE = "--serve"
"""Argument of the process that ``--against`` starts in each checkout, followed by the network and the adapter."""


def serve_network(name: str, adapter: str) -> None:
    """Run a network as often as the standard input requests."""
    torch.manual_seed(0)
    (make,) = (make for make in NETWORKS if make.__name__ == name)
    serve(compile_network(adapter, *make()))


def against(other: Path) -> dict[str, Part]:
    """Return the parts that compare networks with another checkout."""
    return {make.__name__: functools.partial(compared_with, other, make) for make in NETWORKS}


if __name__ == "__main__":
    if sys.argv[1:2] == [SERVE]:
        serve_network(*sys.argv[2:])
    else:
        sys.exit(main(__doc__, PARTS, against))
