"""What rows aim at: met where the interval reaches it, and the command says so."""

import json

import pytest

from dmlgpu.bench.aims import aims_of
from dmlgpu.bench.ceilings import CachedCeilings, Ceilings, save_ceilings
from dmlgpu.bench.records import BenchRun
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.bench.bench_fakes import measured
from tests.unit.cli.cli_process import run_here

ROUNDS = 12


def aims(*measurements, **aim):
    return aims_of(BenchRun({"adapters": {"gpu": {}}, "aims": {"GEMM": aim}}, measurements))


def times(*seconds):
    return tuple(seconds) * (ROUNDS // len(seconds))


@pytest.mark.parametrize(("share", "met"), [(0.5, True), (0.54, True), (0.56, False), (0.7, False)])
def test_a_share_is_met_where_the_interval_reaches_it(share, met):
    ours = measured(adapter="gpu", seconds=times(0.010, 0.012), share=0.5)  # 0.5 at 11 ms, 0.55 at 10 ms
    (aim,) = aims(ours, share=share)
    assert aim.measured == 0.5
    assert aim.best == pytest.approx(0.55)
    assert aim.is_met == met
    assert aim.cells()[-1] == ("met" if met else "missed")


def test_few_rounds_tell_nothing():
    (aim,) = aims(measured(adapter="gpu", seconds=(0.01,) * 3, share=0.1), share=0.9)
    assert aim.is_met
    assert aim.cells()[-1] == "3 rounds are too few"


def test_numpy_is_compared_by_the_wall_clock():
    ours = measured(adapter="gpu", seconds=times(0.001), wall=0.004)
    (aim,) = aims(ours, measured(adapter="NumPy", seconds=times(0.002), wall=0.002), numpy=0.6)
    assert (aim.name, aim.adapter, aim.measured, aim.is_met) == ("GEMM", "gpu", 0.5, False)
    assert aims(ours, numpy=0.6) == []  # nothing to compare with


def test_the_choice_is_compared_with_the_fastest_schedule_that_is_right():
    ours = measured(adapter="gpu", seconds=times(0.010))
    others = (
        measured(adapter="gpu", schedule="small", seconds=times(0.008)),
        measured(adapter="gpu", schedule="wrong", seconds=times(0.001), check="wrong"),
        measured(adapter="card", schedule="other", seconds=times(0.001)),
    )
    (aim,) = aims(ours, *others, choice=0.87)
    assert (aim.measured, aim.is_met) == (pytest.approx(0.8), False)
    (alone,) = aims(ours, choice=0.87)
    assert (alone.measured, alone.is_met) == (1.0, True)


def test_the_command_prints_targets_and_fails_if_one_is_missed(tmp_path, monkeypatch):
    monkeypatch.setattr("dmlgpu.bench.ceilings.cache_folder", lambda: tmp_path / "cache")
    save_ceilings(NUMPY_ADAPTER, CachedCeilings(Ceilings(1e10, 1e10, 1e-6, 1e-6, "wall clock"), 0.0))
    suite, output = tmp_path / "mine.toml", tmp_path / "bench.jsonl"
    row = '[[row]]\nwhat = "GEMM"\nname = "product"\nsizes = ["m=k=n=4"]\n'
    suite.write_text(f"{row}aims.numpy = 1e6\n", encoding="utf-8")
    ran = run_here("bench", suite, "-a", "numpy", "--budget", "30", "--precision", "0.5", "-o", output)
    assert "NumPy's time / ours" in ran.stdout
    assert ran.returncode == 1
    assert "missed" in ran.stdout
    header, *measurements, _ = map(json.loads, output.read_text(encoding="utf-8").splitlines())
    assert header["aims"] == {"product": {"numpy": 1e6}}
    assert {measurement["adapter"] for measurement in measurements} == {
        "numpy",
        "NumPy",
    }  # also measured, although not requested
    suite.write_text(f"{row}aims.speed = 3\n", encoding="utf-8")
    refused = run_here("bench", suite, "-a", "numpy")
    assert refused.returncode != 0
    assert "row 'product': aims" in refused.stderr
