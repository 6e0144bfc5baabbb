"""Rendered programs on executors that run kernels: limits, bound ranges, constants, and the errors of shaders."""

from __future__ import annotations

import itertools
import re
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from dmlgpu.catalog.tensor_desc import TENSOR_ALIGNMENT, aligned
from dmlgpu.common.errors import BindingError, NotSupported
from dmlgpu.common.timings import Timings
from dmlgpu.compiler import aliasing, programs
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Program, RenderedKernel, Slot
from dmlgpu.compiler.sizes.networks import SizedNetwork
from dmlgpu.compiler.target import AdapterInfo, Target
from dmlgpu.runtime.executor import Backend, Dispatch, Executable, PersistentRanges, Range, Resources
from dmlgpu.runtime.specialization import Specialize

_LINES_AROUND = 3

Binding = Callable[[str, RenderedKernel, Any, Resources, bool], Dispatch | None]
"""A function that binds a kernel of an operator and its pipeline to resources; the last argument is
``Program.immediates``. It returns None if there is no work."""

Tell = Callable[[tuple[str, ...], tuple[str, ...]], None]
"""A function that gets the names of kernels (``Program.summaries``) and their WGSL before they are compiled."""


KERNEL_BYTES = 8192
"""Estimated bytes of a kernel without its pipeline: description, dispatches, bind groups. A text-direction model takes
0.5 MiB of Python's memory per input shape, for 76 kernels."""


class BoundKernels(tuple[Dispatch, ...]):
    """Dispatches of a program.

    Attributes:
        kernels: Resources and dispatch of each kernel; None if there is no work.
    """

    kernels: Sequence[tuple[Sequence[Range[Any] | None], Dispatch | None]]


class RenderedBackend(Backend):
    """An executor that compiles descriptions to programs; subclasses implement ``prepare``."""

    def check(self, desc: Any) -> None:
        """Lower and render a description without compiling it.

        Raises:
            OperatorNotImplemented: If there is no such operator yet.
            NotSupported: If the adapter lacks a feature that it needs, or a limit is too low.
        """
        check_limits(self._program(desc, half_precision=False), self.target, self.info)

    def compile(self, desc: Any, half_precision: bool = False, preserve_padding: bool = False) -> Executable:
        """Compile an operator description (see ``Backend.compile``). Raises as ``check`` and ``prepare``."""
        return self.prepare(self.specializer.specialized(self._program(desc, half_precision, preserve_padding)))

    def compile_graph(
        self, network: Network, half_precision: bool = False, disabled: Collection[str] = ()
    ) -> Executable:
        """Compile a network, without the passes in ``disabled``.

        Raises:
            InvalidArgument: If one of them is no pass.
            NotSupported, ShaderError, DeviceRemoved: As ``prepare``.
        """
        target = self._compile_target.for_operators(half_precision)
        return self.prepare(self.specializer.specialized(programs.of_network(network, target, disabled)))

    def compile_sized(self, sized: SizedNetwork) -> Executable:
        """Compile a network that is given by its sizes. Raises as ``prepare``."""
        program = programs.of_sized(sized, self._compile_target.for_operators(False))
        return self.prepare(self.specializer.specialized(program))

    def prepare(self, program: Program) -> Executable:
        """Compile a rendered program.

        Raises:
            NotSupported: If it exceeds one of the adapter's limits.
            ShaderError: If a kernel does not compile.
            DeviceRemoved: If the device is gone.
        """
        raise NotImplementedError

    def _program(self, desc: Any, half_precision: bool, preserve_padding: bool = False) -> Program:
        return programs.of_operator(desc, self._compile_target.for_operators(half_precision, preserve_padding))

    @property
    def _compile_target(self) -> Target:
        return self.target if self.specializer.policy is Specialize.ALWAYS else self.target.general


class ProgramExecutable(Executable):
    """A program with its pipelines, one per kernel of ``kernels_of`` (None for those that ``bind`` replaces by copies),
    and its constants.

    Attributes:
        temporary_size, persistent_size: Bytes of these resources.
        memory: Bytes that it alone holds, as estimated: pipelines made for it, its constants, and ``KERNEL_BYTES`` for
            each kernel.
    """

    def __init__(
        self,
        program: Program,
        pipelines: Sequence[Any],
        constants: tuple[Range[Any], ...],
        *,
        bind: Binding,
        pipeline_size: int,
        timings: Timings,
    ):
        self.program, self.in_place = program, program.in_place
        self.temporary_size, self.persistent_size = program.temporary_size, program.persistent_size
        self._constants, self._bind, self._timings = constants, bind, timings
        kernels, count = kernels_of(program), len(program.initialization)
        compiled = list(zip(kernels, pipelines, strict=True))
        self.memory = pipeline_size + sum(map(len, program.constants)) + KERNEL_BYTES * len(kernels)
        self._initialization, self._kernels = compiled[:count], compiled[count:]

    @property
    def timings(self) -> Timings:
        """Seconds per stage of compilation."""
        return self._timings

    def took(self, seconds: float) -> None:
        """Record the total time (see ``Executable``); for a cached program, planning and rendering were earlier."""
        timings = self._timings
        rendering = timings.rendering if timings.total <= seconds else 0.0
        planning = max(seconds - timings.driver - timings.upload - rendering, 0.0)
        self._timings = replace(timings, planning=planning, rendering=rendering)

    def bind(self, resources: Resources, earlier: Sequence[Sequence[Dispatch]] = ()) -> BoundKernels:
        """Return the dispatches of one execution on these resources, reused from earlier results for kernels whose
        bindings are unchanged.

        Raises:
            BindingError: If a resource that a kernel uses is missing or too small.
            NotSupported: If a binding, grown to the offset alignment and to all that it is shared for, exceeds the
                adapter's limit; or when ranges that meet cannot be shared.
            ShaderError: If a kernel, rendered again for slots that share a binding, does not compile.
        """
        return self._bound(self._kernels, resources, earlier)

    def bind_initialization(self, resources: Resources, kernels: Sequence[int] | None = None) -> Sequence[Dispatch]:
        """Return the dispatches that fill the persistent resource (see ``Executable``). Raises as ``bind``."""
        chosen = self._initialization if kernels is None else [self._initialization[index] for index in kernels]
        return self._bound(chosen, resources, ())

    def _bound(
        self, kernels: Sequence[tuple[RenderedKernel, Any]], resources: Resources, earlier: Sequence[Any]
    ) -> BoundKernels:
        program = self.program
        resources = replace(resources, constants=self._constants) if self._constants else resources
        bound = []
        for index, (kernel, pipeline) in enumerate(kernels):
            ranges = [_resource(slot, resources) for slot in kernel.slots]
            known = next((work.kernels[index] for work in earlier if work.kernels[index][0] == ranges), None)
            bound.append(
                known or (ranges, self._bind(program.operator, kernel, pipeline, resources, program.immediates))
            )
        result = BoundKernels([dispatch for _, dispatch in bound if dispatch is not None])
        result.kernels = bound
        return result


def kernels_of(program: Program) -> tuple[RenderedKernel, ...]:
    """Return a program's kernels in execution order, in which drivers should compile them."""
    return (*program.initialization, *program.kernels)


def upload_constants(
    owner: object,
    program: Program,
    create: Callable[[int, str], Any],
    destroy: Callable[[Any], object],
    write: Callable[[Any, int, bytes], object],
) -> tuple[Range[Any], ...]:
    """Upload a program's data into one buffer that lives as long as its owner, the executable."""
    constants = program.constants
    if not constants:
        return ()
    starts = [0, *itertools.accumulate(aligned(len(data)) for data in constants)]
    buffer = create(starts[-1], f"{program.operator} constants")
    weakref.finalize(owner, destroy, buffer)
    for start, data in zip(starts, constants, strict=False):
        write(buffer, start, data)
    return tuple(Range(buffer, start, len(data)) for start, data in zip(starts, constants, strict=False))


# ---- limits and ranges ----------------------------------------------------------------------------------------------


def check_limits(program: Program, target: Target, info: AdapterInfo) -> None:
    """Reject programs that exceed limits, which drivers report only at submission or not at all.

    Raises:
        NotSupported: If the program needs immediates, more buffers, a larger grid or larger bindings than the adapter
            has.
    """
    for kernel in kernels_of(program):
        what = f"{program.operator}: kernel {kernel.label!r}"
        if program.immediates and not target.has("immediates"):
            raise NotSupported(f"{what} is rendered for immediates, which {info} lacks")
        if len(kernel.slots) > target.bindings:
            raise NotSupported(
                f"{what} binds {len(kernel.slots)} buffers, more than the {target.bindings} possible on {info}"
            )
        if max(kernel.grid) > target.max_workgroups_per_dimension:
            raise NotSupported(
                f"{what} has a grid of {kernel.grid}, more than the {target.max_workgroups_per_dimension}"
                f" workgroups that {info} allows along an axis"
            )
        maximum = sum(slot.size + TENSOR_ALIGNMENT for slot in kernel.slots)
        if not kernel.bindings and maximum <= target.max_binding_size:
            continue  # however they meet
        ranges = [((slot.role, slot.index), slot.offset, slot.size) for slot in kernel.slots]
        layout = aliasing.layout(ranges, kernel.bindings, TENSOR_ALIGNMENT)
        check_binding_sizes(program.operator, kernel, layout, target.max_binding_size, info)


def check_binding_sizes(
    operator: str, kernel: RenderedKernel, layout: aliasing.BindingLayout, limit: int, info: AdapterInfo
) -> None:
    """Raise NotSupported if a binding is larger than the adapter allows."""
    for binding, (_, _, size) in enumerate(layout.bound):
        if size > limit:
            numbers = layout.bindings or range(len(kernel.slots))
            slots = [slot for slot, index in zip(kernel.slots, numbers, strict=True) if index == binding]
            raise NotSupported(
                f"{operator}: kernel {kernel.label!r} binds {size:,} bytes of"
                f" {' and '.join(f'{slot.role} {slot.index}' for slot in slots)},"
                f" more than the {limit:,} that {info} allows in one binding"
            )


def bound_range(
    operator: str, kernel: RenderedKernel, slot: Slot, resources: Resources, alignment: int
) -> aliasing.Range:
    """Return buffer, offset and size of the binding of a kernel's slot, given the alignment of offsets.

    Raises:
        BindingError: If the resource is missing or too small.
    """
    bound = _resource(slot, resources)
    if bound is None:
        raise BindingError(f"{operator}: kernel {kernel.label!r} needs {slot.role} {slot.index}, which is not bound")
    if slot.offset + slot.size > bound.size:
        raise BindingError(
            f"{operator}: kernel {kernel.label!r} needs {slot.offset + slot.size:,} bytes of"
            f" {slot.role} {slot.index}, got {bound.size:,}"
        )
    return aliasing.range_of(slot, bound.buffer, bound.offset, alignment)


def _resource(slot: Slot, resources: Resources) -> Range[Any] | None:
    match slot.role:
        case Role.INPUT:
            return resources.inputs[slot.index] if slot.index < len(resources.inputs) else None
        case Role.OUTPUT:
            return resources.outputs[slot.index] if slot.index < len(resources.outputs) else None
        case Role.TEMPORARY:
            return resources.temporary
        case Role.PERSISTENT:
            persistent = resources.persistent
            return persistent.around(slot.offset) if isinstance(persistent, PersistentRanges) else persistent
        case Role.CONSTANT:
            return resources.constants[slot.index]


# ---- errors of shaders ----------------------------------------------------------------------------------------------


def shader_error(operator: str, kernel: RenderedKernel, adapter: str, reason: str, line: int | None) -> str:
    """Return the message of a ShaderError: the compiler's reason, and lines around the fault if its line is known."""
    head = f"{operator}: kernel {kernel.label!r} does not compile on {adapter}: {reason}"
    if line is None:
        return head
    file = template_of(kernel.wgsl, line)
    return f"{head}{f' (in {file})' if file else ''}\n{excerpt(kernel.wgsl, line)}"


def template_of(source: str, line: int) -> str | None:
    """Return the shader file that a line of rendered WGSL came from; each file's name is in a comment above it."""
    above = "\n".join(source.splitlines()[:line])
    names = re.findall(r"^// ---- (\S+)$", above, re.MULTILINE)
    return names[-1] if names else None


def excerpt(source: str, line: int) -> str:
    """Return numbered lines of a source around a line (counted from 1), which an arrow marks."""
    lines = source.splitlines()
    first, last = max(line - _LINES_AROUND, 1), min(line + _LINES_AROUND, len(lines))
    width = len(str(last))
    return "\n".join(
        f"{'>' if number == line else ' '} {number:{width}} | {lines[number - 1]}".rstrip()
        for number in range(first, last + 1)
    )
