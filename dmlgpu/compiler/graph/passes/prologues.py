"""Casts, dequantisation and other cheap maps are computed where products and convolutions read their operands; what
their epilogues and rows read beside is computed there as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from dmlgpu.compiler.graph.passes.cost import is_cheap, is_fusable
from dmlgpu.compiler.graph.passes.inlining import inlined, producer_of, reason_to_keep, take_in
from dmlgpu.compiler.graph.passes.rewriting import Rewriting, memory_of
from dmlgpu.compiler.graph.passes.trees import as_body, element_wise_leaves
from dmlgpu.compiler.plan import Contract, Convolve, Map, Rows, Source, Step, Tensor
from dmlgpu.compiler.plan.parts import read
from dmlgpu.compiler.rewrites.sources import rewrite, sameness

NAME = "prologues"


@dataclass(frozen=True)
class _Place:
    """A tree of a step in which maps may be computed.

    Attributes:
        tree: as it is.
        repeats: each of its elements is read by many invocations.
        cheap: what is dear may not be computed there, since one invocation reads an element several times.
        changed: returns the step with another tree.
    """

    tree: Source
    repeats: bool
    changed: Callable[[Source], Step]
    cheap: bool = False


def fuse_prologues(rewriting: Rewriting) -> None:
    """Compute maps in the products, convolutions and rows that read them, where that costs less than memory does."""
    for number, step in rewriting.numbered():
        if isinstance(step, Contract | Convolve | Rows):
            while _fuse_one(rewriting, number):
                pass


def _places(step: Step) -> Iterator[_Place]:
    match step:
        case Contract(product=product):
            yield _Place(product.a, True, lambda tree: replace(step, product=replace(product, a=tree)))
            yield _Place(product.b, True, lambda tree: replace(step, product=replace(product, b=tree)))
            yield _Place(step.epilogue, False, lambda tree: replace(step, epilogue=as_body(tree)))
        case Convolve(convolution=sums):
            yield _Place(sums.input, True, lambda tree: replace(step, convolution=replace(sums, input=tree)))
            yield _Place(sums.filter, True, lambda tree: replace(step, convolution=replace(sums, filter=tree)))
            yield _Place(step.epilogue, False, lambda tree: replace(step, epilogue=as_body(tree)))
        case Rows():
            yield _Place(step.source, False, lambda tree: _with_source(step, tree), cheap=True)
            yield _Place(step.body, False, lambda tree: replace(step, body=as_body(tree)))


def _fuse_one(rewriting: Rewriting, number: int) -> bool:
    """Compute one of the producers of a step inside it; return whether there was one."""
    step = rewriting.step(number)
    for place in _places(step):
        for leaf in element_wise_leaves(place.tree):
            found = producer_of(rewriting, number, leaf)
            if found is None:
                continue
            producer, made = found
            fused = _fused(rewriting, place, leaf, made)
            if take_in(rewriting, number, producer, fused, pass_name=NAME):
                return True
    return False


def _fused(rewriting: Rewriting, place: _Place, leaf: Tensor, made: Map) -> Step | str:
    """Return a step with the body of a map in place of what that writes; or why it is kept."""
    if not is_fusable(made.body):
        return "changes coordinates"
    if place.cheap and not is_cheap(made.body):
        return "is dear, and repeated"
    reason = reason_to_keep(rewriting, made, leaf, repeats=place.repeats)
    if reason is not None:
        return reason
    tree = inlined(place.tree, leaf, made)
    if tree is None:
        return "lies unevenly for"
    fused = place.changed(tree)
    read_again = any(memory_of(tensor) == memory_of(leaf) for tensor in read(fused))
    return "is dear, and read again" if read_again and not is_cheap(made.body) else fused


def _with_source(step: Rows, tree: Source) -> Rows:
    """Return rows of other elements, which the body computes on as well."""
    same = sameness()
    body = rewrite(step.body, lambda source: tree if same(source, step.source) else source)
    return replace(step, source=tree, body=body)
