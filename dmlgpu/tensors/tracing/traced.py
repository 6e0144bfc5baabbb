"""What a function became: a compiled graph, what is bound to it, and how its results are put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmlgpu.common.errors import InvalidArgument, InvalidState, NotSupported
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.graphs.nodes import unread
from dmlgpu.tensors.memory import NodeMemory, Origin
from dmlgpu.tensors.session import Prepared, session_of
from dmlgpu.tensors.strided import Strided
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tracing.structure import check_result, mapped
from dmlgpu.tensors.tracing.trace import Trace, place


@dataclass(frozen=True)
class _Computed:
    """A result: the tensor of the trace, seen in an output of the graph or an argument, by number."""

    tensor: Tensor
    number: int
    is_argument: bool


@dataclass(frozen=True, eq=False)
class Traced:
    """A function, traced and compiled.

    Attributes:
        name: the function's, for messages.
        graph: what it became.
        outputs: the graph's outputs.
        operator: the graph, compiled; None where no operator is called.
        prepared: the same, ready to be called.
        feeds: what is bound to each input of the graph: an argument, by number, or a tensor from outside.
        arguments: what stood for the arguments.
        result: what the function returned; ``_Computed`` in the places of tensors.
        watched: the tensors of the function's variables, which must be the same for this to hold.
    """

    name: str
    graph: Graph
    outputs: tuple[Tensor, ...]
    operator: CompiledOperator | None
    prepared: Prepared | None
    feeds: tuple[int | Strided, ...]
    arguments: tuple[Tensor, ...]
    result: Any
    watched: tuple[Any, ...] = field(repr=False)

    def run(self, leaves: Sequence[tuple[str, Any]]) -> Any:
        """Return the results for the tensors and arrays among the arguments, with the names of their places.

        Raises:
            InvalidState: a tensor from outside is released.
            OutOfMemory: no room for arguments or results; names the function.
        """
        device, name = self.graph.device, self.name
        is_host = bool(leaves) and not any(isinstance(leaf, Tensor) for _, leaf in leaves)
        given = [as_tensor(name, path, leaf, device) for path, leaf in leaves]
        buffers: Sequence[Any] = ()
        if self.prepared is not None:
            bound = [given[feed] if isinstance(feed, int) else feed for feed in self.feeds]
            for one in bound:
                if one.buffer.released:
                    raise InvalidState(
                        f"{name}: a Tensor from outside, {one.data_type.name} {list(one.sizes)}, is released"
                    )
            buffers = session_of(device).execute(device, self.prepared, list(map(place, bound)), name)
        made: dict[int, Any] = {}

        def result(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return value.copy()
            if not isinstance(value, _Computed):
                return value.numpy() if is_host and isinstance(value, Tensor) else value
            found = made.get(id(value.tensor))
            if found is None:
                found = self._seen(value, given, buffers)
                found = made[id(value.tensor)] = found.numpy() if is_host else found
            return found

        return mapped(self.result, result)

    def _seen(self, value: _Computed, given: Sequence[Tensor], buffers: Sequence[Any]) -> Tensor:
        """Return a result in the memory that a call wrote or was given."""
        if not value.is_argument:
            return value.tensor._moved(buffers[value.number], 0)
        argument = given[value.number]
        stood_for = self.arguments[value.number]
        if value.tensor is stood_for:
            return argument
        return value.tensor._moved(argument.buffer, argument.offset - stood_for.offset)


def as_tensor(caller: str, path: str, leaf: Any, device: Device) -> Tensor:
    """Return a tensor, or the copy of an array on a device.

    Raises:
        InvalidArgument: an array that is not one of numbers; names caller and place.
        OutOfMemory: the device has no room.
    """
    if isinstance(leaf, Tensor):
        return leaf
    try:
        return Tensor(leaf, device=device)
    except InvalidArgument as error:
        raise InvalidArgument(f"{caller}: {str(error).removeprefix('Tensor: ').replace('values', path, 1)}") from None


def finish(trace: Trace, arguments: Sequence[Tensor], result: Any, watched: Sequence[Any]) -> Traced:
    """Compile what a function did, to return what it returned.

    Raises:
        InvalidArgument: it returned something else than tensors, arrays, numbers, texts, None and structures of them.
        InvalidState: it returned a tensor of another trace.
        NotSupported: the adapter lacks what an operator needs; names the function.
    """
    numbers: dict[Origin, int] = {}
    outputs: list[Tensor] = []

    def number_of(tensor: Tensor) -> int:
        if tensor.origin not in numbers:
            numbers[tensor.origin] = len(outputs)
            outputs.append(tensor)
        return numbers[tensor.origin]

    def seen(value: Any) -> Any:
        check_result(trace.name, value)
        if not isinstance(value, Tensor) or not isinstance(value.buffer, NodeMemory):
            return value
        value._check_usable(f"{trace.name}: a result")
        memory = trace.resolved(trace.name, value).buffer
        if memory.argument is not None:
            return _Computed(value, memory.argument, True)
        return _Computed(value, number_of(Tensor._of_node(memory)), False)

    found = mapped(result, seen)
    operator = prepared = None
    for tensor in trace.keeping:
        number_of(tensor)
    if outputs:
        forgotten = unread(trace.nodes, list(numbers))
        outputs += [Tensor._of_node(NodeMemory(trace, origin, desc)) for origin, desc in forgotten]
        try:
            operator = trace.compile(outputs)
        except NotSupported as error:
            raise type(error).__new__(type(error), f"{trace.name}: {error}") from error
        prepared = session_of(trace.device).prepare(operator, bool(trace.keeping))
    return Traced(
        trace.name,
        trace,
        tuple(outputs),
        operator,
        prepared,
        tuple(trace.feeds),
        tuple(arguments),
        found,
        tuple(watched),
    )
