"""CUMULATIVE_SUMMATION, CUMULATIVE_PRODUCT and NONZERO_COORDINATES against loops, exact numbers, NumPy and ONNX."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu import descs, reference
from dmlgpu.catalog.enums import AxisDirection, DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference import oracles
from tests.reference.helpers import run, sizes, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

INTEGERS = [DataType.INT64, DataType.INT32, DataType.UINT64, DataType.UINT32]
FLOATS = [np.float16, np.float32]
UP, DOWN = AxisDirection.INCREASING, AxisDirection.DECREASING


def sums(array, axis=0, direction=UP, exclusive=False):
    desc = descs.CumulativeSummation(
        input_tensor=tensor(array),
        output_tensor=tensor(array),
        axis=axis,
        axis_direction=direction,
        has_exclusive_sum=exclusive,
    )
    return run(desc, array)


def products(array, axis=0, direction=UP, exclusive=False):
    desc = descs.CumulativeProduct(
        input_tensor=tensor(array),
        output_tensor=tensor(array),
        axis=axis,
        axis_direction=direction,
        has_exclusive_product=exclusive,
    )
    return run(desc, array)


def coordinates(array, width=None, count_rank=1, rank=2):
    width = array.ndim if width is None else width
    desc = descs.NonzeroCoordinates(
        input_tensor=tensor(array),
        output_count_tensor=TensorDesc(DataType.UINT32, (1,) * count_rank),
        output_coordinates_tensor=TensorDesc(DataType.UINT32, (1,) * (rank - 2) + (array.size, width)),
    )
    count, places = reference.evaluate(desc, [array])
    assert count.shape == (1,) * count_rank and places.shape == desc.output_coordinates_tensor.sizes
    assert count.dtype == places.dtype == np.uint32
    return int(count.item()), places.reshape(array.size, width)


def by_formula(array, axis, direction, exclusive, *, step, start):
    """Compute the page's loop in exact numbers: a dictionary from index to result."""
    results = {}
    for place in np.ndindex(*array.shape[:axis], 1, *array.shape[axis + 1 :]):
        accumulator = start
        visited = range(array.shape[axis])
        for index in visited if direction is UP else reversed(visited):
            element = (*place[:axis], index, *place[axis + 1 :])
            before = accumulator
            accumulator = step(accumulator, Fraction(array[element].item()))
            results[element] = before if exclusive else accumulator
    return results


@st.composite
def lines(draw):
    """Draw sizes, an axis, a direction, whether the element itself is excluded, and a seed."""
    shape = draw(sizes(8, 4))
    axis = draw(st.integers(0, len(shape) - 1))
    return shape, axis, draw(st.sampled_from(AxisDirection)), draw(st.booleans()), draw(st.integers(0, 2**32 - 1))


@given(lines(), st.sampled_from(INTEGERS))
def test_integers_wrap(drawn, data_type):
    shape, axis, direction, exclusive, seed = drawn
    raw = np.random.default_rng(seed).integers(0, 256, (*shape, data_type.bits // 8), np.uint8)
    array = raw.view(data_type.numpy)[..., 0]
    for function, step, start in ((sums, Fraction.__add__, 0), (products, Fraction.__mul__, 1)):
        result = function(array, axis, direction, exclusive)
        for place, value in by_formula(array, axis, direction, exclusive, step=step, start=Fraction(start)).items():
            assert int(result[place]) == oracles.wrap(int(value), array.dtype)


@given(lines(), st.sampled_from(FLOATS))
def test_floats_are_rounded_once(drawn, dtype):
    shape, axis, direction, exclusive, seed = drawn
    array = (np.random.default_rng(seed).integers(-(2**11), 2**11, shape) / 64).astype(dtype)
    for function, step, start in ((sums, Fraction.__add__, 0), (products, Fraction.__mul__, 1)):
        result = function(array, axis, direction, exclusive)
        for place, value in by_formula(array, axis, direction, exclusive, step=step, start=Fraction(start)).items():
            assert result[place] == oracles.round_to_float(value, dtype)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("direction", AxisDirection)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sums_agree_with_onnx(evaluate, dtype, exclusive, direction, axis):
    array = np.random.default_rng(3).integers(-50, 50, (4, 9, 3)).astype(dtype)
    expected = evaluate("CumSum", [array, np.array(axis)], exclusive=int(exclusive), reverse=int(direction))
    np.testing.assert_array_equal(sums(array, axis, direction, exclusive), expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("function", "numpy_function"), [(sums, np.cumsum), (products, np.cumprod)])
def test_results_agree_with_numpy(function, numpy_function, axis):
    array = np.random.default_rng(4).uniform(0.5, 1.5, (3, 20, 5)).astype(np.float32)
    expected = numpy_function(array.astype(np.float64), axis).astype(np.float32)
    np.testing.assert_array_equal(function(array, axis), expected)
    mirrored = np.flip(function(np.flip(array, axis), axis, DOWN), axis)
    np.testing.assert_array_equal(mirrored, expected)


def test_a_long_sum_is_as_good_as_exact():
    array = np.random.default_rng(5).random(300_001).astype(np.float32)
    result = sums(array)
    for end in (1, 77_777, 300_001):
        assert result[end - 1] == oracles.round_to_float(math.fsum(array[:end].tolist()), np.float32)


@pytest.mark.parametrize("direction", AxisDirection)
@pytest.mark.parametrize("exclusive", [False, True])
def test_long_products_recover_from_intermediate_overflow(direction, exclusive):
    """2,000 factors of 2^100, then 4,000 of 2^-100, then 2,000 of 2^100: intermediate products exceed float64."""
    exponents = np.repeat([100, -100, 100], [2000, 4000, 2000])
    result = products(np.ldexp(np.float32(1), exponents), 0, direction, exclusive)
    steps = exponents if direction is UP else exponents[::-1]
    running = np.array([0, *itertools.accumulate(steps.tolist())])
    running = running[:-1] if exclusive else running[1:]
    running = running if direction is UP else running[::-1]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result, np.ldexp(np.float32(1), running))
    assert {0.0, 1.0, math.inf} <= set(result.tolist())


def test_signs_and_special_values_of_products():
    array = np.array([-2, 0, -3, math.inf, 1], np.float32)
    np.testing.assert_array_equal(products(array), np.array([-2, 0, 0, math.nan, math.nan], np.float32))
    assert np.signbit(products(array)[:3]).tolist() == [True, True, False]
    np.testing.assert_array_equal(products(np.array([-math.inf, -2], np.float16)), [-math.inf, math.inf])


def test_special_values_of_sums():
    array = np.array([1, math.inf, 2, -math.inf, 3], np.float32)
    np.testing.assert_array_equal(sums(array), np.array([1, math.inf, math.inf, math.nan, math.nan], np.float32))
    np.testing.assert_array_equal(sums(np.full(3, 40000, np.float16)), [40000, math.inf, math.inf])


def test_a_sum_starts_from_positive_zero():
    assert not np.signbit(sums(np.array([-0.0, -0.0], np.float32))).any()


# ---- NONZERO_COORDINATES


@pytest.mark.parametrize("data_type", [DataType.FLOAT16, DataType.INT8, DataType.UINT16, DataType.UINT32])
@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4, 2), (1, 1, 5, 1, 2, 1, 3, 2)])
def test_places_agree_with_numpy(shape, data_type):
    array = np.random.default_rng(6).integers(0, 3, shape).astype(data_type.numpy)
    count, places = coordinates(array)
    expected = np.stack(np.nonzero(array), -1)
    assert count == len(expected) > 0
    np.testing.assert_array_equal(places[:count], expected)
    np.testing.assert_array_equal(places[count:], 0)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
def test_places_agree_with_onnx(evaluate):
    array = np.random.default_rng(7).choice(np.array([0, -0.0, 1.5, math.nan, 1e-42], np.float32), (3, 4, 5))
    count, places = coordinates(array)
    np.testing.assert_array_equal(places[:count].T, evaluate("NonZero", [array], np.int64))


@pytest.mark.parametrize("width", [2, 3, 4])
def test_leading_ones_need_no_coordinates(width):
    array = np.array([[[[0, 1], [1, 0], [0, 1]]]], np.int16)
    count, places = coordinates(array, width, count_rank=4, rank=5)
    expected = [[0, 1], [1, 0], [2, 1]]
    assert count == 3
    np.testing.assert_array_equal(places[:3, -2:], expected)
    np.testing.assert_array_equal(places[:3, :-2], 0)


def test_the_order_of_the_page():
    array = np.zeros((2, 6), np.uint8)
    for place in ((1, 0), (1, 2), (0, 5)):
        array[place] = 1
    count, places = coordinates(array)
    assert (count, places[:3].tolist()) == (3, [[0, 5], [1, 0], [1, 2]])


@pytest.mark.parametrize("value", [0, 1])
def test_no_element_and_all_elements_are_nonzero(value):
    count, places = coordinates(np.full((2, 3), value, np.int32))
    assert count == 6 * value
    np.testing.assert_array_equal(places, np.argwhere(np.ones((2, 3))) * value)
