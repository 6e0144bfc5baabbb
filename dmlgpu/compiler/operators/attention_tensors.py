"""The tensors of multi-head attention: where queries, keys and values come from, which sizes all must have, and how
each is seen as {batch, head, row, size of a head}."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dmlgpu.catalog.enums import MultiheadAttentionMaskType
from dmlgpu.compiler.operators.indices import last_dimensions
from dmlgpu.compiler.operators.lowering import check_sizes, input_tensor, invalid
from dmlgpu.compiler.plan import Source, Tensor
from dmlgpu.compiler.rewrites.sources import rewrite

MaskType = MultiheadAttentionMaskType
Sizes = tuple[int, ...]

SOURCES: Mapping[str, Mapping[str, int]] = {
    "query": {"query_tensor": 0, "stacked_query_key_tensor": 0, "stacked_query_key_value_tensor": 0},
    "key": {
        "key_tensor": 0,
        "stacked_query_key_tensor": 1,
        "stacked_key_value_tensor": 0,
        "stacked_query_key_value_tensor": 1,
    },
    "value": {"value_tensor": 0, "stacked_key_value_tensor": 1, "stacked_query_key_value_tensor": 2},
}
"""The tensors that may hold a part, and which of those stacked in them it is."""

PAIRS = (("past_key_tensor", "past_value_tensor"), ("output_present_key_tensor", "output_present_value_tensor"))


# ---- where the parts come from


def source_of(desc: Any, part: str) -> str | None:
    """Return the field of the tensor that holds ``query``, ``key`` or ``value``; None where there is only a past."""
    return next((field for field in SOURCES[part] if getattr(desc, field) is not None), None)


def check_sources(desc: Any) -> None:
    """Raise InvalidDescription unless each part has one source, and a past of keys one of values."""
    for part, fields in SOURCES.items():
        given = [field for field in fields if getattr(desc, field) is not None]
        if len(given) > 1:
            raise invalid(desc, given[1], f"must be absent where {given[0]} is present: both hold the {part}")
        if not given and (part == "query" or desc.past_key_tensor is None):
            past = "" if part == "query" else "; or past_key_tensor and past_value_tensor, which then stand for all"
            raise invalid(desc, f"{part}_tensor", f"must be present, or one of {', '.join(list(fields)[1:])}{past}")
    _check_together(desc, "past_key_tensor", "past_value_tensor")
    key, value = source_of(desc, "key"), source_of(desc, "value")
    if (key is None) != (value is None):
        absent = "key_tensor" if key is None else "value_tensor"
        raise invalid(desc, absent, f"must be present where {key or value} is")


def _check_together(desc: Any, *fields: str) -> None:
    given = [field for field in fields if getattr(desc, field) is not None]
    absent = [field for field in fields if getattr(desc, field) is None]
    if given and absent:
        raise invalid(desc, absent[0], f"must be present where {given[0]} is")


# ---- sizes


@dataclass(frozen=True)
class Heads:
    """The sizes of attention.

    Attributes:
        batch: how many sequences.
        queries, new, past: rows of the queries, of the keys that come with them, of the keys before these.
        keys: rows of all keys.
        heads, shared: how many heads queries have, and keys and values.
        size, value_size: numbers of a head of queries and keys, and of one of values.
    """

    batch: int
    queries: int
    new: int
    past: int
    keys: int
    heads: int
    shared: int
    size: int
    value_size: int

    @classmethod
    def of(cls, desc: Any) -> Heads:
        """Read them from a description whose sources are checked.

        Raises:
            InvalidDescription: when a tensor's last dimension is not made of so many heads.
        """
        heads, shared = head_counts(desc)
        batch, queries, size = _rows(desc, "query", heads)
        key, value = source_of(desc, "key"), source_of(desc, "value")
        new = 0 if key is None else _rows(desc, "key", shared)[1]
        value_size = desc.past_value_tensor.sizes[-1] if value is None else _rows(desc, "value", shared)[2]
        past = 0 if desc.past_key_tensor is None else desc.past_key_tensor.sizes[-2]
        cached = counts_past(desc) and desc.output_present_key_tensor is not None
        keys = desc.output_present_key_tensor.sizes[-2] if cached else past + new
        return cls(batch, queries, new, past, keys, heads, shared, size, value_size)

    @property
    def group(self) -> int:
        """Heads of queries that share one of keys and values."""
        return self.heads // self.shared

    def of_part(self, part: str) -> tuple[int, int, int]:
        """Heads, rows and size of a head of ``query``, ``key`` or ``value``."""
        return {
            "query": (self.heads, self.queries, self.size),
            "key": (self.shared, self.new, self.size),
            "value": (self.shared, self.new, self.value_size),
        }[part]


def head_counts(desc: Any) -> tuple[int, int]:
    """Heads of queries, and of keys and values."""
    if hasattr(desc, "head_count"):
        return desc.head_count, desc.head_count
    return desc.query_head_count, desc.key_value_head_count


def counts_past(desc: Any) -> bool:
    """Return whether a tensor says how much of the past each sequence has."""
    return getattr(desc, "past_sequence_lengths_tensor", None) is not None


def _rows(desc: Any, part: str, heads: int) -> tuple[int, int, int]:
    """Return batch, rows and size of a head of the tensor that holds a part."""
    field = source_of(desc, part)
    assert field is not None
    sizes = getattr(desc, field).sizes
    if field.startswith("stacked"):
        return sizes[0], sizes[1], sizes[4]
    if sizes[-1] % heads:
        raise invalid(desc, f"{field}.sizes[{len(sizes) - 1}]", f"must be a multiple of {heads} heads, got {sizes[-1]}")
    return sizes[-3], sizes[-2], sizes[-1] // heads


def expected_sizes(desc: Any, heads: Heads) -> dict[str, tuple[Sizes, str]]:
    """Return the sizes of every tensor, without leading 1s, and what they are."""
    h = heads
    stack = (h.batch, h.queries, h.heads)
    found: dict[str, tuple[Sizes, str]] = {
        "query_tensor": ((h.batch, h.queries, h.heads * h.size), "batch, queries, heads * head size"),
        "key_tensor": ((h.batch, h.new, h.shared * h.size), "batch, keys, key heads * head size"),
        "value_tensor": ((h.batch, h.new, h.shared * h.value_size), "batch, keys, value heads * value head size"),
        "stacked_query_key_tensor": ((*stack, 2, h.size), "batch, queries, heads, 2, head size"),
        "stacked_key_value_tensor": ((h.batch, h.new, h.shared, 2, h.size), "batch, keys, key heads, 2, head size"),
        "stacked_query_key_value_tensor": ((*stack, 3, h.size), "batch, queries, heads, 3, head size"),
        "bias_tensor": (
            (h.heads * h.size + h.shared * (h.size + h.value_size),),
            "numbers of all heads of queries, keys and values",
        ),
        "relative_position_bias_tensor": ((h.batch, h.heads, h.queries, h.keys), "batch, heads, queries, all keys"),
        "past_sequence_lengths_tensor": ((h.batch,), "batch"),
        "output_tensor": ((h.batch, h.queries, h.heads * h.value_size), "batch, queries, heads * value head size"),
    }
    for part, size in (("key", h.size), ("value", h.value_size)):
        why = f"batch, {part} heads, {{}} keys, {'value ' if part == 'value' else ''}head size"
        found[f"past_{part}_tensor"] = ((h.batch, h.shared, h.past, size), why.format("past"))
        found[f"output_present_{part}_tensor"] = ((h.batch, h.shared, h.keys, size), why.format("all"))
    if desc.mask_tensor is not None:
        found["mask_tensor"] = _mask_sizes(desc.mask_type, h)
    return found


def _mask_sizes(mask_type: MultiheadAttentionMaskType, h: Heads) -> tuple[Sizes, str]:
    return {
        MaskType.KEY_SEQUENCE_LENGTH: ((1, h.batch), "1, batch"),
        MaskType.KEY_SEQUENCE_END_START: ((2, h.batch), "2, batch"),
        MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END: ((3 * h.batch + 2,), "3 * batch + 2"),
        MaskType.BOOLEAN: ((h.batch, h.heads, h.queries, h.keys), "batch, heads, queries, all keys"),
    }[mask_type]


def check_tensors(desc: Any) -> None:
    """Raise InvalidDescription unless all tensors have the sizes that go with the sources, after leading 1s."""
    heads = Heads.of(desc)
    for field, (sizes, why) in expected_sizes(desc, heads).items():
        tensor = getattr(desc, field, None)
        if tensor is not None:
            ones = (1,) * (tensor.dimension_count - len(sizes))
            check_sizes(desc, field, ones + sizes, why)


# ---- views


def part_of(desc: Any, part: str, heads: Heads) -> Tensor | None:
    """``query``, ``key`` or ``value`` as {batch, head, row, size of a head}; None where the past is all there is."""
    field = source_of(desc, part)
    if field is None:
        return None
    count, rows, size = heads.of_part(part)
    sizes, tensor = (heads.batch, count, rows, size), input_tensor(desc, field)
    if not field.startswith("stacked"):
        return of_heads(last_dimensions(tensor, 3), count)
    batch, row, head, which, element = tensor.strides
    offset = tensor.offset + SOURCES[part][field] * which
    return replace(tensor, sizes=sizes, strides=(batch, head, row, element), offset=offset)


def of_heads(tensor: Tensor, count: int) -> Tensor:
    """View {batch, row, head * size} as {batch, head, row, size}."""
    (batch, rows, hidden), (*strides, step) = tensor.sizes, tensor.strides
    size = hidden // count
    return replace(tensor, sizes=(batch, count, rows, size), strides=(strides[0], size * step, strides[1], step))


def bias_part(desc: Any, part: str, heads: Heads) -> Tensor:
    """Return the part's bias over the part's dimensions."""
    tensor = last_dimensions(input_tensor(desc, "bias_tensor"), 1)
    (step,) = tensor.strides
    count, rows, size = heads.of_part(part)
    before = {"query": 0, "key": heads.heads * heads.size, "value": (heads.heads + heads.shared) * heads.size}
    sizes, strides = (heads.batch, count, rows, size), (0, size * step, 0, step)
    return replace(tensor, sizes=sizes, strides=strides, offset=tensor.offset + before[part] * step)


def grouped(source: Source, group: int) -> Source:
    """View bodies over {batch, head, ..} as bodies over {batch, shared head, head that shares it, ..}."""

    def split(node: Source) -> Source:
        sizes = (node.sizes[0], node.sizes[1] // group, group, *node.sizes[2:])
        if not isinstance(node, Tensor):
            return replace(node, sizes=sizes)
        batch, head, *rest = node.strides
        return replace(node, sizes=sizes, strides=(batch, group * head, head, *rest))

    return rewrite(source, split)


def per_batch(tensor: Tensor, sizes: Sizes, first: int = 0) -> Tensor:
    """Return one number per sequence, the first at an offset, repeated over all other dimensions."""
    strides = (tensor.strides[-1], *(0 for _ in sizes[1:]))
    return replace(tensor, sizes=sizes, strides=strides, offset=tensor.offset + first * tensor.strides[-1])
