"""Memory with a dtype, a shape and strides: the part of `Tensor` that needs no operator."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, TENSOR_ALIGNMENT, TensorDesc, buffer_size, packed_strides, span
from dmlgpu.common import coercion
from dmlgpu.common.errors import DmlError, InvalidArgument, InvalidState, OutOfMemory
from dmlgpu.common.memory import host_budget
from dmlgpu.compiler.sizes.arithmetic import is_many, is_same_size
from dmlgpu.runtime.device import Device
from dmlgpu.tensors import layout
from dmlgpu.tensors.layout import Sizes
from dmlgpu.tensors.memory import NodeMemory, TensorMemory, caller, check_readable, decides, unrecorded
from dmlgpu.tensors.recorded_call import refuse_repetition
from dmlgpu.tensors.types import TypeLike, as_data_type, elements_of

_PEEK = 6, 2
"""Maximum number of elements that ``repr`` shows of a large tensor, along the last axis and along the others."""

_STRIDES = coercion.tuple_of(coercion.integer, "integers")

_BOOLEAN: np.dtype[Any] = np.dtype(bool)

_SMALL = 36
"""Maximum element count of a tensor that ``repr`` shows in full."""


class TensorBase:
    """Elements in memory.

    Attributes:
        data_type: DirectML's data type of the elements; bool tensors are UINT8.
        sizes: Size of each axis; empty for a scalar. `shape` is the same.
        strides: Elements between neighbors along each axis; 0 repeats.
        offset: Elements before the first one in `buffer`.
        buffer: The memory, which views share: a device's, or a node of a graph.
        is_view: Whether it shares the memory of another tensor.
        is_boolean: Whether it is a bool tensor, whose elements are 0 or 1 of UINT8.
        signature: Data type, sizes (a scalar has one element) and strides, None if packed: the part that a description
            depends on.
    """

    __slots__ = (
        "__weakref__",
        "buffer",
        "data_type",
        "is_boolean",
        "is_view",
        "offset",
        "signature",
        "sizes",
        "strides",
    )

    result_class: ClassVar[type[Any]]
    """The class of the tensors that operators return: ``Tensor``."""

    buffer: Any  # a TensorMemory

    def _set(
        self,
        buffer: TensorMemory,
        data_type: DataType,
        sizes: Sizes,
        strides: Sizes | None = None,
        offset: int | None = None,
        boolean: bool = False,
    ) -> None:
        """View a buffer, from its start or from an element on; packed without strides."""
        self.buffer, self.data_type, self.sizes = buffer, data_type, sizes
        self.offset, self.is_view, self.is_boolean = offset or 0, offset is not None, boolean
        packed = packed_strides(sizes)
        self.strides = packed if strides is None else strides
        plain = strides is None or all(
            not is_many(size) or is_same_size(has, want) for size, has, want in zip(sizes, strides, packed, strict=True)
        )
        self.signature = data_type, sizes or (1,), None if plain else strides

    @classmethod
    def _of_node(cls, memory: NodeMemory, boolean: bool = False) -> Self:
        """Return the result of a graph's node in its layout."""
        tensor, desc = cls.__new__(cls), memory.desc
        tensor._set(memory, desc.data_type, desc.sizes, desc.element_strides, None, boolean)
        return tensor

    @classmethod
    def _packed(cls, buffer: TensorMemory, data_type: DataType, sizes: Sizes, boolean: bool = False) -> Self:
        """Return a packed tensor that fills a buffer."""
        tensor = cls.__new__(cls)
        tensor._set(buffer, data_type, sizes, boolean=boolean)
        return tensor

    def _renamed(self, sizes: Sizes) -> Self:
        """Return the result of an operator with other sizes; not a view, since it is not shared."""
        return self._packed(self.buffer, self.data_type, sizes, self.is_boolean)

    def _view(self, sizes: Sizes, strides: Sizes, offset: int = 0) -> Self:
        """Return a view of the same memory."""
        tensor = self.__new__(type(self))
        tensor._set(self.buffer, self.data_type, sizes, strides, self.offset + offset, self.is_boolean)
        return tensor

    def _same(self, data_type: DataType | None = None, boolean: bool | None = None) -> Self:
        """Return another tensor of the same memory, optionally reinterpreted as a type of the same width; a copy, since
        elements never change."""
        tensor = self.__new__(type(self))
        flag = self.is_boolean if boolean is None else boolean
        offset = self.offset if self.is_view else None
        tensor._set(self.buffer, data_type or self.data_type, self.sizes, self.strides, offset, flag)
        return tensor

    def _moved(self, buffer: Any, offset: int) -> Self:
        """Return a tensor of the same layout in another buffer, ``offset`` elements further."""
        tensor = self._view(self.sizes, self.strides, offset)
        tensor.buffer, tensor.is_view = buffer, self.is_view
        return tensor

    def _resized(self, sizes: Sizes, strides: Sizes, offset: int) -> Self:
        """Return the same memory with other sizes, strides and offset; a view if this is one."""
        tensor = self.__new__(type(self))
        offset_of_view = offset if self.is_view else None
        tensor._set(self.buffer, self.data_type, sizes, strides, offset_of_view, self.is_boolean)
        return tensor

    # ---- facts ------------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each axis, as in NumPy; the same as `sizes`.

        Examples:
            >>> Tensor([[1, 2], [3, 4]]).shape
            (2, 2)
        """
        return self.sizes

    @property
    def ndim(self) -> int:
        """Number of axes.

        Examples:
            >>> Tensor([[1, 2], [3, 4]]).ndim
            2
        """
        return len(self.sizes)

    @property
    def size(self) -> int:
        """Number of elements.

        Examples:
            >>> Tensor([[1, 2], [3, 4]]).size
            4
        """
        return math.prod(self.sizes)

    @property
    def itemsize(self) -> int:
        """Bytes of an element of `dtype`.

        Examples:
            >>> Tensor([1, 2], "float16").itemsize
            2
        """
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, `size * itemsize`.

        Examples:
            >>> Tensor([1, 2], "float16").nbytes
            4
        """
        return self.size * self.itemsize

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype of the elements; 4-bit integers have that of 8-bit ones.

        Examples:
            >>> Tensor([1, 2], "float16").dtype
            dtype('float16')
            >>> Tensor([True]).dtype
            dtype('bool')
        """
        return _BOOLEAN if self.is_boolean else self.data_type.numpy

    @property
    def type_name(self) -> str:
        """Dtype of the elements as messages name it.

        Examples:
            >>> Tensor([1, 2], "float16").type_name
            'FLOAT16'
            >>> Tensor([True]).type_name
            'BOOL'
        """
        return "BOOL" if self.is_boolean else self.data_type.name

    @property
    def device(self) -> Device:
        """Device that holds the memory.

        Examples:
            >>> Tensor([1.0], device="numpy").device.adapter.name
            'numpy'

        See also:
            `to`, which copies to another device.
        """
        return self.buffer.device

    @property
    def graph(self) -> Any:
        """Graph that computes the tensor; None if it is in memory on a device."""
        return self.buffer.graph if isinstance(self.buffer, NodeMemory) else None

    @property
    def origin(self) -> Any:
        """Node of the graph that computes the tensor; None if it is in memory on a device."""
        return self.buffer.origin if isinstance(self.buffer, NodeMemory) else None

    @property
    def desc(self) -> TensorDesc:
        """DirectML's description of the tensor, from its first element on; a scalar has one axis.

        Examples:
            >>> Tensor([[1.0, 2.0]]).desc.sizes
            (1, 2)

        See also:
            `dmlgpu.TensorDesc`.
        """
        if not isinstance(self.buffer, NodeMemory):
            return TensorDesc(*self.signature)
        memory = self.buffer.desc
        data_type, sizes, strides = self.signature
        is_whole = data_type is memory.data_type and len(sizes) == len(memory.sizes) and sizes == memory.sizes
        if is_whole and (self.strides or (1,)) == memory.element_strides:
            return memory
        total, alignment = memory.total_tensor_size_in_bytes, memory.guaranteed_base_offset_alignment
        return TensorDesc(data_type, sizes, strides, memory.flags, total, alignment)

    def __repr__(self) -> str:
        if isinstance(self.buffer, NodeMemory) and not self.buffer.graph.is_traced:
            strides = "" if self.desc.strides is None else f" strides {list(self.desc.strides)}"
            what = f"{self.type_name} {list(self.sizes)}{strides}"
            return f"Tensor({self.buffer.graph.describe(self.buffer.origin)}: {what})"
        return f"Tensor({self.type_name} {list(self.sizes)} on '{self.device.adapter.short_name}': {self._peek()})"

    def _peek(self) -> str:
        """Return the first elements as text, or the reason why they cannot be read."""
        if isinstance(self.buffer, NodeMemory):
            return "traced, computed when the function runs"
        with contextlib.suppress(DmlError), unrecorded():
            last, maximum = _PEEK
            few = (*(min(size, maximum) for size in self.sizes[:-1]), *(min(size, last) for size in self.sizes[-1:]))
            first = self if self.size <= _SMALL else self._view(few, self.strides)
            text = np.array2string(first.numpy(), separator=", ")
            return " ".join(text.split()) + (" ..." if first.sizes != self.sizes else "")
        return "released" if self.buffer.released else "gone with its device"

    # ---- to the host, to another device -----------------------------------------------------------------------------

    def numpy(self) -> NDArray[Any]:
        """Copy the elements to a NumPy array, once they are computed.

        Returns:
            Array of the shape and dtype of the tensor.

        Raises:
            InvalidState: If the tensor was released, belongs to a graph, or `dmlgpu.compile` is tracing.
            OutOfMemory: If the array exceeds the memory budget of the host.

        Examples:
            >>> (Tensor([1.0, 2.0]) * 2).numpy()
            array([2., 4.], dtype=float32)

        See also:
            `tolist`, `item`; `np.asarray(x)` does the same.
        """
        check_readable()
        refuse_repetition()
        self._check_usable("Tensor.numpy")
        if isinstance(self.buffer, NodeMemory):
            self.buffer.graph._reject_reading()
        if 0 in self.sizes:
            return np.empty(self.sizes, self.dtype)
        bits, budget = self.data_type.bits, host_budget()
        if budget is not None and self.size * self.dtype.itemsize > budget:
            raise OutOfMemory(
                f"Tensor.numpy: {self.size * self.dtype.itemsize:,} bytes exceed the {budget:,} of the host to be used"
            )
        begin = self.offset * bits // 32 * 4
        end = -(-(self.offset + span(self.sizes, self.strides)) * bits // 32) * 4
        return self._decoded(self.buffer.read(begin, end - begin), self.offset - begin * 8 // bits)

    def _decoded(self, raw: NDArray[np.uint8], shift: int) -> NDArray[Any]:
        """Decode the elements from the bytes of their memory, in which the first one is element ``shift``."""
        bits = self.data_type.bits
        sizes, strides = self.sizes or (1,), self.strides or (1,)
        if not shift and bits >= 8 and self.signature[2] is None:
            elements = elements_of(raw, self.data_type, self.sizes)
        elif shift:
            elements = TensorDesc(self.data_type, (2, *sizes), (shift, *strides)).decode(raw)[1].reshape(self.sizes)
        else:
            elements = TensorDesc(self.data_type, sizes, self.signature[2]).decode(raw).reshape(self.sizes)
        return np.asarray(elements != 0) if self.is_boolean else elements

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("Tensor.__array__: copy must not be False: the elements are copied from the device")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export a copy on the host; ``copy`` is ignored."""
        return self.numpy().__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the host

    def tolist(self) -> Any:
        """Return the elements as Python numbers in nested lists.

        Returns:
            List, nested as deep as there are axes; a number for a scalar.

        Raises:
            InvalidState: As for `numpy`.

        Examples:
            >>> Tensor([[1, 2], [3, 4]]).tolist()
            [[1, 2], [3, 4]]

        See also:
            `numpy`, `item`.
        """
        return self.numpy().tolist()

    def item(self) -> int | float:
        """Return the only element as a Python number.

        Returns:
            The number, a bool for bool tensors.

        Raises:
            InvalidArgument: If there is not exactly one element.
            InvalidState: As for `numpy`.

        Examples:
            >>> Tensor([2.5]).item()
            2.5

        See also:
            `tolist`; `float(x)`, `int(x)` and `f"{x:.3f}"` do it as well.
        """
        if self.size != 1:
            raise InvalidArgument(f"Tensor.item: the tensor must have one element, got sizes {list(self.sizes)}")
        return self.numpy().item()

    def __bool__(self) -> bool:
        if isinstance(self.buffer, NodeMemory) and not self.buffer.graph.is_traced:
            raise TypeError(
                f"{self!r} has no truth value before it is computed; ops.where(condition, a, b) chooses between "
                "tensors, `is` compares objects"
            )
        check_readable()
        if self.size > 1:
            raise InvalidArgument(
                f"the truth value of a tensor of {self.size} elements is ambiguous; use dmlgpu.ops.any(x) or all(x)"
            )
        return bool(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.size == 1 else format(str(self), spec)

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.data_type.is_float:
            raise TypeError(f"only integers are indices, got a Tensor of {self.type_name}")
        return int(self.item())

    def release(self) -> None:
        """Free the memory, which all views share; using any of them afterwards raises InvalidState.

        Memory is freed without this call when the last tensor that uses it is garbage-collected.

        Examples:
            >>> x = Tensor([1.0, 2.0])
            >>> x.release()

        See also:
            `dmlgpu.ops.free_memory`.
        """
        self.buffer.release()

    def _check_usable(self, caller: str) -> None:
        if self.buffer.released:
            raise InvalidState(f"{caller}: the tensor, {self.type_name} {list(self.sizes)}, is released")

    # ---- views ------------------------------------------------------------------------------------------------------

    @property
    @decides
    def T(self) -> Self:
        """View with the axes in reverse order.

        Examples:
            >>> Tensor([[1, 2], [3, 4]]).T.tolist()
            [[1, 3], [2, 4]]

        See also:
            `mT`, `transpose`.
        """
        return self._view(self.sizes[::-1], self.strides[::-1])

    @property
    def mT(self) -> Self:
        """View with the last two axes exchanged: each matrix of a stack, transposed.

        Raises:
            InvalidArgument: If there are fewer than two axes.

        Examples:
            >>> Tensor([[[1, 2], [3, 4]]]).mT.tolist()
            [[[1, 3], [2, 4]]]

        See also:
            `T`, `transpose`.
        """
        if self.ndim < 2:
            raise InvalidArgument(f"Tensor.mT: the tensor must have at least 2 dimensions, got {self.ndim}")
        return self.transpose(*range(self.ndim - 2), self.ndim - 1, self.ndim - 2)

    @decides
    def transpose(self, *axes: Any) -> Self:
        """Return a view with the axes in another order.

        Args:
            axes: Every axis once, in the order of the result, as arguments or in a sequence; none reverses them.

        Returns:
            View of the same memory.

        Raises:
            InvalidArgument: If `axes` does not name each axis once.

        Examples:
            >>> Tensor([[[1, 2, 3]]]).transpose(2, 0, 1).shape
            (3, 1, 1)

        See also:
            `permute`, `T`, `dmlgpu.ops.moveaxis`.
        """
        if not axes or (len(axes) == 1 and axes[0] is None):
            return self.T
        values = axes[0] if len(axes) == 1 else axes
        order = layout.checked_axes("Tensor.transpose", "axes", values, self.ndim)
        if len(order) != self.ndim:
            raise InvalidArgument(f"Tensor.transpose: axes must name all {self.ndim} axes, got {list(order)}")
        return self._view(tuple(self.sizes[axis] for axis in order), tuple(self.strides[axis] for axis in order))

    @decides
    def broadcast_to(self, sizes: Any) -> Self:
        """Return a view repeated along axes of size 1 and along new leading axes.

        Args:
            sizes: Shape of the result.

        Returns:
            View of the same memory.

        Raises:
            InvalidArgument: If a size of the tensor is neither 1 nor the requested one.

        Examples:
            >>> Tensor([1, 2]).broadcast_to((2, 2)).tolist()
            [[1, 2], [1, 2]]

        See also:
            `expand_dims`, `dmlgpu.ops.tile`.
        """
        shape = layout.checked_sizes("Tensor.broadcast_to", "sizes", sizes)
        strides = layout.broadcast_strides(self.sizes, self.strides, shape)
        if strides is None:
            raise InvalidArgument(
                f"Tensor.broadcast_to: sizes must extend {list(self.sizes)} where it has 1, got {list(shape)}"
                f"{self._location}"
            )
        return self._view(shape, strides)

    @decides
    def reinterpret(self, sizes: Any, strides: Sequence[int] | None = None, dtype: TypeLike | None = None) -> Self:
        """Return a view of the same bytes with another shape, strides and dtype.

        Args:
            sizes: Size of each axis.
            strides: Elements between neighbors along each axis; defaults to None, packed.
            dtype: Dtype of the elements; defaults to None, that of the tensor.

        Returns:
            View of the same memory.

        Raises:
            InvalidArgument: If the view would reach beyond the tensor's bytes, or begin within an element.

        Examples:
            >>> Tensor([1.0], "float32").reinterpret((1,), dtype="uint32").tolist()
            [1065353216]

        See also:
            `astype`, which converts values; DirectMLX calls this `Reinterpret`.
        """
        name = "Tensor.reinterpret"
        shape = layout.checked_sizes(name, "sizes", sizes)
        steps = packed_strides(shape) if strides is None else coercion.argument(name, "strides", _STRIDES, strides)
        kind = self.data_type if dtype is None else as_data_type(name, "dtype", dtype)
        if len(steps) != len(shape):
            raise InvalidArgument(
                f"{name}: strides must have one entry per dimension ({len(shape)}), got {len(steps)}{self._location}"
            )
        needed, present = buffer_size(kind, shape or (1,), steps or (1,)), self.desc.byte_size
        if needed > present:
            raise InvalidArgument(
                f"{name}: sizes {list(shape)} need {needed} bytes, {self!r} has {present}{self._location}"
            )
        before = self.offset * self.data_type.bits
        if before % kind.bits:
            raise InvalidArgument(
                f"{name}: a view of {kind.name} must begin at a whole element, got one that begins at bit {before}"
            )
        tensor = self.__new__(type(self))
        offset = before // kind.bits if self.is_view else None
        tensor._set(self.buffer, kind, shape, tuple(steps), offset, self.is_boolean and kind is self.data_type)
        return tensor

    @property
    def _location(self) -> str:
        """Caller's line for messages about nodes of graphs; empty for other tensors."""
        return f" ({caller()})" if isinstance(self.buffer, NodeMemory) else ""

    @decides
    def squeeze(self, axis: Any = None) -> Self:
        """Return a view without axes of size 1.

        Args:
            axis: Axis or axes to remove; defaults to None, all of size 1.

        Returns:
            View of the same memory.

        Raises:
            InvalidArgument: If an axis is out of range, or not of size 1.

        Examples:
            >>> Tensor([[1, 2]]).squeeze().shape
            (2,)

        See also:
            `expand_dims`, `reshape`.
        """
        axes = (
            tuple(i for i, size in enumerate(self.sizes) if size == 1)
            if axis is None
            else layout.checked_axes("Tensor.squeeze", "axis", axis, self.ndim)
        )
        for i in axes:
            if self.sizes[i] != 1:
                raise InvalidArgument(
                    f"Tensor.squeeze: axis must name dimensions of size 1, got {i} of size {self.sizes[i]}"
                )
        rest = [i for i in range(self.ndim) if i not in axes]
        return self._view(tuple(self.sizes[i] for i in rest), tuple(self.strides[i] for i in rest))

    @decides
    def expand_dims(self, axis: Any) -> Self:
        """Return a view with new axes of size 1.

        Args:
            axis: Position, or positions, of the new axes in the result; negative ones count from the end.

        Returns:
            View of the same memory.

        Raises:
            InvalidArgument: If a position is out of range, or there would be more than 8 axes.

        Examples:
            >>> Tensor([1, 2]).expand_dims(0).shape
            (1, 2)

        See also:
            `squeeze`, `reshape`.
        """
        places = layout.as_integers("Tensor.expand_dims", "axis", axis)
        rank = self.ndim + len(places)
        if rank > MAX_DIMENSIONS:
            raise InvalidArgument(f"Tensor.expand_dims: axis must leave at most 8 dimensions, got {rank}")
        new = layout.checked_axes("Tensor.expand_dims", "axis", places, rank)
        old = iter(zip(self.sizes, self.strides, strict=True))
        pairs = [(1, 0) if i in new else next(old) for i in range(rank)]
        return self._view(tuple(size for size, _ in pairs), tuple(stride for _, stride in pairs))


def behind_binding(tensor: TensorBase) -> int:
    """Return the number of elements between the last possible binding offset and the start of a tensor."""
    return tensor.offset % (8 * TENSOR_ALIGNMENT // tensor.data_type.bits)
