"""Reasons in error messages of wgpu-native and Dawn."""

from __future__ import annotations

import re
from typing import Final

_OF_TINT: Final = re.compile(r":(\d+):\d+ error: (.*)")
"""An error of Dawn's compiler, with the number of the line."""


def reason_of(error: Exception) -> str:
    """Return the innermost reason of an error, on one line: wgpu-native's last, Dawn's first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[0] if lines[-1].startswith("- While ") else lines[-1]


def fault_of(error: Exception) -> str | None:
    """Return Tint's first error message, or the headline of naga's report with details that the headline omits; None if
    an error has no report."""
    text = str(error)
    if tint := _OF_TINT.search(text):
        return tint[2]
    if parsing := re.search(r"parsing error: (.*)", text):
        notes = re.findall(r"│ +[\^-]+ (.*)", text)
        return "; ".join([parsing[1], *(note for note in notes if note not in parsing[1])])
    if validation := re.search(r"Shader.* validation error: (.*)", text):
        causes = re.findall(r"^ += (.*)", text, re.MULTILINE)
        return ": ".join([validation[1], *causes[-1:]])
    return None


def line_of(error: Exception) -> int | None:
    """Return the number of the line of WGSL that a compiler's report names."""
    text = str(error)
    place = re.search(r"┌─ .*:(\d+):\d+", text) or _OF_TINT.search(text)
    return None if place is None else int(place[1])
