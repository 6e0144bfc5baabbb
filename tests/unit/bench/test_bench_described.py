"""Rows of suites that describe their operators themselves."""

from pathlib import Path

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.bench.aims import read_aims
from dmlgpu.bench.specs import BenchSpec
from dmlgpu.bench.workload import Contents, fill, read_contents, read_desc
from dmlgpu.catalog.enums import DataType, MatrixTransform
from dmlgpu.catalog.operator_desc import Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.cli.subjects import find_workloads
from dmlgpu.common.errors import DmlError, InvalidArgument, ModelError
from dmlgpu.compiler.explain import check

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FLOAT = DataType.FLOAT32


def test_fields_are_those_of_the_description():
    desc = read_desc(
        "GEMM",
        {
            "a_tensor": [4, 3],
            "b_tensor": {"sizes": [5, 4], "type": "float16", "strides": [0, 1]},
            "output_tensor": [3, 5],
            "trans_a": "TRANSPOSE",
            "alpha": 2,
        },
    )
    expected = descs.Gemm(
        a_tensor=TensorDesc(FLOAT, (4, 3)),
        b_tensor=TensorDesc(DataType.FLOAT16, (5, 4), (0, 1)),
        output_tensor=TensorDesc(FLOAT, (3, 5)),
        trans_a=MatrixTransform.TRANSPOSE,
        alpha=2,
    )
    assert desc == expected


def test_arrays_structures_and_types_are_read():
    joined = read_desc("JOIN", {"input_tensors": [[2, 3], [4, 3]], "output_tensor": [6, 3], "axis": 0})
    assert [tensor.sizes for tensor in joined.input_tensors] == [(2, 3), (4, 3)]
    rois = {"input_tensor": [1, 1, 8, 8], "roi_tensor": [1, 1, 2, 5], "output_tensor": [2, 1, 7, 3]}
    assert read_desc("ROI_POOLING", {**rois, "pooled_size": {"width": 3, "height": 7}}).pooled_size == Size2D(3, 7)
    padded = {"input_tensor": [2], "output_tensor": [3], "start_padding": [1], "end_padding": [0]}
    assert read_desc("PADDING1", {**padded, "padding_value_data_type": "FLOAT32"}).padding_value_data_type is FLOAT


@pytest.mark.parametrize(
    ("operator", "fields", "said"),
    [
        ("GEMM", {"c": 1}, "GEMM has no field 'c'; its fields are a_tensor, b_tensor"),
        ("GEMM", {"a_tensor": 3}, "desc.a_tensor must be a list of sizes, or a table of sizes, type, strides, got 3"),
        ("GEMM", {"a_tensor": {"sizes": [2], "layout": "x"}}, "must be a list of sizes, or a table"),
        ("GEMM", {"a_tensor": {"sizes": [2], "type": "float8"}}, "type must be a data type such as float16"),
        ("GEMM", {"trans_a": "SIDEWAYS"}, "desc.trans_a must be one of NONE, TRANSPOSE, got 'SIDEWAYS'"),
        ("GEMM", {"trans_a": 1}, "desc.trans_a must be one of NONE, TRANSPOSE, got 1"),
        ("JOIN", {"input_tensors": 3}, "desc.input_tensors must be a list, got 3"),
        ("ROI_POOLING", {"pooled_size": {"width": 3}}, "must be a table of width, height"),
        ("GEMM", {"fused_activation": {}}, "which a suite does not describe"),
        ("GEMM", {"b_tensor": [2, 3]}, "GEMM: desc must have a_tensor, output_tensor"),
    ],
)
def test_an_invalid_description_is_rejected(operator, fields, said):
    with pytest.raises(InvalidArgument, match=said):
        read_desc(operator, fields)


def test_contents_are_tables_by_number():
    assert read_contents("x", {"1": {"below": 5, "distinct": True}}) == {1: Contents(below=5, distinct=True)}
    for contents in ({"one": {"below": 5}}, {"1": 5}, {"1": {"above": 5}}):
        with pytest.raises(InvalidArgument, match="x: contents must hold tables of below, distinct, scale"):
            read_contents("x", contents)


def test_contents_can_be_sparse_or_regions():
    rng = np.random.default_rng(1)
    sparse = fill(rng, TensorDesc(FLOAT, (10000,)), Contents(density=0.1))
    assert set(sparse) == {0, 1}
    assert 800 < sparse.sum() < 1200
    regions = fill(rng, TensorDesc(FLOAT, (1, 1, 50, 5)), Contents(corners=9.0))[0, 0]
    assert regions.shape == (50, 5)
    assert (regions[:, 0] == 0).all()
    assert (regions[:, 1] < regions[:, 3]).all()
    assert (regions[:, 2] < regions[:, 4]).all()
    assert regions.min() >= 0
    assert 8 < regions.max() <= 9


def suite(folder, text):
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return [BenchSpec(str(path))]


def test_rows_are_workloads(tmp_path):
    text = (
        '[[row]]\nwhat = "ONE_HOT"\nname = "hot"\ncontents = { 0 = { below = 3 } }\n[row.desc]\n'
        'indices_tensor = { sizes = [8, 1], type = "uint32" }\nvalues_tensor = [1, 2]\n'
        "output_tensor = [8, 3]\naxis = 1\n"
    )
    (row,) = find_workloads(suite(tmp_path, text))
    workload = row.workload
    assert (workload.name, workload.operator, workload.data_type) == ("hot", "ONE_HOT", "uint32")
    indices, values = workload.inputs()
    assert indices.max() < 3
    assert values.shape == (1, 2)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('what = "GEMM"\ndesc = { a_tensor = [2] }', "must have an operator, a desc and a name"),
        ('what = "GEMM"\nname = "x"\ncontents = { 0 = { below = 3 } }', "must have an operator, a desc and a name"),
        ('what = "x.onnx"\nname = "x"\ndesc = { a_tensor = [2] }', "must have an operator, a desc and a name"),
        ('what = "GEMM"\nname = "x"\nsizes = "m=4"\ndesc = { a_tensor = [2] }', "sets its sizes, types and layouts"),
        ('what = "GEMM"\nname = "x"\ndesc = 3', "row 1: desc: must be a table, got 3"),
    ],
)
def test_rows_that_are_half_a_description_are_rejected(tmp_path, row, said):
    with pytest.raises(DmlError, match=said):
        find_workloads(suite(tmp_path, f"[[row]]\n{row}\n"))


def test_rows_of_a_suite_can_be_picked(tmp_path):
    (path,) = suite(tmp_path, '[[row]]\nwhat = "GEMM"\nname = "a"\n[[row]]\nwhat = "GEMM"\nname = "b"\n')
    assert [workload.workload.name for workload in find_workloads([BenchSpec(f"{path.what}:b")])] == ["b"]
    assert [workload.workload.name for workload in find_workloads([BenchSpec(f"{path.what}:gemm")])] == ["a", "b"]
    assert [workload.workload.name for workload in find_workloads([BenchSpec(f"{path.what}:b,a")])] == ["b", "a"]
    assert {workload.workload.operator for workload in find_workloads([BenchSpec("scaling:GEMM")])} == {"GEMM"}
    for names in ("c", "a,c"):
        with pytest.raises(InvalidArgument, match="has no row 'c'; its rows are a, b"):
            find_workloads([BenchSpec(f"{path.what}:{names}")])
    (path,) = suite(tmp_path, '[[row]]\nwhat = "GEMM"\nname = "a, b"\n')
    assert [workload.workload.name for workload in find_workloads([BenchSpec(f"{path.what}:a, b")])] == ["a, b"]


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.toml")), ids=lambda path: path.stem)
def test_suites_of_benchmarks_are_valid(path):
    rows = find_workloads([BenchSpec(str(path))])
    assert rows
    for row in rows:
        check(row.workload.desc)
        read_aims(row.workload.name, row.more.get("aims", {}))
        assert set(row.more) <= {"aims"}  # no misspelled key
        names = [name for name in row.schedules if name != "all"]
        assert not names
    names = [row.workload.name for row in rows]
    assert len(set(names)) == len(names)


def test_aims_that_are_none_are_rejected():
    assert read_aims("x", {"share": 1}) == {"share": 1.0}
    for aims, said in (
        (3, "must be a table of positive numbers"),
        ({"share": "0.5"}, "must be a table of positive numbers"),
        ({"share": True}, "must be a table of positive numbers"),
        ({"share": 0}, "must be a table of positive numbers"),
        ({"speed": 1}, "must have keys of share, numpy, choice, got 'speed'"),
    ):
        with pytest.raises(ModelError, match=said):
            read_aims("x", aims)
