"""Functions of linked WGSL, as Python functions: as much of the language as the linker writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

WORDS_OF = {"u32": 1, "atomic<u32>": 1, "u64": 2}


class Unsigned(int):
    """An integer of some bits; results that need more raise an exception."""

    bits = 32

    def _checked(self, value: int) -> Unsigned:
        assert 0 <= value < 1 << self.bits, f"{value} exceeds {self.bits} bits"
        return type(self)(value)

    def __add__(self, other: int) -> Unsigned:
        return self._checked(int(self) + int(other))

    def __sub__(self, other: int) -> Unsigned:
        return self._checked(int(self) - int(other))

    def __mul__(self, other: int) -> Unsigned:
        return self._checked(int(self) * int(other))

    def __lshift__(self, other: int) -> Unsigned:
        return self._checked(int(self) << int(other))

    def __rshift__(self, other: int) -> Unsigned:
        return type(self)(int(self) >> int(other))

    def __and__(self, other: int) -> Unsigned:
        return type(self)(int(self) & int(other))

    def __or__(self, other: int) -> Unsigned:
        return type(self)(int(self) | int(other))

    def __floordiv__(self, other: int) -> Unsigned:
        return type(self)(int(self) // int(other))

    def __mod__(self, other: int) -> Unsigned:
        return type(self)(int(self) % int(other))


class U64(Unsigned):
    """A 64-bit integer."""

    bits = 64


class Vector(tuple[int, ...]):
    """A vector, with its components by name."""

    def __getattr__(self, names: str) -> Any:
        components = [self["xyzw".index(name)] for name in names]
        return components[0] if len(components) == 1 else Vector(components)


def element_of(block: str) -> tuple[str, int]:
    """Return the type of a block's components, and their number."""
    match = re.fullmatch(r"vec(\d)<(\w+)>", block)
    return (match[2], int(match[1])) if match else (block, 1)


def words_of(block: str) -> int:
    """Return the number of words of a block."""
    element, count = element_of(block)
    return WORDS_OF[element] * count


def from_words(block: str, words: list[int]) -> Any:
    """Return a block of some words, which must be as many as it has."""
    element, count = element_of(block)
    assert len(words) == words_of(block)
    components = [Unsigned(word) for word in words]
    if WORDS_OF[element] == 2:
        components = [U64(low | high << 32) for low, high in zip(words[::2], words[1::2], strict=True)]
    return Vector(components) if count > 1 else components[0]


def to_words(block: str, value: Any) -> list[int]:
    """Return the words of a block; its value must have its type."""
    element, count = element_of(block)
    components = list(value) if count > 1 else [value]
    assert len(components) == count
    kind = U64 if WORDS_OF[element] == 2 else Unsigned
    assert all(type(component) is kind for component in components), f"{value!r} is no {block}"
    if kind is Unsigned:
        return [int(component) for component in components]
    return [word for component in components for word in (int(component) & 0xFFFFFFFF, int(component) >> 32)]


class Array:
    """A binding: blocks of one type in memory of words."""

    def __init__(self, block: str, memory: list[int]):
        self.block, self.memory, self._words = block, memory, words_of(block)

    def __getitem__(self, at: int) -> Any:
        start = int(at) * self._words
        assert start + self._words <= len(self.memory), "beyond the end"
        return from_words(self.block, self.memory[start : start + self._words])

    def __setitem__(self, at: int, value: Any) -> None:
        start = int(at) * self._words
        assert start + self._words <= len(self.memory), "beyond the end"
        self.memory[start : start + self._words] = to_words(self.block, value)


_VECTOR = re.compile(r"vec\d<u(?:32|64)>(?=\()")
_NUMBER = re.compile(r"\b(\d+|0x[0-9a-f]+)(lu|u)\b")
_ATOMIC_STORE = re.compile(r"atomicStore\(&(.+\]), (.+)\)$")


def _expression(text: str) -> str:
    text = re.sub(r"atomicLoad\(&(\w+\[[^\]]*\])\)", r"\1", text)
    text = _NUMBER.sub(lambda match: f"{'U64' if match[2] == 'lu' else 'u32'}({match[1]})", text)
    return _VECTOR.sub("vector", text).replace("/", "//")


def _statements(text: str) -> str:
    """Return the statements of a function as Python."""
    lines, depth = [], 1
    for token in re.findall(r"[^{};]+|[{}]", text):
        statement = token.strip()
        if statement == "}":
            depth -= 1
        elif statement == "{":
            depth += 1
        elif condition := re.fullmatch(r"if \((.*)\)", statement):
            lines.append(f"{' ' * depth}if {_expression(condition[1])}:")
        elif statement == "else":
            lines.append(f"{' ' * depth}else:")
        elif statement.startswith("var "):
            lines.append(f"{' ' * depth}pass")
        elif store := _ATOMIC_STORE.match(statement):
            lines.append(f"{' ' * depth}{_expression(store[1])} = {_expression(store[2])}")
        elif statement:
            lines.append(" " * depth + _expression(statement.removeprefix("let ")))
    return "\n".join(lines)


def functions(text: str, **values: Any) -> dict[str, Callable[..., Any]]:
    """Return the functions of a linked text; ``values`` are its variables."""

    def vector(*components: Any) -> Any:
        return Vector(components) if len(components) > 1 else components[0]

    scope: dict[str, Any] = {
        "U64": U64,
        "u64": U64,
        "u32": lambda value: Unsigned(int(value) & 0xFFFFFFFF),
        "select": lambda no, yes, condition: yes if condition else no,
        "vector": vector,
        **values,
    }
    source = []
    for name, parameters, body in re.findall(r"^fn (\w+)\(([^)]*)\)[^{]*\{(.*?)\}$", text, re.MULTILINE | re.DOTALL):
        names = ", ".join(part.partition(":")[0] for part in parameters.split(", "))
        source.append(f"def {name}({names}):\n{_statements(body) or ' pass'}")
    exec("\n".join(source), scope)
    return {name: scope[name] for name in re.findall(r"^fn (\w+)", text, re.MULTILINE)}


def arrays(text: str, memories: Mapping[int, list[int]]) -> dict[str, Array]:
    """Return the storage bindings of a text over memories, by the names of their variables."""
    declared = re.findall(r"@binding\((\d+)\) var<storage, read_write> (\w+): array<(.+)>;", text)
    return {name: Array(block, memories[int(binding)]) for binding, name, block in declared}
