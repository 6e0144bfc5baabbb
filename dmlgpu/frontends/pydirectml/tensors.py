"""Descriptions of tensors, and the arrays that ``Device.compute`` returns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.enums import TensorFlags as Flags
from dmlgpu.catalog.tensor_desc import TensorDesc as Desc
from dmlgpu.common.errors import shown
from dmlgpu.frontends.pydirectml.calls import UINT64, InvalidCall, WrongArgument, surface
from dmlgpu.frontends.pydirectml.enums import TensorDataType, TensorFlags
from dmlgpu.tensors.layout import Policy, Sizes, interleaved_channel, packed


class Dimensions:
    """The registered name of sizes, which are passed and read as lists; not instantiable."""

    def __init__(self) -> None:
        raise WrongArgument("Dimensions: no constructor defined; sizes are lists")


class TensorPolicy:
    """Memory layout of a tensor: ``TensorPolicy.default`` or ``TensorPolicy.interleaved_channel``."""

    default: TensorPolicy
    """Packed, without strides."""

    interleaved_channel: TensorPolicy
    """Channels innermost: {N, C, H, W} stored as {N, H, W, C}."""

    _lay_out: Policy

    def __init__(self) -> None:
        raise WrongArgument(
            "TensorPolicy: no constructor defined; take TensorPolicy.default or TensorPolicy.interleaved_channel"
        )

    @classmethod
    def _of(cls, lay_out: Policy) -> Self:
        tensor_policy = cls.__new__(cls)
        tensor_policy._lay_out = lay_out
        return tensor_policy


def _interleaved(data_type: DataType, flags: Flags, sizes: Sizes) -> Desc:
    desc = interleaved_channel(data_type, flags, sizes)
    return Desc(data_type, sizes, desc.element_strides, flags)


TensorPolicy.default = TensorPolicy._of(packed)
TensorPolicy.interleaved_channel = TensorPolicy._of(_interleaved)


class TensorDesc:
    """Description of a tensor in a buffer, in one of four forms.

        TensorDesc(data_type, sizes, tensor_policy=TensorPolicy.default)
        TensorDesc(data_type, flags, sizes, tensor_policy=TensorPolicy.default)
        TensorDesc(data_type, sizes, strides)
        TensorDesc(data_type, flags, sizes, strides, total_tensor_size_in_bytes, guaranteed_base_offset_alignment)

    Strides are in elements, None for a packed tensor; 0 repeats a tensor along a dimension.

    Raises:
        WrongArgument: If an argument is missing, superfluous or of the wrong kind.
        InvalidCall: If the type is UNKNOWN, a size is 0 or there is none, or there is not one stride for each.
    """

    _desc: Desc

    def __init__(self, *args: Any, **kwargs: Any):
        self._desc = _form(args, kwargs)(*args, **kwargs)

    @classmethod
    def _of(cls, desc: Desc) -> Self:
        tensor_desc = cls.__new__(cls)
        tensor_desc._desc = desc
        return tensor_desc

    @property
    def data_type(self) -> TensorDataType:
        """Data type."""
        return TensorDataType(self._desc.data_type)

    @property
    def flags(self) -> TensorFlags:
        """Flags of the tensor, such as OWNED_BY_DML."""
        return TensorFlags(self._desc.flags)

    @property
    def sizes(self) -> list[int]:
        """Extent of each dimension."""
        return list(self._desc.sizes)

    @property
    def strides(self) -> list[int] | None:
        """Strides in elements along each dimension; None for a packed tensor."""
        return None if self._desc.strides is None else list(self._desc.strides)

    @property
    def total_tensor_size_in_bytes(self) -> int:
        """Size of the tensor in bytes."""
        return self._desc.byte_size

    @property
    def guaranteed_base_offset_alignment(self) -> int:
        """Promised alignment in bytes, or 0."""
        return self._desc.guaranteed_base_offset_alignment

    def __repr__(self) -> str:
        shape = ",".join(map(str, self.sizes))
        return f"dml.TensorDesc of type {int(self.data_type)} and shape [{shape}] with flags {int(self.flags)}"


def _form(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Desc]:
    """Return the overload of TensorDesc for the arguments, by flags and by the argument after the sizes."""
    flagged = "flags" in kwargs or isinstance(args[1] if len(args) > 1 else None, TensorFlags)
    after = args[2 + flagged] if len(args) > 2 + flagged else kwargs.get("tensor_policy", TensorPolicy.default)
    by_policy = isinstance(after, TensorPolicy) and not {"strides", "total_tensor_size_in_bytes"} & set(kwargs)
    return _FORMS[flagged, by_policy]


_taking = functools.partial(surface, label="TensorDesc")


@_taking
def _by_policy(
    data_type: TensorDataType, sizes: Sequence[int], tensor_policy: TensorPolicy = TensorPolicy.default
) -> Desc:
    return _laid_out(data_type, TensorFlags.NONE, sizes, tensor_policy)


@_taking
def _by_flags_and_policy(
    data_type: TensorDataType,
    flags: TensorFlags,
    sizes: Sequence[int],
    tensor_policy: TensorPolicy = TensorPolicy.default,
) -> Desc:
    return _laid_out(data_type, flags, sizes, tensor_policy)


def _laid_out(data_type: TensorDataType, flags: TensorFlags, sizes: Sequence[int], tensor_policy: TensorPolicy) -> Desc:
    _check(data_type, sizes, None)
    return tensor_policy._lay_out(DataType(data_type), Flags(flags), tuple(sizes))


@_taking
def _by_strides(data_type: TensorDataType, sizes: Sequence[int], strides: Sequence[int] | None) -> Desc:
    _check(data_type, sizes, strides)
    return Desc(DataType(data_type), tuple(sizes), None if strides is None else tuple(strides))


@_taking
def _by_all(
    data_type: TensorDataType,
    flags: TensorFlags,
    sizes: Sequence[int],
    strides: Sequence[int] | None,
    total_tensor_size_in_bytes: Annotated[int, UINT64],
    guaranteed_base_offset_alignment: int,
) -> Desc:
    _check(data_type, sizes, strides)
    lengths = None if strides is None else tuple(strides)
    return Desc(
        DataType(data_type),
        tuple(sizes),
        lengths,
        Flags(flags),
        total_tensor_size_in_bytes,
        guaranteed_base_offset_alignment,
    )


_FORMS: dict[tuple[bool, bool], Callable[..., Desc]] = {
    (False, True): _by_policy,
    (True, True): _by_flags_and_policy,
    (False, False): _by_strides,
    (True, False): _by_all,
}


def _check(data_type: TensorDataType, sizes: Sequence[int], strides: Sequence[int] | None) -> None:
    if data_type is TensorDataType.UNKNOWN:
        raise InvalidCall("TensorDesc: data_type must be a type of elements, got TensorDataType.UNKNOWN")
    if not sizes or 0 in sizes:
        raise InvalidCall(f"TensorDesc: sizes must be at least one integer, all positive, got {shown(list(sizes))}")
    if strides is not None and len(strides) != len(sizes):
        raise InvalidCall(
            f"TensorDesc: strides must have one entry per dimension ({len(sizes)}), got {shown(list(strides))}"
        )


class TensorData(np.ndarray[Any, np.dtype[Any]]):
    """A copy of an array as FLOAT32, or a result of ``Device.compute``; readable by ``numpy.array`` and as a buffer.

    Results of any 32-bit type are FLOAT32 with the same bits; types of other widths keep their type.

    Args:
        data: Any array of numbers.

    Raises:
        WrongArgument: If `data` is not an array of numbers.
    """

    def __new__(cls, data: ArrayLike, /) -> Self:
        """Create the array; subclasses of NumPy arrays are initialized here."""
        return as_floats("TensorData", data).copy().view(cls)

    @classmethod
    def _of(cls, raw: NDArray[np.uint8], desc: Desc) -> Self:
        """View a tensor's bytes by its sizes and strides."""
        kind = np.dtype(np.float32) if desc.data_type.bits == 32 else desc.data_type.numpy
        steps = [stride * kind.itemsize for stride in desc.element_strides]
        return np.ndarray(desc.sizes, kind, np.ascontiguousarray(raw).data, 0, steps).view(cls)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else np.asarray(array)

    def __array_function__(self, function: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
        result = super().__array_function__(function, kinds, args, kwargs)
        return result.view(np.ndarray) if isinstance(result, TensorData) else result

    __repr__ = object.__repr__
    __str__ = object.__repr__


def as_floats(caller: str, data: Any) -> NDArray[np.float32]:
    """Return data as a contiguous array of FLOAT32.

    Raises:
        WrongArgument: No array of numbers.
    """
    return np.ascontiguousarray(as_numbers(caller, data), np.float32)


def as_numbers(caller: str, data: Any) -> NDArray[Any]:
    """Return data as an array of booleans, integers or floats.

    Raises:
        WrongArgument: No array of numbers.
    """
    try:
        array = np.asarray(data)
    except Exception:  # ragged lists; a foreign __array__ may raise any exception
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        raise WrongArgument(f"{caller}: data must be an array of numbers, got {_kind(data, array)}")
    return array


def _kind(data: Any, array: NDArray[Any]) -> str:
    return f"an array of {array.dtype}" if isinstance(data, np.ndarray) else shown(data, typed=True)
