"""Cases of the operators that set a tensor into a larger one."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, PaddingMode
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.contents import any_bits
from dmlgpu.conformance.cases.families.layout import (
    INNER,
    ROWS,
    MovingCases,
    WindowCases,
    draw_taken,
    draw_window,
    moving_case,
    some_dimensions,
)
from dmlgpu.conformance.cases.keys import Key, Types
from dmlgpu.conformance.cases.operator_cases import cases, draw_tensors

FAR = "far"  # beyond the size of the input, so that mirrors fold again
UNITS = "units"  # by multiples of 4 elements, so that rows stay whole units
MODES = {mode.name.lower(): mode for mode in PaddingMode}


class _PaddingCases(MovingCases):
    """Every mode; padding of whole rows, of rows by whole units, beyond the size of the input."""

    def variants(self, types: Types) -> tuple[str, ...]:
        return (*MODES, ROWS, INNER, FAR, UNITS)

    def mode(self, key: Key, rng: np.random.Generator) -> PaddingMode:
        """The mode that the variant names, or any."""
        return MODES.get(key.variant, PaddingMode(int(rng.integers(len(PaddingMode)))))

    def fields(self, key: Key, rng: np.random.Generator) -> dict[str, Any]:
        """The fields that PADDING and PADDING1 share."""
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
    """The padding at one end of a dimension."""
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
