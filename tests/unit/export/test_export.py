"""Exported folders: what is in them, what is rejected and how, and the command line."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlgpu
from dmlgpu import DataType, Graph, InvalidArgument, InvalidGraph, NotSupported, TensorDesc, descs, export
from dmlgpu.conformance.cases.registry import case_by_name
from dmlgpu.conformance.suites.combined import CombinedSuite
from dmlgpu.demo.palette import NAMES, Workbench, palette_graph, reduce_to_palette
from dmlgpu.export import folder as folders
from dmlgpu.export.cases import can_be_exported
from dmlgpu.ops import directml as dml
from dmlgpu.runtime.browser import frames
from dmlgpu.runtime.evaluate import run_compiled
from tests.unit.cli.cli_process import run_here
from tests.unit.frontends.onnx.onnx_models import model_of

DATA = Path(__file__).parents[2] / "data" / "dxdispatch"
PAIR = TensorDesc(DataType.FLOAT32, (2,))
MULTIPLY = descs.ElementWiseMultiply(a_tensor=PAIR, b_tensor=PAIR, output_tensor=PAIR)


def program(folder):
    return json.loads((folder / "program.json").read_bytes())


def multiplied(**options):
    """A graph y = x * w with an owned weight."""
    graph = Graph(dmlgpu.Device("numpy"), name="multiplied")
    x, w = graph.input((4,), name="x"), graph.input((4,), name="w", owned=True)
    return [dml.element_wise_multiply(x, w)], {"w": np.arange(4, dtype=np.float32), **options}


def test_a_folder_holds_program_weights_and_runtime(tmp_path):
    outputs, weights = multiplied()
    written = export.write(outputs, tmp_path, weights=weights, outputs=["y"])
    assert {file.name for file in tmp_path.iterdir()} == set(written.files)
    assert {name: (tmp_path / name).stat().st_size for name in written.files} == written.files
    document = program(tmp_path)
    assert [(input["name"], input["type"], input["shape"]) for input in document["inputs"]] == [("x", "FLOAT32", [4])]
    assert [(output["name"], output["bytes"]) for output in document["outputs"]] == [("y", 16)]
    assert document["made"] == {"dmlgpu": dmlgpu.__version__, "schedules": "gpu"}
    assert document["needs"]["features"] == []
    assert (tmp_path / "weights-0.bin").read_bytes() == weights["w"].tobytes()
    assert document["weights"][0]["sha256"] == hashlib.sha256(weights["w"].tobytes()).hexdigest()
    read_once = [buffer["name"] for buffer in document["buffers"] if buffer.get("initial")]
    assert read_once == ["weight 1"]
    assert len(document["initialization"]) == len(document["dispatches"]) == written.kernels == 1


def test_dispatches_are_as_webgpu_wants_them(tmp_path):
    """Offsets at multiples of 256, ranges of whole words inside their buffers, none of a dispatch over another."""
    export.write(palette_graph(40, 48, colors=4, iterations=2), tmp_path, outputs=NAMES)
    document = program(tmp_path)
    for dispatch in document["dispatches"]:
        assert document["shaders"][dispatch["shader"]]["bindings"] == len(dispatch["bind"])
        assert all(offset % 256 == 0 and size % 4 == 0 and size > 0 for _, offset, size in dispatch["bind"])
        assert all(offset + size <= document["buffers"][buffer]["bytes"] for buffer, offset, size in dispatch["bind"])
        for index, (buffer, offset, size) in enumerate(dispatch["bind"]):
            others = dispatch["bind"][index + 1 :]
            assert all(b != buffer or o >= offset + size or o + s <= offset for b, o, s in others)
    limits = document["needs"]["limits"]
    assert limits["maxStorageBufferBindingSize"] == max(
        size for dispatch in document["dispatches"] for *_, size in dispatch["bind"]
    )
    assert limits["maxStorageBuffersPerShaderStage"] <= 8


def test_a_folder_is_the_same_wherever_it_is_written(tmp_path):
    outputs, weights = multiplied()
    for name in ("one", "another"):
        export.write(outputs, tmp_path / name, weights=weights)
    for file in (tmp_path / "one").iterdir():
        data = file.read_bytes()
        assert data == (tmp_path / "another" / file.name).read_bytes()
        assert str(tmp_path).encode() not in data


def test_weights_are_cut_into_parts_and_equal_ones_kept_once(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "PART_BYTES", 1000)
    graph = Graph(dmlgpu.Device("numpy"))
    values = np.random.default_rng(1).standard_normal(400).astype(np.float32)
    x = graph.input((400,), name="x")
    first, second = graph.input((400,), name="a", owned=True), graph.input((400,), name="b", owned=True)
    export.write([dml.element_wise_multiply(x + first, second)], tmp_path, weights={"a": values, "b": values})
    document = program(tmp_path)
    assert [weight["bytes"] for weight in document["weights"]] == [1000, 600]
    assert b"".join((tmp_path / weight["file"]).read_bytes() for weight in document["weights"]) == values.tobytes()


def test_inputs_that_are_not_owned_may_be_weights(tmp_path):
    export.write(MULTIPLY, tmp_path, weights={"b": np.full(2, 2, np.float32)})
    document = program(tmp_path)
    assert [input["name"] for input in document["inputs"]] == ["a"]
    assert not any(buffer.get("initial") for buffer in document["buffers"])


def test_half_precision_requires_the_feature(tmp_path):
    half = TensorDesc(DataType.FLOAT16, (64,))
    desc = descs.ElementWiseMultiply(a_tensor=half, b_tensor=half, output_tensor=half)
    assert export.write(desc, tmp_path / "a").features == ()
    assert export.write(desc, tmp_path / "b", half_precision=True).features == ("shader-f16",)


def test_matrix_units_require_their_features(tmp_path):
    half = TensorDesc(DataType.FLOAT16, (1, 1, 64, 64))
    desc = descs.Gemm(a_tensor=half, b_tensor=half, output_tensor=half)
    assert export.write(desc, tmp_path / "a").features == ()
    features = ("chromium-experimental-subgroup-matrix", "shader-f16", "subgroups")
    assert export.write(desc, tmp_path / "b", matrices="16x16x16").features == features
    document = program(tmp_path / "b")
    assert "subgroup_matrix_left<f16, 16, 16>" in document["shaders"][0]["code"]
    assert document["made"]["matrices"] == "16x16x16"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"matrices": "2x2x2"}, "matrices must be 16x16x16 or 8x16x16 or 8x8x8, with schedules gpu, got '2x2x2'"),
        ({"matrices": "8x8x8", "schedules": "cpu"}, "matrices must be .*, with schedules gpu, got '8x8x8'"),
        ({"weights": {"c": np.zeros(2, np.float32)}}, "weights must be of the inputs a, b, got 'c'"),
        ({"weights": {"b": np.zeros(3, np.float32)}}, r"weights of 'b' must be an array of float32 with shape \(2,\)"),
        ({"weights": {"b": np.zeros(2)}}, "weights of 'b' must be .* got float64"),
        ({"weights": [1]}, "weights must be a mapping from names to arrays"),
        ({"inputs": ["a"]}, "inputs must be 2 names, got 1"),
        ({"inputs": ["a", "a"]}, "the names of inputs must differ, got 'a' twice"),
        ({"outputs": ["y", "z"]}, "outputs must be 1 names, got 2"),
        ({"schedules": "fast"}, "schedules must be gpu or cpu, got 'fast'"),
        ({"schedules": 1}, "schedules"),
        ({"half_precision": 1}, "half_precision"),
        ({"disabled_passes": ["none such"]}, "none such"),
        ({"disabled_passes": "dead"}, "disabled_passes"),
        ({"inputs": "ab"}, "inputs"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, options, message):
    with pytest.raises(InvalidArgument, match=message):
        export.write(MULTIPLY, tmp_path / "none", **options)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("graph", [None, 1, "graph", [], [1], object(), {}])
def test_values_that_are_no_graph_are_rejected(tmp_path, graph):
    with pytest.raises(InvalidArgument, match="graph must be a GraphDesc, an OperatorDesc or Expressions of a Graph"):
        export.write(graph, tmp_path)


@pytest.mark.parametrize("folder", [None, 1, b"\xff", "a\0b", object()])
def test_values_that_are_no_path_are_rejected(folder):
    for function, source in ((export.write, MULTIPLY), (export.write_onnx, b""), (export.write_dxdispatch, "x.json")):
        with pytest.raises(InvalidArgument, match=f"{function.__name__}: folder must be a path"):
            function(source, folder)


def test_an_owned_input_without_weights_is_rejected(tmp_path):
    outputs, _ = multiplied()
    with pytest.raises(InvalidArgument, match="input 'w' is OWNED_BY_DML, so weights must have its elements"):
        export.write(outputs, tmp_path)


def test_features_that_no_browser_has_are_rejected_by_name(tmp_path):
    double = TensorDesc(DataType.FLOAT64, (4,))
    scale = dmlgpu.ScaleBias(2.0, 1.0)
    desc = descs.ElementWiseIdentity(input_tensor=double, output_tensor=double, scale_bias=scale)
    with pytest.raises(NotSupported, match="FLOAT64"):
        export.write(desc, tmp_path)
    wrong = descs.ElementWiseMultiply(a_tensor=PAIR, b_tensor=double, output_tensor=PAIR)
    with pytest.raises(InvalidGraph, match="b_tensor"):
        export.write(wrong, tmp_path)


# ---- models ----------------------------------------------------------------------------------------------------------


def test_nodes_that_the_host_decides_about_are_named(tmp_path):
    nodes = [
        helper.make_node("Abs", ["x"], ["size"], name="magnitude"),
        helper.make_node("NonZero", ["size"], ["places"], name="where it is"),
    ]
    model = model_of(nodes, {"x": np.zeros((2, 3), np.float32)}, {"places": TensorProto.INT64})
    with pytest.raises(NotSupported, match="NonZero 'where it is'") as refused:
        export.write_onnx(model, tmp_path)
    assert "Abs" not in str(refused.value)
    noise = [helper.make_node("RandomNormalLike", ["x"], ["noise"], name="noisy")]
    model = model_of(noise, {"x": np.zeros((2, 3), np.float32)}, {"noise": TensorProto.FLOAT})
    with pytest.raises(NotSupported, match="RandomNormalLike 'noisy'"):
        export.write_onnx(model, tmp_path)


def test_types_that_pages_lack_are_named(tmp_path):
    for element in (TensorProto.BFLOAT16, TensorProto.FLOAT8E5M2):
        cast = [helper.make_node("Cast", ["x"], ["y"], to=element)]
        model = model_of(cast, {"x": np.zeros((2, 3), np.float32)}, {"y": element})
        with pytest.raises(NotSupported, match="inputs and outputs must be tensors of DirectML's types, got 'y"):
            export.write_onnx(model, tmp_path)


def vague():
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "vague",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_sizes_of_models_must_be_given_and_fit(tmp_path):
    export.write_onnx(vague(), tmp_path, {"x": (2, 4)})
    assert program(tmp_path)["inputs"][0]["shape"] == [2, 4]
    for shapes, message in (
        (None, r"input 'x' has sizes \['rows', 4\]; give a shape for it"),
        ({"x": (2, 5)}, r"input 'x' must have sizes \['rows', 4\], got \[2, 5\]"),
        ({"x": (2,)}, "input 'x' must have sizes"),
        ({"x": (0, 4)}, "shapes"),
        ({"x": "24"}, "shapes"),
        ({"z": (2, 4)}, "shapes must be of the inputs x, got 'z'"),
        ([1], "shapes must be a mapping"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            export.write_onnx(vague(), tmp_path / "none", shapes)


def pooling_network():
    """Convolution, pooling and a matrix product of images of any height and width: (1, 3, H, W) to (1, 5)."""
    rng = np.random.default_rng(8)
    weights = {
        "filter": rng.standard_normal((16, 3, 3, 3)).astype(np.float32),
        "matrix": rng.standard_normal((16, 5)).astype(np.float32),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "filter"], ["convolved"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["convolved"], ["positive"]),
            helper.make_node("GlobalAveragePool", ["positive"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["flat"]),
            helper.make_node("Gemm", ["flat", "matrix"], ["scores"]),
        ],
        "pooling",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, "height", "width"])],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("positive", TensorProto.FLOAT, None),
        ],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_a_folder_for_several_sizes_shares_weights_kernels_and_initialization(tmp_path):
    single = export.write_onnx(pooling_network(), tmp_path / "single", {"image": (1, 3, 16, 40)})
    several = export.write_onnx(pooling_network(), tmp_path / "several", {"image": (1, 3, [8, 16], range(16, 49, 8))})
    document = program(tmp_path / "several")
    shapes = [run["inputs"][0]["shape"] for run in (document, *document["others"])]
    assert shapes == [[1, 3, height, width] for height in (8, 16) for width in (16, 24, 32, 40, 48)]
    assert [run["outputs"][1]["shape"] for run in document["others"][:2]] == [[1, 16, 8, 24], [1, 16, 8, 32]]
    assert (several.sizes, several.weight_bytes) == (10, single.weight_bytes)
    buffers = {buffer["name"]: buffer["bytes"] for buffer in document["buffers"]}
    assert buffers["input image"] == 4 * 3 * 16 * 48
    assert [buffer["name"] for buffer in document["buffers"]].count("persistent") == 1
    assert several.shaders < 3 * single.shaders  # of 10 combinations
    files = [set((tmp_path / name).iterdir()) for name in ("single", "several")]
    assert len(files[0]) == len(files[1])


def test_sizes_of_one_symbol_go_together(tmp_path):
    shared = helper.make_graph(
        [helper.make_node("Add", ["x", "y"], ["z"])],
        "sum",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4]) for name in ("x", "y")],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(shared, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    export.write_onnx(model, tmp_path, {"x": (range(1, 4), 4), "y": (range(1, 4), 4)})
    document = program(tmp_path)
    shapes = [[tensor["shape"] for tensor in run["inputs"]] for run in (document, *document["others"])]
    assert shapes == [[[rows, 4], [rows, 4]] for rows in (1, 2, 3)]
    for sizes, message in (
        (
            {"x": ([1, 2], 4), "y": ([1, 3], 4)},
            r"dimensions 'rows' must have the same sizes, got \[1, 2\] and \[1, 3\]",
        ),
        ({"x": (range(1, 100), 4), "y": (range(1, 100), 4)}, "99 combinations of sizes; a folder has at most 64"),
        ({"x": ([1, 2], [4, 5]), "y": ([1, 2], 4)}, r"input 'x' must have sizes \['rows', 4\], got \[1, 5\]"),
        ({"x": ([], 4), "y": (1, 4)}, r"shapes\['x'\] must have at least one size per dimension"),
        ({"x": ([1, 0], 4), "y": (1, 4)}, "shapes"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            export.write_onnx(model, tmp_path / "none", sizes)
    assert not (tmp_path / "none").exists()


def test_a_dxdispatch_model_brings_its_owned_values(tmp_path):
    export.write_dxdispatch(DATA / "owned.json", tmp_path)
    document = program(tmp_path)
    assert [input["name"] for input in document["inputs"]] == ["ATensor"]
    assert document["made"]["source"] == "owned.json"
    assert document["made"]["dispatchable"] == "scale"
    weights = np.load(DATA / "weights.npy").astype(np.float32).tobytes()
    assert (tmp_path / "weights-0.bin").read_bytes()[: len(weights)] == weights
    with pytest.raises(InvalidArgument, match=r"owned\.json has the dispatchables scale, got 'none'"):
        export.write_dxdispatch(DATA / "owned.json", tmp_path, "none")
    with pytest.raises(InvalidArgument, match=r"pipeline\.json has \d dispatchables"):
        export.write_dxdispatch(DATA / "pipeline.json", tmp_path)


def test_the_palette_graph_matches_the_demo():
    photo = np.random.default_rng(4).integers(0, 256, (20, 30, 3)).astype(np.uint8)
    expected = reduce_to_palette(Workbench(dmlgpu.Device("numpy")), photo, colors=3, iterations=2)
    from dmlgpu.demo.palette import starting_pixels

    start = starting_pixels(photo, 3, 0)
    compiled = dmlgpu.Device("numpy").compile_graph(palette_graph(20, 30, colors=3, iterations=2, start=start))
    painted, _ = run_compiled(compiled, [photo[np.newaxis]], [compiled.inputs[0].desc], "palette")
    assert np.array_equal(painted.reshape(photo.shape), expected.painted)


# ---- the command line ------------------------------------------------------------------------------------------------


def test_the_command_writes_models(tmp_path):
    onnx.save(vague(), tmp_path / "model.onnx")
    done = run_here("export", tmp_path / "model.onnx", "-o", tmp_path / "a", "--shape", "x=3x4")
    assert (done.returncode, done.stderr) == (0, "")
    assert program(tmp_path / "a")["inputs"][0]["shape"] == [3, 4]
    assert "none beyond the WebGPU defaults" in done.stdout
    done = run_here("export", tmp_path / "model.onnx", "-o", tmp_path / "d", "--shape", "x=2..8/3x4")
    assert (done.returncode, done.stderr) == (0, "")
    shapes = [run["inputs"][0]["shape"] for run in (program(tmp_path / "d"), *program(tmp_path / "d")["others"])]
    assert shapes == [[2, 4], [5, 4], [8, 4]]
    assert "3 combinations" in done.stdout
    done = run_here("export", f"{DATA / 'owned.json'}:scale", "-o", tmp_path / "b", "--schedules", "cpu")
    assert (done.returncode, done.stderr) == (0, "")
    assert program(tmp_path / "b")["made"]["schedules"] == "cpu"
    np.save(tmp_path / "b.npy", np.zeros((1, 1, 1, 8), np.float32))
    (tmp_path / "file.py").write_text(
        "from dmlgpu import Graph\ngraph = Graph()\n"
        "outputs = [graph.input((8,), name='x') + graph.input((8,), name='w', owned=True)]\n"
    )
    np.save(tmp_path / "w.npy", np.zeros(8, np.float32))
    weights = ("--weights", f"w={tmp_path / 'w.npy'}")
    done = run_here("export", tmp_path / "file.py", "-o", tmp_path / "c", *weights)
    assert (done.returncode, done.stderr) == (0, "")
    assert [input["name"] for input in program(tmp_path / "c")["inputs"]] == ["x"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("demo", "--shape", "x=1"), "--shape does not apply to demo"),
        (("gemm", "--shape", "x=1"), "--shape does not apply to gemm"),
        (("none.onnx", "--weights", "x=1"), "--weights does not apply to none.onnx"),
        (("none.onnx", "--shape", "x=1..ax3"), "--shape must be name=1x3x192, or with several sizes"),
        (("none.json", "--half"), "--half does not apply to none.json"),
        (("gemm", "--weights", "x"), "export: --weights must be name=file.npy, got 'x'"),
        (("gemm", "--weights", "x=none.npy"), "export: --weights x: none.npy cannot be read"),
        (("gemm", "--schedules", "fast"), "schedules must be gpu or cpu, got 'fast'"),
        (("none such",), "none such"),
        ((), "give either what to export or --suite"),
        (("gemm", "--suite", "quick"), "give either what to export or --suite"),
        (("gemm", "-k", "relu"), "-k needs --suite"),
        (("--suite", "quick", "--half"), "--half, --matrices and --without cannot be combined with --suite"),
        (("--suite", "fast"), "profile must be one of quick, standard, full, got 'fast'"),
        (("--suite", "quick", "-k", "80x20000"), "all cases that match '80x20000' need Python; use dmlgpu test"),
    ],
)
def test_the_command_prints_errors(tmp_path, arguments, message):
    done = run_here("export", *arguments, "-o", tmp_path / "folder")
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "folder").exists()


def test_the_command_writes_pages_of_cases(tmp_path):
    names = ("argmax-example1", "activation_relu-int8-2x16x8x3-near-inplace-s0")
    options = [option for name in names for option in ("-k", name)]
    done = run_here("export", "--suite", "quick", *options, "-o", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2, and 0 that only dmlgpu test can run" in done.stdout
    index = json.loads((tmp_path / "cases.json").read_bytes())
    (part,) = index["parts"]
    assert set(part["cases"]) == set(names)
    header, data = frames.decode(gzip.decompress((tmp_path / part["file"]).read_bytes()))
    assert [case["name"] for case in header["cases"]] == part["cases"]
    (example,) = (case for case in header["cases"] if case["name"] == names[0])
    (output,) = example["runs"][0]["outputs"]
    start, size = output["outcomes"][0]["expected"]
    case = case_by_name(names[0])
    assert bytes(data[start : start + size]) == case.expected(case.inputs())[0].tobytes()
    assert index["header"]["profile"] == "quick"
    assert set(index["header"]) >= {"suite", "profile", "pattern", "dmlgpu", "commit", "cases"}
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 200_000


@pytest.mark.slow
def test_cases_that_only_python_runs_are_omitted():
    suite = CombinedSuite()
    left = sorted({name for name in suite.names("quick") if not can_be_exported(suite.part(name), name)})
    kinds = {type(suite.part(name)).__name__ for name in left}
    assert "GraphSuite" not in kinds
    left = [name for name in left if type(suite.part(name)).__name__ != "DriverSuite"]
    large = [name for name in left if type(suite.part(name)).__name__ == "OperatorSuite"]
    assert large == [
        "activation_log_softmax1-float16-80x20000-packed-s0",
        "element_wise_add-float32-1048583-packed-s0",
    ]
    assert len(left) < 70


# ---- Node ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def modules():
    """The folder in which Node finds the package webgpu."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    roots = [Path(text) for text in os.environ.get("NODE_PATH", "").split(os.pathsep) if text]
    if shutil.which("npm") is not None:
        completed = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, check=False)
        roots.append(Path(completed.stdout.strip()))
    root_of_webgpu = next((root for root in roots if (root / "webgpu" / "package.json").is_file()), None)
    if root_of_webgpu is None:
        pytest.skip("the package webgpu of Node is not installed: NODE_PATH or `npm install -g webgpu`")
    return root_of_webgpu


def test_a_folder_runs_under_node(modules, tmp_path):
    export.write(MULTIPLY, tmp_path, weights={"b": np.array([2, -3], np.float32)})
    (tmp_path / "node_modules").symlink_to(modules)
    np.array([5, 7], np.float32).tofile(tmp_path / "a.bin")
    done = subprocess.run(
        ["node", "run.mjs", "a=a.bin", "--output", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode and "no adapter" in done.stderr:
        pytest.skip(f"Node: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr  # which holds Dawn's warnings, too
    assert np.fromfile(tmp_path / "out" / "output.bin", np.float32).tolist() == [10, -21]


def test_node_says_that_the_package_is_missing(tmp_path):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    export.write(MULTIPLY, tmp_path, weights={"b": np.ones(2, np.float32)})
    environment = {name: value for name, value in os.environ.items() if name != "NODE_PATH"}
    done = subprocess.run(
        ["node", "run.mjs"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (1, "The package 'webgpu' is not installed: npm install webgpu\n")


# ---- the page of the documentation -----------------------------------------------------------------------------------


def test_the_documented_example_runs(tmp_path, monkeypatch):
    text = (Path(__file__).parents[3] / "docs" / "export.md").read_text(encoding="utf-8")
    code, _ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    document = program(tmp_path / "folder")
    assert [port["name"] for port in (*document["inputs"], *document["outputs"])] == ["x", "y"]
