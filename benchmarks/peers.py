"""Operators against onnxruntime's WebGPU provider and tinygrad on the same adapter, as interleaved ratios.

    python benchmarks/peers.py [ADAPTER] [-k PART]

Needs ``pip install .[peers]``. Ratios are time of theirs over time of ours; exits with 1 when a target is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import tinygrad_webgpu
from attention import HEADS, ROWS, SIZE, floats, fused
from convolution import SHAPES, convolution
from convolution import ours as our_convolution
from depthwise import SHAPE, operands
from harness import Bench, Part, Result, main, open_backend
from measure import ratio
from webgpu_ep import WebGpuEp

from dmlgpu import descs
from dmlgpu.enums import AxisDirection, DataType
from dmlgpu.tensor import TensorDesc

ELEMENTS = 1 << 24


def element_wise(adapter: str) -> Iterator[Result]:
    """gelu and tanh of 16M elements: no slower."""
    bench, peer = Bench(open_backend(adapter)), WebGpuEp()
    values = (np.random.default_rng(1).random(ELEMENTS, np.float32) - np.float32(0.5)) * 8
    tensor = TensorDesc(DataType.FLOAT32, (ELEMENTS,))
    for name, op_type, desc_class in (
        ("GELU", "Gelu", descs.ActivationGelu),
        ("TANH", "Tanh", descs.ElementWiseTanh),
    ):
        ours = bench.operator(desc_class(input_tensor=tensor, output_tensor=tensor), values)
        theirs = peer.operator(op_type, [values], [(np.float32, (ELEMENTS,))])
        yield Result(f"{name}, 16M float32", ratio(theirs, ours), at_least=1.0)


def sorting(adapter: str) -> Iterator[Result]:
    """The 50 largest of each of 256 lines: at least 20 times faster."""
    bench, peer = Bench(open_backend(adapter)), WebGpuEp()
    values = np.random.default_rng(1).standard_normal((256, 4096), np.float32)
    first = (256, 50)
    desc = descs.TopK1(
        input_tensor=TensorDesc(DataType.FLOAT32, values.shape),
        output_value_tensor=TensorDesc(DataType.FLOAT32, first),
        output_index_tensor=TensorDesc(DataType.UINT32, first),
        axis=1,
        k=50,
        axis_direction=AxisDirection.DECREASING,
    )
    constants = {1: np.array([50], np.int64)}
    theirs = peer.operator("TopK", [values], [(np.float32, first), (np.int64, first)], constants, axis=1)
    yield Result("TOP_K, 50 of [256, 4096] float32", ratio(theirs, bench.operator(desc, values)), at_least=20.0)


def attention(adapter: str) -> Iterator[Result]:
    """8 heads x 256 x 64, the provider's in three operators: no slower."""
    bench, peer = Bench(open_backend(adapter)), WebGpuEp()
    query, keys, scores = floats(HEADS, ROWS, SIZE), floats(HEADS, SIZE, ROWS), floats(HEADS, ROWS, ROWS)
    chain = [
        peer.operator("MatMul", [query, keys], [(np.float32, scores.shape)]),
        peer.operator("Softmax", [scores], [(np.float32, scores.shape)], axis=-1),
        peer.operator("MatMul", [scores, query], [(np.float32, query.shape)]),
    ]
    ours = fused(bench, HEADS, ROWS, ROWS, SIZE)
    measured = ratio(lambda number: [step(number) for step in chain], ours)
    yield Result("attention, 8 heads x 256 x 64", measured, at_least=1.0)


def depthwise(adapter: str) -> Iterator[Result]:
    """A depth-wise convolution by tinygrad: no slower."""
    bench = Bench(open_backend(adapter))
    images, taps = operands()
    filters = tinygrad_webgpu.upload(np.ascontiguousarray(taps.reshape(len(taps), 1, *taps.shape[1:3])))
    images_of_one = [image[None] for image in images]
    theirs = tinygrad_webgpu.call(lambda x: x.conv2d(filters, groups=len(taps), padding=1), images_of_one)
    yield Result(f"{SHAPE}, tinygrad", ratio(theirs, our_convolution(bench, convolution(SHAPES[SHAPE]))), at_least=1.0)


PARTS: dict[str, Part] = {
    "depthwise": depthwise,
    "element_wise": element_wise,
    "sorting": sorting,
    "attention": attention,
}

if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
