"""What onnxruntime makes of the same picture and of the same inputs of the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from dmlgpu.demo.ocr.models import Models
from dmlgpu.demo.ocr.reading import Line, read_text

TOLERANCE = 1e-3
"""How much probabilities may differ: a hundred layers round their sums in other orders."""


@dataclass(frozen=True)
class Comparison:
    """Two readings of one picture.

    Attributes:
        lines: what the other models read.
        same: whether the texts are the same.
        seconds: of the other models' second runs, by stage.
        differences: the largest difference of two probabilities for the same inputs, by stage; 0 where there were none.
    """

    lines: Sequence[Line]
    same: bool
    seconds: Mapping[str, float]
    differences: Mapping[str, float]

    @property
    def ok(self) -> bool:
        """Whether texts are the same and probabilities near enough."""
        return self.same and all(one <= TOLERANCE for one in self.differences.values())


def compare(image: Image.Image, lines: Sequence[Line], models: Models, others: Models, longest_side: int) -> Comparison:
    """Read a picture with other models, and compare them.

    Args:
        image: in RGB.
        lines: what ``models`` read in it.
        models: with the runs that it took them.
        others: the models to compare with.
        longest_side: as ``read_text`` has it.
    """
    found = read_text(image, others, longest_side)
    others.forget()
    read_text(image, others, longest_side)  # the first one made ready what later ones find
    seconds = {name: sum(call.seconds for call in one.calls) for name, one in others.stages.items()}
    differences = {
        name: max(
            (float(np.abs(call.found - other.compute(call.given)).max()) for call in models.stages[name].calls),
            default=0.0,
        )
        for name, other in others.stages.items()
    }
    return Comparison(found, [one.text for one in found] == [one.text for one in lines], seconds, differences)
