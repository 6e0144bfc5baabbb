"""The command ``scripts/fuzz``: run a campaign, or repeat one seed."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

from tests.fuzz import child
from tests.fuzz.campaign import Tally, run_seeds
from tests.fuzz.monitor import Finding, FindingRaised, Monitor
from tests.fuzz.targets import TARGETS, WITHOUT_GPU, load

ADAPTERS = ("numpy", "gpu")
TURN = 60.0
"""Seconds for which a target runs before the next one has its turn."""


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--hours", type=float, default=0.0, help="duration; one minute per target by default")
    parser.add_argument("--target", choices=TARGETS, action="append", help="targets to fuzz; all by default")
    parser.add_argument("--adapter", action="append", help="numpy, gpu (the default GPU), or part of an adapter's name")
    parser.add_argument("--seed", type=int, help="run only this seed, in this process, up to its first finding")
    parser.add_argument("--first", type=int, default=0, help="the first seed of each target")
    parser.add_argument("-o", "--output", type=Path, help="write the findings as JSON Lines")
    options = parser.parse_args()
    targets, adapters = options.target or list(TARGETS), options.adapter or list(ADAPTERS)
    if options.seed is not None:
        return again(targets[0], adapters[0], options.seed)
    tallies = campaign(targets, adapters, options.first, 3600 * options.hours, options.output)
    return summary(tallies)


def again(target: str, adapter: str, seed: int) -> int:
    """Run a seed up to its first finding; state machines then look for a shorter way there."""
    child.limit_memory()
    monitor = Monitor(target, adapter, strict=True)
    monitor.seed = seed
    try:
        load(target).run(seed, monitor)
    except FindingRaised as finding:
        print(finding, *getattr(finding, "__notes__", ()), sep="\n")  # Hypothesis notes the steps that lead there
        return 1
    print(f"nothing found in {monitor.calls} calls")
    return 0


def campaign(
    targets: list[str], adapters: list[str], first: int, seconds: float, output: Path | None
) -> dict[tuple[str, str], Tally]:
    """Let targets take turns until the time is over, each at least once."""
    pairs = [(t, a) for t in targets for a in adapters if a == "numpy" or t not in WITHOUT_GPU]
    tallies = {pair: Tally(next_seed=first) for pair in pairs}
    end = time.monotonic() + seconds
    for index, pair in enumerate(itertools.cycle(pairs)):
        if index >= len(pairs) and time.monotonic() > end:
            break
        tally = tallies[pair]
        known = {key for other in tallies.values() for key in other.findings}

        def tell(finding: Finding, known: set[tuple[str, str]] = known) -> None:
            if finding.key not in known:
                known.add(finding.key)
                print(f"{finding.kind} at {finding.place}\n  {finding.command}", flush=True)
            if output is not None:
                with output.open("a", encoding="utf-8") as file:
                    print(json.dumps(finding.to_json()), file=file)

        turn = run_seeds(*pair, tally.next_seed, 10**9, seconds=TURN, on_finding=tell)
        tally.update(turn)
        tally.next_seed = turn.next_seed
        print(f"{pair[0]} on {pair[1]}: {tally.seeds} seeds, {tally.calls} calls", file=sys.stderr, flush=True)
    return tallies


def summary(tallies: dict[tuple[str, str], Tally]) -> int:
    """Print a summary and the findings; exit with 1 if there are any."""
    total = Tally()
    print_counted(tallies)
    for (target, adapter), tally in tallies.items():
        total.update(tally)
        refused = f"{tally.refused / max(1, tally.calls):.0%} refused"
        print(f"{target:14} {adapter:8} {tally.seeds:8} seeds {tally.calls:9} calls, {refused}")
    print(f"{total.calls} calls in {total.seeds} seeds, {len(total.findings)} distinct findings")
    for key, count in total.counts.most_common():
        finding = total.findings[key]
        print(f"{count:6} x {finding.kind} at {finding.place}\n         {finding.command}")
    return 1 if total.findings else 0


def print_counted(tallies: dict[tuple[str, str], Tally]) -> None:
    """Print what targets count: a row per subject, with how often what became of it."""
    rows: dict[str, list[str]] = {}
    for tally in tallies.values():
        for name, count in sorted(tally.counted.items()):
            subject, _, what = name.partition("\t")
            rows.setdefault(subject, []).append(f"{count} {what}")
    for subject, counts in rows.items():
        print(f"{subject:40} {', '.join(counts)}")


if __name__ == "__main__":
    sys.exit(main())
