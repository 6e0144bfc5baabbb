"""Cases of the operators that only rearrange elements."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dmlgpu import descs
from dmlgpu.conformance.case import Case
from dmlgpu.conformance.operator_cases import PLAIN, Key, OperatorCases, SizesList, Types, cases, place_all
from dmlgpu.conformance.values import any_bits
from dmlgpu.enums import FeatureLevel

WHOLE = "whole"  # the whole input: a copy
ROWS = "rows"  # whole inner rows of it: still contiguous
SHIFTED = "shifted"  # stride 1 with an inner offset: nearly contiguous
MIRRORED = "mirrored"  # SLICE1 only: stride -1 everywhere


class _SlicingCases(OperatorCases):
    """Windows drawn per dimension, and the windows at the edge of what is contiguous."""

    large_sizes: ClassVar[SizesList] = ((16_700_001,), (65537, 65))

    @property
    def types(self) -> tuple[Types, ...]:
        """All combinations that the newest feature level allows."""
        table = self.schema.support_at(FeatureLevel.LEVEL_6_4)
        return tuple((data_type,) for data_type in table["InputTensor"].types)

    def variants(self, types: Types) -> tuple[str, ...]:
        """What can be special about a case."""
        return (PLAIN, WHOLE, ROWS, SHIFTED)


def _window(key: Key, rng: np.random.Generator) -> list[tuple[int, int, int]]:
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


@cases(descs.Slice1)
class Slice1Cases(_SlicingCases):
    """SLICE1: strides of both signs; now and then the output leaves out the end of the window."""

    def variants(self, types: Types) -> tuple[str, ...]:
        """What can be special about a case."""
        return (*super().variants(types), MIRRORED)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        """The case of a key."""
        windows = _window(key, rng)
        reach = [1 + (size - 1) // abs(stride) for _, size, stride in windows]
        if key.variant == PLAIN:
            reach = [count - int(count > 1 and rng.integers(8) == 0) for count in reach]
        data_type = key.types[0]
        source, output = place_all(key, rng, (data_type, key.sizes, False), (data_type, reach, True))
        offsets, sizes, strides = zip(*windows, strict=True)
        desc = descs.Slice1(
            input_tensor=source,
            output_tensor=output,
            input_window_offsets=offsets,
            input_window_sizes=sizes,
            input_window_strides=strides,
        )
        return Case(name, desc, lambda contents: (any_bits(contents, data_type, key.sizes),))


@cases(descs.Slice)
class SliceCases(_SlicingCases):
    """SLICE: positive strides."""

    large_sizes: ClassVar[SizesList] = ()

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        """The case of a key."""
        windows = [(offset, 1 + (size - 1) // abs(step), abs(step)) for offset, size, step in _window(key, rng)]
        offsets, sizes, strides = zip(*windows, strict=True)
        data_type = key.types[0]
        source, output = place_all(key, rng, (data_type, key.sizes, False), (data_type, sizes, True))
        desc = descs.Slice(input_tensor=source, output_tensor=output, offsets=offsets, sizes=sizes, strides=strides)
        return Case(name, desc, lambda contents: (any_bits(contents, data_type, key.sizes),))
