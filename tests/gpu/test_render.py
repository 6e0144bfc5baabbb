"""Rendered kernels on every adapter: fused trees, edges, words, reductions over virtual sources, walks,
packing, transposes, indices, compile errors."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import NotSupported, ShaderError
from dmlgpu.compiler.plan import Map, Plan, PlanTensor, Reduce, Reduction, Role, View, apply, constants
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.schedule.launch import choose_walk
from dmlgpu.compiler.schedule.steps.maps import ScheduledMap, ScheduledWordRows
from dmlgpu.compiler.schedule.steps.reductions import ReduceSchedule, ScheduledReduce
from dmlgpu.compiler.target import AdapterInfo, Profile, Target
from dmlgpu.compiler.wgsl import templates
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.layouts import strides as draw_strides
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.fusion import (
    POISON,
    Inputs,
    Node,
    assert_same,
    cast,
    compiled,
    gather,
    gather_body,
    identity,
    map_plan,
    multiply,
    run_map,
    run_plan,
    scale_bias,
    slice1,
    subtract,
)

F32, F16, F64 = DataType.FLOAT32, DataType.FLOAT16, DataType.FLOAT64
I8, I16, I32, I64 = DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64
U8, U16, U32, U64 = DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64
ARITHMETIC = (F32, F16, I8, I16, I32, I64, U8, U16, U32, U64)
WIDE_FEATURES = ("shader-int64", "shader-f64", "immediates")


@pytest.fixture(scope="session")
def plain(adapter: AdapterInfo) -> Iterator[GpuBackend]:
    """An executor without 64-bit arithmetic and without immediates."""
    backend = GpuBackend(adapter, disabled_features=WIDE_FEATURES)
    yield backend
    backend.close()


@pytest.fixture(scope="session", params=["all-features", "plain"])
def either(request: pytest.FixtureRequest, backend: GpuBackend, plain: GpuBackend) -> GpuBackend:
    """An executor with all of the adapter's features, and one without those that dmlgpu can do without."""
    return backend if request.param == "all-features" else plain


def numbers(rng: np.random.Generator, data_type: DataType, sizes: tuple[int, ...]) -> Any:
    """Integers of the whole range; floats whose sums and products are exact in float32 and not in float16."""
    if data_type.is_float:
        return (rng.integers(-1000, 1001, sizes) / 8).astype(data_type.numpy)
    limits = np.iinfo(data_type.numpy)
    return rng.integers(limits.min, limits.max, sizes, data_type.numpy, endpoint=True)


def add(inputs: Inputs, rng: np.random.Generator, data_type: DataType, sizes: tuple[int, ...]) -> Node:
    """An input tensor of numbers in a random layout."""
    layout = list(TensorLayout)[rng.integers(len(TensorLayout))] if rng.random() < 0.5 else TensorLayout.PACKED
    return inputs.add(numbers(rng, data_type, sizes), draw_strides(sizes, layout, rng))


def add_indices(
    inputs: Inputs, rng: np.random.Generator, lead: tuple[int, ...], extents: tuple[int, ...], data_type: DataType = I64
) -> Node:
    """An index tensor of coordinate tuples, each coordinate negative half of the time."""
    indices = np.stack([rng.integers(-extent, extent, lead) for extent in extents], -1).astype(data_type.numpy)
    return inputs.add(indices, view=View.INDEX)


# ---- fused trees


def random_slice(rng: np.random.Generator, node: Node) -> Node:
    start, step, sizes = [], [], []
    for size in node.value.shape:
        s = int(rng.choice([1, 1, 1, -1, 2]))
        taken = int(rng.integers(1, (size - 1) // abs(s) + 2)) if rng.random() < 0.5 else (size - 1) // abs(s) + 1
        room = size - 1 - (taken - 1) * abs(s)
        first = int(rng.integers(0, room + 1)) // (4 if rng.random() < 0.5 else 1)
        start.append(first if s > 0 else first + (taken - 1) * -s)
        step.append(s)
        sizes.append(taken)
    return slice1(node, start, step, sizes)


def random_gather(rng: np.random.Generator, inputs: Inputs, node: Node) -> Node:
    rank = node.value.ndim
    batch = int(rng.integers(0, 2)) if rank > 1 else 0
    length = int(rng.integers(1, rank - batch + 1))
    lead = node.value.shape[:batch] + tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 3)))
    extents = node.value.shape[batch : batch + length]
    return gather(node, add_indices(inputs, rng, lead, extents, (I32, I64)[rng.integers(2)]), batch)


def random_tree(rng: np.random.Generator, inputs: Inputs, data_type: DataType, depth: int) -> Node:
    """A tree whose inner nodes are all kinds of bodies."""
    if depth == 0:
        inner = int(rng.choice([1, 3, 4, 8, 12, 16, 32]))
        sizes = tuple(int(n) for n in rng.integers(1, 5, rng.integers(0, 3)))
        return add(inputs, rng, data_type, (*sizes, inner))
    child = random_tree(rng, inputs, data_type, depth - 1)
    room = len(inputs.descs) < 5
    other = add(inputs, rng, data_type, child.value.shape) if room else child
    choices = [
        lambda: random_slice(rng, child),
        lambda: identity(child),
        lambda: multiply(child, child),
        lambda: subtract(child, other),
        lambda: subtract(other, child),
        lambda: multiply(child, small(inputs, rng, data_type, child.value.shape)),
        lambda: random_gather(rng, inputs, child),
    ]
    return choices[rng.integers(7 if room else 5)]()


def small(inputs: Inputs, rng: np.random.Generator, data_type: DataType, sizes: tuple[int, ...]) -> Node:
    values = rng.integers(0, 3, sizes).astype(data_type.numpy)
    return inputs.add(values, draw_strides(sizes, TensorLayout.BROADCAST, rng))


@pytest.mark.parametrize("data_type", ARITHMETIC, ids=lambda t: t.name)
@pytest.mark.parametrize("seed", range(5))
def test_a_random_tree_matches_numpy(either: GpuBackend, data_type: DataType, seed: int) -> None:
    rng = np.random.default_rng([seed, data_type])
    inputs = Inputs()
    node = random_tree(rng, inputs, data_type, int(rng.integers(1, 5)))
    layout = (TensorLayout.PACKED, TensorLayout.PERMUTED, TensorLayout.PADDED, TensorLayout.ALIGNED, TensorLayout.NEAR)[
        rng.integers(5)
    ]
    profile = (Profile.CPU, Profile.DISCRETE)[rng.integers(2)]
    got = run_map(
        either, inputs, node, draw_strides(node.value.shape, layout, rng), replace(either.target, profile=profile)
    )
    assert_same(got, node.value)


@pytest.mark.parametrize("operation", [subtract, multiply])
def test_half_precision_rounds_every_operation_as_storing_it_would(
    backend: GpuBackend, operation: Callable[[Node, Node], Node]
) -> None:
    """So that differences, or products, give the same numbers in native float16. Drivers may leave out the rounding of
    a product of which something is subtracted."""
    rng, inputs = np.random.default_rng(99), Inputs()
    numbers = rng.uniform(0.5, 2, (4, 3, 64)) * rng.choice([-1, 1], (4, 3, 64))
    a, b, c, d = (inputs.add(array) for array in numbers.astype(np.float16))
    node = operation(operation(operation(a, b), c), operation(c, d))
    (kernel,) = compiled(map_plan(node)[0], backend.target).kernels
    assert ("enable f16;" in kernel.wgsl) == backend.target.has("shader-f16")
    assert_same(run_map(backend, inputs, node, target=backend.target), node.value)


@pytest.mark.parametrize("data_type", [F32, F16, I8, I64], ids=lambda t: t.name)
def test_subtract_of_a_slice_reads_a_view(either: GpuBackend, data_type: DataType) -> None:
    rng, inputs = np.random.default_rng(1), Inputs()
    x, y = (inputs.add(numbers(rng, data_type, sizes)) for sizes in ((6, 16), (3, 8)))
    node = subtract(slice1(x, (4, 4), (-2, 1), (3, 8)), y)
    assert_same(run_map(either, inputs, node), node.value)
    (kernel,) = compiled(map_plan(node)[0], either.target).kernels
    assert "slice1" not in kernel.wgsl


@pytest.mark.parametrize("data_type", [F32, F16, I8, U16, U64], ids=lambda t: t.name)
def test_multiply_of_a_gather_of_a_difference_of_a_slice(either: GpuBackend, data_type: DataType) -> None:
    rng, inputs = np.random.default_rng(2), Inputs()
    x, y = (inputs.add(numbers(rng, data_type, sizes)) for sizes in ((9, 20), (4, 16)))
    difference = subtract(slice1(x, (1, 4), (2, 1), (4, 16)), y)
    rows = add_indices(inputs, rng, (5,), (4,))
    z = inputs.add(numbers(rng, data_type, (5, 16)))
    node = multiply(gather(difference, rows), z)
    assert_same(run_map(either, inputs, node), node.value)
    mirrored = slice1(node, (4, 15), (-1, -1), (5, 16))
    assert_same(run_map(either, inputs, mirrored), mirrored.value)


def test_a_gather_over_arithmetic_is_packed_along_its_window(backend: GpuBackend) -> None:
    rng, inputs = np.random.default_rng(3), Inputs()
    x, y = (inputs.add(numbers(rng, F32, (6, 8))) for _ in range(2))
    node = gather(subtract(x, y), add_indices(inputs, rng, (3,), (6,)))
    plan, _ = map_plan(node)
    assert compiled(plan, backend.target).kernels[0].label == "test map x4"
    assert_same(run_map(backend, inputs, node), node.value)


def test_two_instances_of_one_body_keep_their_constants_apart(either: GpuBackend) -> None:
    rng, inputs = np.random.default_rng(4), Inputs()
    x = inputs.add(numbers(rng, F32, (7, 12)))
    y = inputs.add(numbers(rng, F32, (9, 12)))
    doubled, halved = scale_bias(x, 2.0, 1.0), scale_bias(y, 0.5, -3.0)
    first, second = slice1(doubled, (1, 0), (1, 1), (4, 12)), slice1(halved, (8, 11), (-2, -1), (4, 12))
    node = subtract(first, second)
    assert_same(run_map(either, inputs, node), node.value)
    (kernel,) = compiled(map_plan(node)[0], either.target).kernels
    assert kernel.wgsl.count("// ---- shaders/layout/slice1.wgsl") == 2
    assert kernel.wgsl.count("// ---- shaders/elementwise/scale_bias.wgsl") == 2


def diamond(depth: int, *, sliced: bool = False) -> tuple[Inputs, Node]:
    """Each level uses the one below twice. Values stay small: x - (x - 1) is 1, times x is x."""
    inputs = Inputs()
    x = node = inputs.add(np.arange(64, dtype=np.int32).reshape(4, 16))
    for _ in range(depth):
        left = slice1(node, (3, 0), (-1, 1), (4, 16)) if sliced else node
        node = subtract(multiply(left, x), node)
    return inputs, node


def text_length(depth: int, *, sliced: bool) -> int:
    (kernel,) = compiled(map_plan(diamond(depth, sliced=sliced)[1])[0], Target("any")).kernels
    return len(kernel.wgsl)


def test_the_text_of_a_diamond_grows_linearly(backend: GpuBackend) -> None:
    first, second, third = (text_length(depth, sliced=False) for depth in (5, 10, 20))
    assert third - second < 2.5 * (second - first)
    inputs, node = diamond(10)
    assert_same(run_map(backend, inputs, node), node.value)


def test_the_text_of_a_diamond_of_functions_does_not_double_with_every_level(backend: GpuBackend) -> None:
    assert text_length(20, sliced=True) < 5 * text_length(10, sliced=True)
    inputs, node = diamond(4, sliced=True)
    assert_same(run_map(backend, inputs, node), node.value)


# ---- 64 bits as words and natively


def test_casts_see_differences_of_64_bit_integers_as_words(either: GpuBackend) -> None:
    rng, inputs = np.random.default_rng(5), Inputs()
    a, b = (inputs.add(numbers(rng, I64, (3, 8))) for _ in range(2))
    difference = subtract(a, b)
    for node in (cast(difference, F32), cast(difference, I32), cast(difference, U64), cast(multiply(a, b), I8)):
        assert_same(run_map(either, inputs, node), node.value)


def test_a_value_used_natively_and_as_words(either: GpuBackend) -> None:
    rng, inputs = np.random.default_rng(6), Inputs()
    a, b = (inputs.add(numbers(rng, U64, (5, 4))) for _ in range(2))
    shared = subtract(a, b)
    node = subtract(cast(shared, U32), cast(multiply(shared, shared), U32))
    assert_same(run_map(either, inputs, node), node.value)


def test_arithmetic_on_a_cast_to_64_bits(either: GpuBackend) -> None:
    rng, inputs = np.random.default_rng(7), Inputs()
    a, b = inputs.add(numbers(rng, I32, (6, 4))), inputs.add(numbers(rng, I64, (6, 4)))
    node = multiply(cast(a, I64), b)
    assert_same(run_map(either, inputs, node), node.value)


@pytest.mark.parametrize("data_type", [I64, U64, F64], ids=lambda t: t.name)
def test_a_cast_of_gathered_64_bit_numbers(either: GpuBackend, data_type: DataType) -> None:
    rng, inputs = np.random.default_rng(8), Inputs()
    x = inputs.add(numbers(rng, data_type, (6, 4)), view=View.RAW)
    node = cast(gather(x, add_indices(inputs, rng, (5,), (6,))), F32)
    assert_same(run_map(either, inputs, node), node.value)


def test_a_cast_of_scaled_doubles(backend: GpuBackend) -> None:
    rng, inputs = np.random.default_rng(9), Inputs()
    node = cast(scale_bias(inputs.add(numbers(rng, F64, (6, 4))), 0.5, 2.0), F32)
    if not backend.target.has("shader-f64"):
        with pytest.raises(NotSupported) as caught:
            run_map(backend, inputs, node)
        assert str(caught.value) == (
            f"FLOAT64 arithmetic needs the adapter feature shader-f64, which {backend.info.name!r} lacks"
        )
        return
    assert_same(run_map(backend, inputs, node), node.value)


@pytest.mark.parametrize("middle", [F64, I64, U64], ids=lambda t: t.name)
def test_casts_through_64_bits(either: GpuBackend, middle: DataType) -> None:
    """The tensors in memory would pack by four, the values between them must not."""
    rng, inputs = np.random.default_rng(10), Inputs()
    node = cast(cast(inputs.add(numbers(rng, U16, (6, 4)) // 2), middle), I16)
    assert_same(run_map(either, inputs, node), node.value)


# ---- edges


def test_float16_is_rounded_between_bodies(either: GpuBackend) -> None:
    inputs = Inputs()
    a = inputs.add(np.array([2049.0, 2048.0, 1.0, 60000.0], np.float16))
    b = inputs.add(np.array([-1.0, -1.0, -(2.0**-11), -60000.0], np.float16))
    c = inputs.add(np.array([2048.0, 2048.0, 1.0, 60000.0], np.float16))
    node = subtract(subtract(a, b), c)
    assert node.value.tolist() == [0.0, 0.0, 0.0, np.inf]
    assert_same(run_map(either, inputs, node), node.value)


@pytest.mark.parametrize("data_type", [I8, U8, I16, U16], ids=lambda t: t.name)
@pytest.mark.parametrize("size", [3, 4, 6], ids=lambda n: f"{n} elements")
def test_narrow_integers_wrap_between_bodies(either: GpuBackend, data_type: DataType, size: int) -> None:
    inputs, limits = Inputs(), np.iinfo(data_type.numpy)
    a = inputs.add(np.resize(np.array([limits.max, limits.min, 7, limits.max - 1], data_type.numpy), size))
    b = inputs.add(np.resize(np.array([limits.min, limits.max, 9, 1], data_type.numpy), size))
    wider = cast(subtract(a, b), I32)
    assert_same(run_map(either, inputs, wider), wider.value)
    sliced = cast(slice1(subtract(a, b), (size - 1,), (-1,), (size,)), F32)
    assert_same(run_map(either, inputs, sliced), sliced.value)


def test_casts_round_and_wrap_between_bodies(either: GpuBackend) -> None:
    inputs = Inputs()
    a = inputs.add(np.array([300, -129, 70000, 2049], np.int32))
    for middle, last in ((I8, F32), (U8, I32), (U16, F32), (F16, F32)):
        node = cast(cast(a, middle), last)
        assert_same(run_map(either, inputs, node), node.value)


# ---- reductions over virtual sources


SERIAL, TREE, PARTIAL = ReduceSchedule.SERIAL, ReduceSchedule.TREE, ReduceSchedule.PARTIAL

# elements of a row, profile, how many an invocation may walk -> schedules
ROWS: dict[str, tuple[int, Profile, int | None, list[ReduceSchedule]]] = {
    "one element": (1, Profile.CPU, None, [SERIAL]),
    "by one invocation": (9, Profile.CPU, None, [SERIAL]),
    "short parts": (31, Profile.CPU, 7, [PARTIAL, SERIAL]),
    "by a workgroup": (300, Profile.DISCRETE, None, [TREE]),
    "parts": (1000, Profile.CPU, 150, [PARTIAL, SERIAL]),
}


def run_rows(
    backend: GpuBackend, inputs: Inputs, reduction: Reduction, source: Node, output: TensorDesc, *, rows: str
) -> Any:
    """Return the result for rows along the last axis."""
    _, profile, longest, expected = ROWS[rows]
    limit = None if longest is None else 4 * longest
    target = replace(backend.target.exact, profile=profile, loop_limit=limit)
    axes = (source.value.ndim - 1,)
    plan = Plan("TEST", (Reduce("", reduction, source.source, axes, PlanTensor.of(Role.OUTPUT, 0, output)),))
    steps = schedule(plan, target).steps
    assert [step.schedule for step in steps if isinstance(step, ScheduledReduce)] == expected
    return run_plan(backend, inputs, plan, output, target)


def summed(data_type: DataType) -> Reduction:
    """A sum: of floats in two numbers, of integers as they are."""
    if data_type.is_float:
        return Reduction("reduction/reduce_sum_float", F32, 2, True)
    return Reduction("reduction/reduce_sum", data_type, 1, False)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("data_type", [I8, F16, U64], ids=lambda t: t.name)
def test_argmin_over_a_virtual_source(either: GpuBackend, data_type: DataType, rows: str) -> None:
    rng, inputs, count = np.random.default_rng(11), Inputs(), ROWS[rows][0]
    x, y = (add(inputs, rng, data_type, (3, 2 * count)) for _ in range(2))
    source = slice1(subtract(x, y), (2, 1), (-1, 2), (3, count))
    file, lanes = ("reduction/argmin_wide", 4) if data_type.bits == 64 else ("reduction/argmin", 2)
    values = constants(order="ascending", decreasing=False)
    reduction = Reduction(file, U32, lanes, True, values, ordered=True)
    got = run_rows(either, inputs, reduction, source, TensorDesc(I64, (3, 1)), rows=rows)
    assert_same(got, source.value.argmin(-1, keepdims=True))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("data_type", [I64, F32, F16], ids=lambda t: t.name)
def test_a_sum_over_a_virtual_source(either: GpuBackend, data_type: DataType, rows: str) -> None:
    rng, inputs, count = np.random.default_rng(12), Inputs(), ROWS[rows][0]
    x = add(inputs, rng, data_type, (5, count))
    y = small(inputs, rng, data_type, (5, count))
    source = gather(multiply(x, y), add_indices(inputs, rng, (4,), (5,)))
    wide = np.float64 if data_type.is_float else data_type.numpy
    want = source.value.sum(-1, dtype=wide, keepdims=True).astype(data_type.numpy)
    assert_same(run_rows(either, inputs, summed(data_type), source, TensorDesc(data_type, (4, 1)), rows=rows), want)


# ---- the walk

WALKS = {
    "packed": ((3, 8), None, "words"),
    "rows with a gap": ((3, 5), (9, 1), "words"),
    "gaps between neighbors": ((3, 5), (11, 2), "words"),
    "transposed with a gap": ((4, 6), (1, 5), "words"),
    "strides that do not nest": ((4, 3), (3, 4), "exchange"),
    "sparse": ((2, 3), (100, 1), "exchange"),
    "sparse and three-dimensional": ((2, 3, 2), (7, 300, 1), "exchange"),
    "one element": ((1, 1), (5, 7), "words"),
}


@pytest.mark.parametrize("name", WALKS)
@pytest.mark.parametrize(
    ("data_type", "profile"),
    [(U8, Profile.CPU), (U8, Profile.DISCRETE), (F16, Profile.CPU), (F32, Profile.DISCRETE), (I64, Profile.CPU)],
)
def test_every_walk_stores_every_element(backend: GpuBackend, name: str, data_type: DataType, profile: Profile) -> None:
    sizes, strides, kind = WALKS[name]
    rng, inputs = np.random.default_rng(13), Inputs()
    node = identity(inputs.add(rng.integers(0, 100, sizes).astype(data_type.numpy), view=View.RAW))
    (step,) = map_plan(node, strides)[0].steps
    assert isinstance(step, Map)
    walk = choose_walk(step.output)
    if data_type.bits < 32:
        assert (walk.by_words, walk.exchange) == (kind == "words", kind == "exchange")
    got = run_map(backend, inputs, node, strides, replace(backend.target, profile=profile))
    assert_same(got, node.value)


def test_storing_by_exchange_leaves_gaps_alone(backend: GpuBackend) -> None:
    inputs = Inputs()
    node = identity(inputs.add(np.arange(6, dtype=np.uint8).reshape(2, 3), view=View.RAW))
    plan, output = map_plan(node, (101, 1))
    everything = replace(output, sizes=(output.physical_element_count,), strides=(1,))
    got = run_plan(backend, inputs, plan, everything)
    assert got[:3].tolist() == [0, 1, 2] and got[101:].tolist() == [3, 4, 5]
    assert set(got[3:101]) == {POISON}


@pytest.mark.parametrize(
    ("sizes", "strides"), [((5, 8), None), ((5, 7), None), ((4, 6), (9, 1)), ((6, 4), (1, 6)), ((3, 5), (40, 2))]
)
@pytest.mark.parametrize("data_type", [DataType.INT4, DataType.UINT4], ids=lambda t: t.name)
def test_nibbles_are_moved_and_computed_on(
    either: GpuBackend, data_type: DataType, sizes: tuple[int, ...], strides: tuple[int, ...] | None
) -> None:
    rng = np.random.default_rng(16)
    low, high = (-8, 8) if data_type.is_signed else (0, 16)
    a, b = (rng.integers(low, high, sizes).astype(data_type.numpy) for _ in range(2))
    desc = TensorDesc(data_type, sizes, strides)
    inputs = Inputs()
    inputs.descs += [desc, desc]
    inputs.contents += [desc.encode(a, POISON), desc.encode(b, POISON)]
    x, y = (PlanTensor.of(Role.INPUT, index, desc) for index in range(2))
    difference = apply("elementwise/element_wise_subtract", data_type, sizes, a=x, b=y)
    wrapped = ((a.astype(int) - b - low) % 16 + low).astype(data_type.numpy)
    copy = identity(Node(replace(x, view=View.RAW), a))
    for body, want in ((difference, wrapped), (copy.source, a)):
        plan = Plan("TEST", (Map("map", body, PlanTensor.of(Role.OUTPUT, 0, desc)),))
        assert_same(run_plan(either, inputs, plan, desc), want)


@pytest.mark.parametrize("data_type", [U8, F16], ids=lambda t: t.name)
def test_reductions_store_by_words_and_by_exchange(either: GpuBackend, data_type: DataType) -> None:
    rng = np.random.default_rng(14)
    for sizes, strides in (((5, 1), None), ((4, 3, 1), (3, 4, 1)), ((3, 1), (50, 1))):
        for rows in ("short parts", "by a workgroup"):
            inputs = Inputs()
            source = inputs.add(rng.integers(0, 2, (*sizes[:-1], ROWS[rows][0])).astype(data_type.numpy))
            source = subtract(source, small(inputs, rng, data_type, source.value.shape))
            want = source.value.sum(-1, dtype=data_type.numpy, keepdims=True)
            got = run_rows(either, inputs, summed(data_type), source, TensorDesc(data_type, sizes, strides), rows=rows)
            assert_same(got, want)


# ---- packing


def lanes_of(node: Node, strides: tuple[int, ...] | None = None) -> int:
    (step,) = schedule(map_plan(node, strides)[0], Target("any")).steps
    assert isinstance(step, ScheduledMap | ScheduledWordRows)
    return step.lanes if isinstance(step, ScheduledMap) else step.output.lanes


NEAR_MISSES = (
    *((start, 32, 0) for start in (0, 1, 2, 4, 8)),
    *((0, 32, gap) for gap in (1, 4)),
    *((0, width, 0) for width in (20, 31)),
    *((16, 32, 16), (16, 24, 8), (2, 30, 6)),
)
"""Where a slice starts, how wide it is, what lies between rows of the output."""


@pytest.mark.parametrize("data_type", [U8, F16, F32, F64], ids=lambda t: t.name)
@pytest.mark.parametrize(("start", "width", "gap"), NEAR_MISSES)
def test_near_misses_of_packing(backend: GpuBackend, data_type: DataType, start: int, width: int, gap: int) -> None:
    rng, inputs = np.random.default_rng(15), Inputs()
    x = inputs.add(rng.integers(0, 255, (3, 48)).astype(data_type.numpy), view=View.RAW)
    node = slice1(x, (0, start), (1, 1), (3, width))
    strides = (width + gap, 1)
    lanes = lanes_of(node, strides)
    assert all(number % lanes == 0 for number in (start, width, width + gap))
    assert lanes == 128 // data_type.bits or any(n % (2 * lanes) for n in (start, width, width + gap))
    assert_same(run_map(backend, inputs, node, strides), node.value)


@pytest.mark.parametrize("data_type", [I8, F16, F32], ids=lambda t: t.name)
def test_packed_arithmetic_with_broadcast_operands(either: GpuBackend, data_type: DataType) -> None:
    rng, inputs = np.random.default_rng(16), Inputs()
    x = inputs.add(numbers(rng, data_type, (3, 8)))
    column = inputs.add(numbers(rng, data_type, (3, 8)), (1, 0))
    scalar = inputs.add(numbers(rng, data_type, (3, 8)), (0, 0))
    node = subtract(subtract(x, column), scalar)
    assert lanes_of(node) == 4
    assert_same(run_map(either, inputs, node), node.value)


@pytest.mark.parametrize("start", [0, 1, 2, 4])
@pytest.mark.parametrize("data_type", [I8, F32], ids=lambda t: t.name)
def test_a_slice_of_arithmetic_packs_by_where_it_starts(either: GpuBackend, data_type: DataType, start: int) -> None:
    rng, inputs = np.random.default_rng(18), Inputs()
    a, b = (inputs.add(numbers(rng, data_type, (3, 16))) for _ in range(2))
    node = slice1(subtract(a, b), (1, start), (1, 1), (2, 8))
    assert lanes_of(node) == {0: 4, 1: 1, 2: 2, 4: 4}[start]
    assert_same(run_map(either, inputs, node), node.value)


# ---- transposes

TRANSPOSED = {
    "square": ((8, 8), (1, 8), (8, 1), True),
    "many tiles": ((40, 24), (1, 40), (24, 1), True),
    "batches": ((3, 8, 12), (96, 1, 8), (96, 12, 1), True),
    "padded rows": ((8, 12), (1, 12), (16, 1), True),
    "inner dimension apart": ((4, 3, 8), (1, 32, 4), (24, 8, 1), True),
    "batches repeated": ((3, 8, 12), (0, 1, 8), (96, 12, 1), True),
    "rows that do not divide": ((6, 8), (1, 6), (8, 1), False),
    "columns that do not divide": ((8, 6), (1, 8), (6, 1), False),
    "unaligned rows": ((8, 12), (1, 9), (12, 1), False),
    "unaligned rows of the output": ((8, 12), (1, 8), (13, 1), False),
}


@pytest.mark.parametrize("name", TRANSPOSED)
@pytest.mark.parametrize("data_type", [U8, F16, F32, U64], ids=lambda t: t.name)
def test_transposed_copies(backend: GpuBackend, name: str, data_type: DataType) -> None:
    """Near misses of the tiled schedule too. (Tiles of 64-bit elements are 2 x 2, so that other sizes divide.)"""
    sizes, source_strides, strides, tiled = TRANSPOSED[name]
    rng, inputs = np.random.default_rng(17), Inputs()
    node = identity(inputs.add(numbers(rng, data_type, sizes), source_strides, View.RAW))
    plan, _ = map_plan(node, strides)
    (kernel,) = compiled(plan, backend.target).kernels
    if data_type.bits < 64:
        assert ("schedules/transpose.wgsl" in kernel.wgsl) == tiled
    assert_same(run_map(backend, inputs, node, strides), node.value)


# ---- indices

EXTREMES = {
    I32: (-(2**31), -(2**31) + 1, -6, -5, -1, 0, 4, 5, 2**31 - 1),
    U32: (0, 4, 5, 2**31, 2**32 - 5, 2**32 - 1),
    I64: (-(2**63), -(2**32) - 1, -(2**32), -(2**32) + 1, -6, -5, -1, 0, 4, 5, 2**31, 2**32, 2**32 + 1, 2**63 - 1),
    U64: (0, 4, 5, 2**32 - 1, 2**32, 2**32 + 1, 2**33 + 4, 2**63, 2**64 - 5, 2**64 - 1),
}


@pytest.mark.parametrize("data_type", EXTREMES, ids=lambda t: t.name)
@pytest.mark.parametrize("extent", [5, 2**31, 2**32 - 1], ids=lambda n: f"extent {n}")
def test_indices_at_the_edges_of_their_types(either: GpuBackend, data_type: DataType, extent: int) -> None:
    """The gathered axis has stride 0 if it is too large for memory, so that only inside and outside differ."""
    inputs, numbers = Inputs(), EXTREMES[data_type]
    if extent <= 5:
        source = inputs.add(np.arange(1, extent + 1, dtype=np.int32), view=View.RAW)
    else:
        source = inputs.repeat(np.array([7], np.int32), extent)
    indices = inputs.add(np.array(numbers, data_type.numpy).reshape(-1, 1), view=View.INDEX)
    resolved = [index + extent if index < 0 else index for index in numbers]
    want = [(int(source.value[index]) if 0 <= index < extent else 0) for index in resolved]
    node = Node(gather_body(source, indices), np.array(want, np.int32))
    assert_same(run_map(either, inputs, node), node.value)


# ---- compile errors


def test_a_broken_body_is_shown_with_its_template(
    backend: GpuBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(str(templates.root()), tmp_path / "shaders")
    lines = [f"    let value{n} = {n}u;" for n in range(6)]
    text = "\n".join(["// A body that does not compile.", "fn apply(input: input_s) -> output_s {", *lines])
    (tmp_path / "shaders" / "elementwise" / "broken.wgsl").write_text(text + "\n    return input + missing;\n}\n")
    monkeypatch.setattr(templates, "root", lambda: tmp_path / "shaders")
    inputs = Inputs()
    x = inputs.add(np.zeros((3, 4), np.float32))
    body = apply("elementwise/broken", F32, (3, 4), input=x.source)
    with pytest.raises(ShaderError) as caught:
        run_map(backend, inputs, Node(body, x.value))
    message = str(caught.value)
    assert message.startswith(f"TEST: kernel 'test map x4' does not compile on {backend.info}: ")
    assert "    return input + missing;" in message.split("\n> ")[1].splitlines()[0]
    assert "shaders/elementwise/broken.wgsl" in message
