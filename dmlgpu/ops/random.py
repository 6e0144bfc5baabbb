"""Random numbers, in the manner of ``numpy.random``: ``dmlgpu.random.default_rng(seed)`` returns a ``Generator``.

The generator is Philox 4x32-10, DirectML's RANDOM_GENERATOR, whose words are the same on every adapter. Its state is a
counter on the host, so that drawing waits for nothing.
"""

from __future__ import annotations

import functools
import math
import secrets
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dmlgpu.catalog.enums import BFLOAT16, DataType, RandomGeneratorType
from dmlgpu.catalog.tensor_desc import MAX_ELEMENTS
from dmlgpu.common.coercion import argument, as_index, between, boolean
from dmlgpu.common.errors import InvalidArgument, InvalidState, shown
from dmlgpu.common.suggestions import suggestion
from dmlgpu.ops import directml
from dmlgpu.ops.creation import sequence
from dmlgpu.ops.reductions import ordered
from dmlgpu.ops.searching import searchsorted
from dmlgpu.runtime.device import as_device
from dmlgpu.tensors.array_like import as_operand
from dmlgpu.tensors.calls import Array, Operand, Where, as_type, caller, named
from dmlgpu.tensors.layout import broadcast_sizes, checked_axis, checked_sizes
from dmlgpu.tensors.memory import recorder, trace_in_progress
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tracing.compiled import CompiledFunction
from dmlgpu.tensors.tracing.trace import CallSource
from dmlgpu.tensors.types import TypeLike, as_number, is_number, value_range

__all__ = ["Generator", "default_rng", "seed"]

if not TYPE_CHECKING:  # type checkers report unknown names

    def __getattr__(name: str) -> Any:
        message = f"module 'dmlgpu.random' has no attribute {name!r}{suggestion(name, 'dmlgpu.random')}"
        raise AttributeError(message, name=name, obj=None)  # without an obj Python adds no suggestion of its own


_SEED = between(0, 2**64 - 1)
_LOCK = threading.Lock()
_KEPT = 16
"""Most graphs that a generator keeps of each distribution, one per number of elements."""


def default_rng(seed: int | None = None, *, device: Where = None) -> Generator:
    """Return a generator of random numbers.

    Args:
        seed: Integer from 0 to 2^64 - 1, the key of the stream; None draws one from the operating system.
        device: Device or adapter name on which numbers are created; None means the default device at each draw.

    Returns:
        The generator. Generators of one seed return the same numbers in the same order.

    Raises:
        InvalidArgument: If ``seed`` is not such an integer, or ``device`` neither a device nor a name.
        AdapterNotFound: If there is no adapter of that name.
        InvalidState: If ``seed`` is None while a function is being traced.

    Examples:
        >>> rng = dmlgpu.random.default_rng(0)
        >>> rng.random((2, 3)).shape
        (2, 3)
        >>> rng.integers(1, 7, size=5).dtype
        dtype('int64')

    Computed by RANDOM_GENERATOR.
    """
    return Generator(seed, device=device)


def seed(seed: int | None = None) -> None:
    """Seed the generator of functions that are called without one, such as ``ops.dropout``.

    All threads share it. Before the first call its seed is drawn from the operating system.

    Args:
        seed: Integer from 0 to 2^64 - 1; None draws one from the operating system.

    Raises:
        InvalidArgument: If ``seed`` is not such an integer.
        InvalidState: If a function is being traced.

    Examples:
        >>> dmlgpu.random.seed(0)
        >>> first = ops.dropout(np.ones(100, np.float32))
        >>> dmlgpu.random.seed(0)
        >>> bool((ops.dropout(np.ones(100, np.float32)) == first).all())
        True

    See also:
        `default_rng`, which returns another generator.
    """
    if trace_in_progress() is not None:
        raise InvalidState("seed: must not be called while a function is traced, since that would happen once")
    key = secrets.randbits(64) if seed is None else argument("seed", "seed", _SEED, seed)
    default_generator().state = 0, key


@functools.cache
def default_generator() -> Generator:
    """Return the generator of functions that are called without one."""
    generator = Generator(secrets.randbits(64))
    generator._trace = None  # a traced function that is the first to use it does not own it
    return generator


class Generator(CallSource):
    """A stream of random numbers; made by ``default_rng``. Thread-safe.

    Every draw takes words of the stream, so that later draws return other numbers. In a function of ``dmlgpu.compile``,
    a generator from outside continues its stream at every call, as it does when the function is not compiled.
    Tensors are float32 unless another dtype is requested. Integers and ``random`` are the same on every adapter,
    the other distributions up to the rounding of ``log``, ``cos`` and products.
    """

    def __init__(self, seed: int | None = None, *, device: Where = None):
        trace = recorder() or trace_in_progress()
        if seed is None and trace is not None:
            raise InvalidState(
                "default_rng: seed must be given while a function is traced, since a random one would be drawn once; "
                "or make the generator outside of the function"
            )
        self._key: int = secrets.randbits(64) if seed is None else argument("default_rng", "seed", _SEED, seed)
        self._device = None if device is None else as_device("default_rng", device)
        self._counter = 0
        self._trace = None if trace is None else weakref.ref(trace)
        self._compiled: dict[Any, CompiledFunction[..., Tensor]] = {}

    def __repr__(self) -> str:
        return f"Generator(Philox 4x32-10: key {self._key}, counter {self._counter})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, self.state

    @property
    def state(self) -> tuple[int, int]:
        """The counter of 128 bits and the key of 64 bits: they determine all later numbers. Can be set."""
        return self._counter, self._key

    @state.setter
    def state(self, state: tuple[int, int]) -> None:
        if not isinstance(state, tuple) or len(state) != 2:
            raise InvalidArgument(f"Generator.state: state must be a counter and a key, got {shown(state)}")
        counter = as_index(state[0])
        if counter is None or not 0 <= counter < 2**128:
            raise InvalidArgument(f"Generator.state: the counter must be an integer of 128 bits, got {shown(state[0])}")
        key = argument("Generator.state", "the key", _SEED, state[1])
        with _LOCK:
            self._counter, self._key = counter, key

    # ---- floating-point numbers -------------------------------------------------------------------------------------

    @named
    def random(
        self, size: int | Sequence[int] | None = None, dtype: TypeLike = "float32", *, device: Where = None
    ) -> Tensor:
        """Return numbers uniformly distributed in [0, 1).

        Args:
            size: Shape; None means a scalar.
            dtype: float32, multiples of 2^-24, float16, multiples of 2^-11, or bfloat16, multiples of 2^-8.
            device: Device or adapter name; defaults to that of the generator.

        Returns:
            Tensor of the shape and dtype.

        Raises:
            InvalidArgument: If no tensor has such a shape, or the dtype is not floating point.
            NotSupported: If adapters cannot compute the dtype: float64.

        Computed by RANDOM_GENERATOR.
        """
        function = _UNIFORM.get(_float(dtype), _uniform32)
        return self._drawn(function, _shape(size), dtype, self._target(device))

    @named
    def uniform(
        self,
        low: Operand = 0.0,
        high: Operand = 1.0,
        size: int | Sequence[int] | None = None,
        dtype: TypeLike = "float32",
        *,
        device: Where = None,
    ) -> Tensor:
        """Return numbers uniformly distributed in [low, high).

        Args:
            low: Number, tensor or array; rounding may let ``high`` occur.
            high: Number, tensor or array.
            size: Shape, to which ``low`` and ``high`` broadcast; None means the shape to which they broadcast.
            dtype: float32 or float16.
            device: Device or adapter name; defaults to that of the generator.

        Returns:
            Tensor of the shape and dtype.

        Raises:
            InvalidArgument: If shapes do not fit, a bound is no number, or the dtype is not floating point.
            NotSupported: If adapters cannot compute the dtype: float64.
        """
        data_type, target = _float(dtype), self._target(device)
        (bottom, top), shape = _parameters({"low": low, "high": high}, size, target)
        return (self._drawn(_uniform32, shape, DataType.FLOAT32, target) * (top - bottom) + bottom).astype(data_type)

    @named
    def standard_normal(
        self, size: int | Sequence[int] | None = None, dtype: TypeLike = "float32", *, device: Where = None
    ) -> Tensor:
        """Return numbers of the normal distribution of mean 0 and variance 1.

        Args:
            size: Shape; None means a scalar.
            dtype: float32 or float16.
            device: Device or adapter name; defaults to that of the generator.

        Returns:
            Tensor of the shape and dtype; by the Box-Muller transform, the largest magnitude is 6.77.

        Raises:
            InvalidArgument: If no tensor has such a shape, or the dtype is not floating point.
            NotSupported: If adapters cannot compute the dtype: float64.
        """
        data_type = _float(dtype)
        return self._drawn(_normal, _shape(size), DataType.FLOAT32, self._target(device)).astype(data_type)

    @named
    def normal(
        self,
        loc: Operand = 0.0,
        scale: Operand = 1.0,
        size: int | Sequence[int] | None = None,
        dtype: TypeLike = "float32",
        *,
        device: Where = None,
    ) -> Tensor:
        """Return numbers of a normal distribution.

        Args:
            loc: Mean: number, tensor or array.
            scale: Standard deviation: number, tensor or array.
            size: Shape, to which ``loc`` and ``scale`` broadcast; None means the shape to which they broadcast.
            dtype: float32 or float16.
            device: Device or adapter name; defaults to that of the generator.

        Returns:
            Tensor of the shape and dtype.

        Raises:
            InvalidArgument: If shapes do not fit, a parameter is no number, or the dtype is not floating point.
            NotSupported: If adapters cannot compute the dtype: float64.

        Example:
            >>> import dmlgpu
            >>> rng = dmlgpu.random.default_rng(7, device="numpy")
            >>> rng.normal([0, 100], 1, size=(3, 2)).shape
            (3, 2)
        """
        data_type, target = _float(dtype), self._target(device)
        (mean, deviation), shape = _parameters({"loc": loc, "scale": scale}, size, target)
        return (self._drawn(_normal, shape, DataType.FLOAT32, target) * deviation + mean).astype(data_type)

    # ---- integers and booleans --------------------------------------------------------------------------------------

    @named
    def random_raw(self, size: int | Sequence[int] | None = None, *, device: Where = None) -> Tensor:
        """Return the words of the stream: uniformly distributed integers of 32 bits.

        Args:
            size: Shape; None means a scalar.
            device: Device or adapter name; defaults to that of the generator.

        Returns:
            Tensor of uint32. A draw takes whole blocks of four words.

        Raises:
            InvalidArgument: If no tensor has such a shape.

        Computed by RANDOM_GENERATOR.
        """
        return self._drawn(_words, _shape(size), DataType.UINT32, self._target(device))

    @named
    def integers(
        self,
        low: int,
        high: int | None = None,
        size: int | Sequence[int] | None = None,
        dtype: TypeLike = "int64",
        endpoint: bool = False,
        *,
        device: Where = None,
    ) -> Tensor:
        """Return integers uniformly distributed from ``low`` up to ``high``.

        Args:
            low: Least integer; the end if ``high`` is None, and integers begin at 0.
            high: Excluded end.
            size: Shape; None means a scalar.
            dtype: Dtype of integers that holds the bounds, or bool.
            endpoint: Whether the end is included.
            device: Device or adapter name; defaults to that of the generator.

        Returns:
            Tensor of the shape and dtype. Each integer is the remainder of 64 random bits, so that probabilities are
            equal up to a factor of 1 + (high - low) / 2^64.

        Raises:
            InvalidArgument: If there is no integer in the range, or the dtype cannot hold the bounds.
        """
        kind, target = as_type(dtype), self._target(device)
        data_type = DataType.UINT8 if kind is bool else kind
        if data_type.is_float:
            raise InvalidArgument(f"{caller()}: dtype must be a type of integers, got {data_type.name}")
        start, end = (0, low) if high is None else (low, high)
        bounds = {"low": start, "high" if high is not None else "low": end}
        for name, bound in bounds.items():
            if as_index(bound) is None:
                raise InvalidArgument(f"{caller()}: {name} must be an integer, got {shown(bound)}")
        first, last = int(start), int(end) - (not argument(caller(), "endpoint", boolean, endpoint))
        lowest, highest = (0, 1) if kind is bool else value_range(data_type)
        if not lowest <= first <= last <= highest:
            raise InvalidArgument(
                f"{caller()}: low and high must enclose integers of {'BOOL' if kind is bool else data_type.name}, got "
                f"{shown(low)} and {shown(high)}"
            )
        bits, span = self._drawn(_words64, _shape(size), DataType.UINT64, target), last - first + 1
        offsets: Any = bits if span == 2**64 else bits % span
        shifted = offsets if not first else offsets + first % 2**64
        result: Tensor = shifted._same(DataType.INT64) if data_type.is_signed else shifted
        return result.astype(kind)

    @named
    def bernoulli(
        self,
        p: Operand = 0.5,
        size: int | Sequence[int] | None = None,
        dtype: TypeLike = "bool",
        *,
        device: Where = None,
    ) -> Tensor:
        """Return true with a probability, else false.

        Args:
            p: Probability: number, tensor or array.
            size: Shape, to which ``p`` broadcasts; None means that of ``p``.
            dtype: Dtype of the result: 1 and 0 for numbers.
            device: Device or adapter name; defaults to that of the generator.

        Returns:
            Tensor of the shape and dtype.

        Raises:
            InvalidArgument: If shapes do not fit, ``p`` is no number, or ``dtype`` is not a dtype.
        """
        kind, target = as_type(dtype), self._target(device)
        (probability,), shape = _parameters({"p": p}, size, target)
        return (self._drawn(_uniform32, shape, DataType.FLOAT32, target) < probability).astype(kind)

    # ---- orders and choices -----------------------------------------------------------------------------------------

    @named
    def permutation(self, x: int | Operand, axis: int = 0, *, device: Where = None) -> Array:
        """Return slices along an axis in random order.

        Args:
            x: Tensor or array; an integer stands for ``arange(x)``.
            axis: Axis along which to permute.
            device: Device or adapter name that computes arrays; defaults to that of the generator.

        Returns:
            Tensor of the shape and dtype of `x` (an array if `x` is one), int64 for an integer.

        Raises:
            InvalidArgument: If `x` has no axis, or the axis is out of range.
        """
        count = as_index(x)
        if count is not None:
            if count < 0:
                raise InvalidArgument(f"{caller()}: x must be at least 0, got {shown(x)}")
            return self._drawn(_order, (count,), DataType.INT64, self._target(device))
        operand = as_operand(caller(), "x", x)
        if not isinstance(operand, Tensor | np.ndarray):
            raise InvalidArgument(f"{caller()}: x must be a Tensor, an array or an integer, got {shown(x, typed=True)}")
        axis = checked_axis(caller(), "axis", axis, operand.ndim)
        tensor = operand if isinstance(operand, Tensor) else Tensor(operand, device=self._target(device))
        order = self._drawn(_order, (tensor.sizes[axis],), DataType.INT64, tensor.device)
        result = tensor._taken(order, axis, caller())
        return result if isinstance(operand, Tensor) else result.numpy()

    @named
    def shuffle(self, x: Operand, axis: int = 0) -> None:
        """Put slices along an axis in random order, in place: a tensor gets new memory, as by ``x[...] = values``.

        Args:
            x: Tensor that is no view, or array.
            axis: Axis along which to permute.

        Raises:
            InvalidArgument: If `x` is something else, a view or without axes, or the axis is out of range.
        """
        if not isinstance(x, Tensor | np.ndarray):
            raise InvalidArgument(f"{caller()}: x must be a Tensor or an array, got {shown(x, typed=True)}")
        x[...] = self.permutation(x, axis)

    @named
    def choice(
        self,
        a: int | Operand,
        size: int | Sequence[int] | None = None,
        replace: bool = True,
        p: Operand | None = None,
        axis: int = 0,
        *,
        device: Where = None,
    ) -> Array:
        """Return slices drawn from a tensor.

        Args:
            a: Tensor or array; an integer stands for ``arange(a)``.
            size: Shape of the draws; None means one.
            replace: Whether a slice may be drawn several times.
            p: Probability of each slice, or a positive multiple of it, rank 1; None means equal ones.
            axis: Axis of `a` along which slices are drawn.
            device: Device or adapter name that computes arrays; defaults to that of the generator.

        Returns:
            Tensor of the dtype of `a` (an array if `a` is one); ``size`` replaces the axis.

        Raises:
            InvalidArgument: If there is nothing to draw from, more is drawn than there is without replacement, or `p`
                is given and ``replace`` is False.
        """
        count = as_index(a)
        operand = None if count is not None else as_operand(caller(), "a", a)
        if count is None and not isinstance(operand, Tensor | np.ndarray):
            raise InvalidArgument(f"{caller()}: a must be a Tensor, an array or an integer, got {shown(a, typed=True)}")
        axis = 0 if operand is None else checked_axis(caller(), "axis", axis, operand.ndim)
        population: int = count or 0 if operand is None else operand.shape[axis]
        target = operand.device if isinstance(operand, Tensor) else self._target(device)
        shape, with_replacement = _shape(size), argument(caller(), "replace", boolean, replace)
        drawn = math.prod(shape)
        if population < 1 or (not with_replacement and drawn > population):
            raise InvalidArgument(
                f"{caller()}: a must have as many slices as are drawn without replacement, at least one, got "
                f"{population} for {drawn}"
            )
        if p is not None:
            if not with_replacement:
                raise InvalidArgument(f"{caller()}: replace must be True if p is given, got False")
            places = self._weighted(p, population, shape, target)
        elif with_replacement:
            places = self.integers(population, size=shape, device=target)
        else:
            places = self._drawn(_order, (population,), DataType.INT64, target)[:drawn].reshape(shape)
        if operand is None:
            return places
        tensor = operand if isinstance(operand, Tensor) else Tensor(operand, device=target)
        result = tensor._taken(places, axis, caller())
        return result if isinstance(operand, Tensor) else result.numpy()

    def _weighted(self, p: Any, population: int, shape: tuple[int, ...], target: Any) -> Tensor:
        """Return indices, each with its probability."""
        (weights,), _ = _parameters({"p": p}, None, target)
        if not isinstance(weights, Tensor) or weights.sizes != (population,):
            raise InvalidArgument(f"{caller()}: p must have {population} elements, one per slice, got {shown(p)}")
        sums: Tensor = directml.cumulative_summation(weights, axis=0)
        total = sums[-1:]
        last = searchsorted(sums, total)  # the last slice whose probability is not 0
        values = self._drawn(_uniform32, shape, DataType.FLOAT32, target) * total.reshape(())
        return directml.element_wise_min(searchsorted(sums, values, "right"), last.reshape(()))

    # ---- words ------------------------------------------------------------------------------------------------------

    def _target(self, device: Where) -> Any:
        """Return the device on which numbers are created."""
        return self._device if device is None and self._device is not None else as_device(caller(), device)

    def next_value(self, count: int, device: Any) -> Tensor:
        """Return the state as RANDOM_GENERATOR reads it, and consume ``count`` blocks of the stream."""
        with _LOCK:
            counter, self._counter = self._counter, (self._counter + count) % 2**128
        words = [counter >> shift & 0xFFFFFFFF for shift in (0, 32, 64, 96)]
        words += [self._key & 0xFFFFFFFF, self._key >> 32]
        return Tensor(np.array(words, np.uint32), device=device)

    def _state(self, count: int, device: Any) -> Tensor:
        """Return the state for ``count`` 32-bit words, and consume them."""
        if count > MAX_ELEMENTS:
            raise InvalidArgument(f"{caller()}: size must need at most 2^32 - 1 words of 32 bits, got {shown(count)}")
        trace, blocks = recorder(), -(-count // 4)
        if trace is None and trace_in_progress() is not None:
            raise InvalidState(
                f"{caller()}: random numbers must not be drawn for arrays while a function is traced, since that would "
                "happen once; draw for tensors, or outside of the function"
            )
        if trace is None or (self._trace is not None and self._trace() is trace):
            return self.next_value(blocks, device)  # a generator of the function itself starts anew at each call
        return trace._call_input(self, blocks, DataType.UINT32, (6,), device)

    def _drawn(self, function: Callable[..., Tensor], shape: tuple[int, ...], kind: Any, device: Any) -> Tensor:
        """Compute numbers from words of the stream by a function, in one dispatch on adapters that fuse."""
        count = math.prod(shape)
        if not count:
            return Tensor(np.empty(shape, np.uint8), kind, device=device)
        with _LOCK:
            compiled = self._compiled.setdefault(function, CompiledFunction(function, None, _KEPT))
        return compiled(self._state(_words_for(function, count), device), count).reshape(shape)


def _words_for(function: Any, count: int) -> int:
    """Return how many words a function takes for ``count`` numbers."""
    if function in (_uniform32, *_UNIFORM.values(), _words):
        return count
    return _aligned(-(-count // 2)) * 2 if function is _normal else _aligned(count) * 2


def _aligned(count: int) -> int:
    """Return the least multiple of a block's four words: views of words begin at multiples of 16 bytes."""
    return -(-count // 4) * 4


def _words(state: Tensor, count: int) -> Tensor:
    """Return words of 32 bits."""
    return directml.random_generator(
        state, output_sizes=(count,), type=RandomGeneratorType.PHILOX_4X32_10, output_state=False
    ).output


def _uniform32(state: Tensor, count: int) -> Tensor:
    """Return multiples of 2^-24 in [0, 1), float32."""
    digits: Tensor = directml.element_wise_bit_shift_right(_words(state, count), 8)
    return digits.astype(DataType.FLOAT32) * 2.0**-24


def _uniform16(state: Tensor, count: int) -> Tensor:
    """Return multiples of 2^-11 in [0, 1), float16."""
    digits: Tensor = directml.element_wise_bit_shift_right(_words(state, count), 21)
    return digits.astype(DataType.FLOAT16) * 2.0**-11


def _uniform_bfloat16(state: Tensor, count: int) -> Tensor:
    """Return multiples of 2^-8 in [0, 1), bfloat16."""
    digits: Tensor = directml.element_wise_bit_shift_right(_words(state, count), 24)
    return digits.astype(BFLOAT16) * 2.0**-8


_UNIFORM = {DataType.FLOAT16: _uniform16, BFLOAT16: _uniform_bfloat16}
"""Functions for types that round float32 numbers in [0, 1) up to 1."""


def _normal(state: Tensor, count: int) -> Tensor:
    """Return standard normal numbers, two from two words each: a radius of 32 digits, an angle of 24."""
    half = -(-count // 2)
    words = _words(state, _words_for(_normal, count))
    # Both rows compute both words, which takes less time than to store radii and angles.
    first, second = (words[at : at + half].broadcast_to((2, half)) for at in (0, _aligned(half)))
    uniform: Any = (first.astype(DataType.FLOAT32) + 0.5) * 2.0**-32
    radius = directml.element_wise_sqrt(directml.element_wise_log(uniform) * -2.0)
    turns: Tensor = directml.element_wise_bit_shift_right(second, 8)
    angle = turns.astype(DataType.FLOAT32) * (2 * math.pi * 2.0**-24)
    is_cosine = sequence(2, 1, -1, DataType.UINT8, state.device).reshape(2, 1)
    shares = directml.element_wise_cos(angle)._chosen(is_cosine, directml.element_wise_sin(angle))
    return (radius * shares).reshape(2 * half)[:count]


def _words64(state: Tensor, count: int) -> Tensor:
    """Return words of 64 bits."""
    words = _words(state, _words_for(_words64, count))
    low, high = (words[begin : begin + count].astype(DataType.UINT64) for begin in (0, _aligned(count)))
    return high * 2**32 + low


def _order(state: Tensor, count: int) -> Tensor:
    """Return 0 to ``count`` - 1 in random order, int64."""
    return ordered(_words64(state, count)).indices.astype(DataType.INT64)


def _restored(counter: int, key: int) -> Generator:
    """Return a generator that was pickled."""
    generator = Generator(key)
    generator.state = counter, key
    return generator


def _shape(size: Any) -> tuple[int, ...]:
    return () if size is None else checked_sizes(caller(), "size", size)


def _float(dtype: Any) -> DataType:
    data_type: DataType = as_type(dtype)
    if not isinstance(data_type, DataType) or not data_type.is_float:
        raise InvalidArgument(f"{caller()}: dtype must be a floating-point type, got {shown(dtype)}")
    return data_type


def _parameters(values: dict[str, Any], size: Any, device: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Return parameters as numbers, or as tensors of float32, and the shape of the result."""
    parameters: list[Any] = []
    shapes: list[tuple[str, tuple[int, ...]]] = [("size", _shape(size))]
    for name, value in values.items():
        if is_number(value):
            parameters.append(as_number(f"{caller()}: {name}", value, DataType.FLOAT32))
            continue
        operand = as_operand(caller(), name, value)
        if not isinstance(operand, Tensor | np.ndarray):
            raise InvalidArgument(f"{caller()}: {name} must be a number, a Tensor or an array, got {shown(value)}")
        tensor = operand if isinstance(operand, Tensor) else Tensor(operand.astype(np.float32), device=device)
        parameters.append(tensor.astype(DataType.FLOAT32))
        shapes.append((name, tensor.sizes))
    shape = broadcast_sizes(caller(), shapes)
    if size is not None and shape != shapes[0][1]:
        raise InvalidArgument(
            f"{caller()}: size must be a shape to which the parameters broadcast, {list(shape)}, got {shown(size)}"
        )
    return parameters, shape


def __dir__() -> list[str]:
    return list(__all__)
