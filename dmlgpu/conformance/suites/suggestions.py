"""What is offered to somebody whose pattern matches no case."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from dmlgpu.catalog import search

COUNT = 3
"""Names that are offered, at most."""

_LIKENESS = 0.7
"""From which likeness on names are near, as ``difflib`` measures it."""


def hint(pattern: str, names: Sequence[str], suites: Sequence[str]) -> str:
    """Return what a message about a pattern says after a semicolon; empty where nothing is like it.

    Args:
        pattern: it matches none of the names.
        names: of all cases.
        suites: the names of suites.
    """
    word = pattern.strip("*?").lower()
    if word in suites:
        return f"; there is a suite of this name: --suite {word}"
    stem, _, rest = word.partition("-")
    stems = list(dict.fromkeys(name.partition("-")[0] for name in names))
    # An operator's name in another library, then one that is misspelt; the cases of an operator begin with its stem.
    known = [match.operator.stem for match in search.find(stem) if match.fit <= search.SYNONYM]
    alike = [name.lower() for name in search.near(stem)] + _near(stem, stems)
    found = [one for one in dict.fromkeys(known or alike) if one in stems]
    if rest:
        # As much of each name as there is of the pattern, which may be no more than the beginning.
        beginnings = {name[: len(word)]: name for name in names if name.partition("-")[0] in (stem, *found)}
        found = [beginnings[one] for one in _near(word, list(beginnings))] or found
    if not found:
        found = _near(word, suites)
    return f"; similar names: {', '.join(found[:COUNT])}" if found else ""


def _near(word: str, names: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(word, names, COUNT, _LIKENESS) if len(word) <= search.LONGEST else []
