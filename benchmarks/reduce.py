"""Reductions against a hand-written kernel that does nothing but read, as interleaved ratios with their intervals.

    python benchmarks/reduce.py [ADAPTER] [-k PART]

Prints a table of time of ours over time of the reading kernel (or of NumPy) and exits with 1 when a target is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from harness import Bench, Call, Part, Result, fastest, main, open_backend, storage
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.enums import DataType, ReduceFunction
from dmlgpu.tensor import TensorDesc

Array = NDArray[Any]
ELEMENTS = 1 << 24
SQUARE = (4096, 4096)


def readers(bench: Bench, array: Array) -> Iterator[tuple[str, Call]]:
    """Kernels that read an array in units of 16 bytes and leave little behind, in shapes that are good somewhere."""
    units = array.nbytes // 16
    declared = storage("vec4<f32>", "vec4<f32>")
    for workgroup, invocations in ((8, 1024), (8, 4096), (64, 4096), (256, 65536)):
        each = units // invocations
        walks = {
            "a run of neighbours each": f"let i = id.x * {each}u + k;",
            "runs shared by 8": f"let i = (id.x / 8u) * {8 * each}u + id.x % 8u + k * 8u;",
            "every so many": f"let i = id.x + k * {invocations}u;",
        }
        for name, walk in walks.items():
            body = declared + (
                f"@compute @workgroup_size({workgroup}) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{"
                f" var sum = vec4<f32>(); for (var k = 0u; k < {each}u; k++) {{ {walk} sum += b0[i]; }}"
                f" b1[id.x] = sum; }}"
            )
            call = bench.kernel(body, (invocations // workgroup, 1, 1), [array, 16 * invocations])
            yield f"{invocations} invocations, workgroup {workgroup}, {name}", call


def reduction(
    bench: Bench, function: str, array: Array, axes: tuple[int, ...], strides: tuple[int, ...] | None = None
) -> Call:
    """REDUCE of an array."""
    data_type = DataType.from_numpy(array.dtype)
    sizes = tuple(1 if axis in axes else size for axis, size in enumerate(array.shape))
    result = DataType.UINT32 if function.startswith("ARG") else data_type
    desc = descs.Reduce(
        function=ReduceFunction[function],
        input_tensor=TensorDesc(data_type, array.shape, strides),
        output_tensor=TensorDesc(result, sizes),
        axes=axes,
    )
    return bench.operator(desc, array)


def sums(adapter: str) -> Iterator[Result]:
    """Sums, which have a target: 1.5 times the time of reading."""
    bench = Bench(open_backend(adapter))
    values = np.random.default_rng(1).random(ELEMENTS, np.float32)
    read = fastest(readers(bench, values), "reading kernel")
    square = values.reshape(SQUARE)
    cases: list[tuple[str, Array, tuple[int, ...], float | None]] = [
        ("SUM, 16M float32", values, (0,), 1.5),
        ("SUM of rows, [4096,4096]", square, (1,), 1.5),
        ("SUM of columns, [4096,4096]", square, (0,), None),
        ("SUM along axis 1, [256,256,256]", values.reshape(256, 256, 256), (1,), None),
        ("SUM of columns, [2097152,8]", values.reshape(-1, 8), (0,), None),
        ("SUM of short rows, [4194304,4]", values.reshape(-1, 4), (1,), None),
    ]
    for name, array, axes, at_most in cases:
        yield Result(name, ratio(reduction(bench, "SUM", array, axes), read), at_most=at_most)
    odd = values[:-1].copy()
    yield Result("SUM, 16M - 1 float32", ratio(reduction(bench, "SUM", odd, (0,)), read))
    transposed = reduction(bench, "SUM", square, (0, 1), (1, 4096))
    yield Result("SUM, transposed [4096,4096]", ratio(transposed, read))


def functions(adapter: str) -> Iterator[Result]:
    """All functions of 16M numbers beside reading them; no targets."""
    bench = Bench(open_backend(adapter))
    values = np.random.default_rng(1).random(ELEMENTS, np.float32)
    read = fastest(readers(bench, values), "reading kernel")
    for function in ReduceFunction:
        yield Result(f"{function.name}, 16M float32", ratio(reduction(bench, function.name, values, (0,)), read))
    halves = values.astype(np.float16)
    yield Result("SUM, 16M float16", ratio(reduction(bench, "SUM", halves, (0,)), read))


def by_numpy(adapter: str) -> Iterator[Result]:
    """Against NumPy on the same machine; no targets."""
    bench = Bench(open_backend(adapter))
    square = np.random.default_rng(1).random(SQUARE, np.float32)
    copies = [square.copy() for _ in range(bench.sets)]
    numpy: dict[str, Callable[..., Any]] = {"SUM": np.sum, "MAX": np.max, "ARGMAX": np.argmax}
    for function, work in numpy.items():
        for axis, name in ((1, "rows"), (0, "columns")):
            ours = reduction(bench, function, square, (axis,))
            theirs: Call = lambda number, f=work, a=axis: f(copies[number % len(copies)], axis=a)  # noqa: E731
            yield Result(f"{function} of {name}, [4096,4096], against NumPy", ratio(ours, theirs))


PARTS: dict[str, Part] = {"sums": sums, "functions": functions, "by_numpy": by_numpy}


if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
