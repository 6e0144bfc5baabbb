"""A sample of ONNX's backend tests on the adapter numpy, and known differences of DirectML."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from dmlgpu import Device, InvalidArgument, NotSupported
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.suites.onnx_backend import (
    BFLOAT16_TOLERANCE,
    OnnxBackendSuite,
    data_of,
    find,
    model_of,
    outside,
)
from dmlgpu.conformance.suites.registry import suite_by_name
from dmlgpu.frontends.onnx.backend import DmlBackend

SAMPLE = 50
"""Step through the models of one node; `dmlgpu test --suite onnx` runs the rest."""

KNOWN = {"node-test_bernoulli_seed_expanded": "the expected numbers were drawn by NumPy"}
"""Models of the sample that do not pass, with the reasons."""

UNSUPPORTED_SHARE = 0.4
"""Maximum share of rejected models: types that DirectML lacks alone are a sixth."""


@pytest.mark.slow
def test_a_sample_passes_or_is_rejected_by_name() -> None:
    suite, device = suite_by_name("onnx"), Device("numpy")
    names = suite.names("standard")[::SAMPLE]
    rejected, failed = [], {}
    for name in names:
        try:
            outcome = suite.run(name, device)
        except NotSupported as error:
            rejected.append((name, str(error)))
        else:
            if outcome.status is not Status.PASS:
                failed[name] = outcome.message
    assert failed.keys() == KNOWN.keys(), failed
    assert all(reason for _, reason in rejected)
    assert len(rejected) < UNSUPPORTED_SHARE * len(names), rejected


@pytest.mark.slow
def test_models_of_bfloat16_pass() -> None:
    suite, device = OnnxBackendSuite(), Device("numpy")
    names = [name for name in suite.names("standard") if "bf16" in name or "bfloat16" in name.lower()]
    assert len(names) >= 27
    for name in names:
        outcome = suite.run(name, device)
        assert outcome.status is Status.PASS, (name, outcome.message)


def stored(x: np.ndarray) -> np.ndarray:
    """Return numbers rounded to bfloat16, as float64."""
    result: np.ndarray = x.astype(ml_dtypes.bfloat16).astype(np.float64)
    return result


def attention(
    inputs: dict[str, np.ndarray], heads: int | None, is_causal: bool, store: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Compute ONNX's attention in float64 by its definition; ``store`` is applied where the function stores T1."""
    q, k, v = (inputs[name].astype(np.float64) for name in "QKV")
    if heads is not None:
        q, k, v = (x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2) for x in (q, k, v))
    root = store(np.sqrt(np.array(1 / np.sqrt(q.shape[-1]))))
    scores = store(store(q * root) @ store(k * root).swapaxes(-1, -2))
    rows, keys = scores.shape[-2:]
    bias = np.zeros((1, 1, rows, keys))
    if "attn_mask" in inputs:
        mask = inputs["attn_mask"]
        bias = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask.astype(np.float64)
        hidden = keys - bias.shape[-1]
        bias = np.pad(bias, [(0, 0)] * (bias.ndim - 1) + [(0, hidden)], constant_values=-np.inf)
    lengths = inputs.get("nonpad_kv_seqlen", np.array([keys])).reshape(-1, 1, 1, 1)
    first = lengths - rows if "nonpad_kv_seqlen" in inputs else 0
    visible = np.arange(keys) < lengths
    if is_causal:
        visible = visible & (np.arange(keys) <= np.arange(rows)[:, None] + first)
    scores = store(scores + np.where(visible, bias, -np.inf))
    largest = np.maximum(scores.max(-1, keepdims=True), -1e30)
    weights = np.exp(scores - largest)
    total = weights.sum(-1, keepdims=True)
    result = store(store(weights / np.where(total, total, 1)) @ v)
    return result if heads is None else result.swapaxes(1, 2).reshape(len(result), rows, -1)


def relative_error(x: np.ndarray, exact: np.ndarray) -> float:
    """Return the largest relative error; elements that are 0 must be equal."""
    np.testing.assert_array_equal(x[exact == 0], 0)
    error = np.abs(x.astype(np.float64) - exact)[exact != 0] / np.abs(exact[exact != 0])
    return float(error.max())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["3d_causal", "4d_attn_mask_causal", "4d_causal", "4d_causal_padded_kv", "4d_padded_kv"]
)
def test_attention_of_bfloat16_against_float64(name: str) -> None:
    """One node rounds once, ONNX's expected values up to 2.5 times; its function as often as it stores."""
    case, expanded = (find(f"node-test_attention_{name}_bf16{suffix}") for suffix in ("", "_expanded"))
    ((arrays, (expected,)),) = data_of(case)
    (node,) = model_of(case).graph.node
    attributes: dict[str, Any] = {x.name: helper.get_attribute_value(x) for x in node.attribute}
    inputs = dict(zip(filter(None, node.input), arrays, strict=True))
    compute = functools.partial(attention, inputs, attributes.get("q_num_heads"), bool(attributes.get("is_causal")))
    exact = compute(lambda x: x)
    device = Device("numpy")
    (actual,) = DmlBackend.prepare(model_of(case), dml_device=device).run(arrays)
    rounding = 2.0**-8  # half an ULP of 8 bits; errors of float32 are a 2000th of it
    assert relative_error(actual, exact) <= 1.01 * rounding
    assert relative_error(actual, exact) < relative_error(expected, exact) <= BFLOAT16_TOLERANCE - 1.01 * rounding
    (actual,) = DmlBackend.prepare(model_of(expanded), dml_device=device).run(arrays)
    steps = compute(stored)
    assert relative_error(actual, steps) <= 2 * rounding  # a step may round to the other one
    assert np.mean(actual.astype(np.float64) == steps) > 0.9
    assert relative_error(actual, exact) < relative_error(expected, exact)


def test_profiles_and_names() -> None:
    suite = OnnxBackendSuite()
    assert set(suite.names("quick")) < set(suite.names("standard"))
    assert suite.has("node-test_abs")
    assert not suite.has("node-test_nothing")
    with pytest.raises(InvalidArgument, match="names no model"):
        suite.run("abs", Device("numpy"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("test_abs", ""),
        ("test_add_uint8", ""),
        ("test_cast_FLOAT_to_BFLOAT16", ""),
        ("test_strnormalizer_nostopwords_nochangecase", "string"),
        ("test_sequence_insert_at_back", ""),
        ("test_ai_onnx_ml_binarizer", "domain ai.onnx.ml"),
        ("test_cast_FLOAT16_to_FLOAT8E5M2", "float8e5m2"),
    ],
)
def test_samples_outside_the_borders(name: str, reason: str) -> None:
    assert outside(model_of(find(f"node-{name}"))) == reason


def test_outside_sees_types_of_casts_and_constants() -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.COMPLEX64)
    graph = helper.make_graph([node], "test", [], [])
    assert outside(helper.make_model(graph)) == "complex64"
