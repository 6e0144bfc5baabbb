"""Caches that a session holds are updated in place; tensors that somebody else has keep their elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from dmlgpu.frontends.onnx import Session, load
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.tensors.tensor import Tensor

HEADS, ROWS, SIZE = 2, 2048, 64
CACHES = {"past_key": "present_key", "past_value": "present_value"}


def model() -> Any:
    """One GroupQueryAttention, whose caches exceed what a session reads without tensors."""
    cache, new = [1, HEADS, ROWS, SIZE], [1, 1, HEADS * SIZE]
    inputs = {"query": new, "key": new, "value": new} | dict.fromkeys(CACHES, cache)
    shapes = {"output": new} | dict.fromkeys(CACHES.values(), cache)
    node = helper.make_node(
        "GroupQueryAttention",
        [*inputs, "seqlens_k", "total_sequence_length"],
        list(shapes),
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=HEADS,
    )
    integers = [
        helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, [1]),
        helper.make_tensor_value_info("total_sequence_length", TensorProto.INT32, []),
    ]
    graph = helper.make_graph(
        [node],
        "cache",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()] + integers,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
    )
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions)


def feeds(step: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    rows = {name: rng.standard_normal((1, 1, HEADS * SIZE)).astype(np.float32) for name in ("query", "key", "value")}
    return rows | {"seqlens_k": np.array([step], np.int32), "total_sequence_length": np.array(step + 1, np.int32)}


def bound(device: Device | str) -> Session:
    session = load(model(), device)
    for number, (name, output) in enumerate(CACHES.items()):
        rng = np.random.default_rng(100 + number)
        rows = rng.standard_normal((1, HEADS, ROWS, SIZE)).astype(np.float32)
        session.bind(name, rows, updated_by=output)
    return session


def places(session: Session) -> list[Any]:
    return [bound.tensor.buffer._memory for bound in session._bound.values()]


def contents(tensors: Any) -> list[Any]:
    return [tensor.numpy() for tensor in tensors.values()]


@pytest.fixture(scope="module")
def expected() -> tuple[list[Any], list[Any]]:
    """Outputs of four steps, and the caches after them, on the adapter numpy."""
    session = bound("numpy")
    outputs = [session.run(feeds(step))["output"] for step in range(4)]
    return outputs, contents(session.bound)


def test_steps_write_into_the_caches(device: Device, expected: Any) -> None:
    session = bound(device)
    before = places(session)
    for step, output in enumerate(expected[0]):
        np.testing.assert_allclose(session.run(feeds(step))["output"], output, rtol=1e-5, atol=1e-5)
        assert all(place is other for place, other in zip(places(session), before, strict=True))
    for cache, other in zip(contents(session.bound), expected[1], strict=True):
        np.testing.assert_array_equal(cache, other)


def test_tensors_of_others_keep_their_elements(backend: GpuBackend, expected: Any) -> None:
    device = Device.from_backend(backend)
    session = bound(device)
    session.run(feeds(0))
    held = dict(session.bound)  # taken after a run
    copies = contents(held)
    zeros = Tensor(np.zeros((1, HEADS, ROWS, SIZE), np.float32), device=device)
    session.run(feeds(1))
    taken = session.run(feeds(2), ["output", "present_key", "present_value"])  # returned by a run
    returned = [taken["present_key"].copy(), taken["present_value"].copy()]
    session.run(feeds(3))
    for cache, other in zip([*contents(held), *returned], [*copies, *returned], strict=True):
        np.testing.assert_array_equal(cache, other)
    for cache, other in zip(contents(session.bound), expected[1], strict=True):
        np.testing.assert_array_equal(cache, other)
    session.bind("past_key", zeros, updated_by="present_key")  # bound by its owner
    session.run(feeds(0))
    assert not zeros.numpy().any() and session.bound["past_key"].numpy().any()
