"""Keeping what lies between the elements of outputs.

A kernel owns whole words of 32 bits. Where elements are smaller, it overwrites what else is in these words, and the
words between rows, as DirectML allows ("padding is not preserved"). A plan that must not do so has steps that keep
their neighbours write the outputs: its own where these can, else a copy of what the others have made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS, TensorDesc
from dmlgpu.compiler.plan import Allocation, Contract, Map, Plan, PlanBinding, PlanTensor, Repeat, Role, Step, View
from dmlgpu.compiler.plan.parts import replace_parts, tensors
from dmlgpu.compiler.rewrites.sources import identity


def preserve_padding(plan: Plan, outputs: Sequence[TensorDesc | None]) -> Plan:
    """Return a plan that changes no bit of its outputs but those of their elements.

    Args:
        plan: of an operator.
        outputs: its output tensors by their flat numbers, None where one is absent.
    """
    for number, output in enumerate(outputs):
        if output is not None and has_padded_words(output):
            plan = _preserve(plan, number, output)
    return plan


def has_padded_words(output: TensorDesc) -> bool:
    """Return whether elements smaller than a word have neighbours, in or between their words, that are none."""
    bits = output.data_type.bits
    is_dense = output.physical_element_count == output.element_count
    return bits < WORD_BITS and not (is_dense and output.element_count * bits % WORD_BITS == 0)


def _preserve(plan: Plan, number: int, output: TensorDesc) -> Plan:
    steps = [_keeping(step, number, output.data_type) for step in plan.steps]
    keeping = tuple(step for step in steps if step is not None)
    return replace(plan, steps=keeping if len(keeping) == len(steps) else _through_copy(plan.steps, number, output))


def _keeping(step: Step, number: int, data_type: DataType) -> Step | None:
    """Return a step that keeps the neighbours of what it writes of an output, if this kind of step can."""
    match step:
        case Map() | Contract() if _lies_in(step.output, number):
            return replace(step, keeps_neighbours=True) if step.output.data_type.bits == data_type.bits else None
        case Map() | Contract():
            return step
        case Repeat():
            inner = tuple(_keeping(inner_step, number, data_type) for inner_step in step.steps)
            keeping = tuple(inner_step for inner_step in inner if inner_step is not None)
            return replace(step, steps=keeping) if len(keeping) == len(inner) else None
        case _:
            return None if any(_lies_in(tensor, number) for tensor in tensors(step)) else step


def _through_copy(steps: tuple[Step, ...], number: int, output: TensorDesc) -> tuple[Step, ...]:
    """Return steps that work on a copy of an output, then store its elements."""
    copy = Allocation("padded output")
    words = (-(-output.physical_element_count * output.data_type.bits // WORD_BITS),)
    before = PlanTensor(PlanBinding(Role.OUTPUT, number), DataType.UINT32, words, (1,), View.RAW)
    held = PlanBinding(Role.TEMPORARY, copy)

    def moved(binding: PlanBinding) -> PlanBinding:
        return replace(binding, role=Role.TEMPORARY, index=copy) if _is_output(binding, number) else binding

    elements = PlanTensor.of(Role.OUTPUT, number, output, View.RAW)
    return (
        Map("copy output", identity(before), replace(before, binding=held)),
        *replace_parts(steps, PlanBinding, moved),
        Map("store elements", identity(replace(elements, binding=held)), elements, keeps_neighbours=True),
    )


def _is_output(binding: PlanBinding, number: int) -> bool:
    return binding.role is Role.OUTPUT and binding.index == number


def _lies_in(tensor: PlanTensor, number: int) -> bool:
    return _is_output(tensor.binding, number)
