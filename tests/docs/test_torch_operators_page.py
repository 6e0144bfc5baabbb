"""The table of PyTorch's operator tests has what they show: some of its rows, run again; `--profile full` runs all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path("docs", "pytorch-operators.md")
SAMPLED = 20
"""How many rows there are for each that runs."""


def rows(path: Path) -> dict[str, str]:
    """Return the rows of a table, by operator."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {line.split("`")[1]: line for line in lines if line.startswith("| `")}


@pytest.mark.skipif(sys.platform == "win32", reason="the script limits times with SIGPROF")
def test_rows_are_what_the_script_writes(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    page = rows(ROOT / PAGE)
    names = list(page)[:: 1 if pytestconfig.getoption("--profile") == "full" else SAMPLED]
    table = tmp_path / "table.md"
    patterns = sorted(
        {".".join(parts[:end]) for parts in (name.split(".") for name in names) for end in range(1, len(parts) + 1)}
    )
    command = [sys.executable, "scripts/torch_operators.py", "--table", str(table), "--operators", *patterns]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"DMLGPU_ADAPTER": "numpy"})
    written = rows(table)
    assert {name: written[name] for name in names} == {name: page[name] for name in names}


def test_none_is_wrong_and_most_are_right() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    counts = re.search(
        r"Of (\d+) operators, (\d+) are right in all samples, (\d+) are rejected .* and (\d+) are .* (\d+) have no",
        text,
    )
    assert counts is not None
    total, right, rejected, wrong, untested = map(int, counts.groups())
    assert (total, right + rejected + untested, wrong) == (len(rows(ROOT / PAGE)), total, 0)
    assert rejected <= 12


def test_rejected_operators_are_first_and_have_reasons() -> None:
    rejected, _, right = (ROOT / PAGE).read_text(encoding="utf-8").partition("## Right\n")
    cells = [line.split(" | ") for line in rejected.splitlines() if line.startswith("| `")]
    assert cells and all(len(row) == 5 and len(row[1]) > 20 for row in cells)
    assert "rejected" not in right and "<details" in right
