"""Operators that read or write at indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.compiler.operators.lowering import (
    Lowering,
    check_axis,
    check_sizes,
    check_sizes_beside_axis,
    input_tensor,
    invalid,
    output_tensor,
)
from dmlgpu.compiler.plan import Body, Lookup, Map, Plan, PlanTensor, Scatter, View, constants
from dmlgpu.compiler.rewrites.collapse import merge_dimensions
from dmlgpu.compiler.rewrites.sources import identity
from dmlgpu.compiler.sizes.arithmetic import is_many

# ---- checks


def check_single_along_axis(desc: Any, field: str, like: str) -> None:
    """Raise InvalidDescription unless a tensor has the sizes of the tensor ``like``, except 1 along the axis."""
    sizes = getattr(desc, like).sizes
    expected = (*sizes[: desc.axis], 1, *sizes[desc.axis + 1 :])
    check_sizes(desc, field, expected, f"{like}.sizes with 1 on axis {desc.axis}")


def check_dimension_count(desc: Any, name: str) -> None:
    """Raise InvalidDescription unless a dimension count is within the tensor's, and omitted dimensions have size 1."""
    tensor, count = getattr(desc, f"{name}_tensor"), getattr(desc, f"{name}_dimension_count")
    if not 1 <= count <= tensor.dimension_count:
        raise invalid(
            desc,
            f"{name}_dimension_count",
            f"must be between 1 and {name}_tensor's dimension count ({tensor.dimension_count}), got {count}",
        )
    check_left_out(desc, f"{name}_tensor", f"{name}_dimension_count")


def check_left_out(desc: Any, field: str, count_field: str) -> None:
    """Raise InvalidDescription unless the leading dimensions that a count omits have size 1."""
    tensor, count = getattr(desc, field), getattr(desc, count_field)
    left_out = tensor.sizes[: tensor.dimension_count - count]
    if any(size != 1 for size in left_out):
        raise invalid(
            desc,
            f"{field}.sizes",
            f"must be 1 in the leading dimensions that {count_field} ({count}) leaves out, got {list(left_out)}",
        )


def check_tuples(desc: Any, field: str, batch: int = 0) -> None:
    """Raise InvalidDescription unless the tuples are no longer than the dimensions they index, and a tensor has the
    dimensions that tuples and windows take."""
    counted = desc.input_dimension_count
    length, longest = desc.indices_tensor.sizes[-1], counted - batch
    if length > longest:
        limit = "input_dimension_count - batch_dimension_count" if batch else "input_dimension_count"
        worked = f"{counted} - {batch} = {longest}" if batch else f"{longest}"
        raise invalid(desc, "indices_tensor.sizes[-1]", f"must be at most {limit} ({worked}), got {length}")
    check_rank(desc, field, desc.indices_dimension_count - 1 + longest - length, "tuple and window dimensions")


def check_rank(desc: Any, field: str, needed: int, what: str) -> None:
    """Raise InvalidDescription unless a tensor has at least the needed dimensions."""
    rank = getattr(desc, field).dimension_count
    if needed > rank:
        raise invalid(desc, f"{field}.sizes", f"must have at least {needed} dimensions to hold the {what}, got {rank}")


# ---- views


def viewed(tensor: PlanTensor, sizes: tuple[int, ...], strides: tuple[int, ...]) -> PlanTensor:
    """View the same memory with other sizes and strides."""
    return replace(tensor, sizes=sizes, strides=strides)


def last_dimensions(tensor: PlanTensor, count: int) -> PlanTensor:
    """View a tensor with ``count`` dimensions by adding or removing leading dimensions of size 1."""
    extra = max(count - tensor.rank, 0)
    first = max(tensor.rank - count, 0)
    return viewed(tensor, (1,) * extra + tensor.sizes[first:], (0,) * extra + tensor.strides[first:])


def merged_around_axis(axis: int, *tensors: PlanTensor) -> tuple[int, list[PlanTensor]]:
    """Return the axis and the tensors, equal in all other sizes, with the dimensions before and after it merged among
    themselves."""
    sizes = tensors[0].sizes
    before, outer = merge_dimensions(sizes[:axis], *(tensor.strides[:axis] for tensor in tensors))
    after, inner = merge_dimensions(sizes[axis + 1 :], *(tensor.strides[axis + 1 :] for tensor in tensors))
    merged = [
        viewed(tensor, (*before, tensor.sizes[axis], *after), (*outer[i], tensor.strides[axis], *inner[i]))
        for i, tensor in enumerate(tensors)
    ]
    return len(before), merged


def shared_lookups(indices: PlanTensor, dimensions: range, axis: int | None = None) -> tuple[int | None, ...]:
    """Return the dimensions along which elements may be packed: those in which the index tensor is broadcast, so that
    adjacent elements use the same index. None for the others, and for the indexed axis."""
    return tuple(d if indices.strides[d] == 0 and d != axis else None for d in dimensions)


GATHER_ND1 = "indexing/gather_nd1"


class GatherNd1(Lowering):
    """Picks blocks by coordinate tuples, in batches.

    Where the page is silent: an index outside its dimension gives 0; leading dimensions that the dimension counts
    leave out must have size 1. The window of the output starts after the batch and tuple dimensions of the input (the
    page's general formula contradicts its own illustration).
    """

    desc = descs.GatherNd1

    @classmethod
    def output_sizes(cls, desc: descs.GatherNd | descs.GatherNd1) -> Mapping[str, tuple[int, ...]]:
        """Return leading 1s, the index tensor's dimensions but its last, and the input's dimensions that no index
        selects."""
        data = desc.input_tensor.sizes[-desc.input_dimension_count :]
        indices = desc.indices_tensor.sizes[-desc.indices_dimension_count :]
        picked = indices[:-1] + data[_batch_dimensions(desc) + indices[-1] :]
        return {"output_tensor": (1,) * (desc.output_tensor.dimension_count - len(picked)) + picked}

    @classmethod
    def check(cls, desc: descs.GatherNd | descs.GatherNd1) -> None:
        for name in ("input", "indices"):
            check_dimension_count(desc, name)
        batch = _batch_dimensions(desc)
        counts = (desc.input_dimension_count, desc.indices_dimension_count)
        if batch >= min(counts):
            raise invalid(
                desc,
                "batch_dimension_count",
                f"must be below input_dimension_count ({counts[0]}) and indices_dimension_count ({counts[1]}),"
                f" got {batch}",
            )
        check_tuples(desc, "output_tensor", batch)
        data = desc.input_tensor.sizes[-counts[0] :][:batch]
        indices = desc.indices_tensor.sizes[-counts[1] :][:batch]
        if data != indices:
            raise invalid(
                desc,
                "indices_tensor.sizes",
                f"must agree with input_tensor in its batch dimensions {list(data)}, got {list(indices)}",
            )
        parts = "leading 1s, batch, tuple, window" if batch else "leading 1s, tuple, window"
        cls.check_output(desc, parts)

    @classmethod
    def lower(cls, desc: descs.GatherNd1) -> Plan:
        data = last_dimensions(input_tensor(desc, "input_tensor", View.RAW), desc.input_dimension_count)
        indices = last_dimensions(input_tensor(desc, "indices_tensor", View.INDEX), desc.indices_dimension_count)
        return Plan(desc.operator, (_gather(data, indices, output_tensor(desc), desc.batch_dimension_count),))


def _batch_dimensions(desc: descs.GatherNd | descs.GatherNd1) -> int:
    return desc.batch_dimension_count if isinstance(desc, descs.GatherNd1) else 0


Lowering.older(descs.GatherNd, descs.GatherNd1, "GATHER_ND1 with one batch.", batch_dimension_count=0)


class Gather(Lowering):
    """Picks whole blocks along one axis: GATHER_ND1 with the same indices, one to a tuple, in all batches.

    Where the page is silent or contradicts itself: an index outside the axis gives 0 (the page leaves open which value
    comes out); index dimensions may be all of the index tensor's (as its examples have it), or none (one index, and
    the axis disappears); leading dimensions of the index tensor that they leave out must have size 1, as must those
    that the output has no room for.
    """

    desc = descs.Gather
    shaders = (GATHER_ND1,)

    @classmethod
    def output_sizes(cls, desc: descs.Gather) -> Mapping[str, tuple[int, ...]]:
        """Return the input's sizes with the index dimensions in place of the axis; leading 1s are removed or added."""
        picked, rank = cls._picked_sizes(desc), desc.output_tensor.dimension_count
        return {"output_tensor": (1,) * (rank - len(picked)) + picked[max(len(picked) - rank, 0) :]}

    @classmethod
    def _picked_sizes(cls, desc: descs.Gather) -> tuple[int, ...]:
        data, indices = desc.input_tensor.sizes, desc.indices_tensor.sizes
        return data[: desc.axis] + indices[len(indices) - desc.index_dimensions :] + data[desc.axis + 1 :]

    @classmethod
    def check(cls, desc: descs.Gather) -> None:
        check_axis(desc, "input_tensor")
        rank = desc.indices_tensor.dimension_count
        if desc.index_dimensions > rank:
            raise invalid(
                desc,
                "index_dimensions",
                f"must be at most indices_tensor's dimension count ({rank}), got {desc.index_dimensions}",
            )
        check_left_out(desc, "indices_tensor", "index_dimensions")
        picked = cls._picked_sizes(desc)
        if desc.output_tensor.dimension_count < len(picked):  # leading 1s may be left out
            needed = next((len(picked) - axis for axis, size in enumerate(picked) if is_many(size)), 0)
            check_rank(desc, "output_tensor", needed, f"picked blocks {list(picked)}")
        cls.check_output(desc, "input_tensor.sizes with the index dimensions in place of the axis")

    @classmethod
    def lower(cls, desc: descs.Gather) -> Plan:
        data, axis = input_tensor(desc, "input_tensor", View.RAW), desc.axis
        selected = last_dimensions(input_tensor(desc, "indices_tensor", View.INDEX), desc.index_dimensions)
        indices = viewed(selected, (*data.sizes[:axis], *selected.sizes, 1), ((0,) * axis + selected.strides + (0,)))
        return Plan(desc.operator, (_gather(data, indices, output_tensor(desc), axis),))


def _gather(data: PlanTensor, indices: PlanTensor, output: PlanTensor, batch: int) -> Map:
    """Return a gather in batches; batch, tuple and window dimensions are merged among themselves.

    Args:
        data: batch dimensions, dimensions that the tuples index, window dimensions.
        indices: batch dimensions, further ones, and last the length of a tuple.
        output: the index tensor's dimensions but its last, then the window dimensions; or more or fewer leading 1s.
    """
    length, lead = indices.sizes[-1], indices.rank - 1
    selected = batch + length
    output = last_dimensions(output, max(lead + data.rank - selected, 1))
    window_strides = output.strides[lead:]
    if lead + data.rank == selected:  # a single element gets a window of size 1
        data = viewed(data, (*data.sizes, 1), (*data.strides, 0))
        window_strides = (0,)
    batches, batch_strides = merge_dimensions(
        data.sizes[:batch], data.strides[:batch], indices.strides[:batch], output.strides[:batch]
    )
    tuples, tuple_strides = merge_dimensions(
        indices.sizes[batch:lead], indices.strides[batch:lead], output.strides[batch:lead]
    )
    windows, steps = merge_dimensions(data.sizes[selected:], data.strides[selected:], window_strides)
    data = viewed(
        data,
        batches + data.sizes[batch:selected] + windows,
        batch_strides[0] + data.strides[batch:selected] + steps[0],
    )
    indices = viewed(indices, batches + tuples + (length,), batch_strides[1] + tuple_strides[0] + indices.strides[-1:])
    output = viewed(output, batches + tuples + windows, batch_strides[2] + tuple_strides[1] + steps[1])
    lead, first = len(batches) + len(tuples), len(batches) + length
    followed = shared_lookups(indices, range(len(batches))) + (None,) * len(tuples)
    body = Lookup(
        GATHER_ND1,
        output.data_type,
        output.sizes,
        (("input", data), ("indices", indices)),
        constants(batch=len(batches), tuple=length, lead=lead),
        follows=(followed + tuple(range(first, first + len(windows))), (None,) * output.rank),
    )
    return Map("gather", body, output)


class GatherElements(Lowering):
    """Reads one element per index; only the coordinate on the axis is replaced by it.

    Where the page is silent: an index outside the axis gives 0.
    """

    desc = descs.GatherElements
    same_sizes: ClassVar[Mapping[str, str]] = {"output_tensor": "indices_tensor"}

    @classmethod
    def check(cls, desc: descs.GatherElements) -> None:
        check_axis(desc, "input_tensor")
        check_sizes_beside_axis(desc, "indices_tensor", desc.indices_tensor, "input_tensor")
        check_sizes(desc, "output_tensor", desc.indices_tensor.sizes, "indices_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.GatherElements) -> Plan:
        data = input_tensor(desc, "input_tensor", View.RAW)
        indices = input_tensor(desc, "indices_tensor", View.INDEX)
        axis, (indices, data, output) = merged_around_axis(desc.axis, indices, data, output_tensor(desc))
        body = _along_axis(cls.shaders[0], axis, output, data, ("indices", indices))
        return Plan(desc.operator, (Map("gather", body, output),))


class ReverseSubsequences(Lowering):
    """Reverses the beginning of each line along an axis, as far as a tensor of lengths says.

    A length beyond the axis means the whole line.
    """

    desc = descs.ReverseSubsequences
    same_sizes: ClassVar[Mapping[str, str]] = {"output_tensor": "input_tensor"}

    @classmethod
    def check(cls, desc: descs.ReverseSubsequences) -> None:
        check_axis(desc, "input_tensor")
        check_single_along_axis(desc, "sequence_lengths_tensor", "input_tensor")
        check_sizes(desc, "output_tensor", desc.input_tensor.sizes, "input_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.ReverseSubsequences) -> Plan:
        """Lower to one map. Lengths are read as indices into the axis; those beyond it become the largest number."""
        data = input_tensor(desc, "input_tensor", View.RAW)
        lengths = input_tensor(desc, "sequence_lengths_tensor", View.INDEX)
        axis, (data, lengths, output) = merged_around_axis(desc.axis, data, lengths, output_tensor(desc))
        body = _along_axis(cls.shaders[0], axis, output, data, ("lengths", lengths))
        return Plan(desc.operator, (Map("reverse", body, output),))


def _along_axis(file: str, axis: int, output: PlanTensor, data: PlanTensor, lookup: tuple[str, PlanTensor]) -> Body:
    """Return a body that moves elements along an axis to the indices in a tensor of lookups."""
    return Lookup(
        file,
        output.data_type,
        output.sizes,
        (("input", data), lookup),
        constants(axis=axis),
        follows=(shared_lookups(lookup[1], range(output.rank), axis), (None,) * output.rank),
    )


class ScatterElements(Lowering):
    """Copies the input, then overwrites one element per update.

    Where the page is silent: an index outside the axis drops its update. Of several updates of one element any wins,
    and none is torn; on a deterministic device the last in row-major order wins.
    """

    desc = descs.ScatterElements
    shaders = ("indexing/scatter_elements",)
    same_sizes: ClassVar[Mapping[str, str]] = {"output_tensor": "input_tensor"}

    @classmethod
    def check(cls, desc: descs.ScatterElements) -> None:
        check_axis(desc, "output_tensor")
        check_sizes(desc, "output_tensor", desc.input_tensor.sizes, "input_tensor.sizes")
        check_sizes_beside_axis(desc, "indices_tensor", desc.indices_tensor, "input_tensor")
        check_sizes(desc, "updates_tensor", desc.indices_tensor.sizes, "indices_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.ScatterElements) -> Plan:
        """Lower to a copy and a scatter; dimensions before and after the axis are merged."""
        axis, (updates, indices, output) = merged_around_axis(
            desc.axis,
            input_tensor(desc, "updates_tensor", View.RAW),
            input_tensor(desc, "indices_tensor", View.INDEX),
            output_tensor(desc, view=View.RAW),
        )
        follows = shared_lookups(indices, range(updates.rank), axis)
        values, inputs = constants(axis=axis), (("indices", indices),)
        return _scattered(desc, Scatter("scatter", cls.shaders[0], updates, inputs, output, values, follows))


class ScatterNd(Lowering):
    """Copies the input, then overwrites the blocks that coordinate tuples address.

    Where the page is silent or contradicts itself: an index outside its dimension drops the whole update; leading
    dimensions that the dimension counts leave out must have size 1; the window of the updates starts after the tuple
    dimensions of the input. Of several updates of one element any wins, element by element; on a deterministic device
    the last in row-major order wins.
    """

    desc = descs.ScatterNd
    shaders = ("indexing/scatter_nd",)
    same_sizes: ClassVar[Mapping[str, str]] = {"output_tensor": "input_tensor"}

    @classmethod
    def check(cls, desc: descs.ScatterNd) -> None:
        for name in ("input", "indices"):
            check_dimension_count(desc, name)
        check_sizes(desc, "output_tensor", desc.input_tensor.sizes, "input_tensor.sizes")
        check_tuples(desc, "updates_tensor")
        data = desc.input_tensor.sizes[-desc.input_dimension_count :]
        indices = desc.indices_tensor.sizes[-desc.indices_dimension_count :]
        blocks = indices[:-1] + data[indices[-1] :]
        expected = (1,) * (desc.updates_tensor.dimension_count - len(blocks)) + blocks
        check_sizes(desc, "updates_tensor", expected, "leading 1s, tuple, window")

    @classmethod
    def lower(cls, desc: descs.ScatterNd) -> Plan:
        """Lower to a copy and a scatter; tuple and window dimensions are merged."""
        output = last_dimensions(output_tensor(desc, view=View.RAW), desc.input_dimension_count)
        indices = last_dimensions(input_tensor(desc, "indices_tensor", View.INDEX), desc.indices_dimension_count)
        length, lead = indices.sizes[-1], indices.rank - 1
        updates = input_tensor(desc, "updates_tensor", View.RAW)
        updates = last_dimensions(updates, lead + output.rank - length)
        tuples, tuple_strides = merge_dimensions(indices.sizes[:-1], indices.strides[:-1], updates.strides[:lead])
        windows, steps = merge_dimensions(output.sizes[length:], output.strides[length:], updates.strides[lead:])
        output = viewed(output, output.sizes[:length] + windows, output.strides[:length] + steps[0])
        indices = viewed(indices, (*tuples, length), tuple_strides[0] + indices.strides[-1:])
        updates = viewed(updates, tuples + windows, tuple_strides[1] + steps[1])
        if not updates.rank:  # a single element
            updates = viewed(updates, (1,), (0,))
        lead = len(tuples)
        follows = (None,) * (updates.rank - len(windows)) + tuple(range(length, output.rank))
        values = constants(tuple=length, lead=lead)
        inputs = (("indices", indices),)
        return _scattered(desc, Scatter("scatter", cls.shaders[0], updates, inputs, output, values, follows))


def _scattered(desc: descs.ScatterElements | descs.ScatterNd, scatter: Scatter) -> Plan:
    """Return the copy, and the scatter over it."""
    copy = Map("copy", identity(input_tensor(desc, "input_tensor", View.RAW)), output_tensor(desc))
    return Plan(desc.operator, (copy, scatter))
