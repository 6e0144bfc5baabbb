"""The picture of the losses, on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dmlgpu.demo.drawing import BACKGROUND, FAINT, INK, SCALE, write

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
    steps = max(len(one) for one in losses.values())
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
    for number, one in enumerate(losses.values()):
        points = [place(step, float(loss)) for step, loss in enumerate(one, 1)]
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
