"""What is printed of measurements, and of how far they are."""

import io

import pytest

from dmlgpu.bench.records import hot_text, phases_text, work_text
from dmlgpu.bench.specs import BenchSpec, parse_shape
from dmlgpu.cli.bench import print_measurement
from dmlgpu.cli.subjects import find_workloads
from dmlgpu.cli.tables import BenchProgress
from dmlgpu.common.errors import InvalidArgument
from tests.unit.bench.bench_fakes import measured

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
