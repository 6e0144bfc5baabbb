"""What an executor gets: rendered kernels with their bindings and grids."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dmlgpu.plan import Role
from dmlgpu.target import PARAMETER_BYTES
from dmlgpu.timings import Timings

Bindings: TypeAlias = tuple[int, ...]
"""The binding number of each slot, ascending from 0 by first use; empty where each slot has a binding of its own."""

MAX_SLOTS = 8
"""How many slots a kernel may have: the parameter block holds as many base offsets."""


@dataclass(frozen=True)
class Slot:
    """What a kernel binds at one binding number: a byte range of one of the dispatch's resources.

    For inputs, outputs and constants ``offset`` counts from the tensor's binding; for the temporary and the persistent
    resource from the resource's start, and ``index`` is 0. It is a multiple of 16.
    """

    role: Role
    index: int
    offset: int
    size: int


@dataclass(frozen=True)
class Kernel:
    """One rendered compute shader.

    Every binding is ``@group(0) @binding(its number) var<storage, read_write>``. The parameter block (immediates, or a
    uniform at the binding after the last one) holds, per slot, the distance in 32-bit words from the bound, aligned
    offset to the tensor's first word: word i for slot i, then a zero at word 8.

    Attributes:
        bindings: which slots share a binding, since their ranges meet: known for slots of one resource; ``aliasing``
            finds at each dispatch which ones else do.
    """

    label: str
    wgsl: str
    slots: tuple[Slot, ...]
    grid: tuple[int, int, int]
    bindings: Bindings = ()

    @property
    def binding_count(self) -> int:
        """How many storage buffers are bound."""
        return max(self.bindings) + 1 if self.bindings else len(self.slots)


@dataclass(frozen=True)
class Program:
    """Everything the executor needs to run an operator.

    Attributes:
        kernels: executed in order at each dispatch.
        initialization: executed once; reads owned inputs, writes the persistent resource.
        temporary_size, persistent_size: bytes of these resources; 0 where none is needed.
        immediates: whether the parameter block comes as immediates; else as a uniform.
        constants: data that kernels read, whole words each, by the number that their slots name.
        timings: how long planning and rendering took when it was made; programs that differ in nothing else are equal.
    """

    operator: str
    kernels: tuple[Kernel, ...]
    initialization: tuple[Kernel, ...] = ()
    temporary_size: int = 0
    persistent_size: int = 0
    immediates: bool = True
    constants: tuple[bytes, ...] = ()
    timings: Timings = field(default=Timings(), compare=False, repr=False)


def parameter_bytes(bases: Sequence[int]) -> bytes:
    """Return the parameter block of a dispatch whose slots have these base offsets."""
    words = PARAMETER_BYTES // 4
    return struct.pack(f"<{words}I", *bases, *(0,) * (words - len(bases)))
