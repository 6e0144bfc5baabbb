"""Operators that set a tensor into a larger one: padding, the gradient of slices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeAlias

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, PaddingMode
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler.operators.layout import check_windows, window_start
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, input_tensor, invalid, output_tensor
from dmlgpu.compiler.operators.scalars import converted, words_of
from dmlgpu.compiler.plan import Body, Constants, Element, Map, Plan, Source, Tensor, View, constants
from dmlgpu.compiler.rewrites.frames import Frame, merge_frame
from dmlgpu.compiler.rewrites.moves import Affine, Move

_Inputs: TypeAlias = Mapping[str, tuple[Source, tuple[int | None, ...]]]
"""Sources by name, each with what of it follows the dimensions of the output."""


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
        rank = desc.input_tensor.dimension_count
        for field in ("start_padding", "end_padding"):
            length = len(getattr(desc, field))
            if length != rank:
                raise invalid(desc, field, f"must have one entry per dimension of input_tensor ({rank}), got {length}")
        why = "start_padding + input_tensor.sizes + end_padding"
        check_sizes(desc, "output_tensor", cls.output_sizes(desc)["output_tensor"], why)

    @classmethod
    def moves(cls, desc: descs.Padding1) -> tuple[Move, ...]:
        sizes = desc.input_tensor.sizes
        return (Move(sizes, Affine.box((0,) * len(sizes)), Affine.box(desc.start_padding)),)

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


def _constant(desc: descs.Padding1, output: Tensor) -> Body:
    """Return a tensor of the output's sizes that holds the constant's bits everywhere, given as two words."""
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
        """As SLICE1, whose input has the output gradient's sizes."""
        check_windows(desc, "output_gradient_tensor", "input_gradient_tensor")

    @classmethod
    def moves(cls, desc: descs.SliceGrad) -> tuple[Move, ...]:
        sizes = desc.input_gradient_tensor.sizes
        window = Affine.box(window_start(desc), desc.input_window_strides)
        return (Move(sizes, Affine.box((0,) * len(sizes)), window),)

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
    """Return the plan of a frame around which lies a tensor of the output's sizes."""
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
