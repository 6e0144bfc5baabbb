"""Small tensors whose elements are expressions of input sizes.

A ``SymbolicArray`` stands for an array in ``OnnxValue.array``. Shape arithmetic (``host``) computes with the
expressions. Other readers of the elements get plain numbers, and the translation is valid only for these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from dmlgpu.compiler.sizes.arithmetic import is_symbolic, needed

Array = NDArray[Any]


class SymbolicArray:
    """An array of numbers, some of them symbolic.

    Args:
        numbers: The numbers, as an object array.
        dtype: Their NumPy dtype.
    """

    def __init__(self, numbers: Array, dtype: np.dtype[Any]):
        self.numbers, self.dtype = numbers, np.dtype(dtype)
        self.shape, self.size, self.nbytes = numbers.shape, numbers.size, numbers.size * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the elements, which become guards."""
        return self.numbers.astype(self.dtype if dtype is None else dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # NumPy's protocols, of which ``__array__`` is enough
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def reshape(self, *shape: Any) -> SymbolicArray:
        """Return the elements in another shape."""
        return SymbolicArray(self.numbers.reshape(*shape), self.dtype)

    def tolist(self) -> Any:
        """Return the elements as numbers, plain or symbolic."""
        return self.numbers.tolist()

    def item(self) -> Any:
        """Return the only element, plain or symbolic."""
        return self.numbers.item()

    def of_numbers(self, *numbers: Any) -> Array:
        """Return an array of other numbers."""
        return np.array(numbers, self.dtype).reshape(self.shape)

    def recipe(self) -> Callable[[Any], Array]:
        """Return the recipe that computes the elements from the slots of a run."""
        numbers = needed(self.numbers.reshape(-1).tolist())
        return lambda slots: self.of_numbers(*slots.numbers(numbers))


def array_of(numbers: Any, dtype: Any) -> Any:
    """Return numbers as an array; a ``SymbolicArray`` if some are symbolic and all fit the dtype."""
    objects = np.asarray(numbers, object)
    symbolic: list[Any] = [number for number in objects.flat if is_symbolic(number)]
    if not symbolic:
        return objects.astype(dtype)
    limits = None if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    if limits is None or limits.bits == 64 or all(limits.min <= number <= limits.max for number in symbolic):
        return SymbolicArray(objects, dtype)
    return objects.astype(np.int64).astype(dtype)


def has_symbols(array: Any) -> TypeGuard[SymbolicArray]:
    """Return whether elements of an array are symbolic."""
    return type(array) is SymbolicArray


def as_integer(number: Any) -> int:
    """Return an element of an integer array as an integer, plain or symbolic."""
    return number if is_symbolic(number) else int(number)


def plain_array(array: Any) -> Any:
    """Return an array with numbers; the elements of a ``SymbolicArray`` become guards."""
    return np.asarray(array) if has_symbols(array) else array
