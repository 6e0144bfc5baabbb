"""A picture read: lines found, cut out, turned upright and recognised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

from dmlgpu.demo.ocr.crops import DIRECTION_WIDTH, Picture, batches, bucket, cut, line_width
from dmlgpu.demo.ocr.detection import boxes, detection_input
from dmlgpu.demo.ocr.models import Models
from dmlgpu.demo.ocr.recognition import decode
from dmlgpu.demo.ocr.rectangles import Points

UPSIDE_DOWN = 0.9
"""From this probability on, a line is turned around."""

LEAST_PROBABILITY = 0.5
"""Of a line's characters in the mean; what is less probable is no text."""

LONGEST_SIDE = 960
"""Of the picture in which lines are looked for."""


@dataclass(frozen=True)
class Line:
    """A line of text.

    Attributes:
        text: what it says.
        probability: the mean of its characters'.
        corners: clockwise from the top left, {4, 2}, in pixels of the picture.
    """

    text: str
    probability: float
    corners: Points


def read_text(image: Image.Image, models: Models, longest_side: int = LONGEST_SIDE) -> list[Line]:
    """Find and read the lines of text in an RGB picture, in the order in which one reads."""
    found = models.detection(detection_input(image, longest_side))
    corners = [box.corners for box in boxes(found[0, 0], *image.size)]
    picture = np.asarray(image)
    lines = upright([cut(picture, one) for one in corners], models)
    texts = [("", 0.0)] * len(lines)
    for numbers, batch in batches(lines, [bucket(line_width(line)) for line in lines]):
        probabilities = models.recognition(batch)
        for row, number in enumerate(numbers):
            texts[number] = decode(probabilities[row], models.characters)
    read = [Line(text, probability, place) for (text, probability), place in zip(texts, corners, strict=True)]
    return [line for line in read if line.text and line.probability >= LEAST_PROBABILITY]


def upright(lines: list[Picture], models: Models) -> list[Picture]:
    """Return lines, those turned around of which the direction model says that they stand on their heads."""
    turned = list(lines)
    for numbers, batch in batches(lines, [DIRECTION_WIDTH] * len(lines)):
        probabilities = models.direction(batch)
        for row, number in enumerate(numbers):
            if probabilities[row, 1] > UPSIDE_DOWN:
                turned[number] = np.rot90(lines[number], 2)
    return turned
