"""The suite of chains: random operators that feed each other, in few and in many command lists.

A name spells the type, how the results share memory, how many dispatches there are, and a seed, from which all else is
drawn: ``chain-float32-reuse-40-s3``. Numbers stay so small that every result is exact.
"""

from __future__ import annotations

import enum
import itertools
import math
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmlgpu.catalog import descs, loader
from dmlgpu.catalog.enums import DataType, MatrixTransform, PaddingMode, ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TENSOR_ALIGNMENT, TensorDesc, buffer_size
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.cases.case import Array
from dmlgpu.conformance.cases.keys import PROFILES
from dmlgpu.conformance.suites.programs import DispatchProgram, DispatchStep, Location, ProgramSuite

Sizes = tuple[int, int]

LARGEST = {DataType.FLOAT32: 1 << 22, DataType.FLOAT16: 1 << 10, DataType.INT32: 1 << 30}
"""The types, and up to which number of each chains compute."""
MAX_ELEMENTS = 12 * 12
"""Maximum number of elements of a tensor."""


@dataclass(frozen=True)
class LiveTensor:
    """A tensor that later dispatches may read.

    Attributes:
        location: Location of the packed tensor.
        sizes: Rows and columns.
        most: The largest number that it may hold.
    """

    location: Location
    sizes: Sizes
    most: int


@dataclass(frozen=True)
class Dispatch:
    """A planned dispatch: its description, its inputs, and the largest number that it may produce."""

    desc: OperatorDesc
    reads: tuple[LiveTensor, ...]
    most: int
    indices: Location | None = None

    @property
    def sizes(self) -> Sizes:
        """Rows and columns of the result."""
        tensor = self.desc.outputs[0].tensor
        assert tensor is not None
        rows, columns = tensor.sizes
        return rows, columns


def _tensor(data_type: DataType, sizes: Sizes, strides: Sizes | None = None) -> TensorDesc:
    return TensorDesc(data_type, sizes, strides)


@dataclass
class DispatchGenerator:
    """Draws dispatches over the values that are there.

    Attributes:
        data_type: Data type of all values.
        rng: draws.
        indices: Location of a row of four indices below 4.
        values: What can be read.
        element_wise: Weight of elementwise dispatches relative to others.
    """

    data_type: DataType
    rng: np.random.Generator
    indices: Location
    values: list[LiveTensor] = field(default_factory=list)
    element_wise: int = 1

    def draw(self) -> Dispatch:
        """Return the next dispatch: of a random kind, or one that makes numbers smaller."""
        kinds = _ELEMENT_WISE * self.element_wise + _OTHERS
        for _ in range(8):
            dispatch = kinds[self.rng.integers(len(kinds))](self)
            if dispatch is not None and dispatch.most <= LARGEST[self.data_type] and self._fits(dispatch.sizes):
                return dispatch
        return self.clip()

    def _fits(self, sizes: Sizes) -> bool:
        """Return whether a tensor is small enough and fills whole words."""
        count = math.prod(sizes)
        return count <= MAX_ELEMENTS and count * self.data_type.bits % 32 == 0

    def recent(self) -> LiveTensor:
        """Return a value, the latest ones more often."""
        latest = self.values[-3:] if self.rng.random() < 0.6 else self.values
        return latest[self.rng.integers(len(latest))]

    def other(self, condition: Callable[[LiveTensor], bool]) -> LiveTensor | None:
        """Any value that meets a condition, if there is one."""
        values = [value for value in self.values if condition(value)]
        return values[self.rng.integers(len(values))] if values else None

    def clip(self) -> Dispatch:
        """Between -4 and 4."""
        value = self.recent()
        desc = descs.ElementWiseClip(**self._unary(value), scale_bias=None, min=-4.0, max=4.0)
        return Dispatch(desc, (value,), 4)

    def sign(self) -> Dispatch:
        """Absolute values or negative ones."""
        value = self.recent()
        kind: Any = (descs.ElementWiseAbs, descs.ElementWiseNegate)[self.rng.integers(2)]
        return Dispatch(kind(**self._unary(value)), (value,), value.most)

    def pair(self) -> Dispatch:
        """Sums, products, extremes of two values, one of which may be one row for all."""
        a = self.recent()
        fitting = (a.sizes, (1, a.sizes[1]))
        b = self.other(lambda value: value.sizes in fitting and value.location != a.location) or a
        strides = None if a.sizes == b.sizes else (0, 1)
        kind: Any = _PAIRS[self.rng.integers(len(_PAIRS))]
        desc = kind(
            a_tensor=_tensor(self.data_type, a.sizes),
            b_tensor=_tensor(self.data_type, a.sizes, strides),
            output_tensor=_tensor(self.data_type, a.sizes),
        )
        maximum = a.most * b.most if kind is descs.ElementWiseMultiply else a.most + b.most
        return Dispatch(desc, (a, b), maximum)

    def transpose(self) -> Dispatch:
        """Return a copy of a transposed view."""
        value = self.recent()
        rows, columns = value.sizes
        source = _tensor(self.data_type, (columns, rows), (1, columns))
        desc = descs.ElementWiseIdentity(
            input_tensor=source, output_tensor=_tensor(self.data_type, (columns, rows)), scale_bias=None
        )
        return Dispatch(desc, (value,), value.most)

    def slice(self) -> Dispatch | None:
        """Return every second row, from the first or the second on; or four columns."""
        value = self.recent()
        rows, columns = value.sizes
        by_rows = rows > 1
        if not by_rows and columns < 4:
            return None
        window = (rows // 2, columns) if by_rows else (rows, 4)
        first = (int(self.rng.integers(2)), 0) if by_rows else (0, int(self.rng.integers(columns - 3)))
        desc = descs.Slice1(
            input_tensor=_tensor(self.data_type, value.sizes),
            output_tensor=_tensor(self.data_type, window),
            input_window_offsets=first,
            input_window_sizes=(2 * (rows // 2) - first[0], columns) if by_rows else window,
            input_window_strides=(2 if by_rows else 1, 1),
        )
        return Dispatch(desc, (value,), value.most)

    def pad(self) -> Dispatch:
        """Four more rows of ones, above or below."""
        value = self.recent()
        rows, columns = value.sizes
        start = (int(self.rng.integers(5)), 0)
        desc = descs.Padding1(
            input_tensor=_tensor(self.data_type, value.sizes),
            output_tensor=_tensor(self.data_type, (rows + 4, columns)),
            padding_mode=PaddingMode.CONSTANT,
            padding_value_data_type=self.data_type,
            padding_value=1,
            start_padding=start,
            end_padding=(4 - start[0], 0),
        )
        return Dispatch(desc, (value,), max(value.most, 1))

    def join(self) -> Dispatch:
        """Two values, one below the other."""
        a = self.recent()
        b = self.other(lambda value: value.sizes[1] == a.sizes[1])
        assert b is not None, "a itself will do"
        desc = descs.Join(
            input_tensors=tuple(_tensor(self.data_type, value.sizes) for value in (a, b)),
            output_tensor=_tensor(self.data_type, (a.sizes[0] + b.sizes[0], a.sizes[1])),
            axis=0,
        )
        return Dispatch(desc, (a, b), max(a.most, b.most))

    def reduce(self) -> Dispatch:
        """Return sums or extremes of columns."""
        value = self.recent()
        rows, columns = value.sizes
        function = (ReduceFunction.SUM, ReduceFunction.MAX, ReduceFunction.MIN)[self.rng.integers(3)]
        desc = descs.Reduce(
            function=function,
            input_tensor=_tensor(self.data_type, value.sizes),
            output_tensor=_tensor(self.data_type, (1, columns)),
            axes=(0,),
        )
        return Dispatch(desc, (value,), value.most * (rows if function is ReduceFunction.SUM else 1))

    def gather(self) -> Dispatch | None:
        """Four of a value's first rows."""
        value = self.recent()
        if value.sizes[0] < 4:
            return None
        desc = descs.Gather(
            input_tensor=_tensor(self.data_type, value.sizes),
            indices_tensor=TensorDesc(DataType.UINT32, (1, 4)),
            output_tensor=_tensor(self.data_type, (4, value.sizes[1])),
            axis=0,
            index_dimensions=1,
        )
        return Dispatch(desc, (value,), value.most, self.indices)

    def multiply_matrices(self) -> Dispatch | None:
        """Return a product of two matrices, the second one transposed."""
        a = self.recent()
        b = self.other(lambda value: value.sizes[0] > 1 and value.sizes[1] == a.sizes[1])
        if b is None or not self.data_type.is_float:
            return None
        desc = descs.Gemm(
            a_tensor=_tensor(self.data_type, a.sizes),
            b_tensor=_tensor(self.data_type, b.sizes),
            output_tensor=_tensor(self.data_type, (a.sizes[0], b.sizes[0])),
            trans_a=MatrixTransform.NONE,
            trans_b=MatrixTransform.TRANSPOSE,
            alpha=1.0,
            beta=0.0,
        )
        return Dispatch(desc, (a, b), a.most * b.most * a.sizes[1])

    def _unary(self, value: LiveTensor) -> dict[str, TensorDesc]:
        tensor = _tensor(self.data_type, value.sizes)
        return {"input_tensor": tensor, "output_tensor": tensor}


_PAIRS = (
    descs.ElementWiseAdd,
    descs.ElementWiseSubtract,
    descs.ElementWiseMultiply,
    descs.ElementWiseMax,
    descs.ElementWiseMin,
)
_Kinds = tuple[Callable[[DispatchGenerator], Dispatch | None], ...]
_ELEMENT_WISE: _Kinds = (
    DispatchGenerator.clip,
    DispatchGenerator.sign,
    DispatchGenerator.pair,
    DispatchGenerator.pair,
    DispatchGenerator.transpose,
    DispatchGenerator.slice,
)
_OTHERS: _Kinds = (
    DispatchGenerator.pad,
    DispatchGenerator.join,
    DispatchGenerator.reduce,
    DispatchGenerator.gather,
    DispatchGenerator.multiply_matrices,
)


# ---- chains ----------------------------------------------------------------------------------------------------------


SOURCES: tuple[Sizes, ...] = ((4, 8), (8, 4), (12, 12), (1, 8))
"""Sizes of the tensors that a chain starts from."""
SLOTS = 6
"""Buffers that REUSE has for results."""
MAX_STEPS = 2000


class ChainMemory(enum.StrEnum):
    """Memory sharing of the results of a chain."""

    OWN = "own"  # a buffer each
    ARENA = "arena"  # one buffer for all, side by side
    REUSE = "reuse"  # few buffers, overwritten again and again, also in place


@dataclass(frozen=True)
class ChainKey:
    """Key of a chain."""

    data_type: DataType
    memory: ChainMemory
    steps: int
    seed: int

    def __str__(self) -> str:
        return f"chain-{self.data_type.name.lower()}-{self.memory}-{self.steps}-s{self.seed}"

    @classmethod
    def parse(cls, name: str) -> ChainKey:
        """Return the key that a name spells.

        Raises:
            InvalidArgument: If it spells none.
        """
        match = re.fullmatch(r"chain-(\w+)-(\w+)-(\d{1,4})-s(\d{1,9})", name)
        types = {data_type.name.lower(): data_type for data_type in LARGEST}
        if match is not None and match[1] in types and match[2] in set(ChainMemory):
            key = cls(types[match[1]], ChainMemory(match[2]), int(match[3]), int(match[4]))
            if str(key) == name and 1 <= key.steps <= MAX_STEPS:
                return key
        raise InvalidArgument(f"{name!r} names no chain, such as chain-float32-own-12-s0, of up to {MAX_STEPS}")


class _MemoryPlan:
    """Memory of the tensors of a chain; buffer 0 holds the indices."""

    def __init__(self, key: ChainKey, rng: np.random.Generator):
        self.key, self.rng = key, rng
        self.sizes = [16]  # of the buffers, in bytes
        self._slots = [self._buffer(4 * MAX_ELEMENTS) for _ in range(SLOTS if key.memory is ChainMemory.REUSE else 0)]

    def _buffer(self, size: int) -> Location:
        self.sizes.append(size)
        return Location(len(self.sizes) - 1)

    def fresh(self, sizes: Sizes) -> Location:
        """Memory that nothing has used: a buffer, or the arena's end."""
        size = buffer_size(self.key.data_type, sizes)
        if self.key.memory is not ChainMemory.ARENA or len(self.sizes) == 1:
            return self._buffer(size)
        offset = -(-self.sizes[1] // TENSOR_ALIGNMENT) * TENSOR_ALIGNMENT
        self.sizes[1] = offset + size
        return Location(1, offset)

    def target(self, dispatch: Dispatch) -> Location:
        """Return the location of a result: in place if allowed, or any location that is not read."""
        if self.key.memory is not ChainMemory.REUSE:
            return self.fresh(dispatch.sizes)
        read = [value.location for value in dispatch.reads]
        first = dispatch.reads[0]
        if first.location in self._slots and _works_in_place(dispatch) and self.rng.random() < 0.5:
            return first.location
        free = [slot for slot in self._slots if slot not in read]
        return free[self.rng.integers(len(free))]


def _works_in_place(dispatch: Dispatch) -> bool:
    allowed = loader.operator(dispatch.desc.operator).in_place
    return allowed and all(slot.tensor == dispatch.desc.outputs[0].tensor for slot in dispatch.desc.inputs)


def program(key: ChainKey) -> DispatchProgram:
    """Return the chain of a key."""
    rng = np.random.default_rng(zlib.crc32(str(key).encode()))
    layout = _MemoryPlan(key, rng)
    sources = [LiveTensor(layout.fresh(sizes), sizes, 3) for sizes in SOURCES]
    generator = DispatchGenerator(key.data_type, rng, Location(0), list(sources))
    steps = [_extend(generator, layout) for _ in range(key.steps)]
    dtype = key.data_type.numpy
    buffers: list[Array] = [rng.integers(0, 4, 4).astype(np.uint32)]
    buffers += [rng.integers(-3, 4, size // dtype.itemsize).astype(dtype) for size in layout.sizes[1:]]
    cuts = sorted(int(cut) for cut in rng.integers(0, key.steps, rng.integers(4)))
    lists = tuple(tuple(steps[i:j]) for i, j in itertools.pairwise([0, *cuts, key.steps]))
    numbers = tuple(range(len(lists)))
    return DispatchProgram(
        tuple(buffers), lists, (numbers,) if rng.integers(2) else tuple((index,) for index in numbers)
    )


def _extend(generator: DispatchGenerator, layout: _MemoryPlan) -> DispatchStep:
    """Append a dispatch; tensors that it overwrites can no longer be read."""
    dispatch = generator.draw()
    target = layout.target(dispatch)
    generator.values = [value for value in generator.values if value.location != target]
    generator.values.append(LiveTensor(target, dispatch.sizes, dispatch.most))
    read = tuple(value.location for value in dispatch.reads)
    return DispatchStep(dispatch.desc, read if dispatch.indices is None else (*read, dispatch.indices), (target,))


class ChainSuite(ProgramSuite):
    """Chains of every type and way to share memory; longer ones and more of them in the larger profiles."""

    profiles = PROFILES

    def names(self, profile: str) -> tuple[str, ...]:
        if profile == "quick":
            return tuple(str(ChainKey(*kind, 12, 0)) for kind in zip(LARGEST, ChainMemory, strict=True))
        lengths = {12: 2, 60: 1} if profile == "standard" else {12: 20, 60: 8, 400: 2}
        counted = [(steps, seed) for steps, count in lengths.items() for seed in range(count)]
        return tuple(
            str(ChainKey(*kind, *numbers)) for numbers in counted for kind in itertools.product(LARGEST, ChainMemory)
        )

    def program(self, name: str) -> DispatchProgram:
        return program(ChainKey.parse(name))
