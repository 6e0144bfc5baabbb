"""Casts that other kernels take in, on every adapter: masks as models reduce them, with all passes and with none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dmlgpu
from dmlgpu import Device, Tensor, ops
from dmlgpu.catalog.enums import ExecutionFlags
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.graph.passes import PASSES
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.target import Profile
from dmlgpu.conformance.suites.graph_casts import STEPS, Casts
from dmlgpu.conformance.suites.graphs import GraphSuite
from dmlgpu.frontends.onnx import load
from dmlgpu.runtime.wgpu import GpuBackend
from tests.unit.frontends.onnx.onnx_against import model_of

MASK = [[1, 1, 1, 1], [1, 1, 0, 0]]


@pytest.fixture(params=["fused", "unfused"])
def passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Graphs are compiled with all passes, or with none."""
    if request.param == "unfused":
        compile_graph = Device.compile_graph

        def without_passes(
            device: Device, graph: GraphDesc, flags: ExecutionFlags = ExecutionFlags.NONE, **_: Any
        ) -> Any:
            return compile_graph(device, graph, flags, disabled_passes=PASSES)

        monkeypatch.setattr(Device, "compile_graph", without_passes)
    return request.param


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("data_type", ["int32", "bool", "uint8"])
@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("ReduceSum", [[4], [2]]),
        ("ReduceMean", [[1], [0]]),
        ("ReduceL2", [[2], [1]]),
        ("ArgMax", [[0], [0]]),
        ("ArgMin", [[0], [2]]),
    ],
)
def test_a_mask_is_reduced_as_int64(device: Device, data_type: str, operator: str, expected: list[Any]) -> None:
    mask = np.array(MASK, data_type)
    is_place = operator.startswith("Arg")
    reduce = (
        helper.make_node(operator, ["wide"], ["result"], axis=1)
        if is_place
        else helper.make_node(operator, ["wide", "axes"], ["result"])
    )
    model = model_of(
        [helper.make_node("Cast", ["mask"], ["wide"], to=TensorProto.INT64), reduce],
        {"mask": (helper.np_dtype_to_tensor_dtype(mask.dtype), mask.shape)},
        {"result": TensorProto.INT64},
        {} if is_place else {"axes": np.array([1])},
    )
    result = load(model, device).run({"mask": mask})["result"]
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, expected)


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize(("operator", "function"), [("ReduceMean", np.mean), ("ReduceL2", np.linalg.norm)])
def test_rows_of_int32_have_means_and_norms(device: Device, operator: str, function: Callable[..., Any]) -> None:
    x = np.array([[3, 4, 0, 0, 12, 0], [-8, 4, 1, 0, 0, 9]], np.int32)
    model = model_of(
        [helper.make_node(operator, ["x", "axes"], ["result"])],
        {"x": (TensorProto.INT32, x.shape)},
        {"result": TensorProto.INT32},
        {"axes": np.array([1])},
    )
    expected = function(x.astype(np.float64), axis=1, keepdims=True).astype(np.int32)
    np.testing.assert_array_equal(load(model, device).run({"x": x})["result"], expected)


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("wide", ["int64", "uint64"])
@pytest.mark.parametrize("narrow", ["int32", "uint8", "float16"])
def test_compiled_functions_sum_casts(device: Device, narrow: str, wide: str) -> None:
    array = np.arange(24, dtype=narrow).reshape(3, 8)
    sums = dmlgpu.compile(lambda x: ops.sum(ops.cast(x, wide)))
    places = dmlgpu.compile(lambda x: ops.argmax(ops.cast(x, wide), axis=1))
    x = Tensor(array, device=device)
    assert sums(x).numpy() == array.sum(dtype=wide)
    np.testing.assert_array_equal(places(x).numpy(), [7, 7, 7])


@pytest.mark.usefixtures("passes")
def test_softmax_may_be_stored_as_float64(device: Device) -> None:
    array = np.array([[0.0, 1.0, 2.0, -1.0], [3.0, 3.0, 3.0, 3.0]], np.float32)
    weights = np.exp(array.astype(np.float64))
    function = dmlgpu.compile(lambda x: ops.cast(ops.softmax(x, axis=1), "float64"))
    result = function(Tensor(array, device=device)).numpy()
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, weights / weights.sum(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
def test_casts_compile_before_and_after_every_step(backend: GpuBackend, profile: Profile) -> None:
    """Kernels are validated, not handed to the driver; running all of them is for ``dmlgpu test --suite graphs``."""
    cases = [case for name in GraphSuite().names("standard") if (case := Casts.parse(name))]
    assert {case.step for case in cases} == set(STEPS)
    target, valid = dataclasses.replace(backend.target.exact, profile=profile), set[str]()
    for case in cases:
        for kernel in compile_network(resolve(case.example().graph), target).program.kernels:
            if kernel.wgsl not in valid:
                backend.wgpu_device.create_shader_module(label=f"{case}: {kernel.label}", code=kernel.wgsl)
                valid.add(kernel.wgsl)
