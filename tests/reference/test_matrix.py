"""Matrix products against NumPy's, exact integers, ONNX's evaluator and onnxruntime."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, MatrixTransform
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference.helpers import run, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime, seven_bits

F32, F16 = DataType.FLOAT32, DataType.FLOAT16
NONE, TRANSPOSE = MatrixTransform.NONE, MatrixTransform.TRANSPOSE
BOTH = [onnx_reference, onnx_runtime]


def gemm(a, b, c=None, *, trans_a=NONE, trans_b=NONE, alpha=1.0, beta=1.0, activation=None):
    rows = a.shape[-1] if trans_a is TRANSPOSE else a.shape[-2]
    columns = b.shape[-2] if trans_b is TRANSPOSE else b.shape[-1]
    output = TensorDesc(DataType.from_numpy(a.dtype), (*a.shape[:-2], rows, columns))
    desc = descs.Gemm(
        a_tensor=tensor(a),
        b_tensor=tensor(b),
        c_tensor=None if c is None else tensor(c),
        output_tensor=output,
        trans_a=trans_a,
        trans_b=trans_b,
        alpha=alpha,
        beta=beta,
        fused_activation=activation,
    )
    return run(desc, a, b, c)


def floats(rng, *sizes, dtype=np.float32):
    return rng.standard_normal(sizes).astype(dtype)


@pytest.mark.parametrize("evaluate", BOTH)
@pytest.mark.parametrize("trans_b", [NONE, TRANSPOSE])
@pytest.mark.parametrize("trans_a", [NONE, TRANSPOSE])
@pytest.mark.parametrize("with_c", [False, True])
def test_gemm_agrees_with_onnx(with_c, trans_a, trans_b, evaluate):
    rng = np.random.default_rng(1)
    a = floats(rng, *((7, 5) if trans_a else (5, 7)))
    b = floats(rng, *((3, 7) if trans_b else (7, 3)))
    c = floats(rng, 5, 3) if with_c else None
    want = evaluate(
        "Gemm",
        [a, b] if c is None else [a, b, c],
        alpha=0.7,
        beta=-1.3,
        transA=int(trans_a),
        transB=int(trans_b),
    )
    got = gemm(a, b, c, trans_a=trans_a, trans_b=trans_b, alpha=0.7, beta=-1.3)
    np.testing.assert_allclose(got, want, 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_products_of_a_batch_are_numpys(dtype):
    rng = np.random.default_rng(2)
    a, b = floats(rng, 2, 3, 4, 50, dtype=dtype), floats(rng, 2, 3, 50, 6, dtype=dtype)
    exact = np.einsum("xymk,xykn->xymn", a.astype(np.longdouble), b.astype(np.longdouble))
    np.testing.assert_array_equal(gemm(a, b), exact.astype(dtype))


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=30)
def test_a_product_of_small_integers_is_exact(seed, rows, columns, inner):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-9, 10, (rows, inner)), rng.integers(-9, 10, (inner, columns))
    want = [[sum(int(a[m, k]) * int(b[k, n]) for k in range(inner)) for n in range(columns)] for m in range(rows)]
    np.testing.assert_array_equal(gemm(a.astype(np.float32), b.astype(np.float32)), want)


def test_a_beta_of_0_drops_c():
    a = np.ones((2, 2), np.float32)
    assert gemm(a, a, np.full((2, 2), np.nan, np.float32), beta=0.0).tolist() == [[2, 2], [2, 2]]
    assert np.isnan(gemm(a, a, np.full((2, 2), np.nan, np.float32), beta=1.0)).all()


def test_the_result_is_rounded_before_the_activation():
    a, b = np.full((1, 2), 2049, np.float16), np.ones((2, 1), np.float16)
    linear = descs.ActivationLinear(alpha=3.0, beta=0.0)
    twice = np.float16(np.float16(2 * 2048) * np.float32(3))  # 2049 is no half
    assert gemm(a, b, activation=linear)[0, 0] == twice


@pytest.mark.parametrize("axes", [(1,), (0,), (0, 1)])
def test_a_softmax_of_the_product(axes):
    rng = np.random.default_rng(3)
    a, b = floats(rng, 4, 5), floats(rng, 5, 6)
    scores = a.astype(np.float64) @ b
    weights = np.exp(scores)
    want = weights / weights.sum(axes, keepdims=True)
    np.testing.assert_allclose(gemm(a, b, activation=descs.ActivationSoftmax1(axes=axes)), want, 1e-5)
    if axes == (1,):
        np.testing.assert_allclose(gemm(a, b, activation=descs.ActivationSoftmax()), want, 1e-5)


def integers(rng, data_type, *sizes):
    limits = np.iinfo(data_type.numpy)
    return rng.integers(limits.min, limits.max, sizes, data_type.numpy, endpoint=True)


def multiply_integer(a, a_zero, b, b_zero):
    desc = descs.MatrixMultiplyInteger(
        a_tensor=tensor(a),
        a_zero_point_tensor=None if a_zero is None else tensor(a_zero),
        b_tensor=tensor(b),
        b_zero_point_tensor=None if b_zero is None else tensor(b_zero),
        output_tensor=TensorDesc(DataType.INT32, (*a.shape[:-1], b.shape[-1])),
    )
    return run(desc, a, a_zero, b, b_zero)


@pytest.mark.parametrize("evaluate", BOTH)
@pytest.mark.parametrize("types", [("UINT8", "UINT8"), ("UINT8", "INT8")], ids="-".join)
def test_multiply_integer_agrees_with_onnx(types, evaluate):
    """One zero point each; onnxruntime has no INT8 by UINT8, and a zero point per row in no batch."""
    rng = np.random.default_rng(4)
    a_type, b_type = (DataType[name] for name in types)
    a, b = integers(rng, a_type, 2, 4, 9), seven_bits(integers(rng, b_type, 2, 9, 5))
    a_zero, b_zero = integers(rng, a_type), integers(rng, b_type)
    want = evaluate("MatMulInteger", [a, b, a_zero, b_zero], np.int32)
    got = multiply_integer(a, a_zero.reshape(1, 1, 1), b, b_zero.reshape(1, 1, 1))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("a_type", [DataType.INT8, DataType.UINT8], ids=lambda t: t.name)
@pytest.mark.parametrize("b_type", [DataType.INT8, DataType.UINT8], ids=lambda t: t.name)
def test_zero_points_per_row_and_column(a_type, b_type):
    rng = np.random.default_rng(5)
    a, b = integers(rng, a_type, 3, 7), integers(rng, b_type, 7, 4)
    a_zero, b_zero = integers(rng, a_type, 3, 1), integers(rng, b_type, 1, 4)
    want = [
        [
            sum((int(a[m, k]) - int(a_zero[m, 0])) * (int(b[k, n]) - int(b_zero[0, n])) for k in range(7))
            for n in range(4)
        ]
        for m in range(3)
    ]
    np.testing.assert_array_equal(multiply_integer(a, a_zero, b, b_zero), want)
    np.testing.assert_array_equal(multiply_integer(a, a_zero.ravel(), b, b_zero.ravel()), want)


def test_sums_of_integers_wrap_around():
    a, b = np.full((1, 40000), 255, np.uint8), np.full((40000, 1), 255, np.uint8)
    assert multiply_integer(a, None, b, None)[0, 0] == 40000 * 255 * 255 - 2**32


def quantized_multiply(a, b, output_type, *, a_scale, b_scale, scale, a_zero=None, b_zero=None, zero=None):
    def described(array):
        return None if array is None else tensor(array)

    desc = descs.QuantizedLinearMatrixMultiply(
        a_tensor=tensor(a),
        a_scale_tensor=tensor(a_scale),
        a_zero_point_tensor=described(a_zero),
        b_tensor=tensor(b),
        b_scale_tensor=tensor(b_scale),
        b_zero_point_tensor=described(b_zero),
        output_scale_tensor=tensor(scale),
        output_zero_point_tensor=described(zero),
        output_tensor=TensorDesc(output_type, (*a.shape[:-1], b.shape[-1])),
    )
    return run(desc, a, a_scale, a_zero, b, b_scale, b_zero, scale, zero)


@pytest.mark.parametrize("evaluate", BOTH)
def test_quantized_multiply_agrees_with_onnx(evaluate):
    """Scales are powers of two, so that results differ only by the rounding of ties, of which there are many."""
    rng = np.random.default_rng(6)
    a, b = integers(rng, DataType.UINT8, 6, 9), seven_bits(integers(rng, DataType.INT8, 9, 8))
    scales = [np.float32(x) for x in (0.5, 0.25, 128.0)]
    zeros = integers(rng, DataType.UINT8), integers(rng, DataType.INT8), integers(rng, DataType.UINT8)
    inputs = [a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]]
    want = evaluate("QLinearMatMul", inputs, np.uint8)
    names = ("a_scale", "b_scale", "scale", "a_zero", "b_zero", "zero")
    quantization = {name: np.asarray(value).reshape(1, 1) for name, value in zip(names, (*scales, *zeros), strict=True)}
    np.testing.assert_array_equal(quantized_multiply(a, b, DataType.UINT8, **quantization), want)


def test_ties_round_to_even_per_row_and_column():
    rng = np.random.default_rng(7)
    a, b = integers(rng, DataType.INT8, 5, 6), integers(rng, DataType.UINT8, 6, 7)
    a_scale = (2.0 ** rng.integers(-3, 2, (5, 1))).astype(np.float32)
    b_scale = (2.0 ** rng.integers(-3, 2, (1, 7))).astype(np.float32)
    scale = (2.0 ** rng.integers(3, 9, (5, 1))).astype(np.float32)
    zero = integers(rng, DataType.INT8, 5, 1)
    got = quantized_multiply(a, b, DataType.INT8, a_scale=a_scale, b_scale=b_scale, scale=scale, zero=zero)
    for m in range(5):
        for n in range(7):
            total = sum(int(a[m, k]) * int(b[k, n]) for k in range(6))
            real = total * Fraction(float(a_scale[m, 0])) * Fraction(float(b_scale[0, n])) / int(scale[m, 0])
            assert got[m, n] == min(max(round(real) + int(zero[m, 0]), -128), 127)


@pytest.mark.parametrize("data_type", ["INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32"])
@pytest.mark.parametrize("real", [F32, F16], ids=lambda t: t.name)
def test_integers_to_float_follow_the_formula(data_type, real):
    """Computed in fractions, rounded once at the end."""
    rng = np.random.default_rng(8)
    kind = DataType[data_type]
    a, b = integers(rng, kind, 3, 4), integers(rng, kind, 4, 2)
    a_zero, b_zero = integers(rng, kind, 3, 1), integers(rng, kind, 1, 2)
    a_scale, b_scale = ((rng.random(sizes) / (1 << kind.bits)).astype(real.numpy) for sizes in ((3, 1), (1, 2)))
    bias = rng.standard_normal((3, 2)).astype(real.numpy)
    desc = descs.MatrixMultiplyIntegerToFloat(
        a_tensor=tensor(a),
        a_scale_tensor=tensor(a_scale),
        a_zero_point_tensor=tensor(a_zero),
        b_tensor=tensor(b),
        b_scale_tensor=tensor(b_scale),
        b_zero_point_tensor=tensor(b_zero),
        bias_tensor=tensor(bias),
        output_tensor=tensor(bias),
    )
    got = run(desc, a, a_scale, a_zero, b, b_scale, b_zero, bias)
    for m in range(3):
        for n in range(2):
            total = sum((int(a[m, k]) - int(a_zero[m, 0])) * (int(b[k, n]) - int(b_zero[0, n])) for k in range(4))
            exact = total * Fraction(float(a_scale[m, 0])) * Fraction(float(b_scale[0, n])) + Fraction(
                float(bias[m, n])
            )
            assert got[m, n] == real.numpy.type(float(exact))
