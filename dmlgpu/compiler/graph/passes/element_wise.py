"""Maps are computed where what they write is read, and written no more: chains and diamonds become one kernel."""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.compiler.graph.passes.cost import is_fusable
from dmlgpu.compiler.graph.passes.inlining import inlined, producer_of, reason_to_keep, take_in, vanishes
from dmlgpu.compiler.graph.passes.rewriting import Rewriting
from dmlgpu.compiler.graph.passes.trees import as_body, element_wise_leaves, refined
from dmlgpu.compiler.graph.spaces import locate, split
from dmlgpu.compiler.plan import Map, Reduce, Source, Tensor
from dmlgpu.compiler.rewrites.sources import is_costly, leaves

NAME = "element-wise"


def fuse_element_wise(rewriting: Rewriting) -> None:
    """Compute maps inside the maps and reductions that read them.

    A value that one step reads is always computed there, unless it repeats there and is dear. A value that several
    steps read is computed in each of them only if that is cheap and reads no more memory than the value itself. What
    changes coordinates (gathers, resampling, padding) is computed in the only map that reads it at the same
    coordinates, and takes in what it moves.
    """
    for number, step in rewriting.numbered():
        if isinstance(step, Map | Reduce):
            while _fuse_one(rewriting, number):
                pass


def _fuse_one(rewriting: Rewriting, number: int) -> bool:
    """Compute one of the producers of a step inside it; return whether there was one."""
    step = rewriting.step(number)
    assert isinstance(step, Map | Reduce)
    direct = list(element_wise_leaves(_tree(step)))
    for leaf in (*direct, *sorted(set(leaves(_tree(step))) - set(direct), key=str)):
        found = producer_of(rewriting, number, leaf)
        if found is None:
            continue
        producer, made = found
        fused = _fused(rewriting, step, leaf, made, is_direct=leaf in direct)
        if take_in(rewriting, number, producer, fused, pass_name=NAME):
            return True
    return False


def _fused(rewriting: Rewriting, step: Map | Reduce, leaf: Tensor, made: Map, *, is_direct: bool) -> Map | Reduce | str:
    """Return a step with the body of a map in place of what that writes; or why it is kept."""
    if is_direct and is_fusable(made.body):
        reason = reason_to_keep(rewriting, made, leaf, repeats=False)
        return reason or _inlined(step, leaf, made) or "lies unevenly for"
    if not isinstance(step, Map) or is_costly(step.body) or not (is_direct or is_fusable(made.body)):
        return "changes coordinates, as does what reads it"
    if not vanishes(rewriting, leaf):
        return "changes coordinates, and is read elsewhere, too"
    before, after = math.prod(made.output.sizes), math.prod((leaf if is_direct else step.output).sizes)
    if after > before:
        return "is read several times"
    tree = inlined(step.body, leaf, made)
    return reason_to_keep(rewriting, made, leaf, repeats=not is_direct) or (
        "lies unevenly for" if tree is None else replace(step, body=as_body(tree))
    )


def _tree(step: Map | Reduce) -> Source:
    return step.body if isinstance(step, Map) else step.source


def _inlined(step: Map | Reduce, leaf: Tensor, made: Map) -> Map | Reduce | None:
    """Return a step with an element-wise body in place of a leaf; None where no coordinates say it."""
    if locate(leaf, made.output) is None:
        parted = split(leaf, made.output) if isinstance(step, Map) and is_fusable(step.body) else None
        if parted is None or not isinstance(step, Map):
            return None
        step, leaf = refined(step, *parted), parted[1].of(leaf, parted[0])
    tree = inlined(_tree(step), leaf, made)
    if tree is None:
        return None
    return replace(step, body=as_body(tree)) if isinstance(step, Map) else replace(step, source=tree)
