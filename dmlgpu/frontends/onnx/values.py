"""What a name of a model stands for while its nodes are walked."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.frontends.onnx.elements import as_array
from dmlgpu.tensors.tensor import Tensor

Array = NDArray[Any]
Shape = tuple[int, ...]


class Source(Protocol):
    """Where the host finds the tensors of a run, by number.

    Attributes:
        late: what recipes have computed in this run.
    """

    late: dict[Hashable, Any]

    def array(self, number: int) -> Array:
        """Return the elements of a slot."""


Limit = int | tuple[float, ...]

Recipe = Callable[[Source], Array]
"""What computes elements from slots of a run."""


@dataclass(eq=False)
class OnnxValue:
    """A tensor of the model: known on the host, computed by the graph under construction, or in a slot of the run.

    Attributes:
        shape: ONNX's: empty for a scalar, zeros allowed.
        data_type: type of the elements; booleans are UINT8.
        is_bool: whether the elements are booleans.
        array: the elements where the host knows them, in ``data_type``'s NumPy type.
        is_weight: whether they come from the model, not from the sizes of inputs.
        expression: what computes it in the graph under construction, packed or not; a scalar has one dimension.
        slot: number of the slot that holds it during a run, packed.
        pieces: a weight cut along an axis into so many, by both.
        recipe: how the host computes the elements during a run, for arithmetic on few integers that it feeds.
        depth: of how many recipes, one within the other, that is made.
    """

    shape: Shape
    data_type: DataType
    is_bool: bool = False
    array: Array | None = field(default=None, repr=False)
    is_weight: bool = False
    expression: Tensor | None = field(default=None, repr=False)
    slot: int | None = None
    pieces: dict[tuple[int, int], list[OnnxValue]] = field(default_factory=dict, repr=False)
    recipe: Recipe | None = field(default=None, repr=False)
    depth: int = 0

    @classmethod
    def of_array(cls, array: Array, *, is_weight: bool = False) -> OnnxValue:
        """Return a value that the host knows."""
        is_bool = array.dtype == np.bool_
        held = array.astype(np.uint8) if is_bool else array
        return cls(array.shape, DataType.from_numpy(held.dtype), is_bool, held, is_weight)

    @classmethod
    def of_tensor(cls, proto: TensorProto, what: str, folder: Path | None = None) -> OnnxValue:
        """Return a tensor of the model; see ``elements.as_array``."""
        data_type, is_bool, array = as_array(proto, what, folder)
        return cls(array.shape, data_type, is_bool, array, is_weight=True)

    def cut(self, axis: int, count: int) -> list[OnnxValue]:
        """Return a weight in that many pieces along an axis; the same ones whenever it is asked."""
        if (axis, count) not in self.pieces:
            assert self.array is not None
            self.pieces[axis, count] = [
                OnnxValue(piece.shape, self.data_type, self.is_bool, piece, self.is_weight)
                for piece in np.array_split(self.array, count, axis)
            ]
        return self.pieces[axis, count]

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
        """The elements that the host knows, booleans as such."""
        assert self.array is not None
        return self.array.astype(np.bool_) if self.is_bool else self.array


@dataclass(frozen=True)
class Bounds:
    """What indices and lengths must be between.

    Attributes:
        low, high: inclusive; a tuple has those of each column of the last dimension. A high of None is no limit.
        what: the node and its input, for messages.
        besides: a number that is allowed as well.
    """

    low: Limit
    high: Limit | None
    what: str
    besides: int | None = None

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
        least, most = array.min(), array.max()
        if least < low or (high is not None and most > high):
            limits = f"at least {low}" if high is None else f"between {low} and {high}"
            raise InvalidArgument(f"{self.what} must be {limits}, got {least if least < low else most}")


# ---- what an operator's function yields when it must know elements to go on


@dataclass(frozen=True)
class NeedsHost:
    """Elements must be read; answered with an array for each of ``values``.

    Attributes:
        values: what is read.
        computed: values that are computed at the same time, into slots: the graph under construction ends here.
    """

    values: Sequence[OnnxValue]
    computed: Sequence[OnnxValue] = ()


@dataclass(frozen=True)
class NeedsDecision:
    """A function of elements decides what is compiled; answered with what it returns.

    Attributes:
        values: what the function is called with: arrays, booleans as 0 and 1.
        function: what is compiled serves all elements of which it returns the same.
    """

    values: Sequence[OnnxValue]
    function: Callable[..., Hashable]
