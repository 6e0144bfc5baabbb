"""Lowering of activations, as text and data: separate operators, and fused bodies."""

import re

import pytest

from dmlgpu import descs
from dmlgpu.catalog import loader
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.catalog.validation import fusable_activations
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.operators.lowering import lowering
from dmlgpu.compiler.plan import PlanBinding, PlanTensor, Role, apply
from dmlgpu.compiler.target import Target
from tests.kernel_sources import without_library

BARE = Target("Bare")
HALF = Target("Half", features=frozenset({"shader-f16"}))
F16, F32 = DataType.FLOAT16, DataType.FLOAT32
SIZES = (2, 3)
SIMPLE = [
    "ELU",
    "CELU",
    "SCALED_ELU",
    "HARD_SIGMOID",
    "LEAKY_RELU",
    "LINEAR",
    "PARAMETRIC_SOFTPLUS",
    "RELU",
    "SCALED_TANH",
    "SIGMOID",
    "SOFTPLUS",
    "SOFTSIGN",
    "TANH",
    "THRESHOLDED_RELU",
    "SHRINK",
    "GELU",
    "SWISH",
    "HARD_SWISH",
]

FUSABLE = {name.removeprefix("ACTIVATION_") for name in fusable_activations("GEMM", FeatureLevel.LEVEL_6_4)}


def fields(name):
    """Return a different value for every attribute."""
    schema = loader.operator(f"ACTIVATION_{name}")
    names = [field.python_name for field in schema.python_fields if field.type == "FLOAT"]
    return {field: 0.5 + index / 4 for index, field in enumerate(names)}


def described(name, data_type=F32, **changes):
    tensor = TensorDesc(data_type, SIZES)
    return descs.by_name(f"ACTIVATION_{name}")(**fields(name) | changes, input_tensor=tensor, output_tensor=tensor)


def undescribed(name):
    """Return a description without tensors, as other operators fuse it; with tensors if it cannot be fused."""
    if name not in FUSABLE:
        return described(name)
    return descs.by_name(f"ACTIVATION_{name}")(**fields(name))


def body(desc):
    (step,) = operators.lower(desc).steps
    return step.body


def text(desc, target=BARE):
    """Return the shader without the library's functions."""
    (kernel,) = compiler.compile_operator(desc, target).kernels
    return without_library(kernel)


def memory(data_type=F32):
    return PlanTensor(PlanBinding(Role.INPUT, 0), data_type, SIZES, (3, 1))


@pytest.mark.parametrize("data_type", [F32, F16])
@pytest.mark.parametrize("name", SIMPLE)
def test_a_fused_activation_is_the_body_of_the_separate_operator(name, data_type):
    bare = undescribed(name)
    assert lowering(bare.operator).fused(bare, memory(data_type)) == body(described(name, data_type))


def test_every_fusable_activation_of_this_family_can_be_fused():
    assert FUSABLE - {"SOFTMAX", "SOFTMAX1", "ELEMENT_WISE_CLIP"} == {*SIMPLE, "IDENTITY"} - {"SWISH", "HARD_SWISH"}


def test_a_fused_identity_has_no_body():
    virtual = apply("elementwise/element_wise_subtract", F32, SIZES, a=memory(), b=memory())
    assert lowering("ACTIVATION_IDENTITY").fused(descs.ActivationIdentity(), virtual) is virtual


def test_a_separate_identity_copies_raw_units():
    assert body(described("IDENTITY", F16)).moves


@pytest.mark.parametrize("name", SIMPLE)
def test_float16_is_computed_in_float32_on_every_adapter(name):
    assert not re.search(r"\bf16\b", text(described(name, F16), HALF))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ELU", "return select((0.5f * expm1_f32(input)), input, less_equal_f32(0.0f, input));"),
        ("CELU", "return (max_f32(input, 0.0f) + min_f32((0.5f * expm1_f32(divide_f32(input, 0.5f))), 0.0f));"),
        ("SCALED_ELU", "return (0.75f * select((0.5f * expm1_f32(input)), input, less_f32(0.0f, input)));"),
        ("HARD_SIGMOID", "return max_f32(min_f32(((0.5f * input) + 0.75f), 1.0f), 0.0f);"),
        ("HARD_SWISH", "return (input * max_f32(min_f32(((0.5f * input) + 0.75f), 1.0f), 0.0f));"),
        ("LEAKY_RELU", "return select((0.5f * input), input, less_equal_f32(0.0f, input));"),
        ("LINEAR", "return ((input * 0.5f) + 0.75f);"),
        ("PARAMETRIC_SOFTPLUS", "return (0.5f * softplus_f32((0.75f * input)));"),
        ("RELU", "return max_f32(input, 0.0f);"),
        ("SCALED_TANH", "return (0.5f * tanh_f32((0.75f * input)));"),
        ("SIGMOID", "return sigmoid_f32(input);"),
        ("SOFTPLUS", "return select(softplus_f32(steep) / 0.5f, input, steep > 20.0);"),
        ("TANH", "return tanh_f32(input);"),
        ("THRESHOLDED_RELU", "return select(0.0f, input, less_f32(0.5f, input));"),
        ("GELU", "return gelu_f32(input);"),
        ("SWISH", "let t = (0.5f * input);"),
    ],
)
def test_bodies_match_their_formulas(name, expected):
    assert expected in text(described(name))


@pytest.mark.parametrize(
    ("data_type", "expected"),
    [
        (DataType.INT32, "return select(input, 0, (input < 0));"),
        (DataType.INT8, "return select(input, 0, (input < 0));"),
    ],
)
def test_relu_of_integers(data_type, expected):
    assert expected in text(described("RELU", data_type))


@pytest.mark.parametrize(
    ("data_type", "conversion"),
    [
        (DataType.INT8, "clamp(f32_to_i32("),
        (DataType.UINT16, "clamp(f32_to_u32("),
        (DataType.INT32, "f32_to_i32("),
        (DataType.UINT32, "f32_to_u32("),
        (F16, "select(select(0.0f,"),
    ],
)
def test_shrink_of_integers_goes_through_float32(data_type, conversion):
    assert f"return {conversion}" in text(described("SHRINK", data_type))


def test_shrink_takes_a_negative_threshold():
    rendered = text(described("SHRINK", threshold=-1.0))
    assert "less_f32(input, 1.0f)" in rendered and "less_f32(-1.0f, input)" in rendered


def test_a_gradient_has_its_own_tensors():
    tensor = TensorDesc(F32, SIZES)
    desc = descs.ActivationReluGrad(input_tensor=tensor, input_gradient_tensor=tensor, output_gradient_tensor=tensor)
    assert "return select(0.0f, gradient, less_f32(0.0f, input));" in text(desc)


def test_a_slope_is_a_tensor():
    tensor = TensorDesc(DataType.INT8, SIZES)
    desc = descs.ActivationParameterizedRelu(input_tensor=tensor, slope_tensor=tensor, output_tensor=tensor)
    assert "return select((slope * input), input, (0 <= input));" in text(desc)


@pytest.mark.parametrize(
    "desc",
    [
        described("SOFTPLUS", steepness=0.25),
        described("SOFTPLUS", steepness=-1.0),
        described("CELU", alpha=0.0),
        described("SHRINK", threshold=-1.0),
        described("LEAKY_RELU", alpha=float("inf")),
        described("LINEAR", alpha=float("nan")),
    ],
    ids=str,
)
def test_every_attribute_value_is_accepted(desc):
    operators.check(desc)
    text(desc)
