"""Arenas of compiled graphs, by an independent checker: no live tensor is overwritten, and little memory is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmlgpu import DataType, Graph
from dmlgpu.catalog.enums import InterpolationMode, MatrixTransform
from dmlgpu.catalog.operator_desc import ScaleBias, Size2D
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.graph.passes import PASSES
from dmlgpu.compiler.plan import Allocation
from dmlgpu.compiler.schedule import memory
from dmlgpu.compiler.schedule.memory import Arena
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.suites.graph_patterns import PATTERNS
from dmlgpu.conformance.suites.graphs import example
from dmlgpu.ops import directml as f
from dmlgpu.tensors.tensor import Tensor
from tests.unit.compiler.graph.arena import compiled_pair, least_size, overwritten

CPU, GPU = Target("CPU", Profile.CPU), Target("GPU", Profile.DISCRETE)
MAX_LOST = 1.1
"""Maximum overhead relative to the live bytes."""


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_live_tensor_is_overwritten(pattern: str) -> None:
    data_type = PATTERNS[pattern][1][-1]
    graph = example(f"pattern-{pattern}-{data_type.name.lower()}-plain").graph
    assert_sound(graph, CPU, ())
    assert_sound(graph, GPU, PASSES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["graph-float32-60-s0", "graph-float16-60-s1", "graph-int32-60-s2"])
def test_random_graphs_overwrite_no_live_tensor(name: str) -> None:
    for target, disabled in ((CPU, ()), (GPU, ("views", "epilogues"))):
        assert_sound(example(name).graph, target, disabled)


@pytest.mark.slow
def test_large_graphs_overwrite_no_live_tensor() -> None:
    assert_sound(example("graph-int32-500-s0").graph, CPU, ("element-wise",))


def assert_sound(graph: GraphDesc, target: Target, disabled: tuple[str, ...]) -> None:
    program, twin = compiled_pair(graph, target, disabled)
    assert not list(overwritten(program, twin))
    assert least_size(twin) <= program.temporary_size <= twin.temporary_size


# ---- the checker sees faults


def _all_in_one_place(arena: Arena, lives: Mapping[Allocation, range]) -> Arena:
    return replace(arena, offsets=dict.fromkeys(arena.offsets, 0))


def _moved_by_half(arena: Arena, lives: Mapping[Allocation, range]) -> Arena:
    offsets = {each: offset // 512 * 256 for each, offset in arena.offsets.items()}
    return replace(arena, offsets=offsets)


def _too_small(arena: Arena, lives: Mapping[Allocation, range]) -> Arena:
    return replace(arena, size=arena.size - 256)


@pytest.mark.parametrize("fault", [_all_in_one_place, _moved_by_half, _too_small])
def test_the_checker_detects_misplaced_tensors(fault: Callable[..., Arena], monkeypatch: pytest.MonkeyPatch) -> None:
    place = memory.smallest_arena
    monkeypatch.setattr(memory, "smallest_arena", lambda sizes, lives: fault(place(sizes, lives), lives))
    program, twin = compiled_pair(example("pattern-updates_in_place-int32-plain").graph, CPU)
    assert list(overwritten(program, twin))


@pytest.mark.parametrize("end", ["start", "stop"])
def test_the_checker_detects_lifetimes_that_are_too_short(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = memory.smallest_arena

    def shorter(sizes: Any, lives: Mapping[Allocation, range]) -> Arena:
        """Shorten lifetimes: memory is freed before its last reader, or allocated only after it was written."""
        cut = {"start": lambda life: life[1:] or life, "stop": lambda life: life[:-1] or life}[end]
        return place(sizes, {each: cut(life) for each, life in lives.items()})

    monkeypatch.setattr(memory, "smallest_arena", shorter)
    program, twin = compiled_pair(example("pattern-updates_in_place-int32-plain").graph, CPU)
    assert list(overwritten(program, twin))


# ---- how much memory is lost


def _convolved(x: Tensor, channels: int, stride: int = 1) -> Tensor:
    filters = x.graph.input((channels, x.sizes[1], 3, 3))
    x = f.convolution(x, filters, strides=(stride, stride), start_padding=(1, 1), end_padding=(1, 1))
    return f.activation_relu(x)


def residual_network(x: Tensor) -> Tensor:
    x = _convolved(x, 8)
    for channels, stride in ((8, 1), (16, 2), (16, 1), (32, 2), (32, 1)):
        inner = _convolved(_convolved(x, channels, stride), channels)
        skipped = x if x.sizes == inner.sizes else _convolved(x, channels, stride)
        x = f.activation_relu(f.element_wise_add(inner, skipped))
    return x


def branched_network(x: Tensor) -> Tensor:
    for channels in (4, 6, 10):
        ways = [_convolved(x, channels), _convolved(_convolved(x, 2 * channels), channels)]
        ways.append(_convolved(_convolved(_convolved(x, channels), channels + 3), 2 * channels))
        ways.append(f.max_pooling(x, window_size=(3, 3), strides=(1, 1), start_padding=(1, 1), end_padding=(1, 1)))
        x = f.join(ways, axis=1)
    return x


def down_and_up(x: Tensor) -> Tensor:
    skipped = []
    for channels in (8, 16, 32):
        skipped.append(x := _convolved(_convolved(x, channels), channels))
        x = f.max_pooling(x, window_size=(2, 2), strides=(2, 2))
    x = _convolved(x, 64)
    for before in reversed(skipped):
        mode = InterpolationMode.NEAREST_NEIGHBOR
        x = _convolved(f.upsample_2d(x, scale_size=Size2D(2, 2), interpolation_mode=mode), before.sizes[1])
        x = _convolved(_convolved(f.join([x, before], axis=1), before.sizes[1]), before.sizes[1])
    return x


def transformer(x: Tensor) -> Tensor:
    x = x.reinterpret((1, 2, 96, 16))
    for _ in range(3):
        inner = f.mean_variance_normalization2(x, axes=(3,), epsilon=1e-3)
        query, key, value = (f.gemm(inner, x.graph.input((1, 2, 16, 16))) for _ in range(3))
        scores = f.gemm(query, key, trans_b=MatrixTransform.TRANSPOSE)
        scores = f.element_wise_identity(scores, scale_bias=ScaleBias(0.25, 0.0))
        x = f.element_wise_add(x, f.gemm(f.activation_softmax1(scores, axes=(3,)), value))
        inner = f.gemm(f.mean_variance_normalization2(x, axes=(3,), epsilon=1e-3), x.graph.input((1, 2, 16, 64)))
        x = f.element_wise_add(x, f.gemm(f.activation_gelu(inner), x.graph.input((1, 2, 64, 16))))
    return x


NETWORKS = (residual_network, branched_network, down_and_up, transformer)


@pytest.mark.slow
@pytest.mark.parametrize("disabled", [(), PASSES], ids=["fused", "no pass"])
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_arenas_are_hardly_larger_than_their_live_bytes(
    network: Callable[[Tensor], Tensor], disabled: tuple[str, ...]
) -> None:
    graph = Graph()
    output = network(graph.input((1, 3, 32, 32), DataType.FLOAT32))
    program, twin = compiled_pair(graph.desc([output]), CPU, disabled)
    assert not list(overwritten(program, twin))
    assert program.temporary_size <= MAX_LOST * least_size(twin)


def test_random_graphs_lose_little_memory() -> None:
    sizes = [(program.temporary_size, least_size(twin)) for program, twin in map(_unfused, range(4))]
    assert all(size <= MAX_LOST * least for size, least in sizes)
    assert np.mean([size / least for size, least in sizes]) < 1.05


def _unfused(seed: int) -> Any:
    return compiled_pair(example(f"graph-int32-100-s{seed}").graph, CPU, PASSES)
