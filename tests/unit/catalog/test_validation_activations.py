"""Validation of fused activations by the catalog: allowed combinations, and the whole messages of rejected ones."""

import pytest

from dmlgpu import descs
from dmlgpu.catalog.descs import TensorDesc
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.validation import fusable_activations, validate
from tests.unit.rejections import table_rejection

LEVEL = FeatureLevel.from_label
F32, F16, I32, U32, U8 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT32, DataType.UINT32, DataType.UINT8


def tensor(sizes, data_type=F32, **fields):
    return TensorDesc(data_type, sizes, **fields)


def gemm(activation=None):
    square = tensor((1, 1, 2, 2))
    return descs.Gemm(
        a_tensor=square,
        b_tensor=square,
        output_tensor=square,
        trans_a=0,
        trans_b=0,
        alpha=1,
        beta=0,
        fused_activation=activation,
    )


GENERAL = {
    *("LINEAR", "SIGMOID", "HARD_SIGMOID", "TANH", "SCALED_TANH", "RELU", "LEAKY_RELU", "THRESHOLDED_RELU", "ELU"),
    *("CELU", "SCALED_ELU", "SOFTPLUS", "PARAMETRIC_SOFTPLUS", "SOFTSIGN", "IDENTITY", "SHRINK", "GELU"),
}


@pytest.mark.parametrize(
    ("host", "level", "missing", "extra"),
    [
        ("BATCH_NORMALIZATION", "6_4", set(), set()),
        ("CONVOLUTION", "6_4", set(), {"ELEMENT_WISE_CLIP"}),
        ("GEMM", "6_4", set(), {"ELEMENT_WISE_CLIP", "ACTIVATION_SOFTMAX", "ACTIVATION_SOFTMAX1"}),
        ("GEMM", "6_0", set(), {"ELEMENT_WISE_CLIP"}),
        ("GEMM", "5_2", set(), set()),
        ("GEMM", "5_0", {"GELU"}, set()),
        ("GEMM", "2_1", {"GELU", "CELU"}, set()),
        ("GEMM", "1_0", {"GELU", "CELU", "SHRINK"}, set()),
        ("LSTM", "6_4", set(), set()),
    ],
)
def test_which_activations_may_be_fused(host, level, missing, extra):
    expected = {f"ACTIVATION_{name}" for name in GENERAL - missing} | extra
    assert set(fusable_activations(host, LEVEL(level))) == expected


def test_fused_activations():
    validate(gemm(descs.ActivationRelu()))
    validate(gemm(descs.ActivationSoftmax1(axes=(3,))))
    assert table_rejection(gemm(descs.ActivationSwish(**pair(), sigmoid_input_scale=1))).endswith(
        "ACTIVATION_CELU, ACTIVATION_GELU, ACTIVATION_SOFTMAX1 at feature level 6_4, got ACTIVATION_SWISH"
    )
    assert table_rejection(gemm(descs.ActivationShrink(bias=0, threshold=1)), LEVEL("1_0")) == (
        "GEMM: fused_activation must be one of ACTIVATION_ELU, ACTIVATION_HARD_SIGMOID, ACTIVATION_IDENTITY, "
        "ACTIVATION_LEAKY_RELU, ACTIVATION_LINEAR, ACTIVATION_PARAMETRIC_SOFTPLUS, ACTIVATION_RELU, "
        "ACTIVATION_SCALED_ELU, ACTIVATION_SCALED_TANH, ACTIVATION_SIGMOID, ACTIVATION_SOFTPLUS, "
        "ACTIVATION_SOFTSIGN, ACTIVATION_TANH, ACTIVATION_THRESHOLDED_RELU at feature level 1_0, got ACTIVATION_SHRINK"
    )
    assert table_rejection(gemm(descs.ActivationRelu(**pair()))) == (
        "GEMM: fused_activation.input_tensor must be None, because a fused activation works on the operator's result"
    )
    assert table_rejection(gemm(descs.ActivationElu(alpha=1e39))) == (
        "GEMM: fused_activation.alpha must be in the range of FLOAT32, got 1e+39"
    )


def test_activation_arrays_name_the_element():
    cell = tensor((1, 1, 1, 1))
    network = descs.Rnn(
        input_tensor=cell,
        weight_tensor=cell,
        recurrence_tensor=cell,
        activation_descs=[descs.ActivationTanh(), descs.ActivationElu(alpha=-1e39)],
        direction=2,
    )
    assert table_rejection(network) == "RNN: activation_descs[1].alpha must be in the range of FLOAT32, got -1e+39"


def pair():
    return {"input_tensor": tensor((1, 1, 2, 2)), "output_tensor": tensor((1, 1, 2, 2))}
