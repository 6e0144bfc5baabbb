"""Programs made ready to run in a page: pipelines there, bound to resources on request."""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dmlgpu.catalog.tensor_desc import TENSOR_ALIGNMENT, aligned
from dmlgpu.common.errors import BindingError, NotSupported
from dmlgpu.common.timings import Timings
from dmlgpu.compiler import aliasing
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Kernel, Program, Slot, parameter_bytes
from dmlgpu.compiler.target import MAX_SLOTS, AdapterInfo, Target
from dmlgpu.compiler.wgsl.sharing import share
from dmlgpu.runtime.executor import Executable, Range, Resources

if TYPE_CHECKING:
    from dmlgpu.runtime.browser.backend import BrowserBackend


@dataclass(frozen=True)
class PageBuffer:
    """A buffer in a page, by the number that the page knows it by."""

    number: int
    size: int


class Work(list[Any]):
    """A unit of work as pages take it, with a label for those who time it.

    Attributes:
        label: the kernel's, or ``copy``.
    """

    def __init__(self, label: str, items: Sequence[Any]):
        super().__init__(items)
        self.label = label


class BrowserExecutable(Executable):
    """A program whose pipelines a page has made.

    Attributes:
        program: what it runs.
        memory: bytes of its pipelines, as estimated, and of its constants.
    """

    def __init__(self, backend: BrowserBackend, program: Program):
        check_limits(program, backend.target, backend.info)
        self.program = program
        self.temporary_size, self.persistent_size = program.temporary_size, program.persistent_size
        self._backend = backend
        start = time.perf_counter()
        self._constants = self._uploaded(program.constants)
        uploaded = time.perf_counter()
        kernels = (*program.initialization, *program.kernels)
        numbers, count = backend.pipelines.get_all(program.operator, kernels), len(program.initialization)
        texts = {kernel.wgsl for kernel in kernels}
        self.memory = sum(map(backend.pipelines.size_of, texts)) + sum(map(len, program.constants))
        self._initialization = list(zip(kernels[:count], numbers[:count], strict=True))
        self._kernels = list(zip(kernels[count:], numbers[count:], strict=True))
        self._timings = replace(program.timings, driver=time.perf_counter() - uploaded, upload=uploaded - start)

    @property
    def timings(self) -> Timings:
        """How long making it took."""
        return self._timings

    def bind(self, resources: Resources) -> Sequence[Work]:
        """Return the dispatches of one execution on these resources.

        Raises:
            BindingError: when a resource that a kernel uses is missing or too small.
            NotSupported: when a binding, grown to the offset alignment, exceeds the adapter's limit.
            ShaderError: when a kernel, rendered anew for slots that share a binding, does not compile.
        """
        return self._bound(self._kernels, resources)

    def bind_initialization(self, resources: Resources) -> Sequence[Work]:
        """Return the dispatches that fill the persistent resource. Raises as ``bind``."""
        return self._bound(self._initialization, resources)

    def _bound(self, kernels: Sequence[tuple[Kernel, Any]], resources: Resources) -> list[Work]:
        resources = replace(resources, constants=self._constants) if self._constants else resources
        return [self._dispatch(kernel, pipeline, resources) for kernel, pipeline in kernels]

    def _dispatch(self, kernel: Kernel, pipeline: Any, resources: Resources) -> Work:
        operator, backend = self.program.operator, self._backend
        ranges = [_range(operator, kernel, slot, resources) for slot in kernel.slots]
        layout = aliasing.layout(ranges, kernel.bindings, backend.alignment)
        for _, _, size in layout.bound:
            _check_size(operator, kernel, size, backend.target, backend.info)
        if layout.bindings != kernel.bindings:
            (pipeline,) = backend.pipelines.get_all(operator, [share(operator, kernel, layout.bindings)])
        words = memoryview(parameter_bytes(layout.bases)).cast("I").tolist()
        return Work(kernel.label, [pipeline, [list(bound) for bound in layout.bound], words, list(kernel.grid)])

    def _uploaded(self, constants: Sequence[bytes]) -> tuple[Range[PageBuffer], ...]:
        """Return where the data of the program lie: in one buffer that lives as long as the executable."""
        if not constants:
            return ()
        starts = [0, *itertools.accumulate(aligned(len(data)) for data in constants)]
        buffer = self._backend.create_buffer(starts[-1], f"{self.program.operator} constants")
        weakref.finalize(self, self._backend.destroy_buffer, buffer)
        for start, data in zip(starts, constants, strict=False):
            self._backend.write_bytes(buffer, start, memoryview(data))
        return tuple(Range(buffer, start, len(data)) for start, data in zip(starts, constants, strict=False))


def check_limits(program: Program, target: Target, info: AdapterInfo) -> None:
    """Refuse what the adapter's limits forbid.

    Raises:
        NotSupported: when the program needs immediates, more buffers, a larger grid or larger bindings.
    """
    for kernel in (*program.kernels, *program.initialization):
        what = f"{program.operator}: kernel {kernel.label!r}"
        if program.immediates:
            raise NotSupported(f"{what} is rendered for immediates, which {info} lacks")
        slots = min(target.max_storage_buffers, MAX_SLOTS)
        if len(kernel.slots) > slots:
            raise NotSupported(f"{what} binds {len(kernel.slots)} buffers, more than the {slots} possible on {info}")
        if max(kernel.grid) > target.max_workgroups_per_dimension:
            raise NotSupported(
                f"{what} has a grid of {kernel.grid}, more than the {target.max_workgroups_per_dimension}"
                f" workgroups that {info} allows along an axis"
            )
        ranges = [((slot.role, slot.index), slot.offset, slot.size) for slot in kernel.slots]
        for _, _, size in aliasing.layout(ranges, kernel.bindings, TENSOR_ALIGNMENT).bound:
            _check_size(program.operator, kernel, size, target, info)


def _check_size(operator: str, kernel: Kernel, size: int, target: Target, info: AdapterInfo) -> None:
    if size > target.max_binding_size:
        raise NotSupported(
            f"{operator}: kernel {kernel.label!r} binds {size:,} bytes, more than the {target.max_binding_size:,} that"
            f" {info} allows in one binding"
        )


def _range(operator: str, kernel: Kernel, slot: Slot, resources: Resources) -> tuple[int, int, int]:
    tensors = {Role.INPUT: resources.inputs, Role.OUTPUT: resources.outputs, Role.CONSTANT: resources.constants}
    if slot.role in tensors:
        bound = tensors[slot.role][slot.index] if slot.index < len(tensors[slot.role]) else None
    else:
        bound = resources.temporary if slot.role is Role.TEMPORARY else resources.persistent
    if bound is None:
        raise BindingError(f"{operator}: kernel {kernel.label!r} needs {slot.role} {slot.index}, which is not bound")
    if slot.offset + slot.size > bound.size:
        raise BindingError(
            f"{operator}: kernel {kernel.label!r} needs {slot.offset + slot.size:,} bytes of"
            f" {slot.role} {slot.index}, got {bound.size:,}"
        )
    return bound.buffer.number, bound.offset + slot.offset, slot.size
