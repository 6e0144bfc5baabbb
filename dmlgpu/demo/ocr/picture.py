"""The picture with the boxes, and the text beside it."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw

from dmlgpu.demo.drawing import BACKGROUND, FAINT, INK, SCALE, paste_rounded, write
from dmlgpu.demo.ocr.reading import Line

MARGIN, GAP, TOP = 36, 28, 110
LONGEST, PANEL, ROW = 640, 500, 46
COLORS = ("#f4a261", "#2a9d8f", "#e76f51", "#4895ef", "#b5179e", "#8ab17d", "#e9c46a", "#9b5de5")


def compose(image: Image.Image, lines: Sequence[Line], subtitle: str) -> Image.Image:
    """Return the picture: lines in boxes on the left, what they say on the right, each with its number and colour."""
    scale = min(1.0, LONGEST / max(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    height = max(size[1], ROW * max(len(lines), 1))
    canvas = Image.new("RGB", (2 * MARGIN + size[0] + GAP + PANEL, TOP + height + MARGIN), BACKGROUND)
    write(canvas, (MARGIN, MARGIN - 4), f"{len(lines)} {'line' if len(lines) == 1 else 'lines'} of text", INK, 30)
    write(canvas, (MARGIN, MARGIN + 38), subtitle, FAINT, 16)
    paste_rounded(canvas, _boxed(image, lines, size), (MARGIN, TOP), size)
    left = MARGIN + size[0] + GAP
    for number, line in enumerate(lines):
        top, color = TOP + number * ROW, COLORS[number % len(COLORS)]
        write(canvas, (left + 22, top), str(number + 1), color, 17, anchor="ra")
        write(canvas, (left + 36, top), _shortened(line.text), INK, 17)
        write(canvas, (left + 36, top + 22), f"{line.probability:.1%}", FAINT, 12)
    return canvas


def _boxed(image: Image.Image, lines: Sequence[Line], size: tuple[int, int]) -> Image.Image:
    """Return the picture, enlarged so that boxes get smooth edges when it is shrunk to its size again."""
    large = image.resize((size[0] * SCALE, size[1] * SCALE), Image.Resampling.BICUBIC)
    tint = Image.new("RGBA", large.size)
    draw = ImageDraw.Draw(tint)
    for number, line in enumerate(lines):
        color = COLORS[number % len(COLORS)]
        corners = [(x * large.width / image.width, y * large.height / image.height) for x, y in line.corners]
        draw.polygon(corners, fill=f"{color}30")
        draw.line([*corners, corners[0], corners[1]], fill=color, width=2 * SCALE, joint="curve")
    large.paste(tint, (0, 0), tint)
    return large


def _shortened(text: str) -> str:
    return text if len(text) <= 52 else f"{text[:51]}…"
