"""Cases of FOLD and UNFOLD."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from dmlgpu import reference
from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.case import Arrays, Case
from dmlgpu.conformance.cases.contents import any_bits, numbers
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors
from dmlgpu.conformance.cases.tolerance import EXACT, Accumulated, Bound
from dmlgpu.conformance.cases.windows import Window, Windows, positions_of, sizes_of

DILATED = "dilated"
PADDED = "padding"  # much padding; whole windows may lie in it


class _FoldingCases(OperatorCases):
    """Windows over {N, C, spatial..}; the key has the sizes of the image."""

    standard_count = 40
    ranks = (3, 4, 5, 6, 7, 8)
    large_sizes: ClassVar[SizesList] = ((2, 3, 513, 515),)

    @property
    def types(self) -> tuple[Types, ...]:
        """The types that the page's text implies."""
        return ((DataType.FLOAT32,), (DataType.FLOAT16,))

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, DILATED, PADDED)

    def windows(self, key: Key, rng: np.random.Generator) -> tuple[Windows, dict[str, Any]]:
        """How a window slides, and the fields that say so."""
        windows = tuple(_draw_window(key, rng, size) for size in key.sizes[2:])
        return windows, {
            "window_sizes": sizes_of(windows),
            "strides": tuple(window.stride for window in windows),
            "dilations": tuple(window.dilation for window in windows),
            "start_padding": tuple(window.start for window in windows),
            "end_padding": tuple(window.end for window in windows),
        }

    @staticmethod
    def columns(key: Key, windows: Windows) -> tuple[int, ...]:
        """The sizes of the columns."""
        batch, channels = key.sizes[:2]
        return batch, channels * math.prod(sizes_of(windows)), math.prod(positions_of(windows))


def _draw_window(key: Key, rng: np.random.Generator, spatial: int) -> Window:
    """A window with steps and padding along a dimension."""
    dilation = int(rng.integers(2, 4)) if key.variant == DILATED else 1
    # Few elements along each of many axes: columns grow with their product.
    most = 4 if len(key.sizes) <= 4 else 2
    size = int(rng.integers(1, min((spatial - 1) // dilation + 1, most) + 1))
    reach = (size - 1) * dilation + 1
    start, end = map(int, rng.integers(0, (2 * reach if key.variant == PADDED else reach) + 1, 2))
    return Window(spatial, size, int(rng.integers(1, 4)), dilation, start, end)


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

        def magnitude(inputs: Arrays) -> Bound:
            assert inputs[0] is not None
            given, made = (TensorDesc(DataType.FLOAT32, sizes) for sizes in (columns, key.sizes))
            wide = desc.replace(input_tensor=given, output_tensor=made)
            (total,) = reference.evaluate(wide, (np.abs(inputs[0].astype(np.float32)),))
            return np.asarray(total.astype(np.float64))

        def fill(contents: np.random.Generator) -> Arrays:
            return (numbers(contents, data_type, columns),)

        return Case(name, desc, fill, Accumulated(math.prod(sizes_of(windows))), magnitude=magnitude)
