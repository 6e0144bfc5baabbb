"""Programs of networks that differ in sizes alone: one is compiled on symbols, and the others follow from it.

``Structure`` separates the integers of a network from all else. The second network of a structure is compiled with
symbols in place of the integers that differ from those of the first. The result is a ``Pattern``: the program with
expressions, and guards. A network for which the guards hold has the program that ``compile_network`` returns for it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common import symbols
from dmlgpu.common.symbols import Recording, Replay
from dmlgpu.compiler.graph.compiler import all_constants, plan_network, schedule_named
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.plan import Allocation, PlanBinding, Role, Step
from dmlgpu.compiler.program import Copy, Program
from dmlgpu.compiler.schedule.memory import Use, memory_layout
from dmlgpu.compiler.schedule.scheduling import bytes_of, check_count, copy_of_owned
from dmlgpu.compiler.schedule.steps.base import AnyScheduled, ScheduledSteps
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.render import Texts, UnplacedKernel, kernels_of
from dmlgpu.compiler.wgsl.sharing import share_known
from dmlgpu.compiler.wgsl.spreading import Part

MOST_VARIANTS = 8
"""Variants of a step that are kept."""


@dataclass(frozen=True)
class Structure:
    """A network apart from its integers.

    Attributes:
        kind: All but integers and layouts; networks of one kind have as many integers.
        packed: Of each tensor, whether its description omits strides.
    """

    kind: Hashable
    packed: tuple[bool, ...]


def structure_of(network: Network) -> tuple[Structure, list[int]]:
    """Return the structure of a network, and its integers: sizes, strides, bytes, attributes."""
    kind: list[Hashable] = [network.name, network.initial, network.outputs]
    kind += [hashlib.sha256(data).digest() for data in network.constants]
    packed: list[bool] = []
    integers: list[int] = []

    def flatten(value: Any) -> None:
        cls = type(value)
        if cls is int:
            kind.append(int)
            integers.append(value)
        elif cls is TensorDesc:
            kind.extend((value.data_type, value.flags, len(value.sizes)))
            packed.append(value.strides is None)
            integers.extend(value.sizes)
            integers.extend(value.element_strides)
            integers.append(value.byte_size)
            integers.append(value.guaranteed_base_offset_alignment)
        elif cls is tuple:
            kind.append(len(value))
            for item in value:
                flatten(item)
        elif cls is float:
            kind.append(value.hex())
        elif fields := _fields(cls):
            kind.append(cls)
            values = value.__dict__
            for field in fields:
                flatten(values[field])
        else:
            kind.append((cls, value))

    for tensor in (*network.inputs, *network.output_tensors):
        flatten(tensor)
    for node in network.nodes:
        kind.append((node.name, node.inputs))
        flatten(node.desc)
    return Structure(tuple(kind), tuple(packed)), integers


@functools.cache  # bounded by the classes of descriptions
def _fields(cls: Any) -> tuple[str, ...]:
    """Return the fields of a class of descriptions or of parts of them; none for other classes."""
    if issubclass(cls, OperatorDesc):
        return cls.field_names
    return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else ()


class _Rebuilding:
    """Networks with other integers, in the order of ``structure_of``."""

    def __init__(self, integers: Sequence[Any]):
        self._integers = iter(integers)

    def network(self, network: Network) -> Network:
        inputs = tuple(map(self.of, network.inputs))
        outputs = tuple(map(self.of, network.output_tensors))
        nodes = tuple(replace(node, desc=self.of(node.desc)) for node in network.nodes)
        return replace(network, inputs=inputs, output_tensors=outputs, nodes=nodes)

    def of(self, value: Any) -> Any:
        cls = type(value)
        if cls is int:
            return next(self._integers)
        if cls is tuple:
            return tuple(map(self.of, value))
        if cls is TensorDesc:
            sizes = tuple(next(self._integers) for _ in value.sizes)
            strides = tuple(next(self._integers) for _ in value.sizes)
            return _created(
                cls,
                data_type=value.data_type,
                sizes=sizes,
                strides=None if value.strides is None else strides,
                flags=value.flags,
                total_tensor_size_in_bytes=next(self._integers),
                guaranteed_base_offset_alignment=next(self._integers),
            )
        if names := _fields(cls):
            return _created(cls, **{name: self.of(value.__dict__[name]) for name in names})
        return value


def _created(cls: Any, **values: Any) -> Any:
    """Return an object of a class without checks."""
    instance = object.__new__(cls)
    instance.__dict__.update(values)
    return instance


@dataclass(frozen=True)
class _Variant:
    """The kernels of a step for the sizes for which its guards hold, with expressions for numbers.

    Attributes:
        replay: Computes the numbers.
        executed, initial: Its scheduled steps: of each, the kernels and the bytes that they bind.
    """

    replay: Replay
    executed: tuple[_Group, ...]
    initial: tuple[_Group, ...]


@dataclass(frozen=True)
class _Group:
    """The kernels of a scheduled step.

    Attributes:
        kernels: In order.
        bound: The resources that they bind, and up to which byte.
    """

    kernels: tuple[UnplacedKernel, ...]
    bound: tuple[tuple[PlanBinding, int], ...]

    def with_numbers(self, change: Callable[[Any], Any]) -> _Group:
        """Return the kernels with other numbers."""
        kernels = tuple(_with_numbers(kernel, change) for kernel in self.kernels)
        return _Group(kernels, tuple((binding, change(end)) for binding, end in self.bound))


def _with_numbers(kernel: UnplacedKernel, change: Callable[[Any], Any]) -> UnplacedKernel:
    slots = tuple(
        (binding, Part(change(part.offset), change(part.size), part.is_continued)) for binding, part in kernel.slots
    )
    x, y, z = kernel.grid
    copy = kernel.copy
    if copy is not None:
        origin, target, size = map(change, (copy.source_offset, copy.destination_offset, copy.size))
        copy = Copy(copy.source, origin, copy.destination, target, size)
    grid = change(x), change(y), change(z)
    return UnplacedKernel(kernel.label, kernel.wgsl, slots, grid, tuple(map(change, kernel.parameters)), copy)


class Pattern:
    """Compiles networks that differ in the values of symbols alone. Not thread-safe.

    Args:
        network: A network with symbolic numbers.
        recording: Of these.
        target: The compile target.
        disabled: Names of disabled passes.

    Raises:
        NotSupported: If the adapter lacks what a node needs.
    """

    def __init__(self, network: Network, recording: Recording, target: Target, disabled: Collection[str]):
        self._target, self._recording = target, recording
        with recording.section():
            network, _, plan, _, _ = plan_network(network, target, disabled)
            owned = (
                (number, desc) for number, desc in enumerate(network.inputs) if desc is not None and desc.owned_by_dml
            )
            self._owned = {number: int(desc.byte_size) for number, desc in owned}
            self._guards = recording.replay(())
            self.guards = dict(recording.guards)
        self._operator, self._constants = plan.operator, all_constants(network)
        self._steps = [(step, True) for step in plan.initialization] + [(step, False) for step in plan.steps]
        self._variants: list[list[_Variant]] = [[] for _ in self._steps]
        self._copies: dict[int, tuple[Allocation, tuple[_Group, ...]]] = {}

    def program(self, values: Sequence[int]) -> Program | None:
        """Return the program for values of the symbols; None if the plan is another for these.

        Raises:
            NotSupported: If the adapter lacks what a step needs.
        """
        if self._guards(values) is None:
            return None
        is_based = False
        executed: list[_Group] = []
        initial: list[_Group] = []
        for number, variants in enumerate(self._variants):
            for variant in variants:
                numbers = variant.replay(values)
                if numbers is not None:
                    break
            else:
                if not is_based:
                    self._recording.rebase(values)
                    is_based = True
                variant = self._recorded(*self._steps[number])
                del variants[MOST_VARIANTS - 1 :]
                variants.insert(0, variant)
                numbers = variant.replay(values)
                assert numbers is not None
            following = iter(numbers)
            executed += [group.with_numbers(lambda _: next(following)) for group in variant.executed]  # noqa: B023
            initial += [group.with_numbers(lambda _: next(following)) for group in variant.initial]  # noqa: B023
        return self._assembled(executed, initial)

    def _recorded(self, step: Step, is_initial: bool) -> _Variant:
        """Schedule and render a step for the present values of the symbols."""
        with self._recording.section() as recording:
            steps = schedule_named(step, self._target)
            if is_initial:
                steps = steps.as_initialization
            return self._rendered(steps, recording)

    def _rendered(self, steps: ScheduledSteps, recording: Recording) -> _Variant:
        texts = Texts(self._target, self._target.moves_doubles)
        general = Texts(self._target.general, self._target.moves_doubles)
        executed = tuple(self._group(step, texts) for step in steps.steps)
        initial = tuple(self._group(step, general) for step in steps.initialization)
        numbers: list[Any] = []

        def collect(number: Any) -> Any:
            numbers.append(number)
            return number

        for group in (*executed, *initial):
            group.with_numbers(collect)
        return _Variant(recording.replay(numbers), executed, initial)

    def _group(self, step: AnyScheduled, texts: Texts) -> _Group:
        kernels = kernels_of(step, self._operator, texts)
        named = tuple(replace(kernel, label=symbols.settled(kernel.label)) for kernel in kernels)
        return _Group(named, tuple(bytes_of(step)))

    def _assembled(self, executed: list[_Group], initial: list[_Group]) -> Program:
        """Return the program of scheduled steps: inputs that the device owns are read from the persistent resource, and
        allocations get their places."""
        read = {binding.index for group in executed for binding, _ in group.bound if binding.role is Role.INPUT}
        moved: dict[PlanBinding, Allocation] = {}
        for number, size in self._owned.items():
            if number in read:
                place, groups = self._copy_of(number, size)
                moved[number] = place
                initial += groups
        if moved:
            executed = [_with_bindings(group, moved) for group in executed]
        check_count(sum(len(group.kernels) for group in (*executed, *initial)))
        uses = _uses(executed), _uses(initial)
        memory = memory_layout(uses[0][Role.TEMPORARY], uses[1][Role.PERSISTENT], uses[0][Role.PERSISTENT])
        program = Program(
            self._operator,
            tuple(kernel.placed(memory) for group in executed for kernel in group.kernels),
            tuple(kernel.placed(memory) for group in initial for kernel in group.kernels),
            memory.temporary.size,
            memory.persistent.size,
            self._target.has("immediates"),
            self._constants,
            memory.least_temporary_size,
        )
        return share_known(program)

    def _copy_of(self, number: int, size: int) -> tuple[Allocation, tuple[_Group, ...]]:
        """Return a place for an input that the device owns, and the kernels that copy it there."""
        if number not in self._copies:
            place, steps = copy_of_owned(number, size, self._target)
            texts = Texts(self._target.general, self._target.moves_doubles)
            groups = (self._group(step, texts) for step in steps.as_initialization.initialization)
            self._copies[number] = place, tuple(groups)
        return self._copies[number]


def _with_bindings(group: _Group, places: Mapping[Any, Allocation]) -> _Group:
    """Return kernels that read some inputs from allocations of the persistent resource."""

    def moved(binding: PlanBinding) -> PlanBinding:
        place = places.get(binding.index) if binding.role is Role.INPUT else None
        return binding if place is None else PlanBinding(Role.PERSISTENT, place, binding.offset)

    kernels = tuple(
        replace(kernel, slots=tuple((moved(binding), part) for binding, part in kernel.slots))
        for kernel in group.kernels
    )
    return _Group(kernels, tuple((moved(binding), end) for binding, end in group.bound))


def _uses(groups: Sequence[_Group]) -> dict[Role, list[Use]]:
    """Return the uses of allocations in each resource, in order."""
    uses: dict[Role, list[Use]] = {Role.TEMPORARY: [], Role.PERSISTENT: []}
    for number, group in enumerate(groups):
        for binding, end in group.bound:
            if isinstance(binding.index, Allocation):
                uses[binding.role].append(Use(number, binding.index, end))
    return uses


def symbolic(network: Network, classes: Sequence[int], traces: bool = False) -> tuple[Network, Recording]:
    """Return a network with symbols in place of integers, and their recording.

    Args:
        network: The network.
        classes: Of each integer of ``structure_of``, the number of its symbol; -1 for those that stay.
        traces: Whether to keep the line of each guard.
    """
    _, integers = structure_of(network)
    recording = Recording(symbol_values(integers, classes), traces)
    numbers = [
        integer if number < 0 else recording.symbols[number]
        for integer, number in zip(integers, classes, strict=True)
    ]
    return _Rebuilding(numbers).network(network), recording


def symbol_values(integers: Sequence[int], classes: Sequence[int]) -> list[int]:
    """Return the value of each symbol."""
    values = {number: integer for integer, number in zip(integers, classes, strict=True) if number >= 0}
    return [values[number] for number in range(len(values))]
