"""Tensors in memory as kernels read and write them, and the memory that plans take for themselves."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc, packed_strides, span

Sizes = tuple[int, ...]


class Role(enum.StrEnum):
    """Which of a dispatch's resources a tensor lies in."""

    INPUT = "input"
    OUTPUT = "output"
    TEMPORARY = "temporary"
    PERSISTENT = "persistent"
    CONSTANT = "constant"


@dataclass(frozen=True, eq=False)
class Allocation:
    """Memory that a plan takes for itself. Two are never equal: where each lies is decided once all steps are known.

    Attributes:
        label: what is in it, for people.
    """

    label: str


@dataclass(frozen=True)
class Binding:
    """One resource of a dispatch.

    Attributes:
        index: the flat number of an input, output or constant; the allocation of a temporary or persistent tensor.
        offset: bytes, a multiple of 16, after which what is bound of it starts.
    """

    role: Role
    index: int | Allocation
    offset: int = 0

    def __str__(self) -> str:
        """Return what people call it: ``input 0``, ``temporary 'partial sums'``."""
        index = repr(self.index.label) if isinstance(self.index, Allocation) else self.index
        return f"{self.role} {index}" + (f" from byte {self.offset}" if self.offset else "")


class View(enum.StrEnum):
    """How a kernel sees the elements of a tensor."""

    RAW = "raw"  # bits that are only moved
    INDEX = "index"  # integers saturated to i32
    COMPUTE = "compute"  # numbers


@dataclass(frozen=True)
class Tensor:
    """A tensor as a kernel reads or writes it.

    Attributes:
        strides: elements between neighbours; negative ones (mirrored views) are fine for inputs.
        offset: elements before the first one (views into a tensor).
        lanes: consecutive numbers that are one element: those of an accumulator or of a sorting record. Sizes, strides
            and offset count such elements.
    """

    binding: Binding
    data_type: DataType
    sizes: Sizes
    strides: tuple[int, ...]
    view: View = View.COMPUTE
    offset: int = 0
    lanes: int = 1

    @classmethod
    def of(cls, role: Role, index: int, desc: TensorDesc, view: View = View.COMPUTE) -> Tensor:
        """Return the tensor that a description puts into an input or output."""
        return cls(Binding(role, index), desc.data_type, desc.sizes, desc.element_strides, view)

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
    ) -> Tensor:
        """Return a tensor in new memory that lives within one execution; packed without strides."""
        binding = Binding(Role.TEMPORARY, Allocation(label))
        return cls(binding, data_type, sizes, packed_strides(sizes) if strides is None else strides, view, lanes=lanes)

    @classmethod
    def persistent(
        cls, label: str, data_type: DataType, sizes: Sizes, strides: tuple[int, ...] | None = None
    ) -> Tensor:
        """Return a tensor in new memory that initialisation fills; packed without strides."""
        binding = Binding(Role.PERSISTENT, Allocation(label))
        return cls(binding, data_type, sizes, packed_strides(sizes) if strides is None else strides)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def unit_bits(self) -> int:
        """Bits that one load or store moves."""
        return self.data_type.bits * self.lanes

    @property
    def units(self) -> int:
        """Units from the first to the last in memory, for strides that are not negative."""
        return span(self.sizes, self.strides)

    @property
    def distinct_bytes(self) -> int:
        """Bytes of its elements; those that strides of 0 repeat count once."""
        different = (size for size, stride in zip(self.sizes, self.strides, strict=True) if stride)
        return -(-math.prod(different) * self.unit_bits // 8)

    @property
    def reach(self) -> int:
        """Bytes from the start of what is bound to the end of the last unit, in whole words."""
        last = self.offset + sum(
            (size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True) if stride > 0
        )
        return -(-(last + 1) * self.unit_bits // 32) * 4

    def __str__(self) -> str:
        """Return where it lies, its type and sizes, and what is special: ``input 0 FLOAT32 [2, 3] strides [1, 2]``."""
        text = f"{self.binding} {self.data_type.name} {list(self.sizes)}"
        packed = zip(self.sizes, self.strides, packed_strides(self.sizes), strict=True)
        if any(size > 1 and stride != usual for size, stride, usual in packed):
            text += f" strides {list(self.strides)}"
        text += f" from element {self.offset}" if self.offset else ""
        return text + (f" x{self.lanes}" if self.lanes != 1 else "")
