"""Passes of the graph compiler, in order of execution. They record notes, and can be disabled by name."""

from __future__ import annotations

from collections.abc import Collection

from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.compiler.graph.passes import (
    appends,
    attention,
    convolutions,
    epilogues,
    gates,
    gathers,
    inlining,
    integers,
    layouts,
    nodes,
    norms,
    numbers,
    rotations,
)

NODE_PASSES = (
    nodes.CONSTANTS,
    nodes.DUPLICATES,
    gathers.SLICES,
    convolutions.PADDING,
    convolutions.BIAS,
    convolutions.BATCH_NORMALIZATION,
    nodes.DEAD,
    nodes.INITIALIZATION,
)
"""Passes over the nodes of a network."""

STEP_PASSES = (
    inlining.ELEMENT_WISE,
    attention.ATTENTION,
    epilogues.EPILOGUES,
    inlining.PROLOGUES,
    layouts.VIEWS,
    appends.APPENDS,
    numbers.NUMBERS,
    integers.OWNED,
    integers.INTEGERS,
    gates.GATES,
    norms.NORMS,
    layouts.LAYOUTS,
    gathers.SELECTIONS,
    gathers.PANELS,
    rotations.ROTATIONS,
    appends.TOGETHER,
    gathers.GATHERS,
)
"""Passes over the steps of its plan, after them."""

PASSES = (*(each.name for each in NODE_PASSES), *(each.name for each in STEP_PASSES if each.optional))
"""Names of the passes that can be disabled."""


def check_names(names: Collection[str]) -> None:
    """Raise InvalidArgument unless all names are names of passes."""
    for name in names:
        if name not in PASSES:
            raise InvalidArgument(f"disabled_passes must name passes ({', '.join(PASSES)}), got {shown(name)}")
