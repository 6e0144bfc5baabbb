"""Tint takes the kernels of products with quantized columns, under the schedules for CPUs and for GPUs."""

from __future__ import annotations

import pytest

from dmlgpu import DataType, Graph
from dmlgpu.catalog.enums import MatrixTransform, QuantizationType
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.ops import directml as functions
from tests.chromium.test_tint import faults
from tests.quick_programs import PROFILES, STANDARD

pytestmark = [pytest.mark.usefixtures("facts"), pytest.mark.xdist_group("chromium")]


def texts(target, rows, kind, real):
    """The kernels of a product of rows by columns in blocks of 32."""
    graph, blocks = Graph(), (24, 4)
    x, integers = graph.input((rows, 128), real), graph.input((24, 128), kind)
    parameters = graph.input(blocks, real), graph.input(blocks, kind)
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
