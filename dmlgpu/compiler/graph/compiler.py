"""Compile a network to a program: passes over nodes, one plan, passes over steps, then schedule and kernels."""

from __future__ import annotations

import functools
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import NotSupported
from dmlgpu.common.timings import Timings
from dmlgpu.compiler import operators
from dmlgpu.compiler.aliasing import share_known
from dmlgpu.compiler.graph.network import (
    SMALL_CONSTANT,
    Constant,
    Network,
    NetworkInput,
    NetworkNode,
    NodeResult,
    Value,
)
from dmlgpu.compiler.graph.passes import NODE_PASSES, STEP_PASSES, check_names
from dmlgpu.compiler.graph.passes.rewriting import Capabilities, Note, Rewriting, as_body, simplified
from dmlgpu.compiler.plan import Allocation, Map, Plan, PlanBinding, PlanTensor, Role, Rows, Step, View
from dmlgpu.compiler.plan.parts import replace_parts
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.rewrites.sources import identity
from dmlgpu.compiler.schedule.convolution_choice import saved_by_channels_last
from dmlgpu.compiler.schedule.gemm import is_pairable, multiplies_integers, normalizes_rows, rotates_columns
from dmlgpu.compiler.schedule.ordering import appends
from dmlgpu.compiler.schedule.panels import panel_matrices
from dmlgpu.compiler.schedule.quantized import reads_selections
from dmlgpu.compiler.schedule.scheduling import as_schedule, can_bind, in_plain_steps, schedule_in_parts
from dmlgpu.compiler.schedule.steps.base import AnyScheduled, KernelStep, ScheduledPlan, ScheduledRepeat, ScheduledSteps
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.render import render


def lower_nodes(network: Network, target: Target) -> tuple[tuple[Step, ...], ...]:
    """Return the steps of each node without fusion, then copies into outputs of the graph that no node writes.
    ``as_plan`` combines them.

    Raises:
        NotSupported: If the adapter lacks what an operator needs; the message names the node.
    """
    places = _places(network)
    lowered = []
    plans: dict[int, Plan] = {}  # by what equal nodes share
    for index, node in enumerate(network.nodes):
        inputs = [None if value is None else places[value] for value in node.inputs]
        outputs = [places.get(NodeResult(index, output)) for output in range(len(node.desc.outputs))]
        if id(node.desc) not in plans:
            plans[id(node.desc)] = _lowered(node, target)
        steps = _placed(plans[id(node.desc)], node.name, inputs, outputs)
        if any(isinstance(value, Constant) for value in node.inputs):
            steps = tuple(_with_small_constants(step, network) for step in steps)
        lowered.append(steps)
    return (*lowered, tuple(_copies(network, places)))


def as_plan(network: Network, lowered: Sequence[Sequence[Step]]) -> Plan:
    """Return the plan of a network from the steps of its nodes; steps of initial nodes are executed once."""
    places: dict[bool, list[Step]] = {True: [], False: []}
    for index, steps in enumerate(lowered):
        places[index in network.initial] += steps
    return Plan(network.name, tuple(places[False]), tuple(places[True]))


def _with_small_constants(step: Step, network: Network) -> Step:
    """Return a map, or rows, that read small constants from their common buffer, so that they take one binding."""
    if not isinstance(step, Map | Rows):
        return step
    order = {index: place for place, index in enumerate(network.small_constants)}

    def together(tensor: PlanTensor) -> PlanTensor:
        binding = tensor.binding
        if binding.role is not Role.CONSTANT or binding.index not in order:
            return tensor
        begin = order[binding.index] * SMALL_CONSTANT * 8 // tensor.data_type.bits
        return replace(tensor, binding=PlanBinding(Role.CONSTANT, len(network.constants)), offset=begin + tensor.offset)

    return replace_parts(step, PlanTensor, together)


def _places(network: Network) -> dict[Value, PlanBinding]:
    """Return the location of each value. Values that are outputs of the graph are written there directly."""
    places: dict[Value, PlanBinding] = {}
    for index in range(len(network.inputs)):
        places[NetworkInput(index)] = PlanBinding(Role.INPUT, index)
    for index in range(len(network.constants)):
        places[Constant(index)] = PlanBinding(Role.CONSTANT, index)
    for index, value in enumerate(network.outputs):
        if isinstance(value, NodeResult):
            places.setdefault(value, PlanBinding(Role.OUTPUT, index))
    lasting = {value for index, _, value in network.reads() if index not in network.initial}
    for index, node in enumerate(network.nodes):
        for output, slot in enumerate(node.desc.outputs):
            value = NodeResult(index, output)
            role = Role.PERSISTENT if index in network.initial and value in lasting else Role.TEMPORARY
            if slot.tensor is not None:
                places.setdefault(value, PlanBinding(role, Allocation(node.name)))
    return places


def _lowered(node: NetworkNode, target: Target) -> Plan:
    """Return the plan of a node."""
    try:
        return in_plain_steps(operators.lower(node.desc), target)
    except NotSupported as error:
        raise NotSupported(f"{node.name} ({node.desc.operator}): {error}") from None


def _placed(
    plan: Plan, name: str, inputs: list[PlanBinding | None], outputs: list[PlanBinding | None]
) -> tuple[Step, ...]:
    """Return the steps of a node's plan, bound to the locations of its tensors, with allocations of their own."""
    allocated: dict[Allocation, Allocation] = {}

    def place(binding: PlanBinding) -> PlanBinding:
        if isinstance(binding.index, Allocation):
            own = allocated.setdefault(binding.index, Allocation(binding.index.label))
            return replace(binding, index=own)
        bindings = {Role.INPUT: inputs, Role.OUTPUT: outputs}.get(binding.role)
        if bindings is None:
            return binding
        lies = bindings[binding.index]
        assert lies is not None
        return replace(lies, offset=lies.offset + binding.offset) if binding.offset else lies

    label = f"{name} {plan.operator.lower()}"
    return tuple(
        replace(replace_parts(step, PlanBinding, place), label=f"{label} {step.label}".rstrip()) for step in plan.steps
    )


def _copies(network: Network, places: dict[Value, PlanBinding]) -> list[Step]:
    """Return the copies into graph outputs whose value is a constant or another output."""
    copies: list[Step] = []
    for index, (value, tensor) in enumerate(zip(network.outputs, network.output_tensors, strict=True)):
        binding = PlanBinding(Role.OUTPUT, index)
        if places[value] != binding:
            words = (tensor.byte_size // 4,)
            source = PlanTensor(places[value], DataType.UINT32, words, (1,), View.RAW)
            output = PlanTensor(binding, DataType.UINT32, words, (1,))
            copies.append(Map(f"output {index}", identity(source), output))
    return copies


@dataclass(frozen=True)
class PlannedGraph:
    """A network and its plan.

    Attributes:
        network: The network after the passes over nodes.
        lowered: Steps of each node before the passes over steps (``lower_nodes``).
        plan: The plan after the passes over steps.
        node_notes: Notes of the passes over nodes, in order.
        step_notes: Notes of the passes over steps, in order.
    """

    network: Network
    lowered: tuple[tuple[Step, ...], ...]
    plan: Plan
    node_notes: tuple[Note, ...]
    step_notes: tuple[Note, ...]

    @property
    def notes(self) -> tuple[Note, ...]:
        """Notes of all passes, in order."""
        return self.node_notes + self.step_notes


@dataclass(frozen=True)
class CompiledGraph(PlannedGraph):
    """A compiled network.

    Attributes:
        schedule: Schedule of the plan.
        program: The program.
    """

    schedule: ScheduledPlan
    program: Program


def compile_network(network: Network, target: Target, disabled: Collection[str] = ()) -> CompiledGraph:
    """Compile a network.

    Args:
        network: The network.
        target: The compile target.
        disabled: Names of disabled passes (``passes.PASSES``).

    Raises:
        InvalidArgument: If a pass is unknown.
        NotSupported: If the adapter lacks what a node needs.
    """
    start = time.perf_counter()
    planned = plan_network(network, target, disabled)
    try:
        compiled = _compiled(planned, target)
    except NotSupported as error:
        plain = as_plan(planned.network, planned.lowered)
        if planned.plan.steps == plain.steps:
            raise
        note = Note("all", planned.network.name, f"not fused, because {error}")
        compiled = _compiled(replace(planned, plan=plain, step_notes=(note,)), target)
    rendering = compiled.program.timings.rendering
    timings = Timings(time.perf_counter() - start - rendering, rendering)
    return replace(compiled, program=replace(compiled.program, timings=timings))


def _compiled(planned: PlannedGraph, target: Target) -> CompiledGraph:
    schedule = _scheduled(planned.plan, target, planned.network)
    return CompiledGraph(**vars(planned), schedule=schedule, program=_program(schedule, planned.network))


def plan_network(network: Network, target: Target, disabled: Collection[str] = ()) -> PlannedGraph:
    """Plan a network. Arguments and errors are those of ``compile_network``."""
    check_names(disabled)
    node_notes: list[Note] = []
    step_notes: list[Note] = []
    for each in NODE_PASSES:
        if each.name not in disabled:
            network = each.run(network, lambda *note, name=each.name: node_notes.append(Note(name, *note)))
    lowered = lower_nodes(network, target)
    plan = _rewritten(as_plan(network, lowered), network, target, disabled, step_notes)
    return PlannedGraph(network, lowered, plan, tuple(node_notes), tuple(step_notes))


def _capabilities(target: Target) -> Capabilities:
    """Return what passes ask about a target, as its schedules answer."""
    return Capabilities(
        fits=functools.partial(can_bind, target=target),
        multiplies_integers=functools.partial(multiplies_integers, target=target),
        reads_selections=functools.partial(reads_selections, target=target),
        panel_matrices=functools.partial(panel_matrices, target=target),
        appends=functools.partial(appends, target=target),
        computes_pairs=functools.partial(is_pairable, target=target),
        normalizes=functools.partial(normalizes_rows, target=target),
        rotates=functools.partial(rotates_columns, target=target),
        saved_by_channels_last=functools.partial(saved_by_channels_last, target=target),
    )


def _rewritten(plan: Plan, network: Network, target: Target, disabled: Collection[str], notes: list[Note]) -> Plan:
    """Return a plan after the passes over steps."""

    def rewritten(steps: Sequence[Step]) -> tuple[Step, ...]:
        # Passes only inline maps that read tensors in memory, not views of them.
        plain = [
            replace(step, body=as_body(simplified(step.body))) if isinstance(step, Map) else step for step in steps
        ]
        rewriting = Rewriting.of(plain, network, _capabilities(target), notes)
        for each in STEP_PASSES:
            if each.name not in disabled:
                rewriting.run(each)
        rewriting.explain()
        return rewriting.steps

    return replace(plan, steps=rewritten(plan.steps), initialization=rewritten(plan.initialization))


def _program(schedule: ScheduledPlan, network: Network) -> Program:
    start = time.perf_counter()
    program = share_known(replace(render(schedule), constants=network.bound_constants))
    return replace(program, timings=Timings(rendering=time.perf_counter() - start))


def _scheduled(plan: Plan, target: Target, network: Network) -> ScheduledPlan:
    """Return the schedule of a plan, with kernels labeled by their steps."""
    once = sum((schedule_named(step, target).as_initialization for step in plan.initialization), ScheduledSteps())
    steps = once + sum((schedule_named(step, target) for step in plan.steps), ScheduledSteps())
    return as_schedule(plan.operator, steps, target, network.inputs)


def schedule_named(step: Step, target: Target) -> ScheduledSteps:
    """Schedule a step, with kernels labeled by the step."""
    try:
        steps = schedule_in_parts(step, target)
    except NotSupported as error:
        raise NotSupported(f"{step.label}: {error}") from None

    def name(kernel: KernelStep) -> KernelStep:
        return kernel if kernel.label.startswith(step.label) else replace(kernel, label=f"{step.label} {kernel.label}")

    def named(scheduled: AnyScheduled) -> AnyScheduled:
        if isinstance(scheduled, ScheduledRepeat):
            return replace(scheduled, steps=tuple(map(name, scheduled.steps)))
        return name(scheduled)

    return ScheduledSteps(tuple(map(named, steps.steps)), tuple(map(named, steps.initialization)))
