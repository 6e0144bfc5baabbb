"""dmlgpu's own suites: names that rebuild their cases, and verdicts that can fail."""

from __future__ import annotations

import fnmatch
import json

import numpy as np
import pytest

from dmlgpu import reference
from dmlgpu.catalog import loader
from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.cases import case as case_module
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.suites.operators import OperatorSuite
from dmlgpu.conformance.suites.registry import BUILT_IN, DEFAULT, select, suite_by_name
from dmlgpu.conformance.suites.special_values import (
    KINDS,
    NOT_NUMBERS,
    HalvesSuite,
    SpecialKind,
    SpecialValueSuite,
    all_halves,
    kind_of,
    special_values,
)
from dmlgpu.runtime.device import Device

PARTS = tuple(entry.name for entry in BUILT_IN if entry.name != DEFAULT)


@pytest.fixture(scope="module")
def numpy_device():
    return Device("numpy")


@pytest.mark.parametrize("name", PARTS)
def test_every_name_of_the_quick_profile_is_accepted_back(name):
    suite = suite_by_name(name)
    names = suite.names("quick")
    assert names == suite.names("quick")
    assert len(set(names)) == len(names) > 0
    assert all(suite.has(case) for case in names[::9])


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("other", ["", "gemm", "chain-float32-own-0-s0", "hazard-in_place-uint32-100", "size-copy-all"])
def test_other_names_are_not(name, other):
    assert not suite_by_name(name).has(other)


def test_the_default_suite_has_all_parts_and_runs_each(numpy_device):
    suite = suite_by_name(DEFAULT)
    names = suite.names("quick")
    parts = [suite_by_name(name).names("quick") for name in PARTS]
    assert names == tuple(name for part in parts for name in part)
    assert len(set(names)) == len(names)
    for part in PARTS:
        if part not in ("sizes", "accuracy", "driver"):  # tested with fewer elements; run shaders only
            assert suite.run(suite_by_name(part).names("quick")[0], numpy_device).status is Status.PASS
    with pytest.raises(InvalidArgument, match="'nothing' names no case"):
        suite.run("nothing", numpy_device)


def test_a_name_that_no_profile_lists_can_be_run():
    name = "chain-int32-reuse-7-s123456"
    assert select(suite_by_name(DEFAULT), "quick", [name]) == (name,)


def test_a_curve_survives_json():
    curve = ((-127.0, 0.5), (3.0, float("inf")))
    outcome = Outcome("exp_f32-16", Status.PASS, curve=curve)
    assert Outcome.from_json(json.loads(json.dumps(outcome.to_json()))).curve == curve
    assert "curve" not in Outcome("a", Status.PASS).to_json()


# ---- special values


@pytest.mark.parametrize("data_type", [DataType.FLOAT16, DataType.FLOAT32])
def test_special_values_hold_known_trouble(data_type):
    values = special_values(data_type)
    nan = values[np.isnan(values)]
    bits = nan.view(f"u{nan.itemsize}")
    assert len(np.unique(bits)) >= 6 and len(np.unique(np.signbit(nan))) == 2
    limits = np.finfo(data_type.numpy)
    for special in (np.inf, -np.inf, limits.max, -limits.max, limits.smallest_subnormal, limits.smallest_normal):
        assert special in values
    assert {False, True} == set(np.signbit(values[values == 0]).tolist())


def test_kinds_exclude_values_that_cannot_be_compared():
    large = special_values(DataType.FLOAT32, SpecialKind.NOT_LARGE)
    assert np.abs(large[np.isfinite(large)]).max() <= 4
    assert np.isnan(large).any() and np.isinf(large).any()
    finite = special_values(DataType.FLOAT32, SpecialKind.FINITE)
    normal = special_values(DataType.FLOAT32, SpecialKind.NORMAL)
    assert (
        not ((normal != 0) & (np.abs(normal) < 2.0**-126)).any()
        and np.isnan(normal).any()
        and np.max(normal[np.isfinite(normal)]) > 2.0**127
    )
    assert np.isfinite(finite).all() and (finite == 0).any() and np.abs(finite[finite != 0]).min() == 0.5
    assert special_values(DataType.INT4).tolist() == [-8, -4, -1, 0, 1, 3, 4, 5, 7]


def test_nan_stays_nan():
    suite = SpecialValueSuite()
    name = next(name for name in suite.names("quick") if name.startswith("gather_nd1-"))
    case, before = suite.case(name), OperatorSuite().case(name.replace("-values-", "-"))
    rng = np.random.default_rng
    new, old = case.fill(rng(1)), before.fill(rng(1))
    assert not np.array_equal(new[0].view(np.uint8), old[0].view(np.uint8))
    np.testing.assert_array_equal(new[1], old[1])
    fields = {field.python_name for schema in loader.catalog().values() for field in schema.tensor_fields}
    assert fields >= NOT_NUMBERS


def test_sums_get_no_large_numbers():
    suite = SpecialValueSuite()
    by_stem = {name.partition("-")[0]: suite.case(name) for name in suite.names("quick")}
    assert kind_of(by_stem["element_wise_add"]) is SpecialKind.ALL
    assert kind_of(by_stem["fold"]) is SpecialKind.NOT_LARGE
    assert kind_of(by_stem["roi_align1"]) is SpecialKind.FINITE
    for pattern, kind in KINDS.items():
        met = bool(fnmatch.filter(by_stem, pattern))
        assert met is (kind is not SpecialKind.NONE), pattern


def test_a_bound_excludes_infinities_and_nan():
    suite = SpecialValueSuite()
    case = suite.case(next(name for name in suite.names("quick") if name.startswith("gemm-")))
    inputs = tuple(None if array is None else np.full_like(array, np.nan) for array in case.inputs())
    assert all(np.isfinite(bound).all() for bound in case.magnitudes(inputs))


def break_reference(monkeypatch, change):
    """Let cases expect what ``change`` makes of the first result; the device computes as before."""

    class Broken:
        @staticmethod
        def evaluate(desc, inputs):
            first, *others = reference.evaluate(desc, inputs)
            return (change(first.copy()), *others)

    monkeypatch.setattr(case_module, "reference", Broken)


def without_nan(array):
    array[np.isnan(array)] = 0
    return array


def test_a_lost_nan_is_a_failure(monkeypatch, numpy_device):
    suite = SpecialValueSuite()
    name = next(name for name in suite.names("quick") if name.startswith("element_wise_sqrt-"))
    assert suite.run(name, numpy_device).status is Status.PASS
    break_reference(monkeypatch, without_nan)
    outcome = suite.run(name, numpy_device)
    assert (outcome.status, outcome.case) == (Status.FAIL, name)
    assert outcome.wrong > 0 and outcome.expected == "0.0" and outcome.got == "nan"


# ---- all float16


def test_all_float16_values_occur():
    assert len(np.unique(all_halves().view(np.uint16))) == 65536


def test_unary_operators_are_found():
    stems = {name.partition("-")[0] for name in HalvesSuite().names("standard")}
    assert {"element_wise_exp", "activation_gelu", "element_wise_is_nan", "cast", "element_wise_clip"} <= stems
    assert not stems & {"activation_softmax", "activation_hardmax1", "element_wise_add", "cumulative_summation"}
    quick = {name.partition("-")[0] for name in HalvesSuite().names("quick")}
    assert stems - quick >= {"element_wise_exp", "element_wise_floor", "activation_tanh"}


def test_parameters_come_in_sets():
    names = [name for name in HalvesSuite().names("full") if name.startswith("activation_elu-")]
    alphas = {HalvesSuite().case(name).desc.alpha for name in names}
    assert len(names) == 12 and len(alphas) > 5


def test_one_wrong_half_is_a_failure(monkeypatch, numpy_device):
    suite, name = HalvesSuite(), "element_wise_sqrt-halves-float16-65536-packed-s0"
    assert suite.run(name, numpy_device).elements == 65536

    def off_by_one(array):
        array.view(np.uint16)[0x1234] += 1
        return array

    break_reference(monkeypatch, off_by_one)
    outcome = suite.run(name, numpy_device)
    assert (outcome.status, outcome.wrong, outcome.worst) == (Status.FAIL, 1, (0x1234,))


@pytest.mark.parametrize(
    "name", ["element_wise_sqrt-halves-float16-64-packed-s0", "gemm-halves-float16-65536-packed-s0"]
)
def test_other_sizes_and_operators_are_rejected(name):
    with pytest.raises(InvalidArgument, match="halves"):
        HalvesSuite().case(name)
