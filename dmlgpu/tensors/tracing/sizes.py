"""Calls of a compiled function that differ only in sizes: one trace on symbols (``compiler.sizes``) serves all of them.

The first call of a kind (the same ranks, dtypes and other values) is traced as it is. From the second sizes on, the
sizes in which calls differ are symbols, and the graph of a ``RecordedTrace`` has expressions for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from dmlgpu.catalog.enums import as_elements
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.common.errors import InvalidState
from dmlgpu.compiler.sizes.arithmetic import Recording, is_symbolic
from dmlgpu.compiler.sizes.networks import sized_network
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


SizedTrace: TypeAlias = "Callable[[Mapping[int, Tensor]], TracedFunction]"
"""Compiles a trace for some sizes; takes the arguments that the initialization reads, by number. Raises NotSupported if
the adapter lacks a feature that an operator needs, and OutOfMemory if there is no room for the weights."""

RecordedTrace: TypeAlias = "Callable[[Sequence[int]], SizedTrace | None]"
"""Returns the trace for values of symbols; None if the function would do something else for these."""


def recorded_trace(
    trace: Trace, arguments: Sequence[Tensor], result: Any, watched: Sequence[Any], recording: Recording
) -> RecordedTrace:
    """Return a traced function with symbolic sizes, while they are recorded.

    Args:
        trace: Trace of the function.
        arguments: Stand-ins for the arguments.
        result: Result of the function.
        watched: As of ``TracedFunction``.
        recording: Recording of the sizes.

    Raises:
        InvalidState: If nothing is computed, and as ``results_of``.
        InvalidArgument: As ``results_of``.
    """
    own_result, outputs = results_of(trace, result)
    if not outputs:
        raise InvalidState("the function calls no operator")
    known = {id(argument) for argument in arguments}
    returned: list[Any] = []
    mapped(own_result, returned.append)
    values = [value.tensor if isinstance(value, GraphResult) else value for value in (*trace.feeds, *returned)]
    tensors = [value for value in values if isinstance(value, TensorBase) and id(value) not in known]
    replay = recording.replay(
        (
            sized_network(trace.desc(outputs), recording),
            [(tensor.sizes, tensor.strides, tensor.offset) for tensor in tensors],
            tuple(trace.feeds),
            tuple(trace.checks),
            [value for value in returned if is_symbolic(value)],
        )
    )

    def sized(results: Any, weights: Mapping[int, Tensor]) -> TracedFunction:
        network, layouts, feeds, checks, numbers = results
        following = iter(numbers)
        resized: dict[int, Any] = {
            id(tensor): tensor._resized(*layout) for tensor, layout in zip(tensors, layouts, strict=True)
        }

        def returns(value: Any) -> Any:
            if is_symbolic(value):
                return next(following)
            if isinstance(value, GraphResult):
                return replace(value, tensor=resized.get(id(value.tensor), value.tensor))
            return value

        def fed(feed: Any) -> Any:
            if isinstance(feed, SizeFeed):
                return Tensor(as_elements(feed.data_type, [feed.number]), device=trace.device)
            return resized.get(id(feed), feed)

        operator = trace.device._compile_sized(network)
        prepared, inputs = prepare(trace, operator, weights), tuple(map(fed, feeds))
        rest = checks, tuple(arguments), mapped(own_result, returns), tuple(watched)
        return TracedFunction(trace.name, trace, tuple(outputs), operator, prepared, inputs, *rest, is_sized=True)

    def by_sizes(values: Sequence[int]) -> SizedTrace | None:
        results = replay(values)
        return None if results is None else functools.partial(sized, results)

    return by_sizes
