"""The catalog: facts from DirectML's documents, and the invariants that validation relies on."""

import itertools
import json
from pathlib import Path

import pytest

from dmlgpu.catalog import (
    FieldKind,
    catalog,
    class_name,
    enumerations,
    feature_levels,
    loader,
    operator,
    to_directml,
    to_snake,
)
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.common.errors import InvalidArgument

OPERATORS = list(catalog().values())
LEVEL = FeatureLevel.from_label


def tables(schema):
    """Yield every entry of an operator's support tables: (level, field name, entry)."""
    for support in (schema.support, *(variant.support for variant in schema.variants)):
        for level, table in support.items():
            for name, entry in table.items():
                yield level, name, entry


def test_the_catalog_has_all_operators():
    values = {name: value for name, value in enumerations()["OPERATOR_TYPE"].values.items() if name != "INVALID"}
    assert len(OPERATORS) == 177
    assert {schema.name: schema.enum_value for schema in OPERATORS} == values
    assert [schema.enum_value for schema in OPERATORS] == sorted(values.values())


def test_every_entry_of_the_file_is_an_operator():
    entries = json.loads((Path(loader.__file__).parent / "operators.json").read_text(encoding="utf-8"))
    assert list(catalog()) == list(entries)
    for name, entry in entries.items():
        schema = operator(name)
        assert [field.name for field in schema.fields] == [field["name"] for field in entry["fields"]]
        assert [level.label for level in schema.support] == list(entry["support"])
        assert schema.aliases == tuple(entry.get("aliases", ()))
        variants = [(variant.field, sorted(variant.members), len(variant.support)) for variant in schema.variants]
        assert variants == [
            (variant["field"], sorted(variant["members"]), len(variant["support"]))
            for variant in entry.get("variants", ())
        ]


def test_gather_nd1_as_documented():
    schema = operator("GATHER_ND1")
    assert (schema.enum_value, schema.feature_level.label, schema.supersedes) == (140, "3_0", "GATHER_ND")
    assert schema.document == "ns-directml-dml_gather_nd1_operator_desc"
    assert [field.python_name for field in schema.fields] == [
        "input_tensor",
        "indices_tensor",
        "output_tensor",
        "input_dimension_count",
        "indices_dimension_count",
        "batch_dimension_count",
    ]
    indices = schema.support_at(LEVEL("6_4"))["IndicesTensor"]
    assert (indices.min_dimensions, indices.max_dimensions) == (1, 8)
    assert [data_type.name for data_type in indices.types] == ["INT64", "INT32", "UINT64", "UINT32"]
    assert DataType.FLOAT64 not in schema.support_at(LEVEL("4_0"))["InputTensor"].types
    assert DataType.FLOAT64 in schema.support_at(LEVEL("4_1"))["InputTensor"].types
    assert schema.support_at(LEVEL("2_1")) == {}
    assert schema.examples[0]["tensors"]["OutputTensor"]["values"] == [2, 3, 0, 1]


def test_a_table_holds_until_the_next_one():
    schema = operator("ELEMENT_WISE_IDENTITY")
    ranks = {label: schema.support_at(LEVEL(label))["InputTensor"] for label in ("1_0", "2_0", "2_1", "3_0", "6_4")}
    assert {
        label: (entry.min_dimensions, entry.max_dimensions, len(entry.types)) for label, entry in ranks.items()
    } == {
        "1_0": (4, 5, 2),
        "2_0": (4, 5, 2),
        "2_1": (4, 5, 8),
        "3_0": (1, 8, 8),
        "6_4": (1, 8, 11),
    }


def test_reduce_has_tables_per_group_of_functions():
    schema = operator("REDUCE")
    groups = {frozenset(variant.members): variant for variant in schema.variants}
    assert set().union(*groups) == set(enumerations()["REDUCE_FUNCTION"].values)
    assert sum(len(group) for group in groups) == 12
    extremes = groups[frozenset({"ARGMIN", "ARGMAX"})]
    assert extremes.field == "Function"
    assert schema.support_at(LEVEL("2_1"), extremes)["OutputTensor"].types == (DataType.UINT32,)
    squares = groups[frozenset({"L1", "SUM_SQUARE"})]
    assert DataType.INT32 in schema.support_at(LEVEL("5_0"), squares)["InputTensor"].types
    assert DataType.INT32 not in schema.support_at(LEVEL("4_1"), squares)["InputTensor"].types


def test_counts_of_arrays_do_not_exist_in_python():
    schema = operator("CONVOLUTION")
    assert schema.field("DimensionCount").is_count
    assert not schema.field("GroupCount").is_count
    assert schema.field("Strides").count_field == "DimensionCount"
    assert "dimension_count" not in [field.python_name for field in schema.python_fields]


def test_aliases_and_case():
    assert operator("SCATTER") is operator("SCATTER_ELEMENTS") is operator("scatter_elements")


def test_an_unknown_operator_suggests_similar_names():
    with pytest.raises(InvalidArgument) as caught:
        operator("GATHER_ND2")
    assert str(caught.value).startswith("DirectML has no operator 'GATHER_ND2'; similar names: GATHER_ND")
    with pytest.raises(InvalidArgument, match=r"^DirectML has no operator 'zzz'$"):
        operator("zzz")


def test_fusable_activations():
    fusions = {schema.name: (schema.fusion.level.label, schema.fusion.into) for schema in OPERATORS if schema.fusion}
    assert len(fusions) == 20
    assert fusions["ELEMENT_WISE_CLIP"] == ("6_0", ("CONVOLUTION", "GEMM"))
    assert fusions["ACTIVATION_SOFTMAX1"] == ("6_1", ("GEMM",))
    assert fusions["ACTIVATION_SHRINK"] == ("2_0", None)
    assert fusions["ACTIVATION_GELU"] == ("5_1", None)
    assert not {"ACTIVATION_SWISH", "ACTIVATION_HARDMAX", "ACTIVATION_PARAMETERIZED_RELU"} & set(fusions)


def test_recurrent_networks_take_no_owned_inputs():
    assert {schema.name for schema in OPERATORS if not schema.owned_inputs} == {"RNN", "LSTM", "GRU"}


def test_feature_levels():
    labels = ["1_0", "2_0", "2_1", "3_0", "3_1", "4_0", "4_1", "5_0", "5_1", "5_2", "6_0", "6_1", "6_2", "6_3", "6_4"]
    levels = feature_levels()
    assert [level.label for level in levels] == labels
    assert levels[LEVEL("3_0")].directml_version == "1.4.0"
    assert "GATHER_ND1" in levels[LEVEL("3_0")].introduced
    introduced = {name: level for level, entry in levels.items() for name in entry.introduced}
    assert {schema.name: schema.feature_level for schema in OPERATORS} == introduced


# -- invariants that other code relies on ---------------------------------------------------------------------


@pytest.mark.parametrize("schema", OPERATORS, ids=lambda schema: schema.stem)
def test_tables_are_complete(schema):
    tensors = {field.name for field in schema.tensor_fields}
    for support in (schema.support, *(variant.support for variant in schema.variants)):
        assert min(support) == schema.feature_level
        assert all(set(table) == tensors for table in support.values())


@pytest.mark.parametrize("schema", OPERATORS, ids=lambda schema: schema.stem)
def test_tables_use_only_features_of_their_level(schema):
    introduced = enumerations()["TENSOR_DATA_TYPE"]
    for level, name, entry in tables(schema):
        limit = 8 if level >= LEVEL("3_0") else 5
        assert 1 <= entry.min_dimensions <= entry.max_dimensions <= limit, (level, name)
        assert entry.types and DataType.UNKNOWN not in entry.types
        assert all(
            introduced.value_levels.get(data_type.name, introduced.level) <= level for data_type in entry.types
        ), (level, name)


def test_activations_have_no_fifth_dimension_below_2_0():
    # The documents allow them strides from 2_0 on only, which validation need not check for this reason.
    activations = [schema for schema in OPERATORS if schema.name.startswith("ACTIVATION_")]
    old = [entry for schema in activations for level, _, entry in tables(schema) if level < LEVEL("2_0")]
    assert old and all(entry.max_dimensions == 4 for entry in old)


@pytest.mark.parametrize("schema", OPERATORS, ids=lambda schema: schema.stem)
def test_descriptions_are_complete(schema):
    names = [field.name for field in schema.fields]
    assert len(set(names)) == len(names)
    assert schema.summary and schema.formula and schema.document
    assert any(field.kind is FieldKind.OUTPUT for field in schema.fields)
    assert not any(field.is_array and field.optional for field in schema.fields)
    for relation in schema.relations:
        assert list(relation.tensors) == sorted(relation.tensors, key=names.index)
        assert set(relation.same) <= {"DataType", "DimensionCount", "Sizes"}


@pytest.mark.parametrize("schema", OPERATORS, ids=lambda schema: schema.stem)
def test_arrays_that_share_a_length_have_a_tensor_that_gives_it(schema):
    arrays = sorted((field for field in schema.fields if field.is_array), key=lambda field: field.count_field)
    for count, group in itertools.groupby(arrays, key=lambda field: field.count_field):
        shared = len(list(group)) > 1
        rule = schema.counts.get(count)
        assert not shared or (rule is not None and rule.tensor is not None)
        assert rule is None or rule.tensor is None or not schema.field(rule.tensor).optional


def test_newer_and_older_operators_name_each_other():
    for schema in OPERATORS:
        if schema.supersedes:
            assert operator(schema.supersedes).superseded_by == schema.name
        if schema.superseded_by:
            assert operator(schema.superseded_by).supersedes == schema.name


def test_hosts_of_fused_activations_compute_floats_only():
    # So that validation need not compare the activation's types with the host's.
    hosts = {schema.name: schema for schema in OPERATORS if schema.accepts_fused_activation}
    assert len(hosts) == 8
    for schema in hosts.values():
        for _, name, entry in tables(schema):
            assert name != "OutputTensor" or set(entry.types) <= {DataType.FLOAT16, DataType.FLOAT32}


def test_scalars_come_with_one_data_type_and_one_output():
    for schema in OPERATORS:
        types = [field for field in schema.fields if field.type == "DML_TENSOR_DATA_TYPE"]
        scalars = [field for field in schema.fields if field.type == "SCALAR_UNION"]
        outputs = [field for field in schema.fields if field.kind is FieldKind.OUTPUT]
        assert bool(types) == bool(scalars)
        assert not types or (len(types) == len(outputs) == 1 and not outputs[0].optional)


# -- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("directml", "python"),
    [
        ("InputTensor", "input_tensor"),
        ("ATensor", "a_tensor"),
        ("AZeroPointTensor", "a_zero_point_tensor"),
        ("ROITensor", "roi_tensor"),
        ("OutputROIGradientTensor", "output_roi_gradient_tensor"),
        ("K", "k"),
        ("TransA", "trans_a"),
        ("SpatialScaleX", "spatial_scale_x"),
        ("Beta1", "beta1"),
    ],
)
def test_field_names(directml, python):
    assert to_snake(directml) == python
    assert to_directml(python) == directml


def test_field_names_map_one_to_one():
    names = {field.name for schema in OPERATORS for field in schema.fields}
    assert {to_directml(to_snake(name)) for name in names} == names
    assert len({to_snake(name) for name in names}) == len(names)
    assert all(to_snake(name).isidentifier() for name in names)


@pytest.mark.parametrize(
    ("directml", "python"),
    [
        ("GATHER_ND1", "GatherNd1"),
        ("ELEMENT_WISE_IDENTITY", "ElementWiseIdentity"),
        ("LSTM", "Lstm"),
        ("UPSAMPLE_2D", "Upsample2d"),
    ],
)
def test_class_names(directml, python):
    assert class_name(directml) == python
