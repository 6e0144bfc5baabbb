"""Fusion of maps into the steps that read them: maps, reductions, products, convolutions and rows."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from dmlgpu.compiler.graph.passes.rewriting import (
    Rewriting,
    StepPass,
    as_body,
    element_wise_leaves,
    memory_of,
    refined,
    simplified,
)
from dmlgpu.compiler.plan import (
    Attend,
    Body,
    Contract,
    Convolve,
    Map,
    PlanTensor,
    Reduce,
    Role,
    Rows,
    Source,
    Step,
    View,
)
from dmlgpu.compiler.plan.parts import read
from dmlgpu.compiler.rewrites.sources import (
    CONVERT,
    computed,
    is_cheap,
    is_costly,
    is_elementwise,
    is_plain,
    joined,
    leaves,
    nodes,
    rewrite,
    sameness,
)
from dmlgpu.compiler.rewrites.sources import split as halved
from dmlgpu.compiler.rewrites.spaces import affine_between, reindex, split

DEQUANTIZE = "quantization/dequantize"

CHOICE = "elementwise/element_wise_if"

BITS = "layout/constant"
"""A body that returns bits, which bodies that compute cannot read."""

MAX_NODES = 48
"""Maximum number of bodies in one fused tree, which bounds the source and the driver's compile time."""


def is_small(root: Source) -> bool:
    """Return whether a tree has at most the number of bodies allowed in one kernel."""
    return sum(isinstance(node, Body) for node in nodes(root)) <= MAX_NODES


def is_fusable(root: Source) -> bool:
    """Return whether a tree can be part of another: its bodies are elementwise and not too many."""
    return is_elementwise(root) and is_small(root)


def producer_of(rewriting: Rewriting, index: int, leaf: PlanTensor) -> tuple[int, Map] | None:
    """Return the map that writes an input of a step, and its index, if it can be computed later."""
    if leaf.binding.role not in (Role.TEMPORARY, Role.OUTPUT) or leaf.view is View.INDEX:
        return None
    producer = rewriting.producer(memory_of(leaf))
    if producer is None or producer >= index:
        return None
    step = rewriting.step(producer)
    if not isinstance(step, Map) or step.keeps_neighbors or is_costly(step.body):
        return None
    return producer, step


def vanishes(rewriting: Rewriting, leaf: PlanTensor) -> bool:
    """Return whether a value need not be stored if its only consumer computes it."""
    return leaf.binding.role is Role.TEMPORARY and len(rewriting.readers(memory_of(leaf))) == 1


def reason_to_keep(
    rewriting: Rewriting, writer: Map, leaf: PlanTensor, *, repeats: bool, reader: int | None = None
) -> str | None:
    """Return why computing a value where it is read costs more than writing and reading it; None if it costs less.

    Args:
        rewriting: The plan.
        writer: The map that computes the value.
        leaf: The leaf that reads it.
        repeats: The reader needs each element several times.
        reader: Index of the reader, if what else it reads counts as read anyway.
    """
    cheap = is_cheap(writer.body)
    if not cheap and (repeats or math.prod(leaf.sizes) > math.prod(writer.output.sizes)):
        return "is expensive, and repeated"
    if vanishes(rewriting, leaf) and not repeats:
        return None
    if not cheap:
        return "is expensive, and read elsewhere, too"
    free = () if reader is None else rewriting.memories_read(reader)
    sources = [tensor for tensor in set(leaves(writer.body)) if memory_of(tensor) not in free]
    if sum(tensor.distinct_bytes for tensor in sources) > writer.output.distinct_bytes:
        return "is smaller than what it is computed from, and read again"
    return None


def inlined(tree: Source, leaf: PlanTensor, writer: Map) -> Source | None:
    """Return a tree with a map's body instead of a leaf; None if no affine map leads from the leaf to the map's
    output, or the tree becomes too large."""
    affine = affine_between(leaf, writer.output)
    gives_bits = any(isinstance(node, Body) and node.file == BITS for node in nodes(writer.body))
    if affine is None or (gives_bits and leaf.view is not View.RAW):
        return None
    seen = writer.body if leaf.view is View.RAW else computed(writer.body)
    body = reindex(seen, leaf.sizes, affine)
    result = simplified(rewrite(tree, lambda source: body if source == leaf else source))
    return result if is_small(result) else None


def take_in(rewriting: Rewriting, index: int, producer: int, fused: Step | str) -> bool:
    """Replace a step by one that computes its producer inline; return whether that was done.

    Args:
        rewriting: The plan.
        index, producer: Indices of the consumer, and of the inlined map.
        fused: The new step, or the reason why there is none.
    """
    writer, reader = rewriting.step(producer), rewriting.step(index)
    if isinstance(fused, str):
        rewriting.reject(writer.label, f"{fused}: {reader.label}")
        return False
    if not rewriting.fits(fused):
        rewriting.reject(writer.label, f"with it, too many buffers would be bound by {reader.label}")
        return False
    rewriting.replace(index, fused)
    rewriting.drop(producer, reader.label)
    return True


def fuse_element_wise(rewriting: Rewriting) -> None:
    """Compute maps inside the maps and reductions that read them.

    A value with one consumer is always inlined, unless it is read repeatedly and is expensive. A value with several
    consumers is inlined in each only if it is cheap and adds no more memory to read than the value itself. Bodies that
    change coordinates (gathers, resampling, padding) are inlined only into the single map that reads them at the same
    coordinates, and inline what they move.
    """
    for index, step in rewriting.indexed():
        if isinstance(step, Map) and step.body.file == CHOICE:
            _choose_numbers(rewriting, index, step)
        if isinstance(step, Map | Reduce):
            while _fuse_map(rewriting, index):
                pass


def _choose_numbers(rewriting: Rewriting, index: int, step: Map) -> None:
    """Replace a choice between bits by one between numbers, if a map computes an operand or a step computes with the
    result: bits are not part of a tree of numbers."""
    operands = dict(step.body.inputs)
    branches = {
        name: tensor for name, tensor in operands.items() if name != "condition" and isinstance(tensor, PlanTensor)
    }
    producers = [producer_of(rewriting, index, tensor) for tensor in branches.values()]
    written = [producer[1].output for producer in producers if producer is not None]
    result = memory_of(step.output)
    readers = [tensor for reader in rewriting.readers(result) for tensor in read(rewriting.step(reader))]
    computed_types = {x.data_type for x in (*written, *(x for x in readers if memory_of(x) == result))}
    types = computed_types - {step.output.data_type}
    if len(types) == 1:
        (data_type,) = types
        if data_type.bits == step.output.data_type.bits and len(branches) == len(operands) - 1:
            inputs = {name: replace(tensor, data_type=data_type) for name, tensor in branches.items()}
            body = replace(step.body, data_type=data_type, inputs=tuple((operands | inputs).items()))
            rewriting.replace(index, replace(step, body=body, output=replace(step.output, data_type=data_type)))


ELEMENT_WISE = StepPass("element-wise", fuse_element_wise)


def _fuse_map(rewriting: Rewriting, index: int) -> bool:
    """Compute one of the producers of a step inside it; return whether there was one."""
    step = rewriting.step(index)
    assert isinstance(step, Map | Reduce)
    direct = list(element_wise_leaves(_tree(step)))
    others = (leaf for leaf in dict.fromkeys(leaves(_tree(step))) if leaf not in direct)
    for leaf in (*direct, *others):
        match = producer_of(rewriting, index, leaf)
        if match is None:
            continue
        producer, writer = match
        fused = _fused_map(rewriting, index, step, leaf, writer, is_direct=leaf in direct)
        if take_in(rewriting, index, producer, fused):
            return True
    return False


def _fused_map(
    rewriting: Rewriting, index: int, step: Map | Reduce, leaf: PlanTensor, writer: Map, *, is_direct: bool
) -> Map | Reduce | str:
    """Return a step with the body of a map inlined, or the reason why it is not."""
    if is_direct and is_fusable(writer.body):
        reason = reason_to_keep(rewriting, writer, leaf, repeats=False, reader=index)
        may_split = all(isinstance(rewriting.step(reader), Map) for reader in rewriting.readers(memory_of(leaf)))
        return reason or _inlined(step, leaf, writer, may_split=may_split) or UNEVEN
    if not isinstance(step, Map) or is_costly(step.body) or not (is_direct or is_fusable(writer.body)):
        return "changes coordinates, as does what reads it"
    if not vanishes(rewriting, leaf):
        return "changes coordinates, and is read elsewhere, too"
    before, after = math.prod(writer.output.sizes), math.prod((leaf if is_direct else step.output).sizes)
    if after > before:
        return "is read several times"
    tree = inlined(step.body, leaf, writer)
    return reason_to_keep(rewriting, writer, leaf, repeats=not is_direct) or (
        UNEVEN if tree is None else replace(step, body=as_body(tree))
    )


def _tree(step: Map | Reduce) -> Source:
    return step.body if isinstance(step, Map) else step.source


def _inlined(step: Map | Reduce, leaf: PlanTensor, writer: Map, *, may_split: bool) -> Map | Reduce | None:
    """Return a step with an elementwise body in place of a leaf; None if the coordinates do not match.

    Dimensions of a map are split only if the leaf need not be stored for steps that are no maps: such a map is no
    epilogue of a product.
    """
    if affine_between(leaf, writer.output) is None:
        can_split = may_split and isinstance(step, Map) and is_fusable(step.body)
        parted = split(leaf, writer.output) if can_split else None
        if parted is None or not isinstance(step, Map):
            return None
        step, leaf = refined(step, *parted), parted[1].of(leaf, parted[0])
    tree = inlined(_tree(step), leaf, writer)
    if tree is None:
        return None
    return replace(step, body=as_body(tree)) if isinstance(step, Map) else replace(step, source=tree)


UNEVEN = "lies unevenly for"


@dataclass(frozen=True)
class _Place:
    """A tree of a step into which maps can be inlined.

    Attributes:
        tree: The tree.
        repeats: Whether many threads read each of its elements.
        cheap: Whether expensive bodies are excluded, since a thread reads an element several times.
        changed: Returns the step with another tree.
    """

    tree: Source
    repeats: bool
    changed: Callable[[Source], Step]
    cheap: bool = False
    dequantizes: bool = False


def fuse_prologues(rewriting: Rewriting) -> None:
    """Compute maps in the products, convolutions and rows that read them, if that costs less than memory accesses.
    Attention computes the dequantization of its keys and values."""
    for index, step in rewriting.indexed():
        if isinstance(step, Attend | Contract | Convolve | Rows):
            while _fuse_one(rewriting, index):
                pass


PROLOGUES = StepPass("prologues", fuse_prologues)


def _places(step: Step) -> Iterator[_Place]:
    match step:
        case Attend():
            yield _Place(step.key, True, lambda tree: replace(step, key=tree), dequantizes=True)
            yield _Place(step.value, True, lambda tree: replace(step, value=tree), dequantizes=True)
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
            for number, statistic in enumerate(step.statistics):
                yield _Place(statistic, False, functools.partial(_with_statistic, step, number))


def _fuse_one(rewriting: Rewriting, index: int) -> bool:
    """Compute one of the producers of a step inside it; return whether there was one."""
    step = rewriting.step(index)
    for place in _places(step):
        for leaf in element_wise_leaves(place.tree):
            match = producer_of(rewriting, index, leaf)
            if match is None:
                continue
            producer, writer = match
            fused = _fused(rewriting, place, leaf, writer)
            if fused == UNEVEN and isinstance(step, Contract) and place.tree is step.product.b:
                fused = _fused_in_blocks(rewriting, step, leaf, writer)
            elif fused == UNEVEN and place.dequantizes:
                fused = _joined_blocks(place, leaf, writer)
            if take_in(rewriting, index, producer, fused):
                return True
    return False


def _fused_in_blocks(rewriting: Rewriting, step: Contract, leaf: PlanTensor, writer: Map) -> Step | str:
    """Return a product with a map of its columns inlined that runs over blocks along the inner dimension, as
    dequantization does; its inner dimension becomes two."""
    product, space = step.product, step.product.space
    parted = split(leaf, writer.output)
    inner = len(space.batch)
    if parted is None or len(space.inner) != 1 or not is_plain(product.a) or not is_plain(product.b):
        return UNEVEN
    block = parted[0][inner + 1]
    if parted[0] != (*leaf.sizes[:inner], leaf.sizes[inner] // block, block, *leaf.sizes[inner + 1 :]):
        return UNEVEN
    # The initialization does not repack these columns: floats would take several times their memory.
    divided = replace(
        product,
        space=replace(space, inner=(space.inner[0] // block, block)),
        a=halved(product.a, inner + len(space.rows), block),
        b=halved(product.b, inner, block),
        b_owned=False,
    )
    _, place, _ = _places(replace(step, product=divided))
    return _fused(rewriting, place, parted[1].of(leaf, parted[0]), writer)


def _joined_blocks(place: _Place, leaf: PlanTensor, writer: Map) -> Step | str:
    """Return attention with an inlined dequantization that has a scale per block of a head."""
    parted = split(leaf, writer.output)
    if parted is None or len(parted[0]) != leaf.rank + 1 or parted[0][: leaf.rank - 1] != leaf.sizes[:-1]:
        return UNEVEN
    in_blocks = parted[1].of(leaf, parted[0])
    body = inlined(in_blocks, in_blocks, writer)
    if body is None:
        return UNEVEN
    tree = joined(body)
    return place.changed(rewrite(place.tree, lambda source: tree if source == leaf else source))


def _dequantizes(body: Source) -> bool:
    """Return whether a body only dequantizes integers and optionally rounds the result to another dtype."""
    if not isinstance(body, Body):
        return False
    return body.file == DEQUANTIZE or (body.file == CONVERT and all(map(_dequantizes, body.children)))


def _fused(rewriting: Rewriting, place: _Place, leaf: PlanTensor, writer: Map) -> Step | str:
    """Return a step with the body of a map inlined, or the reason why it is not."""
    if not is_fusable(writer.body):
        return "changes coordinates"
    if place.cheap and not is_cheap(writer.body):
        return "is expensive, and repeated"
    if place.dequantizes and not _dequantizes(writer.body):
        return "is faster in memory for attention"
    reason = reason_to_keep(rewriting, writer, leaf, repeats=place.repeats)
    if reason is not None:
        return reason
    tree = inlined(place.tree, leaf, writer)
    if tree is None:
        return UNEVEN
    fused = place.changed(tree)
    read_again = any(memory_of(tensor) == memory_of(leaf) for tensor in read(fused))
    return "is expensive, and read again" if read_again and not is_cheap(writer.body) else fused


def _with_statistic(step: Rows, number: int, tree: Source) -> Rows:
    return replace(step, statistics=(*step.statistics[:number], as_body(tree), *step.statistics[number + 1 :]))


def _with_source(step: Rows, tree: Source) -> Rows:
    """Return rows over another element source, which replaces the element in the body as well."""
    same = sameness()
    body = rewrite(step.body, lambda source: tree if same(source, step.source) else source)
    return replace(step, source=tree, body=body)
