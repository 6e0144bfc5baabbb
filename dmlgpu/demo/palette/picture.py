"""Reading the photograph and laying out the picture of its palette. Needs the ``demo`` extra."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dmlgpu.demo.drawing import BACKGROUND, FAINT, INK, load_picture, paste_rounded, write
from dmlgpu.demo.palette.reduction import Reduction

MARGIN, GAP, PANEL = 36, 24, 400


def load_photo(path: Path | None, size: int) -> NDArray[np.uint8]:
    """Return a photograph {height, width, 3}, its longer side shrunk to at most ``size`` pixels.

    Args:
        path: any file that Pillow reads; None is the portrait of Eileen Collins (NASA, public domain) that
            scikit-image ships.
        size: in pixels.

    Raises:
        OSError: the file is missing or is no picture.
    """
    if path is None:
        from skimage import data  # noqa: PLC0415 - slow to import, and not needed for one's own photograph

        image = Image.fromarray(data.astronaut())
    else:
        image = load_picture(path)
    image.thumbnail((size, size), Image.Resampling.LANCZOS)
    return np.asarray(image, np.uint8)


def compose(reduction: Reduction, subtitle: str) -> Image.Image:
    """Return the picture: before, after and a mirrored detail side by side, the palette below."""
    height, width, _ = reduction.photo.shape
    panel = (PANEL, max(1, round(PANEL * height / width)))
    captions = _captions(reduction)
    images = (reduction.photo, reduction.painted, reduction.mirrored)
    top, strip = MARGIN + 74, 56
    canvas = Image.new("RGB", (2 * MARGIN + 3 * PANEL + 2 * GAP, top + panel[1] + 66 + strip + 44 + MARGIN), BACKGROUND)
    write(canvas, (MARGIN, MARGIN - 4), f"A photograph in {len(reduction.colors)} colours", INK, 30)
    write(canvas, (MARGIN, MARGIN + 38), subtitle, FAINT, 16)
    for number, (image, (title, operators)) in enumerate(zip(images, captions, strict=True)):
        left = MARGIN + number * (PANEL + GAP)
        paste_rounded(canvas, Image.fromarray(image), (left, top), panel)
        write(canvas, (left, top + panel[1] + 8), title, INK, 17)
        write(canvas, (left, top + panel[1] + 31), operators, FAINT, 13)
    _draw_palette(canvas, reduction, top + panel[1] + 66, strip)
    return canvas


def _captions(reduction: Reduction) -> Sequence[tuple[str, str]]:
    before = len(np.unique(reduction.photo.reshape(-1, 3), axis=0))
    return (
        (f"Before: {before:,} colours", "the pixels as they come"),
        (f"After: {len(reduction.colors)} colours", "DIFFERENCE_SQUARE, REDUCE, ARGMIN, GATHER_ND1"),
        ("A detail in the mirror", "SLICE1 with a negative stride"),
    )


def _draw_palette(canvas: Image.Image, reduction: Reduction, top: int, height: int) -> None:
    span = canvas.width - 2 * MARGIN
    strip = Image.fromarray(reduction.strip)
    paste_rounded(canvas, strip, (MARGIN, top), (span, height))
    count = len(reduction.colors)
    for number, (color, share) in enumerate(zip(reduction.colors, reduction.shares, strict=True)):
        if span / count < 60:
            break  # no room for words
        middle = MARGIN + span * (2 * number + 1) // (2 * count)
        text = "#" + "".join(f"{channel:02x}" for channel in color)
        write(canvas, (middle, top + height + 8), text, INK, 14, anchor="ma")
        write(canvas, (middle, top + height + 27), f"{share:.1%}", FAINT, 13, anchor="ma")
