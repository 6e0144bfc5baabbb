"""Known failures as data."""

from __future__ import annotations

import fnmatch
from dataclasses import replace

import pytest

from dmlgpu.common.errors import ModelError
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.cases.registry import case_names
from dmlgpu.conformance.mutation.suite import MutantSuite
from dmlgpu.conformance.running.expectations import BUILT_IN, ExpectedFailure, known_line, load, with_expectation
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.suites.driver.suite import DriverSuite

LAVAPIPE = AdapterInfo("llvmpipe (LLVM 15.0.6, 256 bits)", "Vulkan", "cpu", "Mesa", "llvmpipe Mesa 25.0.7-2~bpo12+1")
KNOWN = ExpectedFailure(("element_wise_pow-*",), "subnormal bases")


@pytest.mark.parametrize(
    ("fields", "applies"),
    [
        ({}, True),
        ({"cases": ("argmin-*",)}, False),
        ({"cases": ("argmin-*", "*-float16-*")}, True),
        ({"backend": "vulkan"}, True),
        ({"backend": "OpenGL"}, False),
        ({"vendor": "mesa", "adapter": "llvmpipe*"}, True),
        ({"adapter": "llvmpipe"}, False),
        ({"driver": ">=25.0, <25.1"}, True),
        ({"driver": ">=25.1"}, False),
        ({"driver": "Mesa <26"}, True),
        ({"library": "wgpu >=0"}, True),
        ({"library": "wgpudawn >=0"}, False),
    ],
)
def test_cases_that_an_expectation_covers(fields, applies):
    assert replace(KNOWN, **fields).applies("element_wise_pow-float16-2x3-packed-s0", LAVAPIPE) is applies


def test_a_driver_without_a_version_is_in_no_range():
    assert not replace(KNOWN, driver=">=1").applies("element_wise_pow-example1", replace(LAVAPIPE, driver="unknown"))


@pytest.mark.parametrize(
    ("status", "judgment"),
    [
        (Status.FAIL, Status.EXPECTED_FAIL),
        (Status.CRASH, Status.EXPECTED_FAIL),
        (Status.FLAKY, Status.EXPECTED_FAIL),
        (Status.PASS, Status.UNEXPECTED_PASS),
        (Status.NOT_SUPPORTED, Status.NOT_SUPPORTED),
    ],
)
def test_judgments(status, judgment):
    outcome = with_expectation(Outcome("element_wise_pow-example1", status), LAVAPIPE, [replace(KNOWN, link="a page")])
    assert outcome.status is judgment
    assert outcome.reason == ("" if status is Status.NOT_SUPPORTED else "subnormal bases (a page)")


def test_others_are_left_alone():
    outcome = Outcome("argmin-example1", Status.FAIL)
    assert with_expectation(outcome, LAVAPIPE, [KNOWN]) is outcome


def test_a_file(tmp_path):
    path = tmp_path / "known.toml"
    path.write_text('[[expected]]\ncases = "a-*"\nreason = "r"\n[[expected]]\ncases = ["b", "c"]\nreason = "s"\n')
    assert load(path) == (ExpectedFailure(("a-*",), "r"), ExpectedFailure(("b", "c"), "s"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[expected]]\nreason = 'r'", ", line 1: expected[0].cases: is missing"),
        ("[[expected]]\ncases = 'a'", ", line 1: expected[0].reason: is missing"),
        (
            "[[expected]]\ncases = 'a'\nreason = 'r'\nos = 'Linux'",
            ", line 1: expected[0].os: is unknown; there are cases, backend, vendor, adapter, driver, library, reason, "
            "link",
        ),
        ("[[expected]]\ncases = 'a'\nreason = 7", ", line 1: expected[0].reason: must be a string, got 7"),
        ("[[expected]]\ncases = [1]\nreason = 'r'", ", line 1: expected[0].cases: must be a string, got 1"),
        (
            "[[expected]]\ncases = 'a'\nreason = 'r'\ndriver = 'new'",
            ", line 1: expected[0].driver: must be versions such as '>=25.0, <25.1' or 'Mesa <25', got 'new'",
        ),
        ("[[known]]\ncases = 'a'", ": known: is unknown; the only key is [[expected]]"),
        ("expected = 5", ": expected: must be tables, as [[expected]] writes them"),
        ("expected = [5]", ": expected: must be tables, as [[expected]] writes them"),
        ("[[expected]]\ncases = 5\nreason = 'r'", ", line 1: expected[0].cases: must be a string, got 5"),
    ],
)
def test_malformed_files_are_rejected(tmp_path, text, message):
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(ModelError) as error:
        load(path)
    assert str(error.value) == f"{path}{message}"


def test_a_file_that_is_no_toml_is_rejected(tmp_path):
    path = tmp_path / "known.toml"
    path.write_text("expected = [")
    with pytest.raises(ModelError, match="is not TOML"):
        load(path)


@pytest.mark.parametrize("path", BUILT_IN, ids=lambda path: path.stem)
def test_our_own_expectations_speak_of_cases(path):
    patterns = [pattern for entry in load(path) for pattern in entry.cases]
    if path == BUILT_IN[0]:
        names = (*case_names("full"), *DriverSuite().names("full")) if patterns else ()
    else:
        names = MutantSuite().names("full") if patterns else ()
    assert [pattern for pattern in patterns if not fnmatch.filter(names, pattern)] == []


@pytest.mark.parametrize("content", [b"\xff", b"a = " + b"[" * 10_000, b"a = " + b"9" * 5000])
def test_files_that_cannot_be_parsed_are_rejected(tmp_path, content):
    path = tmp_path / "known.toml"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"known\.toml: is not TOML: "):
        load(path)


# ---- quirks

OLD = replace(LAVAPIPE, driver="Mesa 22.3.6 (LLVM 15.0.6)")
QUIRK = "quirk-mesa-loops"


def test_the_case_of_a_quirk_may_fail_on_its_adapters() -> None:
    known = with_expectation(Outcome(QUIRK, Status.FAIL), OLD, [])
    assert known.status is Status.EXPECTED_FAIL
    line = known_line(known, OLD)
    assert line.startswith(f"known: mesa-loops, shown by {QUIRK}: the loops of an invocation end ")
    assert "install Mesa 25" in line
    failed = with_expectation(Outcome(QUIRK, Status.FAIL), LAVAPIPE, [])
    assert (failed.status, known_line(failed, LAVAPIPE)) == (Status.FAIL, "")


def test_the_case_of_a_quirk_says_that_it_can_go() -> None:
    passed = with_expectation(Outcome(QUIRK, Status.PASS), OLD, [])
    assert passed.status is Status.PASS
    text = "the quirk mesa-loops of compiler/quirks.toml can go for Mesa 22.3.6 (LLVM 15.0.6)"
    assert known_line(passed, OLD) == f"{QUIRK} passes: {text}"
    assert known_line(Outcome("argmin-example1", Status.PASS), OLD) == ""
    assert known_line(with_expectation(Outcome(QUIRK, Status.PASS), LAVAPIPE, []), LAVAPIPE) == ""
