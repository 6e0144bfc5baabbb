"""Chains and hazards: programs whose results depend on the order of their dispatches."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from dmlgpu.catalog.descs import ElementWiseAdd
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.suites import chains, programs
from dmlgpu.conformance.suites.chains import LARGEST, ChainKey, ChainMemory, ChainSuite
from dmlgpu.conformance.suites.hazards import HAZARDS, MIN_ELEMENTS, HazardSuite
from dmlgpu.conformance.suites.programs import (
    DispatchProgram,
    DispatchStep,
    Location,
    ProgramExecution,
    expected,
    run_program,
)
from dmlgpu.runtime.device import Device

PAIR = TensorDesc(DataType.INT32, (2,))
ADD = ElementWiseAdd(a_tensor=PAIR, b_tensor=PAIR, output_tensor=PAIR)
A, B, C = Location(0), Location(1), Location(1, 16)
BUFFERS = (np.array([1, 2], np.int32), np.array([3, 4, 5, 6, 7, 8], np.int32))


@pytest.fixture(scope="module")
def numpy_device():
    return Device("numpy")


def test_a_program_is_gone_through_in_order():
    steps = (DispatchStep(ADD, (A, B), (C,)), DispatchStep(ADD, (C, C), (A,)))
    first, second = expected(DispatchProgram(BUFFERS, (steps,), ((0,), (0,))))
    # C = A + B = 4, 6; A = 8, 12; C = 11, 16; A = 22, 32
    assert first.tolist() == [22, 32]
    assert second.tolist() == [3, 4, 5, 6, 11, 16]
    assert BUFFERS[0].tolist() == [1, 2]


def test_lists_run_in_the_order_of_their_submissions():
    lists = ((DispatchStep(ADD, (A, A), (A,)),), (DispatchStep(ADD, (A, B), (A,)),))
    assert expected(DispatchProgram(BUFFERS, lists, ((0, 1),)))[0].tolist() == [5, 8]
    assert expected(DispatchProgram(BUFFERS, lists, ((1,), (0,))))[0].tolist() == [8, 12]


def test_a_device_that_leaves_out_a_dispatch_is_found(monkeypatch, numpy_device):
    steps = (DispatchStep(ADD, (A, B), (C,)), DispatchStep(ADD, (C, C), (A,)))
    program = DispatchProgram(BUFFERS, (steps,))
    assert run_program(program, numpy_device).ok
    lazy = replace(program, lists=(steps[:1],))
    monkeypatch.setattr(programs, "execute", lambda program, device: ProgramExecution(expected(lazy)))
    verdict = run_program(program, numpy_device)
    assert not verdict.ok and verdict.wrong == 2 and (verdict.expected, verdict.got) == (12, 2)
    assert verdict.problem == "buffer 0, last written by dispatch 1, ELEMENT_WISE_ADD"


def test_a_device_that_writes_elsewhere_is_found(monkeypatch, numpy_device):
    program = DispatchProgram(BUFFERS, ((DispatchStep(ADD, (A, A), (A,)),),))
    changed = (*expected(program)[:1], np.zeros(6, np.int32))
    monkeypatch.setattr(programs, "execute", lambda program, device: ProgramExecution(changed))
    assert run_program(program, numpy_device).problem == "buffer 1 must be unchanged"


# ---- hazards


@pytest.mark.parametrize("hazard", HAZARDS)
def test_every_hazard_shows_the_order_of_its_dispatches(hazard, numpy_device):
    name = f"hazard-{hazard}-uint32-{MIN_ELEMENTS}"
    program = HazardSuite().program(name)
    target = expected(program)
    steps = [step for steps in program.lists for step in steps]
    for index in range(min(len(steps) - 1, 4)):
        swapped = list(steps)
        swapped[index : index + 2] = swapped[index + 1], swapped[index]
        other = expected(replace(program, lists=_cut(swapped, program)))
        assert any((a != b).any() for a, b in zip(target, other, strict=True)), f"dispatches {index} and the next"
    assert HazardSuite().run(name, numpy_device).status is Status.PASS


def _cut(steps: list[DispatchStep], program: DispatchProgram) -> tuple[tuple[DispatchStep, ...], ...]:
    """The steps in lists as long as the program's."""
    remaining = iter(steps)
    return tuple(tuple(next(remaining) for _ in steps) for steps in program.lists)


def test_hazards_match_their_names():
    def steps(hazard):
        return HazardSuite().program(f"hazard-{hazard}-uint32-{MIN_ELEMENTS}").lists[0]

    assert any(step.outputs[0] in step.inputs for step in steps("in_place"))
    assert any(len(set(step.inputs)) < len(step.inputs) for step in steps("same_input"))
    assert any(abs(step.inputs[0].offset - step.inputs[-1].offset) == 16 for step in steps("overlapping_inputs"))
    assert all(step.inputs[0].buffer == step.outputs[0].buffer for step in steps("neighbors"))
    casts = [step for step in steps("two_types") if step.desc.operator == "CAST"]
    assert all(step.inputs[0].buffer == step.outputs[0].buffer for step in casts)
    assert {step.sources[0][0].data_type for step in casts} == {DataType.UINT8, DataType.UINT32}
    assert len(steps("many")) == 400


@pytest.mark.parametrize(
    "name",
    [
        "hazard-in_place-uint32-250",
        "hazard-in_place-uint32-128",
        "hazard-temporary-uint8-4112",
        "hazard-none-uint8-256",
    ],
)
def test_other_hazards_are_rejected(name):
    with pytest.raises(InvalidArgument, match=r"hazard|number of elements"):
        HazardSuite().program(name)


# ---- chains


@pytest.mark.parametrize("memory", ChainMemory)
@pytest.mark.parametrize("data_type", LARGEST)
def test_chains_stay_exact_and_pass(data_type, memory, numpy_device):
    key = ChainKey(data_type, memory, 40, 3)
    program = chains.program(key)
    for array in expected(program)[1:]:
        numbers = array.astype(np.float64)
        assert (numbers == np.rint(numbers)).all() and np.abs(numbers).max() <= LARGEST[data_type]
    assert ChainSuite().run(str(key), numpy_device).status is Status.PASS


def test_chains_differ_by_seed_and_equal_themselves():
    first, again, other = (chains.program(ChainKey(DataType.INT32, ChainMemory.OWN, 9, seed)) for seed in (1, 1, 2))
    assert first.lists == again.lists != other.lists


def test_chains_take_every_kind_of_operator_and_feed_results_on():
    program = chains.program(ChainKey(DataType.FLOAT32, ChainMemory.OWN, 400, 0))
    counts = Counter(step.desc.operator for step in program.order)
    families = {"GEMM", "REDUCE", "GATHER", "JOIN", "SLICE1", "PADDING1", "ELEMENT_WISE_IDENTITY", "ELEMENT_WISE_ADD"}
    assert families <= counts.keys()
    written = {step.outputs[0] for step in program.order}
    assert sum(any(location in written for location in step.inputs) for step in program.order) > 300


def test_chains_share_memory_as_their_names_say():
    own, arena, reuse = (chains.program(ChainKey(DataType.FLOAT32, memory, 60, 0)) for memory in ChainMemory)
    outputs = {location for step in own.order for location in step.outputs}
    assert len({location.buffer for location in outputs}) == 60
    assert len(arena.buffers) == 2
    assert len({step.outputs[0] for step in reuse.order}) <= chains.SLOTS
    assert any(step.outputs[0] in step.inputs for step in reuse.order)


def test_a_chain_shows_a_dispatch_that_did_nothing(monkeypatch, numpy_device):
    key = ChainKey(DataType.INT32, ChainMemory.OWN, 30, 0)
    program = chains.program(key)
    lazy = replace(program, lists=(program.lists[0][:-1], *program.lists[1:]))
    monkeypatch.setattr(programs, "execute", lambda program, device: ProgramExecution(expected(lazy)))
    assert ChainSuite().run(str(key), numpy_device).status is Status.FAIL


@pytest.mark.parametrize(
    "name", ["chain-int8-own-4-s0", "chain-int32-mine-4-s0", "chain-int32-own-04-s0", "chain-int32-own-2001-s0"]
)
def test_other_chains_are_rejected(name):
    with pytest.raises(InvalidArgument, match="names no chain"):
        ChainSuite().program(name)
