"""Kernels of the device in PyTorch's dispatcher: those of the table, views and copies."""

from __future__ import annotations

import functools
import math
import os
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from dmlgpu.catalog.enums import BFLOAT16, DataType, as_elements
from dmlgpu.common.errors import DeviceRemoved, DmlError, InvalidState, OutOfMemory
from dmlgpu.compiler.sizes.recordings import count_failure
from dmlgpu.frontends.torch import adapters, indices, operators, storage
from dmlgpu.frontends.torch.calls import (
    CallArguments,
    CallNumbers,
    assigned,
    function_ids,
    repeated,
    repeated_in_torch,
    repeated_into,
    wrapped,
)
from dmlgpu.frontends.torch.complex_numbers import Complex, ComplexPairs, in_memory
from dmlgpu.frontends.torch.dtypes import bound_as, cast, dtype_of, is_representable, number_as
from dmlgpu.frontends.torch.float64 import check_float64, is_float64, runs_on_host
from dmlgpu.frontends.torch.internals import schema_of, schemas_of, skip_tracing
from dmlgpu.frontends.torch.operators.registry import (
    COMPLEX,
    DECOMPOSED,
    DIFFERENTIABLE,
    ENTRIES,
    Entry,
    Promotion,
    Unsupported,
    common_dtype,
    computation_dtype,
    installed,
)
from dmlgpu.frontends.torch.operators.registry import (
    overload as overload_of,
)
from dmlgpu.frontends.torch.storage import (
    NumberUploads,
    axes_in_memory,
    count_write,
    covers_storage,
    in_order,
    is_dense,
    meta_of,
    on_host,
    pending_number,
    permuted_back,
    unowned,
    write,
)
from dmlgpu.frontends.torch.versions import INSTALLED
from dmlgpu.runtime.device import device as default_of_block
from dmlgpu.tensors.array_like import refuses_float64
from dmlgpu.tensors.calls import widened
from dmlgpu.tensors.recorded_call import steps_of_recording
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tracing import compiled

FALLBACK_VARIABLE = "DMLGPU_TORCH_FALLBACK"
"""Environment variable that lets operators which the device lacks run on the CPU, if it is 1."""

LIBRARY = torch.library.Library("aten", "IMPL")
_FALLBACK_LIBRARY = torch.library.Library("_", "IMPL")

DROPPED = frozenset({"layout", "pin_memory", "memory_format", "non_blocking"})
"""Arguments that functions of the table do not take."""

_INDEXING = frozenset({"index.Tensor", "index_put", "_index_put_impl", "_unsafe_index.Tensor", "_unsafe_index_put"})
"""Operators whose tensors of indices, their second argument, may be on the CPU."""

_NUMBER_TYPES = frozenset({"float", "number", "Optional[float]", "Optional[number]"})
"""Types of schemas that are numbers, and no sizes or axes."""

_COMPUTED_FLOATS = frozenset({torch.float32, torch.float16, torch.bfloat16})

_MAX_CONSTANTS = 4
"""Maximum sets of numbers for which an operator that is not marked as fused is compiled."""

_SCALAR_OPERANDS = frozenset({"self", "other", "exponent"})

_ROUNDING_NUMBERS = frozenset({
    "add.Tensor", "add.Scalar", "clamp", "clamp_min", "clamp_max", "copysign.Scalar", "hardshrink", "hardtanh",
    "masked_fill.Scalar", "nan_to_num", "rsub.Scalar", "sub.Tensor", "sub.Scalar", "where.ScalarOther",
    "where.ScalarSelf",
})  # fmt: skip
"""Elementwise operators of float16 and bfloat16 that round numbers to these first, as PyTorch's CPU does, besides
comparisons."""

_LIMITING = frozenset({"clamp", "clamp_min", "clamp_max"} if INSTALLED >= (2, 15) else ())
"""Operators whose numbers are limits: those outside the range of an integer dtype limit nothing, from PyTorch 2.15 on.
Earlier versions reject them, or wrap them around."""

Kernel = Callable[..., Any]


def register(name: str, kernel: Kernel, key: str = "PrivateUse1") -> None:
    """Register a kernel of the device under the name of an ATen overload, out of Dynamo's sight.

    Between the graphs of a compiled function, Dynamo traces the Python functions that run, and so kernels.
    """
    function = kernel.func if isinstance(kernel, functools.partial) else kernel
    function = function if hasattr(function, "__code__") else type(function).__call__
    skip_tracing(function.__code__)
    LIBRARY.impl(name, kernel, key)


# ---- arguments ------------------------------------------------------------------------------------------------------


def operand_of(value: Any, label: str) -> Any:
    """Convert an argument for functions of the table.

    Raises:
        RuntimeError: If it is a tensor of another device, in PyTorch's words.
    """
    if isinstance(value, torch.Tensor):
        if value.device.type == "dml":
            return storage.operand_of(value)
        if not value.dim() and value.device.type == "cpu":
            return value.item()
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, dml:0 and "
            f"{value.device}! (when checking argument in aten::{label})"
        )
    if isinstance(value, list | tuple) and any(isinstance(item, torch.Tensor) for item in value):
        return [operand_of(item, label) for item in value]
    if isinstance(value, torch.device):
        return adapters.device_of(adapters.chosen_index(value))
    return value


def index_of(arguments: Iterable[Any]) -> int | None:
    """Return the index of the first tensor of the device among arguments, None if there is none.

    Raises:
        RuntimeError: If tensors are on several adapters.
    """
    first: int | None = None
    for value in arguments:
        if isinstance(value, torch.Tensor):
            device = value.device
            if device.type == "dml":
                if first is None:
                    first = device.index
                elif device.index != first:
                    raise RuntimeError(
                        "Expected all tensors to be on the same device, but found at least two devices, "
                        f"dml:{first} and {device}!"
                    )
        elif isinstance(value, list | tuple):
            inner = index_of(value)
            first = inner if first is None else first
    return first


# ---- kernels of the table -------------------------------------------------------------------------------------------


class Caller:
    """Calls an entry of the table on torch tensors.

    Args:
        entry: The entry.
        schema: Schema of the functional overload.
    """

    def __init__(self, entry: Entry, schema: Any):
        self._function_id, self._in_place_id = next(function_ids), next(function_ids)
        self._number_id = next(function_ids)
        self.entry, self.schema, self.label = entry, schema, entry.name
        self._function, self._rule = entry.function, entry.promotes
        self._fused_result = compiled.compile(self._result)
        can_draw = torch.Tag.nondeterministic_seeded in overload_of(entry.name).tags
        self._is_fused = entry.fused or (False if can_draw else None)  # None until a call executes several operators
        self._names = [argument.name for argument in schema.arguments]
        self.takes_device = "device" in self._names
        self._operands = frozenset(
            argument.name
            for argument in schema.arguments
            if (
                argument.name in entry.operands
                if entry.operands is not None
                else "Tensor" in str(argument.type)
                or (str(argument.type) in {"number", "Scalar"} and argument.name in _SCALAR_OPERANDS)
            )
        )
        self._places = tuple(index for index, name in enumerate(self._names) if name in self._operands)
        self._number_names = frozenset(
            argument.name for argument in schema.arguments if str(argument.type) in _NUMBER_TYPES
        )  # fmt: skip
        self._numbers = self._number_names if entry.fused else frozenset[str]()
        self._constants: set[tuple[str, ...]] = set()
        self._uploads = NumberUploads(self.label)
        is_elementwise = torch.Tag.pointwise in overload_of(entry.name).tags
        is_rounding = entry.promotes is Promotion.ALWAYS_BOOL or entry.name in _ROUNDING_NUMBERS
        self._is_elementwise, self._takes_float32 = is_elementwise, is_elementwise and not is_rounding

    def compute(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, int]:
        """Return the result of the entry's function, and the index of the device; repeat an earlier call if
        possible."""
        if self.entry.reads:
            return self._compute(args, kwargs)
        return repeated(
            CallArguments(self._function_id, self._with_number(args), kwargs),
            self.label,
            lambda: self._compute(args, kwargs),
            lambda: check_arguments(self.label, args, kwargs),
            (lambda: self._call_numbers(args, kwargs)) if self._numbers else None,
        )

    def _call_numbers(self, args: Sequence[Any], kwargs: dict[str, Any]) -> CallNumbers | None:
        """Return the numbers among the arguments of a call, if floats are computed."""
        if not isinstance(args[0], torch.Tensor) or args[0].dtype not in _COMPUTED_FLOATS:
            return None
        named = self._named(args, kwargs)
        numbers = {name: value for name, value in named if name in self._numbers and type(value) in {int, float}}
        if not numbers or not self._represents(numbers.values(), args[0].dtype):
            return None

        def compute(names: Sequence[str], rows: torch.Tensor) -> tuple[Any, int]:
            tensor = storage.tensor_of(rows)
            return self._compute(args, kwargs, {name: tensor[row, 0] for row, name in enumerate(names)})

        others = {name: "number" if name in numbers else value for name, value in named}
        return CallNumbers(CallArguments(self._number_id, (), others).key, numbers, self._uploads, compute)

    def _named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return arguments with their names."""
        return [*zip(self._names, args, strict=False), *kwargs.items()]

    def _with_number(self, args: Sequence[Any]) -> Sequence[Any]:
        """Return arguments with the number that is assigned to indexed elements, which PyTorch made a tensor of."""
        if self.label not in _INDEXING or len(args) < 3 or args[2].device.type != adapters.NAME:
            return args
        number = pending_number(args[2])
        return args if number is None else (*args[:2], number, *args[3:])

    def compute_in_place(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Write the result of the entry's function into the first argument; repeat an earlier call if possible."""
        x = args[0]
        if covers_storage(x) or self.entry.reads:
            self.compute_into((x,), args, kwargs)
        else:
            self._compute_into_view(args, kwargs)

    def compute_into(
        self, targets: Sequence[torch.Tensor], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, ...]:
        """Write the last results of the entry's function into tensors, and return the others; repeat an earlier call
        if possible."""
        if self.entry.reads or not all(map(covers_storage, targets)):
            return assigned(targets, assign, *self.compute(args, kwargs))
        return repeated_into(
            targets,
            assign,
            CallArguments(self._function_id, self._with_number(args), kwargs),
            self.label,
            lambda: self._compute(args, kwargs),
            lambda: check_arguments(self.label, args, kwargs),
            (lambda: self._call_numbers(args, kwargs)) if self._numbers else None,
        )

    def _compute_into_view(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Write the result of the entry's function into the first argument, which does not cover its storage; repeat
        an earlier call, writes included, if possible."""
        x = args[0]

        def compute() -> tuple[tuple[()], int]:
            result, index = self._compute(args, kwargs)
            assign(x, result)
            return (), index

        arguments = CallArguments(self._in_place_id, self._with_number(args), kwargs)
        repeated(arguments, self.label, compute, lambda: check_arguments(self.label, args, kwargs))
        count_write(x)

    def _compute(
        self, args: Sequence[Any], kwargs: dict[str, Any], numbers: Mapping[str, Tensor] | None = None
    ) -> tuple[Any, int]:
        """Call the entry's function, on tensors instead of some numbers."""
        label = self.label
        check_float64(self, args, kwargs)
        self._check_numbers(args, kwargs)
        index = index_of(args)
        if index is None:
            index = index_of(kwargs.values())
        if label in _INDEXING:
            args = (args[0], [index if index is None else index.to(args[0].device) for index in args[1]], *args[2:])
        values = [operand_of(value, label) for value in self._with_number(args)]
        keywords = (
            {name: operand_of(value, label) for name, value in kwargs.items() if name not in DROPPED}
            if kwargs
            else kwargs
        )
        if numbers:
            values = [numbers.get(name, value) for name, value in zip(self._names, values, strict=False)]
            keywords = {name: numbers.get(name, value) for name, value in keywords.items()}
        if index is None:
            index = adapters.chosen_index(kwargs.get("device"))
            if self.takes_device:
                keywords["device"] = adapters.device_of(index)
        return in_memory(self._in_format(values, keywords, args, kwargs)), index

    def _check_numbers(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise the CPU's error for numbers outside the range of the first tensor's dtype, or of the result's.

        Its kernels convert or reject them, depending on the operator and on PyTorch's version.
        """
        numbers = [
            value
            for name, value in self._named(args, kwargs)
            if name in self._number_names and type(value) in {int, float, complex}
        ]
        if not numbers:
            return
        dtype = next((x.dtype for x in tensors_in((*args, *kwargs.values()))), kwargs.get("dtype"))
        if dtype is not None and not self._represents(numbers, dtype):
            move = _stand_in if self._is_elementwise or self.label == "fill.Scalar" else None
            rejection = error_of_torch(self.label, args, dict(kwargs), move)
            if rejection is not None:
                raise rejection

    def _represents(self, numbers: Iterable[Any], dtype: torch.dtype) -> bool:
        """Return whether numbers are in the range of the dtype in which the entry uses them."""
        if dtype in _REDUCED and (self._takes_float32 or self.entry.wide or "alpha" in self._names):
            dtype = torch.float32
        return all(is_representable(number, dtype) for number in numbers)

    def _in_format(
        self, values: list[Any], keywords: dict[str, Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Return the result of the entry's function with the strides that PyTorch's meta kernel gives it."""
        tensors = [x for x in tensors_in((args, list(kwargs.values()))) if x.device.type == adapters.NAME]
        expected: Any = None
        if self.label not in _PACKED and not all(x.is_contiguous() for x in tensors):
            expected = result_of_meta(self.label, args, kwargs)
        if self._is_elementwise and isinstance(expected, torch.Tensor) and not _has_complex(values, keywords):
            order = axes_in_memory(expected.shape, expected.stride())
            if order != sorted(order) and is_dense(expected.shape, expected.stride()):
                # on transposed operands: elements are read and written in the order of memory
                values = [_transposed(value, order) for value in values]
                keywords = {name: _transposed(value, order) for name, value in keywords.items()}
                return permuted_back(unowned(self.apply(values, keywords, args, kwargs)), order)
        result = self.apply(values, keywords, args, kwargs)
        if isinstance(result, tuple) and isinstance(expected, tuple):
            return tuple(map(_with_strides_of, result, expected))
        return result if expected is None else _with_strides_of(result, expected)

    def apply(self, values: list[Any], keywords: dict[str, Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of the entry's function for operands that PyTorch calls ``args`` and ``kwargs``."""
        rule = self._rule
        if rule is Promotion.NONE:
            if _has_complex(values, keywords):
                return self._complex_result(values, keywords)
            return self.result(values, keywords)
        target = computing = computation_dtype(rule, self.common_dtype(args, kwargs))
        if computing.is_complex:
            return self._complex_result(
                [self._complex_operand(x, index in self._places, computing) for index, x in enumerate(values)],
                {name: self._complex_operand(x, name in self._operands, computing) for name, x in keywords.items()},
            )
        if target in _REDUCED and self._takes_float32 and _has_float32((*values, *keywords.values())):
            computing = torch.float32  # scalar tensors, which promote like numbers
        convert = bound_as if self.label in _LIMITING else number_as
        for index in self._places:
            if index < len(values):
                values[index] = _promoted(values[index], computing, convert)
        if keywords:
            keywords = {
                name: _promoted(value, computing, convert) if name in self._operands else value
                for name, value in keywords.items()
            }
        result = self.result(values, keywords)
        target = torch.bool if rule is Promotion.ALWAYS_BOOL else target
        if isinstance(result, tuple):
            return tuple([cast(x, target) for x in result])
        return cast(result, target)

    def _complex_operand(self, value: Any, is_promoted: bool, dtype: torch.dtype) -> Any:
        """Return an operand converted to a complex dtype, other arguments as they are."""
        if not is_promoted or value is None:
            return value
        if isinstance(value, list):
            return [self._complex_operand(item, True, dtype) for item in value]
        if isinstance(value, Tensor | Complex):
            return cast(value, dtype)
        if isinstance(value, complex):
            return Complex(value.real, value.imag)
        return Complex(number_as(value, torch.float32), 0.0)

    def _complex_result(self, values: Sequence[Any], keywords: dict[str, Any]) -> Any:
        """Call the entry's function for complex numbers."""
        function = COMPLEX.get(self.label)
        if function is None:
            raise Unsupported("it does not compute complex numbers")
        token = refuses_float64.set(True)
        try:
            return function(*values, **keywords)
        finally:
            refuses_float64.reset(token)

    def result(self, values: Sequence[Any], keywords: dict[str, Any]) -> Any:
        """Call the entry's function; float64 is moved and cast, but never computed in float32 instead."""
        token = refuses_float64.set(True)
        try:
            if not self._is_fused:
                return self._measured_result(values, keywords)
            if not self.entry.fused and not self._has_constants(values, keywords):
                return self._result(values, keywords)
            try:
                return self._fused(values, keywords)
            except Exception as error:  # of functions that read elements for these arguments; others raise it again
                if self.entry.fused or isinstance(error, OutOfMemory | DeviceRemoved):
                    raise
                count_failure(error)
                return self._result(values, keywords)
        finally:
            refuses_float64.reset(token)

    def _fused(self, values: Sequence[Any], keywords: dict[str, Any]) -> Any:
        """Call the entry's function as a compiled graph; one of no tensors runs on the default device."""
        with default_of_block(keywords["device"]) if "device" in keywords else nullcontext():
            return self._fused_result(values, keywords)

    def _has_constants(self, values: Sequence[Any], keywords: dict[str, Any]) -> bool:
        """Return whether numbers among the arguments may be constants of a graph: those of the first calls, because
        others compile one each time."""
        numbers = tuple([
            repr(value)
            for name, value in self._named(values, keywords)
            if name in self._number_names and type(value) in {int, float}
        ])  # fmt: skip
        if numbers and len(self._constants) < _MAX_CONSTANTS:
            self._constants.add(numbers)
        return not numbers or numbers in self._constants

    def _measured_result(self, values: Sequence[Any], keywords: dict[str, Any]) -> Any:
        """Call the entry's function; if it executes several operators, compile it as a graph, and do so from now on.

        Functions that read elements or can draw random numbers are not compiled: both would happen in the first call
        only.
        """
        log = steps_of_recording()
        start = len(log)
        result = self._result(values, keywords)
        steps = log[start:]
        if len(steps) < 2 or None in steps or self._is_fused is False:
            return result
        del log[start:]
        try:
            result = self._fused(values, keywords)
            self._is_fused = self._has_constants(values, keywords)
        except (OutOfMemory, DeviceRemoved):
            raise
        except Exception as error:  # such as that of complex results
            count_failure(error)
            log[start:] = steps
            self._is_fused = False
        return result

    def _result(self, values: Sequence[Any], keywords: dict[str, Any]) -> Any:
        operands = (*values, *keywords.values())
        named = self._named(values, keywords)
        has_numbers = any(name in self._numbers and isinstance(value, Tensor) for name, value in named)
        kind = _reduced_type([value for name, value in named if name not in self._numbers])
        if kind is not None and (
            self.entry.wide
            or has_numbers
            or keywords.get("alpha", 1) != 1
            or (self._takes_float32 and any(_is_rounded(operand, kind) for operand in operands))
        ):
            wide = self._function(*map(_widened, values), **{name: _widened(x) for name, x in keywords.items()})
            return _narrowed(wide, kind)
        return self._function(*values, **keywords)

    def common_dtype(self, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.dtype:
        """Return the common dtype of the operands."""
        operands = [args[index] for index in self._places if index < len(args) and args[index] is not None]
        if kwargs:
            operands += [kwargs[name] for name in self._operands if kwargs.get(name) is not None]
        flat: list[Any] = []
        for operand in operands:
            flat += operand if isinstance(operand, list | tuple) else (operand,)
        first = flat[0]
        if len(flat) == 1 and isinstance(first, torch.Tensor):
            return first.dtype
        is_pair = len(flat) == 2 and all(isinstance(operand, torch.Tensor) for operand in flat)
        if is_pair and first.dtype is flat[1].dtype:
            return first.dtype
        return common_dtype(flat)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the functional overload."""
        try:
            if self.entry.reads:
                return wrapped(*self._compute(args, kwargs))
            index = adapters.chosen_index(kwargs.get("device")) if self.takes_device else None
            return repeated_in_torch(
                CallArguments(self._function_id, self._with_number(args), kwargs, index),
                self.label,
                lambda: self._compute(args, kwargs),
                lambda: check_arguments(self.label, args, kwargs),
                (lambda: self._call_numbers(args, kwargs)) if self._numbers else None,
            )
        except Exception as error:
            return recovered(error, self.label, args, kwargs)


def _transposed(value: Any, order: Sequence[int]) -> Any:
    """Return an operand of an elementwise operator with the axes of the result in another order."""
    if not isinstance(value, Tensor) or not value.ndim:
        return value
    first = len(order) - value.ndim
    x = value.expand_dims(tuple(range(first))) if first else value
    return x.transpose(order)


def _has_complex(values: Sequence[Any], keywords: dict[str, Any]) -> bool:
    """Return whether there are complex numbers, or complex dtypes, among arguments."""
    operands = (*values, *keywords.values())
    return any(
        isinstance(item, Complex | complex) or (isinstance(item, torch.dtype) and item.is_complex)
        for value in operands
        for item in (value if isinstance(value, list) else (value,))
    )


def _with_strides_of(result: Any, expected: Any) -> Any:
    """Return a result with the axes in memory in the order of another tensor."""
    if isinstance(result, Complex):
        order = axes_in_memory(expected.shape, expected.stride())
        if order == sorted(order) or not is_dense(expected.shape, expected.stride()) or not result.size:
            return result
        return Complex.of_pairs(in_order(result.pairs(), [*order, len(order)]))
    if not isinstance(result, Tensor) or not isinstance(expected, torch.Tensor) or result.sizes != expected.shape:
        return result
    order = axes_in_memory(expected.shape, expected.stride())
    is_packed = order == sorted(order) or not is_dense(expected.shape, expected.stride())
    return result if is_packed or not result.size else in_order(result, order)


CALLERS: dict[str, Caller] = {}
"""Callers of the entries of the table, by name."""


def _reduced_type(operands: Sequence[Any]) -> DataType | None:
    """Return the type of the floating-point tensors among operands if it is one of 16 bits, else None."""
    kinds = {x.data_type for x in operands if isinstance(x, Tensor) and x.data_type.is_float}
    kind = kinds.pop() if len(kinds) == 1 else None
    return kind if kind in _LARGEST else None


def _has_float32(operands: Sequence[Any]) -> bool:
    return any(isinstance(x, Tensor) and x.data_type is DataType.FLOAT32 for x in operands)


def _is_rounded(value: Any, data_type: DataType) -> bool:
    """Return whether a value is a number that a type of 16 bits does not represent exactly."""
    if type(value) not in {int, float} or not math.isfinite(value):
        return False
    return abs(value) > _LARGEST[data_type] or float(as_elements(data_type, value)) != value


_REDUCED = frozenset({torch.float16, torch.bfloat16})

_LARGEST = {DataType.FLOAT16: torch.finfo(torch.float16).max, BFLOAT16: torch.finfo(torch.bfloat16).max}
"""Largest finite number of each type of 16 bits."""


def _widened(value: Any) -> Any:
    return widened(value) if isinstance(value, Tensor) else value


def _narrowed(result: Any, data_type: DataType) -> Any:
    """Convert float32 results of an entry that computes in float32 to a type of 16 bits."""
    if isinstance(result, tuple):
        return tuple([_narrowed(item, data_type) for item in result])
    is_wide = isinstance(result, Tensor) and result.data_type is DataType.FLOAT32
    return result.astype(data_type) if is_wide else result


def _promoted(value: Any, dtype: torch.dtype, convert: Callable[[Any, torch.dtype], Any]) -> Any:
    """Return an operand converted to a dtype, a number by a function."""
    if isinstance(value, Tensor):
        return cast(value, dtype)
    if isinstance(value, list):
        return [_promoted(item, dtype, convert) for item in value]
    return value if value is None or dtype.is_complex else convert(value, dtype)


def translated(error: Exception, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Exception:
    """Return the error of a call of an operator as PyTorch raises it.

    In order of priority: errors of memory and devices; the CPU kernel's error for these arguments; NotImplementedError
    with the operator, the input types and the reason.
    """
    if isinstance(error, OutOfMemory):
        return torch.OutOfMemoryError(f"dml out of memory: {error}")
    if isinstance(error, DeviceRemoved | InvalidState):
        return torch.AcceleratorError(str(error))
    is_rejection = isinstance(error, DmlError | Unsupported)
    shown = None if isinstance(error, RuntimeError) and not is_rejection else error_of_torch(name, args, kwargs)
    if shown is not None:
        return shown
    if is_rejection:
        inputs = ", ".join(described(value) for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
        return Unsupported(
            f"aten::{name} is not supported on the dml device for these arguments ({inputs}): {error}; "
            f"{FALLBACK_VARIABLE}=1 computes such calls on the CPU"
        )
    return error


def recovered(error: Exception, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Retry a failed call by the fallback, if it is enabled and the arguments are valid.

    Raises:
        Exception: The result of ``translated``.
    """
    if isinstance(error, DmlError | Unsupported) and _runs_on_host(error, name, args, kwargs):
        return _on_cpu(overload_of(name), name, args, kwargs, is_announced=False)
    failure = translated(error, name, args, kwargs)
    if isinstance(failure, NotImplementedError) and os.environ.get(FALLBACK_VARIABLE) == "1":
        return _on_cpu(overload_of(name), name, args, kwargs)
    raise failure from None


def _runs_on_host(error: Exception | None, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether a call computes in float64 and is small enough for the CPU."""
    return is_float64(error, args, kwargs) and runs_on_host(name, args, kwargs, result_of_meta)


def described(x: torch.Tensor) -> str:
    """Return dtype and shape of a tensor for messages."""
    return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"


_MAX_COPIED = 1 << 20  # elements


def _elsewhere(value: Any, move: Callable[[torch.Tensor], torch.Tensor], device: torch.device) -> Any:
    """Return an argument with its tensors moved and its devices replaced."""
    if isinstance(value, torch.Tensor):
        return move(value) if value.device.type == adapters.NAME else value
    if isinstance(value, list | tuple):
        return [_elsewhere(item, move, device) for item in value]
    return device if isinstance(value, torch.device) else value


def _call_elsewhere(
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    move: Callable[[torch.Tensor], torch.Tensor],
    device: torch.device,
) -> Any:
    """Return the result of an operator on another device, without warnings."""
    moved = [_elsewhere(value, move, device) for value in args]
    named = {key: _elsewhere(value, move, device) for key, value in kwargs.items()}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return overload_of(name)(*moved, **named)


def result_of_meta(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the result of an operator's meta kernel, which has dtypes, shapes and strides; None if there is none."""
    try:
        result = _call_elsewhere(name, args, kwargs, meta_of, torch.device("meta"))
    except Exception:
        return None
    memory_format = _FORMATS.get(args[0].dim()) if name in _IGNORES_FORMATS else None
    if memory_format and any(
        not x.is_contiguous() and x.is_contiguous(memory_format=memory_format) for x in tensors_in(args[:2])
    ):
        first, *others = result if isinstance(result, tuple) else (result,)
        first = first.to(memory_format=memory_format)
        return (first, *others) if others else first
    return result


_IGNORES_FORMATS = frozenset({"convolution", "group_norm", "native_group_norm"})
"""Operators whose meta kernels return packed strides for operands in other memory formats: that of groups in PyTorch
2.14."""

_PACKED = frozenset({"log_sigmoid_forward"})
"""Operators whose results are packed on PyTorch's CPU, while their meta kernels keep the strides of operands."""

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Memory formats by rank in which channels are the innermost axis."""


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Return the tensors among arguments, those in lists included."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def _stand_in(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the CPU that stands for an operand of an elementwise operator if only numbers matter."""
    return torch.ones(stand_in_sizes(x.shape), dtype=x.dtype)


def stand_in_sizes(sizes: Sequence[int]) -> list[int]:
    """Return sizes that broadcast as others do, of few elements; of one only if the others are."""
    return [min(size, 2) for size in sizes]


def error_of_torch(
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    move: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Exception | None:
    """Return the error that the CPU raises for these arguments, for large ones the meta kernel; None for none.

    ``move`` returns tensors of the CPU that stand for those of the arguments, by default with their elements.
    A dtype that only the CPU's kernel lacks, or an operator that it does not have, is no error of the arguments.
    """
    values = [*args, *kwargs.values()]
    count = sum(value.numel() for value in values if isinstance(value, torch.Tensor))
    is_on_cpu = move is not None or count <= _MAX_COPIED
    move, device = (move or on_host, torch.device("cpu")) if is_on_cpu else (meta_of, torch.device("meta"))
    try:
        _call_elsewhere(name, args, kwargs, move, device)
    except NotImplementedError as error:  # from PyTorch 2.15 on, checks of dtypes raise it too
        return None if any(words in str(error) for words in _MISSING_KERNEL) else error
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        return error
    except Exception:
        return None
    return None


_MISSING_KERNEL = "not implemented for '", "Could not run '"
"""What PyTorch says of a dtype that a kernel lacks, and of an operator that a device lacks."""


def check_arguments(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise PyTorch's error for arguments that the operator's meta kernel rejects; it reads no elements.

    Arguments are rejected only if the CPU's kernel rejects them too, since some meta kernels need elements, and some
    fail for valid arguments: that of LSTM cells without biases, and gradients of losses of no elements.
    """
    arguments = schema_of(overload_of(name)).arguments
    if any(argument.name not in kwargs and not argument.has_default_value() for argument in arguments[len(args) :]):
        return  # of an in-place overload with more defaults: bernoulli_
    try:
        _call_elsewhere(name, args, kwargs, meta_of, torch.device("meta"))
    except Exception as error:
        if isinstance(error, NotImplementedError) and "meta" in str(error).lower():
            return  # there is no meta kernel
        rejection = error_of_torch(name, args, kwargs)
        if rejection is not None:
            raise rejection from None


def check_writable(x: torch.Tensor) -> None:
    """Check that the elements of a tensor that is written do not overlap in memory."""
    if (
        0 in x.stride()
        and x.numel()
        and any(size > 1 and not stride for size, stride in zip(x.shape, x.stride(), strict=True))
    ):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )


def assign(x: torch.Tensor, result: Tensor) -> None:
    """Write a result into a torch tensor as in-place operators do.

    Raises:
        RuntimeError: If the tensor's dtype or shape does not hold the result, in PyTorch's words.
    """
    check_writable(x)
    dtype = dtype_of(result)
    if dtype is not x.dtype:
        check_castable(dtype, x.dtype)
        result = in_memory(cast(result, x.dtype))
    sizes = _sizes_of(result)
    if sizes != x.shape:
        raise RuntimeError(f"output with shape {list(x.shape)} doesn't match the broadcast shape {list(sizes)}")
    write(x, result)


def _sizes_of(result: Tensor) -> tuple[int, ...]:
    """Return the shape of a result as PyTorch sees it."""
    return result.sizes[:-1] if isinstance(result, ComplexPairs) else result.sizes


_SCALAR_TYPES = {
    torch.bool: "Bool",
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.float32: "Float",
    torch.float64: "Double",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}
"""PyTorch's names of dtypes in messages."""


def check_castable(source: torch.dtype, target: torch.dtype) -> None:
    """Check that results of a dtype may be written into a tensor of another."""
    if not torch.can_cast(source, target):
        names = (_SCALAR_TYPES.get(dtype, str(dtype)) for dtype in (source, target))
        raise RuntimeError("result type {} can't be cast to the desired output type {}".format(*names))


def in_place(caller: Caller, name: str) -> Kernel:
    """Return the kernel of an in-place overload: the functional one, written into its first argument."""

    def kernel(x: torch.Tensor, *others: Any, **kwargs: Any) -> Any:
        args = x, *others
        try:
            caller.compute_in_place(args, kwargs)
        except Exception as error:
            return recovered(error, name, args, kwargs)
        return x

    return kernel


def with_out(caller: Caller, name: str, outputs: Sequence[str]) -> Kernel:
    """Return the kernel of an ``out=`` overload: the functional one, written into the tensors passed by name."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        targets = [kwargs[output] for output in outputs]
        keywords = {key: value for key, value in kwargs.items() if key not in outputs}
        try:
            results = caller.compute(args, keywords)[0]
            results = results if isinstance(results, tuple | list) else (results,)
            for target, result in zip(targets, results, strict=True):
                check_castable(dtype_of(result), target.dtype)
                fit(target, _sizes_of(result))
                assign(target, result)
        except Exception as error:
            return recovered(error, name, args, kwargs)
        return targets[0] if len(targets) == 1 else tuple(targets)

    return kernel


def updating(caller: Caller, name: str, written: Sequence[int]) -> Kernel:
    """Return the kernel of an overload that writes the last results of the functional one into arguments.

    Args:
        caller: Calls the functional overload.
        name: The overload.
        written: Numbers of these arguments.
    """

    def kernel(*args: Any) -> Any:
        try:
            return caller.compute_into([args[place] for place in written], args, {})
        except Exception as error:
            return recovered(error, name, args, {})

    return kernel


def fit(target: torch.Tensor, sizes: tuple[int, ...]) -> None:
    """Resize a tensor passed as ``out=``, with PyTorch's warning if it has elements of another shape."""
    if tuple(target.shape) == sizes:
        return
    if target.numel():
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(target.shape)}, which does not "
            f"match the required output shape {list(sizes)}. This behavior is deprecated, and in a future PyTorch "
            "release outputs will not be resized unless they have zero elements. You can explicitly reuse an out "
            "tensor t by resizing it, inplace, to zero elements with t.resize_(0).",
            stacklevel=2,
        )
    target.resize_(sizes)


# ---- registration ---------------------------------------------------------------------------------------------------


def _arguments(schema: Any) -> list[tuple[str, str]]:
    return [
        (argument.name, str(argument.type))
        for argument in schema.arguments
        if not (argument.is_out or argument.name in {"memory_format", "layout", "pin_memory", "device", "dtype"})
    ]


def _full_name(schema: Any) -> str:
    name = schema.name.removeprefix("aten::")
    return f"{name}.{schema.overload_name}" if schema.overload_name else name


def register_table(own: Container[str]) -> None:
    """Register kernels for all entries of the table, their in-place and their ``out=`` overloads, but for overloads
    that have kernels of their own."""
    for entry in ENTRIES.values():
        packet, _, suffix = entry.name.partition(".")
        family = schemas_of(f"aten::{packet}")
        schema = next((candidate for candidate in family if candidate.overload_name == suffix), None)
        if schema is None:
            raise ValueError(f"aten::{entry.name} does not exist")
        caller = CALLERS[entry.name] = Caller(entry, schema)
        register(entry.name, indices.checked(entry.name, caller))
        arguments = _arguments(schema)
        base = packet.removesuffix("_functional")
        for other in (*family, *schemas_of(f"aten::{base}_"), *(schemas_of(f"aten::{base}") if base != packet else ())):
            name = _full_name(other)
            if other is schema or name in ENTRIES or name in own or _arguments(other) != arguments:
                continue
            outputs = [argument.name for argument in other.arguments if argument.is_out]
            written = [
                place
                for place, argument in enumerate(other.arguments)
                if argument.alias_info is not None and argument.alias_info.is_write
            ]
            if outputs:
                register(name, indices.checked(entry.name, with_out(caller, name, outputs)))
            elif other.name.endswith("_") and written:
                register(name, indices.checked(entry.name, in_place(caller, name)))
            elif written:
                register(name, updating(caller, name, written))
    for name, function in DECOMPOSED.items():
        register(name, _composed(name, function))
    for name, function in DIFFERENTIABLE.items():
        register(name, function, "AutogradPrivateUse1")


def _composed(name: str, function: Kernel) -> Kernel:
    """Return the kernel of an operator that calls others: the function, or the CPU's kernel for float64."""

    @functools.wraps(function)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        tensors = [x for x in args if isinstance(x, torch.Tensor)]  # those in lists are left to the function's calls
        if is_float64(None, tensors, kwargs) and _runs_on_host(None, name, args, kwargs):
            return _on_cpu(overload_of(name), name, args, kwargs, is_announced=False)
        return function(*args, **kwargs)

    return kernel


# ---- missing operators ----------------------------------------------------------------------------------------------

_listed: set[str] = set()


def fallback(overload: Any, *args: Any, **kwargs: Any) -> Any:
    """Reject an operator that the device lacks, or compute it on the CPU if DMLGPU_TORCH_FALLBACK is 1."""
    name = _full_name(schema_of(overload))
    if os.environ.get(FALLBACK_VARIABLE) == "1":
        return _on_cpu(overload, name, args, kwargs)
    if _runs_on_host(None, name, args, kwargs):
        return _on_cpu(overload, name, args, kwargs, is_announced=False)
    values = (item for value in (*args, *kwargs.values()) for item in (value if isinstance(value, list) else (value,)))
    inputs = ", ".join(described(value) for value in values if isinstance(value, torch.Tensor))
    raise NotImplementedError(
        f"{_qualified(name)} is not implemented for the dml device (inputs: {inputs or 'none'}); "
        f"{FALLBACK_VARIABLE}=1 computes such operators on the CPU"
    )


def _qualified(name: str) -> str:
    """Return the name of an operator with its namespace, which names of ATen lack."""
    return name if "::" in name else f"aten::{name}"


def _on_cpu(overload: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any], *, is_announced: bool = True) -> Any:
    """Return the result of the CPU's kernel on the device; say so once for each operator if it is announced."""
    if is_announced and name not in _listed:
        _listed.add(name)
        warnings.warn(f"{_qualified(name)} is computed on the CPU: the dml device does not have it", stacklevel=2)
    index = index_of((*args, *kwargs.values()))
    index = adapters.chosen_index(kwargs.get("device")) if index is None else index
    moved: list[tuple[torch.Tensor, torch.Tensor]] = []

    def to_cpu(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type == "dml":
            copy = (
                value.cpu().clone() if schema_of(overload).is_mutable else value.cpu()
            )  # NumPy's memory has fixed sizes
            moved.append((value, copy))
            return copy
        if isinstance(value, list | tuple):
            return [to_cpu(item) for item in value]
        return torch.device("cpu") if isinstance(value, torch.device) else value

    copies, named = [to_cpu(value) for value in args], {key: to_cpu(value) for key, value in kwargs.items()}
    result = overload(*copies, **named)
    written = [
        copy
        for position, argument in enumerate(schema_of(overload).arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
        for copy in tensors_in([copies[position] if position < len(copies) else named.get(argument.name)])
    ]
    for original, copy in moved:
        if any(copy is x for x in written):
            if tuple(original.shape) != tuple(copy.shape):
                original.resize_(copy.shape)
            original.copy_(copy)

    def to_device(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            original = next((original for original, copy in moved if copy is value), None)
            return value.to(adapters.torch_device(index)) if original is None else original
        if isinstance(value, list | tuple):
            return type(value)(map(to_device, value))
        return value

    return to_device(result)


def register_all() -> None:
    """Register all kernels of the device."""
    from dmlgpu.frontends.torch import copies, foreach, views  # noqa: PLC0415

    operators.load()
    register_table(views.KERNELS.keys() | copies.KERNELS)
    for kernels in (views.KERNELS, copies.KERNELS, foreach.kernels()):
        for name in installed(kernels):
            register(name, kernels[name])
    for key in ("Conjugate", "Negative"):  # copies heed these bits, and PyTorch would copy to resolve them
        LIBRARY.impl("_copy_from", torch.library.fallthrough_kernel, key)
    _FALLBACK_LIBRARY.fallback(fallback, "PrivateUse1")
