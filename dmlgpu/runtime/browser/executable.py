"""Programs in a browser page: pipelines created once per source, executables bound to resources."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import BindingError, NotSupported, ShaderError
from dmlgpu.compiler.program import Program, RenderedKernel
from dmlgpu.runtime.browser.link import Link, printable
from dmlgpu.runtime.executor import Range
from dmlgpu.runtime.rendered import (
    ProgramExecutable,
    check_limits,
    kernels_of,
    shader_error,
    upload_constants,
)

if TYPE_CHECKING:
    from dmlgpu.runtime.browser.backend import BrowserBackend


LIMITS: Final = CacheLimits(entries=1024, size=256 << 20)
_BYTES_PER_CHARACTER = 200

Key = tuple[str, int]


class Pipeline(int):
    """Number of a pipeline in the page, which frees it when this object is garbage-collected."""

    forget: Callable[[int], None]

    def __del__(self) -> None:
        self.forget(int(self))


class PagePipelines:
    """Pipelines of a page.

    Args:
        link: The page.
        adapter: Adapter, for messages.

    Attributes:
        cache: Caches pipelines.
        forgotten: Numbers of pipelines to free in the page.
    """

    def __init__(self, link: Link, adapter: str, forget: Callable[[int], None]):
        self._link, self._adapter, self._forget = link, adapter, forget
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self.cache: Cache[Key, Pipeline] = Cache(LIMITS)

    def size_of(self, wgsl: str) -> int:
        """Estimate the bytes of a pipeline from its source."""
        return _BYTES_PER_CHARACTER * len(wgsl)

    def get_all(self, operator: str, kernels: Sequence[RenderedKernel]) -> list[Pipeline]:
        """Return the pipelines of kernels. The page creates all new ones at once, in one round trip.

        Raises:
            ShaderError: If a source does not compile, for the first such kernel.
            DeviceRemoved: If the page is gone.
        """
        self._link.check()
        keys = [(kernel.wgsl, kernel.binding_count) for kernel in kernels]
        pipelines = {key: pipeline for key in dict.fromkeys(keys) if (pipeline := self.cache.get(key)) is not None}
        missing = {key: kernel for key, kernel in zip(keys, kernels, strict=True) if key not in pipelines}
        if missing:
            pipelines |= self._make(operator, missing)
        return [pipelines[key] for key in keys]

    def compile_shader(
        self, wgsl: str, entry_point: str, constants: Mapping[str, float], kinds: Mapping[int, str], label: str
    ) -> Pipeline:
        """Compile a shader of the user (see ``ShaderBackend.compile_shader``)."""
        text, number = wgsl.encode(), next(self._numbers)
        bindings = [[binding, kind] for binding, kind in sorted(kinds.items())]
        command = ["shader", number, 0, len(text), bindings, entry_point, dict(constants), label]
        (rejection, *_), _ = self._link.call(self._link.send([command], [text]))
        if rejection != "":
            is_known = isinstance(rejection, list) and len(rejection) == 2
            reason = printable(rejection[1]) if is_known else "the page gave no reason"
            line = f"line {rejection[0]}: " if is_known and type(rejection[0]) is int and rejection[0] > 0 else ""
            raise ShaderError(f"{label} does not compile on {self._adapter}: {line}{reason}")
        pipeline = Pipeline(number)
        pipeline.forget = self._forget
        return pipeline

    def _make(self, operator: str, missing: dict[Key, RenderedKernel]) -> dict[Key, Pipeline]:
        commands: list[list[Any]] = []
        texts, start = [], 0
        for (text, bindings), kernel in missing.items():
            texts.append(text.encode())
            commands.append(["pipeline", next(self._numbers), start, len(texts[-1]), bindings, kernel.label])
            start += len(texts[-1])
        results, _ = self._link.call(self._link.send(commands, texts))
        pipelines = {}
        for (key, kernel), command, rejection in itertools.zip_longest(missing.items(), commands, results):
            if rejection != "":
                raise ShaderError(compile_error(operator, kernel, self._adapter, rejection))
            pipeline = Pipeline(command[1])
            pipeline.forget = self._forget
            pipelines[key] = pipeline
            self.cache.put(key, pipeline, self.size_of(key[0]))
        return pipelines


def compile_error(operator: str, kernel: RenderedKernel, adapter: str, rejection: object) -> str:
    """Return the message of a ShaderError, from the page's report.

    Args:
        operator: Operator of the kernel.
        kernel: Kernel that does not compile.
        adapter: where.
        rejection: Report of the page: the line, from 1, or 0, and the compiler's message.
    """
    line, message = rejection if isinstance(rejection, list) and len(rejection) == 2 else (0, "the page gave no reason")
    reason = " ".join(printable(message).split())
    is_line = type(line) is int and 1 <= line <= len(kernel.wgsl.splitlines())
    return shader_error(operator, kernel, adapter, reason, line if is_line else None)


@dataclass(frozen=True)
class PageBuffer:
    """A buffer in a page."""

    id: int
    size: int


class PageWork(list[Any]):
    """A unit of work in the page's form.

    Attributes:
        label: Label of the kernel, or ``copy``.
    """

    def __init__(self, label: str, items: Sequence[Any]):
        super().__init__(items)
        self.label = label


class PageShader:
    """A compiled shader of the user (see ``CustomShader``)."""

    def __init__(self, backend: BrowserBackend, pipeline: Pipeline, label: str):
        self._backend, self._pipeline, self._label = backend, pipeline, label

    def bind(self, ranges: Mapping[int, Range[PageBuffer]], groups: tuple[int, int, int]) -> Sequence[PageWork]:
        """Return one dispatch."""
        target, info = self._backend.target, self._backend.info
        if max(groups) > target.max_workgroups_per_dimension:
            raise NotSupported(
                f"{self._label}: thread groups must be at most {target.max_workgroups_per_dimension} along an axis on "
                f"{info}, got {list(groups)}"
            )
        for binding, bound in ranges.items():
            if bound.offset % self._backend.alignment:
                raise BindingError(
                    f"{self._label}: binding {binding} must begin at a multiple of {self._backend.alignment} bytes on "
                    f"{info}, got byte {bound.offset}"
                )
            if bound.size > target.max_binding_size:
                raise NotSupported(
                    f"{self._label}: binding {binding} takes {bound.size:,} bytes, more than the "
                    f"{target.max_binding_size:,} that {info} allows; split the tensors, for example along axis 0"
                )
        bindings = [[binding, bound.buffer.id, bound.offset, bound.size] for binding, bound in sorted(ranges.items())]
        return (PageWork(self._label, ["shader", self._pipeline, bindings, list(groups)]),)


class BrowserExecutable(ProgramExecutable):
    """A program whose pipelines a page has created."""

    def __init__(self, backend: BrowserBackend, program: Program):
        check_limits(program, backend.target, backend.info)
        start = time.perf_counter()
        constants = upload_constants(
            self,
            program,
            backend.create_buffer,
            backend.destroy_buffer,
            lambda buffer, start, data: backend.write_bytes(buffer, start, memoryview(data)),
        )
        uploaded = time.perf_counter()
        kernels = kernels_of(program)
        pipelines = backend.pipelines.get_all(program.operator, kernels)
        size = sum(map(backend.pipelines.size_of, {kernel.wgsl for kernel in kernels}))
        timings = replace(program.timings, driver=time.perf_counter() - uploaded, upload=uploaded - start)
        super().__init__(program, pipelines, constants, bind=backend.bind, pipeline_size=size, timings=timings)
