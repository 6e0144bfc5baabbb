"""What a report opens with, runs of different selections, and messages of compilers in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlgpu.conformance.report.model import Report, labels
from dmlgpu.conformance.report.verdict import causes, verdict
from dmlgpu.conformance.report.writing import as_html, as_markdown
from dmlgpu.conformance.running.records import RecordedRun
from tests.unit.report_runs import BAD, CLOSE, CRASHED, GOOD, KNOWN, REFUSED, compared, mixed, run

# ---- the verdict ----------------------------------------------------------------------------------------------------


def cut_off(*outcomes, cases):
    recorded = run(*outcomes)
    recorded.facts["cases"] = cases
    return RecordedRun(recorded.facts, recorded.outcomes, is_complete=False)


@pytest.mark.parametrize(
    ("runs", "kind", "text"),
    [
        ([run(GOOD)], "good", "All is right: 1 case passed on this (NumPy)."),
        ([run(GOOD, CLOSE), run(GOOD, name="that")], "good", "All is right: 3 cases passed in 2 runs."),
        (
            [run(GOOD, REFUSED, KNOWN)],
            "good",
            "Nothing is wrong: 1 of 3 cases passed on this (NumPy), 1 not supported and 1 expected to fail.",
        ),
        (
            [run(GOOD, BAD), run(CRASHED, name="that"), run(GOOD, name="fine")],
            "bad",
            "1 of 2 cases went wrong on this (NumPy): cast; 1 of 1 case on that (NumPy): fold.",
        ),
        (
            [run(*(replace(BAD, case=f"{name}-a") for name in "abcde"))],
            "bad",
            "5 of 5 cases went wrong on this (NumPy): a, b, c, and 2 more operators.",
        ),
        (
            [run(BAD, name=name) for name in "abcd"],
            "bad",
            "1 of 1 case went wrong on a (NumPy): cast; 1 of 1 case on b (NumPy): cast; 1 of 1 case on c (NumPy): "
            "cast; and cases of 1 more run.",
        ),
        ([cut_off(GOOD, cases=7)], "bad", "The run on this (NumPy) was cut off after 1 of 7 cases."),
    ],
)
def test_the_verdict_is_one_sentence(runs, kind, text):
    judged = verdict(Report(tuple(runs)))
    assert (judged.kind, judged.text) == (kind, text)


def test_the_verdict_on_adapters_compared_with_each_other():
    assert verdict(Report((), (compared(),))).text == "Adapters compared with each other disagree on 1 of 2 cases."
    agreeing = replace(compared(), pairs=compared().pairs[:3])
    assert verdict(Report((), (agreeing,))).text == "3 adapters compared with each other agree on 1 case."


@pytest.mark.parametrize("text", [as_html(mixed()), as_markdown(mixed())], ids=["page", "markdown"])
def test_a_report_opens_with_its_verdict(text):
    sentence = "1 of 4 cases went wrong on this (NumPy): cast; 1 of 4 cases on that (NumPy): fold."
    after_title = text.partition("What these adapters compute</h1>")[2] or text.partition("adapters compute\n")[2]
    assert after_title.lstrip().partition("\n")[0].removesuffix("</p>").removesuffix("**").endswith(sentence)


# ---- selections -----------------------------------------------------------------------------------------------------


def selected(pattern, *outcomes, profile="quick", **facts):
    recorded = run(*outcomes, **facts)
    recorded.facts.update(pattern=pattern, profile=profile)
    return recorded


def test_runs_of_different_selections_have_tables_of_their_own():
    report = Report((run(GOOD, CLOSE), selected("cast", CLOSE), run(GOOD, CLOSE, name="that"), selected("cast", CLOSE)))
    assert [(matrix.selection, matrix.numbers, matrix.groups["operators"]) for matrix in report.matrices] == [
        ("quick", (0, 2), ("argmin", "cast")),
        ("quick, -k cast", (1, 3), ("cast",)),
    ]
    assert len({matrix.key for matrix in report.matrices}) == 2
    text = as_markdown(report)
    assert "## Operators by adapters: quick\n\n" in text and "## Operators by adapters: quick, -k cast\n\n" in text
    assert not [line for line in text.splitlines() if line.startswith("|") and "| - |" in line]
    assert "not run" not in as_html(report).partition('<script type="module">')[0]


def test_labels_tell_selections_apart():
    first, second = labels((selected("cast", CLOSE), selected("it's", CLOSE)))
    assert str(first) == "this (NumPy, -k cast)"
    assert str(second) == """this (NumPy, -k 'it'"'"'s')"""


# ---- messages -------------------------------------------------------------------------------------------------------

COMPILE_ERROR = "error: expected ';'\n   ┌─ wgsl:12:5\n12 │\tlet a = 1\n   │     ^^^"


def test_compile_errors_keep_their_lines():
    (cause,) = causes(Report((run(replace(CRASHED, message=COMPILE_ERROR)),)))
    assert cause.message.splitlines()[1:] == ["   ┌─ wgsl:12:5", "12 │    let a = 1", "   │     ^^^"]
    text = as_html(Report((run(replace(CRASHED, message=COMPILE_ERROR)),)))
    assert "\n   ┌─ wgsl:12:5\n12 │    let a = 1\n   │     ^^^</pre>" in text
    (cause,) = causes(Report((run(replace(CRASHED, message="one line")),)))
    assert (cause.message, cause.text) == ("", "one line")
