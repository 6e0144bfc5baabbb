"""Multi-head attention. The sizes and views of its many tensors are in ``attention_tensors``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.operators.attention_tensors import (
    Heads,
    MaskType,
    bias_part,
    check_sources,
    check_tensors,
    counts_past,
    expected_sizes,
    grouped,
    head_counts,
    of_heads,
    part_of,
    per_batch,
)
from dmlgpu.compiler.operators.indices import last_dimensions
from dmlgpu.compiler.operators.lowering import Lowering, input_tensor, invalid, output_tensor
from dmlgpu.compiler.plan import Attend, Body, Held, Map, Plan, Scatter, Step, Tensor, View, apply, constants, element
from dmlgpu.compiler.rewrites.sources import identity
from dmlgpu.compiler.target import Target

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
    """Raise InvalidDescription unless the present keys and values are a cache with room for past and new ones."""
    for field in ("output_present_key_tensor", "output_present_value_tensor"):
        if getattr(desc, field) is None:
            raise invalid(desc, field, "must be present where past_sequence_lengths_tensor is: it is the cache")
    heads = Heads.of(desc)
    if heads.keys < max(heads.past, heads.new):
        least = f"must be at least {max(heads.past, heads.new)} (past keys {heads.past}, new keys {heads.new})"
        tensor = desc.output_present_key_tensor
        field = f"output_present_key_tensor.sizes[{tensor.dimension_count - 2}]"
        raise invalid(desc, field, f"{least}, got {heads.keys}")


class MultiheadAttention1(Lowering):
    """softmax(query x key^T * scale + masks) x value for each head, with float32 scores, weights and sums. It streams
    over the keys, so that no row of scores is ever in memory.

    Where the pages are silent:

    - The bias is added to queries and to new keys and values, not to past ones, and rounded to their type.
    - BOOLEAN masks are {batch, heads, queries, all keys}, past ones included; strides of 0 repeat them.
    - RelativePositionBias is added after the scale. Masks by lengths replace the score by MaskFilterValue, whatever the
      bias; BOOLEAN adds it. So a row whose keys are all padding is the mean of all values, and a row whose keys are all
      masked by a BOOLEAN mask is what it is without the mask. A row whose scores are all -inf, by the filter or
      the bias, is NaN, as a softmax of it is.
    - KEY_QUERY_SEQUENCE_LENGTH_START_END: keys from keyLength on are padding; starts and ends only tell where sequences
      lie when they are packed one behind the other, and nothing is read from there.
    - A mask needs a type other than NONE, and without a mask the type is NONE.
    - Query head h shares the key and value head floor(h * KeyValueHeadCount / QueryHeadCount).
    - The values' heads may have another size than the keys', in past and present as well.
    - Keys and values may be absent where there are past ones, which then stand for all.

    Experimental, for the pages say nothing of it: PastSequenceLengths holds, as INT32 {batch}, how many rows of the
    present keys and values are past; below 0 counts as 0. These outputs are a cache then, of any number of rows: new
    rows are written behind the past ones (those for which there is no room are dropped), PastKey and PastValue, where
    present, to its beginning before that, and all other rows stay as they are. A query at row i sees the keys up to
    row past + i, and no others.
    """

    desc = descs.MultiheadAttention1
    shaders = (SCALED, BIASED, MASKED, UNPADDED_SCORE, UNPADDED, VISIBLE, CACHED, "attention/merge")

    @classmethod
    def usual_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
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
    def lower(cls, desc: descs.MultiheadAttention1, target: Target) -> Plan:
        """Copies into the present keys and values, then attention, in parts where rows are few."""
        planner = _Planner(desc)
        key, value = planner.kept("key"), planner.kept("value")
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


class _Planner:
    """The operands of one attention, and the steps that keep keys and values."""

    def __init__(self, desc: descs.MultiheadAttention1):
        self.desc, self.heads = desc, Heads.of(desc)
        self.steps: list[Step] = []

    def part(self, part: str) -> Tensor | Body:
        """Return the queries, or the new keys or values, with their bias."""
        tensor = part_of(self.desc, part, self.heads)
        assert tensor is not None
        if self.desc.bias_tensor is None:
            return tensor
        bias = bias_part(self.desc, part, self.heads)
        return apply(BIASED, tensor.data_type, tensor.sizes, portable=True, input=tensor, bias=bias)

    # ---- keys and values

    def kept(self, part: str) -> Tensor | Body:
        """Return all keys or values: as given, or past and new ones copied side by side."""
        present, past = f"output_present_{part}_tensor", f"past_{part}_tensor"
        pieces: list[tuple[Tensor | Body, int]] = []
        if getattr(self.desc, past) is not None:
            pieces.append((last_dimensions(input_tensor(self.desc, past), 4), 0))
        if part_of(self.desc, part, self.heads) is not None:
            pieces.append((self.part(part), self.heads.past))
        has_present = getattr(self.desc, present) is not None
        if len(pieces) == 1 and not has_present:
            return pieces[0][0]
        kept = self._present(present) if has_present else self._temporary(self._sizes(pieces))
        if self.desc.past_sequence_lengths_tensor is None:
            for source, start in pieces:
                self._copy(source, kept, start, keeps_neighbours=len(pieces) > 1)
            return kept
        return self._cached(pieces, kept)

    def _sizes(self, pieces: list[tuple[Tensor | Body, int]]) -> tuple[int, ...]:
        sizes = pieces[0][0].sizes
        return (*sizes[:2], self.heads.keys, sizes[3])

    def _present(self, field: str) -> Tensor:
        return last_dimensions(output_tensor(self.desc, field), 4)

    def _temporary(self, sizes: tuple[int, ...]) -> Tensor:
        return Tensor.temporary("rows", self.desc.output_tensor.data_type, sizes)

    def _copy(self, source: Tensor | Body, kept: Tensor, start: int, *, keeps_neighbours: bool) -> None:
        """Add a copy of some rows into a tensor of all rows, from a row on."""
        body = identity(replace(source, view=View.RAW)) if isinstance(source, Tensor) else source
        rows = replace(kept, sizes=source.sizes, offset=kept.offset + start * kept.strides[2])
        self.steps.append(Map("keep rows", body, rows, keeps_neighbours))

    def _cached(self, pieces: list[tuple[Tensor | Body, int]], cache: Tensor) -> Tensor:
        """Add copies of past and new rows into the cache, and return it."""
        assert self.desc.past_sequence_lengths_tensor is not None
        for source, start in pieces:
            if start == 0 and len(pieces) == 2:
                self._copy(source, cache, 0, keeps_neighbours=True)
        source, _ = pieces[-1]
        if isinstance(source, Body):
            stored = self._temporary(source.sizes)
            self._copy(source, stored, 0, keeps_neighbours=False)
            source = stored
        new, kept = replace(source, view=View.RAW), replace(cache, view=View.RAW)
        past = per_batch(input_tensor(self.desc, "past_sequence_lengths_tensor"), new.sizes)
        along = (None, None, None, 3)
        self.steps.append(Scatter("cache rows", CACHED, new, (("past", past),), kept, (), along, distinct=True))
        return cache

    # ---- scores

    def score(self) -> Body:
        """Return the body that makes a score of the product of query and key."""
        heads, desc = self.heads, self.desc
        sizes = (heads.batch, heads.shared, heads.group, heads.queries, heads.keys)
        score = apply(
            SCALED,
            FLOAT32,
            sizes,
            portable=True,
            values=_numbers(scale=desc.scale),
            product=Held.product(FLOAT32, sizes),
        )
        if desc.relative_position_bias_tensor is not None:
            bias = grouped(self._of_scores("relative_position_bias_tensor"), heads.group)
            score = apply(BIASED, FLOAT32, sizes, portable=True, input=score, bias=bias)
        values = _numbers(masked=desc.mask_filter_value)
        if desc.mask_type is MaskType.BOOLEAN:
            mask = grouped(self._of_scores("mask_tensor"), heads.group)
            return apply(MASKED, FLOAT32, sizes, portable=True, values=values, score=score, mask=mask)
        if desc.mask_type is MaskType.NONE:
            return score
        inside = element(UNPADDED, UINT32, sizes, portable=True, values=(), **self._bounds(sizes))
        return apply(UNPADDED_SCORE, FLOAT32, sizes, portable=True, values=values, score=score, inside=inside)

    def _of_scores(self, field: str) -> Tensor:
        return last_dimensions(input_tensor(self.desc, field), 4)

    def _bounds(self, sizes: tuple[int, ...]) -> dict[str, Tensor]:
        """Return where each sequence's keys end, and where they start if the mask has that."""
        mask = input_tensor(self.desc, "mask_tensor")
        end = per_batch(mask, sizes)
        if self.desc.mask_type is not MaskType.KEY_SEQUENCE_END_START:
            return {"end": end}
        return {"end": end, "start": replace(end, offset=end.offset + mask.strides[-2])}

    def visible(self) -> Body | None:
        """Return how many keys a query sees."""
        heads = self.heads
        if self.desc.past_sequence_lengths_tensor is None:
            return None
        sizes = (heads.batch, heads.shared, heads.group, heads.queries)
        past = per_batch(input_tensor(self.desc, "past_sequence_lengths_tensor"), sizes)
        return element(VISIBLE, UINT32, sizes, portable=True, values=constants(keys=heads.keys), past=past)

    # ---- output

    def output(self) -> Tensor:
        """Return the output as {batch, shared head, head that shares it, query, value head size}."""
        output = of_heads(last_dimensions(output_tensor(self.desc), 3), self.heads.heads)
        tensor = grouped(output, self.heads.group)
        assert isinstance(tensor, Tensor)
        return tensor


def _numbers(**values: float) -> Any:
    return constants(compute=FLOAT32, **{name: float(value) for name, value in values.items()})


class MultiheadAttention(Lowering):
    """MULTIHEAD_ATTENTION1 with as many heads of keys and values as of queries."""

    desc = descs.MultiheadAttention
    newer = descs.MultiheadAttention1

    @classmethod
    def upgrade(cls, desc: descs.MultiheadAttention) -> descs.MultiheadAttention1:
        fields = dict(desc.values)
        heads = fields.pop("head_count")
        return descs.MultiheadAttention1(**fields, query_head_count=heads, key_value_head_count=heads)
