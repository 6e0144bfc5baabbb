"""Recurrent networks: validation and steps."""

from __future__ import annotations

from typing import Any

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, FeatureLevel, RecurrentNetworkDirection
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.catalog.validation import fusable_activations, validate
from dmlgpu.common.errors import InvalidDescription, NotSupported
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.schedule.steps.base import ScheduledRepeat
from dmlgpu.compiler.schedule.steps.products import ScheduledRecurrence
from dmlgpu.compiler.schedule.unrolling import LARGEST
from dmlgpu.compiler.target import Profile, Target
from tests import schedules
from tests.networks import ACTIVATIONS, BACKWARD, BOTH, CLASSES, SIGMOID, TANH, network

F32, F16, U32 = DataType.FLOAT32, DataType.FLOAT16, DataType.UINT32
CPU = Target("any", Profile.CPU, frozenset({"immediates"}))
GPU = Target("any", Profile.DISCRETE)
ALL = pytest.mark.parametrize("operator", CLASSES)


def rejection(desc: Any, level: FeatureLevel = FeatureLevel.LEVEL_6_4) -> str:
    validate(desc, level)
    with pytest.raises(InvalidDescription) as caught:
        operators.check(desc, level)
    return str(caught.value)


def tensor(*sizes: int, data_type: DataType = F32) -> TensorDesc:
    return TensorDesc(data_type, sizes)


def scheduled(desc: Any, target: Target = CPU) -> tuple[Any, ...]:
    operators.check(desc)
    return schedules.steps_of(desc, target)


def repeats_of(desc: Any, target: Target = CPU) -> list[ScheduledRepeat]:
    return [step for step in scheduled(desc, target) if isinstance(step, ScheduledRepeat)]


def steps_of(desc: Any, target: Target = CPU) -> list[ScheduledRecurrence]:
    """Return the kernels of a time step."""
    (repeat,) = repeats_of(desc, target)
    kernels = [step for step in repeat.steps if isinstance(step, ScheduledRecurrence)]
    assert len(kernels) == len(repeat.steps)
    return kernels


def labels(desc: Any) -> list[str]:
    return [step.label for step in scheduled(desc) if not isinstance(step, ScheduledRepeat)]


# ---- limits


def test_too_many_steps_of_an_execution_are_rejected():
    with pytest.raises(NotSupported) as caught:
        schedules.steps_of(network("GRU", (1 << 14, 1, 1, 1)), GPU)
    assert str(caught.value) == "16384 time steps exceed the 8192 that one execution may have"


def test_too_many_kernels_of_an_execution_are_rejected():
    desc = network("GRU", (8000, 1, 1, 1), linear_before_reset=False)
    with pytest.raises(NotSupported, match=r"GRU: 160\d\d kernels one after the other exceed the 8192"):
        compiler.compile_operator(desc, GPU)


def test_too_many_parts_of_the_time_are_rejected():
    with pytest.raises(NotSupported) as caught:
        schedules.steps_of(network("GRU", (256, 1 << 16, 1, 256)), GPU)
    assert str(caught.value) == (
        "256 time steps fit into temporary tensors only in 256 parts, more than the 64 that one execution may have"
    )


# ---- checks


@ALL
@pytest.mark.parametrize("direction", RecurrentNetworkDirection)
def test_matching_sizes_are_accepted(operator: str, direction: RecurrentNetworkDirection) -> None:
    desc = network(operator, direction=direction)
    validate(desc, FeatureLevel.LEVEL_1_0)
    operators.check(desc, FeatureLevel.LEVEL_1_0)


@pytest.mark.parametrize(
    ("field", "sizes", "expected"),
    [
        ("input_tensor", (2, 7, 2, 3), [1, 7, 2, 3]),
        ("weight_tensor", (1, 1, 24, 3), [1, 1, 32, 3]),
        ("recurrence_tensor", (1, 1, 8, 8), [1, 1, 32, 8]),
        ("bias_tensor", (1, 1, 1, 32), [1, 1, 1, 64]),
        ("hidden_init_tensor", (1, 1, 2, 9), [1, 1, 2, 8]),
        ("cell_mem_init_tensor", (1, 2, 2, 8), [1, 1, 2, 8]),
        ("sequence_lengths_tensor", (1, 1, 2, 1), [1, 1, 1, 2]),
        ("peephole_tensor", (1, 1, 1, 32), [1, 1, 1, 24]),
        ("output_sequence_tensor", (1, 7, 2, 8), [7, 1, 2, 8]),
        ("output_single_tensor", (7, 1, 2, 8), [1, 1, 2, 8]),
        ("output_cell_single_tensor", (1, 1, 2, 1), [1, 1, 2, 8]),
    ],
)
def test_mismatched_sizes_are_rejected(field: str, sizes: tuple[int, ...], expected: list[int]) -> None:
    wrong = tensor(*sizes, data_type=U32 if field == "sequence_lengths_tensor" else F32)
    assert rejection(network("LSTM", **{field: wrong})) == (
        f"LSTM: {field}.sizes must be {expected} (FORWARD, 2 sequences, 3 inputs, 8 hidden elements), got {list(sizes)}"
    )


def test_both_directions_need_weights_each() -> None:
    assert rejection(network("RNN", direction=BOTH, weight_tensor=tensor(1, 1, 8, 3))) == (
        "RNN: weight_tensor.sizes must be [1, 2, 8, 3]"
        " (BIDIRECTIONAL, 2 sequences, 3 inputs, 8 hidden elements), got [1, 1, 8, 3]"
    )


def test_the_number_of_activations_is_checked() -> None:
    assert rejection(network("LSTM", activation_descs=(SIGMOID, TANH))) == (
        "LSTM: activation_descs must hold 3 (3 per direction), got 2"
    )
    assert rejection(network("GRU", direction=BOTH, activation_descs=(SIGMOID, TANH))) == (
        "GRU: activation_descs must hold 4 (2 per direction), got 2"
    )


def test_an_output_is_needed() -> None:
    absent = dict.fromkeys(("output_sequence_tensor", "output_single_tensor"))
    assert rejection(network("GRU", **absent)) == (
        "GRU: output_sequence_tensor must be given, or another output"
        " (output_sequence_tensor or output_single_tensor), got none"
    )


def test_the_level_of_an_activation_is_checked() -> None:
    desc = network("RNN", activation_descs=(descs.ActivationSoftplus(steepness=0.5),))
    operators.check(desc)
    assert rejection(desc, FeatureLevel.LEVEL_1_0) == (
        "RNN: activation_descs[0].steepness must be at least 1 below feature level 6_4, got 0.5"
    )


# ---- plans


@ALL
def test_time_steps_share_their_kernels(operator: str) -> None:
    program = compiler.compile_operator(network(operator, (100, 2, 3, 8)), CPU)
    texts = {kernel.wgsl for kernel in program.kernels}
    assert len(program.kernels) >= 100 and len(texts) < 12


@ALL
@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("data_type", [F32, F16], ids=str)
def test_no_kernel_binds_more_than_eight_buffers(operator: str, target: Target, data_type: DataType) -> None:
    for flags in ({}, {"linear_before_reset": True}) if operator == "GRU" else ({},):
        for sizes in ((7, 2, 3, 8), (2, 3, 4, 5)):
            program = compiler.compile_operator(network(operator, sizes, BOTH, data_type, **flags), target)
            assert max(len(kernel.slots) for kernel in program.kernels) <= 8


@pytest.mark.parametrize(
    ("desc", "gates"),
    [
        (network("RNN"), [(0,)]),
        (network("LSTM"), [(0, 1, 2, 3)]),
        (network("LSTM", couple_input_forget=True), [(0, 1, 3)]),
        (network("GRU"), [(0, 1), (2,)]),
        (network("GRU", linear_before_reset=True), [(0, 1, 2)]),
    ],
)
def test_kernels_of_a_step(desc: Any, gates: list[tuple[int, ...]]) -> None:
    assert [tuple(gate for gate, _ in step.sums) for step in steps_of(desc)] == gates


def test_directions_with_equal_activations_share_kernels() -> None:
    alike = steps_of(network("GRU", direction=BOTH))
    assert [step.output.sizes[1] for step in alike] == [2, 2]
    activations = (SIGMOID, TANH, SIGMOID, descs.ActivationRelu())
    unlike = steps_of(network("GRU", direction=BOTH, activation_descs=activations))
    assert [step.output.sizes[1] for step in unlike] == [1, 1, 1, 1]


def test_bindings_advance_from_step_to_step() -> None:
    """Blocks are 2 * 4 * 8 inputs, 2 * 2 * 8 states and 2 lengths, rounded up to 4, of 4 bytes."""
    (repeat,) = repeats_of(network("LSTM"))
    assert repeat.turns == 7
    moves = sorted((binding.index.label, binding.offset, advance) for binding, advance in repeat.advances)
    assert moves == [("inputs", 0, 256), ("sequences that last", 0, 16), ("states", 0, 128), ("states", 128, 128)]


@ALL
def test_absent_outputs_cost_nothing(operator: str) -> None:
    assert "output sequence" in labels(network(operator))
    assert "output sequence" not in labels(network(operator, output_sequence_tensor=None))
    assert "output_single" not in labels(network(operator, output_single_tensor=None))


def test_sequences_without_lengths_all_last() -> None:
    assert "sequences that last" in labels(network("RNN", direction=BACKWARD))
    assert "sequences that last" not in labels(network("RNN", sequence_lengths_tensor=None))


def test_weights_are_repacked_only_for_many_steps() -> None:
    assert "lay out weights" in labels(network("LSTM", (4, 2, 3, 8)))
    assert "lay out weights" not in labels(network("LSTM", (3, 2, 3, 8)))


def test_units_lie_along_elements_or_along_the_summed_dimension() -> None:
    def form(target: Target, *sizes: int) -> tuple[int, bool]:
        (step,) = steps_of(network("LSTM", sizes), target)
        return step.weights.lanes, step.along

    assert form(CPU, 9, 2, 3, 8) == (4, False)
    assert form(CPU, 1, 2, 3, 8) == (4, True)
    assert form(CPU, 9, 2, 3, 7) == (1, False)
    assert form(GPU, 9, 2, 3, 8) == (1, False)
    assert form(GPU, 9, 1024, 3, 64) == (4, False)


def test_an_invocation_takes_several_sequences_if_enough_remain() -> None:
    def rows(sequences: int) -> int:
        (step,) = steps_of(network("LSTM", (9, sequences, 3, 64)))
        return step.rows

    assert [rows(sequences) for sequences in (1, 4, 8, 16, 64)] == [1, 1, 2, 4, 8]


def test_long_times_are_taken_in_parts() -> None:
    """A step of 256 sequences of 512 gates takes half a MiB: 127 steps, and their initial states, fit."""
    desc = network("LSTM", (300, 256, 3, 128))
    assert [repeat.turns for repeat in repeats_of(desc)] == [100, 100, 100]
    assert labels(desc).count("hand states on") == 2
    steps = [step for step in scheduled(desc) if not isinstance(step, ScheduledRepeat)]
    assert all(step.output.reach <= LARGEST for step in steps if step.output.binding.role is Role.TEMPORARY)
    sequence = [step.output for step in steps if step.label == "output sequence"]
    assert [output.offset * output.lanes for output in sequence] == [first * 256 * 128 for first in (0, 100, 200)]


@ALL
@pytest.mark.parametrize("name", fusable_activations("LSTM", FeatureLevel.LEVEL_6_4))
def test_every_activation_renders_in_every_place(operator: str, name: str) -> None:
    fused = descs.by_name(name)
    values = {field: 0.5 for field in fused.field_names if not field.endswith("_tensor")}
    desc = network(operator, activation_descs=(fused(**values),) * len(ACTIVATIONS[operator]))
    operators.check(desc)
    assert compiler.compile_operator(desc, CPU).kernels
