"""Bytes and operations of a workload, from its description and its plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dmlgpu.bench.workload import byte_count
from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import ConvolutionDirection
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler.explain import ExplainedKernel, Explanation, multiplications
from dmlgpu.compiler.graph.description import GraphDesc, OperatorNode
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.plan import Repeat, Step, parts
from dmlgpu.compiler.plan.parts import written
from dmlgpu.compiler.schedule.steps.base import KernelStep
from dmlgpu.compiler.schedule.steps.cooperative import ScheduledCooperative, ScheduledCooperativeAttend
from dmlgpu.compiler.schedule.steps.products import (
    ScheduledAttend,
    ScheduledContract,
    ScheduledRecurrence,
    ScheduledTiles,
)
from dmlgpu.compiler.schedule.steps.quantized import ScheduledQuantizedProduct

_PICKS = descs.Gather | descs.GatherElements | descs.GatherNd | descs.GatherNd1
"""Operators that read at most as many elements of an input as they write."""


@dataclass(frozen=True)
class Counts:
    """Bytes and operations of an execution.

    Attributes:
        bytes: Inputs read and outputs written once: the minimum for any implementation.
        operations: Arithmetic operations by the description, two per multiply-add. If there are no multiply-adds, one
            per element of the largest tensor; for lookups, the picked elements.
        plan_bytes: Bytes that the kernels read and write, including temporary tensors; None if nothing is compiled.
        plan_operations: Operations of the kernels.
        unfused_bytes: Bytes of a graph without fusion; else None.
        kernels: Number of dispatches; 0 if nothing is compiled.
        temporary_bytes: Size of the temporary resource.
        least_temporary_bytes: Minimum for its simultaneously live tensors.
        persistent_bytes: Size of the persistent resource.
    """

    bytes: int
    operations: int
    plan_bytes: int | None = None
    plan_operations: int | None = None
    unfused_bytes: int | None = None
    kernels: int = 0
    temporary_bytes: int = 0
    least_temporary_bytes: int = 0
    persistent_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the known fields."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def count(desc: OperatorDesc | GraphDesc, explanation: Explanation | None = None) -> Counts:
    """Count bytes and operations of a description and its compiled form."""
    if isinstance(desc, GraphDesc):
        network = resolve(desc)
        nodes = [node.desc for node in desc.nodes if isinstance(node, OperatorNode)]
        operations = sum(map(operations_of, nodes))
        moved = byte_count([*network.inputs, *network.output_tensors])
        unfused: int | None = sum(map(bytes_of, nodes))
    else:
        operations, moved, unfused = operations_of(desc), bytes_of(desc), None
    if explanation is None:
        return Counts(moved, operations, unfused_bytes=unfused)
    traffic = explanation.traffic
    return Counts(
        moved,
        operations,
        traffic.moved,
        sum(map(operations_of_step, explanation.plan.steps)),
        unfused if explanation.graph is None else explanation.unfused_traffic.moved,
        len(explanation.program.kernels),
        explanation.program.temporary_size,
        explanation.program.least_temporary_size,
        explanation.program.persistent_size,
    )


def bytes_of(desc: OperatorDesc) -> int:
    """Return the bytes of an operator's inputs and outputs; of lookup tables only the picked elements."""
    if isinstance(desc, _PICKS):
        output = byte_count([desc.output_tensor])
        return 2 * output + byte_count([desc.indices_tensor])
    return byte_count([slot.tensor for slot in (*desc.inputs, *desc.outputs)])


def operations_of(desc: OperatorDesc) -> int:
    """Return an operator's arithmetic operations; see ``Counts.operations``."""
    match desc:
        case descs.Gemm():
            inner = desc.a_tensor.sizes[-2 if desc.trans_a else -1]
            return 2 * inner * desc.output_tensor.element_count
        case descs.MatrixMultiplyInteger() | descs.MatrixMultiplyIntegerToFloat():
            return 2 * desc.a_tensor.sizes[-1] * desc.output_tensor.element_count
        case descs.Convolution():
            window = math.prod(desc.filter_tensor.sizes[1:])
            is_forward = desc.direction is ConvolutionDirection.FORWARD
            outer = desc.output_tensor if is_forward else desc.input_tensor
            return 2 * window * outer.element_count
        case descs.MultiheadAttention() if desc.query_tensor and desc.key_tensor and desc.value_tensor:
            keys = desc.key_tensor.sizes[-2]
            return 2 * keys * (desc.query_tensor.element_count + desc.output_tensor.element_count)
        case descs.Rnn() | descs.Gru() | descs.Lstm():
            steps = desc.input_tensor.sizes[-3] * desc.input_tensor.sizes[-2]
            return 2 * steps * (desc.weight_tensor.element_count + desc.recurrence_tensor.element_count)
    slots = desc.outputs if isinstance(desc, _PICKS) else (*desc.inputs, *desc.outputs)
    tensors = [slot.tensor for slot in slots if slot.tensor is not None]
    return max((tensor.element_count for tensor in tensors), default=0)


def operations_of_step(step: Step) -> int:
    """Return the operations of a step of a plan: two per multiplication of a product, else one per element."""
    products = multiplications(step)
    if products is not None:
        return 2 * products
    return sum(math.prod(tensor.sizes) for tensor in written(step))


def kernel_counts(explanation: Explanation) -> Iterator[tuple[str, Counts]]:
    """Yield the label, bytes and operations of each kernel of an execution, all iterations together.

    Bytes are those of the tensors read and written, each once; lookup tables count as a whole. Operations are those of
    the kernel, not of the description: Winograd convolutions multiply less.
    """
    by_step: dict[int | None, list[ExplainedKernel]] = {}
    for kernel in explanation.kernels:
        by_step.setdefault(kernel.step, []).append(kernel)
    for explained in explanation.kernels:
        if explained.scheduled is None or explained.step is None:
            counts = Counts(sum(slot.size for slot in explained.kernel.slots), 0)
        else:
            beside = [other.scheduled for other in by_step[explained.step] if other.scheduled is not None]
            operations = _operations_of_kernel(explained.scheduled, explanation.steps[explained.step], beside)
            counts = Counts(_bytes_of_kernel(explained.scheduled), operations)
        yield (
            explained.kernel.label,
            Counts(explained.times * counts.bytes, explained.times * counts.operations, kernels=explained.times),
        )


def _bytes_of_kernel(scheduled: KernelStep) -> int:
    """Return the bytes that a kernel reads and writes; views of one tensor count once."""
    sizes: dict[tuple[object, int], int] = {}
    for tensor in parts.tensors(scheduled):
        place = tensor.binding, tensor.offset * tensor.unit_bits
        sizes[place] = max(sizes.get(place, 0), tensor.distinct_bytes)
    return sum(sizes.values())


def _operations_of_kernel(scheduled: KernelStep, step: Step, kernels: Sequence[KernelStep]) -> int:
    """Return the operations of one execution of a kernel of a step: two per multiplication, else one per written
    element.

    Args:
        scheduled: The kernel.
        step: Its step.
        kernels: All kernels of the step.
    """
    if isinstance(scheduled, _PRODUCTS):
        return 2 * math.prod(scheduled.space.output) * math.prod(scheduled.space.inner)
    products = multiplications(step)
    if products is not None and isinstance(step, Repeat):
        products //= step.turns
    elsewhere = any(isinstance(other, ScheduledContract | ScheduledCooperative) for other in kernels)
    if products is None or elsewhere or not isinstance(scheduled, _WHOLE_PRODUCTS):
        return _written_elements(scheduled)
    total = sum(_written_elements(other) for other in kernels if isinstance(other, _WHOLE_PRODUCTS))
    return 2 * products * _written_elements(scheduled) // max(1, total)


def _written_elements(scheduled: KernelStep) -> int:
    return math.prod(scheduled.output.sizes) * max(scheduled.output.lanes, 1)


_PRODUCTS = (ScheduledContract, ScheduledCooperative, ScheduledQuantizedProduct)
"""Kernels of products, of which a step may have one among others."""

_WHOLE_PRODUCTS = (ScheduledTiles, ScheduledAttend, ScheduledCooperativeAttend, ScheduledRecurrence)
"""Kernels that do all multiplications of a step without products, or those for a part of its output."""

MULTIPLYING = (*_PRODUCTS, *_WHOLE_PRODUCTS)
"""Kernels whose operations are multiply-adds."""
