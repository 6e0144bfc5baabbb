"""``dmlgpu demo train``: train a network on digits, and compare with PyTorch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import typer
from numpy.typing import NDArray

from dmlgpu.cli import tables
from dmlgpu.cli.devices import choose_adapter
from dmlgpu.cli.tables import status
from dmlgpu.common.files import whole_file
from dmlgpu.demo.training import (
    FIRST_STEPS,
    TOLERANCE,
    Adam,
    Trainer,
    batch_order,
    draw_losses,
    first_difference,
    initial_parameters,
    load_digits,
    torch_losses,
)
from dmlgpu.runtime.device import Device

Losses = NDArray[np.float32]

REPORTS = 10
"""Number of losses to print."""


def demo(target: Path, adapter: str | None, *, steps: int, batch: int, seed: int) -> None:
    """Train; write a plot of the losses; print losses, times and accuracy on held-out digits.

    Raises:
        OSError: If the plot cannot be written.
        AdapterNotFound: If no adapter matches.
        typer.Exit: With code 1 if the losses of PyTorch differ.
    """
    start = time.perf_counter()
    digits = load_digits(seed)
    order = batch_order(len(digits.train_images), steps, batch, seed)
    parameters, adam = initial_parameters(seed), Adam()
    device = Device(choose_adapter(adapter))
    print(f"adapter: {device.adapter}", flush=True)
    with status() as show:
        show("compiling")
        trainer = Trainer(device, digits, order, parameters, adam)
        trainer.advance(1)
        trainer.losses()
        ready = time.perf_counter()
        for done in range(1, steps, 25):
            show(f"step {done} of {steps}")
            trainer.advance(min(25, steps - done))
        losses = trainer.losses()
        trained = time.perf_counter()
        show("reading held-out digits")
        accuracy = trainer.accuracy()
        show("training with torch")
        theirs = _theirs(digits, order, parameters, adam)
    _print_losses({"dmlgpu": losses} | theirs)
    _print_work(trainer, ready - start, (trained - ready) / max(steps - 1, 1))
    count = len(digits.test_images)
    print(f"{accuracy:.1%} of {count} held-out digits are read right")
    difference = _print_comparison(losses, theirs)
    name = device.adapter.name.partition(" (")[0]
    subtitle = f"{accuracy:.1%} of {count} held-out digits read right; forward, backward and ADAM on {name}"
    with whole_file(target) as stream:
        picture = draw_losses({"dmlgpu": losses} | theirs, f"Loss of {steps} steps", subtitle)
        picture.save(stream, "PNG", optimize=True)
    print(f"{target}: {time.perf_counter() - start:.1f} s in all")
    if difference > TOLERANCE or not np.isfinite(losses).all():
        raise typer.Exit(1)


def _theirs(*arguments: object) -> dict[str, Losses]:
    """Return the losses of PyTorch, by its name; empty if it is not installed."""
    try:
        return {"torch": torch_losses(*arguments)}  # type: ignore[arg-type]
    except ModuleNotFoundError:
        return {}


def _print_losses(losses: Mapping[str, Losses]) -> None:
    steps = len(losses["dmlgpu"])
    chosen = np.unique(np.linspace(0, steps - 1, REPORTS).round().astype(int))
    rows = [[str(step + 1), *(f"{series[step]:.4f}" for series in losses.values())] for step in chosen]
    columns = ["step", *(f"loss, {name}" for name in losses)]
    tables.table(columns, rows, right=tuple(range(len(columns))))


def _print_work(trainer: Trainer, first: float, following: float) -> None:
    program = trainer.compiled.program
    kernels = "" if program is None else f" in {len(program.kernels)} kernels"
    print(
        f"a step is one graph of {trainer.operators} operators{kernels}: the first one after {first:.1f} s, "
        f"the others in {following * 1e3:.1f} ms each"
    )


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
