"""Serialized DirectML graphs for tests, written by the package flatbuffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flatbuffers
import numpy as np

Part = Callable[[flatbuffers.Builder], int]
"""Writes a part into a builder and returns its position."""


def table(*fields: tuple[str, Any] | None) -> Part:
    """A table of fields in order: ``("part", Part)`` by reference, ``("u8"|"u64", number)``, ``("struct", bytes)``."""

    def write(builder: flatbuffers.Builder) -> int:
        places = [field[1](builder) if field is not None and field[0] == "part" else None for field in fields]
        builder.StartObject(len(fields))
        for index, (part, place) in enumerate(zip(fields, places, strict=True)):
            if part is None:
                continue
            if part[0] == "part":
                builder.PrependUOffsetTRelativeSlot(index, place, 0)
            elif part[0] == "u8":
                builder.PrependUint8Slot(index, part[1], 0)
            else:
                builder.PrependUint64Slot(index, part[1], 0)
        return builder.EndObject()

    return write


def struct(*numbers: Any, dtype: type) -> Part:
    """A struct of numbers."""

    def write(builder: flatbuffers.Builder) -> int:
        raw = np.array(numbers, dtype).tobytes()
        builder.Prep(8, len(raw))
        for byte in reversed(raw):
            builder.PrependByte(byte)
        return builder.Offset()

    return write


def text(value: str) -> Part:
    return lambda builder: builder.CreateString(value)


def numbers(values: Sequence[int], dtype: type = np.uint32) -> Part:
    return lambda builder: builder.CreateNumpyVector(np.array(values, dtype))


def parts(items: Sequence[Part]) -> Part:
    def write(builder: flatbuffers.Builder) -> int:
        places = [item(builder) for item in items]
        builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            builder.PrependUOffsetTRelative(place)
        return builder.EndVector()

    return write


def tensor(*sizes: int, strides: Sequence[int] | None = None, data_type: str = "DML_TENSOR_DATA_TYPE_FLOAT32") -> Part:
    last = np.prod(sizes) if strides is None else 1 + np.dot(np.subtract(sizes, 1), strides)
    return table(
        ("part", text(data_type)),
        ("part", numbers(sizes)),
        None if strides is None else ("part", numbers(strides)),
        ("u64", 4 * int(last)),
    )


def attribute(name: str, kind: int = 0, value: Part | None = None) -> Part:
    """An attribute of a kind of the format's union; 0 is none."""
    return table(("part", text(name)), ("u8", kind), None if value is None else ("part", value))


def operator(
    kind: str, inputs: dict[str, Part], outputs: dict[str, Part], attributes: Sequence[Part] = (), name: str = "node"
) -> Part:
    """An operator node: tensors by the names of their edges, in order; a name that begins with ``-`` is absent."""
    lists = [[tensor for edge, tensor in edges.items() if edge[0] != "-"] for edges in (inputs, outputs)]
    desc = table(
        ("part", text(kind)), ("part", parts(lists[0])), ("part", parts(lists[1])), ("part", parts(attributes))
    )
    return _node(1, desc, name, *([edge if edge[0] != "-" else "" for edge in edges] for edges in (inputs, outputs)))


def constant(edge: str, data: bytes | str) -> Part:
    """A constant node: its bytes, or the name of a file of weights."""
    held = text(data) if isinstance(data, str) else numbers(list(data), np.uint8)
    return _node(2, table(("u8", 1 if isinstance(data, str) else 2), ("part", table(("part", held)))), edge, [], [edge])


def _node(kind: int, desc: Part, name: str, inputs: list[str], outputs: list[str]) -> Part:
    edges = [("part", parts([text(edge) for edge in names_of_edges])) for names_of_edges in (inputs, outputs)]
    return table(("u8", kind), ("part", desc), ("part", text(name)), *edges)


def graph(nodes: Sequence[Part], inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """A file."""
    builder = flatbuffers.Builder(1024)
    names = [("part", parts([text(edge) for edge in edges])) for edges in (inputs, outputs)]
    builder.Finish(table(("part", parts(nodes)), *names)(builder))
    return bytes(builder.Output())
