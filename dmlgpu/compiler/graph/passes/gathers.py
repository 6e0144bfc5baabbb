"""Gathers that other steps compute: slices, whose indices are constants in even steps, are strided views, and products
with quantized columns read the matrices that a gather selects, such as those of experts, where they are, and so a
single row. Gathers of inputs are one kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.tensor_desc import TensorDesc, packed_strides
from dmlgpu.compiler.graph.network import Constant, Network, NetworkNode
from dmlgpu.compiler.graph.passes.appends import may_join
from dmlgpu.compiler.graph.passes.inlining import inlined
from dmlgpu.compiler.graph.passes.nodes import rewritten
from dmlgpu.compiler.graph.passes.rewriting import (
    Memory,
    NodePass,
    NoteTaker,
    Rewriting,
    StepPass,
    element_wise_leaves,
    memory_of,
)
from dmlgpu.compiler.operators.indexing import GATHER_ND1
from dmlgpu.compiler.plan import Contract, GatherColumns, Lookup, Map, PlanTensor, Role, Source, Step, Together
from dmlgpu.compiler.plan.parts import read, written
from dmlgpu.compiler.plan.sources import constants
from dmlgpu.compiler.rewrites.sources import nodes, rewrite


def slice_gathers(network: Network, note: NoteTaker) -> Network:
    """Replace GATHER by SLICE1 if its indices are constants in even, ascending steps, such as ``qkv[0]``."""

    def change(index: int, _first: int) -> Sequence[NetworkNode] | None:
        node = network.nodes[index]
        if not isinstance(node.desc, descs.Gather) or not isinstance(node.inputs[1], Constant):
            return None
        data = np.frombuffer(network.constants[node.inputs[1].index], np.uint8)
        desc = _sliced(node.desc, node.desc.indices_tensor.decode(data).ravel().tolist())
        if desc is None:
            return None
        note(node.name, "a slice, because its indices are constants in even steps")
        return [replace(node, desc=desc, inputs=node.inputs[:1])]

    return rewritten(network, change)


SLICES = NodePass("slices", slice_gathers)


def select_operands(rewriting: Rewriting) -> None:
    """Read what products with quantized columns multiply by number instead of gathering copies: the matrices of a
    batched product, if few rows read each, and a single row."""
    for select in (_select_columns, _select_row):
        for index, step in rewriting.indexed():
            if isinstance(step, Contract):
                select(rewriting, index, step)


SELECTIONS = StepPass("selections", select_operands)


def _select_columns(rewriting: Rewriting, index: int, step: Contract) -> None:
    gathers = {
        leaf: writer
        for leaf in element_wise_leaves(step.product.b)
        if (producer := rewriting.only_producer(index, memory_of(leaf))) is not None
        and isinstance(writer := rewriting.step(producer), Map)
    }
    batches = len(step.product.space.batch)
    selected: dict[Source, Lookup | None] = {leaf: _selected(leaf, writer, batches) for leaf, writer in gathers.items()}
    if not selected or None in selected.values():
        return
    tree = rewrite(step.product.b, lambda node: selected.get(node) or node)
    fused = replace(step, product=replace(step.product, b=tree))
    if not rewriting.capabilities.reads_selections(fused) or not rewriting.fits(fused):
        return
    rewriting.replace(index, fused)
    for writer in gathers.values():
        producer = rewriting.producer(memory_of(writer.output))
        assert producer is not None
        rewriting.drop(producer, step.label)


def _select_row(rewriting: Rewriting, index: int, step: Contract) -> None:
    """Read the row of a product where a gather finds it. More rows would be looked up once for each column."""
    a = step.product.a
    producer = rewriting.only_producer(index, memory_of(a)) if isinstance(a, PlanTensor) else None
    writer = None if producer is None else rewriting.step(producer)
    if not isinstance(a, PlanTensor) or not isinstance(writer, Map) or not isinstance(writer.body, Lookup):
        return
    tree = inlined(a, a, writer)
    fused = None if tree is None else replace(step, product=replace(step.product, a=tree))
    if producer is None or fused is None or not rewriting.capabilities.normalizes(fused):
        return
    if math.prod(step.product.space.rows) == 1 and rewriting.fits(fused):
        rewriting.replace(index, fused)
        rewriting.drop(producer, step.label)


def _selected(leaf: PlanTensor, writer: Map, batches: int) -> Lookup | None:
    """Return a lookup of the matrices that a gather copies; None if it gathers something else.

    Args:
        leaf: Columns of a product, over (batch.., inner.., columns..).
        writer: The step that writes its memory.
        batches: Number of batch dimensions.
    """
    body, output = writer.body, writer.output
    if (
        not isinstance(body, Lookup)
        or body.file != GATHER_ND1
        or dict(body.constants) != _OF_MATRICES
        or output.rank != 2
    ):
        return None
    (_, data), (_, numbers) = body.inputs
    if not isinstance(data, PlanTensor) or not isinstance(numbers, PlanTensor) or leaf.offset or output.offset:
        return None
    count, matrix = output.sizes
    bits = leaf.data_type.bits
    along = [
        at
        for at in range(batches)
        if leaf.sizes[at] == count and leaf.strides[at] * bits == matrix * output.data_type.bits
    ]
    if len(along) != 1 or output.strides != (matrix, 1) or data.strides[1] != 1:
        return None
    (at,) = along
    stride, offset = (size * data.data_type.bits // bits for size in (data.strides[0], data.offset))

    def changed(values: tuple[int, ...], value: int) -> tuple[int, ...]:
        return (*values[:at], value, *values[at + 1 :])

    matrices = replace(
        leaf,
        binding=data.binding,
        sizes=changed(leaf.sizes, data.sizes[0]),
        strides=changed(leaf.strides, stride),
        offset=offset,
    )
    chosen = replace(
        numbers, sizes=(*leaf.sizes[: at + 1], 1), strides=(*(0 for _ in range(at)), numbers.strides[0], 0)
    )
    follows = tuple(None if dimension <= at else dimension for dimension in range(leaf.rank))
    inputs = (("input", matrices), ("indices", chosen))
    values = constants(batch=at, tuple=1, lead=at + 1)
    return Lookup(GATHER_ND1, leaf.data_type, leaf.sizes, inputs, values, follows=(follows, (None,) * leaf.rank))


_OF_MATRICES = {"batch": 0, "tuple": 1, "lead": 1}
"""Constants of a gather of whole matrices by a list of numbers."""


def share_panels(rewriting: Rewriting) -> None:
    """Gather rows of matrices, such as embeddings, from the panels of products with them, so that the device has no
    second layout."""
    products = [step for _, step in rewriting.indexed() if isinstance(step, Contract)]
    columns = [rewriting.capabilities.panel_matrices(product) for product in products]
    matrices = {memory_of(matrix): matrix for of_product in columns for matrix in of_product}
    quantized = {
        memory_of(matrix)
        for of_product in columns
        if not all(matrix.data_type.is_float for matrix in of_product)
        for matrix in of_product
    }
    for index, step in rewriting.indexed() if matrices else ():
        read = _read_columns(step, matrices) if isinstance(step, Map) else ()
        if read:
            are_quantized = any(memory_of(matrix) in quantized for matrix in read)
            rewriting.replace(index, GatherColumns(**vars(step), matrices=read, are_quantized=are_quantized))
            rewriting.note(step.label, "reads the panels of a product")


PANELS = StepPass("panels", share_panels)


def _read_columns(step: Map, matrices: Mapping[Memory, PlanTensor]) -> tuple[PlanTensor, ...]:
    """Return the matrices that a map reads only by lookups of columns."""
    lookups: dict[PlanTensor, bool] = {}
    for node in nodes(step.body):
        if isinstance(node, Lookup) and isinstance(data := node.children[0], PlanTensor):
            matrix = matrices.get(memory_of(data))
            if matrix is not None:
                lookups[matrix] = lookups.get(matrix, True) and _is_of_columns(node, data, matrix)
    return tuple(matrix for matrix, is_only in lookups.items() if is_only)


def _is_of_columns(lookup: Lookup, data: PlanTensor, matrix: PlanTensor) -> bool:
    """Return whether a lookup takes rows of data that are the columns of a matrix."""
    if lookup.file != GATHER_ND1 or dict(lookup.constants)["tuple"] != 1 or data.rank != lookup.rank:
        return False
    inner = math.prod(matrix.sizes[:-1])
    return (
        data.data_type is matrix.data_type
        and all(size == 1 for size in (*data.sizes[:-2], *lookup.sizes[:-2]))
        and data.sizes[-2:] == (matrix.sizes[-1], inner)
        and data.strides[-2:] == (matrix.strides[-1], 1)
        and data.offset == matrix.offset
        and matrix.strides[:-1] == packed_strides(matrix.sizes[:-1])
    )


def join_gathers(rewriting: Rewriting) -> None:
    """Compute gathers of inputs, and outputs that depend on inputs alone, in the kernel of another gather: the
    embeddings, cosines and sines of a token, and the number of tokens so far."""
    places = {index: place for place, (index, _) in enumerate(rewriting.indexed())}
    apart = {index: step for index, step in rewriting.indexed() if isinstance(step, Map) and may_join(step)}
    movable = [index for index, step in apart.items() if _depends_on_inputs(rewriting, step)]
    for start in [index for index, step in apart.items() if _gathers(step)]:
        if start not in apart:
            continue
        members = {start: apart[start]}
        for index in movable:
            distance = places[index] - places[start] - sum(member >= start for member in members)
            if index == start or index not in apart or not _may_move(rewriting, places, index, distance):
                continue
            if not rewriting.fits(Together(apart[start].label, (*members.values(), apart[index]))):
                break
            members[index] = apart[index]
        if len(members) > 1:
            first, *others = members.values()
            joined = Together(f"{first.label} and {len(others)} more", tuple(members.values()))
            for index in members:
                rewriting.replace(index, joined if index == start else None)
                del apart[index]
            for other in others:
                rewriting.note(other.label, f"in the kernel of {first.label}")


GATHERS = StepPass("gathers", join_gathers)


def _gathers(step: Step) -> bool:
    """Return whether a step is a map that looks elements up."""
    return isinstance(step, Map) and any(isinstance(node, Lookup) for node in nodes(step.body))


def _depends_on_inputs(rewriting: Rewriting, step: Map) -> bool:
    """Return whether a map computes a whole tensor, from tensors that no step writes."""
    is_alone = len(rewriting.writers(memory_of(step.output))) == 1
    return is_alone and not any(rewriting.writers(memory_of(tensor)) for tensor in read(step))


def _may_move(rewriting: Rewriting, places: Mapping[int, int], index: int, distance: int) -> bool:
    """Return whether a map that depends on inputs alone may be computed elsewhere.

    A result that is computed earlier takes memory for longer, unless it is an output: it must be gathered, and be read
    for as many steps as it moves.

    Args:
        rewriting: The plan.
        places: Places of the steps, by index.
        index: Index of the map.
        distance: Number of steps before which it moves; negative if it moves later, which only unread results may.
    """
    step = rewriting.step(index)
    (memory,) = map(memory_of, written(step))
    last = max((places[reader] for reader in rewriting.readers(memory)), default=None)
    if last is None or distance < 0:
        return last is None
    return memory[0] is Role.OUTPUT or (_gathers(step) and last - places[index] >= distance)


def _sliced(desc: descs.Gather, indices: list[int]) -> descs.Slice1 | None:
    """Return the slice that a gather takes; None if there is none. Gathers give 0 for indices outside the input."""
    source, output, axis = desc.input_tensor, desc.output_tensor, desc.axis
    first, last = indices[0], indices[-1]
    step = indices[1] - first if len(indices) > 1 else 1
    if step < 1 or indices != list(range(first, last + 1, step)) or first < 0 <= last:
        return None
    begin, window = first + (source.sizes[axis] if first < 0 else 0), last + 1 - first
    if begin < 0 or begin + window > source.sizes[axis] or not output.is_packed:
        return None

    def along(others: Sequence[int], own: int) -> tuple[int, ...]:
        return (*others[:axis], own, *others[axis + 1 :])

    sizes, rank = along(source.sizes, len(indices)), len(source.sizes)
    return descs.Slice1(
        input_tensor=source,
        output_tensor=TensorDesc(output.data_type, sizes, total_tensor_size_in_bytes=output.byte_size),
        input_window_offsets=along((0,) * rank, begin),
        input_window_sizes=along(source.sizes, window),
        input_window_strides=along((1,) * rank, step),
    )
