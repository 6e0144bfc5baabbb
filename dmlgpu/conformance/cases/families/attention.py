"""Cases of multi-head attention. A key's sizes are batch, queries, heads of keys and values, size of a head; everything
else is drawn, and what a variant does not name may be there or not.

The error of a weighted mean is counted in the values' largest magnitude; errors of the scores move its weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.enums import MultiheadAttentionMaskType as MaskType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.layouts import EDGE_SIZES, TensorLayout, draw_tensor
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, register
from dmlgpu.conformance.cases.tolerance import Accumulated, Bound
from dmlgpu.reference.attention import operands

STACKS = {
    "query-key": ("stacked_query_key_tensor", 2),
    "key-value": ("stacked_key_value_tensor", 2),
    "query-key-value": ("stacked_query_key_value_tensor", 3),
}
BIAS = "bias"
PAST = "past"
ONLY_PAST = "only-past"
PRESENT = "present"
POSITION = "position"
MASKS = {
    "length": MaskType.KEY_SEQUENCE_LENGTH,
    "bounds": MaskType.KEY_SEQUENCE_END_START,
    "packed-lengths": MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END,
    "boolean": MaskType.BOOLEAN,
}
CACHE = "cache"
SPECIAL = "special"  # infinities and NaN among the elements

VARIANTS = (PLAIN, *STACKS, BIAS, PAST, ONLY_PAST, PRESENT, POSITION, *MASKS, SPECIAL)

MANY, MANY_WHOLE = 1200, 1280
"""Keys of the cases that are long: few queries, as where text is generated. The latter come in whole blocks of 256."""

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class _Drawn:
    """Random choices of a case."""

    stack: str
    mask: MaskType
    bias: bool
    past: int
    keys: int
    new: int
    present: tuple[bool, bool]
    position: bool
    cached: bool
    group: int
    value_size: int


def _draw(key: Key, rng: np.random.Generator, newest: bool) -> _Drawn:
    batch, queries, heads, size = key.sizes
    chance = [bool(chosen) for chosen in rng.integers(0, 3, 6) == 0]
    stack = key.variant if key.variant in STACKS else str(rng.choice(["", "", *STACKS]))
    if key.variant in (ONLY_PAST, CACHE):
        stack = ""
    most = max(1, 8192 // (batch * heads * size))
    length, past = (int(rng.choice([size for size in EDGE_SIZES if size <= max(most, 5)])) for _ in range(2))
    if key.sizes in _AttentionCases.long_sizes:
        length = MANY_WHOLE if key.variant == "boolean" else MANY
    new = queries if stack in ("query-key", "query-key-value") else 0 if key.variant == ONLY_PAST else length
    has_past = key.variant in (PAST, ONLY_PAST) or (chance[0] and key.variant != CACHE)
    mask = MASKS.get(key.variant) or MaskType(int(rng.integers(0, 5)))
    cached = newest and key.variant == CACHE
    whole = cached and chance[5]  # the past is the cache, and has the new rows already
    new = 0 if whole else new
    grouped = newest and stack in ("", "key-value")
    keys = length if whole else new + past if has_past or cached else new
    return _Drawn(
        stack,
        mask,
        key.variant == BIAS or chance[1],
        past if has_past else keys if cached else 0,
        keys,
        new,
        (not whole,) * 2 if key.variant == PRESENT or cached else (chance[2], chance[3]),
        key.variant == POSITION or chance[4],
        cached,
        int(rng.integers(1, 4)) if grouped else 1,
        int(rng.choice(EDGE_SIZES[:14])) if stack in ("", "query-key") else size,
    )


def _sizes(key: Key, drawn: _Drawn) -> dict[str, Sizes]:
    """Return the sizes of all tensors that are there, without leading 1s."""
    (batch, queries, shared, size), d = key.sizes, drawn
    heads = shared * d.group
    stored = {"key": (batch, shared, d.keys, size), "value": (batch, shared, d.keys, d.value_size)}
    sizes: dict[str, Sizes] = {"output_tensor": (batch, queries, heads * d.value_size)}
    if d.stack:
        field, count = STACKS[d.stack]
        rows = (batch, d.new, shared) if d.stack == "key-value" else (batch, queries, heads)
        sizes[field] = (*rows, count, size)
    if d.stack in ("", "key-value"):
        sizes["query_tensor"] = (batch, queries, heads * size)
    if not d.stack and d.new:
        sizes["key_tensor"] = (batch, d.new, shared * size)
    if d.stack in ("", "query-key") and d.new:
        sizes["value_tensor"] = (batch, d.new, shared * d.value_size)
    for part, present in zip(stored, d.present, strict=True):
        if d.past:
            sizes[f"past_{part}_tensor"] = (*stored[part][:2], d.past, stored[part][3])
        if present:
            sizes[f"output_present_{part}_tensor"] = stored[part]
    if d.bias:
        sizes["bias_tensor"] = (heads * size + shared * (size + d.value_size),)
    if d.position:
        sizes["relative_position_bias_tensor"] = (batch, heads, queries, d.keys)
    if d.cached:
        sizes["past_sequence_lengths_tensor"] = (batch,)
    masks: dict[MaskType, Sizes] = {
        MaskType.KEY_SEQUENCE_LENGTH: (1, batch),
        MaskType.KEY_SEQUENCE_END_START: (2, batch),
        MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END: (3 * batch + 2,),
        MaskType.BOOLEAN: (batch, heads, queries, d.keys),
    }
    if d.mask in masks:
        sizes["mask_tensor"] = masks[d.mask]
    return sizes


def _place(key: Key, rng: np.random.Generator, field: str, sizes: Sizes) -> TensorDesc:
    """Return a tensor in the key's layout, with leading 1s where it may have some."""
    ones = 0 if field.startswith("stacked") else int(rng.integers(0, 6 - max(len(sizes), 1)))
    integers = field in ("mask_tensor", "past_sequence_lengths_tensor")
    data_type = DataType.INT32 if integers else key.types[0]
    return draw_tensor(data_type, (1,) * ones + sizes, key.layout, rng, output=field.startswith("output"))


def _fill(rng: np.random.Generator, key: Key, drawn: _Drawn, field: str, tensor: TensorDesc) -> Array:
    """Draw contents of a tensor."""
    if field == "past_sequence_lengths_tensor":
        lengths = rng.integers(-1, drawn.keys + 1, tensor.sizes)
        return np.where(rng.random(tensor.sizes) < 0.3, drawn.keys, lengths).astype(np.int32)  # some are full
    if field == "mask_tensor":
        if drawn.mask is MaskType.BOOLEAN:
            often = rng.random((*tensor.sizes[:-1], 1)) < 0.7  # else all keys of a row are masked
            return ((rng.random(tensor.sizes) < 0.6) & often).astype(np.int32)
        return rng.integers(-1, drawn.keys + 2, tensor.sizes).astype(np.int32)
    values = rng.standard_normal(tensor.sizes)
    if key.variant == SPECIAL:
        for value in (math.inf, -math.inf, math.nan):
            values[rng.random(tensor.sizes) < 0.2 / values.size] = value
    return values.astype(tensor.data_type.numpy)


def attention_magnitudes(desc: Any, inputs: Arrays) -> tuple[Bound, ...]:
    """Return sums of the errors of the outputs; present keys and values are rounded once."""
    query, keys, values = (array.astype(np.float64) for array in operands(desc, inputs))
    mask, position = inputs[7:9]
    size = query.shape[-1]
    keys, values = (np.repeat(array, query.shape[1] // array.shape[1], axis=1) for array in (keys, values))
    with np.errstate(invalid="ignore"):
        scores = abs(desc.scale) * (np.abs(query) @ np.abs(keys).swapaxes(-1, -2))
        if position is not None:
            scores = scores + np.abs(position.reshape(scores.shape))
        largest = scores.max(-1, keepdims=True)
        if mask is not None and desc.mask_type is MaskType.BOOLEAN:
            hidden = (mask.reshape(scores.shape) == 0).all(-1, keepdims=True)
            largest = largest + np.where(hidden, abs(desc.mask_filter_value), 0.0)
        total = np.abs(values).max(2, keepdims=True) * (4 + 2 * (size + 4) * largest)
    output = total.swapaxes(1, 2).reshape(desc.output_tensor.sizes)
    fields = ("output_present_key_tensor", "output_present_value_tensor")
    present = (getattr(desc, field) for field in fields)
    return output, *(np.zeros(() if tensor is None else tensor.sizes) for tensor in present)


class _AttentionCases(OperatorCases):
    """Few queries and keys, of every source."""

    standard_count = 16
    candidates = 400
    ranks = (4,)
    long_sizes: ClassVar[SizesList] = ((1, 1, 2, 4), (1, 1, 3, 5), (1, 1, 1, 128), (1, 2, 2, 16), (1, 5, 1, 64))
    large_sizes: ClassVar[SizesList] = ((2, 300, 3, 64),)
    random_count = 40
    variant_names: ClassVar[tuple[str, ...]] = VARIANTS

    @property
    def types(self) -> tuple[Types, ...]:
        """Both float types."""
        return ((DataType.FLOAT32,), (DataType.FLOAT16,))

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        newest = self.desc_class is descs.MultiheadAttention1
        drawn = _draw(key, rng, newest)
        tensors = {field: _place(key, rng, field, sizes) for field, sizes in _sizes(key, drawn).items()}
        fields: dict[str, Any] = {field.python_name: None for field in self.schema.tensor_fields}
        fields |= tensors
        # Some compilers make 0 of anything times 0: no such scale among NaN and infinities. Nor under a mask that hides
        # whole rows, where scores that are all alike would not tell what hides them.
        scales = [1 / math.sqrt(key.sizes[3]), 0.25, -0.5, 1.0 if key.variant in (SPECIAL, "boolean") else 0.0]
        fields["scale"] = float(rng.choice(scales))
        fields["mask_filter_value"] = float(rng.choice([-10000.0, -2.0, 0.5]))
        fields["mask_type"] = drawn.mask
        desc = self.desc_class(**fields, **self.head_counts(key.sizes[2], drawn.group))

        def fill(contents: np.random.Generator) -> Arrays:
            return tuple(
                None if slot.tensor is None else _fill(contents, key, drawn, slot.field, slot.tensor)
                for slot in desc.inputs
            )

        def magnitude(inputs: Arrays) -> tuple[Bound, ...]:
            return attention_magnitudes(desc, inputs)

        return Case(name, desc, fill, Accumulated(drawn.keys), magnitude=magnitude)

    def head_counts(self, shared: int, group: int) -> dict[str, int]:
        """Return the attributes that count heads."""
        return {"head_count": shared}


# which becomes the newer one
register(_AttentionCases, descs.MultiheadAttention)


@cases(descs.MultiheadAttention1)
class MultiheadAttention1Cases(_AttentionCases):
    """MULTIHEAD_ATTENTION1, with groups of heads and caches."""

    added_keys: ClassVar[tuple[Key, ...]] = (
        Key((DataType.FLOAT32,), (1, 1, 1, 128), TensorLayout.PACKED, "packed-lengths"),
        Key((DataType.FLOAT32,), (1, 1, 1, 128), TensorLayout.PACKED, "boolean", 2),
        Key((DataType.FLOAT16,), (1, 2, 2, 16), TensorLayout.PACKED, ONLY_PAST),
        Key((DataType.FLOAT32,), (1, 5, 1, 64), TensorLayout.PACKED, "key-value"),
    )
    """Keys that GPUs stream, some in whole blocks, some for two tiles of rows, and slabs of a past alone."""

    def variants(self, types: Types) -> tuple[str, ...]:
        """Return the older operator's, and caches."""
        return (*super().variants(types), CACHE)

    def standard_keys(self) -> Iterator[Key]:
        """Also caches whose lengths differ: of some the past is empty, of some full."""
        yield from super().standard_keys()
        for data_type, sizes, layout in (
            (DataType.FLOAT32, (7, 3, 2, 8), TensorLayout.PACKED),
            (DataType.FLOAT16, (5, 1, 3, 5), TensorLayout.PERMUTED),
            (DataType.FLOAT32, (9, 4, 1, 7), TensorLayout.PADDED),
        ):
            yield Key((data_type,), sizes, layout, CACHE)

    def head_counts(self, shared: int, group: int) -> dict[str, int]:
        return {"query_head_count": shared * group, "key_value_head_count": shared}
