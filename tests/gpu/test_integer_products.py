"""Products of quantized rows and columns, on every adapter with both families of schedules, against sums of integers in
NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dmlgpu import DataType, Graph
from dmlgpu import directmlx as dml
from dmlgpu.catalog.enums import MatrixTransform, QuantizationType, ReduceFunction
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.target import Profile
from dmlgpu.compiler.wgsl import templates
from dmlgpu.conformance.running.runner import run_graph
from dmlgpu.ops import directml as functions
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.tensor import Tensor

U4, I4, U8, I8 = DataType.UINT4, DataType.INT4, DataType.UINT8, DataType.INT8

Sizes = tuple[int, int, int, int]
Array = NDArray[Any]


def quantized_rows(x: Tensor, block: int) -> Tensor:
    """Return rows rounded to INT8 by the largest magnitude of a block, and dequantized."""
    *batch, rows, inner = x.sizes
    parts = x.reinterpret((*batch, rows, inner // block, block))
    largest = dml.reduce(dml.abs(parts), ReduceFunction.MAX, axes=(len(parts.sizes) - 1,))
    scale = (largest * (1 / 127)).broadcast_to(parts.sizes)
    codes = functions.element_wise_quantize_linear(parts, scale, output_type=I8)
    return functions.element_wise_dequantize_linear(codes, scale).reinterpret(x.sizes)


class Product:
    """A product of rows by the rows of a quantized matrix, and its value.

    Args:
        sizes: rows, columns, inner, block.
        kind: of the integers of the matrix.
        zero_point: whether it has zero points.
        batch: sizes of stacks.
        gated: whether the first half of the columns is multiplied by the second.
    """

    def __init__(
        self,
        sizes: Sizes,
        kind: DataType,
        *,
        zero_point: bool = False,
        batch: tuple[int, ...] = (),
        gated: bool = False,
    ):
        rows, columns, inner, block = sizes
        random = np.random.default_rng(rows + columns)
        low = -(1 << (kind.bits - 1)) if kind.is_signed else 0
        integers = [
            random.integers(low, low + (1 << kind.bits), (*batch, columns, count)) for count in (inner, inner // block)
        ]
        codes = random.integers(-127, 128, (*batch, rows, inner // block, block))
        codes[..., 0] = 127  # the largest of each block
        exponents = random.integers(-9, -4, (*batch, rows, inner // block, 1))
        scales = random.uniform(0.01, 0.02, (*batch, columns, inner // block)).astype(np.float32)
        self.inputs = {"x": np.ldexp(codes, exponents).astype(np.float32).reshape(*batch, rows, inner), "s": scales}
        self.inputs |= {"q": packed(integers[0], kind), "z": packed(integers[1], kind)}
        graph = Graph()
        x = graph.input((*batch, rows, inner), name="x")
        s = graph.input(scales.shape, name="s")
        q = graph.input((*batch, columns, inner), kind, name="q")
        parameters, quantization = (s,), QuantizationType.SCALE
        if zero_point:
            parameters = (s, graph.input(scales.shape, kind, name="z"))
            quantization = QuantizationType.SCALE_ZERO_POINT
        weights = functions.dequantize(q, parameters, quantization_type=quantization)
        result = functions.gemm(quantized_rows(x, block), weights, trans_b=MatrixTransform.TRANSPOSE)
        if gated:
            halves = dml.split(result, len(result.sizes) - 1, [columns // 2, columns // 2])
            result = dml.multiply(*halves)
        self.graph, self.result = graph, result
        differences = integers[0].reshape(*batch, columns, inner // block, block)
        differences = differences - (integers[1][..., None] if zero_point else 0)
        sums = np.einsum("...mbk,...nbk->...mnb", codes, differences)
        scaled = sums * (scales[..., None, :, :].astype(np.float64) * np.ldexp(1.0, exponents[..., None, :, 0]))
        value = scaled.sum(-1)
        self.value = value[..., : columns // 2] * value[..., columns // 2 :] if gated else value

    def check(self, device: Device) -> list[str]:
        """Compare the result with the sums; return the WGSL of its kernels."""
        desc = self.graph.desc([self.result])
        inputs = [self.inputs[str(each.name)] for each in self.graph.inputs]
        (result,) = run_graph(device.compile_graph(desc), inputs, poison=0xA5)
        np.testing.assert_allclose(result, self.value, rtol=2e-6, atol=4e-7 * np.abs(self.value).max())
        return [kernel.wgsl for kernel in compile_network(resolve(desc), device.backend.target).program.kernels]


def packed(integers: Array, kind: DataType) -> Array:
    """Return integers as bytes, padded to words."""
    flat = np.zeros(-(-integers.size * kind.bits // 32) * 32 // kind.bits, np.int64)
    flat[: integers.size] = integers.ravel()
    if kind.bits == 8:
        return flat.astype(np.uint8)
    return ((flat[::2] & 15) | (flat[1::2] & 15) << 4).astype(np.uint8)


@pytest.mark.parametrize(
    ("sizes", "kind", "options"),
    [
        pytest.param((1, 21, 64, 32), I4, {}, id="one row"),
        pytest.param((1, 2112, 128, 32), U4, {"zero_point": True}, id="many columns share a row"),
        pytest.param((1, 2112, 128, 32), I4, {}, id="many columns without zero points"),
        pytest.param((3, 16, 96, 32), U4, {"zero_point": True}, id="zero points of 4 bits"),
        pytest.param((2, 9, 64, 16), I8, {"zero_point": True}, id="8 bits"),
        pytest.param((1, 24, 512, 256), U8, {"zero_point": True}, id="blocks of several units"),
        pytest.param((1, 6, 1040, 8), I4, {}, id="blocks of one word"),
        pytest.param((2, 9, 64, 4), I8, {}, id="blocks of one word of 8 bits"),
        pytest.param((16, 10, 64, 64), U8, {}, id="the most rows"),
        pytest.param((2, 12, 64, 32), I4, {"batch": (2, 3)}, id="a stack of matrices"),
        pytest.param((1, 1056, 64, 32), U4, {"gated": True}, id="gated"),
        pytest.param((1, 1056, 64, 32), I4, {"gated": True}, id="gated without zero points"),
        pytest.param((40, 96, 512, 32), U4, {"zero_point": True}, id="tiles"),
        pytest.param((33, 70, 320, 64), I4, {}, id="tiles by odd columns"),
        pytest.param((24, 64, 640, 128), I8, {"zero_point": True}, id="tiles of long blocks"),
        pytest.param((17, 50, 544, 16), U8, {"batch": (2,)}, id="a stack of tiles"),
    ],
)
def test_integers_are_multiplied(device: Device, sizes: Sizes, kind: DataType, options: dict[str, Any]) -> None:
    texts = Product(sizes, kind, **options).check(device)
    is_gpu = device.backend.target.profile is not Profile.CPU and device.backend.target.multiplies_words
    assert any("dot4I8Packed" in text for text in texts) == is_gpu


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        pytest.param("schedules/quantized_lanes", "f32(row_sum%d)", "f32(row_sum%d + 1)", id="sums of rows"),
        pytest.param("schedules/quantized_macros", ">> 16u)", ">> 12u)", id="upper nibbles of a word"),
        pytest.param("schedules/gemm_blocks", "f32(row_dot%d)", "f32(row_dot%d + 1)", id="sums of rows in tiles"),
    ],
)
def test_wrong_kernels_are_noticed(device: Device, file: str, right: str, wrong: str) -> None:
    if device.backend.target.profile is Profile.CPU:
        pytest.skip("CPU adapters multiply floats")
    text = templates.source(file)
    assert right in text
    sizes = (40, 64, 512, 32) if "gemm" in file else (3, 64, 64, 32)
    with templates.replaced(file, text.replace(right, wrong)), pytest.raises(AssertionError):
        Product(sizes, U4, zero_point=True).check(device)
