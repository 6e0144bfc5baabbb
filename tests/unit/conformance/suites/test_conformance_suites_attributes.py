"""The suite of attributes: which there are, what is compared of results, values that are rejected."""

from __future__ import annotations

import numpy as np
import pytest

from dmlgpu import descs, reference
from dmlgpu.catalog import loader
from dmlgpu.catalog.operator_desc import ScaleBias
from dmlgpu.common.errors import InvalidArgument, NotSupported
from dmlgpu.conformance.cases import case as case_module
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.suites import attributes
from dmlgpu.conformance.suites.attributes import (
    REJECTED,
    VALUES,
    AttributeSuite,
    SameKind,
    attribute_paths,
    with_attribute,
)
from dmlgpu.runtime.device import Device

NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def suite():
    return AttributeSuite()


@pytest.fixture(scope="module")
def numpy_device():
    return Device("numpy")


# ---- which there are


def test_every_float_of_the_catalog_is_an_attribute():
    kinds = {"FLOAT": (), "SCALAR_UNION": (), "SCALE_BIAS": ("scale", "bias")}
    for schema in loader.catalog().values():
        expected = {
            ".".join((field.python_name, *part))
            for field in schema.python_fields
            if field.type in kinds
            for part in ([(kind,) for kind in kinds[field.type]] or [()])
        }
        assert expected <= set(attribute_paths(schema.stem)), schema.name
        assert bool(expected) == bool([path for path in attribute_paths(schema.stem) if "activation" not in path])


def test_those_of_fused_activations_are_too():
    assert "fused_activation.activation_elu.alpha" in attribute_paths("gemm")
    assert "fused_activation.element_wise_clip.scale_bias.bias" in attribute_paths("convolution")
    assert "activation_descs.activation_scaled_tanh.beta" in attribute_paths("lstm")
    assert "fused_activation.element_wise_clip.min" not in attribute_paths("batch_normalization")


def test_standard_has_every_value_of_every_attribute(suite):
    names = set(suite.names("standard"))
    paths = [path for path in attribute_paths("element_wise_clip") if "fused" not in path]
    expected = {
        f"element_wise_clip-attributes-float32-{path}-{value}"
        for path in ("scale_bias.scale", "scale_bias.bias", "min", "max")
        for value in ("zero", "negative_zero", "one", "minus_one", "subnormal", "tiny", "infinity", "nan")
    }
    assert len(paths) == 4 and expected <= names <= set(suite.names("full"))
    assert set(suite.names("quick")) <= names


def test_an_attribute_is_changed_wherever_it_lies():
    elu = descs.ActivationElu(input_tensor=None, output_tensor=None, alpha=1)
    rnn_fields = {"activation_descs": (elu, elu)}
    path = "activation_descs.activation_elu.alpha"

    class Fields:
        def __init__(self, **fields):
            self.__dict__.update(fields)

        def replace(self, **changes):
            return Fields(**{**self.__dict__, **changes})

    changed = with_attribute(Fields(**rnn_fields), path, -3.0)
    assert [activation.alpha for activation in changed.activation_descs] == [-3.0, -3.0]
    assert with_attribute(Fields(scales=(1.0, 2.0)), "scales", 5.0).scales == (1.0, 5.0)
    assert with_attribute(Fields(scale_bias=ScaleBias(2, 3)), "scale_bias.bias", 4.0).scale_bias == ScaleBias(2, 4)
    assert with_attribute(Fields(scale_bias=None), "scale_bias.scale", 4.0).scale_bias.scale == 4


# ---- what is compared


@pytest.mark.parametrize(
    ("expected", "got", "elementwise", "summed"),
    [
        (NAN, NAN, True, True),
        (NAN, 0.0, False, False),
        (INF, INF, True, True),
        (INF, -INF, False, False),
        (INF, 3e38, False, False),
        (0.0, NAN, False, False),
        (0.0, -0.0, False, True),
        (0.0, 1e-3, False, False),
        (1.0, 1.005, True, True),
        (1.0, 1.1, False, False),
        (1e-40, 0.0, True, True),
    ],
)
def test_kinds_must_agree(expected, got, elementwise, summed):
    pair = np.array([expected], np.float32), np.array([got], np.float32)
    assert SameKind(is_sum=False).accepts(*pair, None).item() is elementwise
    assert SameKind(is_sum=True).accepts(*pair, None).item() is summed


def test_sums_may_cancel():
    expected, got = np.array([0.0, 4.0], np.float32), np.array([1e-3, 4.0], np.float32)
    assert SameKind(is_sum=True).accepts(expected, got, None).all()


def test_inputs_hold_elements_that_attributes_affect(suite):
    (values,) = suite.case("element_wise_identity-attributes-float32-scale_bias.scale-zero").inputs()
    assert np.isnan(values).any() and {INF, -INF, 1.0} <= set(values.ravel().tolist())
    assert {False, True} == set(np.signbit(values[values == 0]).tolist())


def test_operators_that_spread_infinities_get_none(suite):
    case = suite.case("convolution-attributes-float32-fused_activation.activation_elu.alpha-zero")
    arrays = {slot.field: array for slot, array in zip(case.desc.inputs, case.inputs(), strict=True)}
    assert np.isfinite(arrays["input_tensor"]).all() and np.isfinite(arrays["filter_tensor"]).all()


def test_a_swallowed_nan_is_a_failure(monkeypatch, suite, numpy_device):
    name = "activation_leaky_relu-attributes-float32-alpha-zero"
    assert suite.run(name, numpy_device).status is Status.PASS

    class Swallowing:
        @staticmethod
        def evaluate(desc, inputs):
            return tuple(np.nan_to_num(array, nan=0.0) for array in reference.evaluate(desc, inputs))

    monkeypatch.setattr(case_module, "reference", Swallowing)
    assert suite.run(name, numpy_device).status is Status.FAIL


def test_a_flushed_beta_multiplies(suite):
    case = suite.case("gemm-attributes-float32-beta-subnormal")
    a, b, c = case.inputs()
    c[...] = INF
    (dropped,) = reference.evaluate(case.desc.replace(beta=0.0), (a, b, c))
    (flushed,) = case.alternatives((a, b, c))
    assert np.isnan(flushed).all() and not np.isnan(dropped).all()


# ---- rejections


def test_rejected_values_are_cases(suite, numpy_device):
    assert set(REJECTED["adam_optimizer.beta1"]) == set(VALUES) - {"zero", "negative_zero", "one", "subnormal", "tiny"}
    outcome = suite.run("adam_optimizer-attributes-float32-beta1-nan", numpy_device)
    assert (outcome.status, outcome.tolerance) == (Status.PASS, "refused")
    with pytest.raises(NotSupported, match="must be rejected"):
        suite.outputs("adam_optimizer-attributes-float32-beta1-nan", numpy_device, 0)


def test_a_value_that_is_taken_although_it_should_be_rejected_fails(monkeypatch, suite, numpy_device):
    monkeypatch.setitem(attributes.REJECTED, "activation_elu.alpha", frozenset({"zero"}))
    assert suite.run("activation_elu-attributes-float32-alpha-zero", numpy_device).status is Status.FAIL


@pytest.mark.parametrize(
    "name",
    [
        "activation_elu-attributes-float32-alpha-two",
        "activation_elu-attributes-float64-alpha-zero",
        "activation_elu-attributes-float32-beta-zero",
        "element_wise_clip1-attributes-int32-min-zero",
        "activation_relu-attributes-float32-alpha-zero",
        "nothing-attributes-float32-alpha-zero",
    ],
)
def test_other_names_are_none(suite, name):
    assert not suite.has(name)
    with pytest.raises(InvalidArgument, match="names no case"):
        suite.case(name)
