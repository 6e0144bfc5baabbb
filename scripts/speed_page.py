"""Writes the tables and plots of docs/speed.md from files that `dmlgpu bench -o` wrote.

python scripts/speed_page.py FILE.jsonl ...     replace the stored files by these, and write the page
python scripts/speed_page.py                    write the page from the stored files
python scripts/speed_page.py --check            fail if the page is out of date

The tables of the plots are too long for a page: benchmarks/results/speed/sizes.md has them.
Files are stored in benchmarks/results/speed. They contain the suites `families`, `scaling` (with --numpy) and
optionally `peers`, measured on one adapter. If a row was measured twice, the later file counts.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dmlgpu.bench.machine_load import BUSY
from dmlgpu.bench.peers import contestants
from dmlgpu.bench.ratios import duration
from dmlgpu.bench.records import BenchRun, Measurement, read_file, share_text
from dmlgpu.bench.scaling import NUMPY, REFERENCE, Sweep, break_evens, plot_sweeps, sweeps
from dmlgpu.bench.specs import BenchSpec
from dmlgpu.cli.subjects import find_workloads

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "speed.md"
KEPT = ROOT / "benchmarks" / "results" / "speed"
SIZES = KEPT / "sizes.md"
IMAGES = ROOT / "docs" / "images" / "speed"
BEGIN, END = "<!-- {}, written by scripts/speed_page.py -->\n", "<!-- end of {} -->\n"
PRIVATE = ("interpreter", "environment")
"""Facts of a run with paths of the machine, which are omitted."""

LIMITS = {
    "GEMM": "every lane loads the columns; a loop masks and rewrites its sums in every iteration",
    "CONVOLUTION": "Winograd's transforms, and the loads of the products",
    "depth-wise convolution": "loads of the windows: one channel has few multiply-adds per load",
    "MULTIHEAD_ATTENTION": "loads of keys and values, and exponentials between the two products",
    "ELEMENT_WISE_ADD": "memory bandwidth",
    "ACTIVATION_GELU": "the polynomial of the error function",
    "transpose 2048x2048": "loads from as many cache lines as the tile is wide",
    "REDUCE": "reads: few invocations sum each row",
    "ARGMIN": "memory bandwidth",
    "ACTIVATION_SOFTMAX1": "exponentials, and scalar loads and stores per lane",
    "MEAN_VARIANCE_NORMALIZATION2": "scalar loads and stores per lane, and sums in several steps",
    "BATCH_NORMALIZATION": "memory bandwidth",
    "MAX_POOLING2": "comparisons of ranks, and vectors assembled from every other element",
    "RESAMPLE3": "four loads and their weights per element",
    "GATHER": "rows scattered in memory",
    "SCATTER_ELEMENTS": "copying the whole tensor, then writing single elements",
    "SCATTER_ND": "copying the whole tensor, then writing rows",
    "SLICE1": "loads of single elements, two apart",
    "JOIN": "memory bandwidth",
    "CUMULATIVE_SUMMATION": "sums that depend on the previous sums",
    "TOP_K1": "comparisons: lanes execute both sides of a branch",
    "ELEMENT_WISE_QUANTIZE_LINEAR": "division and rounding, and packing bytes into words",
    "LSTM": "time steps that depend on each other, each a small product",
}
"""What limits each row of the suite beyond the ceiling, by the name of the row or its operator."""


def main() -> int:
    """Keep files, then write or check."""
    parser = argparse.ArgumentParser(description="Write the tables and plots of docs/speed.md.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.jsonl", help="what `dmlgpu bench -o` wrote")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is out of date")
    options = parser.parse_args()
    if options.files:
        keep_all(options.files)
    runs = [run for path in sorted(KEPT.glob("*.jsonl")) for run in read_file(path)]
    texts = {PAGE: page(PAGE.read_text(encoding="utf-8"), runs, draw=not options.check), SIZES: sizes_page(runs)}
    if options.check:
        stale = [path for path, text in texts.items() if path.read_text(encoding="utf-8") != text]
        for path in stale:
            print(f"{path} is out of date; run: python scripts/speed_page.py", file=sys.stderr)
        return int(bool(stale))
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return 0


def keep_all(paths: Sequence[Path]) -> None:
    """Keep files of measurements in place of earlier ones."""
    earlier = set(KEPT.glob("*.jsonl"))
    for path in paths:
        keep(path)
    for path in earlier - {KEPT / path.name for path in paths}:
        path.unlink()


def keep(path: Path) -> None:
    """Keep a file of measurements without what says where things lie on the machine."""
    read_file(path)  # says what is wrong with it
    KEPT.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    text = "".join(f"{json.dumps(without(line), separators=(',', ':'))}\n" for line in lines)
    (KEPT / path.name).write_text(text, encoding="utf-8")


def without(record: object) -> object:
    """Return a record without PRIVATE and without the folders of files, at any depth."""
    if isinstance(record, dict):
        return {key: without(value) for key, value in record.items() if key not in PRIVATE}
    if isinstance(record, str) and Path(record).is_absolute():
        return Path(record).name
    return [without(item) for item in record] if isinstance(record, list) else record


@dataclass(frozen=True)
class SpeedResults:
    """What was measured on one adapter.

    Attributes:
        adapter: what it is called.
        runs: with it.
        ours: by name, under the chosen schedule; those of a run with peers, one call at a time, are not among them.
        curves: over sizes, ours and NumPy's.
    """

    adapter: str
    runs: Sequence[BenchRun]
    ours: dict[str, Measurement]
    curves: tuple[Sweep, ...]


def found_in(runs: Sequence[BenchRun]) -> SpeedResults:
    """Put runs together."""
    (adapter,) = {label for run in runs for label in run.facts["adapters"]}
    alone = {
        measurement.key: measurement
        for run in runs
        if "peers" not in run.facts
        for measurement in run.measurements
        if measurement.status == "measured"
    }
    ours = {
        name: measurement for (name, where, schedule), measurement in alone.items() if where == adapter and not schedule
    }
    return SpeedResults(adapter, runs, ours, sweeps(list(alone.values())))


def page(text: str, runs: Sequence[BenchRun], *, draw: bool = True) -> str:
    """Return the page with tables of these runs between the lines that name this script."""
    results = found_in(runs)
    for title, lines in (("the machine", machine(results)), ("the rows", rows(results)), ("the peers", peers(runs))):
        text = between(text, title, list(lines))
    return between(text, "the families", list(families(results, draw=draw)))


def between(text: str, title: str, lines: Sequence[str]) -> str:
    """Return a text with lines in place of those between two marks."""
    begin, end = BEGIN.format(title), END.format(title)
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    if begin not in text or end not in text:
        raise SystemExit(f"{PAGE}: the lines around {title} are missing")
    body = "\n".join(lines)
    return f"{before}{begin}\n{body}\n\n{end}{after}"


def machine(results: SpeedResults) -> Iterator[str]:
    """What everything was measured on."""
    facts = results.runs[-1].facts
    info, ceilings = facts["adapters"][results.adapter]["adapter"], results.runs[-1].ceilings(results.adapter)
    days = sorted({run.facts["started"][:10] for run in results.runs})
    yield f"{info['backend']}: {info['name']} ({info['driver']}), {facts['os'].partition('-')[0]}, {', '.join(days)}."
    if ceilings is not None:
        yield (
            f"Ceilings: copies {ceilings.copy / 1e9:.1f} GB/s, multiply-adds {ceilings.multiply_add / 1e9:.1f} GFLOP/s,"
            f" {duration(ceilings.launch)} for each launch, {duration(ceilings.submission)} to submit one and wait."
        )
    every = [measurement for run in results.runs for measurement in run.measurements if measurement.taken is not None]
    busy = [measurement.taken or 0.0 for measurement in every if (measurement.taken or 0.0) > BUSY]
    if busy:
        yield (
            f"**The machine was busy during {len(busy)} of {len(every)} measurements: other processes took up to"
            f" {100 * max(busy):.0f} % of the CPU time of a test loop. Use these times for ratios only.**"
        )
    wrong = [
        measurement.name for run in results.runs for measurement in run.measurements if measurement.check == "wrong"
    ]
    if wrong:
        yield f"**Wrong results: {', '.join(wrong)}.**"


def rows(results: SpeedResults) -> Iterator[str]:
    """A table of the rows of the suite ``families``."""
    yield "| row | time | rate | reached | limited by |"
    yield "|---|--:|--:|---|---|"
    for subject in find_workloads([BenchSpec("families")]):
        measurement = results.ours.get(subject.workload.name)
        if measurement is None or measurement.median is None or measurement.noise is None:
            continue
        limit = LIMITS.get(measurement.name) or LIMITS[measurement.operator]
        time = lines(duration(measurement.median), f"± {100 * measurement.noise:.0f} %")
        bandwidth = rate(measurement.bytes_per_second, "GB/s")
        arithmetic = rate(measurement.operations_per_second, "GFLOP/s")
        yield (
            f"| {measurement.name} | {time} | {lines(bandwidth, arithmetic)} | {share_text(measurement)} | {limit} |"
        )


def lines(*texts: str) -> str:
    """Return a table cell with a line per text; narrow columns keep the last one on the screen."""
    return "<br>".join(text.replace(" ", "&nbsp;") for text in texts if text)


def rate(value: float | None, unit: str) -> str:
    """Return units of 1e9 per second."""
    return "" if value is None else f"{value / 1e9:.3g} {unit}"


def _packages(versions: Mapping[str, str]) -> str:
    """What computes, with its versions."""
    return ", ".join(f"{package} {version}" for package, version in versions.items() if package != "python")


def peers(runs: Sequence[BenchRun]) -> Iterator[str]:
    """A table of our times and those of peers, of the last run with peers."""
    beside = [run for run in runs if "peers" in run.facts]
    if not beside:
        yield "There is no comparison with other libraries yet; `dmlgpu bench peers` measures one."
        return
    run = beside[-1]
    peers = [f"{name} ({_packages(peer['versions'])})" for name, peer in run.facts["peers"].items()]
    yield f"Milliseconds per run by wall clock, one synchronous run at a time. {', '.join(peers)}."
    yield ""
    yield f"| row | dmlgpu | {' | '.join((*run.facts['peers'], NUMPY))} | best on the adapter | its time / dmlgpu's |"
    yield f"|---|{'--:|' * (2 + len(run.facts['peers']))}---|--:|"
    for peer in contestants.compare_peers(run):
        times = [contestants.time_text(each) for each in (peer.ours, *peer.theirs)]
        best = "" if peer.best is None else peer.best.adapter
        yield f"| {peer.name} | {' | '.join(times)} | {best} | {contestants.ratio_text(peer.ratio)} |"
    yield ""
    yield contestants.summary(contestants.compare_peers(run)) + "."


def own_curves(results: SpeedResults) -> Iterator[tuple[Sweep, list[Sweep]]]:
    """Yield the curves of the adapter, and the other curves of the same operator."""
    for ours in results.curves:
        if ours.adapter == results.adapter and not ours.schedule:
            yield ours, [curve for curve in results.curves if curve.title == ours.title and curve is not ours]


def families(results: SpeedResults, *, draw: bool) -> Iterator[str]:
    """A section per family that has a range of sizes: its plot, and where it breaks even."""
    said = break_evens(results.curves)
    for path in IMAGES.glob("*") if draw else ():
        path.unlink()
    for index, (ours, beside) in enumerate(own_curves(results)):
        name = re.sub(r"[^a-z0-9]+", "-", ours.title.lower()).strip("-")
        if draw:
            IMAGES.mkdir(parents=True, exist_ok=True)
            plot_sweeps([ours, *beside], IMAGES / f"{name}.svg")
        if index:
            yield ""
        yield f"![times of {ours.title} over sizes](images/speed/{name}.svg)"
        yield ""
        yield from (f"{sentence}." for sentence in said if sentence.startswith(f"{ours.title}: "))


def sizes_page(runs: Sequence[BenchRun]) -> str:
    """Return the page with a table for each plot."""
    results = found_in(runs)
    text = ["# Times over sizes", "", "<!-- generated by scripts/speed_page.py -->", "", *machine(results), ""]
    text.append("[Performance](../../../docs/speed.md) has the plots, and explains the columns.")
    for ours, beside in own_curves(results):
        other = next((curve for curve in beside if curve.adapter in (NUMPY, REFERENCE)), None)
        text += ["", f"## {ours.title}", "", *sizes_table(ours, other)]
    return "\n".join(text) + "\n"


def sizes_table(ours: Sweep, other: Sweep | None) -> Iterator[str]:
    """A line per size: times, the share of the ceiling, memory relative to the minimum."""
    theirs = {} if other is None else {place: point.wall for place, point in other.points}
    name = NUMPY if other is None else other.adapter
    yield f"| {ours.size} | dispatch | wall clock | {name} | {name} / dmlgpu | reached | memory / least |"
    yield "|--:|--:|--:|--:|--:|--:|--:|"
    for place, point in ours.points:
        wall, numpy = point.wall or 0.0, theirs.get(place)
        beside = ("", "") if numpy is None else (duration(numpy), f"{numpy / wall:.2g}" if wall else "")
        counts = point.counts
        extra = counts.get("temporary_bytes", 0) + counts.get("persistent_bytes", 0)
        memory = f"{1 + extra / counts['bytes']:.2f}" if counts.get("bytes") else ""
        cells = (f"{place:,}", duration(point.median or 0.0), duration(wall), *beside, share_text(point), memory)
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
