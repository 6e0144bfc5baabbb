"""docs/float16.md quotes what its script and its command print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "float16.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("float16")


@pytest.fixture
def table(folder: Path, adapter_environment: dict[str, str]) -> str:
    script = "".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=adapter_environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_quotes_what_is_printed(table: str, folder: Path, adapter_environment: dict[str, str]) -> None:
    """The table of nodes, and the command's lines, which the page wraps at 80 columns."""
    pytest.importorskip("onnxruntime")
    quoted_check, quoted_table = re.findall(r"^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert table == quoted_table
    done = subprocess.run(
        [sys.executable, "-m", "dmlgpu", "run", "model16.onnx", "--input", "x=x.npy", "--check"],
        cwd=folder,
        env=adapter_environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    printed = " ".join(f"{done.stdout} {done.stderr}".split())
    outcome, command, message = quoted_check.partition("dmlgpu: ")
    for lines in (outcome, command + message):
        assert " ".join(lines.split()) in printed
