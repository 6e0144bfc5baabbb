"""Programs of networks that differ in sizes alone: one is planned on symbols, those of the others follow."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, Final

from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.compiler.aliasing import share_known
from dmlgpu.compiler.graph.compiler import plan_network
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.plan import Allocation, Role
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.schedule.memory import Use
from dmlgpu.compiler.schedule.scheduling import check_count, copy_of_owned, memory_layout
from dmlgpu.compiler.sizes.steps import Abstract, Group, KnownSteps, StepRecordings, abstract
from dmlgpu.compiler.sizes.symbols import Recording, Symbol
from dmlgpu.compiler.target import Target

_TARGETS: Final = CacheLimits(entries=8, size=8)


step_recordings: Final[Cache[Target, StepRecordings]] = Cache(_TARGETS)
"""Kernels of steps, which all networks on a target share."""


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
        self._recorded = step_recordings.get_or_make(target, lambda: StepRecordings(target), lambda _: 1)
        planned = plan_network(network, target, disabled)
        network, plan = planned.network, planned.plan
        self._owned = {
            index: int(desc.byte_size)
            for index, desc in enumerate(network.inputs)
            if desc is not None and desc.owned_by_dml
        }
        self._steps: list[tuple[Abstract, bool, bool]] = []
        numbers: list[list[Any]] = []
        keys: dict[Hashable, Hashable] = {}  # equal ones are one, which is compared by identity
        for is_initial, steps_of_plan in ((True, plan.initialization), (False, plan.steps)):
            for step in steps_of_plan:
                each, own = abstract(step)
                each.key = keys.setdefault(each.key, each.key)
                varies = any(isinstance(number, Symbol) for number in own)
                self._steps.append((each, is_initial, varies))
                numbers.append(own)
        self._replay = recording.replay(numbers)
        self._operator, self._constants = plan.operator, network.bound_constants
        self._copies: dict[int, tuple[Allocation, list[Group]]] = {}

    def program(self, values: Sequence[int]) -> Program | None:
        """Return the program for values of the symbols; None if the plan is another for these.

        Raises:
            NotSupported: If the adapter lacks what a step needs.
        """
        numbers = self._replay(values)
        if numbers is None:
            return None
        executed: list[Group] = []
        initial: list[Group] = []
        known: KnownSteps = {}
        for (step, is_initial, varies), own in zip(self._steps, numbers, strict=True):
            groups = self._recorded.groups(step, is_initial, own, known)
            executed += [group._replace(varies=varies) for group in groups[0]]
            initial += groups[1]
        return self._assembled(executed, initial)

    def _assembled(self, executed: list[Group], initial: list[Group]) -> Program:
        """Return the program of scheduled steps: inputs that the device owns are read from the persistent resource, and
        allocations get their places."""
        read = {index for group in executed for role, index, _ in group.bound if role is Role.INPUT}
        owned: dict[Any, Allocation] = {}
        for number, size in self._owned.items():
            if number in read:
                owned[number], copies = self._copy_of(number, size)
                initial += copies
        check_count(sum(len(group.kernels) for group in (*executed, *initial)))
        uses = _uses(executed, owned), _uses(initial, {})
        memory = memory_layout(uses[0][Role.TEMPORARY], uses[1][Role.PERSISTENT], uses[0][Role.PERSISTENT])
        name = self._operator.lower()
        program = Program(
            self._operator,
            tuple(kernel for group in executed for kernel in group.placed(memory, owned, name)),
            tuple(kernel for group in initial for kernel in group.placed(memory, {}, name)),
            memory.temporary.size,
            memory.persistent.size,
            self._target.has("immediates"),
            self._constants,
            memory.least_temporary_size,
        )
        return share_known(program)

    def _copy_of(self, number: int, size: int) -> tuple[Allocation, list[Group]]:
        """Return a place for an input that the device owns, and the kernels that copy it there."""
        if number not in self._copies:
            place, step = copy_of_owned(number, size)
            copy, numbers = abstract(step)
            self._copies[number] = place, self._recorded.groups(copy, True, numbers, {})[1]
        return self._copies[number]


def _uses(groups: Sequence[Group], owned: Mapping[Any, Allocation]) -> dict[Role, list[Use]]:
    """Return the uses of allocations in each resource, in order."""
    uses: dict[Role, list[Use]] = {Role.TEMPORARY: [], Role.PERSISTENT: []}
    for number, group in enumerate(groups):
        for role, index, end in group.bound:
            if isinstance(index, Allocation):
                uses[role].append(Use(number, index, end))
            elif role is Role.INPUT and index in owned:
                uses[Role.PERSISTENT].append(Use(number, owned[index], end))
    return uses
