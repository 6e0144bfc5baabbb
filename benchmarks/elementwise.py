"""Element-wise operators against hand-written kernels of the same traffic, as interleaved ratios with their intervals.

    python benchmarks/elementwise.py [ADAPTER] [-k PART]

Prints a table and exits with 1 when a target is missed. Ratios are time of the fastest hand-written vec4 kernel over
time of ours ("at least 0.9"), or time of ours over time of a copy. All on 16M elements.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Bench, Call, Part, Result, fastest, fastest_copy, main, open_backend, storage, vec4_maps
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.enums import DataType
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.tensor import TensorDesc

ELEMENTS = 1 << 24
FLOAT = DataType.FLOAT32

UNARY: dict[str, tuple[type[OperatorDesc], str, dict[str, Any]]] = {
    "ABS": (descs.ElementWiseAbs, "abs(b0[i])", {}),
    "CLIP": (descs.ElementWiseClip, "clamp(b0[i], vec4(-0.5), vec4(0.5))", {"min": -0.5, "max": 0.5}),
    "FLOOR": (descs.ElementWiseFloor, "floor(b0[i])", {}),
    "NEGATE": (descs.ElementWiseNegate, "-b0[i]", {}),
    "SQRT": (descs.ElementWiseSqrt, "sqrt(b0[i])", {}),
    "RELU": (descs.ActivationRelu, "max(b0[i], vec4(0.0))", {}),
}
"""Operators whose arithmetic costs nothing beside their traffic."""

BINARY: dict[str, tuple[type[OperatorDesc], str]] = {
    "ADD": (descs.ElementWiseAdd, "b0[i] + b1[i]"),
    "MULTIPLY": (descs.ElementWiseMultiply, "b0[i] * b1[i]"),
    "DIVIDE": (descs.ElementWiseDivide, "b0[i] / b1[i]"),
    "MAX": (descs.ElementWiseMax, "max(b0[i], b1[i])"),
}


def floats(seed: int) -> NDArray[np.float32]:
    """Numbers that every operator here takes."""
    return np.random.default_rng(seed).random(ELEMENTS, np.float32) + np.float32(0.25)


def unary(desc_class: type[OperatorDesc], tensor: TensorDesc, **attributes: Any) -> OperatorDesc:
    return desc_class(input_tensor=tensor, output_tensor=tensor, **attributes)


def binary(desc_class: type[OperatorDesc], a: TensorDesc, b: TensorDesc) -> OperatorDesc:
    return desc_class(a_tensor=a, b_tensor=b, output_tensor=TensorDesc(a.data_type, a.sizes))


def of_one_tensor(adapter: str) -> Iterator[Result]:
    """Unary operators against hand-written ones."""
    bench = Bench(open_backend(adapter))
    values, tensor = floats(1), TensorDesc(FLOAT, (ELEMENTS,))
    for name, (desc_class, expression, attributes) in UNARY.items():
        by_hand = fastest(vec4_maps(bench, expression, [values]), name)
        ours = bench.operator(unary(desc_class, tensor, **attributes), values)
        yield Result(f"{name}, 16M float32", ratio(by_hand, ours), at_least=0.9)


def of_two_tensors(adapter: str) -> Iterator[Result]:
    """Binary operators against hand-written ones."""
    bench = Bench(open_backend(adapter))
    pair, tensor = [floats(1), floats(2)], TensorDesc(FLOAT, (ELEMENTS,))
    for name, (desc_class, expression) in BINARY.items():
        by_hand = fastest(vec4_maps(bench, expression, pair), name)
        ours = bench.operator(binary(desc_class, tensor, tensor), *pair)
        yield Result(f"{name}, 16M float32", ratio(by_hand, ours), at_least=0.9)


LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "B broadcast over rows": ((4096, 4096), (0, 1)),
    "B broadcast along rows": ((4096, 4096), (1, 0)),
    "B broadcast over batch and rows": ((64, 64, 4096), (0, 4096, 1)),
    "B permuted {0,2,1,3}, rows of 64": ((16, 128, 128, 64), (128 * 128 * 64, 64, 128 * 64, 1)),
}
"""Sizes, and strides of B."""


def layouts(adapter: str) -> Iterator[Result]:
    """ADD with an input that lies otherwise, against a packed hand-written one (which reads at least as much)."""
    bench = Bench(open_backend(adapter))
    pair = [floats(1), floats(2)]
    by_hand = fastest(vec4_maps(bench, "b0[i] + b1[i]", pair), "ADD")
    for name, (sizes, strides) in LAYOUTS.items():
        b = TensorDesc(FLOAT, sizes, strides)
        distinct = pair[1][: b.byte_size // 4]
        shape = tuple(size if stride else 1 for size, stride in zip(sizes, strides, strict=True))
        given = np.broadcast_to(distinct.reshape(shape), sizes) if 0 in strides else pair[1].reshape(sizes)
        ours = bench.operator(binary(descs.ElementWiseAdd, TensorDesc(FLOAT, sizes), b), pair[0].reshape(sizes), given)
        yield Result(f"ADD, {name}", ratio(by_hand, ours), at_least=0.5)


def transcendental(adapter: str) -> Iterator[Result]:
    """gelu and tanh against a copy of the same bytes. The suite `peers` has them beside onnxruntime."""
    bench = Bench(open_backend(adapter))
    values, tensor = (floats(1) - np.float32(0.75)) * 8, TensorDesc(FLOAT, (ELEMENTS,))
    copy = fastest_copy(bench, values)
    for name, desc_class in (("GELU", descs.ActivationGelu), ("TANH", descs.ElementWiseTanh)):
        ours = bench.operator(unary(desc_class, tensor), values)
        yield Result(f"{name}, 16M float32, against a copy", ratio(ours, copy))


BYTES = {"ADD": descs.ElementWiseAdd, "MAX": descs.ElementWiseMax, "DIVIDE": descs.ElementWiseDivide}


def small_integers(adapter: str) -> Iterator[Result]:
    """Binary operators on bytes: elements per second against float32's, and against a kernel that stores by atomics."""
    bench = Bench(open_backend(adapter))
    pair = [np.random.default_rng(seed).integers(1, 255, ELEMENTS, np.uint8) for seed in (1, 2)]
    wide = [floats(1), floats(2)]
    small, tensor = TensorDesc(DataType.UINT8, (ELEMENTS,)), TensorDesc(FLOAT, (ELEMENTS,))
    atomic = by_atomics(bench, pair)
    for name, desc_class in BYTES.items():
        ours = bench.operator(binary(desc_class, small, small), *pair)
        floating = bench.operator(binary(desc_class, tensor, tensor), *wide)
        yield Result(f"{name}, 16M uint8, against float32", ratio(floating, ours), at_least=1.0)
        yield Result(f"{name}, 16M uint8, against an atomic ADD", ratio(atomic, ours), at_least=3.0)


def by_atomics(bench: Bench, pair: list[NDArray[np.uint8]]) -> Call:
    """ADD of bytes that writes each byte of the output by an atomic operation."""
    width = -(-ELEMENTS // 64 // 8)
    body = storage("u32", "u32", "atomic<u32>") + (
        "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {"
        f" let i = id.x + id.y * {width * 64}u; let shift = (i % 4u) * 8u;"
        " let sum = (b0[i / 4u] >> shift) + (b1[i / 4u] >> shift);"
        " atomicOr(&b2[i / 4u], (sum & 255u) << shift); }"
    )
    return bench.kernel(body, (width, 8, 1), [*pair, ELEMENTS])


PARTS: dict[str, Part] = {
    "unary": of_one_tensor,
    "binary": of_two_tensors,
    "layouts": layouts,
    "transcendental": transcendental,
    "small_integers": small_integers,
}

if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
