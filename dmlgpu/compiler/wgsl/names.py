"""Names in a kernel: sizes, namespaces of bodies that occur several times, array types, functions in use.

Templates mark the identifiers that need this (``templates``), so that no rendered text is searched for names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from typing import Any


class Names:
    """The names of one kernel.

    Attributes:
        largest: Element count of its largest tensor, in memory or virtual.
        sizes: Values of its sizes, plain or symbolic, in the order in which its text names them first.
        divisors: Indices of the sizes by which it divides, in order.
        files: Shader files of its text, as paths below ``shaders/`` without suffix, without those of the library.
        used: Functions of the library, and identifiers of WGSL (``templates.NOTED``), that it uses.
    """

    def __init__(self, largest: Any = 0) -> None:
        self.largest = largest
        self.sizes: list[Any] = []
        self.divisors: dict[int, None] = {}
        self.files: dict[str, None] = {}
        self.used: set[str] = set()
        self._namespace = ""
        self._types: dict[str, str] = {}
        self._outer: Collection[str] = ()
        self._renamed: Mapping[str, str] = {}

    def add_size(self, value: Any) -> int:
        """Add a size, and return its index."""
        self.sizes.append(value)
        return len(self.sizes) - 1

    @property
    def parameters(self) -> tuple[Any, ...]:
        """The words that the kernel gets: its sizes, and then a multiplier and a shift of each divisor."""
        words = [value % 2**32 for value in self.sizes]
        for index in self.divisors:
            divisor = self.sizes[index]
            bits = (divisor - 1).bit_length()
            words += [(1 << 31 + bits) // divisor + 1, bits]
        return tuple(words)

    def scoped(self, name: str) -> str:
        """Return a name in the current namespace."""
        return self._namespace + name

    def resolved(self, name: str) -> str:
        """Return an identifier of a template in the current namespace: an array type if it names one.

        In WGSL, an alias is the type that it names. wgpu's compiler (naga) writes a SPIR-V type for each alias of an
        array, and passes arrays of one such type to functions that declare another, which is invalid SPIR-V.
        """
        if name not in self._outer:
            name = self._namespace + self._renamed.get(name, name)
        return self._types.get(name, name)

    def type_of(self, name: str) -> str:
        """Return the type that a full name stands for."""
        return self._types.get(name, name)

    def name_type(self, name: str, wgsl: str) -> str:
        """Let a full name stand for a type; return the empty text."""
        self._types[name] = wgsl
        return ""

    def use(self, name: str) -> str:
        """Note that the text uses an identifier of the library or of WGSL, and return it."""
        self.used.add(name)
        return name

    @contextlib.contextmanager
    def within(self, namespace: str, outer: Collection[str] = ()) -> Iterator[None]:
        """Put the names of templates into a namespace, which replaces the current one, but those of ``outer``."""
        before = self._namespace, self._outer
        self._namespace, self._outer = namespace, outer
        try:
            yield
        finally:
            self._namespace, self._outer = before

    @contextlib.contextmanager
    def renamed(self, others: Mapping[str, str]) -> Iterator[None]:
        """Give names of templates others."""
        self._renamed = others
        try:
            yield
        finally:
            self._renamed = {}


_current: ContextVar[Names | None] = ContextVar("names", default=None)


def current() -> Names:
    """Return the names of the kernel that is rendered."""
    names = _current.get()
    return Names() if names is None else names


@contextlib.contextmanager
def active(names: Names) -> Iterator[None]:
    """Render a kernel with these names."""
    token = _current.set(names)
    try:
        yield
    finally:
        _current.reset(token)


def use(name: str) -> str:
    """Note that the kernel that is rendered uses an identifier, and return it."""
    return current().use(name)
