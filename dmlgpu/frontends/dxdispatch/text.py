"""JSON as DxDispatch reads it: with comments and trailing commas; duplicate keys are remembered, not swallowed."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

from dmlgpu.common.errors import ModelError

# A string that is not closed reaches to the end of the text. The possessive quantifiers never try a shorter match, so
# that each character is looked at once.
_STRING = r'(?P<string>"(?:[^"\\]|\\.)*+(?:"|\\?\Z))'
_SKIPPED = re.compile(
    _STRING
    + r"""
      | (?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<open>/\*)
      | (?P<constant>-?\b(?:NaN|Infinity)\b)""",
    re.DOTALL | re.VERBOSE,
)
_TRAILING_COMMA = re.compile(
    _STRING + r"|(?<![\[{,:\s])(?P<space>\s*)(?P<comma>,)(?=\s*[\]}])",
    re.DOTALL,
)


class JsonObject(dict[str, Any]):
    """A JSON object that knows which keys its text gave more than once."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]):
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs)
        self.duplicates = tuple(key for key, count in counts.items() if count > 1)


def parse_json(raw: bytes, source: str) -> Any:
    """Return the value that a JSON text holds.

    Beyond standard JSON, ``//`` and ``/* */`` comments and a comma before a closing bracket are allowed. Bare ``NaN``
    and ``Infinity`` are not: the format spells them as strings.

    Args:
        raw: the text in UTF-8, with or without a byte order mark.
        source: what to call the text in messages, its file name.

    Raises:
        ModelError: for malformed text, with line and column.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelError(source, f"is not UTF-8 text: byte {error.start} is {raw[error.start]:#04x}") from error
    plain = _TRAILING_COMMA.sub(_blank_comma, _SKIPPED.sub(lambda match: _blank_comment(match, source), text))
    try:
        return json.loads(plain, object_pairs_hook=JsonObject)
    except json.JSONDecodeError as error:
        _fail(source, text, error.pos, f"malformed JSON: {error.msg}")
    except RecursionError as error:
        raise ModelError(source, "malformed JSON: nested too deeply") from error
    except ValueError as error:  # the only other one: Python refuses integers of more digits
        digits = sys.get_int_max_str_digits()
        raise ModelError(source, f"malformed JSON: an integer has more than {digits:,} digits") from error


def _blank_comment(match: re.Match[str], source: str) -> str:
    # Characters are blanked, not removed, so that positions in later messages stay right.
    if match["comment"]:
        return re.sub(r"[^\n]", " ", match[0])
    if match["open"]:
        _fail(source, match.string, match.start(), "malformed JSON: this comment is not closed")
    if match["constant"]:
        spelling = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}.get(match[0], "nan")
        _fail(
            source, match.string, match.start(), f'malformed JSON: {match[0]} is not a JSON value, write "{spelling}"'
        )
    return match[0]


def _blank_comma(match: re.Match[str]) -> str:
    return match[0] if match["string"] else match["space"] + " "


def _fail(source: str, text: str, position: int, reason: str) -> NoReturn:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    raise ModelError(source, f"line {line}, column {column}: {reason}")
