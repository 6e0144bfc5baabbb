"""Everything that an operator or a graph becomes on its way to kernels."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection
from dataclasses import dataclass

from dmlgpu.compiler import stages
from dmlgpu.enums import FeatureLevel
from dmlgpu.explain.fusion import Traffic, nodes_of_steps, traffic
from dmlgpu.graph.checking import check_nodes, check_rules
from dmlgpu.graph.compiler import CompiledGraph, compile_network
from dmlgpu.graph.description import GraphDesc
from dmlgpu.graph.network import Node
from dmlgpu.graph.resolve import resolve
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.plan import Plan, Step
from dmlgpu.program import Kernel, Program
from dmlgpu.schedule.scheduling import schedule_step
from dmlgpu.schedule.steps import Schedule, Scheduled, ScheduledRepeat
from dmlgpu.target import Target


@dataclass(frozen=True)
class ExplainedKernel:
    """A kernel and where it comes from.

    Attributes:
        kernel: its text, grid and what it binds; of a step that repeats, in the first turn.
        scheduled: how it came about; None for a copy of an input that the device owns.
        step: the number of its step in the plan; None for such a copy.
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

    @functools.cached_property
    def kernels(self) -> tuple[ExplainedKernel, ...]:
        """The kernels of an execution in order, those of steps that repeat once."""
        found: list[ExplainedKernel] = []
        scheduled, place = iter(self.schedule.steps), 0
        for number, step in enumerate(self.plan.steps):
            for one in itertools.islice(scheduled, len(schedule_step(step, self.target).steps)):
                inner, turns = (one.steps, one.turns) if isinstance(one, ScheduledRepeat) else ((one,), 1)
                for offset, each in enumerate(inner):
                    found.append(ExplainedKernel(self.program.kernels[place + offset], each, number, turns))
                place += turns * len(inner)
        return tuple(found)

    @functools.cached_property
    def initialization(self) -> tuple[ExplainedKernel, ...]:
        """The kernels that run once, when the operator is initialised: layouts first, then copies of owned inputs."""
        made = self.program.initialization
        numbers = [
            number
            for number, step in enumerate(self.plan.steps)
            for _ in schedule_step(step, self.target).initialization
        ]
        known = zip(made, self.schedule.initialization, numbers, strict=False)
        copies = (ExplainedKernel(kernel, None, None) for kernel in made[len(numbers) :])
        return (*(ExplainedKernel(*one) for one in known), *copies)

    @functools.cached_property
    def nodes(self) -> tuple[tuple[Node, ...], ...]:
        """For each step of the plan, the nodes that it computes; none for an operator."""
        if self.graph is None:
            return ((),) * len(self.plan.steps)
        nodes = self.graph.network.nodes
        computed = nodes_of_steps(self.graph.lowered, self.plan.steps)
        return tuple(tuple(nodes[number] for number in numbers) for numbers in computed)

    @property
    def traffic(self) -> Traffic:
        """Bytes that the steps of the plan read and write."""
        return sum(map(traffic, self.plan.steps), Traffic())

    @property
    def unfused_traffic(self) -> Traffic:
        """The same of the steps before they were fused."""
        return sum(map(traffic, self._unfused), Traffic())

    @property
    def unfused_kernels(self) -> int:
        """Kernels of an execution if nothing were fused."""
        steps = [schedule_step(step, self.target) for step in self._unfused]
        return sum(turns for one in steps for _, turns in Schedule("", self.target, one.steps).kernels)

    @property
    def _unfused(self) -> tuple[Step, ...]:
        if self.graph is None:
            return self.plan.steps
        return tuple(step for steps in self.graph.lowered for step in steps)


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
    check_rules(desc, max(FeatureLevel))
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
