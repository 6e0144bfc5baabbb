"""Plans that preserve the padding of their outputs: only steps that preserve adjacent bits write these."""

from __future__ import annotations

import itertools

import pytest

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS, TensorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler import operators
from dmlgpu.compiler.plan import Contract, Map, Repeat, Role
from dmlgpu.compiler.rewrites.padding import has_padded_words, preserve_padding
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.schedule.scheduling import in_plain_steps
from dmlgpu.compiler.schedule.steps.base import ScheduledRepeat
from dmlgpu.compiler.schedule.steps.maps import ScheduledMap, ScheduledWordRows
from dmlgpu.compiler.schedule.steps.products import ScheduledContract
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.cases.registry import OPERATOR_CASES

TARGETS = [Target("CPU", Profile.CPU), Target("GPU", Profile.DISCRETE)]
CASES_EACH = 2


def padded_cases():
    """Yield the first standard cases of every operator whose outputs have padding in words."""
    for cases in OPERATOR_CASES.values():
        descs = (cases.case(name).desc for name in cases.names("standard"))
        padded = (desc for desc in descs if any(slot.tensor and has_padded_words(slot.tensor) for slot in desc.outputs))
        yield from itertools.islice(padded, CASES_EACH)


def flat(steps, repeat):
    for step in steps:
        yield from flat(step.steps, repeat) if isinstance(step, repeat) else [step]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_writers_of_padded_outputs_preserve_adjacent_bits(target):
    seen = 0
    for desc in padded_cases():
        tensors = [slot.tensor for slot in desc.outputs]
        padded = {index for index, tensor in enumerate(tensors) if tensor and has_padded_words(tensor)}
        try:
            plan = preserve_padding(in_plain_steps(operators.lower(desc), target), tensors)
        except NotSupported:
            continue
        for step in flat(plan.steps, Repeat):
            binding = step.output.binding
            if binding.role is Role.OUTPUT and binding.index in padded:
                assert isinstance(step, Map | Contract) and step.keeps_neighbors, (desc, step)
        for kernel in flat(schedule(plan, target).steps, ScheduledRepeat):
            output = kernel.output
            if output.binding.role is not Role.OUTPUT or output.binding.index not in padded:
                continue
            seen += 1
            if output.unit_bits >= WORD_BITS or isinstance(kernel, ScheduledContract):
                continue  # whole units of elements; small ones of products are stored with compare-exchange
            if isinstance(kernel, ScheduledWordRows):
                assert kernel.keeps_neighbors, (desc, kernel)
                continue
            assert isinstance(kernel, ScheduledMap), (desc, kernel)
            assert kernel.walk.exchange or kernel.walk.keeps_neighbors, (desc, kernel)
    assert seen > 150


@pytest.mark.parametrize(
    ("data_type", "sizes", "strides", "expected"),
    [
        ("FLOAT16", (2, 4), None, False),
        ("FLOAT16", (2, 4), (1, 2), False),
        ("FLOAT16", (3,), None, True),
        ("FLOAT16", (2, 4), (8, 1), True),
        ("UINT8", (5,), None, True),
        ("INT4", (2, 4), None, False),
        ("UINT4", (7,), None, True),
        ("FLOAT32", (2, 4), (8, 1), False),
        ("INT64", (3,), (2,), False),
    ],
)
def test_which_outputs_have_padding_in_words(data_type, sizes, strides, expected):
    assert has_padded_words(TensorDesc(DataType[data_type], sizes, strides)) is expected


def test_outputs_without_padding_keep_their_plan():
    cases = OPERATOR_CASES["activation_softmax"]
    desc = next(cases.case(name).desc for name in cases.names("standard") if "float32" in name)
    plan = operators.lower(desc)
    assert preserve_padding(plan, [slot.tensor for slot in desc.outputs]) == plan
