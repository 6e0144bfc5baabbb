"""The table of ATen operators: each entry is one function of dmlgpu tensors.

    @aten("add.Tensor", "add.Scalar", promotes=Promotion.DEFAULT)
    def add(x, other, *, alpha=1):
        return ops.add(x, other if alpha == 1 else ops.multiply(other, alpha))

A function is written for both eager calls and graphs of ``torch.compile``:

- Names are functional overloads in ``torch.ops.aten``, without ``.default``: ``"relu"``,
  ``"sum.dim_IntList"``. ``dispatch.py`` derives the in-place and ``out=`` overloads with the same arguments.
- Arguments are those of the operator's schema, in its order, with its defaults: PyTorch leaves trailing arguments that
  have their default value out.
- Tensors arrive as ``dmlgpu.Tensor``: on a device, or as nodes of a graph; strided views included. CPU tensors without
  dimensions arrive as Python numbers. Lists of tensors arrive as lists. ``None``, numbers, lists of integers,
  ``torch.dtype`` arrive as they are.
- ``device`` arrives as a ``dmlgpu.Device``; ``layout``, ``pin_memory`` and ``memory_format`` are not passed.
- It returns a Tensor, or a tuple of these as the schema says; None for a Tensor that is not there. It must not change
  its arguments. Returning an argument, or a view of one, is fine: the dispatcher copies.
- With ``promotes``, operands have been converted to the common dtype, and the result is converted to the dtype that
  PyTorch's rule says. Otherwise the function returns tensors of the right dtype: ``dtypes.cast`` converts.
- With ``wide``, it computes tensors of float16 and bfloat16 in float32.
- With ``fused``, an eager call of it is compiled as a graph; without, once a call has run several operators.
- It reads no elements, unless the sizes of its results depend on these (``reads=True``): such entries are never part
  of a graph.
- Unsupported cases raise ``Unsupported`` with the reason. Errors in arguments need no check: if the function fails, the
dispatcher raises the error of the CPU's kernel for the same arguments.

All modules of ``operators/`` are imported when the device is registered: a new one needs no entry elsewhere.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from dmlgpu.frontends.torch.internals import decomposition_table, operator_names

Function = TypeVar("Function", bound=Callable[..., Any])


class Unsupported(NotImplementedError):
    """An operator does not support these arguments."""


def check_same_dtype(*operands: Any) -> None:
    """Check that tensors have one dtype; None is ignored.

    Raises:
        Unsupported: If they have several.
    """
    dtypes = {x.data_type: None for x in operands if x is not None}
    if len(dtypes) > 1:
        raise Unsupported(f"operands must have one dtype, got {' and '.join(dtype.name for dtype in dtypes)}")


def check_integers(x: Any) -> None:
    """Check that a tensor has integers or booleans.

    Raises:
        Unsupported: If it has floats.
    """
    if x.data_type.is_float:
        raise Unsupported(f"x must have integers or booleans, got {x.data_type.name}")


def check_numbers(x: Any) -> None:
    """Check that a tensor has numbers.

    Raises:
        Unsupported: If it has booleans.
    """
    if x.is_boolean:
        raise Unsupported("x must have numbers, got booleans")


class Promotion(enum.Enum):
    """Rules for the dtype in which an operator computes, and of its result, as PyTorch names them."""

    NONE = enum.auto()
    """Operands arrive as they are, the result is left as it is."""

    DEFAULT = enum.auto()
    """Computes in the operands' common dtype and returns it."""

    INT_TO_FLOAT = enum.auto()
    """As DEFAULT, but integers and booleans become the default float dtype."""

    BOOL_TO_LONG = enum.auto()
    """As DEFAULT, but booleans become int64."""

    ALWAYS_BOOL = enum.auto()
    """Computes in the operands' common dtype and returns booleans: comparisons."""


@dataclass(frozen=True, eq=False)
class Entry:
    """An operator of the table.

    Attributes:
        name: ATen's name with the overload: ``"add.Tensor"``, ``"relu"``.
        function: Computes it on dmlgpu tensors.
        promotes: Rule for dtypes.
        operands: Names of the arguments that take part in promotion; None for all tensors, and numbers called
            ``self``, ``other`` or ``exponent``.
        reads: Whether it reads elements, so that it cannot be part of a graph.
        wide: Whether operands of float16 and bfloat16 arrive as float32, and results of float32 leave as these.
        fused: Whether an eager call runs the function as a compiled graph.
    """

    name: str
    function: Callable[..., Any]
    promotes: Promotion
    operands: tuple[str, ...] | None
    reads: bool
    wide: bool
    fused: bool


ENTRIES: dict[str, Entry] = {}
"""The table, by name."""

COMPLEX: dict[str, Callable[..., Any]] = {}
"""Functions of complex numbers, by operator of the table; tensors of complex dtypes arrive as `Complex`."""

DECOMPOSED: dict[str, Callable[..., Any]] = {}
"""Operators computed by functions of torch tensors that call others: PyTorch's own decompositions, and ours."""

DIFFERENTIABLE: dict[str, Callable[..., Any]] = {}
"""Composed operators whose calls autograd follows."""

MISSING: list[str] = []
"""Names passed to `installed` that the installed PyTorch lacks: versions add and remove operators."""


def aten(
    *names: str,
    promotes: Promotion = Promotion.NONE,
    operands: Sequence[str] | None = None,
    reads: bool = False,
    wide: bool = False,
    fused: bool = False,
) -> Callable[[Function], Function]:
    """Enter the decorated function into the table under names of functional ATen overloads.

    Args:
        names: One or more overloads whose arguments the function takes.
        promotes: Rule for dtypes; defaults to none.
        operands: Names of the schema's arguments that take part in promotion; defaults to all tensors, and numbers
            called ``self``, ``other`` or ``exponent``.
        reads: Whether the function reads elements.
        wide: Whether the function counts, sums, or multiplies several operands: if all floating-point operands are of
            float16, or all of bfloat16, they arrive as float32, and results of float32 are rounded, once.
        fused: Whether the function calls so many operators that an eager call of it is compiled as a graph, which takes
            longer the first time and a kernel or two later: for functions that models call often.
    """

    def enter(function: Function) -> Function:
        for name in names:
            if name in ENTRIES:
                raise ValueError(f"aten::{name} is in the table already")
            named = None if operands is None else tuple(operands)
            ENTRIES[name] = Entry(name, function, promotes, named, reads, wide, fused)
        return function

    return enter


def of_complex(*names: str) -> Callable[[Function], Function]:
    """Compute operators of the table on complex numbers by the decorated function.

    It takes the operator's arguments. Operands that promote, and other tensors of complex dtypes, arrive as `Complex`,
    and results may be `Complex`.

    Args:
        names: One or more names of the table.
    """

    def enter(function: Function) -> Function:
        for name in names:
            COMPLEX[name] = function
        return function

    return enter


def decomposes(*names: str) -> None:
    """Compute overloads by PyTorch's own decompositions, ``torch._decomp.decomposition_table``."""
    for name in names:
        DECOMPOSED[name] = functools.partial(_decomposed, name)


def _decomposed(name: str, /, *args: Any, **kwargs: Any) -> Any:
    return decomposition(name)(*args, **kwargs)


@functools.cache  # bounded by the table
def decomposition(name: str) -> Callable[..., Any]:
    """Return PyTorch's own decomposition of an overload.

    Raises:
        Unsupported: If the installed PyTorch lacks it.
    """
    function = decomposition_table().get(overload(name))
    if function is None:
        raise Unsupported(f"aten::{name} is not supported: PyTorch {torch.__version__} does not decompose it")
    return function


def composes(*names: str, differentiable: bool = False) -> Callable[[Function], Function]:
    """Compute overloads by the decorated function of torch tensors, which calls other operators.

    Args:
        names: One or more overloads whose arguments the function takes.
        differentiable: Whether autograd follows the function's calls, instead of a formula of the operator: for
            operators that PyTorch composes itself, but of others.
    """

    def enter(function: Function) -> Function:
        for name in names:
            DECOMPOSED[name] = function
            if differentiable:
                DIFFERENTIABLE[name] = function
        return function

    return enter


@functools.cache  # a single value
def _all_names() -> frozenset[str]:
    return frozenset(operator_names())


def installed(names: Iterable[str]) -> list[str]:
    """Return the overloads of ATen that the installed PyTorch has, and enter the names of the others in `MISSING`.

    Everything that looks up overloads at its import, or registers kernels, goes by this rule.
    """
    listed = list(names)
    missing = [name for name in listed if f"aten::{name}" not in _all_names()]
    MISSING.extend(name for name in missing if name not in MISSING)
    return [name for name in listed if name not in missing]


def drop_missing() -> None:
    """Drop the operators that the installed PyTorch lacks from the tables."""
    for table in (ENTRIES, COMPLEX, DECOMPOSED, DIFFERENTIABLE):
        for name in table.keys() - installed(table):
            del table[name]


def overloads(*names: str) -> frozenset[Any]:
    """Return the ``OpOverload`` of those names that the installed PyTorch has."""
    return frozenset(overload(name) for name in installed(names))


def overload(name: str) -> Any:
    """Return the ``OpOverload`` of a name that the installed PyTorch has."""
    packet, _, suffix = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), suffix or "default")


def _category(dtype: torch.dtype) -> int:
    if dtype is torch.bool:
        return 0
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1


def _number_dtype(value: Any) -> torch.dtype:
    if isinstance(value, bool):
        return torch.bool
    if isinstance(value, int | torch.SymInt):
        return torch.int64
    return torch.get_default_dtype() if isinstance(value, float | torch.SymFloat) else torch.complex64


def common_dtype(operands: Sequence[Any]) -> torch.dtype:
    """Return the dtype to which operands are promoted: tensors with dimensions rank above those without, and these
    above numbers, unless the lower rank is of a higher kind.

    Args:
        operands: Torch tensors and Python numbers. A CPU tensor without dimensions of float64, int64 or bool counts as
            a number: PyTorch's dispatcher passes numbers so.
    """
    if len(operands) == 2:
        first, second = operands
        return torch.result_type(first, second)
    ranked: tuple[list[torch.dtype], ...] = ([], [], [])
    for operand in operands:
        if not isinstance(operand, torch.Tensor):
            ranked[2].append(_number_dtype(operand))
        elif operand.dim():
            ranked[0].append(operand.dtype)
        elif operand.device.type == "cpu" and operand.dtype in {torch.float64, torch.int64, torch.bool}:
            ranked[2].append(torch.get_default_dtype() if operand.dtype is torch.float64 else operand.dtype)
        else:
            ranked[1].append(operand.dtype)
    result: torch.dtype | None = None
    for dtypes in ranked:
        if dtypes:
            level = functools.reduce(torch.promote_types, dtypes)
            result = level if result is None or _category(level) > _category(result) else result
    assert result is not None
    return result


def computation_dtype(rule: Promotion, common: torch.dtype) -> torch.dtype:
    """Return the dtype in which an operator computes, by its rule and the operands' common dtype."""
    if rule is Promotion.INT_TO_FLOAT and not (common.is_floating_point or common.is_complex):
        return torch.get_default_dtype()
    if rule is Promotion.BOOL_TO_LONG and common is torch.bool:
        return torch.int64
    return common
