"""Files of measurements: written, read back, cut off, malformed; and as reports and plots show them."""

import io
import itertools
import json
from dataclasses import asdict, replace
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from dmlgpu.bench import scaling
from dmlgpu.bench.records import as_times, is_bench_file, read_file, spread_text, write_run
from dmlgpu.bench.scaling import break_even, break_evens, sweeps
from dmlgpu.common.errors import InvalidArgument, ModelError
from dmlgpu.common.files import growing_file
from dmlgpu.conformance.report.writing import Report, as_html, as_junit, as_markdown
from dmlgpu.conformance.running.outcome import Outcome, Status
from tests.unit.bench.bench_fakes import CARD, CEILINGS, SOME, measured, run
from tests.unit.conformance import report_runs


def written(*runs):
    stream = io.StringIO()
    for recorded in runs:
        list(write_run(stream, recorded.facts, recorded.measurements))
    return stream.getvalue()


def file_of(tmp_path, text):
    path = tmp_path / "bench.jsonl"
    path.write_text(text, encoding="utf-8")
    return path


def test_runs_come_back_from_their_files(tmp_path):
    recorded = run(*SOME)
    path = file_of(tmp_path, written(recorded, recorded))
    assert is_bench_file(path)
    first, second = read_file(path)
    assert (first.measurements, first.is_complete) == (SOME, True)
    assert first.facts == second.facts == json.loads(json.dumps(recorded.facts))
    assert first.ceilings("gpu") == CEILINGS
    assert first.ceilings("other") is None


def test_headers_hold_everything_to_repeat_a_run():
    (header, *_) = map(json.loads, written(run(*SOME)).splitlines())
    assert {"dmlgpu", "commit", "shaders", "wgpu", "numpy", "python", "os", "processor", "started"} <= header.keys()
    assert header["adapters"]["gpu"]["adapter"] == json.loads(json.dumps(asdict(CARD.info)))
    assert header["adapters"]["gpu"]["environment"] == {"VK_DRIVER_FILES": "x"}
    assert header["command"] == ["dmlgpu", "bench", "GEMM"]


def test_truncated_lines_are_omitted(tmp_path):
    text = written(run(*SOME))
    for end, there in ((len(text) - 5, SOME), (text.index("no float64"), SOME[:1])):
        (recovered,) = read_file(file_of(tmp_path, text[:end]))
        assert (recovered.is_complete, recovered.measurements) == (False, there)


def test_measurements_are_on_disk_when_the_next_one_begins(tmp_path):
    recorded, path = run(*SOME), tmp_path / "bench.jsonl"
    with growing_file(path) as file:
        for index, _ in enumerate(write_run(file, recorded.facts, recorded.measurements), start=1):
            (killed,) = read_file(path.with_name("bench.jsonl.part"))
            assert (killed.is_complete, killed.measurements) == (False, SOME[:index])
    assert [entry.name for entry in tmp_path.iterdir()] == ["bench.jsonl"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no run"),
        ("{}\n", "was not written by `dmlgpu bench -o`"),
        ("[1]\n", "was not written by `dmlgpu bench -o`"),
        ("x\n", "is not JSON"),
        ('{"record": "bench", "format": 0}\n', "format: must be 1, got 0"),
        ('{"record": "bench", "format": 1}\n', "is not a valid header of a run: .* is missing"),
    ],
)
def test_malformed_files_are_rejected(tmp_path, text, said):
    path = file_of(tmp_path, text)
    with pytest.raises(ModelError, match=said):
        read_file(path)


def test_malformed_measurements_are_rejected_with_their_line(tmp_path):
    header = written(run(*SOME)).splitlines()[0]
    path = file_of(tmp_path, f'{header}\n{{"record": "measurement", "name": 3}}\n')
    with pytest.raises(ModelError, match=r"line 2: is not a valid measurement: 'operator' is missing"):
        read_file(path)


def test_files_of_tests_are_distinguished(tmp_path):
    assert not is_bench_file(file_of(tmp_path, '{"record": "run"}\n'))
    assert not is_bench_file(tmp_path / "missing")


# ---- reports

HOSTILE = measured("<b>|x", adapter="gpu", warnings=("`a` | <i>",))


def rows_of(markdown):
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    rows = []
    for token, content in itertools.pairwise(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("td_open", "th_open"):
            rows[-1].append(content.content)
    return rows


def report(*measurements):
    tested = report_runs.run(
        Outcome("gemm-a", Status.PASS), Outcome("gemm-b", Status.FAIL, message="off"), name="card", driver=""
    )
    return Report((tested,), (), (as_times(run(*measurements)),))


def test_times_stand_next_to_the_results_of_the_operators_cases():
    rows = rows_of(as_markdown(report(*SOME, measured("c", adapter="NumPy"))))
    a, b, c = (next(row for row in rows if row[0] == name) for name in "abc")
    assert a[1:3] == ["gpu", "1 ms ± 0.0 % (gpu)"]
    assert a[4:] == ["right: busy", "**1 of 2, out of tolerance**" if "out of" in a[5] else "**1 of 2**"]
    assert (b[2], b[4]) == ("no float64", "refused")
    assert c[5] == "-"  # NumPy was not tested


@pytest.mark.parametrize("render", [as_markdown, as_html])
def test_reports_escape_strings_of_measurements(render):
    text = render(report(HOSTILE))
    assert "<b>" not in text
    assert "<i>" not in text


def test_a_report_opens_with_a_wrong_result():
    report = Report((), (), (as_times(run(measured("a", check="wrong"), measured("b"))),))
    assert "**1 of 2 measurements failed or gave wrong results: a.**" in as_markdown(report)
    (suite,) = ElementTree.fromstring(as_junit(report))
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")


def test_measurements_alone_make_a_report():
    text = as_markdown(Report((), (), (as_times(run(*SOME)),)))
    assert "**2 measurements without errors.**" in text
    assert "Times and correctness" in as_html(Report((), (), (as_times(run(*SOME)),)))


# ---- scaling


def swept(adapter, times, **more):
    return [
        measured(
            f"GEMM {size}", adapter=adapter, seconds=(seconds,) * 11, wall=seconds, sizes={"m": size, "k": size}, **more
        )
        for size, seconds in times.items()
    ]


def test_sweeps_differ_only_in_sizes():
    ours, theirs = swept("gpu", {64: 2.0, 32: 1.0}), swept("NumPy", {32: 0.5, 64: 4.0})
    first, second = sweeps([*ours, *theirs, measured("other", sizes={"rows": 3})])
    assert (first.title, first.size, first.label) == ("GEMM", "m=k", "gpu")
    assert [place for place, _ in first.points] == [32, 64]
    assert second.adapter == "NumPy"


def test_break_even_is_where_a_curve_stays_below_another():
    ours, numpy = sweeps(
        [
            *swept("gpu", {1: 9.0, 2: 1.0, 4: 9.0, 8: 1.0, 16: 1.0}),
            *swept("NumPy", dict.fromkeys((1, 2, 4, 8, 16), 4.0)),
        ]
    )
    assert break_even(ours, numpy) == 8
    assert break_even(numpy, ours) is None
    assert break_evens([ours, numpy]) == [
        "GEMM: gpu breaks even with NumPy at m=k=8; it is slower at the next smaller size"
    ]
    humped = swept("gpu", {1: 9.0, 2: 1.0, 4: 3.0, 8: 9.0})
    assert break_evens(sweeps([*humped, *swept("NumPy", dict.fromkeys((1, 2, 4, 8), 4.0))])) == [
        "GEMM: gpu is faster than NumPy at m=k=2 and m=k=4, but slower at m=k=8"
    ]


def test_a_curve_may_be_faster_everywhere_or_nowhere():
    fast, slow, numpy = (swept(name, {1: time, 2: time}) for name, time in (("a", 1.0), ("b", 9.0), ("NumPy", 4.0)))
    assert break_evens(sweeps([*fast, *slow, *numpy])) == [
        "GEMM: a is faster than NumPy from m=k=1 on",
        "GEMM: b is slower than NumPy up to m=k=2",
    ]


def test_a_break_even_is_not_decided_if_intervals_overlap():
    """NumPy's 4 s may be 2 to 6; ours are 5 s at size 1 and 1 s at size 2."""
    times = (*(2.0,) * 4, *(4.0,) * 3, *(6.0,) * 4)
    wide = [replace(each, seconds=times) for each in swept("NumPy", {1: 4.0, 2: 4.0})]
    ours, numpy = swept("gpu", {1: 5.0, 2: 1.0}), [replace(wide[0], taken=0.9), swept("NumPy", {2: 4.0})[0]]
    expected = "GEMM: the measurements do not tell whether gpu is faster than NumPy at m=k=1: the machine was busy"
    assert break_evens(sweeps([*ours, *numpy])) == [expected]
    quiet = "the measurements do not tell whether gpu is faster than NumPy at m=k=1 and m=k=2: the times vary too much"
    # 1 s is below 2 s, but half of NumPy's rounds disagree
    assert break_evens(sweeps([*ours, *wide])) == [f"GEMM: {quiet}"]


def test_break_evens_of_several_sizes_have_bytes_and_ranges():
    """Sizes that vary independently are ordered by bytes, which readers cannot find in a list of all digits."""

    def sweep(adapter, seconds):
        sizes = {(1, 5): 12_881_920, (2, 6): 25_726_976, (3, 7): 51_417_088, (4, 8): 205_557_760}
        return [
            measured(
                adapter=adapter, seconds=(second,) * 11, wall=second, sizes={"m": m, "n": n}, counts={"bytes": count}
            )
            for ((m, n), count), second in zip(sizes.items(), seconds, strict=True)
        ]

    def said(ours, numpy):
        (sentence,) = break_evens(sweeps([*sweep("gpu", ours), *sweep("NumPy", numpy)]))
        return sentence.partition(": ")[2]

    same = "the measurements do not tell whether gpu is faster than NumPy at"
    assert said([1, 1, 1, 1], [1, 1, 1, 1]) == f"{same} every size from 12.9 MB to 206 MB: the times are too close"
    assert said([1, 1, 1, 2], [1, 1, 1, 1]) == f"{same} 12.9 MB, 25.7 MB and 51.4 MB: the times are too close"
    assert said([2, 2, 1, 1], [1, 1, 2, 2]).startswith("gpu breaks even with NumPy at 51.4 MB;")
    assert said([2, 2, 2, 2], [1, 1, 1, 1]) == "gpu is slower than NumPy up to 206 MB"


def test_percentiles_are_those_of_rounds():
    times = spread_text(measured("x", seconds=tuple(float(second) for second in range(11, 0, -1))))
    assert times == "fastest round 1 s, 10th percentile 2 s, 90th 10 s"
    assert spread_text(measured("x", seconds=(1.0,) * 4)) == ""


def test_sizes_that_change_apart_are_drawn_over_bytes():
    apart = [
        measured("x", sizes={"m": m, "k": k}, counts={"bytes": m * k, "operations": 1}) for m, k in ((1, 4), (2, 8))
    ]
    (sweep,) = sweeps(apart)
    assert (sweep.size, [place for place, _ in sweep.points]) == ("bytes", [4, 16])


# ---- plots


@pytest.mark.slow
def test_a_family_alone_is_drawn_the_same_each_time(tmp_path):
    curves = sweeps([*swept("gpu", {1: 9.0, 2: 1.0}), *swept("NumPy", {1: 4.0, 2: 4.0})])
    for name in ("one.svg", "two.svg"):
        scaling.plot_sweeps(curves, tmp_path / name)
    text = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert text == (tmp_path / "two.svg").read_text(encoding="utf-8")
    assert "seconds per dispatch" in text  # a text, not its outlines
    with pytest.raises(InvalidArgument, match="the suffix must be"):
        scaling.plot_sweeps(curves, tmp_path / "one.pdf")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_plots_are_drawn(tmp_path, suffix):
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed, which draws plots")
    path = tmp_path / f"plot{suffix}"
    measurements = [*swept("gpu", {1: 9.0, 2: 1.0}), *swept("NumPy", {1: 4.0, 2: 4.0})]
    scaling.plot(measurements, {"gpu": CEILINGS}, path)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    if suffix == ".svg":
        text = content.decode()
        assert "roofline" in text
        assert "as fast as NumPy from 2 on" in text


def test_plots_of_nothing_and_of_other_formats_are_rejected(tmp_path):
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed, which draws plots")
    with pytest.raises(InvalidArgument, match=r"the suffix must be one of \.png, \.svg, got '\.pdf'"):
        scaling.check_path(tmp_path / "plot.pdf")
    with pytest.raises(InvalidArgument, match="there are no measurements to plot"):
        scaling.plot([SOME[1]], {}, tmp_path / "plot.png")
