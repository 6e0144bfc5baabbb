"""Fusion of maps that combine the first and second half of a product's columns, such as SwiGLU, into the product."""

from __future__ import annotations

from dataclasses import replace

from dmlgpu.compiler.graph.passes.inlining import is_fusable
from dmlgpu.compiler.graph.passes.rewriting import Rewriting, StepPass, element_wise_leaves, memory_of, simplified
from dmlgpu.compiler.plan import (
    PAIR,
    Affine,
    Body,
    Contract,
    Map,
    PairedContract,
    PlanTensor,
    RegisterValue,
    Source,
    View,
)
from dmlgpu.compiler.rewrites.sources import computed, is_costly, leaves, rewrite
from dmlgpu.compiler.rewrites.spaces import affine_between, reindex


def fuse_gates(rewriting: Rewriting) -> None:
    """Compute maps of the first and second half of a product's columns in its epilogue, if nothing else reads these."""
    pairs = rewriting.capabilities.computes_pairs
    for index, step in rewriting.indexed():
        if isinstance(step, Map) and is_fusable(step.body) and not is_costly(step.body) and not step.keeps_neighbors:
            for memory in dict.fromkeys(memory_of(leaf) for leaf in element_wise_leaves(step.body)):
                producer = rewriting.only_producer(index, memory)
                if producer is None:
                    continue
                writer = rewriting.step(producer)
                fused = _paired(writer, step) if isinstance(writer, Contract) and pairs(writer) else None
                if fused is not None and rewriting.fits(fused):
                    rewriting.replace(producer, None)
                    rewriting.replace(index, fused)
                    rewriting.note(step.label, f"computed from two columns where {writer.label} stores")
                    break


GATES = StepPass("gates", fuse_gates)


def _paired(writer: Contract, step: Map) -> PairedContract | None:
    """Return a product with a map in its epilogue; None if the map does not read the columns in two equal parts."""
    space, columns = writer.product.space, writer.output.sizes[-1] // 2
    if len(space.columns) != 1 or space.columns[0] != 2 * columns or any(leaves(writer.epilogue)):
        return None
    parts = [_columns(writer.output, index * columns, columns) for index in range(len(PAIR))]
    sizes = parts[0].sizes
    read = [leaf for leaf in leaves(step.body) if memory_of(leaf) == memory_of(writer.output)]
    affine: Affine | None = None
    values: dict[PlanTensor, Source] = {}
    for leaf in read:
        spaces = {name: affine_between(part, leaf) for name, part in zip(PAIR, parts, strict=True)}
        name, space_of_leaf = next(((name, space) for name, space in spaces.items() if space is not None), ("", None))
        if space_of_leaf is None or leaf.view is View.INDEX or affine not in (None, space_of_leaf):
            return None
        affine = space_of_leaf
        values[replace(leaf, view=View.COMPUTE)] = value_of_sum(writer.epilogue, name, sizes, affine)
    if affine is None or len(values) != len(PAIR):
        return None
    tree = simplified(reindex(computed(step.body), sizes, affine, values))
    if not isinstance(tree, Body) or not is_fusable(tree):
        return None
    product = replace(writer.product, space=replace(space, columns=(columns,)))
    return PairedContract(writer.label, product, tree, affine.of(step.output, sizes))


def _columns(output: PlanTensor, first: int, count: int) -> PlanTensor:
    """Return the columns of an output from a column on."""
    offset = output.offset + first * output.strides[-1]
    return replace(output, sizes=(*output.sizes[:-1], count), offset=offset, view=View.COMPUTE)


def value_of_sum(epilogue: Body, name: str, sizes: tuple[int, ...], affine: Affine) -> Source:
    """Return the value that a product stores for one of its sums."""
    over = reindex(epilogue, sizes, affine)
    return rewrite(over, lambda source: replace(source, name=name) if isinstance(source, RegisterValue) else source)
