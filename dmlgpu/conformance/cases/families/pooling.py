"""Cases of windows that slide over a tensor: pooling, its gradients, the inverse of max pooling, FOLD and UNFOLD.

The cases count positions for themselves, so that a mistake of the kernels' geometry shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.case import Array, Arrays, Case, evaluate_in_float32, of_first
from dmlgpu.conformance.cases.contents import any_bits, few, mixed, numbers
from dmlgpu.conformance.cases.discriminating import with_rivals
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.layouts import TensorLayout, draw_tensor
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors, register
from dmlgpu.conformance.cases.tolerance import EXACT, Accumulated, Bound, Ulp


@dataclass(frozen=True)
class DrawnWindow:
    """A window that slides along one spatial dimension.

    Attributes:
        spatial: Elements of the input.
        size: Elements that the window sees.
        stride: Elements from one position to the next.
        dilation: Elements from one that the window sees to the next.
        start, end: Elements of padding before and after the input.
    """

    spatial: int
    size: int
    stride: int = 1
    dilation: int = 1
    start: int = 0
    end: int = 0

    @property
    def reach(self) -> int:
        """Elements from the first to the last one that the window sees."""
        return (self.size - 1) * self.dilation + 1

    @property
    def positions(self) -> int:
        """Number of positions that fit into the padded input; 0 or fewer if it is smaller than the window."""
        return (self.start + self.spatial + self.end - self.reach) // self.stride + 1

    @property
    def always_sees_input(self) -> bool:
        """Return whether the window covers an element, not only padding, at every position."""
        firsts = (position * self.stride - self.start for position in range(self.positions))
        return all(any(0 <= at < self.spatial for at in range(at, at + self.reach, self.dilation)) for at in firsts)


Windows = tuple[DrawnWindow, ...]
"""Along each spatial dimension."""


def sizes_of(windows: Windows) -> tuple[int, ...]:
    """Return the number of elements that a window covers along each axis."""
    return tuple(window.size for window in windows)


def positions_of(windows: Windows) -> tuple[int, ...]:
    """Return the number of positions of the window along each axis."""
    return tuple(window.positions for window in windows)


WHOLE = "whole"  # the window covers all of the input (global pooling)
DILATED = "dilated"
PADDED = "padding"  # as much padding as there may be; for FOLD and UNFOLD more, whole windows may lie in it
SPECIAL = "special"
TIES = "ties"
NAN = "nan"
BEYOND = "beyond"  # indices that name no element

MAX_ELEMENTS = 3000
"""Spatial elements of a case, so that the reference stays quick."""

Sizes = tuple[int, ...]


class _WindowCases(OperatorCases):
    """Windows over {N, C, spatial..}; the key has the sizes of the tensor before pooling."""

    standard_count = 40
    ranks = (4, 5)
    long_sizes: ClassVar[SizesList] = ((1, 2, 300, 301), (2, 1, 20, 31, 33))
    large_sizes: ClassVar[SizesList] = ((3, 2, 1025, 1031),)

    def variants(self, types: Types) -> tuple[str, ...]:
        dilated = [DILATED] if any(field.name == "Dilations" for field in self.schema.fields) else []
        return (PLAIN, WHOLE, PADDED, *dilated)

    def windows(self, key: Key, rng: np.random.Generator) -> tuple[Windows, dict[str, Any]]:
        """Draw a window, and return it with the fields that specify it."""
        windows = tuple(_draw_window(key, rng, size) for size in key.sizes[2:])
        fields: dict[str, Any] = {
            "strides": tuple(window.stride for window in windows),
            "window_size": sizes_of(windows),
            "start_padding": tuple(window.start for window in windows),
            "end_padding": tuple(window.end for window in windows),
        }
        if any(field.name == "Dilations" for field in self.schema.fields):
            fields["dilations"] = tuple(window.dilation for window in windows)
        if any(field.name == "IncludePadding" for field in self.schema.fields):
            fields["include_padding"] = bool(rng.integers(2))
        return windows, fields


def _draw_window(key: Key, rng: np.random.Generator, spatial: int) -> DrawnWindow:
    """Return a window that sees something at every position; only the variant DILATED has dilations."""
    stride = int(rng.integers(1, 4))
    if key.variant == WHOLE or math.prod(key.sizes) > MAX_ELEMENTS:
        return DrawnWindow(spatial, spatial if key.variant == WHOLE or rng.integers(2) else min(spatial, 3), stride)
    dilation = int(rng.integers(2, 4)) if key.variant == DILATED else 1
    size = int(rng.integers(1, min((spatial - 1) // dilation + 1, 7) + 1))
    most = (size - 1) * dilation
    start, end = (most, most) if key.variant == PADDED else map(int, rng.integers(0, most + 1, 2))
    window = DrawnWindow(spatial, size, stride, dilation, start, end)
    return window if window.always_sees_input else replace(window, start=0, end=0)


def _contents(rng: np.random.Generator, key: Key, sizes: Sizes) -> Array:
    """Draw numbers, or the special values of the variant."""
    (data_type,) = key.types[:1]
    if key.variant == TIES:
        return few(rng, data_type, sizes)
    if key.variant == SPECIAL:
        return mixed(rng, data_type, sizes)
    values = with_rivals(rng, numbers(rng, data_type, sizes))
    if key.variant == NAN:
        values[rng.random(sizes) < 0.6] = np.nan
        values[rng.random(sizes) < 0.2] = -np.inf
    return values


def _pooled(key: Key, windows: Windows) -> Sizes:
    return key.sizes[:2] + positions_of(windows)


class _AverageCases(_WindowCases):
    """Means of float numbers."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        windows, fields = self.windows(key, rng)
        source, output = draw_tensors(
            key, rng, (key.types[0], key.sizes, False), (key.types[0], _pooled(key, windows), True)
        )
        desc = self.desc_class(input_tensor=source, output_tensor=output, **fields)
        tolerance = Accumulated(math.prod(sizes_of(windows)))

        magnitude = of_first(lambda x: _twice(desc, np.abs(x)))
        return Case(name, desc, lambda contents: (_contents(contents, key, key.sizes),), tolerance, magnitude=magnitude)


def _twice(desc: OperatorDesc, *inputs: Array | None) -> Bound:
    """Return twice the operator's result on absolute values."""
    (total,) = evaluate_in_float32(desc, inputs)
    return 2 * total


register(_AverageCases, descs.AveragePooling1)
register(_AverageCases, descs.AveragePooling, standard_count=16)


class _NormCases(_WindowCases):
    """Norms of p = 1 to 4."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        windows, fields = self.windows(key, rng)
        source, output = draw_tensors(
            key, rng, (key.types[0], key.sizes, False), (key.types[0], _pooled(key, windows), True)
        )
        p = int(rng.integers(1, 5))
        desc = self.desc_class(input_tensor=source, output_tensor=output, p=p, **fields)
        # p roots of powers, each 2 ULP off: the exponent p of the power is divided by p again.
        return Case(name, desc, lambda contents: (_contents(contents, key, key.sizes),), Ulp(2 if p < 3 else 6))


register(_NormCases, descs.LpPooling1)
register(_NormCases, descs.LpPooling, standard_count=16)


class _MaximumCases(_WindowCases):
    """Maxima of all types, with ties, special values, rows of NaN and negative infinity."""

    def variants(self, types: Types) -> tuple[str, ...]:
        return (*super().variants(types), TIES, SPECIAL, *([NAN] if types[0].is_float else []))

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        windows, fields = self.windows(key, rng)
        pooled = _pooled(key, windows)
        tensors = [(key.types[0], key.sizes, False), (key.types[0], pooled, True)]
        if len(key.types) > 1:
            tensors.append((key.types[1], pooled, True))
        source, output, *indices = draw_tensors(key, rng, *tensors)
        if indices and rng.integers(4):
            fields["output_indices_tensor"] = indices[0]
        desc = self.desc_class(input_tensor=source, output_tensor=output, **fields)
        return Case(name, desc, lambda contents: (_contents(contents, key, key.sizes),), EXACT)


class _NumberedMaximumCases(_MaximumCases):
    """Also the numbers of the maxima, or not."""

    type_fields = ("InputTensor", "OutputIndicesTensor")


@cases(descs.MaxPooling2)
class MaxPooling2Cases(_NumberedMaximumCases):
    """MAX_POOLING2."""

    standard_count = 60
    added_keys: ClassVar[tuple[Key, ...]] = (
        Key((DataType.FLOAT32, DataType.UINT32), (3, 1, 3, 1, 9), TensorLayout.MIXED, DILATED),
    )
    """A window of three dimensions with gaps, read in tiles."""


register(_NumberedMaximumCases, descs.MaxPooling1, standard_count=24)


@cases(descs.MaxPooling)
class MaxPoolingCases(_MaximumCases):
    """MAX_POOLING."""

    standard_count = 30
    added_keys: ClassVar[tuple[Key, ...]] = (
        Key((DataType.FLOAT32,), (2, 1, 6, 20), TensorLayout.PACKED, PADDED),
        Key((DataType.FLOAT32,), (2, 2, 6, 20), TensorLayout.PACKED, TIES),
    )
    """Small windows that share no place, read in units: in the padding, and with ties."""


@cases(descs.AveragePoolingGrad)
class AveragePoolingGradCases(_WindowCases):
    """AVERAGE_POOLING_GRAD; the key has the sizes of the output gradient."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        windows, fields = self.windows(key, rng)
        pooled = _pooled(key, windows)
        gradient, output = draw_tensors(key, rng, (key.types[0], pooled, False), (key.types[0], key.sizes, True))
        desc = descs.AveragePoolingGrad(input_gradient_tensor=gradient, output_gradient_tensor=output, **fields)

        tolerance = Accumulated(math.prod(sizes_of(windows)))
        magnitude = of_first(lambda x: _twice(desc, np.abs(x)))
        return Case(name, desc, lambda contents: (_contents(contents, key, pooled),), tolerance, magnitude=magnitude)


@cases(descs.MaxPoolingGrad)
class MaxPoolingGradCases(_WindowCases):
    """MAX_POOLING_GRAD; the key has the sizes of the input."""

    def variants(self, types: Types) -> tuple[str, ...]:
        return (*super().variants(types), TIES, NAN)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        windows, fields = self.windows(key, rng)
        pooled, data_type = _pooled(key, windows), key.types[0]
        source, gradient, output = draw_tensors(
            key, rng, (data_type, key.sizes, False), (data_type, pooled, False), (data_type, key.sizes, True)
        )
        desc = descs.MaxPoolingGrad(
            input_tensor=source, input_gradient_tensor=gradient, output_gradient_tensor=output, **fields
        )

        def fill(contents: np.random.Generator) -> Arrays:
            return _contents(contents, key, key.sizes), numbers(contents, data_type, pooled)

        def magnitude(inputs: Arrays) -> Bound:
            assert inputs[1] is not None
            return _twice(desc, inputs[0], np.abs(inputs[1]))

        return Case(name, desc, fill, Accumulated(math.prod(sizes_of(windows))), magnitude=magnitude)


@cases(descs.MaxUnpooling)
class MaxUnpoolingCases(OperatorCases):
    """MAX_UNPOOLING: every index once, or several times, or beyond the output."""

    standard_count = 40
    ranks = (4,)
    large_sizes: ClassVar[SizesList] = ((3, 2, 1025, 1031),)
    type_fields = ("InputTensor", "IndicesTensor")
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, BEYOND)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type, index_type = key.types
        sizes = tuple(size + int(extra) for size, extra in zip(key.sizes, rng.integers(0, 3, 4), strict=True))
        source, output = draw_tensors(key, rng, (data_type, key.sizes, False), (data_type, sizes, True))
        # An index that stands for several elements would make the result depend on the order of invocations.
        indices = draw_tensor(index_type, key.sizes, key.layout, rng, output=True)
        desc = descs.MaxUnpooling(input_tensor=source, indices_tensor=indices, output_tensor=output)

        def fill(contents: np.random.Generator) -> Arrays:
            return any_bits(contents, data_type, key.sizes), _numbers(contents, key, sizes)

        return Case(name, desc, fill, EXACT)


def _numbers(rng: np.random.Generator, key: Key, sizes: Sizes) -> Array:
    """Draw different numbers of elements of the output; some of them beyond it."""
    count, total = math.prod(key.sizes), math.prod(sizes)
    numbers = rng.permutation(total)[:count].astype(np.int64)
    if key.variant == BEYOND:
        numbers = np.where(rng.random(count) < 0.3, total + rng.integers(0, 1000, count), numbers)
    return numbers.reshape(key.sizes).astype(key.types[1].numpy)


@cases(descs.QuantizedLinearAveragePooling)
class QuantizedLinearAveragePoolingCases(_WindowCases):
    """QUANTIZED_LINEAR_AVERAGE_POOLING: parameters for all or per channel, zero points or none."""

    type_fields = ("InputTensor", "OutputTensor")

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        windows, fields = self.windows(key, rng)
        input_type, output_type = key.types
        source, output = draw_tensors(
            key, rng, (input_type, key.sizes, False), (output_type, _pooled(key, windows), True)
        )
        parameters: dict[str, Any] = {
            field: _parameter(key, rng, data_type)
            for field, data_type in (
                ("input_scale_tensor", DataType.FLOAT32),
                ("input_zero_point_tensor", input_type),
                ("output_scale_tensor", DataType.FLOAT32),
                ("output_zero_point_tensor", output_type),
            )
            if "zero" not in field or rng.integers(3)
        }
        desc = descs.QuantizedLinearAveragePooling(input_tensor=source, output_tensor=output, **parameters, **fields)

        def fill(contents: np.random.Generator) -> Arrays:
            return tuple(_quantized(contents, slot.field, slot.tensor) for slot in desc.inputs)

        return Case(name, desc, fill, EXACT)


def _parameter(key: Key, rng: np.random.Generator, data_type: DataType) -> TensorDesc:
    """One for all, or one per channel."""
    sizes = [1] * len(key.sizes)
    sizes[1] = key.sizes[1] if rng.integers(2) else 1
    return TensorDesc(data_type, tuple(sizes))


def _quantized(rng: np.random.Generator, field: str, tensor: TensorDesc | None) -> Array | None:
    """Draw powers of two for scales, so that no quotient lies nearer to a half than float32 can tell; any integers."""
    if tensor is None:
        return None
    if "scale" in field:
        return np.exp2(rng.integers(-3, 4, tensor.sizes)).astype(np.float32)
    return any_bits(rng, tensor.data_type, tensor.sizes)


# ---- FOLD and UNFOLD -------------------------------------------------------------------------------------------------


class _FoldingCases(OperatorCases):
    """Windows over {N, C, spatial..}; the key has the sizes of the image."""

    standard_count = 40
    ranks = (3, 4, 5, 6, 7, 8)
    large_sizes: ClassVar[SizesList] = ((2, 3, 513, 515),)
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, DILATED, PADDED)

    @property
    def types(self) -> tuple[Types, ...]:
        """The types that the page's text implies."""
        return ((DataType.FLOAT32,), (DataType.FLOAT16,))

    def windows(self, key: Key, rng: np.random.Generator) -> tuple[Windows, dict[str, Any]]:
        """Draw a window, and return it with the fields that specify it."""
        windows = tuple(_draw_folding_window(key, rng, size) for size in key.sizes[2:])
        return windows, {
            "window_sizes": sizes_of(windows),
            "strides": tuple(window.stride for window in windows),
            "dilations": tuple(window.dilation for window in windows),
            "start_padding": tuple(window.start for window in windows),
            "end_padding": tuple(window.end for window in windows),
        }

    @staticmethod
    def columns(key: Key, windows: Windows) -> tuple[int, ...]:
        """Return the sizes of the columns."""
        batch, channels = key.sizes[:2]
        return batch, channels * math.prod(sizes_of(windows)), math.prod(positions_of(windows))


def _draw_folding_window(key: Key, rng: np.random.Generator, spatial: int) -> DrawnWindow:
    """Return a window with steps and padding along a dimension."""
    dilation = int(rng.integers(2, 4)) if key.variant == DILATED else 1
    # Few elements along each of many axes: columns grow with their product.
    most = 4 if len(key.sizes) <= 4 else 2
    size = int(rng.integers(1, min((spatial - 1) // dilation + 1, most) + 1))
    reach = (size - 1) * dilation + 1
    start, end = map(int, rng.integers(0, (2 * reach if key.variant == PADDED else reach) + 1, 2))
    return DrawnWindow(spatial, size, int(rng.integers(1, 4)), dilation, start, end)


@cases(descs.Unfold)
class UnfoldCases(_FoldingCases):
    """UNFOLD: any bits."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        windows, fields = self.windows(key, rng)
        (data_type,) = key.types
        source, output = draw_tensors(
            key, rng, (data_type, key.sizes, False), (data_type, self.columns(key, windows), True)
        )
        desc = descs.Unfold(input_tensor=source, output_tensor=output, **fields)
        return Case(name, desc, lambda contents: (any_bits(contents, data_type, key.sizes),), EXACT)


@cases(descs.Fold)
class FoldCases(_FoldingCases):
    """FOLD: sums of an element's shares."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        windows, fields = self.windows(key, rng)
        (data_type,) = key.types
        columns = self.columns(key, windows)
        source, output = draw_tensors(key, rng, (data_type, columns, False), (data_type, key.sizes, True))
        desc = descs.Fold(input_tensor=source, output_tensor=output, **fields)

        magnitude = of_first(lambda x: evaluate_in_float32(desc, (np.abs(x),))[0])
        tolerance = Accumulated(math.prod(sizes_of(windows)))
        return Case(
            name, desc, lambda contents: (numbers(contents, data_type, columns),), tolerance, magnitude=magnitude
        )
