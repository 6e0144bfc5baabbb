"""Registry of the NumPy functions of operators, memory limits, and fused activations."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import BFLOAT16, DataType, as_elements
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import OperatorNotImplemented, OutOfMemory
from dmlgpu.common.memory import host_budget

BYTES_PER_ELEMENT = 64
"""Maximum memory of functions per element of their tensors: wide copies, offsets, indices. Functions that need more
reserve it with ``claim``."""

_allowed: ContextVar[tuple[str, int | None]] = ContextVar("allowed", default=("reference", None))


@contextlib.contextmanager
def allowing(operator: str, budget: int | None) -> Iterator[None]:
    """Limit the memory of an operator's function to ``budget`` bytes in the context; None for no limit."""
    token = _allowed.set((operator, budget))
    try:
        yield
    finally:
        _allowed.reset(token)


def claim(what: str, *sizes: int, each: int = 8) -> None:
    """Raise OutOfMemory if an array exceeds the memory budget of the operator.

    Args:
        what: Content of the array, for the message.
        sizes: Shape of the array.
        each: Bytes per element, including temporaries.
    """
    operator, budget = _allowed.get()
    needed = each * math.prod(sizes)
    if budget is not None and needed > budget:
        raise OutOfMemory(f"{operator}: the NumPy reference needs {needed:,} bytes for {what}, but may take {budget:,}")


def check_memory(desc: OperatorDesc, budget: int | None) -> None:
    """Raise OutOfMemory if an operator's description shows that it needs more than a number of bytes."""
    with allowing(desc.operator, budget):
        claim_tensors(desc)


def claim_tensors(desc: OperatorDesc) -> None:
    """Raise OutOfMemory if a few copies of all tensors exceed the memory budget of the operator."""
    tensors = [slot.tensor for slot in (*desc.inputs, *desc.outputs) if slot.tensor is not None]
    claim("copies of its tensors", sum(tensor.element_count for tensor in tensors), each=BYTES_PER_ELEMENT)


Array: TypeAlias = NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])

_FUNCTIONS: dict[str, Callable[..., Any]] = {}
_KEEPING: set[str] = set()
"""Operators that leave part of an output unchanged."""


def reference(*desc_classes: type[OperatorDesc], keeps: bool = False) -> Callable[[Function], Function]:
    """Register a function ``(desc, input, ...) -> output`` as the reference of an operator and its older versions.

    The function gets one argument per input field, in struct order: an array, None for an absent tensor, a tuple of
    arrays for an array of tensors. It returns one array, or a tuple of arrays in the order of the flat outputs.

    Args:
        desc_classes: The descriptions.
        keeps: The operator leaves part of an output as it was: the function has an argument ``before`` as well.
    """

    def register(function: Function) -> Function:
        for desc_class in desc_classes:
            _FUNCTIONS[desc_class.operator] = function
            if keeps:
                _KEEPING.add(desc_class.operator)
        return function

    return register


def named_reference(desc_class: type[OperatorDesc], function: Function) -> Function:
    """Register a function of a table, under the operator's name, as the reference of ``desc_class``."""
    function.__name__ = desc_class.operator.lower()
    return reference(desc_class)(function)


def implemented() -> frozenset[str]:
    """DirectML's names of the operators that have a reference."""
    return frozenset(_FUNCTIONS)


def find(operator: str) -> Callable[..., Any] | None:
    """Return the NumPy function of an operator, or None."""
    return _FUNCTIONS.get(operator)


def keeps_outputs(operator: str) -> bool:
    """Return whether an operator leaves part of an output unchanged."""
    return operator in _KEEPING


def evaluate(
    desc: OperatorDesc,
    inputs: Sequence[Array | None],
    before: Sequence[Array | None] | None = None,
    budget: int | None = None,
) -> tuple[Array, ...]:
    """Compute an operator.

    Args:
        desc: A valid description; only sizes, types and attributes matter.
        inputs: One array of logical shape per flat input (``desc.inputs``), None for an absent optional tensor.
        before: Former content of the outputs, for operators that keep a part of it; None for zeros.
        budget: Maximum bytes for intermediate results; None means ``memory.host_budget``.

    Returns:
        One array per flat output, with its shape and NumPy dtype.

    Raises:
        OperatorNotImplemented: If the operator has no reference.
        OutOfMemory: If the budget would be exceeded.
    """
    if desc.operator not in _FUNCTIONS:
        raise OperatorNotImplemented(desc.operator)
    if any(slot.tensor is not None and slot.tensor.data_type is BFLOAT16 for slot in (*desc.inputs, *desc.outputs)):
        return _evaluate_bfloat16(desc, inputs, before, budget)
    extra = {"before": before} if keeps_outputs(desc.operator) else {}
    # Overflow, wrapping and NaN are expected results.
    with np.errstate(all="ignore"), allowing(desc.operator, host_budget() if budget is None else budget):
        claim_tensors(desc)
        result = _FUNCTIONS[desc.operator](desc, *_by_field(desc, inputs), **extra)
    return result if isinstance(result, tuple) else (result,)


def _evaluate_bfloat16(
    desc: OperatorDesc, inputs: Sequence[Array | None], before: Sequence[Array | None] | None, budget: int | None
) -> tuple[Array, ...]:
    """Compute an operator with tensors of BFLOAT16 in FLOAT32, and round its results; bits are those of FLOAT16."""
    is_bitwise = desc.operator.startswith("ELEMENT_WISE_BIT_")
    data_type = DataType.FLOAT16 if is_bitwise else DataType.FLOAT32

    def replaced(value: Any) -> Any:
        if value is BFLOAT16:
            return data_type
        if isinstance(value, TensorDesc) and value.data_type is BFLOAT16:
            return TensorDesc(data_type, value.sizes, flags=value.flags)
        return tuple(map(replaced, value)) if isinstance(value, tuple) else value

    def converted(array: Array | None) -> Array | None:
        if array is None or array.dtype != BFLOAT16.numpy:
            return array
        return array.view(np.float16) if is_bitwise else array.astype(np.float32)

    def restored(result: Array, output: TensorDesc | None) -> Array:
        if output is None or output.data_type is not BFLOAT16:
            return result
        return result.view(BFLOAT16.numpy) if is_bitwise else as_elements(BFLOAT16, result)

    substitute = desc.replace(**{name: replaced(value) for name, value in desc.values.items()})
    with np.errstate(all="ignore"):
        arrays, earlier = (None if part is None else [converted(array) for array in part] for part in (inputs, before))
        assert arrays is not None
        results = evaluate(substitute, arrays, earlier, budget)
        return tuple(restored(*pair) for pair in zip(results, (slot.tensor for slot in desc.outputs), strict=True))


def _by_field(desc: OperatorDesc, inputs: Sequence[Array | None]) -> list[Any]:
    """Group flat inputs by field, arrays of tensors as tuples."""
    fields: dict[str, Any] = {}
    for (name, index, _), array in zip(desc.inputs, inputs, strict=True):
        fields[name] = array if index is None else (*fields.get(name, ()), array)
    return list(fields.values())


def activated(values: Array, activation: OperatorDesc | None, output: TensorDesc) -> Array:
    """Apply a fused activation to an operator's rounded result, as a separate operator would."""
    if activation is None:
        return values
    (result,) = evaluate(activation.replace(input_tensor=output, output_tensor=output), [values])
    return result
