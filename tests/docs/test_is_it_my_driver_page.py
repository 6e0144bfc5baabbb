"""docs/is-it-my-driver.md: its example runs, its links lead somewhere, and it explains every outcome."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import dmlgpu
from dmlgpu.conformance.running.expectations import load
from dmlgpu.conformance.running.outcome import Outcome, Status

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "is-it-my-driver.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", "docs/conformance.md"])
def test_the_page_is_linked(page):
    assert "is-it-my-driver.md)" in (ROOT / page).read_text(encoding="utf-8")


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        path, _, anchor = target.partition("#")
        text = (ROOT / "docs" / path).read_text(encoding="utf-8") if path else PAGE
        titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not anchor or anchor in anchors, target


def test_every_outcome_is_explained():
    assert set(re.findall(r"^\| `([a-z -]+)` \|", PAGE, re.MULTILINE)) == set(Status)


def test_an_outcome_reads_as_the_page_quotes_it():
    outcome = Outcome(
        "activation_softmax1-float32-65-permuted-masked-s0",
        Status.FAIL,
        "accumulated over 65 terms",
        of_bound=8.86,
        max_ulp=5060.0,
        wrong=13,
        elements=65,
        worst=(48,),
        inputs=("-2.5236537",),
        expected="0.0003731789",
        got="0.00037332624",
        bound=1.66369e-08,
        places="scattered from [5] to [55]",
    )
    assert f"fail: {outcome.case}\n  {outcome.wrong_elements}\n" in PAGE


def test_the_search_for_the_smallest_sizes(monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == "no size fails\n"
    evaluate = dmlgpu.evaluate

    def faulty(desc, inputs, device):
        """The last of the rows' elements is wrong from the fifth on."""
        (output,) = evaluate(desc, inputs, device=device)
        output[..., 4:] = np.float32(0)
        return (output,)

    monkeypatch.setattr(dmlgpu, "evaluate", faulty)
    exec(code, {})
    assert capsys.readouterr().out == "(1, 5)\n"


def test_the_list_of_known_failures_can_be_read(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "known.toml"
    path.write_text(text, encoding="utf-8")
    (known,) = load(path)
    assert known.cases == ("activation_softmax1-float32-*",)
