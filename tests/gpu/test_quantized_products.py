"""Products with columns of 4 and 8 bits in blocks, on every adapter with both families of schedules."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from graph_checks import agree

from dmlgpu import DataType, Graph
from dmlgpu import directmlx as dml
from dmlgpu.catalog.enums import MatrixTransform, QuantizationType
from dmlgpu.compiler.target import Profile
from dmlgpu.compiler.wgsl import templates
from dmlgpu.ops import directml as functions
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.tensors.tensor import Tensor

U4, I4, U8, I8 = DataType.UINT4, DataType.INT4, DataType.UINT8, DataType.INT8
F32, F16 = DataType.FLOAT32, DataType.FLOAT16


@pytest.fixture
def cpu_device(backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device on each adapter, with the schedules for CPU adapters."""
    monkeypatch.setattr(backend, "target", dataclasses.replace(backend.target, profile=Profile.CPU))
    return Device.from_backend(backend)


def product(
    sizes: tuple[int, int, int, int],
    kind: DataType,
    *,
    zero_point: bool = False,
    real: DataType = F32,
    batch: tuple[int, ...] = (),
    bias: bool = True,
    owned: bool = False,
    transposed: bool = False,
    norm: bool | None = None,
) -> tuple[Graph, Tensor, dict[str, Any]]:
    """A product of rows by the rows of a quantized matrix, plus a bias; sizes are rows, columns, inner, block. A matrix
    that is ``owned`` is known at initialization. Rows that are ``transposed`` are contiguous across. With a ``norm``
    they are divided by their root mean square, and scaled if it is true, those of a stack of matrices each by its own.
    """
    rows, columns, inner, block = sizes
    rng = np.random.default_rng(rows + columns)
    blocks = (*batch, columns, inner // block)

    def integers(shape: tuple[int, ...]) -> Any:
        return rng.integers(0, 256, -(-math.prod(shape) * kind.bits // 32) * 4, np.uint8)

    scale = 4 / 2**kind.bits / math.sqrt(inner) if owned else 0.01
    arrays = {
        "x": rng.standard_normal((*batch, *((inner, rows) if transposed else (rows, inner)))).astype(real.numpy),
        "q": integers((*batch, columns, inner)),
        "s": rng.uniform(scale, 2 * scale, blocks).astype(real.numpy),
        "z": integers(blocks),
        "b": rng.standard_normal((*batch, rows, columns)).astype(real.numpy),
        "g": rng.uniform(0.5, 1.5, (*batch, rows, inner) if batch else (inner,)).astype(real.numpy),
    }
    shapes = {name: array.shape for name, array in arrays.items()} | {"q": (*batch, columns, inner), "z": blocks}
    kinds = {"x": real, "q": kind, "s": real, "z": kind, "b": real, "g": real}
    names = [name for name in arrays if {"z": zero_point, "b": bias, "g": norm}.get(name, True)]
    graph = Graph()
    tensors = {name: graph.input(shapes[name], kinds[name], name=name, owned=owned and name in "qsz") for name in names}
    parameters = tuple(tensors[name] for name in "sz" if name in tensors)
    quantization = QuantizationType.SCALE_ZERO_POINT if zero_point else QuantizationType.SCALE
    weights = functions.dequantize(tensors["q"], parameters, quantization_type=quantization)
    trans_a = MatrixTransform.TRANSPOSE if transposed else MatrixTransform.NONE
    x = tensors["x"]
    if norm is not None:
        scale_of_rows = tensors["g"].broadcast_to(x.sizes) if norm else None
        x = functions.mean_variance_normalization2(
            x, scale_of_rows, axes=(len(batch) + 1,), use_mean=False, epsilon=0.25
        )
    sums = functions.gemm(x, weights, trans_a=trans_a, trans_b=MatrixTransform.TRANSPOSE)
    return graph, dml.add(sums, tensors["b"]) if bias else sums, {name: arrays[name] for name in names}


@pytest.mark.parametrize(
    ("sizes", "kind", "options"),
    [
        pytest.param((1, 21, 64, 32), I4, {}, id="one row"),
        pytest.param((3, 16, 96, 32), U4, {"zero_point": True}, id="zero points of 4 bits"),
        pytest.param((2, 9, 64, 16), I8, {"zero_point": True}, id="8 bits"),
        pytest.param((1, 24, 512, 256), U4, {"zero_point": True}, id="blocks of several units"),
        pytest.param((1, 6, 1040, 8), I4, {}, id="blocks of one word"),
        pytest.param((16, 10, 64, 64), U8, {}, id="the most rows"),
        pytest.param((20, 24, 64, 32), U4, {"zero_point": True}, id="many rows"),
        pytest.param((20, 21, 64, 32), I8, {}, id="many rows by odd columns"),
        pytest.param((2, 12, 64, 32), I4, {"batch": (2, 3)}, id="a stack of matrices"),
        pytest.param((1, 22, 64, 32), U4, {"zero_point": True, "real": F16}, id="float16"),
        pytest.param((3, 16, 96, 32), U4, {"transposed": True}, id="transposed rows"),
        pytest.param((1, 21, 60, 20), I4, {}, id="blocks that no unit divides"),
    ],
)
def test_products_in_blocks(
    device: Device, sizes: tuple[int, int, int, int], kind: DataType, options: dict[str, Any]
) -> None:
    rows, _, _, block = sizes
    tolerance = 2e-2 if options.get("real") is F16 else 2e-5
    labels = agree(device, *product(sizes, kind, **options), tolerance=tolerance)
    assert not [label for label in labels if label.endswith("dequantize map")]
    assert any("quantized" in label for label in labels) == (rows <= 16 and block != 20)


def test_transposed_rows_without_subgroups(cpu_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    target = cpu_device.backend.target
    features = frozenset(target.features) - {"subgroup"}
    monkeypatch.setattr(cpu_device.backend, "target", dataclasses.replace(target, features=features))
    labels = agree(cpu_device, *product((3, 16, 96, 32), U4, transposed=True))
    assert any("quantized columns" in label for label in labels), labels


@pytest.mark.parametrize(
    ("sizes", "kind", "zero_point"),
    [
        pytest.param((1, 21, 64, 32), U4, False, id="one row"),
        pytest.param((4, 10, 64, 32), U4, True, id="some rows, zero points"),
        pytest.param((3, 8, 96, 32), U8, True, id="8 bits"),
        pytest.param((17, 8, 64, 32), U4, False, id="more rows"),
    ],
)
def test_products_read_selected_matrices_where_they_are(
    device: Device, sizes: tuple[int, int, int, int], kind: DataType, zero_point: bool
) -> None:
    """Batches select 2 of 5 matrices, one of them twice; index 5 is outside and selects zeros."""
    rows, columns, inner, block = sizes
    rng = np.random.default_rng(rows)
    matrices, selection = 5, np.array([3, 0, 3, 5], np.uint32)
    blocks = (columns, inner // block)
    count = matrices * columns * inner * kind.bits // 8
    arrays = {
        "x": rng.standard_normal((1, 4, rows, inner)).astype(np.float32),
        "q": rng.integers(0, 1 << 32, count // 4, np.uint32),
        "s": rng.uniform(0.01, 0.02, (matrices, *blocks)).astype(np.float32),
        "z": rng.uniform(0, 10, (matrices, *blocks)).astype(np.float32),
        "n": selection,
    }
    graph = Graph()
    x, numbers = graph.input((1, 4, rows, inner), F32, name="x"), graph.input((1, 4), DataType.UINT32, name="n")
    codes = graph.input((matrices, count // 4 // matrices), DataType.UINT32, name="q")
    scale, zero = (graph.input((matrices, math.prod(blocks)), F32, name=name) for name in "sz")
    codes, scale, zero = (
        functions.gather(tensor, numbers, axis=0, index_dimensions=1) for tensor in (codes, scale, zero)
    )
    sizes_of_blocks = (1, 4, *blocks, block)
    integers = codes.reinterpret(sizes_of_blocks, None, kind)
    scales, zeros = (tensor.reinterpret((1, 4, *blocks, 1)).broadcast_to(sizes_of_blocks) for tensor in (scale, zero))
    unit = graph.constant(np.ones((1,) * 5, np.float32))
    floats = functions.dequantize(integers, (unit,), quantization_type=QuantizationType.SCALE)
    weights = dml.multiply(dml.subtract(floats, zeros) if zero_point else floats, scales)
    weights = weights.reinterpret((1, 4, columns, inner))
    labels = agree(device, graph, functions.gemm(x, weights, trans_b=MatrixTransform.TRANSPOSE), arrays)
    assert (len(labels) == 1) == (rows <= 16), labels


@pytest.mark.parametrize("rows", [1, 17])
def test_products_of_floats_of_4_bits(device: Device, rows: int) -> None:
    """Positions of floats of 4 bits become twice their values in the product; for few rows, in its kernel."""
    rng = np.random.default_rng(rows)
    arrays = {
        "x": rng.standard_normal((rows, 64)).astype(np.float32),
        "q": rng.integers(0, 256, 24 * 64 // 2, np.uint8),
        "s": rng.uniform(0.01, 0.02, (24, 2, 1)).astype(np.float32),
    }
    graph = Graph()
    x, scale = graph.input((rows, 64), F32, name="x"), graph.input((24, 2, 1), F32, name="s")
    codes = graph.input((24, 64), U4, name="q").reinterpret((24, 2, 32))
    unit = graph.constant(np.ones((1, 1, 1), np.float32)).broadcast_to(codes.sizes)
    middle = graph.constant(np.full((1, 1, 1), 8, np.uint8), U4).broadcast_to(codes.sizes)
    scaling = QuantizationType.SCALE_ZERO_POINT
    positions = functions.dequantize(codes, (unit, middle), quantization_type=scaling)
    low, high = (functions.element_wise_clip1(positions, min=-limit, max=limit) for limit in (4.0, 6.0))
    doubled = dml.subtract(dml.subtract(positions * 4.0, low), high * 2.0)
    weights = dml.multiply(doubled, scale.broadcast_to(doubled.sizes)).reinterpret((24, 64))
    labels = agree(device, graph, functions.gemm(x, weights, trans_b=MatrixTransform.TRANSPOSE), arrays)
    assert ("quantized" in labels[0] and len(labels) == 1) == (rows <= 16), labels


@pytest.mark.parametrize(
    ("sizes", "kind", "options"),
    [
        pytest.param((1, 32, 64, 32), I4, {}, id="one row"),
        pytest.param((1, 4224, 64, 32), U4, {"zero_point": True}, id="many columns"),
        pytest.param((3, 26, 96, 32), U4, {"zero_point": True}, id="some rows by odd columns"),
        pytest.param((16, 20, 64, 64), U8, {}, id="the most rows"),
        pytest.param((1, 24, 512, 256), U4, {"real": F16}, id="float16"),
        pytest.param((2, 12, 64, 32), I4, {"batch": (2, 3)}, id="a stack of matrices"),
        pytest.param((20, 24, 64, 32), U4, {}, id="many rows"),
    ],
)
def test_gated_products(
    device: Device, sizes: tuple[int, int, int, int], kind: DataType, options: dict[str, Any]
) -> None:
    rows, columns, _, _ = sizes
    graph, sums, arrays = product(sizes, kind, **options, bias=False)
    axis = len(sums.sizes) - 1
    gate, up = dml.split(sums, axis, [columns // 2, columns // 2])
    output = dml.multiply(dml.multiply(gate, dml.activation_sigmoid(gate)), up)
    labels = agree(device, graph, output, arrays, tolerance=2e-2 if options.get("real") is F16 else 2e-5)
    assert (len(labels) == 1) == (rows <= 16)


@pytest.mark.parametrize(
    ("sizes", "kind", "options"),
    [
        pytest.param((1, 20, 64, 32), I4, {}, id="one row, no subgroup needed"),
        pytest.param((1, 4224, 1024, 32), U4, {"zero_point": True}, id="many columns"),
        pytest.param((3, 26, 2176, 32), U4, {"zero_point": True}, id="some rows, long"),
        pytest.param((16, 20, 64, 64), U8, {}, id="the most rows"),
        pytest.param((2, 24, 512, 256), U4, {"real": F16}, id="float16"),
        pytest.param((2, 12, 64, 32), I4, {"batch": (2, 3)}, id="a stack of matrices"),
        pytest.param((20, 24, 64, 32), U4, {}, id="many rows"),
    ],
)
@pytest.mark.parametrize("form", ["scaled", "unscaled", "gated"])
def test_products_of_normalized_rows(
    device: Device, sizes: tuple[int, int, int, int], kind: DataType, options: dict[str, Any], form: str
) -> None:
    """Kernels for few rows on GPUs normalize them; elsewhere another kernel does."""
    rows, columns, _, _ = sizes
    graph, output, arrays = product(sizes, kind, **options, bias=form != "gated", norm=form != "unscaled")
    if form == "gated":
        axis = len(output.sizes) - 1
        gate, up = dml.split(output, axis, [columns // 2, columns // 2])
        output = dml.multiply(dml.multiply(gate, dml.activation_sigmoid(gate)), up)
    labels = agree(device, graph, output, arrays, tolerance=2e-2 if options.get("real") is F16 else 4e-5)
    is_fused = rows <= 16 and device.backend.target.profile is not Profile.CPU
    assert any("normalization" in label for label in labels) != is_fused


def test_normalized_rows_without_subgroups(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    target = device.backend.target
    features = frozenset(target.features) - {"subgroup"}
    other = dataclasses.replace(target, features=features, profile=Profile.DISCRETE)
    monkeypatch.setattr(device.backend, "target", other)
    labels = agree(device, *product((3, 16, 1024, 32), U4, norm=True), tolerance=4e-5)
    assert not any("normalization" in label for label in labels), labels


def test_normalized_rows_of_parts(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices that are too large for a binding are multiplied one by one, each with its rows."""
    small = dataclasses.replace(
        device.backend.target, profile=Profile.DISCRETE, max_binding_size=1 << 12, max_storage_buffers=8
    )
    monkeypatch.setattr(device.backend, "target", small)
    labels = agree(device, *product((2, 160, 64, 32), U4, batch=(3,), norm=True), tolerance=4e-5)
    assert len(labels) > 1 and not any("normalization" in label for label in labels), labels


def test_a_product_whose_gate_is_read_twice_is_not_gated(device: Device) -> None:
    graph, sums, arrays = product((1, 32, 64, 32), I4, bias=False)
    gate, up = dml.split(sums, 1, [16, 16])
    agree(device, graph, dml.join([dml.multiply(gate, up), gate], 1), arrays, tolerance=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "kind", "options"),
    [
        pytest.param((1, 24, 1024, 32), I4, {}, id="one row"),
        pytest.param((1, 136, 512, 256), U4, {"zero_point": True}, id="long blocks, several workgroups"),
        pytest.param((2, 16, 1200, 16), I8, {"zero_point": True}, id="8 bits with zero points"),
        pytest.param((5, 24, 960, 32), U8, {}, id="8 bits"),
        pytest.param((7, 72, 1040, 8), I4, {"zero_point": True}, id="blocks of one word"),
        pytest.param((9, 8, 2176, 64), U4, {"zero_point": True}, id="one panel"),
        pytest.param((70, 40, 512, 32), U4, {}, id="several tiles of rows, the last one not full"),
        pytest.param((33, 80, 256, 128), I8, {}, id="many rows of 8 bits"),
        pytest.param((2, 16, 512, 32), I4, {"batch": (2, 3)}, id="a stack of matrices"),
        pytest.param((1, 192, 512, 32), U4, {"zero_point": True}, id="one row by panels of workgroups"),
        pytest.param((19, 128, 320, 16), I8, {"batch": (2, 1)}, id="many rows by panels of workgroups"),
        pytest.param((3, 24, 1408, 32), U4, {"zero_point": True, "real": F16}, id="float16"),
        pytest.param((18, 24, 1408, 16), I8, {"real": F16}, id="float16, many rows"),
    ],
)
@pytest.mark.parametrize("gated", [False, True])
def test_products_with_columns_in_panels(
    cpu_device: Device, sizes: tuple[int, int, int, int], kind: DataType, options: dict[str, Any], gated: bool
) -> None:
    """With schedules for CPU adapters. The matrices are too large for the initialization to store them as floats."""
    rows, columns, inner, block = sizes
    tolerance = 2e-2 if options.get("real") is F16 else 2e-5
    graph, output, arrays = product(
        (rows, columns * (1 + gated), inner, block), kind, **options, bias=not gated, owned=True
    )
    if gated:
        gate, up = dml.split(output, len(output.sizes) - 1, [columns, columns])
        output = dml.multiply(dml.multiply(gate, dml.activation_sigmoid(gate)), up)
    labels = agree(cpu_device, graph, output, arrays, tolerance=tolerance)
    assert any("quantized panels" in label for label in labels)
    assert not any("dequantize" in label for label in labels)


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        pytest.param("quantized_operands", "= block;", "= block / 2u;", id="the scale of another block"),
        pytest.param("quantized_macros", "~ flip ~", '~ "0x8888888" ~', id="one integer without its sign"),
    ],
)
def test_wrong_kernels_are_noticed(device: Device, file: str, right: str, wrong: str) -> None:
    text = templates.source(f"schedules/{file}")
    assert right in text
    with templates.replaced(f"schedules/{file}", text.replace(right, wrong)), pytest.raises(AssertionError):
        agree(device, *product((1, 21, 64, 32), U4, zero_point=True))


@pytest.mark.parametrize("columns", [24, 128])
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("0xf000000u", "0x7000000u", id="the last integer of a word without its highest bit"),
        pytest.param("5.9604644775390625e-8, 5.9", "3.7252902984619140625e-9, 5.9", id="the factor of another place"),
        pytest.param("-x_sum", "x_sum", id="the center added"),
    ],
)
def test_wrong_panels_of_few_rows_are_noticed(cpu_device: Device, right: str, wrong: str, columns: int) -> None:
    notice_panels(cpu_device, right, wrong, columns, rows=3)


@pytest.mark.parametrize("columns", [24, 128])
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("{{ center|f32 }}", "{{ (center - 1)|f32 }}", id="another center"),
        pytest.param("2 ** bits - 1", "2 ** bits - 3", id="an integer without a bit"),
        pytest.param('" - center%d"', '" + center%d"', id="the center added"),
        pytest.param("turn >= {{ turns }}u", "turn >= {{ turns - 1 }}u", id="a block without its last turn"),
        pytest.param("block >= {{ blocks }}u", "block >= {{ blocks - 1 }}u", id="no last block"),
        pytest.param("{{ rows - 1 }}u", "{{ rows - 2 }}u", id="the last row is another"),
        pytest.param("{{ panels - 1 }}u", "{{ panels - 2 }}u", id="the last panel is another"),
        pytest.param("at[{{ lead + 2 }}] = word;", "", id="the first words of a block again"),
        pytest.param("at[{{ last }}] = piece;", "at[{{ last }}] = 0u;", id="the first unit of a lane again"),
    ],
)
def test_wrong_panels_are_noticed(cpu_device: Device, right: str, wrong: str, columns: int) -> None:
    notice_panels(cpu_device, right, wrong, columns)


def test_panels_of_a_wrong_lane_are_noticed(cpu_device: Device) -> None:
    notice_panels(cpu_device, "at[{{ last + 1 }}] = lane;", "", 128)


def notice_panels(cpu_device: Device, right: str, wrong: str, columns: int, rows: int = 18) -> None:
    """Check that a product in panels with another text of its kernel is wrong."""
    text = templates.source("schedules/quantized_panels")
    assert right in text
    with templates.replaced("schedules/quantized_panels", text.replace(right, wrong)), pytest.raises(AssertionError):
        agree(cpu_device, *product((rows, columns, 768, 64), U4, zero_point=True, owned=True))
