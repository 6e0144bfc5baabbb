"""What the objects of a device should hold: its buffers' bytes, and what recorded work will do to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import reference
from dmlgpu.catalog.operator_desc import TensorSlot
from dmlgpu.catalog.tensor_desc import TensorDesc


@dataclass(eq=False)
class Shadow:
    """An object of dmlgpu's, and the device that it belongs to.

    Attributes:
        label: as messages name it.
        real: the object itself.
        device: the device's shadow; None for a device.
    """

    label: str
    real: Any
    device: DeviceShadow | None = None

    def __repr__(self) -> str:
        return self.label


@dataclass(eq=False, repr=False)
class DeviceShadow(Shadow):
    """A device.

    Attributes:
        has_budget: whether its memory may be used up.
        buffers: its buffers.
    """

    has_budget: bool = False
    buffers: list[BufferShadow] = field(default_factory=list)

    def forget(self) -> None:
        """Forget the known contents of the memory."""
        for buffer in self.buffers:
            buffer.forget(0, buffer.content.size)


@dataclass(eq=False, repr=False)
class BufferShadow(Shadow):
    """A buffer.

    Attributes:
        content: its bytes.
        known: which of them are known.
        version: grows with each change.
    """

    content: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    known: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    version: int = 0

    def put(self, offset: int, data: NDArray[np.uint8], known: Any = True) -> None:
        """Bytes are written."""
        self.content[offset : offset + data.size] = data
        self.known[offset : offset + data.size] = known
        self.version += 1

    def forget(self, offset: int, size: int) -> None:
        """Bytes are written that are not known."""
        self.known[offset : offset + size] = False
        self.version += 1

    def differs(self, offset: int, got: NDArray[np.uint8]) -> int | None:
        """The first byte that is known, and is not as a read found it."""
        span = slice(offset, offset + got.size)
        wrong = self.known[span] & (self.content[span] != got)
        return offset + int(wrong.argmax()) if wrong.any() else None


@dataclass(eq=False, repr=False)
class ReadbackShadow(Shadow):
    """Bytes on their way out of a buffer.

    Attributes:
        buffer: the buffer's shadow as it was when they set off.
        offset: of the first of them.
    """

    buffer: BufferShadow = field(default_factory=lambda: BufferShadow("", None))
    offset: int = 0


@dataclass(frozen=True)
class Place:
    """A range of a buffer, as it is bound."""

    buffer: BufferShadow
    offset: int = 0

    def bytes(self, tensor: TensorDesc) -> NDArray[np.uint8] | None:
        """Return a tensor's bytes; None unless all are known."""
        span = slice(self.offset, self.offset + tensor.byte_size)
        return self.buffer.content[span].copy() if self.buffer.known[span].all() else None


@dataclass(eq=False, repr=False)
class OperatorShadow(Shadow):
    """A compiled operator.

    Attributes:
        desc: its description.
        volatile: whether bindings are read when a list is executed.
        owned: the bytes of each owned input when it was initialized, None if they are unknown.
        persistent: where these are kept, and the version of that buffer then.
        destination: where they were to be kept, when an initializer was bound last.
        properties: what it needs bound.
    """

    desc: Any = None
    volatile: bool = False
    owned: dict[int, NDArray[np.uint8] | None] = field(default_factory=dict)
    persistent: tuple[Place, int] | None = None
    destination: Place | None = None
    properties: Any = None

    def __post_init__(self) -> None:
        self.properties = self.real.binding_properties


@dataclass(eq=False, repr=False)
class InitializerShadow(Shadow):
    """An initializer and its operators."""

    operators: tuple[OperatorShadow, ...] = ()


@dataclass(eq=False)
class Bound:
    """What a table binds; a reset makes a new one.

    Attributes:
        target: compile target.
        operators: an initializer's when the table was made.
        inputs, outputs, temporary, persistent: the places; an initializer's inputs are several for each operator.
    """

    target: OperatorShadow | InitializerShadow | None = None
    operators: tuple[OperatorShadow, ...] = ()
    inputs: Sequence[Any] = ()
    outputs: Sequence[Place | None] = ()
    temporary: Place | None = None
    persistent: Place | None = None

    @classmethod
    def to(cls, target: OperatorShadow | InitializerShadow | None) -> Bound:
        """Nothing, for a target."""
        return cls(target, target.operators if isinstance(target, InitializerShadow) else ())

    def copy(self) -> Bound:
        """As it is now."""
        return replace(self)


@dataclass(eq=False, repr=False)
class TableShadow(Shadow):
    """A binding table."""

    bound: Bound = field(default_factory=Bound)


@dataclass(frozen=True)
class Copied:
    """A recorded copy."""

    source: Place
    destination: Place
    size: int

    def run(self) -> None:
        """Do it."""
        span = slice(self.source.offset, self.source.offset + self.size)
        data, known = self.source.buffer.content[span].copy(), self.source.buffer.known[span].copy()
        self.destination.buffer.put(self.destination.offset, data, known)


@dataclass(frozen=True)
class Dispatched:
    """A recorded dispatch; ``bound`` may still change where the operator is volatile."""

    bound: Bound

    def run(self) -> None:
        """Do it by the reference."""
        target = self.bound.target
        if isinstance(target, OperatorShadow):
            self._execute(target)
            return
        for index, operator in enumerate(self.bound.operators):
            places = self.bound.inputs[index] if self.bound.inputs else None
            output = self.bound.outputs[index] if self.bound.outputs else None
            self._initialize(operator, places, output)

    def _initialize(self, operator: OperatorShadow, places: Any, output: Place | None) -> None:
        for index, slot in enumerate(operator.desc.inputs):
            if slot.tensor is not None and slot.tensor.owned_by_dml:
                operator.owned[index] = None if places is None else places[index].bytes(slot.tensor)
        size = operator.properties.persistent_resource_size
        if output is not None and size:
            output.buffer.forget(output.offset, size)
            operator.persistent = (output, output.buffer.version)

    def _execute(self, target: OperatorShadow) -> None:
        arrays = [self._input(target, index, slot) for index, slot in enumerate(target.desc.inputs)]
        if self.bound.temporary is not None:
            size = target.properties.temporary_resource_size
            self.bound.temporary.buffer.forget(self.bound.temporary.offset, size)
        required = [slot for slot in target.desc.inputs if slot.tensor is not None]
        if sum(array is not None for array in arrays) < len(required):
            for slot, place in zip(target.desc.outputs, self.bound.outputs, strict=True):
                if slot.tensor is not None and place is not None:
                    place.buffer.forget(place.offset, slot.tensor.byte_size)
            return
        results = reference.evaluate(target.desc, arrays)
        for slot, place, result in zip(target.desc.outputs, self.bound.outputs, results, strict=True):
            if slot.tensor is not None and place is not None:
                place.buffer.put(place.offset, slot.tensor.encode(result))

    def _input(self, target: OperatorShadow, index: int, slot: TensorSlot) -> NDArray[Any] | None:
        if slot.tensor is None:
            return None
        if slot.tensor.owned_by_dml:
            persistent = target.persistent
            raw = target.owned.get(index) if persistent and persistent[0].buffer.version == persistent[1] else None
        else:
            place = self.bound.inputs[index]
            raw = None if place is None else place.bytes(slot.tensor)
        return None if raw is None else slot.tensor.decode(raw)


@dataclass(eq=False, repr=False)
class ListShadow(Shadow):
    """A command list and what is recorded in it."""

    work: list[Copied | Dispatched] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class FenceShadow(Shadow):
    """A fence, and the value that it was signaled last."""

    last: int = 0
