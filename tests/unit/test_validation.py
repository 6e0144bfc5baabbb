"""Checks from the catalog: what is accepted, and the whole text of what is refused."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgpu import descs, enums
from dmlgpu.descs import ScaleBias, Size2D, TensorDesc
from dmlgpu.enums import DataType, FeatureLevel, TensorFlags
from dmlgpu.errors import InvalidArgument, InvalidDescription
from dmlgpu.schema import catalog, class_name
from dmlgpu.validation import fusable_activations, supported_types, validate

LEVEL = FeatureLevel.from_label
NEWEST = LEVEL("6_4")
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


def refusal(desc, level=NEWEST):
    with pytest.raises(InvalidDescription) as caught:
        validate(desc, level)
    return str(caught.value)


# -- whole texts ----------------------------------------------------------------------------------------------


def test_the_sentence_of_the_design():
    assert refusal(gather(indices_tensor=tensor((3, 1)))) == (
        "GATHER_ND1: indices_tensor.data_type must be one of INT64, INT32, UINT64, UINT32 at feature level 6_4, "
        "got FLOAT32"
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
        "output_tensor.data_type must equal input_tensor.data_type (FLOAT32), got INT32",
    ),
    (
        {"indices_tensor": tensor((1, 3, 1), U32)},
        "indices_tensor.dimension_count must equal input_tensor.dimension_count (2), got 3",
    ),
    ({"batch_dimension_count": -1}, "batch_dimension_count must be between 0 and 4294967295, got -1"),
    ({"batch_dimension_count": 2**32}, "batch_dimension_count must be between 0 and 4294967295, got 4294967296"),
]


@pytest.mark.parametrize(("changes", "message"), GATHER_REFUSALS)
def test_gather_nd1_refusals(changes, message):
    assert refusal(gather(**changes)) == f"GATHER_ND1: {message}"


def test_levels():
    assert refusal(gather(), LEVEL("2_1")) == (
        "GATHER_ND1: feature_level must be at least 3_0, which introduced the operator, got 2_1"
    )
    wide = tensor((5, 4), DataType.FLOAT64)
    validate(gather(input_tensor=wide, output_tensor=tensor((3, 4), DataType.FLOAT64)), LEVEL("4_1"))
    assert refusal(gather(input_tensor=wide), LEVEL("4_0")) == (
        "GATHER_ND1: input_tensor.data_type must be one of FLOAT32, FLOAT16, INT32, INT16, INT8, UINT32, UINT16, UINT8 "
        "at feature level 4_0, got FLOAT64"
    )
    validate(identity(tensor((1, 1, 1, 2, 3))), LEVEL("1_0"))
    assert refusal(identity(tensor((2, 3))), LEVEL("1_0")) == (
        "ELEMENT_WISE_IDENTITY: input_tensor.sizes must have 4 to 5 dimensions at feature level 1_0, got 2"
    )
    absolute = descs.ElementWiseAbs(input_tensor=tensor((2,)), output_tensor=tensor((2,)))
    assert refusal(absolute, LEVEL("2_1")) == (
        "ELEMENT_WISE_ABS: input_tensor.sizes must have 4 dimensions at feature level 2_1, got 1"
    )


def test_sizes_relation():
    assert refusal(identity(tensor((2, 3)), tensor((3, 2)))) == (
        "ELEMENT_WISE_IDENTITY: output_tensor.sizes must equal input_tensor.sizes ([2, 3]), got [3, 2]"
    )


def test_relations_reach_the_elements_of_arrays():
    join = descs.Join(input_tensors=[tensor((2,)), tensor((2,), I32)], output_tensor=tensor((4,)), axis=0)
    assert (
        refusal(join) == "JOIN: input_tensors[1].data_type must equal input_tensors[0].data_type (FLOAT32), got INT32"
    )


def test_arrays_of_tensors_are_not_empty():
    assert refusal(descs.Join(input_tensors=(), output_tensor=tensor((4,)), axis=0)) == (
        "JOIN: input_tensors must hold at least 1 tensor, got 0"
    )
    assert refusal(descs.Split(input_tensor=tensor((4,)), output_tensors=(), axis=0)) == (
        "SPLIT: output_tensors must hold at least 1 tensor, got 0"
    )


def test_absent_optional_tensors_are_skipped():
    validate(convolution())
    assert refusal(convolution(bias_tensor=tensor((1, 1, 1, 1), F16))) == (
        "CONVOLUTION: bias_tensor.data_type must equal input_tensor.data_type (FLOAT32), got FLOAT16"
    )


def test_array_lengths():
    validate(slice1())
    assert refusal(slice1(input_window_sizes=(4, 4))) == (
        "SLICE1: input_window_sizes must have 4 entries, one per dimension of input_tensor, got 2"
    )
    assert refusal(convolution(dilations=(1, 1, 1))) == (
        "CONVOLUTION: dilations must have 2 entries, one per spatial dimension of input_tensor (4 - 2), got 3"
    )
    blocks = {"strides": (1, 1), "dilations": (1, 1), "start_padding": (0, 0), "end_padding": (0, 0)}
    columns, image = tensor((1, 4, 4)), tensor((1, 1, 3, 3))
    validate(descs.Fold(input_tensor=columns, output_tensor=image, window_sizes=(2, 2), **blocks))
    validate(descs.Unfold(input_tensor=image, output_tensor=columns, window_sizes=(2, 2), **blocks))
    assert refusal(descs.Fold(input_tensor=columns, output_tensor=image, window_sizes=(2,), **blocks)) == (
        "FOLD: window_sizes must have 2 entries, one per spatial dimension of output_tensor (4 - 2), got 1"
    )


def test_attribute_ranges():
    assert refusal(slice1(input_window_offsets=(0, 0, -1, 0))) == (
        "SLICE1: input_window_offsets[2] must be between 0 and 4294967295, got -1"
    )
    assert refusal(slice1(input_window_strides=(1, 1, 1, -(2**31) - 1))) == (
        "SLICE1: input_window_strides[3] must be between -2147483648 and 2147483647, got -2147483649"
    )
    validate(slice1(input_window_strides=(1, 1, 2**31 - 1, -(2**31))))
    upsample = descs.Upsample2d(
        input_tensor=tensor((1, 1, 1, 1)),
        output_tensor=tensor((1, 1, 1, 1)),
        scale_size=Size2D(1, -1),
        interpolation_mode=0,
    )
    assert refusal(upsample) == "UPSAMPLE_2D: scale_size.height must be between 0 and 4294967295, got -1"
    assert refusal(identity(tensor((2,)), scale_bias=ScaleBias(1, 1e39))) == (
        "ELEMENT_WISE_IDENTITY: scale_bias.bias must be in the range of FLOAT32, got 1e+39"
    )
    for value in (math.nan, math.inf, -math.inf, 3.4028234663852886e38):
        validate(identity(tensor((2,)), scale_bias=ScaleBias(value, value)))


def test_enumeration_members_have_levels():
    validate(padding(enums.PaddingMode.SYMMETRIC), LEVEL("3_0"))
    assert refusal(padding(enums.PaddingMode.SYMMETRIC), LEVEL("2_1")) == (
        "PADDING: padding_mode must be one of CONSTANT, EDGE, REFLECTION at feature level 2_1, got SYMMETRIC"
    )
    validate(padding(enums.PaddingMode.WRAP), LEVEL("6_4"))
    assert refusal(padding(enums.PaddingMode.WRAP), LEVEL("6_3")) == (
        "PADDING: padding_mode must be one of CONSTANT, EDGE, REFLECTION, SYMMETRIC at feature level 6_3, got WRAP"
    )


def test_reduce_has_types_per_function():
    validate(reduce(enums.ReduceFunction.SUM, I32, I32))
    assert refusal(reduce(enums.ReduceFunction.AVERAGE, I32, I32)) == (
        "REDUCE: input_tensor.data_type must be one of FLOAT32, FLOAT16 at feature level 6_4 for AVERAGE, got INT32"
    )
    validate(reduce(enums.ReduceFunction.ARGMIN, F32, U32), LEVEL("2_1"))
    assert refusal(reduce(enums.ReduceFunction.ARGMIN, F32, I32), LEVEL("2_1")) == (
        "REDUCE: output_tensor.data_type must be UINT32 at feature level 2_1 for ARGMIN, got INT32"
    )


def test_scalars_have_the_type_of_the_output():
    validate(fill(255, U8))
    validate(fill(2**63, DataType.UINT64))
    validate(
        fill(-8, DataType.INT4) if DataType.INT4 in supported_types("FILL_VALUE_CONSTANT", NEWEST) else fill(0, U8)
    )
    assert refusal(fill(1, I32, F32)) == (
        "FILL_VALUE_CONSTANT: value_data_type must equal output_tensor.data_type (FLOAT32), got INT32"
    )
    assert refusal(fill(256, U8)) == (
        "FILL_VALUE_CONSTANT: value must be an integer between 0 and 255, the range of UINT8, got 256"
    )
    assert refusal(fill(-(2**31) - 1, I32)) == (
        "FILL_VALUE_CONSTANT: value must be an integer between -2147483648 and 2147483647, the range of INT32, "
        "got -2147483649"
    )
    assert refusal(fill(1.0, I32)) == (
        "FILL_VALUE_CONSTANT: value must be an integer between -2147483648 and 2147483647, the range of INT32, got 1.0"
    )
    assert refusal(fill(65520.0, F16)) == "FILL_VALUE_CONSTANT: value must be in the range of FLOAT16, got 65520.0"
    validate(fill(65519.0, F16))
    assert refusal(fill(10**400, DataType.FLOAT64)) == (
        "FILL_VALUE_CONSTANT: value must be in the range of FLOAT64, got an integer of 1329 bits"
    )
    clip = descs.ElementWiseClip1(
        input_tensor=tensor((2,)), output_tensor=tensor((2,)), min_max_data_type=DataType.UNKNOWN, min=0, max=1
    )
    assert refusal(clip, LEVEL("5_0")) == (
        "ELEMENT_WISE_CLIP1: min_max_data_type must be one of FLOAT32, FLOAT16, UINT32, UINT16, UINT8, INT32, INT16, "
        "INT8, FLOAT64, UINT64, INT64 at feature level 5_0, got UNKNOWN"
    )


def test_a_sequence_of_unsigned_numbers_may_fall():
    def sequence(start, delta):
        return descs.FillValueSequence(
            output_tensor=tensor((4,), U8), value_data_type=U8, value_start=start, value_delta=delta
        )

    validate(sequence(255, -255))
    assert refusal(sequence(255, -256)) == (
        "FILL_VALUE_SEQUENCE: value_delta must be an integer between -255 and 255, the range of UINT8, got -256"
    )
    assert refusal(sequence(-1, 0)) == (
        "FILL_VALUE_SEQUENCE: value_start must be an integer between 0 and 255, the range of UINT8, got -1"
    )


def test_an_operator_by_itself_needs_its_tensors():
    assert refusal(descs.ActivationRelu()) == (
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
        refusal(network) == "RNN: input_tensor.flags must not have OWNED_BY_DML, which this operator does not support"
    )


# -- fused activations ----------------------------------------------------------------------------------------

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
    assert refusal(gemm(descs.ActivationSwish(**pair(), sigmoid_input_scale=1))).endswith(
        "ACTIVATION_CELU, ACTIVATION_GELU, ACTIVATION_SOFTMAX1 at feature level 6_4, got ACTIVATION_SWISH"
    )
    assert refusal(gemm(descs.ActivationShrink(bias=0, threshold=1)), LEVEL("1_0")) == (
        "GEMM: fused_activation must be one of ACTIVATION_ELU, ACTIVATION_HARD_SIGMOID, ACTIVATION_IDENTITY, "
        "ACTIVATION_LEAKY_RELU, ACTIVATION_LINEAR, ACTIVATION_PARAMETRIC_SOFTPLUS, ACTIVATION_RELU, "
        "ACTIVATION_SCALED_ELU, ACTIVATION_SCALED_TANH, ACTIVATION_SIGMOID, ACTIVATION_SOFTPLUS, "
        "ACTIVATION_SOFTSIGN, ACTIVATION_TANH, ACTIVATION_THRESHOLDED_RELU at feature level 1_0, got ACTIVATION_SHRINK"
    )
    assert refusal(gemm(descs.ActivationRelu(**pair()))) == (
        "GEMM: fused_activation.input_tensor must be None, because a fused activation works on the operator's result"
    )
    assert refusal(gemm(descs.ActivationElu(alpha=1e39))) == (
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
    assert refusal(network) == "RNN: activation_descs[1].alpha must be in the range of FLOAT32, got -1e+39"


def pair():
    return {"input_tensor": tensor((1, 1, 2, 2)), "output_tensor": tensor((1, 1, 2, 2))}


# -- queries --------------------------------------------------------------------------------------------------


def test_supported_types():
    types = supported_types("GATHER_ND1", NEWEST)
    assert set(types) == {"input_tensor", "indices_tensor", "output_tensor"}
    assert types["indices_tensor"] == {DataType.INT64, DataType.INT32, DataType.UINT64, DataType.UINT32}
    assert supported_types("SCATTER", LEVEL("2_0"))["indices_tensor"] == {DataType.UINT32}
    assert supported_types("GATHER_ND1", LEVEL("2_1")) == {}
    with pytest.raises(InvalidArgument, match=r"^DirectML has no operator 'zzz'$"):
        supported_types("zzz", NEWEST)


# -- every operator, every level ------------------------------------------------------------------------------

ATTRIBUTES = {
    "UINT": 1,
    "INT": 1,
    "FLOAT": 1.0,
    "BOOL": False,
    "SCALAR_UNION": 1,
    "SIZE_2D": Size2D(1, 1),
    "OPERATOR_DESC": descs.ActivationRelu(),
}


def common_types(schema, table):
    """A data type per tensor that its table allows and that relations agree on."""
    groups = {name: {name} for name in table}
    for relation in schema.relations:
        if "DataType" in relation.same:
            merged = set().union(*(groups[name] for name in relation.tensors))
            groups.update(dict.fromkeys(merged, merged))
    shared = {name: set.intersection(*(set(table[other].types) for other in groups[name])) for name in table}
    return {name: min(types) for name, types in shared.items()}


def common_ranks(schema, table):
    """A dimension count per tensor, equal within relations."""
    groups = {name: {name} for name in table}
    for relation in schema.relations:
        if {"DimensionCount", "Sizes"} & set(relation.same):
            merged = set().union(*(groups[name] for name in relation.tensors))
            groups.update(dict.fromkeys(merged, merged))
    return {name: max(table[other].min_dimensions for other in groups[name]) for name in table}


def smallest(schema, level):
    """A description with tensors of one element that breaks no rule of the catalog."""
    first = schema.variants[0] if schema.variants else None
    table = schema.support_at(level, first)
    types, ranks = common_types(schema, table), common_ranks(schema, table)
    fields = {}
    for field in schema.python_fields:
        rule = schema.counts.get(field.count_field or "")
        length = ranks[rule.tensor] - rule.less if rule and rule.tensor else 1
        if field.is_tensor:
            value = TensorDesc(types[field.name], (1,) * ranks[field.name])
        elif first and field.name == first.field:
            value = enums.ReduceFunction[min(first.members)]
        elif field.type == "DML_TENSOR_DATA_TYPE":
            value = types[next(entry.name for entry in schema.fields if entry.kind == "output")]
        elif field.type.startswith("DML_"):
            value = next(iter(getattr(enums, class_name(field.type.removeprefix("DML_")))))
        elif field.optional:
            value = None
        else:
            value = ATTRIBUTES[field.type]
        fields[field.python_name] = (value,) * length if field.is_array else value
    return descs.by_name(schema.name)(**fields)


@pytest.mark.parametrize("schema", catalog().values(), ids=lambda schema: schema.stem)
def test_every_operator_is_accepted_at_each_of_its_levels(schema):
    for level in (level for level in FeatureLevel if level >= schema.feature_level):
        validate(smallest(schema, level), level)


@pytest.mark.parametrize("schema", catalog().values(), ids=lambda schema: schema.stem)
def test_every_tensor_of_every_operator_is_held_to_its_table(schema):
    for level, field in itertools.product(schema.support, schema.tensor_fields):
        first = schema.variants[0] if schema.variants else None
        entry, desc = schema.support_at(level, first)[field.name], smallest(schema, level)
        label = f"{field.python_name}[0]" if field.is_array else field.python_name
        for data_type in set(DataType) - set(entry.types):
            message = refusal(with_tensor(desc, field, TensorDesc(data_type, (1,) * entry.min_dimensions)), level)
            assert message.startswith(f"{schema.name}: {label}.data_type must be ")
            assert f" at feature level {level.label}" in message and message.endswith(f", got {data_type.name}")
        for rank in (entry.min_dimensions - 1, entry.max_dimensions + 1):
            message = refusal(with_tensor(desc, field, TensorDesc(entry.types[0], (1,) * rank)), level)
            assert message.startswith(f"{schema.name}: {label}.sizes must have ")
            assert message.endswith(f", got {rank}")


def with_tensor(desc, field, changed):
    return desc.replace(**{field.python_name: (changed,) if field.is_array else changed})


@pytest.mark.parametrize(
    "schema", [schema for schema in catalog().values() if schema.examples], ids=lambda schema: schema.stem
)
def test_the_examples_of_the_documents_are_accepted(schema):
    examples = [example for example in schema.examples if not example.get("suspect")]
    for example in examples:
        desc = described(schema, example)
        if desc is not None:
            validate(desc)


def described(schema, example):
    """The description of an example, or None where the page leaves attributes out."""
    fields = {}
    for field in schema.python_fields:
        stated = example["tensors" if field.is_tensor else "attributes"].get(field.name)
        if stated is None and not field.optional:
            return None
        if field.is_tensor and stated is not None:
            entries = [TensorDesc(DataType[entry["type"]], entry["sizes"]) for entry in listed(stated)]
            stated = entries if field.is_array else entries[0]
        elif isinstance(stated, str):
            enum = "DataType" if field.type == "DML_TENSOR_DATA_TYPE" else class_name(field.type.removeprefix("DML_"))
            stated = getattr(enums, enum)[stated.removeprefix(f"{field.type}_")]
        fields[field.python_name] = bool(stated) if field.type == "BOOL" else stated
    return descs.by_name(schema.name)(**fields)


def listed(value):
    return value if isinstance(value, list) else [value]


# -- layouts against brute force ------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.data())
def test_layouts_are_accepted_when_they_fit_and_outputs_do_not_overlap(data):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    strides = data.draw(st.lists(st.integers(0, 20), min_size=len(sizes), max_size=len(sizes)))
    data_type = data.draw(st.sampled_from([F32, F16, U8]))
    slack = data.draw(st.sampled_from([-4, -1, 0, 1, 4]))
    places = [
        sum(index * stride for index, stride in zip(at, strides, strict=True))
        for at in itertools.product(*map(range, sizes))
    ]
    total = -(-(max(places) + 1) * data_type.bits // 32) * 4 + slack
    layout = TensorDesc(data_type, sizes, strides, total_tensor_size_in_bytes=total)
    plain = TensorDesc(data_type, sizes)
    fits = slack in (0, 4)
    assert accepted(identity(layout, plain)) == fits
    assert accepted(identity(plain, layout)) == (fits and len(set(places)) == len(places))


def accepted(desc):
    try:
        validate(desc)
    except InvalidDescription:
        return False
    return True
