"""Calls of a compiled function that differ only in sizes: one trace on symbols (``compiler.sizes``) serves all of them.

The first call of a kind (the same ranks, dtypes and other values) is traced as it is. From the second sizes on, the
sizes in which calls differ are symbols, and a ``RecordedTrace`` has the graph with expressions for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.common.errors import InvalidState
from dmlgpu.compiler.sizes import Recording, is_symbolic
from dmlgpu.compiler.sizes.networks import RecordedNetwork
from dmlgpu.tensors.strided import TensorBase, behind_binding
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tracing.trace import (
    CallSize,
    GraphResult,
    SizeFeed,
    Trace,
    TracedFunction,
    mapped,
    prepare,
    results_of,
)


def kind_of(leaf: Any) -> Any:
    """Return the key, without sizes, of a tensor, array or size among the arguments of a call."""
    if isinstance(leaf, CallSize):
        return CallSize
    if isinstance(leaf, np.ndarray):
        return np.ndarray, leaf.dtype, leaf.ndim
    return leaf.data_type, leaf.dtype, leaf.ndim, leaf.signature[2] is None, behind_binding(leaf)


def sizes_of(leaves: Sequence[tuple[str, Any]], sizes: Sequence[tuple[str, CallSize]] = ()) -> list[tuple[str, int]]:
    """Return sizes and strides of the tensors and arrays of a call, and the other sizes, with their names."""
    integers: list[tuple[str, int]] = []
    for path, leaf in leaves:
        integers += [(f"{path}.shape[{axis}]", size) for axis, size in enumerate(leaf.shape)]
        if isinstance(leaf, TensorBase) and leaf.signature[2] is not None:
            integers += [(f"{path}.strides[{axis}]", stride) for axis, stride in enumerate(leaf.strides)]
    return integers + [(path, size.value) for path, size in sizes]


def with_sizes(tensors: Sequence[Tensor], integers: Sequence[Any]) -> tuple[list[Tensor], list[Any]]:
    """Return tensors with other sizes and strides, in the order of ``sizes_of``, and the remaining sizes."""
    following = iter(integers)
    sized = []
    for tensor in tensors:
        sizes = tuple(next(following) for _ in tensor.sizes)
        is_packed = tensor.signature[2] is None
        strides = packed_strides(sizes) if is_packed else tuple(next(following) for _ in tensor.sizes)
        sized.append(tensor._resized(sizes, strides, tensor.offset))
    return sized, list(following)


class RecordedTrace:
    """A traced function with symbolic sizes, created while they are recorded.

    Args:
        trace: Trace of the function.
        arguments: Stand-ins for the arguments.
        result: Result of the function.
        watched: As of ``TracedFunction``.
        recording: Recording of the sizes.

    Attributes:
        replay: Returns what follows from sizes, for ``traced``.

    Raises:
        InvalidState: If nothing is computed, and as ``results_of``.
        InvalidArgument: As ``results_of``.
    """

    def __init__(
        self, trace: Trace, arguments: Sequence[Tensor], result: Any, watched: Sequence[Any], recording: Recording
    ):
        self._trace, self._arguments, self._watched = trace, tuple(arguments), tuple(watched)
        self._result, self._outputs = results_of(trace, result)
        if not self._outputs:
            raise InvalidState("the function calls no operator")
        known = {id(argument) for argument in self._arguments}
        returned: list[Any] = []
        mapped(self._result, returned.append)
        tensors = [value.tensor if isinstance(value, GraphResult) else value for value in (*trace.feeds, *returned)]
        self._tensors = [each for each in tensors if isinstance(each, TensorBase) and id(each) not in known]
        self.replay = recording.replay(
            (
                RecordedNetwork.of(trace.desc(self._outputs), recording).sized,
                [(tensor.sizes, tensor.strides, tensor.offset) for tensor in self._tensors],
                tuple(trace.feeds),
                tuple(trace.checks),
                [value for value in returned if is_symbolic(value)],
            )
        )

    def traced(self, results: Any, weights: Mapping[int, Tensor]) -> TracedFunction:
        """Return the trace for some sizes, compiled.

        Args:
            results: Those of ``replay`` for the sizes.
            weights: Arguments that the initialization reads, by number.

        Raises:
            NotSupported: If the adapter lacks a feature that an operator needs.
            OutOfMemory: If there is no room for the weights.
        """
        network, layouts, feeds, checks, numbers = results
        trace, following = self._trace, iter(numbers)
        tensors: dict[int, Any] = {
            id(tensor): tensor._resized(*layout) for tensor, layout in zip(self._tensors, layouts, strict=True)
        }

        def returned(value: Any) -> Any:
            if is_symbolic(value):
                return next(following)
            if isinstance(value, GraphResult):
                return replace(value, tensor=tensors.get(id(value.tensor), value.tensor))
            return value

        def fed(feed: Any) -> Any:
            if isinstance(feed, SizeFeed):
                return Tensor(np.array([feed.number], feed.data_type.numpy), device=trace.device)
            return tensors.get(id(feed), feed)

        operator = trace.device._compile_sized(network)
        prepared, outputs, inputs = prepare(trace, operator, weights), tuple(self._outputs), tuple(map(fed, feeds))
        rest = checks, self._arguments, mapped(self._result, returned), self._watched
        return TracedFunction(trace.name, trace, outputs, operator, prepared, inputs, *rest, is_sized=True)
