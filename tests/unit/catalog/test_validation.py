"""Validation by the catalog: accepted descriptions, and the whole messages of rejected ones."""

import math

import pytest

from dmlgpu import descs, enums
from dmlgpu.catalog.descs import ScaleBias, Size2D, TensorDesc
from dmlgpu.catalog.enums import DataType, FeatureLevel, TensorFlags
from dmlgpu.catalog.loader import operator
from dmlgpu.catalog.validation import validate
from dmlgpu.common.errors import InvalidDescription
from tests.unit.rejections import NEWEST, table_rejection

LEVEL = FeatureLevel.from_label
F32, F16, I32, U32, U8 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT32, DataType.UINT32, DataType.UINT8


def tensor(sizes, data_type=F32, **fields):
    return TensorDesc(data_type, sizes, **fields)


def gather(**changes):
    fields = {
        "input_tensor": tensor((5, 4)),
        "indices_tensor": tensor((3, 1), U32),
        "output_tensor": tensor((3, 4)),
        "input_dimension_count": 2,
        "indices_dimension_count": 2,
        "batch_dimension_count": 0,
    }
    return descs.GatherNd1(**fields | changes)


def identity(input_tensor, output_tensor=None, **fields):
    output_tensor = tensor(input_tensor.sizes, input_tensor.data_type) if output_tensor is None else output_tensor
    return descs.ElementWiseIdentity(input_tensor=input_tensor, output_tensor=output_tensor, **fields)


def slice1(**changes):
    fields = {
        "input_tensor": tensor((1, 1, 4, 4)),
        "output_tensor": tensor((1, 1, 2, 4)),
        "input_window_offsets": (0, 0, 0, 0),
        "input_window_sizes": (1, 1, 4, 4),
        "input_window_strides": (1, 1, 2, -1),
    }
    return descs.Slice1(**fields | changes)


def convolution(**changes):
    fields = {
        "input_tensor": tensor((1, 1, 5, 5)),
        "filter_tensor": tensor((1, 1, 3, 3)),
        "output_tensor": tensor((1, 1, 3, 3)),
        "mode": 1,
        "direction": 0,
        "strides": (1, 1),
        "dilations": (1, 1),
        "start_padding": (0, 0),
        "end_padding": (0, 0),
        "output_padding": (0, 0),
        "group_count": 1,
    }
    return descs.Convolution(**fields | changes)


def reduce(function, data_type, output_type):
    input_tensor, output_tensor = tensor((1, 1, 2, 3), data_type), tensor((1, 1, 2, 1), output_type)
    return descs.Reduce(function=function, input_tensor=input_tensor, output_tensor=output_tensor, axes=(3,))


def padding(mode, **changes):
    fields = {
        "input_tensor": tensor((1, 1, 2, 2)),
        "output_tensor": tensor((1, 1, 2, 4)),
        "padding_mode": mode,
        "padding_value": 0,
        "start_padding": (0, 0, 0, 1),
        "end_padding": (0, 0, 0, 1),
    }
    return descs.Padding(**fields | changes)


def fill(value, data_type, output_type=None):
    output = tensor((4,), output_type or data_type)
    return descs.FillValueConstant(output_tensor=output, value_data_type=data_type, value=value)


def test_the_message_of_the_design():
    assert table_rejection(gather(indices_tensor=tensor((3, 1)))) == (
        "GATHER_ND1: indices_tensor.data_type must be one of INT64, INT32, UINT64, UINT32 at feature level 6_4, "
        "got FLOAT32; array.astype(np.int32) or CAST to INT32 converts it"
    )


def test_an_error_carries_its_parts():
    with pytest.raises(InvalidDescription) as caught:
        validate(gather(indices_tensor=tensor((3, 1))))
    assert (caught.value.operator, caught.value.field) == ("GATHER_ND1", "indices_tensor.data_type")


GATHER_REFUSALS = [
    ({"input_tensor": tensor((1,) * 9)}, "input_tensor.sizes must have 1 to 8 dimensions at feature level 6_4, got 9"),
    ({"input_tensor": tensor(())}, "input_tensor.sizes must have 1 to 8 dimensions at feature level 6_4, got 0"),
    ({"input_tensor": tensor((5, 0))}, "input_tensor.sizes[1] must be at least 1, got 0"),
    ({"input_tensor": tensor((-5, 4))}, "input_tensor.sizes[0] must be at least 1, got -5"),
    (
        {"input_tensor": tensor((2**16, 2**16))},
        "input_tensor.sizes must hold at most 4294967295 elements, got 4294967296",
    ),
    (
        {"input_tensor": tensor((5, 4), strides=(4,))},
        "input_tensor.strides must have one entry per dimension (2), got 1",
    ),
    (
        {"input_tensor": tensor((5, 4), strides=(4, -1))},
        "input_tensor.strides[1] must be between 0 and 4294967295, got -1",
    ),
    (
        {"input_tensor": tensor((2, 1), strides=(2**32 - 1, 1))},
        "input_tensor.strides must span at most 4294967295 elements, got 4294967296",
    ),
    (
        {"input_tensor": tensor((5, 4), total_tensor_size_in_bytes=76)},
        "input_tensor.total_tensor_size_in_bytes must be at least 80, the bytes that its sizes and strides need, "
        "got 76",
    ),
    (
        {"input_tensor": tensor((5, 4), total_tensor_size_in_bytes=82)},
        "input_tensor.total_tensor_size_in_bytes must be a multiple of 4, got 82",
    ),
    (
        {"input_tensor": tensor((5, 4), guaranteed_base_offset_alignment=2)},
        "input_tensor.guaranteed_base_offset_alignment must be 0 or a power of two of at least 4, the size of an "
        "element in bytes, got 2",
    ),
    (
        {"input_tensor": tensor((5, 4), guaranteed_base_offset_alignment=24)},
        "input_tensor.guaranteed_base_offset_alignment must be 0 or a power of two of at least 4, the size of an "
        "element in bytes, got 24",
    ),
    (
        {"output_tensor": tensor((3, 4), flags=TensorFlags.OWNED_BY_DML)},
        "output_tensor.flags must not have OWNED_BY_DML, which is for inputs only",
    ),
    (
        {"output_tensor": tensor((3, 4), strides=(3, 1))},
        "output_tensor.strides must give each element of an output a place of its own, got [3, 1] for sizes [3, 4]",
    ),
    (
        {"output_tensor": tensor((3, 4), strides=(0, 1))},
        "output_tensor.strides must give each element of an output a place of its own, got [0, 1] for sizes [3, 4]",
    ),
    (
        {"output_tensor": tensor((3, 4), I32)},
        "output_tensor.data_type must equal input_tensor.data_type (FLOAT32), got INT32; CAST to FLOAT32 converts it",
    ),
    (
        {"indices_tensor": tensor((1, 3, 1), U32)},
        "indices_tensor.dimension_count must equal input_tensor.dimension_count (2), got 3",
    ),
    ({"batch_dimension_count": -1}, "batch_dimension_count must be between 0 and 4294967295, got -1"),
    ({"batch_dimension_count": 2**32}, "batch_dimension_count must be between 0 and 4294967295, got 4294967296"),
]


@pytest.mark.parametrize(("changes", "message"), GATHER_REFUSALS)
def test_gather_nd1_rejections(changes, message):
    assert table_rejection(gather(**changes)) == f"GATHER_ND1: {message}"


def test_levels():
    assert table_rejection(gather(), LEVEL("2_1")) == (
        "GATHER_ND1: feature_level must be at least 3_0, which introduced the operator, got 2_1"
    )
    wide = tensor((5, 4), DataType.FLOAT64)
    validate(gather(input_tensor=wide, output_tensor=tensor((3, 4), DataType.FLOAT64)), LEVEL("4_1"))
    assert table_rejection(gather(input_tensor=wide), LEVEL("4_0")) == (
        "GATHER_ND1: input_tensor.data_type must be one of FLOAT32, FLOAT16, INT32, INT16, INT8, UINT32, UINT16, UINT8 "
        "at feature level 4_0, got FLOAT64; array.astype(np.float32) or CAST to FLOAT32 converts it"
    )
    validate(identity(tensor((1, 1, 1, 2, 3))), LEVEL("1_0"))
    assert table_rejection(identity(tensor((2, 3))), LEVEL("1_0")) == (
        "ELEMENT_WISE_IDENTITY: input_tensor.sizes must have 4 to 5 dimensions at feature level 1_0, got 2"
    )
    absolute = descs.ElementWiseAbs(input_tensor=tensor((2,)), output_tensor=tensor((2,)))
    assert table_rejection(absolute, LEVEL("2_1")) == (
        "ELEMENT_WISE_ABS: input_tensor.sizes must have 4 dimensions at feature level 2_1, got 1"
    )


def test_sizes_relation():
    assert table_rejection(identity(tensor((2, 3)), tensor((3, 2)))) == (
        "ELEMENT_WISE_IDENTITY: output_tensor.sizes must equal input_tensor.sizes ([2, 3]), got [3, 2]"
    )


def test_relations_reach_the_elements_of_arrays():
    join = descs.Join(input_tensors=[tensor((2,)), tensor((2,), I32)], output_tensor=tensor((4,)), axis=0)
    assert (
        table_rejection(join)
        == "JOIN: input_tensors[1].data_type must equal input_tensors[0].data_type (FLOAT32), got INT32; "
        "array.astype(np.float32) or CAST to FLOAT32 converts it"
    )


def test_arrays_of_tensors_are_not_empty():
    assert table_rejection(descs.Join(input_tensors=(), output_tensor=tensor((4,)), axis=0)) == (
        "JOIN: input_tensors must hold at least 1 tensor, got 0"
    )
    assert table_rejection(descs.Split(input_tensor=tensor((4,)), output_tensors=(), axis=0)) == (
        "SPLIT: output_tensors must hold at least 1 tensor, got 0"
    )


def test_absent_optional_tensors_are_skipped():
    validate(convolution())
    assert table_rejection(convolution(bias_tensor=tensor((1, 1, 1, 1), F16))) == (
        "CONVOLUTION: bias_tensor.data_type must equal input_tensor.data_type (FLOAT32), got FLOAT16; "
        "array.astype(np.float32) or CAST to FLOAT32 converts it"
    )


def test_array_lengths():
    validate(slice1())
    assert table_rejection(slice1(input_window_sizes=(4, 4))) == (
        "SLICE1: input_window_sizes must have 4 entries, one per dimension of input_tensor, got 2"
    )
    assert table_rejection(convolution(dilations=(1, 1, 1))) == (
        "CONVOLUTION: dilations must have 2 entries, one per spatial dimension of input_tensor (4 - 2), got 3"
    )
    blocks = {"strides": (1, 1), "dilations": (1, 1), "start_padding": (0, 0), "end_padding": (0, 0)}
    columns, image = tensor((1, 4, 4)), tensor((1, 1, 3, 3))
    validate(descs.Fold(input_tensor=columns, output_tensor=image, window_sizes=(2, 2), **blocks))
    validate(descs.Unfold(input_tensor=image, output_tensor=columns, window_sizes=(2, 2), **blocks))
    assert table_rejection(descs.Fold(input_tensor=columns, output_tensor=image, window_sizes=(2,), **blocks)) == (
        "FOLD: window_sizes must have 2 entries, one per spatial dimension of output_tensor (4 - 2), got 1"
    )


def test_attribute_ranges():
    assert table_rejection(slice1(input_window_offsets=(0, 0, -1, 0))) == (
        "SLICE1: input_window_offsets[2] must be between 0 and 4294967295, got -1"
    )
    assert table_rejection(slice1(input_window_strides=(1, 1, 1, -(2**31) - 1))) == (
        "SLICE1: input_window_strides[3] must be between -2147483648 and 2147483647, got -2147483649"
    )
    validate(slice1(input_window_strides=(1, 1, 2**31 - 1, -(2**31))))
    upsample = descs.Upsample2d(
        input_tensor=tensor((1, 1, 1, 1)),
        output_tensor=tensor((1, 1, 1, 1)),
        scale_size=Size2D(1, -1),
        interpolation_mode=0,
    )
    assert table_rejection(upsample) == "UPSAMPLE_2D: scale_size.height must be between 0 and 4294967295, got -1"
    assert table_rejection(identity(tensor((2,)), scale_bias=ScaleBias(1, 1e39))) == (
        "ELEMENT_WISE_IDENTITY: scale_bias.bias must be in the range of FLOAT32, got 1e+39"
    )
    for value in (math.nan, math.inf, -math.inf, 3.4028234663852886e38):
        validate(identity(tensor((2,)), scale_bias=ScaleBias(value, value)))


def test_enumeration_members_have_levels():
    validate(padding(enums.PaddingMode.SYMMETRIC), LEVEL("3_0"))
    assert table_rejection(padding(enums.PaddingMode.SYMMETRIC), LEVEL("2_1")) == (
        "PADDING: padding_mode must be one of CONSTANT, EDGE, REFLECTION at feature level 2_1, got SYMMETRIC"
    )
    validate(padding(enums.PaddingMode.WRAP), LEVEL("6_4"))
    assert table_rejection(padding(enums.PaddingMode.WRAP), LEVEL("6_3")) == (
        "PADDING: padding_mode must be one of CONSTANT, EDGE, REFLECTION, SYMMETRIC at feature level 6_3, got WRAP"
    )


def test_reduce_has_types_per_function():
    validate(reduce(enums.ReduceFunction.SUM, I32, I32))
    assert table_rejection(reduce(enums.ReduceFunction.AVERAGE, I32, I32)) == (
        "REDUCE: input_tensor.data_type must be one of FLOAT32, FLOAT16 at feature level 6_4 for AVERAGE, got INT32; "
        "array.astype(np.float32) or CAST to FLOAT32 converts it"
    )
    validate(reduce(enums.ReduceFunction.ARGMIN, F32, U32), LEVEL("2_1"))
    assert table_rejection(reduce(enums.ReduceFunction.ARGMIN, F32, I32), LEVEL("2_1")) == (
        "REDUCE: output_tensor.data_type must be UINT32 at feature level 2_1 for ARGMIN, got INT32; "
        "CAST to UINT32 converts it"
    )


def test_scalars_have_the_type_of_the_output():
    validate(fill(255, U8))
    validate(fill(2**63, DataType.UINT64))
    assert table_rejection(fill(1, I32, F32)) == (
        "FILL_VALUE_CONSTANT: value_data_type must equal output_tensor.data_type (FLOAT32), got INT32"
    )
    assert table_rejection(fill(256, U8)) == (
        "FILL_VALUE_CONSTANT: value must be an integer between 0 and 255, the range of UINT8, got 256"
    )
    assert table_rejection(fill(-(2**31) - 1, I32)) == (
        "FILL_VALUE_CONSTANT: value must be an integer between -2147483648 and 2147483647, the range of INT32, "
        "got -2147483649"
    )
    assert table_rejection(fill(1.0, I32)) == (
        "FILL_VALUE_CONSTANT: value must be an integer between -2147483648 and 2147483647, the range of INT32, got 1.0"
    )
    assert (
        table_rejection(fill(65520.0, F16)) == "FILL_VALUE_CONSTANT: value must be in the range of FLOAT16, got 65520.0"
    )
    validate(fill(65519.0, F16))
    clip = descs.ElementWiseClip1(
        input_tensor=tensor((2,)), output_tensor=tensor((2,)), min_max_data_type=DataType.UNKNOWN, min=0, max=1
    )
    assert table_rejection(clip, LEVEL("5_0")) == (
        "ELEMENT_WISE_CLIP1: min_max_data_type must be one of FLOAT32, FLOAT16, UINT32, UINT16, UINT8, INT32, INT16, "
        "INT8, FLOAT64, UINT64, INT64 at feature level 5_0, got UNKNOWN"
    )


def test_a_sequence_of_unsigned_numbers_may_decrease():
    def sequence(start, delta):
        return descs.FillValueSequence(
            output_tensor=tensor((4,), U8), value_data_type=U8, value_start=start, value_delta=delta
        )

    validate(sequence(255, -255))
    assert table_rejection(sequence(255, -256)) == (
        "FILL_VALUE_SEQUENCE: value_delta must be an integer between -255 and 255, the range of UINT8, got -256"
    )
    assert table_rejection(sequence(-1, 0)) == (
        "FILL_VALUE_SEQUENCE: value_start must be an integer between 0 and 255, the range of UINT8, got -1"
    )


def test_an_operator_by_itself_needs_its_tensors():
    assert table_rejection(descs.ActivationRelu()) == (
        "ACTIVATION_RELU: input_tensor is required: only a fused activation leaves it out"
    )


def test_owned_inputs():
    owned = tensor((5, 4), flags=TensorFlags.OWNED_BY_DML)
    validate(gather(input_tensor=owned))
    weights = {"weight_tensor": tensor((1, 1, 1, 1)), "recurrence_tensor": tensor((1, 1, 1, 1))}
    network = descs.Rnn(
        input_tensor=tensor((1, 1, 1, 1), flags=TensorFlags.OWNED_BY_DML),
        **weights,
        activation_descs=[descs.ActivationTanh()],
        direction=0,
    )
    assert (
        table_rejection(network)
        == "RNN: input_tensor.flags must not have OWNED_BY_DML, which this operator does not support"
    )


def test_types_of_a_level():
    types = {name: set(support.types) for name, support in operator("GATHER_ND1").support_at(NEWEST).items()}
    assert set(types) == {"InputTensor", "IndicesTensor", "OutputTensor"}
    assert types["IndicesTensor"] == {DataType.INT64, DataType.INT32, DataType.UINT64, DataType.UINT32}
    assert operator("SCATTER").support_at(LEVEL("2_0"))["IndicesTensor"].types == (DataType.UINT32,)
    assert operator("GATHER_ND1").support_at(LEVEL("2_1")) == {}
