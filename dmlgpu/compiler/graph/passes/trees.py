"""Trees of sources as passes take them apart and put them together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dmlgpu.compiler.graph.spaces import seen_from
from dmlgpu.compiler.plan import Affine, AffineView, Apply, Body, Map, Sizes, Source, Tensor
from dmlgpu.compiler.rewrites.sources import identity, is_elementwise, is_identity, rewrite


def element_wise_leaves(root: Source) -> Iterator[Tensor]:
    """Yield the tensors that a tree reads through nothing but element-wise bodies and affine views, equal ones once."""
    seen: set[int] = set()
    found: set[Tensor] = set()
    pending = [root]
    while pending:
        source = pending.pop()
        if id(source) in seen:
            continue
        seen.add(id(source))
        if isinstance(source, Tensor):
            if source not in found:
                found.add(source)
                yield source
        elif isinstance(source, Apply | AffineView) or is_identity(source):
            pending.extend(source.children)  # type: ignore[union-attr]


def simplified(root: Source) -> Source:
    """Return the tree without bodies that only hand on what they read; views stand at its tensors, as other strides."""

    def skip(source: Source) -> Source:
        if is_identity(source):
            return source.children[0]  # type: ignore[union-attr]
        if isinstance(source, AffineView) and is_elementwise(source.source):
            return seen_from(source.source, source.sizes, source.affine)
        return source

    return rewrite(root, skip)


def as_body(source: Source) -> Body:
    """Return a source as the body of a map."""
    return source if isinstance(source, Body) else identity(source)


def refined(step: Map, sizes: Sizes, affine: Affine) -> Map:
    """Return a map over a space of more, smaller dimensions."""
    body = seen_from(step.body, sizes, affine)
    assert isinstance(body, Body)
    return replace(step, body=body, output=affine.of(step.output, sizes))
