"""Drawing for the pictures of the demos. Needs the ``demo`` extra."""

from __future__ import annotations

from PIL import Image, ImageDraw, ImageFont

BACKGROUND, INK, FAINT = "#15181d", "#f4f1ea", "#9aa3ad"
RADIUS = 10
SCALE = 4  # words and rounded corners are drawn larger, then shrunk: at its own size the font is uneven


def paste_rounded(canvas: Image.Image, image: Image.Image, corner: tuple[int, int], size: tuple[int, int]) -> None:
    """Paste an image, its top left at ``corner``, resized to ``size``, with rounded corners."""
    grows = size[0] > image.width
    image = image.resize(size, Image.Resampling.NEAREST if grows else Image.Resampling.LANCZOS)
    mask = Image.new("L", (size[0] * SCALE, size[1] * SCALE))
    ImageDraw.Draw(mask).rounded_rectangle((0, 0, mask.width - 1, mask.height - 1), RADIUS * SCALE, 255)
    canvas.paste(image, corner, mask.resize(size, Image.Resampling.LANCZOS))


def write(canvas: Image.Image, at: tuple[int, int], text: str, color: str, size: int, *, anchor: str = "la") -> None:
    """Write text of ``size`` pixels; ``anchor`` is Pillow's name of the point of the text that lies ``at``."""
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
