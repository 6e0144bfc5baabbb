"""By which names people look for DirectML's operators, and what these are for: the tables of ``synonyms.toml``."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dmlgpu.catalog.loader import catalog

SOURCES: Mapping[str, str] = MappingProxyType(
    {"onnx": "ONNX", "torch": "PyTorch", "numpy": "NumPy", "webnn": "WebNN", "words": ""}
)
"""Where names come from, and how that is written; everyday words come from nowhere."""


@dataclass(frozen=True)
class Synonyms:
    """An operator's names elsewhere.

    Attributes:
        task: what it is for, one of ``tasks()``.
        onnx: operators of ONNX.
        torch: functions and modules of PyTorch, without their package but for ``nn``.
        numpy: functions of NumPy.
        webnn: methods of WebNN's MLGraphBuilder.
        words: everyday words.
    """

    task: str
    onnx: tuple[str, ...] = ()
    torch: tuple[str, ...] = ()
    numpy: tuple[str, ...] = ()
    webnn: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def of(self, source: str) -> tuple[str, ...]:
        """Return the names of one of SOURCES."""
        names: tuple[str, ...] = getattr(self, source)
        return names


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
    """Return the operator that supersedes an operator in the end: itself where none does."""
    while (newer := catalog()[name].superseded_by) is not None:
        name = newer
    return name


@functools.cache
def tasks() -> tuple[str, ...]:
    """Return the titles of the tasks, in the order in which pages list them."""
    return tuple(_read()["tasks"])


@functools.cache
def _read() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "synonyms.toml").read_text(encoding="utf-8"))
