"""Preservation of padding between the elements of outputs.

A kernel writes whole 32-bit words. For smaller elements it overwrites other bytes in these words, and the words between
rows, as DirectML allows ("padding is not preserved"). In a plan that preserves padding, outputs are written by steps
that preserve adjacent bytes: the plan's own steps if they can, else a copy of their results.
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
    """Return a plan that changes only the elements of its outputs and no padding.

    Args:
        plan: Plan of an operator.
        outputs: Its output tensors by flat index, None for absent ones.
    """
    for index, output in enumerate(outputs):
        if output is not None and has_padded_words(output):
            plan = _preserve(plan, index, output)
    return plan


def has_padded_words(output: TensorDesc) -> bool:
    """Return whether elements are smaller than a word and have padding in or between their words."""
    bits = output.data_type.bits
    is_dense = output.physical_element_count == output.element_count
    return bits < WORD_BITS and not (is_dense and output.element_count * bits % WORD_BITS == 0)


def _preserve(plan: Plan, index: int, output: TensorDesc) -> Plan:
    steps = [_keeping(step, index, output.data_type) for step in plan.steps]
    keeping = tuple(step for step in steps if step is not None)
    return replace(plan, steps=keeping if len(keeping) == len(steps) else _through_copy(plan.steps, index, output))


def _keeping(step: Step, index: int, data_type: DataType) -> Step | None:
    """Return the step, modified to preserve padding of an output, or None if this kind of step cannot."""
    match step:
        case Map() | Contract() if _lies_in(step.output, index):
            return replace(step, keeps_neighbors=True) if step.output.data_type.bits == data_type.bits else None
        case Map() | Contract():
            return step
        case Repeat():
            inner = tuple(_keeping(inner_step, index, data_type) for inner_step in step.steps)
            keeping = tuple(inner_step for inner_step in inner if inner_step is not None)
            return replace(step, steps=keeping) if len(keeping) == len(inner) else None
        case _:
            return None if any(_lies_in(tensor, index) for tensor in tensors(step)) else step


def _through_copy(steps: tuple[Step, ...], index: int, output: TensorDesc) -> tuple[Step, ...]:
    """Return steps that compute a copy of an output, then store its elements."""
    copy = Allocation("padded output")
    words = (-(-output.physical_element_count * output.data_type.bits // WORD_BITS),)
    before = PlanTensor(PlanBinding(Role.OUTPUT, index), DataType.UINT32, words, (1,), View.RAW)
    held = PlanBinding(Role.TEMPORARY, copy)

    def moved(binding: PlanBinding) -> PlanBinding:
        return replace(binding, role=Role.TEMPORARY, index=copy) if _is_output(binding, index) else binding

    elements = PlanTensor.of(Role.OUTPUT, index, output, View.RAW)
    return (
        Map("copy output", identity(before), replace(before, binding=held)),
        *replace_parts(steps, PlanBinding, moved),
        Map("store elements", identity(replace(elements, binding=held)), elements, keeps_neighbors=True),
    )


def _is_output(binding: PlanBinding, index: int) -> bool:
    return binding.role is Role.OUTPUT and binding.index == index


def _lies_in(tensor: PlanTensor, index: int) -> bool:
    return _is_output(tensor.binding, index)
