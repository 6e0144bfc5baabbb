"""A checker of Amber scripts: the part of the language that bug reports use, as google/amber's docs define it.

Every line must be a known command; names are declared before they are used; files exist and have the declared size;
ranges lie in their buffers. Numbers follow amber's tokenizer: only those with a point are floats.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FORMATS = {
    **{"int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q"},
    **{"uint64": "Q", "float16": "e", "float": "f", "double": "d"},
}
NAME, INTEGER, NUMBER = r"[A-Za-z_]\w*", r"\d+", r"-?\d+(?:\.\d*(?:e[+-]?\d+)?)?|NaN"
RELATIVE = 1e-6 / 100
"""Tolerance of EQ on floats."""


@dataclass
class Script:
    """A checked script."""

    shaders: dict[str, str] = field(default_factory=dict)
    buffers: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    pipelines: dict[str, dict[str, list[tuple[str, str, int, int, int]]]] = field(default_factory=dict)
    runs: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    expectations: list[tuple[str, int, float | None, float]] = field(default_factory=list)
    features: list[str] = field(default_factory=list)

    def failures(self, contents: Mapping[str, bytes]) -> list[str]:
        """The expectations that contents of buffers do not meet, as amber's verifier decides."""
        failures = []
        for name, offset, tolerance, due in self.expectations:
            code = FORMATS[self.buffers[name][0]]
            (got,) = struct.unpack_from(f"<{code}", contents[name], offset)
            bound = RELATIVE * abs(due) if tolerance is None and code in "efd" else tolerance or 0.0
            is_nan = [math.isnan(number) for number in (got, due)]
            if is_nan[0] != is_nan[1] if any(is_nan) else abs(got - due) > bound:
                failures.append(f"{name}[{offset}]: {got} == {due}")
        return failures


def check(path: Path) -> Script:
    """The content of a script; AssertionError with the line if it is wrong."""
    lines = path.read_text(encoding="ascii").split("\n")
    assert lines[0] == "#!amber"
    script, pipeline = Script(), ""
    for line in lines[1:]:
        text = line.partition("#")[0].strip()
        if not text:
            continue
        assert len(text) == len(text.encode()) and "\t" not in text, line
        if pipeline:
            pipeline = _in_pipeline(script, pipeline, text)
            continue
        for pattern, command in COMMANDS:
            if match := re.fullmatch(pattern, text):
                pipeline = command(script, match, path.parent) or ""
                break
        else:
            raise AssertionError(line)
    assert not pipeline, "a pipeline has no END"
    assert script.runs and script.expectations
    return script


def _feature(script: Script, match: re.Match[str], folder: Path) -> None:
    assert not script.shaders, "features come first"
    script.features.append(match[1])


def _shader(script: Script, match: re.Match[str], folder: Path) -> None:
    assert match[1] not in script.shaders
    assert struct.unpack_from("<I", (folder / match[2]).read_bytes())[0] == 0x07230203
    script.shaders[match[1]] = match[2]


def _buffer(script: Script, match: re.Match[str], folder: Path) -> None:
    name, kind, count, file = match.groups()
    assert name not in script.buffers and kind in FORMATS
    width = struct.calcsize(FORMATS[kind])
    assert int(count) == (folder / file).stat().st_size // width > 0
    script.buffers[name] = kind, int(count) * width, file


def _pipeline(script: Script, match: re.Match[str], folder: Path) -> str:
    assert match[1] not in script.pipelines
    script.pipelines[match[1]] = {}
    return match[1]


def _in_pipeline(script: Script, pipeline: str, text: str) -> str:
    stages = script.pipelines[pipeline]
    if text == "END":
        assert len(stages) == 1
        (bound,) = stages.values()
        assert [binding for _, _, binding, _, _ in bound] == list(range(len(bound)))
        return ""
    if match := re.fullmatch(rf"ATTACH ({NAME})", text):
        assert match[1] in script.shaders and not stages
        stages[match[1]] = []
        return pipeline
    place = rf"DESCRIPTOR_SET 0 BINDING ({INTEGER})"
    more = rf"(?: DESCRIPTOR_OFFSET ({INTEGER}) DESCRIPTOR_RANGE ({INTEGER}))?"
    match = re.fullmatch(rf"BIND BUFFER ({NAME}) AS (storage|uniform) {place}{more}", text)
    assert match, text
    size = script.buffers[match[1]][1]
    offset, length = int(match[4] or 0), int(match[5] or size)
    assert offset % 256 == 0 and length > 0 and offset + length <= size, text
    next(iter(stages.values())).append((match[1], match[2], int(match[3]), offset, length))
    return pipeline


def _run(script: Script, match: re.Match[str], folder: Path) -> None:
    assert match[1] in script.pipelines
    script.runs.append((match[1], tuple(map(int, match.groups()[1:]))))


def _expect(script: Script, match: re.Match[str], folder: Path) -> None:
    name, offset, tolerance, value = match.groups()
    kind, size, _ = script.buffers[name]
    width = struct.calcsize(FORMATS[kind])
    assert int(offset) % width == 0 and int(offset) + width <= size, match[0]
    assert kind in ("float16", "float", "double") or "." not in value, match[0]
    assert script.runs
    script.expectations.append((name, int(offset), None if tolerance is None else float(tolerance), float(value)))


COMMANDS = (
    (r"DEVICE_FEATURE ([\w.]+)", _feature),
    (rf"SHADER compute ({NAME}) SPIRV-BIN FILE (\S+)", _shader),
    (rf"BUFFER ({NAME}) DATA_TYPE (\w+) SIZE ({INTEGER}) FILE BINARY (\S+)", _buffer),
    (rf"PIPELINE compute ({NAME})", _pipeline),
    (rf"RUN ({NAME}) ({INTEGER}) ({INTEGER}) ({INTEGER})", _run),
    (rf"EXPECT ({NAME}) IDX ({INTEGER})(?: TOLERANCE ({NUMBER}))? EQ ({NUMBER})", _expect),
)
