"""Calls of functions of torch tensors, which are repeated without calling the functions.

The first call of a function with arguments of some dtypes, shapes, strides and numbers records which of DirectML's
operators it executes, on which memory. Later calls repeat these on the memory of their arguments. Functions that read
elements or draw random numbers are called each time, and so are those whose results are not new memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dmlgpu.frontends.torch import adapters, storage
from dmlgpu.frontends.torch.notice import notice
from dmlgpu.tensors.recorded_call import Place, RecordedCall, recording
from dmlgpu.tensors.session import session_of

_MAX_FIXED = 1 << 20
"""Maximum bytes of constants that a recorded call keeps."""

_PLAIN = frozenset({int, bool, str, type(None), torch.dtype, torch.layout, torch.memory_format, torch.device})

function_ids = itertools.count()
"""Ids of operators and graphs, for the keys of calls."""


class CallArguments:
    """The arguments of a call.

    Attributes:
        key: Function, layouts of tensors and other values; None for arguments of other kinds.
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
        """Record arguments, and return their part of the key."""
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
        """Add an argument to the key; return False for one of another kind."""
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
        if x.is_conj() or x.is_neg():
            return False
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

    @property
    def places(self) -> list[Place]:
        """Memory of the tensors, and their first bytes."""
        return [(storage.memory_of(x).buffer._memory, int(x.storage_offset()) * x.element_size()) for x in self.tensors]


def repeated(
    arguments: CallArguments,
    label: str,
    compute: Callable[[], tuple[Any, int]],
    check: Callable[[], None] | None = None,
) -> tuple[Any, int]:
    """Return the result of a function of torch tensors, and the index of the device; repeat a call if possible.

    Args:
        arguments: Arguments of the function.
        label: For messages.
        compute: Calls the function.
        check: Raises for arguments that PyTorch rejects; called before a call is recorded.
    """
    key, index = arguments.key, arguments.index
    if key is None or index is None:
        return compute()
    device = adapters.device_of(index)
    session = session_of(device)
    call = session.calls.get(key)
    if isinstance(call, RecordedCall):
        return call.repeat(session, device, arguments.places, label), index
    if call is not None:
        return compute()
    if check is not None:
        check()
    with notice.compiling(device), recording() as log:
        result, index = compute()
    call = RecordedCall.of(session, log, arguments.places, result, max_fixed=_MAX_FIXED)
    session.calls.put(key, call or False, call.memory if call else 0)
    return result, index
