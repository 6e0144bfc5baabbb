"""Complex numbers, which DirectML lacks: two tensors in functions of the table, pairs in memory.

A torch tensor of complex64 of shape {...} is a float32 tensor {..., 2} in memory, as PyTorch lays it out; complex128 is
one of float64. Functions of ``operators/complex_arithmetic.py`` compute with ``Complex``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.ops.shape import joined
from dmlgpu.tensors.tensor import Tensor


class ComplexPairs(Tensor):
    """Pairs {..., 2} that stand for complex numbers {...}: a result on its way to a torch tensor."""

    __slots__ = ()

    @classmethod
    def of(cls, pairs: Tensor) -> ComplexPairs:
        """Return pairs marked as complex numbers."""
        result = cls.__new__(cls)
        _share(result, pairs)
        return result

    def plain(self) -> Tensor:
        """Return the pairs without the mark."""
        result = Tensor.__new__(Tensor)
        _share(result, self)
        return result


def _share(result: Tensor, x: Tensor) -> None:
    result._set(x.buffer, x.data_type, x.sizes, x.strides, x.offset if x.is_view else None, False)


class Complex:
    """Complex numbers in functions of the table.

    Attributes:
        real, imag: The parts: two tensors of equal shape, or two Python floats if an operand was a number.
    """

    __slots__ = ("_pairs", "imag", "real")

    def __init__(self, real: Any, imag: Any, pairs: Tensor | None = None):
        self.real, self.imag, self._pairs = real, imag, pairs

    @classmethod
    def of_pairs(cls, pairs: Tensor) -> Complex:
        """Return the numbers that pairs {..., 2} stand for; the parts are views."""
        return cls(pairs[..., 0], pairs[..., 1], pairs)

    @classmethod
    def of_real(cls, x: Tensor) -> Complex:
        """Return real numbers as complex ones."""
        return cls(x, constant(x, 0.0).broadcast_to(x.sizes))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Shape of the numbers."""
        return self.real.sizes

    @property
    def size(self) -> int:
        """Element count."""
        return self.real.size

    @property
    def ndim(self) -> int:
        """Rank."""
        return self.real.ndim

    @property
    def data_type(self) -> DataType:
        """Data type of the parts."""
        return self.real.data_type

    def each(self, function: Callable[[Any], Any]) -> Complex:
        """Return the numbers whose parts are a function of these parts."""
        return Complex(function(self.real), function(self.imag))

    def pairs(self) -> Tensor:
        """Return the numbers as pairs {..., 2}."""
        if self._pairs is not None:
            return self._pairs
        return joined([self.real.expand_dims(-1), self.imag.expand_dims(-1)], -1)


def constant(like: Tensor, number: float) -> Tensor:
    """Return a scalar tensor for a tensor of floats, in its type."""
    return like._beside(np.asarray(number, like.data_type.numpy), like.data_type)


def in_memory(result: Any) -> Any:
    """Return the results of a function of the table with complex numbers as pairs."""
    if isinstance(result, Complex):
        return ComplexPairs.of(result.pairs())
    return type(result)(map(in_memory, result)) if isinstance(result, tuple | list) else result
