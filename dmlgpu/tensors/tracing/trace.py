"""Tracing of one function to a graph, the traced result, and the nested structures of tensors among arguments and
results."""

from __future__ import annotations

import copy
import dataclasses
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc, span
from dmlgpu.common.errors import (
    DmlError,
    InvalidArgument,
    InvalidDescription,
    InvalidState,
    NotSupported,
    cause_of,
    shown,
)
from dmlgpu.compiler.sizes.arithmetic import Size, current, hint_of, is_symbolic
from dmlgpu.runtime.device import Device, other_device
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.tensors.execution import OperatorCall
from dmlgpu.tensors.graphs.graph import Graph, NodeCall
from dmlgpu.tensors.graphs.nodes import unread
from dmlgpu.tensors.memory import NodeMemory, Origin, Recorder, current_caller, in_package, recorder
from dmlgpu.tensors.memory import caller as line_of_caller
from dmlgpu.tensors.recorded_call import Place, RecordedCall, refuse_repetition
from dmlgpu.tensors.session import LEAVES_OUTPUT_UNTOUCHED, session_of
from dmlgpu.tensors.strided import TensorBase, behind_binding
from dmlgpu.tensors.tensor import Tensor

_CALLS = {
    "__init__": "Tensor(x)",
    "__bool__": "a condition such as `if x`",
    "__int__": "int(x)",
    "__float__": "float(x)",
    "__index__": "an index",
    "__array__": "np.asarray(x)",
    "__dlpack__": "x.__dlpack__()",
    "__reduce__": "a copy by pickle",
    "__getitem__": "x[mask]",
}
"""Expressions that read elements, by the method that Python calls."""

_CONDITION_CURE = "ops.where(condition, a, b) chooses between tensors, dmlgpu.cond between functions"
"""End of error messages about conditions on elements."""


class CallSource(ABC):
    """A source of new values at every call of a traced function, such as a random number generator."""

    @abstractmethod
    def next_value(self, count: int, device: Device) -> Tensor:
        """Return the value for a call that consumes ``count`` numbers or blocks of the source."""


@dataclass(frozen=True)
class CallFeed:
    """An input of the graph whose value comes from a source at each call, which consumes ``count`` of its numbers."""

    source: CallSource
    count: int


@dataclass(frozen=True)
class SizeFeed:
    """An input of a graph with symbolic sizes: a number that depends on these, which an operator reads."""

    number: Any
    data_type: DataType


@dataclass(frozen=True)
class ArgumentCheck:
    """A check of integers of an argument, made at each call that passes them as an array.

    Attributes:
        argument: The argument, by number.
        low, high: The permitted range.
        check: Raises if integers are not in the range.
    """

    argument: int
    low: int
    high: int
    check: Callable[[NDArray[Any], int, int], None]


class Leaf:
    """A dataclass that tracing does not flatten: a stand-in for a tensor or a size."""


@dataclass(frozen=True)
class CallSize(Leaf):
    """An integer argument of a traced function that may vary like the sizes of tensors."""

    value: int


class Trace(Graph):
    """A function that is being traced: a graph whose tensors follow NumPy's rules.

    Args:
        name: the function's, for messages.
        device: where it runs.

    Attributes:
        feeds: what is bound to each input of the graph: an argument, by index, a tensor from outside, what a source
            gives at each call, or a number that depends on sizes.
        keeping: outputs that must be zeroed before operators write them (``session.LEAVES_OUTPUT_UNTOUCHED``).
        checks: checks of array arguments, made at each call.
    """

    is_traced = True
    name: str

    def __init__(self, name: str, device: Device):
        super().__init__(device, name, rules="numpy")
        self.feeds: list[int | TensorBase | CallFeed | SizeFeed] = []
        self.keeping: list[Tensor] = []
        self.checks: list[ArgumentCheck] = []
        self._stand_ins: dict[int, Tensor] = {}  # for the arguments, by number
        self._outside: dict[Any, NodeMemory] = {}  # by identity of buffers, which `feeds` keeps alive
        self._slices: dict[Any, TensorBase] = {}
        self._numbers: dict[Any, Tensor] = {}
        self._foreign: list[tuple[TensorBase, Any]] = []

    # ---- tensors ----------------------------------------------------------------------------------------------------

    def argument(self, index: int, tensor: Tensor, path: str, is_weight: bool = False) -> Tensor:
        """Return the stand-in for an argument; a weight is read once, when the graph is initialized."""
        memory = self._input(index, tensor, path, is_weight)
        stand_in = tensor._moved(memory, behind_binding(tensor) - tensor.offset)
        self.watch([stand_in])
        self._stand_ins[index] = stand_in
        return stand_in

    def _input(
        self, feed: int | TensorBase, tensor: TensorBase, path: str | None = None, owned: bool = False
    ) -> NodeMemory:
        """Add an input of the graph, for a binding that begins at a tensor's start or up to 15 bytes before it."""
        self.feeds.append(feed)
        before = behind_binding(tensor)
        if before or not tensor.size:
            desc = TensorDesc(tensor.data_type, (max(1, before + span(tensor.sizes, tensor.strides)),))
        else:
            desc = TensorDesc(*tensor.signature)
        node = self.input(desc, name=path, owned=owned)
        return NodeMemory(self, node.origin, node.buffer.desc, feed if isinstance(feed, int) else None)

    def _check_at_calls(self, tensor: Any, low: int, high: int, check: Callable[[Any, int, int], None]) -> None:
        index = tensor.buffer.argument
        stand_in = None if index is None else self._stand_ins[index]
        is_packed = tensor.signature[2] is None
        if stand_in is not None and is_packed and (tensor.offset, tensor.size) == (stand_in.offset, stand_in.size):
            self.checks.append(ArgumentCheck(index, low, high, check))

    def _call_input(
        self, source: CallSource, count: int, data_type: DataType, sizes: tuple[int, ...], device: Device
    ) -> Tensor:
        """Return a traced tensor for the value of a source at each call.

        Raises:
            InvalidArgument: If the device is not that of the function.
        """
        if device is not self.device:
            self._reject_device(current_caller.get() or self.name, device)
        self.feeds.append(CallFeed(source, count))
        desc = TensorDesc(data_type, sizes)
        return Tensor._of_node(NodeMemory(self, self.input(desc).origin, desc))

    def resolved(self, label: str, tensor: TensorBase) -> TensorBase:
        """Return a tensor of the function as one of the graph: a captured tensor becomes an input.

        Raises:
            InvalidState: If it was created while another function was traced.
            InvalidArgument: If it is on another device.
        """
        memory = tensor.buffer
        if isinstance(memory, NodeMemory):
            if memory.graph is not self:
                raise InvalidState(
                    f"{self.name}: a Tensor, {tensor.data_type.name} {list(tensor.sizes)}, was made while another call "
                    f"was traced, and has no elements ({line_of_caller()})"
                )
            return tensor
        if memory.device is not self.device:
            self._reject_device(label, memory.device)
        self.watch([tensor])
        key = id(memory), _keyed((tensor.offset, tensor.signature))
        outside = self._outside.get(key)
        if outside is None:
            outside = self._outside[key] = self._input(tensor, tensor)
        return tensor._moved(outside, behind_binding(tensor) - tensor.offset)

    def _reject_device(self, label: str, device: Device) -> NoReturn:
        raise InvalidArgument(
            f"{label}: the device must be that of `{self.name}`, '{self.device.adapter}', while it is traced, got "
            f"{other_device(self.device, device)}"
        )

    def _describe_foreign(self, tensor: TensorBase, is_first: bool) -> str | None:
        if isinstance(tensor.buffer, NodeMemory) or is_first or tensor.device is self.device:
            return None
        return (
            f"must be on the device of the other operands, '{self.device.adapter}', got one on "
            f"{other_device(self.device, tensor.device)}; x.to(device) copies it"
        )

    def _operand_of(self, label: str, tensor: TensorBase) -> TensorBase:
        tensor = self.resolved(label, tensor)
        if not tensor.offset:
            return tensor
        key = tensor.origin, _keyed((tensor.offset, tensor.signature))
        if key not in self._slices:
            self._slices[key] = self._sliced(label, tensor)
        return self._slices[key]

    def _number(self, value: int | float, data_type: DataType) -> Tensor:
        if is_symbolic(value):
            if current() is value.recording:
                return self._size_input(value, data_type)
            value = hint_of(value)
        key = data_type, value.hex() if isinstance(value, float) else value
        if key not in self._numbers:
            self._numbers[key] = super()._number(value, data_type)
        return self._numbers[key]

    def _size_input(self, number: Size, data_type: DataType) -> Tensor:
        """Return an input for a number that depends on sizes."""
        key = data_type, number.node, None
        if key not in self._numbers:
            self.feeds.append(SizeFeed(number, data_type))
            desc = TensorDesc(data_type, (1,))
            self._numbers[key] = Tensor._of_node(NodeMemory(self, self.input(desc).origin, desc))
        return self._numbers[key]

    # ---- operators --------------------------------------------------------------------------------------------------

    def _append(self, call: NodeCall, desc: OperatorDesc, name: str | None) -> tuple[Tensor | None, ...]:
        try:
            if current() is None:
                self.device.create_operator(desc)
            outputs = super()._append(call, desc, name)
        except (InvalidDescription, NotSupported) as error:
            raise call.in_words(error) from cause_of(error)
        if desc.operator in LEAVES_OUTPUT_UNTOUCHED:
            self.keeping += [output for output in outputs if output is not None]
        return outputs

    def _in_words(self, call: OperatorCall, error: DmlError) -> DmlError:
        return OperatorCall.in_words(call, error)

    def _at(self) -> str:
        return ""

    def restore(self) -> InvalidArgument | None:
        """Restore the memory of captured tensors that the function assigned to, and return an exception or None."""
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

    def watch(self, tensors: Sequence[TensorBase]) -> None:
        """Register tensors that the function must not assign to."""
        self._foreign += [(tensor, tensor.buffer) for tensor in tensors]

    def _reject_reading(self) -> NoReturn:
        reject_reading(self, self.name)


def reject_reading(trace: Recorder, name: str) -> NoReturn:
    """Raise InvalidState with the expression that reads elements before they are computed."""
    if recorder() is not trace:
        raise InvalidState(
            "Tensor: it was made while a function was traced, and has no elements; a compiled function must return "
            "what is used outside"
        )
    frame = sys._getframe(1)
    method = frame.f_code.co_name
    while frame.f_back is not None and in_package(frame):
        method, frame = frame.f_code.co_name, frame.f_back
    function = current_caller.get()
    call = _CALLS.get(method) or (f"x.{method}()" if function is None else f"{function}(x)")
    cure = _CONDITION_CURE if method == "__bool__" else "read them outside of the function"
    raise InvalidState(
        f"{name}: {call} must not read the elements of a Tensor while the function is traced, since they are not "
        f"computed yet ({line_of_caller()}, in {frame.f_code.co_name}); {cure}"
    )


def _keyed(value: Any) -> Any:
    """Return a value as part of a key; symbolic numbers by their nodes, since hashing them would add guards."""
    if type(value) is tuple:
        return tuple(map(_keyed, value))
    return (Size, value.node) if is_symbolic(value) else value


def place(tensor: TensorBase) -> Place:
    """Return the location at which a tensor is bound."""
    return tensor.buffer._memory, (tensor.offset - behind_binding(tensor)) * tensor.data_type.bits // 8


_PLAIN = (int, bool, str, bytes, type(None))
"""Types whose equal values are interchangeable in every function."""

_RESULTS = (int, float, complex, str, bytes, type(None), np.generic)
"""Types that a function may return in addition to tensors and arrays."""


def form_of(leaf: Any) -> Any:
    """Return sizes, dtype and layout of a tensor or array, or the value of a size."""
    if isinstance(leaf, CallSize):
        return CallSize, leaf.value
    if isinstance(leaf, np.ndarray):
        return np.ndarray, leaf.dtype, leaf.shape
    return leaf.sizes, leaf.signature, leaf.dtype, behind_binding(leaf)


def flatten(
    caller: str, path: str, value: Any, leaves: list[tuple[str, Any]], describe: Callable[[Any], Any] = form_of
) -> Any:
    """Append tensors, arrays and sizes of an argument with their paths to ``leaves``, and return a hashable key of the
    other values that tracing depends on, with ``describe`` of each leaf.

    Raises:
        InvalidArgument: a value that cannot be hashed; names caller and ``path``.
        InvalidState: a tensor is released.
    """
    if isinstance(value, TensorBase):
        if value.buffer.released:
            raise InvalidState(f"{caller}: {path}, {value.data_type.name} {list(value.sizes)}, is released")
        leaves.append((path, value))
        return (
            (value.sizes, value.signature, value.dtype, behind_binding(value)) if describe is None else describe(value)
        )
    if isinstance(value, np.ndarray | CallSize):
        leaves.append((path, value))
        return describe(value)
    kind = type(value)
    if kind is list or kind is tuple or (isinstance(value, tuple) and hasattr(value, "_fields")):
        parts = [flatten(caller, f"{path}[{index}]", part, leaves, describe) for index, part in enumerate(value)]
        return kind, *parts
    if isinstance(value, dict):
        return kind, *[
            (type(key), key, flatten(caller, f"{path}[{shown(key)}]", part, leaves, describe))
            for key, part in value.items()
        ]
    if _is_structure(kind):
        return kind, *[
            flatten(caller, f"{path}.{name}", getattr(value, name), leaves, describe) for name in _fields(kind)
        ]
    return kind, _distinct(caller, path, value)


def _is_structure(kind: type[Any]) -> bool:
    return dataclasses.is_dataclass(kind) and not issubclass(kind, Leaf)


def _fields(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _distinct(caller: str, path: str, value: Any) -> Any:
    """Return a key that two values of one type share only if they are interchangeable in every function."""
    if type(value) in _PLAIN:
        return value
    if type(value) is float:
        return value.hex()
    if isinstance(value, np.generic | complex):
        return np.asarray(value).tobytes()
    try:
        hash(value)
    except Exception:  # whatever a foreign __hash__ raises
        raise InvalidArgument(
            f"{caller}: {path} must be a Tensor, an array, a tuple, list, dict or dataclass of such, or a value that "
            f"can be hashed, got {shown(value, typed=True)}"
        ) from None
    return value


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a structure of the same kind with ``change`` applied to its leaves: all values but tuples, lists, dicts
    and dataclasses."""
    kind = type(value)
    if kind is list or kind is tuple:
        return kind([mapped(part, change) for part in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*[mapped(part, change) for part in value])
    if isinstance(value, dict):
        copied = copy.copy(value)  # of its type, such as OrderedDict
        copied.update({key: mapped(part, change) for key, part in value.items()})
        return copied
    if _is_structure(kind):
        result = copy.copy(value)
        for name in _fields(kind):
            object.__setattr__(result, name, mapped(getattr(value, name), change))  # also of frozen ones
        return result
    return change(value)


def check_result(caller: str, value: Any) -> None:
    """Reject a result that is not a tensor, array, number, string or None, because later calls could not create it.

    Raises:
        InvalidArgument: names the function.
    """
    if not isinstance(value, (TensorBase, np.ndarray, *_RESULTS)):
        raise InvalidArgument(
            f"{caller}: results must be Tensors, arrays, numbers, strings or None, in tuples, lists, dicts and "
            f"dataclasses, got {shown(value, typed=True)}"
        )


@dataclass(frozen=True)
class GraphResult(Leaf):
    """A result that is a tensor of the trace: a view of an output of the graph or of an argument, by index."""

    tensor: Tensor
    index: int
    is_argument: bool


@dataclass(frozen=True, eq=False)
class TracedFunction:
    """A function, traced and compiled.

    Attributes:
        name: the function's, for messages.
        graph: the compiled graph.
        outputs: the graph's outputs.
        operator: the graph, compiled; None where no operator is called.
        call: the same, initialized.
        feeds: what is bound to each input of the graph, as of ``Trace``, numbers that depend on sizes excepted.
        checks: as of ``Trace``.
        arguments: stand-ins for the arguments.
        result: result of the function, with ``GraphResult`` in place of tensors.
        watched: the tensors of the function's variables, which must be the same for this to hold.
        is_sized: whether it follows from a recorded trace, which ``graph`` and ``outputs`` are of.
    """

    name: str
    graph: Graph
    outputs: tuple[Tensor, ...]
    operator: CompiledOperator | None
    call: RecordedCall | None
    feeds: tuple[int | TensorBase | CallFeed, ...]
    checks: tuple[ArgumentCheck, ...]
    arguments: tuple[Tensor, ...]
    result: Any
    watched: tuple[Any, ...] = field(repr=False)
    is_sized: bool = False

    def run(self, leaves: Sequence[tuple[str, Any]]) -> Any:
        """Run the graph on the tensors and arrays among the arguments, given with their paths, and return the results.

        Raises:
            InvalidIndex: indices of an array are out of range.
            InvalidState: a tensor from outside is released.
            OutOfMemory: no room for arguments or results; names the function.
        """
        device, name = self.graph.device, self.name
        for check in self.checks:
            leaf = leaves[check.argument][1]
            if isinstance(leaf, np.ndarray):
                check.check(leaf, check.low, check.high)
        is_host = bool(leaves) and not any(isinstance(leaf, Tensor) for _, leaf in leaves)
        arguments = [as_tensor(name, path, leaf, device) for path, leaf in leaves]
        buffers: Sequence[Any] = ()
        if self.operator is not None and self.call is not None:
            bound = [
                None if port.owned else self._bound(feed, arguments)
                for port, feed in zip(self.operator.inputs, self.feeds, strict=True)
            ]
            for tensor in bound:
                if tensor is not None and tensor.buffer.released:
                    raise InvalidState(
                        f"{name}: a Tensor from outside, {tensor.data_type.name} {list(tensor.sizes)}, is released"
                    )
            places = [None if tensor is None else place(tensor) for tensor in bound]
            if any(isinstance(feed, CallFeed) for feed in self.feeds):
                refuse_repetition()
            buffers = self.call.run(session_of(device), device, places, name, owners=bound)
        results: dict[int, Any] = {}

        def result(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return value.copy()
            if not isinstance(value, GraphResult):
                return value.numpy() if is_host and isinstance(value, Tensor) else value
            output = results.get(id(value.tensor))
            if output is None:
                output = self._seen(value, arguments, buffers)
                output = results[id(value.tensor)] = output.numpy() if is_host else output
            return output

        return mapped(self.result, result)

    def _bound(self, feed: int | TensorBase | CallFeed, arguments: Sequence[Tensor]) -> TensorBase:
        """Return the tensor that an input of the graph reads in this call."""
        if isinstance(feed, CallFeed):
            return feed.source.next_value(feed.count, self.graph.device)
        return arguments[feed] if isinstance(feed, int) else feed

    def _seen(self, value: GraphResult, arguments: Sequence[Tensor], buffers: Sequence[Any]) -> Tensor:
        """Return a result as a view of the memory that a call wrote or was passed."""
        if not value.is_argument:
            return value.tensor._moved(buffers[value.index], 0)
        argument = arguments[value.index]
        stood_for = self.arguments[value.index]
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


def results_of(trace: Trace, result: Any) -> tuple[Any, list[Tensor]]:
    """Return a function's result with ``GraphResult`` in place of tensors, and the outputs of its graph.

    Raises:
        InvalidArgument: a result is not a tensor, array, number, string, None or structure of them.
        InvalidState: it returned a tensor of another trace.
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
            return GraphResult(value, memory.argument, True)
        return GraphResult(value, number_of(Tensor._of_node(memory)), False)

    structure = mapped(result, seen)
    for tensor in trace.keeping:
        number_of(tensor)
    if outputs:
        forgotten = unread(trace.nodes, list(numbers))
        outputs += [Tensor._of_node(NodeMemory(trace, origin, desc)) for origin, desc in forgotten]
    return structure, outputs


def prepare(trace: Trace, operator: CompiledOperator, weights: Mapping[int, Tensor]) -> RecordedCall:
    """Initialize a compiled trace with the arguments that are weights, by index."""
    owned = [
        place(weights[feed]) if port.owned and isinstance(feed, int) else None
        for port, feed in zip(operator.inputs, trace.feeds, strict=True)
    ]
    return session_of(trace.device).prepare(operator, bool(trace.keeping), owned, is_graph=True)


def finish(
    trace: Trace, arguments: Sequence[Tensor], result: Any, watched: Sequence[Any], weights: Mapping[int, Tensor]
) -> TracedFunction:
    """Compile the operators that a function called, with its results as outputs, and initialize the graph with the
    arguments that are weights, by index.

    Raises:
        InvalidArgument, InvalidState: as ``results_of``.
        NotSupported: the adapter lacks a feature that an operator needs; the message names the function.
    """
    structure, outputs = results_of(trace, result)
    operator = call = None
    if outputs:
        try:
            operator = trace.compile(outputs)
        except NotSupported as error:
            raise type(error).__new__(type(error), f"{trace.name}: {error}") from error
        call = prepare(trace, operator, weights)
    return TracedFunction(
        trace.name,
        trace,
        tuple(outputs),
        operator,
        call,
        tuple([feed for feed in trace.feeds if not isinstance(feed, SizeFeed)]),
        tuple(trace.checks),
        tuple(arguments),
        structure,
        tuple(watched),
    )
