"""Operators that cut tensors apart along an axis and put them together."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from dmlgpu.catalog import descs
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.operators.lowering import check_sizes, invalid
from dmlgpu.compiler.operators.moving import Moving
from dmlgpu.compiler.rewrites.moves import Affine, Move


class Split(Moving):
    """Cuts the input along one axis into several outputs."""

    desc = descs.Split

    @classmethod
    def check(cls, desc: descs.Split) -> None:
        _check_axis(desc, "input_tensor")
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
        whole = Affine.box((0,) * desc.input_tensor.dimension_count)
        return tuple(
            Move(piece.sizes, Affine.box(start), whole, output=number)
            for number, (piece, start) in enumerate(zip(desc.output_tensors, starts, strict=True))
        )


class Join(Moving):
    """Puts tensors together along one axis.

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
        _check_axis(desc, "output_tensor")
        _check_pieces(desc, "input_tensors", "output_tensor")
        check_sizes(desc, "output_tensor", cls.output_sizes(desc)["output_tensor"], "the inputs one after the other")

    @classmethod
    def moves(cls, desc: descs.Join) -> tuple[Move, ...]:
        starts = _starts(desc.input_tensors, desc.axis)
        whole = Affine.box((0,) * desc.output_tensor.dimension_count)
        return tuple(
            Move(piece.sizes, whole, Affine.box(start), input=number)
            for number, (piece, start) in enumerate(zip(desc.input_tensors, starts, strict=True))
        )


def _along(pieces: Sequence[TensorDesc], axis: int) -> int:
    """Return the size of all pieces along the axis."""
    return sum(piece.sizes[axis] for piece in pieces)


def _starts(pieces: Sequence[TensorDesc], axis: int) -> list[tuple[int, ...]]:
    """Return where each piece begins in the whole tensor."""
    rank = pieces[0].dimension_count
    *starts, _ = itertools.accumulate((piece.sizes[axis] for piece in pieces), initial=0)
    return [tuple(start if dimension == axis else 0 for dimension in range(rank)) for start in starts]


def _check_axis(desc: descs.Split | descs.Join, whole: str) -> None:
    rank = getattr(desc, whole).dimension_count
    if desc.axis >= rank:
        raise invalid(desc, "axis", f"must be below {whole}'s dimension count ({rank}), got {desc.axis}")


def _check_pieces(desc: descs.Split | descs.Join, pieces: str, whole: str) -> None:
    """Raise InvalidDescription unless every piece has the sizes of the whole but along the axis."""
    expected = getattr(desc, whole).sizes
    for number, piece in enumerate(getattr(desc, pieces)):
        for dimension, size in enumerate(expected):
            if dimension != desc.axis and piece.sizes[dimension] != size:
                raise invalid(
                    desc,
                    f"{pieces}[{number}].sizes[{dimension}]",
                    f"must be {whole}.sizes[{dimension}] ({size}), got {piece.sizes[dimension]}",
                )
