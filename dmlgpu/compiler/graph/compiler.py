"""From a network to its program: passes over nodes, one plan, passes over steps, then as for a single operator."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from dmlgpu.common.errors import NotSupported
from dmlgpu.common.timings import Timings
from dmlgpu.compiler.graph.lowering import all_constants, as_plan, lower_nodes
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.graph.passes import (
    PASSES,
    attention,
    batch_normalization,
    bias,
    check_names,
    element_wise,
    epilogues,
    initialization,
    layouts,
    numbers,
    padding,
    prologues,
    views,
)
from dmlgpu.compiler.graph.passes.nodes import drop_dead, fold_constants, merge_duplicates
from dmlgpu.compiler.graph.passes.rewriting import Note, Rewriting
from dmlgpu.compiler.graph.passes.trees import as_body, simplified
from dmlgpu.compiler.plan import Map, Plan, Step
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.schedule.convolution_choice import saved_by_channels_last
from dmlgpu.compiler.schedule.scheduling import as_schedule, schedule_step
from dmlgpu.compiler.schedule.steps.base import AnyScheduled, Schedule, Scheduled, ScheduledRepeat, ScheduledSteps
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.render import render
from dmlgpu.compiler.wgsl.sharing import share_known

NODE_PASSES: dict[str, Callable[[Network, list[Note]], Network]] = {
    "constants": fold_constants,
    "duplicates": merge_duplicates,
    padding.NAME: padding.fold_padding,
    bias.NAME: bias.fold_bias,
    batch_normalization.NAME: batch_normalization.fold_batch_normalization,
    "dead": drop_dead,
    initialization.NAME: initialization.initialize_early,
}
"""What is done to nodes, in order."""

STEP_PASSES: dict[str, Callable[[Rewriting, Target], None]] = {
    element_wise.NAME: element_wise.fuse_element_wise,
    attention.NAME: attention.fuse_attention,
    epilogues.NAME: epilogues.fuse_epilogues,
    prologues.NAME: prologues.fuse_prologues,
    views.NAME: views.read_through_copies,
    layouts.NAME: functools.partial(layouts.choose_layouts, savings=saved_by_channels_last),
}
"""What is done to the steps of the plan, in order."""

assert (*NODE_PASSES, *STEP_PASSES, numbers.NAME) == PASSES


@dataclass(frozen=True)
class CompiledGraph:
    """A network's program, and how it came about.

    Attributes:
        network: after the passes over nodes.
        lowered: the steps of each of its nodes before the passes over steps (``lowering.lower_nodes``).
        plan: after the passes over steps.
        schedule: of the plan.
        program: what runs.
        notes: what passes did, in order.
    """

    network: Network
    lowered: tuple[tuple[Step, ...], ...]
    plan: Plan
    schedule: Schedule
    program: Program
    notes: tuple[Note, ...] = field(default=())


def compile_network(network: Network, target: Target, disabled: Collection[str] = ()) -> CompiledGraph:
    """Compile a network.

    Args:
        network: what is compiled.
        target: what it is compiled for.
        disabled: names of passes (``passes.PASSES``) to leave out.

    Raises:
        InvalidArgument: for a name that is no pass.
        NotSupported: when the adapter lacks what a node needs.
    """
    check_names(disabled)
    start = time.perf_counter()
    notes: list[Note] = []
    for name, change in NODE_PASSES.items():
        if name not in disabled:
            network = change(network, notes)
    lowered, of_nodes = lower_nodes(network, target), len(notes)
    plain = as_plan(network, lowered)
    plan = _rewritten(plain, target, disabled, notes)
    if numbers.NAME not in disabled:
        plan = numbers.write_numbers(plan, all_constants(network), notes)
    try:
        schedule = _scheduled(plan, target, network)
        program = _program(schedule, network)
    except NotSupported as refused:
        if plan.steps == plain.steps:
            raise
        del notes[of_nodes:]
        notes.append(Note("all", network.name, f"steps are left as they were, since else {refused}"))
        plan, schedule = plain, _scheduled(plain, target, network)
        program = _program(schedule, network)
    rendering = program.timings.rendering
    program = replace(program, timings=Timings(time.perf_counter() - start - rendering, rendering))
    return CompiledGraph(network, lowered, plan, schedule, program, tuple(notes))


def _rewritten(plan: Plan, target: Target, disabled: Collection[str], notes: list[Note]) -> Plan:
    """Return a plan after the passes over steps."""

    def rewritten(steps: Sequence[Step]) -> tuple[Step, ...]:
        rewriting = Rewriting.of([_plain(step) for step in steps], notes)
        for name, rewrite in STEP_PASSES.items():
            if name not in disabled:
                rewrite(rewriting, target)
        rewriting.explain()
        return rewriting.steps

    return replace(plan, steps=rewritten(plan.steps), initialization=rewritten(plan.initialization))


def _program(schedule: Schedule, network: Network) -> Program:
    start = time.perf_counter()
    program = share_known(replace(render(schedule), constants=all_constants(network)))
    return replace(program, timings=Timings(rendering=time.perf_counter() - start))


def _plain(step: Step) -> Step:
    """Return a step that passes see through: maps read tensors in memory, not views of them."""
    return replace(step, body=as_body(simplified(step.body))) if isinstance(step, Map) else step


def _scheduled(plan: Plan, target: Target, network: Network) -> Schedule:
    """Return the schedule of a plan, its kernels labelled with the steps they belong to."""
    once = sum((_named(step, target).as_initialization for step in plan.initialization), ScheduledSteps())
    steps = once + sum((_named(step, target) for step in plan.steps), ScheduledSteps())
    return as_schedule(plan.operator, steps, target, network.inputs)


def _named(step: Step, target: Target) -> ScheduledSteps:
    try:
        steps = schedule_step(step, target)
    except NotSupported as error:
        raise NotSupported(f"{step.label}: {error}") from None

    def name(kernel: Scheduled) -> Scheduled:
        return kernel if kernel.label.startswith(step.label) else replace(kernel, label=f"{step.label} {kernel.label}")

    def named(one: AnyScheduled) -> AnyScheduled:
        return replace(one, steps=tuple(map(name, one.steps))) if isinstance(one, ScheduledRepeat) else name(one)

    return ScheduledSteps(tuple(map(named, steps.steps)), tuple(map(named, steps.initialization)))
