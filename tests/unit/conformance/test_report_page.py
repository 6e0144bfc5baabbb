"""The page of a report in a browser: headless Chromium, without network."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path

import chromium
import pytest

from dmlgpu.conformance.report.changes import changes
from dmlgpu.conformance.report.model import Report
from dmlgpu.conformance.report.writing import PAGES, write_report
from dmlgpu.conformance.running.outcome import Outcome, Status, bound_text, share_text
from tests.unit.conformance.report_runs import BAD, CLOSE, CRASHED, GOOD, KNOWN, REFUSED, measured, run

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect  # waits: browsers tell of closed dialogs and of new addresses after the fact

pytestmark = [
    pytest.mark.skipif(chromium.PATH is None, reason=chromium.MISSING),
    pytest.mark.xdist_group("browser"),  # it is started once
]

ODD = Outcome("slice-it's, odd", Status.PASS, "exact", 28171.0, 28171.0, 1.0, elements=4, digest="33")
MANY = tuple(
    Outcome(f"gather-n{index:03}", Status.PASS, "", float(index % 245), 0.0, 0.0, digest="1") for index in range(250)
)
SINES = (measured("sin", (-2, 0.5), (0, 1.5), (2, 1.0)), measured("sin", (-2, 0.5), (0, 3000.0), (2, 1.0)))


def report() -> Report:
    changed = (replace(GOOD, digest="12"), replace(CLOSE, of_bound=0.25), replace(BAD, status=Status.PASS), REFUSED)
    this = run(GOOD, CLOSE, BAD, REFUSED, ODD, *MANY, features=("shader-f64",), limits={"max-buffer-size": 4096})
    that = run(*changed, KNOWN, CRASHED, replace(ODD, status=Status.TIME_OUT), *MANY[1:], name="that")
    fine = run(GOOD, replace(CLOSE, of_bound=1.0), replace(REFUSED, status=Status.PASS), name="a long name " * 4)
    sines = (run(SINES[index], suite="accuracy", name=name) for index, name in enumerate(("this", "that")))
    return Report((this, that, fine, *sines))


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(report().runs, path)
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        chrome = started.chromium.launch(executable_path=chromium.PATH, args=chromium.IN_CONTAINERS)
        yield chrome
        chrome.close()


@pytest.fixture(scope="module")
def window(browser):
    """A window without network, which all tests share, and what it complained of."""
    context = browser.new_context(offline=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url))
    return page, complaints


@pytest.fixture
def visit(window, address):
    """Opens the page again; at the end of a test there may be no errors, and no requests except for the page."""
    page, complaints = window
    complaints.clear()

    def open_page(fragment="", theme="light", width=1280):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=theme)
        page.goto("about:blank")
        page.goto(address + fragment)
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield open_page
    page.evaluate("localStorage.clear()")
    assert [text for text in complaints if not text.startswith(address) and text != "about:blank"] == []


def rows(page, table):
    """Return the contents of the visible rows of a table."""
    return page.locator(table).first.evaluate(
        """table => [...table.querySelectorAll("tbody tr")].filter((row) => row.checkVisibility())
            .map((row) => [...row.cells].map((cell) => cell.innerText.replaceAll("\u200b", "").trim()))"""
    )


OPERATORS = "#matrix-dmlgpu table"


# ---- the matrix -----------------------------------------------------------------------------------------------------


def test_the_matrix_opens_with_families_where_something_is_wrong(visit):
    page = visit()
    assert [[" ".join(text.split()) for text in row] for row in rows(page, OPERATORS)] == [
        ["all", "✗ 253 of 255 out of tolerance", "✗ 252 of 256 out of tolerance", "✓ 3 100 %"],
        ["elementwise 1", "✗ 1 of 3 out of tolerance", "! 2 of 4 out of tolerance", "✓ 2 100 %"],
        ["cast", "✗ 1 of 3 out of tolerance", "! 2 of 4 out of tolerance", "✓ 2 100 %"],
        ["indexing 1", "✓ 250 244 times", "✓ 249 244 times", "not run"],
        ["layout 1", "✓ 1 28,200 times", "✗ 0 of 1 28,200 times", "not run"],
        ["slice", "✓ 1 28,200 times", "✗ 0 of 1 28,200 times", "not run"],
        ["reduction 1", "✓ 1 exact", "✓ 1 exact", "✓ 1 exact"],
        ["window 1", "not run", "✗ 0 of 1", "not run"],
        ["fold", "not run", "✗ 0 of 1", "not run"],
    ]


def test_families_fold(visit):
    page = visit()
    folded = page.get_by_role("button", name="reduction")
    assert folded.get_attribute("aria-expanded") == "false" and not page.locator("[data-operator=argmin]").is_visible()
    folded.click()
    assert folded.get_attribute("aria-expanded") == "true" and page.locator("[data-operator=argmin]").is_visible()
    page.get_by_role("button", name="unfold all").click()
    assert page.locator("[data-operator=gather]").is_visible()
    page.get_by_role("button", name="fold all").click()
    assert [row[0] for row in rows(page, OPERATORS)][1:3] == ["elementwise 1", "indexing 1"]


def test_search_and_status_choose_operators(visit):
    section = visit().locator("#matrix-dmlgpu")
    for text, status, operators in (
        ("ARGM", "", ["argmin"]),
        ("gather-n007", "", ["gather"]),
        ("", "not supported", ["cast"]),
        ("", "crash", ["fold"]),
        ("a", "pass", ["cast", "gather", "argmin"]),
        ("no such thing", "", []),
    ):
        section.get_by_role("searchbox", name="Search operators").fill(text)
        section.locator("select").select_option(status)
        rows = section.locator("tr.operator:visible").all()
        assert [row.get_attribute("data-operator") for row in rows] == operators
        assert section.get_by_role("status").inner_text() == f"{len(operators)} of 5 operators"


def test_statuses_are_counted(visit):
    options = visit().locator("#matrix-dmlgpu select option").all_inner_texts()
    assert options == [
        *("any status", "pass (508)", "fail (1)", "not supported (2)", "expected fail (1)", "crash (1)"),
        "time-out (1)",
    ]


def test_headings_stay_in_sight(visit):
    page = visit(width=375)
    page.get_by_role("button", name="unfold all").click()
    scroller = page.locator("#matrix-dmlgpu .scroll")
    scroller.evaluate("element => element.style.maxHeight = '200px'")
    scroller.evaluate("element => element.scrollTo(120, 150)")
    top, left = scroller.evaluate("e => [e.getBoundingClientRect().top, e.getBoundingClientRect().left]")
    box = page.locator(f"{OPERATORS} thead th").first.bounding_box()
    assert (box["y"] - top, box["x"] - left) == pytest.approx((1, 1), abs=1)


# ---- cases ----------------------------------------------------------------------------------------------------------

CASES = "#cases .results"


def test_a_click_opens_the_cases_of_an_operator(visit, address):
    page = visit()
    page.locator("[data-operator=cast] td a").first.click()
    expect(page.locator("#cases h2")).to_have_text("cast")
    expect(page).to_have_url(f"{address}#dmlgpu/cast/0")
    assert rows(page, CASES) == [
        ["cast-b", "✗ fail, out of tolerance", "✓ out of tolerance", "not run"],
        ["cast-c", "○ not supported", "○ not supported", "✓"],
        ["cast-a", "✓ 75 %", "✓ 25 %", "✓ 100 %"],
    ]
    page.keyboard.press("Escape")
    expect(page.locator("#cases")).to_be_hidden()
    expect(page).to_have_url(address)


def test_an_address_opens_a_case(visit):
    page = visit("#dmlgpu/cast-b/0")
    (card, other) = page.locator(".outcome").all()
    facts = dict(zip(*(card.locator(tag).all_inner_texts() for tag in ("dt", "dd")), strict=True))
    assert card.locator("h3").inner_text() == "✗ fail this (NumPy)"
    assert facts == {
        "error": "out of tolerance",
        "distance": "at most 7 ULP, 1 ULP on average",
        "allowed": "exact",
        "wrong": "1 of 4 elements",
        "worst at": "[2]",
        "inputs": "<3>",
        "expected": "4",
        "got": "5",
        "difference": "at most 0 allowed",
    }
    assert card.locator("code").inner_text() == "dmlgpu test --adapter 'NumPy: this' -k cast-b"
    assert other.locator("h3").inner_text() == "✓ pass that (NumPy)"
    assert rows(page, CASES)[0][0] == "cast-b"


def test_a_case_tells_who_computes_the_same_bits(visit):
    page = visit("#dmlgpu/argmin-a")
    cards = [card.inner_text() for card in page.locator(".outcome").all()]
    assert [f"same bits\n{name}" in card for card in cards for name in ("this", "that", "a long")] == [
        *(False, False, True),
        *(False, False, False),
        *(True, False, False),
    ]


def test_a_crash_is_shown_as_it_was_printed(visit):
    card = visit("#dmlgpu/fold-a").locator(".outcome")
    assert "signal 11\n\x1b[31mwhat </script> a day" in card.inner_text()


def test_commands_can_be_pasted_into_a_shell(visit):
    page = visit(f"#dmlgpu/{ODD.case.replace(' ', '%20')}/1")
    page.locator(".outcome").first.get_by_role("button", name="copy").click()
    page.get_by_role("button", name="copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert shlex.split(copied) == ["dmlgpu", "test", "--adapter", "NumPy: that", "-k", ODD.case]


def test_cases_are_searched_and_come_in_portions(visit):
    page = visit("#dmlgpu/gather")
    assert [row[:2] for row in rows(page, CASES)][:2] == [
        ["gather-n244", "✓ 244 times"],
        ["gather-n243", "✓ 243 times"],
    ]
    assert len(rows(page, CASES)) == 200
    more = page.get_by_role("button", name="show more of 50")
    more.click()
    assert len(rows(page, CASES)) == 250 and page.get_by_role("button", name="show more").count() == 0
    page.get_by_role("searchbox", name="Search cases").fill("n13")
    assert [row[0] for row in rows(page, CASES)] == [f"gather-n{index}" for index in range(139, 129, -1)]
    page.get_by_role("searchbox", name="Search cases").fill("")
    page.locator("#cases").get_by_role("combobox", name="Adapter").select_option("1")
    assert page.locator("#cases p").first.inner_text() == "249 of 250 cases"


def test_other_addresses_open_nothing(visit):
    page = visit("#dmlgpu/no_such_operator")
    assert not page.locator("#cases").is_visible()
    page.evaluate("location.hash = '#dmlgpu/fold'")
    page.locator("#cases").wait_for()


# ---- differences ----------------------------------------------------------------------------------------------------


def changed(page):
    return [(row[0], row[1]) for row in rows(page, "#changes table")]


def test_any_two_runs_are_compared_as_the_command_compares_them(visit):
    page, runs = visit(), report().runs
    for before, after in permutations(range(3), 2):
        page.locator("#before").select_option(str(before))
        page.locator("#after").select_option(str(after))
        expected = [(str(change.kind), change.case) for change in changes(runs[before], runs[after])]
        assert changed(page) == expected[:100]


def test_regressions_come_first_and_kinds_can_be_chosen(visit, address):
    page = visit("#differences/0/1")
    assert changed(page)[0] == ("regression", ODD.case)
    assert page.locator("#change-kinds button").all_inner_texts() == [
        *("1 regression", "1 missing", "1 other bits", "1 more accurate", "1 repaired", "2 new"),
    ]
    page.get_by_role("button", name="2 new").click()
    assert changed(page) == [("new", "cast-d"), ("new", "fold-a")]
    page.locator("#before").select_option("1")
    page.locator("#after").select_option("2")
    assert page.url == f"{address}#differences/1/2"
    page.locator("#changes a").first.click()
    expect(page.locator("#cases")).to_be_visible()


def test_runs_of_other_suites_are_not_mixed(visit):
    page = visit()
    page.locator("#before").select_option("4")
    assert page.locator("#after").input_value() == "3"
    assert changed(page) == [("repaired", "sin")]


# ---- looks ----------------------------------------------------------------------------------------------------------


def test_charts_are_drawn(visit):
    page = visit()
    (chart,) = page.locator("figure svg").all()
    assert chart.get_attribute("role") == "img" and chart.locator("title").text_content() == "sin"
    assert "at most 3,000 ULP" in chart.locator("desc").text_content()
    colors = chart.locator("polyline").evaluate_all("lines => lines.map(line => getComputedStyle(line).stroke)")
    assert len(set(colors)) == 2
    assert "dash" not in chart.locator(".bound").evaluate("line => getComputedStyle(line).strokeDasharray")
    assert page.locator(".legend li").all_inner_texts() == ["this (NumPy)", "that (NumPy)", "tolerance"]
    boxes = [line.bounding_box() for line in chart.locator("polyline").all()]
    assert boxes[1]["height"] > boxes[0]["height"] > 0


COLORS = """
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const rgba = (color) => {
    if (!known.has(color)) {
      canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
      known.set(color, [...canvas.getImageData(0, 0, 1, 1).data]);
    }
    return known.get(color);
  };
  const luminance = (color) => rgba(color).slice(0, 3)
    .map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, number) => sum + value * [0.2126, 0.7152, 0.0722][number], 0);
  const background = (element) => {
    const color = getComputedStyle(element).backgroundColor;
    return rgba(color)[3] === 255 || !element.parentElement ? color : background(element.parentElement);
  };
  const contrast = (element, color) => {
    const [a, b] = [luminance(color), luminance(background(element))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
"""
"""WCAG's contrast of a color with the background of an element."""

OF_TEXTS = """
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const [text, element] = [walker.currentNode.data.trim(), walker.currentNode.parentElement];
    if (!text || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    found.push([contrast(element, element instanceof SVGElement ? style.fill : style.color), text]);
  }
  return found;
"""
OF_LINES = """
  return [...document.querySelectorAll("figure polyline, figure .bound, .legend line")]
    .map((line) => contrast(line, getComputedStyle(line).stroke));
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("fragment", ["", "#dmlgpu/cast-b"])
def test_text_stands_out(visit, theme, fragment):
    page = visit(fragment, theme)
    contrasts = page.evaluate(f"() => {{ {COLORS} {OF_TEXTS} }}")
    assert len(contrasts) > 100
    assert [(round(contrast, 2), text) for contrast, text in contrasts if contrast < 4.5] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_of_charts_stand_out(visit, theme):
    contrasts = visit(theme=theme).evaluate(f"() => {{ {COLORS} {OF_LINES} }}")
    assert len(contrasts) == 2 + 1 + 3 and min(contrasts) >= 3


def background(page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_the_theme_is_the_systems_or_chosen(visit):
    light, dark = "rgb(255, 255, 255)", "rgb(15, 19, 24)"
    page = visit(theme="dark")
    assert background(page) == dark
    page.emulate_media(color_scheme="light")
    assert background(page) == light
    for text, color in (("light", light), ("dark", dark)):
        page.locator("#theme").click()
        assert (page.locator("#theme").inner_text(), background(page)) == (f"theme: {text}", color)
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert background(page) == dark


@pytest.mark.parametrize("fragment", ["", "#dmlgpu/cast-b", "#dmlgpu/gather"])
def test_a_phone_needs_no_scrolling_aside(visit, fragment):
    page = visit(fragment, width=375)
    assert page.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [375, 375]
    assert page.locator("#cases").is_visible() == bool(fragment)
    for name in ("#matrix-dmlgpu .tools", "#cases .tools"):
        for control in page.locator(f"{name} input, {name} select").all():
            box = control.bounding_box()
            assert box is None or box["x"] + box["width"] <= 375


# ---- something of everything that is hard to fit ---------------------------------------------------------------------

COMPILE_ERROR = (
    "error: expected ';'\n   ┌─ wgsl:12:5\n   │\n12 │     let total = " + "values[index] + " * 20 + "\n   │ ^^^"
)


def crowded() -> Report:
    """Runs of two selections, in which long names meet long messages."""
    broken = replace(CRASHED, case="fold-" + "x" * 60, message=COMPILE_ERROR)
    long = replace(BAD, case="cast-float32-" + "4x" * 20 + "4-interleaved", of_bound=28171.0)
    long = replace(long, kernels=(f"cast ({'activation/' + 'y' * 70})",))
    whole = [run(GOOD, CLOSE, long, broken, *MANY, name=name) for name in ("this", "Another adapter with a name")]
    few = run(GOOD, replace(CLOSE, of_bound=1.004, status=Status.FAIL), name="that")
    few.facts["pattern"] = "argmin"
    return Report((*whole, few))


@pytest.fixture(scope="module")
def crowded_address(tmp_path_factory) -> str:
    path: Path = tmp_path_factory.mktemp("crowded") / "report.html"
    write_report(crowded().runs, path)
    return path.as_uri()


@pytest.fixture
def visit_crowded(window, crowded_address):
    page, _ = window

    def open_page(fragment="", theme="light", width=390):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=theme)
        page.goto("about:blank")
        page.goto(crowded_address + fragment)
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    return open_page


SCRIPT = (
    (PAGES / "data.js")
    .read_text(encoding="utf-8")
    .partition("// An error that is")[2]
    .partition("\n")[2]
    .partition("// As Python")[0]
)
"""The functions that write errors."""

WIDTHS = pytest.mark.parametrize("width", [1280, 390])


@WIDTHS
def test_the_verdict_and_failures_come_first(visit_crowded, width):
    page = visit_crowded(width=width)
    tops = [page.locator(name).bounding_box()["y"] for name in ("#verdict", "#wrong", "#reading", "#adapters")]
    assert tops == sorted(tops) and tops[0] < 200
    assert (
        "2 of 254 cases failed on this (NumPy): 1 wrong result and 1 other failure in cast, fold;"
        in page.locator("#verdict").inner_text()
    )
    assert page.locator("#wrong tbody tr").count() == 5
    assert "28,200 times the tolerance" in page.locator("#wrong").inner_text()


@WIDTHS
@pytest.mark.parametrize("fragment", ["", "#dmlgpu/fold-" + "x" * 60])
def test_only_boxes_scroll_horizontally(visit_crowded, width, fragment):
    page = visit_crowded(fragment, width=width)
    assert page.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    message = page.locator(".outcome .message" if fragment else "#wrong .message").first
    assert message.evaluate("box => [box.scrollWidth > box.clientWidth, getComputedStyle(box).whiteSpace]") == [
        True,
        "pre",
    ]
    lines = message.inner_text().splitlines()
    assert lines[1:3] == ["   ┌─ wgsl:12:5", "   │"] and "monospace" in message.evaluate(
        "e => getComputedStyle(e).font"
    )
    box = message.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
    page.keyboard.press("Escape")


@WIDTHS
def test_names_of_cases_are_not_broken_into_pieces(visit_crowded, width):
    page = visit_crowded(width=width)
    names = page.locator("#wrong td:last-child").all()
    assert min(name.bounding_box()["width"] for name in names) >= 200


@WIDTHS
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("fragment", ["", "#dmlgpu/fold-" + "x" * 60])
def test_messages_and_verdicts_stand_out(visit_crowded, width, theme, fragment):
    page = visit_crowded(fragment, theme, width)
    contrasts = page.evaluate(f"() => {{ {COLORS} {OF_TEXTS} }}")
    assert any("wgsl:12:5" in text for _, text in contrasts)
    assert [(round(contrast, 2), text[:60]) for contrast, text in contrasts if contrast < 4.5] == []
    page.keyboard.press("Escape")


def test_runs_of_other_selections_have_tables_without_gaps(visit_crowded):
    page = visit_crowded(width=1280)
    titles = page.locator(".matrix-section h2").all_inner_texts()
    assert titles == ["Operators by adapters: quick", "Operators by adapters: quick, -k argmin"]
    second = page.locator(".matrix-section").nth(1)
    assert second.locator("thead th").all_inner_texts()[0] == "operator" and second.locator("thead th").count() == 2
    assert page.locator("td.none").count() == 0
    options = second.locator("select option").all_inner_texts()
    assert options == ["any status", "pass (1)", "fail (1)"]
    page.locator("#before").select_option("0")
    page.locator("#after").select_option("2")
    assert page.locator("#selections").inner_text() == "2 cases in both: quick; quick, -k argmin"
    assert changed(page) == [("regression", "cast-a")]
    assert page.locator("#changes td.bad").inner_text() == "✗ fail, just over 100 %"


def test_headings_skip_no_level_and_boxes_are_reached_by_keyboard(visit_crowded):
    page = visit_crowded("#dmlgpu/fold-" + "x" * 60, width=1280)
    levels = [int(tag[1]) for tag in page.locator("h1, h2, h3, h4").evaluate_all("all => all.map(e => e.tagName)")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    page.keyboard.press("Escape")
    boxes = page.locator(".scroll, .message").evaluate_all("all => all.map(e => e.tabIndex)")
    assert boxes and set(boxes) == {0}


@pytest.mark.slow
def test_errors_are_written_as_the_command_writes_them(visit):
    numbers = [0, 4e-4, 0.0034, 0.0994, 0.63, 0.9996, 1, 1.0004, 2.5, 9.99, 10, 28171, 5.46e8]
    texts = visit().evaluate(
        f"numbers => {{ {SCRIPT} return numbers.map((n) => [boundText(n), shareText(n)]); }}", numbers
    )
    assert texts == [[bound_text(number), share_text(number)] for number in numbers]


@pytest.mark.slow
def test_without_scripts_the_tables_remain(browser, address):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(address)
    assert [row[0] for row in rows(page, OPERATORS)] == [
        *("all", "elementwise 1", "cast", "indexing 1", "gather", "layout 1", "slice", "reduction 1", "argmin"),
        *("window 1", "fold"),
    ]
    assert page.locator("#facts").is_visible() and page.locator("figure").is_visible()
    context.close()
