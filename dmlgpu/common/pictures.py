"""Pictures that are read. Needs the ``demo`` extra."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageOps


def load_picture(path: Path) -> Image.Image:
    """Return a picture in RGB, turned as its file says.

    Raises:
        OSError: If the file is missing or is no picture.
    """
    try:
        with Image.open(path) as opened:
            return ImageOps.exif_transpose(opened).convert("RGB")
    except (Image.DecompressionBombError, SyntaxError, ValueError) as error:  # what Pillow raises beside OSError
        raise OSError(f"{path}: {error}") from error
