"""Operators that read where indices say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.compiler.operators.indices import (
    check_axis,
    check_dimension_count,
    check_left_out,
    check_rank,
    check_single_along_axis,
    check_sizes_beside_axis,
    check_tuples,
    last_dimensions,
    merged_around_axis,
    shared_lookups,
    viewed,
)
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, input_tensor, invalid, output_tensor
from dmlgpu.compiler.plan import Body, Lookup, Map, Plan, Tensor, View, constants
from dmlgpu.compiler.rewrites.collapse import merge_dimensions

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
        """Leading 1s, the index tensor's dimensions but its last, the input's dimensions that no index selects."""
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
        check_sizes(desc, "output_tensor", cls.output_sizes(desc)["output_tensor"], parts)

    @classmethod
    def lower(cls, desc: descs.GatherNd1) -> Plan:
        data = last_dimensions(input_tensor(desc, "input_tensor", View.RAW), desc.input_dimension_count)
        indices = last_dimensions(input_tensor(desc, "indices_tensor", View.INDEX), desc.indices_dimension_count)
        return Plan(desc.operator, (_gather(data, indices, output_tensor(desc), desc.batch_dimension_count),))


def _batch_dimensions(desc: descs.GatherNd | descs.GatherNd1) -> int:
    return desc.batch_dimension_count if isinstance(desc, descs.GatherNd1) else 0


class GatherNd(Lowering):
    """GATHER_ND1 with one batch."""

    desc = descs.GatherNd
    newer = descs.GatherNd1
    filled: ClassVar[Mapping[str, Any]] = {"batch_dimension_count": 0}


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
        """The input's sizes with the index dimensions in place of the axis; leading 1s are dropped or added."""
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
        needed = next((len(picked) - axis for axis, size in enumerate(picked) if size != 1), 0)
        check_rank(desc, "output_tensor", needed, f"picked blocks {list(picked)}")
        check_sizes(
            desc,
            "output_tensor",
            cls.output_sizes(desc)["output_tensor"],
            "input_tensor.sizes with the index dimensions in place of the axis",
        )

    @classmethod
    def lower(cls, desc: descs.Gather) -> Plan:
        data, axis = input_tensor(desc, "input_tensor", View.RAW), desc.axis
        given = last_dimensions(input_tensor(desc, "indices_tensor", View.INDEX), desc.index_dimensions)
        indices = viewed(given, (*data.sizes[:axis], *given.sizes, 1), ((0,) * axis + given.strides + (0,)))
        return Plan(desc.operator, (_gather(data, indices, output_tensor(desc), axis),))


def _gather(data: Tensor, indices: Tensor, output: Tensor, batch: int) -> Map:
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
    if lead + data.rank == selected:  # a single element: give it a window of one
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

    @classmethod
    def output_sizes(cls, desc: descs.GatherElements) -> Mapping[str, tuple[int, ...]]:
        return {"output_tensor": desc.indices_tensor.sizes}

    @classmethod
    def check(cls, desc: descs.GatherElements) -> None:
        check_axis(desc, "input_tensor")
        check_sizes_beside_axis(desc, "indices_tensor", "input_tensor")
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

    @classmethod
    def output_sizes(cls, desc: descs.ReverseSubsequences) -> Mapping[str, tuple[int, ...]]:
        return {"output_tensor": desc.input_tensor.sizes}

    @classmethod
    def check(cls, desc: descs.ReverseSubsequences) -> None:
        check_axis(desc, "input_tensor")
        check_single_along_axis(desc, "sequence_lengths_tensor", "input_tensor")
        check_sizes(desc, "output_tensor", desc.input_tensor.sizes, "input_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.ReverseSubsequences) -> Plan:
        """One map. Lengths are read as indices into the axis: those beyond it come out as the largest number."""
        data = input_tensor(desc, "input_tensor", View.RAW)
        lengths = input_tensor(desc, "sequence_lengths_tensor", View.INDEX)
        axis, (data, lengths, output) = merged_around_axis(desc.axis, data, lengths, output_tensor(desc))
        body = _along_axis(cls.shaders[0], axis, output, data, ("lengths", lengths))
        return Plan(desc.operator, (Map("reverse", body, output),))


def _along_axis(file: str, axis: int, output: Tensor, data: Tensor, lookup: tuple[str, Tensor]) -> Body:
    """Return a body that moves elements along an axis to where a tensor of lookups says."""
    return Lookup(
        file,
        output.data_type,
        output.sizes,
        (("input", data), lookup),
        constants(axis=axis),
        follows=(shared_lookups(lookup[1], range(output.rank), axis), (None,) * output.rank),
    )
