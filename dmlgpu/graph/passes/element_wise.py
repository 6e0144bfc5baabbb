"""Element-wise producers are computed where they are read, and are written no more: chains and diamonds become one."""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.graph.passes.cost import is_cheap, is_fusable
from dmlgpu.graph.passes.rewriting import Rewriting, memory_of
from dmlgpu.graph.passes.trees import as_body, element_wise_leaves, fits, refined, simplified
from dmlgpu.graph.spaces import locate, seen_from, split
from dmlgpu.kernels.sources import computed, leaves, rewrite
from dmlgpu.plan import Map, Reduce, Role, Source, Tensor, View
from dmlgpu.target import Target

NAME = "element-wise"


def fuse_element_wise(rewriting: Rewriting, target: Target) -> None:
    """Compute element-wise maps inside the maps and reductions that read them.

    A value that one step reads is always computed there, unless it repeats there and is dear. A value that several
    steps read is computed in each of them only if that is cheap and reads no more memory than the value itself.
    """
    for number, step in rewriting.numbered():
        if isinstance(step, Map | Reduce):
            while _fuse_one(rewriting, number, target):
                pass


def _fuse_one(rewriting: Rewriting, number: int, target: Target) -> bool:
    """Compute one of the producers of a step inside it; return whether there was one."""
    step = rewriting.step(number)
    assert isinstance(step, Map | Reduce)
    for leaf in element_wise_leaves(_tree(step)):
        if leaf.binding.role not in (Role.TEMPORARY, Role.OUTPUT) or leaf.view is View.INDEX:
            continue
        producer = rewriting.producer(memory_of(leaf))
        if producer is None or producer >= number:
            continue
        made = rewriting.step(producer)
        if not isinstance(made, Map) or made.keeps_neighbours or made.costly or not is_fusable(made.body):
            continue
        if not _pays(rewriting, made, leaf):
            continue
        fused = _inlined(step, leaf, made)
        if fused is None or not fits(fused, target):
            continue
        rewriting.replace(number, fused)
        left = rewriting.readers(memory_of(leaf))
        if left or leaf.binding.role is Role.OUTPUT:
            rewriting.note(NAME, made.label, f"computed anew in {step.label}")
        else:
            rewriting.replace(producer, None)
            rewriting.note(NAME, made.label, f"computed in {step.label}")
        return True
    return False


def _pays(rewriting: Rewriting, made: Map, leaf: Tensor) -> bool:
    """Return whether computing a value where it is read costs less than writing and reading it."""
    cheap = is_cheap(made.body)
    if math.prod(leaf.sizes) > math.prod(made.output.sizes) and not cheap:
        return False
    vanishes = len(rewriting.readers(memory_of(leaf))) == 1 and leaf.binding.role is Role.TEMPORARY
    return vanishes or (cheap and sum(map(_bytes, set(leaves(made.body)))) <= _bytes(made.output))


def _bytes(tensor: Tensor) -> int:
    different = (size for size, stride in zip(tensor.sizes, tensor.strides, strict=True) if stride)
    return math.prod(different) * tensor.data_type.bits // 8


def _tree(step: Map | Reduce) -> Source:
    return step.body if isinstance(step, Map) else step.source


def _inlined(step: Map | Reduce, leaf: Tensor, made: Map) -> Map | Reduce | None:
    """Return a step with the body of a map in place of what that writes; None where no coordinates say it."""
    affine = locate(leaf, made.output)
    if affine is None:
        parted = split(leaf, made.output) if isinstance(step, Map) and is_fusable(step.body) else None
        if parted is None or not isinstance(step, Map):
            return None
        step, leaf = refined(step, *parted), parted[1].of(leaf, parted[0])
        affine = locate(leaf, made.output)
        if affine is None:
            return None
    given = made.body if leaf.view is View.RAW else computed(made.body)
    body = seen_from(given, leaf.sizes, affine)
    tree = simplified(rewrite(_tree(step), lambda source: body if source == leaf else source))
    if not is_fusable(tree):
        return None
    return replace(step, body=as_body(tree)) if isinstance(step, Map) else replace(step, source=tree)
