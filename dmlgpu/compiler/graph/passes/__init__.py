"""Passes of the graph compiler: named functions that can be disabled and record notes."""

from __future__ import annotations

from collections.abc import Collection

from dmlgpu.common.errors import InvalidArgument, shown

PASSES = (
    *("constants", "duplicates", "padding", "bias", "batch-normalization", "dead", "initialization"),
    *("element-wise", "attention", "epilogues", "prologues", "views", "integers", "gates", "layouts", "numbers"),
)
"""Names of all passes, in order of execution."""


def check_names(names: Collection[str]) -> None:
    """Raise InvalidArgument unless all names are names of passes."""
    for name in names:
        if name not in PASSES:
            raise InvalidArgument(f"disabled_passes must name passes ({', '.join(PASSES)}), got {shown(name)}")
