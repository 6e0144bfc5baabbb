"""Predicted times of workloads: kernels, limits, what is read from their text, files, comparison, the command line."""

import json
import math
import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from dmlgpu.bench import predicting, radv
from dmlgpu.bench.choosing import of_operator
from dmlgpu.bench.compiled import CompiledKernel
from dmlgpu.bench.kernel_text import read_kernel_text
from dmlgpu.bench.predicting import (
    Prediction,
    compare_predictions,
    is_prediction_file,
    predict,
    read_predictions,
    target_of_card,
    write_predictions,
)
from dmlgpu.bench.specs import BenchSpec, read_suite
from dmlgpu.bench.workload import KernelBuffer, OwnKernel, Workload
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.cli.subjects import compiled_workloads
from dmlgpu.common.errors import ModelError
from dmlgpu.compiler import programs
from dmlgpu.compiler.cards import STREAMED, cards, find_card
from dmlgpu.compiler.explain import check
from dmlgpu.compiler.schedule import scan
from tests.unit.cli.cli_process import run_here

TABLE = Path(__file__).parents[3] / "benchmarks" / "results" / "compiled.jsonl"

H100, XTX = find_card("H100"), find_card("RX 7900 XTX")


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    """Estimate all instructions, as on machines without RADV."""
    monkeypatch.setattr(predicting, "missing_parts", lambda: ("RADV",))


def predicted(operator, card, sizes, data_type=DataType.FLOAT32):
    (workload,) = of_operator(operator, (sizes,), (data_type,))
    (prediction,) = predict([workload], card)
    return prediction


# ---- times


@pytest.mark.parametrize("card", cards().values(), ids=lambda card: card.name)
@pytest.mark.parametrize("operator", ["ELEMENT_WISE_ADD", "ELEMENT_WISE_IDENTITY"])
def test_large_maps_take_their_bytes_at_the_rate_of_the_memory(card, operator):
    """64M elements of float32: inputs and output once, within 5 %."""
    prediction = predicted(operator, card, {"elements": 64 << 20})
    tensors = {"ELEMENT_WISE_ADD": 3, "ELEMENT_WISE_IDENTITY": 2}[operator]
    least = tensors * 4 * (64 << 20) / card.memory
    assert prediction.limit == "memory"
    assert least <= prediction.seconds <= 1.05 * least
    assert prediction.counts["bytes"] == tensors * 4 * (64 << 20)


def test_a_gather_reads_only_the_picked_elements():
    """16,384 of 131,072 rows of 256 elements, read and written, and their indices."""
    prediction = predicted("GATHER", H100, {"rows": 1 << 17, "columns": 256, "picked": 1 << 14})
    moved = 2 * 4 * 256 * (1 << 14) + 4 * (1 << 14)
    assert prediction.seconds == pytest.approx(moved / H100.memory + H100.launch, rel=0.01)


def test_float16_takes_half_the_time_of_float32():
    sizes = {"elements": 64 << 20}
    half, single = (predicted("ELEMENT_WISE_ADD", H100, sizes, kind) for kind in (DataType.FLOAT16, DataType.FLOAT32))
    assert half.seconds / single.seconds == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize(
    ("name", "rate"),
    # Operations per second of float16 matrices with float32 sums, of the vendors' data sheets.
    [("RX 7900 XTX", 123e12), ("RX 9070 XT", 195e12), ("RTX 4090", 165e12), ("A100", 312e12), ("Arc A770", 137e12)],
)
def test_products_on_matrix_units_take_their_rate(name, rate, monkeypatch):
    """Between the rate and 40 % of it, with what else a kernel does; on a GPU without them, nothing changes."""
    operations, sizes = 2 * 4096**3, {"m": 4096, "n": 4096, "k": 4096}
    before = {card: predicted("GEMM", find_card(card), sizes, DataType.FLOAT16).seconds for card in (name, "RX 6800")}
    monkeypatch.setenv("DMLGPU_MATRICES", "always")
    prediction = predicted("GEMM", find_card(name), sizes, DataType.FLOAT16)
    assert [kernel.label for kernel in prediction.kernels] == ["gemm cooperative x4"]
    assert operations / rate <= 1.01 * prediction.seconds <= 2.5 * operations / rate
    assert prediction.seconds < before[name]
    assert predicted("GEMM", find_card("RX 6800"), sizes, DataType.FLOAT16).seconds == before["RX 6800"]


def test_attention_on_matrix_units_is_predicted(monkeypatch):
    sizes = {"batch": 4, "heads": 16, "queries": 2048, "keys": 2048, "size": 64}
    ordinary = predicted("MULTIHEAD_ATTENTION", H100, sizes, DataType.FLOAT16)
    monkeypatch.setenv("DMLGPU_MATRICES", "always")
    prediction = predicted("MULTIHEAD_ATTENTION", H100, sizes, DataType.FLOAT16)
    least = 4 * 4 * 16 * 2048 * 2048 * 64 / (2 * H100.multiply_adds * H100.matrix)
    assert "cooperative" in prediction.kernels[-1].label and least < prediction.seconds < ordinary.seconds


def test_an_invocation_that_holds_four_units_runs_its_loop_once(monkeypatch):
    sizes = {"rows": 1 << 16, "columns": 1024}
    held = predicted("CUMULATIVE_SUMMATION", H100, sizes).seconds
    monkeypatch.setattr(scan, "UNITS_HELD", 1)
    assert held < predicted("CUMULATIVE_SUMMATION", H100, sizes).seconds


def test_the_least_operator_takes_a_launch():
    prediction = predicted("ELEMENT_WISE_ADD", XTX, {"elements": 64})
    assert prediction.limit == "launch"
    assert XTX.launch < prediction.seconds < 2 * XTX.launch


def test_a_large_product_is_limited_by_arithmetic():
    prediction = predicted("GEMM", H100, {"m": 4096, "k": 4096, "n": 4096})
    rate = 2 * 4096**3 / prediction.seconds
    assert prediction.limit == "arithmetic"
    assert 0.7 < rate / (2 * H100.multiply_adds) < 1


@pytest.mark.parametrize("operator", ["GEMM", "ELEMENT_WISE_ADD", "CONVOLUTION", "ACTIVATION_SOFTMAX1", "LSTM"])
def test_faster_cards_are_predicted_to_be_faster(operator):
    times = [predicted(operator, find_card(name), {}).seconds for name in ("Adreno 740", "RX 7600", "RX 7900 XTX")]
    assert times == sorted(times, reverse=True)


def test_kernels_add_up():
    prediction = predicted("LSTM", XTX, {})
    total = sum(kernel.times * kernel.seconds for kernel in prediction.kernels)
    assert prediction.seconds == pytest.approx(total, rel=1e-3)
    assert sum(prediction.limits.values()) == pytest.approx(prediction.seconds, rel=1e-3)
    assert sum(kernel.times for kernel in prediction.kernels) == prediction.counts["kernels"]
    assert max(kernel.times for kernel in prediction.kernels) == 64  # time steps


def test_compiled_kernels_replace_estimates(monkeypatch):
    """A kernel of 100,000 vector instructions is limited by them."""
    (workload,) = of_operator("ELEMENT_WISE_ADD", ({"elements": 1 << 20},))
    (program,) = [programs.of_operator(workload.desc, target_of_card(XTX).for_operators(half_precision=False))]
    statistics = dict.fromkeys(("loop_instructions", "loop_multiply_adds", "shared_bytes", "barriers"), 0)
    statistics |= {"instructions": 100_002, "waits": 2, "valu": 100_000, "vgprs": 24}
    plain = next(predict([workload], XTX))
    monkeypatch.setattr(predicting, "missing_parts", lambda: ())
    kernel = CompiledKernel(workload.name, 0, "", "navi31", statistics=statistics, wgsl=program.kernels[0].wgsl)
    monkeypatch.setattr(predicting, "compile_workloads", lambda *_, **__: ({}, (kernel,)))
    compiled = next(predict([workload], XTX))
    assert (plain.limit, compiled.limit) == ("memory", "arithmetic")
    assert (plain.kernels[0].compiled, compiled.kernels[0].compiled) == (False, True)
    groups = math.ceil((1 << 18) / 256 / 96)
    assert compiled.seconds == pytest.approx(XTX.launch + groups * 256 * 100_000 / 64 / 2.5e9, rel=0.01)


ROWS = """@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = 0.0;
    for (var k = 0u; k < 1000u; k++) { sum = fma(a[id.x * 1000u + k], 3.0, sum); }
    sums[id.x] = sum;
}"""
BUFFERS = (
    KernelBuffer("a", 0, TensorDesc(DataType.FLOAT32, (6_400_000,)), is_output=False),
    KernelBuffer("sums", 1, TensorDesc(DataType.FLOAT32, (6400,)), is_output=True),
)


def own(source=ROWS, constants=None, **fields):
    kernel = OwnKernel(source, "main", constants or {}, BUFFERS, {}, (100, 1, 1), **fields)
    return Workload("my.wgsl", "KERNEL", kernel=kernel)


def compiled_as(monkeypatch, *loop, listing="BB0:\n\ts_cbranch_scc1 BB0\n", **fields):
    """Let RADV compile a kernel to 40 instructions of which a loop has 10, and some multiply-adds."""
    names = ("instructions", "loop_instructions", "loop_multiply_adds")
    statistics = {"waits": 2, "valu": 20, "vgprs": 24, "shared_bytes": 0, "barriers": 0}
    statistics |= dict(zip(names, (40, *loop), strict=True))
    kernel = CompiledKernel("my.wgsl", 0, "main", "navi31", statistics=statistics, listing=listing, **fields)
    monkeypatch.setattr(predicting, "missing_parts", lambda: ())
    monkeypatch.setattr(predicting, "compile_workloads", lambda *_, **__: ({}, (kernel,)))


def test_kernels_of_users_are_predicted_from_their_loops(monkeypatch):
    """Each of 6,400 invocations does 1,000 multiply-adds, two in each of 500 iterations."""
    compiled_as(monkeypatch, 10, 2)
    (prediction,) = predict([own(operations=2 * 6_400_000)], XTX)
    (twice,) = predict([own(operations=4 * 6_400_000)], XTX)
    assert (prediction.status, prediction.limit, prediction.compiled) == ("predicted", "latency", "compiled")
    assert prediction.counts == {"bytes": 4 * (6_400_000 + 6400), "operations": 12_800_000, "kernels": 1}
    # Each iteration waits for its loads, which a cache holds, after the one before.
    assert prediction.seconds - XTX.launch == pytest.approx(500 * predicting.HIT * XTX.latency, rel=0.05)
    assert twice.seconds - XTX.launch == pytest.approx(2 * (prediction.seconds - XTX.launch), rel=0.01)


def test_kernels_of_users_without_loops_are_predicted_without_operations(monkeypatch):
    compiled_as(monkeypatch, 0, 0, listing="BB0:\n\ts_endpgm\n")
    (prediction,) = predict([own()], XTX)
    assert (prediction.status, prediction.limit) == ("predicted", "memory")


def test_workgroup_sizes_of_users_kernels_may_be_overrides_with_values(monkeypatch):
    compiled_as(monkeypatch, 10, 2)
    (constant,) = predict([own(operations=1 << 34)], XTX)
    source = ROWS.replace("(64)", "(TILE, 1u)")
    (override,) = predict([own(operations=1 << 34, source=source, constants={"TILE": 64.0})], XTX)
    (smaller,) = predict([own(operations=1 << 34, source=source, constants={"TILE": 7.0})], XTX)
    assert override.status == "predicted" and override.seconds == constant.seconds != smaller.seconds


@pytest.mark.parametrize(
    ("loop", "fields", "message"),
    [
        ((10, 2), {}, "of which there are 2, and of a dispatch: --flops '2[*]m[*]n[*]k'"),
        ((0, 0), {"operations": 8}, "of which there are 0"),
        ((10, 2), {"operations": 8, "source": ROWS.replace("(64)", "(TILE)")}, "size depends on constants"),
    ],
)
def test_kernels_of_users_that_are_not_predicted(monkeypatch, loop, fields, message):
    compiled_as(monkeypatch, *loop)
    (prediction,) = predict([own(**fields)], XTX)
    assert prediction.status == "refused" and re.search(message, prediction.message)


def test_kernels_of_users_need_their_compiled_code(monkeypatch):
    monkeypatch.setattr(predicting, "missing_parts", lambda: ("Mesa 25 or newer",))
    (prediction,) = predict([own()], XTX)
    assert prediction.status == "refused" and prediction.message.endswith("which needs Mesa 25 or newer")


MISSING = radv.missing_parts()


@pytest.mark.skipif(bool(MISSING), reason=f"RADV cannot compile here: {', '.join(MISSING)} is missing")
def test_a_kernel_of_a_user_as_radv_compiles_it(monkeypatch):
    monkeypatch.setattr(predicting, "missing_parts", lambda: ())
    (prediction,) = predict([own(operations=2 * 6_400_000)], XTX)
    (unknown,) = predict([own()], XTX)
    assert prediction.status == "predicted" and prediction.compiled == "compiled"
    assert unknown.status == "refused" and "--flops" in unknown.message


# ---- sources of kernels

KERNEL = """
const COUNT = 4;
alias unit_t = vec4<f32>;
struct best_t { value: f32, index: array<u32, 2>, }
var<workgroup> slab: array<array<unit_t, 16>, 2>;
var<workgroup> tops: array<best_t, 8>;
var<workgroup> flags: array<atomic<u32>, COUNT>;
fn square(x: f32) -> f32 { return x * x; }  // one * operation
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    for (var k = 0u; k < 4u; k++) { workgroupBarrier(); }
    a[id.x] = square(1.0) + square(2.0) - max(x, y);
}
"""


def test_a_kernel_is_read_from_its_text():
    text = read_kernel_text(KERNEL)
    assert text.shared_bytes == 16 * 2 * 16 + 8 * 12 + 4 * 4
    assert (text.barriers, text.has_loop) == (1, True)
    # 12 of any kernel; <, ++ (two); +, -, max; a product for each of two calls
    assert text.instructions == 12 + 3 + 3 + 2


def test_a_kernel_without_loops_and_workgroup_memory():
    text = read_kernel_text("@compute @workgroup_size(1) fn main() { b[0] = b[0] + 1u; }")
    assert (text.instructions, text.shared_bytes, text.barriers, text.has_loop) == (13, 0, 0, False)


def test_instructions_by_text_are_near_those_of_a_compiler():
    """Of the rows of the suite ``families``: nine of ten kernels without products within a factor of 3."""
    records = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]]
    compiled = {
        (record["workload"], record["label"]): record["statistics"]
        for record in records
        if record["family"] == "navi31" and record["status"] == "compiled"
    }
    ratios, shared = {}, 0
    target = target_of_card(XTX).for_operators(half_precision=False)
    for workload in compiled_workloads([BenchSpec("families")]):
        check(workload.desc)
        for kernel in programs.of_operator(workload.desc, target).kernels:
            statistics = compiled.get((workload.name, kernel.label))
            if statistics is None or statistics["loop_multiply_adds"]:
                continue
            text = read_kernel_text(kernel.wgsl)
            ratios[workload.name, kernel.label] = text.instructions / statistics["instructions"]
            shared += text.shared_bytes == statistics["shared_bytes"] > 0
    assert len(ratios) >= 20
    far = {name: ratio for name, ratio in ratios.items() if not 1 / 3 < ratio < 3}
    assert len(far) <= len(ratios) / 10, far


# ---- files and comparison


def prediction(name="add", seconds=1e-3, **changes):
    return replace(Prediction(name, "ELEMENT_WISE_ADD", "H100", seconds=seconds, limits={"memory": seconds}), **changes)


def test_predictions_survive_a_file(tmp_path):
    path = tmp_path / "predicted.jsonl"
    before = [prediction(), prediction("other", 0.0, status="refused", message="no", limits={})]
    write_predictions(path, H100, ("dmlgpu", "bench"), before)
    assert is_prediction_file(path)
    assert list(read_predictions(path)) == before
    header = json.loads(path.read_text().splitlines()[0])
    assert (header["record"], header["card"]["name"], header["command"]) == ("predicted", "H100", ["dmlgpu", "bench"])
    path.write_text(path.read_text().replace('"seconds": 0.001', '"seconds": "soon"'))
    with pytest.raises(ModelError, match="line 2: is not a prediction"):
        read_predictions(path)


def test_changes_of_predictions():
    before = [prediction(), prediction("b"), prediction("c"), prediction("d"), prediction("e")]
    after = [
        prediction(seconds=1.05e-3),
        prediction("b", 1.2e-3),
        prediction("c", 0.8e-3),
        prediction("d", 0.0, status="failed"),
        prediction("f"),
    ]
    changes = compare_predictions(before, after, 0.1)
    assert [change.kind for change in changes] == ["same", "slower", "faster", "lost", "missing", "new"]
    assert [change.is_worse for change in changes] == [False, True, False, True, True, False]


# ---- the command line


def test_the_command_says_that_it_predicts(tmp_path):
    path = tmp_path / "predicted.jsonl"
    arguments = ["ELEMENT_WISE_ADD", "-s", "elements=64M", "--predict", "h100", "-o", str(path)]
    output = run_here("bench", *arguments).stdout
    lines = output.splitlines()
    assert lines[0] == "H100: PREDICTED times, not measurements. Nothing runs."
    compiled = "as RADV compiles them for navi31, which stands for this GPU"
    origin = "estimated from tiles and the kernels' source" if radv.missing_parts() else compiled
    assert lines[2] == f"  instructions and registers: {origin}"
    assert lines[5] == "ELEMENT_WISE_ADD elements=64M float32 on H100"
    assert lines[6].startswith("  predicted 27") and lines[6].endswith(" us in 1 kernel; limited by memory")
    assert len(read_predictions(path)) == 1
    record = json.loads(run_here("bench", *arguments, "--json").stdout)
    assert record["card"]["memory"] == pytest.approx(3350e9 * STREAMED)
    assert record["predictions"][0]["limits"] == {"memory": record["predictions"][0]["seconds"]}


def test_schedules_are_predicted_next_to_the_chosen_one():
    output = run_here("bench", "GEMM", "--predict", "RX 7600", "--schedule", "register").stdout
    names = [line for line in output.splitlines() if line.startswith("GEMM")]
    assert names == [
        "GEMM m=1024 k=1024 n=1024 float32 on RX 7600",
        "GEMM m=1024 k=1024 n=1024 float32 on RX 7600, schedule register",
    ]


def test_the_cards_are_listed():
    output = run_here("bench", "--predict", "list").stdout
    assert [line.split("  ")[0] for line in output.splitlines()[1:]] == list(cards())
    assert len(json.loads(run_here("bench", "--predict", "list", "--json").stdout)) == len(cards())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("GEMM", "--predict", "RTX 4080"),
            "no card is named 'RTX 4080'; the nearest is 'RTX 4090'; there are RX",
        ),
        (
            ("GEMM", "--predict", "H100", "--numpy", "--adapter", "0"),
            "--predict measures nothing, so it cannot be combined with --adapter, --numpy",
        ),
        (("GEMM", "--predict", "H100", "--schedule", "fast"), "a schedule must be one of"),
        (("--predict", "H100"), "give an operator, a case, a model, a kernel or a suite"),
    ],
)
def test_wrong_options(arguments, message):
    result = run_here("bench", *arguments)
    assert result.returncode == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_predictions_are_not_compared_with_measurements(tmp_path):
    predicted_file, measured = tmp_path / "predicted.jsonl", tmp_path / "measured.jsonl"
    write_predictions(predicted_file, H100, (), [prediction()])
    measured.write_text('{"record": "bench"}\n')
    for pair in ((predicted_file, measured), (measured, predicted_file)):
        result = run_here("bench", "compare", *map(str, pair))
        assert result.returncode == 2
        assert result.stderr == (
            f"dmlgpu: {predicted_file} has predictions and {measured} has not: predictions are compared only with"
            " predictions, written by `dmlgpu bench --predict CARD -o`\n"
        )


def test_predictions_are_compared_with_each_other(tmp_path):
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    write_predictions(before, H100, (), [prediction()])
    write_predictions(after, H100, (), [prediction(seconds=2e-3)])
    result = run_here("bench", "compare", str(before), str(after))
    assert result.returncode == 1
    assert result.stdout.splitlines()[-1] == "1 slower"
    assert run_here("bench", "compare", str(before), str(before)).returncode == 0


# ---- a card that was measured

MEASURED = TABLE.parent / "h100.jsonl"
"""Written by ``dmlgpu bench benchmarks/discrete.toml -o`` on an H100."""

UNLIKE = {
    "SCATTER_ELEMENTS rows=4096 columns=4096 float32",  # random places: sectors for elements
    "ELEMENT_WISE_QUANTIZE_LINEAR rows=8192 columns=8192 float32",  # division's slow path counts, and is not taken
}
"""Rows whose times the model does not predict."""


@pytest.mark.slow
@pytest.mark.skipif(bool(radv.missing_parts()), reason="instructions are those that RADV compiles, which is missing")
def test_times_on_an_h100_are_near_those_measured(monkeypatch):
    monkeypatch.undo()
    records = map(json.loads, MEASURED.read_text(encoding="utf-8").splitlines())
    measured = {record["name"]: record["median"] for record in records if record["record"] == "measurement"}
    workloads = compiled_workloads(read_suite(TABLE.parents[1] / "discrete.toml"))
    times = {prediction.name: prediction.seconds for prediction in predict(workloads, H100)}
    errors = {name: max(times[name] / seconds, seconds / times[name]) for name, seconds in measured.items()}
    assert math.exp(statistics.fmean(map(math.log, errors.values()))) < 1.3
    assert {name for name, error in errors.items() if error > 1.8} == UNLIKE
