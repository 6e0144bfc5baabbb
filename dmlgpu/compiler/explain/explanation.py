"""Everything that an operator or a graph becomes on its way to kernels."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from dmlgpu.catalog.enums import FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler.explain.fusion import Traffic, nodes_of_steps, traffic
from dmlgpu.compiler.graph.compiler import CompiledGraph, compile_network
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.graph.lowering import as_plan
from dmlgpu.compiler.graph.network import Node
from dmlgpu.compiler.graph.resolve import check_nodes, resolve
from dmlgpu.compiler.operators import check_rules
from dmlgpu.compiler.plan import Plan, Step
from dmlgpu.compiler.program import Kernel, Program
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps.base import AnyScheduled, Schedule, Scheduled, ScheduledSteps, in_turns
from dmlgpu.compiler.stages import stages
from dmlgpu.compiler.target import Target


@dataclass(frozen=True)
class ExplainedKernel:
    """A kernel and where it comes from.

    Attributes:
        kernel: its text, grid and what it binds; of a step that repeats, in the first turn.
        scheduled: how it came about; None for a copy of an input that the device owns.
        step: the number of its step among ``Explanation.steps``; None for such a copy.
        times: how often it is executed.
    """

    kernel: Kernel
    scheduled: Scheduled | None
    step: int | None
    times: int = 1


@dataclass(frozen=True)
class Explanation:
    """What an operator or a graph becomes on a target.

    Attributes:
        title: what it is called: a case, an operator, a model's name for it.
        desc: its description.
        plan: what is computed; of a graph, after all passes.
        schedule: how, and why so.
        program: what runs.
        graph: what the passes made of the graph; None for an operator.
    """

    title: str
    desc: OperatorDesc | GraphDesc
    plan: Plan
    schedule: Schedule
    program: Program
    graph: CompiledGraph | None = None

    @property
    def target(self) -> Target:
        """What it is compiled for."""
        return self.schedule.target

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the plan, those of the initialisation last."""
        return (*self.plan.steps, *self.plan.initialization)

    @functools.cached_property
    def kernels(self) -> tuple[ExplainedKernel, ...]:
        """The kernels of an execution in order, those of steps that repeat once."""
        counts = [(number, len(self._scheduled[number].steps)) for number in range(len(self.plan.steps))]
        return tuple(_explained(self.program.kernels, self.schedule.steps, counts))

    @functools.cached_property
    def initialization(self) -> tuple[ExplainedKernel, ...]:
        """The kernels that run once, when the operator is initialised; at last the copies of owned inputs."""
        counts = [(number, len(one.initialization)) for number, one in enumerate(self._scheduled)]
        executed = len(self.plan.steps)
        ordered = [*counts[executed:], *counts[:executed]]
        known = tuple(_explained(self.program.initialization, self.schedule.initialization, ordered))
        copies = self.program.initialization[sum(one.times for one in known) :]
        return (*known, *(ExplainedKernel(kernel, None, None) for kernel in copies))

    @functools.cached_property
    def _scheduled(self) -> tuple[ScheduledSteps, ...]:
        """Each step scheduled by itself, to tell which kernels are whose."""
        executed = (schedule_step(step, self.target) for step in self.plan.steps)
        once = (schedule_step(step, self.target).as_initialization for step in self.plan.initialization)
        return (*executed, *once)

    @functools.cached_property
    def nodes(self) -> tuple[tuple[Node, ...], ...]:
        """For each of ``steps``, the nodes that it computes; none for an operator."""
        if self.graph is None:
            return ((),) * len(self.steps)
        nodes = self.graph.network.nodes
        computed = nodes_of_steps(self.graph.lowered, self.steps)
        return tuple(tuple(nodes[number] for number in numbers) for numbers in computed)

    @property
    def traffic(self) -> Traffic:
        """Bytes that the steps of an execution read and write."""
        return sum(map(traffic, self.plan.steps), Traffic())

    @property
    def unfused_traffic(self) -> Traffic:
        """The same of the steps before they were fused."""
        return sum(map(traffic, self._unfused), Traffic())

    @property
    def unfused_kernels(self) -> int:
        """Kernels of an execution if nothing were fused."""
        steps = [schedule_step(step, self.target).steps for step in self._unfused]
        return sum(turns for one in steps for _, turns in in_turns(one))

    @property
    def _unfused(self) -> tuple[Step, ...]:
        if self.graph is None:
            return self.plan.steps
        return as_plan(self.graph.network, self.graph.lowered).steps


def _explained(
    kernels: Sequence[Kernel], scheduled: Sequence[AnyScheduled], counts: Sequence[tuple[int, int]]
) -> Iterator[ExplainedKernel]:
    """Yield kernels with what they come from.

    Args:
        kernels: those of all turns.
        scheduled: what was rendered as they are.
        counts: numbers of steps of the plan, in order, and how many of ``scheduled`` belong to each.
    """
    remaining, place = iter(scheduled), 0
    for number, count in counts:
        for one in itertools.islice(remaining, count):
            inner = tuple(in_turns([one]))
            for offset, (each, turns) in enumerate(inner):
                yield ExplainedKernel(kernels[place + offset], each, number, turns)
            place += sum(turns for _, turns in inner)


def check(desc: OperatorDesc | GraphDesc) -> None:
    """Check an operator, or a graph and all its nodes, by the rules of the newest feature level.

    Raises:
        InvalidDescription, InvalidGraph: a rule is broken.
    """
    if isinstance(desc, GraphDesc):
        check_nodes(resolve(desc), max(FeatureLevel))
    else:
        check_rules(desc, max(FeatureLevel))


def explain_operator(title: str, desc: OperatorDesc, target: Target) -> Explanation:
    """Return what an operator becomes.

    Args:
        title: what it is called.
        desc: its description.
        target: what it is compiled for.

    Raises:
        InvalidDescription: the description breaks a rule.
        NotSupported: the adapter lacks what the operator needs.
    """
    check(desc)
    made = stages(desc, target)
    return Explanation(title, desc, made.plan, made.schedule, made.program)


def explain_graph(title: str, desc: GraphDesc, target: Target, disabled: Collection[str] = ()) -> Explanation:
    """Return what a graph becomes.

    Args:
        title: what it is called.
        desc: the graph.
        target: what it is compiled for.
        disabled: names of passes to leave out.

    Raises:
        InvalidGraph: the graph or one of its operators breaks a rule.
        InvalidArgument: for a name that is no pass.
        NotSupported: the adapter lacks what a node needs.
    """
    network = resolve(desc)
    check_nodes(network, max(FeatureLevel))
    made = compile_network(network, target, disabled)
    return Explanation(title, desc, made.plan, made.schedule, made.program, made)
