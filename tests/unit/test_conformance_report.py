"""Runs side by side, in three formats."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from dmlgpu.cli.main import main
from dmlgpu.conformance.outcome import Outcome, Status
from dmlgpu.conformance.records import Run, facts, write_run
from dmlgpu.conformance.report import Report, as_html, as_junit, as_markdown, reproduce, write_report
from dmlgpu.device.numpy_adapter import NUMPY_ADAPTER
from dmlgpu.errors import InvalidArgument

GOOD = Outcome("argmin-a", Status.PASS, "exact", 0.0, 0.0, elements=4, seconds=0.5)
CLOSE = Outcome("cast-a", Status.PASS, "2 ULP", 1.5, 0.1, elements=4)
BAD = Outcome("cast-b", Status.FAIL, "exact", 7.0, 1.0, 1, 4, (2,), ("<3>",), "4", "5", 0.0)
REFUSED = Outcome("cast-c", Status.NOT_SUPPORTED, message="needs shader-f64", missing="shader-f64")
KNOWN = Outcome("cast-d", Status.EXPECTED_FAIL, max_ulp=float("inf"), reason="told so")
CRASHED = Outcome("fold-a", Status.CRASH, message="signal 11")


def run(*outcomes, name="this", features=()) -> Run:
    info = replace(NUMPY_ADAPTER, name=name, features=features, driver="")
    return Run({**facts(info, "operators", "quick", "", ()), "adapter": asdict(info)}, outcomes)


@pytest.fixture
def report() -> Report:
    return Report(
        (run(GOOD, CLOSE, BAD, REFUSED, features=("shader-f64",)), run(GOOD, CLOSE, KNOWN, CRASHED, name="that"))
    )


def test_the_matrix(report):
    assert report.operators == ("argmin", "cast", "fold")
    kinds = [
        [cell and (cell.kind, cell.summary) for cell in (report.cell(name, n) for n in (0, 1))]
        for name in report.operators
    ]
    assert kinds == [
        [("good", "1"), ("good", "1")],
        [("bad", "1 of 3, 7 ULP"), ("known", "1 of 2, not comparable")],
        [None, ("bad", "0 of 1")],
    ]


def test_a_cell_with_refusals_only(report):
    assert Report((run(REFUSED),)).cell("cast", 0).kind == "refused"


def test_markdown(report):
    lines = as_markdown(report).splitlines()
    assert lines[:6] == [
        "| operator | NumPy: this | NumPy: that |",
        "|---|---|---|",
        "| `argmin` | 1 | 1 |",
        "| `cast` | **1 of 3, 7 ULP** | 1 of 2, not comparable |",
        "| `fold` | - | **0 of 1** |",
        "| all | 2 of 4, 7 ULP | 2 of 4, not comparable |",
    ]
    assert lines[lines.index("## `cast`") + 2 :][:3] == [
        "- NumPy: this: `cast-b`: fail, 7 ULP; `dmlgpu test --adapter 'NumPy: this' -k cast-b`",
        "- NumPy: this: `cast-c`: not supported: needs shader-f64",
        "- NumPy: that: `cast-d`: expected fail, not comparable (told so)",
    ]


def test_junit(report):
    root = ElementTree.fromstring(as_junit(report))
    assert [(suite.get("name"), suite.get("tests")) for suite in root] == [("NumPy: this", "4"), ("NumPy: that", "4")]
    found = {(case.get("name"), child.tag, child.get("message")) for case in root.iter("testcase") for child in case}
    assert found == {
        ("cast-b", "failure", "fail"),
        ("cast-c", "skipped", "not supported: needs shader-f64"),
        ("cast-d", "skipped", "expected fail: told so"),
        ("fold-a", "error", "signal 11"),
    }
    assert root[0][0].attrib == {"classname": "argmin", "name": "argmin-a", "time": "0.500"}


class Page(HTMLParser):
    """The tags that are open, the targets of links, and the text."""

    VOID = ("meta", "br")

    def __init__(self, text: str):
        super().__init__()
        self.open, self.links, self.ids, self.text = [], set(), set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.links |= {values["href"]} if "href" in values else set()
        self.ids |= {values["id"]} if "id" in values else set()
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += f"{data} "


def test_the_page_is_whole_and_needs_nothing_else(report):
    text = as_html(report)
    page = Page(text)
    assert page.open == []
    assert page.links == {"#argmin", "#cast", "#fold"} and {"argmin", "cast", "fold"} <= page.ids
    assert not re.search(r"https?:|src=|@import|url\(", text)


def test_the_page_says_what_is_wrong(report):
    text = re.sub(r"\s+", " ", Page(as_html(report)).text)
    assert (
        "1 of 4 elements are wrong; the worst, at [2]: expected 4, got 5 from <3>; 7 ULP, allowed difference 0.0"
        in text
    )
    assert "dmlgpu test --adapter 'NumPy: this' -k cast-b" in text
    assert "shader-f64 yes -" in text
    assert "NumPy: that : 4 cases came out otherwise" in text


def test_adapters_of_other_suites_are_reproduced_there():
    other = run(GOOD)
    other.facts["suite"] = "models"
    assert reproduce(other, GOOD) == "dmlgpu test --suite models --adapter 'NumPy: this' -k argmin-a"


def test_the_command(tmp_path, capsys):
    given, made = tmp_path / "run.jsonl", tmp_path / "report.md"
    with given.open("w") as file:
        list(write_run(file, run().facts, [GOOD]))
    assert main(["report", str(given), str(given), "-o", str(made)]) == 0
    assert capsys.readouterr().out == f"{made}\n"
    assert made.read_text().startswith("| operator | NumPy: this | NumPy: this |\n")


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match=r"report.pdf: the suffix must be one of .html, .md, .xml, got '.pdf'"):
        write_report([run(GOOD)], tmp_path / "report.pdf")
    with pytest.raises(InvalidArgument, match="there is no run to report"):
        write_report([], tmp_path / "report.md")
