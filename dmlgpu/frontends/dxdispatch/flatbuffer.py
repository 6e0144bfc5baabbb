"""Reading FlatBuffers, in the little that serialised graphs need; every offset is checked.

Public format: google.github.io/flatbuffers, "FlatBuffer Internals". Fields have numbers in the order of the schema.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass


class MalformedBuffer(ValueError):
    """Bytes that are no FlatBuffer."""


class FlatBuffer:
    """The bytes, and how much of them may still be read.

    Tables may share what they refer to, so that a small file could stand for endless data: no more elements of vectors
    and characters of strings are read than the file has bytes. Strings are read once.

    Args:
        data: the file.
    """

    def __init__(self, data: bytes):
        self._data, self._left = data, len(data)
        self._strings: dict[int, str] = {}

    def root(self) -> Table:
        """Return the table that everything hangs on."""
        return Table(self, self.offset(0))

    def number(self, position: int, kind: str) -> int | float:
        """Return a number; ``kind`` is its letter in the module ``struct``."""
        (value,) = self.numbers(position, kind, 1)
        return value

    def numbers(self, position: int, kind: str, count: int) -> tuple[int | float, ...]:
        """Return numbers that follow each other."""
        layout = f"<{count}{kind}"
        if position < 0 or position + struct.calcsize(layout) > len(self._data):
            raise MalformedBuffer(f"an offset leads to byte {position}, outside its {len(self._data)} bytes")
        return struct.unpack_from(layout, self._data, position)

    def offset(self, position: int) -> int:
        """Return the position that the offset at ``position`` leads to."""
        return position + int(self.number(position, "I"))

    def vector(self, position: int, element: int) -> tuple[int, int]:
        """Return where the elements of a vector begin and how many there are; ``element`` is the bytes of one."""
        count = int(self.number(position, "I"))
        self._left -= count
        if position + 4 + count * element > len(self._data) or self._left < 0:
            raise MalformedBuffer(f"a vector at byte {position} promises {count:,} elements, more than there can be")
        return position + 4, count

    def raw(self, position: int) -> bytes:
        """Return the bytes of a vector of bytes."""
        start, count = self.vector(position, 1)
        return self._data[start : start + count]

    def string(self, position: int) -> str:
        """Return a string."""
        if position not in self._strings:
            try:
                self._strings[position] = self.raw(position).decode()
            except UnicodeDecodeError as error:
                raise MalformedBuffer(f"a string at byte {position} is not UTF-8") from error
        return self._strings[position]


@dataclass(frozen=True)
class Table:
    """A table of a buffer. Fields that are absent are None, or the number that stands for them.

    Attributes:
        buffer: where it lies.
        position: the byte at which it begins.
    """

    buffer: FlatBuffer
    position: int

    def place(self, field: int) -> int | None:
        """Return where a field lies, or None where it is absent."""
        shape = self.position - int(self.buffer.number(self.position, "i"))
        entry = 4 + 2 * field
        if entry + 2 > self.buffer.number(shape, "H"):
            return None
        offset = int(self.buffer.number(shape + entry, "H"))
        return self.position + offset if offset else None

    def number(self, field: int, kind: str) -> int:
        """Return an integer; 0 where it is absent."""
        place = self.place(field)
        return 0 if place is None else int(self.buffer.number(place, kind))

    def target(self, field: int) -> int | None:
        """Return where what a field refers to lies, or None."""
        place = self.place(field)
        return None if place is None else self.buffer.offset(place)

    def table(self, field: int) -> Table | None:
        """Return the table that a field refers to."""
        target = self.target(field)
        return None if target is None else Table(self.buffer, target)

    def string(self, field: int) -> str:
        """Return a string; empty where it is absent."""
        target = self.target(field)
        return "" if target is None else self.buffer.string(target)

    def raw(self, field: int) -> bytes:
        """Return a vector of bytes; empty where it is absent."""
        target = self.target(field)
        return b"" if target is None else self.buffer.raw(target)

    def numbers(self, field: int, kind: str) -> tuple[int | float, ...] | None:
        """Return a vector of numbers."""
        target = self.target(field)
        if target is None:
            return None
        start, count = self.buffer.vector(target, struct.calcsize(f"<{kind}"))
        return self.buffer.numbers(start, kind, count)

    def tables(self, field: int) -> tuple[Table, ...]:
        """Return a vector of tables; empty where it is absent."""
        return tuple(Table(self.buffer, position) for position in self._references(field))

    def strings(self, field: int) -> tuple[str, ...]:
        """Return a vector of strings; empty where it is absent."""
        return tuple(self.buffer.string(position) for position in self._references(field))

    def _references(self, field: int) -> list[int]:
        target = self.target(field)
        if target is None:
            return []
        start, count = self.buffer.vector(target, 4)
        return [self.buffer.offset(start + 4 * number) for number in range(count)]
