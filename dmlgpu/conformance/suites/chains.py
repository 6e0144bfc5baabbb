"""The suite of chains: random operators that feed each other, in few and in many command lists.

A name spells the type, how the results share memory, how many dispatches there are, and a seed, from which all else is
drawn: ``chain-float32-reuse-40-s3``.
"""

from __future__ import annotations

import enum
import itertools
import re
import zlib
from dataclasses import dataclass

import numpy as np

from dmlgpu.catalog import loader
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TENSOR_ALIGNMENT, buffer_size
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.cases.case import Array
from dmlgpu.conformance.cases.keys import PROFILES
from dmlgpu.conformance.suites.dispatch_generator import (
    LARGEST,
    MOST_ELEMENTS,
    Dispatch,
    DispatchGenerator,
    Sizes,
    Value,
)
from dmlgpu.conformance.suites.programs import Location, Program, ProgramSuite, Step

SOURCES: tuple[Sizes, ...] = ((4, 8), (8, 4), (12, 12), (1, 8))
"""Sizes of the tensors that a chain starts from."""
SLOTS = 6
"""Buffers that REUSE has for results."""
MOST_STEPS = 2000


class Memory(enum.StrEnum):
    """How the results of a chain share memory."""

    OWN = "own"  # a buffer each
    ARENA = "arena"  # one buffer for all, side by side
    REUSE = "reuse"  # few buffers, overwritten again and again, also in place


@dataclass(frozen=True)
class Key:
    """What names a chain."""

    data_type: DataType
    memory: Memory
    steps: int
    seed: int

    def __str__(self) -> str:
        return f"chain-{self.data_type.name.lower()}-{self.memory}-{self.steps}-s{self.seed}"

    @classmethod
    def parse(cls, name: str) -> Key:
        """The key that a name spells.

        Raises:
            InvalidArgument: when it spells none.
        """
        found = re.fullmatch(r"chain-(\w+)-(\w+)-(\d{1,4})-s(\d{1,9})", name)
        types = {data_type.name.lower(): data_type for data_type in LARGEST}
        if found is not None and found[1] in types and found[2] in set(Memory):
            key = cls(types[found[1]], Memory(found[2]), int(found[3]), int(found[4]))
            if str(key) == name and 1 <= key.steps <= MOST_STEPS:
                return key
        raise InvalidArgument(f"{name!r} names no chain, such as chain-float32-own-12-s0, of up to {MOST_STEPS}")


class _Layout:
    """Where the tensors of a chain lie; buffer 0 holds the indices."""

    def __init__(self, key: Key, rng: np.random.Generator):
        self.key, self.rng = key, rng
        self.sizes = [16]  # of the buffers, in bytes
        self._slots = [self._buffer(4 * MOST_ELEMENTS) for _ in range(SLOTS if key.memory is Memory.REUSE else 0)]

    def _buffer(self, size: int) -> Location:
        self.sizes.append(size)
        return Location(len(self.sizes) - 1)

    def fresh(self, sizes: Sizes) -> Location:
        """Memory that nothing has used: a buffer, or the arena's end."""
        size = buffer_size(self.key.data_type, sizes)
        if self.key.memory is not Memory.ARENA or len(self.sizes) == 1:
            return self._buffer(size)
        offset = -(-self.sizes[1] // TENSOR_ALIGNMENT) * TENSOR_ALIGNMENT
        self.sizes[1] = offset + size
        return Location(1, offset)

    def target(self, dispatch: Dispatch) -> Location:
        """Where a result goes: in place where that is allowed, or anywhere that is not read."""
        if self.key.memory is not Memory.REUSE:
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


def program(key: Key) -> Program:
    """The chain of a key."""
    rng = np.random.default_rng(zlib.crc32(str(key).encode()))
    layout = _Layout(key, rng)
    sources = [Value(layout.fresh(sizes), sizes, 3) for sizes in SOURCES]
    generator = DispatchGenerator(key.data_type, rng, Location(0), list(sources))
    steps = [_extend(generator, layout) for _ in range(key.steps)]
    dtype = key.data_type.numpy
    buffers: list[Array] = [rng.integers(0, 4, 4).astype(np.uint32)]
    buffers += [rng.integers(-3, 4, size // dtype.itemsize).astype(dtype) for size in layout.sizes[1:]]
    cuts = sorted(int(cut) for cut in rng.integers(0, key.steps, rng.integers(4)))
    lists = tuple(tuple(steps[i:j]) for i, j in itertools.pairwise([0, *cuts, key.steps]))
    numbers = tuple(range(len(lists)))
    return Program(tuple(buffers), lists, (numbers,) if rng.integers(2) else tuple((number,) for number in numbers))


def _extend(generator: DispatchGenerator, layout: _Layout) -> Step:
    """One more dispatch; what it overwrites can be read no longer."""
    dispatch = generator.draw()
    target = layout.target(dispatch)
    generator.values = [value for value in generator.values if value.location != target]
    generator.values.append(Value(target, dispatch.sizes, dispatch.most))
    read = tuple(value.location for value in dispatch.reads)
    return Step(dispatch.desc, read if dispatch.indices is None else (*read, dispatch.indices), (target,))


class ChainSuite(ProgramSuite):
    """Chains of every type and way to share memory; longer ones and more of them in the larger profiles."""

    profiles = PROFILES

    def names(self, profile: str) -> tuple[str, ...]:
        """The names of a profile's cases."""
        if profile == "quick":
            return tuple(str(Key(*kind, 12, 0)) for kind in zip(LARGEST, Memory, strict=True))
        lengths = {12: 2, 60: 1} if profile == "standard" else {12: 20, 60: 8, 400: 2}
        found = [(steps, seed) for steps, count in lengths.items() for seed in range(count)]
        return tuple(str(Key(*kind, *numbers)) for numbers in found for kind in itertools.product(LARGEST, Memory))

    def program(self, name: str) -> Program:
        """The chain with a name.

        Raises:
            InvalidArgument: when it names none.
        """
        return program(Key.parse(name))
