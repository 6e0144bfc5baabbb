"""Cases of the operators that only move elements: slices, tiles, pieces, padding, blocks."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, DepthSpaceOrder, PaddingMode
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.contents import any_bits
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors, register
from dmlgpu.conformance.cases.tolerance import EXACT

WHOLE = "whole"  # the whole input: a copy
ROWS = "rows"  # whole inner rows of it: still contiguous
SHIFTED = "shifted"  # stride 1 with an inner offset: nearly contiguous
MIRRORED = "mirrored"  # stride -1 everywhere (not SLICE)
INNER = "inner"  # only the last dimension changes


class MovingCases(OperatorCases):
    """Random bits in every type, moved."""

    standard_count = 32

    def tolerance(self, desc: OperatorDesc) -> Any:
        """Nothing is computed."""
        return EXACT


def moving_case(name: str, desc: OperatorDesc) -> Case:
    """Return a case over random bits in every input."""
    tensors = [slot.tensor for slot in desc.inputs if slot.tensor is not None]
    return Case(name, desc, lambda contents: tuple(any_bits(contents, t.data_type, t.sizes) for t in tensors))


class WindowCases(MovingCases):
    """Random windows per dimension, and contiguous or nearly contiguous ones (whole, rows, shifted, mirrored)."""

    large_sizes: ClassVar[SizesList] = ((16_700_001,), (65537, 65))
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, WHOLE, ROWS, SHIFTED, MIRRORED)


def draw_window(key: Key, rng: np.random.Generator) -> list[tuple[int, int, int]]:
    """Offset, size and stride of the window in each dimension; strides as SLICE1 has them."""
    last = len(key.sizes) - 1
    windows = []
    for dimension, size in enumerate(key.sizes):
        if key.variant == WHOLE or (key.variant == ROWS and dimension > 0):
            windows.append((0, size, 1))
        elif key.variant == MIRRORED:
            windows.append((0, size, -1))
        elif key.variant in (ROWS, SHIFTED):
            offset = int(rng.integers(0, size)) if dimension != last else min(int(rng.integers(1, 6)), size - 1)
            windows.append((offset, int(rng.integers((size - offset + 1) // 2, size - offset + 1)) or 1, 1))
        else:
            offset = int(rng.integers(0, (size + 3) // 4))
            stride = int(rng.choice([1, 1, 2, 3, 5])) * int(rng.choice([-1, 1]))
            windows.append((offset, int(rng.integers((size - offset + 1) // 2, size - offset + 1)) or 1, stride))
    return windows


def draw_taken(key: Key, rng: np.random.Generator, windows: list[tuple[int, int, int]]) -> list[int]:
    """Draw the number of elements that each window takes, sometimes without the last."""
    reach = [1 + (size - 1) // abs(stride) for _, size, stride in windows]
    if key.variant == PLAIN:
        reach = [count - int(count > 1 and rng.integers(8) == 0) for count in reach]
    return reach


@cases(descs.Slice1)
class Slice1Cases(WindowCases):
    """SLICE1: strides of both signs; now and then the output omits the end of the window."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        windows = draw_window(key, rng)
        reach = draw_taken(key, rng, windows)
        source, output = draw_tensors(key, rng, (key.types[0], key.sizes, False), (key.types[0], reach, True))
        offsets, sizes, strides = zip(*windows, strict=True)
        desc = descs.Slice1(
            input_tensor=source,
            output_tensor=output,
            input_window_offsets=offsets,
            input_window_sizes=sizes,
            input_window_strides=strides,
        )
        return moving_case(name, desc)


@cases(descs.Slice)
class SliceCases(WindowCases):
    """SLICE: positive strides."""

    large_sizes: ClassVar[SizesList] = ()
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, WHOLE, ROWS, SHIFTED)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        windows = [(offset, 1 + (size - 1) // abs(step), abs(step)) for offset, size, step in draw_window(key, rng)]
        offsets, sizes, strides = zip(*windows, strict=True)
        source, output = draw_tensors(key, rng, (key.types[0], key.sizes, False), (key.types[0], sizes, True))
        desc = descs.Slice(input_tensor=source, output_tensor=output, offsets=offsets, sizes=sizes, strides=strides)
        return moving_case(name, desc)


def some_dimensions(key: Key, rng: np.random.Generator, most: int = 3) -> set[int]:
    """Return the dimensions that an operator changes: the first, the last, or a few, as the variant says."""
    rank = len(key.sizes)
    if key.variant == ROWS:
        return {0}
    if key.variant == INNER:
        return {rank - 1}
    return {int(dimension) for dimension in rng.permutation(rank)[:most]}


@cases(descs.Tile)
class TileCases(MovingCases):
    """TILE: a few dimensions repeated, or only whole rows, or only within them."""

    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, ROWS, INNER)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        repeated = some_dimensions(key, rng)
        repeats = tuple(int(rng.integers(1, 5)) if axis in repeated else 1 for axis in range(len(key.sizes)))
        sizes = [size * count for size, count in zip(key.sizes, repeats, strict=True)]
        source, output = draw_tensors(key, rng, (key.types[0], key.sizes, False), (key.types[0], sizes, True))
        return moving_case(name, descs.Tile(input_tensor=source, output_tensor=output, repeats=repeats))


# ---- pieces of a tensor ----------------------------------------------------------------------------------------------


SLIM = "slim"  # many pieces of few elements, so that small types meet within words
ONE = "one"  # a single piece: a copy
MAX_PIECES = 12


class _PiecesCases(MovingCases):
    """Pieces along any axis, along the first one (whole rows), slim ones, a single one."""

    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, ROWS, SLIM, ONE)

    def axis(self, key: Key, rng: np.random.Generator) -> int:
        """Return the axis along which the pieces lie."""
        return 0 if key.variant == ROWS else int(rng.integers(len(key.sizes)))

    def tensors(
        self, key: Key, rng: np.random.Generator, axis: int, pieces: list[int], output: bool
    ) -> tuple[TensorDesc, tuple[TensorDesc, ...]]:
        """Return the whole and its pieces, which are outputs or inputs."""

        def sizes(extent: int) -> list[int]:
            return [extent if dimension == axis else size for dimension, size in enumerate(key.sizes)]

        extents = [(key.types[0], sizes(piece), output) for piece in pieces]
        whole, *parts = draw_tensors(key, rng, (key.types[0], sizes(sum(pieces)), not output), *extents)
        return whole, tuple(parts)


@cases(descs.Split)
class SplitCases(_PiecesCases):
    """SPLIT."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        axis = self.axis(key, rng)
        pieces = _cut(key, rng, key.sizes[axis])
        source, outputs = self.tensors(key, rng, axis, pieces, True)
        return moving_case(name, descs.Split(input_tensor=source, output_tensors=outputs, axis=axis))


def _cut(key: Key, rng: np.random.Generator, extent: int) -> list[int]:
    """Draw random sizes of the parts of an extent."""
    if key.variant == ONE:
        return [extent]
    pieces: list[int] = []
    while extent and len(pieces) < MAX_PIECES - 1:
        pieces.append(min(int(rng.integers(1, 4 if key.variant == SLIM else 17)), extent))
        extent -= pieces[-1]
    return [*pieces, extent] if extent else pieces


@cases(descs.Join)
class JoinCases(_PiecesCases):
    """JOIN; the key has the sizes of its first input."""

    added_keys: ClassVar[tuple[Key, ...]] = (
        Key((DataType.INT8,), (2, 63), TensorLayout.ALIGNED),
        Key((DataType.INT8,), (8, 45), TensorLayout.ALIGNED),
    )
    """Rows of bytes that fill no whole words, or begin within blocks of words."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        axis = self.axis(key, rng)
        pieces = [key.sizes[axis]]
        if key.variant != ONE:
            count = int(rng.integers(1, MAX_PIECES if key.variant == SLIM else 5))
            most = 4 if key.variant == SLIM else 2 * key.sizes[axis] + 2
            pieces += [int(size) for size in rng.integers(1, most, count)]
        output, inputs = self.tensors(key, rng, axis, pieces, False)
        return moving_case(name, descs.Join(input_tensors=inputs, output_tensor=output, axis=axis))


# ---- a tensor within a larger one ------------------------------------------------------------------------------------


FAR = "far"  # beyond the size of the input, so that mirrors fold again
UNITS = "units"  # by multiples of 4 elements, so that rows stay whole units
MODES = {mode.name.lower(): mode for mode in PaddingMode}


class _PaddingCases(MovingCases):
    """Every mode; padding of whole rows, of rows by whole units, beyond the size of the input."""

    variant_names: ClassVar[tuple[str, ...]] = (*MODES, ROWS, INNER, FAR, UNITS)

    def mode(self, key: Key, rng: np.random.Generator) -> PaddingMode:
        """Return the mode that the variant names, or any."""
        return MODES.get(key.variant, PaddingMode(int(rng.integers(len(PaddingMode)))))

    def fields(self, key: Key, rng: np.random.Generator) -> dict[str, Any]:
        """Return the fields that PADDING and PADDING1 share."""
        padded = some_dimensions(key, rng, 1 if key.variant == FAR else 3)
        ends = [
            tuple(_draw_end(key, rng, size) if axis in padded else 0 for axis, size in enumerate(key.sizes))
            for _ in range(2)
        ]
        sizes = tuple(map(sum, zip(key.sizes, *ends, strict=True)))
        source, output = draw_tensors(key, rng, (key.types[0], key.sizes, False), (key.types[0], sizes, True))
        return {
            "input_tensor": source,
            "output_tensor": output,
            "padding_mode": self.mode(key, rng),
            "start_padding": ends[0],
            "end_padding": ends[1],
        }


def _draw_end(key: Key, rng: np.random.Generator, size: int) -> int:
    """Return the padding at one end of a dimension."""
    if key.variant == UNITS:
        return 4 * int(rng.integers(0, 4))
    return int(rng.integers(0, 3 * size + 2 if key.variant == FAR else 6))


@cases(descs.Padding1)
class Padding1Cases(_PaddingCases):
    """PADDING1: constants of any bits, but of floats only numbers."""

    standard_count = 40

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type = key.types[0]
        value = any_bits(rng, data_type, ())
        if data_type.is_float and not np.isfinite(value):
            value = np.array(-np.inf, data_type.numpy)
        fields = self.fields(key, rng)
        desc = descs.Padding1(padding_value_data_type=data_type, padding_value=value.item(), **fields)
        return moving_case(name, desc)


@cases(descs.Padding)
class PaddingCases(_PaddingCases):
    """PADDING: constants that integers take truncated, saturated, or (NaN) as 0."""

    standard_count = 24

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        numbers = [10.6, -10.6, 0.1, 1e30, -1e30, float("inf")]
        if not key.types[0].is_float:
            numbers.append(float("nan"))
        fields = self.fields(key, rng)
        return moving_case(name, descs.Padding(padding_value=numbers[rng.integers(len(numbers))], **fields))


@cases(descs.SliceGrad)
class SliceGradCases(WindowCases):
    """SLICE_GRAD; the key has the sizes of the output gradient."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        windows = draw_window(key, rng)
        taken = draw_taken(key, rng, windows)
        data_type: DataType = key.types[0]
        source, output = draw_tensors(key, rng, (data_type, taken, False), (data_type, key.sizes, True))
        offsets, sizes, strides = zip(*windows, strict=True)
        desc = descs.SliceGrad(
            input_gradient_tensor=source,
            output_gradient_tensor=output,
            input_window_offsets=offsets,
            input_window_sizes=sizes,
            input_window_strides=strides,
        )
        return moving_case(name, desc)


# ---- blocks between height and width and channels --------------------------------------------------------------------


DEPTH_FIRST = "depth"  # DEPTH_COLUMN_ROW
COLUMN_FIRST = "column"  # COLUMN_ROW_DEPTH
_ORDERS = {DEPTH_FIRST: DepthSpaceOrder.DEPTH_COLUMN_ROW, COLUMN_FIRST: DepthSpaceOrder.COLUMN_ROW_DEPTH}


class _BlockCases(MovingCases):
    """Blocks of 1 to 4; the key has batches, channels of the side of space, rows and columns of the side of depth."""

    standard_count = 16
    ranks = (4,)
    large_sizes: ClassVar[SizesList] = ((1, 5, 257, 513),)
    to_depth: ClassVar[bool]

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        batch, channels, height, width = key.sizes
        block = int(rng.integers(1, 5))
        space = (batch, channels, height * block, width * block)
        depth = (batch, channels * block * block, height, width)
        input_sizes, output_sizes = (space, depth) if self.to_depth else (depth, space)
        source, output = draw_tensors(key, rng, (key.types[0], input_sizes, False), (key.types[0], output_sizes, True))
        fields: dict[str, Any] = {"input_tensor": source, "output_tensor": output, "block_size": block}
        if "order" in {field.python_name for field in self.schema.python_fields}:
            fields["order"] = _ORDERS.get(key.variant, DepthSpaceOrder.COLUMN_ROW_DEPTH)
        return moving_case(name, self.desc_class(**fields))


class _OrderedBlockCases(_BlockCases):
    """Both orders."""

    standard_count = 28
    variant_names: ClassVar[tuple[str, ...]] = tuple(_ORDERS)


register(_OrderedBlockCases, descs.SpaceToDepth1, to_depth=True)
register(_BlockCases, descs.SpaceToDepth, to_depth=True)
register(_OrderedBlockCases, descs.DepthToSpace1, to_depth=False)
register(_BlockCases, descs.DepthToSpace, to_depth=False)
