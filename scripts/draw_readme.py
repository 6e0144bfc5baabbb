"""Draws the two pictures of README.md and of the landing page from stored results.

python scripts/draw_readme.py            write docs/images/speed.svg and docs/images/report.svg
python scripts/draw_readme.py --check    fail if they are out of date

speed.svg: times of other libraries divided by dmlgpu's. On an NVIDIA H100, PyTorch's CUDA kernels, from the table in
benchmarks/results/2026-11-26-h100.md (`dmlgpu bench benchmarks/discrete.toml`, `python benchmarks/cuda_kernels.py`).
On lavapipe, the fastest other library on it, from benchmarks/results/speed (`dmlgpu bench peers`).

report.svg: the summary of `dmlgpu report` of benchmarks/results/2026-11-26-h100-quick.jsonl (`dmlgpu test -o`).
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from dmlgpu.bench.peers.contestants import compare_peers
from dmlgpu.bench.records import read_file
from dmlgpu.conformance.report.model import Report
from dmlgpu.conformance.report.verdict import verdict
from dmlgpu.conformance.running.outcome import share_text
from dmlgpu.conformance.running.records import read_runs

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
IMAGES = ROOT / "docs" / "images"
H100 = RESULTS / "2026-11-26-h100.md"
TESTED = RESULTS / "2026-11-26-h100-quick.jsonl"
PEERS = RESULTS / "speed" / "peers.jsonl"

STYLE = """
    text { font: 11.5px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1c2033; }
    .title { font-size: 15px; font-weight: 600; }
    .head { font-size: 12.5px; font-weight: 600; }
    .note { fill: #565c78; }
    .value { font-variant-numeric: tabular-nums; }
    .panel { fill: #ffffff; stroke: #e0e3ee; }
    .axis { stroke: #8087a5; }
    .grid { stroke: #e0e3ee; }
    .faster { fill: #4a3fd1; }
    .slower { fill: #d0793a; }
    .half { opacity: 0.55; }
    .good { fill: #d9f7e1; }
    .pass { fill: #12693a; font-weight: 600; }
    .bar { fill: #3f9d63; }
    @media (prefers-color-scheme: dark) {
      text { fill: #dfe3f2; }
      .note { fill: #9aa2c0; }
      .panel { fill: #10131f; stroke: #2a304a; }
      .grid { stroke: #2a304a; }
      .faster { fill: #8d83ff; }
      .slower { fill: #e59a60; }
      .good { fill: #123322; }
      .pass { fill: #7ddca0; }
    }
"""


class Bar(NamedTuple):
    """A row of the chart: its name, and the time of another library divided by dmlgpu's."""

    name: str
    ratio: float

    @property
    def is_half(self) -> bool:
        """Whether it computes float16."""
        return "float16" in self.name


def main() -> int:
    """Draw, or check."""
    parser = argparse.ArgumentParser(description="Draw the pictures of README.md from stored results.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a picture is out of date")
    options = parser.parse_args()
    for path, text in pictures().items():
        if not options.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path} is out of date; run: python scripts/draw_readme.py", file=sys.stderr)
            return 1
    return 0


def pictures() -> dict[Path, str]:
    """Return the text of each picture."""
    return {IMAGES / "speed.svg": speed(), IMAGES / "report.svg": report()}


def cuda_bars() -> list[Bar]:
    """Return the rows of the H100's table that PyTorch computes too, with names that say everything."""
    lines = H100.read_text(encoding="utf-8").partition("## Large operators")[2].partition("\n## ")[0].splitlines()
    bars, base = [], ""
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != len(("row", "first", "dmlgpu", "of the ceiling", "PyTorch", "ratio")):
            continue
        name = cells[0].replace("the same", base)
        base = base if cells[0].startswith("the same") else name
        if re.fullmatch(r"[\d.]+", cells[5]):
            bars.append(Bar(name, float(cells[5])))
    return bars


def peer_bars() -> list[Bar]:
    """Return the rows of the last run with other libraries, by the median ratio to the fastest one on the adapter."""
    comparisons = compare_peers(read_file(PEERS)[-1])
    return [Bar(peer.name.replace("isation", "ization"), peer.ratio.median) for peer in comparisons if peer.ratio]


def geometric_mean(bars: Sequence[Bar]) -> float:
    """Return the geometric mean of the ratios."""
    return statistics.geometric_mean([bar.ratio for bar in bars])


ROW, OCTAVE = 17, 24
"""Height of a row, and width of a factor of two, in pixels."""


class Panel(NamedTuple):
    """The bars of one machine.

    Attributes:
        title, notes: Text above them.
        bars: From top to bottom.
        left, names: Left edge, and width of the names, in pixels.
        powers: Powers of two of the scale.
    """

    title: str
    notes: Sequence[str]
    bars: Sequence[Bar]
    left: float
    names: float
    powers: range


def speed() -> str:
    """Return the chart of both machines."""
    run = read_file(PEERS)[-1]
    cuda, peers = cuda_bars(), peer_bars()
    single = [bar for bar in cuda if not bar.is_half]
    half = [bar for bar in cuda if bar.is_half]
    others = ", ".join(name for name, peer in run.facts["peers"].items() if peer["is_gpu"])
    panels = [
        Panel(
            "NVIDIA H100: PyTorch's CUDA kernels",
            (
                f"{len(single)} rows in float32: {geometric_mean(single):.2f} on average (geometric mean)",
                f"{len(half)} rows in float16 (pale), where CUDA uses matrix units",
                H100.name[:10],
            ),
            [*single, *half],
            16,
            270,
            range(-4, 4),
        ),
        Panel(
            "lavapipe, on a CPU: the fastest other library",
            (
                f"{len(peers)} rows: {geometric_mean(peers):.2f} on average (geometric mean)",
                f"compared with {others}",
                run.facts["started"][:10],
            ),
            peers,
            520,
            190,
            range(-1, 6),
        ),
    ]
    heading = "Time of the other library divided by dmlgpu's: above 1, dmlgpu is faster"
    parts = [f'<text class="title" x="16" y="30">{heading}</text>']
    for each in panels:
        parts += panel(each)
    description = "; ".join(f"{each.title}: {', '.join(each.notes)}" for each in panels)
    return document(920, 146 + ROW * max(len(each.bars) for each in panels), heading, description, parts)


def panel(panel: Panel) -> Iterator[str]:
    """Yield the title and the bars of one machine, on a logarithmic scale."""
    origin, first = panel.left + panel.names - OCTAVE * panel.powers[0], 134
    yield f'<text class="head" x="{panel.left:g}" y="60">{escape(panel.title)}</text>'
    for index, note in enumerate(panel.notes):
        yield f'<text class="note" x="{panel.left:g}" y="{77 + 15 * index}">{escape(note)}</text>'
    for power in panel.powers:
        x = origin + power * OCTAVE
        label = f"1/{2**-power}" if power < 0 else str(2**power)
        kind = "axis" if power == 0 else "grid"
        yield f'<line class="{kind}" x1="{x:g}" x2="{x:g}" y1="{first - 4}" y2="{first + ROW * len(panel.bars)}"/>'
        yield f'<text class="note" text-anchor="middle" x="{x:g}" y="{first - 7}">{label}</text>'
    for index, bar in enumerate(panel.bars):
        y, end = first + ROW * index, origin + OCTAVE * math.log2(bar.ratio)
        kind = ("faster" if bar.ratio >= 1 else "slower") + (" half" if bar.is_half else "")
        left, right = sorted((origin, end))
        yield f'<text x="{panel.left:g}" y="{y + 12}">{escape(bar.name)}</text>'
        yield (
            f'<rect class="{kind}" x="{left:.1f}" y="{y + 2}" width="{right - left:.1f}" height="{ROW - 5}" rx="2"/>'
        )
        yield f'<text class="value" x="{right + 5:.1f}" y="{y + 12}">{bar.ratio:.2f}</text>'


def report() -> str:
    """Return the summary of a conformance report: the verdict, and a row per family of operators."""
    tested = Report(read_runs(TESTED))
    facts = tested.runs[0].facts
    (matrix,) = tested.matrices
    judged = verdict(tested).text
    note = f"dmlgpu test, profile {facts['profile']}, {facts['started'][:10]}; commit {facts['commit']}"
    parts = [
        '<rect class="good" x="12" y="12" width="696" height="40" rx="6"/>',
        f'<text class="head pass" x="26" y="37">✓ {escape(judged)}</text>',
        f'<text class="note" x="16" y="74">{escape(note)}</text>',
        '<text class="note" x="16" y="104">operators</text>',
        '<text class="note" text-anchor="end" x="300" y="104">cases passed</text>',
        '<text class="note" x="330" y="104">largest error, as a share of its tolerance</text>',
    ]
    y = 114.0
    for family in matrix.families:
        cell = tested.family(family, 0)
        assert cell is not None
        share, width = cell.of_bound or 0.0, 250 * min(1.0, cell.of_bound or 0.0)
        parts += [
            f'<line class="grid" x1="16" x2="704" y1="{y:g}" y2="{y:g}"/>',
            f'<text x="16" y="{y + 15:g}">{escape(family.name)} '
            f'<tspan class="note">{len(family.operators)}</tspan></text>',
            f'<text class="pass value" text-anchor="end" x="300" y="{y + 15:g}">'
            f"{cell.passed} of {len(cell.outcomes)}</text>",
            f'<rect class="bar" x="330" y="{y + 5:g}" width="{width:.1f}" height="11" rx="2"/>',
            f'<text class="value" x="{336 + width:.1f}" y="{y + 15:g}">{share_text(share)}</text>',
        ]
        y += 21
    return document(720, y + 8, "Summary of a conformance report", f"{judged} {note}", parts)


def document(width: float, height: float, title: str, description: str, parts: Sequence[str]) -> str:
    """Return an SVG with its title and description, on a panel that follows the reader's colors."""
    body = "\n".join(f"  {part}" for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">\n'
        f"  <title>{escape(title)}</title>\n  <desc>{escape(description)}</desc>\n  <style>{STYLE}  </style>\n"
        f'  <rect class="panel" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="8"/>\n'
        f"{body}\n</svg>\n"
    )


if __name__ == "__main__":
    sys.exit(main())
