"""Programs of networks that differ in sizes alone: one is planned on symbols, those of the others follow.

A plan has the expressions of the numbers of its steps. ``recorded_step`` separates the sizes, strides and offsets of a
step (``wgsl.parameters.PARAMETERS``) and the resources that it binds from all else. Steps that are equal otherwise are
scheduled and rendered once on symbols of their own; guards say for which sizes each recording is right.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.compiler.aliasing import share_known
from dmlgpu.compiler.graph.compiler import plan_network, schedule_named
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.plan import Allocation, Convolve, PlanBinding, PlanTensor, Role, Step
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.schedule.scheduling import check_count, copies_of_owned, memory_layout, owned_sizes
from dmlgpu.compiler.schedule.steps.base import AnyScheduled
from dmlgpu.compiler.sizes.arithmetic import Recording, Replay, fields_of, is_symbolic, settled
from dmlgpu.compiler.sizes.recordings import first_result
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.parameters import CONSTANTS, parameter_fields
from dmlgpu.compiler.wgsl.render import Sources, UnplacedKernel, kernels_of

MAX_VARIANTS: Final = 32
"""Recordings of equal steps, for different sizes, that are kept."""

_LABEL: Final = "\0"
"""Stands for the label of a step in those of its kernels."""

_PLACEHOLDER: Final = Recording([2]).symbols[0]
"""Stands for a number in a step without its numbers."""


Groups: TypeAlias = "list[list[UnplacedKernel]]"
"""The kernels of each scheduled step."""

Kernels: TypeAlias = "tuple[int, Groups, Groups]"
"""The count of allocations of the schedule of a step; the kernels that are executed, and those of the initialization.
The indices of their bindings are places: among the resources of the step, which the allocations follow."""


class RecordedStep:
    """The kernels of a step by its sizes. Not thread-safe. Unpickled, it is the one of ``recorded_steps``.

    Args:
        key: Key in ``recorded_steps``.
        step: The step, with placeholders for sizes.
        is_initial: Whether all kernels are of the initialization.
        target: The compile target.

    Attributes:
        count: How often the step was recorded.
    """

    def __init__(self, key: Hashable, step: Step, is_initial: bool, target: Target):
        self._arguments = key, step, is_initial, target
        self._step, self._is_initial, self._target = step, is_initial, target
        self._replays: list[Replay] = []
        self.count = 0

    def __reduce__(self) -> Any:
        return _shared, self._arguments, (self._replays, self.count)

    def __setstate__(self, state: tuple[list[Replay], int]) -> None:
        if state[1] > self.count:  # else this process has recorded, or read, as much
            self._replays, self.count = state

    def __call__(self, sizes: Sequence[Any]) -> Kernels:
        """Return the kernels for sizes, recorded if the guards of no recording hold.

        Raises:
            NotSupported: If the adapter lacks what the step needs.
        """
        result: Kernels | None = first_result(self._replays, lambda replay: replay(sizes))
        if result is None:
            self._replays.insert(0, self._record(sizes))
            del self._replays[MAX_VARIANTS:]
            self.count += 1
            result = self._replays[0](sizes)
            assert result is not None
        return result

    def _record(self, sizes: Sequence[Any]) -> Replay:
        recording = Recording(sizes)
        following = iter(recording.symbols)
        visit = _Visit(lambda _: next(following))
        with recording.active():
            steps = schedule_named(replace(visit.of(self._step), label=_LABEL), self._target)
            if self._is_initial:
                steps = steps.as_initialization
            places: dict[Any, int] = {binding.index: place for place, binding in enumerate(visit.bindings)}
            known, sources = len(places), Sources(self._target, self._target.moves_doubles)

            def place(binding: PlanBinding) -> PlanBinding:
                return replace(binding, index=places.setdefault(binding.index, len(places)))

            def groups(several: Sequence[AnyScheduled]) -> Groups:
                rendered = (kernels_of(step, "", sources) for step in several)
                return [[kernel.rebound(place, label=settled(kernel.label)) for kernel in group] for group in rendered]

            executed, initial = groups(steps.steps), groups(steps.initialization)
            return recording.replay((len(places) - known, executed, initial))


recorded_steps: Final[Cache[Hashable, RecordedStep]] = Cache(CacheLimits(entries=1024, size=1024))
"""Of all networks in this process, by what steps are but for sizes, labels and resources."""


def _shared(key: Hashable, step: Step, is_initial: bool, target: Target) -> RecordedStep:
    """Return the recorded step of a key, constructed if there is none."""
    return recorded_steps.get_or_make(key, lambda: RecordedStep(key, step, is_initial, target), lambda _: 1)


def recorded_step(step: Step, is_initial: bool, target: Target) -> tuple[RecordedStep, list[Any], list[Any]]:
    """Return the kernels of a step by sizes, indices of the resources that it binds, and its sizes, maybe symbolic."""
    visit = _Visit(lambda _: _PLACEHOLDER)
    rebuilt = visit.of(step)
    recorded = _shared((tuple(visit.key), is_initial, target), rebuilt, is_initial, target)
    return recorded, [index for _, index in visit.resources], visit.numbers


def kernels_of_step(
    kernels: Kernels, label: str, resources: Sequence[int | Allocation], *, varies: bool = False
) -> tuple[Groups, Groups]:
    """Return the kernels that are executed, and those of the initialization, with the label and resources of a step.

    Args:
        kernels: The kernels of the step by its sizes.
        label: Its label.
        resources: The resources that it binds.
        varies: Whether its sizes depend on symbols of the plan.
    """
    count, executed, initial = kernels
    indices = [*resources, *(Allocation(label) for _ in range(count))]

    def bind(place: PlanBinding) -> PlanBinding:
        assert isinstance(place.index, int)
        return PlanBinding(place.role, indices[place.index], place.offset)

    def named(groups: Groups, varies: bool) -> Groups:
        return [
            [kernel.rebound(bind, label=kernel.label.replace(_LABEL, label), varies=varies) for kernel in group]
            for group in groups
        ]

    return named(executed, varies), named(initial, False)


class _Visit:
    """Walks through a step, and rebuilds it with other numbers and resources. What is shared stays shared."""

    def __init__(self, change: Callable[[Any], Any]):
        self.key: list[Any] = []
        self.numbers: list[Any] = []
        self.resources: dict[tuple[Role, int | Allocation], int] = {}
        self.bindings: list[PlanBinding] = []
        self._change = change
        self._memo: dict[int, tuple[int, Any, Any]] = {}
        self._is_result = False

    def of(self, part: Any) -> Any:
        """Return a part rebuilt."""
        if is_symbolic(part):
            return self._number(part)
        cls: Any = type(part)
        if cls is tuple:
            self.key.append(len(part))
            return tuple(map(self.of, part))
        if cls is PlanBinding:
            return self._binding(part)
        if fields_of(cls):
            known = self._memo.get(id(part))
            if known is not None:
                self.key.append(("again", known[0]))
                return known[2]
            rebuilt = self._rebuilt(part)
            self._memo[id(part)] = len(self._memo), part, rebuilt
            return rebuilt
        if cls is str:
            part = settled(part)
        self.key += (cls, struct.pack("d", part) if cls is float else part)
        return part

    def _binding(self, binding: PlanBinding) -> PlanBinding:
        place = self.resources.setdefault((binding.role, binding.index), len(self.resources))
        if place == len(self.bindings):
            index = Allocation("") if isinstance(binding.index, Allocation) else place
            self.bindings.append(PlanBinding(binding.role, index))
        self.key += (PlanBinding, binding.role, place)
        return PlanBinding(binding.role, self.bindings[place].index, self._numbers_in(binding.offset))

    def _rebuilt(self, part: Any) -> Any:
        cls: Any = type(part)
        self.key.append(cls)
        named = parameter_fields(cls)
        values = {}
        for name in fields_of(cls):
            value = getattr(part, name)
            if name in named:
                # Epilogues read elements, and convolutions store them, once for each sum: strides of 1 are numbers like
                # others, so that one text serves results by rows and by columns. Products also store to tensors that
                # their schedules allocate, whose strides of 1 are literals.
                is_any = self._is_result and cls is PlanTensor and name == "strides"
                values[name] = self._numbers_in(value, (0,) if is_any else (0, 1))
            elif name == "constants":
                values[name] = tuple([self._constant(*constant) for constant in value])
            elif name == "label":  # which programs have, and keys do not
                values[name] = settled(value)
            elif name == "epilogue" or (cls is Convolve and name == "output"):
                self._is_result = True
                values[name] = self.of(value)
                self._is_result = False
            else:
                values[name] = self.of(value)
        return cls(**values)

    def _constant(self, name: str, value: Any) -> tuple[str, Any]:
        self.key.append(name)
        return name, self._numbers_in(value) if name in CONSTANTS else self.of(value)

    def _numbers_in(self, value: Any, literals: tuple[int, ...] = (0, 1)) -> Any:
        cls = type(value)
        if cls is tuple:
            self.key.append(len(value))
            return tuple([self._numbers_in(item, literals) for item in value])
        if is_symbolic(value) or (cls is int and value not in literals):
            return self._number(value)
        return self.of(value)

    def _number(self, value: Any) -> Any:
        self.key.append(int)
        self.numbers.append(value)
        return self._change(value)


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
        self._owned = owned_sizes(network.inputs)
        self._steps, sizes = [], []
        for is_initial, steps in ((True, plan.initialization), (False, plan.steps)):
            for step in steps:
                recorded, resources, own = recorded_step(step, is_initial, target)
                self._steps.append((recorded, settled(step.label), resources, any(map(is_symbolic, own))))
                sizes.append(own)
        self._replay = recording.replay(sizes)
        self._operator, self._constants = plan.operator, network.bound_constants
        self._copied: set[RecordedStep] = set()

    @property
    def count(self) -> int:
        """Number of times that its steps were recorded."""
        return sum(step.count for step in self._copied.union(step for step, *_ in self._steps))

    def program(self, values: Sequence[int]) -> Program | None:
        """Return the program for values of the symbols; None if the plan is another for these.

        Raises:
            NotSupported: If the adapter lacks what a step needs.
        """
        sizes = self._replay(values)
        if sizes is None:
            return None
        executed: Groups = []
        initial: Groups = []
        known: dict[Any, Any] = {}  # steps of this program that differ in labels and resources alone
        for (recorded, label, resources, varies), own in zip(self._steps, sizes, strict=True):
            key = recorded, *own
            if key not in known:
                known[key] = recorded(own)
            groups = kernels_of_step(known[key], label, resources, varies=varies)
            executed += groups[0]
            initial += groups[1]
        used = (binding for group in executed for kernel in group for binding, _ in kernel.bound)
        moved, copies = copies_of_owned(self._owned, used)
        if copies:
            executed = [[kernel.rebound(moved) for kernel in group] for group in executed]
        for copy in copies:
            recorded, resources, own = recorded_step(copy, True, self._target)
            self._copied.add(recorded)
            initial += kernels_of_step(recorded(own), copy.label, resources)[1]
        check_count(sum(map(len, (*executed, *initial))))
        bounds = (
            [[each for kernel in group for each in kernel.bound] for group in part] for part in (executed, initial)
        )
        memory = memory_layout(*bounds)
        name = self._operator.lower()
        kernels, initialization = (
            tuple(replace(kernel.placed(memory), label=name + kernel.label) for group in groups for kernel in group)
            for groups in (executed, initial)
        )
        return share_known(
            Program(
                self._operator,
                kernels,
                initialization,
                memory.temporary.size,
                memory.persistent.size,
                self._target.has("immediates"),
                self._constants,
                memory.least_temporary_size,
            )
        )
