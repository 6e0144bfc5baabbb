"""The script that runs the array API's suite: its list of skips, its copy of a checkout, how it counts."""

from __future__ import annotations

from pathlib import Path

import array_api_suite as suite
import pytest


def test_every_skip_has_a_reason() -> None:
    skips = suite.read_skips(suite.SKIPS.read_text(encoding="utf-8"))
    assert skips and all(name.startswith("array_api_tests/") and reason for name, reason in skips.items())
    assert suite.read_skips("# why\n# so\na\nb\n\n# else\nc\n") == {"a": "why so", "b": "why so", "c": "else"}
    with pytest.raises(SystemExit, match="a has no reason above it"):
        suite.read_skips("a\n# too late\n")


def test_the_copy_of_a_checkout(tmp_path: Path) -> None:
    checkout, folder = tmp_path / "checkout", tmp_path / "folder"
    (checkout / "array-api" / "spec").mkdir(parents=True)
    (checkout / "array_api_tests").mkdir()
    folder.mkdir()
    (before,), (after,) = suite.CHANGES, suite.CHANGES.values()
    (checkout / "array_api_tests" / "dtype_helpers.py").write_text(f"widest = max(\n    {before}\n)[0]\n")
    (checkout / "conftest.py").write_text("")
    suite.prepare(checkout, folder)
    text = (folder / "array_api_tests" / "dtype_helpers.py").read_text()
    assert after in text and (folder / "conftest.py").is_file() and (folder / "array-api" / "spec").is_dir()
    with pytest.raises(SystemExit, match="must be a checkout of array-api-tests"):
        suite.prepare(tmp_path, folder)


def test_counting() -> None:
    outcomes = {
        "t.py::test_a": "passed",
        "t.py::test_b[x]": "failed",
        "t.py::test_c[1]": "skipped",
        "t.py::test_cc": "skipped",
    }
    tests = [{"nodeid": name, "outcome": outcome} for name, outcome in outcomes.items()]
    outcome = suite.judged(tests, {"t.py::test_c": "why"})
    assert outcome == suite.Outcome(("t.py::test_a",), ("t.py::test_b[x]",), ("t.py::test_c[1]",), 1)
    assert outcome.share == 1 / 3
