"""Values of a model's names during translation."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, TypeProto, helper

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.sizes.arithmetic import value_of
from dmlgpu.frontends.onnx.tensor_proto import ELEMENT_TYPES, DeferredArray, as_array, as_coded, as_typed, type_name
from dmlgpu.tensors.tensor import Tensor

Array = NDArray[Any]
Shape = tuple[int, ...]


class Source(Protocol):
    """Tensors of a run by slot, for the host."""

    late: dict[Hashable, Any]

    def array(self, index: int) -> Array:
        """Return the elements of a slot."""

    def numbers(self, numbers: Sequence[Any]) -> tuple[Any, ...]:
        """Return numbers, symbolic ones as they are in this run."""


Limit = int | tuple[float, ...]

Recipe = Callable[[Source], Array]
"""Computes elements from slots of a run."""


@dataclass(eq=False)
class OnnxValue:
    """A tensor of the model: known on the host, computed by the graph under construction, or in a slot of the run.

    Attributes:
        shape: ONNX's shape: empty for a scalar, zeros allowed.
        data_type: Data type that holds the elements.
        coded: ONNX's number of their own type if DirectML lacks it, else 0; see ``tensor_proto.CODED``.
        array: Elements known to the host, in the NumPy type of ``data_type``; a DeferredArray stands for those of large
            weights that are computed when they are uploaded.
        is_weight: Whether they come from the model, not from input shapes.
        expression: Expression in the graph under construction, packed or not; a scalar has rank 1.
        slot: Its slot during a run, packed.
        pieces: Pieces of a weight, by axis and count.
        recipe: Computes the elements on the host during a run, for arithmetic on few integers.
        depth: Nesting of recipes.
        codes: The encoded value that it decodes to float32 when it is loaded.
        floats: The elements in float32, of a constant with codes that a node computes with.
    """

    shape: Shape
    data_type: DataType
    coded: int = 0
    array: Array | None = field(default=None, repr=False)
    is_weight: bool = False
    expression: Tensor | None = field(default=None, repr=False)
    slot: int | None = None
    pieces: dict[tuple[int, int], list[OnnxValue]] = field(default_factory=dict, repr=False)
    recipe: Recipe | None = field(default=None, repr=False)
    depth: int = 0
    codes: OnnxValue | None = field(default=None, repr=False)
    floats: OnnxValue | None = field(default=None, repr=False)

    @classmethod
    def of_array(cls, array: Array, *, is_weight: bool = False) -> OnnxValue:
        """Return a value whose elements are known on the host."""
        held, data_type, coded = as_coded(array)
        return cls(array.shape, data_type, coded, held, is_weight)

    @classmethod
    def of_tensor(cls, proto: TensorProto, what: str, folder: Path | None = None) -> OnnxValue:
        """Return a tensor of the model; see ``tensor_proto.as_array``."""
        data_type, coded, array = as_array(proto, what, folder)
        return cls(array.shape, data_type, coded, array, is_weight=True)

    @classmethod
    def of_weight(cls, array: Array | DeferredArray) -> OnnxValue:
        """Return a weight that is not in the model's file."""
        return cls(array.shape, DataType.from_numpy(array.dtype), 0, cast("Array", array), is_weight=True)

    def cut(self, axis: int, count: int) -> list[OnnxValue]:
        """Return a weight in a number of pieces along an axis; the same objects at each call."""
        if (axis, count) not in self.pieces:
            array: Any = self.array
            is_deferred = isinstance(array, DeferredArray) and axis == 0
            pieces: list[Any] = array.pieces(count) if is_deferred else np.array_split(array, count, axis)
            self.pieces[axis, count] = [
                OnnxValue(piece.shape, self.data_type, self.coded, piece, self.is_weight) for piece in pieces
            ]
        return self.pieces[axis, count]

    @property
    def element(self) -> int:
        """ONNX's number of its type."""
        return self.coded or ELEMENT_TYPES[self.data_type]

    @property
    def is_bool(self) -> bool:
        """Whether the elements are booleans."""
        return self.coded == TensorProto.BOOL

    @property
    def has_codes(self) -> bool:
        """Whether its elements are stored as bits or bytes that no operator computes with."""
        return self.coded not in (0, TensorProto.BOOL)

    @property
    def type_name(self) -> str:
        """Its type as schemas write it: ``tensor(float)``."""
        return f"tensor({type_name(self.element)})"

    @property
    def type_proto(self) -> TypeProto:
        """Its type as models declare it."""
        return helper.make_tensor_type_proto(self.element, [*map(value_of, self.shape)])

    @property
    def parts(self) -> tuple[OnnxValue, ...]:
        """The tensors that it consists of."""
        return (self,)

    @property
    def is_container(self) -> bool:
        """Whether it is a sequence, or an optional without an element."""
        return False

    @property
    def sizes(self) -> Shape:
        """The sizes of its tensor: those of the shape, and one dimension for a scalar."""
        return self.shape or (1,)

    @property
    def is_empty(self) -> bool:
        """Whether it has no elements; no kernel computes it then."""
        return 0 in self.shape

    @property
    def host_array(self) -> Array:
        """The known elements in their own type."""
        assert self.array is not None
        return as_typed(self.array, self.data_type, self.coded) if self.coded else self.array


@dataclass(eq=False)
class OnnxSequence(OnnxValue):
    """A sequence of tensors: a tuple during translation, while a run has only the tensors.

    Attributes:
        items: The tensors, all of its type.
    """

    items: tuple[OnnxValue, ...] = ()

    @property
    def type_name(self) -> str:
        return f"seq({super().type_name})"

    @property
    def type_proto(self) -> TypeProto:
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(self.element, None))

    @property
    def parts(self) -> tuple[OnnxValue, ...]:
        return self.items

    @property
    def is_container(self) -> bool:
        return True


@dataclass(eq=False)
class EmptyOptional(OnnxValue):
    """An optional without an element; one with an element is the element itself.

    Attributes:
        of_sequence: Whether the element would be a sequence.
    """

    of_sequence: bool = False

    @property
    def type_name(self) -> str:
        tensor = super().type_name
        return f"optional({f'seq({tensor})' if self.of_sequence else tensor})"

    @property
    def type_proto(self) -> TypeProto:
        element = helper.make_tensor_type_proto(self.element, None)
        return helper.make_optional_type_proto(
            helper.make_sequence_type_proto(element) if self.of_sequence else element
        )

    @property
    def parts(self) -> tuple[OnnxValue, ...]:
        return ()

    @property
    def is_container(self) -> bool:
        return True


@dataclass(frozen=True)
class Bounds:
    """Range of indices and lengths.

    Attributes:
        low, high: Inclusive; a tuple has those of each column of the last dimension. A high of None is no limit.
        what: Node and input, for messages.
        besides: Another allowed number.
    """

    low: Limit
    high: Limit | None
    what: str
    besides: int | None = None

    def of(self, source: Source) -> Bounds:
        """Return the bounds with the sizes of a run."""
        return replace(self, low=_resolved(self.low, source), high=_resolved(self.high, source))

    def check(self, array: Array) -> None:
        """Raise InvalidArgument if an element is outside."""
        if self.besides is not None:
            array = array[array != self.besides]
        if not array.size:
            return
        if isinstance(self.low, tuple) and isinstance(self.high, tuple):
            for column, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
                self._check(array[..., column], low, high)
        else:
            self._check(array, self.low, self.high)

    def _check(self, array: Array, low: Any, high: Any) -> None:
        minimum, maximum = array.min(), array.max()
        if minimum < low or (high is not None and maximum > high):
            limits = f"at least {low}" if high is None else f"between {low} and {high}"
            raise InvalidArgument(f"{self.what} must be {limits}, got {minimum if minimum < low else maximum}")


def limits_of(limit: Limit | None) -> tuple[Any, ...]:
    """Return the numbers of a limit."""
    return limit if isinstance(limit, tuple) else () if limit is None else (limit,)


def _resolved(limit: Any, source: Source) -> Any:
    numbers = source.numbers(limits_of(limit))
    return numbers if isinstance(limit, tuple) else numbers[0] if numbers else None


# ---- requests of functions of operators


@dataclass(frozen=True)
class NeedsHost:
    """Request to read elements; answered with an array for each of ``values``.

    Attributes:
        values: Values to read.
        computed: Values to compute at the same time, into slots: the graph under construction ends here.
    """

    values: Sequence[OnnxValue]
    computed: Sequence[OnnxValue] = ()


@dataclass(frozen=True)
class NeedsDecision:
    """Request for the result of a function of elements, on which compilation depends; answered with the result.

    Attributes:
        values: Arguments of the function: arrays, booleans as 0 and 1.
        function: The function. Equal results share compiled graphs; integers in its result may be symbolic.
        numbers: Further arguments: integers that may depend on sizes, which the function itself must not hold.
    """

    values: Sequence[OnnxValue]
    function: Callable[..., Hashable]
    numbers: Sequence[Any] = ()
