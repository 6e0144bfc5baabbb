"""Faults in shaders are noticed, under the schedules of each kind of adapter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dmlgpu.conformance.mutation.suite import UNCHANGED, MutantRunSuite
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.device import Device

SUBTRACT = "element_wise_subtract-float32-2x3-packed-s0"


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    """A device on the first adapter that runs shaders."""
    gpu = next((info for info in adapters() if info.backend != "NumPy"), None)
    if gpu is None:
        pytest.skip("no adapter that runs shaders")
    device = Device(gpu)
    yield device
    device.remove()


@pytest.fixture(scope="module")
def suite() -> MutantRunSuite:
    return MutantRunSuite()


def run(suite: MutantRunSuite, device: Device, *parts: str) -> Outcome:
    return suite.run("|".join(parts), device)


@pytest.mark.parametrize("profile", ["cpu", "discrete"])
def test_a_fault_is_noticed_and_gone_afterwards(suite: MutantRunSuite, device: Device, profile: str) -> None:
    fault = "elementwise/element_wise_subtract:3:16:plus_for_minus"
    assert run(suite, device, fault, profile, SUBTRACT).status is Status.FAIL
    elsewhere = run(suite, device, "elementwise/element_wise_add:3:16:minus_for_plus", profile, SUBTRACT)
    assert (elsewhere.status, elsewhere.message) == (Status.PASS, UNCHANGED)


def test_every_case_of_a_fault_meets_it(suite: MutantRunSuite, device: Device) -> None:
    cases = [SUBTRACT, "element_wise_subtract-float32-33x65-packed-s0"]
    elsewhere, fault = (
        "elementwise/element_wise_add:3:16:minus_for_plus",
        "elementwise/element_wise_subtract:3:5:zero_result",
    )
    assert [run(suite, device, elsewhere, "cpu", case).message for case in cases] == [UNCHANGED] * 2
    assert [run(suite, device, fault, "cpu", case).status for case in cases] == [Status.FAIL] * 2


def test_a_fault_in_schedules_for_gpus_is_noticed(suite: MutantRunSuite, device: Device) -> None:
    fault, case = "schedules/rows_tree:15:5:negated_condition", "activation_softmax1-float32-3x300-packed-inner-s0"
    assert run(suite, device, fault, "discrete", case).status is Status.FAIL
    assert run(suite, device, fault, "cpu", case).message == UNCHANGED


def test_a_fault_of_the_library_is_measured(suite: MutantRunSuite, device: Device) -> None:
    outcome = run(suite, device, "lib/math_exp:12:5:zero_result", "cpu", "exp_f32-16")
    assert outcome.status is Status.FAIL
    assert outcome.max_ulp is not None
    assert outcome.max_ulp > 1000


@pytest.mark.parametrize(
    ("fault", "case"),
    [
        ("elementwise/element_wise_round:3:15:swapped_operands", "element_wise_round-float32-2x3-packed-s0"),
        ("layout/padding_folded:14:51:swapped_difference", "padding1-float32-3x5-packed-reflection-s0"),
    ],
)
def test_an_invalid_shader_is_no_mutant(suite: MutantRunSuite, device: Device, fault: str, case: str) -> None:
    assert run(suite, device, fault, "cpu", case).status is Status.NOT_SUPPORTED


def test_mutants_that_change_no_result_survive(suite: MutantRunSuite, device: Device) -> None:
    fault = "elementwise/element_wise_min:3:15:swapped_operands"
    outcome = run(suite, device, fault, "cpu", "element_wise_min-int32-2x3-packed-s0")
    assert outcome.status is Status.PASS
    assert outcome.message != UNCHANGED
