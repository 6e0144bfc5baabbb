"""Fusion of maps into the epilogues of products, convolutions, rows and reductions."""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.graph.passes.inlining import is_fusable
from dmlgpu.compiler.graph.passes.rewriting import (
    Memory,
    Rewriting,
    StepPass,
    element_wise_leaves,
    memory_of,
    simplified,
)
from dmlgpu.compiler.plan import (
    Affine,
    Body,
    Contract,
    Convolve,
    Map,
    PlanTensor,
    Reduce,
    RegisterValue,
    Rows,
    Source,
    Step,
    View,
)
from dmlgpu.compiler.plan.parts import read, written
from dmlgpu.compiler.rewrites.collapse import collapse
from dmlgpu.compiler.rewrites.sources import computed, identity, is_costly, leaves
from dmlgpu.compiler.rewrites.spaces import affine_between, reindex

SURROUNDED = "layout/slice_grad"
"""The body of PADDING with a constant."""


def fuse_epilogues(rewriting: Rewriting) -> None:
    """Compute a map in the epilogue of the product, convolution, rows or reduction before it, if it is the only
    consumer.

    Copies count as maps: JOIN's inputs are written to their location directly, and so is the interior of a constant
    border, after the output was filled with the constant.
    """
    for index, step in rewriting.indexed():
        if isinstance(step, Map) and not is_costly(step.body):
            _fuse_into_producer(rewriting, index, step)
            _fuse_another_statistic(rewriting, index, step)
            _fuse_inside_border(rewriting, index, step)


EPILOGUES = StepPass("epilogues", fuse_epilogues)


def _fuse_into_producer(rewriting: Rewriting, index: int, step: Map) -> None:
    if not is_fusable(step.body):
        return
    for leaf in element_wise_leaves(step.body):
        producer = rewriting.only_producer(index, memory_of(leaf))
        writer = None if producer is None else rewriting.step(producer)
        if producer is None or not isinstance(writer, Contract | Convolve | Rows | Reduce):
            continue
        if not _takes_epilogue(writer):
            continue
        fused = with_epilogue(writer, step, leaf)
        place = _place(rewriting, producer, index, memory_of(leaf))
        if fused is not None and place is not None and rewriting.fits(fused):
            rewriting.replace(producer if place == index else index, None)
            rewriting.replace(place, fused)
            rewriting.note(step.label, f"computed where {writer.label} stores")
            return


def _fuse_another_statistic(rewriting: Rewriting, index: int, step: Map) -> None:
    """Compute a map of a value of rows in the step that stores it, as another value of them."""
    if rewriting.is_removed(index) or not is_fusable(step.body):
        return
    for leaf in element_wise_leaves(step.body):
        producer = rewriting.producer(memory_of(leaf))
        writer = None if producer is None else rewriting.step(producer)
        if producer is None or not isinstance(writer, Rows) or _statistic(writer, leaf) is None:
            continue
        fused = with_epilogue(writer, step, leaf, is_added=True)
        if fused is not None and not _waits(rewriting, producer, index, memory_of(leaf)) and rewriting.fits(fused):
            rewriting.replace(index, None)
            rewriting.replace(producer, fused)
            rewriting.note(step.label, f"computed where {writer.label} stores")
            return


def _waits(rewriting: Rewriting, producer: int, index: int, memory: Memory) -> bool:
    """Return whether a map of a result also reads another one, or what is written after the producer."""
    sources = [source for source in map(memory_of, read(rewriting.step(index))) if source != memory]
    return any(writer >= producer for source in sources for writer in rewriting.writers(source))


def _place(rewriting: Rewriting, producer: int, index: int, memory: Memory) -> int | None:
    """Return where a step is executed that computes a producer and a map that reads one of its results: where the map
    was, or where the producer was if another result is read before; None if the map reads another result as well, or
    what is written between."""
    results = [result for result in map(memory_of, written(rewriting.step(producer))) if result != memory]
    readers = {reader for result in results for reader in rewriting.readers(result)}
    if not any(reader <= index for reader in readers):
        return index
    return None if _waits(rewriting, producer, index, memory) else producer


def _fuse_inside_border(rewriting: Rewriting, index: int, step: Map) -> None:
    """Fill the output of PADDING with its constant, and let the producer of the interior write into it."""
    inputs, values = dict(step.body.inputs), dict(step.body.constants)
    leaf, border = inputs.get("input"), inputs.get("border")
    if step.body.file != SURROUNDED or not isinstance(leaf, PlanTensor) or not isinstance(border, Body):
        return
    producer = rewriting.only_producer(index, memory_of(leaf))
    if producer is None or any(stride != 1 for stride in values["step"]):
        return
    writer = rewriting.step(producer)
    if not isinstance(writer, Contract | Convolve | Rows) or border.children:
        return
    inside = Affine.box(values["start"]).of(step.output, leaf.sizes)
    fused = with_epilogue(writer, Map(step.label, identity(leaf), inside, keeps_neighbors=True), leaf)
    if fused is not None and rewriting.fits(fused):
        rewriting.replace(producer, Map(f"{step.label} border", border, step.output))
        rewriting.replace(index, fused)
        rewriting.note(step.label, f"{writer.label} stores inside the border")


def _takes_epilogue(writer: Step) -> bool:
    """Return whether a step can have an epilogue; results of a reduction must be 32-bit numbers."""
    if not isinstance(writer, Reduce) or writer.epilogue is not None:
        return True
    return writer.output.lanes == 1 and writer.output.data_type.bits == WORD_BITS


def with_epilogue(
    writer: Contract | Convolve | Rows | Reduce, step: Map, leaf: PlanTensor, *, is_added: bool = False
) -> Step | None:
    """Return a step with a map in its epilogue; None if the coordinates do not match.

    Args:
        writer: The step.
        step: The map.
        leaf: The result of the step that the map reads.
        is_added: Whether rows store the map's result in addition to the value of which it is computed.
    """
    shares_words = step.keeps_neighbors and step.output.data_type.bits < WORD_BITS
    if leaf.view is View.INDEX or (shares_words and not isinstance(writer, Contract)):
        return None
    statistic = _statistic(writer, leaf)
    place = len(writer.statistics) if is_added and isinstance(writer, Rows) else statistic
    before, result = _computed(writer, statistic)
    for body, output in ((step.body, step.output), collapse(step.body, step.output)):
        whole, *others = (tensor for tensor in leaves(body) if memory_of(tensor) == memory_of(leaf))
        if any(other != whole for other in others):
            return None
        affine = affine_between(result, whole)
        if affine is not None and math.prod(whole.sizes) == math.prod(result.sizes):
            values = {replace(whole, view=View.COMPUTE): before}
            tree = simplified(reindex(computed(body), result.sizes, affine, values))
            return _stored(writer, step, tree, affine.of(output, result.sizes), place)
    return None


def _statistic(writer: Step, leaf: PlanTensor) -> int | None:
    """Return the index of the statistic of rows that a leaf reads; None for their output, and for other steps."""
    outputs = writer.statistic_outputs if isinstance(writer, Rows) else ()
    return next((index for index, output in enumerate(outputs) if memory_of(output) == memory_of(leaf)), None)


def _computed(writer: Contract | Convolve | Rows | Reduce, statistic: int | None) -> tuple[Source, PlanTensor]:
    """Return the value that a step computes for an element of its output or of a statistic, and where it stores it."""
    match writer:
        case Rows() if statistic is not None:
            return writer.statistics[statistic], writer.statistic_outputs[statistic]
        case Rows():
            return writer.body, writer.output
        case Reduce():
            output = writer.output
            return writer.epilogue or RegisterValue.product(output.data_type, output.sizes), output
    return writer.epilogue, writer.output


def _stored(
    writer: Contract | Convolve | Rows | Reduce, step: Map, tree: Source, output: PlanTensor, statistic: int | None
) -> Step | None:
    """Return a step with another epilogue and output, or with another statistic, which is added after the last one."""
    if not is_fusable(tree) or not isinstance(tree, Body):
        return None
    match writer:
        case Rows() if statistic is not None:
            trees, outputs = list(writer.statistics), list(writer.statistic_outputs)
            trees[statistic : statistic + 1], outputs[statistic : statistic + 1] = [tree], [output]
            return replace(writer, statistics=tuple(trees), statistic_outputs=tuple(outputs))
        case Rows():
            return replace(writer, body=tree, output=output)
        case Contract():
            keeps = writer.keeps_neighbors or step.keeps_neighbors
            return replace(writer, epilogue=tree, output=output, keeps_neighbors=keeps)
        case _:
            return replace(writer, epilogue=tree, output=output)
