"""Repeat operators of the table without calling their functions.

The first call of an operator with arguments of some dtypes, shapes, strides and numbers records which of DirectML's
operators its function executes, on which memory. The plan repeats these on the memory of later arguments. It does not
hold for functions that read elements or draw random numbers, and is not made for results that are not new memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.torch import adapters, storage
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.session import EagerSession, Prepared, StepInput, executed
from dmlgpu.tensors.tensor import Tensor

_MAX_CONSTANTS = 1 << 20  # bytes
_PLAIN = frozenset({int, bool, str, type(None), torch.dtype, torch.layout, torch.memory_format, torch.device})


function_ids = itertools.count()
"""Ids of operators and graphs, for the keys of plans."""


class CallArguments:
    """The arguments of a call.

    Attributes:
        key: Facts that the plan depends on; None if no plan is possible.
        tensors: Tensors of the device, in order.
        index: Index of their device; None if there are no tensors.
    """

    __slots__ = ("_function_id", "_places", "index", "key", "tensors")

    def __init__(self, function_id: int, args: Sequence[Any], kwargs: dict[str, Any]):
        self._function_id = function_id
        self.tensors: list[torch.Tensor] = []
        self._places: dict[int, int] = {}  # of tensors, by the identity of their storages
        self.index: int | None = None
        self.key = self._key(args, kwargs)

    def followed_by(self, args: Sequence[Any]) -> CallArguments:
        """Return these arguments followed by others. The key contains only the function id of these."""
        both = CallArguments.__new__(CallArguments)
        both._function_id, both.index = self._function_id, self.index
        both.tensors, both._places = self.tensors.copy(), self._places.copy()
        both.key = both._key(args, {}) if self.key is not None or not self.tensors else None
        return both

    def _key(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """Record arguments, and return the facts that the plan depends on."""
        parts: list[Any] = [self._function_id, torch.get_default_dtype()]
        for value in args:
            if not self._add(parts, value):
                return None
        for name, value in kwargs.items():
            parts.append(name)
            if not self._add(parts, value):
                return None
        return None if self.index is None else tuple(parts)

    def _add(self, parts: list[Any], value: Any) -> bool:
        """Add the facts that the plan depends on; return False for an argument of another kind."""
        kind = type(value)
        if kind in _PLAIN:
            parts += (kind, value)
        elif kind is float:
            parts.append(repr(value))
        elif isinstance(value, torch.Tensor):
            return self._add_tensor(parts, value)
        elif kind is list or kind is tuple:
            parts.append(len(value))
            return all(self._add(parts, item) for item in value)
        else:
            return False
        return True

    def _add_tensor(self, parts: list[Any], x: torch.Tensor) -> bool:
        device = x.device
        if device.type != adapters.NAME:
            if device.type != "cpu" or x.dim():
                return False
            number = x.item()
            first = self.tensors[0] if self.tensors else None
            parts += (x.dtype, None if first is None else torch.result_type(first, x), type(number), repr(number))
            return True
        if self.index is None:
            self.index = device.index
        elif self.index != device.index:
            return False
        offset = x.storage_offset()
        parts += (x.dtype, x.shape, x.stride(), offset * x.element_size() % 16 if offset else 0)
        place = self._places.setdefault(id(x.untyped_storage()), len(self.tensors))
        if place < len(self.tensors):
            other = self.tensors[place]
            parts += (place, offset * x.element_size() - other.storage_offset() * other.element_size())
        self.tensors.append(x)
        return True


class _PlanInput(NamedTuple):
    """Location of an input: in a tensor of the arguments, an output of an earlier step, or a constant."""

    tensor: int | None
    output: int | None
    constant: Any
    offset: int


class _PlanStep(NamedTuple):
    prepared: Prepared
    inputs: tuple[_PlanInput | None, ...]


class _PlanOutput(NamedTuple):
    output: int
    data_type: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int | None
    boolean: bool


class CallPlan:
    """The steps that an operator executes for one kind of arguments."""

    def __init__(
        self,
        session: EagerSession,
        steps: Sequence[_PlanStep],
        results: Sequence[_PlanOutput | None],
        is_tuple: bool,
        owners: Sequence[Any],
    ):
        self._results, self._is_tuple, self._owners = results, is_tuple, owners
        self.memory = sum(step.prepared.memory for step in steps)
        self._inputs: list[_PlanInput] = []  # inputs of the steps, except outputs of earlier ones
        self._only = steps[0].prepared if len(steps) == 1 else None
        sequence = [(step.prepared, [self._source(place) for place in step.inputs]) for step in steps]
        if self._only is not None:
            self._places = [None if source is None else source.offset for source in sequence[0][1]]
            self._outputs = list(range(sum(desc is not None for desc in self._only.outputs)))
        else:
            self._outputs = sorted({result.output for result in results if result is not None})
            self._sequence = session.sequence(sequence, self._outputs)

    def _source(self, place: _PlanInput | None) -> StepInput | None:
        """Return the source of an input of a step."""
        if place is None:
            return None
        if place.output is not None:
            return StepInput(place.output, place.offset)
        self._inputs.append(place)
        return StepInput(None, len(self._inputs) - 1)

    @classmethod
    def of(
        cls, session: EagerSession, log: Sequence[Any], tensors: Sequence[torch.Tensor], result: Any
    ) -> CallPlan | None:
        """Return the plan of a recording, or None if it cannot be repeated."""
        if not log or None in log:
            return None
        outputs: dict[int, int] = {}
        starts: dict[int, tuple[int, int]] = {}
        for index, x in enumerate(tensors):
            starts.setdefault(id(storage.memory_of(x).buffer._memory), (index, _first_byte(x)))
        steps, owners, constants = list[_PlanStep](), list[Any](), 0
        for prepared, places, owned, buffers in log:
            inputs: list[_PlanInput | None] = []
            for place, desc in zip(places, prepared.inputs, strict=True):
                if place is None:
                    inputs.append(None)
                    continue
                memory, offset = place
                if id(memory) in outputs:
                    inputs.append(_PlanInput(None, outputs[id(memory)], None, offset))
                elif id(memory) in starts:
                    index, start = starts[id(memory)]
                    inputs.append(_PlanInput(index, None, None, offset - start))
                else:
                    inputs.append(_PlanInput(None, None, memory, offset))
                    owners += owned
                    constants += desc.byte_size
            for buffer in buffers:
                if buffer is not None and id(buffer._memory) in outputs:
                    return None  # memory of an earlier output, which was freed
                if buffer is not None:
                    outputs[id(buffer._memory)] = len(outputs)
            steps.append(_PlanStep(prepared, tuple(inputs)))
        parts = result if isinstance(result, tuple) else (result,)
        if constants > _MAX_CONSTANTS or not all(
            value is None or (isinstance(value, Tensor) and id(value.buffer._memory) in outputs) for value in parts
        ):
            return None
        results = [
            None
            if value is None
            else _PlanOutput(
                outputs[id(value.buffer._memory)],
                value.data_type,
                value.sizes,
                value.strides,
                value.offset if value.is_view and not _is_all(value) else None,
                value.is_boolean,
            )
            for value in parts
        ]
        return cls(session, steps, results, isinstance(result, tuple), owners)

    def run(self, device: Device, session: EagerSession, tensors: Sequence[torch.Tensor], label: str) -> Any:
        """Execute the steps on the memory of other arguments, and return the results."""
        places: list[Any] = []
        for index, _, constant, offset in self._inputs:
            if index is None:
                places.append((constant, offset))
                continue
            x = tensors[index]
            start = x.storage_offset()
            memory = storage.memory_of(x).buffer._memory
            places.append((memory, start * x.element_size() + offset if start else offset))
        outputs: Sequence[Any]
        if self._only is None:
            outputs = session.execute_all(device, self._sequence, places, label)
        else:
            inputs = [None if place is None else places[place] for place in self._places]
            outputs = [x for x in session.execute(device, self._only, inputs, label) if x is not None]
        buffers = dict(zip(self._outputs, outputs, strict=True))
        results: list[Tensor | None] = []
        for result in self._results:
            if result is None:
                results.append(None)
                continue
            tensor = Tensor.__new__(Tensor)
            tensor._set(
                buffers[result.output], result.data_type, result.sizes, result.strides, result.offset, result.boolean
            )
            results.append(tensor)
        return tuple(results) if self._is_tuple else results[0]


def _is_all(x: Tensor) -> bool:
    """Return whether a view covers most of its memory in order, so that it can own this memory."""
    size = x.size * x.data_type.bits // 8
    return not x.offset and x.signature[2] is None and x.buffer.size <= max(2 * size, 256)


def _first_byte(x: torch.Tensor) -> int:
    return int(x.storage_offset()) * x.element_size()


@contextmanager
def recording() -> Iterator[list[Any]]:
    """Record the steps that this thread executes inside the block."""
    log: list[Any] = []
    token = executed.set(log)
    try:
        yield log
    finally:
        executed.reset(token)
