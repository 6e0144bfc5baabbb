"""Random numbers by RANDOM_GENERATOR: uniform, normal, Bernoulli, Multinomial, and Dropout in training.

An attribute ``seed`` is the key of a node's stream: a new session draws the same numbers. Other programs draw others
with that seed, since the generator is DirectML's (Philox 4x32-10). The runs of a session continue the stream; each set
of input shapes has its own. Without the attribute the key is drawn from the system.
"""

from __future__ import annotations

import itertools
import math
import secrets
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from dmlgpu.catalog.enums import AxisDirection, DataType, RandomGeneratorType, ReduceFunction
from dmlgpu.catalog.tensor_desc import MAX_ELEMENTS
from dmlgpu.frontends.onnx.expressions import add, cast, choose, multiply, number_like, reshaped, spread
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.tensor_proto import data_type_of
from dmlgpu.frontends.onnx.values import OnnxValue, Shape
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

_STEP = 2.0**-24
"""Distance of adjacent uniform numbers."""


def _states(seed: float | None, words: int) -> Iterator[NDArray[Any]]:
    """Return the generator's states of runs that draw a number of words: a counter of 4 words, then a key of 2.

    Threads may share them.
    """
    bits = secrets.randbits(64) if seed is None else int.from_bytes(struct.pack("<d", float(seed)), "little")
    key = [bits & 0xFFFFFFFF, bits >> 32]

    def state(counter: int) -> NDArray[Any]:
        parts = [counter >> shift & 0xFFFFFFFF for shift in (0, 32, 64, 96)]
        return np.array([*parts, *key], np.uint32)

    return map(state, itertools.count(0, -(-words // 4)))


def _uniform(node: OnnxNode, count: int) -> Tensor:
    """Return uniform multiples of 2^-24 in [0, 1), {count}."""
    state = node.fill((6,), DataType.UINT32, _states, node.attribute("seed"), count)
    generated = directml.random_generator(
        state, output_sizes=(count,), type=RandomGeneratorType.PHILOX_4X32_10, output_state=False
    )
    shifted = spread(dml.bit_shift_right, generated.output, 8)
    return multiply(cast(shifted, DataType.FLOAT32), _STEP)


def _normal(node: OnnxNode, count: int) -> Tensor:
    """Return standard normal numbers {count} by the Box-Muller transform: two from two uniform ones."""
    half = -(-count // 2)
    radii, angles = dml.split(_uniform(node, 2 * half), 0, [half, half])
    radius = dml.sqrt(multiply(dml.log(add(radii, _STEP)), -2.0))
    angle = multiply(angles, 2 * math.pi)
    pairs = dml.join([multiply(radius, dml.cos(angle)), multiply(radius, dml.sin(angle))], 0)
    return pairs if count == 2 * half else dml.slice(pairs, (0,), (count,))


def _shape_and_type(node: OnnxNode, usual: int | None) -> tuple[Shape, DataType]:
    """Return the requested shape and data type."""
    shape = node.shape(0) if node.op_type.endswith("Like") else node.integers("shape") or ()
    if any(size < 0 for size in shape) or math.prod(shape) > MAX_ELEMENTS:
        raise node.rejection(f"sizes must be at least 0, and at most {MAX_ELEMENTS} elements, got {list(shape)}")
    element = node.integer("dtype") or usual
    data_type = node.data_type(0) if element is None else data_type_of(element, str(node))
    if not data_type.is_float:
        raise node.rejection(f"results are floats, got {data_type.name}")
    return shape, data_type


@operator("RandomUniform", "RandomUniformLike")
def random_uniform(node: OnnxNode) -> OnnxValue:
    """Draw from a uniform distribution between two bounds."""
    shape, data_type = _shape_and_type(node, None if node.op_type.endswith("Like") else 1)
    if 0 in shape:
        return node.known(np.zeros(shape, data_type.numpy))
    low, high = node.number("low", 0.0), node.number("high", 1.0)
    numbers = add(multiply(_uniform(node, math.prod(shape)), high - low), low)
    return node.valued(cast(numbers, data_type), shape)


@operator("RandomNormal", "RandomNormalLike")
def random_normal(node: OnnxNode) -> OnnxValue:
    """Draw from a normal distribution."""
    shape, data_type = _shape_and_type(node, None if node.op_type.endswith("Like") else 1)
    if 0 in shape:
        return node.known(np.zeros(shape, data_type.numpy))
    numbers = add(multiply(_normal(node, math.prod(shape)), node.number("scale", 1.0)), node.number("mean", 0.0))
    return node.valued(cast(numbers, data_type), shape)


@operator("Multinomial")
def multinomial(node: OnnxNode) -> OnnxValue:
    """Draw classes by their logits: the first whose cumulative probability exceeds a uniform number."""
    node.check_rank(0, 2)
    batch, classes = node.shape(0)
    samples = node.integer("sample_size", 1)
    data_type = data_type_of(node.integer("dtype", 6), str(node))
    drawn = reshaped(_uniform(node, batch * samples), (batch, samples, 1))
    likely = directml.activation_softmax1(cast(node.tensor(0), DataType.FLOAT32), axes=(1,))
    sums = dml.cumulative_summation(likely, axis=1, axis_direction=AxisDirection.INCREASING, has_exclusive_sum=False)
    sums = reshaped(sums, (batch, 1, classes))
    total = dml.slice(sums, (0, 0, classes - 1), (batch, 1, 1))
    passed = cast(spread(dml.less_than_or_equal, sums, multiply(drawn, total)), DataType.INT32)
    drawn_classes = dml.reduce(passed, ReduceFunction.SUM, axes=(2,))
    drawn_classes = spread(dml.min, drawn_classes, classes - 1)
    return node.valued(cast(drawn_classes, data_type), (batch, samples))


@operator("Bernoulli", since=15)
def bernoulli(node: OnnxNode) -> OnnxValue:
    """Draw 1 with the probability of each element, else 0."""
    shape, element = node.shape(0), node.integer("dtype")
    data_type = data_type_of(element, str(node)) if element else node.data_type(0)
    drawn = reshaped(_uniform(node, math.prod(shape)), shape or (1,))
    result = dml.less_than(drawn, cast(node.tensor(0), DataType.FLOAT32))
    return node.valued(cast(result, data_type), shape, coded=element if element == TensorProto.BOOL else 0)


@operator("Dropout", since=12, host=(1, 2))
def dropout(node: OnnxNode) -> tuple[OnnxValue, OnnxValue | None]:
    """Zero elements with a probability and scale the others up; outside of training, return the input."""
    x, shape = node.value(0), node.shape(0)
    training = node.has(2) and bool(node.host_integer(2))
    ratio = node.host_number(1) if node.has(1) else 0.5
    if not 0 <= ratio < 1:
        raise node.rejection(f"the ratio must be at least 0 and less than 1, got {ratio}")
    if not training or not ratio:
        result, sizes = node.expression(x), shape or (1,)
        is_kept = dml.fill_value_constant(node.builder, sizes, DataType.UINT8, 1)
    else:
        drawn = reshaped(_uniform(node, math.prod(shape)), shape or (1,))
        is_kept = spread(dml.greater_than_or_equal, drawn, ratio)
        elements = node.expression(x)
        result = choose(is_kept, multiply(elements, 1 / (1 - ratio)), number_like(elements, 0.0))
    mask = node.valued(is_kept, shape, coded=TensorProto.BOOL) if node.wants(1) else None
    return node.valued(result, shape), mask


@operator("Dropout")
def inference_dropout(node: OnnxNode) -> tuple[OnnxValue, OnnxValue | None]:
    """Return the input, as versions of Dropout before 12 do at inference."""
    x, shape = node.tensor(0), node.shape(0)
    if not node.wants(1):
        return node.valued(x, shape), None
    mask = dml.fill_value_constant(node.builder, x.sizes, DataType.UINT8 if node.version >= 10 else x.data_type, 1)
    return node.valued(x, shape), node.valued(mask, shape, coded=TensorProto.BOOL if node.version >= 10 else 0)
