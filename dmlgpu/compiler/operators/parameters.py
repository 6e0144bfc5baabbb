"""Scales and zero points: per channel, as differences, and many of them in one buffer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TENSOR_ALIGNMENT, WORD_BITS
from dmlgpu.compiler.operators.lowering import input_tensor, invalid
from dmlgpu.compiler.operators.quantization import NO_ZERO_POINT
from dmlgpu.compiler.plan import Body, Map, Source, Tensor, apply, constants, element

FLOAT32, INT32 = DataType.FLOAT32, DataType.INT32
DIFFERENCE = "matrix/difference"
GATHERED = "quantization/gathered"

Sizes = tuple[int, ...]


def difference(values: Source, zero_point: Source, data_type: DataType) -> Body:
    """Subtract zero points from integers in the type of the sums; 32-bit ones take 33 bits, then float32."""
    integer = DataType.INT64 if values.data_type.bits == 32 else INT32
    return apply(
        DIFFERENCE,
        data_type,
        values.sizes,
        portable=True,
        values=constants(integer=integer),
        input=values,
        zero_point=zero_point,
    )


# ---- one for all, or one per channel


def check_per_channel(desc: Any, field: str, channels: int) -> None:
    """Raise InvalidDescription unless a tensor, if it is there, has one element for all channels, or one for each.

    These lie along the second dimension, or along the only one.
    """
    if getattr(desc, field) is None:
        return
    sizes = getattr(desc, field).sizes
    axis = min(1, len(sizes) - 1)
    ones = [1] * len(sizes)
    several = [*ones[:axis], channels, *ones[axis + 1 :]]
    if list(sizes) not in (ones, several):
        reason = f"must be {ones} (one for all) or {several} (one per channel), got {list(sizes)}"
        raise invalid(desc, f"{field}.sizes", reason)


def per_channel(tensor: Tensor, sizes: Sizes, dimension: int = 1) -> Tensor:
    """Repeat a scale or zero point over a tensor whose channels lie along a dimension."""
    axis = min(1, tensor.rank - 1)
    stride = tensor.strides[axis] if tensor.sizes[axis] > 1 else 0
    strides = tuple(stride if other == dimension else 0 for other in range(len(sizes)))
    return replace(tensor, sizes=sizes, strides=strides)


def no_zero_point(sizes: Sizes) -> Body:
    """Return zeros for a zero point that is missing."""
    return apply(NO_ZERO_POINT, INT32, sizes, portable=True)


# ---- many in one buffer


@dataclass(frozen=True)
class Parameter:
    """A scale (float32), zero point or bias (integers) among others in one buffer, where kernels would bind too many.

    Attributes:
        field: where it comes from in the description.
        source: it, as it is given: all dimensions but one have size 1.
        first: the index of its first number in the common tensor.
    """

    field: str
    source: Tensor
    first: int

    @property
    def name(self) -> str:
        """The name that bodies use."""
        return self.field.removesuffix("_tensor").removeprefix("output_")

    @property
    def count(self) -> int:
        """How many numbers it has."""
        return max(self.source.sizes)

    @property
    def along(self) -> int:
        """The dimension along which they lie."""
        return self.source.sizes.index(self.count)

    def view(self, gathered: Tensor) -> Tensor:
        """Return the parameter as a part of the common tensor."""
        data_type = FLOAT32 if self.source.data_type.is_float else INT32
        return replace(gathered, data_type=data_type, sizes=(self.count,), offset=self.first)


def parameters_of(desc: Any, fields: Iterable[str]) -> tuple[Parameter, ...]:
    """Return the parameters that are present, each at a place where a tensor may begin."""
    parameters: list[Parameter] = []
    end, alignment = 0, 8 * TENSOR_ALIGNMENT // WORD_BITS
    for field in fields:
        if getattr(desc, field) is not None:
            parameters.append(Parameter(field, input_tensor(desc, field), end))
            end += -(-parameters[-1].count // alignment) * alignment
    return tuple(parameters)


def gather(parameters: tuple[Parameter, ...]) -> tuple[Map, Tensor]:
    """Return the step that copies parameters side by side into one tensor, and that tensor."""
    size = parameters[-1].first + parameters[-1].count
    gathered = Tensor.temporary("parameters", DataType.UINT32, (size,))
    sources = {parameter.name: parameter.source for parameter in parameters}
    values = constants(entries=parameters)
    body = element(GATHERED, DataType.UINT32, gathered.sizes, portable=True, values=values, **sources)
    return Map("parameters", body, gathered), gathered
