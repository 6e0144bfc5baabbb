"""`compile`: functions of tensors that run as one graph, traced once for each kind of arguments."""

from __future__ import annotations

import functools
import inspect
import operator
import time
import types
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from dmlgpu.common import coercion
from dmlgpu.common.cache import Cache, CacheInfo, CacheLimits
from dmlgpu.common.errors import InvalidArgument, InvalidState, NotSupported, counted, shown
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.sizes.arithmetic import Recording, inside
from dmlgpu.compiler.sizes.recordings import Recordings
from dmlgpu.runtime.adapters import target_of
from dmlgpu.runtime.device import Device, as_device, other_device
from dmlgpu.runtime.device import device as default_of_block
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.memory import recorded_by, recorder, tapes
from dmlgpu.tensors.recorded_call import recording
from dmlgpu.tensors.strided import TensorBase
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tracing.sizes import RecordedTrace, kind_of, recorded_trace, sizes_of, with_sizes
from dmlgpu.tensors.tracing.trace import (
    CallSize,
    CallSource,
    Trace,
    TracedFunction,
    as_tensor,
    finish,
    flatten,
    form_of,
    mapped,
)

if TYPE_CHECKING:
    from dmlgpu.compiler.explain import Explanation

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

CACHED = 64
"""Default size of the cache of a compiled function, in graphs."""

_SIZE = coercion.between(1, coercion.UINT64_MAX)


@dataclass(frozen=True)
class _Arguments:
    """The arguments of one call.

    Attributes:
        device: where it runs.
        args, kwargs: as they were given.
        leaves: their tensors and arrays, with the names of their places.
        sizes: integers that vary as sizes do, likewise.
        key: cache key of the trace.
    """

    device: Device
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[tuple[str, Any]]
    sizes: list[tuple[str, CallSize]]
    key: Any


class CompiledFunction(Generic[Parameters, Result]):
    """Result of `compile`: called like the function it compiles. Thread-safe.

    With `weights`, indices of tensors among the arguments, a graph keeps their values of the time of tracing.

    Examples:
        >>> @dmlgpu.compile
        ... def layer(x, weight):
        ...     return ops.relu(x @ weight)
        >>> layer(Tensor([[1.0, -2.0]]), Tensor([[1.0, -1.0], [0.0, 1.0]])).tolist()
        [[1.0, 0.0]]
        >>> layer
        <compiled function layer: 1 graph>
    """

    def __init__(
        self,
        function: Callable[Parameters, Result],
        device: Device | str | None,
        cache_size: int,
        weights: Collection[int] = (),
    ):
        if not callable(function):
            raise InvalidArgument(f"compile: function must be callable, got {shown(function, typed=True)}")
        if device is not None and not isinstance(device, Device | str):
            as_device("compile", device)
        size = coercion.argument("compile", "cache_size", _SIZE, cache_size)
        self._function, self._device, self._weights = function, device, frozenset(weights)
        self._name = str(getattr(function, "__name__", type(function).__name__))
        self._cache: Cache[Any, TracedFunction] = Cache(CacheLimits(size, size))
        self._kinds: Cache[Any, tuple[list[Any], list[str], Recordings[RecordedTrace]]] = Cache(CacheLimits(size, size))
        self._parameters = _parameters(function)
        layers = [function]
        while hasattr(layers[-1], "__wrapped__"):  # the function inside decorators and `grad`
            layers.append(layers[-1].__wrapped__)
        self._cells = tuple(cell for layer in layers for cell in getattr(layer, "__closure__", None) or ())
        self._globals: list[tuple[dict[str, Any], str]] = [
            (layer.__globals__, name)
            for layer in layers
            if hasattr(layer, "__code__")
            for name in layer.__code__.co_names
        ]
        functools.update_wrapper(self, function)

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if recorder() is not None or tapes.get():
            return self._function(*args, **kwargs)  # part of the function that is being traced, or differentiated
        call = self._call(args, kwargs)
        result: Result = self._traced(call).run(call.leaves)
        return result

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        dynamic = f", dynamic in {', '.join(self.dynamic_sizes)}" if self.dynamic_sizes else ""
        return f"<compiled function {self._name}: {counted(len(self._cache), 'graph')}{dynamic}>"

    # ---- compiled graphs --------------------------------------------------------------------------------------------

    def graph(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Graph:
        """Return the graph that a call with these arguments runs.

        Args:
            *args: Positional arguments of a call.
            **kwargs: Keyword arguments of a call.

        Returns:
            The graph; `print` lists its nodes, and `save` draws it.

        Raises:
            DmlError: As a call.

        See also:
            `desc`, `operator`, `explain`; `dmlgpu.Graph`.
        """
        return self._traced(self._call(args, kwargs), is_exact=True).graph

    def desc(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> GraphDesc:
        """Return the description of the graph that a call with these arguments runs.

        Args:
            *args: Positional arguments of a call.
            **kwargs: Keyword arguments of a call.

        Returns:
            Description, as `Device.compile_graph` takes it.

        Raises:
            InvalidState: If the function calls no operator.
            DmlError: As a call.

        Examples:
            >>> double = dmlgpu.compile(lambda x: x * 2.0)
            >>> double.desc(Tensor([1.0, 2.0])).input_count
            1

        See also:
            `graph`, `operator`.
        """
        traced = self._traced(self._call(args, kwargs), is_exact=True)
        self._check_computes(traced)
        return traced.graph.desc(traced.outputs)

    def operator(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> CompiledOperator:
        """Return the compiled operator that a call with these arguments runs.

        Args:
            *args: Positional arguments of a call.
            **kwargs: Keyword arguments of a call.

        Returns:
            Compiled operator; its `program` has the kernels, its `timings` the time that compiling took.

        Raises:
            InvalidState: If the function calls no operator.
            DmlError: As a call.

        See also:
            `explain`, `graph`.
        """
        traced = self._traced(self._call(args, kwargs))
        self._check_computes(traced)
        assert traced.operator is not None
        return traced.operator

    def explain(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Explanation:
        """Return the steps, schedules and kernels of a call with these arguments, with reasons.

            for kernel in layer.explain(x).kernels:
                print(kernel.kernel.label, kernel.kernel.grid)

        Args:
            *args: Positional arguments of a call.
            **kwargs: Keyword arguments of a call.

        Returns:
            `Explanation` of the compiled graph on the adapter of the arguments.

        Raises:
            InvalidState: If the function calls no operator.
            NotSupported: If the adapter is `numpy`, which runs no kernels.
            DmlError: As a call.

        See also:
            `operator`, `graph`; `dmlgpu show` for operators and models.
        """
        from dmlgpu.compiler.explain import explain_graph  # noqa: PLC0415 - it loads the compiler

        desc = self.desc(*args, **kwargs)
        adapter = self._call(args, kwargs).device.adapter
        target = target_of(adapter)
        if target is None:
            raise NotSupported(f"{self._name}: explain: '{adapter}' runs no kernels; pass tensors of another device")
        return explain_graph(self._name, desc, target)

    def _check_computes(self, traced: TracedFunction) -> None:
        if traced.operator is None:
            raise InvalidState(
                f"{self._name}: nothing is computed from these arguments: the function calls no operator"
            )

    @property
    def dynamic_sizes(self) -> tuple[str, ...]:
        """Names of the sizes for which the function is not traced again.

        From the second value of a size on, the function is traced on a symbol for it, and later values reuse the
        trace. A condition on a size, and code that needs its value, limit a trace to the values for which it is right.

        Examples:
            >>> double = dmlgpu.compile(lambda x: x * 2.0)
            >>> _ = double(Tensor([1.0])), double(Tensor([1.0, 2.0]))
            >>> double.dynamic_sizes
            ('x.shape[0]',)

        See also:
            `cache_info`.
        """
        names = (names[place] for _, names, traces in self._kinds.values() for place in traces.places)
        return tuple(dict.fromkeys(names))

    def cache_info(self) -> CacheInfo:
        """Return how many graphs are cached, and the number of cache hits and misses.

        Returns:
            `dmlgpu.CacheInfo`.

        Examples:
            >>> double = dmlgpu.compile(lambda x: x * 2.0)
            >>> _ = double(Tensor([1.0])), double(Tensor([2.0])), double(Tensor([1.0, 2.0]))
            >>> double.cache_info().hits, double.cache_info().misses
            (1, 2)

        See also:
            `cache_clear`.
        """
        return self._cache.info

    def cache_clear(self) -> None:
        """Drop all cached graphs, with the captured tensors and the devices that they hold.

        See also:
            `cache_info`.
        """
        self._cache.clear()
        self._kinds.clear()

    # ---- calls ------------------------------------------------------------------------------------------------------

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Arguments:
        """Flatten the arguments of a call.

        Raises:
            InvalidArgument: one cannot be hashed, or they lie on several devices.
            InvalidState: one is released.
        """
        all_leaves: list[tuple[str, Any]] = []
        name = self._name
        parts = self._flattened(args, kwargs, all_leaves)
        leaves = [leaf for leaf in all_leaves if not isinstance(leaf[1], CallSize)]
        sizes = [leaf for leaf in all_leaves if isinstance(leaf[1], CallSize)]
        device = next((leaf.device for _, leaf in leaves if isinstance(leaf, TensorBase)), None)
        if device is None:
            device = as_device(name, self._device)
        for path, leaf in leaves:
            if isinstance(leaf, TensorBase) and leaf.device is not device:
                raise InvalidArgument(
                    f"{name}: {path} must be on the device of the other arguments, '{device.adapter}', got one on "
                    f"{other_device(device, leaf.device)}; x.to(device) copies it"
                )
        return _Arguments(device, args, kwargs, leaves, sizes, (device, *parts))

    def _flattened(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: list[tuple[str, Any]],
        describe: Callable[[Any], Any] = form_of,
    ) -> list[Any]:
        """Return the key of each argument for tracing; ``leaves`` and ``describe`` are those of ``flatten``."""
        name, known = self._name, self._parameters
        parts = [
            flatten(name, known[index] if index < len(known) else f"argument {index}", value, leaves, describe)
            for index, value in enumerate(args)
        ]
        return parts + [(key, flatten(name, key, value, leaves, describe)) for key, value in sorted(kwargs.items())]

    def _watched(self) -> list[Any]:
        """Return the tensors, with their memory, and the sources that the variables of the function's closure and
        globals hold; None for other values."""
        values = []
        for cell in self._cells:
            try:
                values.append(cell.cell_contents)
            except ValueError:  # nothing is assigned yet
                values.append(None)
        values += [variables.get(name) for variables, name in self._globals]
        tensors = [value if isinstance(value, TensorBase | CallSource) else None for value in values]
        return tensors + [value.buffer if isinstance(value, TensorBase) else None for value in tensors]

    def _traced(self, call: _Arguments, *, is_exact: bool = False) -> TracedFunction:
        """Return the compiled trace of a call; traces and compiles if it is new or a variable holds another tensor.

        Args:
            call: The call.
            is_exact: Whether the graph is needed, as the function is traced for these sizes.
        """
        watched = self._watched()
        traced = self._cache.get(call.key)
        if traced is not None and not (_are_same(traced.watched, watched) and not (is_exact and traced.is_sized)):
            self._cache.discard(call.key)
            traced = None
        if traced is None:
            with recording(is_active=False):  # operators that run now are not part of later calls
                traced = None if is_exact else self._sized(call, watched)
                traced = self._cache.put(call.key, traced or self._trace(call, watched), 1)
        return traced

    def _trace(self, call: _Arguments, watched: Sequence[Any]) -> TracedFunction:
        """Call the function on stand-ins for its arguments, and compile the operators that it called."""
        start = time.perf_counter()
        arguments = self._tensors(call)
        sizes = [size.value for _, size in call.sizes]
        trace, stand_ins, result = self._record(call, arguments, sizes, watched)
        traced = finish(trace, stand_ins, result, watched, {index: arguments[index] for index in self._weights})
        if traced.operator is not None:
            traced.operator._took(time.perf_counter() - start)
        return traced

    def _tensors(self, call: _Arguments) -> list[Tensor]:
        return [as_tensor(self._name, path, leaf, call.device) for path, leaf in call.leaves]

    def _record(
        self, call: _Arguments, arguments: Sequence[Tensor], sizes: Sequence[int], watched: Sequence[Any]
    ) -> tuple[Trace, list[Tensor], Any]:
        """Call the function on stand-ins for its tensors and on sizes; return the trace, stand-ins and the result."""
        trace = Trace(self._name, call.device)
        stand_ins = [
            trace.argument(index, argument, path, index in self._weights)
            for index, (argument, (path, _)) in enumerate(zip(arguments, call.leaves, strict=True))
        ]
        tensors, integers = iter(stand_ins), iter(sizes)

        def stand_in(value: Any) -> Any:
            if isinstance(value, CallSize):
                return next(integers)
            return next(tensors) if isinstance(value, Tensor | np.ndarray) else value

        args = mapped(call.args, stand_in)
        kwargs = {key: mapped(value, stand_in) for key, value in sorted(call.kwargs.items())}
        trace.watch([value for value in watched if isinstance(value, TensorBase)])
        try:
            with recorded_by(trace), default_of_block(call.device):
                result = self._function(*args, **kwargs)
        finally:
            error = trace.restore()
        if error is not None:
            raise error
        return trace, stand_ins, result

    def _sized(self, call: _Arguments, watched: list[Any]) -> TracedFunction | None:
        """Return the compiled trace of a call that differs from earlier ones in sizes; None if it must be traced."""
        named_sizes = sizes_of(call.leaves, call.sizes)
        sizes = [size for _, size in named_sizes]
        zeros = tuple(place for place, size in enumerate(sizes) if not size)  # there, code is another
        key = call.device, zeros, *self._flattened(call.args, call.kwargs, [], kind_of)
        kind = self._kinds.get(key)
        if kind is None or not _are_same(kind[0], watched):
            self._kinds.discard(key)
            names = [name for name, _ in named_sizes]
            self._kinds.put(key, (watched, names, Recordings(sizes, is_public=True)), 1)
            return None
        start = time.perf_counter()

        def record(symbolic: list[Any], recording: Recording) -> RecordedTrace:
            arguments, integers = with_sizes(self._tensors(call), symbolic)
            with recording.active():
                trace, stand_ins, result = self._record(call, arguments, integers, watched)
                with inside():
                    return recorded_trace(trace, stand_ins, result, watched, recording)

        sized = kind[2].result(sizes, lambda trace, values: trace(values), record)
        if sized is None:
            return None
        weights = {}
        if self._weights:
            arguments = self._tensors(call)
            weights = {index: arguments[index] for index in self._weights}
        try:
            traced = sized(weights)
        except NotSupported:  # tracing says which operator is the cause
            return None
        assert traced.operator is not None
        traced.operator._took(time.perf_counter() - start)
        return traced


def _are_same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Return whether two sequences have the same objects."""
    return all(map(operator.is_, first, second))


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the parameters that a call gives by position."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin function without signature
        return ()
    return tuple(
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    )


@overload
def compile(
    function: Callable[Parameters, Result], *, device: Device | str | None = None, cache_size: int = CACHED
) -> CompiledFunction[Parameters, Result]: ...


@overload
def compile(
    function: None = None, *, device: Device | str | None = None, cache_size: int = CACHED
) -> Callable[[Callable[Parameters, Result]], CompiledFunction[Parameters, Result]]: ...


def compile(function: Any = None, *, device: Device | str | None = None, cache_size: int = CACHED) -> Any:
    """Compile a function of tensors to one graph: its operators are fused, and a call is one dispatch.

        @dmlgpu.compile
        def layer(x, weight, bias):
            return ops.relu(x @ weight + bias)

    The first call with arguments of a new shape, dtype, layout or device traces the function: it runs on tensors
    without elements, and the operators that it calls are compiled. Later calls run the compiled graph only. Python
    code, printing and NumPy's random numbers included, runs while tracing, not in later calls.

    From the second value of a size on, the function is traced on a symbol for that size (`dynamic_sizes`), and further
    values take about 1 ms instead of a trace. Python code may use sizes as integers: a condition on a size, or code
    that needs its value, such as `range(x.shape[0])`, limits the trace to the values for which it is right, and the
    function is traced again for others.

    - Arguments may be tensors and arrays, tuples, lists, dicts and dataclasses of them, and hashable values. Numbers,
      strings and other hashable values are constants of the graph: each new value traces the function again, so pass a
      number that changes often as a tensor. Arrays are copied to the device of the tensors. If all are arrays, they are
      copied to `device`, and results are arrays, as in `dmlgpu.ops`. Indices and classes in arrays are checked at each
      call, those of tensors are not.
    - Results may be tensors, arrays, numbers, strings and None, in tuples, lists, dicts and dataclasses. A view of an
      argument is returned as a view of the argument of the call.
    - Captured tensors, from closures, globals or attributes, are bound like arguments, so elements that `buffer.write`
      changes are used. If a variable of the closure or the globals holds another tensor, the function is traced again.
      Attributes and elements of lists are read while tracing only: pass values that change as arguments.
    - Code that depends on elements, `if x > 0`, `float(x)`, `x.numpy()`, raises InvalidState with the line. `ops.where`
      chooses elements, `dmlgpu.cond` between functions; `dmlgpu.scan` is a loop over the first axis.
    - A compiled function that another one calls becomes part of the outer graph.

    Args:
        function: Function to compile; None returns a decorator.
        device: Device or adapter name to run on if no argument is a tensor; defaults to None,
            `dmlgpu.default_device()`.
        cache_size: Number of graphs in the LRU cache; defaults to 64. A cached graph keeps its captured tensors and its
            device alive until `cache_clear`.

    Returns:
        `CompiledFunction`, or a decorator if `function` is None. A call returns the function's result, and raises its
        exceptions, InvalidArgument (an argument or result of another kind, tensors on several devices, or indices of an
        array that are out of range), InvalidState (a tensor is released, or elements are read while tracing),
        NotSupported (the adapter lacks a feature) and OutOfMemory.

    Raises:
        InvalidArgument: If `function` is not callable, `device` is neither a device nor a name, or `cache_size` is
            below 1.

    Examples:
        >>> layer = dmlgpu.compile(lambda x, weight: ops.relu(x @ weight))
        >>> layer(Tensor([[1.0, -2.0]]), Tensor([[1.0, -1.0], [0.0, 1.0]])).tolist()
        [[1.0, 0.0]]

    See also:
        `dmlgpu.Graph` to build a graph by hand, `dmlgpu.grad`, which can be compiled as well.
    """

    def decorate(undecorated: Any) -> Any:
        return CompiledFunction(undecorated, device, cache_size)

    return decorate if function is None else decorate(function)
