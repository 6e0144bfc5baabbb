"""The picture that is read when none is given: lines in the two fonts that Pillow carries, at several angles."""

from __future__ import annotations

import math

from PIL import Image, ImageDraw, ImageFont

TITLE = "DirectML on every GPU"
LINES = ("177 operators in WGSL", "Graphs fused into few kernels", "No CUDA, no vendor lock-in")
COMMAND = "dmlgpu demo ocr"
UPSIDE_DOWN = "This line stands on its head"
CLIMBING = "and this one climbs a hill"
TEXTS = (TITLE, *LINES, COMMAND, UPSIDE_DOWN, CLIMBING)
"""What is written, from top to bottom."""

SIZE = (640, 448)
MARGIN = 32
PAPER, INK, BLUE, RED, GREEN = "#faf7f0", "#22252b", "#1f4e8c", "#a63a2b", "#7ee08a"


def sample() -> Image.Image:
    """Return the picture, 640 x 448; the same wherever Pillow is."""
    image = Image.new("RGB", SIZE, PAPER)
    image.paste(_outlines(TITLE, 40, BLUE), (MARGIN, 20))
    for text, top in zip(LINES, (82, 128, 174), strict=True):
        image.paste(_outlines(text, 29, INK), (MARGIN, top))
    image.paste(_pixels(COMMAND, 2), (MARGIN, 228))
    around = _outlines(UPSIDE_DOWN, 29, INK).rotate(180)
    image.paste(around, (SIZE[0] - around.width - MARGIN, 280))
    hill = _outlines(CLIMBING, 31, RED).rotate(10, Image.Resampling.BICUBIC, expand=True, fillcolor=PAPER)
    image.paste(hill, (MARGIN, SIZE[1] - hill.height - 8))
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
    image = Image.new("RGB", (math.ceil(width) + 12, math.ceil(height) + 8), INK)
    ImageDraw.Draw(image).text((6, 4), text, GREEN, font)
    return image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)
