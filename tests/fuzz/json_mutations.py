"""Changes to JSON: of values, keys and structure, and of the text that spells them."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Path: TypeAlias = tuple[Any, ...]
"""Keys and indices from the root."""

MARK = "<b onload=fuzz()>"
"""Text that no report may hold unescaped."""

STRINGS = (
    *("", " ", "x", "NaN", "nan", "inf", "-Infinity", "FLOAT32", "INT4", "UINT64", "OWNED_BY_DML", "BUFFER", "null"),
    *(
        "ELEMENT_WISE_ADD",
        "DML_OPERATOR_GEMM",
        "\ud800",
        "\0",
        "\n\r\x1b[31m",
        "é̂\u202e",
        "x" * 20_000,
        MARK,
        "²",
        "1e999",
    ),
    *("..", "../x", "/", "a/b", "input.bin", "weights.npy", "model.json", ".", "CON", "%s%n", "{0}", "$.a[1]"),
)
NUMBERS = (
    *(0, -0.0, 1, -1, 2, 1.5, 3, 255, 256, 65536, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, -(2**63), 10**30),
    *(1e308, 5e-324, float("nan"), float("inf")),
)


def _deep(levels: int) -> Any:
    nest: Any = []
    for _ in range(levels):
        nest = [nest]
    return nest


def leaf(rng: random.Random) -> Any:
    """Any JSON value."""
    choice = rng.randrange(8)
    if choice < 3:
        return rng.choice(NUMBERS)
    if choice < 6:
        return rng.choice(STRINGS)
    return rng.choice(
        (None, True, False, [], {}, [[]], [None] * 50, {"": 0}, _deep(60), {"name": "a", "type": "b"}, [1, "a", None])
    )


def paths(tree: Any, at: Path = ()) -> list[Path]:
    """The places of all values below the root."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    all_paths = []
    for key, value in pairs:
        all_paths += [(*at, key), *paths(value, (*at, key))]
    return all_paths


def _parent(tree: Any, path: Path) -> Any:
    for key in path[:-1]:
        tree = tree[key]
    return tree


def mutated(original: Any, rng: random.Random, others: Sequence[Any] = ()) -> Any:
    """A changed copy of a JSON value.

    Args:
        original: an object or an array.
        rng: draws.
        others: values of the same kind, parts of which may be put in.
    """
    tree = copy.deepcopy(original)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = paths(tree)
        if not places:
            return leaf(rng)
        path = rng.choice(places)
        parent = _parent(tree, path)
        rng.choice(_CHANGES)(parent, path[-1], rng)
        if rng.random() < 0.1:
            source = rng.choice([tree, *others])
            if candidates := paths(source):
                chosen = rng.choice(candidates)
                part = copy.deepcopy(_parent(source, chosen)[chosen[-1]])
                places = paths(tree)
                if places:
                    path = rng.choice(places)
                    _parent(tree, path)[path[-1]] = part
    return tree


def _replace(parent: Any, key: Any, rng: random.Random) -> None:
    parent[key] = leaf(rng)


def _nudge(parent: Any, key: Any, rng: random.Random) -> None:
    value = parent[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        parent[key] = leaf(rng)
    else:
        parent[key] = rng.choice(
            (value + 1, value - 1, -value, 2 * value, value + 0.5, str(value), rng.choice(NUMBERS))
        )


def _delete(parent: Any, key: Any, rng: random.Random) -> None:
    del parent[key]


def _repeat(parent: Any, key: Any, rng: random.Random) -> None:
    if isinstance(parent, list):
        parent.insert(key, copy.deepcopy(parent[key]))
    else:
        parent[rng.choice((f"{key}2", key.upper(), key.lower(), rng.choice(STRINGS)))] = copy.deepcopy(parent[key])


def _rename(parent: Any, key: Any, rng: random.Random) -> None:
    if isinstance(parent, dict):
        parent[rng.choice((key[:-1], key + "s", key.swapcase(), rng.choice(STRINGS)))] = parent.pop(key)


def _wrap(parent: Any, key: Any, rng: random.Random) -> None:
    parent[key] = rng.choice(([parent[key]], {"Desc": parent[key]}, {"value": parent[key]}, [parent[key]] * 3))


def _spoil_text(parent: Any, key: Any, rng: random.Random) -> None:
    value = parent[key]
    if isinstance(value, str) and value:
        at = rng.randrange(len(value))
        parent[key] = value[:at] + rng.choice(("", "x", "\ud800", MARK, value)) + value[at + rng.randrange(2) :]
    else:
        _replace(parent, key, rng)


_CHANGES: tuple[Callable[[Any, Any, random.Random], None], ...] = (
    *(_replace, _replace, _nudge, _nudge, _nudge, _delete, _repeat, _rename, _wrap, _spoil_text),
)


def spelled(tree: Any, rng: random.Random) -> bytes:
    """The text of a JSON value; seldom damaged."""
    text = json.dumps(tree).encode("utf-8", "surrogatepass")
    return damaged(text, rng) if rng.random() < 0.15 else text


def damaged(text: bytes, rng: random.Random) -> bytes:
    """A text with bytes changed, cut off, put in."""
    at = rng.randrange(len(text) + 1)
    head, tail = text[:at], text[at:]
    signs = (b",", b"}", b"]", b'"', b"//", b"/*", b"\\", b"\xff", b"\0", b"NaN")
    openings = (b"[", b'{"a":', b'"\\u0041', b'"a":0,')
    changes: tuple[Callable[[], bytes], ...] = (
        lambda: head,
        lambda: head + bytes([rng.randrange(256)]) + tail[1:],
        lambda: head + rng.choice(signs) + tail,
        lambda: rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\n\n", b"{", b"")) + text,
        lambda: text.replace(b"1", b"1" * rng.choice((2, 30, 5000)), 1),
        lambda: head + rng.choice(openings) * rng.choice((10, 5000)) + tail,
        lambda: tail + head,
        lambda: text.replace(b"e", b"\\u0065", 3),
        lambda: b"",
    )
    return rng.choice(changes)()
