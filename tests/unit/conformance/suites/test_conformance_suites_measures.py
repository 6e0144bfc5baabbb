"""Sizes and accuracy: results that are known without the reference."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from benchmarks.accuracy import table
from dmlgpu.common.errors import NotSupported
from dmlgpu.conformance.accuracy.functions import FUNCTIONS, FunctionErrors, LibraryFunction
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.records import RecordedRun
from dmlgpu.conformance.suites import sizes
from dmlgpu.conformance.suites.accuracy import AccuracySuite, function_outcome
from dmlgpu.conformance.suites.sizes import WORKLOADS, SizeSuite, run_workload
from dmlgpu.runtime.device import Device

COUNT = 1000


@pytest.fixture
def numpy_device():
    return Device("numpy")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """So that a thousand elements are several pieces."""
    monkeypatch.setattr(sizes, "PIECE", 300)


# ---- sizes


def test_running_sums_are_sums():
    first = np.arange(COUNT, dtype=np.uint64)
    np.testing.assert_array_equal(sizes.running_sums(first), np.cumsum(sizes.pattern(first), dtype=np.uint32))
    index = 2**30 + 5
    step = int(sizes.running_sums(np.array([index], np.uint64))[0]) - int(
        sizes.running_sums(np.array([index - 1], np.uint64))[0]
    )
    assert step % 2**32 == (index * sizes.FACTOR + sizes.FIRST) % 2**32


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_work_is_right_on_few_elements(name, numpy_device):
    verdict = run_workload(WORKLOADS[name](COUNT), numpy_device)
    assert verdict.ok and verdict.elements > 0, verdict


@pytest.mark.parametrize("name", WORKLOADS)
def test_one_wrong_element_is_found(name, numpy_device):
    workload = WORKLOADS[name](COUNT)
    count = math.prod(workload.desc.outputs[0].tensor.sizes)
    last = np.uint64(count - 1)
    broken = replace(workload, expected=lambda indices: workload.expected(indices) ^ (indices == last).astype(np.uint8))
    verdict = run_workload(broken, numpy_device)
    assert (verdict.ok, verdict.wrong, verdict.worst) == (False, 1, (count - 1,))


def test_bytes_after_the_output_are_watched(monkeypatch, numpy_device):
    execute = sizes.execute

    def stray(device, operator, inputs, output):
        execute(device, operator, inputs, output)
        output.write(np.zeros(4, np.uint8), output.size - 4)

    monkeypatch.setattr(sizes, "execute", stray)
    verdict = run_workload(WORKLOADS["copy"](COUNT), numpy_device)
    assert not verdict.ok and verdict.problem == "bytes after the output were written"


def test_tensors_beyond_a_binding_are_rejected_by_its_limit(numpy_device):
    outcome = SizeSuite().run("size-sum-2gib", numpy_device)
    assert (outcome.status, outcome.missing) == (Status.NOT_SUPPORTED, "max-storage-buffer-binding-size")
    assert outcome.message == "tensors of 2,147,483,664 bytes exceed max-storage-buffer-binding-size, 134,217,728"


def test_the_largest_binding_is_the_adapter_s(numpy_device):
    words = sizes.EXTENTS["binding"](numpy_device)
    assert 4 * words == numpy_device.backend.target.max_binding_size == 128 << 20
    assert sizes.EXTENTS["groups"](numpy_device) > 65535 * 256


# ---- accuracy


@pytest.mark.parametrize(
    ("name", "true"),
    [
        ("erf_f32", special.erf),
        ("erfc_f32", special.erfc),
        ("sigmoid_f32", special.expit),
        ("gelu_f32", lambda x: x * special.ndtr(x)),
        ("erfc_tail_f32", lambda x: x * special.ndtr(-x)),
    ],
)
def test_true_values_agree_with_scipy_s(name, true):
    (function,) = (function for function in FUNCTIONS if function.name == name)
    numbers = np.concatenate([np.linspace(-14, 14, 4001), [1e-30, -1e-30, 0.0, 1e30]])
    np.testing.assert_allclose(function.true(numbers), true(numbers), rtol=1e-12)


def measured(*errors: float, bound: float = 2.0) -> FunctionErrors:
    numbers = np.array([1e-40, 1.0, 1.5, -6.0, np.inf], np.float32)[: len(errors)]
    function = LibraryFunction("double_f32", lambda x: 2 * x, bound)
    return FunctionErrors(function, np.array(errors), (numbers,), 2 * numbers, 2 * numbers.astype(np.float64))


def test_a_measurement_becomes_an_outcome():
    good = function_outcome("double_f32-16", measured(0.25, 0.5, 1.5, 1.0, 0.0), 3.0)
    assert (good.status, good.max_ulp, good.wrong, good.elements) == (Status.PASS, 1.5, 0, 5)
    assert good.of_bound == 0.75
    assert (good.inputs, good.expected, good.got, good.worst) == (("1.5",), "3.0", "3.0", (2,))
    assert good.bound == pytest.approx(2 * 2.0**-22)
    assert good.curve == ((-127.0, 0.25), (0.0, 1.5), (2.0, 1.0))


@pytest.mark.parametrize("error", [2.5, np.inf])
def test_an_error_above_the_bound_is_a_failure(error):
    bad = function_outcome("double_f32-16", measured(0.0, error, 0.0, 3.0), 1.0)
    assert (bad.status, bad.wrong, bad.max_ulp) == (Status.FAIL, 2, max(error, 3.0))
    assert bad.of_bound == max(error, 3.0) / 2


def test_an_adapter_without_shaders_has_no_math_library(numpy_device):
    with pytest.raises(NotSupported, match="runs no shaders"):
        AccuracySuite().run("exp_f32-16", numpy_device)


def test_the_document_s_table_comes_from_outcomes():
    facts = {
        "adapter": {
            "name": "card",
            "backend": "Vulkan",
            "kind": "cpu",
            "vendor": "v",
            "driver": "7",
            "features": [],
            "limits": {},
        },
        "suite": "accuracy",
    }
    outcomes = (Outcome("tan_f32-16", Status.PASS, max_ulp=3.25, mean_ulp=0.5), Outcome("exp_f32-16", Status.CRASH))
    assert table(RecordedRun(facts, outcomes)) == (
        "## Vulkan: card (7)\n\nThe adapter keeps subnormals in arithmetic.\n\n"
        "| function | bound | max | mean |\n|---|---|---|---|\n| `tan_f32` | 4 | 3.250 | 0.500 |\n"
    )
