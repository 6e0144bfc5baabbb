"""Resampling against the fastest hand-written copy of the output's bytes, as interleaved ratios with their intervals.

    python benchmarks/resampling.py [ADAPTER] [-k PART]

Prints a table of time of ours over time of the copy and exits with 1 when a target is missed: bilinear resampling of
64x112x112 by 2 in at most 2 times the copy. The other lines have no target.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Bench, Result, fastest_copy, main, open_backend

from dmlgpu import descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.enums import AxisDirection, DataType, InterpolationMode
from dmlgpu.tensor import TensorDesc

FLOAT = DataType.FLOAT32
IMAGE = (1, 64, 112, 112)
LINEAR, NEAREST = InterpolationMode.LINEAR, InterpolationMode.NEAREST_NEIGHBOR


def sizes_of(sizes: tuple[int, ...], scale: float) -> tuple[int, ...]:
    """Height and width multiplied."""
    return *sizes[:-2], *(int(size * scale) for size in sizes[-2:])


def fields(mode: InterpolationMode, scale: float) -> dict[str, Any]:
    """Height and width by a scale, between pixel centres."""
    down = 0.5 if mode is NEAREST else 0.0  # halves are rounded up
    return {
        "interpolation_mode": mode,
        "rounding_direction": AxisDirection.DECREASING,
        "scales": (1.0, 1.0, scale, scale),
        "input_pixel_offsets": (0.5 - down,) * 4,
        "output_pixel_offsets": (-0.5,) * 4,
    }


def forward(bench: Bench, mode: InterpolationMode, scale: float, name: str, **more: Any) -> Result:
    """A line: an image, over the copy of the output."""
    sizes, options = sizes_of(IMAGE, scale), {"antialiased": False} | more
    at_most = options.pop("at_most", None)
    desc = descs.Resample3(
        input_tensor=TensorDesc(FLOAT, IMAGE),
        output_tensor=TensorDesc(FLOAT, sizes),
        **fields(mode, scale),
        **options,
    )
    image = np.random.default_rng(1).random(IMAGE, np.float32)
    copy = fastest_copy(bench, np.ones(sizes, np.float32))
    return Result(name, ratio(bench.operator(desc, image), copy), at_most=at_most)


def interpolation(adapter: str) -> Iterator[Result]:
    """Up and down, by whole and by other scales."""
    bench = Bench(open_backend(adapter))
    yield forward(bench, LINEAR, 2.0, "bilinear 64x112x112 by 2", at_most=2.0)
    yield forward(bench, LINEAR, 3.0, "bilinear 64x112x112 by 3")
    yield forward(bench, LINEAR, 0.5, "bilinear 64x112x112 by 0.5")
    yield forward(bench, LINEAR, 0.5, "bilinear 64x112x112 by 0.5, antialiased", antialiased=True)


def moving(adapter: str) -> Iterator[Result]:
    """Nearest neighbour."""
    bench = Bench(open_backend(adapter))
    yield forward(bench, NEAREST, 2.0, "nearest 64x112x112 by 2")
    yield forward(bench, NEAREST, 1.3, "nearest 64x112x112 by 1.3")


def gradients(adapter: str) -> Iterator[Result]:
    """Over the copy of the gradient that is given."""
    bench = Bench(open_backend(adapter))
    sizes = sizes_of(IMAGE, 2.0)
    copy = fastest_copy(bench, np.ones(sizes, np.float32))
    gradient = np.random.default_rng(1).random(sizes, np.float32)
    for mode in (LINEAR, NEAREST):
        desc = descs.ResampleGrad1(
            input_gradient_tensor=TensorDesc(FLOAT, sizes),
            output_gradient_tensor=TensorDesc(FLOAT, IMAGE),
            **fields(mode, 2.0),
        )
        name = f"gradient of {mode.name.lower().replace('_', ' ')} 64x112x112 by 2"
        yield Result(name, ratio(bench.operator(desc, gradient), copy))


PARTS = {"interpolation": interpolation, "moving": moving, "gradients": gradients}


if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
