"""``dmlgpu show``: the command line, what it takes and rejects, JSON, WGSL and files."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from dmlgpu.cli import show as verb
from dmlgpu.cli.subjects import TAKEN, find_subjects
from dmlgpu.common.timings import Timings
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.sizes.recordings import failures
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import AdapterInfo, Profile, Target
from dmlgpu.conformance.cases.registry import OPERATOR_CASES, case_by_name
from dmlgpu.runtime.adapters import target_of
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from dmlgpu.runtime.operator import CompiledOperator
from tests.unit.cli.cli_process import run_here
from tests.unit.compiler.test_explain import check_schema
from tests.unit.graph_examples import add, chain, relu

ROOT = Path(__file__).parents[3]
MODELS = ROOT / "tests/data/dxdispatch"
WITHOUT_ADAPTER = ("--adapter", "numpy", "--schedules", "cpu")
"""Schedules for an adapter with WebGPU's default limits, on any machine."""

CPU = Target("an adapter with WebGPU's default limits", Profile.CPU)
GATHER = "gather_nd1-float32-int32-33-mixed-negative-s0"
LAID_OUT = "gemm-float32-512x512-packed-s0"
"""A product in three kernels."""

PYTHON = """\
from dmlgpu import DataType, Graph, TensorDesc, descs
from dmlgpu import directmlx as dml

tensor = TensorDesc(DataType.FLOAT32, (2, 3))
graph = Graph(name="small")
x = graph.input((2, 3), name="x")
y = dml.activation_relu(x) + x
outputs = [y, dml.exp(y)]
desc = graph.desc([y])
relu = descs.ActivationRelu(input_tensor=tensor, output_tensor=tensor)
_hidden = relu
number = 3
"""


def shown(*arguments: object) -> str:
    """What is printed, without an adapter."""
    done = run_here("show", *arguments, *WITHOUT_ADAPTER)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(*arguments: object) -> str:
    """The sentence with which something is rejected."""
    done = run_here("show", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dmlgpu: ") and done.stderr.count("\n") == 1
    return done.stderr.removeprefix("dmlgpu: ").rstrip()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A Python file that describes a graph and an operator."""
    path = tmp_path / "small.py"
    path.write_text(PYTHON, encoding="utf-8")
    return path


# ---- what is taken


def test_a_case_is_shown_from_its_description_to_its_kernels() -> None:
    assert (
        shown(GATHER)
        == f"""\
case {GATHER}
  input_tensor             input 0: FLOAT32 [33] strides [0], 4 bytes
  indices_tensor           input 1: INT32 [1] strides [2], 4 bytes
  output_tensor            output 0: FLOAT32 [1], 4 bytes
  input_dimension_count    1
  indices_dimension_count  1
  batch_dimension_count    0
  work                     8 bytes read, 4 written

plan of GATHER_ND1: 1 step
  1. map gather
       output 0 = gather_nd1(input 0, input 1, batch=0, tuple=1, lead=0)
       reads  input 0 FLOAT32 [33, 1] strides [0, 0]
              input 1 INT32 [1]
       writes output 0 FLOAT32 [1]

schedule of GATHER_ND1 for "an adapter with WebGPU's default limits" (cpu): 1 kernel
  1. gather (map): 1 item, 1 x 1 x 1 workgroups of 256
       why: no unit of several elements fits all tensors

program of GATHER_ND1: 1 kernel, 0 bytes temporary (at least 0), 0 bytes persistent
  1. gather_nd1 gather: 1 x 1 x 1 workgroups of 256
       binding 0: output 0, 4 bytes
       binding 1: input 0, 4 bytes
       binding 2: input 1, 4 bytes
       shaders: indexing/gather_nd1, schedules/map, lib/index
"""
    )


@pytest.mark.parametrize("name", ["gather_nd1", "GATHER_ND1", "Gather_Nd1"])
def test_an_operator_is_shown_by_its_typical_case(name: str) -> None:
    (subject,) = find_subjects(name)
    assert subject.title.startswith("GATHER_ND1, its typical case gather_nd1-float32-")
    assert subject.desc == case_by_name(subject.title.rpartition(" ")[2]).desc


def test_an_alias_is_an_operator_too() -> None:
    (subject,) = find_subjects("scatter")
    assert subject.title.startswith("SCATTER_ELEMENTS, its typical case")


def test_typical_cases_are_packed_floats_wherever_there_are_such() -> None:
    assert OPERATOR_CASES.keys() == {name.lower() for name in operators.implemented()}
    for stem, cases in OPERATOR_CASES.items():
        names = cases.names("standard")
        case = find_subjects(stem)[0].title.rpartition(" ")[2]
        assert case in names
        if any("-packed-" in name for name in names):
            assert "-packed-" in case
            if any(name.startswith(f"{stem}-float32") and "-packed-" in name for name in names):
                assert case.startswith(f"{stem}-float32")


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("activation_celu-values-float32-4x2x7x4x5x3x1-aligned-owned-s0", 1),
        ("activation_celu-attributes-float32-alpha-infinity", 1),
        ("activation_celu-halves-float16-65536-packed-s0", 1),
        ("graph-float32-16-s0", 1),
        ("chain-float32-own-12-s0", 12),
        ("hazard-read_after_write-uint32-65552", 1),
    ],
)
def test_cases_of_all_suites_with_descriptions(name: str, count: int) -> None:
    subjects = find_subjects(name)
    assert len(subjects) == count
    assert all(subject.title.startswith(f"case {name}") for subject in subjects)


def test_every_operator_of_a_model_is_shown() -> None:
    subjects = find_subjects(str(MODELS / "pipeline.json"))
    assert [subject.title.partition(": ")[2] for subject in subjects] == [
        "subtract, ELEMENT_WISE_SUBTRACT",
        "multiply, ELEMENT_WISE_MULTIPLY",
    ]
    text = shown(MODELS / "pipeline.json")
    assert text.index("plan of ELEMENT_WISE_SUBTRACT") < text.index("plan of ELEMENT_WISE_MULTIPLY")


def test_a_python_file_shows_its_public_descriptions_and_its_outputs(file: Path) -> None:
    subjects = find_subjects(str(file))
    assert [subject.title for subject in subjects] == [f"{file}:desc", f"{file}:relu", f"{file}:outputs"]
    graphs = [subject.desc for subject in subjects if isinstance(subject.desc, GraphDesc)]
    assert [desc.output_count for desc in graphs] == [1, 2]


@pytest.mark.parametrize(("name", "outputs"), [("y", 1), ("outputs", 2), ("desc", 1)])
def test_one_description_of_a_python_file(file: Path, name: str, outputs: int) -> None:
    (subject,) = find_subjects(f"{file}:{name}")
    assert isinstance(subject.desc, GraphDesc)
    assert (subject.title, subject.desc.output_count) == (f"{file}:{name}", outputs)


def test_a_python_file_imports_modules_of_its_folder(file: Path) -> None:
    neighbor, path = file.parent / "neighbor.py", list(sys.path)
    neighbor.write_text("from small import relu\n", encoding="utf-8")
    assert [subject.title for subject in find_subjects(str(neighbor))] == [f"{neighbor}:relu"]
    assert sys.path == path


def test_models_print_whether_float16_may_be_native(tmp_path: Path) -> None:
    model = json.loads((MODELS / "pipeline.json").read_text())
    for dispatchable in model["dispatchables"].values():
        dispatchable["executionFlags"] = ["DML_EXECUTION_FLAG_ALLOW_HALF_PRECISION_COMPUTATION"]
    path = tmp_path / "half.json"
    path.write_text(json.dumps(model))
    assert [subject.half_precision for subject in find_subjects(str(path))] == [True, True]
    assert not any(subject.half_precision for subject in find_subjects(str(MODELS / "pipeline.json")))


# ---- what is rejected


def test_similar_names_are_suggested() -> None:
    assert refused("gathr_nd1") == (
        "DirectML has no operator 'gathr_nd1'; similar names: GATHER_ND1, GATHER_ND; show takes " + TAKEN
    )


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("model.txt", f"DirectML has no operator 'model.txt'; show takes {TAKEN}"),
        ("gemm-float32-x", "'gemm-float32-x' names no case of GEMM"),
        ("exp_f32-16", f"'exp_f32-16' is a case without a description to show; show takes {TAKEN}"),
        ("nowhere.json", "nowhere.json: there is no such model file"),
        ("nowhere.py", f"there is no file 'nowhere.py'; show takes {TAKEN}"),
        ("nowhere.py:x", f"there is no file 'nowhere.py'; show takes {TAKEN}"),
    ],
)
def test_unknown_names_are_rejected(what: str, message: str) -> None:
    assert refused(what, "--adapter", "numpy") == message


def test_names_of_a_python_file_that_are_no_descriptions_are_rejected(file: Path) -> None:
    expected = f"{file}:number must be a GraphDesc, an OperatorDesc, or outputs of a Graph (a Tensor or a list of"
    assert refused(f"{file}:number") == f"{expected} them), got int"
    assert refused(f"{file}:graph").endswith(
        "them), got Graph; a Graph does not declare its outputs: name a list of them"
    )
    assert refused(f"{file}:nothing") == f"{file} defines no 'nothing'"
    file.write_text("x = 1\n", encoding="utf-8")
    assert refused(file) == (
        f"{file} must define a GraphDesc, an OperatorDesc, or a list 'outputs' of a Graph's expressions;"
        f" or name what to show: {file}:NAME"
    )


def test_wrong_options_are_rejected() -> None:
    assert refused("gemm", "--schedules", "tpu") == "--schedules must be one of cpu, gpu, got 'tpu'"
    message = refused("graph-float32-6-s0", "--without", "all", *WITHOUT_ADAPTER)
    assert message.startswith("disabled_passes must name passes (constants, duplicates, ")
    done = run_here("show")
    assert (done.returncode, done.stdout) == (2, "")
    for option in ("--json", "--timings"):
        expected = "--wgsl cannot be combined with --json or --timings"
        assert refused("gemm", "--wgsl", option) == expected


def test_a_description_that_breaks_a_rule_says_which(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(PYTHON.replace("output_tensor=tensor", "output_tensor=TensorDesc(DataType.INT8, (2, 3))"))
    for adapter in (WITHOUT_ADAPTER, ("--adapter", "numpy")):
        message = refused(f"{path}:relu", *adapter)
        assert message.startswith("ACTIVATION_RELU: output_tensor.data_type must")


def test_precise_shows_the_kernels_of_a_precise_device() -> None:
    name = next(name for name in OPERATOR_CASES["convolution"].names("standard") if "2x16x14x11" in name)
    fast, precise = (run_here("show", name, *WITHOUT_ADAPTER, *options) for options in ((), ("--precise",)))
    assert (fast.returncode, precise.returncode) == (0, 0)
    assert "winograd filters" in fast.stdout and "winograd filters" not in precise.stdout
    why = run_here("show", name, *WITHOUT_ADAPTER, "--precise", "--why").stdout
    assert "winograd-4     does not fit: it loses digits, which the device forbids" in why


# ---- the reference


@pytest.mark.parametrize("options", [("--wgsl",), ("--why",), ("--dump", "folder"), ("--timings",)])
def test_the_reference_runs_no_kernels(options: tuple[str, ...]) -> None:
    done = run_here("show", "gemm", "-a", "numpy", *options)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == f"dmlgpu: {NUMPY_ADAPTER} runs no kernels; --schedules cpu|gpu shows kernels of other adapters\n"
    )
    assert not Path("folder").exists()


def test_the_reference_names_its_functions(file: Path) -> None:
    done = run_here("show", GATHER, "-a", "numpy")
    assert done.stdout.splitlines()[-1] == "numpy runs it without kernels, by dmlgpu.reference.indexing.gather_nd1"
    assert run_here("show", f"{file}:y", "-a", "numpy").stdout == (
        f"{file}:y: numpy runs the nodes one by one, without kernels\n"
        "node  operator          function\n"
        "      ACTIVATION_RELU   dmlgpu.reference.activation.activation_relu\n"
        "      ELEMENT_WISE_ADD  dmlgpu.reference.arithmetic.element_wise_add\n"
    )
    (entry,) = json.loads(run_here("show", GATHER, "-a", "numpy", "--json").stdout)["shown"]
    assert (entry["target"], entry["functions"]) == (None, ["dmlgpu.reference.indexing.gather_nd1"])
    assert target_of(NUMPY_ADAPTER) is None


# ---- graphs


def test_a_graph_tells_nodes_kernels_bytes_and_memory(file: Path) -> None:
    assert shown(f"{file}:outputs").split("\n\n")[0] == (
        f'{file}:outputs for "an adapter with WebGPU\'s default limits" (cpu)\n'
        "  nodes in       3 operators, 0 constants\n"
        "  kernels out    2 (3 without fusion)\n"
        "  bytes read     48 (96 without fusion)\n"
        "  bytes written  48 (72 without fusion)\n"
        "  peak memory    0 bytes temporary (minimum 0)\n"
        "  persistent     0 bytes, and 0 bytes of constants"
    )
    names = "node 0 activation_relu, node 1 element_wise_add"
    assert [line.partition("48  ")[2] for line in shown(f"{file}:outputs").splitlines()[9:11]] == [
        names,
        f"{names}, node 2 element_wise_exp",
    ]


def test_equal_notes_of_passes_are_printed_once(tmp_path: Path) -> None:
    source = "from tests.unit.graph_examples import *\n"
    source += "nodes = tuple(OperatorNode(relu(), name) for name in 'abc')\n"
    source += "into = tuple(InputEdge(0, node, 0) for node in range(3))\n"
    source += "same = GraphDesc(1, 3, nodes, into, (), tuple(OutputEdge(node, 0, node) for node in range(3)))\n"
    path = tmp_path / "same.py"
    path.write_text(source, encoding="utf-8")
    rows = [line.split() for line in shown(path).splitlines()]
    assert ["duplicates", "the", "same", "as", "a", "b,", "c"] in rows


def test_full_adds_plan_schedule_and_program_of_a_graph(file: Path) -> None:
    short, full = shown(f"{file}:y"), shown(f"{file}:y", "--full")
    assert full.startswith(short)
    assert re.findall(r"^(plan|schedule|program) of small", full, re.MULTILINE) == ["plan", "schedule", "program"]


def test_passes_are_disabled(file: Path) -> None:
    assert "  kernels out    2 (2 without fusion)\n" in shown(f"{file}:y", "--without", "element-wise")
    assert "  kernels out    1 (2 without fusion)\n" in shown(f"{file}:y")


# ---- for programs


def test_json_keeps_its_schema() -> None:
    for what, count in ((GATHER, 1), ("graph-float32-6-s0", 1), (MODELS / "pipeline.json", 2)):
        document = json.loads(shown(what, "--json"))
        assert document.keys() == {"adapter", "shown"}
        assert document["adapter"] == str(NUMPY_ADAPTER)
        assert len(document["shown"]) == count
        for entry in document["shown"]:
            check_schema(entry)


def test_every_key_is_documented() -> None:
    def keys(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(keys, value))
        if not isinstance(value, dict):
            return set()
        return {*value, *(key for name, entry in value.items() if name != "fields" for key in keys(entry))}

    page = (ROOT / "docs/show.md").read_text(encoding="utf-8")
    documented_keys = keys([json.loads(shown(what, "--json")) for what in (GATHER, "graph-float32-16-s0")])
    assert sorted(key for key in documented_keys if f"`{key}`" not in page and f'"{key}"' not in page) == []


def test_wgsl_of_one_kernel_is_that_and_nothing_else() -> None:
    (kernel,) = compile_operator(case_by_name(GATHER).desc, CPU).kernels
    assert shown(GATHER, "--wgsl") == kernel.wgsl


def test_wgsl_of_several_kernels_comes_under_lines_that_name_them() -> None:
    kernels = compile_operator(case_by_name(LAID_OUT).desc, CPU).kernels
    heads = ["01-gemm-lay-out-b.wgsl", "02-gemm-register-split.wgsl", "03-gemm-sum-of-parts.wgsl"]
    expected = [f"// ==== {head}: {kernel.label}\n{kernel.wgsl}" for head, kernel in zip(heads, kernels, strict=True)]
    assert shown(LAID_OUT, "--wgsl") == "\n".join(expected)


def test_a_dump_holds_the_kernels_as_they_run_and_everything_else(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "dump"
    printed = shown(LAID_OUT, "--dump", folder)
    program = compile_operator(case_by_name(LAID_OUT).desc, CPU)
    wgsl = sorted(path for path in folder.iterdir() if path.suffix == ".wgsl")
    assert [path.read_text() for path in wgsl] == [kernel.wgsl for kernel in program.kernels]
    texts = {path.name: path.read_text() for path in folder.iterdir() if path.suffix == ".txt"}
    assert texts.keys() == {"plan.txt", "schedule.txt", "program.txt"}
    assert texts["program.txt"] == f"{program}\n"
    assert all(text in f"{printed}\n" for text in texts.values())
    check_schema(json.loads((folder / "show.json").read_text()))
    shown(MODELS / "pipeline.json", "--dump", tmp_path / "both")
    assert len(list((tmp_path / "both").glob("*/show.json"))) == 2


def test_kernels_of_the_initialization_are_dumped_first(tmp_path: Path) -> None:
    shown("gemm-float16-5x16x5x8-broadcast-owned-s0", "--dump", tmp_path)
    names = sorted(path.name for path in tmp_path.glob("*.wgsl"))
    assert "initialize" in names[0] and "initialize" not in names[-1]


# ---- the choice of schedules

POOLING = "max_pooling-int32-8x32x1x15-broadcast-s0"
SUM = "cumulative_summation-float32-70001-packed-s0"


def test_why_lists_the_schedules_of_each_step() -> None:
    assert shown(POOLING, "--why").splitlines()[1:] == [
        "",
        "pool",
        "  tiles   taken: short windows: an invocation chooses for a tile of positions, from rows that it reads once",
        "  places  comes later",
    ]
    lines = shown("activation_relu", "--why").splitlines()
    assert lines[2] == "map 'map'" and lines[3].startswith("  upsample     does not fit: ")
    assert "  strided      for GPUs" in lines and lines[-1] == "  map          taken: every unit by itself"


def test_why_adds_choices_to_json(file: Path) -> None:
    (entry,) = json.loads(shown(POOLING, "--why", "--json"))["shown"]
    (choice,) = entry.pop("choices")
    check_schema(entry)
    assert (choice["step"], choice["kind"], choice["label"]) == (None, "pool", "")
    first, last = choice["schedules"]
    assert (first["name"], first["outcome"], first["reason"][:14]) == ("tiles", "taken", "short windows:")
    assert last == {"name": "places", "outcome": "comes later", "reason": ""}
    (graph,) = json.loads(shown(f"{file}:outputs", "--why", "--json"))["shown"]
    assert [choice["step"] for choice in graph["choices"]] == list(range(len(graph["steps"])))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--wgsl",), "--why cannot be combined with --wgsl or --timings"),
        (("--isa", "navi31"), "--isa can be combined with --shape, --entry-point and --define only"),
    ],
)
def test_why_is_not_combined(options: tuple[str, ...], expected: str) -> None:
    assert refused("gemm", "--why", *options).startswith(expected)


def test_a_schedule_is_taken_by_name() -> None:
    def kernels(*options: str) -> list[str]:
        (entry,) = json.loads(shown(SUM, *options, "--json"))["shown"]
        return [kernel["label"] for kernel in entry["kernels"]]

    trees = kernels("--schedule", "tree")
    assert "cumulative_summation totals tree" in trees and trees == kernels("--schedule", "scan/tree")
    assert "cumulative_summation totals serial" in kernels() and kernels() == kernels("--schedule", "serial")
    lines = shown(SUM, "--schedule", "tree", "--why").splitlines()
    assert lines[2:] == ["scan", "  tree    taken: 'tree' is requested", "  serial  not requested"]
    assert "fn main" in shown(SUM, "--schedule", "tree", "--wgsl")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("trees",), "a schedule must be one of "),
        (("words",), "no step has the schedule 'words'; the steps have tree, serial (scan)"),
        (("map/tree",), "a schedule must be one of "),
        (("tree", "--timings"), "--schedule cannot be combined with --timings"),
        (("tree", "--isa", "navi31"), "--isa can be combined with --shape, --entry-point and --define only"),
    ],
)
def test_schedules_that_cannot_be_taken_are_rejected(options: tuple[str, ...], expected: str) -> None:
    rejected = refused(SUM, "--adapter", "numpy", "--schedules", "cpu", "--schedule", *options)
    assert rejected.startswith(expected)
    assert rejected.endswith("got 'trees'; did you mean 'tree'?") is (options == ("trees",))


def test_a_schedule_that_does_not_fit_is_rejected() -> None:
    error = refused("activation_relu", *WITHOUT_ADAPTER, "--schedule", "map/transpose")
    assert error.startswith("the schedule 'map/transpose' cannot compute the step 'map': does not fit, ")


@pytest.mark.parametrize("what", ["model.onnx", "kernel.wgsl"])
def test_a_schedule_is_that_of_an_operator_or_a_graph(what: str) -> None:
    assert "show takes only --adapter" in refused(what, "--schedule", "tree")


# ---- adapters


def test_schedules_of_the_other_family() -> None:
    large = "gemm-float32-512x512-packed-s0"
    cpu = shown(large)
    gpu = run_here("show", large, "--adapter", "numpy", "--schedules", "gpu").stdout
    assert ("(cpu)" in cpu, "(discrete)" in gpu) == (True, True)
    assert cpu.partition("schedule of")[0] == gpu.partition("schedule of")[0]
    assert cpu != gpu


def test_timings_are_those_of_the_compiled_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """What compiles on ``numpy`` here stands for a device that tells the times."""
    monkeypatch.setattr(verb, "target_of", lambda info, half, precise: CPU)
    done = run_here("show", GATHER, "-a", "numpy", "--timings")
    assert (done.returncode, done.stderr) == (
        1,
        f"dmlgpu: {NUMPY_ADAPTER} reports no compile times\n",
    )
    for reason in [*failures]:  # of other tests in this process
        monkeypatch.delitem(failures, reason)
    timings = Timings(planning=0.25, driver=0.0015)
    monkeypatch.setattr(CompiledOperator, "timings", property(lambda _: timings))
    done = run_here("show", GATHER, "-a", "numpy", "--timings")
    rows = "planning   250.0\nrendering    0.0\ndriver       1.5\nupload       0.0\n"
    assert done.stdout.endswith(f"\n\ncompiling     ms\n{rows}")
    monkeypatch.setitem(failures, "random numbers", 2)
    done = run_here("show", GATHER, "-a", "numpy", "--timings")
    assert done.stdout.endswith("\n\nsizes were not recorded  times\nrandom numbers               2\n")
    (entry,) = json.loads(run_here("show", GATHER, "-a", "numpy", "--timings", "--json").stdout)["shown"]
    assert entry["timings"] == {"planning": 0.25, "rendering": 0.0, "driver": 0.0015, "upload": 0.0}


def test_no_device_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a device is opened")

    adapter = AdapterInfo("card", "Vulkan", "discrete", "maker", "driver")
    monkeypatch.setattr(verb, "Device", fail)
    monkeypatch.setattr(verb, "choose_adapter", lambda _: adapter)
    monkeypatch.setattr(verb, "target_of", lambda info, half, precise: Target(info.name, Profile.DISCRETE))
    done = run_here("show", GATHER)
    assert (done.returncode, done.stderr) == (0, "")
    assert "schedule of GATHER_ND1 for 'card' (discrete): 1 kernel" in done.stdout


def test_graphs_of_this_process_are_shown_too(tmp_path: Path) -> None:
    """A GraphDesc that is built by hand, by the name of a module's attribute."""
    path = tmp_path / "chain.py"
    path.write_text("from tests.unit.graph_examples import add, chain, relu\nbuilt = chain(relu(), add())\n")
    (subject,) = find_subjects(str(path))
    assert subject.desc == chain(relu(), add())


# ---- the page


def test_the_examples_of_the_page_match_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/show.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "model.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```text\n\$ dmlgpu (.*)\n((?:.*\n)*?)```", page)
    assert len(blocks) == 3
    for command, text in blocks:
        assert run_here(*command.split()).stdout == text
