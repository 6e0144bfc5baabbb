"""Products of quantized rows and columns that multiply integers, and their stored rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dmlgpu import DataType, Graph
from dmlgpu import directmlx as dml
from dmlgpu.catalog.enums import MatrixTransform, QuantizationType, ReduceFunction
from dmlgpu.compiler.graph.compiler import CompiledGraph, compile_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.schedule.quantized import MAX_ROWS
from dmlgpu.compiler.schedule.steps.base import AnyScheduled
from dmlgpu.compiler.schedule.steps.packed_products import ScheduledBlockContract
from dmlgpu.compiler.schedule.steps.products import ScheduledContract
from dmlgpu.compiler.schedule.steps.quantized import QuantizedRows, ScheduledQuantizedProduct
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.ops import directml as functions
from dmlgpu.tensors.tensor import Tensor
from tests.kernel_sources import with_values
from tests.unit.runtime.wgpu.test_unchecked_kernels import IN_BOUNDS, indices

CPU = Target("cpu", features=frozenset({"subgroup"}), subgroup_lanes=8)
GPU = Target("gpu", Profile.DISCRETE, features=frozenset({"subgroup"}), subgroup_lanes=32)
U4, I8, U8 = DataType.UINT4, DataType.INT8, DataType.UINT8


def weights_of(graph: Graph, columns: int, inner: int, block: int, kind: DataType = U4) -> Tensor:
    """Return a quantized matrix {columns, inner}, dequantized."""
    codes, scales = graph.input((columns, inner), kind), graph.input((columns, inner // block))
    return functions.dequantize(codes, (scales,), quantization_type=QuantizationType.SCALE)


def rows_of(x: Tensor, block: int, kind: DataType = I8, zero_point: Tensor | None = None) -> Tensor:
    """Return rows {rows, inner} that are quantized by blocks, and dequantized."""
    rows, inner = x.sizes
    parts = x.reinterpret((rows, inner // block, block))
    largest = dml.reduce(dml.abs(parts), ReduceFunction.MAX, axes=(2,))
    scale = (largest * (1 / 127)).broadcast_to(parts.sizes)
    zero = None if zero_point is None else zero_point.broadcast_to(parts.sizes)
    codes = functions.element_wise_quantize_linear(parts, scale, zero, output_type=kind)
    return functions.element_wise_dequantize_linear(codes, scale, zero).reinterpret((rows, inner))


def multiplied(rows: Tensor, weights: Tensor) -> Tensor:
    return functions.gemm(rows, weights, trans_b=MatrixTransform.TRANSPOSE)


def compiled(target: Target, graph: Graph, *outputs: Tensor, **options: Any) -> CompiledGraph:
    return compile_network(resolve(graph.desc(list(outputs))), target, **options)


def compiled_product(
    target: Target, rows: int, *, columns: int = 128, inner: int = 512, block: int = 32
) -> CompiledGraph:
    """Return a product of quantized rows and columns, compiled."""
    graph = Graph()
    rounded = rows_of(graph.input((rows, inner)), block)
    return compiled(target, graph, multiplied(rounded, weights_of(graph, columns, inner, block)))


def product(target: Target, rows: int, **sizes: int) -> AnyScheduled:
    """Return the kernel of a product of quantized rows and columns."""
    steps = compiled_product(target, rows, **sizes).schedule.steps
    return next(step for step in steps if isinstance(step, ScheduledQuantizedProduct | ScheduledContract))


def has_integers(kernel: AnyScheduled) -> bool:
    of_few_rows = isinstance(kernel, ScheduledQuantizedProduct) and isinstance(kernel.a, QuantizedRows)
    return of_few_rows or isinstance(kernel, ScheduledBlockContract)


@pytest.mark.parametrize("profile", [Profile.DISCRETE, Profile.INTEGRATED])
def test_gpus_multiply_integers(profile: Profile) -> None:
    target = dataclasses.replace(GPU, profile=profile)
    few = product(target, MAX_ROWS)
    assert isinstance(few, ScheduledQuantizedProduct) and isinstance(few.a, QuantizedRows)
    assert (few.a.words.lanes, few.b.words.lanes) == (16, 32)
    many = product(target, 2 * MAX_ROWS)
    assert isinstance(many, ScheduledBlockContract) and many.block == 8


def test_other_adapters_multiply_floats() -> None:
    without = dataclasses.replace(GPU, multiplies_words=False)
    for target in (CPU, without):
        assert not any(has_integers(product(target, rows)) for rows in (1, 2 * MAX_ROWS))


@pytest.mark.parametrize(
    ("block", "depth"),
    [
        pytest.param(16, 4, id="a block is a slab"),
        pytest.param(32, 8, id="a block is a larger slab"),
        pytest.param(128, 16, id="slabs divide blocks in pairs"),
        pytest.param(96, 4, id="the depth follows from the block"),
    ],
)
def test_slabs_end_with_blocks(block: int, depth: int) -> None:
    kernel = product(GPU, 64, inner=32 * block, block=block)
    assert isinstance(kernel, ScheduledBlockContract)
    assert kernel.tile.depth == depth and kernel.tile.rows * kernel.tile.units <= 8


def test_blocks_that_no_slabs_divide_are_multiplied_as_floats() -> None:
    assert not has_integers(product(GPU, 64, inner=40 * 32, block=40))
    assert has_integers(product(GPU, 1, inner=40 * 32, block=40))


def test_rows_are_stored_once_for_several_products() -> None:
    graph = Graph()
    rounded = rows_of(graph.input((1, 512)), 32)
    products = [multiplied(rounded, weights_of(graph, 128, 512, 32)) for _ in range(2)]
    result = compiled(GPU, graph, *products)
    first, second = (step for step in result.schedule.steps if has_integers(step))
    assert first.a == second.a and len(result.schedule.steps) == 4
    (note,) = (note for note in result.notes if note.pass_name == "integers")
    assert note.text.startswith("stored as INT8 for ")


@pytest.mark.parametrize(
    "reader",
    [
        pytest.param(lambda graph, rounded: rounded, id="an output"),
        pytest.param(lambda graph, rounded: multiplied(rounded, graph.input((16, 512))), id="a product of floats"),
        pytest.param(lambda graph, rounded: dml.reduce(rounded, ReduceFunction.SUM, axes=(1,)), id="another step"),
    ],
)
def test_rows_with_other_readers_stay_floats(reader: Any) -> None:
    graph = Graph()
    rounded = rows_of(graph.input((1, 512)), 32)
    outputs = multiplied(rounded, weights_of(graph, 128, 512, 32)), reader(graph, rounded)
    assert not any(has_integers(step) for step in compiled(GPU, graph, *outputs).schedule.steps)


def test_rows_with_zero_points_stay_floats() -> None:
    graph = Graph()
    rounded = rows_of(graph.input((1, 512)), 32, U8, graph.input((1, 1, 1), U8))
    result = compiled(GPU, graph, multiplied(rounded, weights_of(graph, 128, 512, 32)))
    assert not any(has_integers(step) for step in result.schedule.steps)


@pytest.mark.parametrize(("rows", "block"), [(1, 32), (3, 32), (64, 16), (200, 32), (64, 128)])
def test_every_index_of_an_array_is_known_to_be_in_bounds(rows: int, block: int) -> None:
    graph = Graph()
    output = multiplied(rows_of(graph.input((rows, 2048)), block), weights_of(graph, 300, 2048, block))
    kernels = compiled(GPU, graph, output).program.kernels
    used = {index for kernel in kernels if "dot4I8Packed" in kernel.wgsl for index in indices(with_values(kernel))}
    assert [index for index in used if index[1] not in IN_BOUNDS.get(index[0], {})] == []


def test_the_pass_can_be_disabled() -> None:
    graph = Graph()
    output = multiplied(rows_of(graph.input((1, 512)), 32), weights_of(graph, 128, 512, 32))
    result = compiled(GPU, graph, output, disabled=("integers",))
    assert not any(has_integers(step) for step in result.schedule.steps)
