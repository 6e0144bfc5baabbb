"""Calls of functions of torch tensors, which are repeated without calling the functions.

The first call of a function with arguments of some dtypes, shapes, strides and numbers records which of DirectML's
operators it executes, on which memory. Later calls repeat these on the memory of their arguments. A call that draws
random numbers reads the states of its draws from a table, which is written for several draws at once. Functions that
read elements are called each time, and so are those whose results are not new memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isnan
from typing import Any, Literal, TypeAlias

import torch

from dmlgpu.common.errors import DeviceRemoved, DmlError, OutOfMemory
from dmlgpu.compiler.sizes.recordings import count_failure
from dmlgpu.frontends.torch import adapters
from dmlgpu.frontends.torch.complex_numbers import ComplexPairs
from dmlgpu.frontends.torch.dtypes import PARTS, data_type_of
from dmlgpu.frontends.torch.generators import DRAWING, counting_draws, take_states
from dmlgpu.frontends.torch.layouts import TorchLayout
from dmlgpu.frontends.torch.notice import notice
from dmlgpu.frontends.torch.storage import (
    Memory,
    NumberUploads,
    is_dense,
    layout_of,
    memory_in,
    take_buffer,
    torch_of,
    unowned,
)
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.recorded_call import CallResult, Place, RecordedCall, covers_memory, recording
from dmlgpu.tensors.session import EagerSession, session_of
from dmlgpu.tensors.tensor import Tensor

_MAX_FIXED = 1 << 20
"""Maximum bytes of constants that a recorded call keeps."""

_PLAIN = frozenset({int, bool, str, type(None), torch.dtype, torch.layout, torch.memory_format, torch.device})

_INTEGERS = {int}
"""Types of sizes, of axes and the like, which are the same if they are equal."""

function_ids = itertools.count()
"""Ids of operators and graphs, for the keys of calls."""


class CallArguments:
    """The arguments of a call.

    Args:
        function_id: Of the function.
        args, kwargs: The arguments.
        index: Index of the device on which the function makes a tensor; None for that of its arguments.

    Attributes:
        key: Function, layouts of tensors and other values; None for arguments of other kinds.
        index: Index of the device of the tensors; None if there are none.
        generator: The generator among the arguments, or None. The key does not name it.
    """

    __slots__ = ("_first", "_function_id", "_memories", "_order", "_starts", "generator", "index", "key")

    def __init__(self, function_id: int, args: Sequence[Any], kwargs: dict[str, Any], index: int | None = None):
        self._function_id = function_id
        self._memories: list[Memory] = []  # of each tensor of the device
        self._starts: list[int] = []  # the first byte of each in it
        self._order: dict[Memory, int] = {}  # the first tensor of each memory
        self._first: torch.Tensor | None = None
        self.index = index
        self.generator: torch.Generator | None = None
        self.key = self._key(args, kwargs)

    def followed_by(self, args: Sequence[Any]) -> CallArguments:
        """Return these arguments followed by others. The key contains only the function id of these."""
        both = CallArguments.__new__(CallArguments)
        both._function_id, both.index, both._first = self._function_id, self.index, self._first
        both.generator = self.generator
        both._memories, both._starts, both._order = self._memories.copy(), self._starts.copy(), self._order.copy()
        both.key = both._key(args, {}) if self.key is not None or not self._memories else None
        return both

    def _key(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """Record arguments, and return their part of the key."""
        parts: list[Any] = [self._function_id, torch.get_default_dtype()]
        if not self._add(parts, args):
            return None
        if kwargs:
            parts += kwargs
            if not self._add(parts, kwargs.values()):
                return None
        return None if self.index is None else tuple(parts)

    def _add(self, parts: list[Any], values: Iterable[Any]) -> bool:
        """Add arguments to the key; return False if one is of another kind."""
        for value in values:
            kind = type(value)
            if kind in _PLAIN:
                parts += (kind, value)
            elif isinstance(value, torch.Tensor):
                if not self._add_tensor(parts, value):
                    return False
            elif kind is float:
                parts += (kind, value) if value and not isnan(value) else (repr(value),)
            elif kind is list or kind is tuple:
                parts.append(len(value))
                if {*map(type, value)} == _INTEGERS:
                    parts += value
                elif not self._add(parts, value):
                    return False
            elif isinstance(value, torch.Generator):
                self.generator = value
                parts.append(torch.Generator)
            else:
                return False
        return True

    def _add_tensor(self, parts: list[Any], x: torch.Tensor) -> bool:
        source = x.untyped_storage()
        memory = getattr(source, "memory", None)
        if memory is None:
            if x.device.type != adapters.NAME:
                return self._add_number(parts, x)
            memory = memory_in(source)
        if x.is_conj() or x.is_neg():
            return False
        if memory.index != self.index:
            if self.index is not None:
                return False
            self.index, self._first = memory.index, x
        parts += (x.dtype, x.shape, x.stride())
        start, count = int(x.storage_offset()), len(self._starts)
        if start:
            start *= x.element_size()
            parts.append(-1 - start % 16)
        place = self._order.setdefault(memory, count)
        if place != count:
            parts += ("shared", place, start - self._starts[place])
        self._memories.append(memory)
        self._starts.append(start)
        return True

    def _add_number(self, parts: list[Any], x: torch.Tensor) -> bool:
        """Add a tensor of another device to the key; return False if it is not a number on the CPU."""
        if x.device.type != "cpu" or x.dim():
            return False
        number, first = x.item(), self._first
        parts += (x.dtype, None if first is None else torch.result_type(first, x), type(number), repr(number))
        return True

    @property
    def places(self) -> list[Place]:
        """Memory of the tensors, and their first bytes."""
        memories = [memory.buffer._memory for memory in self._memories]
        return list(zip(memories, self._starts, strict=True))


class ChangingNumbers:
    """What is known of the numbers of calls that differ only in these.

    Args:
        first: Those of the first call.

    Attributes:
        first: As passed.
        names: Names of the numbers that have changed.
    """

    def __init__(self, first: Mapping[str, float]):
        self.first, self.names = first, frozenset[str]()


class CallNumbers:
    """Numbers among the arguments of a call. Calls that differ only in these repeat one that reads them from memory.

    Args:
        key: Key of the call without its numbers; None for arguments that have no key.
        numbers: The numbers by name.
        uploads: Uploads numbers.
        compute: Calls the function on numbers with these names in memory, one in each row.
    """

    def __init__(
        self,
        key: tuple[Any, ...] | None,
        numbers: Mapping[str, float],
        uploads: NumberUploads,
        compute: Callable[[Sequence[str], torch.Tensor], tuple[Any, int]],
    ):
        self._key, self._numbers, self._uploads, self._compute = key, numbers, uploads, compute

    def call(self, session: EagerSession, arguments: CallArguments) -> NumberedCall | None:
        """Return a call for these numbers; None for the first ones, which compile as constants, and if a recording
        failed, which is counted.

        Args:
            session: Session of the device.
            arguments: Arguments of the call.
        """
        key, index, calls, numbers = self._key, arguments.index, session.calls, self._numbers
        if key is None or index is None:
            return None
        changing = calls.get(key)
        if changing is None:
            calls.put(key, ChangingNumbers(numbers), 0)
            return None
        changing.names |= {name for name, number in numbers.items() if repr(number) != repr(changing.first[name])}
        names = sorted(changing.names)
        if not names:  # the call with these numbers was evicted
            return None
        constants = [(name, repr(number)) for name, number in numbers.items() if name not in changing.names]
        key = *key, *names, *constants
        call: TorchCall | Literal[False] | None = calls.get(key)
        if call is False:
            return None
        rows = self._uploads.upload([numbers[name] for name in names], index)
        if call is None:
            numbered = arguments.followed_by((rows,))
            try:
                call, _, _ = _record(numbered, session, lambda: _owned_result(self._compute(names, rows)))
            except (OutOfMemory, DeviceRemoved):
                raise
            except DmlError as error:  # of functions that read a number, or pass it to a field of a description
                count_failure(error)
                call = False
            calls.put(key, call, call.memory if call else 0)
        return NumberedCall(call, rows) if call else None


class TorchCall:
    """A recorded call of a function of torch tensors.

    Args:
        recorded: The call.
        index: Index of its device.
        draws: Number of its draws of random numbers.

    Attributes:
        memory: Estimated bytes of its operators.
    """

    __slots__ = ("_draws", "_fits", "_index", "_recorded", "_results", "memory")

    def __init__(self, recorded: RecordedCall, index: int, draws: int):
        self._recorded, self._index, self._draws, self.memory = recorded, index, draws, recorded.memory
        self._fits: bool | None = None  # whether arguments that are written can take the results
        results = _results_of(recorded)
        tensors = [result for result in results if type(result) is CallResult]
        numbers = [result.output for result in tensors if result.output is not None]
        self._results: list[tuple[Any, int | None]] | None = None  # layouts of tensors with their outputs, and numbers
        if len(set(numbers)) == len(numbers) and all(map(_is_whole, tensors)):
            self._results = [
                (_layout_of(result, index), None if result.output is None else recorded.returned.index(result.output))
                if type(result) is CallResult
                else (result, None)
                for result in results
            ]

    def repeat(self, session: EagerSession, device: Device, arguments: CallArguments, label: str) -> Any:
        """Run the call on other memory, and return its results as tensors."""
        return self._run(self._recorded.repeat, session, device, arguments, label)

    def repeat_in_torch(self, session: EagerSession, device: Device, arguments: CallArguments, label: str) -> Any:
        """Run the call on other memory, and return its results as torch tensors."""
        recorded, results = self._recorded, self._results
        if results is None:
            return wrapped(self.repeat(session, device, arguments, label), self._index)
        buffers = self._run(recorded.run, session, device, arguments, label)
        values = [_new_result(layout, output, buffers) for layout, output in results]
        return tuple(values) if type(recorded.results) is tuple else values[0]

    def repeat_into(
        self,
        session: EagerSession,
        device: Device,
        arguments: CallArguments,
        label: str,
        targets: Sequence[torch.Tensor],
    ) -> tuple[torch.Tensor, ...] | None:
        """Run the call on other memory, and let the storages of tensors that cover them take the last results.

        Returns:
            The other results as torch tensors; None, without running it, if a result has another layout than its
            tensor.
        """
        if self._fits is None:
            self._fits = self._results is not None and all(
                map(_is_like, _results_of(self._recorded)[-len(targets) :], targets)
            )
        if not self._fits or self._results is None:
            return None
        buffers = self._run(self._recorded.run, session, device, arguments, label)
        for target, (_, output) in zip(targets, self._results[-len(targets) :], strict=True):
            assert output is not None  # since the result is like the tensor
            take_buffer(target, buffers[output])
        return tuple([_new_result(*result, buffers) for result in self._results[: -len(targets)]])

    def _run(
        self, run: Callable[..., Any], session: EagerSession, device: Device, arguments: CallArguments, label: str
    ) -> Any:
        """Call a method of the recorded call on the memory of arguments, and on states for its draws."""
        if not self._draws:
            return run(session, device, arguments.places, label)
        with DRAWING:
            states = take_states(device, arguments.generator, self._draws)
            return run(session, device, [*arguments.places, states], label)


class NumberedCall:
    """A recorded call that reads numbers from memory, and numbers for it.

    Args:
        call: The call.
        rows: The numbers, one in each row.
    """

    __slots__ = ("_call", "_rows")

    def __init__(self, call: TorchCall, rows: torch.Tensor):
        self._call, self._rows = call, rows

    def repeat(self, session: EagerSession, device: Device, arguments: CallArguments, label: str) -> Any:
        """Run the call on other memory and these numbers, and return its results as tensors."""
        return self._call.repeat(session, device, arguments.followed_by((self._rows,)), label)

    def repeat_in_torch(self, session: EagerSession, device: Device, arguments: CallArguments, label: str) -> Any:
        """Run the call on other memory and these numbers, and return its results as torch tensors."""
        return self._call.repeat_in_torch(session, device, arguments.followed_by((self._rows,)), label)

    def repeat_into(
        self,
        session: EagerSession,
        device: Device,
        arguments: CallArguments,
        label: str,
        targets: Sequence[torch.Tensor],
    ) -> tuple[torch.Tensor, ...] | None:
        """Run the call as ``TorchCall.repeat_into`` on these numbers."""
        return self._call.repeat_into(session, device, arguments.followed_by((self._rows,)), label, targets)


def _results_of(recorded: RecordedCall) -> tuple[Any, ...]:
    return recorded.results if type(recorded.results) is tuple else (recorded.results,)


def _new_result(layout: Any, output: int | None, buffers: Sequence[Any]) -> Any:
    """Return a result: a tensor with the memory of an output, one without elements, or a number."""
    if output is not None:
        return layout.tensor(Memory(buffers[output], layout.index, layout.size))
    return layout.tensor(None) if type(layout) is TorchLayout else layout


def _is_like(result: Any, x: torch.Tensor) -> bool:
    """Return whether the storage of a tensor, which covers it, can take the memory of a result."""
    if type(result) is not CallResult or result.output is None or x.dtype in PARTS:
        return False
    layout = result.data_type, result.is_boolean, result.sizes, result.strides
    return layout == (*data_type_of(x.dtype), tuple(x.shape), x.stride())


def _is_whole(result: CallResult) -> bool:
    """Return whether a result can own the memory of its output."""
    return result.offset is None and is_dense(result.sizes, result.strides)


def _layout_of(result: CallResult, index: int) -> TorchLayout:
    return layout_of(result, index, is_complex=issubclass(result.kind, ComplexPairs))


Compute: TypeAlias = Callable[[], tuple[Any, int]]
Check: TypeAlias = Callable[[], None]


def repeated(
    arguments: CallArguments,
    label: str,
    compute: Compute,
    check: Check | None = None,
    numbers: Callable[[], CallNumbers | None] | None = None,
) -> tuple[Any, int]:
    """Return the result of a function of torch tensors, and the index of the device; repeat a call if possible.

    Args:
        arguments: Arguments of the function.
        label: For messages.
        compute: Calls the function.
        check: Raises for arguments that PyTorch rejects; called before a call is recorded.
        numbers: Returns the numbers among the arguments, if calls with other numbers repeat this.
    """
    key, index = arguments.key, arguments.index
    if key is None or index is None:
        return compute()
    device = adapters.device_of(index)
    session = session_of(device)
    call = _call_of(session, arguments, numbers)
    if call:
        return call.repeat(session, device, arguments, label), index
    return _recorded(arguments, session, call, compute, check)


def repeated_into(
    targets: Sequence[torch.Tensor],
    assign: Callable[[torch.Tensor, Any], None],
    arguments: CallArguments,
    label: str,
    compute: Compute,
    check: Check | None = None,
    numbers: Callable[[], CallNumbers | None] | None = None,
) -> tuple[torch.Tensor, ...]:
    """Write the last results of a function of torch tensors into some of these, and return the others.

    Args:
        targets: The tensors that are written. They cover their storages.
        assign: Writes a result that the storage of a tensor cannot take.
        arguments, label, compute, check, numbers: As of ``repeated``.
    """
    if arguments.key is not None and arguments.index is not None:
        device = adapters.device_of(arguments.index)
        session = session_of(device)
        call = _call_of(session, arguments, numbers)
        others: tuple[torch.Tensor, ...] | None = (
            call.repeat_into(session, device, arguments, label, targets) if call else None
        )
        if others is not None:
            return others
    results, index = repeated(arguments, label, compute, check, numbers)
    return assigned(targets, assign, results, index)


def assigned(
    targets: Sequence[torch.Tensor], assign: Callable[[torch.Tensor, Any], None], results: Any, index: int
) -> tuple[torch.Tensor, ...]:
    """Write the last results of a function into torch tensors, and return the others as such."""
    values = results if isinstance(results, tuple) else (results,)
    for target, result in zip(targets, values[-len(targets) :], strict=True):
        assign(target, result)
    others: tuple[torch.Tensor, ...] = wrapped(values[: -len(targets)], index)
    return others


def repeated_in_torch(
    arguments: CallArguments,
    label: str,
    compute: Compute,
    check: Check | None = None,
    numbers: Callable[[], CallNumbers | None] | None = None,
) -> Any:
    """Return the result of a function as torch tensors. Arguments as of ``repeated``."""
    key, index = arguments.key, arguments.index
    if key is None or index is None:
        return wrapped(*compute())
    device = adapters.device_of(index)
    session = session_of(device)
    call = _call_of(session, arguments, numbers)
    if call:
        return call.repeat_in_torch(session, device, arguments, label)
    return wrapped(*_recorded(arguments, session, call, lambda: _owned_result(compute()), check))


def _call_of(session: EagerSession, arguments: CallArguments, numbers: Callable[[], CallNumbers | None] | None) -> Any:
    """Return the call to repeat; False if it cannot be repeated, None if it is new."""
    call = session.calls.get(arguments.key)
    if call is not None or numbers is None:
        return call
    values = numbers()
    call = None if values is None else values.call(session, arguments)
    return call and session.calls.put(arguments.key, call, 0)


def _owned_result(result: tuple[Any, int]) -> tuple[Any, int]:
    return _owned(result[0]), result[1]


def _owned(result: Any) -> Any:
    """Return results that cover memory of their own: copies that are recorded with the call."""
    if isinstance(result, ComplexPairs):
        return ComplexPairs.of(unowned(result.plain()))
    if isinstance(result, tuple | list):
        return type(result)(map(_owned, result))
    if not isinstance(result, Tensor) or (covers_memory(result) and not getattr(result.buffer, "is_owned", False)):
        return result
    return unowned(result)


def _recorded(
    arguments: CallArguments, session: EagerSession, call: Any, compute: Compute, check: Check | None
) -> tuple[Any, int]:
    """Call a function and record it, unless ``call`` says that it cannot be repeated."""
    if call is not None:
        return compute()
    if check is not None:
        check()
    new, result, index = _record(arguments, session, compute)
    session.calls.put(arguments.key, new, new.memory if new else 0)
    return result, index


def _record(
    arguments: CallArguments, session: EagerSession, compute: Compute
) -> tuple[TorchCall | Literal[False], Any, int]:
    """Call a function; return the recorded call, False if it cannot be repeated, and the result."""
    with notice.compiling(adapters.device_of(arguments.index or 0)), recording() as log, counting_draws() as draws:
        result, index = compute()
    recorded = RecordedCall.of(session, log, [*arguments.places, *draws.places], result, max_fixed=_MAX_FIXED)
    return False if recorded is None else TorchCall(recorded, index, draws.count), result, index


def wrapped(result: Any, index: int) -> Any:
    """Return results of a function of the table as torch tensors."""
    if isinstance(result, Tensor):
        return torch_of(result, index)
    if isinstance(result, tuple):
        return tuple([wrapped(item, index) for item in result])
    if isinstance(result, list):
        return [wrapped(item, index) for item in result]
    return result
