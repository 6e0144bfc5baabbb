"""Text from the recognition model's probabilities: connectionist temporal classification, decoded greedily."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BLANK = 0
"""The class that stands for no character, or separates equal ones."""


def alphabet(metadata: str) -> tuple[str, ...]:
    """Return the characters of the classes from the model's metadata: one in each line, the space after them.

    The first class, which is none, is the empty string.
    """
    return ("", *metadata.splitlines(), " ")


def decode(probabilities: NDArray[np.float32], characters: Sequence[str]) -> tuple[str, float]:
    """Return the most probable text and the mean probability of its characters.

    Args:
        probabilities: of each class at each place along the line, {places, classes}.
        characters: of the classes.

    Returns:
        Of each run of places with the same most probable class the character; blanks have none. Without any character
        the probability is 0.
    """
    best = probabilities.argmax(axis=1)
    begins = np.append(True, best[1:] != best[:-1]) & (best != BLANK)
    text = "".join(characters[number] for number in best[begins])
    return text, float(probabilities.max(axis=1)[begins].mean()) if begins.any() else 0.0
