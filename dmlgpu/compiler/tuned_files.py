"""Files of tuned choices, one per adapter and driver in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.common.folders import cache_folder
from dmlgpu.compiler.target import UNTUNED, AdapterInfo, Tuned

FORMAT = 1
"""Format version of the files and their questions and answers; other versions are rejected."""

VARIABLE, OFF = "DMLGPU_TUNED", "off"
"""Environment variable with another folder, and its value that disables reading files."""

MAX_BYTES = 4 << 20


class TunedFileWarning(UserWarning):
    """Warning that a file of tuned choices is ignored."""


def tuned_folder() -> Path:
    """Return the folder of the files. Raises:
    FileNotFoundError: the variable names none, and there is no folder of caches.
    """
    folder = os.environ.get(VARIABLE, "")
    return Path(folder) if folder and folder != OFF else cache_folder() / "tuned"


def identity(info: AdapterInfo) -> dict[str, str]:
    """Return the adapter and driver of tuned choices."""
    return {"backend": info.backend, "vendor": info.vendor, "device": info.name, "driver": info.driver}


def tuned_file(info: AdapterInfo, folder: Path | None = None) -> Path:
    """Return the path of an adapter's file. Raises FileNotFoundError as ``tuned_folder`` does."""
    digest = hashlib.sha256(json.dumps(identity(info), sort_keys=True).encode()).hexdigest()[:12]
    name = re.sub(r"[^a-z0-9]+", "-", f"{info.backend} {info.name}".lower()).strip("-")[:60]
    return (folder or tuned_folder()) / f"{name}-{digest}.json"


@dataclass(frozen=True)
class TunedFile:
    """Content of a file.

    Attributes:
        adapter: The adapter, as returned by ``identity``.
        answers: Choices by question.
        ratios: Time of each choice, divided by that of the built-in choice.
        version: Version of dmlgpu that measured them.
        ceilings: Measured rates by name (``cards.GpuCard.measured``); empty if they were not measured.
    """

    adapter: Mapping[str, str]
    answers: Mapping[str, str]
    ratios: Mapping[str, float]
    version: str
    ceilings: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Text of the file."""
        choices = {
            question: {"choice": answer, **({"ratio": self.ratios[question]} if question in self.ratios else {})}
            for question, answer in sorted(self.answers.items())
        }
        measured = {"ceilings": dict(self.ceilings)} if self.ceilings else {}
        return {"format": FORMAT, "dmlgpu": self.version, "adapter": dict(self.adapter), **measured, "choices": choices}


def read_tuned(path: Path) -> TunedFile:
    """Return the content of a file.

    Raises:
        InvalidArgument: it is no file of tuned choices, or of another format.
        OSError: it cannot be read.
    """
    if path.stat().st_size > MAX_BYTES:
        raise InvalidArgument(f"{path} is no file of tuned choices: it has more than {MAX_BYTES:,} bytes")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        written = record["format"]
        if written != FORMAT:
            raise InvalidArgument(f"{path} has format {written!r} of tuned choices, which must be {FORMAT}")
        adapter, choices = _texts(record["adapter"]), record["choices"]
        answers = _texts({question: choice["choice"] for question, choice in choices.items()})
        ratios = {question: float(choice["ratio"]) for question, choice in choices.items() if "ratio" in choice}
        ceilings = {str(name): float(rate) for name, rate in record.get("ceilings", {}).items()}
        if not all(0 < rate < math.inf for rate in ceilings.values()):
            raise ValueError("ceilings must be positive numbers")
        return TunedFile(adapter, answers, ratios, str(record["dmlgpu"]), ceilings)
    except InvalidArgument:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidArgument(f"{path} is no file of tuned choices ({type(error).__name__}: {error})") from None


def _texts(record: Mapping[str, Any]) -> dict[str, str]:
    if not all(isinstance(text, str) for pair in record.items() for text in pair):
        raise ValueError("names and values must be strings")
    return dict(record)


def check_adapter(path: Path, file: TunedFile, info: AdapterInfo) -> None:
    """Raise InvalidArgument for choices of another adapter or driver."""
    expected = identity(info)
    for name, value in expected.items():
        if file.adapter.get(name) != value:
            raise InvalidArgument(
                f"{path} has choices for the {name} {file.adapter.get(name)!r}, which must be {value!r}"
            )


def tuned_for(info: AdapterInfo, folder: Path | None = None) -> Tuned:
    """Return the saved choices of an adapter; empty if there are none or no file can be read.

    Warns if the file is invalid or belongs to another adapter.
    """
    if os.environ.get(VARIABLE) == OFF and folder is None:
        return UNTUNED
    try:
        path = tuned_file(info, folder)
        file = read_tuned(path)
        check_adapter(path, file, info)
    except FileNotFoundError:
        return UNTUNED
    except (InvalidArgument, OSError) as error:
        warnings.warn(f"{error}; it is ignored", TunedFileWarning, stacklevel=2)
        return UNTUNED
    return Tuned.of(file.answers, file.ceilings)
