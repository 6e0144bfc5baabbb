"""Expressions: what a node of a graph computes, and the operators on them (DirectMLX: dml::Expression)."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeGuard

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, MatrixTransform
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias
from dmlgpu.catalog.tensor_desc import TensorDesc, buffer_size
from dmlgpu.common import coercion as kinds
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.tensors.graphs.location import caller
from dmlgpu.tensors.graphs.nodes import Origin, shown

if TYPE_CHECKING:
    from dmlgpu.tensors.graphs.graph import Graph

Number: TypeAlias = int | float

_SIZES = kinds.tuple_of(kinds.integer, "integers")


class Expression:
    """A tensor of a graph, made by ``Graph.input``, ``Graph.constant`` or a function of
    ``dmlgpu.tensors.graphs.functions``.

    Operators on expressions of equal sizes and types add nodes: ``+ - * / % **`` and comparisons, which give UINT8, by
    element; ``& | ^ << >> ~`` on bits; ``@`` is GEMM. A number on one side of ``+ - * /`` becomes scale and bias of an
    ELEMENT_WISE_IDENTITY, as in DirectMLX; elsewhere, and with integers on integers, a constant of one element. Nothing
    broadcasts by itself: see ``broadcast_to``.

    ``==`` makes an expression, too: compare identities with ``is``; an expression has no truth value.

    Attributes:
        graph: the graph that owns it.
        desc: its type, sizes and layout, as operators read it.
        origin: what computes it.
    """

    __slots__ = ("desc", "graph", "origin")
    __array_ufunc__ = None  # NumPy's numbers leave operators to expressions

    def __init__(self, graph: Graph, origin: Origin, desc: TensorDesc):
        self.graph, self.origin, self.desc = graph, origin, desc

    # ---- facts ------------------------------------------------------------------------------------------------------

    @property
    def sizes(self) -> tuple[int, ...]:
        """Extent of each dimension."""
        return self.desc.sizes

    @property
    def data_type(self) -> DataType:
        """Type of the elements."""
        return self.desc.data_type

    def __repr__(self) -> str:
        strides = "" if self.desc.strides is None else f" strides {list(self.desc.strides)}"
        return f"Expression({self.graph.describe(self.origin)}: {shown(self.desc)}{strides})"

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self!r} has no truth value before it is computed; compare expressions with `is`")

    __hash__ = object.__hash__

    # ---- the same bytes, seen otherwise -----------------------------------------------------------------------------

    def reinterpret(
        self, sizes: Sequence[int], strides: Sequence[int] | None = None, data_type: DataType | None = None
    ) -> Expression:
        """Return the same bytes with other sizes, strides and type; no operator is added (DirectMLX: Reinterpret).

        Raises:
            InvalidArgument: they reach beyond the tensor's bytes.
        """
        strides = kinds.argument("reinterpret", "strides", kinds.optional(_SIZES), strides)
        data_type = kinds.argument("reinterpret", "data_type", kinds.optional(kinds.member_of(DataType)), data_type)
        wanted = TensorDesc(
            self.data_type if data_type is None else data_type,
            kinds.argument("reinterpret", "sizes", _SIZES, sizes),
            strides,
            self.desc.flags,
            self.desc.total_tensor_size_in_bytes,
            self.desc.guaranteed_base_offset_alignment,
        )
        if wanted.strides is not None and len(wanted.strides) != len(wanted.sizes):
            raise InvalidArgument(
                f"reinterpret: strides must have one entry per dimension ({len(wanted.sizes)}), "
                f"got {len(wanted.strides)} ({caller()})"
            )
        needed = buffer_size(wanted.data_type, wanted.sizes, wanted.strides)
        if needed > self.desc.byte_size:
            raise InvalidArgument(
                f"reinterpret: sizes {list(wanted.sizes)} need {needed} bytes, {self!r} has {self.desc.byte_size} "
                f"({caller()})"
            )
        return Expression(self.graph, self.origin, wanted)

    def broadcast_to(self, sizes: Sequence[int]) -> Expression:
        """Return the tensor repeated along dimensions of size 1 and new leading ones, by strides of 0.

        Raises:
            InvalidArgument: a size is neither 1 nor the wanted one.
        """
        wanted = kinds.argument("broadcast_to", "sizes", _SIZES, sizes)
        new = len(wanted) - len(self.sizes)
        if new < 0 or any(has not in (1, want) for has, want in zip(self.sizes, wanted[max(new, 0) :], strict=False)):
            raise InvalidArgument(
                f"broadcast_to: sizes {list(wanted)} must extend {list(self.sizes)} where it has 1 ({caller()})"
            )
        given = zip(self.sizes, self.desc.element_strides, wanted[new:], strict=True)
        strides = (0,) * new + tuple(stride if has == want else 0 for has, stride, want in given)
        return self.reinterpret(wanted, strides)

    # ---- arithmetic -------------------------------------------------------------------------------------------------

    def _made(self, kind: type[OperatorDesc], **values: Any) -> Expression:
        made = self.graph.add(kind, values)[0]
        assert made is not None
        return made

    def _same(self, number: Number) -> Expression:
        """Return a number as a tensor like this one."""
        if not self.data_type.is_float:
            held = np.iinfo(self.data_type.numpy)
            if not isinstance(number, numbers.Integral) or not held.min <= number <= held.max:
                what = f"an integer between {held.min} and {held.max}"
                raise InvalidArgument(f"a number beside {self!r} must be {what}, got {number!r} ({caller()})")
        data = np.array([number], self.data_type.numpy)
        return self.graph.constant(data).broadcast_to(self.sizes)

    def _pair(self, kind: type[OperatorDesc], other: Any, swapped: bool = False) -> Expression:
        """Add an operator on two tensors of a and b."""
        if is_number(other):
            other = self._same(other)
        if not isinstance(other, Expression):
            return NotImplemented
        first, second = (other, self) if swapped else (self, other)
        return self._made(kind, a_tensor=first, b_tensor=second)

    def _scaled(self, scale: float, bias: float) -> Expression:
        return self._made(descs.ElementWiseIdentity, input_tensor=self, scale_bias=ScaleBias(scale, bias))

    def _is_scaled_by(self, other: Any) -> TypeGuard[float]:
        """Return whether a number becomes scale and bias: exact integers do not."""
        return is_number(other) and (self.data_type.is_float or not isinstance(other, numbers.Integral))

    def __add__(self, other: Expression | Number) -> Expression:
        return self._scaled(1, other) if self._is_scaled_by(other) else self._pair(descs.ElementWiseAdd, other)

    __radd__ = __add__

    def __sub__(self, other: Expression | Number) -> Expression:
        return self._scaled(1, -other) if self._is_scaled_by(other) else self._pair(descs.ElementWiseSubtract, other)

    def __rsub__(self, other: Number) -> Expression:
        if self._is_scaled_by(other):
            return self._scaled(-1, other)
        return self._pair(descs.ElementWiseSubtract, other, True)

    def __mul__(self, other: Expression | Number) -> Expression:
        return self._scaled(other, 0) if self._is_scaled_by(other) else self._pair(descs.ElementWiseMultiply, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Expression | Number) -> Expression:
        if self._is_scaled_by(other) and other != 0:
            return self._scaled(1 / other, 0)
        return self._pair(descs.ElementWiseDivide, other)

    def __rtruediv__(self, other: Number) -> Expression:
        return self._pair(descs.ElementWiseDivide, other, True)

    def __mod__(self, other: Expression | Number) -> Expression:
        return self._pair(descs.ElementWiseModulusTruncate, other)

    def __rmod__(self, other: Number) -> Expression:
        return self._pair(descs.ElementWiseModulusTruncate, other, True)

    def __pow__(self, exponent: Expression | Number) -> Expression:
        if is_number(exponent):
            return self._made(descs.ElementWiseConstantPow, input_tensor=self, exponent=exponent)
        if not isinstance(exponent, Expression):
            return NotImplemented
        return self._made(descs.ElementWisePow, input_tensor=self, exponent_tensor=exponent)

    def __matmul__(self, other: Expression) -> Expression:
        if not isinstance(other, Expression):
            return NotImplemented
        plain = {"trans_a": MatrixTransform.NONE, "trans_b": MatrixTransform.NONE, "alpha": 1.0, "beta": 0.0}
        return self._made(descs.Gemm, a_tensor=self, b_tensor=other, **plain)

    def __neg__(self) -> Expression:
        return self._made(descs.ElementWiseNegate, input_tensor=self)

    def __abs__(self) -> Expression:
        return self._made(descs.ElementWiseAbs, input_tensor=self)

    # ---- bits -------------------------------------------------------------------------------------------------------

    def __and__(self, other: Expression | int) -> Expression:
        return self._pair(descs.ElementWiseBitAnd, other)

    __rand__ = __and__

    def __or__(self, other: Expression | int) -> Expression:
        return self._pair(descs.ElementWiseBitOr, other)

    __ror__ = __or__

    def __xor__(self, other: Expression | int) -> Expression:
        return self._pair(descs.ElementWiseBitXor, other)

    __rxor__ = __xor__

    def __lshift__(self, other: Expression | int) -> Expression:
        return self._pair(descs.ElementWiseBitShiftLeft, other)

    def __rshift__(self, other: Expression | int) -> Expression:
        return self._pair(descs.ElementWiseBitShiftRight, other)

    def __invert__(self) -> Expression:
        return self._made(descs.ElementWiseBitNot, input_tensor=self)

    # ---- comparisons ------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return self._pair(descs.ElementWiseLogicalEquals, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        equal = self._pair(descs.ElementWiseLogicalEquals, other)
        return equal if equal is NotImplemented else self._made(descs.ElementWiseLogicalNot, input_tensor=equal)

    def __lt__(self, other: Expression | Number) -> Expression:
        return self._pair(descs.ElementWiseLogicalLessThan, other)

    def __le__(self, other: Expression | Number) -> Expression:
        return self._pair(descs.ElementWiseLogicalLessThanOrEqual, other)

    def __gt__(self, other: Expression | Number) -> Expression:
        return self._pair(descs.ElementWiseLogicalGreaterThan, other)

    def __ge__(self, other: Expression | Number) -> Expression:
        return self._pair(descs.ElementWiseLogicalGreaterThanOrEqual, other)


def is_number(value: object) -> bool:
    """Return whether a value is a real number, NumPy's included, and no truth value."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
