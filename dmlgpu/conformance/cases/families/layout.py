"""Cases of the operators that only rearrange elements of one tensor."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.contents import any_bits
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors
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
    """A case over random bits in every input."""
    tensors = [slot.tensor for slot in desc.inputs if slot.tensor is not None]
    return Case(name, desc, lambda contents: tuple(any_bits(contents, t.data_type, t.sizes) for t in tensors))


class WindowCases(MovingCases):
    """Windows drawn per dimension, and the windows at the edge of what is contiguous."""

    large_sizes: ClassVar[SizesList] = ((16_700_001,), (65537, 65))

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, WHOLE, ROWS, SHIFTED, MIRRORED)


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
    """How many elements of each window's walk are taken: now and then not the last."""
    reach = [1 + (size - 1) // abs(stride) for _, size, stride in windows]
    if key.variant == PLAIN:
        reach = [count - int(count > 1 and rng.integers(8) == 0) for count in reach]
    return reach


@cases(descs.Slice1)
class Slice1Cases(WindowCases):
    """SLICE1: strides of both signs; now and then the output leaves out the end of the window."""

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

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, WHOLE, ROWS, SHIFTED)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        windows = [(offset, 1 + (size - 1) // abs(step), abs(step)) for offset, size, step in draw_window(key, rng)]
        offsets, sizes, strides = zip(*windows, strict=True)
        source, output = draw_tensors(key, rng, (key.types[0], key.sizes, False), (key.types[0], sizes, True))
        desc = descs.Slice(input_tensor=source, output_tensor=output, offsets=offsets, sizes=sizes, strides=strides)
        return moving_case(name, desc)


def some_dimensions(key: Key, rng: np.random.Generator, most: int = 3) -> set[int]:
    """The dimensions that an operator changes: the first, the last, or a few, as the variant says."""
    rank = len(key.sizes)
    if key.variant == ROWS:
        return {0}
    if key.variant == INNER:
        return {rank - 1}
    return {int(dimension) for dimension in rng.permutation(rank)[:most]}


@cases(descs.Tile)
class TileCases(MovingCases):
    """TILE: a few dimensions repeated, or only whole rows, or only within them."""

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, ROWS, INNER)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        repeated = some_dimensions(key, rng)
        repeats = tuple(int(rng.integers(1, 5)) if axis in repeated else 1 for axis in range(len(key.sizes)))
        sizes = [size * count for size, count in zip(key.sizes, repeats, strict=True)]
        source, output = draw_tensors(key, rng, (key.types[0], key.sizes, False), (key.types[0], sizes, True))
        return moving_case(name, descs.Tile(input_tensor=source, output_tensor=output, repeats=repeats))
