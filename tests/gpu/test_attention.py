"""Attention in the tiles of every profile, at and near their sizes, in parts, and on a cache in the outputs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmlgpu import Device, descs
from dmlgpu.catalog import operator
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.enums import MultiheadAttentionMaskType as MaskType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.schedule.attention import ATTENTION_SCHEDULES
from dmlgpu.compiler.schedule.steps.products import AttentionTile, ScheduledAttend
from dmlgpu.compiler.target import AdapterInfo, Profile, Target
from dmlgpu.runtime.binding import BufferBinding
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc
from tests.schedules import steps_of

F32, F16 = DataType.FLOAT32, DataType.FLOAT16
PROFILES = [Profile.CPU, Profile.DISCRETE]
TENSORS = [field.python_name for field in operator("MULTIHEAD_ATTENTION1").tensor_fields]

Shape = tuple[int, int, int, int, int, int, DataType]

# batch, queries, keys, heads, heads of keys, size, type: at tiles' sizes, one off, of few rows, in parts
SHAPES: dict[str, Shape] = {
    "whole tiles": (1, 64, 128, 2, 2, 64, F32),
    "near misses": (2, 33, 65, 3, 1, 17, F32),
    "halves": (1, 40, 70, 2, 2, 36, F16),
    "one query": (1, 1, 2500, 4, 2, 16, F32),
    "wide heads": (1, 9, 20, 1, 1, 300, F32),
    "one query of shared heads": (2, 1, 1101, 2, 2, 64, F32),
    "four rows of shared heads": (1, 2, 331, 4, 2, 96, F32),
    "three rows of shared float16": (1, 3, 1501, 1, 1, 32, F16),
    "few rows": (1, 9, 700, 2, 2, 32, F32),
    "one query of float16": (1, 1, 2500, 3, 3, 40, F16),
    "one query in many parts": (1, 1, 4001, 1, 1, 128, F32),
    "eight rows of shared heads": (1, 1, 600, 8, 1, 64, F32),
    "six rows of shared float16": (2, 3, 520, 4, 2, 48, F16),
    "little work": (1, 5, 20, 2, 2, 16, F32),
    "little work of wide heads": (1, 5, 20, 2, 2, 96, F32),
    "one query of little work": (1, 1, 19, 3, 3, 12, F32),
}


def attention(*shape: Any, **fields: Any) -> descs.MultiheadAttention1:
    batch, queries, keys, heads, shared, size, data_type = shape
    tensors: dict[str, Any] = dict.fromkeys(TENSORS)
    tensors |= {
        "query_tensor": TensorDesc(data_type, (batch, queries, heads * size)),
        "key_tensor": TensorDesc(data_type, (batch, keys, shared * size)),
        "value_tensor": TensorDesc(data_type, (batch, keys, shared * size)),
        "output_tensor": TensorDesc(data_type, (batch, queries, heads * size)),
    }
    attributes = {"scale": 1 / math.sqrt(size), "mask_filter_value": -10000.0, "mask_type": MaskType.NONE}
    counts = {"query_head_count": heads, "key_value_head_count": shared}
    return descs.MultiheadAttention1(**tensors | attributes | counts | fields)


def contents(desc: descs.MultiheadAttention1) -> list[Any]:
    rng = np.random.default_rng(1)
    tensors = (slot.tensor for slot in desc.inputs if slot.tensor is not None)
    return [rng.standard_normal(tensor.sizes).astype(tensor.data_type.numpy) for tensor in tensors]


def formula(desc: descs.MultiheadAttention1, query: Any, keys: Any, values: Any) -> Any:
    """softmax(query x keys^T * scale) x values, for each head."""
    heads, shared = desc.query_head_count, desc.key_value_head_count

    def by_head(array: Any, count: int) -> Any:
        return array.astype(np.float64).reshape(*array.shape[:2], count, -1).swapaxes(1, 2)

    q, k, v = by_head(query, heads), *(by_head(array, shared).repeat(heads // shared, 1) for array in (keys, values))
    weights = np.exp(q @ k.swapaxes(-1, -2) * desc.scale)
    result = (weights / weights.sum(-1, keepdims=True)) @ v
    return result.swapaxes(1, 2).reshape(desc.output_tensor.sizes)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", SHAPES)
def test_attention_by_every_tile(backend: GpuBackend, name: str, profile: Profile) -> None:
    desc = attention(*SHAPES[name])
    arrays = contents(desc)
    (got,) = run_desc(backend, desc, arrays, replace(backend.target.exact, profile=profile))
    error = 2e-3 if desc.output_tensor.data_type is F16 else 2e-6
    np.testing.assert_allclose(got.astype(np.float64), formula(desc, *arrays), rtol=error, atol=error)


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("schedule", [each.name for each in ATTENTION_SCHEDULES if each.name != "cooperative"])
def test_attention_by_a_requested_schedule(backend: GpuBackend, schedule: str, profile: Profile) -> None:
    """Also those of the other profile."""
    desc = attention(1, 4, 300, 2, 2, 64, F32)
    arrays = contents(desc)
    target = replace(backend.target.exact, profile=profile).with_overrides(schedule=f"attention/{schedule}")
    if schedule in ("rows", "lanes") and not target.has("subgroup"):
        pytest.skip("invocations cannot share keys")
    (got,) = run_desc(backend, desc, arrays, target)
    np.testing.assert_allclose(got.astype(np.float64), formula(desc, *arrays), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", SHAPES)
def test_attention_without_sharing_between_invocations(backend: GpuBackend, name: str) -> None:
    desc = attention(*SHAPES[name])
    arrays = contents(desc)
    target = replace(backend.target.exact, profile=Profile.CPU)
    target = replace(target, features=frozenset(target.features) - {"subgroup"})
    (got,) = run_desc(backend, desc, arrays, target)
    error = 2e-3 if desc.output_tensor.data_type is F16 else 2e-6
    np.testing.assert_allclose(got.astype(np.float64), formula(desc, *arrays), rtol=error, atol=error)


@pytest.mark.parametrize("profile", PROFILES)
def test_one_query_takes_its_keys_in_parts(profile: Profile) -> None:
    steps = steps_of(attention(*SHAPES["one query"]), Target("any", profile))
    assert [step.parts > 1 for step in steps if isinstance(step, ScheduledAttend)] == [True]


def cpu_tile(name: str, *features: str, lanes: int = 4) -> AttentionTile:
    target = Target("any", Profile.CPU, features=frozenset(features), subgroup_lanes=lanes)
    steps = steps_of(attention(*SHAPES[name]), target)
    return next(step.tile for step in steps if isinstance(step, ScheduledAttend))


def test_cpus_take_rows_one_by_one_if_they_hold_a_head() -> None:
    assert cpu_tile("whole tiles", "subgroup") == AttentionTile(4, 1, 16, 1, 8, 16, sharing=4)
    assert cpu_tile("few rows", "subgroup", lanes=8) == AttentionTile(2, 1, 8, 1, 8, 8, sharing=8)
    assert cpu_tile("eight rows of shared heads", "subgroup", lanes=16) == AttentionTile(1, 1, 16, 1, 8, 16, sharing=8)
    assert cpu_tile("little work", "subgroup") == AttentionTile(1, 1, 4, 1, 8, 4, sharing=4)
    assert not cpu_tile("little work of wide heads", "subgroup").by_rows  # whose text would be long
    assert not cpu_tile("whole tiles").by_rows  # nothing can be passed on
    assert not cpu_tile("near misses", "subgroup").by_rows  # heads of 17


def test_lanes_of_cpus_share_the_keys_of_few_rows() -> None:
    assert cpu_tile("one query of shared heads", "subgroup", lanes=8) == AttentionTile(1, 1, 2, 8, 1, 2, keys=2)
    assert cpu_tile("four rows of shared heads", "subgroup", lanes=16) == AttentionTile(4, 1, 3, 8, 1, 3, keys=1)
    assert cpu_tile("one query", "subgroup") == AttentionTile(2, 1, 1, 4, 1, 1, keys=4)
    assert cpu_tile("one query of little work", "subgroup") == AttentionTile(1, 1, 1, 4, 1, 1, keys=1)
    assert not cpu_tile("one query of shared heads").keys  # nothing adds up scores
    assert not cpu_tile("eight rows of shared heads", "subgroup").keys


def test_attention_with_written_out_steps(backend: GpuBackend) -> None:
    """Heads of five slabs, and keys that no block divides; compiling takes software rasterizers a long time."""
    desc = attention(1, 20, 1500, 2, 1, 72, F32)
    arrays = contents(desc)
    target = replace(backend.target.exact, profile=Profile.DISCRETE)
    assert next(step.tile.written_out for step in steps_of(desc, target) if isinstance(step, ScheduledAttend))
    (got,) = run_desc(backend, desc, arrays, target)
    np.testing.assert_allclose(got.astype(np.float64), formula(desc, *arrays), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", ["whole tiles", "one query", "four rows of shared heads"])
def test_attention_without_subgroups(backend: GpuBackend, name: str) -> None:
    desc = attention(*SHAPES[name])
    arrays = contents(desc)
    target = replace(backend.target.exact, profile=Profile.DISCRETE)
    target = replace(target, features=frozenset(target.features) - {"subgroup"})
    (got,) = run_desc(backend, desc, arrays, target)
    np.testing.assert_allclose(got.astype(np.float64), formula(desc, *arrays), rtol=2e-6, atol=2e-6)


def test_attention_of_few_rows_with_sizes_as_parameters(backend: GpuBackend) -> None:
    desc = attention(*SHAPES["one query of shared heads"])
    arrays = contents(desc)
    (result,) = run_desc(backend, desc, arrays, replace(backend.target.exact, profile=Profile.DISCRETE).general)
    np.testing.assert_allclose(result.astype(np.float64), formula(desc, *arrays), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", ["near misses", "halves"])
def test_attention_in_little_workgroup_memory(backend: GpuBackend, name: str) -> None:
    desc = attention(*SHAPES[name])
    arrays = contents(desc)
    target = replace(backend.target.exact, profile=Profile.DISCRETE, max_workgroup_storage=10240)
    assert next(step.tile.down for step in steps_of(desc, target) if isinstance(step, ScheduledAttend)) == 4
    (got,) = run_desc(backend, desc, arrays, target)
    error = 2e-3 if desc.output_tensor.data_type is F16 else 2e-6
    np.testing.assert_allclose(got.astype(np.float64), formula(desc, *arrays), rtol=error, atol=error)


def test_few_rows_share_heads_of_whole_units_on_cpus() -> None:
    def dots(name: str, profile: Profile) -> int:
        steps = steps_of(attention(*SHAPES[name]), Target("any", profile))
        return next(step.tile.dots for step in steps if isinstance(step, ScheduledAttend))

    assert dots("four rows of shared heads", Profile.CPU) == 3
    assert dots("three rows of shared float16", Profile.CPU) == 1
    assert not dots("one query", Profile.CPU)  # heads of 16
    assert not dots("whole tiles", Profile.CPU)
    assert not dots("one query of shared heads", Profile.DISCRETE)


def test_many_keys_stay_below_the_limit_on_iterations(backend: GpuBackend) -> None:
    """A value that counts: all scores are 0, so that each row is the mean of all values."""
    desc = attention(1, 2, 70_001, 1, 1, 4, F32)
    query, keys = np.zeros((1, 2, 4), np.float32), np.ones((1, 70_001, 4), np.float32)
    values = np.repeat(np.arange(70_001, dtype=np.float32) % 7, 4).reshape(1, 70_001, 4)
    (got,) = run_desc(backend, desc, [query, keys, values], backend.target.exact)
    np.testing.assert_allclose(got, np.full((1, 2, 4), values[0, :, 0].mean(dtype=np.float64)), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("keys", "size"), [(5, 16), (1100, 16), (530, 64)])
def test_filters_of_minus_infinity(backend: GpuBackend, profile: Profile, keys: int, size: int) -> None:
    """Scores are replaced by the filter, or it is added to them, as masks are documented: no key left is NaN."""
    lengths, bools = np.array([[0, 3]], np.int32), np.zeros((2, 2, 2, keys), np.int32)
    bools[0, 0, 1, 2] = bools[1, :, 0, -2:] = 1
    inside = np.broadcast_to(np.arange(keys) < lengths.reshape(2, 1, 1, 1), bools.shape)
    for kind, mask, seen in ((MaskType.KEY_SEQUENCE_LENGTH, lengths, inside), (MaskType.BOOLEAN, bools, bools != 0)):
        tensor = TensorDesc(DataType.INT32, mask.shape)
        desc = attention(2, 2, keys, 2, 2, size, F32, mask_tensor=tensor, mask_type=kind, mask_filter_value=-math.inf)
        query, key, value, _ = contents(desc)
        (got,) = run_desc(backend, desc, [query, key, value, mask], replace(backend.target.exact, profile=profile))
        q, k, v = (x.astype(np.float64).reshape(2, -1, 2, size).swapaxes(1, 2) for x in (query, key, value))
        weights = np.where(seen, np.exp(q @ k.swapaxes(2, 3) * desc.scale), 0)
        with np.errstate(invalid="ignore"):
            expected = (weights / weights.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(got.shape)
        assert np.isnan(expected).any()
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_temporary_tensors_of_4096_queries_and_keys_take_a_few_mebibytes(backend: GpuBackend) -> None:
    program = compiler.compile_operator(attention(1, 4096, 4096, 1, 1, 64, F32), backend.target)
    assert program.temporary_size <= 4 << 20


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    ("capacity", "size", "queries", "past"),
    [
        (6, 4, 2, [2, 0]),
        (6, 4, 1, [2, 0]),
        (300, 64, 1, [211, 0]),
        (300, 64, 40, [211, 0]),
        (3000, 64, 3, [2900, 0]),
    ],
)
def test_a_cache_that_the_outputs_hold_keeps_its_past_rows(  # noqa: PLR0917 - pytest passes all by name
    adapter: AdapterInfo, capacity: int, size: int, queries: int, past: list[int], profile: Profile
) -> None:
    """Some and no past rows; elements after the new rows are NaN and ignored."""
    sizes = (2, 1, capacity, size)
    shape: Shape = (2, queries, queries, 1, 1, size, F32)
    desc = attention(
        *shape,
        past_sequence_lengths_tensor=TensorDesc(DataType.INT32, (2,)),
        output_present_key_tensor=TensorDesc(F32, sizes),
        output_present_value_tensor=TensorDesc(F32, sizes),
    )
    rng = np.random.default_rng(2)
    before = [rng.standard_normal(sizes).astype(np.float32) for _ in range(2)]
    for cache in before:
        for sequence, length in enumerate(past):
            cache[sequence, :, length:] = np.nan
    new = [rng.standard_normal((2, queries, size)).astype(np.float32) for _ in range(3)]
    output, *caches = _run_on_cache(adapter, profile, desc, [*new, np.array(past, np.int32)], before)
    for sequence, length in enumerate(past):
        for cache, old, rows in zip(caches, before, new[1:], strict=True):
            np.testing.assert_array_equal(cache[sequence, 0, :length], old[sequence, 0, :length])
            np.testing.assert_array_equal(cache[sequence, 0, length : length + queries], rows[sequence])
            np.testing.assert_array_equal(cache[sequence, 0, length + queries :], old[sequence, 0, length + queries :])
        for row in range(queries):
            seen = [cache[sequence, 0, : length + row + 1].astype(np.float64) for cache in caches]
            weights = np.exp(seen[0] @ new[0][sequence, row] * desc.scale)
            want = weights @ seen[1] / weights.sum()
            np.testing.assert_allclose(output[sequence, row], want, rtol=2e-6, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 17])
@pytest.mark.parametrize("profile", PROFILES)
def test_tiles_end_at_the_last_key_that_their_rows_see(adapter: AdapterInfo, size: int, profile: Profile) -> None:
    """Keys and values after them are NaN, which a weight of 0 would not hide."""
    sizes = (1, 1, 128, size)
    desc = attention(
        *(1, 128, 128, 1, 1, size, F32),
        past_sequence_lengths_tensor=TensorDesc(DataType.INT32, (1,)),
        output_present_key_tensor=TensorDesc(F32, sizes),
        output_present_value_tensor=TensorDesc(F32, sizes),
    )
    rng = np.random.default_rng(3)
    query, key, value = (rng.standard_normal((1, 128, size)).astype(np.float32) for _ in range(3))
    key[:, 64:] = value[:, 64:] = np.nan
    before = [np.zeros(sizes, np.float32)] * 2
    output, *_ = _run_on_cache(adapter, profile, desc, [query, key, value, np.zeros(1, np.int32)], before)
    assert np.isfinite(output[0, :64]).all() and np.isnan(output[0, 64:]).all()


def _run_on_cache(
    adapter: AdapterInfo, profile: Profile, desc: descs.MultiheadAttention1, arrays: list[Any], before: list[Any]
) -> list[Any]:
    """All outputs, the present ones starting with these contents."""
    device = Device(adapter)
    assert isinstance(device.backend, GpuBackend)
    device.backend.target = replace(device.backend.target, profile=profile)
    compiled = device.compile_operator(device.create_operator(desc))
    remaining = iter(arrays)
    inputs = [None if slot.tensor is None else _buffer(device, slot.tensor, next(remaining)) for slot in desc.inputs]
    output = device.create_buffer(desc.output_tensor.byte_size)
    tensors = [slot.tensor for slot in desc.outputs if slot.tensor is not None]
    outputs = [output, *(_buffer(device, t, a) for t, a in zip(tensors[1:], before, strict=True))]
    table = device.create_binding_table(compiled)
    table.bind_inputs([None if buffer is None else BufferBinding(buffer) for buffer in inputs])
    table.bind_outputs([BufferBinding(buffer) for buffer in outputs])
    size = compiled.binding_properties.temporary_resource_size
    table.bind_temporary_resource(device.create_buffer(size) if size else None)
    initializer = device.create_operator_initializer([compiled])
    commands, recorder = device.create_command_list(), device.create_command_recorder()
    recorder.record_dispatch(commands, initializer, device.create_binding_table(initializer))
    recorder.record_dispatch(commands, compiled, table)
    commands.close()
    device.queue.execute([commands])
    results = [tensor.decode(buffer.read()) for tensor, buffer in zip(tensors, outputs, strict=True)]
    device.remove()
    return results


def _buffer(device: Device, tensor: TensorDesc, array: Any) -> Any:
    buffer = device.create_buffer(tensor.byte_size)
    buffer.write(tensor.encode(array))
    return buffer
