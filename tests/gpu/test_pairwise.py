"""Adapters compared with each other without the reference, on real drivers."""

from __future__ import annotations

from dmlgpu.conformance.drivers.pairwise import Agreement
from dmlgpu.conformance.drivers.pairwise_run import as_output_suite, run_pairwise
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.running.pool import Job, WorkerProcess
from dmlgpu.conformance.suites.registry import suite_by_name
from dmlgpu.runtime.adapters import adapters

NAMES = (
    "argmin-example1",  # integers
    "element_wise_subtract-float32-3x5-padded-s0",  # correctly rounded
    "element_wise_tanh-float32-8x11-padded-s0",  # some ULP
    "gemm-float32-3x5-packed-s0",  # sums, whose bound takes magnitudes
    "gru-float32-63x63x1-strided-s0",  # one of two outputs, the other one absent
    "gather_nd1-float32-uint32-2x3-packed-s0",  # moved
)


def test_children_that_keep_outputs_say_which_kernels_ran(adapter, tmp_path):
    worker = WorkerProcess(Job("operators", adapters().index(adapter)), str(tmp_path), "0")
    try:
        outcome = worker.run(NAMES[1])
    finally:
        worker.close()
    assert outcome.status is Status.PASS and (tmp_path / "0.npy").exists()
    assert any("elementwise/element_wise_subtract" in kernel for kernel in outcome.kernels)


def test_an_adapter_agrees_with_numpy(adapter):
    known = adapters()
    jobs = {"adapter": Job("operators", known.index(adapter)), "numpy": Job("operators", len(known) - 1)}
    pairs = [
        pair
        for pairs in run_pairwise(jobs, as_output_suite(suite_by_name("operators"), "operators"), NAMES)
        for pair in pairs
    ]
    assert {pair.case for pair in pairs} == set(NAMES) and len(pairs) == len(NAMES)
    assert [pair.agreement for pair in pairs] == [Agreement.AGREE] * len(NAMES), pairs
    assert [pair.distance.differing for pair in pairs if pair.tolerance == "exact"] == [0, 0]
    assert all(pair.distance.elements for pair in pairs)
