"""Softmax and quantization: validation, and upgrades of older operators."""

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, QuantizationType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from tests.unit.rejections import rejection

F32, F16, I8, U8, I32 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT8, DataType.UINT8, DataType.INT32


@pytest.mark.parametrize(
    "desc_class", [descs.ActivationSoftmax1, descs.ActivationLogSoftmax1, descs.ActivationHardmax1]
)
@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ((), "axes must name at least one axis, got none"),
        ((0, 3), "axes[1] must be below input_tensor's dimension count (3), got 3"),
        ((2, 0, 2), "axes[2] must not repeat an axis, got 2 again"),
    ],
)
def test_axes(desc_class, axes, message):
    tensor = TensorDesc(F32, (2, 3, 4))
    desc = desc_class(input_tensor=tensor, output_tensor=tensor, axes=axes)
    assert rejection(desc) == f"{desc_class.operator}: {message}"


OLDER = [
    (descs.ActivationSoftmax, descs.ActivationSoftmax1),
    (descs.ActivationLogSoftmax, descs.ActivationLogSoftmax1),
    (descs.ActivationHardmax, descs.ActivationHardmax1),
]


@pytest.mark.parametrize(("older", "newer"), OLDER)
def test_the_older_operators_take_two_dimensions(older, newer):
    tensor = TensorDesc(F32, (2, 1, 3, 4))
    assert rejection(older(input_tensor=tensor, output_tensor=tensor)) == (
        f"{older.operator}: input_tensor.sizes must have 1 in all dimensions but the last two"
        f" ({newer.operator} takes any), got [2, 1, 3, 4]"
    )
    tensor = TensorDesc(F32, (1, 1, 3, 4))
    desc = older(input_tensor=tensor, output_tensor=tensor)
    operators.check(desc)
    assert operators.upgrade(desc) == newer(input_tensor=tensor, output_tensor=tensor, axes=(3,))


def linear(input_type, scale_type):
    return descs.ElementWiseQuantizeLinear(
        input_tensor=TensorDesc(input_type, (4,)),
        scale_tensor=TensorDesc(scale_type, (4,)),
        output_tensor=TensorDesc(U8, (4,)),
    )


def test_types_of_scales():
    for pair in ((F32, F32), (F16, F16), (I32, F32)):
        operators.check(linear(*pair))
    assert rejection(linear(F16, F32)) == (
        "ELEMENT_WISE_QUANTIZE_LINEAR: scale_tensor.data_type must be FLOAT16 for an input of FLOAT16, got FLOAT32"
    )
    assert rejection(linear(I32, F16)) == (
        "ELEMENT_WISE_QUANTIZE_LINEAR: scale_tensor.data_type must be FLOAT32 for an input of INT32, got FLOAT16"
    )


SCALE, BOTH = QuantizationType.SCALE, QuantizationType.SCALE_ZERO_POINT
GIVEN = TensorDesc(F32, (4, 6))


@pytest.mark.parametrize(
    ("kind", "tensors", "output", "message"),
    [
        (QuantizationType.NONE, [GIVEN], (4, 6), "quantization_type must be SCALE or SCALE_ZERO_POINT, got NONE"),
        (SCALE, [GIVEN] * 2, (4, 6), "quantization_tensors must be [scale] for type SCALE, got 2"),
        (
            BOTH,
            [GIVEN],
            (4, 6),
            "quantization_tensors must be [scale, zero point] for type SCALE_ZERO_POINT, got 1",
        ),
        (SCALE, [GIVEN], (4, 5), "output_tensor.sizes must be [4, 6] (input_tensor.sizes), got [4, 5]"),
        (
            SCALE,
            [TensorDesc(F32, (4, 4))],
            (4, 6),
            "quantization_tensors[0].sizes[1] must divide input_tensor.sizes[1] (6), got 4",
        ),
        (
            BOTH,
            [TensorDesc(F32, (4, 3)), TensorDesc(I8, (4, 1))],
            (4, 6),
            "quantization_tensors[1].sizes must be [4, 3] (the scale's), got [4, 1]",
        ),
        (
            SCALE,
            [TensorDesc(F16, (4, 3))],
            (4, 6),
            "quantization_tensors[0].data_type must equal input_tensor.data_type (FLOAT32), got FLOAT16",
        ),
        (
            BOTH,
            [TensorDesc(F32, (4, 3)), TensorDesc(U8, (4, 3))],
            (4, 6),
            "quantization_tensors[1].data_type must equal output_tensor.data_type (INT8), got UINT8",
        ),
    ],
)
def test_quantize(kind, tensors, output, message):
    desc = descs.Quantize(
        input_tensor=GIVEN,
        quantization_type=kind,
        quantization_tensors=tensors,
        output_tensor=TensorDesc(I8, output),
    )
    assert rejection(desc) == f"QUANTIZE: {message}"


def test_dequantize_takes_the_scales_type_from_its_output():
    desc = descs.Dequantize(
        input_tensor=TensorDesc(I8, (4, 6)),
        quantization_type=SCALE,
        quantization_tensors=[TensorDesc(F32, (1, 1))],
        output_tensor=TensorDesc(F16, (4, 6)),
    )
    assert rejection(desc) == (
        "DEQUANTIZE: quantization_tensors[0].data_type must equal output_tensor.data_type (FLOAT16), got FLOAT32"
    )


def add(**changed):
    many, single = TensorDesc(U8, (2, 3)), TensorDesc(F32, (1, 1))
    fields = {"a_tensor": many, "b_tensor": many, "output_tensor": many}
    scales = {f"{name}_scale_tensor": single for name in ("a", "b", "output")}
    return descs.ElementWiseQuantizedLinearAdd(**(fields | scales | changed))


def test_quantized_addition():
    operators.check(add())
    assert rejection(add(b_tensor=TensorDesc(U8, (2, 1)))) == (
        "ELEMENT_WISE_QUANTIZED_LINEAR_ADD: b_tensor.sizes must be [2, 3] (a_tensor.sizes), got [2, 1]"
    )
    assert rejection(add(output_zero_point_tensor=TensorDesc(U8, (2, 1)))) == (
        "ELEMENT_WISE_QUANTIZED_LINEAR_ADD: output_zero_point_tensor.sizes must hold 1 element, got [2, 1]"
    )


def test_dynamic_quantization():
    def dynamic(output, scale):
        return descs.DynamicQuantizeLinear(
            input_tensor=TensorDesc(F32, (2, 3)),
            output_tensor=TensorDesc(U8, output),
            output_scale_tensor=TensorDesc(F32, scale),
            output_zero_point_tensor=TensorDesc(U8, (1, 1)),
        )

    operators.check(dynamic((2, 3), (1, 1)))
    assert rejection(dynamic((3, 2), (1, 1))) == (
        "DYNAMIC_QUANTIZE_LINEAR: output_tensor.sizes must be [2, 3] (input_tensor.sizes), got [3, 2]"
    )
    assert rejection(dynamic((2, 3), (1, 3))) == (
        "DYNAMIC_QUANTIZE_LINEAR: output_scale_tensor.sizes must hold 1 element, got [1, 3]"
    )
