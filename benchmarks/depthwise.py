"""Depth-wise convolution, 3 x 3 on 128 x 56 x 56, against NumPy's shifted sum, as an interleaved ratio.

    python benchmarks/depthwise.py [ADAPTER]

Exits with 1 when the target is missed: at most 1.5 times NumPy's time. Other schedules: benchmarks/convolution.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from convolution import SHAPES, convolution, ours
from harness import Bench, Call, Part, Result, main, open_backend
from numpy.typing import NDArray

from dmlgpu.bench.ratios import ratio

SHAPE = "3 x 3, 128 depth-wise, 56"


def operands() -> tuple[list[NDArray[np.float32]], NDArray[np.float32]]:
    """Two images {channels, rows, columns}, and the filter {channels, rows, columns, 1, 1}."""
    shape, rng = SHAPES[SHAPE], np.random.default_rng(1)
    images = [rng.standard_normal((shape.channels, shape.side, shape.side), np.float32) for _ in range(2)]
    return images, rng.standard_normal((shape.channels, shape.window, shape.window, 1, 1), np.float32)


def shifted_sum() -> Call:
    """The padded image times each place of the filter, nine times shifted, added up."""
    shape, (images, taps) = SHAPES[SHAPE], operands()

    def run(number: int) -> object:
        padded = np.pad(images[number % 2], ((0, 0), (1, 1), (1, 1)))
        total = np.zeros_like(images[0])
        for row, column in np.ndindex(shape.window, shape.window):
            total += padded[:, row : row + shape.side, column : column + shape.side] * taps[:, row, column]
        return total

    return run


def depthwise(adapter: str) -> Iterator[Result]:
    """The chosen schedule."""
    bench = Bench(open_backend(adapter))
    measured = ratio(ours(bench, convolution(SHAPES[SHAPE])), shifted_sum(), 21, calls=3)
    yield Result(f"{SHAPE}: against NumPy's shifted sum", measured, at_most=1.5)


PARTS: dict[str, Part] = {"depthwise": depthwise}


if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
