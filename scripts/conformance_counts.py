"""Writes the numbers of cases into docs/conformance.md, between the lines that name this script.

python scripts/conformance_counts.py            write them
python scripts/conformance_counts.py --check    fail when they are not what would be written
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dmlgpu.conformance.cases.profiles import PROFILES
from dmlgpu.conformance.suites.registry import BUILT_IN, DEFAULT, suite_by_name

PAGE = Path(__file__).resolve().parents[1] / "docs" / "conformance.md"
BEGIN = "<!-- the numbers of cases, written by scripts/conformance_counts.py -->\n"
END = "<!-- end of the numbers -->\n"


def table() -> str:
    """The number of cases of each suite in each profile; the last row has all of them."""
    suites = {entry.name: suite_by_name(entry.name) for entry in BUILT_IN if entry.name != DEFAULT}
    counts = {name: [len(suite.names(profile)) for profile in PROFILES] for name, suite in suites.items()}
    counts[DEFAULT] = [sum(column) for column in zip(*counts.values(), strict=True)]
    rows = [f"| `{name}` | {' | '.join(f'{count:,}' for count in row)} |" for name, row in counts.items()]
    return "\n".join([f"| suite | {' | '.join(PROFILES)} |", f"|---|{'--:|' * len(PROFILES)}", *rows]) + "\n"


def page(text: str) -> str:
    """The page with the numbers that the code has now."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE}: the lines that name {Path(__file__).name} are missing")
    return f"{before}{begin}\n{table()}\n{end}{after}"


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description="Write the numbers of cases into docs/conformance.md.")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when the page is out of date")
    written = PAGE.read_text(encoding="utf-8")
    due = page(written)
    if parser.parse_args().check:
        if written != due:
            print(f"{PAGE} is out of date: python scripts/conformance_counts.py writes it anew", file=sys.stderr)
        return int(written != due)
    PAGE.write_text(due, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
