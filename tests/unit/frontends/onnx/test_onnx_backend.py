"""A sample of ONNX's backend tests on the adapter numpy, and known differences of DirectML."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from dmlgpu import Device, InvalidArgument, NotSupported
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.suites.onnx_backend import OnnxBackendSuite, find, model_of, outside
from dmlgpu.conformance.suites.registry import suite_by_name

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
