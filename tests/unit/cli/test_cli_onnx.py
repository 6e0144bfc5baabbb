"""``dmlgpu run MODEL.onnx`` and ``dmlgpu show MODEL.onnx``."""

import json
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlgpu.bench.ceilings import CachedCeilings, Ceilings, Share, load_ceilings, save_ceilings
from dmlgpu.bench.counting import Counts
from dmlgpu.bench.profiles import tables
from dmlgpu.cli import show
from dmlgpu.cli.profile_onnx import device_ceilings, print_profile
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.target import Target
from dmlgpu.frontends.onnx import placement
from dmlgpu.frontends.onnx.operators import elementwise
from dmlgpu.frontends.onnx.placement import Placement
from dmlgpu.frontends.onnx.watching import RunProfile
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.cli.cli_process import run_here

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def model(tmp_path):
    """A model y = relu(x w), and one whose shapes depend on elements: the indices of positive ones."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="/head/linear/product"),
        helper.make_node("Tanh", ["product"], ["y"], name="bounded"),
        helper.make_node("NonZero", ["x"], ["places"], name="places"),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 32]),
            helper.make_tensor_value_info("places", TensorProto.INT64, None),
        ],
        [numpy_helper.from_array(np.eye(4, 32, dtype=np.float32), "w")],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    np.save(tmp_path / "x.npy", X)
    return path


def options(model, *more):
    return "run", model, "--adapter", "numpy", "--input", f"x={model.parent / 'x.npy'}", *more


CEILINGS = Ceilings(copy=1e9, multiply_add=1e6, launch=1e-9, submission=1e-9, source="wall clock")
"""Of a device that multiplies slowly, so that products are bound by that."""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setattr("dmlgpu.bench.ceilings.cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def test_run_profiles_traces_and_repeats(model, tmp_path, cache):
    save_ceilings(NUMPY_ADAPTER, CachedCeilings(CEILINGS, 0.0))
    more = ("--repeat", "3", "--profile", "--trace", tmp_path / "t.json")
    done = run_here(*options(model, "-o", tmp_path / "out", *more))
    assert (done.returncode, done.stderr) == (0, "")
    np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), np.tanh(X @ np.eye(4, 32)), rtol=1e-5)
    assert re.search(r"first run [\d.]+ ms, then [\d.]+ ms \([\d.]+ to [\d.]+, 2 runs\)", done.stdout)
    assert re.search(r"ms +% +ceiling % +of +times +kernel +nodes", done.stdout)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {event["tid"] for event in events if event["ph"] == "X"} == {1, 2}
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in events if event["ph"] == "X")


def test_a_profile_shares_kernels_among_nodes_operators_and_modules(capsys):
    profile = RunProfile(kernels=[("product", 0.0, 0.003), ("rest", 0.003, 0.001), ("product", 0.004, 0.001)])
    placement = [
        Placement("/head/linear", "MatMul", "device", (), ("product",)),
        Placement("/head/act", "Tanh", "device", (), ("product",)),
        Placement("/tail/out", "Neg", "device", (), ("rest",)),
    ]
    print_profile(tables(profile, placement, None), None)
    out = capsys.readouterr().out
    assert re.search(r"4\.000 +80\.0 +2 +product +MatMul /head/linear, Tanh /head/act", out)
    assert re.search(r"2\.000 +40\.0 +MatMul /head/linear\n", out)
    assert re.search(r"1\.000 +20\.0 +Neg\n", out)
    assert re.search(r"ms +% +ceiling % +of +module\n4\.000 +80\.0 +/head\n1\.000 +20\.0 +/tail\n", out)


def test_a_profile_tells_the_share_of_the_ceiling(model, tmp_path, cache):
    save_ceilings(NUMPY_ADAPTER, CachedCeilings(CEILINGS, 0.0))
    shorter = onnx.load(model)
    del shorter.graph.node[2], shorter.graph.output[1]  # what elements decide about
    onnx.save(shorter, model)
    done = run_here(*options(model, "--profile", "--profile-json", tmp_path / "profile.json"))
    assert (done.returncode, done.stderr) == (0, "")
    results = json.loads((tmp_path / "profile.json").read_text())
    assert results["ceilings"] == CEILINGS.to_json()
    (whole,) = results["kernels"]  # numpy runs a graph as a whole
    assert whole["operations"] == 2 * 3 * 4 * 32 + 3 * 32  # the product, and one for each element of Tanh
    assert whole["bound_by"] == results["total"]["bound_by"] == "multiply-add"
    least = whole["operations"] / CEILINGS.multiply_add
    assert whole["share"] == pytest.approx(least / whole["seconds"])
    assert f"{100 * whole['share']:.0f}  multiply-add" in done.stdout


def test_rows_of_several_kernels_have_the_sum_of_their_least_times(monkeypatch):
    work = {"product": Counts(10**5, 2000, kernels=1), "copy": Counts(10**6, 1, kernels=1)}
    monkeypatch.setattr("dmlgpu.bench.profiles.counts_by_label", lambda segments: work)
    profile = RunProfile(kernels=[("product", 0.0, 0.004), ("copy", 0.004, 0.002)])
    placement = [
        Placement("a", "MatMul", "device", (), ("product",)),
        Placement("b", "Relu", "device", (), ("product", "copy")),
    ]
    result = tables(profile, placement, CEILINGS)
    assert [(row.share.share, row.share.bound_by) for row in result.kernels] == [
        (pytest.approx(0.5), "multiply-add"),  # 2 ms of 4
        (pytest.approx(0.5), "copy"),  # 1 ms of 2
    ]
    assert result.total.share == Share(pytest.approx(0.5), "multiply-add")
    relu = next(row for row in result.nodes if row.name == "Relu b")
    assert (relu.seconds, relu.part) == (pytest.approx(0.004), pytest.approx(4 / 6))
    assert relu.share.share == pytest.approx(0.5)  # 1 ms of half the product and 1 ms of the copy


def test_ceilings_are_measured_once_with_a_notice(cache, capsys):
    now = iter([0.0, 2.5])
    device = Device("numpy")
    first = device_ceilings(device, lambda _: CEILINGS, lambda: next(now))
    assert (first, "measured the ceilings of" in (messages := capsys.readouterr().err)) == (CEILINGS, True)
    assert "in 2.5 s" in messages
    if not load_ceilings(NUMPY_ADAPTER).doubt:  # a busy machine measures again once it is quiet
        assert device_ceilings(device, pytest.fail) == CEILINGS


def test_ceilings_that_cannot_be_measured_are_reported(cache, capsys):
    def refused(device):
        raise NotSupported("no kernels")

    assert device_ceilings(Device("numpy"), refused) is None
    assert "could not be measured: no kernels" in capsys.readouterr().err


def test_check_names_the_first_node_that_diverges(model, tmp_path, monkeypatch):
    output = run_here(*options(model, "--check"))
    assert "compared with reference" in output.stdout
    assert "all 3 node outputs agree" in output.stdout
    pytest.importorskip("onnxruntime")
    monkeypatch.setitem(elementwise.UNARY, "Tanh", lambda x: x * 2)
    output = run_here(*options(model, "--check", "-o", tmp_path / "out"))
    assert "Tanh 'bounded': output 'y' differs from onnxruntime" in output.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out" / "divergent" / "product.npy"), X @ np.eye(4, 32), rtol=1e-5)


def test_options_of_other_models_are_rejected(tmp_path):
    path = tmp_path / "model.json"
    path.write_text("{}")
    assert "need an ONNX model" in run_here("run", path, "--profile").stderr
    assert "--shape needs an ONNX model" in run_here("show", "gemm", "--shape", "x=1").stderr


def test_warm_compiles_and_does_not_run(model):
    warm = ("run", model, "--adapter", "numpy", "--warm")
    done = run_here(*warm, "--shape", "x=2x4", "--shape", "x=3x4", "--shape", "x=2x4")
    assert (done.returncode, done.stderr) == (0, "")
    lines = re.sub(r"\d+\.\d s", "T", done.stdout).splitlines()[1:]
    # Each shape has one graph before the coordinates are read; the third is the first again.
    assert lines == [
        "shapes 1 of 3: compiled 3 operators in T",
        "shapes 2 of 3: compiled 3 operators in T",
        "ready for 3 sets of shapes after T",
    ]
    by_dimension = run_here(*warm, "--shape", "rows=5")
    assert re.sub(r"\d+\.\d s", "T", by_dimension.stdout).splitlines()[1:] == [
        "shapes 1 of 1: compiled 3 operators in T",
        "ready for 1 set of shapes after T",
    ]
    by_array = run_here(*options(model, "--warm"))
    assert (by_array.returncode, "y: float32" in by_array.stdout) == (0, False)


def test_names_with_one_shape_are_in_all_sets(tmp_path):
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", "columns"]) for name in ("x", "y")]
    output = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "sum", inputs, [output])
    onnx.save(helper.make_model(graph, ir_version=10), tmp_path / "sum.onnx")
    warm = ("run", tmp_path / "sum.onnx", "--adapter", "numpy", "--warm", "--shape", "columns=3")
    done = run_here(*warm, "--shape", "rows=2", "--shape", "rows=4")
    assert "shapes 2 of 2: compiled 1 operator in" in done.stdout
    wrong = run_here(*warm, "--shape", "columns=4", *("--shape", "rows=2", "--shape", "rows=4", "--shape", "rows=5"))
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "dmlgpu: run: --shape must give each name one shape or 3, as 'rows' has, got 2 for 'columns'\n",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "x=2x4"], "run: --shape needs --warm; without it, the arrays of --input have the shapes"),
        (["--warm", "--repeat", "2"], "run: --warm compiles and does not run; of the other options, only --shape,"),
        (["--warm", "-o", "results"], "run: --warm compiles and does not run"),
        (["--warm", "--inputs", "*.npy"], "run: --inputs runs a model once per file; --input, --check, --profile,"),
        (["--warm"], "shapes must give input 'x: float32[rows, 4]' a shape, got [None, 4]"),
        (["--warm", "--shape", "x=2y4"], "a shape must be NAME=1x3x48x192, got 'x=2y4'"),
        (["--warm", "--shape", "y=2x4"], "shapes must name inputs or dimensions (x, rows), got 'y'"),
    ],
)
def test_wrong_options_of_warm_are_2(model, arguments, message):
    done = run_here("run", model, "--adapter", "numpy", *arguments)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_warm_with_a_shape_and_an_array_of_one_input_is_2(model):
    done = run_here(*options(model, "--warm", "--shape", "x=2x4"))
    assert done.returncode == 2
    assert done.stderr == "dmlgpu: run: --shape and --input both give input 'x'; leave one out\n"


def test_scripts_of_pydirectml_are_run_by_another_command(tmp_path):
    done = run_here("run", tmp_path / "pd.py")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "dmlgpu: run: model must be a .onnx or DxDispatch's .json file, got a Python script; for one that imports "
        f"pydirectml: python -m dmlgpu.frontends.pydirectml {tmp_path / 'pd.py'}"
    ]


def test_show_prints_where_nodes_run(model):
    text = run_here("show", model, "--adapter", "numpy", "--shape", "x=3x4").stdout
    assert re.search(r"outputs +y \[rows, 32\]", text)
    assert re.search(r"x +\[3, 4\]|inputs +x \[3, 4\]", text)
    assert re.search(r"device +MatMul +/head/linear/product +dmlgpu\.reference\.matrix\.gemm", text)
    assert "the remaining nodes depend on values computed at run time, from NonZero 'places' on" in text
    assert "must have sizes ['rows', 4]" in run_here("show", model, "--adapter", "numpy", "--shape", "x=3x5").stderr


def test_show_looks_into_bodies_and_names_host_nodes(tmp_path):
    """A model that is an If alone, as exports for two rates are: its weights and nodes are those of the branches."""

    def branch(name, width):
        nodes = [
            helper.make_node("Constant", [], [f"{name}_w"], value=numpy_helper.from_array(np.ones((4, width), "f"))),
            helper.make_node("MatMul", ["x", f"{name}_w"], [f"{name}_product"]),
            helper.make_node("Add", [f"{name}_product", f"{name}_b"], [name]),
        ]
        bias = numpy_helper.from_array(np.ones(width, np.float32), f"{name}_b")
        return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(name)], [bias])

    branches = {"then_branch": branch("fast", 2), "else_branch": branch("slow", 3)}
    nodes = [
        helper.make_node("Equal", ["rate", "sixteen"], ["is_fast"], name="compared"),
        helper.make_node("If", ["is_fast"], ["y"], name="chosen", **branches),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4]),
            helper.make_tensor_value_info("rate", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.int64(16000), "sixteen")],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    text = run_here("show", path, "--adapter", "numpy").stdout
    assert re.search(r"weights +108 bytes", text)
    assert re.search(r"in subgraphs +2 MatMul, 2 Add", text)
    assert re.search(r"host +Equal +compared +few integers, computed by the host when needed", text)
    assert "from If 'chosen' on" in text
    assert "dimensions" not in text


def test_show_says_which_dimensions_it_took_as_1(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="windows")],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, "samples"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((1, 1, 5), np.float32), "w")],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    text = run_here("show", path, "--adapter", "numpy").stdout
    assert "not supported for these shapes: Conv 'windows'" in text
    assert "free dimensions default to 1 (x); set them with --shape" in text
    assert "not for" not in run_here("show", path, "--adapter", "numpy", "--shape", "x=1x1x9").stdout


def test_show_lists_unsupported_nodes(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Nothing", ["x"], ["y"], domain="odd", name="unknown")],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    sets = [helper.make_opsetid("", 20), helper.make_opsetid("odd", 1)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=10), tmp_path / "m.onnx")
    results = json.loads(run_here("show", tmp_path / "m.onnx", "--adapter", "numpy", "--json").stdout)
    assert results["unsupported"] == {"odd.Nothing": ["unknown"]}


def test_why_lists_the_schedules_of_each_step(model, monkeypatch):
    path = model
    assert "runs no kernels" in run_here("show", path, "--adapter", "numpy", "--why").stderr
    for module in (placement, show):
        monkeypatch.setattr(module, "target_of", lambda info, *_: Target("any"))
    text = run_here("show", path, "--adapter", "numpy", "--why").stdout
    assert "  strided      for GPUs\n" in text
    choices = json.loads(run_here("show", path, "--adapter", "numpy", "--why", "--json").stdout)["choices"]
    assert {tuple(choice) for choice in choices} == {("step", "kind", "label", "schedules")}
