"""Steps that differ in sizes alone: one is scheduled and rendered on symbols, the kernels of the others follow.

``abstract`` separates the sizes, strides and offsets of a step (``wgsl.parameters.PARAMETERS``) and the resources that
it binds from all else. Steps that are equal otherwise share replays: of the schedule of a step of a plan, and of the
kernels of a scheduled step. Guards say for which sizes each is right.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import struct
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.compiler.graph.compiler import schedule_named
from dmlgpu.compiler.plan import Allocation, PlanBinding, Role
from dmlgpu.compiler.program import RenderedKernel, Slot
from dmlgpu.compiler.schedule.memory import MemoryLayout
from dmlgpu.compiler.schedule.scheduling import bytes_of
from dmlgpu.compiler.schedule.steps.base import ScheduledRepeat, in_turns
from dmlgpu.compiler.sizes.symbols import Recording, Replay, is_symbolic, settled, value_of
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.parameters import CONSTANTS, parameter_fields
from dmlgpu.compiler.wgsl.render import Sources, kernels_of

MAX_VARIANTS: Final = 64
"""Recordings of equal steps, for different sizes, that are kept."""

MAX_KEYS: Final = 1024
"""Steps that differ in more than sizes of which recordings are kept."""

MAX_RECORDED: Final = 2048
"""Recordings that are kept."""

_LABEL: Final = "\0"
"""Stands for the label of a step in those of its kernels."""

Resource = tuple[Role, "int | Allocation"]


class Abstract:
    """A step of a plan or of a schedule without its numbers and resources.

    Attributes:
        key: Equal for steps that differ in nothing else.
        resources: What it binds, in order of first use.
        step: The step, with placeholders for numbers and resources.
    """

    __slots__ = ("key", "resources", "step")

    def __init__(self, key: Hashable, resources: tuple[Resource, ...], step: Any):
        self.key, self.resources, self.step = key, resources, step


class _Key:
    """A long key, which is hashed once."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, parts: tuple[Hashable, ...]):
        self._parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return type(other) is _Key and self._parts == other._parts


def abstract(step: Any, *, pins: bool = False) -> tuple[Abstract, list[Any]]:
    """Return a step without its numbers and resources, and its numbers, plain or symbolic.

    Args:
        step: Of a plan or a schedule.
        pins: Whether symbolic numbers that are no parameters become plain ones.
    """
    visit = _Visit(lambda _: _PLACEHOLDER, pins)
    rebuilt = visit.of(step)
    return Abstract(_Key(tuple(visit.key)), tuple(visit.resources), rebuilt), visit.numbers


_NUMBERS: Final = {ScheduledRepeat: frozenset({"advances"})}
"""Fields whose integers are numbers, besides parameters."""

_PLACEHOLDER: Final = Recording([2]).symbols[0]
"""Stands for a number in an abstract step."""

_TEXTS: Final = frozenset({"label", "reason"})
"""Fields of steps for people: labels, which programs have, and reasons."""


class _Visit:
    """Walks through a step, and rebuilds it with other numbers and resources. What is shared stays shared."""

    def __init__(self, change: Callable[[Any], Any], pins: bool = False):
        self.key: list[Any] = []
        self.numbers: list[Any] = []
        self.resources: dict[Resource, int] = {}
        self.bindings: list[PlanBinding] = []
        self._change, self._pins = change, pins
        self._memo: dict[int, tuple[int, Any, Any]] = {}

    def of(self, part: Any) -> Any:
        """Return a part rebuilt."""
        if is_symbolic(part):
            if not self._pins:
                return self._number(part)
            part = value_of(part)
        cls = type(part)
        if cls is tuple:
            self.key.append(len(part))
            return tuple(map(self.of, part))
        if cls is PlanBinding:
            return self._binding(part)
        if dataclasses.is_dataclass(cls):
            return self._shared(part)
        if cls is str:
            part = settled(part)
        self.key += (cls, struct.pack("d", part) if cls is float else part)
        return part

    def _shared(self, part: Any) -> Any:
        known = self._memo.get(id(part))
        if known is not None:
            self.key.append(("again", known[0]))
            return known[2]
        number = len(self._memo)
        self._memo[id(part)] = number, part, None
        rebuilt = self._rebuilt(part)
        self._memo[id(part)] = number, part, rebuilt
        return rebuilt

    def _binding(self, binding: PlanBinding) -> PlanBinding:
        place = self.resources.setdefault((binding.role, binding.index), len(self.resources))
        if place == len(self.bindings):
            index = Allocation("") if isinstance(binding.index, Allocation) else place
            self.bindings.append(PlanBinding(binding.role, index))
        self.key += (PlanBinding, binding.role, place)
        return replace(self.bindings[place], offset=self._numbers_in(binding.offset))

    def _rebuilt(self, part: Any) -> Any:
        cls: Any = type(part)
        self.key.append(cls)
        named = parameter_fields(cls) | _NUMBERS.get(cls, frozenset())
        values = {}
        for field in dataclasses.fields(cls):
            value = getattr(part, field.name)
            if field.name in named:
                values[field.name] = self._numbers_in(value)
            elif field.name == "constants":
                values[field.name] = tuple([self._constant(name, constant) for name, constant in value])
            elif field.name in _TEXTS:
                values[field.name] = settled(value) if field.name == "label" else ""
            else:
                values[field.name] = self.of(value)
        return cls(**values)

    def _constant(self, name: str, value: Any) -> tuple[str, Any]:
        self.key.append(name)
        return name, self._numbers_in(value) if name in CONSTANTS else self.of(value)

    def _numbers_in(self, value: Any) -> Any:
        cls = type(value)
        if cls is tuple:
            self.key.append(len(value))
            return tuple(map(self._numbers_in, value))
        if is_symbolic(value) or (cls is int and value not in (0, 1)):
            return self._number(value)
        return self.of(value)

    def _number(self, value: Any) -> Any:
        self.key.append(int)
        self.numbers.append(value)
        return self._change(value)


def _symbolic(abstract: Abstract, values: Sequence[Any]) -> tuple[Any, _Visit, Recording]:
    """Return a step on symbols, how it was rebuilt, and the recording of its numbers."""
    recording = Recording(values)
    following = iter(recording.symbols)
    visit = _Visit(lambda _: next(following))
    return visit.of(abstract.step), visit, recording


class ScheduledEntry(NamedTuple):
    """A scheduled step of a step of a plan.

    Attributes:
        step: The scheduled step.
        numbers: Its numbers.
        resources: What it binds: places among the resources of the step of the plan, which the allocations of the
            schedule follow.
        labels: Of its kernels, which repeat in turns, with ``_LABEL`` for that of the step of the plan.
        is_once: Whether it is of the initialization.
    """

    step: Abstract
    numbers: Sequence[Any]
    resources: tuple[int, ...]
    labels: list[str]
    is_once: bool


def _schedule(step: Abstract, is_initial: bool, values: Sequence[Any], target: Target) -> Replay:
    """Return a replay of the schedule of a step: the count of its allocations, and its entries."""
    symbolic, visit, recording = _symbolic(step, values)
    with recording.active():
        steps = schedule_named(replace(symbolic, label=_LABEL), target)
        if is_initial:
            steps = steps.as_initialization
        places = {binding.index: place for place, binding in enumerate(visit.bindings)}
        known = len(places)
        entries = []
        for is_once, several in ((False, steps.steps), (True, steps.initialization)):
            for scheduled in several:
                each, numbers = abstract(scheduled, pins=True)
                resources = tuple(places.setdefault(index, len(places)) for _, index in each.resources)
                labels = [settled(kernel.label) for kernel, _ in in_turns([scheduled])]
                entries.append(ScheduledEntry(each, numbers, resources, labels, is_once))
        return recording.replay((len(places) - known, entries))


def _kernels(step: Abstract, values: Sequence[Any], target: Target) -> Replay:
    """Return a replay of the kernels of a scheduled step: a ``Group`` whose resources are places among the step's."""
    symbolic, visit, recording = _symbolic(step, values)
    places = {binding: place for place, binding in enumerate(visit.bindings)}
    lanes = itertools.cycle([kernel.lanes for kernel, _ in in_turns([symbolic])])

    def place(binding: PlanBinding) -> int:
        return places[replace(binding, offset=0)]

    kernels = []
    with recording.active():
        sources = Sources(target, target.moves_doubles)
        for kernel, width in zip(kernels_of(symbolic, "", sources), lanes, strict=False):
            label = f" x{width}" if width > 1 else ""
            slots = tuple(
                Slot(binding.role, 0, binding.offset + part.offset, part.size, part.is_continued)
                for binding, part in kernel.slots
            )
            special = target.policies.specialized
            rendered = RenderedKernel(
                label, kernel.source, slots, kernel.grid, (), kernel.parameters, kernel.copy, special
            )
            kernels.append((rendered, [place(binding) for binding, _ in kernel.slots]))
        bound = [(binding.role, place(binding), end) for binding, end in bytes_of(symbolic)]
        return recording.replay(Group(kernels, bound))


class Group(NamedTuple):
    """The kernels of a scheduled step, whose allocations have no place yet.

    Attributes:
        kernels: With the resource of each slot.
        bound: The resources that they bind, and up to which byte.
        varies: Whether numbers of the step depend on symbols.
    """

    kernels: list[tuple[RenderedKernel, list[Any]]]
    bound: list[tuple[Role, Any, int]]
    varies: bool = False

    def bind(self, label: str, labels: Sequence[str], resources: Sequence[int | Allocation]) -> Group:
        """Return the kernels with resources in place of their places, and with the label of a step; ``labels`` are
        those of a ``ScheduledEntry``."""
        kernels = [
            (replace(kernel, label=text.replace(_LABEL, label) + kernel.label), [resources[place] for place in places])
            for (kernel, places), text in zip(self.kernels, itertools.cycle(labels), strict=False)
        ]
        return Group(kernels, [(role, resources[place], end) for role, place, end in self.bound])

    def placed(self, memory: MemoryLayout, owned: Mapping[Any, Allocation], operator: str) -> Iterator[RenderedKernel]:
        """Yield the kernels with their allocations where a layout has them.

        Args:
            memory: The layout.
            owned: Persistent allocations that stand for inputs.
            operator: Name of the graph.
        """
        for kernel, indices in self.kernels:
            slots = []
            for slot, place in zip(kernel.slots, indices, strict=True):
                role, index = slot.role, place
                if role is Role.INPUT and place in owned:
                    role, index = Role.PERSISTENT, owned[place]
                if isinstance(index, Allocation):
                    arena = memory.temporary if role is Role.TEMPORARY else memory.persistent
                    slots.append(Slot(role, 0, arena.offsets[index] + slot.offset, slot.size, slot.is_continued))
                else:
                    slots.append(Slot(role, index, slot.offset, slot.size, slot.is_continued))
            label = f"{operator} {kernel.label}"
            yield replace(kernel, label=label, slots=tuple(slots), varies=self.varies)


KnownSteps: TypeAlias = "dict[Hashable, tuple[int, list[tuple[ScheduledEntry, Group]]]]"
"""Allocations and kernels of scheduled steps, by step and numbers."""


class StepRecordings:
    """The schedules and kernels of all steps that were recorded for a target. Not thread-safe.

    Args:
        target: The compile target.
    """

    def __init__(self, target: Target):
        self._target = target
        self._schedules: Cache[Hashable, list[Replay]] = Cache(CacheLimits(MAX_KEYS, MAX_RECORDED))
        self._kernels: Cache[Hashable, list[Replay]] = Cache(CacheLimits(MAX_KEYS, MAX_RECORDED))

    def groups(
        self, step: Abstract, is_initial: bool, values: Sequence[Any], known: KnownSteps
    ) -> tuple[list[Group], list[Group]]:
        """Return the kernels of a step of a plan: those that are executed, and those of the initialization.

        Args:
            step: The step.
            is_initial: Whether all are of the initialization.
            values: Its numbers.
            known: Steps of the same program, some of which differ in labels and resources alone.

        Raises:
            NotSupported: If the adapter lacks what the step needs.
        """
        key = step.key, is_initial, tuple(values)
        if key not in known:
            known[key] = self._scheduled(step, is_initial, values)
        allocations, scheduled = known[key]
        label = step.step.label
        resources: list[int | Allocation] = [index for _, index in step.resources]
        resources += [Allocation(label) for _ in range(allocations)]
        groups: tuple[list[Group], list[Group]] = [], []
        for entry, kernels in scheduled:
            bound = [resources[place] for place in entry.resources]
            groups[entry.is_once].append(kernels.bind(label, entry.labels, bound))
        return groups

    def _scheduled(
        self, step: Abstract, is_initial: bool, values: Sequence[Any]
    ) -> tuple[int, list[tuple[ScheduledEntry, Group]]]:
        """Return the allocations of a step, and its scheduled steps with their kernels."""
        allocations, entries = _replayed(
            self._schedules, (step.key, is_initial), values, lambda: _schedule(step, is_initial, values, self._target)
        )
        scheduled = []
        for entry in entries:
            target = self._target.general if entry.is_once else self._target
            key = entry.step.key, entry.is_once
            record = functools.partial(_kernels, entry.step, entry.numbers, target)
            scheduled.append((entry, _replayed(self._kernels, key, entry.numbers, record)))
        return allocations, scheduled


def _replayed(
    cache: Cache[Hashable, list[Replay]], key: Hashable, values: Sequence[Any], record: Callable[[], Replay]
) -> Any:
    """Return what a replay of a key returns for values, recorded if the guards of no replay hold."""
    replays = cache.get(key) or []
    for index, known in enumerate(replays):
        result = known(values)
        if result is not None:
            replays.insert(0, replays.pop(index))
            return result
    replays.insert(0, record())
    del replays[MAX_VARIANTS:]
    cache.put(key, replays, len(replays))
    return replays[0](values)
