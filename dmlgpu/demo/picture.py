"""Reading the photograph and laying out the demo's picture. Needs the ``demo`` extra."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps

from dmlgpu.demo.palette import Reduction

BACKGROUND, INK, FAINT = "#15181d", "#f4f1ea", "#9aa3ad"
MARGIN, GAP, PANEL, RADIUS = 36, 24, 400, 10
SCALE = 4  # words and rounded corners are drawn larger, then shrunk: at its own size the font is uneven


def load_photo(path: Path | None, size: int) -> NDArray[np.uint8]:
    """Return a photograph {height, width, 3}, its longer side shrunk to at most ``size`` pixels.

    Args:
        path: any file that Pillow reads; None is the portrait of Eileen Collins (NASA, public domain) that
            scikit-image ships.

    Raises:
        OSError: the file is missing or is no picture.
    """
    if path is None:
        from skimage import data  # noqa: PLC0415 - slow to import, and not needed for one's own photograph

        image = Image.fromarray(data.astronaut())
    else:
        try:
            with Image.open(path) as opened:
                image = ImageOps.exif_transpose(opened).convert("RGB")
        except (Image.DecompressionBombError, SyntaxError, ValueError) as error:  # what Pillow raises beside OSError
            raise OSError(f"{path}: {error}") from error
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
    _write(canvas, (MARGIN, MARGIN - 4), f"A photograph in {len(reduction.colors)} colours", INK, 30)
    _write(canvas, (MARGIN, MARGIN + 38), subtitle, FAINT, 16)
    for number, (image, (title, operators)) in enumerate(zip(images, captions, strict=True)):
        left = MARGIN + number * (PANEL + GAP)
        _paste_rounded(canvas, Image.fromarray(image), (left, top), panel)
        _write(canvas, (left, top + panel[1] + 8), title, INK, 17)
        _write(canvas, (left, top + panel[1] + 31), operators, FAINT, 13)
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
    _paste_rounded(canvas, strip, (MARGIN, top), (span, height))
    count = len(reduction.colors)
    for number, (color, share) in enumerate(zip(reduction.colors, reduction.shares, strict=True)):
        if span / count < 60:
            break  # no room for words
        middle = MARGIN + span * (2 * number + 1) // (2 * count)
        text = "#" + "".join(f"{channel:02x}" for channel in color)
        _write(canvas, (middle, top + height + 8), text, INK, 14, anchor="ma")
        _write(canvas, (middle, top + height + 27), f"{share:.1%}", FAINT, 13, anchor="ma")


def _paste_rounded(canvas: Image.Image, image: Image.Image, corner: tuple[int, int], size: tuple[int, int]) -> None:
    grows = size[0] > image.width
    image = image.resize(size, Image.Resampling.NEAREST if grows else Image.Resampling.LANCZOS)
    mask = Image.new("L", (size[0] * SCALE, size[1] * SCALE))
    ImageDraw.Draw(mask).rounded_rectangle((0, 0, mask.width - 1, mask.height - 1), RADIUS * SCALE, 255)
    canvas.paste(image, corner, mask.resize(size, Image.Resampling.LANCZOS))


def _write(canvas: Image.Image, at: tuple[int, int], text: str, color: str, size: int, *, anchor: str = "la") -> None:
    font = ImageFont.load_default(size * SCALE)
    left, top, right, bottom = (round(edge) for edge in font.getbbox(text, anchor=anchor))
    # Whole pixels of the small picture, so that shrinking moves nothing.
    left, top = left // SCALE * SCALE, top // SCALE * SCALE
    width, height = -(-(right - left) // SCALE), -(-(bottom - top) // SCALE)
    mask = Image.new("L", (width * SCALE, height * SCALE))
    ImageDraw.Draw(mask).text((-left, -top), text, 255, font, anchor=anchor)
    corner = (at[0] + left // SCALE, at[1] + top // SCALE)
    canvas.paste(
        color, (*corner, corner[0] + width, corner[1] + height), mask.resize((width, height), Image.Resampling.BOX)
    )
