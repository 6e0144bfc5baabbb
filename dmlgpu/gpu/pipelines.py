"""Pipelines, made once per rendered text and kept within limits."""

from __future__ import annotations

import re
import threading
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

import wgpu

from dmlgpu.cache import Cache, CacheLimits
from dmlgpu.errors import ShaderError
from dmlgpu.gpu import native, releases
from dmlgpu.gpu.context import Context, reason_of
from dmlgpu.program import Kernel
from dmlgpu.target import PARAMETER_BYTES

DEFAULT_LIMITS: Final = CacheLimits(entries=1024, size=256 << 20)
"""What a new device keeps of pipelines, beside those that are in use."""

_BYTES_PER_CHARACTER = 200
"""What a pipeline takes in memory, per character of its text: 140 to 220 on Mesa's llvmpipe for softmax, addition, GELU
and GEMM. Hardware takes less."""

_LINES_AROUND = 3

_Key: TypeAlias = tuple[str, int, bool]


class Pipelines:
    """The device's pipelines by text and number of bindings, and their layouts by that number.

    A pipeline lives as long as something refers to it: an executable, work that is bound, or the cache, which keeps the
    ones asked for last. While it lives it is found again, so that equal kernels have one pipeline.

    Layouts are explicit: automatic ones drop the bindings that a shader does not use.

    Attributes:
        cache: keeps pipelines that may be asked for again; a miss is a request for one that it did not hold.
    """

    def __init__(self, context: Context):
        self._context = context
        self._lock = threading.Lock()
        # Bounded: a kernel has at most MAX_SLOTS bindings.
        self._layouts: dict[tuple[int, bool], tuple[Any, Any]] = {}
        self._living: WeakValueDictionary[_Key, Any] = WeakValueDictionary()
        self.cache: Cache[_Key, Any] = Cache(DEFAULT_LIMITS)

    def __len__(self) -> int:
        """Return how many pipelines live."""
        return len(self._living)

    def layout(self, bindings: int, immediates: bool) -> Any:
        """Return the bind-group layout of kernels with so many bindings."""
        return self._layout(bindings, immediates)[0]

    def get(self, operator: str, kernel: Kernel, immediates: bool) -> tuple[Any, bool]:
        """Return a kernel's pipeline, and whether it is new.

        Raises:
            ShaderError: when the text does not compile.
            DeviceRemoved: when the device is gone.
        """
        key = kernel.wgsl, kernel.binding_count, immediates
        pipeline = self.cache.get(key)
        if pipeline is not None:
            return pipeline, False
        with self._lock, self._context.lock:
            self._context.check()
            pipeline = self._living.get(key)
            is_new = pipeline is None
            if is_new:
                releases.run(self._context)
                pipeline = releases.adopt(self._context, self._compile(operator, kernel, immediates))
                self._living[key] = pipeline
            self.cache.put(key, pipeline, _BYTES_PER_CHARACTER * len(kernel.wgsl))
            return pipeline, is_new

    def close(self) -> None:
        """Give all pipelines back, those in use too. Call when the device is gone and nothing is submitted any more."""
        with self._lock, self._context.lock:
            self.cache.clear()
            self._layouts.clear()
            for pipeline in list(self._living.values()):
                native.release(pipeline)
            releases.run(self._context)

    def _compile(self, operator: str, kernel: Kernel, immediates: bool) -> Any:
        device = self._context.device
        _, layout = self._layout(kernel.binding_count, immediates)
        try:
            module = device.create_shader_module(label=kernel.label, code=kernel.wgsl)
            compute = {"module": module, "entry_point": "main"}
            return device.create_compute_pipeline(label=kernel.label, layout=layout, compute=compute)
        except wgpu.GPUValidationError as error:
            if "is lost" in str(error):
                raise self._context.translate(error, operator) from error
            raise ShaderError(compile_error(operator, kernel, str(self._context.info), error)) from error
        except wgpu.GPUError as error:
            raise self._context.translate(error, f"{operator}: kernel {kernel.label!r}") from error

    def _layout(self, bindings: int, immediates: bool) -> tuple[Any, Any]:
        key = bindings, immediates
        if key not in self._layouts:
            device = self._context.device
            types = ["storage"] * bindings + ([] if immediates else ["uniform"])
            group = device.create_bind_group_layout(
                entries=[
                    {"binding": binding, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                    for binding, kind in enumerate(types)
                ]
            )
            self._layouts[key] = (
                group,
                device.create_pipeline_layout(
                    bind_group_layouts=[group], immediate_size=PARAMETER_BYTES if immediates else 0
                ),
            )
        return self._layouts[key]


def compile_error(operator: str, kernel: Kernel, adapter: str, error: Exception) -> str:
    """Return the text of a ShaderError: what failed and why, then the lines around the fault with their numbers."""
    text = str(error)
    place = re.search(r"┌─ .*:(\d+):\d+", text)
    head = f"{operator}: kernel {kernel.label!r} does not compile on {adapter}: {_fault(text) or reason_of(error)}"
    if place is None:
        return head
    line = int(place[1])
    file = template_of(kernel.wgsl, line)
    return f"{head}{f' (in {file})' if file else ''}\n{excerpt(kernel.wgsl, line)}"


def template_of(source: str, line: int) -> str | None:
    """Return the shader file that a line of rendered WGSL came from: rendering puts its name above the text of each
    file."""
    above = "\n".join(source.splitlines()[:line])
    names = re.findall(r"^// ---- (\S+)$", above, re.MULTILINE)
    return names[-1] if names else None


def _fault(text: str) -> str | None:
    """Return what naga says in several places of its report: the headline, and what the headline leaves out."""
    if parsing := re.search(r"parsing error: (.*)", text):
        notes = re.findall(r"│ +[\^-]+ (.*)", text)
        return "; ".join([parsing[1], *(note for note in notes if note not in parsing[1])])
    if validation := re.search(r"Shader.* validation error: (.*)", text):
        causes = re.findall(r"^ += (.*)", text, re.MULTILINE)
        return ": ".join([validation[1], *causes[-1:]])
    return None


def excerpt(source: str, line: int) -> str:
    """Return the lines of a source around one (counted from 1), numbered, with an arrow at it."""
    lines = source.splitlines()
    first, last = max(line - _LINES_AROUND, 1), min(line + _LINES_AROUND, len(lines))
    width = len(str(last))
    return "\n".join(
        f"{'>' if number == line else ' '} {number:{width}} | {lines[number - 1]}".rstrip()
        for number in range(first, last + 1)
    )
