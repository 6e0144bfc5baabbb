"""Programs of networks that differ in sizes alone: one is planned on symbols, those of the others follow."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from dmlgpu.compiler.aliasing import share_known
from dmlgpu.compiler.graph.compiler import plan_network
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.plan import PlanBinding, Role, Step
from dmlgpu.compiler.program import Program, RenderedKernel
from dmlgpu.compiler.schedule.scheduling import check_count, copy_of_owned, memory_layout
from dmlgpu.compiler.sizes.arithmetic import Recording, is_symbolic, settled
from dmlgpu.compiler.sizes.steps import Group, kernels_of_step, recorded_step
from dmlgpu.compiler.target import Target


class PlannedNetwork:
    """The plan of a network for the sizes for which its guards hold. Not thread-safe.

    Its numbers follow from the symbols directly; its steps are shared with other plans.

    Args:
        network: A network with symbols.
        recording: The recording of these, which is active.
        target: The compile target.
        disabled: Names of disabled passes.

    Raises:
        NotSupported: If the adapter lacks what a node needs.
    """

    def __init__(self, network: Network, recording: Recording, target: Target, disabled: Collection[str]):
        self._target = target
        planned = plan_network(network, target, disabled)
        network, plan = planned.network, planned.plan
        self._owned = {
            index: int(desc.byte_size)
            for index, desc in enumerate(network.inputs)
            if desc is not None and desc.owned_by_dml
        }
        self._steps, sizes = [], []
        for is_initial, steps in ((True, plan.initialization), (False, plan.steps)):
            for step in steps:
                recorded, resources, own = recorded_step(step, is_initial, target)
                self._steps.append((recorded, settled(step.label), resources, any(map(is_symbolic, own))))
                sizes.append(own)
        self._replay = recording.replay(sizes)
        self._operator, self._constants = plan.operator, network.bound_constants

    def program(self, values: Sequence[int]) -> Program | None:
        """Return the program for values of the symbols; None if the plan is another for these.

        Raises:
            NotSupported: If the adapter lacks what a step needs.
        """
        sizes = self._replay(values)
        if sizes is None:
            return None
        executed: list[tuple[Group, bool]] = []
        initial: list[tuple[Group, bool]] = []
        known: dict[Any, Any] = {}  # steps of this program that differ in labels and resources alone
        for (recorded, label, resources, varies), own in zip(self._steps, sizes, strict=True):
            key = recorded, *own
            if key not in known:
                known[key] = recorded(own)
            groups = kernels_of_step(known[key], label, resources)
            executed += [(group, varies) for group in groups[0]]
            initial += [(group, False) for group in groups[1]]
        return self._assembled(executed, initial)

    def _assembled(self, executed: list[tuple[Group, bool]], initial: list[tuple[Group, bool]]) -> Program:
        """Return the program of kernels, and of each group whether its sizes vary: inputs that the device owns are read
        from the persistent resource, and allocations get their places."""
        bound = (binding for group, _ in executed for binding, _ in group.bound)
        read = {binding.index for binding in bound if binding.role is Role.INPUT}
        owned: dict[Any, Any] = {}
        for index, size in self._owned.items():
            if index in read:
                owned[index], copy = copy_of_owned(index, size)
                initial += [(group, False) for group in self._kernels(copy)]
        if owned:

            def moved(binding: PlanBinding) -> PlanBinding:
                is_owned = binding.role is Role.INPUT and binding.index in owned
                return PlanBinding(Role.PERSISTENT, owned[binding.index], binding.offset) if is_owned else binding

            executed = [(group.rebound(moved), varies) for group, varies in executed]
        check_count(sum(len(group.kernels) for group, _ in (*executed, *initial)))
        memory = memory_layout([group.bound for group, _ in executed], [group.bound for group, _ in initial])
        name = self._operator.lower()

        def placed(groups: list[tuple[Group, bool]]) -> tuple[RenderedKernel, ...]:
            return tuple(
                replace(kernel.placed(memory), label=name + kernel.label, varies=varies)
                for group, varies in groups
                for kernel in group.kernels
            )

        program = Program(
            self._operator,
            placed(executed),
            placed(initial),
            memory.temporary.size,
            memory.persistent.size,
            self._target.has("immediates"),
            self._constants,
            memory.least_temporary_size,
        )
        return share_known(program)

    def _kernels(self, step: Step) -> list[Group]:
        """Return the kernels of a step of the initialization."""
        recorded, resources, sizes = recorded_step(step, True, self._target)
        return kernels_of_step(recorded(sizes), step.label, resources)[1]
