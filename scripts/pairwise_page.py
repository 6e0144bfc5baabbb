"""Write benchmarks/results/pairwise.md from a comparison of drivers with each other.

dmlgpu test --drivers all --pairwise --suite operators -o pairs.jsonl
python scripts/pairwise_page.py pairs.jsonl
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from dmlgpu.common.errors import counted
from dmlgpu.conformance.drivers.pairwise import Comparison
from dmlgpu.conformance.report.pairs import PairReport, difference
from dmlgpu.conformance.running.outcome import bound_text
from dmlgpu.conformance.running.records import read_file
from dmlgpu.conformance.suites.registry import suite_by_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "results" / "pairwise.md"


def page(comparison: Comparison) -> str:
    """Return the text of the page."""
    return "\n".join([*_lines(PairReport(comparison)), ""])


def _lines(report: PairReport) -> Iterator[str]:
    facts = report.comparison.facts
    words = [Path(word).name if Path(word).is_absolute() else word for word in facts["command"]]
    suite = [] if "--suite" in words else ["--suite", facts["suite"]]
    patterns = facts["pattern"].split(" or ") if facts.get("pattern") else []
    selection = [word for pattern in patterns for word in ("-k", pattern)]
    command = shlex.join([*words, *suite, "--profile", facts["profile"], *selection])
    of = f" of {len(suite_by_name(facts['suite']).names(facts['profile'])):,}" if patterns else ""
    unfinished = "" if report.comparison.is_complete else ", truncated"
    yield "# Drivers compared with each other"
    yield ""
    yield "Written by `scripts/pairwise_page.py`."
    yield ""
    yield f"    {command}"
    yield ""
    yield f"{facts['cases']:,}{of} cases on {facts['started'][:10]} at commit {facts['commit'][:12]}{unfinished}."
    yield ""
    yield "| adapter | driver | cases on which it differs alone |"
    yield "|---|---|--:|"
    for label, alone in report.alone.items():
        yield f"| {label} | {facts['adapters'][label]['driver'] or 'unknown'} | {alone} |"
    yield ""
    yield "The largest distance is relative to the allowed one, and in ULP."
    yield ""
    yield f"| pair | same bits | {' | '.join(report.agreements)} | largest distance |"
    yield f"|---|--:|{'--:|' * len(report.agreements)}---|"
    for row in report.rows:
        ulps = max((pair.distance.max_ulp for pair in row.pairs if pair.distance is not None), default=0.0)
        counts = " | ".join(str(row.counts[agreement]) for agreement in report.agreements)
        distance = f"{bound_text(row.of_bound) or '-'}, {ulps:,.0f} ULP"
        yield f"| {' / '.join(row.adapters)} | {row.same_bits} | {counts} | {distance} |"
    yield ""
    yield "Distances of thousands of ULP from `numpy` are sums that nearly cancel; `numpy` computes them in float64."
    if report.disagreements:
        yield ""
        yield f"{counted(len(report.disagreements), 'case')} with disagreements or without a result:"
        yield ""
        yield "| case | adapters | difference |"
        yield "|---|---|---|"
    for dispute in report.disagreements:
        for pair in dispute.pairs:
            yield f"| `{dispute.case}` | {' / '.join(pair.adapters)} | {difference(pair).splitlines()[0]} |"


def main() -> int:
    """Read the file, and write the page."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    comparisons = read_file(Path(sys.argv[1])).comparisons
    if len(comparisons) != 1:
        print(f"{sys.argv[1]} has {len(comparisons)} comparisons; expected 1", file=sys.stderr)
        return 1
    PAGE.write_text(page(comparisons[0]), encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
