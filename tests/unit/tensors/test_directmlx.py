"""Operators on expressions and DirectMLX's functions against NumPy, on the ``numpy`` adapter."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dmlgpu import DataType, Device, Expression, Graph, InvalidArgument, TensorDesc, descs
from dmlgpu import directmlx as dml
from dmlgpu.catalog.enums import AxisDirection, InterpolationMode, PaddingMode, ReduceFunction

FLOATS = np.array([[-2.5, -1, 0.5], [1, 2, 3.25]], np.float32)
OTHERS = np.array([[2, -1, 0.25], [-4, 2, 1.5]], np.float32)
WORDS = np.array([[1, 2, 3], [250, 7, 100]], np.uint32)
SHIFTS = np.array([[1, 2, 3], [4, 7, 1]], np.uint32)


def computed(build: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """What expressions over inputs of these arrays come to; a list for several."""
    graph = Graph(Device("numpy"))
    inputs = [graph.input(array.shape, DataType[array.dtype.name.upper()]) for array in arrays]
    outputs = build(*inputs)
    result = graph.evaluate([outputs] if isinstance(outputs, Expression) else list(outputs), arrays)
    return result[0] if isinstance(outputs, Expression) else result


BINARY = [operator.add, operator.sub, operator.mul, operator.truediv]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("compute", BINARY)
def test_arithmetic_of_two_expressions_and_with_numbers_on_either_side(compute: Callable[..., Any]) -> None:
    np.testing.assert_allclose(computed(compute, FLOATS, OTHERS), compute(FLOATS, OTHERS))
    np.testing.assert_allclose(computed(lambda x: compute(x, 2.5), FLOATS), compute(FLOATS, np.float32(2.5)), 1e-6)
    np.testing.assert_allclose(computed(lambda x: compute(3, x), FLOATS), compute(np.float32(3), FLOATS), 1e-6)
    np.testing.assert_allclose(computed(lambda x: compute(np.float32(3), x), FLOATS), compute(np.float32(3), FLOATS))


@pytest.mark.parametrize("compute", [operator.add, operator.mul, operator.and_, operator.or_, operator.xor])
def test_integers_on_integers_are_exact(compute: Callable[..., Any]) -> None:
    large = np.uint32(2**24 + 1)  # no float32
    expected = compute(WORDS, large)
    np.testing.assert_array_equal(computed(lambda x: compute(x, int(large)), WORDS), expected)
    np.testing.assert_array_equal(computed(lambda x: compute(int(large), x), WORDS), expected)
    np.testing.assert_array_equal(computed(compute, WORDS, SHIFTS), compute(WORDS, SHIFTS))


@pytest.mark.parametrize("compute", COMPARISONS)
def test_comparisons_give_masks_of_uint8(compute: Callable[..., Any]) -> None:
    result = computed(compute, FLOATS, OTHERS)
    np.testing.assert_array_equal(result, compute(FLOATS, OTHERS))
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(computed(lambda x: compute(x, 1), FLOATS), compute(FLOATS, 1))
    np.testing.assert_array_equal(computed(lambda x: compute(1, x), FLOATS), compute(1, FLOATS))


def test_the_other_operators() -> None:
    np.testing.assert_array_equal(computed(lambda x, y: x << y, WORDS, SHIFTS), WORDS << SHIFTS)
    np.testing.assert_array_equal(computed(lambda x, y: x >> y, WORDS, SHIFTS), WORDS >> SHIFTS)
    np.testing.assert_array_equal(computed(lambda x: ~x, WORDS), ~WORDS)
    np.testing.assert_array_equal(computed(lambda x: -x, FLOATS), -FLOATS)
    np.testing.assert_array_equal(computed(abs, FLOATS), abs(FLOATS))
    np.testing.assert_allclose(computed(lambda x, y: x % y, FLOATS, OTHERS), np.fmod(FLOATS, OTHERS))
    np.testing.assert_allclose(computed(lambda x: x % 2, FLOATS), np.fmod(FLOATS, 2))
    np.testing.assert_allclose(computed(lambda x: 2 % x, FLOATS), np.fmod(2, FLOATS))
    np.testing.assert_allclose(computed(lambda x: x**2, FLOATS), FLOATS**2)
    np.testing.assert_allclose(computed(lambda x, y: abs(x) ** y, FLOATS, OTHERS), abs(FLOATS) ** OTHERS, 1e-6)
    np.testing.assert_allclose(computed(lambda x, y: x @ y, FLOATS, OTHERS.T.copy()), FLOATS @ OTHERS.T, 1e-6)
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(computed(lambda x: x / 0, FLOATS), FLOATS / np.float32(0))


def test_numbers_become_scale_and_bias_as_in_directmlx() -> None:
    graph = Graph(Device("numpy"))
    x = graph.input((2, 3))
    for expression, scale, bias in [(x + 3, 1, 3), (x - 3, 1, -3), (x * 3, 3, 0), (x / 4, 0.25, 0), (3 - x, -1, 3)]:
        node = graph.nodes[expression.origin.number].desc
        assert isinstance(node, descs.ElementWiseIdentity) and node.scale_bias is not None
        assert (node.scale_bias.scale, node.scale_bias.bias) == (scale, bias)


@pytest.mark.parametrize("compute", [lambda x: x % 1.5, lambda x: x & 2**32, lambda x: x == -1])
def test_numbers_next_to_integers_fit_their_type(compute: Callable[[Expression], Any]) -> None:
    words = Graph().input((2, 3), DataType.UINT32)
    with pytest.raises(
        InvalidArgument, match=r"must be an integer between 0 and 4294967295, got .*test_directmlx.*:\d+"
    ):
        compute(words)


def test_an_expression_is_neither_true_nor_false() -> None:
    x = Graph().input((2, 3))
    with pytest.raises(TypeError, match="has no truth value before it is computed"):
        assert x == x + 0
    assert len({x: 1, x + 1: 2}) == 2


def test_views() -> None:
    row = np.array([[1, 2, 3]], np.float32)
    np.testing.assert_array_equal(computed(lambda x, y: x + y.broadcast_to((2, 3)), FLOATS, row), FLOATS + row)
    np.testing.assert_array_equal(computed(lambda x: dml.identity(x.reinterpret((3, 2), (1, 3))), FLOATS), FLOATS.T)
    np.testing.assert_array_equal(computed(lambda x: (x * 1).reinterpret((6,)), FLOATS), FLOATS.ravel())
    bits = computed(lambda x: dml.identity(dml.reinterpret(x, DataType.UINT32, (6,))), FLOATS)
    np.testing.assert_array_equal(bits, FLOATS.view(np.uint32).ravel())
    x = Graph().input((2, 3))
    with pytest.raises(InvalidArgument, match=r"reinterpret: sizes \[2, 4\] need 32 bytes, .* has 24"):
        x.reinterpret((2, 4))
    with pytest.raises(InvalidArgument, match=r"reinterpret: strides must have one entry per dimension \(2\), got 1"):
        x.reinterpret((2, 3), (1,))
    for sizes in [(3,), (2, 4), (2, 3, 1)]:
        with pytest.raises(InvalidArgument, match=r"broadcast_to: sizes must extend \[2, 3\] where it has 1"):
            x.broadcast_to(sizes)


def test_directmlx_functions() -> None:
    np.testing.assert_allclose(computed(lambda x: dml.reduce(x, ReduceFunction.SUM), FLOATS), FLOATS.sum(keepdims=True))
    result = computed(lambda x: dml.reduce(x, ReduceFunction.ARGMAX, (1,)), FLOATS)
    np.testing.assert_array_equal(result, FLOATS.argmax(1, keepdims=True))
    assert result.dtype == np.uint32
    np.testing.assert_allclose(computed(lambda x: dml.pow(x, 2.0), FLOATS), FLOATS**2)
    np.testing.assert_allclose(
        computed(lambda x, y: dml.pow(dml.abs(x), y), FLOATS, OTHERS), abs(FLOATS) ** OTHERS, 1e-6
    )
    np.testing.assert_array_equal(computed(lambda x: dml.slice(x, (0, 0), (2, 3), (1, -2)), FLOATS), FLOATS[:, ::-2])
    first, second = computed(lambda x: dml.split(x, 1, (1, 2)), FLOATS)
    np.testing.assert_array_equal(first, FLOATS[:, :1])
    np.testing.assert_array_equal(second, FLOATS[:, 1:])
    np.testing.assert_array_equal(
        computed(lambda x, y: dml.join([x, y], 0), FLOATS, OTHERS), np.concatenate([FLOATS, OTHERS])
    )
    np.testing.assert_array_equal(
        computed(lambda x: dml.padding(x, PaddingMode.CONSTANT, 7, (0, 1), (1, 0)), FLOATS),
        np.pad(FLOATS, ((0, 1), (1, 0)), constant_values=7),
    )
    np.testing.assert_array_equal(computed(lambda x: dml.clip(x, -1, 1), FLOATS), FLOATS.clip(-1, 1))
    np.testing.assert_array_equal(computed(lambda x: dml.cast(x, DataType.INT32), FLOATS), FLOATS.astype(np.int32))
    np.testing.assert_array_equal(computed(lambda x: dml.tile(x, (2, 1)), FLOATS), np.tile(FLOATS, (2, 1)))
    np.testing.assert_array_equal(
        computed(lambda x: dml.top_k(x, 0, 1, AxisDirection.DECREASING).output_value, FLOATS),
        FLOATS.max(0, keepdims=True),
    )
    np.testing.assert_array_equal(
        computed(lambda x: dml.resample(x, (4, 6), InterpolationMode.NEAREST_NEIGHBOR), FLOATS),
        FLOATS.repeat(2, 0).repeat(2, 1),
    )
    np.testing.assert_array_equal(
        computed(lambda x: dml.fill_value_sequence(x.graph, (2, 3), DataType.FLOAT32, 1, 2) + x, FLOATS),
        np.arange(1, 13, 2).reshape(2, 3) + FLOATS,
    )


def test_adding_fuses_an_activation() -> None:
    result = computed(lambda x, y: dml.add(x, y, fused_activation=descs.ActivationRelu()), FLOATS, OTHERS)
    np.testing.assert_array_equal(result, np.maximum(FLOATS + OTHERS, 0))
    np.testing.assert_array_equal(computed(dml.add, WORDS, SHIFTS), WORDS + SHIFTS)


def test_one_hot_and_max_pooling() -> None:
    indices, values = np.array([[2], [0]], np.uint32), np.array([[0, 1]], np.float32)
    np.testing.assert_array_equal(computed(lambda i, v: dml.one_hot(i, v, 3, 1), indices, values), np.eye(3)[[2, 0]])
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    result, places = computed(lambda x: dml.max_pooling(x, (2, 2), (2, 2), output_indices=True), image)
    np.testing.assert_array_equal(result.ravel(), [5, 7, 13, 15])
    np.testing.assert_array_equal(places.ravel(), [5, 7, 13, 15])
    x = Graph().input(TensorDesc(DataType.FLOAT32, (1, 1, 4, 4)))
    assert dml.max_pooling(x, (2, 2)).output_indices is None


NAMES = """
identity abs acos add asin atan atan_yx ceil clip clip_grad cos divide exp floor log logical_and logical_or
logical_xor logical_not max mean min multiply pow recip sin sqrt difference_square subtract tan threshold
quantize_linear dequantize_linear sign erf sinh cosh tanh asinh acosh atanh if_ bit_shift_left bit_shift_right
bit_and bit_or bit_xor bit_not bit_count round modulus_truncate modulus_floor negate equals greater_than
greater_than_or_equal less_than less_than_or_equal is_nan is_infinity activation_elu activation_hardmax
activation_hard_sigmoid activation_identity activation_leaky_relu activation_linear activation_log_softmax
activation_parameterized_relu activation_parametric_softplus activation_relu activation_scaled_elu
activation_scaled_tanh activation_sigmoid activation_softmax activation_gelu activation_softplus
activation_softsign activation_tanh activation_thresholded_relu activation_shrink activation_celu reduce slice
slice_grad cast split join padding gather gather_elements gather_nd scatter_elements scatter_nd space_to_depth
depth_to_space tile top_k one_hot cumulative_summation cumulative_product reverse_subsequences
random_generator non_zero_coordinates fill_value_constant fill_value_sequence reinterpret convolution
convolution_integer quantized_linear_convolution gemm average_pooling max_pooling value_scale_2d upsample_2d
resample resample_grad roi_align roi_align_grad batch_normalization batch_normalization_grad
batch_normalization_training batch_normalization_training_grad mean_variance_normalization
local_response_normalization gru dequantize
"""
"""What DirectMLX wraps, in snake_case."""


def test_every_name_of_directmlx_is_there() -> None:
    assert [name for name in NAMES.split() if not callable(getattr(dml, name, None))] == []
