"""The pictures of README.md show what the stored results say."""

from __future__ import annotations

import itertools
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from dmlgpu.bench.peers.contestants import compare_peers
from dmlgpu.bench.records import read_file

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
IMAGES = ROOT / "docs" / "images"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "draw_readme.py"))


def shown(name: str) -> list[str]:
    """Return the strings that a picture shows."""
    return [
        re.sub(r"<[^>]+>", "", text) for text in re.findall(r"<text[^>]*>(.*?)</text>", (IMAGES / name).read_text())
    ]


def test_pictures_are_up_to_date(script: dict[str, Any]) -> None:
    drawn = script["pictures"]()
    assert {path.name for path in drawn} == {"speed.svg", "report.svg"}
    for path, text in drawn.items():
        assert path.read_text(encoding="utf-8") == text, "python scripts/draw_readme.py draws it again"


def test_ratios_are_those_of_the_measurements() -> None:
    texts = shown("speed.svg")
    pairs = dict(itertools.pairwise(texts))
    for peer in compare_peers(read_file(RESULTS / "speed" / "peers.jsonl")[-1]):
        assert peer.ratio is not None
        assert pairs[peer.name.replace("isation", "ization")] == f"{peer.ratio.median:.2f}"
    assert pairs["transpose 8192 x 8192"] == "2.82"
    assert pairs["product 4096, float16"] == "0.06"
    assert any("27 rows in float32: 1.43 on average" in text for text in texts)


def test_times_of_the_table_are_those_of_the_records() -> None:
    """The table that the chart is drawn from, and the records of the same run."""
    (run,) = read_file(RESULTS / "h100.jsonl")
    medians = [1e6 * measurement.median for measurement in run.measurements if measurement.median]
    table = (RESULTS / "2026-11-26-h100.md").read_text().partition("## Large operators")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.count("|") > 6]
    times = [float(row[2].replace(",", "")) for row in rows if re.fullmatch(r"[\d.,]+", row[2])]
    differences = [min(abs(time / median - 1) for median in medians) for time in times]
    assert len(times) > 30
    assert max(differences) < 0.002
    for row in rows:
        if re.fullmatch(r"[\d.]+", row[5]):
            assert float(row[5]) == pytest.approx(
                float(row[4].replace(",", "")) / float(row[2].replace(",", "")), abs=0.011
            )


def test_report_counts_the_cases_of_the_run() -> None:
    lines = (RESULTS / "2026-11-26-h100-quick.jsonl").read_text(encoding="utf-8").splitlines()
    passed = sum(record.get("status") == "pass" for record in map(json.loads, lines))
    texts = shown("report.svg")
    assert any(f"{passed:,} cases passed" in text for text in texts)
    counts = [re.fullmatch(r"(\d+) of (\d+)", text) for text in texts]
    assert sum(int(count[1]) for count in counts if count) == passed


@pytest.mark.parametrize("name", ["speed.svg", "report.svg"])
def test_pictures_are_readable_in_the_dark(name: str) -> None:
    text = (IMAGES / name).read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text and "<title>" in text and len(text) < 50_000
