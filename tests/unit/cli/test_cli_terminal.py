"""What the command line shows in a terminal of 80 columns: no number and no case's name vanishes there."""

from __future__ import annotations

import os
import re

import pytest

from dmlgpu.cli.tables import laid_out
from dmlgpu.common.files import growing_file
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.records import write_run
from tests.unit.cli.terminal import in_terminal
from tests.unit.conformance.report_runs import run

pytestmark = pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals on Windows")

ADAPTER = "Vulkan: llvmpipe (LLVM 15.0.6, 256 bits) (Mesa 25.0.7-2~bpo12+1 (LLVM 15.0.6))"
CASE = "activation_leaky_relu-values-float32-63x11-broadcast-special-s0"
LONG_NAME = f"""
from dmlgpu.cli import test
def summarize(counted, original=test.summarize):
    for adapter in counted:
        object.__setattr__(adapter.info, "name", {ADAPTER!r})
    original(counted)
test.summarize = summarize
"""
"""Gives the adapter of a run a name as llvmpipe has it."""


def test_an_adapter_gives_way_to_numbers():
    headings, lines = laid_out(("adapter", "pass", "fail"), [(ADAPTER, "1,018", "12")], (1, 2), 80)
    assert headings[0].split() == ["adapter", "pass", "fail"]
    assert lines[0].endswith("  1,018    12")
    assert " ".join(lines[0].split()[:-2] + lines[1].split()) == ADAPTER
    assert all(len(line) <= 80 for line in [*headings, *lines])


def test_nine_statuses_fit_next_to_an_adapter():
    statuses = ["pass", "fail", "not supported", "expected fail", "unexpected pass", "flaky", "crash", "time-out"]
    statuses.append("device lost")
    _, lines = laid_out(("adapter", *statuses), [(ADAPTER, *"123456789")], range(1, 10), 80)
    assert list("123456789") == lines[0].split()[-9:] or list("123456789") == lines[1].split()[-9:]
    assert all(len(line) <= 80 for line in lines[1:])


def test_a_name_that_leaves_no_room_stands_above_its_row():
    rows = [("regress", CASE, "pass, exact", "fail, 28,200 times the tolerance")]
    headings, lines = laid_out(("change", "case", "before", "after"), rows, (), 80)
    assert headings == ["case", "  change   before       after"]
    assert lines == [CASE, "  regress  pass, exact  fail, 28,200 times the tolerance"]


def test_a_table_with_room_is_one():
    headings, lines = laid_out(("a", "b"), [("x", "10"), ("longer", "1")], (1,), 80)
    assert [*headings, *lines] == ["a        b", "x       10", "longer   1"]


@pytest.mark.slow
def test_the_result_of_a_run_is_seen():
    code, shown = in_terminal("test", "-k", "argmin-example1", "-a", "numpy", setup=LONG_NAME)
    assert code == 0
    heading, first, second = shown.splitlines()[-3:]
    assert heading.split() == ["adapter", "pass"]
    assert first.endswith(" 1") and second


# ---- every verb


@pytest.fixture
def recorded(tmp_path):
    """A folder with two runs, the second of which is worse, by cases with long names on an adapter with a long one."""
    for index, status in enumerate((Status.PASS, Status.FAIL)):
        share = 0.0 if status is Status.PASS else 28171.0
        outcome = Outcome(CASE, status, of_bound=share, kernels=("leaky_relu x4 (activation/leaky_relu)",))
        recorded_run = run(outcome, name=ADAPTER)
        with growing_file(tmp_path / f"{index}.jsonl") as file:
            list(write_run(file, recorded_run.facts, recorded_run.outcomes))
    return tmp_path


@pytest.mark.slow
def test_a_regression_has_its_whole_name_and_both_results(recorded):
    code, shown = in_terminal("compare", recorded / "0.jsonl", recorded / "1.jsonl")
    assert code == 1
    lines = shown.splitlines()
    assert CASE in lines
    assert "regression" in lines[lines.index(CASE) + 1] and "28,200 times the tolerance" in lines[lines.index(CASE) + 1]


@pytest.mark.slow
def test_a_report_says_where_it_is(recorded):
    assert in_terminal("report", recorded / "1.jsonl", "-o", recorded / "x.html") == (0, f"{recorded / 'x.html'}\n")


def test_a_profile_names_its_kernels_and_nodes():
    nodes = [f"/model/layers.{index}/self_attn/rotary_emb/Slice_{index}" for index in range(4)]
    setup = f"""
from dmlgpu.cli import main, tables
def show(arguments=None):
    columns = ("ms", "%", "ceiling %", "of", "times", "kernel", "nodes")
    row = ("0.612", "22.1", "48", "multiply-add", "12", "gemm tiled 64x64 fused softmax", {", ".join(nodes)!r})
    tables.table(columns, [row, row], right=(0, 1, 2, 4))
    return 0
main.main = show
"""
    _, shown = in_terminal(setup=setup)
    assert all(node in shown for node in nodes)
    assert shown.count("0.612  22.1") == 2 and shown.count("gemm tiled") == 2
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.slow
@pytest.mark.parametrize("word", ["layernorm", "conv"])
def test_operators_that_a_word_finds(word):
    code, shown = in_terminal("ops", word)
    lines = shown.splitlines()
    assert code == 0 and len(lines) < 80
    assert all(len(line) <= 80 for line in lines)
    names = in_terminal("ops", word, columns=400)[1].split()
    assert {name for name in names if name.isupper() and "_" in name} <= set(shown.split())


@pytest.mark.slow
def test_devices_and_their_numbers():
    code, shown = in_terminal("devices", "-a", "numpy")
    assert code == 0 and "NumPy: numpy" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_all_findings_of_doctor_are_printed():
    text = "optional extra peers: dawn-python, ncnn, torch-cuda, taichi, tinygrad, onnxruntime-webgpu not installed"
    setup = f"""
from dmlgpu.cli import doctor
finding = doctor.DoctorFinding(False, {text!r}, "pip install 'dmlgpu[peers]', if you need it")
report = dict(versions=dict(python="3"), requirements=[], environment=dict(), caches=[])
doctor.examine = lambda: (report, (finding,))
"""
    code, shown = in_terminal("doctor", setup=setup)
    assert code == 0
    assert text in " ".join(shown.split())
    assert "environment" not in shown and shown.endswith("no problems found\n")


@pytest.mark.slow
def test_warm_shows_a_bar_and_estimates(tmp_path):
    onnx = pytest.importorskip("onnx")
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows"]) for name in ("x", "y"))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Tanh", ["x"], ["y"])], "tanh", [x], [y])
    onnx.save(onnx.helper.make_model(graph, ir_version=10), tmp_path / "tanh.onnx")
    shapes = [word for size in range(1, 5) for word in ("--shape", f"rows={size}")]
    code, shown = in_terminal("run", tmp_path / "tanh.onnx", "-a", "numpy", "--warm", *shapes)
    assert code == 0
    assert re.search(r"\[\.{20}\] 1 of 4: compiling 1 operator, \d+ s\s", shown)
    assert re.search(r"\[#{15}\.{5}\] 4 of 4: compiling 1 operator, \d+ s, about \d+ s left", shown)
    assert re.search(r"shapes 4 of 4: compiled 1 operator in \d+\.\d s\n", shown)
