"""What a report opens with, runs of different selections, and messages of compilers in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Target
from dmlgpu.conformance.report.model import Report, labels
from dmlgpu.conformance.report.suspects import ShaderCounts, simplest, suspect_lines
from dmlgpu.conformance.report.verdict import causes, verdict
from dmlgpu.conformance.report.writing import as_html, as_markdown
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.records import RecordedRun
from tests.unit.conformance.report_runs import BAD, CLOSE, CRASHED, GOOD, KNOWN, REFUSED, compared, mixed, run

# ---- the verdict ----------------------------------------------------------------------------------------------------


def cut_off(*outcomes, cases):
    recorded = run(*outcomes)
    recorded.facts["cases"] = cases
    return RecordedRun(recorded.facts, recorded.outcomes, is_complete=False)


@pytest.mark.parametrize(
    ("runs", "kind", "text"),
    [
        ([run(GOOD)], "good", "No failures: 1 case passed on this (NumPy)."),
        ([run(GOOD, CLOSE), run(GOOD, name="that")], "good", "No failures: 3 cases passed in 2 runs."),
        (
            [run(GOOD, REFUSED, KNOWN)],
            "good",
            "No failures: 1 of 3 cases passed on this (NumPy), 1 not supported and 1 expected to fail.",
        ),
        (
            [run(GOOD, BAD), run(CRASHED, name="that"), run(GOOD, name="fine")],
            "bad",
            "1 of 2 cases failed on this (NumPy): 1 wrong result in cast; 1 of 1 case on that (NumPy): 1 other "
            "failure in fold.",
        ),
        (
            [run(*(replace(BAD, case=f"{name}-a") for name in "abcde"))],
            "bad",
            "5 of 5 cases failed on this (NumPy): 5 wrong results in a, b, c, and 2 more operators.",
        ),
        (
            [run(BAD, name=name) for name in "abcd"],
            "bad",
            "1 of 1 case failed on a (NumPy): 1 wrong result in cast; 1 of 1 case on b (NumPy): 1 wrong result in "
            "cast; 1 of 1 case on c (NumPy): 1 wrong result in cast; and cases of 1 more run.",
        ),
        ([cut_off(GOOD, cases=7)], "bad", "The run on this (NumPy) was truncated after 1 of 7 cases."),
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
    sentence = "1 of 4 cases failed on this (NumPy): 1 wrong result in cast; 1 of 4 cases on that (NumPy): "
    sentence += "1 other failure in fold."
    after_title = text.partition("Conformance report</h1>")[2] or text.partition("# Conformance report\n")[2]
    assert after_title.lstrip().partition("\n")[0].removesuffix("</p>").removesuffix("**").endswith(sentence)


def error(case):
    text = f"X: kernel {case!r} does not compile on card: no type\n> 3 | let x = 1;"
    return Outcome(case, Status.FAIL, message=text)


def test_compile_errors_and_wrong_results_are_distinguished_and_graphs_are_no_operators():
    pair = replace(BAD, case="pair-convolution-residual")
    assert verdict(Report((run(GOOD, BAD, pair, error("cast-c"), error("fold-c")),))).text == (
        "4 of 5 cases failed on this (NumPy): 2 wrong results and 2 compile errors in cast, fold, cases 'pair'."
    )


# ---- causes ---------------------------------------------------------------------------------------------------------


def case(name, *files, wrong=1, elements=4, expected="0.5", got="0.25", inputs=("1.5",)):
    """A case that ran a kernel of some shader files, and is wrong or not."""
    status = Status.FAIL if wrong else Status.PASS
    kernels = (f"kernel x4 ({', '.join(files)})",)
    return Outcome(
        name, status, wrong=wrong, elements=elements, expected=expected, got=got, inputs=inputs, kernels=kernels
    )


MAP, SLICE, RELU = "schedules/map", "layout/slice_grad", "activation/leaky_relu"
FAULTY = (
    *(case(f"slice_grad-{index}", SLICE, MAP) for index in range(9)),
    case("pair-slice", SLICE, MAP),
    *(case(f"slice_grad-fine-{index}", SLICE, MAP, wrong=0) for index in range(2)),
    *(case(f"activation_leaky_relu-{index}", RELU, MAP) for index in range(5)),
    *(case(f"cast-{index}", MAP, wrong=0) for index in range(100)),
)


def test_shader_files_by_failing_cases_of_all_that_have_them():
    suspects = ShaderCounts(FAULTY).suspects()
    assert [(suspect.name, suspect.share) for suspect in suspects] == [(SLICE, "10 of 12"), (RELU, "5 of 5")]
    assert suspect_lines(suspects)[1:] == [
        f"  10 of 12 cases with {SLICE}; simplest: pair-slice",
        f"  5 of 5 cases with {RELU}; simplest: activation_leaky_relu-0",
    ]
    assert suspect_lines(ShaderCounts([GOOD]).suspects()) == []


def test_files_with_the_same_cases_are_one_suspect():
    (suspect,) = ShaderCounts([case("a-1", "x/a", "x/b"), case("b-1", "x/c", wrong=0)]).suspects()
    assert (suspect.name, suspect.files) == ("x/a, x/b", ("x/a", "x/b"))


def test_functions_that_fail_together_have_their_library_file_as_suspect():
    """Kernels name the files of shaders/lib whose functions they have: cosine, sine and tangent fail by one of them."""
    operators = {descs.ElementWiseCos: 1, descs.ElementWiseSin: 1, descs.ElementWiseTan: 1, descs.ElementWiseExp: 0}
    x = TensorDesc(DataType.FLOAT32, (64,))
    outcomes = [
        Outcome(kind.__name__, Status.FAIL if wrong else Status.PASS, wrong=wrong, elements=64, kernels=summaries)
        for kind, wrong in operators.items()
        for summaries in [compile_operator(kind(input_tensor=x, output_tensor=x), Target("x")).summaries]
    ]
    suspect, *others = ShaderCounts(outcomes).suspects()
    assert "lib/math_trigonometry" in suspect.files and suspect.share == "3 of 3" and not others
    assert not any("lib/math_trigonometry" in text for text in outcomes[-1].kernels)


def test_equal_suspects_are_in_alphabetical_order():
    suspects = ShaderCounts([case("a-1", "x/c"), case("b-1", "x/a"), case("c-1", "x/b")]).suspects()
    assert [suspect.name for suspect in suspects] == ["x/a", "x/b", "x/c"]


def test_a_report_ranks_shader_files():
    report = Report((run(*FAULTY),))
    assert f"| `{SLICE}` | this (NumPy) | 10 of 12 | `pair-slice` |" in as_markdown(report)
    page = as_html(report).partition('<ol id="suspects">')[2].partition("</ol>")[0]
    assert page.index(SLICE) < page.index(RELU) and "5 of 5</span> cases with it fail;" in page
    assert 'id="suspects"' not in as_html(mixed())


@pytest.mark.parametrize(
    "harder",
    [
        case("a-b", elements=1, expected="-inf"),
        case("a-b", elements=1, expected="1e+308"),
        case("a-b", elements=1, inputs=("nan",)),
        case("a-attributes-alpha", elements=1),
        case("a-c", elements=5),
    ],
)
def test_the_simplest_case_has_plain_numbers_and_few_elements(harder):
    plain = case("a-plain-float32")
    assert simplest([harder, plain]) is plain
    (cause,) = causes(Report((run(harder, plain),)))
    assert (cause.simplest, cause.text) == (plain, "expected 0.5, got 0.25")


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
