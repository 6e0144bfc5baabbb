"""Operators that read or write where indices say."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dmlgpu import descs
from dmlgpu.enums import DataType
from dmlgpu.kernels.collapse import merge_dimensions
from dmlgpu.kernels.sources import identity
from dmlgpu.operators.lowering import Lowering, check_sizes, input_tensor, invalid, output_tensor
from dmlgpu.plan import Binding, Body, Map, Plan, Role, Scatter, ScatterSchedule, Step, Tensor, View, constants
from dmlgpu.target import Target
from dmlgpu.tensor import packed_strides


class GatherNd1(Lowering):
    """Picks blocks by coordinate tuples, in batches.

    Where the page is silent: an index outside its dimension gives 0; leading dimensions that the dimension counts
    leave out must have size 1. The window of the output starts after the batch and tuple dimensions of the input (the
    page's general formula contradicts its own illustration).
    """

    desc = descs.GatherNd1
    shaders = ("indexing/gather_nd1",)

    @classmethod
    def output_sizes(cls, desc: descs.GatherNd1) -> Mapping[str, tuple[int, ...]]:
        """Leading 1s, the index tensor's dimensions but its last, the input's dimensions that no index selects."""
        data = desc.input_tensor.sizes[-desc.input_dimension_count :]
        indices = desc.indices_tensor.sizes[-desc.indices_dimension_count :]
        picked = indices[:-1] + data[desc.batch_dimension_count + indices[-1] :]
        return {"output_tensor": (1,) * (desc.output_tensor.dimension_count - len(picked)) + picked}

    @classmethod
    def check(cls, desc: descs.GatherNd1) -> None:
        """Dimension counts, tuple length, batch sizes, output sizes."""
        for name in ("input", "indices"):
            _check_dimension_count(desc, name)
        batch = desc.batch_dimension_count
        counts = (desc.input_dimension_count, desc.indices_dimension_count)
        if batch >= min(counts):
            raise invalid(
                desc,
                "batch_dimension_count",
                f"must be below input_dimension_count ({counts[0]}) and indices_dimension_count ({counts[1]}),"
                f" got {batch}",
            )
        _check_tuple_length(desc, counts[0], batch)
        data = desc.input_tensor.sizes[-counts[0] :][:batch]
        indices = desc.indices_tensor.sizes[-counts[1] :][:batch]
        if data != indices:
            raise invalid(
                desc,
                "indices_tensor.sizes",
                f"must agree with input_tensor in its batch dimensions {list(data)}, got {list(indices)}",
            )
        check_sizes(desc, "output_tensor", cls.output_sizes(desc)["output_tensor"], "leading 1s, batch, tuple, window")

    @classmethod
    def lower(cls, desc: descs.GatherNd1, target: Target) -> Plan:
        """One map; batch, tuple and window dimensions are merged among themselves."""
        data = _last(input_tensor(desc, "input_tensor", View.RAW), desc.input_dimension_count)
        indices = _last(input_tensor(desc, "indices_tensor", View.INDEX), desc.indices_dimension_count)
        output = output_tensor(desc)
        batch, length = desc.batch_dimension_count, indices.sizes[-1]
        selected = batch + length
        lead = indices.rank - 1
        output = _last(output, max(lead + data.rank - selected, 1))
        window_strides = output.strides[lead:]
        if lead + data.rank == selected:  # a single element: give it a window of one
            data = _view(data, (*data.sizes, 1), (*data.strides, 0))
            window_strides = (0,)
        batches, batch_strides = merge_dimensions(
            data.sizes[:batch], data.strides[:batch], indices.strides[:batch], output.strides[:batch]
        )
        tuples, tuple_strides = merge_dimensions(
            indices.sizes[batch:lead], indices.strides[batch:lead], output.strides[batch:lead]
        )
        windows, steps = merge_dimensions(data.sizes[selected:], data.strides[selected:], window_strides)
        data = _view(
            data,
            batches + data.sizes[batch:selected] + windows,
            batch_strides[0] + data.strides[batch:selected] + steps[0],
        )
        indices = _view(
            indices, batches + tuples + (length,), batch_strides[1] + tuple_strides[0] + indices.strides[-1:]
        )
        output = _view(output, batches + tuples + windows, batch_strides[2] + tuple_strides[1] + steps[1])
        lead = len(batches) + len(tuples)
        first = len(batches) + length
        body = Body(
            cls.shaders[0],
            output.data_type,
            output.sizes,
            (("input", data), ("indices", indices)),
            constants(batch=len(batches), tuple=length, lead=lead),
            follows=((None,) * lead + tuple(range(first, first + len(windows))), (None,) * output.rank),
        )
        return Plan(desc.operator, (Map("gather", body, output),))


class GatherNd(Lowering):
    """GATHER_ND1 with one batch."""

    desc = descs.GatherNd

    @classmethod
    def upgrade(cls, desc: descs.GatherNd) -> descs.GatherNd1:
        """The same without batch dimensions."""
        return descs.GatherNd1(
            input_tensor=desc.input_tensor,
            indices_tensor=desc.indices_tensor,
            output_tensor=desc.output_tensor,
            input_dimension_count=desc.input_dimension_count,
            indices_dimension_count=desc.indices_dimension_count,
            batch_dimension_count=0,
        )

    @classmethod
    def output_sizes(cls, desc: descs.GatherNd) -> Mapping[str, tuple[int, ...]]:
        """As GATHER_ND1."""
        return GatherNd1.output_sizes(cls.upgrade(desc))

    @classmethod
    def check(cls, desc: descs.GatherNd) -> None:
        """Dimension counts, tuple length, output sizes."""
        for name in ("input", "indices"):
            _check_dimension_count(desc, name)
        _check_tuple_length(desc, desc.input_dimension_count, 0)
        check_sizes(desc, "output_tensor", cls.output_sizes(desc)["output_tensor"], "leading 1s, tuple, window")


def _check_dimension_count(desc: descs.GatherNd | descs.GatherNd1, name: str) -> None:
    """A dimension count lies within the tensor's, and what it leaves out has size 1."""
    tensor, count = getattr(desc, f"{name}_tensor"), getattr(desc, f"{name}_dimension_count")
    if not 1 <= count <= tensor.dimension_count:
        raise invalid(
            desc,
            f"{name}_dimension_count",
            f"must be between 1 and {name}_tensor's dimension count ({tensor.dimension_count}), got {count}",
        )
    left_out = tensor.sizes[: tensor.dimension_count - count]
    if any(size != 1 for size in left_out):
        raise invalid(
            desc,
            f"{name}_tensor.sizes",
            f"must be 1 in the leading dimensions that {name}_dimension_count ({count}) leaves out,"
            f" got {list(left_out)}",
        )


def _check_tuple_length(desc: descs.GatherNd | descs.GatherNd1, dimension_count: int, batch: int) -> None:
    """The tuples are no longer than the dimensions they index, and the picked blocks fit the output's rank."""
    length, longest = desc.indices_tensor.sizes[-1], dimension_count - batch
    if length > longest:
        limit = "input_dimension_count - batch_dimension_count" if batch else "input_dimension_count"
        worked = f"{dimension_count} - {batch} = {longest}" if batch else f"{longest}"
        raise invalid(desc, "indices_tensor.sizes[-1]", f"must be at most {limit} ({worked}), got {length}")
    needed = desc.indices_dimension_count - 1 + longest - length
    if needed > desc.output_tensor.dimension_count:
        raise invalid(
            desc,
            "output_tensor.sizes",
            f"must have at least {needed} dimensions to hold the tuple and window dimensions,"
            f" got {desc.output_tensor.dimension_count}",
        )


def _last(tensor: Tensor, count: int) -> Tensor:
    """A tensor without its leading dimensions, which have size 1."""
    return _view(tensor, tensor.sizes[-count:], tensor.strides[-count:])


def _view(tensor: Tensor, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    return Tensor(tensor.binding, tensor.data_type, sizes, strides, tensor.view)


class ScatterElements(Lowering):
    """Copies the input, then overwrites one element per update.

    Where the page is silent: an index outside the axis drops its update. Of several updates of one element any wins,
    and none is torn; on a deterministic device the last in row-major order wins.
    """

    desc = descs.ScatterElements
    shaders = ("indexing/scatter_elements",)

    @classmethod
    def output_sizes(cls, desc: descs.ScatterElements) -> Mapping[str, tuple[int, ...]]:
        """The output has the input's sizes."""
        return {"output_tensor": desc.input_tensor.sizes}

    @classmethod
    def check(cls, desc: descs.ScatterElements) -> None:
        """Axis, and the sizes of all tensors."""
        rank = desc.output_tensor.dimension_count
        if desc.axis >= rank:
            raise invalid(desc, "axis", f"must be below output_tensor's dimension count ({rank}), got {desc.axis}")
        check_sizes(desc, "output_tensor", desc.input_tensor.sizes, "input_tensor.sizes")
        for dimension, size in enumerate(desc.input_tensor.sizes):
            given = desc.indices_tensor.sizes[dimension]
            if dimension != desc.axis and given != size:
                raise invalid(
                    desc,
                    f"indices_tensor.sizes[{dimension}]",
                    f"must be input_tensor.sizes[{dimension}] ({size}), got {given}",
                )
        check_sizes(desc, "updates_tensor", desc.indices_tensor.sizes, "indices_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.ScatterElements, target: Target) -> Plan:
        """A copy, then a scatter; deterministic devices first mark the last update of each place."""
        copy = Map("copy", identity(input_tensor(desc, "input_tensor", View.RAW)), output_tensor(desc))
        axis, updates, indices, output = _merged_around_axis(desc)
        values = constants(axis=axis)

        def scatter(label: str, result: Tensor, schedule: ScatterSchedule, *marks: tuple[str, Tensor]) -> Scatter:
            return Scatter(label, cls.shaders[0], updates, (("indices", indices), *marks), result, schedule, values)

        if not target.deterministic:
            return Plan(desc.operator, (copy, scatter("scatter", output, ScatterSchedule.STORE)))
        marks = Tensor(Binding(Role.TEMPORARY, 0), DataType.UINT32, output.sizes, packed_strides(output.sizes))
        clear = Map("clear marks", Body("layout/zero", DataType.UINT32, marks.sizes), marks)
        steps: tuple[Step, ...] = (
            copy,
            clear,
            scatter("mark", marks, ScatterSchedule.MARK),
            scatter("scatter marked", output, ScatterSchedule.STORE_MARKED, ("marks", marks)),
        )
        return Plan(desc.operator, steps, (4 * math.prod(marks.sizes),))


def _merged_around_axis(desc: descs.ScatterElements) -> tuple[int, Tensor, Tensor, Tensor]:
    """Axis, updates, indices and output with the dimensions before and after the axis merged among themselves."""
    updates = input_tensor(desc, "updates_tensor", View.RAW)
    indices = input_tensor(desc, "indices_tensor", View.INDEX)
    output = output_tensor(desc, view=View.RAW)
    axis, tensors = desc.axis, (updates, indices, output)
    before, outer = merge_dimensions(updates.sizes[:axis], *(tensor.strides[:axis] for tensor in tensors))
    after, inner = merge_dimensions(updates.sizes[axis + 1 :], *(tensor.strides[axis + 1 :] for tensor in tensors))
    merged = [
        _view(tensor, (*before, tensor.sizes[axis], *after), (*outer[i], tensor.strides[axis], *inner[i]))
        for i, tensor in enumerate(tensors)
    ]
    return len(before), merged[0], merged[1], merged[2]
