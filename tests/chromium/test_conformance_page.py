"""The conformance page in Chromium: its judgment is Python's, right cases pass, wrong ones fail, reports take both."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from dmlgpu.catalog.enums import DataType
from dmlgpu.conformance.cases.families.activation import FlushedWithin
from dmlgpu.conformance.cases.families.reduction import LogarithmOfSum
from dmlgpu.conformance.cases.families.resampling import RoundedSum
from dmlgpu.conformance.cases.tolerance import (
    CORRECTLY_ROUNDED,
    EXACT,
    Accumulated,
    GivenBound,
    Transformed,
    Ulp,
    flush,
)
from dmlgpu.conformance.running.outcome import compare
from dmlgpu.conformance.running.records import RecordedRun, read_file
from dmlgpu.conformance.running.runner import nearest
from dmlgpu.conformance.suites.attributes import SameKind
from dmlgpu.conformance.suites.combined import CombinedSuite
from dmlgpu.export.cases import numbers_of, rule_of
from dmlgpu.export.conformance import write_suite
from dmlgpu.export.folder import page_file
from dmlgpu.runtime.browser import frames
from dmlgpu.runtime.browser.lending import VARIABLE
from dmlgpu.runtime.device import Device
from tests.chromium.conftest import served
from tests.unit.cli.cli_process import run_here

pytestmark = pytest.mark.xdist_group("chromium")  # it is started once

ANY = (DataType.FLOAT32, DataType.FLOAT16, DataType.FLOAT64, DataType.INT8, DataType.UINT32, DataType.INT64)
TOLERANCES = {
    EXACT: ANY,
    CORRECTLY_ROUNDED: ANY,
    Ulp(0): ANY,
    Ulp(2): ANY,
    FlushedWithin(3): ANY[:2],
    Accumulated(20): ANY,
    Transformed(9): ANY[:1],
    GivenBound(): ANY,
    LogarithmOfSum(2): ANY[:1],
    RoundedSum(): ANY[3:5],
    SameKind(is_sum=False): ANY[:4],
    SameKind(is_sum=True): ANY[:4],
}

JUDGE = """async given => {
    const {KEPT, judge} = await import('./judge.js');
    const bytes = text => Uint8Array.from(atob(text), each => each.charCodeAt(0)).buffer;
    const told = value => (Number.isFinite(value) ? value : String(value));
    return given.map(({type, rule, outcomes, got}) => {
        const known = outcomes.map(({expected, numbers}) => ({
            expected: new KEPT[type](bytes(expected)),
            numbers: typeof numbers === 'string' ? new Float64Array(bytes(numbers)) : numbers,
        }));
        const {ok, wrong, worst, elements, of_bound, max_ulp, mean_ulp, bound} = judge(
            {type, rule, outcomes: known}, new KEPT[type](bytes(got)));
        return [ok, wrong, worst, elements, ...[of_bound, max_ulp, mean_ulp, bound].map(told)];
    });
}"""


def expected_of(rng, data_type):
    """Numbers of all sizes, and the special ones."""
    kind = data_type.numpy
    if not data_type.is_float:
        limits = np.iinfo(kind)
        special = [limits.min, limits.max, 0, 1, 2, 3]
        return np.concatenate([np.array(special, kind), rng.integers(limits.min, limits.max, 40, kind, endpoint=True)])
    limits = np.finfo(kind)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, limits.max, limits.smallest_normal, -limits.smallest_subnormal]
    drawn = rng.integers(0, 256, 60 * kind.itemsize).astype(np.uint8).view(kind)
    usual = rng.standard_normal(40) * 10.0 ** rng.integers(-8, 4, 40)
    tiny = np.float64(limits.smallest_normal) * rng.uniform(-6, 6, 20)
    return np.concatenate([np.array(special, kind), drawn, usual.astype(kind), tiny.astype(kind)])


def changed(rng, expected, much):
    """Results: most are right, others a few numbers away, flushed, of the other sign, or anything."""
    got = expected.copy()
    bits = got.view(f"u{got.dtype.itemsize}")
    for at in np.flatnonzero(rng.random(got.size) < much):
        match rng.integers(0, 6):
            case 0:
                bits[at] += bits.dtype.type(rng.integers(1, 6))
            case 1:
                bits[at] -= bits.dtype.type(rng.integers(1, 6))
            case 2:
                got[at] = 0
            case 3:
                bits[at] ^= bits.dtype.type(1 << (8 * got.dtype.itemsize - 1))
            case 4:
                got[at] = rng.choice(expected)
            case 5 if got.dtype.kind == "f":
                got[at] = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0], got.dtype))
    return got


def text(array):
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def judgments():
    """Tolerance, right results, a result and magnitudes."""
    rng = np.random.default_rng(11)
    for tolerance, types in TOLERANCES.items():
        for data_type, much, several in itertools.product(types, (0.0, 0.1, 0.9), (False, True)):
            expected = expected_of(rng, data_type)
            outcomes = [expected]
            if several and tolerance.flush_to_zero and not isinstance(tolerance, SameKind):
                outcomes += [flush(expected), changed(rng, expected, 0.2)]
            magnitude = np.abs(rng.standard_normal(expected.shape)) * 10.0 ** rng.integers(-6, 8, expected.shape)
            if isinstance(tolerance, RoundedSum):
                magnitude = rng.choice([1e-6, 1.0], expected.shape)
            elif rng.random() < 0.5:
                magnitude[:] = magnitude[0]
            yield data_type, tolerance, outcomes, changed(rng, rng.choice(outcomes), much), magnitude


def test_javascript_judges_as_python_does(page, tmp_path):
    """Each tolerance, on right and wrong results of each type: the same elements, errors and bounds."""
    judged_cases, verdicts = [], []
    with np.errstate(all="ignore"):
        for data_type, tolerance, outcomes, got, magnitude in judgments():
            rule = rule_of(tolerance, outcomes[0])
            known = []
            for outcome in outcomes:
                numbers = numbers_of(tolerance, rule, outcome, magnitude)
                known.append({"expected": text(outcome), **({} if numbers is None else {"numbers": text(numbers)})})
            judged_cases.append({"type": data_type.name, "rule": rule.to_json(), "outcomes": known, "got": text(got)})
            verdict = compare(nearest(outcomes, got, tolerance, magnitude), got, tolerance, magnitude)
            counts = [verdict.ok, verdict.wrong, verdict.worst[0], verdict.elements]
            verdicts.append([*counts, verdict.of_bound, verdict.max_ulp, verdict.mean_ulp, verdict.bound])
    (tmp_path / "judge.js").write_bytes(page_file("judge.js"))
    with served(page, tmp_path, "blank.html") as visited:
        judged = visited.evaluate(JUDGE, judged_cases)
    passed = 0
    for judgment, due, case in zip(judged, verdicts, judged_cases, strict=True):
        assert judgment[:4] == due[:4], (case, judgment, due)
        errors = [float(str(value).replace("Infinity", "inf")) for value in judgment[4:]]
        assert np.allclose(errors, due[4:], rtol=1e-12, equal_nan=True), (case["type"], case["rule"], judgment, due)
        passed += judgment[0]
    assert 20 < passed < len(judged) - 80


# ---- the page --------------------------------------------------------------------------------------------------------

CASES = (
    "activation_relu-int8-2x16x8x3-near-inplace-s0",
    "activation_relu-values-float32-63x5x7-strided-owned-s0",
    "argmax-example1",
    "dequantize-uint4-float32-15x16x11-permuted-special-s0",
    "element_wise_identity-float64-7x11-near-scaled-s0",
    "gather_elements-int64-uint32-33x9-strided-s0",
    "gemm-float16-1x17x1-near-bare-s0",
    "reduce-float32-3x31x7x5-permuted-sum-s0",
    "reduce-float16-5x65-slack-log_sum_exp-scaled-s0",
    "pattern-cast_around-float16-odd",
    "chain-float16-arena-12-s0",
)
"""In place, OWNED_BY_DML, 4, 16 and 64 bits, sums, one that no browser supports, a graph, and many dispatches."""


UNGUARDED = ("pattern", "chain", "hazard", "element_wise_identity")
"""The ones that do not run between sentinels, or not at all."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A page of some cases."""
    folder = tmp_path_factory.mktemp("conformance")
    written = write_suite(folder, "quick", CASES, schedules="cpu")
    assert set(written.cases) == set(CASES)
    return folder, written


def finished(visited):
    """The verdict of the page, once all cases have run."""
    visited.locator("#start:enabled").click()
    visited.locator("#save").wait_for(timeout=300_000)
    return visited.inner_text("#state")


@dataclass(frozen=True)
class Visit:
    """What a visitor with a phone sees, and what the page saves."""

    facts: str
    widths: tuple[int, int]
    verdict: str
    operators: str
    failures: bool
    shade: str
    run: RecordedRun
    file: Path


@pytest.fixture(scope="module")
def visits(page, facts, exported, tmp_path_factory):
    """A visit with a light theme, and one with a dark one."""
    folder, _ = exported
    visits_by_scheme = {}
    for scheme in ("light", "dark"):
        file = tmp_path_factory.mktemp("saved") / "run.jsonl"
        phone = {"viewport": {"width": 360, "height": 700}, "color_scheme": scheme}
        with served(page, folder, **phone) as visited:
            visited.locator("#start:enabled").wait_for()
            shown_facts = visited.inner_text("#facts")
            before = visited.evaluate("document.documentElement.scrollWidth")
            verdict = finished(visited)
            with visited.expect_download() as saved:
                visited.click("#save")
            saved.value.save_as(file)
            (run,) = read_file(file).runs
            visits_by_scheme[scheme] = Visit(
                shown_facts,
                (before, visited.evaluate("document.documentElement.scrollWidth")),
                verdict,
                visited.inner_text("#operators"),
                visited.locator("#failed").is_visible(),
                visited.evaluate("getComputedStyle(document.body).backgroundColor"),
                run,
                file,
            )
    return visits_by_scheme


@pytest.mark.parametrize(("scheme", "shade"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(15, 19, 24)")])
def test_the_page_runs_cases_on_a_phone(exported, visits, scheme, shade):
    _, written = exported
    visit, count = visits[scheme], len(written.cases)
    assert f"{count} cases of the profile quick" in visit.facts
    assert max(visit.widths) <= 360
    assert verdict_of(visit.verdict) == {"pass": count - 1, "not supported": 1}
    assert "gather_elements" in visit.operators
    assert not visit.failures
    assert visit.shade == shade


def test_reports_take_what_the_page_saves(exported, visits, tmp_path):
    _, written = exported
    run, count = visits["light"].run, len(written.cases)
    assert run.is_complete
    assert run.facts["adapter"]["backend"] == "Browser"
    assert run.facts["adapter"]["kind"] == "cpu"
    assert "Chrome" in run.facts["adapter"]["driver"]
    assert [outcome.case for outcome in run.outcomes] == list(written.cases)
    for outcome in run.outcomes:
        assert (outcome.kernels and outcome.elements and outcome.digest) or "shader-f64" in outcome.message
    done = run_here("report", visits["light"].file, "-o", tmp_path / "report.md")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{count - 1} of {count} cases passed" in (tmp_path / "report.md").read_text()


def test_records_are_those_of_python(lent, visits, monkeypatch):
    """The same cases by Python through the page's executor: the same bits, errors and kernels."""
    server, _, _ = lent
    monkeypatch.setenv(VARIABLE, server.borrowing)
    device, suite = Device("browser"), CombinedSuite()
    records = {outcome.case: outcome for outcome in visits["light"].run.outcomes}
    assert set(records) == set(CASES)
    for name, record in records.items():
        expected = suite.run(name, device)
        assert (record.status, record.elements, record.tolerance) == (
            expected.status,
            expected.elements,
            expected.tolerance,
        )
        assert record.kernels == expected.kernels, name
        for field in ("digest", "of_bound", "max_ulp", "worst", "bound", "wrong"):
            assert getattr(record, field) == getattr(expected, field), (name, field)
        mean = expected.mean_ulp  # None without results; pytest.approx rejects None from 9.2 on
        assert record.mean_ulp == (None if mean is None else pytest.approx(mean, rel=1e-12))
    device.remove()


def verdict_of(message):
    """How many cases have which status."""
    parts = (part.partition(" ") for part in message.partition(": ")[2].split(", "))
    return {status: int(number) for number, _, status in parts}


def altered(folder, target, change):
    """Copy a page whose cases are changed."""
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    (part,) = target.glob("*.bin")
    header, data = frames.decode(gzip.decompress(part.read_bytes()))
    data = bytearray(data)
    for case in header["cases"]:
        change(case, data)
    packed = gzip.compress(frames.encode(header, [bytes(data)]))
    part.write_bytes(packed)
    index = json.loads((target / "cases.json").read_bytes())
    index["parts"][0]["bytes"] = len(packed)
    (target / "cases.json").write_text(json.dumps(index))


def spoil(case, data):
    """Make a case wrong, in a way that its number decides; what its failure says."""
    run = case["runs"][0]
    match case["number"] % 4:
        case 0:  # nothing is computed
            run["dispatches"] = []
        case 1:  # something else is computed
            output = run["outputs"][0]
            for outcome in output["outcomes"]:
                start, size = outcome["expected"]
                outcome["expected"] = [len(data), size]
                data += bytes(byte ^ 0x42 for byte in data[start : start + size])
        case 2:  # nothing compiles
            for shader in run["shaders"]:
                shader["code"] += "\nfn wrong() -> u32 {\n    return nonesuch;\n}\n"
        case 3:  # the output begins where sentinels are
            output = run["tensors"][run["outputs"][0]["tensor"]]
            output["offset"] += 16


@pytest.mark.usefixtures("facts")
def test_wrong_results_fail_and_say_why(page, exported, tmp_path):
    folder, written = exported
    guarded = [name for name in written.cases if not name.startswith(UNGUARDED)]
    numbers = {name: number for number, name in enumerate(guarded)}

    def change(case, data):
        if case["name"] in numbers:
            case["number"] = numbers[case["name"]]
            spoil(case, data)

    (tmp_path / "page").mkdir()
    altered(folder, tmp_path / "page", change)
    with served(page, tmp_path / "page") as visited:
        verdict = finished(visited)
        assert visited.locator("#failures p").count() == len(guarded)
        with visited.expect_download() as saved:
            visited.click("#save")
        saved.value.save_as(tmp_path / "run.jsonl")
    right = len(written.cases) - len(guarded) - 1
    assert verdict_of(verdict) == {"fail": len(guarded), "pass": right, "not supported": 1}
    (run,) = read_file(tmp_path / "run.jsonl").runs
    says = ("elements were never written", "", "does not compile on google swiftshader: line ", "written out of bounds")
    for outcome in run.outcomes:
        if outcome.case in numbers:
            assert outcome.status == "fail"
            assert says[numbers[outcome.case] % 4] in outcome.message, outcome.case
            assert outcome.wrong or numbers[outcome.case] % 4 != 1


LOSE = """() => {
    const {createCommandEncoder} = GPUDevice.prototype;
    const {requestDevice} = GPUAdapter.prototype;
    window.opened = 0;
    let encoders = 0;
    GPUAdapter.prototype.requestDevice = function (...given) {
        window.opened++;
        return requestDevice.apply(this, given);
    };
    GPUDevice.prototype.createCommandEncoder = function (...given) {
        if (++encoders === 3) this.destroy();
        return createCommandEncoder.apply(this, given);
    };
}"""
"""The device is lost in the midst of the third case."""


@pytest.mark.usefixtures("facts")
def test_cases_on_a_lost_device_are_tried_again(page, exported):
    folder, written = exported
    with served(page, folder) as visited:
        visited.locator("#start:enabled").wait_for()
        visited.evaluate(LOSE)
        verdict = finished(visited)
        assert visited.evaluate("window.opened") == 1
        assert visited.locator("#failures p").all_inner_texts() == []
    assert verdict_of(verdict) == {"pass": len(written.cases) - 1, "not supported": 1}


BROKEN = {
    "cases.json is not JSON: ": ("cases.json", b"{"),
    "cases.json must be a list of cases of format 1.": ("cases.json", b"{}"),
    "cases-000.bin has 0 bytes; cases.json says ": ("cases-000.bin", b""),
    "cases-000.bin is damaged: ": ("cases-000.bin", None),
}
"""How the sentence begins, the file, and what it holds instead; None for as many zeros."""


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("sentence", BROKEN)
def test_a_broken_file_gives_a_sentence(page, exported, tmp_path, sentence):
    folder, _ = exported
    file, content = BROKEN[sentence]
    for source in folder.iterdir():
        data = source.read_bytes()
        instead = bytes(len(data)) if content is None else content
        (tmp_path / source.name).write_bytes(instead if source.name == file else data)
    with served(page, tmp_path) as visited:
        if file != "cases.json":
            visited.locator("#start:enabled").click()
        message = visited.locator("#state.bad").inner_text()
    assert message.startswith(sentence)
