"""Search for operators by name, synonym, beginning, part or task; names in other libraries (``synonyms.toml``)."""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dmlgpu.catalog.loader import catalog
from dmlgpu.catalog.model import OperatorSchema

SOURCES: Mapping[str, str] = MappingProxyType(
    {"onnx": "ONNX", "torch": "PyTorch", "numpy": "NumPy", "webnn": "WebNN", "words": ""}
)
"""Libraries that names come from, with their display names; common words have none."""


@dataclass(frozen=True)
class Synonyms:
    """Names of an operator in other libraries.

    Attributes:
        task: Its purpose, one of ``tasks()``.
        onnx: ONNX operators.
        torch: PyTorch functions and modules, without their package except ``nn``.
        numpy: NumPy functions.
        webnn: Methods of WebNN's MLGraphBuilder.
        words: Common words.
    """

    task: str
    onnx: tuple[str, ...] = ()
    torch: tuple[str, ...] = ()
    numpy: tuple[str, ...] = ()
    webnn: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def of(self, source: str) -> tuple[str, ...]:
        """Return the names of one of SOURCES."""
        return getattr(self, source)


@functools.cache
def synonyms() -> Mapping[str, Synonyms]:
    """Return the names that each operator has elsewhere, by DirectML's. Superseded ones have those of the newest."""
    raw = {name: entry for name, entry in _read().items() if name != "tasks"}
    own = {
        name: Synonyms(entry["task"], **{source: tuple(entry.get(source, ())) for source in SOURCES})
        for name, entry in raw.items()
    }
    return MappingProxyType({name: own[newest(name)] for name in catalog()})


def newest(name: str) -> str:
    """Return the newest operator that supersedes an operator, or the operator itself."""
    while (newer := catalog()[name].superseded_by) is not None:
        name = newer
    return name


def tasks() -> tuple[str, ...]:
    """Return the titles of the tasks, in the order in which pages list them."""
    return tuple(_read()["tasks"])


@functools.cache
def _read() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "synonyms.toml").read_text(encoding="utf-8"))


LONGEST = 80
"""Characters of a word that is searched for; longer ones resemble no name."""

_FAMILIES = ("ELEMENT_WISE_", "ACTIVATION_")
"""Prefixes of names that users omit."""

_NEAR = 0.75
"""Minimum similarity of names that count as similar."""
_NEARLY_AS_NEAR = 0.1
"""Maximum distance in similarity between the most similar name and others that are suggested."""

NAME, SYNONYM, BEGINNING, PART, SUMMARY = range(5)
"""Quality of a match: the name, a synonym, a prefix or part of these, or a word of the summary."""


@dataclass(frozen=True)
class Match:
    """A search result.

    Attributes:
        operator: The operator.
        fit: Quality: NAME, SYNONYM, BEGINNING, PART or SUMMARY.
        names: Matching names in other libraries, ``PyTorch layer_norm``.
    """

    operator: OperatorSchema
    fit: int
    names: tuple[str, ...] = ()


def find(word: str) -> tuple[Match, ...]:
    """Find operators by a word, without regard to case, underscores and the modules before the last dot.

    Returns:
        The best first: by how well the word fits, by how many libraries call the operator so, newest operators before
        those that they supersede, then in the catalog's order. Nothing if nothing fits.
    """
    key = _key(word)
    if not key or len(word) > LONGEST:
        return ()
    matches = [match for entry in catalog().values() if (match := _match(entry, key)) is not None]
    # Sorting is stable: ties stay in the catalog's order.
    return tuple(
        sorted(matches, key=lambda match: (match.fit, -len(match.names), match.operator.superseded_by is not None))
    )


def near(word: str, count: int = 3) -> tuple[str, ...]:
    """Return the operators whose names, here or in other libraries, are most similar to a word, best first."""
    if len(word) > LONGEST:
        return ()
    likeness: dict[str, float] = {}
    matcher = difflib.SequenceMatcher(b=_key(word))
    for name in catalog():
        for key in {*_own_keys(name), *_keys(name)}:
            matcher.set_seq1(key)
            if matcher.real_quick_ratio() >= _NEAR and matcher.quick_ratio() >= _NEAR:
                likeness[name] = max(likeness.get(name, 0.0), matcher.ratio())
    threshold = max(_NEAR, max(likeness.values(), default=0.0) - _NEARLY_AS_NEAR)
    ordered = sorted(likeness, key=lambda name: (-likeness[name], catalog()[name].superseded_by is not None))
    return tuple(name for name in ordered if likeness[name] >= threshold)[:count]


def hint(word: str) -> str:
    """Return a suggestion for a word that is not the name of an operator, after a semicolon; empty if nothing is
    similar."""
    matches = [match.operator.name for match in find(word) if match.fit <= SYNONYM]
    current = [name for name in matches if catalog()[name].superseded_by is None]
    if current:
        return f"; its name here is {' or '.join(current)}"
    similar = near(word)
    return f"; similar names: {', '.join(similar)}" if similar else ""


def _match(entry: OperatorSchema, sought: str) -> Match | None:
    """Return the quality with which a word in the form of ``_key`` matches an operator."""
    own, keys = _own_keys(entry.name), _keys(entry.name)
    if sought in own:
        return Match(entry, NAME, tuple(keys.get(sought, ())))
    if sought in keys:
        return Match(entry, SYNONYM, keys[sought])
    every = (*own, *keys)
    fits = (
        (BEGINNING, lambda key: key.startswith(sought)),
        (PART, lambda key: len(sought) > 2 and sought in key),
    )
    for fit, holds in fits:
        if any(map(holds, every)):
            return Match(entry, fit, tuple(name for key, names in keys.items() if holds(key) for name in names))
    text = f"{entry.summary} {synonyms()[entry.name].task}"
    words = map(_key, re.findall(r"\w+", text))
    return Match(entry, SUMMARY) if len(sought) > 2 and any(word.startswith(sought) for word in words) else None


@functools.cache  # bounded by the catalog
def _own_keys(operator: str) -> tuple[str, ...]:
    """Return the names of an operator, also without its family and its version, in the form of ``_key``."""
    return tuple(
        dict.fromkeys(_key(form) for name in (operator, *catalog()[operator].aliases) for form in _forms(name))
    )


def _forms(name: str) -> Iterator[str]:
    yield name
    plain = re.sub(r"\d$", "", name)
    yield plain
    for family in _FAMILIES:
        if name.startswith(family):
            yield name.removeprefix(family)
            yield plain.removeprefix(family)


@functools.cache  # bounded by the catalog
def _keys(name: str) -> Mapping[str, tuple[str, ...]]:
    """Return an operator's names in other libraries as they are written, by the form of ``_key``."""
    keys: dict[str, tuple[str, ...]] = {}
    for source, title in SOURCES.items():
        for synonym in synonyms()[name].of(source):
            key = _key(synonym)
            keys[key] = (*keys.get(key, ()), f"{title} {synonym}".strip())
    return keys


def _key(word: str) -> str:
    """Return the form of a word that is compared: ``torch.nn.functional.layer_norm`` as ``layernorm``."""
    return re.sub(r"[\W_]", "", word.strip().rpartition(".")[2].lower())
