"""Softmax, its logarithm and hardmax against SciPy, ONNX's evaluator and onnxruntime."""

import math

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu import descs
from tests.reference.helpers import run, sizes, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

INF, NAN = math.inf, math.nan
NEWER = [descs.ActivationSoftmax1, descs.ActivationLogSoftmax1, descs.ActivationHardmax1]
OLDER = [descs.ActivationSoftmax, descs.ActivationLogSoftmax, descs.ActivationHardmax]
ONNX = ["Softmax", "LogSoftmax", "Hardmax"]


def along(desc_class, array, axes):
    desc = tensor(array)
    return run(desc_class(input_tensor=desc, output_tensor=desc, axes=axes), array)


@st.composite
def problems(draw):
    shape = draw(sizes(6, 4))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    array = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).integers(-9, 10, shape) / 4
    return array.astype(draw(st.sampled_from([np.float16, np.float32]))), tuple(axes)


@given(problems())
def test_softmax_and_its_logarithm_agree_with_scipy(problem):
    array, axes = problem
    wide = array.astype(np.float64)
    for desc_class, function in zip(NEWER, (scipy.special.softmax, scipy.special.log_softmax), strict=False):
        want = function(wide, axis=axes).astype(array.dtype)
        np.testing.assert_array_max_ulp(along(desc_class, array, axes), want, 1)


@given(problems())
def test_hardmax_marks_the_first_largest_in_row_major_order(problem):
    array, axes = problem
    result = along(descs.ActivationHardmax1, array, axes)
    across = [slice(None) if axis in axes else None for axis in range(array.ndim)]
    for place in np.ndindex(*(1 if axis in axes else size for axis, size in enumerate(array.shape))):
        line = tuple(part if part else index for part, index in zip(across, place, strict=True))
        marked, values = result[line].ravel().tolist(), array[line].ravel().tolist()
        assert marked.index(1) == values.index(max(values)) and sum(marked) == 1


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize(("desc_class", "operator"), list(zip(NEWER, ONNX, strict=True)))
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_one_axis_agrees_with_onnx(desc_class, operator, axis, evaluate):
    array = np.random.default_rng(3).integers(-20, 20, (4, 5, 6)).astype(np.float32)
    np.testing.assert_allclose(along(desc_class, array, (axis,)), evaluate(operator, [array], axis=axis), 2e-6, 2e-6)


@pytest.mark.parametrize(("desc_class", "operator"), list(zip(NEWER[:2], ONNX, strict=False)))
def test_infinities_and_nan_agree_with_onnxruntime(desc_class, operator):
    rows = [[-INF, -INF, -INF], [INF, 1, 2], [INF, INF, 0], [NAN, 1, 2], [-INF, 1, -INF], [-INF, 1, 2]]
    array = np.array(rows, np.float32)
    np.testing.assert_allclose(along(desc_class, array, (1,)), onnx_runtime(operator, [array], axis=1), 1e-6)


def test_hardmax_skips_nan():
    array = np.array([[NAN, 1, 2, 2], [NAN, NAN, NAN, NAN], [NAN, -INF, NAN, -INF]], np.float32)
    expected = [[0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0]]
    np.testing.assert_array_equal(along(descs.ActivationHardmax1, array, (1,)), expected)


def test_large_elements_do_not_overflow():
    array = np.array([[3e38, 3e38, -3e38]], np.float32)
    np.testing.assert_array_equal(along(descs.ActivationSoftmax1, array, (1,)), [[0.5, 0.5, 0]])


@pytest.mark.parametrize(("older", "newer"), list(zip(OLDER, NEWER, strict=True)))
def test_the_older_operators_take_the_last_axis(older, newer):
    array = np.random.default_rng(4).standard_normal((1, 1, 5, 6)).astype(np.float32)
    result = run(older(input_tensor=tensor(array), output_tensor=tensor(array)), array)
    np.testing.assert_array_equal(result, along(newer, array, (3,)))
