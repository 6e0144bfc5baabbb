"""PADDING and SLICE_GRAD: validation, the upgrade of PADDING to PADDING1, plans and units."""

from __future__ import annotations

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, PaddingMode
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.operators.lowering import lowering
from dmlgpu.compiler.target import Target
from tests.unit.rejections import rejection

F32, F16, F64, I8, U8, I64 = (DataType[n] for n in ("FLOAT32", "FLOAT16", "FLOAT64", "INT8", "UINT8", "INT64"))
ANY = Target("any")


def padding1(sizes=(2, 4), start=(1, 0), end=(1, 0), mode=PaddingMode.CONSTANT, *, data_type=F32, value=0, **changes):
    padded = tuple(map(sum, zip(sizes, start, end, strict=True)))
    fields = {
        "input_tensor": TensorDesc(data_type, sizes),
        "output_tensor": TensorDesc(data_type, padded),
        "padding_mode": mode,
        "padding_value_data_type": data_type,
        "padding_value": value,
        "start_padding": start,
        "end_padding": end,
    }
    return descs.Padding1(**fields | changes)


def padding(data_type=F32, value=0.0):
    return descs.Padding(
        input_tensor=TensorDesc(data_type, (2, 4)),
        output_tensor=TensorDesc(data_type, (4, 4)),
        padding_mode=PaddingMode.CONSTANT,
        padding_value=value,
        start_padding=(1, 0),
        end_padding=(1, 0),
    )


def slice_grad(**changes):
    fields = {
        "input_gradient_tensor": TensorDesc(F32, (2, 8)),
        "output_gradient_tensor": TensorDesc(F32, (5, 8)),
        "input_window_offsets": (1, 0),
        "input_window_sizes": (4, 8),
        "input_window_strides": (-2, 1),
    }
    return descs.SliceGrad(**fields | changes)


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (
            padding1(end_padding=(1, 1)),
            "PADDING1: output_tensor.sizes must be [4, 5] (start_padding + input_tensor.sizes + end_padding),"
            " got [4, 4]",
        ),
        (slice_grad(input_window_sizes=(4, 0)), "SLICE_GRAD: input_window_sizes[1] must be at least 1, got 0"),
        (
            slice_grad(input_window_offsets=(2, 0)),
            "SLICE_GRAD: input_window_offsets[0] + input_window_sizes[0] must be at most"
            " output_gradient_tensor.sizes[0] (5), got 2 + 4 = 6",
        ),
        (slice_grad(input_window_strides=(0, 1)), "SLICE_GRAD: input_window_strides[0] must not be 0"),
        (
            slice_grad(input_gradient_tensor=TensorDesc(F32, (3, 8))),
            "SLICE_GRAD: input_gradient_tensor.sizes[0] must be at most"
            " 1 + (input_window_sizes[0] - 1) / |input_window_strides[0]| (1 + (4 - 1) / 2 = 2), got 3",
        ),
    ],
)
def test_invalid_descriptions_are_rejected(desc, message):
    assert rejection(desc) == message


@pytest.mark.parametrize(
    "desc", [padding1(), padding1(start=(0, 0), end=(0, 0)), padding(), slice_grad(), padding1(start=(9, 9))]
)
def test_valid_descriptions_are_accepted(desc):
    operators.check(desc)


def test_sizes_of_padded_tensors():
    assert lowering("PADDING1").output_sizes(padding1()) == {"output_tensor": (4, 4)}
    assert lowering("PADDING").output_sizes(padding()) == {"output_tensor": (4, 4)}


@pytest.mark.parametrize(
    ("data_type", "value", "converted"),
    [
        (F32, 0.1, 0.10000000149011612),
        (F64, 0.1, 0.10000000149011612),
        (F16, 1e30, float("inf")),
        (I8, 10.6, 10),
        (I8, -10.6, -10),
        (I8, 300.0, 127),
        (U8, -1.0, 0),
        (U8, float("nan"), 0),
        (I64, 1e30, 2**63 - 1),
    ],
)
def test_padding_converts_its_constant(data_type, value, converted):
    upgraded = operators.upgrade(padding(data_type, value))
    assert upgraded == padding1(data_type=data_type, value=converted)


@pytest.mark.parametrize(
    ("desc", "label"),
    [
        pytest.param(padding1((2, 8)), "padding1 pad x4", id="rows"),
        pytest.param(padding1((2, 8), data_type=I8), "padding1 pad x8", id="rows of bytes"),
        pytest.param(padding1((2, 8), data_type=I64), "padding1 pad x2", id="rows of 64 bits"),
        pytest.param(padding1((2, 8), (0, 4), (0, 8)), "padding1 pad x4", id="whole units"),
        pytest.param(padding1((2, 8), (1, 2), (1, 4)), "padding1 pad x2", id="pairs"),
        pytest.param(padding1((2, 8), (0, 1), (0, 1)), "padding1 pad", id="one by one"),
        pytest.param(padding1((2, 8), (0, 4), (0, 8), PaddingMode.WRAP), "padding1 pad x4", id="wrapped units"),
        pytest.param(padding1((2, 8), (0, 4), (0, 8), PaddingMode.EDGE), "padding1 pad", id="edges"),
        pytest.param(padding1((2, 8), (2, 0), (1, 0), PaddingMode.SYMMETRIC), "padding1 pad x4", id="mirrored rows"),
        pytest.param(padding1((3, 8), (2, 0), (1, 0), PaddingMode.REFLECTION), "padding1 pad x4", id="reflected rows"),
        pytest.param(slice_grad(), "slice_grad pad x4", id="gradient of rows"),
        pytest.param(slice_grad(input_window_strides=(1, -1)), "slice_grad pad", id="gradient of mirrored rows"),
    ],
)
def test_units_are_as_wide_as_the_frame_allows(desc, label):
    (kernel,) = compiler.compile_operator(desc, ANY).kernels
    assert kernel.label == label
