"""Operators that only lay data out anew: slices."""

from __future__ import annotations

from collections.abc import Mapping

from dmlgpu import descs
from dmlgpu.operators.lowering import Lowering, check_sizes, input_tensor, invalid, output_tensor
from dmlgpu.plan import Body, Map, Plan, View
from dmlgpu.target import Target


class Slice1(Lowering):
    """A strided window of the input; a negative stride walks it from its end.

    The output may take fewer elements than the window offers, not more.
    """

    desc = descs.Slice1
    shaders = ("layout/slice1",)

    @classmethod
    def check(cls, desc: descs.Slice1) -> None:
        """Windows lie inside the input, strides are not 0, the output fits the window."""
        _check_length(desc, "input_window_offsets", len(desc.input_window_offsets))
        windows = zip(desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides, strict=True)
        for axis, (offset, window, stride) in enumerate(windows):
            size, taken = desc.input_tensor.sizes[axis], desc.output_tensor.sizes[axis]
            if window < 1:
                raise invalid(desc, f"input_window_sizes[{axis}]", f"must be at least 1, got {window}")
            if offset + window > size:
                raise invalid(
                    desc,
                    f"input_window_offsets[{axis}] + input_window_sizes[{axis}]",
                    f"must be at most input_tensor.sizes[{axis}] ({size}), got {offset} + {window} = {offset + window}",
                )
            if stride == 0:
                raise invalid(desc, f"input_window_strides[{axis}]", "must not be 0")
            reachable = 1 + (window - 1) // abs(stride)
            if taken > reachable:
                raise invalid(
                    desc,
                    f"output_tensor.sizes[{axis}]",
                    f"must be at most 1 + (input_window_sizes[{axis}] - 1) / |input_window_strides[{axis}]|"
                    f" (1 + ({window} - 1) / {abs(stride)} = {reachable}), got {taken}",
                )

    @classmethod
    def lower(cls, desc: descs.Slice1, target: Target) -> Plan:
        """One map over a view of the input."""
        steps = desc.input_window_strides
        windows = zip(desc.input_window_offsets, desc.input_window_sizes, steps, strict=True)
        body = Body(
            cls.shaders[0],
            desc.output_tensor.data_type,
            desc.output_tensor.sizes,
            (("input", input_tensor(desc, "input_tensor", View.RAW)),),
            follows=(tuple(axis if step == 1 else None for axis, step in enumerate(steps)),),
            start=tuple(offset + (window - 1 if step < 0 else 0) for offset, window, step in windows),
            step=steps,
        )
        return Plan(desc.operator, (Map("copy", body, output_tensor(desc)),))


class Slice(Lowering):
    """A box of the input with positive strides; strides of 0 are refused (the page is silent)."""

    desc = descs.Slice

    @classmethod
    def output_sizes(cls, desc: descs.Slice) -> Mapping[str, tuple[int, ...]]:
        """The output has the sizes of the box."""
        return {"output_tensor": desc.sizes}

    @classmethod
    def check(cls, desc: descs.Slice) -> None:
        """The box lies inside the input."""
        _check_length(desc, "offsets", len(desc.offsets))
        check_sizes(desc, "output_tensor", cls.output_sizes(desc)["output_tensor"], "sizes")
        for axis, (offset, size, stride) in enumerate(zip(desc.offsets, desc.sizes, desc.strides, strict=True)):
            if stride == 0:
                raise invalid(desc, f"strides[{axis}]", "must be at least 1, got 0")
            last, extent = offset + stride * (size - 1), desc.input_tensor.sizes[axis]
            if last >= extent:
                raise invalid(
                    desc,
                    f"offsets[{axis}] + strides[{axis}] * (sizes[{axis}] - 1)",
                    f"must be below input_tensor.sizes[{axis}] ({extent}),"
                    f" got {offset} + {stride} * {size - 1} = {last}",
                )

    @classmethod
    def upgrade(cls, desc: descs.Slice) -> descs.Slice1:
        """The same box as a window."""
        windows = tuple((size - 1) * stride + 1 for size, stride in zip(desc.sizes, desc.strides, strict=True))
        return descs.Slice1(
            input_tensor=desc.input_tensor,
            output_tensor=desc.output_tensor,
            input_window_offsets=desc.offsets,
            input_window_sizes=windows,
            input_window_strides=desc.strides,
        )


def _check_length(desc: descs.Slice | descs.Slice1, field: str, length: int) -> None:
    count = desc.input_tensor.dimension_count
    if length != count:
        raise invalid(desc, field, f"must have one entry per dimension of input_tensor ({count}), got {length}")
