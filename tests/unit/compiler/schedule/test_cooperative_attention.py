"""Attention by cooperative matrices: when it is chosen, its tiles, and its text."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog import operator
from dmlgpu.catalog.enums import DataType, MultiheadAttentionMaskType
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.programs import of_network
from dmlgpu.compiler.schedule import cooperative_attention
from dmlgpu.compiler.schedule.steps.cooperative import ScheduledCooperativeAttend
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Matrices, MatrixDialect, Profile, Target
from tests.schedules import steps_of
from tests.template_branches import recorded_branches
from tests.unit.graph_examples import attention_of_quantized_caches

F16, F32 = DataType.FLOAT16, DataType.FLOAT32
AMD = Target("GPU", Profile.DISCRETE, frozenset({"subgroup"}), max_workgroup_storage=32768, matrices=Matrices())
NVIDIA = replace(AMD, matrices=Matrices(lanes=32, turns=False, dialect=MatrixDialect.TINT))
INTEL = replace(AMD, matrices=Matrices(8, 16, 16, lanes=16, dialect=MatrixDialect.TINT))
APPLE = replace(AMD, matrices=Matrices(8, 8, 8, lanes=32, dialect=MatrixDialect.TINT, component="f32"))
TENSORS = [field.python_name for field in operator("MULTIHEAD_ATTENTION1").tensor_fields]


def attention(queries: int = 512, keys: int = 512, size: int = 64, data_type: DataType = F16) -> Any:
    """Attention of two heads."""
    tensors: dict[str, Any] = dict.fromkeys(TENSORS)
    tensors |= {
        f"{name}_tensor": TensorDesc(data_type, (1, length, 2 * size))
        for name, length in (("query", queries), ("key", keys), ("value", keys), ("output", queries))
    }
    return descs.MultiheadAttention1(
        **tensors,
        scale=0.125,
        mask_filter_value=-10000.0,
        query_head_count=2,
        key_value_head_count=2,
        mask_type=MultiheadAttentionMaskType.NONE,
    )


def causal(size: int) -> Any:
    """Attention on a cache that the outputs hold."""
    cache = TensorDesc(F16, (1, 2, 100, size))
    desc: Any = attention(100, 100, size)
    return replace(
        desc,
        past_sequence_lengths_tensor=TensorDesc(DataType.INT32, (1,)),
        output_present_key_tensor=cache,
        output_present_value_tensor=cache,
    )


def masked(size: int) -> Any:
    """Attention with scores that depend on their position."""
    desc: Any = attention(100, 64, size)
    mask = TensorDesc(DataType.INT32, (1, 2, 100, 64))
    return replace(desc, mask_type=MultiheadAttentionMaskType.BOOLEAN, mask_tensor=mask)


def kernel_of(desc: Any, target: Target) -> ScheduledCooperativeAttend | None:
    """The kernel by matrix units, if there is one."""
    return next((step for step in steps_of(desc, target) if isinstance(step, ScheduledCooperativeAttend)), None)


@pytest.mark.parametrize(
    ("desc", "target"),
    [
        (attention(), replace(AMD, matrices=None)),
        (attention(), replace(AMD, profile=Profile.CPU)),
        (attention(), AMD.with_policies(precise=True)),
        (attention(), replace(AMD, max_workgroup_storage=8192)),
        (attention(), replace(AMD, max_workgroup_invocations=128)),
        (attention(), replace(AMD, loop_limit=1 << 16)),
        (attention(data_type=F32), AMD),
        (attention(queries=31), AMD),  # fewer than half a tile of 64 rows
        (attention(keys=31), AMD),  # less than a block
        (attention(size=66), AMD),  # not in units of four
        (attention(size=260), AMD),  # more than 24 matrices of a subgroup
    ],
)
def test_other_attention_keeps_its_schedule(desc: Any, target: Target) -> None:
    assert kernel_of(attention(queries=32, keys=32), AMD) is not None
    assert kernel_of(desc, target) is None


@pytest.mark.parametrize(
    ("desc", "target", "rows", "sharing"),
    [
        (attention(8192), AMD, 128, 2),
        (attention(8192), NVIDIA, 128, 1),
        (attention(8192), INTEL, 64, 1),
        (attention(8192, size=128), AMD, 64, 4),  # pairs of subgroups share the rows of wide heads
        (attention(8192, size=256), AMD, 32, 8),
        (attention(8192), replace(AMD, max_workgroup_storage=16384), 32, 8),
        (attention(), AMD, 32, 8),  # 8 workgroups of 128 rows leave most of a GPU idle
        (attention(), replace(AMD, name="AMD Radeon 780M"), 128, 2),  # but not of one with 12 cores
    ],
)
def test_tiles_fill_registers(desc: Any, target: Target, rows: int, sharing: int) -> None:
    step = kernel_of(desc, target)
    assert step is not None and (step.tile_rows, step.sharing) == (rows, sharing)
    (kernel,) = compile_operator(desc, target).kernels
    arrays = re.findall(r"var<workgroup> \w+: array<(?:array<)?(f16|f32), (\d+)>(?:, (\d+)>)?;", kernel.wgsl)
    used = sum({"f16": 2, "f32": 4}[kind] * int(size) * int(count or 1) for kind, size, count in arrays)
    assert len(arrays) == 3 and used <= target.max_workgroup_storage - 16


@pytest.mark.parametrize("blocks", [1, 4])
def test_keys_and_values_are_dequantized_on_the_way(blocks: int) -> None:
    """With a scale per row, or per block of it, by one conversion to float32 and one to the type of the matrices."""
    desc = resolve(attention_of_quantized_caches(F16, blocks, queries=64))
    (kernel,) = of_network(desc, NVIDIA).kernels
    assert "cooperative attention" in kernel.label and "dequantize" in kernel.wgsl
    assert "round_to_half" not in kernel.wgsl and "i32_to_f32" not in kernel.wgsl
    (kernel,) = of_network(desc, APPLE).kernels
    assert "cooperative attention" in kernel.label and "round_to_half" in kernel.wgsl


def test_each_product_is_written_once_per_matrix() -> None:
    """128 rows by 32 keys, over 64 elements, and 128 rows by 64 columns, over 32 keys: 16 matrices of each subgroup."""
    (kernel,) = compile_operator(attention(8192), NVIDIA).kernels
    assert kernel.wgsl.count("subgroupMatrixMultiplyAccumulate(q") == 16
    assert kernel.wgsl.count("subgroupMatrixMultiplyAccumulate(w") == 16
    assert kernel.grid == (128, 1, 1)  # 64 tiles of rows of two heads


@pytest.mark.parametrize(
    ("size", "columns", "weights"),
    [
        (64, 4, 2),  # all columns, of half of the keys
        (128, 4, 4),  # half of the columns, of all keys
    ],
)
def test_subgroups_that_share_rows_share_keys_or_columns(
    size: int, columns: int, weights: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has sums and weights of two matrices of rows."""
    monkeypatch.setattr(cooperative_attention, "TILES", ((2, 2),))
    (kernel,) = compile_operator(attention(8192, size=size), replace(AMD, name="sharing")).kernels
    assert len(re.findall(r"var sum\d_\d", kernel.wgsl)) == 2 * columns
    assert len(re.findall(r"let w\d", kernel.wgsl)) == weights


def test_control_flow_is_uniform() -> None:
    """Around matrices: conditions are by the keys, and by a vote that all invocations read alike."""
    (kernel,) = compile_operator(attention(), AMD).kernels
    main = kernel.wgsl.partition("fn main")[2]
    conditions = re.findall(r"^ *(?:if|for) \(.*\{$", main, re.MULTILINE)
    assert [line.strip() for line in conditions] == [
        "for (var start = first; start < last; start += 32u) {",
        "if (highest > top + 8.0) {",
        "if (workgroupUniformLoad(&votes) != 0u && start > first) {",
    ]
    vote = main.partition("if (highest > top")[2].partition("}")[0]
    assert "Load" not in vote and "Barrier" not in vote


@pytest.mark.slow
def test_every_branch_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded_branches() as recorder:
        tiles = {8: (1, 1), 20: (2, 2), 24: (2, 2), 36: (1, 2), 40: (2, 1), 64: (2, 1), 128: (2, 2)}
        for size, tile in tiles.items():
            monkeypatch.setattr(cooperative_attention, "TILES", (tile,))
            for desc in (attention(100, 100, size), attention(100, 64, size), causal(size), masked(size)):
                for target in (AMD, NVIDIA, INTEL, *((APPLE,) if size in (20, 36) else ())):
                    compile_operator(desc, target.with_overrides(schedule="attention/cooperative"))
    assert [str(each) for each in recorder.unrendered() if each.file == "schedules/attention_cooperative"] == []
