"""Regions of interest against the fastest hand-written copy of the output's bytes, as interleaved ratios with their
intervals.

    python benchmarks/regions.py [ADAPTER] [-k PART]

Prints a table of time of ours over time of the copy, for 100 regions of a 32x100x100 image at 7x7. No line has a
target.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Bench, Result, fastest_copy, main, open_backend

from dmlgpu import descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.enums import DataType, InterpolationMode, ReduceFunction
from dmlgpu.operator_desc import Size2D
from dmlgpu.tensor import TensorDesc

COUNT, SIZE = 100, 100
IMAGE, CROPS = (1, 32, SIZE, SIZE), (COUNT, 32, 7, 7)
RNG = np.random.default_rng(1)
CORNERS = np.sort(RNG.uniform(0, SIZE, (COUNT, 2, 2)), 1).reshape(COUNT, 4).astype(np.float32)
BATCHES = np.zeros(COUNT, np.uint32)


def tensor(sizes: tuple[int, ...]) -> TensorDesc:
    """Packed numbers."""
    return TensorDesc(DataType.FLOAT32, sizes)


def sampling(function: ReduceFunction) -> dict[str, Any]:
    """Four samples for each output element."""
    return {
        "roi_tensor": tensor(CORNERS.shape),
        "batch_indices_tensor": TensorDesc(DataType.UINT32, BATCHES.shape),
        "reduction_function": function,
        "interpolation_mode": InterpolationMode.LINEAR,
        "spatial_scale_x": 1.0,
        "spatial_scale_y": 1.0,
        "input_pixel_offset": 0.5,
        "output_pixel_offset": -0.5,
        "minimum_samples_per_output": 2,
        "maximum_samples_per_output": 2,
        "align_regions_to_corners": False,
    }


def forward(adapter: str) -> Iterator[Result]:
    """Pooled and sampled."""
    bench = Bench(open_backend(adapter))
    image, copy = RNG.random(IMAGE, np.float32), fastest_copy(bench, np.ones(CROPS, np.float32))
    whole: dict[str, Any] = {"input_tensor": tensor(IMAGE), "output_tensor": tensor(CROPS)}
    for function in (ReduceFunction.AVERAGE, ReduceFunction.MAX):
        desc = descs.RoiAlign1(**whole, out_of_bounds_input_value=0.0, **sampling(function))
        yield Result(f"align, {function.name.lower()}", ratio(bench.operator(desc, image, CORNERS, BATCHES), copy))
    rois = np.concatenate([BATCHES[:, None].astype(np.float32), CORNERS], 1)[None, None]
    pooled = descs.RoiPooling(**whole, roi_tensor=tensor(rois.shape), spatial_scale=1.0, pooled_size=Size2D(7, 7))
    yield Result("pooling", ratio(bench.operator(pooled, image, rois), copy))


def gradients(adapter: str) -> Iterator[Result]:
    """Over the copy of the image's gradient."""
    bench = Bench(open_backend(adapter))
    image, given = RNG.random(IMAGE, np.float32), RNG.random(CROPS, np.float32)
    copy = fastest_copy(bench, image)
    fields: dict[str, Any] = {
        "input_tensor": tensor(IMAGE),
        "input_gradient_tensor": tensor(CROPS),
        "output_gradient_tensor": tensor(IMAGE),
    }
    for name in ("the input", "both"):
        for function in (ReduceFunction.AVERAGE, ReduceFunction.MAX):
            desc = descs.RoiAlignGrad(**fields, **sampling(function))
            call = bench.operator(desc, image, given, CORNERS, BATCHES)
            yield Result(f"gradient of {name}, {function.name.lower()}", ratio(call, copy))
        fields["output_roi_gradient_tensor"] = tensor(CORNERS.shape)


PARTS = {"forward": forward, "gradients": gradients}


if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
