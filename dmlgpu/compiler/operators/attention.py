"""Multi-head attention: the sizes and views of its many tensors, and the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, MultiheadAttentionMaskType
from dmlgpu.compiler.operators.indexing import last_dimensions
from dmlgpu.compiler.operators.lowering import (
    Lowering,
    check_sizes,
    input_tensor,
    invalid,
    output_tensor,
)
from dmlgpu.compiler.plan import (
    Attend,
    Body,
    Map,
    Plan,
    PlanTensor,
    RegisterValue,
    Scatter,
    Sizes,
    Step,
    View,
    constants,
    element,
    in_float32,
    portable,
)
from dmlgpu.compiler.rewrites.sources import AnySource, identity, split

MaskType = MultiheadAttentionMaskType
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
"""Tensors that may hold a part, and the index of the part among those stacked in them."""

PAIRS = (("past_key_tensor", "past_value_tensor"), ("output_present_key_tensor", "output_present_value_tensor"))


# ---- sources of the parts


def source_of(desc: Any, part: str) -> str | None:
    """Return the field of the tensor that holds ``query``, ``key`` or ``value``; None if there is only a past."""
    return next((field for field in SOURCES[part] if getattr(desc, field) is not None), None)


def check_sources(desc: Any) -> None:
    """Raise InvalidDescription unless each part has one source, and past keys come with past values."""
    for part, fields in SOURCES.items():
        present = [field for field in fields if getattr(desc, field) is not None]
        if len(present) > 1:
            raise invalid(desc, present[1], f"must be absent where {present[0]} is present: both hold the {part}")
        if not present and (part == "query" or desc.past_key_tensor is None):
            past = "" if part == "query" else "; or past_key_tensor and past_value_tensor, which then stand for all"
            raise invalid(desc, f"{part}_tensor", f"must be present, or one of {', '.join(list(fields)[1:])}{past}")
    _check_together(desc, "past_key_tensor", "past_value_tensor")
    key, value = source_of(desc, "key"), source_of(desc, "value")
    if (key is None) != (value is None):
        absent = "key_tensor" if key is None else "value_tensor"
        raise invalid(desc, absent, f"must be present where {key or value} is")


def _check_together(desc: Any, *fields: str) -> None:
    present = [field for field in fields if getattr(desc, field) is not None]
    absent = [field for field in fields if getattr(desc, field) is None]
    if present and absent:
        raise invalid(desc, absent[0], f"must be present where {present[0]} is")


# ---- sizes


@dataclass(frozen=True)
class Heads:
    """The sizes of attention.

    Attributes:
        batch: number of sequences.
        queries, new, past: rows of the queries, of the keys that come with them, of the keys before these.
        keys: rows of all keys.
        heads, shared: head count of queries, and of keys and values.
        size, value_size: head size of queries and keys, and of values.
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
            InvalidDescription: If a tensor's last dimension is not divisible by the number of heads.
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
        """Number of query heads that share a head of keys and values."""
        return self.heads // self.shared

    def of_part(self, part: str) -> tuple[int, int, int]:
        """Return heads, rows and head size of ``query``, ``key`` or ``value``."""
        return {
            "query": (self.heads, self.queries, self.size),
            "key": (self.shared, self.new, self.size),
            "value": (self.shared, self.new, self.value_size),
        }[part]


def head_counts(desc: Any) -> tuple[int, int]:
    """Return the head counts of queries, and of keys and values."""
    if hasattr(desc, "head_count"):
        return desc.head_count, desc.head_count
    return desc.query_head_count, desc.key_value_head_count


def counts_past(desc: Any) -> bool:
    """Return whether a tensor has the past length of each sequence."""
    return getattr(desc, "past_sequence_lengths_tensor", None) is not None


def _rows(desc: Any, part: str, heads: int) -> tuple[int, int, int]:
    """Return batch, rows and head size of the tensor that holds a part."""
    field = source_of(desc, part)
    assert field is not None
    sizes = getattr(desc, field).sizes
    if field.startswith("stacked"):
        return sizes[0], sizes[1], sizes[4]
    if sizes[-1] % heads:
        raise invalid(desc, f"{field}.sizes[{len(sizes) - 1}]", f"must be a multiple of {heads} heads, got {sizes[-1]}")
    return sizes[-3], sizes[-2], sizes[-1] // heads


def expected_sizes(desc: Any, heads: Heads) -> dict[str, tuple[Sizes, str]]:
    """Return the sizes of every tensor, without leading 1s, and their names for messages."""
    h = heads
    stack = (h.batch, h.queries, h.heads)
    expected: dict[str, tuple[Sizes, str]] = {
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
        expected[f"past_{part}_tensor"] = ((h.batch, h.shared, h.past, size), why.format("past"))
        expected[f"output_present_{part}_tensor"] = ((h.batch, h.shared, h.keys, size), why.format("all"))
    if desc.mask_tensor is not None:
        expected["mask_tensor"] = _mask_sizes(desc.mask_type, h)
    return expected


def _mask_sizes(mask_type: MultiheadAttentionMaskType, h: Heads) -> tuple[Sizes, str]:
    return {
        MaskType.KEY_SEQUENCE_LENGTH: ((1, h.batch), "1, batch"),
        MaskType.KEY_SEQUENCE_END_START: ((2, h.batch), "2, batch"),
        MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END: ((3 * h.batch + 2,), "3 * batch + 2"),
        MaskType.BOOLEAN: ((h.batch, h.heads, h.queries, h.keys), "batch, heads, queries, all keys"),
    }[mask_type]


def check_tensors(desc: Any) -> None:
    """Raise InvalidDescription unless all tensors have the expected sizes, after leading 1s."""
    heads = Heads.of(desc)
    for field, (sizes, why) in expected_sizes(desc, heads).items():
        tensor = getattr(desc, field, None)
        if tensor is not None:
            ones = (1,) * (tensor.dimension_count - len(sizes))
            check_sizes(desc, field, ones + sizes, why)


# ---- views


def part_of(desc: Any, part: str, heads: Heads) -> PlanTensor | None:
    """``query``, ``key`` or ``value`` as {batch, head, row, size of a head}; None if there is only a past."""
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


def of_heads(tensor: PlanTensor, count: int) -> PlanTensor:
    """View {batch, row, head * size} as {batch, head, row, size}."""
    (batch, rows, hidden), (*strides, step) = tensor.sizes, tensor.strides
    size = hidden // count
    return replace(tensor, sizes=(batch, count, rows, size), strides=(strides[0], size * step, strides[1], step))


def bias_part(desc: Any, part: str, heads: Heads) -> PlanTensor:
    """Return the bias of a part, broadcast over its dimensions."""
    tensor = last_dimensions(input_tensor(desc, "bias_tensor"), 1)
    (step,) = tensor.strides
    count, rows, size = heads.of_part(part)
    before = {"query": 0, "key": heads.heads * heads.size, "value": (heads.heads + heads.shared) * heads.size}
    sizes, strides = (heads.batch, count, rows, size), (0, size * step, 0, step)
    return replace(tensor, sizes=sizes, strides=strides, offset=tensor.offset + before[part] * step)


def grouped(source: AnySource, group: int) -> AnySource:
    """View a source over {batch, head, ..} as one over {batch, shared head, query head of the group, ..}."""
    return split(source, 1, group)


def per_batch(tensor: PlanTensor, sizes: Sizes) -> PlanTensor:
    """Return one number per sequence, broadcast over all other dimensions."""
    return replace(tensor, sizes=sizes, strides=(tensor.strides[-1], *(0 for _ in sizes[1:])))


FLOAT32, UINT32 = DataType.FLOAT32, DataType.UINT32
SCALED, BIASED = "attention/scaled_score", "attention/biased"
MASKED, UNPADDED_SCORE, UNPADDED = "attention/masked_score", "attention/unpadded_score", "attention/unpadded"
VISIBLE, CACHED = "attention/visible", "attention/cached"


def _check_heads(desc: Any) -> None:
    heads, shared = head_counts(desc)
    names = ("head_count",) if hasattr(desc, "head_count") else ("query_head_count", "key_value_head_count")
    for name in names:
        if getattr(desc, name) < 1:
            raise invalid(desc, name, f"must be at least 1, got {getattr(desc, name)}")
    if heads % shared:
        raise invalid(desc, names[0], f"must be a multiple of {names[-1]} ({shared}), got {heads}")
    for field in ("stacked_query_key_tensor", "stacked_query_key_value_tensor"):
        if getattr(desc, field) is not None and heads != shared:
            raise invalid(desc, names[-1], f"must be {names[0]} ({heads}) where {field} is present, got {shared}")


def _check_cache(desc: Any) -> None:
    """Raise InvalidDescription unless the present keys and values are a cache with room for past and new ones. Without
    new ones, past keys and values are the cache, and need no copy."""
    if source_of(desc, "key") is None and desc.output_present_key_tensor is None:
        _check_together(desc, "output_present_key_tensor", "output_present_value_tensor")
        return
    for field in ("output_present_key_tensor", "output_present_value_tensor"):
        if getattr(desc, field) is None:
            raise invalid(desc, field, "must be present where past_sequence_lengths_tensor is: it is the cache")
    heads = Heads.of(desc)
    if heads.keys < max(heads.past, heads.new):
        requirement = f"must be at least {max(heads.past, heads.new)} (past keys {heads.past}, new keys {heads.new})"
        tensor = desc.output_present_key_tensor
        field = f"output_present_key_tensor.sizes[{tensor.dimension_count - 2}]"
        raise invalid(desc, field, f"{requirement}, got {heads.keys}")


class MultiheadAttention1(Lowering):
    """softmax(query x key^T * scale + masks) x value for each head, with float32 scores, weights and sums. It streams
    over the keys, so that no row of scores is ever in memory.

    Where the pages are silent:

    - The bias is added to queries and to new keys and values, not to past ones, and rounded to their type.
    - BOOLEAN masks are {batch, heads, queries, all keys}, past ones included; strides of 0 repeat them.
    - RelativePositionBias is added after the scale. Masks by lengths replace the sum of score and
      bias by MaskFilterValue; BOOLEAN adds it. So a row whose keys are all padding is the mean of all values, and a row
      whose keys are all masked by a BOOLEAN mask is the same as without the mask. A row whose scores are all -inf, by
      the filter or the bias, is NaN, like its softmax.
    - KEY_QUERY_SEQUENCE_LENGTH_START_END: keys from keyLength on are padding; starts and ends only describe the
      positions of packed sequences, and are not used.
    - A mask needs a type other than NONE, and without a mask the type is NONE.
    - Query head h shares the key and value head floor(h * KeyValueHeadCount / QueryHeadCount).
    - The values' heads may have another size than the keys', in past and present as well.
    - Keys and values may be absent if there are past ones, which then are all keys and values.

    Experimental, because the pages do not mention it: PastSequenceLengths, INT32 {batch}, is the number of rows of the
    present keys and values that are past; negative numbers count as 0. These outputs are a cache then, of any number of
    rows: PastKey and PastValue, if present, are written to its beginning, then new rows after the past ones (rows that
    do not fit are dropped), and all other rows are unchanged. A query at row i sees only the keys up to row past + i.
    Without new keys and values, past ones are the cache, which has the rows of the queries' own tokens already; the
    outputs of present ones may be absent then.
    """

    desc = descs.MultiheadAttention1
    shaders = (SCALED, BIASED, MASKED, UNPADDED_SCORE, UNPADDED, VISIBLE, CACHED, "attention/merge")

    @classmethod
    def default_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        """Caches keep their rows."""
        if not counts_past(desc):
            return {}
        pasts = {
            "output_present_key_tensor": desc.past_key_tensor,
            "output_present_value_tensor": desc.past_value_tensor,
        }
        return {field: past.sizes for field, past in pasts.items() if past is not None}

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        """Present keys and values that are a cache may have any number of rows."""
        expected = expected_sizes(desc, Heads.of(desc))
        fields = ["output_tensor"]
        fields += [] if counts_past(desc) else ["output_present_key_tensor", "output_present_value_tensor"]
        return {field: expected[field][0] for field in fields if getattr(desc, field) is not None}

    @classmethod
    def check(cls, desc: Any) -> None:
        _check_heads(desc)
        check_sources(desc)
        if (desc.mask_tensor is None) != (desc.mask_type is MaskType.NONE):
            expected = "NONE where mask_tensor is absent" if desc.mask_tensor is None else "the type of mask_tensor"
            raise invalid(desc, "mask_type", f"must be {expected}, got {desc.mask_type.name}")
        if counts_past(desc):
            _check_cache(desc)
        check_tensors(desc)

    @classmethod
    def lower(cls, desc: descs.MultiheadAttention1) -> Plan:
        """Lower to copies into the present keys and values, then attention, split along the keys if rows are few."""
        planner = _AttentionLowering(desc)
        key, value = planner.rows("key"), planner.rows("value")
        attention = Attend(
            "",
            grouped(planner.part("query"), planner.heads.group),
            key,
            value,
            planner.score(),
            planner.visible(),
            planner.output(),
        )
        return Plan(desc.operator, (*planner.steps, attention))


class _AttentionLowering:
    """Operands of one attention, and the steps that store keys and values."""

    def __init__(self, desc: descs.MultiheadAttention1):
        self.desc, self.heads = desc, Heads.of(desc)
        self.steps: list[Step] = []

    def part(self, part: str) -> PlanTensor | Body:
        """Return the queries, or the new keys or values, with their bias."""
        tensor = part_of(self.desc, part, self.heads)
        assert tensor is not None
        if self.desc.bias_tensor is None:
            return tensor
        bias = bias_part(self.desc, part, self.heads)
        return portable(BIASED, tensor, input=tensor, bias=bias)

    # ---- keys and values

    def rows(self, part: str) -> PlanTensor | Body:
        """Return all keys or values: the caller's, or past and new ones, concatenated."""
        present, past = f"output_present_{part}_tensor", f"past_{part}_tensor"
        pieces: list[tuple[PlanTensor | Body, int]] = []
        if getattr(self.desc, past) is not None:
            pieces.append((last_dimensions(input_tensor(self.desc, past), 4), 0))
        if part_of(self.desc, part, self.heads) is not None:
            pieces.append((self.part(part), self.heads.past))
        has_present = getattr(self.desc, present) is not None
        if len(pieces) == 1 and not has_present:
            return pieces[0][0]
        if has_present:
            rows = last_dimensions(output_tensor(self.desc, present), 4)
        else:
            batch, heads, _, size = pieces[0][0].sizes
            rows = self._temporary((batch, heads, self.heads.keys, size))
        if self.desc.past_sequence_lengths_tensor is None:
            for source, start in pieces:
                self._copy(source, rows, start, keeps_neighbors=len(pieces) > 1)
            return rows
        return self._cached(pieces, rows)

    def _temporary(self, sizes: tuple[int, ...]) -> PlanTensor:
        return PlanTensor.temporary("rows", self.desc.output_tensor.data_type, sizes)

    def _copy(self, source: PlanTensor | Body, whole: PlanTensor, start: int, *, keeps_neighbors: bool) -> None:
        """Add a copy of some rows into a tensor of all rows, from a row on."""
        body = identity(replace(source, view=View.RAW)) if isinstance(source, PlanTensor) else source
        rows = replace(whole, sizes=source.sizes, offset=whole.offset + start * whole.strides[2])
        self.steps.append(Map("keep rows", body, rows, keeps_neighbors))

    def _cached(self, pieces: list[tuple[PlanTensor | Body, int]], cache: PlanTensor) -> PlanTensor:
        """Add copies of past and new rows into the cache, and return it."""
        assert self.desc.past_sequence_lengths_tensor is not None
        for source, start in pieces:
            if start == 0 and len(pieces) == 2:
                self._copy(source, cache, 0, keeps_neighbors=True)
        source, _ = pieces[-1]
        if isinstance(source, Body):
            stored = self._temporary(source.sizes)
            self._copy(source, stored, 0, keeps_neighbors=False)
            source = stored
        new, rows = replace(source, view=View.RAW), replace(cache, view=View.RAW)
        past = per_batch(input_tensor(self.desc, "past_sequence_lengths_tensor"), new.sizes)
        along = (None, None, None, 3)
        self.steps.append(Scatter("cache rows", CACHED, new, (("past", past),), rows, (), along, distinct=True, rest=3))
        return cache

    # ---- scores

    def score(self) -> Body:
        """Return the body that computes a score from the product of query and key."""
        heads, desc = self.heads, self.desc
        sizes = (heads.batch, heads.shared, heads.group, heads.queries, heads.keys)
        score = in_float32(
            SCALED, sizes, values=_numbers(scale=desc.scale), product=RegisterValue.product(FLOAT32, sizes)
        )
        if desc.relative_position_bias_tensor is not None:
            bias = grouped(self._of_scores("relative_position_bias_tensor"), heads.group)
            score = in_float32(BIASED, sizes, input=score, bias=bias)
        values = _numbers(masked=desc.mask_filter_value)
        if desc.mask_type is MaskType.BOOLEAN:
            mask = grouped(self._of_scores("mask_tensor"), heads.group)
            return in_float32(MASKED, sizes, values=values, score=score, mask=mask)
        if desc.mask_type is MaskType.NONE:
            return score
        inside = element(UNPADDED, UINT32, sizes, portable=True, values=(), **self._bounds(sizes))
        return in_float32(UNPADDED_SCORE, sizes, values=values, score=score, inside=inside)

    def _of_scores(self, field: str) -> PlanTensor:
        return last_dimensions(input_tensor(self.desc, field), 4)

    def _bounds(self, sizes: tuple[int, ...]) -> dict[str, PlanTensor]:
        """Return the end of each sequence's keys, and their start if the mask has it."""
        mask = input_tensor(self.desc, "mask_tensor")
        end = per_batch(mask, sizes)
        if self.desc.mask_type is not MaskType.KEY_SEQUENCE_END_START:
            return {"end": end}
        return {"end": end, "start": replace(end, offset=end.offset + mask.strides[-2])}

    def visible(self) -> Body | None:
        """Return the number of keys that a query attends to."""
        heads = self.heads
        if self.desc.past_sequence_lengths_tensor is None:
            return None
        sizes = (heads.batch, heads.shared, heads.group, heads.queries)
        past = per_batch(input_tensor(self.desc, "past_sequence_lengths_tensor"), sizes)
        return element(VISIBLE, UINT32, sizes, portable=True, values=constants(keys=heads.keys), past=past)

    # ---- output

    def output(self) -> PlanTensor:
        """Return the output as {batch, shared head, query head of the group, query, value head size}."""
        return grouped(of_heads(last_dimensions(output_tensor(self.desc), 3), self.heads.heads), self.heads.group)


def _numbers(**values: float) -> Any:
    return constants(compute=FLOAT32, **{name: float(value) for name, value in values.items()})


class MultiheadAttention(Lowering):
    """MULTIHEAD_ATTENTION1 whose keys and values have the head count of queries."""

    desc = descs.MultiheadAttention
    newer = descs.MultiheadAttention1

    @classmethod
    def upgrade(cls, desc: descs.MultiheadAttention) -> descs.MultiheadAttention1:
        fields = dict(desc.values)
        heads = fields.pop("head_count")
        return descs.MultiheadAttention1(**fields, query_head_count=heads, key_value_head_count=heads)
