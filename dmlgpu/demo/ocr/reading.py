"""A picture read: lines found, cut out, turned upright and recognised; and compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from dmlgpu.demo.ocr.models import OcrModels, decode
from dmlgpu.demo.ocr.regions import (
    DIRECTION_WIDTH,
    Picture,
    Points,
    batches,
    boxes,
    bucket,
    cut,
    detection_input,
    line_width,
)

UPSIDE_DOWN = 0.9
"""From this probability on, a line is turned around."""

LEAST_PROBABILITY = 0.5
"""Of a line's characters in the mean; what is less probable is no text."""

LONGEST_SIDE = 960
"""Of the picture in which lines are looked for."""


@dataclass(frozen=True)
class TextLine:
    """A line of text.

    Attributes:
        text: what it says.
        probability: the mean of its characters'.
        corners: clockwise from the top left, {4, 2}, in pixels of the picture.
    """

    text: str
    probability: float
    corners: Points


def read_text(image: Image.Image, models: OcrModels, longest_side: int = LONGEST_SIDE) -> list[TextLine]:
    """Find and read the lines of text in an RGB picture, in the order in which one reads."""
    scores = models.detection(detection_input(image, longest_side))
    corners = [box.corners for box in boxes(scores[0, 0], *image.size)]
    picture = np.asarray(image)
    lines = upright([cut(picture, corner) for corner in corners], models)
    texts = [("", 0.0)] * len(lines)
    for numbers, batch in batches(lines, [bucket(line_width(line)) for line in lines]):
        probabilities = models.recognition(batch)
        for row, number in enumerate(numbers):
            texts[number] = decode(probabilities[row], models.characters)
    read = [TextLine(text, probability, place) for (text, probability), place in zip(texts, corners, strict=True)]
    return [line for line in read if line.text and line.probability >= LEAST_PROBABILITY]


def upright(lines: list[Picture], models: OcrModels) -> list[Picture]:
    """Return lines, those turned around of which the direction model says that they stand on their heads."""
    turned = list(lines)
    for numbers, batch in batches(lines, [DIRECTION_WIDTH] * len(lines)):
        probabilities = models.direction(batch)
        for row, number in enumerate(numbers):
            if probabilities[row, 1] > UPSIDE_DOWN:
                turned[number] = np.rot90(lines[number], 2)
    return turned


TOLERANCE = 1e-3
"""How much probabilities may differ: a hundred layers round their sums in other orders."""


@dataclass(frozen=True)
class OcrComparison:
    """Two readings of one picture.

    Attributes:
        lines: what the other models read.
        same: whether the texts are the same.
        seconds: of the other models' second runs, by stage.
        differences: the largest difference of two probabilities for the same inputs, by stage; 0 where there were none.
    """

    lines: Sequence[TextLine]
    same: bool
    seconds: Mapping[str, float]
    differences: Mapping[str, float]

    @property
    def ok(self) -> bool:
        """Whether texts are the same and probabilities near enough."""
        return self.same and all(difference <= TOLERANCE for difference in self.differences.values())


def compare(
    image: Image.Image, lines: Sequence[TextLine], models: OcrModels, others: OcrModels, longest_side: int
) -> OcrComparison:
    """Read a picture with other models, and compare them.

    Args:
        image: in RGB.
        lines: what ``models`` read in it.
        models: with the runs that it took them.
        others: the models to compare with.
        longest_side: as ``read_text`` has it.
    """
    their_lines = read_text(image, others, longest_side)
    others.forget()
    read_text(image, others, longest_side)  # the first one made ready what later ones find
    seconds = {name: sum(call.seconds for call in model.calls) for name, model in others.stages.items()}
    differences = {
        name: max(
            (float(np.abs(call.output - other.compute(call.input)).max()) for call in models.stages[name].calls),
            default=0.0,
        )
        for name, other in others.stages.items()
    }
    return OcrComparison(
        their_lines, [line.text for line in their_lines] == [line.text for line in lines], seconds, differences
    )
