"""Cases of convolutions. A key's sizes are those of the input; filter, steps and padding are drawn.

The error of a sum grows with the sum of the absolute values of its terms (``Accumulated``); with Winograd's filtering
also with the terms of its transforms (``Transformed``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dmlgpu import reference
from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import ConvolutionDirection, ConvolutionMode, DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.case import Array, Arrays, Case, evaluate_in_float32
from dmlgpu.conformance.cases.families.matrix import (
    ACTIVATIONS,
    BARE,
    FUSED,
    SINGLE,
    SPECIAL,
    TIES,
    UNIT,
    integers,
    quantized_types,
    scales,
    ties_and_saturation,
)
from dmlgpu.conformance.cases.families.pooling import DrawnWindow
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.layouts import EDGE_SIZES, TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors, register
from dmlgpu.conformance.cases.tolerance import EXACT, Accumulated, Bound, Transformed, ulp

Wide: TypeAlias = NDArray[np.float64]

WINOGRAD_WINDOW = 3

WINOGRAD_MATRICES: Mapping[int, tuple[Any, Any, Any]] = {
    2: (
        [[1, 1, 1, 0], [0, 1, -1, -1]],
        [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
        [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
    ),
    4: (
        [
            [1, 1, 1, 1, 1, 0],
            [0, 3 / 4, -3 / 4, 3 / 2, -3 / 2, 0],
            [0, 9 / 16, 9 / 16, 9 / 4, 9 / 4, 0],
            [0, 27 / 64, -27 / 64, 27 / 8, -27 / 8, 1],
        ],
        [
            [64 / 81, 0, 0],
            [-128 / 243, -32 / 81, -8 / 27],
            [-128 / 243, 32 / 81, -8 / 27],
            [32 / 243, 16 / 81, 8 / 27],
            [32 / 243, -16 / 81, 8 / 27],
            [0, 0, 1],
        ],
        [
            [81 / 64, 0, -45 / 16, 0, 1, 0],
            [0, -27 / 16, -9 / 4, 3 / 4, 1, 0],
            [0, 27 / 16, -9 / 4, -3 / 4, 1, 0],
            [0, -27 / 32, -9 / 16, 3 / 2, 1, 0],
            [0, 27 / 32, -9 / 16, -3 / 2, 1, 0],
            [0, 81 / 64, 0, -45 / 16, 0, 1],
        ],
    ),
}
"""Matrices by tiles of m x m outputs: of output, filter and patch, for the points 0, 1, -1 (arXiv:1509.09308), and 0,
3/4, -3/4, 3/2, -3/2."""


def transformed_magnitude(
    images: Wide, filters: Wide, tile: int, *, start: Sequence[int], positions: Sequence[int]
) -> Wide:
    """Return the sums of absolute values through all transforms.

    Args:
        images: {batch, groups, channels, height, width}.
        filters: {groups, outputs, channels, 3, 3}, as for a forward cross-correlation.
        tile: Outputs of a tile along each dimension.
        start: Padding before each spatial dimension.
        positions: Sizes of the output.

    Returns:
        {batch, groups * outputs, *positions}.
    """
    output, of_filter, of_patch = (np.abs(np.array(matrix, np.float64)) for matrix in WINOGRAD_MATRICES[tile])
    down, across = (-(-size // tile) * tile for size in positions)
    padded = _padded(np.abs(images), start, (down + WINOGRAD_WINDOW - 1, across + WINOGRAD_WINDOW - 1))
    weights = np.einsum("ik,gockl,jl->goijc", of_filter, np.abs(filters), of_filter)
    result = np.zeros((*images.shape[:2], filters.shape[1], down, across))
    for row in range(0, down, tile):
        for column in range(0, across, tile):
            patch = padded[..., row : row + tile + WINOGRAD_WINDOW - 1, column : column + tile + WINOGRAD_WINDOW - 1]
            sums = np.einsum("ik,ngckl,jl,goijc->ngoij", of_patch, patch, of_patch, weights, optimize=True)
            transformed = np.einsum("ai,ngoij,bj->ngoab", output, sums, output, optimize=True)
            result[..., row : row + tile, column : column + tile] = transformed
    rows, columns = positions
    return result[..., :rows, :columns].reshape(len(images), -1, rows, columns)


def _padded(images: Wide, start: Sequence[int], sizes: Sequence[int]) -> Wide:
    """Return the images padded with zeros, or cropped."""
    padded = np.zeros((*images.shape[:3], *sizes))
    height, width = (min(n, size - at) for n, size, at in zip(images.shape[3:], sizes, start, strict=True))
    padded[..., start[0] : start[0] + height, start[1] : start[1] + width] = images[..., :height, :width]
    return padded


MAX_SPREAD = 3.003
"""Norm of a patch relative to the sum of the norms of a window's pixels, beyond which an output is as exact as a direct
sum. Results of float32 decide at 3."""


def is_spread(images: Wide, tile: int, *, start: Sequence[int], positions: Sequence[int]) -> NDArray[np.bool_]:
    """Return whether windows are small relative to the patch of their tile: {batch, groups, *positions}.

    Args:
        images, tile, start, positions: As for ``transformed_magnitude``.
    """
    side = tile + WINOGRAD_WINDOW - 1
    down, across = (-(-size // tile) * tile + WINOGRAD_WINDOW - 1 for size in positions)
    norms = _padded(np.sqrt(np.square(images).sum(2, keepdims=True)), start, (down, across))[:, :, 0]
    sums = sliding_window_view(norms, (WINOGRAD_WINDOW,) * 2, (2, 3)).sum((-2, -1))
    patches = sliding_window_view(np.square(norms), (side, side), (2, 3)).sum((-2, -1))[:, :, ::tile, ::tile]
    spread = np.sqrt(patches).repeat(tile, 2).repeat(tile, 3) > MAX_SPREAD * sums
    return np.asarray(spread[:, :, : positions[0], : positions[1]])


BACKWARD = "backward"
GROUPED = "grouped"
DEPTHWISE = "depthwise"  # as many groups as channels
DENSE = "dense"  # windows of 3 in steps of 1, of many channels: Winograd's filtering
OUTLIERS = "outliers"  # the same, and some pixels are far larger than others: Winograd's filtering would lose digits

Sizes = tuple[int, ...]

MAX_ELEMENTS, MAX_OF_DENSE = 1 << 17, 1 << 20
"""Maximum multiplications of a case, so that the reference stays fast; each group needs at least one output."""

DENSE_SIZES = (2, 16, 14, 11)
DENSE_UNITS: tuple[Sizes, ...] = ((2, 16, 9, 14), (1, 16, 13, 30), (2, 16, 9, 30))
"""Their tiles are four side by side."""

OUTLIER_SIZES: tuple[Sizes, ...] = (DENSE_UNITS[0], DENSE_SIZES)

LARGER = {DataType.FLOAT32: 1e6, DataType.FLOAT16: 1e3}
"""How many times larger one of eight pixels is."""

APART = "apart"  # backward, with steps as large as the window: the positions share no element of the output
ROWS = "rows"  # windows of several elements whose positions come in whole units: read row by row

APART_SIZES: dict[Sizes, int] = {
    (2, 16, 5, 8): 2,
    (1, 8, 16, 16): 2,
    (1, 33, 3, 4): 4,
    (2, 9, 3, 2, 4): 2,
    (1, 128, 32, 32): 2,
}
"""Their steps."""

ROWS_SIZES: dict[Sizes, tuple[int, int, int]] = {
    (2, 12, 9, 15): (3, 2, 1),
    (2, 6, 6, 16): (3, 2, 1),
    (1, 8, 8, 16): (5, 1, 1),
    (1, 4, 5, 4, 8): (2, 1, 1),
    (1, 16, 12, 8): (3, 1, 2),
}
"""Their windows, steps and dilations; padding keeps the size, divided by the steps."""


@dataclass(frozen=True)
class _Geometry:
    """Random geometry of a key.

    Attributes:
        window, positions: sizes.
        fields: Fields of the description: steps and padding.
        groups, outputs: Groups, and outputs of each.
    """

    window: Sizes
    positions: Sizes
    fields: Mapping[str, Any]
    groups: int
    outputs: int

    @property
    def seen(self) -> int:
        """Elements that the window sees."""
        return math.prod(self.window)


def _draw_axis(size: int, rng: np.random.Generator) -> dict[str, int]:
    """Return a window and steps along a dimension, padding up to one more than the window's reach."""
    window, dilation = int(rng.integers(1, 5 if size > 1 else 3)), int(rng.choice([1, 1, 2, 3]))
    reach = (window - 1) * dilation + 1
    start, end = (int(padding) for padding in rng.integers(0, reach + 1, 2))
    end += max(0, reach - size - start - end)
    return {
        "window": window,
        "strides": int(rng.choice([1, 1, 2, 3])),
        "dilations": dilation,
        "start_padding": start,
        "end_padding": end,
    }


def _dense_axis(rng: np.random.Generator) -> dict[str, int]:
    """Draw a dense axis, of which only the padding is free."""
    start, end = (int(padding) for padding in rng.integers(1, 3, 2))
    return {"window": 3, "strides": 1, "dilations": 1, "start_padding": start, "end_padding": end}


def _rows_axis(size: int, window: int, stride: int, dilation: int) -> dict[str, int]:
    """Return an axis with as many positions as steps go into its size, rounded up."""
    padding = (window - 1) * dilation
    start = padding // 2
    end = padding - start
    return {"window": window, "strides": stride, "dilations": dilation, "start_padding": start, "end_padding": end}


def _covered(size: int, axis: dict[str, int], rng: np.random.Generator) -> int:
    """Return the elements of a transposed convolution's output; padding that would leave none is dropped."""
    covered = axis["strides"] * (size - 1) + (axis["window"] - 1) * axis["dilations"] + 1
    axis["output_padding"] = int(rng.integers(0, axis["strides"] + 1))
    if axis["start_padding"] + axis["end_padding"] >= covered + axis["output_padding"]:
        axis["start_padding"] = axis["end_padding"] = 0
    return covered + axis["output_padding"] - axis["start_padding"] - axis["end_padding"]


def _groups(key: Key, rng: np.random.Generator) -> int:
    channels = key.sizes[1]
    if key.variant == DEPTHWISE:
        return channels
    divisors = [count for count in range(1, channels + 1) if channels % count == 0]
    if key.variant == GROUPED:
        return int(rng.choice(divisors[1:-1] or divisors))
    return int(rng.choice(divisors)) if rng.integers(4) == 0 else 1


def _axes(key: Key, rng: np.random.Generator) -> list[dict[str, int]]:
    """Return the windows, steps and padding along every dimension."""
    spatial = key.sizes[2:]
    if key.variant in (DENSE, OUTLIERS):
        return [_dense_axis(rng) for _ in spatial]
    if key.variant == ROWS:
        return [_rows_axis(size, *ROWS_SIZES[key.sizes]) for size in spatial]
    if key.variant == APART:
        steps = APART_SIZES[key.sizes]
        apart = {"window": steps, "strides": steps, "dilations": 1, "start_padding": 0, "end_padding": 0}
        return [apart for _ in spatial]
    return [_draw_axis(size, rng) for size in spatial]


def _draw(key: Key, rng: np.random.Generator) -> _Geometry:
    spatial, groups = key.sizes[2:], _groups(key, rng)
    axes = _axes(key, rng)
    if key.variant == APART:
        positions = tuple(size * axis["strides"] for size, axis in zip(spatial, axes, strict=True))
    elif key.variant == BACKWARD:
        positions = tuple(_covered(size, axis, rng) for size, axis in zip(spatial, axes, strict=True))
    fields = {name: tuple(axis[name] for axis in axes) for name in axes[0]}
    window = fields.pop("window")
    if key.variant not in (BACKWARD, APART):
        names = ("window", "strides", "dilations", "start_padding", "end_padding")
        positions = tuple(
            DrawnWindow(size, *(axis[name] for name in names)).positions
            for size, axis in zip(spatial, axes, strict=True)
        )
    work = key.sizes[0] * key.sizes[1] * math.prod(window) * math.prod(positions)
    is_dense = key.variant in (DENSE, OUTLIERS)
    most = MAX_OF_DENSE if is_dense else MAX_ELEMENTS
    outputs = [count for count in EDGE_SIZES[:13] if count * work <= most and count * groups <= 128]
    if is_dense:
        outputs = outputs[-3:]
    return _Geometry(window, positions, fields, groups, int(rng.choice(outputs or [1])))


class _ConvolutionCases(OperatorCases):
    """{N, C, spatial..}."""

    standard_count = 25
    long_sizes: ClassVar[SizesList] = ((1, 16, 14, 14), (2, 33, 7, 9))
    large_sizes: ClassVar[SizesList] = ((2, 3, 301, 303),)


# ---- CONVOLUTION


@cases(descs.Convolution)
class ConvolutionCases(_ConvolutionCases):
    """CONVOLUTION."""

    standard_count = 36
    ranks = (3, 4, 5)
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, BARE, FUSED, BACKWARD, GROUPED, DEPTHWISE, DENSE, SPECIAL)

    def standard_keys(self) -> Iterator[Key]:
        """Also keys with enough channels that transforms pay, and keys whose positions come in whole units."""
        yield from super().standard_keys()
        layouts = (TensorLayout.PACKED, TensorLayout.PERMUTED, TensorLayout.PADDED)
        yield from (
            Key(types, DENSE_SIZES, layout, DENSE) for types, layout in zip(self._cycle(), layouts, strict=False)
        )
        yield from self.chosen_keys()

    def chosen_keys(self) -> Iterator[Key]:
        """Keys whose positions come in whole units, and of outliers."""
        in_units = [*((sizes, DENSE) for sizes in DENSE_UNITS), *((sizes, APART) for sizes in APART_SIZES)]
        in_units += [(sizes, ROWS) for sizes in ROWS_SIZES]
        in_units += [(sizes, OUTLIERS) for sizes in OUTLIER_SIZES]
        for types, (sizes, variant) in itertools.product(self.types, in_units):
            yield Key(types, sizes, TensorLayout.PACKED, variant)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        drawn = _draw(key, rng)
        (data_type,), channels, outputs = key.types, key.sizes[1], drawn.groups * drawn.outputs
        backward = key.variant in (BACKWARD, APART)
        filters = (channels, drawn.outputs) if backward else (outputs, channels // drawn.groups)
        source, weights, bias, output = draw_tensors(
            key,
            rng,
            (data_type, key.sizes, False),
            (data_type, (*filters, *drawn.window), False),
            (data_type, (1, outputs, *(1 for _ in drawn.window)), False),
            (data_type, (key.sizes[0], outputs, *drawn.positions), True),
        )
        desc = descs.Convolution(
            input_tensor=source,
            filter_tensor=weights,
            bias_tensor=None if key.variant == BARE else bias,
            output_tensor=output,
            mode=ConvolutionMode(int(rng.integers(2))),
            direction=ConvolutionDirection(int(backward)),
            group_count=drawn.groups,
            fused_activation=ACTIVATIONS[rng.integers(len(ACTIVATIONS))] if key.variant == FUSED else None,
            **{"output_padding": (0,) * len(drawn.window), **drawn.fields},
        )
        terms = channels // drawn.groups * drawn.seen
        tolerance = Transformed(channels // drawn.groups) if _may_be_transformed(desc) else Accumulated(terms)
        return Case(
            name,
            desc,
            lambda contents: _floats(contents, desc, key),
            tolerance,
            magnitude=lambda inputs: _magnitude(desc, inputs, tolerance),
        )


def _may_be_transformed(desc: descs.Convolution) -> bool:
    """Return whether Winograd's filtering can compute a convolution."""
    window = desc.filter_tensor.sizes[2:]
    return (window, desc.strides, desc.dilations) == ((3, 3), (1, 1), (1, 1))


def _transformed(desc: descs.Convolution, inputs: Arrays) -> Bound:
    """Sum of the absolute terms, in tiles of 4 x 4; directly if the window is small relative to its patch."""
    source, filters, bias = (None if array is None else array.astype(np.float64) for array in inputs)
    assert source is not None
    assert filters is not None
    batch, channels, *spatial = source.shape
    images = source.reshape(batch, desc.group_count, channels // desc.group_count, *spatial)
    backward = desc.direction is ConvolutionDirection.BACKWARD
    grouped = filters.reshape(desc.group_count, -1, *filters.shape[1:])
    if backward:
        grouped = grouped.swapaxes(1, 2)
    if backward != (desc.mode is ConvolutionMode.CONVOLUTION):
        grouped = grouped[..., ::-1, ::-1]
    start = [2 - padding if backward else padding for padding in desc.start_padding]
    positions = desc.output_tensor.sizes[2:]
    total = transformed_magnitude(images, grouped, 4, start=start, positions=positions)
    total = total if bias is None else total + np.abs(bias)
    spread = is_spread(images, 4, start=start, positions=positions).repeat(grouped.shape[1], 1)
    return np.where(spread, _direct(desc, inputs), total)


def _direct(desc: descs.Convolution, inputs: Arrays) -> Bound:
    """Sum of the absolute terms of the windows."""
    absolute = tuple(None if array is None else np.abs(array) for array in inputs)
    (total,) = evaluate_in_float32(desc, absolute, fused_activation=None)
    return np.asarray(total)


def _floats(rng: np.random.Generator, desc: descs.Convolution, key: Key) -> Arrays:
    """Draw infinities and NaN only in the input: with padding, their effect in a filter is unspecified (0 * infinity).

    There are none where Winograd's filtering may spread them over a tile.
    """
    arrays = [
        None if tensor is None else rng.standard_normal(tensor.sizes).astype(tensor.data_type.numpy)
        for _, _, tensor in desc.inputs
    ]
    if key.variant == SPECIAL and arrays[0] is not None and not _may_be_transformed(desc):
        for value in (math.inf, -math.inf, math.nan):
            arrays[0][rng.random(key.sizes) < 0.3 / arrays[0].size] = value
    if key.variant == OUTLIERS and arrays[0] is not None:
        is_larger = rng.random(key.sizes[2:]) < 1 / 8
        arrays[0][..., is_larger] *= LARGER[key.types[0]]
    return tuple(arrays)


def _magnitude(desc: descs.Convolution, inputs: Arrays, tolerance: Accumulated) -> Bound:
    """Return the total error: of the sum, of its rounding before an activation, of the activation."""
    with np.errstate(invalid="ignore"):
        total = (_transformed if isinstance(tolerance, Transformed) else _direct)(desc, inputs)
    if desc.fused_activation is None:
        return np.asarray(total)
    growth = tolerance.bound(np.zeros(1, np.float64), np.ones(1))[0] / 2.0**-53 * UNIT
    (plain,) = reference.evaluate(desc.replace(fused_activation=None), inputs)
    rounding = ulp(plain) if desc.output_tensor.data_type is DataType.FLOAT16 else 0
    return np.asarray(total + rounding / growth + 4)


# ---- integers


class _IntegerConvolutionCases(_ConvolutionCases):
    """Integers with zero points of one to four dimensions.

    Attributes:
        single, several: The parameters' fields, by whether there is one, or one per output.
    """

    ranks = (3, 4)
    single: ClassVar[tuple[str, ...]] = ("input_zero_point_tensor",)
    several: ClassVar[tuple[str, ...]] = ("filter_zero_point_tensor",)
    type_fields: ClassVar[tuple[str, ...]] = ("InputTensor", "FilterTensor")
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, BARE, SINGLE, GROUPED, DEPTHWISE)

    def types_of(self, key: Key) -> Mapping[str, DataType]:
        """Return the type of each tensor."""
        source, filters = key.types
        return {
            "input_tensor": source,
            "input_zero_point_tensor": source,
            "filter_tensor": filters,
            "filter_zero_point_tensor": filters,
            "output_tensor": DataType.INT32,
        }

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        drawn, types = _draw(key, rng), self.types_of(key)
        sizes = self._sizes(key, drawn, rng)
        drawn_tensors = draw_tensors(
            key, rng, *((types[field], sizes[field], field == "output_tensor") for field in types)
        )
        tensors: dict[str, TensorDesc | None] = dict(zip(types, drawn_tensors, strict=True))
        if key.variant == BARE:
            tensors |= {field: None for field in types if field.endswith("zero_point_tensor") or field == "bias_tensor"}
        desc = self.desc_class(**tensors, **drawn.fields, group_count=drawn.groups)
        terms = key.sizes[1] // drawn.groups * drawn.seen

        def fill(contents: np.random.Generator) -> Arrays:
            return tuple(
                None if slot.tensor is None else self.draw(key, slot.field, slot.tensor, contents, terms)
                for slot in desc.inputs
            )

        return Case(name, desc, fill, EXACT)

    def _sizes(self, key: Key, drawn: _Geometry, rng: np.random.Generator) -> dict[str, Sizes]:
        outputs, rank = drawn.groups * drawn.outputs, int(rng.integers(1, 5))
        ones = (1,) * len(drawn.window)
        sizes: dict[str, Sizes] = {
            "input_tensor": key.sizes,
            "filter_tensor": (outputs, key.sizes[1] // drawn.groups, *drawn.window),
            "bias_tensor": (1, outputs, *ones),
            "output_tensor": (key.sizes[0], outputs, *drawn.positions),
        }
        sizes |= dict.fromkeys(self.single, (1,) * rank)
        for field in self.several:
            is_single = key.variant == SINGLE or rng.integers(4) == 0
            sizes[field] = (1,) * rank if is_single else (1, outputs, 1, 1)[:rank] if rank > 1 else (outputs,)
        return sizes

    def draw(self, key: Key, field: str, tensor: TensorDesc, rng: np.random.Generator, terms: int) -> Array:
        """Draw contents of a tensor."""
        return integers(rng, tensor.data_type, tensor.sizes)


register(
    _IntegerConvolutionCases,
    descs.ConvolutionInteger,
    added_keys=(Key((DataType.UINT8, DataType.UINT8), (1, 16, 9, 9), TensorLayout.PACKED, SINGLE),),
)  # windows of padded images that GPUs multiply four integers at a time


@cases(descs.QuantizedLinearConvolution)
class QuantizedLinearConvolutionCases(_IntegerConvolutionCases):
    """QUANTIZED_LINEAR_CONVOLUTION."""

    single = ("input_scale_tensor", "input_zero_point_tensor", "output_scale_tensor", "output_zero_point_tensor")
    several = ("filter_scale_tensor", "filter_zero_point_tensor")

    type_fields = ("InputTensor", "FilterTensor", "OutputTensor")

    def variants(self, types: Types) -> tuple[str, ...]:
        return (*super().variants(types), TIES)

    def types_of(self, key: Key) -> Mapping[str, DataType]:
        return quantized_types(("input", "filter", "output"), key.types) | {"bias_tensor": DataType.INT32}

    def draw(self, key: Key, field: str, tensor: TensorDesc, rng: np.random.Generator, terms: int) -> Array:
        """Outputs are to fill their range: a sum's typical size is 2**13 for each square root of a term."""
        if key.variant == TIES:
            return ties_and_saturation(rng, field, tensor)
        if field == "bias_tensor":
            return rng.integers(-(1 << 15), 1 << 15, tensor.sizes, np.int32)
        if "scale" not in field:
            return super().draw(key, field, tensor, rng, terms)
        largest = 8 + round(math.log2(terms) / 2) if field == "output_scale_tensor" else 0
        return scales(rng, tensor, largest)
