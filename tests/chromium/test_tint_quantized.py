"""Tint takes the kernels of products with quantized columns, of 8-bit integers, and of floats in panels."""

from __future__ import annotations

from typing import Any

import pytest

from dmlgpu import DataType, Graph, TensorDesc, descs
from dmlgpu.catalog.enums import MatrixTransform, QuantizationType
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Profile
from dmlgpu.ops import directml as functions
from tests.chromium.test_tint import faults
from tests.quick_programs import PROFILES, STANDARD

pytestmark = [pytest.mark.usefixtures("facts"), pytest.mark.xdist_group("chromium")]


def texts(target, rows, kind, real, *, rounded=False, columns=24, owned=False):
    """The kernels of a product of rows, which may be rounded to integers, by columns in blocks of 32, which may be
    known at initialization."""
    graph, blocks = Graph(), (columns, 4)
    x, integers = graph.input((rows, 128), real), graph.input((columns, 128), kind, owned=owned)
    if rounded:
        scale = graph.input((rows, 4, 1), real).broadcast_to((rows, 4, 32))
        codes = functions.element_wise_quantize_linear(x.reinterpret(scale.sizes), scale, output_type=DataType.INT8)
        x = functions.element_wise_dequantize_linear(codes, scale).reinterpret((rows, 128))
    parameters = tuple(graph.input(blocks, of, owned=owned) for of in (real, kind))
    quantization = QuantizationType.SCALE_ZERO_POINT
    weights = functions.dequantize(integers, parameters, quantization_type=quantization)
    output = functions.gemm(x, weights, trans_b=MatrixTransform.TRANSPOSE)
    return {kernel.wgsl for kernel in compile_network(resolve(graph.desc([output])), target).program.kernels}


@pytest.mark.parametrize("profile", PROFILES)
def test_tint_takes_products_with_quantized_columns(page, profile):
    kernels = set()
    for rows in (1, 3, 20):
        for kind, real in ((DataType.UINT4, DataType.FLOAT32), (DataType.INT8, DataType.FLOAT16)):
            kernels |= texts(STANDARD[profile], rows, kind, real)
    assert any("quantized_" in text for text in kernels)
    assert not (refused := faults(page, kernels)), "\n".join(refused)


def test_tint_takes_products_with_columns_in_panels(page):
    kernels = set()
    for rows in (1, 20):
        for kind, real in ((DataType.UINT4, DataType.FLOAT32), (DataType.INT8, DataType.FLOAT16)):
            kernels |= texts(STANDARD[Profile.CPU], rows, kind, real, columns=264, owned=True)
    assert sum("quantized_panels" in text for text in kernels) == 4
    assert not (refused := faults(page, kernels)), "\n".join(refused)


@pytest.mark.parametrize("real", [DataType.FLOAT32, DataType.FLOAT16], ids=lambda real: real.name)
@pytest.mark.parametrize("columns", [512, 515])
def test_tint_takes_products_with_floats_in_panels(page, real, columns):
    graph = Graph()
    product = functions.gemm(graph.input((3, 128), real), graph.input((128, columns), real, owned=True))
    kernels = compile_network(resolve(graph.desc([product])), STANDARD[Profile.CPU]).program.kernels
    assert "schedules/gemm_panels" in kernels[-1].wgsl
    assert not (refused := faults(page, {kernel.wgsl for kernel in kernels})), "\n".join(refused)


def test_tint_takes_products_of_integers_in_blocks(page):
    kernels = set()
    for rows in (1, 3, 64):
        for kind in (DataType.UINT4, DataType.INT4, DataType.UINT8):
            kernels |= texts(STANDARD[Profile.DISCRETE], rows, kind, DataType.FLOAT32, rounded=True)
    assert len([text for text in kernels if "dot4I8Packed" in text]) == 9
    assert not (refused := faults(page, kernels)), "\n".join(refused)


@pytest.mark.parametrize("inner", [64, 67])
def test_tint_takes_products_of_words(page: Any, inner: int) -> None:
    """In words of memory, words that begin anywhere, and single integers; signed, unsigned and mixed."""
    kernels = set()
    for a, b in ((DataType.INT8, DataType.INT8), (DataType.UINT8, DataType.INT8), (DataType.UINT8, DataType.UINT8)):
        for strides in (None, (1, inner), (256, 2)):
            desc = descs.MatrixMultiplyInteger(
                a_tensor=TensorDesc(a, (64, inner)),
                a_zero_point_tensor=TensorDesc(a, (64, 1)),
                b_tensor=TensorDesc(b, (inner, 64), strides=strides),
                b_zero_point_tensor=TensorDesc(b, (1, 64)),
                output_tensor=TensorDesc(DataType.INT32, (64, 64)),
            )
            kernels |= {kernel.wgsl for kernel in compile_operator(desc, STANDARD[Profile.DISCRETE]).kernels}
    assert len(kernels) == 9
    assert all("Packed(" in text for text in kernels)
    assert not (refused := faults(page, kernels)), "\n".join(refused)
