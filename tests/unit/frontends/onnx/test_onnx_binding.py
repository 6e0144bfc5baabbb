"""Bound inputs, and states that outputs pass to the next run, on the adapter numpy."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from dmlgpu import InvalidArgument, Tensor
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.session import Session
from tests.unit.frontends.onnx.onnx_against import expected_of, model_of_node, normal

STEPS, WIDTH, HIDDEN = 6, 3, 5


def running_sum() -> Session:
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "before")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("after", "y")]
    nodes = [helper.make_node("Add", ["x", "before"], ["after"]), helper.make_node("Neg", ["after"], ["y"])]
    return load(helper.make_model(helper.make_graph(nodes, "sum", inputs, outputs)), "numpy")


def test_a_state_is_handed_on() -> None:
    session = running_sum()
    x = np.array([1, 2, 3], np.float32)
    session.bind("before", np.zeros(3, np.float32), updated_by="after")
    for times in (1, 2, 3):
        results = session.run({"x": x})
        assert list(results) == ["y"]
        np.testing.assert_array_equal(results["y"], -times * x)
        np.testing.assert_array_equal(session.bound["before"].numpy(), times * x)
    np.testing.assert_array_equal(session.run({"x": x}, ["after"])["after"], 4 * x)
    tensor = session.unbind("before")
    with pytest.raises(InvalidArgument, match="missing input 'before'"):
        session.run({"x": x})
    np.testing.assert_array_equal(session.run({"x": x, "before": tensor})["after"], 5 * x)


def test_the_tensor_itself_is_handed_on() -> None:
    session = running_sum()
    session.bind("before", np.zeros(3, np.float32), updated_by="after")
    after = session.run_tensors({"x": np.ones(3, np.float32)}, ["after"])["after"]
    assert session.bound["before"] is after


def test_a_bound_input_stays_and_a_given_one_counts_once() -> None:
    session = running_sum()
    session.bind("before", Tensor(np.ones(3, np.float32), device="numpy"))
    x = np.zeros(3, np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(session.run({"x": x})["after"], 1)
    np.testing.assert_array_equal(session.run({"x": x, "before": x})["after"], 0)
    np.testing.assert_array_equal(session.run({"x": x})["after"], 1)


def test_a_layer_step_by_step() -> None:
    """An LSTM with states passed step by step gives the results of a single run."""
    weights = [normal(1, 4 * HIDDEN, WIDTH), normal(1, 4 * HIDDEN, HIDDEN)]
    states = [normal(1, 2, HIDDEN, seed=index) for index in range(2)]
    whole = normal(STEPS, 2, WIDTH)
    outputs = ["Y", "Y_h", "Y_c"]
    rest = [*weights, None, None, *states]
    at_once, feeds = model_of_node("LSTM", [whole, *rest], outputs, weights=(1, 2), hidden_size=HIDDEN)
    expected = expected_of(at_once, feeds)
    model, _ = model_of_node("LSTM", [whole[:1], *rest], outputs, weights=(1, 2), hidden_size=HIDDEN)
    session = load(model, "numpy")
    session.bind("x5", states[0], updated_by="Y_h")
    session.bind("x6", states[1], updated_by="Y_c")
    result = [session.run({"x0": whole[step : step + 1]})["Y"] for step in range(STEPS)]
    np.testing.assert_allclose(np.concatenate(result), expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(session.bound["x6"].numpy(), expected[2], rtol=1e-5, atol=1e-5)


def test_rejected() -> None:
    session, zeros = running_sum(), np.zeros(3, np.float32)
    with pytest.raises(InvalidArgument, match="name must be one of the inputs x, before, got 'y'"):
        session.bind("y", zeros)
    with pytest.raises(InvalidArgument, match="updated_by must be one of the outputs after, y, got 'x'"):
        session.bind("before", zeros, updated_by="x")
    with pytest.raises(InvalidArgument, match="input 'before' must be of float32, got int64"):
        session.bind("before", np.zeros(3, np.int64))
    with pytest.raises(InvalidArgument, match="input 'before' must have size 3 in dimension 0"):
        session.bind("before", np.zeros(4, np.float32))
    with pytest.raises(InvalidArgument, match="name must be one of the bound inputs"):
        session.unbind("before")
    assert not session.bound
