"""A JSON value that knows where it stands, so that every complaint names its path."""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dmlgpu.common.errors import ModelError, abridged

UINT32_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1

_LONGEST = 64
"""Characters of a name that mistyped ones are compared with."""

_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*\Z")


def nearest(word: str, candidates: Collection[str]) -> str:
    """``"; did you mean 'Axis'?"`` for the candidate most like ``word``, or nothing where none is.

    Long words and what lies beyond the first thousand candidates are left out: comparing takes quadratic time.
    """
    if len(word) > _LONGEST:
        return ""
    short = (candidate for candidate in candidates if len(candidate) <= _LONGEST)
    by_folded = {candidate.casefold(): candidate for candidate in itertools.islice(short, 1000)}
    match = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return f"; did you mean {by_folded[match[0]]!r}?" if match else ""


def listing(words: Collection[str]) -> str:
    """Return the words quoted, as a list to read: ``'a', 'b' or 'c'``."""
    quoted = [repr(word) for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}" if quoted else "none"


def quoted(text: str) -> str:
    """Return a text of the model's as messages quote it; the beginning of a long one."""
    return repr(abridged(text))


def child_path(path: str, key: str) -> str:
    """Return the path of a member: ``$.resources.A``, or ``$.resources["my buffer"]`` for other than identifiers.

    Of a long key it has the beginning.
    """
    key = abridged(key)
    return f"{path}.{key}" if _IDENTIFIER.match(key) else f"{path}[{json.dumps(key)}]"


def _is_unicode(text: str) -> bool:
    """Whether UTF-8 can say a text: lone surrogates, which JSON can escape, are none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: Any) -> str:
    """Return what a value is in JSON's words, with the value itself where it is short.

    Python refuses to write integers of more than 4,300 digits: long ones come as their number of bits.
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
class Node:
    """A value of a model and its path.

    Attributes:
        value: as the JSON parser gave it, or as a caller wrote it in Python.
        path: dotted, from ``$``.
    """

    value: Any
    path: str = "$"

    def error(self, reason: str) -> ModelError:
        """Return a complaint about this value, to be raised."""
        return ModelError(self.path, reason)

    def expected(self, what: str) -> ModelError:
        """Return the complaint that this value is not ``what``."""
        return self.error(f"must be {what}, got {shown(self.value)}")

    # -- objects ----------------------------------------------------------------------------------------------------

    def mapping(self) -> Mapping[str, Any]:
        """Return the value as an object; its keys are strings and unique."""
        if not isinstance(self.value, Mapping):
            raise self.expected("an object")
        for key in getattr(self.value, "duplicates", ()):
            raise Node(None, child_path(self.path, key)).error("this key is given more than once")
        for key in self.value:
            if not isinstance(key, str):
                raise self.error(f"keys must be strings, got {shown(key)}")
            if not _is_unicode(key):
                raise self.error(f"keys must be Unicode text, without lone surrogates, got {shown(key)}")
        return self.value

    def allow(self, keys: Collection[str], what: str) -> None:
        """Refuse members other than ``keys``; ``what`` names the object in the message."""
        for key in self.mapping():
            if key not in keys:
                suggestion = nearest(key, keys) or f"; known keys are {listing(keys)}"
                raise ModelError(child_path(self.path, key), f"{what} has no key {quoted(key)}{suggestion}")

    def get(self, key: str) -> Node | None:
        """Return the member, or None where it is absent."""
        mapping = self.mapping()
        return Node(mapping[key], child_path(self.path, key)) if key in mapping else None

    def require(self, key: str, what: str) -> Node:
        """Return the member; its absence is refused, ``what`` names the object in the message."""
        member = self.get(key)
        if member is None:
            raise ModelError(child_path(self.path, key), f"{what} needs the key {key!r}")
        return member

    def items(self) -> Iterator[tuple[str, Node]]:
        """Return the members in their order."""
        return ((key, Node(value, child_path(self.path, key))) for key, value in self.mapping().items())

    # -- arrays and scalars -----------------------------------------------------------------------------------------

    def elements(self) -> tuple[Node, ...]:
        """Return the elements of an array."""
        return tuple(Node(value, f"{self.path}[{index}]") for index, value in enumerate(self.array()))

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
