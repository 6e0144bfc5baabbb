"""Operators that only lay data out anew: slices and tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, invalid
from dmlgpu.compiler.operators.moving import Moving
from dmlgpu.compiler.rewrites.moves import Affine, Move


class Slice1(Moving):
    """A strided window of the input; a negative stride walks it from its end.

    The output may take fewer elements than the window offers, not more.
    """

    desc = descs.Slice1

    @classmethod
    def usual_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        """All that the window offers."""
        windows = zip(desc.input_window_sizes, desc.input_window_strides, strict=True)
        return {"output_tensor": tuple(offered(window, stride) for window, stride in windows)}

    @classmethod
    def check(cls, desc: descs.Slice1) -> None:
        check_windows(desc, "input_tensor", "output_tensor")

    @classmethod
    def moves(cls, desc: descs.Slice1) -> tuple[Move, ...]:
        sizes = desc.output_tensor.sizes
        window = Affine.box(window_start(desc), desc.input_window_strides)
        return (Move(sizes, window, Affine.box((0,) * len(sizes))),)


class Slice(Lowering):
    """A box of the input with positive strides; strides of 0 are refused (the page is silent)."""

    desc = descs.Slice
    newer = descs.Slice1

    @classmethod
    def usual_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        return {}

    @classmethod
    def output_sizes(cls, desc: descs.Slice) -> Mapping[str, tuple[int, ...]]:
        return {"output_tensor": desc.sizes}

    @classmethod
    def check(cls, desc: descs.Slice) -> None:
        _check_length(desc, "offsets", "input_tensor")
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
        windows = tuple((size - 1) * stride + 1 for size, stride in zip(desc.sizes, desc.strides, strict=True))
        return descs.Slice1(
            input_tensor=desc.input_tensor,
            output_tensor=desc.output_tensor,
            input_window_offsets=desc.offsets,
            input_window_sizes=windows,
            input_window_strides=desc.strides,
        )


class Tile(Moving):
    """The input as often as ``repeats`` says along each dimension."""

    desc = descs.Tile

    @classmethod
    def output_sizes(cls, desc: descs.Tile) -> Mapping[str, tuple[int, ...]]:
        return {"output_tensor": tuple(map(int.__mul__, desc.input_tensor.sizes, desc.repeats))}

    @classmethod
    def check(cls, desc: descs.Tile) -> None:
        _check_length(desc, "repeats", "input_tensor")
        for axis, count in enumerate(desc.repeats):
            if count < 1:
                raise invalid(desc, f"repeats[{axis}]", f"must be at least 1, got {count}")
        check_sizes(desc, "output_tensor", cls.output_sizes(desc)["output_tensor"], "input_tensor.sizes * repeats")

    @classmethod
    def moves(cls, desc: descs.Tile) -> tuple[Move, ...]:
        space: dict[str, int] = {}
        source: list[tuple[str, ...]] = []
        place: list[tuple[str, ...]] = []
        for axis, (size, count) in enumerate(zip(desc.input_tensor.sizes, desc.repeats, strict=True)):
            repetition, within = f"repetition {axis}", f"place {axis}"
            space |= {repetition: count, within: size}
            source.append((within,))
            place.append((repetition, within))
        return (Move(tuple(space.values()), Affine.digits(space, source), Affine.digits(space, place)),)


def window_start(desc: descs.Slice1 | descs.SliceGrad) -> tuple[int, ...]:
    """Return the first element that each window's walk takes: its last one where the stride is negative."""
    windows = zip(desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides, strict=True)
    return tuple(offset + (size - 1 if stride < 0 else 0) for offset, size, stride in windows)


def offered(window: int, stride: int) -> int:
    """Return how many elements of a window a walk takes."""
    return 1 + (window - 1) // abs(stride)


def check_windows(desc: descs.Slice1 | descs.SliceGrad, whole: str, taken: str) -> None:
    """Raise InvalidDescription unless windows lie inside a tensor and another takes no more than they offer.

    Args:
        desc: the description.
        whole: the field of the tensor with the windows.
        taken: the field of the tensor that holds their elements.
    """
    tensor, part = getattr(desc, whole), getattr(desc, taken)
    _check_length(desc, "input_window_offsets", whole)
    windows = zip(desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides, strict=True)
    for axis, (offset, window, stride) in enumerate(windows):
        if window < 1:
            raise invalid(desc, f"input_window_sizes[{axis}]", f"must be at least 1, got {window}")
        if offset + window > tensor.sizes[axis]:
            raise invalid(
                desc,
                f"input_window_offsets[{axis}] + input_window_sizes[{axis}]",
                f"must be at most {whole}.sizes[{axis}] ({tensor.sizes[axis]}),"
                f" got {offset} + {window} = {offset + window}",
            )
        if stride == 0:
            raise invalid(desc, f"input_window_strides[{axis}]", "must not be 0")
        reachable = offered(window, stride)
        if part.sizes[axis] > reachable:
            raise invalid(
                desc,
                f"{taken}.sizes[{axis}]",
                f"must be at most 1 + (input_window_sizes[{axis}] - 1) / |input_window_strides[{axis}]|"
                f" (1 + ({window} - 1) / {abs(stride)} = {reachable}), got {part.sizes[axis]}",
            )


def _check_length(desc: OperatorDesc, field: str, tensor: str) -> None:
    count, length = getattr(desc, tensor).dimension_count, len(getattr(desc, field))
    if length != count:
        raise invalid(desc, field, f"must have one entry per dimension of {tensor} ({count}), got {length}")
