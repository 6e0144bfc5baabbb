"""``dmlgpu ops``."""

import importlib
import json
import re
from pathlib import Path

import pytest

from dmlgpu.cli import ops
from dmlgpu.compiler import operators
from tests.unit.cli.cli_process import dmlgpu, run_here

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def listing():
    return json.loads(run_here("ops", "--json").stdout)


def test_the_whole_catalog_as_aligned_text():
    done = dmlgpu("ops")
    heading, *rows = done.stdout.splitlines()
    assert len(rows) == 177
    columns = [heading.index(name) for name in ("operator", "level", "implemented", "family", "summary")]
    row = next(row for row in rows if row.startswith("GATHER_ND1 "))
    assert [row[start:stop].rstrip() for start, stop in zip(columns, [*columns[1:], None], strict=True)] == [
        "GATHER_ND1",
        "3_0",
        "yes",
        "indexing",
        "GATHER_ND with leading batch dimensions shared by input, indices and output.",
    ]


def test_all_177_are_implemented(listing):
    assert [entry["name"] for entry in listing if not entry["implemented"]] == []
    assert len(listing) == 177


def test_implemented_ones_only(listing):
    shown = [row.split()[0] for row in run_here("ops", "--implemented").stdout.splitlines()[1:]]
    assert set(shown) == operators.implemented()
    assert [entry["name"] for entry in listing if entry["implemented"]] == shown


def test_an_older_operator_belongs_to_the_family_of_the_one_it_runs_as(listing):
    families = {entry["name"]: entry["family"] for entry in listing}
    assert families["GATHER_ND"] == families["GATHER_ND1"] == "indexing"


def test_operators_that_are_not_implemented_have_no_family(unregister):
    unregister("SLICE1")
    entries = json.loads(run_here("ops", "--json").stdout)
    assert {entry["family"] for entry in entries if entry["name"] == "SLICE1"} == {"-"}


def test_one_operator():
    done = run_here("ops", "slice1")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("SLICE1: Copies a strided window out of the input")
    for line in (
        "  status       implemented",
        "  class        dmlgpu.descs.Slice1",
        "  since        feature level 2_1",
        "  supersedes   SLICE",
        "  fields       input_tensor: TENSOR (input)",
        "               input_window_strides: tuple of INT (attribute)",
        "  shader       shaders/layout/slice1.wgsl",
        "  reference    dmlgpu.reference.layout.slice1",
        "  document     https://learn.microsoft.com/windows/win32/api/directml/ns-directml-dml_slice1_operator_desc",
    ):
        assert line in lines, line
    assert any(line.startswith("  formula") for line in lines)
    assert any("from 2_1" in line for line in lines)


def test_operators_that_are_not_implemented_have_no_shader(unregister):
    unregister("LSTM")
    text = run_here("ops", "LSTM").stdout
    assert "not implemented yet" in text
    assert "shaders/" not in text


def test_json_of_one_operator():
    entry = json.loads(run_here("ops", "SCATTER", "--json").stdout)
    assert entry["name"] == "SCATTER_ELEMENTS"
    assert entry["aliases"] == ["SCATTER"]
    assert [field["name"] for field in entry["fields"]] == [
        "input_tensor",
        "indices_tensor",
        "updates_tensor",
        "output_tensor",
        "axis",
    ]
    assert entry["support"]["4_1"]["indices_tensor"] == {
        "dimension_counts": [1, 8],
        "types": ["INT64", "INT32", "UINT64", "UINT32"],
    }


def test_a_word_finds_operators_by_their_names_elsewhere():
    done = run_here("ops", "layer_norm")
    heading, *rows = done.stdout.splitlines()
    assert (done.returncode, heading.split()) == (0, ["operator", "level", "functions", "found", "as", "summary"])
    assert re.split(r"\s{2,}", rows[0])[:4] == [
        "MEAN_VARIANCE_NORMALIZATION2",
        "6_3",
        "ops.layer_norm and 5 more",
        "PyTorch layer_norm, PyTorch nn.LayerNorm",
    ]
    assert [row.split()[0] for row in rows[1:]] == ["MEAN_VARIANCE_NORMALIZATION", "MEAN_VARIANCE_NORMALIZATION1"]


@pytest.mark.parametrize(("word", "function"), [("einsum", "ops.einsum"), ("random", "dmlgpu.random.default_rng")])
def test_a_word_finds_the_function_to_call(word, function):
    assert re.split(r"\s{2,}", run_here("ops", word).stdout.splitlines()[1])[2].split(" and ")[0] == function


def test_search_results_as_json():
    entries = json.loads(run_here("ops", "bmm", "--json").stdout)
    assert [(entry["name"], entry["found_as"]) for entry in entries] == [("GEMM", ["PyTorch bmm"])]


def test_search_omits_operators_that_are_not_implemented(unregister):
    unregister("GEMM")
    entries = json.loads(run_here("ops", "matmul", "--implemented", "--json").stdout)
    assert entries and "GEMM" not in [entry["name"] for entry in entries]


def test_one_operator_says_its_names_elsewhere():
    lines = run_here("ops", "gemm").stdout.splitlines()
    assert any(line.startswith("  elsewhere    ONNX: Gemm, MatMul") for line in lines)
    entry = json.loads(run_here("ops", "gemm", "--json").stdout)
    assert entry["task"] == "Products of matrices" and "bmm" in entry["elsewhere"]["torch"]


def test_unknown_names_suggest_near_ones():
    done = run_here("ops", "gahternd1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dmlgpu: DirectML has no operator 'gahternd1'; similar names: GATHER_ND1, GATHER_ND\n"


@pytest.mark.slow
def test_paths_that_are_printed_exist(listing, capsys):
    for entry in listing:
        ops.show(entry["name"], implemented=False, as_json=True)  # a process for each takes a minute
        document = json.loads(capsys.readouterr().out)
        assert document["shaders"], entry["name"]
        assert all((ROOT / path).is_file() for path in document["shaders"]), document["shaders"]
        module, _, function = document["reference"].rpartition(".")
        assert callable(getattr(importlib.import_module(module), function))
