"""The suite of hazards: dispatches that share memory in every way that DirectML allows.

A name spells what is shared how, the type, and how many elements a tensor has: ``hazard-in_place-uint32-4096``. Sums
and products wrap around, so every dispatch changes all that follows.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import AxisDirection, DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.cases.contents import any_bits
from dmlgpu.conformance.cases.keys import PROFILES
from dmlgpu.conformance.suites.programs import DispatchProgram, DispatchStep, Location, ProgramSuite

TYPES = (DataType.UINT32, DataType.UINT8)
COUNT = 65552
"""Elements of a tensor: many workgroups, a temporary resource for sums, 16 bytes off a multiple of 256."""
MIN_ELEMENTS, MAX_ELEMENTS = 256, 1 << 20
ROUNDS = 12
MANY = 400
A, B, C, D = (Location(index) for index in range(4))


@dataclass(frozen=True)
class ProgramBuilder:
    """Writes dispatches over tensors of one kind.

    Attributes:
        tensor: The kind.
        name: Name of the case, which seeds the contents.
    """

    tensor: TensorDesc
    name: str

    @property
    def size(self) -> int:
        """Bytes of a tensor."""
        return self.tensor.byte_size

    def add(self, a: Location, b: Location, output: Location) -> DispatchStep:
        """A sum."""
        return self._pair(descs.ElementWiseAdd, a, b, output)

    def multiply(self, a: Location, b: Location, output: Location) -> DispatchStep:
        """A product."""
        return self._pair(descs.ElementWiseMultiply, a, b, output)

    def _pair(self, kind: Any, a: Location, b: Location, output: Location) -> DispatchStep:
        desc = kind(a_tensor=self.tensor, b_tensor=self.tensor, output_tensor=self.tensor)
        return DispatchStep(desc, (a, b), (output,))

    def copy(self, source: Location, output: Location) -> DispatchStep:
        """A copy."""
        desc = descs.ElementWiseIdentity(input_tensor=self.tensor, output_tensor=self.tensor, scale_bias=None)
        return DispatchStep(desc, (source,), (output,))

    def sums(self, source: Location, output: Location) -> DispatchStep:
        """Running sums, which need a temporary resource if they are long."""
        desc = descs.CumulativeSummation(
            input_tensor=self.tensor,
            output_tensor=self.tensor,
            axis=0,
            axis_direction=AxisDirection.INCREASING,
            has_exclusive_sum=False,
        )
        return DispatchStep(desc, (source,), (output,))

    def program(
        self, sizes: tuple[int, ...], *lists: list[DispatchStep], submissions: tuple[tuple[int, ...], ...] = ((0,),)
    ) -> DispatchProgram:
        """A program over buffers of the sizes of several tensors. Odd numbers in the last one keep products from 0."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        count = self.size // self.tensor.data_type.numpy.itemsize
        buffers = tuple(any_bits(rng, self.tensor.data_type, (size * count,)) for size in sizes)
        buffers[-1][:] |= 1
        return DispatchProgram(buffers, tuple(map(tuple, lists)), submissions)


# ---- one function per hazard: the order of dispatches is all that keeps the results right


def read_after_write(build: ProgramBuilder) -> DispatchProgram:
    """Each dispatch reads the result of the previous one."""
    locations = [Location(index) for index in range(ROUNDS)]
    steps = [build.multiply(locations[n], locations[0], locations[n + 1]) for n in range(ROUNDS - 1)]
    return build.program((1,) * ROUNDS, steps)


def write_after_read(build: ProgramBuilder) -> DispatchProgram:
    """Each dispatch overwrites the input of the previous one."""
    return build.program((1, 1, 1), [build.add(A, B, C), build.multiply(B, C, A), build.add(C, A, B)] * ROUNDS)


def write_after_write(build: ProgramBuilder) -> DispatchProgram:
    """Two dispatches write to the same location; the result of the second one is read."""
    steps = [build.add(A, D, C), build.multiply(B, D, C), build.add(A, C, B), build.multiply(C, D, A)]
    return build.program((1, 1, 1, 1), steps * ROUNDS)


def in_place(build: ProgramBuilder) -> DispatchProgram:
    """Outputs lie on inputs, of which there may be two at the same location."""
    steps = [build.add(A, A, A), build.add(B, A, A), build.multiply(A, C, A), build.add(B, A, B)]
    return build.program((1, 1, 1), steps * ROUNDS)


def same_input(build: ProgramBuilder) -> DispatchProgram:
    """All inputs of a dispatch are one range."""
    return build.program((1, 1, 1), [build.add(A, A, B), build.add(B, C, A), build.multiply(A, A, B)] * ROUNDS)


def overlapping_inputs(build: ProgramBuilder) -> DispatchProgram:
    """Inputs of a dispatch overlap by all but 16 bytes."""
    shifted = [Location(0, 16 * index) for index in range(ROUNDS)]
    steps = [build.add(shifted[n], shifted[n + 1], Location(1)) for n in range(ROUNDS - 1)]
    return build.program((2, 1), [step for n in steps for step in (n, build.copy(B, A))])


def neighbors(build: ProgramBuilder) -> DispatchProgram:
    """Inputs and outputs lie side by side in one buffer, at multiples of 16 bytes."""
    a, b, c, d = (Location(0, build.size * index) for index in range(4))
    steps = [build.add(a, c, b), build.multiply(b, d, c), build.add(c, b, a), build.multiply(a, b, d)]
    return build.program((4,), steps * ROUNDS)


def two_types(build: ProgramBuilder) -> DispatchProgram:
    """Store bytes and words side by side, and convert between them: dispatches read and write the same memory in blocks
    of different widths."""
    narrow = replace(build, tensor=TensorDesc(DataType.UINT8, build.tensor.sizes))
    (words, bytes_), (other_words, other_bytes) = ((Location(n, narrow.size), Location(n)) for n in range(2))
    narrowed = descs.Cast(input_tensor=build.tensor, output_tensor=narrow.tensor)
    widened = descs.Cast(input_tensor=narrow.tensor, output_tensor=build.tensor)
    steps = [
        DispatchStep(narrowed, (words,), (bytes_,)),
        narrow.add(bytes_, other_bytes, other_bytes),
        DispatchStep(widened, (other_bytes,), (other_words,)),
        build.add(words, other_words, words),
    ]
    return build.program((2, 2), steps * ROUNDS)


def two_outputs(build: ProgramBuilder) -> DispatchProgram:
    """A dispatch writes two outputs side by side, and the next one reads both as one tensor."""
    tensor = build.tensor
    double = TensorDesc(tensor.data_type, (2 * tensor.sizes[0],))
    split = descs.Split(input_tensor=double, output_tensors=(tensor, tensor), axis=0)
    join = descs.Join(input_tensors=(tensor, tensor), output_tensor=double, axis=0)
    first, second = Location(1), Location(1, build.size)
    steps = [
        DispatchStep(split, (A,), (second, first)),
        build.add(first, second, first),
        DispatchStep(join, (second, first), (A,)),
    ]
    return build.program((2, 2), steps * ROUNDS)


def temporary(build: ProgramBuilder) -> DispatchProgram:
    """Dispatches share a temporary resource, one after the other."""
    return build.program((1, 1, 1), [build.sums(A, B), build.sums(B, C), build.add(B, C, A)] * ROUNDS)


def many(build: ProgramBuilder) -> DispatchProgram:
    """Hundreds of dispatches in one list."""
    return build.program((1, 1, 1), [build.add(A, B, C), build.multiply(C, A, B)] * (MANY // 2))


def lists_together(build: ProgramBuilder) -> DispatchProgram:
    """Each list reads the results of the previous one in the same submission."""
    lists = [build.add(A, B, C)], [build.multiply(C, B, A)], [build.add(C, A, B)]
    return build.program((1, 1, 1), *lists, submissions=((0, 1, 2),) * 3)


def lists_apart(build: ProgramBuilder) -> DispatchProgram:
    """A submission reads the output of the previous one without a wait; lists are executed repeatedly."""
    lists = [build.add(A, B, C)], [build.multiply(C, B, A)], [build.add(C, A, B)]
    return build.program((1, 1, 1), *lists, submissions=tuple((index,) for index in (0, 1, 2, 1, 1, 0, 2, 2, 1, 0)))


def last_wins(build: ProgramBuilder) -> DispatchProgram:
    """Many updates of each element: on a deterministic device the last one in row-major order stays."""
    tensor, program = build.tensor, build.program((1, 1, 1))
    indices = TensorDesc(DataType.UINT32, tensor.sizes)
    scatter = descs.ScatterElements(
        input_tensor=tensor, indices_tensor=indices, updates_tensor=tensor, output_tensor=tensor, axis=0
    )
    rng = np.random.default_rng(tensor.sizes[0])
    locations = rng.integers(0, tensor.sizes[0] // 16, tensor.sizes[0]).astype(np.uint32)
    steps = DispatchStep(scatter, (A, D, B), (C,)), DispatchStep(scatter, (B, D, C), (A,))
    return replace(program, buffers=(*program.buffers, locations), lists=(steps,), deterministic=True)


HAZARDS: Mapping[str, Callable[[ProgramBuilder], DispatchProgram]] = {
    hazard.__name__: hazard
    for hazard in (
        read_after_write,
        write_after_read,
        write_after_write,
        in_place,
        same_input,
        overlapping_inputs,
        neighbors,
        two_types,
        two_outputs,
        temporary,
        many,
        lists_together,
        lists_apart,
        last_wins,
    )
}
"""Builders of hazards by name."""


def program(name: str) -> DispatchProgram:
    """The program that a name spells.

    Raises:
        InvalidArgument: If it spells none.
    """
    match = re.fullmatch(r"hazard-(\w+)-(\w+)-([1-9]\d*)", name)
    types = {data_type.name.lower(): data_type for data_type in TYPES}
    if match is None or match[1] not in HAZARDS or match[2] not in _types(match[1]):
        raise InvalidArgument(f"{name!r} names no hazard such as hazard-in_place-uint32-{COUNT}")
    count = int(match[3])
    if count % 16 or not MIN_ELEMENTS <= count <= MAX_ELEMENTS:
        limits = f"{MIN_ELEMENTS} to {MAX_ELEMENTS}"
        raise InvalidArgument(f"{name!r}: the number of elements must be a multiple of 16, {limits}")
    return HAZARDS[match[1]](ProgramBuilder(TensorDesc(types[match[2]], (count,)), name))


def _types(hazard: str) -> tuple[str, ...]:
    """Names of a hazard's types: running sums of bytes do not exist, and hazards of bytes and words are one program."""
    only_words = hazard in ("temporary", "two_types")
    return tuple(data_type.name.lower() for data_type in TYPES if not only_words or data_type.bits == 32)


class HazardSuite(ProgramSuite):
    """Every hazard: of words, in the larger profiles of bytes and of tensors of other sizes, too."""

    profiles = PROFILES

    def names(self, profile: str) -> tuple[str, ...]:
        counts = (MIN_ELEMENTS, 4112, COUNT, MAX_ELEMENTS) if profile == "full" else (COUNT,)
        kinds = [(hazard, data_type) for hazard in HAZARDS for data_type in _types(hazard)]
        if profile == "quick":
            kinds = [(hazard, data_type) for hazard, data_type in kinds if data_type == "uint32"]
        return tuple(f"hazard-{hazard}-{data_type}-{count}" for count in counts for hazard, data_type in kinds)

    def program(self, name: str) -> DispatchProgram:
        return program(name)
