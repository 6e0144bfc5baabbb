"""Expressions, and the small structures that functions take and return."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidDescription
from dmlgpu.frontends.pydirectml.calls import InvalidCall, real, reporting, surface
from dmlgpu.frontends.pydirectml.enums import OperatorType
from dmlgpu.frontends.pydirectml.tensors import TensorDesc
from dmlgpu.tensors import directml
from dmlgpu.tensors.tensor import Tensor as Node


class Expression:
    """A tensor of a graph, made by a function or by ``+ - * / %`` and unary ``-``; ``Expression()`` is empty.

    A number as an operand of ``+ - * /`` is scale and bias of an identity; ``f / x`` computes 1 / (f * x), as DirectMLX
    does.
    ``+= -= *= /= %=`` change the expression itself, also under its other names.
    """

    __slots__ = ("_node",)
    __array_ufunc__ = None  # NumPy's numbers leave operators to expressions

    _node: Node | None

    def __init__(self) -> None:
        self._node = None

    def get_output_desc(self) -> TensorDesc:
        """Return the tensor's layout in memory.

        Raises:
            InvalidCall: If the expression is empty.
        """
        return TensorDesc._of(unwrap(self).desc)

    def __repr__(self) -> str:
        return "dml.Expression, empty" if self._node is None else f"dml.{self._node!r}"

    def __add__(self, other: Any) -> Expression:
        return _pair(self, other, directml.element_wise_add, lambda number: (1, number))

    def __radd__(self, other: Any) -> Expression:
        return _scaled(self, other, lambda number: (1, number))

    def __sub__(self, other: Any) -> Expression:
        return _pair(self, other, directml.element_wise_subtract, lambda number: (1, -number))

    def __rsub__(self, other: Any) -> Expression:
        return _scaled(self, other, lambda number: (-1, number))

    def __mul__(self, other: Any) -> Expression:
        return _pair(self, other, directml.element_wise_multiply, lambda number: (number, 0))

    def __rmul__(self, other: Any) -> Expression:
        return _scaled(self, other, lambda number: (number, 0))

    def __truediv__(self, other: Any) -> Expression:
        return _pair(self, other, directml.element_wise_divide, lambda number: (_reciprocal(number), 0))

    def __rtruediv__(self, other: Any) -> Expression:
        return _scaled(self, other, lambda number: (number, 0), directml.element_wise_recip)

    def __mod__(self, other: Any) -> Expression:
        return _pair(self, other, directml.element_wise_modulus_truncate)

    def __neg__(self) -> Expression:
        with reporting():
            return wrap(directml.element_wise_negate(unwrap(self)))

    def __iadd__(self, other: Any) -> Expression:
        return _become(self, self.__add__(other))

    def __isub__(self, other: Any) -> Expression:
        return _become(self, self.__sub__(other))

    def __imul__(self, other: Any) -> Expression:
        return _become(self, self.__mul__(other))

    def __itruediv__(self, other: Any) -> Expression:
        return _become(self, self.__truediv__(other))

    def __imod__(self, other: Any) -> Expression:
        return _become(self, self.__mod__(other))


def wrap(node: Node | None) -> Expression:
    """Wrap a builder's expression for scripts; None becomes an empty expression."""
    expression = Expression()
    expression._node = node
    return expression


def unwrap(expression: Expression) -> Node:
    """Return the builder's expression of a script's.

    Raises:
        InvalidCall: If it is empty.
    """
    if expression._node is None:
        raise InvalidCall("Expression: it is empty, made by Expression() or an output that was not requested")
    return expression._node


def unwrap_optional(expression: Expression | None) -> Node | None:
    """Return the builder's expression of a script's, None for None."""
    return None if expression is None else unwrap(expression)


def _pair(
    first: Expression,
    second: Any,
    function: Callable[..., Node],
    scale_bias: Callable[[float], tuple[float, float]] | None = None,
) -> Expression:
    """Add an operator on two expressions, or on an expression and a number, as scale and bias."""
    if not isinstance(second, Expression):
        return NotImplemented if scale_bias is None else _scaled(first, second, scale_bias)
    with reporting():
        return wrap(function(unwrap(first), unwrap(second)))


def _scaled(
    expression: Expression,
    number: Any,
    scale_bias: Callable[[float], tuple[float, float]],
    function: Callable[..., Node] = directml.element_wise_identity,
) -> Expression:
    try:
        scale, bias = scale_bias(real(number))
    except coercion.CoercionError:
        return NotImplemented
    with reporting():
        return wrap(function(unwrap(expression), scale_bias=ScaleBias(scale, bias)))


def _reciprocal(number: float) -> float:
    """Return 1 / number as a float of 32 bits, infinite for 0."""
    with np.errstate(all="ignore"):
        return float(np.float32(1) / np.float32(number))


def _become(expression: Expression, other: Expression) -> Expression:
    """Replace an expression in place, for all references to it."""
    if isinstance(other, Expression):
        expression._node = other._node
        return expression
    return NotImplemented


class Size2D:
    """Factors by which ``up_sample_2d`` widens and heightens its input.

    Attributes:
        width: An integer of 32 bits, which may be set.
        height: likewise.
    """

    @surface
    def __init__(self, width: int, height: int, /) -> None:
        self._width, self._height = width, height

    @property
    def width(self) -> int:
        """Factor of the width."""
        return self._width

    @width.setter
    @surface
    def width(self, width: int) -> None:
        self._width = width

    @property
    def height(self) -> int:
        """Factor of the height."""
        return self._height

    @height.setter
    @surface
    def height(self, height: int) -> None:
        self._height = height


class FusedActivation:
    """An activation that another operator applies to its results.

    Args:
        activation: ``OperatorType.ACTIVATION_RELU`` or another; INVALID for none.
        param_1: Alpha; bias of SHRINK; steepness of SOFTPLUS.
        param_2: Beta of HARD_SIGMOID, LINEAR, PARAMETRIC_SOFTPLUS and SCALED_TANH; gamma of SCALED_ELU; threshold of
            SHRINK.
    """

    @surface
    def __init__(self, activation: OperatorType, param_1: float = 0, param_2: float = 0) -> None:
        self._activation, self._parameters = activation, (param_1, param_2)

    def __repr__(self) -> str:
        first, second = self._parameters
        return f"dml.FusedActivation({self._activation}, {first:g}, {second:g})"


NO_ACTIVATION = FusedActivation(OperatorType.INVALID)
"""The default of parameters that take an activation."""


def activation_desc(fused: FusedActivation) -> OperatorDesc | None:
    """Return the description of an activation that is fused; None for none.

    Raises:
        InvalidCall: No activation.
    """
    if fused._activation is OperatorType.INVALID:
        return None
    kind = descs.by_name(fused._activation.name)
    names = [field.name for field in dataclasses.fields(kind)]
    numbers: dict[str, Any] = dict(
        zip((name for name in names if not name.endswith("_tensor")), fused._parameters, strict=False)
    )
    try:
        return kind(**numbers)
    except InvalidDescription:  # it has more tensors than its input and output
        raise InvalidCall(
            f"FusedActivation: activation must be one that can be fused, got {fused._activation}"
        ) from None


class _Outputs:
    """Two named expressions, which are copied when they are set."""

    def __init__(self, first: Expression, second: Expression):
        self._first, self._second = wrap(first._node), wrap(second._node)


class MaxPoolingOutputs(_Outputs):
    """Outputs of ``max_pooling``.

    Attributes:
        values: The maxima.
        indices: Their indices, UINT32; empty if they were not requested.
    """

    @surface
    def __init__(self, values: Expression, indices: Expression, /) -> None:
        super().__init__(values, indices)

    @property
    def values(self) -> Expression:
        """The maxima."""
        return self._first

    @values.setter
    @surface
    def values(self, values: Expression) -> None:
        self._first = wrap(values._node)

    @property
    def indices(self) -> Expression:
        """Their indices."""
        return self._second

    @indices.setter
    @surface
    def indices(self, indices: Expression) -> None:
        self._second = wrap(indices._node)


class GRUOutputs(_Outputs):
    """Outputs of ``gru``; those not requested are empty.

    Attributes:
        sequence: The states at all time steps.
        single: The last states.
    """

    @surface
    def __init__(self, sequence: Expression, single: Expression, /) -> None:
        super().__init__(sequence, single)

    @property
    def sequence(self) -> Expression:
        """The states at all time steps."""
        return self._first

    @sequence.setter
    @surface
    def sequence(self, sequence: Expression) -> None:
        self._first = wrap(sequence._node)

    @property
    def single(self) -> Expression:
        """The last states."""
        return self._second

    @single.setter
    @surface
    def single(self, single: Expression) -> None:
        self._second = wrap(single._node)
