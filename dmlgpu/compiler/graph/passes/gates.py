"""Fusion of a map that combines both halves of a product's columns, such as SwiGLU, into the product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dmlgpu.compiler.graph.passes.inlining import is_fusable
from dmlgpu.compiler.graph.passes.rewriting import Rewriting, element_wise_leaves, memory_of, simplified
from dmlgpu.compiler.plan import (
    PAIR,
    Affine,
    Body,
    Contract,
    Map,
    PairedContract,
    PlanTensor,
    RegisterValue,
    Role,
    Source,
    View,
)
from dmlgpu.compiler.rewrites.sources import computed, is_costly, leaves, rewrite
from dmlgpu.compiler.rewrites.spaces import affine_between, reindex

NAME = "gates"


def fuse_gates(rewriting: Rewriting, pairs: Callable[[Contract], bool]) -> None:
    """Compute a map of both halves of a product's columns where the product computes them, if nothing else reads them.

    Args:
        rewriting: The plan.
        pairs: Whether a kernel computes two columns of a product for each element.
    """
    for number, step in rewriting.numbered():
        if isinstance(step, Map) and is_fusable(step.body) and not is_costly(step.body) and not step.keeps_neighbours:
            for memory in {memory_of(leaf) for leaf in element_wise_leaves(step.body)}:
                producer = rewriting.producer(memory)
                if memory[0] is not Role.TEMPORARY or producer is None or rewriting.readers(memory) != {number}:
                    continue
                writer = rewriting.step(producer)
                fused = _paired(writer, step) if isinstance(writer, Contract) and pairs(writer) else None
                if fused is not None and rewriting.fits(fused):
                    rewriting.replace(producer, None)
                    rewriting.replace(number, fused)
                    rewriting.note(NAME, step.label, f"computed where {writer.label} has both halves of its columns")
                    break


def _paired(writer: Contract, step: Map) -> PairedContract | None:
    """Return a product that computes a map of its halves; None if the map reads anything else of it."""
    space, columns = writer.product.space, writer.output.sizes[-1] // 2
    if len(space.columns) != 1 or space.columns[0] != 2 * columns or any(leaves(writer.epilogue)):
        return None
    halves = [_half(writer.output, number * columns, columns) for number in range(2)]
    sizes = halves[0].sizes
    read = [leaf for leaf in leaves(step.body) if memory_of(leaf) == memory_of(writer.output)]
    affine: Affine | None = None
    values: dict[PlanTensor, Source] = {}
    for leaf in read:
        spaces = {name: affine_between(half, leaf) for name, half in zip(PAIR, halves, strict=True)}
        name, found = next(((name, found) for name, found in spaces.items() if found is not None), ("", None))
        if found is None or leaf.view is View.INDEX or affine not in (None, found):
            return None
        affine = found
        values[replace(leaf, view=View.COMPUTE)] = _sum(writer.epilogue, name, sizes, found)
    if affine is None or len(values) != len(PAIR):
        return None
    tree = simplified(reindex(computed(step.body), sizes, affine, values))
    if not isinstance(tree, Body) or not is_fusable(tree):
        return None
    product = replace(writer.product, space=replace(space, columns=(columns,)))
    return PairedContract(writer.label, product, tree, affine.of(step.output, sizes))


def _half(output: PlanTensor, first: int, count: int) -> PlanTensor:
    """Return the columns of an output from one on."""
    offset = output.offset + first * output.strides[-1]
    return replace(output, sizes=(*output.sizes[:-1], count), offset=offset, view=View.COMPUTE)


def _sum(epilogue: Body, name: str, sizes: tuple[int, ...], affine: Affine) -> Source:
    """Return what a product stores of one of its sums."""
    over = reindex(epilogue, sizes, affine)
    return rewrite(over, lambda source: replace(source, name=name) if isinstance(source, RegisterValue) else source)
