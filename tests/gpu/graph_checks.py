"""Graphs of the builder on a device against the adapter numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlgpu import Graph
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.passes import PASSES
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.conformance.running.runner import run_graph
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.tensor import Tensor


def agree(
    device: Device, graph: Graph, output: Tensor, arrays: Mapping[str, Any], tolerance: float = 2e-5
) -> list[str]:
    """Compare with the adapter numpy, with all passes and with none; return the labels of the kernels that run.

    Args:
        device: what is compared.
        graph, output: what is computed.
        arrays: of the inputs, by name.
        tolerance: allowed error, absolute and relative.
    """
    desc = graph.desc([output])
    inputs = [arrays.get(str(graph_input.name), np.zeros(1, np.float32)) for graph_input in graph.inputs]
    (expected,) = run_graph(Device("numpy").compile_graph(desc), inputs)
    for disabled in ((), PASSES):
        (got,) = run_graph(device.compile_graph(desc, disabled_passes=disabled), inputs, poison=0xA5)
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
    return [kernel.label for kernel in compile_network(resolve(desc), device.backend.target).program.kernels]
