"""Programs for executors: rendered kernels with their bindings and grids."""

from __future__ import annotations

import enum
import functools
import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dmlgpu.common.errors import NotSupported
from dmlgpu.common.timings import Timings
from dmlgpu.compiler.linker import WORDS, Bindings, Interface, link
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.target import MAX_SLOTS, PARAMETER_BYTES


class Checks(enum.StrEnum):
    """Checks that wgpu adds to a kernel (see ``runtime.wgpu.checks``)."""

    ALL = "all"  # indices are clamped, and loops end after 2^64 iterations
    LOOPS = "loops"  # loops end, indices are not clamped
    NONE = "none"


@dataclass(frozen=True)
class KernelSource:
    """The text of a kernel before it is linked.

    Attributes:
        body: All but the declarations that the linker writes; the whole text of a kernel without an interface.
        interface: What the body needs.
        workgroup: Number of invocations of a workgroup.
        checks: Checks that wgpu adds.
        files: Shader files of the body, as paths below ``shaders/`` without suffix, and the files of ``shaders/lib``
            whose functions it has.
    """

    body: str
    interface: Interface | None = None
    workgroup: int = 0
    checks: Checks = Checks.ALL
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Slot:
    """A byte range of one of the dispatch's resources, as a kernel binds it.

    For inputs, outputs and constants ``offset`` counts from the tensor's binding; for the temporary and the persistent
    resource from the resource's start, and ``index`` is 0. It is a multiple of 16.

    Attributes:
        is_continued: another slot holds the bytes that follow, since the tensor exceeds the largest binding: what lies
            before ``offset`` in the same aligned block counts as part of ``size``.
    """

    role: Role
    index: int
    offset: int
    size: int
    is_continued: bool = False

    @property
    def resource(self) -> tuple[Role, int]:
        """Resource, regardless of the range."""
        return self.role, self.index

    def __str__(self) -> str:
        """Return resource and size: ``input 0, 96 bytes``."""
        in_arena = self.role in (Role.TEMPORARY, Role.PERSISTENT)
        where = self.role.value if in_arena else f"{self.role} {self.index}"
        return f"{where}, {self.size:,} bytes" + (f" from byte {self.offset:,}" if self.offset else "")


@dataclass(frozen=True)
class Copy:
    """Bytes that a kernel copies unchanged, so that a copy from buffer to buffer is equivalent.

    Attributes:
        source, destination: indices of the slots.
        source_offset, destination_offset: bytes from the start of each, multiples of 4.
        size: bytes, a multiple of 4.
        preferred: a copy from buffer to buffer is faster than the kernel.
    """

    source: int
    source_offset: int
    destination: int
    destination_offset: int
    size: int
    preferred: bool = True


@dataclass(frozen=True)
class RenderedKernel:
    """One compute shader.

    Every binding is ``@group(0) @binding(its number) var<storage, read_write>``. The parameter block (immediates, or a
    uniform at the binding after the last one) holds, per slot, the distance in 32-bit words from the bound, aligned
    offset to the tensor's first word: word i for slot i, then a zero at word 8.

    Attributes:
        source: its body and interface.
        bindings: which slots share a binding, since their ranges meet: known for slots of one resource; ``aliasing``
            finds at each dispatch which ones else do.
        parameters: sizes, strides, counts that the text reads by name (see ``wgsl.parameters``).
        copy: all that it does, where that is a copy; executors may copy instead.
        is_special: its parameters are constants, not read from a uniform.
        varies: its sizes depend on some that other runs are known to change, such as a declared batch.
    """

    label: str
    source: KernelSource
    slots: tuple[Slot, ...]
    grid: tuple[int, int, int]
    bindings: Bindings = ()
    parameters: tuple[int, ...] = ()
    copy: Copy | None = None
    is_special: bool = False
    varies: bool = field(default=False, compare=False)

    @functools.cached_property
    def wgsl(self) -> str:
        """The text."""
        return self.link()

    def link(self) -> str:
        """Return the text.

        Raises:
            NotSupported: If slots with incompatible blocks of a resource share a binding, or any of a kernel without an
                interface.
        """
        if self.source.interface is None:
            if self.bindings:
                raise NotSupported("overlapping ranges need an interface, by which the kernel is linked for them")
            return self.source.body
        whole = _whole(self.slots, self.bindings) if self.bindings else frozenset()
        return _linked(self.source, self.bindings, whole, self.parameters if self.is_special else None)

    @property
    def workgroup(self) -> int:
        """Number of invocations of a workgroup."""
        return self.source.workgroup

    @property
    def checks(self) -> Checks:
        """Checks that wgpu adds to the kernel."""
        return self.source.checks

    @property
    def shaders(self) -> tuple[str, ...]:
        """Shader files of its source (``KernelSource.files``), without memory accessors."""
        return tuple(file for file in self.source.files if not file.startswith("access/"))

    @property
    def summary(self) -> str:
        """Label and shader files, in a line: ``exp map x4 (elementwise/exp, schedules/map, lib/math_exp)``."""
        return f"{self.label} ({', '.join(self.shaders)})"

    def __str__(self) -> str:
        """Return a readable text of a few lines."""
        grid = " x ".join(map(str, self.grid))
        lines = [f"{self.label}: {grid} workgroups of {self.workgroup}"]
        numbers = self.bindings or range(len(self.slots))
        for binding, slot in zip(numbers, self.slots, strict=True):
            lines.append(f"       binding {binding}: {slot}")
        if self.given:
            lines.append(f"       parameters: {', '.join(map(str, self.given))}")
        if self.checks is not Checks.ALL:
            lines.append(f"       wgpu's checks: {self.checks}")
        lines.append(f"       shaders: {', '.join(self.shaders)}")
        return "\n".join(lines)

    def needs_uniform(self, immediates: bool) -> bool:
        """Return whether a uniform follows the storage buffers, on an adapter with immediates or without."""
        return not immediates or bool(self.given)

    @property
    def with_constants(self) -> RenderedKernel:
        """The kernel with its parameters as constants."""
        return replace(self, is_special=True) if self.parameters else self

    @property
    def given(self) -> tuple[int, ...]:
        """Parameters that it reads from a uniform."""
        return () if self.is_special else self.parameters

    @property
    def binding_count(self) -> int:
        """Number of storage buffers that are bound."""
        return max(self.bindings) + 1 if self.bindings else len(self.slots)


@functools.lru_cache(maxsize=1024)  # many kernels share a text
def _linked(
    source: KernelSource, bindings: Bindings, whole: frozenset[tuple[int, int]], constants: tuple[int, ...] | None
) -> str:
    assert source.interface is not None
    return link(source.body, source.interface, bindings, whole, constants)


def _whole(slots: Sequence[Slot], bindings: Bindings) -> frozenset[tuple[int, int]]:
    """Return the bindings of one resource, and the widest block, in bytes, of which each holds a whole number. (Offsets
    are multiples of 16, and of 256 where blocks of more are read.)"""
    resources: dict[int, set[tuple[Role, int]]] = {}
    ends: dict[int, int] = {}
    for slot, binding in zip(slots, bindings, strict=True):
        resources.setdefault(binding, set()).add((slot.role, slot.index))
        ends[binding] = max(ends.get(binding, 0), slot.offset + slot.size)
    widths = ((index, math.gcd(end, 4 * max(WORDS.values()))) for index, end in ends.items())
    return frozenset((index, width) for index, width in widths if len(resources[index]) == 1)


@dataclass(frozen=True)
class Program:
    """Everything the executor needs to run an operator.

    Attributes:
        kernels: executed in order at each dispatch.
        initialization: executed once; reads owned inputs, writes the persistent resource.
        temporary_size, persistent_size: bytes of these resources; 0 where none is needed.
        immediates: whether the parameter block comes as immediates; else as a uniform.
        constants: data that kernels read, whole words each, by the number that their slots name.
        least_temporary_size: bytes that the temporary tensors alive at one time take, at most: the temporary resource
            can't be smaller.
        timings: how long planning and rendering took when it was made; programs that differ in nothing else are equal.
    """

    operator: str
    kernels: tuple[RenderedKernel, ...]
    initialization: tuple[RenderedKernel, ...] = ()
    temporary_size: int = 0
    persistent_size: int = 0
    immediates: bool = True
    constants: tuple[bytes, ...] = ()
    least_temporary_size: int = 0
    timings: Timings = field(default=Timings(), compare=False, repr=False)

    @functools.cached_property
    def in_place(self) -> Mapping[int, int]:
        """Outputs that may reuse the memory of an input, which is overwritten, and that input: all of it is copied into
        the output, and nothing else reads it, or writes the output before."""
        pairs: dict[int, int] = {}
        uses = Counter(slot.resource for kernel in (*self.initialization, *self.kernels) for slot in kernel.slots)
        written: set[tuple[Role, int]] = set()
        for kernel in self.kernels:
            if kernel.copy is not None and not kernel.copy.source_offset and not kernel.copy.destination_offset:
                source, output = (kernel.slots[index] for index in (kernel.copy.source, kernel.copy.destination))
                roles, begin = (source.role, output.role), source.offset + output.offset
                is_first = uses[source.resource] == 1 and output.resource not in written
                if roles == (Role.INPUT, Role.OUTPUT) and not begin and is_first:
                    pairs[output.index] = source.index
            written.update(slot.resource for slot in kernel.slots)
        return pairs

    @property
    def summaries(self) -> tuple[str, ...]:
        """One line per kernel; kernels that differ only in their bindings are listed once."""
        return tuple(dict.fromkeys(kernel.summary for kernel in (*self.initialization, *self.kernels)))

    def __str__(self) -> str:
        """Return a readable text: grid, bindings and shader files of each kernel."""
        executed, shown = Counter(map(_without_slots, self.kernels)), set[RenderedKernel]()
        count = f"{len(self.kernels)} kernel{'s' if len(self.kernels) != 1 else ''}"
        pipelines = len({(kernel.wgsl, kernel.binding_count) for kernel in self.kernels})
        if pipelines != len(self.kernels):
            count += f" ({pipelines} pipeline{'s' if pipelines != 1 else ''})"
        lines = [
            f"program of {self.operator}: {count}, {self.temporary_size:,} bytes temporary"
            f" (at least {self.least_temporary_size:,}), {self.persistent_size:,} bytes persistent"
        ]
        for index, kernel in enumerate(self.kernels, start=1):
            same = _without_slots(kernel)
            if same not in shown:
                more = executed[same] - 1
                again = f"\n       and {more} more times on other ranges" if more else ""
                lines.append(f"  {index}. {kernel}{again}")
                shown.add(same)
        lines += [f"  at initialization: {kernel}" for kernel in self.initialization]
        return "\n".join(lines)


def _without_slots(kernel: RenderedKernel) -> RenderedKernel:
    """Return a kernel without its bindings, the only difference between time steps."""
    return replace(kernel, slots=())


def parameter_bytes(bases: Sequence[int]) -> bytes:
    """Return the parameter block of a dispatch whose slots have these base offsets; continued slots need none."""
    words, bases = PARAMETER_BYTES // 4, bases[:MAX_SLOTS]
    return struct.pack(f"<{words}I", *bases, *(0,) * (words - len(bases)))


def uniform_bytes(bases: Sequence[int], parameters: Sequence[int], immediates: bool) -> bytes:
    """Return the uniform of a dispatch: its parameter block, unless that comes as immediates, and its parameters."""
    block = b"" if immediates else parameter_bytes(bases)
    return block + struct.pack(f"<{len(parameters)}I", *parameters) + bytes(-4 * len(parameters) % 16)
