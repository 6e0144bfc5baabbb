"""What a shell offers for the values of options and arguments. Drivers are not asked: a shell must answer at once."""

from __future__ import annotations

from collections.abc import Iterable


def operators(incomplete: str) -> list[str]:
    """Return the operators whose names begin with a text, in capitals where that has them."""
    from dmlgpu import schema  # noqa: PLC0415 - only a shell asks for it

    names = schema.catalog()
    return _beginning(incomplete, names if incomplete.isupper() else map(str.lower, names))


def measured(incomplete: str) -> list[str]:
    """Return the operators and the suites of measurements whose names begin with a text."""
    from dmlgpu.bench.asking import suite_names  # noqa: PLC0415 - likewise

    return [*_beginning(incomplete, suite_names()), *operators(incomplete)]


def suites(incomplete: str) -> list[str]:
    """Return the suites of cases whose names begin with a text, those of other packages included."""
    from dmlgpu.conformance.suites.registry import suite_names  # noqa: PLC0415 - likewise

    return _beginning(incomplete, suite_names())


def passes(incomplete: str) -> list[str]:
    """Return the passes of the graph compiler whose names begin with a text."""
    from dmlgpu.graph.passes import PASSES  # noqa: PLC0415 - likewise

    return _beginning(incomplete, PASSES)


def profiles(incomplete: str) -> list[str]:
    """Return the profiles of the cases of dmlgpu whose names begin with a text."""
    return _beginning(incomplete, ("quick", "standard", "full"))


def schedules(incomplete: str) -> list[str]:
    """Return the families of schedules whose names begin with a text."""
    return _beginning(incomplete, ("cpu", "gpu"))


def adapters(incomplete: str) -> list[str]:
    """Return the adapters that need no driver to be known, whose names begin with a text."""
    return _beginning(incomplete, ("numpy",))


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
