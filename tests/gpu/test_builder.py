"""A network built from expressions computes on every adapter what it does on the ``numpy`` adapter."""

from __future__ import annotations

import numpy as np

from dmlgpu import Graph
from dmlgpu import directmlx as dml
from dmlgpu.catalog.enums import ReduceFunction
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend


def results(device: Device, policy: str) -> tuple[np.ndarray, ...]:
    """Outputs of a small network: convolution, scale and bias, a view, pooling, two scores, a comparison."""
    rng = np.random.default_rng(3)
    graph = Graph(device, policy=policy)
    image, filters = graph.input((1, 2, 6, 6)), graph.input((4, 2, 3, 3), owned=True)
    offset = graph.constant(np.arange(4, dtype=np.float32).reshape(1, 4, 1, 1))
    features = dml.activation_relu(dml.convolution(image, filters) * 0.5 + offset.broadcast_to((1, 4, 4, 4)))
    pooled = dml.max_pooling(features, (2, 2), strides=(2, 2)).output
    scores = dml.reduce(pooled, ReduceFunction.AVERAGE, (2, 3))
    best = dml.top_k(scores, 1, 2)
    arrays = [rng.standard_normal(input.desc.sizes).astype(np.float32) for input in graph.inputs]
    return graph.evaluate([best.output_value, best.output_index, pooled > 1.5, 1 / (pooled + 1)], arrays)


def test_a_network_agrees_with_the_host_under_both_policies(backend: GpuBackend) -> None:
    expected = results(Device("numpy"), "default")
    for policy in ("default", "interleaved_channel"):
        for got, want in zip(results(Device.from_backend(backend), policy), expected, strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
