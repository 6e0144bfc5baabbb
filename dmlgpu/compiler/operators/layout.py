"""Operators that rearrange data: slices, tiles, pieces along an axis, blocks, padding."""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, DepthSpaceOrder, PaddingMode
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.operators.lowering import (
    Lowering,
    check_axis,
    check_positive,
    check_sizes_beside_axis,
    converted,
    input_tensor,
    invalid,
    output_tensor,
    words_of,
)
from dmlgpu.compiler.plan import Body, Constants, Element, Map, Plan, PlanTensor, Role, Source, View, constants
from dmlgpu.compiler.rewrites.moves import Affine, Frame, Move, copy, merge_frame


class Moving(Lowering):
    """An operator that copies move by move. Its kernels bind one input and one output each, however many there are."""

    shaders = ("layout/slice1",)

    @classmethod
    def moves(cls, desc: Any) -> tuple[Move, ...]:
        """Return the parts of the outputs, as copies of elements of the inputs."""
        raise NotImplementedError

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        moves = cls.moves(desc)
        pieces = Counter(move.output for move in moves)
        inputs = [PlanTensor.of(Role.INPUT, index, slot.tensor, View.RAW) for index, slot in enumerate(desc.inputs)]
        outputs = [PlanTensor.of(Role.OUTPUT, index, slot.tensor) for index, slot in enumerate(desc.outputs)]
        steps = tuple(
            copy(move, inputs[move.input], outputs[move.output], keeps_neighbors=pieces[move.output] > 1)
            for move in moves
        )
        return Plan(desc.operator, steps)


class Slice1(Moving):
    """A strided window of the input; a negative stride walks it from its end.

    The output may take fewer elements than the window offers, not more.
    """

    desc = descs.Slice1

    @classmethod
    def default_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        """Return all elements of the window."""
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


class SliceOperator(Lowering):
    """A box of the input with positive strides; strides of 0 are rejected (the page is silent)."""

    desc = descs.Slice
    newer = descs.Slice1

    @classmethod
    def default_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        return {}

    @classmethod
    def output_sizes(cls, desc: descs.Slice) -> Mapping[str, tuple[int, ...]]:
        return {"output_tensor": desc.sizes}

    @classmethod
    def check(cls, desc: descs.Slice) -> None:
        cls.check_output(desc, "sizes")
        check_positive(desc, "strides")
        for axis, (offset, size, stride) in enumerate(zip(desc.offsets, desc.sizes, desc.strides, strict=True)):
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
    """The input, repeated ``repeats`` times along each dimension."""

    desc = descs.Tile

    @classmethod
    def output_sizes(cls, desc: descs.Tile) -> Mapping[str, tuple[int, ...]]:
        return {"output_tensor": tuple(map(operator.mul, desc.input_tensor.sizes, desc.repeats))}

    @classmethod
    def check(cls, desc: descs.Tile) -> None:
        check_positive(desc, "repeats")
        cls.check_output(desc, "input_tensor.sizes * repeats")

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
    """Return the first element of each window in the order of its stride: the last one if it is negative."""
    windows = zip(desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides, strict=True)
    return tuple(offset + (size - 1 if stride < 0 else 0) for offset, size, stride in windows)


def offered(window: int, stride: int) -> int:
    """Return the number of elements of a window that a stride reaches."""
    return 1 + (window - 1) // abs(stride)


def check_windows(desc: descs.Slice1 | descs.SliceGrad, whole: str, taken: str) -> None:
    """Raise InvalidDescription unless windows lie inside a tensor and another has at most their elements.

    Args:
        desc: the description.
        whole: the field of the tensor with the windows.
        taken: the field of the tensor that holds their elements.
    """
    tensor, part = getattr(desc, whole), getattr(desc, taken)
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


class Split(Moving):
    """Cuts the input along one axis into several outputs."""

    desc = descs.Split

    @classmethod
    def check(cls, desc: descs.Split) -> None:
        check_axis(desc, "input_tensor")
        _check_pieces(desc, "output_tensors", "input_tensor")
        total = _along(desc.output_tensors, desc.axis)
        if total != desc.input_tensor.sizes[desc.axis]:
            raise invalid(
                desc,
                f"output_tensors[:].sizes[{desc.axis}]",
                f"must add up to input_tensor.sizes[{desc.axis}] ({desc.input_tensor.sizes[desc.axis]}), got {total}",
            )

    @classmethod
    def moves(cls, desc: descs.Split) -> tuple[Move, ...]:
        starts = _starts(desc.output_tensors, desc.axis)
        input_map = Affine.box((0,) * desc.input_tensor.dimension_count)
        return tuple(
            Move(piece.sizes, Affine.box(start), input_map, output=index)
            for index, (piece, start) in enumerate(zip(desc.output_tensors, starts, strict=True))
        )


class Join(Moving):
    """Concatenates tensors along one axis.

    Each input is copied by a kernel of its own, so that there may be any number of them. Where pieces of 8 or 16 bits
    meet within a 32-bit word, a kernel stores its part of the word and keeps the rest, which kernels before it wrote.
    """

    desc = descs.Join

    @classmethod
    def output_sizes(cls, desc: descs.Join) -> Mapping[str, tuple[int, ...]]:
        sizes = desc.input_tensors[0].sizes
        total = _along(desc.input_tensors, desc.axis)
        return {"output_tensor": (*sizes[: desc.axis], total, *sizes[desc.axis + 1 :])}

    @classmethod
    def check(cls, desc: descs.Join) -> None:
        check_axis(desc, "output_tensor")
        _check_pieces(desc, "input_tensors", "output_tensor")
        cls.check_output(desc, "the inputs one after the other")

    @classmethod
    def moves(cls, desc: descs.Join) -> tuple[Move, ...]:
        starts = _starts(desc.input_tensors, desc.axis)
        output_map = Affine.box((0,) * desc.output_tensor.dimension_count)
        return tuple(
            Move(piece.sizes, output_map, Affine.box(start), input=index)
            for index, (piece, start) in enumerate(zip(desc.input_tensors, starts, strict=True))
        )


def _along(pieces: Sequence[TensorDesc], axis: int) -> int:
    """Return the total size of the pieces along the axis."""
    return sum(piece.sizes[axis] for piece in pieces)


def _starts(pieces: Sequence[TensorDesc], axis: int) -> list[tuple[int, ...]]:
    """Return the start of each piece in the whole tensor."""
    rank = pieces[0].dimension_count
    *starts, _ = itertools.accumulate((piece.sizes[axis] for piece in pieces), initial=0)
    return [tuple(start if dimension == axis else 0 for dimension in range(rank)) for start in starts]


def _check_pieces(desc: descs.Split | descs.Join, pieces: str, whole: str) -> None:
    """Raise InvalidDescription unless every piece has the sizes of the whole tensor except along the axis."""
    for index, piece in enumerate(getattr(desc, pieces)):
        check_sizes_beside_axis(desc, f"{pieces}[{index}]", piece, whole)


_SPACE = (("batch",), ("channel",), ("row", "down"), ("column", "across"))
"""Digits of each dimension on the space side: a block's row or column, then the one within the block."""

_CHANNELS = {
    DepthSpaceOrder.DEPTH_COLUMN_ROW: ("down", "across", "channel"),
    DepthSpaceOrder.COLUMN_ROW_DEPTH: ("channel", "down", "across"),
}
"""Digits of a channel on the depth side."""

_OLDER_ORDER = {"order": DepthSpaceOrder.DEPTH_COLUMN_ROW}
"""Order of the operators without such a field."""


class SpaceToDepth1(Moving):
    """Blocks of height and width become channels.

    The output's sizes are {N, C * BlockSize * BlockSize, H / BlockSize, W / BlockSize}, as the page's examples have
    them (its text gives those of the other direction). The page is silent on blocks of size 0; they are rejected.
    """

    desc = descs.SpaceToDepth1

    @classmethod
    def output_sizes(cls, desc: descs.SpaceToDepth | descs.SpaceToDepth1) -> Mapping[str, tuple[int, ...]]:
        (batch, channels, height, width), block = desc.input_tensor.sizes, desc.block_size
        return {"output_tensor": (batch, channels * block * block, height // block, width // block)}

    @classmethod
    def check(cls, desc: descs.SpaceToDepth | descs.SpaceToDepth1) -> None:
        _check_divides(desc, (2, 3), desc.block_size, "block_size")
        cls.check_output(desc, "blocks become channels")

    @classmethod
    def moves(cls, desc: descs.SpaceToDepth1) -> tuple[Move, ...]:
        channels = _CHANNELS[desc.order]
        space = _digits(desc.input_tensor.sizes, desc.block_size, ("batch", *channels, "row", "column"))
        depth = (("batch",), channels, ("row",), ("column",))
        return (Move(tuple(space.values()), Affine.digits(space, _SPACE), Affine.digits(space, depth)),)


Lowering.older(
    descs.SpaceToDepth, descs.SpaceToDepth1, "SPACE_TO_DEPTH1 in the order DEPTH_COLUMN_ROW.", **_OLDER_ORDER
)


class DepthToSpace1(Moving):
    """Channels become blocks of height and width. The page is silent on blocks of size 0; they are rejected."""

    desc = descs.DepthToSpace1

    @classmethod
    def output_sizes(cls, desc: descs.DepthToSpace | descs.DepthToSpace1) -> Mapping[str, tuple[int, ...]]:
        (batch, channels, height, width), block = desc.input_tensor.sizes, desc.block_size
        return {"output_tensor": (batch, channels // (block * block), height * block, width * block)}

    @classmethod
    def check(cls, desc: descs.DepthToSpace | descs.DepthToSpace1) -> None:
        _check_divides(desc, (1,), desc.block_size * desc.block_size, "block_size * block_size")
        cls.check_output(desc, "channels become blocks")

    @classmethod
    def moves(cls, desc: descs.DepthToSpace1) -> tuple[Move, ...]:
        space = _digits(desc.output_tensor.sizes, desc.block_size, [digit for digits in _SPACE for digit in digits])
        depth = (("batch",), _CHANNELS[desc.order], ("row",), ("column",))
        return (Move(tuple(space.values()), Affine.digits(space, depth), Affine.digits(space, _SPACE)),)


Lowering.older(
    descs.DepthToSpace, descs.DepthToSpace1, "DEPTH_TO_SPACE1 in the order DEPTH_COLUMN_ROW.", **_OLDER_ORDER
)


def _digits(sizes: tuple[int, ...], block: int, order: Sequence[str]) -> dict[str, int]:
    """Return the count of each digit, in an order, from the sizes of the tensor with height and width."""
    batch, channels, height, width = sizes
    counts = {"batch": batch, "channel": channels, "down": block, "across": block}
    counts |= {"row": height // block, "column": width // block}
    return {digit: counts[digit] for digit in order}


def _check_divides(
    desc: descs.SpaceToDepth | descs.SpaceToDepth1 | descs.DepthToSpace | descs.DepthToSpace1,
    axes: tuple[int, ...],
    divisor: int,
    name: str,
) -> None:
    """Raise InvalidDescription unless blocks are not empty and divide the sizes of the input."""
    check_positive(desc, "block_size")
    for axis in axes:
        size = desc.input_tensor.sizes[axis]
        if size % divisor:
            raise invalid(desc, f"input_tensor.sizes[{axis}]", f"must be a multiple of {name} ({divisor}), got {size}")


_Inputs: TypeAlias = Mapping[str, tuple[Source, tuple[int | None, ...]]]
"""Sources by name, each with the output dimensions that it follows (``Element.follows``)."""


class Padding1(Lowering):
    """The input, and around it a constant, its edge or its mirrored or repeated self.

    One kernel computes interior and border together. Where the page is silent: WRAP is the index modulo the input's
    size; REFLECTION of a dimension of size 1 repeats its only element; a floating-point constant is rounded to the
    tensor's type.
    """

    desc = descs.Padding1
    shaders = (
        "layout/slice_grad",
        "layout/constant",
        "layout/padding_edge",
        "layout/padding_folded",
        "layout/padding_wrapped",
    )

    files: ClassVar[Mapping[PaddingMode, str]] = {
        PaddingMode.CONSTANT: "layout/slice_grad",
        PaddingMode.EDGE: "layout/padding_edge",
        PaddingMode.REFLECTION: "layout/padding_folded",
        PaddingMode.SYMMETRIC: "layout/padding_folded",
        PaddingMode.WRAP: "layout/padding_wrapped",
    }

    @classmethod
    def output_sizes(cls, desc: descs.Padding | descs.Padding1) -> Mapping[str, tuple[int, ...]]:
        paddings = zip(desc.input_tensor.sizes, desc.start_padding, desc.end_padding, strict=True)
        return {"output_tensor": tuple(map(sum, paddings))}

    @classmethod
    def check(cls, desc: descs.Padding | descs.Padding1) -> None:
        cls.check_output(desc, "start_padding + input_tensor.sizes + end_padding")

    @classmethod
    def lower(cls, desc: descs.Padding1) -> Plan:
        source, output = input_tensor(desc, "input_tensor", View.RAW), output_tensor(desc)
        whole_rows = desc.padding_mode in (PaddingMode.CONSTANT, PaddingMode.WRAP)
        frame = Frame(source, output, desc.start_padding, (1,) * output.rank)
        frame = merge_frame(frame, whole_rows=whole_rows)
        body = cls.files[desc.padding_mode]
        if desc.padding_mode is PaddingMode.CONSTANT:
            return _surrounded(desc, body, frame, _constant(desc, frame.output))
        edge = int(desc.padding_mode is PaddingMode.SYMMETRIC)
        values = constants(start=frame.start, edge=edge)
        return _plan(desc, body, frame, {"input": (frame.input, frame.follows)}, values)


def _constant(desc: descs.Padding1, output: PlanTensor) -> Body:
    """Return a tensor of the output's sizes filled with the constant's bits, which are two words."""
    words = words_of(desc.padding_value, desc.padding_value_data_type)
    repeated = 0xFFFFFFFF // (2 ** min(output.data_type.bits, 32) - 1)  # narrow elements fill a word
    values = constants(words=(words[0] * repeated, words[-1] * repeated))
    return Element("layout/constant", output.data_type, output.sizes, constants=values)


class Padding(Lowering):
    """PADDING1 with its constant given as a float.

    It is a number of 32 bits, converted as CAST converts it: rounded to the nearest float, or cut to an integer, which
    saturates; NaN gives 0 there.
    """

    desc = descs.Padding
    newer = descs.Padding1

    @classmethod
    def upgrade(cls, desc: descs.Padding) -> descs.Padding1:
        data_type = desc.output_tensor.data_type
        value = converted(converted(desc.padding_value, DataType.FLOAT32), data_type)
        return descs.Padding1(**{**desc.values, "padding_value": value, "padding_value_data_type": data_type})


class SliceGrad(Lowering):
    """The gradient of SLICE1: each element where SLICE1 read it, zeros elsewhere.

    As for SLICE1, the gradient may have fewer elements than the window offers; the rest of the window gets zeros.
    """

    desc = descs.SliceGrad
    shaders = ("layout/slice_grad",)

    @classmethod
    def check(cls, desc: descs.SliceGrad) -> None:
        """Check as SLICE1 does, whose input has the output gradient's sizes."""
        check_windows(desc, "output_gradient_tensor", "input_gradient_tensor")

    @classmethod
    def lower(cls, desc: descs.SliceGrad) -> Plan:
        source = input_tensor(desc, "input_gradient_tensor", View.RAW)
        frame = Frame(
            source, output_tensor(desc, "output_gradient_tensor"), window_start(desc), desc.input_window_strides
        )
        frame = merge_frame(frame, whole_rows=True)
        zeros = Element("layout/zero", frame.output.data_type, frame.output.sizes)
        return _surrounded(desc, cls.shaders[0], frame, zeros)


def _surrounded(desc: OperatorDesc, file: str, frame: Frame, border: Body) -> Plan:
    """Return the plan of a frame of the output's sizes around a tensor."""
    everywhere = tuple(range(border.rank))
    inputs: _Inputs = {"input": (frame.input, frame.follows), "border": (border, everywhere)}
    return _plan(desc, file, frame, inputs, constants(start=frame.start, step=frame.step))


def _plan(desc: OperatorDesc, file: str, frame: Frame, inputs: _Inputs, values: Constants) -> Plan:
    """Return one map over the whole output, from named inputs and the dimensions that they follow."""
    body = Element(
        file,
        frame.output.data_type,
        frame.output.sizes,
        tuple((name, source) for name, (source, _) in inputs.items()),
        values,
        follows=tuple(follows for _, follows in inputs.values()),
    )
    return Plan(desc.operator, (Map("pad", body, frame.output),))
