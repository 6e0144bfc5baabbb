"""The list of models: their packages and inputs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

TOLERANCE = 1e-3
"""Largest allowed difference, relative to the largest magnitude of an output."""

_KEYS = {"package", "version", "member", "sha256", "what", "inputs"}
_MORE = {"sizes", "steps", "tolerance", "differs", "refused", "by_node", "float_states"}


@dataclass(frozen=True)
class Entry:
    """A model of the list.

    Attributes:
        package, version: of the package that has it.
        member: its path in the package's wheel.
        sha256: of its bytes.
        what: what it is, in words.
        inputs: how each is made.
        sizes: what words in shapes stand for, one mapping per run.
        steps: how often it runs per mapping; states go from one to the next.
        tolerance: greatest difference, as a share of the output's largest magnitude.
        differs: why the tolerance is not the usual one.
        by_node: whether each node is compared by itself, too, at the first sizes and the usual tolerance.
        float_states: whether onnxruntime is given LSTM with the same weights in place of DynamicQuantizeLSTM.
        refused: a part of the message with which it is refused; empty where it must run.
    """

    package: str
    version: str
    member: str
    sha256: str
    what: str
    inputs: Mapping[str, Mapping[str, Any]]
    sizes: Sequence[Mapping[str, int]] = ({},)
    steps: int = 1
    tolerance: float = TOLERANCE
    differs: str = ""
    by_node: bool = False
    float_states: bool = False
    refused: str = ""

    @property
    def name(self) -> str:
        """Package and file, as patterns see it."""
        return f"{self.package}/{PurePosixPath(self.member).name}"


def read(path: Path) -> list[Entry]:
    """Return the models of a list.

    Raises:
        ValueError: an entry lacks something, has what no entry has, or names a file outside its package.
    """
    tables = tomllib.loads(path.read_text(encoding="utf-8")).get("model", [])
    return [_entry(index, table) for index, table in enumerate(tables)]


def _entry(index: int, table: Mapping[str, Any]) -> Entry:
    what = f"model {index} ({table.get('member', '')})"
    missing, unknown = _KEYS - table.keys(), table.keys() - _KEYS - _MORE
    if missing or unknown:
        raise ValueError(f"{what}: must have {sorted(_KEYS)} and may have {sorted(_MORE)}, got {sorted(table)}")
    member = PurePosixPath(table["member"])
    if member.is_absolute() or ".." in member.parts or member.suffix != ".onnx":
        raise ValueError(f"{what}: member must be the path of an .onnx file in the package, got {table['member']!r}")
    if ("tolerance" in table) != ("differs" in table):
        raise ValueError(f"{what}: 'tolerance' and its reason, 'differs', must be given together")
    return Entry(**table)


def chosen(entries: Sequence[Entry], pattern: str) -> list[Entry]:
    """Return the models whose names, or what they are, have a pattern."""
    return [entry for entry in entries if re.search(pattern, f"{entry.name} {entry.member} {entry.what}")]
