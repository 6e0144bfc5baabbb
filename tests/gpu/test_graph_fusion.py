"""What is computed inside of other kernels: prologues of products and convolutions, gathers, resampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_checks import agree

from dmlgpu import DataType, Graph
from dmlgpu import directmlx as dml
from dmlgpu.catalog.enums import AxisDirection, InterpolationMode, ReduceFunction
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.plan.parts import tensors
from dmlgpu.compiler.target import Profile
from dmlgpu.ops import directml as functions
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.tensor import Tensor

RNG_SEED = 9


def floats(*sizes: int) -> Any:
    return np.random.default_rng(RNG_SEED).standard_normal(sizes).astype(np.float32)


def integers(low: int, high: int, dtype: type, *sizes: int) -> Any:
    return np.random.default_rng(RNG_SEED).integers(low, high, sizes).astype(dtype)


@pytest.mark.parametrize("rows", [1, 64])
def test_dequantized_weights_are_read_by_the_product(device: Device, rows: int) -> None:
    graph, sizes = Graph(), (1, 1, 96, 80)
    x, weights = graph.input((1, 1, rows, 96), name="x"), graph.input(sizes, DataType.INT8, name="weights")
    scale = graph.input((1, 1, 1, 80), name="scale").broadcast_to(sizes)
    zero = graph.input((1, 1, 1, 80), DataType.INT8, name="zero").broadcast_to(sizes)
    product = dml.gemm(x, functions.element_wise_dequantize_linear(weights, scale, zero))
    arrays = {
        "x": floats(1, 1, rows, 96),
        "weights": integers(-128, 128, np.int8, *sizes),
        "scale": abs(floats(1, 1, 1, 80)) / 128,
        "zero": integers(-3, 4, np.int8, 1, 1, 1, 80),
    }
    labels = agree(device, graph, dml.activation_relu(product), arrays, 1e-4)
    assert all("gemm" in label for label in labels), labels


def test_casts_are_part_of_the_convolution(device: Device) -> None:
    graph = Graph()
    x, filters = (
        graph.input(sizes, DataType.FLOAT16, name=name)
        for name, sizes in (("x", (1, 8, 11, 12)), ("filters", (5, 8, 3, 3)))
    )
    wide = [functions.cast(half, output_type=DataType.FLOAT32) for half in (x, filters)]
    output = functions.cast(dml.convolution(*wide, strides=(2, 2)), output_type=DataType.FLOAT16)
    arrays = {"x": floats(1, 8, 11, 12).astype(np.float16), "filters": floats(5, 8, 3, 3).astype(np.float16)}
    labels = agree(device, graph, output, arrays, 2e-3)
    assert len({label.split()[2] for label in labels}) == 1, labels


def test_expensive_maps_are_computed_before_the_product(device: Device) -> None:
    graph = Graph()
    x, weights = graph.input((1, 1, 20, 24), name="x"), graph.input((1, 1, 24, 16), name="weights")
    arrays = {"x": floats(1, 1, 20, 24), "weights": floats(1, 1, 24, 16)}
    labels = agree(device, graph, dml.gemm(dml.exp(x), weights), arrays, 1e-4)
    assert "exp" in labels[0]


def test_a_residual_computed_from_float16_is_fused_into_the_product(device: Device) -> None:
    graph = Graph()
    x, weights = graph.input((1, 1, 20, 24), name="x"), graph.input((1, 1, 24, 16), name="weights")
    residual = functions.cast(graph.input((1, 1, 20, 16), DataType.FLOAT16, name="r"), output_type=DataType.FLOAT32)
    arrays = {"x": floats(1, 1, 20, 24), "weights": floats(1, 1, 24, 16), "r": floats(1, 1, 20, 16).astype(np.float16)}
    labels = agree(device, graph, dml.gemm(x, weights) + residual * 0.5, arrays, 1e-4)
    assert not [label for label in labels if "cast" in label.split()[2]], labels


@pytest.mark.parametrize("data_type", [DataType.FLOAT32, DataType.FLOAT16])
def test_gathered_rows_are_added_at_once(device: Device, data_type: DataType) -> None:
    graph = Graph()
    table, rows = graph.input((10, 64), data_type, name="table"), graph.input((3, 1), DataType.UINT32, name="rows")
    place = graph.input((3, 64), data_type, name="place")
    gathered = functions.gather_nd1(
        table, rows, input_dimension_count=2, indices_dimension_count=2, batch_dimension_count=0
    )
    arrays = {
        "table": floats(10, 64).astype(data_type.numpy),
        "rows": np.array([[1], [9], [10]], np.uint32),
        "place": floats(3, 64).astype(data_type.numpy),
    }
    assert len(agree(device, graph, dml.activation_relu(gathered + place), arrays)) == 1


@pytest.mark.parametrize("mode", [InterpolationMode.NEAREST_NEIGHBOR, InterpolationMode.LINEAR])
def test_an_addition_is_fused_into_resampling(device: Device, mode: InterpolationMode) -> None:
    graph = Graph()
    small, large = graph.input((1, 3, 5, 6), name="small"), graph.input((1, 3, 10, 12), name="large")
    sampled = functions.resample1(
        small,
        output_sizes=large.sizes,
        interpolation_mode=mode,
        scales=(1.0, 1.0, 2.0, 2.0),
        input_pixel_offsets=(0.5,) * 4,
        output_pixel_offsets=(-0.5,) * 4,
    )
    arrays = {"small": floats(1, 3, 5, 6), "large": floats(1, 3, 10, 12)}
    agree(device, graph, dml.activation_relu(sampled + large), arrays)
    agree(device, graph, dml.activation_relu(dml.exp(sampled) * 0.5), {"small": arrays["small"]})


def test_padding_that_moves_bits_is_fused_with_its_input(device: Device) -> None:
    graph = Graph()
    x = graph.input((1, 2, 4, 6), DataType.INT8, name="x")
    padded = functions.padding1(x + x, padding_value=7, start_padding=(0, 0, 1, 2), end_padding=(0, 1, 0, 1))
    arrays = {"x": integers(-60, 60, np.int8, 1, 2, 4, 6)}
    agree(device, graph, padded, arrays, 0)
    agree(device, graph, padded + padded, arrays, 0)
    agree(device, graph, dml.activation_relu(functions.cast(padded, output_type=DataType.FLOAT32)), arrays, 0)


@pytest.mark.parametrize(("count", "data_type"), [(48, DataType.FLOAT16), (5000, DataType.FLOAT32)])
def test_a_residual_is_added_where_rows_are_normalized(device: Device, count: int, data_type: DataType) -> None:
    graph, sizes = Graph(), (1, 1, 6, count)
    x, residual = (graph.input(sizes, data_type, name=name) for name in ("x", "residual"))
    scale, bias = (
        graph.input((1, 1, 1, count), data_type, name=name).broadcast_to(sizes) for name in ("scale", "bias")
    )
    normalized = dml.mean_variance_normalization(
        x + residual, scale, bias, axes=(3,), use_mean=True, use_variance=True, epsilon=1e-5
    )
    kinds = {"x": sizes, "residual": sizes, "scale": (1, 1, 1, count), "bias": (1, 1, 1, count)}
    rng = np.random.default_rng(RNG_SEED)
    arrays = {name: rng.standard_normal(shape).astype(data_type.numpy) for name, shape in kinds.items()}
    labels = agree(device, graph, normalized, arrays, 1e-4 if data_type is DataType.FLOAT32 else 4e-3)
    assert not [label for label in labels if "add" in label.split()[2]], labels
    softmax = dml.activation_softmax(x * 2 + residual, axes=(3,))
    assert not [label for label in agree(device, graph, softmax, arrays, 2e-3) if "add" in label.split()[2]]
    dear = agree(device, graph, dml.activation_softmax(dml.exp(x), axes=(3,)), arrays, 2e-3)
    assert [label for label in dear if "exp" in label]
    softmax = dml.activation_softmax(dml.exp(x), axes=(3,))
    network = resolve(graph.desc([softmax]))
    (*_, rows) = compile_network(network, device.backend.target).plan.steps
    assert len({tensor.binding for tensor in tensors(rows)}) == 2, "expensive values are computed once"


@pytest.mark.parametrize("count", [6, 300, 70000])
@pytest.mark.parametrize("axes", [(3,), (2,), (1, 3)])
def test_maps_after_a_reduction_are_fused_into_its_store(device: Device, count: int, axes: tuple[int, ...]) -> None:
    graph = Graph()
    sizes = (1, 2, 4, count) if 3 in axes else (1, 2, count, 4)
    x, bias = graph.input(sizes, name="x"), graph.input((1, 2, 1, 1), name="bias")
    total = dml.reduce(x, ReduceFunction.AVERAGE, axes=axes)
    if 1 not in axes:
        total += bias.broadcast_to(total.sizes)
    result = functions.cast(dml.activation_relu(total * 8 + 3), output_type=DataType.INT8)
    arrays = {"x": np.round(floats(*sizes) * 4) / 4, "bias": floats(1, 2, 1, 1).round()}
    labels = agree(device, graph, result, arrays, 1.01)
    assert all("reduce" in label for label in labels), labels


def test_maps_after_pooling_are_fused(device: Device) -> None:
    graph, sizes = Graph(), (1, 3, 8, 10)
    x, scale = graph.input(sizes, name="x"), graph.input((1, 1, 1, 1), name="scale")
    pooled = dml.average_pooling(x, (2, 3), strides=(2, 1), include_padding=False)
    quantized = functions.element_wise_quantize_linear(
        pooled, scale.broadcast_to(pooled.sizes), output_type=DataType.UINT8
    )
    arrays = {"x": abs(floats(*sizes)) * 50, "scale": np.full((1, 1, 1, 1), 0.7, np.float32)}
    labels = agree(device, graph, quantized, arrays, 1)
    assert len(labels) == 1, labels
    highest = dml.max_pooling(x, (3, 3), strides=(2, 2)).output
    labels = agree(device, graph, dml.activation_sigmoid(highest * 0.5), arrays)
    assert len(labels) == 2, labels  # the largest elements, and their sigmoid


def test_float16_results_are_rounded_before_later_steps(device: Device) -> None:
    graph = Graph()
    x = graph.input((1, 1, 8, 300), DataType.FLOAT16, name="x")
    result = dml.reduce(x, ReduceFunction.SUM, axes=(3,)) * 3
    arrays = {"x": integers(-60, 60, np.float16, 1, 1, 8, 300)}
    agree(device, graph, result, arrays, 0)


@pytest.mark.parametrize("data_type", [DataType.FLOAT32, DataType.FLOAT16])
def test_products_and_convolutions_write_inside_a_border(device: Device, data_type: DataType) -> None:
    graph = Graph()
    x, weights = (graph.input((1, 2, 6, 6), data_type, name=name) for name in ("x", "weights"))
    filters = graph.input((2, 2, 3, 3), data_type, name="filters")
    arrays = {"x": floats(1, 2, 6, 6), "weights": floats(1, 2, 6, 6), "filters": floats(2, 2, 3, 3)}
    arrays = {name: array.astype(data_type.numpy) for name, array in arrays.items()}
    tolerance = 1e-4 if data_type is DataType.FLOAT32 else 2e-2
    for computed in (
        dml.gemm(x, weights),
        dml.activation_relu(dml.convolution(x, filters)),
        dml.activation_softmax(x, axes=(3,)),
    ):
        padded = functions.padding1(computed, padding_value=-1.5, start_padding=(0, 0, 1, 3), end_padding=(0, 1, 2, 1))
        labels = agree(device, graph, padded, arrays, tolerance)
        if data_type is DataType.FLOAT32 or "gemm" in labels[-1]:
            assert "border" in labels[0], labels


def sampled_by(graph: Graph, sizes: tuple[int, ...], factors: tuple[float, ...], data_type: DataType) -> Tensor:
    """An input whose elements nearest neighbor repeats, as many times as the factors say."""
    return functions.resample3(
        graph.input(sizes, data_type, name="small"),
        interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR,
        rounding_direction=AxisDirection.DECREASING,
        scales=factors,
        input_pixel_offsets=(0.0,) * len(sizes),
        output_pixel_offsets=(0.0,) * len(sizes),
        output_sizes=tuple(int(size * factor) for size, factor in zip(sizes, factors, strict=True)),
        antialiased=False,
    )


@pytest.mark.parametrize("factors", [(1, 1, 2, 2), (1, 1, 4, 4), (1, 1, 3, 8), (1, 1, 1, 6), (2, 1, 2, 4)])
@pytest.mark.parametrize("width", [4, 5])
def test_elements_that_are_repeated_are_added_and_joined(
    device: Device, factors: tuple[float, ...], width: int
) -> None:
    sizes = (2, 3, 5, width)
    graph = Graph()
    sampled = sampled_by(graph, sizes, factors, DataType.FLOAT32)
    large = graph.input(sampled.sizes, name="large")
    small = floats(*sizes)
    small.view(np.uint32)[0, 0, 0, :2] = 0x7F800001, 0xFFC12345  # NaNs keep their bits where they are only moved
    arrays = {"small": floats(*sizes), "large": floats(*sampled.sizes)}
    agree(device, graph, dml.activation_relu(sampled + large) * sampled, arrays)
    joined = functions.join([large, sampled, large], axis=1)
    agree(device, graph, joined, {**arrays, "small": small}, 0)


@pytest.mark.parametrize("data_type", [DataType.FLOAT16, DataType.UINT8, DataType.INT8])
@pytest.mark.parametrize(("width", "factor"), [(4, 2), (4, 8), (3, 2), (3, 3)])  # rows of words, and parts of words
def test_narrow_elements_that_are_repeated_are_joined(
    device: Device, data_type: DataType, width: int, factor: int
) -> None:
    graph = Graph()
    sampled = sampled_by(graph, (1, 3, 3, width), (1, 1, factor, factor), data_type)
    large = graph.input(sampled.sizes, data_type, name="large")
    small = integers(0, 100, np.int8, 1, 3, 3, width).astype(data_type.numpy)
    arrays = {"small": small, "large": np.full(sampled.sizes, 7, data_type.numpy)}
    agree(device, graph, functions.join([sampled, large, sampled], axis=1), arrays, 0)


def test_two_ways_to_repeat_along_a_dimension_are_left_as_they_are(device: Device) -> None:
    graph = Graph()
    twice = sampled_by(graph, (1, 1, 4, 8), (1, 1, 2, 2), DataType.FLOAT32)
    four = functions.resample3(
        graph.input((1, 1, 2, 4), name="smaller"),
        interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR,
        rounding_direction=AxisDirection.DECREASING,
        scales=(1.0, 1.0, 4.0, 4.0),
        input_pixel_offsets=(0.0,) * 4,
        output_pixel_offsets=(0.0,) * 4,
        output_sizes=twice.sizes,
        antialiased=False,
    )
    agree(device, graph, twice + four, {"small": floats(1, 1, 4, 8), "smaller": floats(1, 1, 2, 4)}, 0)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [32, 30])
def test_operands_read_in_pairs_are_read_in_units_by_the_epilogue(device: Device, outputs: int) -> None:
    """Both are one tensor, which lies where the graph put it: blocks of 32 bytes, of which others see float16."""
    graph = Graph()
    x = functions.activation_relu(graph.input((1, outputs, 16, 16), name="x"))
    filters = graph.input((outputs, outputs, 1, 1), name="filters")
    for _ in range(2):
        x = functions.element_wise_add(dml.convolution(x, filters), x)
    arrays = {"x": floats(1, outputs, 16, 16), "filters": floats(outputs, outputs, 1, 1) / 8}
    agree(device, graph, x, arrays, 1e-4)
    program = compile_network(resolve(graph.desc([x])), device.backend.target).program
    pairs = [kernel for kernel in program.kernels if "array<vec4<u64>>" in kernel.wgsl]
    if device.backend.target.moves_doubles:
        assert any("both.zw" in kernel.wgsl for kernel in pairs)
    else:
        assert pairs == []


def test_rows_that_are_stored_together_are_scaled_by_a_number_each(device: Device) -> None:
    """Rows of units of two, of which CPU adapters store several at a time."""
    graph, sizes = Graph(), (600, 30)
    x, scale = graph.input(sizes, name="x"), graph.input((600, 1), name="scale")
    scaled = functions.activation_softmax1(x, axes=[1]) * scale.broadcast_to(sizes)
    labels = agree(device, graph, scaled, {"x": floats(*sizes), "scale": floats(600, 1)})
    assert len(labels) == 1, labels


def test_depthwise_convolutions_read_pairs_and_units_of_their_filters(device: Device) -> None:
    graph = Graph()
    x = functions.activation_relu(graph.input((2, 6, 9, 32), name="x"))
    padding = {"start_padding": (2, 2), "end_padding": (2, 2)}
    filters = graph.input((6, 1, 5, 5), name="filters", owned=True)
    output = functions.activation_relu(dml.convolution(x, filters, group_count=6, **padding))
    labels = agree(device, graph, output, {"x": floats(2, 6, 9, 32), "filters": floats(6, 1, 5, 5)}, 1e-4)
    assert any("depthwise" in label for label in labels)
    program = compile_network(resolve(graph.desc([output])), device.backend.target).program
    in_units = [kernel.label for kernel in program.initialization]
    assert any("lay out taps" in label for label in in_units) == (device.backend.target.profile is Profile.CPU)
