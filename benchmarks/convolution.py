"""Convolutions: the targets against hand-written kernels, and a table of every schedule on every shape.

    python benchmarks/convolution.py [ADAPTER] [-k PART]

Exits with 1 when a target is missed: 3 x 3, 64 to 64 channels on 56 x 56, at least as fast as the best hand-written
kernel and 3 times as fast as the naive one; on each shape the chosen schedule within 15 % of the fastest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from harness import Bench, Call, Part, Result, fastest, main, open_backend, storage

from dmlgpu import compiler, descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.enums import ConvolutionDirection, ConvolutionMode, DataType
from dmlgpu.errors import InvalidArgument
from dmlgpu.schedule.convolution_choice import NAMES
from dmlgpu.tensor import TensorDesc

CHANNELS, SIDE, PLACES = 64, 56, 9
PIXELS = SIDE * SIDE
INNER = CHANNELS * PLACES


@dataclass(frozen=True)
class Shape:
    """A square convolution, padded so that it keeps its size where the stride is 1."""

    channels: int
    outputs: int
    side: int
    window: int
    stride: int = 1
    groups: int = 1
    batch: int = 1
    nhwc: bool = False
    backward: bool = False


SHAPES = {
    "3 x 3, 64 to 64, 56": Shape(64, 64, 56, 3),
    "3 x 3, 64 to 64, 56, NHWC": Shape(64, 64, 56, 3, nhwc=True),
    "3 x 3, 256 to 256, 14": Shape(256, 256, 14, 3),
    "3 x 3, 64 to 128, 56, stride 2": Shape(64, 128, 56, 3, stride=2),
    "7 x 7, 3 to 64, 112, stride 2": Shape(3, 64, 112, 7, stride=2),
    "1 x 1, 256 to 64, 56": Shape(256, 64, 56, 1),
    "1 x 1, 256 to 64, 56, NHWC": Shape(256, 64, 56, 1, nhwc=True),
    "1 x 1, 256 to 512, 28, stride 2": Shape(256, 512, 28, 1, stride=2),
    "3 x 3, 128 in 32 groups, 28": Shape(128, 128, 28, 3, groups=32),
    "3 x 3, 128 depth-wise, 56": Shape(128, 128, 56, 3, groups=128),
    "3 x 3, 8 to 8, 16": Shape(8, 8, 16, 3),
    "4 x 4, 64 to 32, 28, transposed, stride 2": Shape(64, 32, 28, 4, stride=2, backward=True),
}


def convolution(shape: Shape) -> descs.Convolution:
    padding = (shape.window - 1) // 2
    if shape.backward:
        side = shape.stride * (shape.side - 1) + shape.window - 2 * padding
        filters = (shape.channels, shape.outputs // shape.groups)
    else:
        side = (shape.side + 2 * padding - shape.window) // shape.stride + 1
        filters = (shape.outputs, shape.channels // shape.groups)
    return descs.Convolution(
        input_tensor=image((shape.batch, shape.channels, shape.side, shape.side), shape.nhwc),
        filter_tensor=TensorDesc(DataType.FLOAT32, (*filters, shape.window, shape.window)),
        bias_tensor=None,
        output_tensor=image((shape.batch, shape.outputs, side, side), shape.nhwc),
        mode=ConvolutionMode.CROSS_CORRELATION,
        direction=ConvolutionDirection(int(shape.backward)),
        strides=(shape.stride,) * 2,
        dilations=(1, 1),
        start_padding=(padding,) * 2,
        end_padding=(padding,) * 2,
        output_padding=(0, 0),
        group_count=shape.groups,
    )


def image(sizes: tuple[int, int, int, int], nhwc: bool) -> TensorDesc:
    _, channels, height, width = sizes
    strides = (channels * height * width, 1, channels * width, channels) if nhwc else None
    return TensorDesc(DataType.FLOAT32, sizes, strides)


def ours(bench: Bench, desc: descs.Convolution, schedule: str = "") -> Call:
    """CONVOLUTION by the chosen schedule, or by the named one."""
    rng = np.random.default_rng(1)
    x, weights = (rng.standard_normal(tensor.sizes, np.float32) for tensor in (desc.input_tensor, desc.filter_tensor))
    return bench.operator(desc, x, weights, schedule=schedule)


# ---- hand-written


def operands() -> list[object]:
    """Input, filter, output."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((CHANNELS, PIXELS), np.float32)
    return [x, rng.standard_normal((CHANNELS, INNER), np.float32), x.nbytes]


def naive(bench: Bench) -> Call:
    """One invocation per output."""
    body = storage("f32", "f32", "f32") + (
        "@compute @workgroup_size(8, 8) fn main(@builtin(global_invocation_id) id: vec3<u32>) { var s = 0.0;"
        f" for (var c = 0u; c < {CHANNELS}u; c++) {{ for (var p = 0u; p < {PLACES}u; p++) {{"
        f" let y = id.y + p / 3u - 1u; let x = id.x + p % 3u - 1u; if (y >= {SIDE}u || x >= {SIDE}u) {{ continue; }}"
        f" s += b0[c * {PIXELS}u + y * {SIDE}u + x] * b1[(id.z * {CHANNELS}u + c) * {PLACES}u + p]; }} }}"
        f" b2[id.z * {PIXELS}u + id.y * {SIDE}u + id.x] = s; }}"
    )
    return bench.kernel(body, (SIDE // 8, SIDE // 8, CHANNELS), operands())


def direct(bench: Bench) -> Iterator[tuple[str, Call]]:
    """Four pixels side by side of several outputs: six loads serve twelve products of each."""
    for outputs, workgroup in ((4, 8), (8, 8), (8, 64)):
        kept = range(outputs)
        quads = PIXELS // 4
        body = storage("f32", "f32", "f32") + (
            f"@compute @workgroup_size({workgroup}) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{"
            f" if (id.x >= {quads}u) {{ return; }} let o = id.y * {outputs}u;"
            f" let y = i32(id.x / {SIDE // 4}u); let x = i32(id.x % {SIDE // 4}u) * 4;"
            + "".join(f" var s{i} = vec4<f32>(0.0);" for i in kept)
            + f" for (var c = 0u; c < {CHANNELS}u; c++) {{ for (var k = 0; k < 3; k++) {{ let row = y + k - 1;"
            f" let at = i32(c) * {PIXELS} + clamp(row, 0, {SIDE - 1}) * {SIDE} + x;"
            f" let z = select(0.0, 1.0, row >= 0 && row < {SIDE});"
            " let v0 = z * select(0.0, b0[max(at - 1, 0)], x > 0);"
            + "".join(f" let v{i + 1} = z * b0[at + {i}];" for i in range(4))
            + f" let v5 = z * select(0.0, b0[min(at + 4, {CHANNELS * PIXELS - 1})], x < {SIDE - 4});"
            + "".join(f" let r{i} = vec4(v{i}, v{i + 1}, v{i + 2}, v{i + 3});" for i in range(3))
            + f" let w = (o * {CHANNELS}u + c) * {PLACES}u + u32(k) * 3u;"
            + "".join(
                f" s{i} += b1[w + {i * INNER}u] * r0 + b1[w + {i * INNER + 1}u] * r1 + b1[w + {i * INNER + 2}u] * r2;"
                for i in kept
            )
            + f" }} }} let at = o * {PIXELS}u + u32(y * {SIDE} + x);"
            + "".join(f" b2[at + {i * PIXELS + j}u] = s{i}[{j}];" for i in kept for j in range(4))
            + " }"
        )
        grid = (-(-quads // workgroup), CHANNELS // outputs, 1)
        yield f"direct, 4 pixels by {outputs} outputs, workgroup {workgroup}", bench.kernel(body, grid, operands())


def by_columns(bench: Bench) -> Iterator[tuple[str, Call]]:
    """The windows laid out as columns, then rows of units of the product in registers."""
    lay_out = storage("f32", "f32", "f32", "f32") + (
        "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {"
        f" let y = id.x / {SIDE}u + (id.y % {PLACES}u) / 3u - 1u; let x = id.x % {SIDE}u + id.y % 3u - 1u; var v = 0.0;"
        f" if (y < {SIDE}u && x < {SIDE}u) {{ v = b0[id.y / {PLACES}u * {PIXELS}u + y * {SIDE}u + x]; }}"
        f" b3[id.y * {PIXELS}u + id.x] = v; }}"
    )
    for rows, units, workgroup in ((8, 1, 8), (8, 2, 8), (8, 1, 16)):
        cells = [(i, j) for i in range(rows) for j in range(units)]
        across = units * workgroup
        place = f"(group.y * {rows}u + {{}}u) * {PIXELS // 4}u + x + {{}}u"
        columns = [f"min(x + {j * workgroup}u, {PIXELS // 4 - 1}u)" for j in range(units)]
        multiply = storage("f32", "vec4<f32>", "vec4<f32>", "vec4<f32>") + (
            f"@compute @workgroup_size({workgroup}) fn main(@builtin(workgroup_id) group: vec3<u32>,"
            f" @builtin(local_invocation_id) me: vec3<u32>) {{ let x = group.x * {across}u + me.x;"
            + "".join(f" var c{i}_{j} = vec4<f32>(0.0);" for i, j in cells)
            + f" for (var k = 0u; k < {INNER // 4}u; k++) {{"
            + "".join(f" let a{i} = b1[(group.y * {rows}u + {i}u) * {INNER // 4}u + k];" for i in range(rows))
            + "".join(
                "".join(
                    f" let d{step}_{j} = b3[(k * 4u + {step}u) * {PIXELS // 4}u + {columns[j]}];" for j in range(units)
                )
                + "".join(f" c{i}_{j} += a{i}[{step}] * d{step}_{j};" for i, j in cells)
                for step in range(4)
            )
            + " }"
            + "".join(
                f" if (x + {j * workgroup}u < {PIXELS // 4}u) {{ b2[{place.format(i, j * workgroup)}] = c{i}_{j}; }}"
                for i, j in cells
            )
            + " }"
        )
        grids = (PIXELS // 64, INNER, 1), (-(-PIXELS // (4 * across)), CHANNELS // rows, 1)
        call = bench.kernels(list(zip((lay_out, multiply), grids, strict=True)), [*operands(), INNER * PIXELS * 4])
        yield f"columns, then {rows} x {units} units, workgroup {workgroup}", call


def hand_written(bench: Bench) -> Iterator[tuple[str, Call]]:
    """The best shapes of the best kinds."""
    yield from direct(bench)
    yield from by_columns(bench)


# ---- targets


def targets(adapter: str) -> Iterator[Result]:
    """The chosen schedule against hand-written kernels."""
    bench = Bench(open_backend(adapter))
    name = "3 x 3, 64 to 64, 56"
    call = ours(bench, convolution(SHAPES[name]))
    yield Result(f"{name}: against the naive kernel", ratio(naive(bench), call), at_least=3.0)
    best = fastest(hand_written(bench), "convolution")
    yield Result(f"{name}: against the best hand-written", ratio(best, call), at_least=1.0)


def schedules(adapter: str) -> Iterator[Result]:
    """Time of the chosen schedule over that of each that fits, by shape; ``*`` marks the chosen program."""
    bench = Bench(open_backend(adapter))
    for shape, given in SHAPES.items():
        desc = convolution(given)
        chosen = compiler.compile_operator(desc, bench.backend.target)
        call = ours(bench, desc)
        for name in NAMES:
            try:
                program = compiler.compile_operator(desc, replace(bench.backend.target, schedule=name))
            except InvalidArgument:  # does not fit
                continue
            measured = ratio(call, ours(bench, desc, name))
            yield Result(f"{shape}: {name}{' *' if program == chosen else ''}", measured, at_most=1.15)


PARTS: dict[str, Part] = {"targets": targets, "schedules": schedules}


if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
