"""docs/conformance-table.md is made from the stored surveys, which hold nothing personal."""

from __future__ import annotations

import gzip
import re
import runpy
from pathlib import Path

import pytest

from dmlgpu.cli import survey_file
from dmlgpu.cli.survey_file import read_survey
from dmlgpu.conformance.running.outcome import Outcome, Status
from tests.unit.conformance.report_runs import run

ROOT = Path(__file__).parents[2]
PERSONAL = re.compile(r"/(?:home|root|Users|tmp|work|usr|opt|mnt)/|[A-Za-z]:\\\\|\b\d{1,3}(?:\.\d{1,3}){3}:\d+")
"""Paths and addresses of machines."""

MAX_BYTES = 1_200_000


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(ROOT / "scripts" / "survey_page.py"))


def test_stored_surveys_are_small_and_hold_nothing_personal(script):
    for path in script["STORED"].glob("*"):
        assert path.name.endswith(".json.gz") and path.stat().st_size < MAX_BYTES
        text = gzip.decompress(path.read_bytes()).decode()
        assert PERSONAL.findall(text) == []
        for word in survey_file.personal_words():
            assert f'"{word}"' not in text and f"/{word}/" not in text
        assert read_survey(path).facts["adapters"]


def test_the_pages_are_what_the_surveys_say(script):
    if not any(script["STORED"].glob("*.json.gz")):
        pytest.skip("no survey is stored")
    for path, text in script["pages"](script["stored"]()).items():
        assert path.read_text(encoding="utf-8") == text, "python scripts/survey_page.py writes it again"


def test_the_numbers_of_the_landing_page_are_replaced(script):
    cases = [Outcome("argmin-a", Status.PASS), Outcome("argmin-b", Status.NOT_SUPPORTED)]
    runs = [
        run(*cases, name="llvmpipe (LLVM)", backend="Vulkan"),
        run(*cases[:1], name="swiftshader", backend="Browser"),
        run(*cases, name="llvmpipe (LLVM)", backend="Vulkan", suite="driver"),
    ]
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    lines = script["with_counts"](text, runs).splitlines()
    assert any(line.startswith("| lavapipe (llvmpipe, on the CPU) | wgpu: Vulkan | [1 of 2](conf") for line in lines)
    assert any("| [1 of 1](conformance-table.md) in Chromium (SwiftShader) |" in line for line in lines)
    assert "- **2 of 3** conformance cases passed in two runs, 1 were not supported, none was wrong:" in lines
