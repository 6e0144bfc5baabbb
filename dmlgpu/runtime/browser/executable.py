"""Programs in a browser's page: pipelines made once per text, executables bound to resources."""

from __future__ import annotations

import itertools
import re
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from dmlgpu.catalog.tensor_desc import TENSOR_ALIGNMENT, aligned
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import BindingError, NotSupported, ShaderError
from dmlgpu.common.timings import Timings
from dmlgpu.compiler import aliasing
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import MAX_SLOTS, Kernel, Program, Slot, parameter_bytes
from dmlgpu.compiler.target import AdapterInfo, Target
from dmlgpu.compiler.wgsl.sharing import share
from dmlgpu.runtime.browser.link import Link, printable
from dmlgpu.runtime.executor import Executable, Range, Resources

if TYPE_CHECKING:
    from dmlgpu.runtime.browser.backend import BrowserBackend


LIMITS: Final = CacheLimits(entries=1024, size=256 << 20)
_BYTES_PER_CHARACTER = 200
_LINES_AROUND = 3

Key = tuple[str, int]


class Pipeline(int):
    """A pipeline's number in the page. The page forgets it when nothing refers to this object any more."""

    forget: Callable[[int], None]

    def __del__(self) -> None:
        self.forget(int(self))


class PagePipelines:
    """The pipelines that a page has made.

    Args:
        link: the page.
        adapter: it, for messages.

    Attributes:
        cache: keeps pipelines that may be asked for again.
        forgotten: numbers of pipelines that the page shall forget.
    """

    def __init__(self, link: Link, adapter: str, forget: Callable[[int], None]):
        self._link, self._adapter, self._forget = link, adapter, forget
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self.cache: Cache[Key, Pipeline] = Cache(LIMITS)

    def size_of(self, wgsl: str) -> int:
        """Estimate the bytes that the pipeline of a text takes."""
        return _BYTES_PER_CHARACTER * len(wgsl)

    def get_all(self, operator: str, kernels: Sequence[Kernel]) -> list[Pipeline]:
        """Return kernels' pipelines. The page makes all that are new at a time, which costs one round trip.

        Raises:
            ShaderError: when a text does not compile; for the first kernel of which that is so.
            DeviceRemoved: when the page is gone.
        """
        self._link.check()
        keys = [(kernel.wgsl, kernel.binding_count) for kernel in kernels]
        pipelines = {key: pipeline for key in dict.fromkeys(keys) if (pipeline := self.cache.get(key)) is not None}
        missing = {key: kernel for key, kernel in zip(keys, kernels, strict=True) if key not in pipelines}
        if missing:
            pipelines |= self._made(operator, missing)
        return [pipelines[key] for key in keys]

    def _made(self, operator: str, missing: dict[Key, Kernel]) -> dict[Key, Pipeline]:
        commands: list[list[Any]] = []
        texts, start = [], 0
        for (text, bindings), kernel in missing.items():
            texts.append(text.encode())
            commands.append(["pipeline", next(self._numbers), start, len(texts[-1]), bindings, kernel.label])
            start += len(texts[-1])
        results, _ = self._link.call(self._link.send(commands, texts))
        pipelines = {}
        for (key, kernel), command, refusal in itertools.zip_longest(missing.items(), commands, results):
            if refusal != "":
                raise ShaderError(compile_error(operator, kernel, self._adapter, refusal))
            pipeline = Pipeline(command[1])
            pipeline.forget = self._forget
            pipelines[key] = pipeline
            self.cache.put(key, pipeline, self.size_of(key[0]))
        return pipelines


def compile_error(operator: str, kernel: Kernel, adapter: str, refusal: object) -> str:
    """Return the text of a ShaderError: what failed and why, then the lines around the fault with their numbers.

    Args:
        operator: whose kernel it is.
        kernel: what does not compile.
        adapter: where.
        refusal: what the page says: the line, from 1, or 0, and the compiler's message.
    """
    line, message = refusal if isinstance(refusal, list) and len(refusal) == 2 else (0, "the page does not say why")
    lines = kernel.wgsl.splitlines()
    reason = " ".join(printable(message).split())
    head = f"{operator}: kernel {kernel.label!r} does not compile on {adapter}: {reason}"
    if type(line) is not int or not 1 <= line <= len(lines):
        return head
    names = re.findall(r"^// ---- (\S+)$", "\n".join(lines[:line]), re.MULTILINE)
    width = len(str(line + _LINES_AROUND))
    around = range(max(line - _LINES_AROUND, 1), min(line + _LINES_AROUND, len(lines)) + 1)
    excerpt = "\n".join(
        f"{'>' if number == line else ' '} {number:{width}} | {lines[number - 1]}".rstrip() for number in around
    )
    return f"{head}{f' (in {names[-1]})' if names else ''}\n{excerpt}"


@dataclass(frozen=True)
class PageBuffer:
    """A buffer in a page, by the number that the page knows it by."""

    number: int
    size: int


class PageWork(list[Any]):
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

    def bind(self, resources: Resources) -> Sequence[PageWork]:
        """Return the dispatches of one execution on these resources.

        Raises:
            BindingError: when a resource that a kernel uses is missing or too small.
            NotSupported: when a binding, grown to the offset alignment, exceeds the adapter's limit.
            ShaderError: when a kernel, rendered anew for slots that share a binding, does not compile.
        """
        return self._bound(self._kernels, resources)

    def bind_initialization(self, resources: Resources) -> Sequence[PageWork]:
        """Return the dispatches that fill the persistent resource. Raises as ``bind``."""
        return self._bound(self._initialization, resources)

    def _bound(self, kernels: Sequence[tuple[Kernel, Any]], resources: Resources) -> list[PageWork]:
        resources = replace(resources, constants=self._constants) if self._constants else resources
        return [self._dispatch(kernel, pipeline, resources) for kernel, pipeline in kernels]

    def _dispatch(self, kernel: Kernel, pipeline: Any, resources: Resources) -> PageWork:
        operator, backend = self.program.operator, self._backend
        ranges = [_range(operator, kernel, slot, resources) for slot in kernel.slots]
        layout = aliasing.layout(ranges, kernel.bindings, backend.alignment)
        for _, _, size in layout.bound:
            _check_size(operator, kernel, size, backend.target, backend.info)
        if layout.bindings != kernel.bindings:
            (pipeline,) = backend.pipelines.get_all(operator, [share(operator, kernel, layout.bindings)])
        words = memoryview(parameter_bytes(layout.bases)).cast("I").tolist()
        return PageWork(kernel.label, [pipeline, [list(bound) for bound in layout.bound], words, list(kernel.grid)])

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
