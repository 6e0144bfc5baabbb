"""``grad`` and ``value_and_grad``: gradients of functions of tensors, by reverse mode.

While a function runs, a tape takes note of the operators that it calls. Gradients belong to memory, not to tensors:
every view of a memory adds to the gradient of its elements, so that views need no rule of their own.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, NotSupported, shown
from dmlgpu.runtime.device import Device, as_device
from dmlgpu.tensors.array_like import parts_of
from dmlgpu.tensors.calls import filled, passed
from dmlgpu.tensors.gradients import elementwise, layers, moving, recurrent  # noqa: F401  each registers its rules
from dmlgpu.tensors.gradients.moving import into_slice
from dmlgpu.tensors.gradients.rules import RULES, summed
from dmlgpu.tensors.memory import NOTHING, NodeMemory, current_caller, recorder, tapes
from dmlgpu.tensors.preparation import data_type_for, prepare
from dmlgpu.tensors.strided import TensorBase
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tracing.trace import as_tensor, mapped
from dmlgpu.tensors.types import is_number


class _SameMemory:
    """The memory of an argument under another identity, so that other reads of this memory are constants."""

    def __init__(self, memory: Any):
        self._of = memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


@dataclass(frozen=True)
class _Followed:
    """Memory whose gradient is followed: ``size`` elements of a type from element ``begin`` on. Holds the memory, so
    that its identity stays unique while the tape lives."""

    memory: Any
    data_type: DataType
    begin: int
    size: int


@dataclass(frozen=True)
class OperatorRecord:
    """One call of an operator, as gradient rules read it.

    Attributes:
        kind: the operator.
        label: the function that called it, for messages.
        values: inputs and attributes by field, as they were given.
        options: types, sizes and requested outputs.
        outputs: results of the call.
    """

    kind: type[OperatorDesc]
    label: str
    values: Mapping[str, Any]
    options: Mapping[str, Mapping[str, Any]]
    outputs: tuple[Any, ...]

    @functools.cached_property
    def desc(self) -> Any:
        """The description of the call, with all attributes."""
        types = {field: value.data_type for field, value in self._operands.items() if isinstance(value, TensorBase)}

        def described(field: str, value: Any) -> Any:
            if isinstance(value, list | tuple):
                return tuple([described(field, part) for part in value])
            if isinstance(value, TensorBase):
                return TensorDesc(*value.signature)
            number_type = data_type_for(self.kind, field, types) if is_number(value) else None
            return value if number_type is None else TensorDesc(number_type, (1,))

        values = {
            field: described(field, self._operands[field]) if field in self._operands else value
            for field, value in self.values.items()
        }
        absent = [field for field, present in self.options["requested"].items() if not present]
        return prepare(
            self.label,
            self.kind,
            values,
            types=self.options["types"],
            sizes=self.options["sizes"],
            absent=absent,
        )

    @functools.cached_property
    def _operands(self) -> dict[str, Any]:
        """The inputs by field; arrays as tensors, scalars with one dimension."""
        beside = next(output for output in self.outputs if output is not None)

        def operand(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [operand(part) for part in value]
            if isinstance(value, np.ndarray):
                value = beside._beside(value)
            return value.reshape(1) if isinstance(value, Tensor) and not value.sizes else value

        return {field: operand(self.values[field]) for field in self.kind.input_fields if field in self.values}

    def __getitem__(self, field: str) -> Any:
        return self._operands.get(field)

    def result(self, index: int = 0) -> Any:
        """Return an output, a scalar with one dimension."""
        output = self.outputs[index]
        return output if output.sizes else output.reshape(1)

    def through(
        self, function: Callable[..., Sequence[Any]], operands: Sequence[Any], gradients: Sequence[Any]
    ) -> list[Any]:
        """Return the gradients of operands by way of a function that computes the outputs with other operators.

        Args:
            function: Returns the outputs for the operands.
            operands: Tensors and numbers.
            gradients: Gradients of the outputs; None for outputs without influence.

        Returns:
            Gradient of each operand; None for those that have none.
        """
        with recorded() as tape:
            followed = [tape.follow(operand) if isinstance(operand, TensorBase) else operand for operand in operands]
            results = function(*followed)
        influential = [pair for pair in zip(results, gradients, strict=True) if pair[1] is not None]
        gradient_of = tape.backward([(result, gradient.reshape(result.sizes)) for result, gradient in influential])
        return [
            gradient_of(operand) if isinstance(operand, TensorBase) and operand.data_type.is_float else None
            for operand in followed
        ]

    def rejection(self, reason: str = "") -> NotSupported:
        """Return the exception for an operator or operand without gradient."""
        where = "" if self.label == self.kind.operator.lower() else f", which {self.label} calls,"
        return NotSupported(f"grad: {self.kind.operator}{where} has no gradient{reason}")


class Tape:
    """The operators that a function calls on tensors that depend on its arguments."""

    def __init__(self) -> None:
        self._records: list[OperatorRecord] = []
        self._followed: dict[int, _Followed] = {}

    def follow(self, tensor: Any) -> Any:
        """Return a tensor of the same elements whose gradient is followed."""
        if tensor.signature[2] is not None or (tensor.offset and isinstance(tensor.buffer, NodeMemory)):
            tensor = tensor.copy()
        memory = tensor.buffer
        same: Any = (
            NodeMemory(memory.graph, memory.origin, memory.desc, memory.argument)
            if isinstance(memory, NodeMemory)
            else _SameMemory(memory)
        )
        result = tensor._moved(same, 0)
        self._follow(result)
        for tape in tapes.get():
            if tape is not self:
                tape.record_same(tensor, result)
        return result

    def _follow(self, tensor: Any) -> None:
        self._followed[id(tensor.buffer)] = _Followed(tensor.buffer, tensor.data_type, tensor.offset, tensor.size)

    def record_same(self, tensor: Any, result: Any) -> None:
        """Record that a tensor has other memory with the same elements."""
        self.record(descs.ElementWiseIdentity, "grad", {"input_tensor": tensor}, {}, (result,))

    def record(
        self,
        kind: type[OperatorDesc],
        label: str,
        values: Mapping[str, Any],
        options: Mapping[str, Any],
        outputs: tuple[Any, ...],
    ) -> None:
        """Record a call if its inputs depend on followed memory and an output is floating point."""
        if not any(
            isinstance(operand, TensorBase) and id(operand.buffer) in self._followed
            for field in kind.input_fields
            for operand in parts_of(values.get(field))
        ):
            return
        floats = [output for output in outputs if isinstance(output, TensorBase) and output.data_type.is_float]
        if not floats:
            return
        # Tensors may be assigned to later on: the record has its own.
        present = {
            field: [_held(part) for part in value]
            if field in kind.input_fields and isinstance(value, list | tuple)
            else _held(value)
            for field, value in values.items()
        }
        all_options = {name: options.get(name, NOTHING) for name in ("types", "sizes", "requested")}
        self._records.append(OperatorRecord(kind, label, present, all_options, tuple(map(_held, outputs))))
        for output in floats:
            self._follow(output)

    def backward(self, results: Sequence[tuple[Any, Any]]) -> Callable[[Any], Any]:
        """Return a function that returns the gradient of a followed tensor, given pairs of results and their gradients.

        Raises:
            NotSupported: an operator on the way has no gradient.
        """
        gradients: dict[int, Any] = {}
        token, caller = tapes.set(tuple(tape for tape in tapes.get() if tape is not self)), current_caller.set("grad")
        try:
            for result, gradient in results:
                self._add(gradients, result, gradient, "grad")
            for record in reversed(self._records):
                flat = [
                    gradients.pop(id(output.buffer), None) if output is not None else None for output in record.outputs
                ]
                if any(part is not None for part in flat):
                    self._pass(gradients, record, flat)
        finally:
            tapes.reset(token)
            current_caller.reset(caller)

        def gradient_of(tensor: Any) -> Any:
            flat = gradients.get(id(tensor.buffer))
            return filled(tensor, tensor.sizes) if flat is None else flat.reshape(tensor.sizes)

        return gradient_of

    def _pass(self, gradients: dict[int, Any], record: OperatorRecord, flat: Sequence[Any]) -> None:
        """Propagate the gradients of an operator's outputs to its inputs."""
        rule = RULES.get(record.kind.operator)
        if rule is None:
            raise record.rejection()
        parts = [
            None if part is None else part.reshape(output.sizes or (1,))
            for part, output in zip(flat, record.outputs, strict=True)
        ]
        for field, compute in rule(record, *parts).items():
            value = record.values.get(field)
            computes = compute if isinstance(compute, list) else [compute]
            for operand, part in zip(parts_of(value), computes, strict=True):
                if (
                    part is not None
                    and isinstance(operand, TensorBase)
                    and operand.data_type.is_float
                    and id(operand.buffer) in self._followed
                ):
                    gradient = part()
                    if gradient is not None:
                        of_operand = summed(gradient, operand.sizes).astype(operand.data_type)
                        self._add(gradients, operand, of_operand, record.label)

    def _add(self, gradients: dict[int, Any], tensor: Any, gradient: Any, label: str) -> None:
        """Add the gradient of a view to that of its memory."""
        followed = self._followed.get(id(tensor.buffer))
        if followed is None:
            return
        if tensor.data_type is not followed.data_type:
            raise NotSupported(
                f"grad: {label} reads {followed.data_type.name} as {tensor.data_type.name}, which has no gradient"
            )
        flat = _in_memory(gradient, tensor, followed, label)
        key = id(tensor.buffer)
        gradients[key] = flat if key not in gradients else gradients[key] + flat


def _held(value: Any) -> Any:
    return value._same() if isinstance(value, TensorBase) else value


def _in_memory(gradient: Any, view: Any, followed: _Followed, label: str) -> Any:
    """Return the gradient of a memory's elements, in their order, by that of a view of them.

    Raises:
        NotSupported: the view shows an element in several places other than by repeating it along a dimension.
    """
    pairs = list(zip(view.sizes, view.strides, strict=True))
    if view.signature[2] is None:
        flat, extent = gradient.reshape(-1), view.size
    else:
        repeated = tuple(axis for axis, (size, stride) in enumerate(pairs) if size > 1 and stride == 0)
        sizes = tuple(1 if axis in repeated else size for axis, size in enumerate(view.sizes))
        gradient = summed(gradient, sizes)
        order = sorted(
            (axis for axis in range(view.ndim) if sizes[axis] > 1), key=lambda axis: pairs[axis][1], reverse=True
        )
        rest = [axis for axis in range(view.ndim) if axis not in order]
        flat = gradient.transpose(*rest, *order).reshape(*[sizes[axis] for axis in order], 1)
        extent = 1
        for axis in reversed(order):  # from the innermost dimension on: `flat` ends in blocks of what lies inside it
            size, stride = pairs[axis]
            if extent > stride:
                raise NotSupported(f"grad: {label} reads elements that overlap, which has no gradient")
            flat = _of_length(flat, stride)
            flat = flat.reshape(*flat.sizes[:-2], size * stride)
            extent += (size - 1) * stride
    before = view.offset - followed.begin
    if before < 0 or before + extent > followed.size:
        raise NotSupported(f"grad: {label} reads beyond the elements of a tensor, which has no gradient")
    if before == 0 and flat.size == followed.size:
        return flat.reshape(-1)
    flat = _of_length(flat.reshape(-1), extent)
    return into_slice(flat, (followed.size,), (before,), (extent,), (1,))


def _of_length(tensor: Any, length: int) -> Any:
    """Return a tensor whose last dimension is cut, or continued by zeros."""
    size = tensor.sizes[-1]
    if size >= length:
        return tensor if size == length else tensor[..., :length]
    rank = tensor.ndim
    return into_slice(tensor, (*tensor.sizes[:-1], length), (0,) * rank, tensor.sizes, (1,) * rank)


@contextmanager
def recorded() -> Iterator[Tape]:
    """Record the operators that this thread calls inside."""
    tape = Tape()
    token = tapes.set((*tapes.get(), tape))
    try:
        yield tape
    finally:
        tapes.reset(token)


# ---- functions of functions ------------------------------------------------------------------------------------------


def grad(function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that computes the gradient of a function of tensors.

    The returned function takes the arguments of `function`.

    Args:
        function: Function that returns a tensor of one element; with `has_aux`, a pair of that and any other value.
        argnums: Position, or positions, of the arguments to differentiate by; defaults to 0. Negative ones count from
            the end.
        has_aux: Whether `function` returns a pair; defaults to False.

    Returns:
        Function that returns the gradient in the structure of the argument, a tuple of gradients for several `argnums`;
        with `has_aux`, a pair of that and the other value.

    Raises:
        InvalidArgument: If `function` is not callable, or `argnums` are not positions. Calls raise as those of
            `value_and_grad`.

    Examples:
        >>> slope = dmlgpu.grad(lambda x: ops.sum(x * x))
        >>> slope(Tensor([1.0, 2.0])).tolist()
        [2.0, 4.0]

    See also:
        `dmlgpu.value_and_grad`, `dmlgpu.compile`.
    """
    checked = _DifferentiatedFunction("grad", function, argnums, has_aux)

    @functools.wraps(function)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        _, aux, gradients = checked(args, kwargs)
        return (gradients, aux) if checked.has_aux else gradients

    return gradient


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that computes the value and the gradient of a function of tensors.

        def loss(parameters, x, y):
            return ops.mean((x @ parameters["weight"] + parameters["bias"] - y) ** 2)

        step = dmlgpu.compile(dmlgpu.value_and_grad(loss))  # one graph
        value, gradients = step(parameters, x, y)  # gradients["weight"], gradients["bias"]

    Arguments may be tensors, arrays and numbers, in lists, tuples, dicts and dataclasses, which may hold other values
    as well: these have a gradient of None. Arrays are copied to the device of the tensors. If all are arrays or
    numbers, results are arrays, unless `compile` traces the function. Arguments that do not influence the value have
    gradients of zeros; integers and booleans computed from them pass no gradient on. Everything else that the function
    reads is constant, even if it shares memory with an argument.

    Args:
        function: Function that returns a tensor of one element; with `has_aux`, a pair of that and any other value.
        argnums: Position, or positions, of the arguments to differentiate by; defaults to 0. Negative ones count from
            the end.
        has_aux: Whether `function` returns a pair; defaults to False.

    Returns:
        Function that returns the pair (value, gradient). The gradient has the structure of the argument, and is a tuple
        for several `argnums`; with `has_aux` the value is the pair of value and other value. A call raises the
        exceptions of `function`, InvalidArgument (no such argument, an argument without floating-point elements only,
        or a result that is not a tensor of one floating-point element) and NotSupported (an operator on the way has no
        gradient; names it).

    Raises:
        InvalidArgument: If `function` is not callable, or `argnums` are not positions.

    Examples:
        >>> square = dmlgpu.value_and_grad(lambda x: ops.sum(x * x))
        >>> value, gradient = square(Tensor([1.0, 2.0]))
        >>> value.item(), gradient.tolist()
        (5.0, [2.0, 4.0])

    See also:
        `dmlgpu.grad`, `dmlgpu.compile`.
    """
    checked = _DifferentiatedFunction("value_and_grad", function, argnums, has_aux)

    @functools.wraps(function)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        value, aux, gradients = checked(args, kwargs)
        return ((value, aux) if checked.has_aux else value), gradients

    return value_and_gradient


class _DifferentiatedFunction:
    """A function with the positions of the arguments by which it is differentiated."""

    def __init__(self, caller: str, function: Any, argnums: Any, has_aux: Any):
        if not callable(function):
            raise InvalidArgument(f"{caller}: function must be callable, got {shown(function, typed=True)}")
        self.has_aux: bool = coercion.argument(caller, "has_aux", coercion.boolean, has_aux)
        numbers = argnums if isinstance(argnums, list | tuple) else (argnums,)
        positions = [None if isinstance(index, bool) else coercion.as_index(index) for index in numbers]
        if not positions or any(position is None for position in positions):
            raise InvalidArgument(
                f"{caller}: argnums must be the position of an argument, or a tuple of some, got {shown(argnums)}"
            )
        self._caller, self._function = caller, function
        self._positions: list[int] = [operator.index(position) for position in positions if position is not None]
        self._is_single = not isinstance(argnums, list | tuple)
        self._name = str(getattr(function, "__name__", type(function).__name__))

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
        """Return the value, the auxiliary results and the gradients."""
        positions = self._checked_positions(len(args))
        tensors: list[TensorBase] = []
        mapped((args, kwargs), lambda value: tensors.append(value) if isinstance(value, TensorBase) else None)
        trace: Any = recorder()
        is_host = not tensors and trace is None
        device = tensors[0].device if tensors else trace.device if trace is not None else as_device(self._caller, None)
        with recorded() as tape:
            followed = {index: self._followed(tape, device, index, args[index]) for index in positions}
            copies: list[tuple[Any, Any]] = []
            tensor_args = tuple(
                mapped(followed[index], _own)
                if index in followed
                else self._on_device(f"argument {index}", value, device, copies)
                for index, value in enumerate(args)
            )
            keywords = {name: self._on_device(name, value, device, copies) for name, value in kwargs.items()}
            with passed(copies):
                result = self._function(*tensor_args, **keywords)
        value, aux = self._checked_result(result)
        gradient_of = tape.backward([(value, filled(value, value.sizes, 1))])
        gradients = tuple(
            mapped(followed[index], lambda part: None if isinstance(part, _Constant) else gradient_of(part))
            for index in positions
        )
        if is_host:
            value, aux, gradients = (mapped(part, _on_host) for part in (value, aux, gradients))
        return value, aux, gradients[0] if self._is_single else gradients

    def _on_device(self, name: str, value: Any, device: Device, copies: list[tuple[Any, Any]]) -> Any:
        """Return an argument with its arrays as tensors; record the copies."""

        def tensor(part: Any) -> Any:
            if not isinstance(part, np.ndarray):
                return part
            copies.append((as_tensor(self._caller, f"{name} of `{self._name}`", part, device), part))
            return copies[-1][0]

        return mapped(value, tensor)

    def _checked_positions(self, count: int) -> list[int]:
        for index in self._positions:
            if not -count <= index < count:
                raise InvalidArgument(
                    f"{self._caller}: argnums must name arguments that are given by position, of which `{self._name}` "
                    f"got {count}, got {index}"
                )
        return [index % count for index in self._positions]

    def _followed(self, tape: Tape, device: Device, index: int, value: Any) -> Any:
        """Return an argument whose gradient is requested, recorded by the tape.

        In a structure, None, integers and other values that are no floating-point numbers are constants.
        """
        is_structure = False

        def follow(part: Any) -> Any:
            nonlocal is_structure
            is_structure = part is not value
            tensor = part
            if isinstance(part, float | np.floating):
                dtype = np.float16 if isinstance(part, np.float16) else np.float32
                tensor = Tensor(np.asarray(part, dtype), device=device)
            elif isinstance(part, np.ndarray):
                tensor = as_tensor(self._caller, f"argument {index} of `{self._name}`", part, device)
            has_gradient = isinstance(tensor, TensorBase) and tensor.data_type.is_float
            followed.append(has_gradient)
            return tape.follow(tensor) if has_gradient else _Constant(tensor)

        followed: list[bool] = []
        result = mapped(value, follow)
        if not any(followed):
            got = (
                "none"
                if is_structure
                else value.type_name
                if isinstance(value, TensorBase)
                else shown(value, typed=True)
            )
            raise InvalidArgument(
                f"{self._caller}: argument {index} of `{self._name}` must hold floating-point numbers to have a "
                f"gradient, got {'none' if is_structure else got}; argnums names other arguments, "
                "x.astype('float32') converts"
            )
        return result

    def _checked_result(self, result: Any) -> tuple[Any, Any]:
        aux = None
        if self.has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise InvalidArgument(
                    f"{self._caller}: with has_aux, `{self._name}` must return a pair (value, anything else), got "
                    f"{shown(result, typed=True)}"
                )
            result, aux = result
        if not isinstance(result, Tensor) or not result.data_type.is_float or result.size != 1:
            got = (
                f"{result.type_name} {list(result.sizes)}" if isinstance(result, Tensor) else shown(result, typed=True)
            )
            raise InvalidArgument(
                f"{self._caller}: `{self._name}` must return a Tensor of one floating-point number, got {got}; "
                "ops.sum or ops.mean makes one of many"
            )
        return result, aux


class _Constant:
    """A value in a structure that has no gradient."""

    def __init__(self, value: Any):
        self.value = value


def _own(part: Any) -> Any:
    """Return a leaf of an argument as the function gets it: a tensor of its own, which it may assign to, or a
    constant."""
    return part.value if isinstance(part, _Constant) else part._same()


def _on_host(value: Any) -> Any:
    return value.numpy() if isinstance(value, Tensor) else value
