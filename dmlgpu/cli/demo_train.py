"""``dmlgpu demo train``: train a network on digits, and compare with PyTorch."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from dmlgpu.cli import tables
from dmlgpu.cli.devices import choose_adapter
from dmlgpu.cli.tables import status
from dmlgpu.common.files import whole_file
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.demo.training import (
    FIRST_STEPS,
    TOLERANCE,
    Adam,
    Digits,
    TorchTrainer,
    Trainer,
    batch_order,
    draw_losses,
    first_difference,
    initial_parameters,
    load_digits,
    torch_losses,
)
from dmlgpu.runtime.adapters import ADAPTER_VARIABLE
from dmlgpu.runtime.device import Device

Losses = NDArray[np.float32]
Show = Callable[[str], None]


class Task(NamedTuple):
    """A training task: digits, the images of each step's batch, initial parameters, and the optimizer."""

    digits: Digits
    order: NDArray[np.uint32]
    parameters: Mapping[str, Losses]
    adam: Adam


REPORTS = 10
"""Number of losses to print."""


def demo(target: Path, adapter: str | None, *, steps: int, batch: int, seed: int, with_torch: bool) -> None:
    """Train; write a plot of the losses; print losses, times and accuracy on held-out digits.

    Raises:
        OSError: If the plot cannot be written.
        AdapterNotFound: If no adapter matches.
        ModuleNotFoundError: If PyTorch shall train, and is not installed.
        typer.Exit: With code 1 if the losses of PyTorch differ.
    """
    start = time.perf_counter()
    digits = load_digits(seed)
    order = batch_order(len(digits.train_images), steps, batch, seed)
    task = Task(digits, order, initial_parameters(seed), Adam())
    info = choose_adapter(adapter)
    print(f"adapter: {info}", flush=True)
    with status() as show:
        train = _train_with_torch if with_torch else _train
        losses, work, read = train(show, info, task)
        show("training with torch on the CPU")
        theirs = _theirs(task)
    _print_losses({"dmlgpu": losses} | theirs)
    print(work)
    if read:
        print(read)
    difference = _print_comparison(losses, theirs)
    how = f"{read.replace(' are', '')}; forward, backward and ADAM" if read else "PyTorch's autograd and Adam"
    subtitle = f"{how} on {info.name.partition(' (')[0]}"
    with whole_file(target) as stream:
        picture = draw_losses({"dmlgpu": losses} | theirs, f"Loss of {steps} steps", subtitle)
        picture.save(stream, "PNG", optimize=True)
    print(f"{target}: {time.perf_counter() - start:.1f} s in all")
    if difference > TOLERANCE or not np.isfinite(losses).all():
        raise typer.Exit(1)


def _train(show: Show, info: AdapterInfo, task: Task) -> tuple[Losses, str, str]:
    """Train with one graph per step; return the losses, and sentences on the work and the accuracy."""
    start, steps = time.perf_counter(), len(task.order)
    show("compiling")
    trainer = Trainer(Device(info), *task)
    trainer.advance(1)
    trainer.losses()
    ready = time.perf_counter()
    for done in range(1, steps, 25):
        show(f"step {done} of {steps}")
        trainer.advance(min(25, steps - done))
    losses = trainer.losses()
    following = (time.perf_counter() - ready) / max(steps - 1, 1)
    show("reading held-out digits")
    program = trainer.compiled.program
    kernels = "" if program is None else f" in {len(program.kernels)} kernels"
    work = f"a step is one graph of {trainer.operators} operators{kernels}: {_times(ready - start, following)}"
    return losses, work, f"{trainer.accuracy():.1%} of {len(task.digits.test_images)} held-out digits are read right"


def _train_with_torch(show: Show, info: AdapterInfo, task: Task) -> tuple[Losses, str, str]:
    """Train with PyTorch's device "dml"; return the losses, a sentence on the work, and none on the accuracy."""
    os.environ[ADAPTER_VARIABLE] = str(info)
    importlib.import_module("dmlgpu.frontends.torch")
    show("compiling")
    start = time.perf_counter()
    trainer = TorchTrainer(*task, "dml")
    steps = len(task.order)
    trainer.advance(1)
    trainer.losses()
    ready = time.perf_counter()
    show(f"{steps} steps")
    trainer.advance(steps - 1)
    losses = trainer.losses()
    following = (time.perf_counter() - ready) / max(steps - 1, 1)
    work = f"a step is compiled by torch.compile: {_times(ready - start, following)}"
    return losses, work, ""


def _times(first: float, following: float) -> str:
    return f"the first step after {first:.1f} s, the others in {following * 1e3:.1f} ms each"


def _theirs(task: Task) -> dict[str, Losses]:
    """Return the losses of PyTorch, by its name; empty if it is not installed."""
    try:
        return {"torch": torch_losses(*task)}
    except ModuleNotFoundError:
        return {}


def _print_losses(losses: Mapping[str, Losses]) -> None:
    steps = len(losses["dmlgpu"])
    chosen = np.unique(np.linspace(0, steps - 1, REPORTS).round().astype(int))
    rows = [[str(step + 1), *(f"{series[step]:.4f}" for series in losses.values())] for step in chosen]
    columns = ["step", *(f"loss, {name}" for name in losses)]
    tables.table(columns, rows, right=tuple(range(len(columns))))


def _print_comparison(losses: Losses, theirs: Mapping[str, Losses]) -> float:
    """Print and return the difference from the losses of PyTorch; 0 if it is not installed."""
    if not theirs:
        print("torch is not installed, so nothing was compared; install it with: pip install torch")
        return 0.0
    difference = first_difference(losses, theirs["torch"])
    print(
        f"torch: losses of the first {min(FIRST_STEPS, len(losses))} steps differ by at most {difference:.1e} of them"
    )
    return difference
