"""A map's body in the place of what it writes: whether that is possible and pays, and the tree that comes of it."""

from __future__ import annotations

import math

from dmlgpu.compiler.graph.passes.cost import is_cheap, is_small
from dmlgpu.compiler.graph.passes.rewriting import Rewriting, memory_of
from dmlgpu.compiler.graph.passes.trees import simplified
from dmlgpu.compiler.graph.spaces import locate, seen_from
from dmlgpu.compiler.plan import Body, Map, Role, Source, Step, Tensor, View
from dmlgpu.compiler.rewrites.sources import computed, is_costly, leaves, nodes, rewrite


def producer_of(rewriting: Rewriting, number: int, leaf: Tensor) -> tuple[int, Map] | None:
    """Return the map that writes what a step reads, with its number, if it may be computed later just as well."""
    if leaf.binding.role not in (Role.TEMPORARY, Role.OUTPUT) or leaf.view is View.INDEX:
        return None
    producer = rewriting.producer(memory_of(leaf))
    if producer is None or producer >= number:
        return None
    step = rewriting.step(producer)
    if not isinstance(step, Map) or step.keeps_neighbours or is_costly(step.body):
        return None
    return producer, step


def vanishes(rewriting: Rewriting, leaf: Tensor) -> bool:
    """Return whether nobody needs a value in memory once its only reader computes it."""
    return leaf.binding.role is Role.TEMPORARY and len(rewriting.readers(memory_of(leaf))) == 1


def reason_to_keep(rewriting: Rewriting, made: Map, leaf: Tensor, *, repeats: bool) -> str | None:
    """Return why computing a value where it is read costs more than writing and reading it; None where it costs less.

    Args:
        rewriting: the plan.
        made: what computes the value.
        leaf: what reads it.
        repeats: the reader needs each element several times.
    """
    cheap = is_cheap(made.body)
    if not cheap and (repeats or math.prod(leaf.sizes) > math.prod(made.output.sizes)):
        return "is dear, and repeated"
    if vanishes(rewriting, leaf) and not repeats:
        return None
    if not cheap:
        return "is dear, and read elsewhere, too"
    if sum(tensor.distinct_bytes for tensor in set(leaves(made.body))) > made.output.distinct_bytes:
        return "is smaller than what it is computed from, and read again"
    return None


def inlined(tree: Source, leaf: Tensor, made: Map) -> Source | None:
    """Return a tree with a map's body in the place of a leaf; None where no affine map leads from the leaf to what the
    map writes, or the tree becomes too large."""
    affine = locate(leaf, made.output)
    if affine is None or (leaf.view is not View.RAW and any(_is_bits(node) for node in nodes(made.body))):
        return None
    given = made.body if leaf.view is View.RAW else computed(made.body)
    body = seen_from(given, leaf.sizes, affine)
    found = simplified(rewrite(tree, lambda source: body if source == leaf else source))
    return found if is_small(found) else None


def take_in(rewriting: Rewriting, number: int, producer: int, fused: Step | str, *, pass_name: str) -> bool:
    """Put a step that computes what it read before in the place of the one that read it; return whether that was done.

    Args:
        rewriting: the plan.
        number, producer: of the reader, and of the map that it takes in.
        fused: the new reader; or why there is none.
        pass_name: who does it.
    """
    made, reader = rewriting.step(producer), rewriting.step(number)
    if isinstance(fused, str):
        rewriting.refuse(made.label, f"{fused}: {reader.label}")
        return False
    if not rewriting.fits(fused):
        rewriting.refuse(made.label, f"with it, too many buffers would be bound by {reader.label}")
        return False
    rewriting.replace(number, fused)
    rewriting.drop(pass_name, producer, reader.label)
    return True


def _is_bits(source: Source) -> bool:
    """Return whether a body gives bits, which no body that computes can take."""
    return isinstance(source, Body) and source.file == "layout/constant"
