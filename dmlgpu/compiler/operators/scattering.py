"""Operators that write where indices say: a copy, then updates of single elements or blocks."""

from __future__ import annotations

from collections.abc import Mapping

from dmlgpu.catalog import descs
from dmlgpu.compiler.operators.indices import (
    check_axis,
    check_dimension_count,
    check_sizes_beside_axis,
    check_tuples,
    last_dimensions,
    merged_around_axis,
    shared_lookups,
    viewed,
)
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, input_tensor, output_tensor
from dmlgpu.compiler.plan import Map, Plan, Scatter, View, constants
from dmlgpu.compiler.rewrites.collapse import merge_dimensions
from dmlgpu.compiler.rewrites.sources import identity


class ScatterElements(Lowering):
    """Copies the input, then overwrites one element per update.

    Where the page is silent: an index outside the axis drops its update. Of several updates of one element any wins,
    and none is torn; on a deterministic device the last in row-major order wins.
    """

    desc = descs.ScatterElements
    shaders = ("indexing/scatter_elements",)

    @classmethod
    def output_sizes(cls, desc: descs.ScatterElements) -> Mapping[str, tuple[int, ...]]:
        return {"output_tensor": desc.input_tensor.sizes}

    @classmethod
    def check(cls, desc: descs.ScatterElements) -> None:
        check_axis(desc, "output_tensor")
        check_sizes(desc, "output_tensor", desc.input_tensor.sizes, "input_tensor.sizes")
        check_sizes_beside_axis(desc, "indices_tensor", "input_tensor")
        check_sizes(desc, "updates_tensor", desc.indices_tensor.sizes, "indices_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.ScatterElements) -> Plan:
        """A copy, then a scatter; dimensions before and after the axis are merged among themselves."""
        axis, (updates, indices, output) = merged_around_axis(
            desc.axis,
            input_tensor(desc, "updates_tensor", View.RAW),
            input_tensor(desc, "indices_tensor", View.INDEX),
            output_tensor(desc, view=View.RAW),
        )
        follows = shared_lookups(indices, range(updates.rank), axis)
        values, given = constants(axis=axis), (("indices", indices),)
        return _plan(desc, Scatter("scatter", cls.shaders[0], updates, given, output, values, follows))


class ScatterNd(Lowering):
    """Copies the input, then overwrites the blocks that coordinate tuples address.

    Where the page is silent or contradicts itself: an index outside its dimension drops the whole update; leading
    dimensions that the dimension counts leave out must have size 1; the window of the updates starts after the tuple
    dimensions of the input. Of several updates of one element any wins, element by element; on a deterministic device
    the last in row-major order wins.
    """

    desc = descs.ScatterNd
    shaders = ("indexing/scatter_nd",)

    @classmethod
    def output_sizes(cls, desc: descs.ScatterNd) -> Mapping[str, tuple[int, ...]]:
        return {"output_tensor": desc.input_tensor.sizes}

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
        """A copy, then a scatter; tuple and window dimensions are merged among themselves."""
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
        given = (("indices", indices),)
        return _plan(desc, Scatter("scatter", cls.shaders[0], updates, given, output, values, follows))


def _plan(desc: descs.ScatterElements | descs.ScatterNd, scatter: Scatter) -> Plan:
    """Return the copy, and the scatter over it."""
    copy = Map("copy", identity(input_tensor(desc, "input_tensor", View.RAW)), output_tensor(desc))
    return Plan(desc.operator, (copy, scatter))
