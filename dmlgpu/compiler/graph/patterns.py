"""Programs of networks that differ in sizes alone: one is planned on symbols, the plans of the others follow.

The first network of a kind (the same operators, data types and ranks) is compiled as it is, unless it is known which of
its integers vary. From the second one on, the integers in which they differ are symbols (``common.symbols``): a
``NetworkPattern`` has the steps of the plan with expressions for sizes, and guards that say for which sizes the plan is
right. Their kernels come from ``StepPatterns``. For another network of the kind, the expressions are evaluated; the
program equals that of ``compile_network``.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final

from dmlgpu.common import symbols
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.symbols import Recording
from dmlgpu.common.variation import Variation
from dmlgpu.compiler.aliasing import share_known
from dmlgpu.compiler.graph.compiler import compile_network, plan_network
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.graph.step_patterns import Abstract, Group, ScheduledStep, StepPatterns, abstract
from dmlgpu.compiler.graph.structures import SizedNetwork, structure_of, with_integers
from dmlgpu.compiler.plan import Allocation, Role
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.schedule.memory import Use
from dmlgpu.compiler.schedule.scheduling import check_count, copy_of_owned, memory_layout
from dmlgpu.compiler.target import Target

MAX_PATTERNS: Final = 8
"""Patterns of networks of one kind that are kept: plans differ where sizes are 1, or divide, or are large."""

_KINDS: Final = CacheLimits(entries=64, size=1 << 20)
"""Of kinds of networks; the size counts integers."""

_TARGETS: Final = CacheLimits(entries=8, size=8)


class NetworkPattern:
    """Programs of networks that differ in the values of symbols alone. Not thread-safe.

    Args:
        network: A network with symbolic numbers.
        recording: Of these.
        steps: Kernels of steps.
        target: The compile target.
        disabled: Names of disabled passes.

    Raises:
        NotSupported: If the adapter lacks what a node needs.
    """

    def __init__(
        self,
        network: Network,
        recording: Recording,
        steps: StepPatterns,
        target: Target,
        disabled: Collection[str],
    ):
        self._target, self._patterns = target, steps
        with recording.active():
            planned = plan_network(network, target, disabled)
            network, plan = planned.network, planned.plan
            owned = (
                (number, desc) for number, desc in enumerate(network.inputs) if desc is not None and desc.owned_by_dml
            )
            self._owned = {number: int(desc.byte_size) for number, desc in owned}
            self._steps: list[tuple[Abstract, bool]] = []
            numbers: list[Any] = []
            keys: dict[Hashable, Hashable] = {}  # equal ones are one, which is compared by identity
            for is_initial, steps_of_plan in ((True, plan.initialization), (False, plan.steps)):
                for step in steps_of_plan:
                    each, own = abstract(step)
                    each = replace(each, key=keys.setdefault(each.key, each.key))
                    self._steps.append((each, is_initial))
                    numbers += own
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
        begin = 0
        executed: list[Group] = []
        initial: list[Group] = []
        known: dict[Hashable, ScheduledStep] = {}
        for step, is_initial in self._steps:
            end = begin + step.count
            groups = self._patterns.groups(step, is_initial, numbers[begin:end], known)
            executed += groups[0]
            initial += groups[1]
            begin = end
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
            self._copies[number] = place, self._patterns.groups(copy, True, numbers, {})[1]
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


class NetworkKind:
    """The networks of one kind on a target.

    Args:
        integers: Of the first network.
        steps: Kernels of steps on the target.
        varying: Which of the integers are symbols from the start (``Variation``).
    """

    def __init__(self, integers: Sequence[int], steps: StepPatterns, varying: Sequence[Hashable] = ()):
        self._steps = steps
        self._variation = Variation(integers, varying)
        self._patterns: dict[Hashable, list[NetworkPattern]] = {}

    def known_program(self, packed: Hashable, integers: Sequence[int]) -> Program | None:
        """Return the program of a network of a pattern that was recorded; None if there is none.

        Raises:
            NotSupported: If the adapter lacks what a node needs.
        """
        values = self._variation.values(integers)
        patterns = self._patterns.get(packed)
        if not values or patterns is None:
            return None
        for number, pattern in enumerate(patterns):
            program = pattern.program(values)
            if program is not None:
                patterns.insert(0, patterns.pop(number))
                return program
        return None

    def program(
        self, network: Network, packed: Hashable, integers: Sequence[int], target: Target, disabled: Collection[str]
    ) -> Program | None:
        """Return the program of a network; None if it is to be compiled as it is. Raises as ``known_program``."""
        program = self.known_program(packed, integers)
        if program is not None:
            return program
        if self._variation.values(integers) is None:
            self._variation.extend(integers)
            self._patterns.clear()
        values = self._variation.values(integers)
        if not values:
            return None
        patterns = self._patterns.setdefault(packed, [])
        recording = Recording(values)
        numbers = self._variation.symbolic(integers, recording)
        pattern = NetworkPattern(with_integers(network, numbers), recording, self._steps, target, disabled)
        patterns.insert(0, pattern)
        del patterns[MAX_PATTERNS:]
        return pattern.program(values)


class NetworkPatterns:
    """Compiles networks, those of one kind from patterns. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: Cache[Hashable, NetworkKind] = Cache(_KINDS)
        self._steps: Cache[Target, StepPatterns] = Cache(_TARGETS)

    def program(
        self,
        network: Network,
        target: Target,
        disabled: Collection[str] = (),
        varying: Sequence[Hashable] = (),
    ) -> Program:
        """Return the program of a network.

        Other arguments and errors are those of ``compile_network``.

        Args:
            varying: Which of its integers are symbols, if it is the first one of its kind.
        """
        program = None if target.policies.specialized else self._from_pattern(network, target, disabled, varying)
        return compile_network(network, target, disabled).program if program is None else program

    def known_program(self, sized: SizedNetwork, target: Target, disabled: Collection[str] = ()) -> Program | None:
        """Return the program of a network if it follows from a pattern that was recorded, else None."""
        with self._lock:
            kind = self._kinds.get((sized.structure.kind, target, frozenset(disabled)))
            try:
                return None if kind is None else kind.known_program(sized.structure.packed, sized.integers)
            except Exception:  # as in ``program``
                return None

    def _from_pattern(
        self, network: Network, target: Target, disabled: Collection[str], varying: Sequence[Hashable]
    ) -> Program | None:
        structure, integers = structure_of(network)
        key = structure.kind, target, frozenset(disabled)
        with self._lock:
            kind = self._kinds.get(key)
            compiling = symbols.postponed() if kind is None else nullcontext()
            if kind is None:
                steps = self._steps.get_or_make(target, lambda: StepPatterns(target), lambda _: 1)
                kind = NetworkKind(integers, steps, varying)
                self._kinds.put(key, kind, len(integers))
            try:
                with compiling:
                    return kind.program(network, structure.packed, integers, target, disabled)
            except Exception:  # what cannot be computed on symbols, or is not supported: with numbers, it says what
                return None


patterns: Final = NetworkPatterns()
"""Of this process."""
