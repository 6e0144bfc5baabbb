"""One operator on host memory, computed by the reference."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu import reference
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc, aligned
from dmlgpu.runtime.executor import Executable, Range, Resources

Memory: TypeAlias = NDArray[np.uint8]
Work: TypeAlias = Callable[[], None]


class NumPyExecutable(Executable):
    """One operator, computed by the reference; owned inputs lie in the persistent resource as they were given.

    Args:
        desc: the operator.
        room: says how many bytes of the memory budget are left to compute in.
    """

    temporary_size = 0

    def __init__(self, desc: OperatorDesc, room: Callable[[], int | None], preserve_padding: bool = False):
        self._desc, self._room, self._preserve_padding = desc, room, preserve_padding
        self._inputs = tuple(tensor for _, _, tensor in desc.inputs)
        self._outputs = tuple(tensor for _, _, tensor in desc.outputs)
        self._owned: dict[int, Range[None]] = {}
        self.persistent_size = 0
        for index, tensor in enumerate(self._inputs):
            if tensor is not None and tensor.owned_by_dml:
                self._owned[index] = Range(None, self.persistent_size, tensor.byte_size)
                self.persistent_size += aligned(tensor.byte_size)

    def bind(self, resources: Resources) -> Sequence[Work]:
        sources = [
            self._kept(index, resources) if index in self._owned else source
            for index, source in enumerate(resources.inputs)
        ]

        reference.check_memory(self._desc, self._left())

        def execute() -> None:
            keeps = reference.keeps_outputs(self._desc.operator)
            before = _decoded(self._outputs, resources.outputs) if keeps else None
            results = reference.evaluate(self._desc, _decoded(self._inputs, sources), before, self._left())
            for tensor, target, result in zip(self._outputs, resources.outputs, results, strict=True):
                if tensor is not None and target is not None:
                    self._store(tensor, _view(target)[: tensor.byte_size], result)

        return (execute,)

    def _store(self, tensor: TensorDesc, memory: Memory, result: NDArray[Any]) -> None:
        content = tensor.encode(result)
        if self._preserve_padding:
            content |= memory & _padding(tensor)
        memory[:] = content

    def _left(self) -> int | None:
        """Return the bytes to compute in, less those in which results are laid out as their tensors lie."""
        room = self._room()
        copies = sum(tensor.byte_size for tensor in self._outputs if tensor is not None)
        return None if room is None else max(0, room - copies)

    def bind_initialization(self, resources: Resources) -> Sequence[Work]:
        def copy(index: int) -> None:
            source = resources.inputs[index]
            assert source is not None
            _view(self._kept(index, resources))[:] = _view(source)[: self._owned[index].size]

        return tuple(functools.partial(copy, index) for index in self._owned)

    def _kept(self, index: int, resources: Resources) -> Range[Memory]:
        """Return where the persistent resource keeps an owned input."""
        persistent, owned = resources.persistent, self._owned[index]
        assert persistent is not None
        return Range(persistent.buffer, persistent.offset + owned.offset, owned.size)


def _decoded(tensors: Sequence[TensorDesc | None], ranges: Sequence[Range[Memory] | None]) -> list[NDArray[Any] | None]:
    return [
        None if tensor is None or one is None else tensor.decode(_view(one))
        for tensor, one in zip(tensors, ranges, strict=True)
    ]


def _padding(tensor: TensorDesc) -> Memory:
    """Return a tensor's bytes with the bits set that belong to no element."""
    element = np.full(max(tensor.data_type.bits // 8, 1), 0xFF, np.uint8).view(tensor.data_type.numpy)
    return ~tensor.encode(element[0])


def _view(source: Range[Memory]) -> Memory:
    return source.buffer[source.offset : source.end]
