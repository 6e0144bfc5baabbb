"""The mechanical mapping between DirectML's names and Python's."""

from __future__ import annotations

import functools
import re

_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ACRONYMS = {"roi": "ROI"}
_KEPT = 1024
"""More than the catalog has names; names in models that somebody else wrote may be any number."""


@functools.lru_cache(maxsize=_KEPT)
def to_snake(name: str) -> str:
    """Return the Python name of a DirectML field: ``OutputROIGradientTensor`` -> ``output_roi_gradient_tensor``."""
    return _WORD_STARTS.sub("_", name).lower()


@functools.lru_cache(maxsize=_KEPT)
def to_directml(name: str) -> str:
    """Return the DirectML name of a Python field: ``a_zero_point_tensor`` -> ``AZeroPointTensor``."""
    return "".join(_ACRONYMS.get(word, word.capitalize()) for word in name.split("_"))


def class_name(operator: str) -> str:
    """Return the name of an operator's description class: ``UPSAMPLE_2D`` -> ``Upsample2d``."""
    return "".join(word.capitalize() for word in operator.split("_"))
