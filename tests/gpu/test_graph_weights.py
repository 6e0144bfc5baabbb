"""Work that graphs do with weights: at initialization, in a convolution's filters and padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_checks import agree

from dmlgpu import DataType, Graph
from dmlgpu import directmlx as dml
from dmlgpu.catalog.enums import ConvolutionDirection, ReduceFunction
from dmlgpu.ops import directml as functions
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.tensor import Tensor


def normalized_convolution(bias: bool, direction: ConvolutionDirection, groups: int) -> tuple[Graph, Tensor, Any]:
    rng = np.random.default_rng(5)
    shapes = {"x": (2, 4, 9, 8), "filter": (4, 4 // groups, 3, 3), "b": (1, 4, 1, 1)}
    shapes |= dict.fromkeys(("mean", "scale", "shift"), (1, 4, 1, 1))
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    arrays["variance"] = rng.uniform(0.1, 4, (1, 4, 1, 1)).astype(np.float32)
    graph = Graph()
    tensors = {name: graph.input(array.shape, name=name, owned=name != "x") for name, array in arrays.items()}
    features = dml.convolution(
        tensors["x"],
        tensors["filter"],
        tensors["b"] if bias else None,
        direction=direction,
        start_padding=(1, 1),
        end_padding=(1, 1),
        group_count=groups,
    )
    names = ("mean", "variance", "scale", "shift")
    statistics = (tensors[name] for name in names)
    output = dml.batch_normalization(features, *statistics, spatial=True, epsilon=1e-3)
    used = {name: array for name, array in arrays.items() if bias or name != "b"}
    return graph, dml.activation_relu(output), used


@pytest.mark.parametrize(
    ("direction", "groups"),
    [(ConvolutionDirection.FORWARD, 1), (ConvolutionDirection.FORWARD, 2), (ConvolutionDirection.BACKWARD, 1)],
)
@pytest.mark.parametrize("bias", [False, True])
def test_batch_normalization_goes_into_the_weights(
    device: Device, bias: bool, direction: ConvolutionDirection, groups: int
) -> None:
    graph, output, arrays = normalized_convolution(bias, direction, groups)
    labels = agree(device, graph, output, arrays)
    assert not [label for label in labels if "sqrt" in label or "multiply" in label or "batch_normalization" in label]


def test_a_normalization_with_groups_of_a_transposed_convolution_stays(device: Device) -> None:
    graph, output, arrays = normalized_convolution(False, ConvolutionDirection.BACKWARD, 2)
    agree(device, graph, output, arrays)


@pytest.mark.parametrize("direction", ConvolutionDirection)
@pytest.mark.parametrize("sizes", [(1, 4, 1, 1), (1, 1, 1, 1)], ids=["a channel", "all"])
def test_a_value_added_to_channels_is_a_bias(
    device: Device, direction: ConvolutionDirection, sizes: tuple[int, ...]
) -> None:
    """With it, the normalization goes into the weights as well."""
    rng = np.random.default_rng(7)
    arrays = {"x": rng.standard_normal((2, 4, 9, 8)), "filter": rng.standard_normal((4, 4, 2, 2))}
    graph = Graph()
    tensors = {name: graph.input(array.shape, name=name, owned=name != "x") for name, array in arrays.items()}
    features = dml.convolution(tensors["x"], tensors["filter"], direction=direction, strides=(2, 2))
    added = graph.constant(rng.standard_normal(sizes).astype(np.float32)).broadcast_to(features.sizes)
    statistics = [graph.constant(rng.uniform(0.5, 2, (1, 4, 1, 1)).astype(np.float32)) for _ in range(4)]
    both = dml.batch_normalization(functions.element_wise_add(added, features), *statistics, spatial=True, epsilon=1e-3)
    labels = agree(device, graph, both, {name: array.astype(np.float32) for name, array in arrays.items()})
    assert all("convolution" in label for label in labels), labels


def test_a_value_added_to_rows_or_read_twice_is_no_bias(device: Device) -> None:
    rng = np.random.default_rng(8)
    graph = Graph()
    x, filters = graph.input((1, 3, 4, 8), name="x"), graph.input((3, 3, 1, 1), name="filters")
    arrays = {"x": rng.standard_normal((1, 3, 4, 8)), "filters": rng.standard_normal((3, 3, 1, 1))}
    floats = {name: array.astype(np.float32) for name, array in arrays.items()}
    row, channel = (
        graph.constant(rng.standard_normal(size).astype(np.float32)) for size in ((1, 1, 1, 8), (1, 3, 1, 1))
    )
    result = dml.convolution(x, filters)
    agree(device, graph, functions.element_wise_add(result, row.broadcast_to(result.sizes)), floats)
    biased = functions.element_wise_add(result, channel.broadcast_to(result.sizes))
    agree(device, graph, functions.element_wise_multiply(biased, result), floats)


def test_nodes_of_weights_alone_run_once(device: Device) -> None:
    rng = np.random.default_rng(6)
    graph = Graph()
    x, weights = graph.input((1, 1, 5, 64), name="x"), graph.input((1, 1, 64, 32), name="weights", owned=True)
    small = dml.reduce(dml.exp(weights) * 0.25, ReduceFunction.SUM, axes=(2,))
    product = dml.gemm(x, dml.exp(weights) / 4) + small.broadcast_to((1, 1, 5, 32))
    arrays = {"x": rng.standard_normal(x.sizes), "weights": rng.standard_normal(weights.sizes)}
    labels = agree(device, graph, product, {name: array.astype(np.float32) for name, array in arrays.items()})
    assert not [label for label in labels if "exp" in label or "reduce" in label], labels


def test_outputs_and_large_results_of_weights_are_computed_at_each_execution(device: Device) -> None:
    graph = Graph()
    weights = graph.input((1, 1, 64, 128), DataType.INT8, name="weights", owned=True)
    floats = functions.cast(weights, output_type=DataType.FLOAT32)
    assert agree(
        device, graph, floats, {"weights": np.arange(-64, 64, dtype=np.int8) * np.ones((1, 1, 64, 1), np.int8)}
    )
    x = graph.input((1, 1, 3, 64), name="x")
    arrays = {
        "weights": np.arange(-64, 64, dtype=np.int8) * np.ones((1, 1, 64, 1), np.int8),
        "x": np.random.default_rng(1).standard_normal(x.sizes).astype(np.float32),
    }
    agree(device, graph, dml.gemm(x, floats * 0.01), arrays)


@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
def test_padding_is_done_by_the_convolution(device: Device, strides: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    graph = Graph()
    x, filters = graph.input((1, 2, 7, 6), name="x"), graph.input((3, 2, 3, 3), name="filters", owned=True)
    padded = functions.padding1(x, start_padding=(0, 0, 1, 2), end_padding=(0, 0, 3, 0))
    output = dml.convolution(padded, filters, strides=strides, start_padding=(1, 0), end_padding=(0, 1))
    arrays = {
        graph_input.name: rng.standard_normal(graph_input.desc.sizes).astype(np.float32) for graph_input in graph.inputs
    }
    labels = agree(device, graph, output, arrays)
    assert not [label for label in labels if "padding" in label], labels


def test_other_paddings_stay(device: Device) -> None:
    rng = np.random.default_rng(8)
    for lead, value in (((0, 0), 1.5), ((0, 1), 0.0)):
        graph = Graph()
        channels = 2 + lead[1]
        x, filters = graph.input((1, 2, 7, 6), name="x"), graph.input((3, channels, 3, 3), name="filters")
        padded = functions.padding1(x, padding_value=value, start_padding=(*lead, 1, 2), end_padding=(0, 0, 3, 0))
        arrays = {
            graph_input.name: rng.standard_normal(graph_input.desc.sizes).astype(np.float32)
            for graph_input in graph.inputs
        }
        labels = agree(device, graph, dml.convolution(padded, filters), arrays)
        assert [label for label in labels if "padding" in label], labels
