"""Attention: checks, and plans as data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog import operator
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.enums import MultiheadAttentionMaskType as MaskType
from dmlgpu.catalog.validation import validate
from dmlgpu.common.errors import DmlError
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.schedule.steps.ordering import ScheduledScatter
from dmlgpu.compiler.schedule.steps.products import AttentionTile, OperandLayout, ScheduledAttend
from dmlgpu.compiler.target import Float16Conversions, Profile, Target
from tests.schedules import steps_of
from tests.unit.rejections import rejection

F32, F16, I32 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT32
CPU, GPU = Target("CPU"), Target("GPU", Profile.DISCRETE)
NEWEST, OLDER = descs.MultiheadAttention1, descs.MultiheadAttention


def attention(desc_class: Any = NEWEST, heads: tuple[int, int] = (4, 4), **fields: Any) -> Any:
    """Return an attention with sizes of tensors; by default 2 x 5 queries on 7 keys of 4 heads of size 8."""
    sizes: dict[str, Any] = {
        "query_tensor": (2, 5, 32),
        "key_tensor": (2, 7, 32),
        "value_tensor": (2, 7, 24),
        "output_tensor": (2, 5, 24),
    }
    names = [field.python_name for field in operator(desc_class.operator).tensor_fields]
    attributes: dict[str, Any] = {"scale": 0.25, "mask_filter_value": -10000.0, "mask_type": MaskType.NONE}
    data_type = fields.pop("data_type", F32)
    sizes |= {name: fields.pop(name) for name in list(fields) if name in names}
    tensors = {
        name: TensorDesc(I32 if name in ("mask_tensor", "past_sequence_lengths_tensor") else data_type, sizes[name])
        if sizes.get(name)
        else None
        for name in names
    }
    counts = {"query_head_count": heads[0], "key_value_head_count": heads[1]}
    counts = counts if desc_class is NEWEST else {"head_count": heads[0]}
    return desc_class(**tensors, **attributes | counts | fields)


def attend(desc: Any, target: Target) -> ScheduledAttend:
    return next(step for step in steps_of(desc, target) if isinstance(step, ScheduledAttend))


NO_KEYS: dict[str, Any] = {"key_tensor": None, "value_tensor": None}
PAST: dict[str, Any] = {"past_key_tensor": (2, 4, 3, 8), "past_value_tensor": (2, 4, 3, 6)}
PRESENT: dict[str, Any] = {"output_present_key_tensor": (2, 4, 10, 8), "output_present_value_tensor": (2, 4, 10, 6)}
STACKED_PAIR: dict[str, Any] = {**NO_KEYS, "stacked_key_value_tensor": (2, 7, 4, 2, 8), "output_tensor": (2, 5, 32)}
ACCEPTED: dict[str, dict[str, Any]] = {
    "separate": {},
    "leading ones": {"query_tensor": (1, 1, 2, 5, 32), "output_tensor": (1, 2, 5, 24)},
    "pair": STACKED_PAIR,
    "past": PAST,
    "past and present": {**PAST, **PRESENT},
    "only past": {**NO_KEYS, **PAST},
    "bias": {"bias_tensor": (1, 1, 88)},
    "positions": {"relative_position_bias_tensor": (2, 4, 5, 7)},
    "lengths": {"mask_tensor": (1, 2), "mask_type": MaskType.KEY_SEQUENCE_LENGTH},
    "bounds": {"mask_tensor": (1, 2, 2), "mask_type": MaskType.KEY_SEQUENCE_END_START},
    "packed": {"mask_tensor": (8,), "mask_type": MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END},
    "boolean": {"mask_tensor": (2, 4, 5, 7), "mask_type": MaskType.BOOLEAN},
}
REJECTED: dict[str, tuple[dict[str, Any], str]] = {
    "no heads": ({"heads": (0, 1)}, "query_head_count must be at least 1, got 0"),
    "uneven heads": ({"heads": (4, 3)}, "query_head_count must be a multiple of key_value_head_count (3), got 4"),
    "no query": (
        {"query_tensor": None},
        "query_tensor must be present, or one of stacked_query_key_tensor, stacked_query_key_value_tensor",
    ),
    "no keys": (
        NO_KEYS,
        "key_tensor must be present, or one of stacked_query_key_tensor, stacked_key_value_tensor,"
        " stacked_query_key_value_tensor; or past_key_tensor and past_value_tensor, which then stand for all",
    ),
    "keys twice": (
        {"stacked_key_value_tensor": (2, 7, 4, 2, 8), "value_tensor": None},
        "stacked_key_value_tensor must be absent where key_tensor is present: both hold the key",
    ),
    "past keys alone": (
        {"past_key_tensor": (2, 4, 3, 8)},
        "past_value_tensor must be present where past_key_tensor is",
    ),
    "values without keys": (
        {**PAST, "key_tensor": None},
        "key_tensor must be present where value_tensor is",
    ),
    "no whole heads": (
        {"query_tensor": (2, 5, 30)},
        "query_tensor.sizes[2] must be a multiple of 4 heads, got 30",
    ),
    "other keys": (
        {"key_tensor": (2, 7, 36)},
        "key_tensor.sizes must be [2, 7, 32] (batch, keys, key heads * head size), got [2, 7, 36]",
    ),
    "other values": (
        {"value_tensor": (2, 8, 24)},
        "value_tensor.sizes must be [2, 7, 24] (batch, keys, value heads * value head size), got [2, 8, 24]",
    ),
    "a short bias": (
        {"bias_tensor": (87,)},
        "bias_tensor.sizes must be [88] (numbers of all heads of queries, keys and values), got [87]",
    ),
    "positions of new keys": (
        {**PAST, "relative_position_bias_tensor": (2, 4, 5, 7)},
        "relative_position_bias_tensor.sizes must be [2, 4, 5, 10] (batch, heads, queries, all keys), got [2, 4, 5, 7]",
    ),
    "present keys": (
        {**PAST, "output_present_key_tensor": (2, 4, 7, 8)},
        "output_present_key_tensor.sizes must be [2, 4, 10, 8] (batch, key heads, all keys, head size),"
        " got [2, 4, 7, 8]",
    ),
    "the output": (
        {"output_tensor": (2, 5, 32)},
        "output_tensor.sizes must be [2, 5, 24] (batch, queries, heads * value head size), got [2, 5, 32]",
    ),
    "a mask of no type": (
        {"mask_tensor": (1, 2)},
        "mask_type must be the type of mask_tensor, got NONE",
    ),
    "a type of no mask": (
        {"mask_type": MaskType.BOOLEAN},
        "mask_type must be NONE where mask_tensor is absent, got BOOLEAN",
    ),
    "a mask of lengths": (
        {"mask_tensor": (2, 2), "mask_type": MaskType.KEY_SEQUENCE_LENGTH},
        "mask_tensor.sizes must be [1, 2] (1, batch), got [2, 2]",
    ),
    "a stack of groups": (
        {
            **NO_KEYS,
            "query_tensor": None,
            "heads": (4, 2),
            "stacked_query_key_value_tensor": (2, 5, 4, 3, 8),
            "output_tensor": (2, 5, 32),
        },
        "key_value_head_count must be query_head_count (4) where stacked_query_key_value_tensor is present, got 2",
    ),
    "lengths without a cache": (
        {"past_sequence_lengths_tensor": (2,)},
        "output_present_key_tensor must be present where past_sequence_lengths_tensor is: it is the cache",
    ),
    "a small cache": (
        {
            "past_sequence_lengths_tensor": (2,),
            "output_present_key_tensor": (2, 4, 6, 8),
            "output_present_value_tensor": (2, 4, 6, 6),
        },
        "output_present_key_tensor.sizes[2] must be at least 7 (past keys 0, new keys 7), got 6",
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_valid_descriptions_are_accepted(name: str) -> None:
    operators.check(attention(**ACCEPTED[name]))
    operators.check(attention(OLDER, **ACCEPTED[name]))


@pytest.mark.parametrize("name", REJECTED)
def test_invalid_descriptions_are_rejected(name: str) -> None:
    fields, reason = REJECTED[name]
    assert rejection(attention(**fields)) == f"MULTIHEAD_ATTENTION1: {reason}"


def test_the_older_operators_heads_are_checked() -> None:
    assert rejection(attention(OLDER, (0, 0))) == "MULTIHEAD_ATTENTION: head_count must be at least 1, got 0"


def test_each_operator_has_its_level() -> None:
    for desc_class, lowest in ((OLDER, FeatureLevel.LEVEL_6_1), (NEWEST, FeatureLevel.LEVEL_6_3)):
        operators.check(attention(desc_class), lowest)
        with pytest.raises(DmlError, match=lowest.label):
            validate(attention(desc_class), FeatureLevel(lowest - 0x100))


def test_the_older_operator_has_as_many_heads_of_keys_as_of_queries() -> None:
    newer = operators.upgrade(attention(OLDER))
    assert newer == attention(NEWEST)


# ---- plans


def test_plain_attention_reads_its_inputs_in_place() -> None:
    *_, step = steps_of(attention(query_tensor=(2, 1, 32), output_tensor=(2, 1, 24)), CPU)
    assert step.label == "attention" and step.key.layout is OperandLayout.SINGLE


@pytest.mark.parametrize("target", [CPU, GPU], ids=["CPU", "GPU"])
def test_no_temporary_tensor_grows_with_queries_times_keys(target: Target) -> None:
    desc = attention(
        heads=(1, 1),
        query_tensor=(1, 4096, 64),
        key_tensor=(1, 4096, 64),
        value_tensor=(1, 4096, 64),
        output_tensor=(1, 4096, 64),
    )
    assert compiler.compile_operator(desc, target).temporary_size <= 4 << 20


@pytest.mark.parametrize("target", [CPU, GPU], ids=["CPU", "GPU"])
def test_few_rows_take_the_keys_in_parts(target: Target) -> None:
    sizes = {"key_tensor": (1, 5000, 64), "value_tensor": (1, 5000, 64)}
    desc = attention(heads=(1, 1), query_tensor=(1, 1, 64), output_tensor=(1, 1, 64), **sizes)
    step = attend(desc, target)
    assert step.parts > 1 and step.parts * step.share >= 5000 > (step.parts - 1) * step.share
    assert steps_of(desc, target)[-1].label == "merge of parts"


def test_no_invocation_takes_more_iterations_than_the_driver_allows() -> None:
    sizes = {"key_tensor": (1, 300_000, 64), "value_tensor": (1, 300_000, 64)}
    desc = attention(heads=(1, 1), query_tensor=(1, 512, 64), output_tensor=(1, 512, 64), **sizes)
    limited = Target("Limited", loop_limit=65535)
    step = attend(desc, limited)
    tile, blocks = step.tile, -(-step.share // step.tile.block)
    assert blocks * (1 + 64 + tile.block + 8 * tile.key_units + tile.across) <= 65535


def test_attention_with_all_inputs_binds_at_most_eight_buffers() -> None:
    fields: dict[str, Any] = {**PAST, "bias_tensor": (88,), "relative_position_bias_tensor": (2, 4, 5, 10)}
    masked: dict[str, Any] = {"mask_tensor": (2, 4, 5, 10), "mask_type": MaskType.BOOLEAN}
    for more in ({}, PRESENT):
        for target in (CPU, GPU):
            program = compiler.compile_operator(attention(**fields | masked | more), target)
            assert max(len(kernel.slots) for kernel in program.kernels) <= 8


def test_present_tensors_are_the_keys_and_values_that_are_read() -> None:
    written = [step.output.binding for step in steps_of(attention(**PAST, **PRESENT), CPU) if step.label == "keep rows"]
    assert [(binding.role, binding.index) for binding in written] == [(Role.OUTPUT, 1)] * 2 + [(Role.OUTPUT, 2)] * 2


def test_new_rows_of_a_cache_are_scattered_after_the_past_ones() -> None:
    desc = attention(past_sequence_lengths_tensor=(2,), **PRESENT)
    scatters = [step for step in steps_of(desc, CPU) if isinstance(step, ScheduledScatter)]
    assert [step.output.binding.index for step in scatters] == [1, 2]
    assert attend(desc, CPU).visible is not None


def test_gpus_have_many_invocations_per_tile() -> None:
    desc = attention(query_tensor=(2, 256, 32), output_tensor=(2, 256, 24))
    assert attend(desc, CPU).tile.workgroup == 8
    assert attend(desc, GPU).tile.workgroup == 256


def gpu_tile(queries: int, keys: int, size: int, target: Target = GPU, **fields: Any) -> AttentionTile:
    """Return the tile of two heads that share one of keys and values."""
    sizes = {"key_tensor": (1, keys, size), "value_tensor": (1, keys, size)}
    query = {"query_tensor": (1, queries, 2 * size), "output_tensor": (1, queries, 2 * size)}
    return attend(attention(heads=(2, 1), **query, **sizes, **fields), target).tile


def test_tiles_of_gpus_follow_rows_and_heads() -> None:
    assert gpu_tile(256, 256, 64) == AttentionTile(4, 1, 1, 16, 16, depth=16, written_out=True)
    assert gpu_tile(256, 256, 128) == AttentionTile(4, 1, 2, 16, 16, depth=16, written_out=True)
    assert gpu_tile(256, 256, 256).groups(512, 64) == (8, 2)  # two workgroups share a head
    assert gpu_tile(16, 4096, 64).down == 4  # 32 rows
    assert gpu_tile(17, 4096, 64).down == 16
    assert gpu_tile(5, 4097, 64).written_out  # 16 rows are computed
    assert not gpu_tile(5, 4096, 64).written_out
    assert gpu_tile(5, 4096, 64).down == 16  # little work


def test_few_rows_on_gpus_stream_keys_and_values() -> None:
    """Two heads share keys: one to four queries have two to eight rows, of which a workgroup takes at most four."""
    assert gpu_tile(1, 256, 64) == AttentionTile(2, 1, 1, 16, 16, lanes=8, steps=2)
    assert gpu_tile(1, 4096, 128) == AttentionTile(2, 1, 1, 32, 8, lanes=8, steps=2)
    assert [gpu_tile(queries, 4096, 128).rows for queries in (2, 3, 4)] == [4, 3, 4]
    assert gpu_tile(4, 4096, 128).groups(8, 32) == (2, 1)
    assert gpu_tile(1, 4096, 128, data_type=DataType.FLOAT16).steps == 4
    assert gpu_tile(1, 4096, 80).lanes == 4  # 20 units of four


def test_other_rows_on_gpus_go_through_slabs() -> None:
    slabs = [
        gpu_tile(5, 4096, 64),  # ten rows
        gpu_tile(1, 255, 64),  # not a block of keys
        gpu_tile(1, 4096, 72),
        gpu_tile(1, 4096, 32),  # more slices than there are groups of keys
        gpu_tile(1, 4096, 64, replace(GPU, max_workgroup_invocations=128)),
        gpu_tile(2, 4096, 256, replace(GPU, max_workgroup_storage=16384)),  # no room for sums and queries
    ]
    assert [tile.is_streamed for tile in slabs] == [False] * len(slabs)


def test_streamed_parts_keep_the_cores_of_a_card_busy() -> None:
    """32 heads on 132 cores: four workgroups each are 16.5 parts, of one of 16 blocks."""
    sizes: dict[str, Any] = dict.fromkeys(("key_tensor", "value_tensor"), (1, 4096, 4096))
    query: dict[str, Any] = dict.fromkeys(("query_tensor", "output_tensor"), (1, 1, 4096))
    step = attend(attention(heads=(32, 32), **query, **sizes), Target("NVIDIA H100", Profile.DISCRETE))
    assert (step.tile.block, step.share, step.parts, step.launch.total) == (256, 256, 16, 512)


def test_slabs_fit_into_workgroup_memory() -> None:
    """With slabs of 16 KiB, there is no room for the number of visible keys."""
    cache = {f"output_present_{part}_tensor": (1, 1, 512, 64) for part in ("key", "value")}
    cached: dict[str, Any] = {"past_sequence_lengths_tensor": (1,), **cache}
    assert gpu_tile(256, 256, 64, **cached).down == 8
    assert gpu_tile(256, 256, 64, replace(GPU, max_workgroup_storage=32768), **cached).down == 16
    assert gpu_tile(256, 256, 64, replace(GPU, max_workgroup_invocations=128)).down == 8


def test_gpus_read_float16_caches_without_conversion() -> None:
    """If the hardware converts; else each element is converted once, not for each tile of rows."""
    exact = replace(GPU, float16=Float16Conversions(decodes=True))
    desc = attention(
        heads=(4, 4),
        data_type=DataType.FLOAT16,
        query_tensor=(1, 512, 64),
        key_tensor=(1, 512, 64),
        value_tensor=(1, 512, 64),
        output_tensor=(1, 512, 64),
    )
    laid_out = ["lay out queries", "lay out keys", "lay out values"]
    for target, expected in ((exact, []), (GPU, laid_out)):
        assert [step.label for step in steps_of(desc, target) if step.label.startswith("lay out")] == expected


def test_precise_gpus_sum_at_most_1024_keys_in_a_row() -> None:
    sizes: dict[str, Any] = {"key_tensor": (1, 4096, 32), "value_tensor": (1, 4096, 24)}
    desc = attention(query_tensor=(1, 4096, 32), output_tensor=(1, 4096, 24), **sizes)
    assert attend(desc, GPU).parts == 1
    assert attend(desc, GPU.with_policies(precise=True)).share == 1024
