"""What is printed of measurements, and of how far they are."""

import io
from dataclasses import replace

import pytest

from dmlgpu.bench.machine_load import MachineLoad, load_warnings
from dmlgpu.bench.records import hot_text, phases_text, work_text
from dmlgpu.bench.specs import BenchSpec, parse_shape
from dmlgpu.cli.bench import print_against, print_busyness, print_measurement, print_variants
from dmlgpu.cli.subjects import find_workloads
from dmlgpu.cli.tables import BenchProgress, patience
from dmlgpu.common.errors import InvalidArgument
from tests.unit.bench.bench_fakes import CARD, measured, run

COUNTS = {"bytes": 10**6, "operations": 2 * 10**9, "plan_bytes": 2 * 10**6}


def test_times_have_intervals_and_sources():
    measurement = measured(seconds=[0.9, *[1.0] * 9, 1.1], wall=2.0, cpu=5e-5, cold=3.0, init={"total": 0.25})
    assert hot_text(measurement) == "1 s ± 0.0 % (gpu)"
    assert phases_text(measurement) == "2 s by the wall clock, cpu 50 us, first 3 s, compiled in 250 ms"


def test_work_says_rates_shares_and_memory():
    measurement = measured(
        seconds=[0.001] * 11,
        counts={**COUNTS, "temporary_bytes": 3 * 10**6, "least_temporary_bytes": 10**6},
        share=0.834,
        bound_by="copy",
    )
    assert work_text(measurement) == (
        "1 GB/s, 2e+03 GFLOP/s, 83 % of the copy rate, kernels move 2 times the bytes,"
        " 3 MB temporary (at least 1 MB) in addition to 1 MB"
    )
    fused = measured(seconds=[0.001] * 11, counts={**COUNTS, "unfused_bytes": 8 * 10**6})
    assert work_text(fused).endswith("fusion saves 75 % of 8 MB")


def test_wrong_rejected_and_doubtful_results_are_printed(capsys):
    print_measurement(measured(check="wrong", check_text="2 of 4 elements are wrong", warnings=("busy",)))
    print_measurement(measured(seconds=(), status="refused", message="no float64", schedule="small"))
    said = capsys.readouterr().out
    assert "\n  wrong: 2 of 4 elements are wrong\n  warning: busy\n" in said
    assert said.endswith("GEMM on gpu schedule small\n  refused: no float64\n")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_busy_machine_takes_one_line(capsys):
    busy = MachineLoad(0.8, 9.0, 2)
    print_busyness(busy, ["card"])
    print_measurement(measured(warnings=(*load_warnings(busy, busy, 0.5),)), is_busy=True)
    printed = capsys.readouterr().out.splitlines()
    assert sum("busy" in line for line in printed) == 1
    assert printed[0].startswith("Warning: the machine is busy: other processes took 80 %")
    assert printed[0].endswith(
        "the ceilings of card were measured on a busy machine and are too low; --ceilings measures them again"
    )
    assert printed[-1] == "  warning: the last rounds were 50 % slower than the first"


def test_a_long_step_is_mentioned_once():
    stream = io.StringIO()
    with patience("measuring the ceilings of card", stream, interval=0.001):
        pass
    assert stream.getvalue() == "dmlgpu: measuring the ceilings of card ... 0 s\n"


def test_kernels_are_compared_with_the_operator_measured_in_turn(capsys):
    label = CARD.label
    kernels = [
        replace(measured(f"mm.wgsl TILE={tile}", label, [seconds] * 11, check=check), operator="KERNEL")
        for tile, seconds, check in ((8, 4.0, "right"), (16, 1.0, "wrong"), (32, 2.0, "right"))
    ]
    others = [measured("GEMM", adapter=label, seconds=[1.0] * 11, compared_with=kernel.name) for kernel in kernels]
    result = run(*kernels, *others)
    print_against(result)
    first, second = capsys.readouterr().out.splitlines()  # none of the wrong one
    ratio = "0.25 [0.25, 0.25] (1 s / 4 s, 11 rounds)"
    assert first == f"mm.wgsl TILE=8 is slower: GEMM takes {ratio} times as long on {label}"
    assert second.startswith("mm.wgsl TILE=32 is slower: GEMM takes 0.5 ")
    print_variants(result)
    names = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()[2:]]
    assert names == ["mm.wgsl TILE=32", "mm.wgsl TILE=8", "mm.wgsl TILE=16"]


def test_a_terminal_sees_a_bar_that_goes_away():
    file = Terminal()
    progress = BenchProgress(file, 4)
    progress.show(2, "GEMM", "round 3")
    assert file.getvalue() == "\r[##########..........] 3 of 4: GEMM, round 3"
    progress.finish()
    assert file.getvalue().endswith("\r")
    assert file.getvalue().rpartition("\r")[0].endswith(" ")


def test_nothing_is_printed_elsewhere():
    file = io.StringIO()
    BenchProgress(file, 4).show(2, "GEMM", "round 3")
    assert file.getvalue() == ""


def test_shapes_are_of_models(tmp_path):
    assert parse_shape("x=1x3x48") == ("x", (1, 3, 48))
    for text in ("x", "x=", "x=1x-3", "=3"):
        with pytest.raises(InvalidArgument, match="a shape must be NAME=1x3x48x192"):
            parse_shape(text)
    path = tmp_path / "model.onnx"
    path.touch()
    (row,) = find_workloads([BenchSpec(str(path), shapes={"x": (1, 3)})])
    assert (row.workload.name, row.workload.operator, row.workload.shapes) == (
        "model.onnx x=1x3",
        "MODEL",
        {"x": (1, 3)},
    )
    with pytest.raises(InvalidArgument, match="GEMM is not an ONNX model"):
        find_workloads([BenchSpec("GEMM", shapes={"x": (1, 3)})])
