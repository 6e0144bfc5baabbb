"""One function on its way to a graph: its calls of operators become nodes, its tensors what nodes read and write."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, TensorDesc, span
from dmlgpu.common.errors import InvalidArgument, InvalidDescription, InvalidState, NotSupported
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.execution import OperatorCall
from dmlgpu.tensors.graphs.expression import Expression
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.graphs.location import caller as line_of_caller
from dmlgpu.tensors.graphs.location import in_package
from dmlgpu.tensors.layout import Sizes
from dmlgpu.tensors.recording import RecordedMemory, Recorder
from dmlgpu.tensors.session import KEEPING, Place
from dmlgpu.tensors.strided import Strided, behind_binding
from dmlgpu.tensors.tensor import Tensor

_CALLS = {
    "__init__": "Tensor(x)",
    "__bool__": "a truth value such as `if x`",
    "__int__": "int(x)",
    "__float__": "float(x)",
    "__index__": "an index",
    "__array__": "np.asarray(x)",
    "__dlpack__": "x.__dlpack__()",
    "__reduce__": "a copy by pickle",
    "__getitem__": "x[mask]",
}
"""What asks for elements, by the method that Python calls."""


class TracedMemory(RecordedMemory):
    """Stands for the buffer of an argument, or of what an operator computes.

    Attributes:
        expression: the graph's name for it.
        leaf: the number of the argument; None for what is computed.
    """

    def __init__(self, device: Device, expression: Expression, leaf: int | None = None):
        super().__init__(device)
        self.expression, self.leaf = expression, leaf


class Trace(Recorder):
    """A function that is being traced.

    Args:
        name: the function's, for messages.
        device: where it runs.

    Attributes:
        graph: what it becomes.
        feeds: what is bound to each input of the graph: an argument, by number, or a tensor from outside.
        keeping: what operators write whose outputs must be zeros before (``session.KEEPING``).
    """

    def __init__(self, name: str, device: Device):
        self.name, self.graph = name, Graph(device, name)
        self.feeds: list[int | Strided] = []
        self.keeping: list[Expression] = []
        self._outside: dict[Any, TracedMemory] = {}  # by identity of buffers, which `feeds` keeps alive
        self._slices: dict[Any, tuple[Expression, Tensor]] = {}
        self._numbers: dict[Any, Expression] = {}
        self._foreign: list[tuple[Strided, Any]] = []

    # ---- tensors ----------------------------------------------------------------------------------------------------

    def argument(self, leaf: int, tensor: Tensor, path: str) -> Tensor:
        """Return what stands for an argument."""
        found = tensor._moved(self._input(leaf, tensor, path), behind_binding(tensor) - tensor.offset)
        self.watch([found])
        return found

    def _input(self, feed: int | Strided, tensor: Strided, path: str | None = None) -> TracedMemory:
        """Add an input of the graph, for what is bound where a tensor begins or up to 15 bytes before."""
        self.feeds.append(feed)
        before = behind_binding(tensor)
        if before or not tensor.size:
            desc = TensorDesc(tensor.data_type, (max(1, before + span(tensor.sizes, tensor.strides)),))
        else:
            desc = TensorDesc(*tensor.signature)
        expression = self.graph.input(desc, name=path)
        return TracedMemory(self.graph.device, expression, feed if isinstance(feed, int) else None)

    def resolved(self, given: Strided) -> tuple[Strided, TracedMemory]:
        """Return a tensor of the function as one of the graph, and where it lies: what comes from outside becomes an
        input.

        Raises:
            InvalidState: it was made while another function was traced.
        """
        memory: Any = given.buffer
        if isinstance(memory, TracedMemory):
            if memory.expression.graph is not self.graph:
                raise InvalidState(
                    f"{self.name}: a Tensor, {given.data_type.name} {list(given.sizes)}, was made while another call "
                    f"was traced, and has no elements ({line_of_caller()})"
                )
            return given, memory
        self.watch([given])
        key = id(memory), given.offset, given.signature
        found = self._outside.get(key)
        if found is None:
            found = self._outside[key] = self._input(given, given)
        return given._moved(found, behind_binding(given) - given.offset), found

    def operand(self, caller: str, given: Strided) -> tuple[Expression, Strided]:
        """Return what a node reads for a tensor, and a tensor that lies as it reads it: a view that begins behind the
        first element is a SLICE1, which the compiler makes part of the node.

        Raises:
            InvalidArgument: such a view has 8 dimensions, or elements of 4 bits.
        """
        given, memory = self.resolved(given)
        if given.offset:
            key = id(memory), given.offset, given.signature
            found = self._slices.get(key)
            if found is None:
                found = self._slices[key] = self._sliced(caller, given, memory.expression)
            return found
        return memory.expression, given

    def _sliced(self, caller: str, given: Strided, source: Expression) -> tuple[Expression, Tensor]:
        sizes, strides = given.sizes or (1,), given.strides or (1,)
        if given.data_type.bits < 8 or len(sizes) == MAX_DIMENSIONS:
            raise InvalidArgument(
                f"{caller}: a view of {'4-bit integers' if given.data_type.bits < 8 else '8 dimensions'} must begin "
                f"where its memory does while `{self.name}` is traced, got one that begins at element {given.offset}"
            )
        desc = descs.Slice1(
            input_tensor=TensorDesc(given.data_type, (2, *sizes), (given.offset, *strides)),
            output_tensor=TensorDesc(given.data_type, (1, *sizes)),
            input_window_offsets=(1, *(0 for _ in sizes)),
            input_window_sizes=(1, *sizes),
            input_window_strides=(1,) * (len(sizes) + 1),
        )
        (expression,) = self.graph.append(_fitted(desc, [source]), [source])
        assert expression is not None
        return expression, self._tensor(expression, given.data_type, given.sizes)

    def _tensor(self, expression: Expression, data_type: DataType, sizes: Sizes) -> Tensor:
        """Return what a node computes as a tensor."""
        memory: Any = TracedMemory(self.graph.device, expression)
        return Tensor._packed(memory, data_type, sizes)

    def number(self, value: int | float, data_type: DataType) -> Expression:
        """Return a number as a constant of the graph."""
        key = data_type, value.hex() if isinstance(value, float) else value
        found = self._numbers.get(key)
        if found is None:
            with np.errstate(over="ignore"):
                data = np.array([value], data_type.numpy)
            found = self._numbers[key] = self.graph.constant(data, data_type)
        return found

    # ---- operators --------------------------------------------------------------------------------------------------

    def call(self, caller: str, kind: type[OperatorDesc], values: Mapping[str, Any], device: Any) -> OperatorCall:
        found = _RecordedCall(self, caller, kind, values, device)
        if found.device is not self.graph.device:
            raise InvalidArgument(
                f"{caller}: the device must be that of `{self.name}`, '{self.graph.device.adapter}', while it is "
                f"traced, got another, '{found.device.adapter}'"
            )
        return found

    def record(
        self, call: OperatorCall, types: Mapping[str, Any], sizes: Mapping[str, Any], absent: Sequence[str]
    ) -> tuple[Sequence[Any], Sequence[TensorDesc | None]]:
        desc = _fitted(call.described(types, sizes, absent), call.places)
        try:
            self.graph.device.create_operator(desc)
            outputs = self.graph.append(desc, call.places)
        except (InvalidDescription, NotSupported) as error:
            raise call.in_words(error) from error
        if desc.operator in KEEPING:
            self.keeping += [output for output in outputs if output is not None]
        memories = [None if output is None else TracedMemory(self.graph.device, output) for output in outputs]
        return memories, [slot.tensor for slot in desc.outputs]

    def restore(self) -> InvalidArgument | None:
        """Give tensors that the function did not make, and assigned to, the memory back that they had; return what to
        raise where there is one."""
        changed = [(tensor, memory) for tensor, memory in self._foreign if tensor.buffer is not memory]
        for tensor, memory in changed:
            tensor.buffer = memory
        if not changed:
            return None
        tensor, _ = changed[0]
        return InvalidArgument(
            f"{self.name}: a Tensor that the function did not make, {tensor.data_type.name} {list(tensor.sizes)}, must "
            "not be assigned to, since that would happen once, when it is traced; x.copy() makes another"
        )

    def watch(self, tensors: Sequence[Strided]) -> None:
        """Take note of tensors that the function must not assign to."""
        self._foreign += [(tensor, tensor.buffer) for tensor in tensors]

    def refuse_reading(self) -> NoReturn:
        frame = sys._getframe(1)
        asked = frame.f_code.co_name
        while frame.f_back is not None and in_package(frame):
            asked, frame = frame.f_code.co_name, frame.f_back
        raise InvalidState(
            f"{self.name}: {_CALLS.get(asked, f'x.{asked}()')} must not ask for the elements of a Tensor while the "
            f"function is traced, since they are not computed yet ({line_of_caller()}, in {frame.f_code.co_name})"
        )


class _RecordedCall(OperatorCall):
    """A call of an operator whose operands are expressions."""

    def __init__(self, trace: Trace, *given: Any):
        self._trace = trace
        super().__init__(*given)

    def _bind_number(self, value: int | float, data_type: DataType) -> None:
        self.places.append(self._trace.number(value, data_type))

    def _bind(self, given: Strided) -> Strided:
        expression, lies = self._trace.operand(self._caller, given)
        self.places.append(expression)
        return lies


def place(tensor: Strided) -> Place:
    """Return where a tensor is bound."""
    return tensor.buffer._memory, (tensor.offset - behind_binding(tensor)) * tensor.data_type.bits // 8


def _fitted(desc: OperatorDesc, fed: Sequence[Expression | None]) -> OperatorDesc:
    """Return a description whose inputs take all the bytes of what feeds them, as edges of graphs must."""
    places = iter(fed)

    def sized(given: Any) -> Any:
        if isinstance(given, tuple):
            return tuple(map(sized, given))
        source = next(places)
        if given is None or source is None or given.byte_size == source.desc.byte_size:
            return given
        return dataclasses.replace(given, total_tensor_size_in_bytes=source.desc.byte_size)

    return desc.replace(**{field: sized(getattr(desc, field)) for field in desc.input_fields})
