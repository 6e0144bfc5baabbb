"""Create tensors by rule: zeros, ranges, triangles, grids. ``dmlgpu.array`` has the same functions.

Tensors are created on ``device``, or on the default device. float64 is rejected, because adapters cannot compute it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.coercion import argument, as_index, boolean, integer
from dmlgpu.common.errors import InvalidArgument, NotSupported, shown
from dmlgpu.compiler.sizes.arithmetic import is_symbolic
from dmlgpu.ops import directml
from dmlgpu.runtime.device import as_device
from dmlgpu.tensors.array_like import as_operand, convert_float64
from dmlgpu.tensors.calls import Array, Operand, Where, as_type, caller, eager, named, numeric_type, tensor_of, word
from dmlgpu.tensors.layout import broadcast_sizes, checked_sizes
from dmlgpu.tensors.memory import recorder
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike, as_number

__all__ = [
    "arange", "empty", "empty_like", "eye", "full", "full_like", "linspace", "meshgrid", "ones", "ones_like", "tril",
    "triu", "zeros", "zeros_like",
]  # fmt: skip

# ---- filled ----------------------------------------------------------------------------------------------------------


@named
def zeros(shape: int | Sequence[int], dtype: TypeLike | None = None, *, device: Where = None) -> Tensor:
    """Return a tensor of zeros.

    Args:
        shape: Shape, or the size of the only axis.
        dtype: Dtype; None means float32.
        device: Device or adapter name; None means the default device.

    Returns:
        Tensor of the shape and dtype.

    Raises:
        InvalidArgument: If no tensor has such a shape, or ``dtype`` is not a dtype.
        NotSupported: If adapters cannot compute the dtype: float64, complex.

    Examples:
        >>> ops.zeros((2, 3), dtype="int32").tolist()
        [[0, 0, 0], [0, 0, 0]]

    See also:
        `ones`, `full`, `zeros_like`.

    Computed by FILL_VALUE_CONSTANT (`ns-directml-dml_fill_value_constant_operator_desc`).
    """
    return constant(shape, 0, dtype, device)


@named
def ones(shape: int | Sequence[int], dtype: TypeLike | None = None, *, device: Where = None) -> Tensor:
    """Return a tensor of ones.

    Args:
        shape: Shape, or the size of the only axis.
        dtype: Dtype; None means float32.
        device: Device or adapter name; None means the default device.

    Returns:
        Tensor of the shape and dtype.

    Raises:
        InvalidArgument: If no tensor has such a shape, or ``dtype`` is not a dtype.
        NotSupported: If adapters cannot compute the dtype: float64, complex.

    Examples:
        >>> ops.ones(3).tolist()
        [1.0, 1.0, 1.0]

    See also:
        `zeros`, `full`, `ones_like`.

    Computed by FILL_VALUE_CONSTANT (`ns-directml-dml_fill_value_constant_operator_desc`).
    """
    return constant(shape, 1, dtype, device)


@named
def empty(shape: int | Sequence[int], dtype: TypeLike | None = None, *, device: Where = None) -> Tensor:
    """Return a tensor of unspecified values, which are zeros; see ``zeros``.

    Args:
        shape: Shape, or the size of the only axis.
        dtype: Dtype; None means float32.
        device: Device or adapter name; None means the default device.

    Returns:
        Tensor of the shape and dtype.

    Raises:
        InvalidArgument: If no tensor has such a shape, or ``dtype`` is not a dtype.
        NotSupported: If adapters cannot compute the dtype: float64, complex.

    Examples:
        >>> ops.empty((2, 3)).shape
        (2, 3)

    See also:
        `zeros`, `empty_like`.

    Computed by FILL_VALUE_CONSTANT (`ns-directml-dml_fill_value_constant_operator_desc`).
    """
    return constant(shape, 0, dtype, device)


def constant(shape: Any, value: int, dtype: Any, device: Where) -> Tensor:
    """Return a tensor filled with 0 or 1, float32 by default."""
    sizes, target = checked_sizes(caller(), "shape", shape), as_device(caller(), device)
    kind = as_type("float32" if dtype is None else dtype)
    if 0 in sizes:
        return Tensor(np.empty(sizes, np.uint8), kind, device=target)
    data_type = DataType.UINT8 if kind is bool else kind
    result: Tensor = directml.fill_value_constant(
        value_data_type=data_type,
        value=float(value) if data_type.is_float else value,
        output_sizes=sizes or (1,),
        device=target,
    )._renamed(sizes)
    return result._same(boolean=True) if kind is bool else result


@named
def full(
    shape: int | Sequence[int], fill_value: float, dtype: TypeLike | None = None, *, device: Where = None
) -> Tensor:
    """Return a tensor filled with one number.

    Args:
        shape: Shape, or the size of the only axis.
        fill_value: Number or boolean, or a tensor of one element.
        dtype: Dtype; None means that of the number: bool, int64 or float32.
        device: Device or adapter name; None means the default device.

    Returns:
        Tensor of the shape and dtype.

    Raises:
        InvalidArgument: If no tensor has such a shape, or the dtype cannot hold the number.
        NotSupported: If adapters cannot compute the dtype: float64, complex.

    Examples:
        >>> ops.full(3, 7).tolist()
        [7, 7, 7]

    See also:
        `zeros`, `ones`, `full_like`.

    Computed by ELEMENT_WISE_IDENTITY (`ns-directml-dml_element_wise_identity_operator_desc`).
    """
    sizes, target = checked_sizes(caller(), "shape", shape), as_device(caller(), device)
    number, kind = _number(fill_value, dtype)
    if 0 in sizes:
        return Tensor(np.empty(sizes, np.uint8), kind, device=target)
    trace = recorder()
    if is_symbolic(number) and trace is not None and kind is not bool:
        return trace._number(number, kind).reshape(()).broadcast_to(sizes).copy()
    return Tensor(number, kind, device=target).broadcast_to(sizes).copy()


def _number(value: Any, dtype: Any) -> tuple[float, Any]:
    """Return a number and its dtype, as ``Tensor`` takes it; by default that of the number."""
    if isinstance(value, Tensor) and value.size == 1:
        value = value.item()
    if isinstance(value, complex):
        raise NotSupported(f"{caller()}: fill_value must not be a complex number, which adapters cannot compute")
    if dtype is None:
        is_bool = isinstance(value, bool | np.bool_)
        dtype = "bool" if is_bool else "float32" if as_index(value) is None else "int64"
    kind = as_type(dtype)
    return as_number(f"{caller()}: fill_value", value, DataType.UINT8 if kind is bool else kind), kind


# ---- like another tensor ---------------------------------------------------------------------------------------------


@named
def zeros_like(x: Operand, dtype: TypeLike | None = None, *, device: Where = None) -> Array:
    """Return zeros of the shape of `x`.

    Args:
        x: Tensor or array.
        dtype: Dtype; None means that of `x`.
        device: Device or adapter name; None means that of `x`.

    Returns:
        Tensor (an array if `x` is one).

    Raises:
        InvalidArgument: If ``dtype`` is not a dtype.
        NotSupported: If adapters cannot compute the dtype: float64, complex.

    Examples:
        >>> ops.zeros_like([5, 6])
        array([0, 0])

    See also:
        `zeros`.

    Computed by FILL_VALUE_CONSTANT (`ns-directml-dml_fill_value_constant_operator_desc`).
    """
    return _like(x, 0, dtype, device)


@named
def ones_like(x: Operand, dtype: TypeLike | None = None, *, device: Where = None) -> Array:
    """Return ones of the shape of `x`.

    Args:
        x: Tensor or array.
        dtype: Dtype; None means that of `x`.
        device: Device or adapter name; None means that of `x`.

    Returns:
        Tensor (an array if `x` is one).

    Raises:
        InvalidArgument: If ``dtype`` is not a dtype.
        NotSupported: If adapters cannot compute the dtype: float64, complex.

    Examples:
        >>> ops.ones_like([5, 6])
        array([1, 1])

    See also:
        `ones`.

    Computed by FILL_VALUE_CONSTANT (`ns-directml-dml_fill_value_constant_operator_desc`).
    """
    return _like(x, 1, dtype, device)


@named
def empty_like(x: Operand, dtype: TypeLike | None = None, *, device: Where = None) -> Array:
    """Return unspecified values, which are zeros, of the shape of `x`; see ``zeros_like``.

    Args:
        x: Tensor or array.
        dtype: Dtype; None means that of `x`.
        device: Device or adapter name; None means that of `x`.

    Returns:
        Tensor (an array if `x` is one).

    Raises:
        InvalidArgument: If ``dtype`` is not a dtype.
        NotSupported: If adapters cannot compute the dtype: float64, complex.

    Examples:
        >>> ops.empty_like([1, 2]).shape
        (2,)

    See also:
        `empty`.

    Computed by FILL_VALUE_CONSTANT (`ns-directml-dml_fill_value_constant_operator_desc`).
    """
    return _like(x, 0, dtype, device)


@named
def full_like(x: Operand, fill_value: float, dtype: TypeLike | None = None, *, device: Where = None) -> Array:
    """Return one number in the shape of `x`.

    Args:
        x: Tensor or array.
        fill_value: Number or boolean, or a tensor of one element.
        dtype: Dtype; None means that of `x`.
        device: Device or adapter name; None means that of `x`.

    Returns:
        Tensor (an array if `x` is one).

    Raises:
        InvalidArgument: If ``dtype`` is not a dtype, or cannot hold the number.
        NotSupported: If adapters cannot compute the dtype: float64, complex.

    Examples:
        >>> ops.full_like([1, 2], 7)
        array([7, 7])

    See also:
        `full`.

    Computed by ELEMENT_WISE_IDENTITY (`ns-directml-dml_element_wise_identity_operator_desc`).
    """
    return _like(x, fill_value, dtype, device)


def _like(x: Any, value: Any, dtype: Any, device: Where) -> Any:
    """Return one number in the shape of `x`, and in its dtype and on its device unless others are requested."""
    like = as_operand(caller(), "x", x)
    if not isinstance(like, Tensor | np.ndarray):
        raise InvalidArgument(f"{caller()}: x must be a Tensor or an array, got {shown(x, typed=True)}")
    if isinstance(like, np.ndarray):
        like = convert_float64(caller(), like, DataType.FLOAT32) if dtype is None else like
        return full(like.shape, value, like.dtype if dtype is None else dtype, device=device).numpy()
    if device is not None:
        return full(like.sizes, value, like.dtype if dtype is None else dtype, device=device)
    number, kind = _number(value, like.dtype if dtype is None else dtype)
    if 0 in like.sizes:
        return like._beside(np.empty(like.sizes, np.uint8), kind)
    return like._beside(number, kind).broadcast_to(like.sizes).copy()


# ---- ranges ----------------------------------------------------------------------------------------------------------


def sequence(count: int, start: float, step: float, data_type: DataType, device: Where) -> Tensor:
    """Return evenly spaced numbers, at least one."""
    return directml.fill_value_sequence(
        value_data_type=data_type,
        value_start=start,
        value_delta=step,
        output_sizes=checked_sizes(caller(), "the number of elements", count),
        device=as_device(caller(), device),
    )


def _finite(name: str, value: Any) -> float:
    """Return a finite Python number, integers as such."""
    if isinstance(value, Tensor) and value.size == 1:
        value = value.item()
    integer = as_index(value)
    if integer is not None:
        return integer
    number = as_number(f"{caller()}: {name}", value, DataType.FLOAT32)
    if not math.isfinite(number) or isinstance(value, bool):
        raise InvalidArgument(f"{caller()}: {name} must be a finite number, got {shown(value)}")
    return number


@named
def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    dtype: TypeLike | None = None,
    *,
    device: Where = None,
) -> Tensor:
    """Return evenly spaced numbers from ``start`` up to ``stop``, which is excluded.

    Args:
        start: First number; the excluded end if ``stop`` is None, and numbers begin at 0.
        stop: Excluded end.
        step: Distance between numbers, not 0.
        dtype: Dtype; None means int64 if all three are integers, else float32.
        device: Device or adapter name; None means the default device.

    Returns:
        Tensor of rank 1.

    Raises:
        InvalidArgument: If the step is 0, there are too many elements, or the dtype cannot hold them.
        NotSupported: If adapters cannot compute the dtype: float64, complex.

    Examples:
        >>> ops.arange(2, 10, 3).tolist()
        [2, 5, 8]

    See also:
        `linspace`.

    Computed by FILL_VALUE_SEQUENCE (`ns-directml-dml_fill_value_sequence_operator_desc`).
    """
    first, last = (0.0, start) if stop is None else (start, stop)
    begin, end, delta = _finite("start", first), _finite("stop", last), _finite("step", step)
    if stop is None and isinstance(end, int):
        begin = 0
    if not delta:
        raise InvalidArgument(f"{caller()}: step must not be 0")
    are_integers = all(isinstance(number, int) for number in (begin, end, delta))
    data_type = numeric_type(("int64" if are_integers else "float32") if dtype is None else dtype)
    if not data_type.is_float and not are_integers:
        raise InvalidArgument(f"{caller()}: start, stop and step must be integers for {data_type.name}")
    count = math.trunc(-((begin - end) // delta)) if are_integers else math.ceil((end - begin) / delta)
    if count <= 0:
        return Tensor(np.empty(0, data_type.numpy), device=device)
    if data_type.is_float or as_index(delta) is None:
        return sequence(count, float(begin), float(delta), data_type, device)
    as_number(f"{caller()}: stop", begin + (count - 1) * delta, data_type)
    start_of_type = as_number(f"{caller()}: start", begin, data_type)
    if delta < 0 and not data_type.is_signed:
        return sequence(count, int(begin + (count - 1) * delta), int(-delta), data_type, device).flip()
    delta = delta if count > 1 else 1
    return sequence(count, start_of_type, as_number(f"{caller()}: step", delta, data_type), data_type, device)


@named
def linspace(
    start: float,
    stop: float,
    num: int = 50,
    endpoint: bool = True,
    dtype: TypeLike | None = None,
    *,
    device: Where = None,
) -> Tensor:
    """Return ``num`` evenly spaced numbers from ``start`` to ``stop``.

    Args:
        start: First number.
        stop: Last number, or the excluded end.
        num: Number of elements, at least 0.
        endpoint: Whether ``stop`` is the last number.
        dtype: Dtype of numbers; None means float32.
        device: Device or adapter name; None means the default device.

    Returns:
        Tensor of rank 1.

    Raises:
        InvalidArgument: If ``start`` or ``stop`` is not finite, or the dtype is not numeric.
        NotSupported: If adapters cannot compute the dtype: float64, complex.

    Examples:
        >>> ops.linspace(0, 1, 5).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]

    See also:
        `arange`.

    Computed by FILL_VALUE_SEQUENCE (`ns-directml-dml_fill_value_sequence_operator_desc`).
    """
    begin, end = float(_finite("start", start)), float(_finite("stop", stop))
    count = argument(caller(), "num", integer, num)
    endpoint = argument(caller(), "endpoint", boolean, endpoint)
    data_type = numeric_type("float32" if dtype is None else dtype)
    if count < 0:
        raise InvalidArgument(f"{caller()}: num must be at least 0, got {count}")
    if not count:
        return Tensor(np.empty(0, data_type.numpy), device=device)
    parts = max(count - 1 if endpoint else count, 1)
    places = sequence(count, 0.0, 1.0, DataType.FLOAT32, device)
    numbers: Tensor = places * (end / parts - begin / parts) + begin
    if endpoint and count > 1:
        numbers = numbers._chosen(places != float(count - 1), Tensor(np.float32(end), device=numbers.device))
    return numbers if data_type is DataType.FLOAT32 else numbers.astype(data_type)


# ---- matrices and grids ----------------------------------------------------------------------------------------------


@named
def eye(
    n_rows: int, n_cols: int | None = None, k: int = 0, dtype: TypeLike | None = None, *, device: Where = None
) -> Tensor:
    """Return a matrix with ones on a diagonal and zeros elsewhere.

    Args:
        n_rows: Number of rows.
        n_cols: Number of columns; None means ``n_rows``.
        k: Diagonal: 0 is the main one, positive ones lie above it.
        dtype: Dtype; None means float32.
        device: Device or adapter name; None means the default device.

    Returns:
        Tensor of shape (n_rows, n_cols).

    Raises:
        InvalidArgument: If no matrix has such a shape, or ``dtype`` is not a dtype.
        NotSupported: If adapters cannot compute the dtype: float64, complex.

    Examples:
        >>> ops.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]

    See also:
        `tril`, `triu`.

    Computed by FILL_VALUE_SEQUENCE (`ns-directml-dml_fill_value_sequence_operator_desc`) and
    ELEMENT_WISE_LOGICAL_EQUALS (`ns-directml-dml_element_wise_logical_equals_operator_desc`).
    """
    rows, columns = checked_sizes(caller(), "shape", (n_rows, n_rows if n_cols is None else n_cols))
    kind = as_type("float32" if dtype is None else dtype)
    if not rows * columns:
        return Tensor(np.empty((rows, columns), np.uint8), kind, device=device)
    return (diagonals((rows, columns), as_device(caller(), device)) == _diagonal(k)).astype(kind)


def _diagonal(k: Any) -> int:
    return max(-(2**31), min(2**31 - 1, argument(caller(), "k", integer, k)))


def diagonals(sizes: tuple[int, int], device: Where) -> Tensor:
    """Return the diagonal on which each element of a matrix lies, int32: 0 is the main one, positive ones above."""
    rows, columns = sizes
    across = sequence(columns, 0, 1, DataType.INT32, device)
    return across - sequence(rows, 0, 1, DataType.INT32, device).expand_dims(1)


@eager
def tril(x: Operand, k: int = 0, *, device: Where = None) -> Array:
    """Return matrices with zeros above a diagonal.

    Args:
        x: Tensor or array of rank 2 to 8; the last two axes are those of the matrices.
        k: Diagonal: 0 is the main one, positive ones lie above it.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has fewer than 2 dimensions, or ``k`` is not an integer.

    Examples:
        >>> ops.tril([[1, 2], [3, 4]])
        array([[1, 0],
               [3, 4]])

    See also:
        `triu`, `eye`.

    Computed by FILL_VALUE_SEQUENCE (`ns-directml-dml_fill_value_sequence_operator_desc`) and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    return _triangle(tensor_of("x", x), k, True)


@eager
def triu(x: Operand, k: int = 0, *, device: Where = None) -> Array:
    """Return matrices with zeros below a diagonal.

    Args:
        x: Tensor or array of rank 2 to 8; the last two axes are those of the matrices.
        k: Diagonal: 0 is the main one, positive ones lie above it.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has fewer than 2 dimensions, or ``k`` is not an integer.

    Examples:
        >>> ops.triu([[1, 2], [3, 4]])
        array([[1, 2],
               [0, 4]])

    See also:
        `tril`, `eye`.

    Computed by FILL_VALUE_SEQUENCE (`ns-directml-dml_fill_value_sequence_operator_desc`) and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    return _triangle(tensor_of("x", x), k, False)


def _triangle(matrices: Tensor, k: Any, lower: bool) -> Tensor:
    diagonal = _diagonal(k)
    if matrices.ndim < 2:
        raise InvalidArgument(f"{caller()}: x must have at least 2 dimensions, got {matrices.ndim}")
    if not matrices.size:
        return matrices._same()
    places = diagonals((matrices.sizes[-2], matrices.sizes[-1]), matrices.device)
    mask = (places <= diagonal) if lower else (places >= diagonal)
    return matrices._chosen(mask, matrices._beside(0, matrices._type))


@eager
def meshgrid(*arrays: Operand, indexing: str = "xy", device: Where = None) -> list[Array]:
    """Return the coordinates of a grid, views of one tensor per axis.

    Args:
        arrays: Tensors or arrays of coordinates along each axis, rank 0 or 1, of one dtype.
        indexing: ``"xy"`` exchanges the first two axes, ``"ij"`` does not.
        device: Device or adapter name that computes arrays; defaults to that of the tensors, else to the default
            device.

    Returns:
        As many tensors (arrays if all operands are arrays), each with an axis per operand.

    Raises:
        InvalidArgument: If operands have several axes or different dtypes, or ``indexing`` is another word.

    Examples:
        >>> [x.tolist() for x in ops.meshgrid([0, 1], [0, 1, 2])]
        [[[0, 1], [0, 1], [0, 1]], [[0, 0], [1, 1], [2, 2]]]

    See also:
        `broadcast_to`.
    """
    indexing = word("indexing", indexing, ("xy", "ij"))
    axes = [tensor_of(f"arrays[{index}]", array) for index, array in enumerate(arrays)]
    if any(axis.ndim > 1 for axis in axes):
        raise InvalidArgument(f"{caller()}: arrays must have at most 1 dimension each")
    if len({axis.dtype for axis in axes}) > 1:
        raise InvalidArgument(
            f"{caller()}: arrays must be of one type, got {', '.join(axis.type_name for axis in axes)}; astype converts"
        )
    rank = len(axes)
    places = list(range(rank))
    if indexing == "xy" and rank > 1:
        places[:2] = 1, 0
    shaped = [
        axis.reshape(*(axis.size if i == place else 1 for i in range(rank)))
        for axis, place in zip(axes, places, strict=True)
    ]
    sizes = broadcast_sizes(caller(), [("arrays", axis.sizes) for axis in shaped]) if shaped else ()
    return [axis.broadcast_to(sizes) for axis in shaped]
