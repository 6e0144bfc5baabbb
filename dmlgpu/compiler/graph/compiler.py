"""Compile a network to a program: passes over nodes, one plan, passes over steps, then schedule and kernels."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import NotSupported
from dmlgpu.common.timings import Timings
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph.network import Constant, Network, NetworkInput, NetworkNode, NodeResult, Value
from dmlgpu.compiler.graph.passes import (
    PASSES,
    attention,
    check_names,
    convolutions,
    epilogues,
    gates,
    inlining,
    integers,
    layouts,
    nodes,
    numbers,
)
from dmlgpu.compiler.graph.passes.rewriting import Note, Rewriting, as_body, simplified
from dmlgpu.compiler.plan import Allocation, Map, Plan, PlanBinding, PlanTensor, Role, Step, View
from dmlgpu.compiler.plan.parts import replace_parts
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.rewrites.sources import identity
from dmlgpu.compiler.schedule.convolution_choice import saved_by_channels_last
from dmlgpu.compiler.schedule.gemm import multiplies_integers
from dmlgpu.compiler.schedule.quantized import is_pairable
from dmlgpu.compiler.schedule.scheduling import as_schedule, can_bind, in_plain_steps, schedule_in_parts
from dmlgpu.compiler.schedule.steps.base import AnyScheduled, KernelStep, ScheduledPlan, ScheduledRepeat, ScheduledSteps
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.render import render
from dmlgpu.compiler.wgsl.sharing import share_known

_APART = 16
"""Stride in bytes of small constants that share a buffer, and their maximum size."""


def lower_nodes(network: Network, target: Target) -> tuple[tuple[Step, ...], ...]:
    """Return the steps of each node without fusion, then copies into outputs of the graph that no node writes.
    ``as_plan`` combines them.

    Raises:
        NotSupported: If the adapter lacks what an operator needs; the message names the node.
    """
    places = _places(network)
    lowered = []
    for index, node in enumerate(network.nodes):
        inputs = [None if value is None else places[value] for value in node.inputs]
        outputs = [places.get(NodeResult(index, output)) for output in range(len(node.desc.outputs))]
        lowered.append(tuple(_with_small_constants(step, network) for step in _steps(node, inputs, outputs, target)))
    return (*lowered, tuple(_copies(network, places)))


def as_plan(network: Network, lowered: Sequence[Sequence[Step]]) -> Plan:
    """Return the plan of a network from the steps of its nodes; steps of initial nodes are executed once."""
    places: dict[bool, list[Step]] = {True: [], False: []}
    for index, steps in enumerate(lowered):
        places[index in network.initial] += steps
    return Plan(network.name, tuple(places[False]), tuple(places[True]))


def all_constants(network: Network) -> tuple[bytes, ...]:
    """Return the constants that steps bind: those of the network, then a copy of the small ones in one buffer."""
    together = b"".join(network.constants[index].ljust(_APART, b"\0") for index in _small_constants(network))
    return (*network.constants, together) if together else network.constants


def _small_constants(network: Network) -> list[int]:
    """Return the indices of small constants."""
    return [index for index, data in enumerate(network.constants) if len(data) <= _APART]


def _with_small_constants(step: Step, network: Network) -> Step:
    """Return a map that reads small constants from their common buffer, so that they take one binding."""
    if not isinstance(step, Map):
        return step
    order = {index: place for place, index in enumerate(_small_constants(network))}

    def together(tensor: PlanTensor) -> PlanTensor:
        binding = tensor.binding
        if binding.role is not Role.CONSTANT or binding.index not in order:
            return tensor
        begin = order[binding.index] * _APART * 8 // tensor.data_type.bits
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


def _steps(
    node: NetworkNode, inputs: list[PlanBinding | None], outputs: list[PlanBinding | None], target: Target
) -> tuple[Step, ...]:
    """Return a node's steps, bound to the locations of its tensors."""

    def place(binding: PlanBinding) -> PlanBinding:
        bindings = {Role.INPUT: inputs, Role.OUTPUT: outputs}.get(binding.role)
        if bindings is None or not isinstance(binding.index, int):
            return binding
        lies = bindings[binding.index]
        assert lies is not None
        return replace(lies, offset=lies.offset + binding.offset)

    try:
        plan = in_plain_steps(operators.lower(node.desc), target)
    except NotSupported as error:
        raise NotSupported(f"{node.name} ({node.desc.operator}): {error}") from None
    label = f"{node.name} {plan.operator.lower()}"
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


NODE_PASSES: dict[str, Callable[[Network, list[Note]], Network]] = {
    "constants": nodes.fold_constants,
    "duplicates": nodes.merge_duplicates,
    convolutions.PADDING: convolutions.fold_padding,
    convolutions.BIAS: convolutions.fold_bias,
    convolutions.BATCH_NORMALIZATION: convolutions.fold_batch_normalization,
    "dead": nodes.drop_dead,
    nodes.INITIALIZATION: nodes.initialize_early,
}
"""Passes over nodes, in order."""

STEP_PASSES: dict[str, Callable[[Rewriting], None]] = {
    inlining.ELEMENT_WISE: inlining.fuse_element_wise,
    attention.NAME: attention.fuse_attention,
    epilogues.NAME: epilogues.fuse_epilogues,
    inlining.PROLOGUES: inlining.fuse_prologues,
    layouts.VIEWS: layouts.read_through_copies,
}
"""Passes over the steps of the plan, in order; integers, gates, layouts and numbers come after them."""

assert (*NODE_PASSES, *STEP_PASSES, integers.NAME, gates.NAME, layouts.LAYOUTS, numbers.NAME) == PASSES


@dataclass(frozen=True)
class CompiledGraph:
    """A compiled network.

    Attributes:
        network: The network after the passes over nodes.
        lowered: Steps of each node before the passes over steps (``lower_nodes``).
        plan: The plan after the passes over steps.
        schedule: Schedule of the plan.
        program: The program.
        notes: Notes of the passes, in order.
    """

    network: Network
    lowered: tuple[tuple[Step, ...], ...]
    plan: Plan
    schedule: ScheduledPlan
    program: Program
    notes: tuple[Note, ...] = field(default=())


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
    check_names(disabled)
    start = time.perf_counter()
    network, lowered, plan, notes, of_nodes = plan_network(network, target, disabled)
    try:
        schedule = _scheduled(plan, target, network)
        program = _program(schedule, network)
    except NotSupported as error:
        plain = as_plan(network, lowered)
        if plan.steps == plain.steps:
            raise
        del notes[of_nodes:]
        notes.append(Note("all", network.name, f"not fused, because {error}"))
        plan, schedule = plain, _scheduled(plain, target, network)
        program = _program(schedule, network)
    rendering = program.timings.rendering
    program = replace(program, timings=Timings(time.perf_counter() - start - rendering, rendering))
    return CompiledGraph(network, lowered, plan, schedule, program, tuple(notes))


def plan_network(
    network: Network, target: Target, disabled: Collection[str] = ()
) -> tuple[Network, tuple[tuple[Step, ...], ...], Plan, list[Note], int]:
    """Return a network after the passes over nodes, the steps of its nodes, its plan after the passes over steps, the
    notes of all passes, and how many of these are about nodes.

    Raises: as ``compile_network``.
    """
    notes: list[Note] = []
    for name, change in NODE_PASSES.items():
        if name not in disabled:
            network = change(network, notes)
    lowered, of_nodes = lower_nodes(network, target), len(notes)
    plan = _rewritten(as_plan(network, lowered), network, target, disabled, notes)
    if numbers.NAME not in disabled:
        plan = numbers.write_numbers(plan, all_constants(network), notes)
    return network, lowered, plan, notes, of_nodes


def _rewritten(plan: Plan, network: Network, target: Target, disabled: Collection[str], notes: list[Note]) -> Plan:
    """Return a plan after the passes over steps."""

    def rewritten(steps: Sequence[Step]) -> tuple[Step, ...]:
        fits = functools.partial(can_bind, target=target)
        # Passes only inline maps that read tensors in memory, not views of them.
        plain = [
            replace(step, body=as_body(simplified(step.body))) if isinstance(step, Map) else step for step in steps
        ]
        rewriting = Rewriting.of(plain, notes, fits)
        for name, rewrite in STEP_PASSES.items():
            if name not in disabled:
                rewrite(rewriting)
        integers.note_owned(rewriting, network)
        if integers.NAME not in disabled:
            integers.store_integers(rewriting, functools.partial(multiplies_integers, target=target))
        if gates.NAME not in disabled:
            gates.fuse_gates(rewriting, functools.partial(is_pairable, target=target))
        if layouts.LAYOUTS not in disabled:
            layouts.choose_layouts(rewriting, functools.partial(saved_by_channels_last, target=target))
        rewriting.explain()
        return rewriting.steps

    return replace(plan, steps=rewritten(plan.steps), initialization=rewritten(plan.initialization))


def _program(schedule: ScheduledPlan, network: Network) -> Program:
    start = time.perf_counter()
    program = share_known(replace(render(schedule), constants=all_constants(network)))
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
