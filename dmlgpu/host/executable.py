"""One operator on host memory, computed by the reference."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu import reference
from dmlgpu.backend import Executable, Range, Resources
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.tensor import TensorDesc, aligned

Memory: TypeAlias = NDArray[np.uint8]
Work: TypeAlias = Callable[[], None]


class NumPyExecutable(Executable):
    """One operator, computed by the reference; owned inputs lie in the persistent resource as they were given."""

    temporary_size = 0

    def __init__(self, desc: OperatorDesc):
        self._desc = desc
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

        def execute() -> None:
            keeps = reference.keeps_outputs(self._desc.operator)
            before = _decoded(self._outputs, resources.outputs) if keeps else None
            results = reference.evaluate(self._desc, _decoded(self._inputs, sources), before)
            for tensor, target, result in zip(self._outputs, resources.outputs, results, strict=True):
                if tensor is not None and target is not None:
                    _view(target)[: tensor.byte_size] = tensor.encode(result)

        return (execute,)

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


def _view(source: Range[Memory]) -> Memory:
    return source.buffer[source.offset : source.end]
