"""docs/speed.md says what the kept measurements say, and nothing of the machine that made them but what it is."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from dmlgpu.bench.records import read_file, write_run
from dmlgpu.bench.specs import BenchSpec, read_suite, suite_file
from dmlgpu.cli.subjects import find_workloads
from tests.unit.bench.bench_fakes import measured, run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "speed.md"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(ROOT / "scripts" / "speed_page.py"))


def kept_runs(script):
    return [recorded for path in sorted(script["KEPT"].glob("*.jsonl")) for recorded in read_file(path)]


def test_the_page_is_what_the_kept_files_say(script):
    text = PAGE.read_text(encoding="utf-8")
    assert text == script["page"](text, kept_runs(script), draw=False), "python scripts/speed_page.py writes it again"


def test_the_tables_are_what_the_kept_files_say(script):
    assert script["SIZES"].read_text(encoding="utf-8") == script["sizes_page"](kept_runs(script))


def test_every_family_of_the_suite_has_its_plot(script):
    named = set(re.findall(r"images/speed/([a-z0-9-]+\.svg)", PAGE.read_text(encoding="utf-8")))
    assert named == {path.name for path in script["IMAGES"].glob("*")}
    for name in named:
        assert (script["IMAGES"] / name).stat().st_size < 100_000


def test_kept_files_say_nothing_of_where_things_lie(script):
    for path in script["KEPT"].glob("*.jsonl"):
        text = path.read_text(encoding="utf-8")
        assert not any(f'"{word}"' in text for word in script["PRIVATE"])
        assert re.findall(r'"/[^"]*"', text) == []


def test_records_are_kept_without_folders(script):
    record = {"command": ["dmlgpu", "-o", "/somewhere/a.jsonl"], "interpreter": "python", "name": "GEMM m/k"}
    assert script["without"](record) == {"command": ["dmlgpu", "-o", "a.jsonl"], "name": "GEMM m/k"}


def test_every_row_says_what_limits_it(script):
    assert set(script["LIMITS"]) == {row.name or row.what for row in read_suite(suite_file("families"))}


def test_files_are_kept_without_what_is_private(script, tmp_path, monkeypatch):
    monkeypatch.setitem(script["keep"].__globals__, "KEPT", tmp_path / "kept")
    private = run(measured("GEMM m=8 k=8 n=8 float32"))
    private.facts["peers"] = {"fast": {"interpreter": "/somewhere/python", "is_gpu": True, "versions": {}}}
    path = tmp_path / "mine.jsonl"
    with path.open("w", encoding="utf-8") as file:
        list(write_run(file, private.facts, private.measurements))
    script["keep"](path)
    text = (tmp_path / "kept" / "mine.jsonl").read_text(encoding="utf-8")
    assert "somewhere" not in text
    assert "VK_DRIVER_FILES" not in text
    (again,) = read_file(tmp_path / "kept" / "mine.jsonl")
    assert again.measurements == private.measurements
    assert again.facts["peers"] == {"fast": {"is_gpu": True, "versions": {}}}


def test_tables_are_made_of_the_measurements(script):
    sizes = [{"batch": 1, "m": size, "k": size, "n": size} for size in (64, 128)]
    counts = {"bytes": 1000, "operations": 500, "kernels": 1, "temporary_bytes": 500, "persistent_bytes": 0}
    ours = [
        measured(
            f"GEMM m={size['m']}", seconds=(0.001 * size["m"],) * 12, wall=0.002 * size["m"], sizes=size, counts=counts,
            share=0.5, bound_by="copy", data_type="float32", taken=0.4,
        )
        for size in sizes
    ]  # fmt: skip
    numpy = [
        measured(f"GEMM m={size['m']}", "NumPy", (0.1,) * 12, wall=0.2, sizes=size, data_type="float32")
        for size in sizes
    ]
    runs = [run(*ours, *numpy)]
    results, text = script["found_in"](runs), script["sizes_page"](runs)
    assert "## GEMM float32" in text
    assert "| 64 | 64 ms | 128 ms | 200 ms | 1.6 | 50 % of the copy rate | 1.50 |" in text
    assert "| 128 | 128 ms | 256 ms | 200 ms | 0.78 | 50 % of the copy rate | 1.50 |" in text
    sentences = "\n".join(script["families"](results, draw=False))
    assert (
        "GEMM float32: gpu is faster than NumPy at m=k=n=64, but slower at m=k=n=128." in sentences
        and "|" not in sentences
    )
    assert "busy during 2 of 2 measurements: other processes took up to 40 %" in "\n".join(script["machine"](results))


def test_rows_are_those_of_the_suite_alone(script):
    names = [workload.workload.name for workload in find_workloads([BenchSpec("families")])]
    measurements = [
        measured(name, share=0.5, bound_by="copy") for name in (names[0], "depth-wise convolution", "GEMM m=64")
    ]
    results = script["found_in"]([run(*measurements)])
    _, _, *lines = script["rows"](results)
    assert [line.split(" | ")[0] for line in lines] == [f"| {names[0]}", "| depth-wise convolution"]
    limit = "loads of the windows: one channel has few multiply-adds per load"
    assert lines[1].endswith(f"| 50 % of the copy rate | {limit} |")


def test_a_page_without_its_marks_is_refused(script):
    with pytest.raises(SystemExit, match="the lines around the rows are missing"):
        script["between"]("nothing", "the rows", [])
    assert json.dumps(script["without"]([{"environment": 1, "x": {"interpreter": 2}}])) == '[{"x": {}}]'
