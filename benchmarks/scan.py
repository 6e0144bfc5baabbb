"""Running sums, and places of what is not zero, against a plain copy of the same bytes.

    python benchmarks/scan.py [ADAPTER] [-k PART]

Prints a table of time of ours over time of the fastest hand-written vec4 copy of the input, as interleaved ratios with
their intervals, and exits with 1 when the target is missed: a running sum of 16M float32 in at most 4 times the copy's
time. The others have no target.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from harness import Bench, Part, Result, fastest_copy, main, open_backend

from dmlgpu import descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.enums import AxisDirection, DataType
from dmlgpu.tensor import TensorDesc

ELEMENTS = 1 << 24
FLOAT = DataType.FLOAT32
TARGET = 4.0
SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "16M": ((ELEMENTS,), 0),
    "[4096, 4096], axis 1": ((4096, 4096), 1),
    "[4096, 4096], axis 0": ((4096, 4096), 0),
    "[65536, 256], axis 1": ((65536, 256), 1),
    "[64, 4096, 64], axis 1": ((64, 4096, 64), 1),
}


def summation(sizes: tuple[int, ...], axis: int) -> descs.CumulativeSummation:
    tensor = TensorDesc(FLOAT, sizes)
    return descs.CumulativeSummation(
        input_tensor=tensor,
        output_tensor=tensor,
        axis=axis,
        axis_direction=AxisDirection.INCREASING,
        has_exclusive_sum=False,
    )


def product(sizes: tuple[int, ...], axis: int) -> descs.CumulativeProduct:
    tensor = TensorDesc(FLOAT, sizes)
    return descs.CumulativeProduct(
        input_tensor=tensor,
        output_tensor=tensor,
        axis=axis,
        axis_direction=AxisDirection.INCREASING,
        has_exclusive_product=False,
    )


def target(adapter: str) -> Iterator[Result]:
    """The one with a target."""
    bench = Bench(open_backend(adapter))
    values = np.random.default_rng(1).random(ELEMENTS, np.float32)
    copy = fastest_copy(bench, values)
    name = "CUMULATIVE_SUMMATION, 16M float32"
    yield Result(name, ratio(bench.operator(summation((ELEMENTS,), 0), values), copy), at_most=TARGET)


def shapes(adapter: str) -> Iterator[Result]:
    """Lines of other shapes, and products."""
    bench = Bench(open_backend(adapter))
    values = np.random.default_rng(1).random(ELEMENTS, np.float32)
    copy = fastest_copy(bench, values)
    for name, (sizes, axis) in SHAPES.items():
        for operator in (summation, product):
            desc = operator(sizes, axis)
            yield Result(f"{desc.operator}, {name}", ratio(bench.operator(desc, values.reshape(sizes)), copy))


def coordinates(adapter: str) -> Iterator[Result]:
    """Places of what is not zero, at three densities."""
    bench = Bench(open_backend(adapter))
    sizes = (4096, 4096)
    desc = descs.NonzeroCoordinates(
        input_tensor=TensorDesc(FLOAT, sizes),
        output_count_tensor=TensorDesc(DataType.UINT32, (1,)),
        output_coordinates_tensor=TensorDesc(DataType.UINT32, (ELEMENTS, 2)),
    )
    rng = np.random.default_rng(1)
    copy = fastest_copy(bench, rng.random(ELEMENTS, np.float32))
    for density in (0.01, 0.5, 1.0):
        values = (rng.random(sizes) < density).astype(np.float32)
        name = f"NONZERO_COORDINATES, [4096, 4096], {density:.0%} not zero"
        yield Result(name, ratio(bench.operator(desc, values), copy))


PARTS: dict[str, Part] = {"target": target, "shapes": shapes, "coordinates": coordinates}


if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
