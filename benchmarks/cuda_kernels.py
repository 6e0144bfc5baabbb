"""Times of PyTorch's CUDA kernels for rows of `discrete.toml`, on a machine with an NVIDIA GPU.

    python benchmarks/cuda_kernels.py -o cuda.json
    python benchmarks/cuda_kernels.py -k gemm

Prints the median of 20 runs, by CUDA events, in microseconds. float32 is computed as float32: without TF32, as dmlgpu
does. Compare with `dmlgpu bench benchmarks/discrete.toml` on the same machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F

RUNS, WARM_UP = 20, 3
ELEMENTS = 1 << 26

Call = Callable[[], object]


def random(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return normally distributed numbers on the GPU."""
    return torch.randn(*sizes, device="cuda", dtype=dtype)


def maps(dtype: torch.dtype) -> Iterator[tuple[str, Call]]:
    """Yield copies and element-wise operators of 64M elements."""
    a, b = random(ELEMENTS, dtype=dtype), random(ELEMENTS, dtype=dtype)
    result = torch.empty_like(a)
    yield "copy", lambda: result.copy_(a)
    yield "add", lambda: torch.add(a, b, out=result)
    yield "relu", lambda: F.relu(a)
    yield "gelu", lambda: F.gelu(a)
    yield "tanh", lambda: torch.tanh(a)


def rows_and_images() -> Iterator[tuple[str, Call]]:
    """Yield moves, reductions, normalizations and pooling in float32."""
    square = random(8192, 8192)
    result, rows = torch.empty_like(square), square.view(65536, 1024)
    yield "transpose 8192x8192", lambda: result.copy_(square.t())
    yield "sum, last axis, 8192x8192", lambda: square.sum(1)
    yield "sum, first axis, 8192x8192", lambda: square.sum(0)
    yield "argmin 8192x8192", lambda: square.argmin(1)
    yield "softmax 65536x1024", lambda: torch.softmax(rows, 1)
    yield "softmax 8192x1024", lambda: torch.softmax(rows[:8192], 1)
    scale = random(1024)
    yield "layer normalization 65536x1024", lambda: F.layer_norm(rows, (1024,), scale, scale)
    yield "running sum 65536x1024", lambda: rows.cumsum(1)
    long = square.view(16384, 4096)[:8192]
    yield "top 50 of 8192x4096", lambda: long.topk(50, 1)
    image = square.view(1, 1024, 256, 256)
    yield "max pooling 1024x256x256", lambda: F.max_pool2d(image, 2, 2)
    small = image[:, :256]
    yield "upsampling 256x256x256", lambda: F.interpolate(small, scale_factor=2, mode="bilinear")
    table, picked = random(262144, 256), torch.randint(0, 262144, (131072,), device="cuda")
    yield "gather 131072 rows of 256", lambda: table[picked]
    part = random(4096, 4096)
    yield "join 4096x4096", lambda: torch.cat((part, part), 1)
    places = torch.rand(4096, 4096, device="cuda").argsort(0)
    yield "scatter to other rows, 4096x4096", lambda: part.scatter(0, places, part)


def products(dtype: torch.dtype) -> Iterator[tuple[str, Call]]:
    """Yield matrix products, convolutions, attention and an LSTM."""
    for size in (1024, 2048, 4096):
        a, b = random(size, size, dtype=dtype), random(size, size, dtype=dtype)
        yield f"gemm {size}", lambda a=a, b=b: a @ b  # type: ignore[misc]
    few, wide = random(8, 4096, dtype=dtype), random(4096, 4096, dtype=dtype)
    yield "gemm 8x4096x4096", lambda: few @ wide
    image, window = random(32, 256, 56, 56, dtype=dtype), random(256, 256, 3, 3, dtype=dtype)
    yield "convolution 32x256x56x56", lambda: F.conv2d(image, window, padding=1)
    yield "convolution of stride 2", lambda: F.conv2d(image, window, padding=1, stride=2)
    deep, filters = random(32, 512, 56, 56, dtype=dtype), random(512, 1, 3, 3, dtype=dtype)
    yield "depth-wise convolution", lambda: F.conv2d(deep, filters, padding=1, groups=512)
    query, key, value = (random(4, 16, 2048, 64, dtype=dtype) for _ in range(3))
    yield "attention 4x16x2048x64", lambda: F.scaled_dot_product_attention(query, key, value)
    token = random(1, 32, 1, 128, dtype=dtype)
    keys, values = (random(1, 32, 4096, 128, dtype=dtype) for _ in range(2))
    yield "attention of one query", lambda: F.scaled_dot_product_attention(token, keys, values)
    layer, steps = torch.nn.LSTM(512, 512).to("cuda", dtype), random(128, 32, 512, dtype=dtype)
    yield "lstm 128x32x512", lambda: layer(steps)


def median(call: Call) -> float:
    """Return the median time of a call in microseconds."""
    times = []
    for number in range(WARM_UP + RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        if number >= WARM_UP:
            times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def main() -> None:
    """Time the rows of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", dest="part", default="", help="only rows whose name contains this")
    parser.add_argument("-o", dest="output", type=Path, help="also write the times as JSON")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    times: dict[str, float] = {}
    with torch.no_grad():
        for dtype in (torch.float32, torch.float16):
            rows = [maps(dtype), products(dtype)] + [rows_and_images()] * (dtype is torch.float32)
            for name, call in (row for family in rows for row in family):
                label = f"{name} {str(dtype).removeprefix('torch.')}"
                if options.part in label:
                    times[label] = median(call)
                    print(f"{label:48} {times[label]:10.1f} us", flush=True)
    if options.output:
        options.output.write_text(json.dumps(times, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
