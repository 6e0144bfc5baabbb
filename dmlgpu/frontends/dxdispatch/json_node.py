"""The JSON of models: text with comments, values that know their path, numbers and enumerations."""

from __future__ import annotations

import difflib
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import ModelError, abridged

UINT32_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1

_LONGEST = 64
"""Characters of a name that mistyped ones are compared with."""

_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*\Z")


def nearest(word: str, candidates: Collection[str]) -> str:
    """``"; did you mean 'Axis'?"`` for the candidate most like ``word``, or nothing if none is.

    Long words and what lies beyond the first thousand candidates are omitted: comparing takes quadratic time.
    """
    if len(word) > _LONGEST:
        return ""
    short = (candidate for candidate in candidates if len(candidate) <= _LONGEST)
    by_folded = {candidate.casefold(): candidate for candidate in itertools.islice(short, 1000)}
    match = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return f"; did you mean {by_folded[match[0]]!r}?" if match else ""


def listing(words: Collection[str]) -> str:
    """Quote and list the words for a message: ``'a', 'b' or 'c'``."""
    quoted = [repr(word) for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}" if quoted else "none"


def quoted(text: str) -> str:
    """Quote a string of the model for a message; long strings are truncated."""
    return repr(abridged(text))


def child_path(path: str, key: str) -> str:
    """Return the path of a member: ``$.resources.A``, or ``$.resources["my buffer"]`` for other than identifiers.

    Long keys are truncated.
    """
    key = abridged(key)
    return f"{path}.{key}" if _IDENTIFIER.match(key) else f"{path}[{json.dumps(key)}]"


def _is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode a text: it cannot encode lone surrogates, which JSON can escape."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: Any) -> str:
    """Describe a value in JSON's terms, with the value itself if it is short.

    Python cannot format integers of more than 4,300 digits; such an integer is described by its number of bits.
    """
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return f"an array of {len(value)}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, int | float | str):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    return f"a Python {type(value).__name__}"


@dataclass(frozen=True)
class JsonNode:
    """A value of a model and its path.

    Attributes:
        value: As the JSON parser gave it, or as a caller wrote it in Python.
        path: Dotted, from ``$``.
    """

    value: Any
    path: str = "$"

    def error(self, reason: str) -> ModelError:
        """Return an error about this value, to be raised."""
        return ModelError(self.path, reason)

    def expected(self, what: str) -> ModelError:
        """Return the error that this value is not ``what``, to be raised."""
        return self.error(f"must be {what}, got {shown(self.value)}")

    # -- objects ----------------------------------------------------------------------------------------------------

    def mapping(self) -> Mapping[str, Any]:
        """Return the value as an object; its keys are strings and unique."""
        if not isinstance(self.value, Mapping):
            raise self.expected("an object")
        for key in getattr(self.value, "duplicates", ()):
            raise JsonNode(None, child_path(self.path, key)).error("this key is given more than once")
        for key in self.value:
            if not isinstance(key, str):
                raise self.error(f"keys must be strings, got {shown(key)}")
            if not _is_unicode(key):
                raise self.error(f"keys must be Unicode text, without lone surrogates, got {shown(key)}")
        return self.value

    def allow(self, keys: Collection[str], what: str) -> None:
        """Reject members other than ``keys``; ``what`` names the object in the message."""
        for key in self.mapping():
            if key not in keys:
                suggestion = nearest(key, keys) or f"; known keys are {listing(keys)}"
                raise ModelError(child_path(self.path, key), f"{what} has no key {quoted(key)}{suggestion}")

    def get(self, key: str) -> JsonNode | None:
        """Return the member, or None if it is absent."""
        mapping = self.mapping()
        return JsonNode(mapping[key], child_path(self.path, key)) if key in mapping else None

    def require(self, key: str, what: str) -> JsonNode:
        """Return a required member; ``what`` names the object in the message if it is absent."""
        member = self.get(key)
        if member is None:
            raise ModelError(child_path(self.path, key), f"{what} needs the key {key!r}")
        return member

    def items(self) -> Iterator[tuple[str, JsonNode]]:
        """Return the members in their order."""
        return ((key, JsonNode(value, child_path(self.path, key))) for key, value in self.mapping().items())

    # -- arrays and scalars -----------------------------------------------------------------------------------------

    def elements(self) -> tuple[JsonNode, ...]:
        """Return the elements of an array."""
        return tuple(JsonNode(value, f"{self.path}[{index}]") for index, value in enumerate(self.array()))

    def array(self) -> list[Any] | tuple[Any, ...]:
        """Return the value as an array."""
        if not isinstance(self.value, list | tuple):
            raise self.expected("an array")
        return self.value

    def string(self) -> str:
        """Return the value as a string, of Unicode text without lone surrogates."""
        if not isinstance(self.value, str):
            raise self.expected("a string")
        if not _is_unicode(self.value):
            raise self.expected("Unicode text, without lone surrogates")
        return self.value

    def boolean(self) -> bool:
        """Return the value as true or false."""
        if not isinstance(self.value, bool):
            raise self.expected("true or false")
        return self.value

    def integer(self, low: int = 0, high: int = UINT32_MAX) -> int:
        """Return the value as an integer from ``low`` to ``high``; 1.0 is not one."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not low <= self.value <= high:
            raise self.expected(f"an integer from {low} to {high}")
        return self.value

    def integers(self, low: int = 0, high: int = UINT32_MAX) -> tuple[int, ...]:
        """Return the value as an array of integers from ``low`` to ``high``."""
        return tuple(element.integer(low, high) for element in self.elements())


_SPECIAL = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}

E = TypeVar("E", bound=IntEnum)
F = TypeVar("F", bound=IntFlag)


def integer_range(data_type: DataType) -> tuple[int, int]:
    """Return smallest and largest value of an integer type."""
    if data_type.is_signed:
        return -(1 << data_type.bits - 1), (1 << data_type.bits - 1) - 1
    return 0, (1 << data_type.bits) - 1


def parse_float(node: JsonNode) -> float:
    """Return a number, or "nan", "inf" or "-inf" in any case."""
    value = node.value
    if isinstance(value, str) and value.lower() in _SPECIAL:
        return _SPECIAL[value.lower()]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise node.expected("a number or one of 'nan', 'inf', '-inf'")
    try:
        return float(value)
    except OverflowError as error:
        raise node.expected("a number within the range of a double") from error


def parse_scalar(node: JsonNode, data_type: DataType) -> int | float:
    """One element: an integer within the type's range, or for floating types anything ``parse_float`` takes."""
    return parse_float(node) if data_type.is_float else node.integer(*integer_range(data_type))


def parse_array(node: JsonNode, data_type: DataType) -> NDArray[Any]:
    """Return a one-dimensional array of elements; floats are rounded once, to infinity when too large."""
    values = node.array()
    plain = {int, float} if data_type.is_float else {int}
    if set(map(type, values)) <= plain:
        try:
            return _convert(values, data_type)
        except OverflowError:
            pass  # Some element is out of range: parse one by one to name it.
    return _convert([parse_scalar(element, data_type) for element in node.elements()], data_type)


def _convert(values: Any, data_type: DataType) -> NDArray[Any]:
    if data_type.is_float:
        with np.errstate(over="ignore"):
            return np.array(values, np.float64).astype(data_type.numpy)
    array = np.array(values, data_type.numpy)
    if data_type.bits == 4 and array.size:
        low, high = integer_range(data_type)
        if array.min() < low or array.max() > high:
            raise OverflowError(f"outside {low} to {high}")
    return array


def parse_enum(node: JsonNode, members: type[E], prefix: str) -> E:
    """Return an enumeration's value by its full name, ``prefix`` + name, or by its name alone.

    Args:
        node: A string.
        members: The enumeration.
        prefix: Prefix of every name in DirectML, ``"DML_REDUCE_FUNCTION_"``.
    """
    return members[_member_name(node, list(members.__members__), prefix)]


def parse_flags(node: JsonNode, members: type[F], prefix: str) -> F:
    """One flag by name, or an array of names that are combined."""
    names = list(members.__members__)
    if isinstance(node.value, str):
        return members[_member_name(node, names, prefix)]
    if not isinstance(node.value, list | tuple):
        raise node.expected("a string or an array of strings")
    return members(sum({int(members[_member_name(element, names, prefix)]) for element in node.elements()}))


def _member_name(node: JsonNode, names: list[str], prefix: str) -> str:
    name = node.string().removeprefix(prefix)
    if name not in names:
        suggestion = nearest(name, names) or f"; known are {listing(names)}"
        raise node.error(f"{quoted(node.value)} is not a value of {prefix.removesuffix('_')}{suggestion}")
    return name


def parse_data_type(node: JsonNode) -> DataType:
    """Return a tensor data type, ``FLOAT32`` or ``DML_TENSOR_DATA_TYPE_FLOAT32``."""
    return parse_enum(node, DataType, "DML_TENSOR_DATA_TYPE_")


def optional(node: JsonNode | None, parse: Callable[[JsonNode], Any], default: Any = None) -> Any:
    """Return ``parse(node)``, or ``default`` if the member is absent."""
    return default if node is None else parse(node)


# A string that is not closed reaches to the end of the text. The possessive quantifiers never try a shorter match, so
# that each character is looked at once.
_STRING_PATTERN = r'(?P<string>"(?:[^"\\]|\\.)*+(?:"|\\?\Z))'
_SKIPPED = re.compile(
    _STRING_PATTERN
    + r"""
      | (?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<open>/\*)
      | (?P<constant>-?\b(?:NaN|Infinity)\b)""",
    re.DOTALL | re.VERBOSE,
)
_TRAILING_COMMA = re.compile(
    _STRING_PATTERN + r"|(?<![\[{,:\s])(?P<space>\s*)(?P<comma>,)(?=\s*[\]}])",
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
        raw: The text in UTF-8, with or without a byte order mark.
        source: Name of the text in messages, its file name.
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
    except ValueError as error:  # Python rejects integers of too many digits; no other ValueError is possible
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
