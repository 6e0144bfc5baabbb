"""Products of few rows by floats that the initialization lays out in panels, on every adapter."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from dmlgpu import DataType, Device, Graph, Tensor
from dmlgpu.catalog.enums import MatrixTransform
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.persistent_parts import filled_parts
from dmlgpu.compiler.target import Profile
from dmlgpu.compiler.wgsl import templates
from dmlgpu.ops import directml as dml
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.graph_checks import agree

F32, F16 = DataType.FLOAT32, DataType.FLOAT16

LABEL = "gemm panels"


@pytest.fixture
def cpu_device(backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device on each adapter, with the schedules for CPU adapters."""
    monkeypatch.setattr(backend, "target", dataclasses.replace(backend.target, profile=Profile.CPU))
    return Device.from_backend(backend)


def product(
    rows: int, inner: int, columns: int, *, real: DataType = F32, batch: int = 1, transposed: bool = False
) -> tuple[Graph, Tensor, dict[str, Any]]:
    """Return a graph of a product with a bias per column, and arrays of its inputs."""
    random, kind = np.random.default_rng(rows + columns), real.numpy
    graph = Graph()
    sizes = (columns, inner) if transposed else (inner, columns)
    a, b = graph.input((batch, 1, rows, inner), real, name="a"), graph.input(sizes, real, name="b", owned=True)
    bias = graph.input((columns,), real, name="bias")
    transform = MatrixTransform.TRANSPOSE if transposed else MatrixTransform.NONE
    output = dml.gemm(
        a, b.broadcast_to((batch, 1, *sizes)), bias.broadcast_to((batch, 1, rows, columns)), trans_b=transform
    )
    arrays = {
        "a": random.standard_normal((batch, 1, rows, inner)).astype(kind),
        "b": (random.standard_normal(sizes) / inner**0.5).astype(kind),
        "bias": random.standard_normal(columns).astype(kind),
    }
    return graph, output, arrays


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        pytest.param((1, 516, 128), {}, id="a row"),
        pytest.param((1, 1024, 64), {"transposed": True}, id="a row, columns in one piece"),
        pytest.param((3, 128, 534), {}, id="a partly empty panel of pairs"),
        pytest.param((1, 128, 515), {}, id="a partly empty panel of an odd number"),
        pytest.param((11, 344, 192), {}, id="two tiles of rows"),
        pytest.param((2, 1024, 64), {"batch": 3}, id="a batch with columns in common"),
        pytest.param((2, 128, 516), {"real": F16}, id="float16"),
        pytest.param((5, 128, 513), {"real": F16}, id="an odd number of float16"),
    ],
)
def test_few_rows_read_panels(cpu_device: Device, sizes: tuple[int, int, int], options: dict[str, Any]) -> None:
    tolerance = 2e-2 if options.get("real") is F16 else 2e-5
    labels = agree(cpu_device, *product(*sizes, **options), tolerance=tolerance)
    assert any(LABEL in label for label in labels)


@pytest.mark.parametrize("rows", [17, 40])
def test_many_rows_read_the_same_panels(cpu_device: Device, rows: int) -> None:
    labels = agree(cpu_device, *product(rows, 352, 192))
    assert not any(LABEL in label for label in labels)


@pytest.mark.parametrize("real", [F32, F16])
def test_embeddings_read_the_panels_of_a_product(cpu_device: Device, real: DataType) -> None:
    """Both have the same layout, which models have in memory once."""
    graph, random = Graph(), np.random.default_rng(1)
    table = graph.input((512, 128), real, name="table", owned=True)
    tokens = graph.input((1, 3), DataType.INT32, name="tokens")
    rows = dml.gather(table, tokens, axis=0, index_dimensions=1)
    output = dml.gemm(rows + rows, table, trans_b=MatrixTransform.TRANSPOSE)
    arrays = {
        "table": random.standard_normal((512, 128)).astype(real.numpy),
        "tokens": np.array([[5, 511, 64]], np.int32),
    }
    tolerance = 2e-2 if real is F16 else 2e-5
    labels = agree(cpu_device, graph, output, arrays, tolerance=tolerance)
    assert any(LABEL in label for label in labels)
    program = compile_network(resolve(graph.desc([output])), cpu_device.backend.target).program
    layouts = {filled.key(program, ["table", "tokens"]) for filled in filled_parts(program)}
    assert len(program.initialization) == 2 and len(layouts) == 1


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("{{ rows - 1 }}u", "{{ rows - 2 }}u", id="the last row is another"),
        pytest.param("turn * 4u +", "turn * 2u +", id="other steps"),
        pytest.param("{{ unit * launch.workgroup }}u + me", "{{ unit }}u + me", id="units of other lanes"),
    ],
)
def test_wrong_panels_are_noticed(cpu_device: Device, right: str, wrong: str) -> None:
    text = templates.source("schedules/gemm_panels")
    assert right in text
    with templates.replaced("schedules/gemm_panels", text.replace(right, wrong)), pytest.raises(AssertionError):
        agree(cpu_device, *product(8, 512, 128))
