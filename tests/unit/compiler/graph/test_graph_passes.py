"""Passes of the graph compiler: the remaining kernels, the notes, and disabled passes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from dmlgpu import DataType, Graph, TensorDesc, descs, ops
from dmlgpu.catalog.enums import PaddingMode, ReduceFunction
from dmlgpu.common.errors import InvalidArgument, NotSupported
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph import compiler
from dmlgpu.compiler.graph.compiler import CompiledGraph, compile_network
from dmlgpu.compiler.graph.passes import PASSES
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.persistent_parts import filled_parts
from dmlgpu.compiler.plan import Body, Map, Step
from dmlgpu.compiler.plan.parts import written
from dmlgpu.compiler.rewrites.sources import nodes
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.suites.graphs import example
from dmlgpu.ops import directml as functions
from dmlgpu.tensors.tensor import Tensor
from tests.unit.graph_examples import (
    FLOATS,
    ConstantNode,
    GraphDesc,
    InputEdge,
    IntermediateEdge,
    OperatorNode,
    OutputEdge,
    add,
    attention,
    attention_of_quantized_caches,
    chain,
    convolution,
    exponential,
    identity,
    product,
    relu,
)

TARGETS = [Target("CPU", Profile.CPU), Target("GPU", Profile.DISCRETE)]
TURNED = TensorDesc(DataType.FLOAT32, (1, 4, 4, 2))


@pytest.fixture(params=TARGETS, ids=lambda target: target.name)
def target(request: pytest.FixtureRequest) -> Target:
    return request.param


def labels(compiled: CompiledGraph) -> list[str]:
    return [kernel.label for kernel in compiled.program.kernels]


def kernels(graph: GraphDesc, target: Target, *disabled: str) -> int:
    return len(compile_network(resolve(graph), target, disabled).program.kernels)


def graph(nodes: dict[str, object], edges: str, outputs: str) -> GraphDesc:
    """Return a graph from edges such as ``x>a.0 a>b.0 a/1>b.1``, the last one from the second output of a node, where
    names that are no node are inputs of the graph."""
    names, inputs = list(nodes), []
    into, inner = [], []
    for edge in edges.split():
        source, _, target = edge.partition(">")
        node, _, position = target.partition(".")
        source, _, output = source.partition("/")
        if source in names:
            inner.append(IntermediateEdge(names.index(source), int(output or 0), names.index(node), int(position)))
        else:
            if source not in inputs:
                inputs.append(source)
            into.append(InputEdge(inputs.index(source), names.index(node), int(position)))
    ends = (name.partition("/") for name in outputs.split())
    out = tuple(OutputEdge(names.index(name), int(output or 0), index) for index, (name, _, output) in enumerate(ends))
    built = tuple(
        ConstantNode(value, name) if isinstance(value, bytes) else OperatorNode(value, name)  # type: ignore[arg-type]
        for name, value in nodes.items()
    )
    return GraphDesc(len(inputs), len(out), built, tuple(into), tuple(inner), out)


def test_a_chain_becomes_one_kernel(target: Target) -> None:
    long = chain(relu(), add(), exponential(), relu(), add())
    assert kernels(long, target) == 1
    assert kernels(long, target, "element-wise") == 5


def test_a_diamond_becomes_one_kernel_that_computes_its_root_once(target: Target) -> None:
    diamond = graph(
        {"root": exponential(), "left": relu(), "right": exponential(), "join": add()},
        "x>root.0 root>left.0 root>right.0 left>join.0 right>join.1",
        "join",
    )
    compiled = compile_network(resolve(diamond), target)
    (kernel,) = compiled.program.kernels
    values = [line for line in kernel.wgsl.splitlines() if " = apply" in line or "(apply" in line]
    assert len(kernel.slots) == 2
    assert len(values) <= 5


@pytest.mark.parametrize("data_type", [DataType.FLOAT32, DataType.FLOAT16, DataType.INT32])
def test_choices_are_fused_with_what_computes_them_and_what_reads_them(target: Target, data_type: DataType) -> None:
    floats, mask = TensorDesc(data_type, FLOATS.sizes), TensorDesc(DataType.UINT8, FLOATS.sizes)
    choice = descs.ElementWiseIf(condition_tensor=mask, a_tensor=floats, b_tensor=floats, output_tensor=floats)
    nodes = {"left": add(floats), "right": add(floats), "choice": choice, "sum": add(floats)}
    edges = "x>left.0 y>left.1 y>right.0 y>right.1 m>choice.0 left>choice.1 right>choice.2"
    computed = graph(nodes, f"{edges} choice>sum.0 x>sum.1", "sum")
    assert (kernels(computed, target), kernels(computed, target, "element-wise")) == (1, 4)
    only_read = graph(
        {"choice": choice, "sum": add(floats)}, "m>choice.0 x>choice.1 y>choice.2 choice>sum.0 x>sum.1", "sum"
    )
    assert kernels(only_read, target) == 1


def test_values_are_computed_where_their_operands_are_read(target: Target) -> None:
    mask = TensorDesc(DataType.UINT8, FLOATS.sizes)
    less = descs.ElementWiseLogicalLessThan(a_tensor=FLOATS, b_tensor=FLOATS, output_tensor=mask)
    choice = descs.ElementWiseIf(condition_tensor=mask, a_tensor=FLOATS, b_tensor=FLOATS, output_tensor=FLOATS)
    edges = "x>less.0 y>less.1 less>first.0 x>first.1 y>first.2 less>second.0 y>second.1"
    nodes = {"less": less, "first": choice, "second": choice}
    assert kernels(graph(nodes, f"{edges} x>second.2", "first second"), target) == 2
    # the mask is smaller than the operand that the other two choices do not read
    others = f"{edges} z>second.2 less>third.0 y>third.1 w>third.2"
    assert kernels(graph(nodes | {"third": choice}, others, "first second third"), target) == 4


def test_expensive_values_that_are_read_twice_are_stored(target: Target) -> None:
    shared = graph(
        {"exp": exponential(), "a": relu(), "b": add()},
        "x>exp.0 exp>a.0 exp>b.0 x>b.1",
        "a b",
    )
    assert kernels(shared, target) == 3
    cheap = dataclasses.replace(shared, nodes=(OperatorNode(relu()), *shared.nodes[1:]))
    assert kernels(cheap, target) == 2


def test_an_expensive_value_that_repeats_is_stored(target: Target) -> None:
    row = TensorDesc(DataType.FLOAT32, (1, 2, 1, 1))
    spread = TensorDesc(DataType.FLOAT32, FLOATS.sizes, strides=(2, 1, 0, 0), total_tensor_size_in_bytes=8)
    for desc, expected in ((exponential(row), 2), (relu(row), 1)):
        repeated = graph({"one": desc, "all": add(FLOATS, spread, FLOATS)}, "x>one.0 y>all.0 one>all.1", "all")
        assert kernels(repeated, target) == expected


@pytest.mark.parametrize("heavy", [convolution(), product()], ids=["convolution", "product"])
def test_elementwise_consumers_are_fused_into_products_and_convolutions(heavy: object, target: Target) -> None:
    block = graph(
        {"heavy": heavy, "skip": add(), "relu": relu(), "exp": exponential()},
        "x>heavy.0 w>heavy.1 heavy>skip.0 x>skip.1 skip>relu.0 relu>exp.0",
        "exp",
    )
    fused, apart = kernels(block, target), kernels(block, target, "element-wise", "epilogues")
    assert apart - fused == 3


def test_a_per_channel_addition_becomes_a_bias(target: Target) -> None:
    vector = TensorDesc(DataType.FLOAT32, FLOATS.sizes, (0, 1, 0, 0))
    for added, other in (
        (add(FLOATS, vector, FLOATS), ("conv>add.0", "b>add.1")),
        (add(vector, FLOATS, FLOATS), ("b>add.0", "conv>add.1")),
    ):
        biased = graph({"conv": convolution(), "add": added}, f"x>conv.0 w>conv.1 {' '.join(other)}", "add")
        compiled = compile_network(resolve(biased), target)
        assert [note.text for note in compiled.notes if note.pass_name == "bias"] == ["done by conv"]
        assert compiled.network.nodes[-1].desc.bias_tensor == TensorDesc(DataType.FLOAT32, (1, 2, 1, 1), (0, 1, 0, 0))


def test_an_output_of_the_graph_is_written_and_read(target: Target) -> None:
    tapped = graph({"conv": convolution(), "relu": relu()}, "x>conv.0 w>conv.1 conv>relu.0", "conv relu")
    compiled = compile_network(resolve(tapped), target)
    assert len(compiled.program.kernels) == kernels(tapped, target, "epilogues")
    assert compiled.program.temporary_size == 0


def test_elementwise_consumers_are_fused_into_softmax_and_normalization(target: Target) -> None:
    softmax = descs.ActivationSoftmax1(input_tensor=FLOATS, output_tensor=FLOATS, axes=(3,))
    rows = graph({"rows": softmax, "exp": exponential()}, "x>rows.0 rows>exp.0", "exp")
    assert kernels(rows, target, "epilogues") - kernels(rows, target) == 1


def test_elementwise_consumers_of_statistics_are_fused_into_the_rows(target: Target) -> None:
    """Also if the rows, or the other statistic, are read before; not if they are read with the statistic."""
    small = TensorDesc(DataType.FLOAT32, (1, 2, 1, 1))
    spread = TensorDesc(DataType.FLOAT32, FLOATS.sizes, strides=(2, 1, 0, 0), total_tensor_size_in_bytes=8)
    rows = descs.BatchNormalizationTraining(
        input_tensor=FLOATS,
        scale_tensor=small,
        bias_tensor=small,
        output_tensor=FLOATS,
        output_mean_tensor=small,
        output_variance_tensor=small,
        epsilon=1e-5,
    )
    root = descs.ElementWiseSqrt(input_tensor=small, output_tensor=small)
    edges = "x>rows.0 b>rows.1 b>rows.2"
    alone = graph({"rows": rows, "root": root}, f"{edges} rows/2>root.0", "rows rows/1 root")
    assert kernels(alone, target, "epilogues") - kernels(alone, target) == 1
    heavy = f"{edges} rows>heavy.0 w>heavy.1 rows/2>root.0"
    read = graph({"rows": rows, "heavy": product(), "root": root}, heavy, "heavy rows/1 root")
    assert kernels(read, target, "epilogues") - kernels(read, target) == 1
    assert labels(compile_network(resolve(read), target))[0].startswith("graph rows")
    both = graph({"rows": rows, "root": root}, f"{edges} rows/2>root.0", "rows rows/1 rows/2 root")
    assert kernels(both, target, "epilogues") - kernels(both, target) == 1
    paired = graph({"rows": rows, "sum": add(FLOATS, spread, FLOATS)}, f"{edges} rows>sum.0 rows/1>sum.1", "sum rows/2")
    assert kernels(paired, target, "epilogues") - kernels(paired, target) == 0


def test_producers_are_fused_into_reductions(target: Target) -> None:
    reduced = TensorDesc(DataType.FLOAT32, (1, 2, 1, 1))
    total = descs.Reduce(function=ReduceFunction.SUM, input_tensor=FLOATS, output_tensor=reduced, axes=(2, 3))
    rows = graph({"exp": exponential(), "sum": total}, "x>exp.0 exp>sum.0", "sum")
    assert kernels(rows, target, "element-wise") - kernels(rows, target) == 1


@pytest.mark.parametrize("kind", [DataType.FLOAT32, DataType.FLOAT16])
@pytest.mark.parametrize("blocks", [1, 4])
def test_attention_dequantizes_its_inputs(target: Target, blocks: int, kind: DataType) -> None:
    graph = attention_of_quantized_caches(kind, blocks)
    assert kernels(graph, target) == kernels(graph, target, "prologues") - 2


def test_transposes_and_slices_are_read_as_views(target: Target) -> None:
    turned = TensorDesc(DataType.FLOAT32, (1, 4, 4, 2), strides=(32, 4, 1, 16))
    half = TensorDesc(DataType.FLOAT32, (1, 2, 4, 2))
    softmax = descs.ActivationSoftmax1(input_tensor=half, output_tensor=half, axes=(3,))
    cut = descs.Slice1(
        input_tensor=TURNED,
        output_tensor=half,
        input_window_offsets=(0, 1, 0, 0),
        input_window_sizes=(1, 2, 4, 2),
        input_window_strides=(1, 1, 1, 1),
    )
    moved = graph(
        {"turn": identity(turned, TURNED), "cut": cut, "rows": softmax}, "x>turn.0 turn>cut.0 cut>rows.0", "rows"
    )
    assert kernels(moved, target, "views", "element-wise", "epilogues", "prologues") - kernels(moved, target) == 2


@pytest.mark.parametrize(
    ("indices", "data_type", "is_slice"),
    [
        ([1], DataType.INT64, True),
        ([-1], DataType.INT32, True),
        ([0, 2], DataType.UINT32, True),
        ([-4, -3, -2, -1], DataType.INT64, True),
        ([1, 0], DataType.INT64, False),
        ([2, 2], DataType.INT64, False),
        ([0, 1, 3], DataType.INT64, False),
        ([-1, 0], DataType.INT64, False),
        ([2, 4], DataType.INT64, False),
        ([-5], DataType.INT64, False),
        ([(1 << 32) - 1], DataType.UINT32, False),
    ],
)
def test_gathers_by_constants_in_even_steps_are_slices(
    indices: list[int], data_type: DataType, is_slice: bool, target: Target
) -> None:
    where = TensorDesc(data_type, (1, 1, 1, len(indices)))
    rows = TensorDesc(DataType.FLOAT32, (1, 2, len(indices), 4))
    gather = descs.Gather(input_tensor=FLOATS, indices_tensor=where, output_tensor=rows, axis=2, index_dimensions=1)
    softmax = descs.ActivationSoftmax1(input_tensor=rows, output_tensor=rows, axes=(3,))
    data = where.encode(np.array(indices, data_type.numpy)).tobytes()
    taken = graph({"where": data, "gather": gather, "rows": softmax}, "x>gather.0 where>gather.1 gather>rows.0", "rows")
    notes = [note.subject for note in compile_network(resolve(taken), target).notes if note.pass_name == "slices"]
    assert notes == ["gather"] * is_slice
    assert kernels(taken, target, "slices") - kernels(taken, target) == is_slice


@pytest.mark.parametrize(
    ("rows", "is_read_again", "is_fused"), [(16, False, True), (17, False, False), (1, True, False)]
)
def test_products_read_selected_matrices(rows: int, is_read_again: bool, is_fused: bool, target: Target) -> None:
    """A product with few rows per matrix reads quantized matrices by number, if nothing else reads the copies."""
    builder = Graph()
    numbers = builder.input((1, 4), DataType.UINT32)
    words, scale = builder.input((9, 64 * 64 // 8), DataType.UINT32), builder.input((9, 64 * 2))
    words, scale = (functions.gather(x, numbers, axis=0, index_dimensions=1) for x in (words, scale))
    codes = words.reinterpret((1, 4, 64, 64), None, DataType.UINT4)
    weights = functions.dequantize(codes, (scale.reinterpret((1, 4, 64, 2)),), quantization_type="scale")
    outputs = [functions.gemm(builder.input((1, 4, rows, 64)), weights, trans_b="transpose")]
    selected = builder.desc([*outputs, words] if is_read_again else outputs)
    alone = kernels(selected, target, "selections", "gathers")
    assert alone - kernels(selected, target, "gathers") == 2 * is_fused


@pytest.mark.parametrize(
    ("options", "is_fused"),
    [
        pytest.param({}, True, id="one row"),
        pytest.param({"rows": 2}, False, id="two rows"),
        pytest.param({"is_read_again": True}, False, id="read elsewhere"),
        pytest.param({"stride": 65}, False, id="a table without whole units"),
    ],
)
def test_products_read_the_row_that_a_gather_selects(options: dict[str, Any], is_fused: bool, target: Target) -> None:
    """On GPUs; several rows would be looked up for every column."""
    desc = product_of_gathered_rows(**options)
    is_gpu = target.profile is Profile.DISCRETE
    assert kernels(desc, target, "selections") - kernels(desc, target) == (is_fused and is_gpu)


@pytest.mark.parametrize(("slots", "is_fused"), [(6, True), (5, False)])
def test_a_product_that_looks_its_row_up_binds_no_more_than_the_adapter_allows(slots: int, is_fused: bool) -> None:
    few = Target("GPU", Profile.DISCRETE, max_storage_buffers=slots)
    assert kernels(product_of_gathered_rows(), few) == 2 - is_fused


def product_of_gathered_rows(rows: int = 1, stride: int = 64, *, is_read_again: bool = False) -> GraphDesc:
    """Rows that are gathered, normalized and multiplied by quantized columns."""
    builder = Graph()
    table, numbers = builder.input((4, stride))[:, :64], builder.input((1, rows), DataType.UINT32)
    x = functions.gather(table, numbers, axis=0, index_dimensions=1)
    codes, scale = builder.input((24, 64), DataType.UINT8), builder.input((24, 2))
    weights = functions.dequantize(codes, (scale,), quantization_type="scale")
    normalized = functions.mean_variance_normalization2(x, **NORMAL)
    product = functions.gemm(normalized, weights, trans_b="transpose")
    return builder.desc([product, functions.activation_relu(x)] if is_read_again else [product])


def products_of_gathered_rows(
    products: int = 3,
    first: int = 0,
    *,
    is_counted_first: bool = False,
    numbers_are_counted: bool = False,
    gathers_results: bool = False,
) -> GraphDesc:
    """Rows that are gathered go through products. From one of these on, they are multiplied by rows of another table,
    which are gathered before it. An output counts the numbers of the rows."""
    builder = Graph()
    numbers = builder.input((1, 3), DataType.UINT32)

    def gathered(indices: Any, table: Any = None) -> Any:
        rows = builder.input((9, 8)) if table is None else table
        return functions.gather(rows, indices, axis=0, index_dimensions=1)

    def counted() -> Any:
        return functions.element_wise_add(numbers, builder.constant(np.uint32([[1]])).broadcast_to((1, 3)))

    count = counted() if is_counted_first else None
    x, factor = gathered(numbers), None
    for place in range(products):
        if place == first:
            count = counted() if count is None and numbers_are_counted else count
            factor = gathered(count if numbers_are_counted else numbers)
        x = functions.gemm(x, builder.input((8, 8)))
        x = x if factor is None else functions.element_wise_multiply(x, factor)
    result = gathered(numbers, x) if gathers_results else x
    return builder.desc([result, counted() if count is None else count])


@pytest.mark.parametrize(
    ("options", "joined"),
    [
        pytest.param({}, 2, id="at the beginning"),
        pytest.param({"is_counted_first": True}, 2, id="an output that nothing reads is computed later"),
        pytest.param({"products": 6, "first": 2}, 2, id="read as long as they move"),
        pytest.param({"products": 6, "first": 4}, 1, id="read for a shorter time"),
        pytest.param({"numbers_are_counted": True}, 1, id="rows of numbers that are computed"),
        pytest.param({"numbers_are_counted": True, "is_counted_first": True}, 0, id="an output that is read before"),
    ],
)
def test_gathers_of_inputs_are_one_kernel(options: dict[str, Any], joined: int, target: Target) -> None:
    """With outputs that depend on inputs alone."""
    desc = products_of_gathered_rows(**options)
    assert kernels(desc, target, "gathers") - kernels(desc, target) == joined


@pytest.mark.parametrize(
    ("slots", "gathers_results", "joined"),
    [(6, False, 2), (5, False, 1), (4, False, 1), (3, False, 0), (6, True, 2), (5, True, 2)],
)
def test_a_kernel_of_gathers_binds_no_more_than_the_adapter_allows(
    slots: int, joined: int, *, gathers_results: bool
) -> None:
    """A table, the numbers and the result; another table and its result; the counts, as far as they fit. Another gather
    has room for the counts."""
    few = Target("GPU", Profile.DISCRETE, max_storage_buffers=slots)
    desc = products_of_gathered_rows(gathers_results=gathers_results)
    compiled = compile_network(resolve(desc), few)
    assert kernels(desc, few, "gathers") - len(compiled.program.kernels) == joined
    assert all(len(set(kernel.slots)) <= slots for kernel in compiled.program.kernels)


def test_copies_and_parts_of_outputs_stay_by_themselves(target: Target) -> None:
    """A copy is none if both sides are one buffer; the fill of a border precedes what is written inside."""
    builder = Graph()
    x, numbers = builder.input((4, 8)), builder.input((1, 3), DataType.UINT32)
    padded = functions.padding1(
        functions.activation_softmax1(x, axes=(1,)),
        padding_mode="constant",
        padding_value_data_type=DataType.FLOAT32,
        padding_value=1.5,
        start_padding=(1, 0),
        end_padding=(0, 0),
    )
    rows = functions.gather(builder.input((9, 8)), numbers, axis=0, index_dimensions=1)
    desc = builder.desc([functions.element_wise_identity(x), padded, rows])
    assert kernels(desc, target) == kernels(desc, target, "gathers") == 4


@pytest.mark.parametrize("is_dequantized", [False, True])
def test_a_product_adds_rows_that_are_stored_in_blocks_anyway(is_dequantized: bool, target: Target) -> None:
    """A sum that dequantizes blocks is no epilogue of the product."""
    builder = Graph()
    x = builder.input((4, 64))
    if is_dequantized:
        codes, scale = builder.input((4, 64), DataType.INT8), builder.input((4, 2))
        x = functions.dequantize(codes, (scale,), quantization_type="scale")
    normalized = functions.activation_softmax1(x, axes=(1,))
    product = functions.gemm(normalized, builder.input((64, 64)))
    desc = builder.desc([functions.element_wise_add(product, x)])
    assert kernels(desc, target) == 2 + is_dequantized


NORMAL: dict[str, Any] = {"axes": (1,), "use_mean": False}


def normalized_products(
    products: int = 1, rows: int = 1, *, is_read_again: bool = False, inner: int = 64, **options: Any
) -> GraphDesc:
    """Products with quantized columns that read rows which one operator normalizes."""
    builder = Graph()
    x = functions.mean_variance_normalization2(
        builder.input((rows, 64)), builder.input((1, 64)).broadcast_to((rows, 64)), **NORMAL | options
    )
    outputs = []
    for _ in range(products):
        codes, scale = builder.input((24, inner), DataType.UINT4), builder.input((24, inner // 32))
        weights = functions.dequantize(codes, (scale,), quantization_type="scale")
        outputs.append(functions.gemm(x[:, :inner], weights, trans_b="transpose"))
    return builder.desc([*outputs, functions.element_wise_negate(x)] if is_read_again else outputs)


@pytest.mark.parametrize(
    ("options", "is_fused"),
    [
        pytest.param({}, True, id="one product"),
        pytest.param({"products": 3}, True, id="three products"),
        pytest.param({"rows": 16}, True, id="most rows"),
        pytest.param({"rows": 17}, False, id="more rows"),
        pytest.param({"is_read_again": True}, False, id="read elsewhere"),
        pytest.param({"use_mean": True}, False, id="less a mean"),
        pytest.param({"axes": (0,), "rows": 4}, False, id="columns normalized"),
        pytest.param({"axes": (0, 1), "rows": 4}, False, id="rows normalized together"),
        pytest.param({"fused_activation": "relu"}, False, id="with an activation"),
        pytest.param({"inner": 32}, False, id="a part of the rows"),
    ],
)
def test_products_normalize_their_rows(options: dict[str, Any], is_fused: bool, target: Target) -> None:
    """On GPUs, where products of few rows read whole rows."""
    desc = normalized_products(**options)
    is_gpu = target.profile is Profile.DISCRETE
    assert kernels(desc, target, "norms") - kernels(desc, target) == (is_fused and is_gpu)


MANY_BUFFERS = Target("GPU", Profile.DISCRETE, max_storage_buffers=16)


def rotated_columns(
    kind: DataType = DataType.FLOAT32,
    rows: int = 1,
    *,
    size: int = 8,
    value_size: int = 8,
    heads: int = 2,
    keys_apart: bool = True,
    queries_apart: bool = True,
    mirrored: bool = True,
    extra: int = 0,
    biased: bool = False,
    values: str = "",
    use: str = "",
) -> GraphDesc:
    """Attention with caches, whose queries, values and keys are columns of one product, rotated but for the values.

    Args:
        kind: Data type.
        rows: Rows of the product.
        size, value_size: Elements of a head.
        heads: Number of heads.
        keys_apart, queries_apart: Partners are half a head apart, else adjacent.
        mirrored: Columns half a head apart are partners of each other, else all are those of the first ones.
        extra: Further columns, which are not read.
        biased: Whether a bias is added.
        values: Values are ``residual``: rows are added; ``gathered``; ``shared`` by all heads; or ``uneven``: added to
            tensors that no unit divides.
        use: What else is read: the ``columns``; the ``queries`` before keys are stored; the first columns ``again``; or
            extra columns in a single ``row``.
    """
    builder = Graph()
    own_values = value_size * (1 if values == "shared" else heads)
    ends = (heads * size, heads * size + own_values, 2 * heads * size + own_values)
    columns = ends[-1] + extra
    codes, scale = builder.input((1, 1, columns, 64), DataType.UINT4), builder.input((1, 1, columns, 2), kind)
    weights = functions.dequantize(codes, (scale,), quantization_type="scale")
    x = builder.input((1, 1, rows, 64), kind)
    joined = functions.gemm(x, weights, trans_b="transpose")
    if biased:
        joined = functions.element_wise_add(joined, builder.input((1, 1, 1, columns), kind).broadcast_to(joined.sizes))
    joined = joined.reinterpret((1, rows, columns))
    parts = query, value, key = [joined[:, :, first:end] for first, end in zip((0, *ends), ends, strict=False)]
    factor = builder.input((1, rows, 1, 1, 1), kind)

    def rotated(part: Tensor, apart: bool) -> Tensor:
        sizes = (1, rows, heads, *((2, size // 2) if apart else (size // 2, 2)))
        x = functions.element_wise_identity(part).reinterpret(sizes)
        turned = (1, 1, 1, *((-1, 1) if apart else (1, -1)))
        exchanged = functions.slice1(
            x, input_window_offsets=(0,) * 5, input_window_sizes=sizes, input_window_strides=turned
        )
        partner = exchanged if mirrored else x[:, :, :, :1].broadcast_to(sizes)
        moved = functions.element_wise_multiply(partner, factor.broadcast_to(sizes))
        return functions.element_wise_subtract(x, moved).reinterpret((1, rows, heads * size))

    flat = (1, rows, heads * value_size)
    if values == "residual":
        value = functions.element_wise_add(value, x.reinterpret((1, rows, 64))[:, :, : flat[-1]])
    elif values == "gathered":
        order = builder.input((1, 1, flat[-1]), DataType.UINT32)
        value = functions.element_wise_abs(functions.gather_elements(value, order.broadcast_to(flat), axis=2))
    elif values == "shared":
        shared = value.reinterpret((1, rows, 1, value_size)).broadcast_to((1, rows, heads, value_size))
        value = functions.element_wise_abs(shared).reinterpret(flat)
    elif values == "uneven":
        value = functions.element_wise_add(value, builder.input((1, rows, flat[-1] + 1), kind)[:, :, 1:])
    query = rotated(query, queries_apart)
    source = {"columns": joined, "queries": query}.get(use)
    others = [] if source is None else [functions.reduce(source, function=ReduceFunction.MAX, axes=(2,))]
    others += [functions.element_wise_negate(parts[0])] if use == "again" else []
    others += [functions.element_wise_negate(joined[:, :1, ends[-1] :])] if use == "row" else []
    result = functions.multihead_attention1(
        query,
        rotated(key, keys_apart),
        value,
        past_key=builder.input((1, heads, 9, size), kind),
        past_value=builder.input((1, heads, 9, value_size), kind),
        past_sequence_lengths=builder.input((1,), DataType.INT32),
        scale=0.25,
        mask_filter_value=-100.0,
        query_head_count=heads,
        key_value_head_count=heads,
        output_present_key=True,
        output_present_value=True,
    )
    return builder.desc([result.output, result.output_present_key, result.output_present_value, *others])


@pytest.mark.parametrize(
    ("options", "is_fused"),
    [
        pytest.param({}, True, id="partners half a head apart"),
        pytest.param({"kind": DataType.FLOAT16}, True, id="in float16"),
        pytest.param({"keys_apart": False, "queries_apart": False}, True, id="adjacent partners"),
        pytest.param({"biased": True}, True, id="with a bias"),
        pytest.param({"rows": 4}, True, id="most rows"),
        pytest.param({"rows": 5}, False, id="more rows"),
        pytest.param({"keys_apart": False}, False, id="partners of two distances"),
        pytest.param({"mirrored": False}, False, id="the first half twice"),
        pytest.param({"size": 6}, False, id="partners three columns apart"),
        pytest.param({"value_size": 6}, False, id="heads that begin within a group"),
        pytest.param(
            {"heads": 1, "size": 6, "value_size": 6, "keys_apart": False, "queries_apart": False},
            False,
            id="a pair of partners too many",
        ),
        pytest.param({"extra": 4}, False, id="columns that are not read"),
        pytest.param({"values": "residual"}, True, id="values with another tensor"),
        pytest.param({"values": "gathered"}, False, id="values in another order"),
        pytest.param({"values": "shared"}, False, id="values of several heads"),
        pytest.param({"values": "uneven"}, False, id="values without whole units"),
        pytest.param({"use": "row", "rows": 2, "extra": 16}, False, id="columns of one row"),
        pytest.param({"use": "columns"}, False, id="all columns read again"),
        pytest.param({"use": "again", "extra": 16}, False, id="some columns read again"),
        pytest.param({"use": "queries"}, False, id="queries read before keys are stored"),
    ],
)
def test_products_store_rotated_columns(options: dict[str, Any], is_fused: bool) -> None:
    """On GPUs, where queries go to a tensor, and keys and values to caches, from products of few rows."""
    desc = rotated_columns(**options)
    assert kernels(desc, MANY_BUFFERS, "rotations") - kernels(desc, MANY_BUFFERS) == is_fused
    assert kernels(desc, TARGETS[0], "rotations") == kernels(desc, TARGETS[0])


def test_rotated_columns_are_a_kernel_of_their_own_if_they_bind_too_many_buffers() -> None:
    """The rotation then is next to the updates of the caches. Rows that are read in two units are two buffers."""
    for values, needed in (("", 8), ("residual", 9)):
        desc = resolve(rotated_columns(values=values))
        fused, compiled = (
            compile_network(desc, dataclasses.replace(MANY_BUFFERS, max_storage_buffers=buffers))
            for buffers in (needed, needed - 1)
        )
        assert sum(note.pass_name == "rotations" for note in fused.notes) == 3
        assert any("too many buffers" in note.text for note in compiled.notes)
        assert any(label.endswith("2 more") for label in labels(compiled))


def test_a_product_of_normalized_rows_stores_rotated_columns() -> None:
    """Norm, product and rotation are one kernel, before attention."""
    compiled = compile_network(resolve(example("pattern-rotated_columns-float32-plain").graph), MANY_BUFFERS)
    assert [note.pass_name for note in compiled.notes].count("rotations") == 6
    assert any(note.pass_name == "norms" for note in compiled.notes)
    assert sum("quantized" in label for label in labels(compiled)) == 2 and len(labels(compiled)) == 8


def test_a_product_of_normalized_rows_by_themselves_is_not_fused() -> None:
    """Its columns would need the normalized rows as well."""
    builder = Graph()
    x = functions.mean_variance_normalization2(builder.input((8, 64)), **NORMAL)
    codes = functions.element_wise_quantize_linear(
        x, builder.constant(np.float32([1])).broadcast_to((8, 64)), output_type=DataType.INT8
    )
    weights = functions.dequantize(codes, (builder.input((8, 2)),), quantization_type="scale")
    desc = builder.desc([functions.gemm(x, weights, trans_b="transpose")])
    assert kernels(desc, TARGETS[1], "norms") == kernels(desc, TARGETS[1])


def test_gathers_of_the_columns_of_a_product_read_its_panels() -> None:
    """The initialization lays out both alike, so that a model has the panels once."""
    builder = Graph()
    words = builder.input((512, 8), DataType.UINT32, owned=True)
    scale = builder.input((512, 2), owned=True)
    codes = words.reinterpret((512, 64), None, DataType.UINT4)
    weights = functions.dequantize(codes, (scale,), quantization_type="scale")
    product = functions.gemm(builder.input((2, 64)), weights, trans_b="transpose")
    numbers = builder.input((1, 4), DataType.UINT32)
    rows = [functions.gather(x, numbers, axis=0, index_dimensions=1) for x in (words, scale)]
    network = resolve(builder.desc([product, *rows]))
    for disabled, layouts in (((), 2), (("panels",), 4)):
        program = compile_network(network, TARGETS[0], disabled).program
        parts = filled_parts(program)
        assert len(parts) == 4
        assert len({part.key(program, range(4)) for part in parts}) == layouts
    program = compile_network(network, TARGETS[1]).program
    assert len(filled_parts(program)) == 2  # GPUs read rows where they are


def updated_caches(
    kind: DataType = DataType.FLOAT32, *, is_read_again: bool = False, separate: bool = False
) -> GraphDesc:
    """Attention with caches, whose queries and keys are products of elements and whose values are a square."""
    graph, flat, cache = Graph(), (1, 3, 16), (1, 2, 9, 8)
    x = graph.input(flat, kind)
    factors = [graph.input(flat, kind) for _ in range(3 if separate else 1)]
    query, key = (functions.element_wise_multiply(x, factor) for factor in (factors[0], factors[-1]))
    if separate:
        query = functions.element_wise_add(query, factors[1])
    else:
        key = functions.element_wise_add(key, x)
    result = functions.multihead_attention1(
        query,
        key,
        functions.element_wise_multiply(x, x),
        past_key=graph.input(cache, kind),
        past_value=graph.input(cache, kind),
        past_sequence_lengths=graph.input((1,), DataType.INT32),
        scale=0.25,
        mask_filter_value=-100.0,
        query_head_count=2,
        key_value_head_count=2,
        output_present_key=True,
        output_present_value=True,
    )
    again = [functions.element_wise_negate(key)] if is_read_again else []
    return graph.desc([result.output, result.output_present_key, result.output_present_value, *again])


@pytest.mark.parametrize("kind", [DataType.FLOAT32, DataType.FLOAT16])
def test_both_caches_and_queries_are_one_kernel(kind: DataType, target: Target) -> None:
    """After two copies of former rows, which are none if a caller updates caches in place; attention is the last."""
    graph = updated_caches(kind)
    compiled = compile_network(resolve(graph), target)
    (joined,) = (label for label in labels(compiled) if label.endswith("2 more"))
    assert labels(compiled).index(joined) == len(compiled.program.kernels) - 2
    assert [note.pass_name for note in compiled.notes].count("appends") == 2
    assert kernels(graph, target) == 4
    assert kernels(graph, target, "together") == 6
    assert kernels(graph, target, "appends") == 7
    assert kernels(graph, target, "appends", "together") == 8


def test_keys_that_are_read_again_are_stored_before_they_are_copied(target: Target) -> None:
    compiled = compile_network(resolve(updated_caches(is_read_again=True)), target)
    assert sum(note.pass_name == "appends" for note in compiled.notes) == 1


def test_a_kernel_of_caches_binds_no_more_than_the_adapter_allows() -> None:
    few = Target("GPU", Profile.DISCRETE, max_storage_buffers=6)
    compiled = compile_network(resolve(updated_caches(separate=True)), few)
    assert any(label.endswith("1 more") for label in labels(compiled))
    assert all(len(set(kernel.slots)) <= few.slots for kernel in compiled.program.kernels)


def test_pieces_of_a_join_are_written_in_place(target: Target) -> None:
    wide = TensorDesc(DataType.FLOAT32, (1, 4, 4, 4))
    join = descs.Join(input_tensors=(FLOATS, FLOATS), output_tensor=wide, axis=1)
    joined = graph({"a": exponential(), "b": product(), "join": join}, "x>a.0 x>b.0 y>b.1 a>join.0 b>join.1", "join")
    apart = kernels(joined, target, "element-wise", "epilogues")
    assert apart - kernels(joined, target) == 2


@pytest.mark.parametrize("data_type", [DataType.FLOAT32, DataType.FLOAT16])
def test_convolutions_write_into_a_join_where_no_word_is_shared(target: Target, data_type: DataType) -> None:
    half, wide = TensorDesc(data_type, FLOATS.sizes), TensorDesc(data_type, (1, 4, 4, 4))
    join = descs.Join(input_tensors=(half, half), output_tensor=wide, axis=1)
    parts = {"a": convolution(half), "b": convolution(half), "join": join}
    joined = graph(parts, "x>a.0 w>a.1 x>b.0 v>b.1 a>join.0 b>join.1", "join")
    apart = kernels(joined, target, "epilogues")
    assert apart - kernels(joined, target) == (2 if data_type is DataType.FLOAT32 else 0)


def test_large_fills_are_computed_on_the_device(target: Target) -> None:
    for size, folded in ((16, True), (1 << 20, False)):
        tensor = TensorDesc(DataType.FLOAT32, (1, 1, 1, size))
        fill = descs.FillValueConstant(output_tensor=tensor, value_data_type=DataType.FLOAT32, value=2.0)
        filled = graph({"fill": fill, "sum": add(tensor)}, "fill>sum.0 x>sum.1", "sum")
        notes = compile_network(resolve(filled), target).notes
        assert any(note.pass_name == "constants" for note in notes) == folded


def test_reinterpreted_edges_are_not_fused(target: Target) -> None:
    words = TensorDesc(DataType.INT32, FLOATS.sizes)
    read_anew = graph({"exp": exponential(), "bits": relu(words)}, "x>exp.0 exp>bits.0", "bits")
    assert kernels(read_anew, target) == 2


def test_reshapes_are_fused_through(target: Target) -> None:
    flat = TensorDesc(DataType.FLOAT32, (1, 1, 1, 32))
    shaped = graph({"exp": exponential(flat), "relu": relu()}, "x>exp.0 exp>relu.0", "relu")
    assert kernels(shaped, target) == 1


def test_padding_is_not_fused_over_its_border(target: Target) -> None:
    padded = TensorDesc(DataType.FLOAT32, (1, 2, 6, 4))
    pad = descs.Padding1(
        input_tensor=FLOATS,
        output_tensor=padded,
        padding_mode=PaddingMode.CONSTANT,
        padding_value_data_type=DataType.FLOAT32,
        padding_value=1.5,
        start_padding=(0, 0, 1, 0),
        end_padding=(0, 0, 1, 0),
    )
    bordered = graph({"pad": pad, "exp": exponential(padded)}, "x>pad.0 pad>exp.0", "exp")
    compiled = compile_network(resolve(bordered), target)
    assert len(compiled.program.kernels) == 2
    (note,) = compiled.notes
    assert (note.pass_name, note.subject) == ("kept", "pad padding1 pad")


def test_constants_are_folded_and_duplicate_and_dead_nodes_removed(target: Target) -> None:
    two = TensorDesc(DataType.FLOAT32, FLOATS.sizes).encode(2.0).tobytes()
    known = graph(
        {"two": two, "four": add(), "a": add(), "b": add(), "sum": add()},
        "two>four.0 two>four.1 x>a.0 four>a.1 x>b.0 four>b.1 a>sum.0 b>sum.1",
        "sum",
    )
    compiled = compile_network(resolve(known), target)
    assert [(note.pass_name, note.subject) for note in compiled.notes[:4]] == [
        ("constants", "four"),
        ("duplicates", "b"),
        ("dead", "four"),
        ("dead", "b"),
    ]
    assert compiled.program.constants == (FLOATS.encode(4.0).tobytes(),)  # nobody reads the twos any more
    assert len(compile_network(resolve(known), target, PASSES).program.kernels) == 4


def test_nodes_that_read_constants_of_equal_bytes_are_duplicates(target: Target) -> None:
    two, three = (TensorDesc(DataType.FLOAT32, FLOATS.sizes).encode(number).tobytes() for number in (2.0, 3.0))
    edges = "x>a.0 p>a.1 x>b.0 q>b.1 a>sum.0 b>sum.1"
    for other, merged in ((two, ["b"]), (three, [])):
        parts = {"p": two, "q": other, "a": add(), "b": add(), "sum": add()}
        compiled = compile_network(resolve(graph(parts, edges, "sum")), target)
        assert [note.subject for note in compiled.notes if note.pass_name == "duplicates"] == merged


def test_products_around_a_softmax_become_attention(target: Target) -> None:
    between = attention(2, 3, 8, 16, 4)
    fused = compile_network(resolve(between), target)
    assert [note.subject for note in fused.notes if note.pass_name == "attention"] == ["gemm4 gemm"]
    assert not [label for label in labels(fused) if "softmax" in label or "gemm0" in label]
    apart = compile_network(resolve(between), target, ["attention"])
    assert [label for label in labels(apart) if "softmax" in label]


def test_scores_with_other_readers_are_stored(target: Target) -> None:
    between = attention(2, 3, 8, 16, 4)
    tapped = dataclasses.replace(between, output_count=2, output_edges=(OutputEdge(4, 0, 0), OutputEdge(3, 0, 1)))
    assert [label for label in labels(compile_network(resolve(tapped), target)) if "softmax" in label]


def test_an_unknown_pass_is_rejected(target: Target) -> None:
    with pytest.raises(InvalidArgument, match=r"disabled_passes must name passes .*, got 'fusion'"):
        compile_network(resolve(chain(relu())), target, ["fusion"])


def test_steps_that_cannot_be_scheduled_together_stay_separate(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduled = compiler.schedule_in_parts

    def picky(step: Step, target: Target) -> ScheduledSteps:
        if isinstance(step, Map) and sum(isinstance(node, Body) for node in nodes(step.body)) > 1:
            raise NotSupported("this adapter takes one body at a time")
        return scheduled(step, target)

    monkeypatch.setattr(compiler, "schedule_in_parts", picky)
    compiled = compile_network(resolve(chain(relu(), exponential())), target)
    assert len(compiled.program.kernels) == 2
    (note,) = compiled.notes
    assert note.text.endswith("this adapter takes one body at a time")


def test_kernels_bind_no_more_than_the_adapter_allows() -> None:
    few = Target("few", Profile.DISCRETE, max_storage_buffers=4)
    long = chain(*[add()] * 6)
    compiled = compile_network(resolve(long), few)
    assert max(len(kernel.slots) for kernel in compiled.program.kernels) <= 4
    assert len(compiled.program.kernels) > 1


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("added", range(1, 8))
def test_epilogues_of_transformed_convolutions_leave_room_for_their_own_tensors(target: Target, added: int) -> None:
    """The last kernel of Winograd's algorithm reads products, marks, images and filters."""
    graph = Graph()
    x, weight = graph.input((1, 64, 32, 32)), graph.input((64, 64, 3, 3))
    result = ops.conv2d(x, weight, padding=1)
    for _ in range(added):
        result = result + graph.input((1, 64, 32, 32))
    compiled = compile_network(resolve(graph.desc([result])), target)
    assert any("winograd" in kernel.label for kernel in compiled.program.kernels)
    assert max(len(kernel.slots) for kernel in compiled.program.kernels) <= target.slots == 8
    assert not [note.text for note in compiled.notes if "not fused" in note.text]


def test_labels_name_node_and_operator(target: Target) -> None:
    named = graph({"first": product(), "second": relu()}, "x>first.0 x>first.1 first>second.0", "second")
    assert all(label.startswith("graph first gemm") for label in labels(compile_network(resolve(named), target)))


def test_equal_nodes_are_lowered_once_with_memory_of_their_own(target, monkeypatch) -> None:
    """Nodes of equal layers share their description, also where data are read that the initialization knows."""
    layers = Graph(name="layers")
    value, indices = layers.input((4, 40), name="x"), []
    for layer in range(3):
        value = functions.element_wise_add(value, layers.input((4, 40), name=f"bias {layer}", owned=True))
        value, index = functions.top_k(value, axis=1, k=40)
        indices.append(index)
    lowered = []
    lower = operators.lower
    monkeypatch.setattr(operators, "lower", lambda desc: lowered.append(desc.operator) or lower(desc))
    planned = compiler.plan_network(resolve(layers.desc([value, *indices])), target)
    assert lowered == ["ELEMENT_WISE_ADD", "TOP_K"]
    memory = [{part.binding.index for step in steps for part in written(step)} for steps in planned.lowered]
    assert [len(own) for own in memory] == [1, 3, 1, 3, 1, 3, 0]
    assert len(set().union(*memory)) == sum(map(len, memory))
