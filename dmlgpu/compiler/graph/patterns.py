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
from dmlgpu.common.symbols import Recording
from dmlgpu.compiler.graph.compiler import all_constants, plan_network
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.graph.step_patterns import Group, StepPatterns, abstract
from dmlgpu.compiler.plan import Allocation, Role
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.schedule.memory import Use, memory_layout
from dmlgpu.compiler.schedule.scheduling import check_count, copy_of_owned
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.sharing import share_known


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


class Pattern:
    """Compiles networks that differ in the values of symbols alone. Not thread-safe.

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
        with recording.section():
            network, _, plan, _, _ = plan_network(network, target, disabled)
            owned = (
                (number, desc) for number, desc in enumerate(network.inputs) if desc is not None and desc.owned_by_dml
            )
            self._owned = {number: int(desc.byte_size) for number, desc in owned}
            self._steps = [(abstract(step), True) for step in plan.initialization]
            self._steps += [(abstract(step), False) for step in plan.steps]
            self._replay = recording.replay([number for step, _ in self._steps for number in step.numbers])
            self.guards = dict(recording.guards)
        self._operator, self._constants = plan.operator, all_constants(network)
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
        for step, is_initial in self._steps:
            end = begin + len(step.numbers)
            groups = self._patterns.groups(step, is_initial, numbers[begin:end])
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
            copy = abstract(step)
            self._copies[number] = place, self._patterns.groups(copy, True, copy.numbers)[1]
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
