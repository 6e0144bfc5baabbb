"""Errors of whole operators: true results, units, limits that fail, and the document's table."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.accuracy import merged
from benchmarks.operator_accuracy import INTRODUCTION, table
from dmlgpu import Device
from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument, NotSupported
from dmlgpu.conformance.accuracy.workloads import ROUNDING, WORKLOADS, OperatorErrors
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.records import RecordedRun
from dmlgpu.conformance.suites.accuracy import CASES, OperatorAccuracySuite, operator_outcome

NAME = "reduce-accuracy-float32-sum"

OF_THE_REFERENCE = [
    workload.name(data_type)
    for workload in WORKLOADS
    for data_type in workload.data_types[:1]
    if not workload.needs_shaders
]


@pytest.fixture(scope="module")
def numpy_device() -> Device:
    return Device("numpy")


@pytest.mark.parametrize("name", OF_THE_REFERENCE)
def test_the_reference_is_off_by_its_last_rounding_only(numpy_device: Device, name: str) -> None:
    """The true results here and the reference are written apart, so that neither has the other's mistakes."""
    outcome = OperatorAccuracySuite().run(name, numpy_device)
    assert (outcome.status, outcome.wrong) == (Status.PASS, 0)
    assert outcome.measured["roundings"] < 1e-3
    assert outcome.measured["largest"] < 2 * ROUNDING


def errors(got: list[float], true: list[float], terms: list[float], data_type: type = np.float32) -> OperatorErrors:
    return OperatorErrors(np.array(got, data_type), np.array(true), np.array(terms))


def test_errors_are_measured_in_four_ways() -> None:
    measured = errors([1 + 2.0**-20, 4.0], [1.0, 4.0], [8.0, 8.0])
    assert measured.ulp.tolist() == [8.0, 0.0]
    assert measured.roundings.tolist() == [(2.0**-20 - 2.0**-24) / (8 * ROUNDING), 0.0]
    assert measured.summary == {
        "largest": 2.0**-20 / 4,
        "rms": pytest.approx(2.0**-20 / np.sqrt(17)),
        "ulp_max": 8.0,
        "ulp_rms": pytest.approx(8 / np.sqrt(2)),
        "roundings": 15 / 8,
    }


def test_the_last_rounding_of_a_half_is_no_error() -> None:
    true = 1 + 2.0**-11 - 2.0**-16
    measured = errors([1.0], [true], [1.0], np.float16)
    assert measured.roundings.tolist() == [0.0]
    assert measured.ulp.tolist() == [pytest.approx(0.5 - 2.0**-6)]


@pytest.mark.parametrize("off", [3.1, np.nan, np.inf])
def test_errors_beyond_the_limit_fail(off: float) -> None:
    wrong = np.float32(1024 * (1 + off * ROUNDING * 64))
    outcome = operator_outcome(NAME, errors([1.0, wrong], [1.0, 1024.0], [1.0, 1024.0 * 64]), 3.0, 1.0)
    assert (outcome.status, outcome.wrong, outcome.worst) == (Status.FAIL, 1, (1,))
    assert (outcome.expected, outcome.got) == ("1024.0", str(wrong))
    assert outcome.of_bound is not None and outcome.of_bound > 1
    near = operator_outcome(
        NAME, errors([1.0, 1024 * (1 + 2.9 * ROUNDING * 64)], [1.0, 1024.0], [1.0, 65536.0]), 3.0, 1.0
    )
    assert (near.status, near.wrong) == (Status.PASS, 0)


def test_measurements_survive_json() -> None:
    before = Outcome(NAME, Status.FAIL, measured={"rms": 0.5, "roundings": float("inf")})
    after = Outcome.from_json(json.loads(json.dumps(before.to_json())))
    assert after == before
    assert "measured" not in Outcome("a", Status.PASS).to_json()


def test_schedules_need_shaders(numpy_device: Device) -> None:
    with pytest.raises(NotSupported, match="runs no shaders, so it has no schedules"):
        OperatorAccuracySuite().run("gemm-accuracy-float32-shared", numpy_device)
    with pytest.raises(InvalidArgument, match="'gemm-accuracy-float64-shared' names no case"):
        OperatorAccuracySuite().run("gemm-accuracy-float64-shared", numpy_device)


def test_workloads_are_named_once_and_draw_the_same_numbers_again() -> None:
    assert len(CASES) == sum(len(workload.data_types) for workload in WORKLOADS)
    for workload in WORKLOADS:
        desc = workload.desc(DataType.FLOAT16)
        for first, second in zip(workload.inputs(desc), workload.inputs(desc), strict=True):
            np.testing.assert_array_equal(first, second)
            assert np.isfinite(first).all()


def test_the_document_s_table_comes_from_outcomes() -> None:
    adapter = {"name": "card", "backend": "Vulkan", "kind": "cpu", "vendor": "v", "driver": "7"}
    facts = {"adapter": {**adapter, "features": [], "limits": {}}, "suite": "dmlgpu"}
    facts |= {"started": "2026-11-29T11:11:52+00:00", "commit": "288a01c2d9f4"}
    measured = {"largest": 1.25e-7, "rms": 3e-8, "ulp_max": 2.0, "ulp_rms": 0.3, "roundings": 0.126}
    run = RecordedRun(
        facts, (Outcome(NAME, Status.PASS, measured=measured), Outcome("exp_f32-16", Status.PASS, max_ulp=1.0))
    )
    section = table(run)
    assert section == (
        "## Vulkan: card (7)\n\n"
        "2026-11-29, commit 288a01c2d9f4: `dmlgpu test --suite operator_accuracy --profile full`\n\n"
        "| operator | type | computed by | largest | rms | ULP max | ULP rms | roundings | limit |\n"
        "|---|---|---|--:|--:|--:|--:|--:|--:|\n"
        "| reduce | FLOAT32 | sum | 1.2e-07 | 3e-08 | 2 | 0.3 | 0.13 | 1 |\n"
    )
    assert merged(merged("", [section], INTRODUCTION), [section], INTRODUCTION) == f"{INTRODUCTION}\n{section}"
