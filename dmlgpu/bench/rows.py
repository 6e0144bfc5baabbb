"""The table of descriptions that operators are measured on, with sizes by name. A family of operators shares a row.

A row is a function from sizes and a maker of tensors to a description, registered under the operators' names with the
sizes that are usual. Operators without a row are measured on their largest quick conformance case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dmlgpu.bench.specs import Sizes
from dmlgpu.bench.workload import Contents
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc, packed_strides
from dmlgpu.common.errors import InvalidArgument

LAYOUTS = ("packed", "strided", "padded", "transposed", "channels-last")
"""Ways for the tensors of a row to lie in memory."""


@dataclass
class Maker:
    """Makes the tensors of a description, in the type and the layout that are asked for.

    Attributes:
        data_type: of the tensors for which no other is given.
        layout: one of LAYOUTS.
    """

    data_type: DataType
    layout: str = "packed"

    def __call__(self, *sizes: int, type: DataType | None = None) -> TensorDesc:
        """Return an input in the layout."""
        return TensorDesc(type or self.data_type, sizes, laid_out(sizes, self.layout))

    def result(self, *sizes: int) -> TensorDesc:
        """Return an output in the layout; a packed one where inputs are transposed, which has to be undone then."""
        return TensorDesc(self.data_type, sizes, None if self.layout == "transposed" else laid_out(sizes, self.layout))

    def packed(self, *sizes: int, type: DataType | None = None) -> TensorDesc:
        """Return a tensor of parameters or indices, which is packed in every layout."""
        return TensorDesc(type or self.data_type, sizes)

    def repeated(self, *sizes: int, type: DataType | None = None) -> TensorDesc:
        """Return a tensor with one element in memory, which strides of 0 repeat."""
        return TensorDesc(type or self.data_type, sizes, (0,) * len(sizes))


def laid_out(sizes: Sequence[int], layout: str) -> tuple[int, ...] | None:
    """Return strides in elements for a layout; None for packed ones, and where the layout is none of these sizes.

    Raises:
        InvalidArgument: for a layout that is none of LAYOUTS.
    """
    if layout not in LAYOUTS:
        raise InvalidArgument(f"a layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    rank, packed = len(sizes), packed_strides(sizes)
    strides: tuple[int, ...] | None = None
    if layout == "strided":  # every other element
        strides = tuple(2 * stride for stride in packed)
    elif layout == "padded" and rank > 1:  # rows end in a gap of four elements
        strides = packed_strides((*sizes[:-1], sizes[-1] + 4))
    elif layout == "transposed" and rank > 1:  # the last two dimensions change places
        strides = (*packed[:-2], 1, sizes[-2])
    elif layout == "channels-last" and rank > 2:  # the second dimension is innermost
        first, *inner, _ = packed_strides((sizes[0], *sizes[2:], sizes[1]))
        strides = (first, 1, *inner)
    return strides


def arbitrary(sizes: Sizes) -> Mapping[int, Contents]:
    """Return that every input holds arbitrary numbers."""
    return {}


Build: TypeAlias = Callable[[Sizes, Maker], OperatorDesc]


@dataclass(frozen=True)
class Row:
    """What an operator is measured on.

    Attributes:
        operator: DirectML's name.
        sizes: their names and usual values.
        build: makes the description.
        data_type: the usual one.
        contents: makes, from the sizes, what fills inputs that hold no arbitrary numbers, by the inputs' numbers.
    """

    operator: str
    sizes: Sizes
    build: Build
    data_type: DataType = DataType.FLOAT32
    contents: Callable[[Sizes], Mapping[int, Contents]] = arbitrary

    def with_sizes(self, sizes: Sizes) -> dict[str, int]:
        """Return the row's sizes, those that are given in place of the usual ones.

        Raises:
            InvalidArgument: for a name that the row does not have.
        """
        for name in sizes:
            if name not in self.sizes:
                raise InvalidArgument(f"{self.operator} has no size {name!r}; its sizes are {', '.join(self.sizes)}")
        return {**self.sizes, **sizes}


ROWS: dict[str, Row] = {}
"""The rows by the operators' names; bounded by the catalog."""


def row(
    sizes: Sizes,
    *operators: type[OperatorDesc],
    data_type: DataType = DataType.FLOAT32,
    contents: Callable[[Sizes], Mapping[int, Contents]] = arbitrary,
) -> Callable[[Callable[[type[OperatorDesc], Sizes, Maker], OperatorDesc]], object]:
    """Register a function from a class of descriptions, sizes and a maker of tensors as the row of operators."""

    def register(function: Callable[[type[OperatorDesc], Sizes, Maker], OperatorDesc]) -> object:
        for operator in operators:

            def build(sizes: Sizes, make: Maker, operator: type[OperatorDesc] = operator) -> OperatorDesc:
                return function(operator, sizes, make)

            ROWS[operator.operator] = Row(operator.operator, sizes, build, data_type, contents)
        return function

    return register


def folded(elements: int) -> tuple[int, int]:
    """Return two sizes, as near to each other as powers of two allow, that make up a number of elements."""
    columns = math.gcd(elements, 1 << (elements.bit_length() // 2))
    return elements // columns, columns
