"""Children that answer, reject, fail, crash and hang; the server's answers on the reference; the command line."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dmlgpu.bench import worker
from dmlgpu.bench.ceilings import CLOCK_RAMP, CachedCeilings, Ceilings, save_ceilings
from dmlgpu.bench.choosing import of_case, of_operator
from dmlgpu.bench.numpy_baseline import FORMULAS, NumpyBaseline
from dmlgpu.bench.prepared import PreparedOnnxModel, PreparedOperator, check
from dmlgpu.bench.records import Measurement
from dmlgpu.bench.samples import MAX_CALLS, ROUND_SECONDS
from dmlgpu.bench.worker import Child, Remote, WorkloadServer, pack, ramp_clocks
from dmlgpu.bench.workload import Workload
from dmlgpu.common.errors import DmlError, NotSupported
from dmlgpu.conformance.samples import SAMPLES
from dmlgpu.conformance.suites import graphs
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.bench.bench_fakes import Clock, Fake
from tests.unit.cli.cli_process import run_here

SMALL = {
    "GEMM": {"m": 8, "k": 4, "n": 6},
    "GATHER": {"rows": 64, "columns": 4, "picked": 8},
    "TOP_K1": {"rows": 4, "columns": 64, "k": 3},
    "CONVOLUTION": {"channels": 4, "height": 5, "width": 5, "filters": 2},
    "LOCAL_RESPONSE_NORMALIZATION": {"channels": 4, "height": 5, "width": 5},
    "SLICE1": {"rows": 8, "columns": 8},
    "MAX_POOLING2": {"channels": 3, "height": 8, "width": 8},
}
"""Sizes of rows in place of the usual ones; of the others all sizes are 8."""


def small(operator):
    (workload,) = of_operator(operator)
    sizes = SMALL.get(operator) or {name: 2 if name in ("parts", "repeats") else 8 for name in workload.sizes}
    (workload,) = of_operator(operator, [sizes])
    return workload


# ---- children

ANSWERING = """
import json, os, sys, time
answers = os.fdopen(int(os.environ["DMLGPU_ANSWERS"]), "w")
print('"ready"', file=answers, flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "crash":
        print("all is lost", file=sys.stderr)
        sys.exit(3)
    if request["do"] == "hang":
        time.sleep(600)
    print(json.dumps(request.get("answer", {})), file=answers, flush=True)
"""


@pytest.fixture
def child():
    process = Child((sys.executable, "-c", ANSWERING), time_limit=10.0)
    yield process
    process.close()


def test_children_answer_and_their_errors_are_raised(child):
    assert child.ask({"do": "echo", "answer": {"x": 1}}) == {"x": 1}
    with pytest.raises(NotSupported, match="no float64"):
        child.ask({"do": "echo", "answer": {"refused": "no float64"}})
    with pytest.raises(DmlError, match="out of luck"):
        child.ask({"do": "echo", "answer": {"failed": "out of luck"}})


def test_a_crash_is_reported_and_the_next_request_starts_a_new_process(child):
    with pytest.raises(DmlError, match="exit code 3\nall is lost"):
        child.ask({"do": "crash"})
    assert child.generation == 1
    assert child.ask({"do": "echo"}) == {}
    assert child.generation == 2


def test_a_child_that_hangs_is_ended(child):
    child.time_limit = 0.2
    with pytest.raises(DmlError, match=r"no answer after 0\.2 s"):
        child.ask({"do": "hang"})


def test_workloads_prepared_in_a_lost_process_are_not_measured(child):
    remote = Remote(child, "gpu", Workload("x", "GEMM"))
    remote.prepared_in = 1
    child.process.generation = 2
    with pytest.raises(DmlError, match="its process was lost"):
        remote.round(1)


# ---- the server


def test_a_server_prepares_measures_and_closes():
    server = WorkloadServer(Device(NUMPY_ADAPTER))
    request = {"do": "prepare", "key": "1", "workload": pack(small("GEMM")), "checked": True, "plain": False}
    ready = json.loads(json.dumps(server.answer(request)))["ready"]
    assert ready["check"]["status"] == "right"
    assert ready["counts"]["operations"] == 2 * 8 * 4 * 6
    sample = server.answer({"do": "round", "key": "1", "calls": 3})["sample"]
    assert sample["gpu"] is None
    assert sample["wall"] > 0
    assert server.answer({"do": "close", "key": "1"}) == {}
    assert server.answer({"do": "round", "key": "1", "calls": 3}) == {"failed": "KeyError: '1'"}


@pytest.mark.slow
def test_a_server_answers_by_errors():
    def prepare(device, workload, checked, plain):
        raise NotSupported("not here") if checked else DmlError("gone")

    server = WorkloadServer(Device(NUMPY_ADAPTER), prepare)
    request = {"do": "prepare", "key": "1", "workload": pack(small("GEMM")), "plain": False}
    assert server.answer({**request, "checked": True}) == {"refused": "not here"}
    assert server.answer({**request, "checked": False}) == {"failed": "gone"}


@pytest.mark.parametrize("seconds", [1e-5, 0.003, 0.4])
def test_gpus_are_loaded_in_long_rounds_until_their_clock_is_up(seconds):
    clock = Clock()
    fake = Fake(clock, lambda number: seconds)
    ramp_clocks(fake, clock)
    assert CLOCK_RAMP <= clock.now < CLOCK_RAMP + max(2 * ROUND_SECONDS, seconds)
    assert fake.calls[-1] == min(MAX_CALLS, 2 ** math.ceil(math.log2(max(1, ROUND_SECONDS / seconds))))


@pytest.mark.parametrize(("is_gpu", "plain"), [(True, False), (True, True), (False, False)])
def test_only_workloads_on_gpus_are_warmed_up(is_gpu, plain, monkeypatch):
    fake = Fake(Clock(), lambda number: 0.02)
    fake.readiness = PreparedOperator(Device(NUMPY_ADAPTER), small("GEMM")).readiness
    monkeypatch.setattr(worker, "has_clocks", lambda device: is_gpu)
    monkeypatch.setattr(worker, "CLOCK_RAMP", 0.001)
    server = WorkloadServer(Device(NUMPY_ADAPTER), lambda *arguments: fake)
    server.answer({"do": "prepare", "key": "1", "workload": pack(small("GEMM")), "checked": True, "plain": plain})
    assert bool(fake.calls) is (is_gpu and not plain)


# ---- what is prepared


@pytest.mark.parametrize("operator", sorted({*SAMPLES, "ELEMENT_WISE_ADD", "CAST", "RNN", "TOP_K", "MAX_POOLING1"}))
def test_operators_are_right_on_the_reference(operator):
    workload = small(operator)
    prepared = PreparedOperator(Device(NUMPY_ADAPTER), workload)
    assert prepared.readiness.check.status == "right"
    assert prepared.readiness.sets >= 1
    prepared.close()


def test_graphs_are_right_on_the_reference():
    name = "pair-softmax-scale_bias-float16-plain"
    workload = Workload(name, "GRAPH", graphs.example(name).graph, case=name)
    assert PreparedOperator(Device(NUMPY_ADAPTER), workload).readiness.check.status == "right"


@pytest.mark.parametrize("what", ["row", "map", "case"])
def test_wrong_results_are_noticed(what):
    workload = {
        "row": lambda: small("GEMM"),
        "map": lambda: of_operator("ELEMENT_WISE_ADD", [{"elements": 1 << 14}])[0],
        "case": lambda: of_case("gather_nd1-float32-uint32-2x3-packed-s0"),
    }[what]()
    inputs = workload.inputs()
    outputs = [np.zeros(slot.tensor.sizes, slot.tensor.data_type.numpy) for slot in workload.desc.outputs]
    judged = check(workload, inputs, outputs, 1)
    assert judged.status == "wrong"
    assert not Measurement("x", "GEMM", "gpu", check=judged.status).is_good


def test_of_products_too_large_for_the_reference_a_part_is_compared():
    (workload,) = of_operator("GEMM", [{"m": 64, "k": 8, "n": 8}])
    inputs = workload.inputs()
    right = inputs[0] @ inputs[1]
    judged = check(workload, inputs, [right], 4e10)  # as if it took twice as long as is allowed
    assert (judged.status, judged.text.partition("; ")[2]) == ("right", "of 64 m, 32 were compared")
    wrong = right.copy()
    wrong[-1] = 0
    assert check(workload, inputs, [wrong], 4e10).status == "wrong"
    assert check(workload, inputs, [right], 1e20).status == "unchecked"


@pytest.mark.parametrize("operator", FORMULAS)
def test_plain_numpy_matches_the_operator(operator):
    workload = small(operator)
    prepared = NumpyBaseline(workload)
    result = np.asarray(prepared.compute()).astype(workload.desc.outputs[0].tensor.data_type.numpy)
    if operator == "TOP_K1":  # in no order
        result = -np.sort(-result)
        workload_outputs = [result, workload.inputs()[0].argsort(1)[:, ::-1][:, :3].astype(np.uint32)]
    else:
        workload_outputs = [result.reshape(workload.desc.outputs[0].tensor.sizes)]
    assert check(workload, workload.inputs(), workload_outputs, 1).status == "right"
    assert prepared.readiness.kernels == ("NumPy",)


@pytest.mark.slow
def test_a_worker_knows_the_samples_of_which_it_compares_parts():
    code = "import dmlgpu.bench.worker; from dmlgpu.conformance.samples import SAMPLES; print(len(SAMPLES))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(ran.stdout) == len(SAMPLES)


def test_operators_without_formula_are_rejected():
    with pytest.raises(NotSupported, match="has no NumPy formula"):
        NumpyBaseline(small("LSTM"))


# ---- the command line


@pytest.fixture
def kept_ceilings(tmp_path, monkeypatch):
    """A cache in which there are ceilings, so that none are measured."""
    monkeypatch.setattr("dmlgpu.bench.ceilings.cache_folder", lambda: tmp_path / "cache")
    save_ceilings(NUMPY_ADAPTER, CachedCeilings(Ceilings(1e10, 1e10, 1e-6, 1e-6, "wall clock"), 0.0))


@pytest.mark.slow
def test_the_command_measures_and_writes_down(tmp_path, kept_ceilings):
    path = tmp_path / "bench.jsonl"
    words = ["bench", "GEMM", "-s", "m=k=n=8,16", "-a", "numpy", "--budget", "0.1", "--numpy", "-o", path]
    ran = run_here(*words)
    assert ran.returncode == 0, ran.stderr
    assert "GEMM m=8 k=8 n=8 float32 on numpy\n" in ran.stdout
    assert "(wall clock)" in ran.stdout
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [record["record"] for record in records] == ["bench", *["measurement"] * 4, "end"]
    assert {record["check"] for record in records[1:-1]} == {"right", "unchecked"}
    again = run_here("bench", "compare", path, path)
    assert (again.returncode, again.stdout) == (0, "4 same\n")
    report = run_here("report", path, "-o", tmp_path / "report.md")
    assert report.returncode == 0, report.stderr
    assert "| GEMM m=8 k=8 n=8 float32 | numpy |" in (tmp_path / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench", "GEMN"], "has no operator 'GEMN'"),
        (["bench", "GEMM", "-s", "m"], "a size must be NAME=NUMBERS"),
        (["bench", "GEMM", "-t", "float8"], "a data type must be one of"),
        (["bench", "GEMM", "-l", "upside-down"], "a layout must be one of"),
        (["bench", "GEMM", "--schedule", "fastest", "-a", "numpy"], "a schedule must be one of"),
        (["bench", "missing.toml"], "missing.toml: No such file"),
        (["bench", "missing.onnx"], "there is no file 'missing.onnx'"),
        (["bench", "quick", "--plot", "x.pdf"], "the suffix must be one of .png, .svg"),
        (["bench", "compare", "missing", "missing"], "missing: No such file"),
    ],
)
def test_wrong_command_lines_get_one_sentence(words, said, kept_ceilings):
    ran = run_here(*words)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_missing_packages_for_plots_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = run_here("bench", "quick", "-a", "numpy", "--plot", "x.png")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "dmlgpu: matplotlib is not installed; install it with: pip install 'dmlgpu[bench]'\n"


def test_help_names_the_verbs_and_run_is_the_default():
    assert "compare" in run_here("bench", "--help").stdout
    assert "--schedules" in run_here("bench", "run", "--help").stdout
    assert run_here("bench", "GEMM", "--help").stdout == run_here("bench", "run", "--help").stdout


def test_models_are_right_on_the_reference():
    pytest.importorskip("onnx", reason="onnx is not installed, which reads models")
    path = Path(__file__).parents[3] / "examples" / "add.onnx"
    prepared = PreparedOnnxModel(Device(NUMPY_ADAPTER), Workload("add.onnx", "MODEL", model=str(path)))
    assert prepared.readiness.check.status == "right"
    assert prepared.readiness.counts.bytes > 0
    sample = prepared.round(2)
    assert (sample.gpu, sample.wall > 0) == (None, True)
    prepared.close()


def test_a_language_model_starts_over_when_its_context_is_full(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers", reason="needs the extra llm")
    from dmlgpu.bench import prepared_token
    from dmlgpu.demo.language_model import DecoderSizes, write

    write(tmp_path, DecoderSizes(layers=1, heads=1, kv_heads=1, feed_forward=64, vocabulary=300))
    monkeypatch.setattr(prepared_token, "CONTEXT", len(prepared_token.PROMPT) + 10)
    workload = Workload("token", "MODEL", model=str(tmp_path))
    prepared = worker.prepare(Device("numpy"), workload, checked=True, plain=False)
    assert prepared.readiness.check.status == "unchecked" and prepared.readiness.init.total > 0
    samples = [prepared.round(6) for _ in range(4)]  # at most 8 tokens fit after the prompt
    assert all(sample.gpu is None and sample.wall > 0 for sample in samples)
    prepared.close()
