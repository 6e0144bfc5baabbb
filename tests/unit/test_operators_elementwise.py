"""Element-wise operators and CAST as plans."""

from __future__ import annotations

import pytest

from dmlgpu import descs, operators
from dmlgpu.enums import DataType
from dmlgpu.operator_desc import ScaleBias
from dmlgpu.plan import Binding, BodyKind, Map, Role, Tensor, View
from dmlgpu.target import Target
from dmlgpu.tensor import TensorDesc

F32, F64, I64 = DataType.FLOAT32, DataType.FLOAT64, DataType.INT64
ANY = Target("any")


def step_of(desc):
    plan = operators.lower(desc, ANY)
    (step,) = plan.steps
    assert plan.operator == desc.operator and plan.temporaries == () and isinstance(step, Map)
    return step


def identity(data_type=F32, **fields):
    tensor = TensorDesc(data_type, (2, 4))
    return descs.ElementWiseIdentity(input_tensor=tensor, output_tensor=tensor, **fields)


def test_identity_moves_bits():
    step = step_of(identity(F64))
    assert step.label == "copy" and step.body.moves
    assert step.body.inputs == (("input", Tensor(Binding(Role.INPUT, 0), F64, (2, 4), (4, 1), View.RAW)),)


@pytest.mark.parametrize(
    ("data_type", "compute", "words"),
    [(F32, F32, True), (DataType.INT8, F32, True), (I64, F32, True), (F64, F64, False)],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_scaled_identity_computes_in_floats(data_type, compute, words):
    step = step_of(identity(data_type, scale_bias=ScaleBias(scale=2, bias=0.5)))
    assert (step.label, step.body.file, step.body.words) == ("scale", "elementwise/scale_bias", words)
    assert dict(step.body.constants) == {"compute": compute, "scale": 2.0, "bias": 0.5}
    assert not step.body.moves


@pytest.mark.parametrize(
    ("desc_class", "file"),
    [
        (descs.ElementWiseSubtract, "elementwise/element_wise_subtract"),
        (descs.ElementWiseMultiply, "elementwise/element_wise_multiply"),
        (descs.ElementWiseDifferenceSquare, "elementwise/element_wise_difference_square"),
    ],
)
def test_operators_on_two_tensors_take_them_in_order(desc_class, file):
    a, b = TensorDesc(F32, (2, 4)), TensorDesc(F32, (2, 4), (0, 1))
    body = step_of(desc_class(a_tensor=a, b_tensor=b, output_tensor=a)).body
    assert (body.file, body.kind, body.words) == (file, BodyKind.APPLY, False)
    assert [(name, source.binding.index, source.strides) for name, source in body.inputs] == [
        ("a", 0, (4, 1)),
        ("b", 1, (0, 1)),
    ]


def test_cast_converts_64_bits_as_words_on_every_adapter():
    desc = descs.Cast(input_tensor=TensorDesc(I64, (2, 4)), output_tensor=TensorDesc(F32, (2, 4)))
    body = step_of(desc).body
    assert (body.file, body.words, body.data_type, body.inputs[0][1].view) == (
        "elementwise/cast",
        True,
        F32,
        View.COMPUTE,
    )


def test_cast_to_the_same_type_moves_bits():
    tensor = TensorDesc(F32, (2, 4))
    assert step_of(descs.Cast(input_tensor=tensor, output_tensor=tensor)).body.moves
