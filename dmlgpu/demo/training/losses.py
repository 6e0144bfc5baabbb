"""Losses: the same training by PyTorch, and a plot on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dmlgpu.demo.drawing import BACKGROUND, FAINT, INK, SCALE, write
from dmlgpu.demo.training.network import EPSILON
from dmlgpu.demo.training.trainer import Adam, Digits

FIRST_STEPS = 10
"""So many steps agree to float32's accuracy; after that, what rounding changes grows from step to step."""

TOLERANCE = 1e-3
"""How much the losses of the first steps may differ, relatively."""


def torch_losses(
    digits: Digits, order: NDArray[np.uint32], parameters: Mapping[str, NDArray[np.float32]], adam: Adam
) -> NDArray[np.float32]:
    """Return the losses of all steps, on the processor.

    Raises:
        ModuleNotFoundError: torch is not installed.
    """
    import torch  # noqa: PLC0415  only to compare with
    from torch.nn import functional  # noqa: PLC0415

    torch.set_num_threads(1)  # for layers as small as these, several wait for each other more than they compute
    tensors = {
        name: torch.tensor(array if name.startswith("filter") else array.squeeze())
        for name, array in parameters.items()
    }
    for tensor in tensors.values():
        tensor.requires_grad_()
    betas = (adam.beta1, adam.beta2)
    optimizer = torch.optim.Adam(list(tensors.values()), adam.learning_rate, betas, adam.epsilon)
    images, labels = torch.tensor(digits.train_images), torch.tensor(digits.train_labels.astype(np.int64))
    blocks = sum(name.startswith("filter") for name in parameters)
    losses = []
    for batch in order:
        numbers = torch.tensor(batch.astype(np.int64))
        values = images[numbers]
        for number in range(1, blocks + 1):
            values = functional.conv2d(values, tensors[f"filter{number}"], padding=1)
            scale, shift = tensors[f"scale{number}"], tensors[f"shift{number}"]
            values = functional.batch_norm(values, None, None, scale, shift, training=True, eps=EPSILON)
            values = functional.max_pool2d(functional.relu(values), 2)
        scores = functional.linear(values.flatten(1), tensors["weights"], tensors["bias"])
        loss = functional.cross_entropy(scores, labels[numbers])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses, np.float32)


def first_difference(losses: NDArray[np.float32], others: NDArray[np.float32]) -> float:
    """Return the largest relative difference of the losses of the first steps."""
    ours, theirs = losses[:FIRST_STEPS], others[:FIRST_STEPS]
    return float((np.abs(ours - theirs) / np.abs(theirs)).max())


WIDTH, HEIGHT = 960, 480
LEFT, TOP, RIGHT, BOTTOM = 96, 110, 36, 64
GRID = "#2b313a"
COLORS = ("#4895ef", "#f4a261")


def draw_losses(losses: Mapping[str, NDArray[np.float32]], title: str, subtitle: str) -> Image.Image:
    """Return a picture of curves.

    Args:
        losses: of each step, by what computed them; positive. At most two curves, the second one drawn thinner.
        title: above them.
        subtitle: below it.
    """
    steps = max(len(series) for series in losses.values())
    values = np.concatenate(list(losses.values()))
    low, high = math.floor(math.log10(values.min())), math.ceil(math.log10(values.max()))
    high = max(high, low + 1)
    canvas = Image.new("RGB", (WIDTH, HEIGHT), BACKGROUND)
    write(canvas, (36, 32), title, INK, 30)
    write(canvas, (36, 74), subtitle, FAINT, 16)

    def place(step: float, loss: float) -> tuple[float, float]:
        across = (step - 1) / max(steps - 1, 1)
        up = (math.log10(loss) - low) / (high - low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    large = canvas.resize((WIDTH * SCALE, HEIGHT * SCALE), Image.Resampling.NEAREST)
    draw = ImageDraw.Draw(large)
    for power in range(low, high + 1):
        ends = [place(1, 10**power), place(steps, 10**power)]
        draw.line([(x * SCALE, y * SCALE) for x, y in ends], GRID, SCALE)
    for number, curve in enumerate(losses.values()):
        points = [place(step, float(loss)) for step, loss in enumerate(curve, 1)]
        thickness = 2 * SCALE if number == 0 else SCALE
        draw.line([(x * SCALE, y * SCALE) for x, y in points], COLORS[number], thickness, joint="curve")
    picture = large.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
    for power in range(low, high + 1):
        write(picture, (LEFT - 12, round(place(1, 10**power)[1])), f"{10.0**power:g}", FAINT, 14, anchor="rm")
    for step in dict.fromkeys((1, *(round(steps * part / 5) for part in range(1, 6)))):
        write(picture, (round(place(step or 1, 1)[0]), HEIGHT - BOTTOM + 12), str(step or 1), FAINT, 14, anchor="ma")
    for number, name in enumerate(losses):
        write(picture, (WIDTH - RIGHT, 40 + 24 * number), name, COLORS[number], 16, anchor="ra")
    return picture
