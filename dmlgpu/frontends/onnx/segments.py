"""What a translation yields and a run repeats: compiled graphs between slots, and what is read between them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.builder.expression import Expression
from dmlgpu.builder.graph import Graph
from dmlgpu.device.binding import BufferArrayBinding
from dmlgpu.device.buffer import Buffer
from dmlgpu.device.device import Device
from dmlgpu.device.operator import CompiledOperator
from dmlgpu.eager.session import session_of
from dmlgpu.eager.tensor import Tensor
from dmlgpu.enums import DataType
from dmlgpu.frontends.onnx.elements import as_held
from dmlgpu.frontends.onnx.values import Recipe, Shape
from dmlgpu.tensor import TensorDesc

Array = NDArray[Any]
Held: TypeAlias = "Tensor | Array"
Outcome: TypeAlias = Hashable


@dataclass(eq=False)
class Fed:
    """An input of a run: its shape and type, and where it is."""

    shape: Shape
    data_type: DataType
    is_bool: bool
    held: Held

    @property
    def signature(self) -> tuple[Shape, DataType, bool]:
        """What the translation depends on."""
        return self.shape, self.data_type, self.is_bool


class Weights:
    """The model's constants on a device, each uploaded once and shared by all that is compiled of the model."""

    def __init__(self, device: Device):
        self._device = device
        self._arrays: dict[int, tuple[Array, DataType]] = {}
        self._buffers: dict[int, Buffer] = {}

    def number_of(self, array: Array, data_type: DataType) -> int:
        """Return the number under which an array is known from now on."""
        self._arrays.setdefault(id(array), (array, data_type))
        return id(array)

    def buffer(self, number: int) -> Buffer:
        """Return the buffer that holds an array, uploaded if it was not yet.

        Raises:
            OutOfMemory: the device has no room.
        """
        found = self._buffers.get(number)
        if found is None:
            array, data_type = self._arrays[number]
            raw = TensorDesc(data_type, array.shape or (1,)).encode(as_held(array, data_type).reshape(array.shape or 1))
            found = self._device.create_buffer(raw.size, "weight")
            found.write(raw)
            self._buffers[number] = found
        return found


class Slots:
    """The tensors of one run, by number: arrays as they were given, on the device when a segment first reads them.

    Attributes:
        late: what recipes of values have computed in this run.
    """

    def __init__(self, device: Device, given: Sequence[Held]):
        self.device = device
        self.late: dict[Hashable, Any] = {}
        self._held: dict[int, Held] = dict(enumerate(given))

    def put(self, number: int, held: Held) -> None:
        """Fill a slot."""
        self._held[number] = held

    def held(self, number: int) -> Held:
        """Return what a slot holds, wherever it is."""
        return self._held[number]

    def tensor(self, number: int) -> Tensor:
        """Return what a slot holds on the device, packed and from the beginning of its memory."""
        held = self._held[number]
        if not isinstance(held, Tensor):
            held = Tensor(held.astype(np.uint8) if held.dtype == np.bool_ else held, device=self.device)
        elif held.signature[2] is not None or held.offset:
            held = held.copy()
        self._held[number] = held
        return held

    def array(self, number: int) -> Array:
        """Return what a slot holds on the host; the device's work is waited for."""
        held = self._held[number]
        return held.numpy() if isinstance(held, Tensor) else held


@dataclass(eq=False)
class Segment:
    """A graph that computes slots from slots and weights; compiled when it first runs.

    Attributes:
        graph: what is compiled.
        outputs: its outputs; behind them come those that operators require and nothing reads.
        feeds: per input of the graph the slot that feeds it, None for a weight.
        weights: per input of the graph the weight's number, None for a slot.
        fills: the slot of each of ``outputs``.
        store: where weights are.
    """

    graph: Graph
    outputs: list[Expression]
    feeds: list[int | None]
    weights: list[int | None]
    fills: list[int]
    store: Weights
    _compiled: CompiledOperator | None = field(default=None, repr=False)
    _persistent: Buffer | None = field(default=None, repr=False)

    @property
    def compiled(self) -> CompiledOperator:
        """The compiled graph, initialised.

        Raises:
            DmlError: as ``Graph.compile``.
        """
        if self._compiled is None:
            unread = self.graph._unread(self.outputs)
            self._compiled = self.graph.compile([*self.outputs, *unread])
            self._initialize(self._compiled)
        return self._compiled

    def _initialize(self, compiled: CompiledOperator) -> None:
        device, size = compiled.device, compiled.binding_properties.persistent_resource_size
        self._persistent = device.create_buffer(size, "persistent resource") if size else None
        initializer = device.create_operator_initializer([compiled])
        table = device.create_binding_table(initializer)
        owned = [
            self.store.buffer(number) if port.owned and number is not None else None
            for port, number in zip(compiled.inputs, self.weights, strict=True)
        ]
        table.bind_inputs([BufferArrayBinding(owned)])
        table.bind_outputs([self._persistent])
        commands = device.create_command_list()
        device.create_command_recorder().record_dispatch(commands, initializer, table)
        commands.close()
        device.queue.execute([commands])

    def run(self, slots: Slots) -> None:
        """Compute the segment's slots."""
        compiled = self.compiled
        device, pool = compiled.device, session_of(compiled.device).pool
        sources = [
            slots.tensor(slot) if slot is not None and port.desc is not None else None
            for port, slot in zip(compiled.inputs, self.feeds, strict=True)
        ]
        targets = [
            pool.take(device, port.desc.byte_size, port.label) for port in compiled.outputs if port.desc is not None
        ]
        scratch = compiled.binding_properties.temporary_resource_size
        temporary = pool.take(device, scratch, "temporary resource") if scratch else None
        table = device.create_binding_table(compiled)
        table.bind_inputs([None if one is None else one.buffer for one in sources])
        table.bind_outputs(targets)
        table.bind_temporary_resource(temporary)
        table.bind_persistent_resource(self._persistent)
        commands = device.create_command_list()
        device.create_command_recorder().record_dispatch(commands, compiled, table)
        commands.close()
        device.queue.execute([commands])
        for slot, output, target in zip(self.fills, self.outputs, targets, strict=False):
            slots.put(slot, Tensor._packed(target, output.data_type, output.sizes))


class Action(Protocol):
    """What happens between two segments, and decides how the translation goes on."""

    def run(self, slots: Slots) -> Outcome:
        """Do it, and return what the translation must know; equal outcomes lead to the same segments."""


@dataclass(frozen=True)
class Read:
    """Elements that shapes depend on."""

    recipe: Recipe

    def run(self, slots: Slots) -> Outcome:
        """Return the elements' bytes."""
        return self.recipe(slots).tobytes()


@dataclass(frozen=True)
class Decide:
    """What a function makes of elements, where shapes depend on that."""

    recipes: list[Recipe]
    function: Callable[..., Hashable]

    def run(self, slots: Slots) -> Outcome:
        """Return it."""
        return self.function(*(one(slots) for one in self.recipes))


@dataclass(frozen=True)
class Go:
    """Nothing is read: the translation goes on with values in slots."""

    def run(self, slots: Slots) -> Outcome:
        """Return nothing."""
        return None


@dataclass(frozen=True)
class Fill:
    """Elements that every run makes anew: the beginning of a stream of random numbers."""

    slot: int
    make: Callable[[], Array]

    def run(self, slots: Slots) -> Outcome:
        """Put them into the slot."""
        slots.put(self.slot, self.make())
        return None


@dataclass(eq=False)
class Output:
    """An output: a slot, an array that the sizes of inputs and the model decide, or how the host makes it."""

    name: str
    shape: Shape
    data_type: DataType
    is_bool: bool
    slot: int | None = None
    array: Array | None = None
    recipe: Recipe | None = None

    def take(self, slots: Slots) -> Held:
        """Return the output of a run: a tensor of its shape, or an array."""
        if self.recipe is not None:
            return self.recipe(slots)
        if self.slot is None:
            assert self.array is not None
            return self.array
        held = slots.held(self.slot)
        return held if held.shape == self.shape else held.reshape(self.shape)


@dataclass(eq=False)
class Part:
    """One stretch of a run: a segment, then what decides how to go on, or the model's outputs.

    Attributes:
        segment: what is computed first; None for nothing.
        action: what decides how it goes on; None at the end.
        outputs: the model's outputs, at the end.
    """

    segment: Segment | None
    action: Action | None = None
    outputs: tuple[Output, ...] = ()
