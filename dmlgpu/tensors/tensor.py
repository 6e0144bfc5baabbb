"""Arrays that live on a device."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, packed_strides
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.runtime.device import Device, as_device
from dmlgpu.tensors import indexing, layout
from dmlgpu.tensors.arithmetic import Arithmetic, matrix_product
from dmlgpu.tensors.execution import call_op
from dmlgpu.tensors.memory import NodeMemory
from dmlgpu.tensors.session import session_of
from dmlgpu.tensors.strided import TensorBase
from dmlgpu.tensors.types import TypeLike, as_array, as_data_type, bytes_of, is_boolean_type, promoted


class Tensor(TensorBase, Arithmetic):
    """An array on a device, or a value of a graph. Memory never changes once it is computed, so that views may share
    it: assignment gives the tensor that is assigned to new memory.

        x = Tensor([[1, 2], [3, 4]], "float32")
        y = (x.T * 2 + 1).numpy()

    ``T``, ``transpose``, ``broadcast_to``, ``squeeze``, ``expand_dims``, ``reshape`` where strides allow and indexing
    with integers and slices return views; ``is_view`` tells. Slices that run backwards, and indices that are arrays of
    integers or of truth values, copy. A view that an operator reads is copied before where it does not begin at a
    multiple of 16 bytes, which DirectML's bindings ask for.

    Args:
        values: numbers in lists or in an array; a NumPy array or whatever has ``__array__``. Truth values stay such, 0
            or 1 of UINT8; floats that come in lists become FLOAT32.
        dtype: the elements' type: DirectML's, NumPy's or its name, ``bool`` for truth values; None takes the values'.
        device: where it lives: a device, the name of an adapter, or None for ``default_device()``.

    Raises:
        InvalidArgument: no numbers, some that the type does not hold, or more than 8 dimensions.
        OutOfMemory: the device has no room.
    """

    __slots__ = ()

    def __init__(self, values: Any, dtype: TypeLike | None = None, *, device: Device | str | None = None):
        caller = "Tensor"
        is_boolean = dtype is not None and is_boolean_type(dtype)
        requested = None if dtype is None or is_boolean else as_data_type(caller, "dtype", dtype)
        array, data_type = as_array(caller, "values", values, requested)
        if is_boolean or array.dtype == bool:
            array, data_type, is_boolean = np.asarray(array != 0).astype(np.uint8), DataType.UINT8, True
        if array.ndim > MAX_DIMENSIONS:
            raise InvalidArgument(f"{caller}: values must have at most {MAX_DIMENSIONS} dimensions, got {array.ndim}")
        self._upload(array, data_type, as_device(caller, device), is_boolean)

    def _upload(self, array: NDArray[Any], data_type: DataType, device: Device, truth: bool = False) -> None:
        """Take memory of a device, and fill it with elements of the data type's own NumPy type."""
        raw = bytes_of(array, data_type)
        buffer = session_of(device).pool.take(device, raw.size, "Tensor")
        if array.size:
            buffer.write(raw)
        self._set(buffer, data_type, array.shape, packed_strides(array.shape), None, truth)

    @classmethod
    def _uploaded(cls, array: NDArray[Any], device: Device) -> Self:
        """Return an array of a data type's own NumPy type, of at most 8 dimensions, as a tensor on a device."""
        tensor = cls.__new__(cls)
        tensor._upload(array, DataType.from_numpy(array.dtype), device)
        return tensor

    @classmethod
    def from_numpy(cls, array: NDArray[Any], *, device: Device | str | None = None) -> Tensor:
        """Return a copy of a NumPy array on a device, of the same type and shape.

        Raises:
            InvalidArgument: not a NumPy array, or none that ``Tensor`` takes.
            OutOfMemory: the device has no room.
        """
        if not isinstance(array, np.ndarray):
            raise InvalidArgument(f"Tensor.from_numpy: array must be a NumPy array, got {type(array).__name__}")
        return cls(array, device=device)

    def to(self, device: Device | str | None) -> Tensor:
        """Return the tensor on a device: itself where it lives there, else a copy by way of the host.

        Raises:
            InvalidArgument: no device; AdapterNotFound: no adapter of the name.
            OutOfMemory: the device has no room.
        """
        target = as_device("Tensor.to", device)
        return self if target is self.device else Tensor(self.numpy(), self._type, device=target)

    def to_device(self, device: Device | str | None, /, *, stream: None = None) -> Tensor:
        """Return the tensor on a device, as ``to`` does, by the array API's name.

        Raises:
            InvalidArgument: no device, or a stream, of which devices have none.
            AdapterNotFound: no adapter of the name.
            OutOfMemory: the device has no room.
        """
        if stream is not None:
            raise InvalidArgument(f"Tensor.to_device: stream must be None, got {shown(stream)}")
        return self.to(device)

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        namespace = importlib.import_module("dmlgpu.array")
        if api_version is not None and api_version not in namespace.VERSIONS:
            known = ", ".join(namespace.VERSIONS)
            raise InvalidArgument(
                f"Tensor.__array_namespace__: api_version must be one of {known}, got {shown(api_version)}"
            )
        return namespace

    @property
    def _type(self) -> Any:
        """What ``Tensor`` takes as the type of these elements."""
        return bool if self.is_boolean else self.data_type

    def __reduce__(self) -> tuple[Any, ...]:
        return Tensor, (self.numpy(), self._type)

    def __copy__(self) -> Tensor:
        return self._same()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self._same()

    def __len__(self) -> int:
        if not self.sizes:
            raise TypeError("a Tensor without dimensions has no length")
        return self.sizes[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[number] for number in range(len(self)))

    def reshape(self, *sizes: Any, copy: bool | None = None) -> Tensor:
        """Return the elements, in order, with other sizes: a view where strides allow.

        Args:
            sizes: as many elements; one may be -1, which stands for what is left.
            copy: None copies where no view will do, True always, False never.

        Raises:
            InvalidArgument: another number of elements, or a copy is needed that must not be.
        """
        values = sizes[0] if len(sizes) == 1 else sizes
        shape = layout.resolved_sizes("Tensor.reshape", values, self.size)
        strides = None if copy else layout.reshaped_strides(self.sizes, self.strides, shape)
        if strides is not None:
            return self._view(shape, strides)
        if copy is False:
            raise InvalidArgument(
                f"Tensor.reshape: copy must not be False: {list(self.sizes)} with strides {list(self.strides)} cannot "
                f"be seen as {list(shape)}"
            )
        return self.copy()._renamed(shape)

    def __getitem__(self, index: Any) -> Tensor:
        caller = "Tensor[...]"
        if isinstance(index, tuple):
            if any(map(indexing.is_array, index)):
                return indexing.select(self, index)
        elif isinstance(index, Tensor | np.ndarray | list | bool | np.bool_):
            return self._gathered(index)
        selection = layout.select(caller, self.sizes, self.strides, index if isinstance(index, tuple) else (index,))
        if len(selection.sizes) > MAX_DIMENSIONS:
            raise InvalidArgument(f"{caller}: indices must leave at most 8 dimensions, got {len(selection.sizes)}")
        view = self._view(selection.sizes, selection.strides, selection.offset)
        return view.flip(selection.reversed_axes) if selection.reversed_axes else view

    def __setitem__(self, index: Any, value: Any) -> None:
        """Give the tensor new memory with other elements; tensors that share the memory it had keep theirs."""
        if self.is_view:
            raise InvalidArgument(
                "Tensor[...] = value: a view must not be assigned to, since what it views would stay as it is; "
                "x.copy() makes a tensor that can be"
            )
        self._check_usable("Tensor[...] = value")
        result = indexing.assigned(self, index, value)
        self._set(result.buffer, self.data_type, self.sizes, packed_strides(self.sizes), None, self.is_boolean)

    def _gathered(self, index: Any) -> Tensor:
        """Return the parts along the first axis that integers name, or where truth values hold."""
        indices = index if isinstance(index, Tensor) else np.asarray(index)
        if indices.dtype == bool:
            return indexing.masked(self, indices)
        if not self.sizes or 0 in self.sizes or 0 in indices.shape or not isinstance(indices, Tensor):
            return indexing.select(self, (indices,))
        if indices.data_type.is_float:
            raise InvalidArgument(f"Tensor[...]: an index must be of integers, got {indices.type_name}")
        return self._taken(
            indices if indices.data_type.bits >= 32 else indices.astype(DataType.INT32), 0, "Tensor[...]"
        )

    def _taken(self, indices: Tensor, axis: int, caller: str) -> Tensor:
        """Return the parts along an axis that indices name, for ``caller``; see ``take``."""
        return take(self, indices, axis, caller)

    def _nothing(self, sizes: tuple[int, ...]) -> Tensor:
        """Return a tensor of the same type on the same device without elements."""
        return Tensor(np.empty(sizes, self.dtype), self._type, device=self.device)

    # ---- copies -----------------------------------------------------------------------------------------------------

    def copy(self) -> Tensor:
        """Return a packed copy on the same device, no view.

        Raises:
            OutOfMemory: the device has no room.
        """
        return self._operator("Tensor.copy", descs.ElementWiseIdentity, input_tensor=self)

    def astype(self, dtype: TypeLike) -> Tensor:
        """Return the elements in another type, converted as CAST does: towards zero, saturating; itself where they are
        of the type already. Numbers become truth values, ``bool``, by whether they are not 0.

        Raises:
            InvalidArgument: no data type.
        """
        if is_boolean_type(dtype):
            return self if self.is_boolean else self != 0
        data_type = as_data_type("Tensor.astype", "dtype", dtype)
        if data_type is self.data_type:
            return self._same(boolean=False) if self.is_boolean else self
        tensor: Tensor = call_op(
            descs.Cast, {"input_tensor": self}, types={"output_tensor": data_type}, caller="Tensor.astype"
        )[0]
        return tensor

    def flip(self, axis: Any = None) -> Tensor:
        """Return a copy with the order of elements reversed along all axes, or those of ``axis``.

        Raises:
            InvalidArgument: an axis out of range.
        """
        axes = range(self.ndim) if axis is None else layout.checked_axes("Tensor.flip", "axis", axis, self.ndim)
        if not self.size > 1:
            return self._same()
        strides = [-1 if number in axes else 1 for number in range(self.ndim)]
        values = {
            "input_tensor": self,
            "input_window_offsets": (0,) * self.ndim,
            "input_window_sizes": self.sizes,
            "input_window_strides": tuple(strides),
        }
        return self._operator("Tensor.flip", descs.Slice1, **values)

    def __matmul__(self, other: Any) -> Tensor:
        if self._is_strict and isinstance(other, Tensor):
            return _gemm("a @ b", self, other)
        return matmul(self, self._beside(other)) if isinstance(other, Tensor | np.ndarray) else NotImplemented

    def __rmatmul__(self, other: Any) -> Tensor:
        return matmul(self._beside(other), self) if isinstance(other, Tensor | np.ndarray) else NotImplemented

    # ---- functions of ``dmlgpu.ops`` as methods ---------------------------------------------------------------------

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return the sum along axes; see ``dmlgpu.ops.sum``."""
        return _ops().sum(self, axis, keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return the mean along axes; see ``dmlgpu.ops.mean``."""
        return _ops().mean(self, axis, keepdims)

    def prod(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return the product along axes; see ``dmlgpu.ops.prod``."""
        return _ops().prod(self, axis, keepdims)

    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return the largest elements along axes; see ``dmlgpu.ops.max``."""
        return _ops().max(self, axis, keepdims)

    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return the smallest elements along axes; see ``dmlgpu.ops.min``."""
        return _ops().min(self, axis, keepdims)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Return the indices of the largest elements; see ``dmlgpu.ops.argmax``."""
        return _ops().argmax(self, axis, keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Return the indices of the smallest elements; see ``dmlgpu.ops.argmin``."""
        return _ops().argmin(self, axis, keepdims)

    def softmax(self, axis: int | Sequence[int] = -1) -> Tensor:
        """Return exponentials normalized along an axis; see ``dmlgpu.ops.softmax``."""
        return _ops().softmax(self, axis)

    def exp(self) -> Tensor:
        """Return the exponential of each element."""
        return _ops().exp(self)

    def log(self) -> Tensor:
        """Return the natural logarithm of each element."""
        return _ops().log(self)

    def sqrt(self) -> Tensor:
        """Return the square root of each element."""
        return _ops().sqrt(self)

    def clip(self, min: float | None = None, max: float | None = None) -> Tensor:
        """Return the elements limited to a range; see ``dmlgpu.ops.clip``."""
        return _ops().clip(self, min, max)

    def permute(self, *axes: Any) -> Tensor:
        """Return the view with its dimensions in another order: ``transpose`` by PyTorch's name."""
        return self.transpose(*axes)

    def flatten(self) -> Tensor:
        """Return the elements in one dimension, in row-major order."""
        return self.reshape(-1)

    def float(self) -> Tensor:
        """Return the elements as float32."""
        return self.astype(DataType.FLOAT32)

    def half(self) -> Tensor:
        """Return the elements as float16."""
        return self.astype(DataType.FLOAT16)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute NumPy's functions by the operator or the function of ``dmlgpu.ops`` of the same name."""
        name = ufunc.__name__
        if method != "__call__" or options:
            raise TypeError(f"numpy.{name} of a Tensor takes no options; use dmlgpu.ops, or x.numpy()")
        if name in _OPERATORS:
            forward, reverse = _OPERATORS[name]
            if isinstance(inputs[0], Tensor):
                return getattr(inputs[0], forward)(inputs[1])
            return getattr(inputs[1], reverse)(inputs[0])
        function = getattr(_ops(), _FUNCTIONS.get(name, name), None)
        if function is None:
            raise TypeError(f"dmlgpu.ops has no function {name!r} for numpy.{name} of a Tensor; x.numpy() copies it")
        return function(*inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Mapping[str, Any]) -> Any:
        """Compute NumPy's functions by those of ``dmlgpu.ops`` if they take the same arguments, else on the host."""
        if function.__name__ in _ARRAY_FUNCTIONS:
            present = {name: value for name, value in options.items() if value is not None}
            return getattr(_ops(), _ARRAY_FUNCTIONS[function.__name__])(*args, **present)
        return function(*map(_on_host, args), **{name: _on_host(value) for name, value in options.items()})

    def _chosen(self, condition: Tensor, other: Any) -> Tensor:
        """Return the elements where a condition holds, else those of ``other``, a tensor or a number.

        Raises:
            InvalidArgument: sizes that do not broadcast, or types that differ.
        """
        values = {"condition_tensor": condition, "a_tensor": self, "b_tensor": other}
        return self._operator("Tensor[...]", descs.ElementWiseIf, **values)

    def _operator(self, caller: str, kind: type[OperatorDesc], **values: Any) -> Tensor:
        tensor: Tensor = call_op(kind, values, caller=caller)[0]
        return tensor

    def _beside(self, other: Any, dtype: TypeLike | None = None) -> Tensor:
        """Return an operand beside this tensor: a tensor as it is, other values on its device or in its graph."""
        if isinstance(other, Tensor):
            return other
        if isinstance(self.buffer, NodeMemory) and not self.buffer.graph.is_traced:
            return self.buffer.graph.constant(other, dtype)
        return Tensor(other, dtype, device=self.device)


TensorBase.result_class = Tensor

_OPERATORS = {
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "remainder": ("__mod__", "__rmod__"),
    "power": ("__pow__", "__rpow__"),
    "matmul": ("__matmul__", "__rmatmul__"),
    "bitwise_and": ("__and__", "__rand__"),
    "bitwise_or": ("__or__", "__ror__"),
    "bitwise_xor": ("__xor__", "__rxor__"),
    "left_shift": ("__lshift__", "__rlshift__"),
    "right_shift": ("__rshift__", "__rrshift__"),
    "equal": ("__eq__", "__eq__"),
    "not_equal": ("__ne__", "__ne__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
}
"""Python's operators by NumPy's names of their functions, and those of swapped operands."""

_FUNCTIONS = {"absolute": "abs", "arccos": "acos", "arcsin": "asin", "arctan": "atan"}
"""Names of ``dmlgpu.ops`` that differ from NumPy's."""


_ARRAY_FUNCTIONS = {
    **{
        name: name
        for name in (
            *(
                "sum",
                "mean",
                "prod",
                "max",
                "min",
                "argmax",
                "argmin",
                "var",
                "std",
                "cumsum",
                "cumprod",
                "clip",
                "where",
            ),
            *("concatenate", "stack", "split", "transpose", "reshape", "broadcast_to", "expand_dims", "squeeze"),
            *("moveaxis", "flip", "roll", "tile", "take", "take_along_axis", "sort", "argsort"),
        )
    },
    "amax": "max",
    "amin": "min",
}
"""NumPy's functions that are no ufuncs, and those of ``dmlgpu.ops``."""


def _on_host(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_on_host, value)) if not hasattr(value, "_fields") else value
    return value.numpy() if isinstance(value, Tensor) else value


def _ops() -> Any:
    """Return ``dmlgpu.ops``, which is built on tensors."""
    return importlib.import_module("dmlgpu.ops")


def take(x: Tensor, indices: Tensor, axis: int, caller: str) -> Tensor:
    """Return the parts along an axis that indices name: their dimensions stand where the axis was.

    Raises:
        InvalidArgument: more than 8 dimensions, or elements of an axis of size 0.
    """
    sizes = x.sizes[:axis] + indices.sizes + x.sizes[axis + 1 :]
    if 0 in sizes and len(sizes) <= MAX_DIMENSIONS:
        return x._nothing(sizes)
    if 0 in x.sizes:
        raise InvalidArgument(f"{caller}: indices must name elements, got {list(indices.sizes)} into an axis of size 0")
    rank = max(x.ndim, indices.ndim, len(sizes), 1)
    if rank > MAX_DIMENSIONS:
        raise InvalidArgument(f"{caller}: indices must leave at most {MAX_DIMENSIONS} dimensions, got {rank}")
    result = x._operator(
        caller,
        descs.Gather,
        input_tensor=_leading_ones(x, rank),
        indices_tensor=_leading_ones(indices, rank),
        axis=axis + rank - x.ndim,
        index_dimensions=max(indices.ndim, 1),
    )
    return result._renamed(sizes)


def matmul(a: Tensor, b: Tensor, caller: str = "a @ b") -> Tensor:
    """Return the product of matrices, or stacks of them that broadcast; a vector is a row on the left, a column on the
    right, and its dimension is left out of the result.

    Raises:
        InvalidArgument: scalars, no common type, inner sizes that differ, or stacks that do not broadcast.
    """
    if not (a.sizes and b.sizes):
        raise InvalidArgument(
            f"{caller}: a and b must have at least one dimension, got {list(a.sizes)}, {list(b.sizes)}"
        )
    a, b = promoted(caller, {"a": a, "b": b})
    rows, columns = a.sizes[-2:-1], b.sizes[-1:] if b.ndim > 1 else ()
    left, right = a if a.ndim > 1 else a.expand_dims(0), b if b.ndim > 1 else b.expand_dims(1)
    if left.sizes[-1] != right.sizes[-2]:
        raise InvalidArgument(
            f"{caller}: the last size of a must equal the first of b's matrices, got {list(a.sizes)}, {list(b.sizes)}"
        )
    stack = layout.broadcast_sizes(caller, [("a's stack", left.sizes[:-2]), ("b's stack", right.sizes[:-2])])
    left, right = (factor.broadcast_to((*stack, *factor.sizes[-2:])) for factor in (left, right))
    sizes = (*stack, *rows, *columns)
    if not (left.size and right.size):
        return Tensor(np.zeros(sizes, a.dtype), a._type, device=a.device)
    if not a.data_type.is_float:
        return matrix_product(caller, left, right)._renamed(sizes)
    if len(stack) > 2:
        left, right = (factor.reshape(-1, *factor.sizes[-2:]) for factor in (left, right))
    return _gemm(caller, left, right)._renamed(sizes)


def _gemm(caller: str, a: Tensor, b: Tensor) -> Tensor:
    return a._operator(caller, descs.Gemm, a_tensor=a, b_tensor=b, trans_a=0, trans_b=0, alpha=1.0, beta=0.0)


def _leading_ones(x: Tensor, rank: int) -> Tensor:
    return x.expand_dims(tuple(range(rank - x.ndim))) if x.ndim < rank else x
