"""Constants of one element, which kernels have in their text: every number is what it would be if it were loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlgpu import DataType, Graph
from dmlgpu.catalog.enums import QuantizationType
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.passes.numbers import NUMBER, NUMBERS
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.conformance.running.runner import run_graph
from dmlgpu.ops import directml as f
from dmlgpu.runtime.device import Device

SPECIAL = [0.0, -0.0, 1.0, -3.5, 1e-40, 3.4028235e38, 65504.0, float("inf"), float("-inf"), float("nan")]
ROUNDED = [-0.0, 65504.0, float("inf")]


def in_text(graph: Any, device: Device) -> bool:
    """Whether a kernel has numbers in its text."""
    program = compile_network(resolve(graph), device.backend.target).program
    return any(NUMBER in kernel.shaders for kernel in program.kernels)


def flushed(values: Any) -> Any:
    """Take subnormal values for 0: drivers may flush the result of ``x * y``, and keep that of ``x * 1``."""
    if values.dtype.kind != "f":
        return values
    return np.where(np.abs(values) < np.finfo(values.dtype).tiny, np.copysign(values.dtype.type(0), values), values)


def assert_as_loaded(device: Device, number: Any, values: Any, data_type: DataType) -> list[Any]:
    """Compute with a number in the text and with the same in memory; return the results of the first."""
    graph = Graph()
    x = graph.input((1, 1, 1, len(values)), data_type)
    constant = graph.constant(np.array([number], values.dtype), data_type).broadcast_to(x.sizes)
    desc = graph.desc([f.element_wise_multiply(x, constant), f.element_wise_add(constant, x)])
    subnormal = data_type is DataType.FLOAT32 and abs(number) == 1e-40
    assert in_text(desc, device) != subnormal  # which drivers may flush where they load it, and keep in text
    results = run_graph(device.compile_graph(desc), [values])
    loaded = run_graph(device.compile_graph(desc, disabled_passes=(NUMBERS.name,)), [values])
    for one_found, one_loaded in zip(map(flushed, results), map(flushed, loaded), strict=True):
        np.testing.assert_array_equal(one_found, one_loaded)
        np.testing.assert_array_equal(np.signbit(one_found), np.signbit(one_loaded))
    return results


@pytest.mark.parametrize(
    ("number", "data_type"),
    [*((number, DataType.FLOAT32) for number in SPECIAL), *((number, DataType.FLOAT16) for number in ROUNDED)],
    ids=str,
)
def test_special_constants_equal_loaded_ones(device: Device, number: float, data_type: DataType) -> None:
    with np.errstate(all="ignore"):
        values = np.array(SPECIAL, np.float32).astype(data_type.numpy)
        product, total = assert_as_loaded(device, number, values, data_type)
        value = np.float32(data_type.numpy.type(number))
        normal = np.abs(values.astype(np.float32)) != np.float32(1e-40)
        if abs(number) != 1e-40:
            wide = values.astype(np.float32)
            np.testing.assert_array_equal(product.ravel()[normal], (wide * value).astype(data_type.numpy)[normal])
            np.testing.assert_array_equal(total.ravel()[normal], (wide + value).astype(data_type.numpy)[normal])


@pytest.mark.parametrize("data_type", [DataType.INT32, DataType.UINT32, DataType.UINT16, DataType.INT8])
def test_integers_of_every_width(device: Device, data_type: DataType) -> None:
    limits = np.iinfo(data_type.numpy)
    values = np.array([0, 1, 7, 127, limits.min, limits.max], data_type.numpy)
    for number in (limits.min, limits.max):
        product, total = assert_as_loaded(device, number, values, data_type)
        value = data_type.numpy.type(number)
        np.testing.assert_array_equal(product.ravel(), values * value)
        np.testing.assert_array_equal(total.ravel(), values + value)


@pytest.mark.parametrize(("data_type", "number"), [(DataType.UINT4, 11), (DataType.INT4, -5), (DataType.INT4, 6)])
def test_integers_of_4_bits(device: Device, data_type: DataType, number: int) -> None:
    graph = Graph()
    x, scale = graph.input((1, 4), data_type), graph.input((1, 1))
    zero = graph.constant([[number]], data_type)
    desc = graph.desc([f.dequantize(x, (scale, zero), quantization_type=QuantizationType.SCALE_ZERO_POINT)])
    assert in_text(desc, device)
    values = np.array([[0, 1, 7, 3]], data_type.numpy)
    (result,) = run_graph(device.compile_graph(desc), [x.desc.encode(values), np.array([[0.5]], np.float32)])
    np.testing.assert_array_equal(result, (values.astype(np.float32) - number) / 2)


def test_numbers_that_wgsl_has_not_are_loaded(device: Device) -> None:
    graph = Graph()
    x = graph.input((1, 1, 1, 5), DataType.INT64)
    three = graph.constant(np.array([3], np.int64), DataType.INT64).broadcast_to(x.sizes)
    desc = graph.desc([f.element_wise_add(x, three)])
    assert not in_text(desc, device)
    (total,) = run_graph(device.compile_graph(desc), [np.arange(5, dtype=np.int64)])
    assert total.ravel().tolist() == [3, 4, 5, 6, 7]


def test_constants_of_several_elements_are_loaded(device: Device) -> None:
    graph = Graph()
    x = graph.input((1, 1, 2, 4))
    bias = graph.constant(np.array([1, 2, 3, 4], np.float32)).broadcast_to(x.sizes)
    desc = graph.desc([f.element_wise_add(x, bias)])
    assert not in_text(desc, device)
    (total,) = run_graph(device.compile_graph(desc), [np.zeros((1, 1, 2, 4), np.float32)])
    assert total.ravel().tolist() == [1, 2, 3, 4] * 2
