"""What windows see, as virtual tensors: pooling, convolution, folding.

Reductions and products read these without a copy in memory:

    taken     {lead.., positions.., window..}: what each tap of the window sees at each position
    covering  {lead.., spatial.., taps..}: turned round: what lies at the positions whose windows cover this element of
              the input; a tap stands for an element of the window or, where these are fewer, for a position
"""

from __future__ import annotations

from dmlgpu.enums import DataType
from dmlgpu.plan import Affine, AffineView, Element, Source, constants
from dmlgpu.plan.windows import Sizes, Windows, positions_of, sizes_of, taps_of

TAKEN = "window/taken"
WITHIN = "window/within"
COVERING = "window/covering"

LEAD = 3
"""Dimensions before the spatial ones of what convolutions read: batch, groups, channels."""


def taken(source: Source, windows: Windows) -> Element:
    """Return what the window sees: {lead.., positions.., window..}, 0 in the padding."""
    lead = len(source.sizes) - len(windows)
    return _body(TAKEN, source, source.sizes[:lead] + positions_of(windows) + sizes_of(windows), windows)


def seen_by(source: Source) -> tuple[Source, Windows] | None:
    """Return the input of windows, {batch, groups, channels, spatial..}, and how they slide, if a source is what they
    see as products read it, {groups, channels, window.., batch, positions..}; else None."""
    if not isinstance(source, AffineView) or source.lanes > 1:
        return None
    seen = source.source
    if not isinstance(seen, Element) or seen.file != TAKEN:
        return None
    windows: Windows = dict(seen.constants)["axes"]
    positions = range(LEAD, LEAD + len(windows))
    order = (1, 2, *(dimension + len(windows) for dimension in positions), 0, *positions)
    return (seen.children[0], windows) if source.affine == Affine.permutation(order) else None


def within(lead: Sizes, windows: Windows) -> Element:
    """1 where the window sees an element of the input, 0 where padding: {lead.., positions.., window..}."""
    sizes = lead + positions_of(windows) + sizes_of(windows)
    return Element(WITHIN, DataType.UINT32, sizes, (), constants(lead=len(lead), axes=windows))


def covering(source: Source, windows: Windows, *, placed: bool = False) -> Element:
    """Return what covers each element of the input: {lead.., spatial.., taps..}, 0 where a tap stands for no position.

    Args:
        placed: the source has an element for each tap of each position: {lead.., positions.., window..}.
    """
    lead = len(source.sizes) - len(windows) * (2 if placed else 1)
    sizes = source.sizes[:lead] + tuple(axis.spatial for axis in windows)
    return _body(COVERING, source, (*sizes, *taps_of(windows)), windows, placed=placed)


def _body(file: str, source: Source, sizes: Sizes, windows: Windows, **values: bool) -> Element:
    """Return an element body that hands the leading dimensions on."""
    lead = len(sizes) - 2 * len(windows)
    follows = tuple(dimension if dimension < lead else None for dimension in range(len(sizes)))
    known = constants(lead=lead, axes=windows, **values)
    return Element(file, source.data_type, sizes, (("input", source),), known, follows=(follows,))
