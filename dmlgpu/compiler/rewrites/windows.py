"""Sliding windows as virtual tensors, for pooling, convolution and folding.

Reductions and products read these without a copy in memory:

    taken     {lead.., positions.., window..}: the element of each tap of the window at each position
    covering  {lead.., spatial.., taps..}: conversely, the elements at the positions whose windows cover this element of
              the input; a tap stands for an element of the window or, where these are fewer, for a position
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import (
    Affine,
    AffineView,
    Body,
    Element,
    Map,
    PlanTensor,
    Pool,
    Reduce,
    Reduction,
    Source,
    View,
    apply,
    constants,
    element,
)
from dmlgpu.compiler.plan.windows import Sizes, Windows, positions_of, sizes_of, taps_of

TAKEN = "window/taken"
WITHIN = "window/within"
COVERING = "window/covering"
MAX_POOLING = "pooling/max_pooling2"
WINDOW_SUM = "normalization/window_sum"

LEAD = 3
"""Number of dimensions before the spatial ones in inputs of convolutions: batch, groups, channels."""


def taken(source: Source, windows: Windows) -> Element:
    """Return the elements of windows: {lead.., positions.., window..}, 0 in the padding."""
    lead = len(source.sizes) - len(windows)
    return _body(TAKEN, source, source.sizes[:lead] + positions_of(windows) + sizes_of(windows), windows)


def seen_by(source: Source) -> tuple[Source, Windows] | None:
    """Return the input of windows, {batch, groups, channels, spatial..}, and how they slide, if a source is what they
    see as products read it, {groups, channels, window.., batch, positions..}; else None."""
    return seen_in_order(source, own_first=False, channels_last=False)


def seen_in_order(source: Source, *, own_first: bool, channels_last: bool) -> tuple[Source, Windows] | None:
    """Return the input of windows, and how they slide, if a source is what they see in an order; else None.

    Args:
        source: The source.
        own_first: Whether batch and positions come before channels and window, after the groups.
        channels_last: Whether the window comes before the channels.
    """
    if not isinstance(source, AffineView) or source.lanes > 1:
        return None
    seen = source.source
    if not isinstance(seen, Element) or seen.file != TAKEN:
        return None
    windows: Windows = dict(seen.constants)["axes"]
    positions = range(LEAD, LEAD + len(windows))
    window = tuple(dimension + len(windows) for dimension in positions)
    own, inner = (0, *positions), (*window, 2) if channels_last else (2, *window)
    order = (1, *own, *inner) if own_first else (1, *inner, *own)
    return (seen.children[0], windows) if source.affine == Affine.permutation(order) else None


def within(lead: Sizes, windows: Windows) -> Element:
    """Return 1 for elements of windows on the input, 0 for padding: {lead.., positions.., window..}."""
    sizes = lead + positions_of(windows) + sizes_of(windows)
    return Element(WITHIN, DataType.UINT32, sizes, (), constants(lead=len(lead), axes=windows))


def covering(source: Source, windows: Windows, *, placed: bool = False) -> Element:
    """Return the elements that cover each element of the input: {lead.., spatial.., taps..}, 0 for taps without
    position.

    Args:
        placed: the source has an element for each tap of each position: {lead.., positions.., window..}. Else only the
            sizes of the result are of use.
    """
    lead = len(source.sizes) - len(windows) * (2 if placed else 1)
    sizes = source.sizes[:lead] + tuple(axis.spatial for axis in windows)
    return _body(COVERING, source, (*sizes, *taps_of(windows)), windows)


def _body(file: str, source: Source, sizes: Sizes, windows: Windows) -> Element:
    """Return an element body that keeps the leading dimensions."""
    lead = len(sizes) - 2 * len(windows)
    follows = tuple(dimension if dimension < lead else None for dimension in range(len(sizes)))
    known = constants(lead=lead, axes=windows)
    return Element(file, source.data_type, sizes, (("input", source),), known, follows=(follows,))


# ---- pooling


def reduced(reduction: Reduction, seen: PlanTensor | Body, output: PlanTensor, axes: int) -> Reduce:
    """Return the step that reduces a source along the last dimensions, which the output lacks."""
    numbers = replace(output, sizes=output.sizes + (1,) * axes, strides=output.strides + (0,) * axes)
    return Reduce("", reduction, seen, tuple(range(seen.rank - axes, seen.rank)), numbers)


def temporary(seen: Body, data_type: DataType, axes: int) -> PlanTensor:
    """Return a temporary tensor for one number per position of a body of windows."""
    return PlanTensor.temporary("reduced", data_type, seen.sizes[: seen.rank - axes])


def largest_places(source: PlanTensor, windows: Windows) -> tuple[Reduce, PlanTensor]:
    """Return the step that finds the index of the selected element in each window, and the indices.

    It is that of the largest element, the first of equal ones; the reduction compares ranks, in which padding is last.
    """
    lead = source.sizes[: -len(windows)]
    wide = source.data_type.bits == 64
    rank = apply(
        "pooling/rank",
        DataType.UINT64 if wide else DataType.UINT32,
        lead + positions_of(windows) + sizes_of(windows),
        portable=True,
        input=taken(source, windows),
        inside=within(lead, windows),
    )
    values = constants(order="ascending", decreasing=False)
    file, lanes = ("reduction/argmin_wide", 4) if wide else ("reduction/argmin", 2)
    reduction = Reduction(file, DataType.UINT32, lanes, portable=True, constants=values, ordered=True)
    places = temporary(rank, DataType.UINT32, len(windows))
    return reduced(reduction, rank, places, len(windows)), replace(places, view=View.INDEX)


def place_values(windows: Windows) -> dict[str, Any]:
    """Return the template values of bodies for indices in windows over {batch, channels, spatial..}."""
    return {"lead": 2, "axes": windows, "count": math.prod(sizes_of(windows))}


def taken_from_places(pool: Pool, places: PlanTensor) -> Map:
    """Return the map that reads the elements of a pool at their indices in the windows."""
    values, output = constants(**place_values(pool.windows)), pool.output
    inputs = {"input": replace(pool.input, view=View.RAW), "places": places}
    body = element(MAX_POOLING, output.data_type, output.sizes, portable=False, values=values, **inputs)
    return Map(f"{pool.label} maximum".lstrip(), body, output)
