"""The sample picture, and the picture with boxes and the text beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from dmlgpu.demo.drawing import BACKGROUND, FAINT, INK, SCALE, paste_rounded, write
from dmlgpu.demo.ocr.reading import TextLine

TITLE = "DirectML on every GPU"
LINES = ("177 operators in WGSL", "Graphs fused into few kernels", "No CUDA, no vendor lock-in")
COMMAND = "dmlgpu demo ocr"
UPSIDE_DOWN = "This line stands on its head"
CLIMBING = "and this one climbs a hill"
TEXTS = (TITLE, *LINES, COMMAND, UPSIDE_DOWN, CLIMBING)
"""What is written, from top to bottom."""

SIZE = (640, 448)
SAMPLE_MARGIN = 32
PAPER, DARK, BLUE, RED, GREEN = "#faf7f0", "#22252b", "#1f4e8c", "#a63a2b", "#7ee08a"


def sample() -> Image.Image:
    """Return the picture, 640 x 448; the same wherever Pillow is."""
    image = Image.new("RGB", SIZE, PAPER)
    image.paste(_outlines(TITLE, 40, BLUE), (SAMPLE_MARGIN, 20))
    for text, top in zip(LINES, (82, 128, 174), strict=True):
        image.paste(_outlines(text, 29, DARK), (SAMPLE_MARGIN, top))
    image.paste(_pixels(COMMAND, 2), (SAMPLE_MARGIN, 228))
    around = _outlines(UPSIDE_DOWN, 29, DARK).rotate(180)
    image.paste(around, (SIZE[0] - around.width - SAMPLE_MARGIN, 280))
    hill = _outlines(CLIMBING, 31, RED).rotate(10, Image.Resampling.BICUBIC, expand=True, fillcolor=PAPER)
    image.paste(hill, (SAMPLE_MARGIN, SIZE[1] - hill.height - 8))
    return image


def _outlines(text: str, size: int, ink: str) -> Image.Image:
    """Return a line in the font of outlines (Aileron)."""
    font = ImageFont.load_default(size)
    left, top, right, bottom = font.getbbox(text)
    image = Image.new("RGB", (math.ceil(right - left) + 8, math.ceil(bottom - top) + 8), PAPER)
    ImageDraw.Draw(image).text((4 - left, 4 - top), text, ink, font)
    return image


def _pixels(text: str, scale: int) -> Image.Image:
    """Return a line in the font of pixels, enlarged."""
    font = ImageFont.load_default_imagefont()
    _, _, width, height = font.getbbox(text)
    image = Image.new("RGB", (math.ceil(width) + 12, math.ceil(height) + 8), DARK)
    ImageDraw.Draw(image).text((6, 4), text, GREEN, font)
    return image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)


MARGIN, GAP, TOP = 36, 28, 110
LONGEST, PANEL, ROW = 640, 500, 46
COLORS = ("#f4a261", "#2a9d8f", "#e76f51", "#4895ef", "#b5179e", "#8ab17d", "#e9c46a", "#9b5de5")


def compose(image: Image.Image, lines: Sequence[TextLine], subtitle: str) -> Image.Image:
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


def _boxed(image: Image.Image, lines: Sequence[TextLine], size: tuple[int, int]) -> Image.Image:
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
