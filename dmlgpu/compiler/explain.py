"""Explanations of compiled operators and graphs, as data and as JSON with stable keys (docs/show.md lists them).

Fusion is derived from the steps before and after the passes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

from dmlgpu.catalog.enums import FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph.compiler import CompiledGraph, as_plan, compile_network
from dmlgpu.compiler.graph.description import ConstantNode, GraphDesc
from dmlgpu.compiler.graph.network import NetworkNode
from dmlgpu.compiler.graph.passes.rewriting import Memory, memory_of
from dmlgpu.compiler.graph.resolve import check_nodes, resolve
from dmlgpu.compiler.operators import check_rules
from dmlgpu.compiler.plan import (
    PAIR,
    Allocation,
    Attend,
    Contract,
    Convolve,
    PairedContract,
    Plan,
    PlanTensor,
    Recurrence,
    Repeat,
    Role,
    RotatedContract,
    Step,
)
from dmlgpu.compiler.plan.parts import read, written
from dmlgpu.compiler.plan.text import equations, kind_of
from dmlgpu.compiler.program import Program, RenderedKernel
from dmlgpu.compiler.schedule.registry import Choice, observed_choices
from dmlgpu.compiler.schedule.scheduling import in_plain_steps, schedule_in_parts
from dmlgpu.compiler.schedule.steps.base import AnyScheduled, KernelStep, ScheduledPlan, ScheduledSteps, in_turns
from dmlgpu.compiler.stages import stages
from dmlgpu.compiler.target import Target


@dataclass(frozen=True)
class Traffic:
    """Bytes that are read and written."""

    read: int = 0
    written: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.read + other.read, self.written + other.written)

    @property
    def moved(self) -> int:
        """Sum of both."""
        return self.read + self.written


def traffic(step: Step) -> Traffic:
    """Return the bytes that a step reads and writes, each view of memory once: strides of 0 count once, and a table
    that is looked into counts as a whole."""
    if isinstance(step, Repeat):
        turn = sum(map(traffic, step.steps), Traffic())
        return Traffic(step.turns * turn.read, step.turns * turn.written)
    return Traffic(_bytes(read(step)), _bytes(written(step)))


def _bytes(tensors: Sequence[PlanTensor]) -> int:
    views = {(tensor.binding, tensor.offset, tensor.sizes, tensor.strides): tensor.distinct_bytes for tensor in tensors}
    return sum(views.values())


def multiplications(step: Step) -> int | None:
    """Return the multiplications of products, convolutions, attention and recurrences; None for other steps."""
    match step:
        case Repeat():
            counted = [count for inner in step.steps if (count := multiplications(inner)) is not None]
            return step.turns * sum(counted) if counted else None
        case Contract() | PairedContract() | RotatedContract():
            sums = len(PAIR) if isinstance(step, PairedContract) else 1
            return sums * math.prod(step.product.space.output) * math.prod(step.product.space.inner)
        case Convolve():
            over = math.prod(step.convolution.filter.sizes[2:])
            outer = step.convolution.input.sizes if step.transposed else step.convolution.output_sizes
            outputs = step.convolution.filter.sizes[1]
            return math.prod(outer[:2] + outer[3:]) * outputs * over
        case Attend():
            lengths = step.query.sizes[-1] + step.output.sizes[-1]
            return step.batches * step.rows * step.keys * lengths
        case Recurrence():
            return len(step.sums) * math.prod(step.hidden.sizes) * step.output.sizes[-1]
        case _:
            return None


Region: TypeAlias = tuple[Memory, int, int]
"""A part of a resource: its start, in bits, and its element count."""


def _region(tensor: PlanTensor) -> Region:
    start = 8 * tensor.binding.offset + tensor.offset * tensor.unit_bits
    return memory_of(tensor), start, math.prod(tensor.sizes)


def nodes_of_steps(lowered: Sequence[Sequence[Step]], steps: Sequence[Step]) -> tuple[tuple[int, ...], ...]:
    """Return the nodes that each step of a plan computes, ascending.

    A step computes the former writer of its output, and all producers whose results are no longer stored. A node that
    several steps compute is listed for each.

    Args:
        lowered: Steps of each node before fusion, then steps that belong to no node.
        steps: Steps after the passes, on the same memory.
    """
    before = [(index, step) for index, own in enumerate(lowered) for step in own]
    writers: dict[Memory, list[int]] = defaultdict(list)
    regions: dict[Region, list[int]] = defaultdict(list)
    for place, (_, step) in enumerate(before):
        for tensor in written(step):
            writers[memory_of(tensor)].append(place)
            regions[_region(tensor)].append(place)
    nodes = len(lowered) - 1
    indices = []
    for step in steps:
        in_memory = {memory_of(tensor) for tensor in read(step)}
        pending = [
            place for tensor in written(step) for place in regions.get(_region(tensor)) or writers[memory_of(tensor)]
        ]
        computed: set[int] = set()
        while pending:
            place = pending.pop()
            if place in computed:
                continue
            computed.add(place)
            for tensor in read(before[place][1]):
                memory = memory_of(tensor)
                if memory not in in_memory and memory[0] in (Role.TEMPORARY, Role.OUTPUT, Role.PERSISTENT):
                    pending += (other for other in writers[memory] if other < place)
        indices.append(tuple(sorted({before[place][0] for place in computed} - {nodes})))
    return tuple(indices)


@dataclass(frozen=True)
class ExplainedKernel:
    """A kernel and its origin.

    Attributes:
        kernel: Source, grid and bindings; of a repeated step, of its first iteration.
        scheduled: Its schedule; None for a copy of an input that the device owns.
        step: Index of its step among ``Explanation.steps``; None for such a copy.
        times: Number of executions.
    """

    kernel: RenderedKernel
    scheduled: KernelStep | None
    step: int | None
    times: int = 1


@dataclass(frozen=True, repr=False)
class Explanation:
    """Plan, schedule and program of an operator or a graph for a target; prints as these three, in this order.

    Attributes:
        title: Title: a case, an operator, a model's name.
        desc: Its description.
        plan: The plan; of a graph, after all passes.
        schedule: The schedule, with reasons.
        program: The program.
        graph: The compiled graph; None for an operator.
    """

    title: str
    desc: OperatorDesc | GraphDesc
    plan: Plan
    schedule: ScheduledPlan
    program: Program
    graph: CompiledGraph | None = None

    def __repr__(self) -> str:
        return f"{self.plan}\n\n{self.schedule}\n\n{self.program}"

    @property
    def target(self) -> Target:
        """The compile target."""
        return self.schedule.target

    @property
    def steps(self) -> tuple[Step, ...]:
        """Steps of the plan, those of the initialization last."""
        return (*self.plan.steps, *self.plan.initialization)

    @functools.cached_property
    def kernels(self) -> tuple[ExplainedKernel, ...]:
        """Kernels of an execution in order; kernels of repeated steps are listed once."""
        counts = [(index, len(self._scheduled[index].steps)) for index in range(len(self.plan.steps))]
        return tuple(_explained(self.program.kernels, self.schedule.steps, counts))

    @functools.cached_property
    def initialization(self) -> tuple[ExplainedKernel, ...]:
        """Kernels that run once, when the operator is initialized; copies of owned inputs come last."""
        counts = [(index, len(kernel.initialization)) for index, kernel in enumerate(self._scheduled)]
        executed = len(self.plan.steps)
        ordered = [*counts[executed:], *counts[:executed]]
        explained = tuple(_explained(self.program.initialization, self.schedule.initialization, ordered))
        copies = self.program.initialization[sum(kernel.times for kernel in explained) :]
        return (*explained, *(ExplainedKernel(kernel, None, None) for kernel in copies))

    @functools.cached_property
    def _scheduled(self) -> tuple[ScheduledSteps, ...]:
        """Schedule of each step by itself, which maps kernels to steps."""
        executed = (schedule_in_parts(step, self.target) for step in self.plan.steps)
        once = (schedule_in_parts(step, self.target).as_initialization for step in self.plan.initialization)
        return (*executed, *once)

    @functools.cached_property
    def choices(self) -> tuple[tuple[int | None, Choice], ...]:
        """Choices of schedules, each with the index of its step; first those that replace a step by plainer ones, with
        None."""
        descs = [("", self.desc)] if isinstance(self.desc, OperatorDesc) else []
        descs += [(node.name, node.desc) for node in (() if self.graph is None else self.graph.network.nodes)]
        choices: dict[tuple[int | None, Choice], None] = {}
        for name, desc in descs:
            with observed_choices() as planned:
                in_plain_steps(operators.lower(desc), self.target)
            choices |= dict.fromkeys((None, replace(choice, label=name or choice.label)) for choice in planned)
        for index, step in enumerate(self.steps):
            with observed_choices() as scheduled:
                schedule_in_parts(step, self.target)
            choices |= dict.fromkeys((index, choice) for choice in scheduled)
        return tuple(choices)

    @functools.cached_property
    def nodes(self) -> tuple[tuple[NetworkNode, ...], ...]:
        """Nodes that each of ``steps`` computes; none for an operator."""
        if self.graph is None:
            return ((),) * len(self.steps)
        nodes = self.graph.network.nodes
        computed = nodes_of_steps(self.graph.lowered, self.steps)
        return tuple(tuple(nodes[index] for index in indices) for indices in computed)

    @property
    def traffic(self) -> Traffic:
        """Bytes that the steps of an execution read and write."""
        return sum(map(traffic, self.plan.steps), Traffic())

    @property
    def unfused_traffic(self) -> Traffic:
        """Bytes that the steps of an execution read and write without fusion."""
        return sum(map(traffic, self._unfused), Traffic())

    @property
    def unfused_kernels(self) -> int:
        """Number of kernels of an execution without fusion."""
        steps = [schedule_in_parts(step, self.target).steps for step in self._unfused]
        return sum(turns for step in steps for _, turns in in_turns(step))

    @property
    def _unfused(self) -> tuple[Step, ...]:
        if self.graph is None:
            return self.plan.steps
        return as_plan(self.graph.network, self.graph.lowered).steps


def _explained(
    kernels: Sequence[RenderedKernel], scheduled: Sequence[AnyScheduled], counts: Sequence[tuple[int, int]]
) -> Iterator[ExplainedKernel]:
    """Yield kernels with their origin.

    Args:
        kernels: Kernels of all iterations.
        scheduled: The schedules they were rendered from.
        counts: Indices of steps of the plan, in order, and the number of ``scheduled`` of each.
    """
    remaining, place = iter(scheduled), 0
    for index, count in counts:
        for step_scheduled in itertools.islice(remaining, count):
            inner = tuple(in_turns([step_scheduled]))
            for offset, (each, turns) in enumerate(inner):
                yield ExplainedKernel(kernels[place + offset], each, index, turns)
            place += sum(turns for _, turns in inner)


def check(desc: OperatorDesc | GraphDesc) -> None:
    """Check an operator, or a graph and all its nodes, by the rules of the newest feature level.

    Raises:
        InvalidDescription, InvalidGraph: If a rule is broken.
    """
    if isinstance(desc, GraphDesc):
        check_nodes(resolve(desc), max(FeatureLevel))
    else:
        check_rules(desc, max(FeatureLevel))


def explain_operator(title: str, desc: OperatorDesc, target: Target) -> Explanation:
    """Compile an operator and return its explanation.

    Args:
        title: Title of the explanation.
        desc: Description of the operator.
        target: Compile target, such as ``device.backend.target``.

    Raises:
        InvalidDescription: If the description breaks a rule.
        NotSupported: If the adapter lacks what the operator needs.
    """
    check(desc)
    compiled = stages(desc, target)
    return Explanation(title, desc, compiled.plan, compiled.schedule, compiled.program)


def explain_graph(title: str, desc: GraphDesc, target: Target, disabled: Collection[str] = ()) -> Explanation:
    """Compile a graph and return its explanation.

    Args:
        title: Title of the explanation.
        desc: The graph.
        target: Compile target, such as ``device.backend.target``.
        disabled: Names of disabled passes.

    Raises:
        InvalidGraph: If the graph or an operator breaks a rule.
        InvalidArgument: If a pass is unknown.
        NotSupported: If the adapter lacks what a node needs.
    """
    network = resolve(desc)
    check_nodes(network, max(FeatureLevel))
    compiled = compile_network(network, target, disabled)
    return Explanation(title, desc, compiled.plan, compiled.schedule, compiled.program, compiled)


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation in JSON types: dictionaries, lists, strings, numbers and None; without ``choices``."""
    program, target = explanation.program, explanation.target
    return {
        "title": explanation.title,
        "description": description(explanation.desc),
        "target": {"name": target.name, "profile": target.profile.value, "features": sorted(target.features)},
        "steps": [_step(explanation, index, step) for index, step in enumerate(explanation.steps)],
        "kernels": [_kernel(explanation, kernel) for kernel in explanation.kernels],
        "initialization": [_kernel(explanation, kernel) for kernel in explanation.initialization],
        "memory": {
            "temporary": program.temporary_size,
            "least_temporary": program.least_temporary_size,
            "persistent": program.persistent_size,
            "constants": sum(map(len, program.constants)),
        },
        "fusion": _fusion(explanation),
    }


def choices_json(explanation: Explanation) -> list[dict[str, Any]]:
    """Return the choices of schedules in JSON types."""
    return [
        {
            "step": step,
            "kind": choice.kind,
            "label": choice.label,
            "schedules": [
                {"name": tried.name, "outcome": tried.outcome.value, "reason": tried.text} for tried in choice.tried
            ],
        }
        for step, choice in explanation.choices
    ]


def description(desc: OperatorDesc | GraphDesc) -> dict[str, Any]:
    """Return a description in JSON types: an operator and its fields, or the nodes and sizes of a graph."""
    if isinstance(desc, OperatorDesc):
        return {"operator": desc.operator, "fields": {name: _value(value) for name, value in desc.values.items()}}
    nodes = [
        {"name": node.name, "constant": len(node.data)}
        if isinstance(node, ConstantNode)
        else {"name": node.name, **description(node.desc)}
        for node in desc.nodes
    ]
    return {"graph": desc.name, "inputs": desc.input_count, "outputs": desc.output_count, "nodes": nodes}


def _value(value: Any) -> Any:
    """Return the value of a field in JSON types."""
    match value:
        case TensorDesc():
            return {
                "data_type": value.data_type.name,
                "sizes": list(value.sizes),
                "strides": list(value.element_strides),
                "bytes": value.byte_size,
                "owned": value.owned_by_dml,
            }
        case OperatorDesc():
            return description(value)
        case Enum():
            return value.name
        case tuple():
            return [_value(item) for item in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: _value(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            return value


def _step(explanation: Explanation, index: int, step: Step) -> dict[str, Any]:
    moved = traffic(step)
    return {
        "number": index,
        "kind": kind_of(step),
        "label": step.label,
        "once": index >= len(explanation.plan.steps),
        "equations": equations(step),
        "reads": [_tensor(tensor) for tensor in dict.fromkeys(read(step))],
        "writes": [_tensor(tensor) for tensor in dict.fromkeys(written(step))],
        **_traffic(moved),
        "multiplications": multiplications(step),
        "nodes": _nodes(explanation.nodes[index]),
    }


def _nodes(nodes: tuple[NetworkNode, ...]) -> list[dict[str, str]]:
    return [{"name": node.name, "operator": node.desc.operator} for node in nodes]


def _traffic(moved: Traffic) -> dict[str, int]:
    return {"bytes_read": moved.read, "bytes_written": moved.written}


def _tensor(tensor: PlanTensor) -> dict[str, Any]:
    index = tensor.binding.index
    return {
        "role": tensor.binding.role.value,
        "index": index.label if isinstance(index, Allocation) else index,
        "data_type": tensor.data_type.name,
        "sizes": list(tensor.sizes),
        "strides": list(tensor.strides),
        "bytes": tensor.distinct_bytes,
    }


def _kernel(explanation: Explanation, explained: ExplainedKernel) -> dict[str, Any]:
    kernel, scheduled, step = explained.kernel, explained.scheduled, explained.step
    bindings = kernel.bindings or range(len(kernel.slots))
    return {
        "label": kernel.label,
        "step": step,
        "nodes": [] if step is None else _nodes(explanation.nodes[step]),
        "schedule": None if scheduled is None else scheduled.kind,
        "reason": "" if scheduled is None else scheduled.reason,
        "grid": list(kernel.grid),
        "workgroup": kernel.workgroup,
        "times": explained.times,
        "bindings": [
            {
                "binding": binding,
                "role": slot.role.value,
                "index": slot.index,
                "offset": slot.offset,
                "bytes": slot.size,
            }
            for binding, slot in zip(bindings, kernel.slots, strict=True)
        ],
        "parameters": list(kernel.parameters),
        "shaders": list(kernel.shaders),
        "wgsl": kernel.wgsl,
    }


def _fusion(explanation: Explanation) -> dict[str, Any] | None:
    if explanation.graph is None:
        return None
    assert isinstance(explanation.desc, GraphDesc)
    return {
        "nodes": len(explanation.desc.nodes),
        "kernels": len(explanation.program.kernels),
        "unfused_kernels": explanation.unfused_kernels,
        **_traffic(explanation.traffic),
        **{f"unfused_{name}": count for name, count in _traffic(explanation.unfused_traffic).items()},
        "notes": [
            {"pass": note.pass_name, "subject": note.subject, "text": note.text} for note in explanation.graph.notes
        ],
    }
