"""Operators that only move, against a plain copy of as many bytes as they write, as interleaved ratios.

    python benchmarks/layout.py [ADAPTER] [-k PART]

Prints a table and exits with 1 when a target is missed. Ratios are time of the fastest hand-written vec4 copy over time
of ours ("at least 0.7"). Outputs have 16M elements, float32 where nothing else is said. Cases without a target are not
contiguous: what they cost is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from harness import Bench, Part, Result, fastest_copy, main, open_backend

from dmlgpu import descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.enums import DataType, DepthSpaceOrder, PaddingMode
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.tensor import TensorDesc

SIDE = 4096
ELEMENTS = SIDE * SIDE
FLOAT, BYTE = DataType.FLOAT32, DataType.INT8
CONTIGUOUS = 0.7

Sizes = tuple[int, ...]
Cases = Iterator[tuple[str, OperatorDesc, float | None]]


def tensor(sizes: Sizes, data_type: DataType = FLOAT) -> TensorDesc:
    return TensorDesc(data_type, sizes)


def window(sizes: Sizes, offsets: Sizes, taken: Sizes) -> descs.Slice1:
    return descs.Slice1(
        input_tensor=tensor(sizes),
        output_tensor=tensor(taken),
        input_window_offsets=offsets,
        input_window_sizes=taken,
        input_window_strides=(1,) * len(sizes),
    )


def slices() -> Cases:
    yield "SLICE1, rows", window((SIDE + 8, SIDE), (3, 0), (SIDE, SIDE)), CONTIGUOUS
    yield "SLICE1, columns in whole units", window((SIDE, SIDE + 8), (0, 4), (SIDE, SIDE)), CONTIGUOUS
    yield "SLICE1, columns at odd places", window((SIDE, SIDE + 8), (0, 3), (SIDE, SIDE)), None
    gradient = descs.SliceGrad(
        input_gradient_tensor=tensor((SIDE - 8, SIDE)),
        output_gradient_tensor=tensor((SIDE, SIDE)),
        input_window_offsets=(3, 0),
        input_window_sizes=(SIDE - 8, SIDE),
        input_window_strides=(1, 1),
    )
    yield "SLICE_GRAD, rows", gradient, None


def along(
    axis: int, count: int, data_type: DataType = FLOAT, odd: int = 0
) -> tuple[TensorDesc, tuple[TensorDesc, ...]]:
    """A square and its pieces along an axis, the first ones less ``odd`` elements, the last one more."""
    extents = [SIDE // count - odd] * (count - 1)
    extents.append(SIDE - sum(extents))
    pieces = [(extent, SIDE) if axis == 0 else (SIDE, extent) for extent in extents]
    return tensor((SIDE, SIDE), data_type), tuple(tensor(piece, data_type) for piece in pieces)


def pieces() -> Cases:
    for axis, count in ((0, 2), (0, 16), (1, 4)):
        whole, parts = along(axis, count)
        name = f"{count} pieces along axis {axis}"
        yield f"SPLIT, {name}", descs.Split(input_tensor=whole, output_tensors=parts, axis=axis), CONTIGUOUS
        yield f"JOIN, {name}", descs.Join(input_tensors=parts, output_tensor=whole, axis=axis), CONTIGUOUS
    whole, parts = along(1, 4, odd=1)
    yield "JOIN, 4 odd pieces along axis 1", descs.Join(input_tensors=parts, output_tensor=whole, axis=1), None
    whole, parts = along(1, 2, BYTE, odd=1)
    yield "JOIN, 2 odd pieces of int8 along axis 1", descs.Join(input_tensors=parts, output_tensor=whole, axis=1), None


def padded(sizes: Sizes, start: Sizes, end: Sizes, mode: PaddingMode) -> descs.Padding1:
    made = tuple(map(sum, zip(sizes, start, end, strict=True)))
    return descs.Padding1(
        input_tensor=tensor(sizes),
        output_tensor=tensor(made),
        padding_mode=mode,
        padding_value_data_type=FLOAT,
        padding_value=1.5,
        start_padding=start,
        end_padding=end,
    )


def paddings() -> Cases:
    for mode in PaddingMode:
        name = f"PADDING1 {mode.name}"
        yield f"{name}, rows", padded((SIDE - 8, SIDE), (3, 0), (5, 0), mode), CONTIGUOUS
    constant = PaddingMode.CONSTANT
    yield "PADDING1 CONSTANT, columns in whole units", padded((SIDE, SIDE - 8), (0, 4), (0, 4), constant), CONTIGUOUS
    image = (16, 64, 126, 126)
    for mode in (constant, PaddingMode.REFLECTION):
        yield f"PADDING1 {mode.name}, images by 1", padded(image, (0, 0, 1, 1), (0, 0, 1, 1), mode), None


def repeated(sizes: Sizes, repeats: Sizes) -> descs.Tile:
    made = tuple(size * count for size, count in zip(sizes, repeats, strict=True))
    return descs.Tile(input_tensor=tensor(sizes), output_tensor=tensor(made), repeats=repeats)


def tiles() -> Cases:
    yield "TILE, rows", repeated((SIDE // 4, SIDE), (4, 1)), CONTIGUOUS
    yield "TILE, columns", repeated((SIDE, SIDE // 4), (1, 4)), CONTIGUOUS
    yield "TILE, both", repeated((SIDE // 2, SIDE // 2), (2, 2)), CONTIGUOUS
    yield "TILE, a column", repeated((SIDE, 1), (1, SIDE)), None
    yield "TILE, columns of 3", repeated((SIDE, 3), (1, SIDE // 3)), None


def blocks() -> Cases:
    space, depth = (4, 16, 512, 512), (4, 64, 256, 256)
    for order in DepthSpaceOrder:
        fields = {"block_size": 2, "order": order}
        there = descs.SpaceToDepth1(input_tensor=tensor(space), output_tensor=tensor(depth), **fields)
        back = descs.DepthToSpace1(input_tensor=tensor(depth), output_tensor=tensor(space), **fields)
        yield f"SPACE_TO_DEPTH1, blocks of 2, {order.name}", there, None
        yield f"DEPTH_TO_SPACE1, blocks of 2, {order.name}", back, None


def against_copy(cases: Cases) -> Part:
    """Measures cases against the fastest copy of as many bytes as they write."""

    def measure(adapter: str) -> Iterator[Result]:
        bench = Bench(open_backend(adapter))
        copies = {FLOAT: fastest_copy(bench, np.zeros(ELEMENTS, np.float32))}
        for name, desc, at_least in cases:
            inputs = [slot.tensor for slot in desc.inputs if slot.tensor is not None]
            data_type = inputs[0].data_type
            if data_type not in copies:
                copies[data_type] = fastest_copy(bench, np.zeros(ELEMENTS, data_type.numpy))
            arrays = (np.ones(given.sizes, data_type.numpy) for given in inputs)
            yield Result(name, ratio(copies[data_type], bench.operator(desc, *arrays)), at_least=at_least)

    return measure


PARTS: dict[str, Part] = {
    "slices": against_copy(slices()),
    "pieces": against_copy(pieces()),
    "paddings": against_copy(paddings()),
    "tiles": against_copy(tiles()),
    "blocks": against_copy(blocks()),
}

if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
