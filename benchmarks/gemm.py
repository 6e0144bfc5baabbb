"""SGEMM: the targets against hand-written kernels, and a table of every schedule on every shape.

    python benchmarks/gemm.py [ADAPTER] [-k PART]

Exits with 1 when a target is missed: 1024 x 1024 x 1024 at least as fast as the best hand-written kernel and 5 times as
fast as the naive one; on each shape the chosen schedule within 15 % of the fastest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from harness import Bench, Call, Part, Result, fastest, main, open_backend, storage

from dmlgpu import compiler, descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.enums import DataType, MatrixTransform
from dmlgpu.schedule.gemm_choice import NAMES
from dmlgpu.tensor import TensorDesc

SIDE = 1024

Fields = tuple[int, int, int, tuple[int, ...], int, int]
"""Rows, columns, inner, batch, transposes of A and B."""

SHAPES: dict[str, Fields] = {
    "512": (512, 512, 512, (), 0, 0),
    "512 transposed": (512, 512, 512, (), 1, 1),
    "511, odd": (511, 511, 511, (), 0, 0),
    "12 x 128": (128, 128, 128, (12,), 0, 0),
    "a row": (1, 2048, 2048, (), 0, 1),
    "long sums": (16, 16, 65536, (), 0, 0),
    "little": (24, 24, 24, (), 0, 0),
}


def gemm(fields: Fields) -> descs.Gemm:
    rows, columns, inner, batch, trans_a, trans_b = fields
    a = (inner, rows) if trans_a else (rows, inner)
    b = (columns, inner) if trans_b else (inner, columns)
    a_tensor, b_tensor, output = (TensorDesc(DataType.FLOAT32, (*batch, *size)) for size in (a, b, (rows, columns)))
    return descs.Gemm(
        a_tensor=a_tensor,
        b_tensor=b_tensor,
        c_tensor=None,
        output_tensor=output,
        trans_a=MatrixTransform(trans_a),
        trans_b=MatrixTransform(trans_b),
        alpha=1.0,
        beta=0.0,
    )


def ours(bench: Bench, desc: descs.Gemm, schedule: str = "") -> Call:
    """GEMM by the chosen schedule, or by the named one."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(tensor.sizes, np.float32) for tensor in (desc.a_tensor, desc.b_tensor))
    return bench.operator(desc, a, b, schedule=schedule)


def naive(bench: Bench) -> Call:
    """One invocation per output."""
    body = storage("f32", "f32", "f32") + (
        "@compute @workgroup_size(16, 16) fn main(@builtin(global_invocation_id) id: vec3<u32>) { var s = 0.0;"
        f" for (var k = 0u; k < {SIDE}u; k++) {{ s += b0[id.y * {SIDE}u + k] * b1[k * {SIDE}u + id.x]; }}"
        f" b2[id.y * {SIDE}u + id.x] = s; }}"
    )
    return bench.kernel(body, (SIDE // 16, SIDE // 16, 1), matrices())


def rows_of_units(bench: Bench) -> Iterator[tuple[str, Call]]:
    """Rows by units of four columns in registers: the best of the hand-written kernels on CPU adapters."""
    for rows, units, workgroup in ((8, 2, 16), (8, 2, 8), (16, 2, 16)):
        cells = [(i, j) for i in range(rows) for j in range(units)]
        place = f"(group.y * {rows}u + {{}}u) * {SIDE // 4}u + x + {{}}u"
        body = storage("f32", "vec4<f32>", "vec4<f32>") + (
            f"@compute @workgroup_size({workgroup}) fn main(@builtin(workgroup_id) group: vec3<u32>,"
            f" @builtin(local_invocation_id) me: vec3<u32>) {{ let x = group.x * {units * workgroup}u + me.x;"
            + "".join(f" var c{i}_{j} = vec4<f32>(0.0);" for i, j in cells)
            + f" for (var k = 0u; k < {SIDE}u; k++) {{"
            + "".join(f" let unit{j} = b1[k * {SIDE // 4}u + x + {j * workgroup}u];" for j in range(units))
            + "".join(f" let each{i} = b0[(group.y * {rows}u + {i}u) * {SIDE}u + k];" for i in range(rows))
            + "".join(f" c{i}_{j} += each{i} * unit{j};" for i, j in cells)
            + " }"
            + "".join(f" b2[{place.format(i, j * workgroup)}] = c{i}_{j};" for i, j in cells)
            + " }"
        )
        grid = (SIDE // (4 * units * workgroup), SIDE // rows, 1)
        yield f"{rows} x {units} units, workgroup {workgroup}", bench.kernel(body, grid, matrices())


def matrices() -> list[object]:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((SIDE, SIDE), np.float32) for _ in range(2))
    return [a, b, a.nbytes]


def targets(adapter: str) -> Iterator[Result]:
    """The chosen schedule against hand-written kernels."""
    bench = Bench(open_backend(adapter))
    call = ours(bench, gemm((SIDE, SIDE, SIDE, (), 0, 0)))
    yield Result("GEMM 1024, against the naive kernel", ratio(naive(bench), call), at_least=5.0)
    best = fastest(rows_of_units(bench), "SGEMM")
    yield Result("GEMM 1024, against the best hand-written", ratio(best, call), at_least=1.0)


def labels(bench: Bench, desc: descs.Gemm, schedule: str = "") -> list[str]:
    """Of the kernels under a schedule: they name it."""
    program = compiler.compile_operator(desc, replace(bench.backend.target, schedule=schedule))
    return [kernel.label for kernel in program.kernels]


def schedules(adapter: str) -> Iterator[Result]:
    """Time of the chosen schedule over that of each, by shape; ``*`` marks the chosen one, maybe of fewer parts."""
    bench = Bench(open_backend(adapter))
    for shape, fields in SHAPES.items():
        desc = gemm(fields)
        chosen = labels(bench, desc)
        call = ours(bench, desc)
        for name in NAMES:
            named = labels(bench, desc, name)
            measured = ratio(call, ours(bench, desc, name))
            yield Result(f"{shape}: {name}{' *' if named == chosen else ''}", measured, at_most=1.15)


PARTS: dict[str, Part] = {"targets": targets, "schedules": schedules}


if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
