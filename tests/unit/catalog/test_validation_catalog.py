"""Checks from the catalog: every operator at each of its levels; layouts against brute force."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgpu import descs, enums
from dmlgpu.catalog import catalog, class_name
from dmlgpu.catalog.descs import Size2D, TensorDesc
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.validation import validate
from dmlgpu.common.errors import InvalidDescription
from tests.unit.rejections import table_rejection

LEVEL = FeatureLevel.from_label
F32, F16, I32, U32, U8 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT32, DataType.UINT32, DataType.UINT8


def tensor(sizes, data_type=F32, **fields):
    return TensorDesc(data_type, sizes, **fields)


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
    """Return a data type per tensor that its table and the relations allow."""
    groups = {name: {name} for name in table}
    for relation in schema.relations:
        if "DataType" in relation.same:
            merged = set().union(*(groups[name] for name in relation.tensors))
            groups.update(dict.fromkeys(merged, merged))
    shared = {name: set.intersection(*(set(table[other].types) for other in groups[name])) for name in table}
    return {name: min(types) for name, types in shared.items()}


def common_ranks(schema, table):
    """Return a dimension count per tensor, equal within relations."""
    groups = {name: {name} for name in table}
    for relation in schema.relations:
        if {"DimensionCount", "Sizes"} & set(relation.same):
            merged = set().union(*(groups[name] for name in relation.tensors))
            groups.update(dict.fromkeys(merged, merged))
    return {name: max(table[other].min_dimensions for other in groups[name]) for name in table}


def smallest(schema, level):
    """Return a description with tensors of one element that breaks no rule of the catalog."""
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
def test_every_tensor_of_every_operator_is_checked_by_its_table(schema):
    for level, field in itertools.product(schema.support, schema.tensor_fields):
        first = schema.variants[0] if schema.variants else None
        entry, desc = schema.support_at(level, first)[field.name], smallest(schema, level)
        label = f"{field.python_name}[0]" if field.is_array else field.python_name
        for data_type in set(DataType) - set(entry.types):
            tensor = TensorDesc(data_type, (1,) * entry.min_dimensions)
            message = table_rejection(with_tensor(desc, field, tensor), level)
            assert message.startswith(f"{schema.name}: {label}.data_type must be ")
            assert f" at feature level {level.label}" in message and f", got {data_type.name}" in message
            assert message.endswith("UNKNOWN" if data_type is DataType.UNKNOWN else " converts it")
        for rank in (entry.min_dimensions - 1, entry.max_dimensions + 1):
            message = table_rejection(with_tensor(desc, field, TensorDesc(entry.types[0], (1,) * rank)), level)
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
    """Return the description of an example, or None if the page omits attributes."""
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


# ---- layouts against brute force


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
    assert accepted(copy(layout, plain)) == fits
    assert accepted(copy(plain, layout)) == (fits and len(set(places)) == len(places))


def copy(source, result):
    return descs.ElementWiseIdentity(input_tensor=source, output_tensor=result)


def accepted(desc):
    try:
        validate(desc)
    except InvalidDescription:
        return False
    return True
