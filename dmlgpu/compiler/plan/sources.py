"""Tensors in memory, and virtual tensors, which shader bodies compute at every read."""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc, packed_strides, span

Sizes = tuple[int, ...]


class Role(enum.StrEnum):
    """Kind of resource of a dispatch that holds a tensor."""

    INPUT = "input"
    OUTPUT = "output"
    TEMPORARY = "temporary"
    PERSISTENT = "persistent"
    CONSTANT = "constant"


@dataclass(frozen=True, eq=False)
class Allocation:
    """Memory that a plan allocates. No two are equal: their offsets are assigned once all steps are known.

    Attributes:
        label: description of the contents.
    """

    label: str


@dataclass(frozen=True)
class PlanBinding:
    """One resource of a dispatch.

    Attributes:
        index: the flat number of an input, output or constant; the allocation of a temporary or persistent tensor.
        offset: bytes, a multiple of 16, from the resource's start to the bound range.
    """

    role: Role
    index: int | Allocation
    offset: int = 0

    def __hash__(self) -> int:
        """Return a hash of the resource; its offset may be symbolic."""
        return hash((self.role, self.index))

    def __str__(self) -> str:
        """Return its name for messages: ``input 0``, ``temporary 'partial sums'``."""
        index = repr(self.index.label) if isinstance(self.index, Allocation) else self.index
        return f"{self.role} {index}" + (f" from byte {self.offset}" if self.offset else "")


class View(enum.StrEnum):
    """Representation of a tensor's elements in a kernel."""

    RAW = "raw"  # bits, which are only copied
    INDEX = "index"  # integers saturated to i32
    COMPUTE = "compute"  # numbers


@dataclass(frozen=True)
class PlanTensor:
    """A tensor as a kernel reads or writes it.

    Attributes:
        strides: in elements; inputs may have negative ones (mirrored views).
        offset: elements before the first one (views into a tensor).
        lanes: consecutive numbers that form one element, such as an accumulator or a sorting record. Sizes, strides
            and offset count such elements.
    """

    binding: PlanBinding
    data_type: DataType
    sizes: Sizes
    strides: tuple[int, ...]
    view: View = View.COMPUTE
    offset: int = 0
    lanes: int = 1

    @classmethod
    def of(cls, role: Role, index: int, desc: TensorDesc, view: View = View.COMPUTE) -> PlanTensor:
        """Return the tensor of an input or output from its description."""
        return cls(PlanBinding(role, index), desc.data_type, desc.sizes, desc.element_strides, view)

    @classmethod
    def temporary(
        cls,
        label: str,
        data_type: DataType,
        sizes: Sizes,
        strides: tuple[int, ...] | None = None,
        *,
        view: View = View.COMPUTE,
        lanes: int = 1,
    ) -> PlanTensor:
        """Return a tensor in new memory that lives within one execution; packed without strides."""
        binding = PlanBinding(Role.TEMPORARY, Allocation(label))
        return cls(binding, data_type, sizes, packed_strides(sizes) if strides is None else strides, view, lanes=lanes)

    @classmethod
    def persistent(
        cls, label: str, data_type: DataType, sizes: Sizes, strides: tuple[int, ...] | None = None
    ) -> PlanTensor:
        """Return a tensor in new memory that is filled at initialization; packed without strides."""
        binding = PlanBinding(Role.PERSISTENT, Allocation(label))
        return cls(binding, data_type, sizes, packed_strides(sizes) if strides is None else strides)

    def __hash__(self) -> int:
        """Return a hash that ignores sizes, which may be symbolic; few tensors of a plan share a location."""
        return hash((self.binding, self.data_type, self.view, self.lanes, len(self.sizes)))

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def unit_bits(self) -> int:
        """Bits of one load or store."""
        return self.data_type.bits * self.lanes

    @property
    def units(self) -> int:
        """Number of units from the first to the last in memory, if strides are not negative."""
        return span(self.sizes, self.strides)

    @property
    def distinct_bytes(self) -> int:
        """Bytes of the elements; elements that strides of 0 repeat count once."""
        different = (size for size, stride in zip(self.sizes, self.strides, strict=True) if stride)
        return -(-math.prod(different) * self.unit_bits // 8)

    @property
    def reach(self) -> int:
        """Bytes from the start of the bound range to the end of the last unit, in whole words."""
        last = self.offset + sum(
            (size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True) if stride > 0
        )
        return -(-(last + 1) * self.unit_bits // 32) * 4

    def __str__(self) -> str:
        """Return binding, data type, sizes and other properties: ``input 0 FLOAT32 [2, 3] strides [1, 2]``."""
        text = f"{self.binding} {self.data_type.name} {list(self.sizes)}"
        packed = zip(self.sizes, self.strides, packed_strides(self.sizes), strict=True)
        if any(size > 1 and stride != usual for size, stride, usual in packed):
            text += f" strides {list(self.strides)}"
        text += f" from element {self.offset}" if self.offset else ""
        return text + (f" x{self.lanes}" if self.lanes != 1 else "")


@dataclass(frozen=True)
class RegisterValue:
    """A value that a schedule holds in registers, such as the sum that an epilogue reads.

    Attributes:
        name: of the value in the shader.
        repeated: the dimensions along which all elements are the same.
        lanes: elements of a unit, once a schedule has packed it; 1 in plans.
    """

    name: str
    data_type: DataType
    sizes: Sizes
    repeated: tuple[int, ...] = ()
    lanes: int = 1

    def __hash__(self) -> int:
        """Return a hash that ignores sizes, which may be symbolic."""
        return hash((self.name, self.data_type, self.repeated, self.lanes))

    @classmethod
    def product(cls, data_type: DataType, sizes: Sizes) -> RegisterValue:
        """Return the placeholder of the value that a schedule computes for each element of an output."""
        return cls("product", data_type, sizes)


@dataclass(frozen=True)
class Affine:
    """An affine map from a coordinate space to a tensor: coordinate ``c`` is at ``start + steps * c``.

    Attributes:
        start: per dimension of the tensor.
        steps: a row per dimension of the tensor, a column per dimension of the space.
    """

    start: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]

    @classmethod
    def box(cls, start: Sequence[int], strides: Sequence[int] | None = None) -> Affine:
        """Return the map of a space with the tensor's dimensions: a box, with gaps if strides are given.

        Args:
            start: Coordinates of its first element.
            strides: Step of each dimension, not 0; negative ones mirror a dimension.
        """
        diagonal = (1,) * len(start) if strides is None else strides
        return cls(
            tuple(start),
            tuple(
                tuple(step if row == column else 0 for column in range(len(start))) for row, step in enumerate(diagonal)
            ),
        )

    @classmethod
    def permutation(cls, order: Sequence[int]) -> Affine:
        """Return the map of a space with permuted dimensions: the first is the tensor's ``order[0]``, and so on."""
        rows = range(len(order))
        return cls((0,) * len(order), tuple(tuple(int(old == row) for old in order) for row in rows))

    @classmethod
    def digits(cls, space: Mapping[str, int], dimensions: Sequence[Sequence[str]]) -> Affine:
        """Return the map of a space whose coordinates are digits of the tensor's.

        Args:
            space: the named dimensions of the space and their sizes, in order.
            dimensions: per dimension of the tensor, the digits that make up its coordinate, the highest first. A digit
                that no dimension names does not move in the tensor: it repeats.
        """
        rows = []
        for names in dimensions:
            weights = {name: math.prod(space[lower] for lower in names[n + 1 :]) for n, name in enumerate(names)}
            rows.append(tuple(weights.get(name, 0) for name in space))
        return cls((0,) * len(rows), tuple(rows))

    @property
    def follows(self) -> tuple[int | None, ...]:
        """For each dimension of the space, the tensor's dimension that moves one to one with it, or None."""
        columns = zip(*self.steps, strict=True)
        moved = ([(row, step) for row, step in enumerate(column) if step] for column in columns)
        return tuple(steps[0][0] if len(steps) == 1 and steps[0][1] == 1 else None for steps in moved)

    def of(self, tensor: PlanTensor, sizes: Sizes) -> PlanTensor:
        """View a tensor in memory through the map, with these sizes: other strides and offset, the same elements."""
        offset = tensor.offset + sum(map(operator.mul, self.start, tensor.strides))
        strides = tuple(sum(map(operator.mul, column, tensor.strides)) for column in zip(*self.steps, strict=True))
        return replace(tensor, sizes=sizes, strides=strides, offset=offset)


@dataclass(frozen=True)
class AffineView:
    """Some elements of a source, in other coordinates. A view of a tensor in memory is a strided tensor.

    Attributes:
        source: the viewed source.
        sizes: of the coordinate space.
        affine: map to the coordinates of the source.
        lanes: elements of a unit, once a schedule has packed it; 1 in plans.
    """

    source: Source
    sizes: Sizes
    affine: Affine
    lanes: int = 1

    @property
    def data_type(self) -> DataType:
        """Data type of the source."""
        return self.source.data_type

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def children(self) -> tuple[Source, ...]:
        """Sources that it reads."""
        return (self.source,)

    @property
    def moves(self) -> bool:
        """Whether it only copies bits."""
        return only_moves(self.source)

    def over(self, children: Iterable[Source]) -> AffineView:
        """Return the same view of another source."""
        (source,) = children
        return replace(self, source=source)


Constants: TypeAlias = tuple[tuple[str, Any], ...]


def constants(**values: Any) -> Constants:
    """Return template values in hashable form."""
    return tuple(values.items())


@dataclass(frozen=True)
class Body:
    """One use of a shader body, which computes the elements of a virtual tensor; each kind is a subclass.

    Attributes:
        file: the shader's path below ``shaders/``, without suffix: ``indexing/gather_nd1``.
        data_type, sizes: of the tensor that the body defines.
        inputs: named sources.
        constants: values for the template.
        portable: the body uses only types that every adapter has: it sees 64-bit operands as pairs of
            words, and float16 as f32, even where the adapter computes on them.
        lanes: elements of a unit, once a schedule has packed it; 1 in plans.
        packed: the dimension along which the elements of a unit lie; None in plans.
    """

    file: str
    data_type: DataType
    sizes: Sizes
    inputs: tuple[tuple[str, Source], ...] = ()
    constants: Constants = ()
    portable: bool = False
    lanes: int = 1
    packed: int | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def children(self) -> tuple[Source, ...]:
        """Sources that it reads."""
        return tuple(source for _, source in self.inputs)

    @property
    def moves(self) -> bool:
        """Whether the body only copies bits."""
        return False

    def over(self, children: Iterable[Source]) -> Body:
        """Return the same body over other inputs."""
        names = (name for name, _ in self.inputs)
        return replace(self, inputs=tuple(zip(names, children, strict=True)))

    def follow(self, position: int, dimension: int) -> int | None:
        """Return the dimension of an input that moves one to one with a dimension of the body, or None."""
        raise NotImplementedError


@dataclass(frozen=True)
class Apply(Body):
    """A body on scalars, ``fn apply(a: a_s, b: b_s) -> output_s``; its inputs have the output's coordinates."""

    def follow(self, position: int, dimension: int) -> int | None:
        return dimension


@dataclass(frozen=True)
class Element(Body):
    """A body that changes coordinates: ``fn element(at: output_at) -> output_t``.

    Attributes:
        follows: for each input, which of its dimensions moves one to one with each dimension of the output (None where
            none does). Units of several elements go through a body along such dimensions only.
    """

    follows: tuple[tuple[int | None, ...], ...] = ()

    @property
    def moves(self) -> bool:
        return all(map(only_moves, self.children))

    def follow(self, position: int, dimension: int) -> int | None:
        return self.follows[position][dimension]


@dataclass(frozen=True)
class Lookup(Element):
    """A body that finds the element of ``input`` at a coordinate, if there is one:
    ``fn place(at: output_at, source: ptr<function, input_at>) -> bool``."""


Virtual: TypeAlias = AffineView | Body
Source: TypeAlias = PlanTensor | RegisterValue | AffineView | Body


def only_moves(source: Source) -> bool:
    """Return whether a source's elements are only copied or used as indices."""
    match source:
        case PlanTensor():
            return source.view is not View.COMPUTE
        case RegisterValue():
            return False
        case _:
            return source.moves


def apply(
    file: str,
    data_type: DataType,
    sizes: Sizes,
    *,
    portable: bool = False,
    values: Constants = (),
    **inputs: Source,
) -> Apply:
    """Return an element-wise body over named inputs of the output's sizes."""
    return Apply(file, data_type, sizes, tuple(inputs.items()), values, portable)


def portable(file: str, output: PlanTensor, values: Constants = (), **inputs: Source) -> Apply:
    """Return an element-wise body of a tensor's type and sizes, which uses only types of every adapter."""
    return Apply(file, output.data_type, output.sizes, tuple(inputs.items()), values, portable=True)


def in_float32(file: str, sizes: Sizes, values: Constants = (), **inputs: Source) -> Apply:
    """Return a portable elementwise body of float32."""
    return Apply(file, DataType.FLOAT32, sizes, tuple(inputs.items()), values, portable=True)


def element(
    file: str,
    data_type: DataType,
    sizes: Sizes,
    *,
    portable: bool = False,
    values: Constants = (),
    **inputs: Source,
) -> Element:
    """Return a body whose inputs have other coordinates, none of which moves one to one with the output's."""
    nowhere: tuple[int | None, ...] = (None,) * len(sizes)
    return Element(file, data_type, sizes, tuple(inputs.items()), values, portable, follows=(nowhere,) * len(inputs))
