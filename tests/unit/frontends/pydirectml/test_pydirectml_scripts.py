"""Complete scripts that import pydirectml give onnxruntime's results for the same networks."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.pydirectml_scripts import (
    SCRIPTS,
    classifier_expected,
    classifier_weights,
    run_apart,
    run_here,
    style_expected,
    style_weights,
)


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True], ids=["in process", "apart"])
def test_style_transfer(tmp_path, apart):
    weights = style_weights()
    np.savez(tmp_path / "weights.npz", **weights)
    arguments = SCRIPTS / "style.py", tmp_path / "weights.npz", tmp_path / "result.npy"
    if apart:
        done = run_apart(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        printed = done.stdout
    else:
        printed = run_here(arguments[0], arguments[1:])
    assert printed == "styled [1, 3, 18, 10]\n"
    np.testing.assert_allclose(np.load(tmp_path / "result.npy"), style_expected(weights), rtol=1e-4, atol=1e-3)


def test_classifier(tmp_path):
    weights = classifier_weights()
    np.savez(tmp_path / "weights.npz", **weights)
    printed = run_here(SCRIPTS / "classifier.py", [tmp_path / "weights.npz", tmp_path / "result.npz"])
    probabilities, features = classifier_expected(weights)
    result = np.load(tmp_path / "result.npz")
    assert printed == f"class {np.argmax(probabilities)}\n"
    np.testing.assert_allclose(result["features"], features, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result["probabilities"].reshape(1, 10), probabilities, rtol=1e-4, atol=1e-6)


def test_the_script_of_the_page(tmp_path):
    page = (Path(__file__).parents[4] / "docs/pydirectml.md").read_text(encoding="utf-8")
    (code,), (printed,) = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "text"))
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    assert run_here(script, []) == printed
    # By hand: differences of neighbors are -1, and 3, 7, 11, 15 at the right edge.
    assert re.findall(r"\d+", printed) == ["0", "70", "0", "150", "100", "100", "100", "100"]
