"""Products that dequantize their columns in registers, or to memory."""

from __future__ import annotations

import dataclasses

import pytest

from dmlgpu import DataType, Graph
from dmlgpu.catalog.enums import MatrixTransform, QuantizationType
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.schedule.quantized import MAX_ROWS, MAX_ROWS_ON_CPU
from dmlgpu.compiler.schedule.steps.products import ScheduledContract
from dmlgpu.compiler.schedule.steps.quantized import (
    QuantizedSchedule,
    ScheduledDequantize,
    ScheduledPanels,
    ScheduledQuantizedProduct,
)
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.suites.graphs import example
from dmlgpu.ops import directml as functions

CPU = Target("cpu", features=frozenset({"subgroup", "shader-int64"}), subgroup_lanes=8)
GPU = Target("gpu", Profile.DISCRETE, features=frozenset({"subgroup"}), subgroup_lanes=32)
U4, I4, U8 = DataType.UINT4, DataType.INT4, DataType.UINT8


def steps(target, rows=1, **options):
    """Return the scheduled steps of a product whose columns are dequantized."""
    return compiled(target, rows, **options).schedule.steps


def compiled(
    target, rows=1, *, columns=64, inner=256, block=32, kind=U4, transposed=True, zero_point=None, owned=False
):
    """Compile a product whose columns are dequantized. ``owned`` columns are known at initialization."""
    sizes, blocks = (columns, inner), (columns, inner // block)
    if not transposed:
        sizes, blocks = sizes[::-1], blocks[::-1]
    graph = Graph()
    x, q, s = graph.input((rows, inner)), graph.input(sizes, kind, owned=owned), graph.input(blocks, owned=owned)
    parameters, quantization = (s,), QuantizationType.SCALE
    if zero_point is not None:
        zero = graph.constant([[zero_point]], kind).broadcast_to(blocks)
        parameters, quantization = (s, zero), QuantizationType.SCALE_ZERO_POINT
    weights = functions.dequantize(q, parameters, quantization_type=quantization)
    transform = MatrixTransform.TRANSPOSE if transposed else MatrixTransform.NONE
    product = functions.gemm(x, weights, trans_b=transform)
    return compile_network(resolve(graph.desc([product])), target)


@pytest.mark.parametrize("rows", [1, MAX_ROWS_ON_CPU, MAX_ROWS_ON_CPU + 1, MAX_ROWS])
def test_few_rows_dequantize_in_registers(rows):
    (kernel,) = steps(CPU, rows)
    assert isinstance(kernel, ScheduledQuantizedProduct) and kernel.schedule is QuantizedSchedule.COLUMNS
    assert kernel.rows <= MAX_ROWS_ON_CPU and kernel.space.inner == (8, 32)
    (kernel,) = steps(GPU, rows)
    assert kernel.schedule is QuantizedSchedule.LANES and (kernel.rows, kernel.across * kernel.down) == (rows, 64)


def test_many_rows_dequantize_to_memory_on_cpus_and_in_tiles_on_gpus():
    dequantized, *_, product = steps(CPU, MAX_ROWS + 1)
    assert isinstance(dequantized, ScheduledDequantize) and isinstance(product, ScheduledContract)
    assert (dequantized.output.lanes, product.space.inner) == (4, (256,))
    (product,) = steps(GPU, MAX_ROWS + 1)
    assert isinstance(product, ScheduledContract) and product.space.inner == (8, 32)


@pytest.mark.parametrize(
    ("rows", "own", "words"),
    [pytest.param(1, 1, 4, id="one row"), (4, 4, 2), (5, 5, 2), (12, 12, 1), (16, 8, 1), (64, 11, 1)],
)
def test_cpu_adapters_repack_owned_columns(rows, own, words):
    """Chunks of all lengths read one layout, of the size of the integers and their scales. An iteration of the loop
    has at most 768 multiplications of each lane; many rows multiply dequantized columns."""
    schedule = compiled(CPU, rows, columns=128, owned=True).schedule
    (kernel,) = schedule.steps
    assert isinstance(kernel, ScheduledPanels) and (kernel.tile.rows, kernel.words) == (own, words)
    assert kernel.dequantizes is (own > 4)
    assert (kernel.b.words.sizes, kernel.b.scale.sizes) == ((2, 8, 4, 4, 8, 1), (2, 8, 4, 8, 1))
    assert [step.output.distinct_bytes for step in schedule.initialization] == [128 * 256 // 2, 128 * 8 * 4]
    assert schedule.memory.persistent.size == 128 * (256 // 2 + 8 * 4)


def test_columns_that_do_not_fill_panels_of_a_workgroup_have_narrow_ones():
    (kernel,) = compiled(CPU, 1, columns=72, owned=True).schedule.steps
    assert (kernel.b.words.sizes, kernel.b.scale.sizes) == ((9, 8, 4, 4, 1, 1), (9, 8, 4, 1, 1))


@pytest.mark.parametrize(("features", "columns"), [(CPU.features, 2), (frozenset(), 4)], ids=["int64", "no int64"])
def test_lanes_read_adjacent_units_at_once(features, columns):
    """The first lane touches every cache line first: drivers load the others by instructions without prefetching."""
    target = dataclasses.replace(CPU, features=features)
    (kernel,) = compiled(target, 1, columns=128, owned=True).schedule.steps
    for tensor in (kernel.b.words, kernel.b.scale):
        *_, of_lane, across, _ = tensor.strides
        assert (tensor.lanes, of_lane, across) == (columns, 8, 1)


@pytest.mark.parametrize(
    ("target", "options"),
    [pytest.param(GPU, {}, id="on a GPU"), pytest.param(CPU, {"columns": 132}, id="columns that are no whole panels")],
)
def test_other_adapters_and_columns_have_no_panels(target, options):
    (kernel,) = compiled(target, **{"columns": 128, **options}, owned=True).schedule.steps
    assert isinstance(kernel, ScheduledQuantizedProduct)


def test_without_subgroups_panels_have_fewer_rows():
    (kernel,) = compiled(dataclasses.replace(CPU, features=frozenset()), 64, columns=128, owned=True).schedule.steps
    assert (kernel.sharing, kernel.tile.rows, kernel.words) == (1, 8, 1)


@pytest.mark.parametrize(("kind", "block", "words"), [(U4, 32, 4), (U4, 16, 2), (I4, 8, 1), (U8, 16, 4), (U8, 4, 1)])
def test_units_are_as_wide_as_blocks_allow(kind, block, words):
    (kernel,) = steps(CPU, block=block, kind=kind)
    assert (kernel.b.words_of_unit, kernel.b.words.lanes) == (words, 32 * words // kind.bits)


@pytest.mark.parametrize(("zero_point", "known", "is_centered"), [(None, 0, False), (8, 8, True), (3, 3, False)])
def test_zero_points_that_are_constants_are_in_the_text(zero_point, known, is_centered):
    (kernel,) = steps(CPU, zero_point=zero_point)
    assert (kernel.b.zero_point, kernel.b.known, kernel.b.is_centered) == (None, known, is_centered)


@pytest.mark.parametrize("target", [CPU, GPU], ids=lambda target: target.name)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"transposed": False}, id="words run across columns"),
        pytest.param({"block": 2, "kind": I4}, id="blocks smaller than a word"),
    ],
)
def test_other_columns_are_plain_operands(target, options):
    kernels = steps(target, **options)
    assert not [kernel for kernel in kernels if isinstance(kernel, ScheduledQuantizedProduct)]


def test_without_subgroups_invocations_read_rows_themselves():
    (kernel,) = steps(dataclasses.replace(CPU, features=frozenset()))
    assert (kernel.sharing, kernel.a.lanes) == (1, 4)
    (kernel,) = steps(dataclasses.replace(GPU, features=frozenset()))
    assert kernel.sharing == 1


def kernels(target, rows, *, is_added):
    """Return the kernels of a product with columns in panels, to which a tensor may be added."""
    graph = Graph()
    x, residual = graph.input((rows, 256)), graph.input((rows, 128))
    q, s = graph.input((128, 256), U4, owned=True), graph.input((128, 8), owned=True)
    weights = functions.dequantize(q, (s,), quantization_type=QuantizationType.SCALE)
    product = functions.gemm(x, weights, trans_b=MatrixTransform.TRANSPOSE)
    desc = graph.desc([product + residual if is_added else product])
    return compile_network(resolve(desc), target).program.kernels


def test_many_rows_that_vary_have_one_kernel_for_all_epilogues():
    (plain,) = kernels(CPU.varying, 32, is_added=False)
    product, added = kernels(CPU.varying, 32, is_added=True)
    assert product.wgsl == plain.wgsl and "panels" not in added.label


@pytest.mark.parametrize(("target", "rows"), [(CPU, 32), (CPU.varying, 1)])
def test_other_products_compute_epilogues_in_registers(target, rows):
    assert len(kernels(target, rows, is_added=True)) == 1


@pytest.mark.parametrize(("data_type", "bits"), [("float32", 64), ("float16", 32)])
def test_rotated_columns_are_stored_in_units_of_two(data_type, bits):
    """An invocation holds two adjacent columns and their partners, so that no word is stored in part."""
    target = dataclasses.replace(GPU, max_storage_buffers=16)
    compiled = compile_network(resolve(example(f"pattern-rotated_columns-{data_type}-plain").graph), target)
    kernels = [step for step in compiled.schedule.steps if isinstance(step, ScheduledQuantizedProduct)]
    assert [kernel.apart for kernel in kernels] == [1, 4]
    for kernel in kernels:
        assert (kernel.rows, kernel.columns, kernel.sums, kernel.space.columns) == (4, 2, 2, (48,))
        assert (kernel.starts, kernel.ends) == ((0, 32, 64), (32, 64, 96))
        assert [part.file for part in kernel.ranges] == ["", "attention/cached", "attention/cached"]
        assert [(part.output.lanes, part.output.unit_bits) for part in kernel.ranges] == [(2, bits)] * 3
        assert not any(part.atomic for part in kernel.ranges)
    parts = kernels[1].ranges
    assert [part.rows for part in parts] == [(0, 1), (0, 2), (0, 2)]
    assert [part.columns for part in parts] == [(2, 3, 4), (1, 3, 4), (1, 3)]
