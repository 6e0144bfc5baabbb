"""Runs side by side, in three formats."""

from __future__ import annotations

import base64
import itertools
import json
import re
import shlex
import zlib
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from dmlgpu.cli.main import main
from dmlgpu.common.errors import InvalidArgument, counted
from dmlgpu.conformance.drivers.pairwise import Comparison
from dmlgpu.conformance.report.charts import charts
from dmlgpu.conformance.report.junit import as_junit
from dmlgpu.conformance.report.model import Report, family_of, features, labels, limits, reproduce, run_facts
from dmlgpu.conformance.report.pairs import PairReport, difference
from dmlgpu.conformance.report.verdict import causes
from dmlgpu.conformance.report.writing import as_html, as_markdown, dataset, packed, write_report
from dmlgpu.conformance.running.outcome import (
    Outcome,
    Status,
    bound_text,
    moment_text,
    share_text,
    ulp_text,
    wrong_text,
)
from dmlgpu.conformance.running.records import RecordedRun, write_comparison, write_run
from tests.unit.conformance.report_runs import BAD, CLOSE, CRASHED, GOOD, REFUSED, compared, measured, mixed, run


@pytest.fixture
def report() -> Report:
    return mixed()


# ---- what all formats are made from ---------------------------------------------------------------------------------


def test_the_matrix(report):
    (matrix,) = report.matrices
    assert matrix.groups == {"operators": ("argmin", "cast", "fold")}
    kinds = [
        [cell and (cell.kind, cell.summary) for cell in (report.cell(name, n) for n in (0, 1))]
        for name in matrix.groups["operators"]
    ]
    assert kinds == [
        [("good", "1, exact"), ("good", "1, exact")],
        [("bad", "1 of 3, out of tolerance"), ("known", "1 of 2, 250 %")],
        [None, ("bad", "0 of 1")],
    ]


def test_a_cell_with_rejections_only():
    assert Report((run(REFUSED),)).cell("cast", 0).kind == "refused"


def test_operators_are_put_into_families(report):
    (matrix,) = report.matrices
    assert [(family.name, family.operators) for family in matrix.families] == [
        ("elementwise", ("cast",)),
        ("reduction", ("argmin",)),
        ("window", ("fold",)),
    ]
    assert report.family(matrix.families[0], 1).summary == "1 of 2, 250 %"
    assert report.family(matrix.families[2], 0) is None


def test_an_older_operator_is_in_the_family_of_its_successor():
    assert (family_of("gather_nd"), family_of("chain")) == ("indexing", "")


def test_functions_and_others_come_last():
    (matrix,) = Report((run(measured("a", (0, 1.0)), Outcome("b-c", Status.PASS), GOOD),)).matrices
    assert [family.name for family in matrix.families] == ["reduction", "functions", "others"]
    assert list(matrix.groups.items()) == [("operators", ("argmin",)), ("functions", ("a",)), ("others", ("b",))]


def test_each_suite_has_a_matrix():
    report = Report((run(GOOD), run(measured("exp", (0, 1.0)), suite="accuracy"), run(GOOD, name="that")))
    assert [(matrix.suite, matrix.title, matrix.numbers, matrix.groups) for matrix in report.matrices] == [
        ("dmlgpu", "Operators", (0, 2), {"operators": ("argmin",)}),
        ("accuracy", "Accuracy", (1,), {"functions": ("exp",)}),
    ]


@pytest.mark.parametrize(
    ("distance", "text"),
    [
        (None, ""),
        (0.0, "0 ULP"),
        (1.5, "1.5 ULP"),
        (28171.0, "28,200 ULP"),
        (999.9, "1,000 ULP"),
        (1.234e7, "1.23e+7 ULP"),
        (1e30, "1.00e+30 ULP"),
        (float("inf"), "not comparable"),
    ],
)
def test_distances(distance, text):
    assert ulp_text(distance) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, ""),
        (0.0, "exact"),
        (0.0004, "below 0.1 % of the tolerance"),
        (0.6, "60 % of the tolerance"),
        (0.9999, "100 % of the tolerance"),
        (1.0, "100 % of the tolerance"),
        (1.0004, "just over 100 % of the tolerance"),
        (9.996, "1000 % of the tolerance"),
        (10.0, "10 times the tolerance"),
        (5.46e8, "5.46e+8 times the tolerance"),
        (float("inf"), "out of tolerance"),
    ],
)
def test_errors_relative_to_the_tolerance(error, text):
    assert bound_text(error) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [(None, ""), (0.0, "exact"), (0.63, "63 %"), (1.002, "just over 100 %"), (28171.0, "28,200 times")],
)
def test_errors_where_there_is_little_room(error, text):
    assert share_text(error) == text


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        ("2026-11-22T17:59:50+00:00", "2026-11-22 17:59 UTC"),
        ("2026-11-22T17:59:50-09:30", "2026-11-22 17:59 -09:30"),
        ("2026-11-22T17:59:50", "2026-11-22 17:59"),
        ("noon", "noon"),
    ],
)
def test_moments_have_their_time_zone(moment, text):
    assert moment_text(moment) == text


def test_plurals():
    assert [wrong_text(1, 1), wrong_text(1, 4), wrong_text(2, 4000)] == [
        "1 of 1 element is wrong",
        "1 of 4 elements is wrong",
        "2 of 4,000 elements are wrong",
    ]
    assert [counted(count, "case") for count in (0, 1, 2, 1234)] == ["0 cases", "1 case", "2 cases", "1,234 cases"]


def named(name, backend, driver, suite="dmlgpu", **facts) -> RecordedRun:
    recorded = run(name=name, backend=backend, driver=driver, suite=suite)
    recorded.facts.update({"started": "noon", **facts})
    return recorded


def test_labels_are_short_and_tell_runs_apart():
    runs = (
        named("llvmpipe (LLVM 15.0.6, 256 bits)", "Vulkan", "Mesa 25.0.7-2~bpo12+1 (LLVM 15.0.6)"),
        named("llvmpipe (LLVM 15.0.6, 256 bits)", "OpenGL", "4.5 (Core Profile) Mesa 25.0.7-2~bpo12+1"),
        named("SwiftShader Device (Subzero)", "Vulkan", ""),
        named("numpy", "NumPy", "NumPy 2.4.6, Python 3.11.7"),
        named("numpy", "NumPy", "NumPy 2.4.6, Python 3.11.7", started="midnight"),
        named("numpy", "NumPy", "NumPy 2.4.6, Python 3.11.7", suite="accuracy"),
        named("H100", "Vulkan", "535.104.05"),
    )
    assert [str(label) for label in labels(runs)] == [
        "llvmpipe (Vulkan, Mesa 25.0.7)",
        "llvmpipe (OpenGL, Mesa 25.0.7)",
        "SwiftShader Device (Vulkan)",
        "numpy (NumPy 2.4.6, noon)",
        "numpy (NumPy 2.4.6, midnight)",
        "numpy (NumPy 2.4.6)",
        "H100 (Vulkan, 535.104.05)",
    ]


def test_failures_are_grouped_by_cause(report):
    twice = Report(
        (run(BAD, Outcome("cast-e", Status.FAIL, of_bound=9.0, max_ulp=9.0), REFUSED, Outcome("fold-c", *REFUSED_TOO)),)
    )
    operators = [
        (cause.kind, cause.run, cause.text, cause.operators, cause.worst.case)
        for reported in (report, twice)
        for cause in causes(reported)
    ]
    assert operators == [
        ("bad", 0, "expected 4, got 5", ("cast",), "cast-b"),
        ("bad", 1, "signal 11; [31mwhat </script> a day", ("fold",), "fold-a"),
        ("known", 1, "told | so", ("cast",), "cast-d"),
        ("refused", 0, "needs shader-f64", ("cast",), "cast-c"),
        ("bad", 0, "expected 4, got 5", ("cast",), "cast-b"),
        ("refused", 0, "needs shader-f64", ("cast", "fold"), "cast-c"),
    ]


def test_a_compile_error_is_reported_once_for_all_operators():
    def error(case, kernel, fault="no type"):
        text = f"X: kernel {kernel!r} does not compile on card: {fault}\n> 3 | {kernel}"
        return Outcome(case, Status.FAIL, message=text)

    report = Report((run(error("cast-a", "a"), error("fold-a", "b"), error("cast-b", "a", "no name"), GOOD),))
    assert [(cause.operators, cause.cases) for cause in causes(report)] == [
        (("cast",), ()),
        (("cast", "fold"), ("cast-a", "fold-a")),
    ]
    page, text = as_html(report), as_markdown(report)
    assert "<details><summary>2 cases</summary><code>cast-a</code><br><code>fold-a</code></details>" in page
    assert text.count("no type") == 1 and "`cast-a`, `fold-a`" in text


REFUSED_TOO = (Status.NOT_SUPPORTED, "", None, None, None, 0, 0, (), (), "", "", None, "other words", "shader-f64")


def test_facts_stand_side_by_side(report):
    assert features(report).rows == {"shader-f64": ("yes", "")}
    assert limits(report).rows == {"max-buffer-size": ("4,096", "")}
    rows = run_facts(report).rows
    assert rows["adapter name"] == ("this", "that")
    assert rows["time in cases"] == ("0.5 s", "0.5 s")
    assert {"shaders", "case list", "commit", "wgpu", "os", "started", "suite", "profile"} <= rows.keys()


def test_the_quirks_in_force_are_named():
    report = Report((run(GOOD, name="llvmpipe (LLVM 15)", driver="Mesa 22.3.6"),))
    assert run_facts(report).rows["quirks"] == ("mesa-loops",)
    assert "- quirks: mesa-loops\n" in as_markdown(report) and "mesa-loops" in as_html(report)


def test_an_adapter_of_two_suites_has_its_features_once():
    report = Report((run(GOOD), run(GOOD, suite="accuracy"), run(GOOD, name="that")))
    assert features(report).numbers == (0, 2)


def test_suites_and_drivers_are_reproduced_there():
    other = run(GOOD, suite="models")
    other.facts["environment"] = {"VK_DRIVER_FILES": "/a b.json"}
    command = "dmlgpu test --suite models --adapter 'NumPy: this' -k argmin-a"
    assert reproduce(other, GOOD) == f"VK_DRIVER_FILES='/a b.json' {command}"


def test_precise_runs_are_reproduced_on_precise_devices():
    precise = run(GOOD)
    precise.facts["precise"] = True
    assert reproduce(precise, GOOD) == "dmlgpu test --adapter 'NumPy: this' --precise -k argmin-a"
    assert [label.details for label in labels((run(GOOD), precise))] == ["NumPy", "NumPy, precise"]


# ---- Markdown -------------------------------------------------------------------------------------------------------


def tables_of(markdown: str) -> list[list[list[str]]]:
    """The cells of the tables that a reader of GitHub's Markdown finds."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    tables: list[list[list[str]]] = []
    for token, content in itertools.pairwise(tokens):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type in ("td_open", "th_open"):
            tables[-1][-1].append(content.content)
    return tables


def test_markdown(report):
    adapters, matrix, wrong, known, refused = tables_of(as_markdown(report))
    assert adapters[0][4:] == ["cases", "pass", "fail", "not supported", "expected fail", "crash", "worst"]
    assert [row[0] for row in adapters[1:]] == ["this (NumPy)", "that (NumPy)"]
    assert [row[4:] for row in adapters[1:]] == [
        ["4", "2", "1", "1", "0", "0", "out of tolerance"],
        ["4", "2", "0", "0", "1", "1", "250 % of the tolerance"],
    ]
    assert matrix == [
        ["operators", "this (NumPy)", "that (NumPy)"],
        ["`argmin`", "1, exact", "1, exact"],
        ["`cast`", "**1 of 3, out of tolerance**", "1 of 2, 250 %"],
        ["`fold`", "-", "**0 of 1**"],
        ["all", "**2 of 4, out of tolerance**", "**2 of 4, 250 %**"],
    ]
    assert wrong[1:] == [
        [
            *("`cast`", "this (NumPy)", "1 fail, out of tolerance", "expected 4, got 5"),
            "`dmlgpu test --adapter 'NumPy: this' -k cast-b`",
        ],
        [
            *("`fold`", "that (NumPy)", "1 crash", "signal 11; [31mwhat &lt;/script> a day"),
            "`dmlgpu test --adapter 'NumPy: that' -k fold-a`",
        ],
    ]
    assert known[1:] == [["that (NumPy)", "1", "told | so", "`cast`"]]
    assert refused[1:] == [["this (NumPy)", "1", "needs shader-f64", "`cast`"]]


def test_markdown_lists_runs_and_changes():
    before, after = run(GOOD, CLOSE), run(BAD, GOOD)
    before.facts["commit"], after.facts["commit"] = "aaa", "bbb"
    text = as_markdown(Report((before, after)))
    assert "- commit: aaa (this (NumPy, aaa)), bbb (this (NumPy, bbb))" in text
    assert f"- wgpu: {before.facts['wgpu']}\n" in text
    assert "- this (NumPy, aaa) → this (NumPy, bbb): 1 missing, 1 new" in text


def test_markdown_names_few_operators():
    outcomes = [Outcome(f"op{index}-a", *REFUSED_TOO) for index in range(9)]
    (*_, refused) = tables_of(as_markdown(Report((run(*outcomes),))))
    assert refused[1][3] == "`op0`, `op1`, `op2`, `op3`, `op4`, `op5` and 3 more"


def test_markdown_says_when_a_run_was_cut_off():
    cut_off = run(GOOD)
    cut_off.facts["cases"] = 7
    adapters, *_ = tables_of(as_markdown(Report((RecordedRun(cut_off.facts, cut_off.outcomes, is_complete=False),))))
    assert adapters[1][4] == "1 of 7, truncated"


HOSTILE = "<script>alert(1)</script> <img src=x> `<b>` | x ![p](http://a/b.png) [l](java:x) &lt; \\| ``` \n# h <!--"
"""Text that would do something in a page, were it not escaped."""


def hostile() -> Report:
    """Runs and a comparison whose every text is hostile."""
    adapter = {"name": HOSTILE, "backend": HOSTILE, "driver": HOSTILE, "vendor": HOSTILE, "kind": HOSTILE}
    adapter |= {"features": (HOSTILE,), "limits": {HOSTILE: 1}}
    outcomes = [
        Outcome(f"{HOSTILE}-{status}", status, HOSTILE, 2.0, 2.0, 2.0, 1, 1, (0,), *((HOSTILE,), HOSTILE, HOSTILE))
        for status in (*Status, Status.PASS)
    ]
    outcomes = [replace(outcome, message=HOSTILE, reason=HOSTILE, missing=HOSTILE) for outcome in outcomes]
    runs = [run(*outcomes, suite=suite, **adapter) for suite in (HOSTILE, HOSTILE, "dmlgpu")]
    for index, recorded in enumerate(runs):
        texts = ("profile", "pattern", "dmlgpu", "commit", "wgpu", "numpy", "os", "started")
        recorded.facts.update(dict.fromkeys(texts, f"{HOSTILE}{index}"), environment={HOSTILE: HOSTILE})
    header = {**compared().facts, "adapters": {label: {} for label in (HOSTILE, "b", "c")}, "command": [HOSTILE]}
    header |= {"suite": HOSTILE, "profile": HOSTILE}
    pairs = tuple(
        replace(pair, case=HOSTILE, adapters=(HOSTILE, pair.adapters[1]), message=HOSTILE, tolerance=HOSTILE)
        for pair in compared().pairs
    )
    return Report(tuple(runs), (Comparison(header, pairs),))


def test_nothing_in_records_is_markdown():
    text = as_markdown(hostile())
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inner = [child for token in tokens for child in token.children or ()]
    assert not {token.type for token in [*tokens, *inner]} & {"html_block", "link_open", "image", "fence", "code_block"}
    assert {token.content for token in inner if token.type == "html_inline"} <= {"<br>"}  # the template's own
    assert {len({len(row) for row in table}) for table in tables_of(text)} == {1}
    headings = [after.content for token, after in itertools.pairwise(tokens) if token.type == "heading_open"]
    assert len(headings) == text.count("\n## ") + 1


def test_nothing_in_records_is_a_part_of_the_page():
    page = Page(as_html(hostile()))
    assert page.open == [] and not {"img", "b"} & page.tags.keys()
    assert page.tags["script"] == Page(as_html(mixed())).tags["script"] == 2
    assert not {link for link in page.links if not link.startswith("#")}


# ---- JUnit ----------------------------------------------------------------------------------------------------------

ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "id", "timestamp", "time", "tests", "failures", "errors", "skipped"},
    "property": {"name", "value"},
    "testcase": {"classname", "name", "time"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"message"},
    "properties": set(),
}
"""What Jenkins' schema and those like it know."""

CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase"},
    "properties": {"property"},
    "testcase": {"failure", "error", "skipped"},
}


def test_junit_has_the_common_shape(report):
    root = ElementTree.fromstring(as_junit(report))
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) == ATTRIBUTES[element.tag]
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
    for suite in root:
        assert [child.tag for child in suite] == ["properties", *["testcase"] * int(suite.get("tests"))]
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(name)) == len(suite.findall(f"testcase/{tag}"))
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "time")} == {
        "tests": "8",
        "failures": "1",
        "errors": "1",
        "time": "1.000",
    }


def test_junit_holds_all_results(report):
    root = ElementTree.fromstring(as_junit(report))
    assert [suite.get("name") for suite in root] == ["NumPy: this", "NumPy: that"]
    cases = {(case.get("name"), child.tag, child.get("message")) for case in root.iter("testcase") for child in case}
    assert cases == {
        ("cast-b", "failure", "fail"),
        ("cast-c", "skipped", "not supported: no float64: needs shader-f64"),
        ("cast-d", "skipped", "expected fail: told | so"),
        ("fold-a", "error", "signal 11\n\ufffd[31mwhat </script> a day"),
    }
    assert root.find(".//failure").text == (
        "1 of 4 elements is wrong; the worst, at [2]: expected 4, got 5 from <3>; "
        "7 ULP off, must be exact\nagain: dmlgpu test --adapter 'NumPy: this' -k cast-b"
    )
    properties = {entry.get("name"): entry.get("value") for entry in root[0].iter("property")}
    assert properties["adapter.name"] == "this" and properties["adapter.limits.max-buffer-size"] == "4096"
    assert {"shaders", "case_list", "commit", "wgpu"} <= properties.keys()
    assert root[0][1].attrib == {"classname": "argmin", "name": "argmin-a", "time": "0.500"}


# ---- the page -------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The tags that are open, the targets of links, and the text."""

    VOID = ("meta", "br", "input")

    def __init__(self, text: str):
        super().__init__()
        self.open, self.links, self.ids, self.text, self.tags = [], set(), [], "", Counter()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags[tag] += 1
        self.links |= {values["href"]} if "href" in values else set()
        self.ids += [values["id"]] if "id" in values else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["script"], ["style"]):
            self.text += f"{data} "


def test_the_page_is_whole_and_needs_nothing_else(report):
    text = as_html(report)
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    sections = {link[1:] for link in page.links if "/" not in link}
    assert {"adapters", "wrong", "matrix-dmlgpu", "differences", "facts"} == sections <= set(page.ids)
    assert not re.search(r"https?:|src=|@import|url\(", text)


def test_the_page_tells_without_scripts(report):
    text = re.sub(r"\s+", " ", Page(as_html(report)).text)
    assert "✗ 1 of 3 out of tolerance" in text and "! 1 of 2 250 %" in text
    assert "1 fail this NumPy cast expected 4, got 5 cast-b" in text
    assert "shader-f64 yes ·" in text


def test_a_page_of_good_runs_says_so():
    text = Page(as_html(Report((run(GOOD),)))).text
    assert "No failures: 1 case passed" in text and "Failures" not in text and "Differences" not in text


def test_the_data_of_the_page():
    """Absent outcomes are null, infinities text, digests only equal or not."""
    this = run(GOOD, CLOSE, BAD)
    that = run(replace(GOOD, digest="12"), CLOSE, CRASHED, mixed().runs[1].outcomes[2], name="it's")
    data = json.loads(zlib.decompress(base64.b64decode(packed(Report((this, that))))))
    (suite,) = data["suites"]
    first, second = (entry["columns"] for entry in suite["runs"])
    assert suite["cases"] == ["argmin-a", "cast-a", "cast-b", "cast-d", "fold-a"]
    assert suite["operators"] == [["argmin", 1], ["cast", 3], ["fold", 1]]
    assert [data["statuses"][number]["name"] for number in first["status"][:3]] == ["pass", "pass", "fail"]
    assert first["max"] == [0.0, 1.5, 7.0, None, None] and second["share"][3] == 2.5
    assert first["share"] == [0.0, 0.75, "inf", None, None]
    assert (first["bits"], second["bits"]) == ([1, 1, 0, None, None], [2, 1, None, 0, 0])
    assert (first["inputs"][2], first["worst"][2], second["message"][4]) == ("<3>", "2", CRASHED.message)
    assert shlex.split(suite["runs"][1]["command"]) == ["dmlgpu", "test", "--adapter", "NumPy: it's", "-k"]


@pytest.mark.slow
def test_fifty_thousand_outcomes_make_a_small_page():
    outcomes = [
        replace(
            CLOSE,
            case=f"op{n % 170}-float32-{n}-s0",
            of_bound=n % 7 / 8,
            max_ulp=n % 7 / 4,
            elements=n,
            worst=(n % 5, n),
            got=f"{n / 7}",
        )
        for n in range(12500)
    ]
    assert len(as_html(Report(tuple(run(*outcomes, name=name) for name in "abcd")))) < 3_000_000


# ---- charts ---------------------------------------------------------------------------------------------------------


def test_charts_have_a_line_per_adapter():
    exp, floor = measured("exp-16", (-1, 0.5), (0, 1.0), (3, 2.0)), measured("floor-16", (0, 0.0), tolerance="exact")
    report = Report(tuple(run(exp, floor, suite="accuracy", name=name) for name in ("this", "that")))
    first, second = charts(report)
    assert [line.run for line in first.lines] == [0, 1]
    assert (first.function, first.bound, first.worst) == ("exp", 2.0, 2.0)
    assert (second.function, second.bound, second.worst) == ("floor", None, 0.0)
    # 300 pixels for exponents from -1 to 3; 120 for 0 to 1.15 times 2 ULP, from above.
    assert first.path(first.lines[0]) == "0,93.9 75,67.8 300,15.7"
    assert list(first.exponents) == [-1, 0, 1, 2, 3] and list(first.distances) == [0, 0.5, 1, 1.5, 2]
    assert first.description == "at most 2 ULP for inputs from 2^-1 to 2^3, 2 ULP allowed"


def test_far_off_functions_have_logarithmic_charts():
    report = Report((run(measured("sin", (0, 1.0), (1, 5000.0), (2, float("inf")))),))
    (chart,) = charts(report)
    assert chart.is_logarithmic and chart.worst == 5000.0
    assert list(chart.distances) == [0, 10, 100, 1000]
    # log(2) and log(5001) of log(5751), from above; what is infinite is at the edge.
    assert chart.path(chart.lines[0]) == "0,110.4 150,1.9 300,0"


def test_a_chart_of_one_point():
    (chart,) = charts(Report((run(measured("sin", (5, 1.0))),)))
    assert chart.path(chart.lines[0]) == "0,67.8"


# ---- adapters compared with each other ------------------------------------------------------------------------------

AGAIN = "dmlgpu test --pairwise --drivers all -k cast-b"
DIFFERENCE = "1 of 4 elements; the worst, at [2] of output 0: 4 and 5; 9 ULP off, must be exact"


def test_who_differs_from_the_others():
    pairs = PairReport(compared())
    assert pairs.alone == {"a": 0, "b": 1, "c": 0}
    assert [(row.adapters, row.same_bits, dict(row.counts), row.of_bound) for row in pairs.rows] == [
        (("a", "b"), 1, {"agree": 1, "disagree": 1}, float("inf")),
        (("a", "c"), 1, {"agree": 2}, 0.5),
        (("b", "c"), 1, {"agree": 1, "no result": 1}, 0.0),
    ]
    (dispute,) = pairs.disagreements
    assert (dispute.case, dispute.outlier, dispute.command) == ("cast-b", "b", AGAIN)
    assert [difference(pair) for pair in dispute.pairs] == [DIFFERENCE, "c: crash | <x>"]


def test_comparisons_in_markdown():
    rows, disagreements = tables_of(as_markdown(Report((), (compared(),))))
    assert rows == [
        ["pair", "same bits", "agree", "disagree", "no result", "worst"],
        ["a / b", "1", "1", "1", "0", "out of tolerance"],
        ["a / c", "1", "2", "0", "0", "50 % of the tolerance"],
        ["b / c", "1", "1", "0", "1", "exact"],
    ]
    assert disagreements[1] == ["`cast-b`", "b", f"a / b: {DIFFERENCE}<br>b / c: c: crash | &lt;x>"]


def test_comparisons_on_the_page():
    page = Page(as_html(Report((), (compared(),))))
    text = re.sub(r"\s+", " ", page.text)
    assert "b alone differs on 1" in text and f"a / b {DIFFERENCE} b / c c: crash | <x> {AGAIN}" in text
    assert page.open == [] and {link[1:] for link in page.links} == {"pairs"} <= set(page.ids)


def test_reports_name_the_kernels_that_ran():
    wrong = replace(BAD, kernels=("cast map (elementwise/cast)", "cast second (schedules/map)"))
    kernels = "cast map (elementwise/cast); cast second (schedules/map)"
    report = Report((run(GOOD, wrong),))
    assert f"\nran as: {kernels}\nagain: " in ElementTree.fromstring(as_junit(report)).find(".//failure").text
    (suite,) = dataset(report)["suites"]
    assert dict(zip(suite["cases"], suite["runs"][0]["columns"]["kernels"], strict=True)) == {
        GOOD.case: "",
        wrong.case: kernels,
    }


def test_comparisons_in_junit():
    (suite,) = ElementTree.fromstring(as_junit(Report((), (compared(),))))
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("pairwise: a, b, c", "2", "1")
    (failure,) = suite.findall("testcase[@name='cast-b']/failure")
    assert failure.get("message") == "b differs"
    assert failure.text == f"a / b: {DIFFERENCE}\nb / c: c: crash | <x>\nagain: {AGAIN}"


# ---- files ----------------------------------------------------------------------------------------------------------


def test_the_command(tmp_path, capsys):
    recorded, output = tmp_path / "run.jsonl", tmp_path / "report.md"
    with recorded.open("w") as file:
        list(write_run(file, run().facts, [GOOD]))
    assert main(["report", str(recorded), str(recorded), "-o", str(output)]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    assert [row[0] for row in tables_of(output.read_text())[0][1:]] == ["this (NumPy)", "this (NumPy)"]


def test_the_command_takes_comparisons(tmp_path):
    recorded, output = tmp_path / "pairs.jsonl", tmp_path / "report.md"
    with recorded.open("w") as file:
        list(write_comparison(file, compared().facts, compared().by_case.values()))
    assert main(["report", str(recorded), "-o", str(output)]) == 0
    assert "| a / b | 1 | 1 | 1 | 0 | out of tolerance |" in output.read_text()


def test_unwritable_outputs_are_rejected(tmp_path):
    with pytest.raises(InvalidArgument, match=r"report.pdf: the suffix must be one of .html, .md, .xml, got '.pdf'"):
        write_report([run(GOOD)], tmp_path / "report.pdf")
    with pytest.raises(InvalidArgument, match="there is no run to report"):
        write_report([], tmp_path / "report.md")
