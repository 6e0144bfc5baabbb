"""An executor in a browser's page: the kernels run on its WebGPU device, which checks what the standard demands."""

from __future__ import annotations

import base64
import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import aliasing
from dmlgpu.backend import Resources
from dmlgpu.compiler import compile_operator
from dmlgpu.errors import DmlError, ShaderError
from dmlgpu.host.backend import HostReading
from dmlgpu.plan import Role
from dmlgpu.program import Kernel, Program, parameter_bytes
from dmlgpu.target import AdapterInfo, Profile, Target
from dmlgpu.wgsl.sharing import share

SCRIPT = """() => {
    const decoded = text => Uint8Array.from(atob(text), each => each.charCodeAt(0));
    const encoded = bytes => btoa(Array.from(bytes, each => String.fromCharCode(each)).join(''));
    const {STORAGE, UNIFORM, COPY_SRC, COPY_DST, MAP_READ} = GPUBufferUsage;
    const buffers = new Map(), pipelines = new Map();
    const checked = async action => {
        device.pushErrorScope('validation');
        await action();
        return (await device.popErrorScope())?.message ?? '';
    };
    const dispatch = (encoder, {key, bound, parameters, grid}) => {
        const uniform = device.createBuffer({size: 48, usage: UNIFORM | COPY_DST});
        device.queue.writeBuffer(uniform, 0, decoded(parameters));
        const resources = bound.map(([id, offset, size]) => ({buffer: buffers.get(id), offset, size}));
        const entries = [...resources, {buffer: uniform}].map((resource, binding) => ({binding, resource}));
        const pass = encoder.beginComputePass();
        pass.setPipeline(pipelines.get(key));
        pass.setBindGroup(0, device.createBindGroup({layout: layoutOf(bound.length)[0], entries}));
        pass.dispatchWorkgroups(...grid);
        pass.end();
    };
    window.executor = {
        compile: ([key, code, bindings]) => checked(async () => {
            const compute = {module: device.createShaderModule({code}), entryPoint: 'main'};
            pipelines.set(key, device.createComputePipeline({layout: layoutOf(bindings)[1], compute}));
        }),
        create: ([id, size, destroyed]) => {
            for (const each of destroyed) { buffers.get(each).destroy(); buffers.delete(each); }
            buffers.set(id, device.createBuffer({size: Math.max(size, 16), usage: STORAGE | COPY_SRC | COPY_DST}));
        },
        write: ([id, offset, data]) => device.queue.writeBuffer(buffers.get(id), offset, decoded(data)),
        read: async ([id, offset, size]) => {
            const copy = device.createBuffer({size, usage: MAP_READ | COPY_DST});
            const encoder = device.createCommandEncoder();
            encoder.copyBufferToBuffer(buffers.get(id), offset, copy, 0, size);
            device.queue.submit([encoder.finish()]);
            await copy.mapAsync(GPUMapMode.READ);
            const text = encoded(new Uint8Array(copy.getMappedRange()));
            copy.destroy();
            return text;
        },
        submit: work => checked(async () => {
            const encoder = device.createCommandEncoder();
            for (const item of work) {
                if (item.copy) encoder.copyBufferToBuffer(buffers.get(item.copy[0]), item.copy[1],
                    buffers.get(item.copy[2]), item.copy[3], item.copy[4]);
                else dispatch(encoder, item);
            }
            device.queue.submit([encoder.finish()]);
            await device.queue.onSubmittedWorkDone();
        }),
    };
}"""


@dataclass(frozen=True)
class PageBuffer:
    number: int
    size: int


class Executable:
    """A program whose pipelines the page has made."""

    def __init__(self, backend: BrowserBackend, program: Program):
        self.backend, self.program = backend, program
        self.temporary_size, self.persistent_size = program.temporary_size, program.persistent_size
        for kernel in (*program.initialization, *program.kernels):
            backend.pipeline(program.operator, kernel)

    def bind(self, resources: Resources) -> list[dict[str, Any]]:
        return [self._bound(kernel, resources) for kernel in self.program.kernels]

    def bind_initialization(self, resources: Resources) -> list[dict[str, Any]]:
        return [self._bound(kernel, resources) for kernel in self.program.initialization]

    def _bound(self, kernel: Kernel, resources: Resources) -> dict[str, Any]:
        ranges = []
        for slot in kernel.slots:
            tensors = {Role.INPUT: resources.inputs, Role.OUTPUT: resources.outputs}
            arenas = {Role.TEMPORARY: resources.temporary, Role.PERSISTENT: resources.persistent}
            bound = tensors[slot.role][slot.index] if slot.role in tensors else arenas[slot.role]
            assert bound is not None
            ranges.append((bound.buffer.number, bound.offset + slot.offset, slot.size))
        layout = aliasing.layout(ranges, kernel.bindings, self.backend.alignment)
        shared = share(self.program.operator, kernel, layout.bindings)
        return {
            "key": self.backend.pipeline(self.program.operator, shared),
            "bound": layout.bound,
            "parameters": base64.b64encode(parameter_bytes(layout.bases)).decode(),
            "grid": kernel.grid,
        }


class BrowserBackend:
    """An executor (``dmlgpu.backend.Backend``) in a page that has a ``device``."""

    def __init__(self, page: Any, facts: dict[str, Any], profile: Profile):
        self._page, self.alignment = page, facts["alignment"]
        self.info = AdapterInfo(facts["name"], "WebGPU", "cpu", facts["name"], "")
        self.target = Target(facts["name"], profile, max_binding_size=facts["limits"]["maxStorageBufferBindingSize"])
        self._numbers, self._serial = itertools.count(1), 0
        self._destroyed: list[int] = []
        self._pipelines: dict[tuple[str, int], int] = {}
        page.evaluate(SCRIPT)

    def _call(self, function: str, argument: Any) -> Any:
        return self._page.evaluate(f"argument => executor.{function}(argument)", argument)

    def pipeline(self, operator: str, kernel: Kernel) -> int:
        """The number of a kernel's pipeline in the page."""
        key = kernel.wgsl, kernel.binding_count
        if key not in self._pipelines:
            number = next(self._numbers)
            if refusal := self._call("compile", [number, *key]):
                raise ShaderError(f"{operator}: kernel {kernel.label!r}: {refusal}")
            self._pipelines[key] = number
        return self._pipelines[key]

    def check(self, desc: Any) -> None:
        compile_operator(desc, self.target)

    def compile(self, desc: Any, half_precision: bool = False, preserve_padding: bool = False) -> Executable:
        target = dataclasses.replace(self.target, preserves_padding=preserve_padding)
        return Executable(self, compile_operator(desc, target))

    def create_buffer(self, size: int, label: str) -> PageBuffer:
        buffer = PageBuffer(next(self._numbers), size)
        destroyed, self._destroyed = self._destroyed, []
        self._call("create", [buffer.number, size, destroyed])
        return buffer

    def destroy_buffer(self, buffer: PageBuffer) -> None:
        """Give the memory back at the next allocation: a finalizer that calls this may interrupt a call of the page."""
        self._destroyed.append(buffer.number)

    def write(self, buffer: PageBuffer, offset: int, data: NDArray[np.uint8]) -> None:
        self._call("write", [buffer.number, offset, base64.b64encode(data.tobytes()).decode()])

    def read(self, buffer: PageBuffer, offset: int, size: int) -> NDArray[np.uint8]:
        text = self._call("read", [buffer.number, offset, size])
        return np.frombuffer(bytearray(base64.b64decode(text)), np.uint8)

    def copy(self, source: PageBuffer, source_offset: int, target: PageBuffer, target_offset: int, size: int) -> Any:
        return {"copy": [source.number, source_offset, target.number, target_offset, size]}

    def read_async(self, buffer: PageBuffer, offset: int, size: int) -> HostReading:
        return HostReading(self.read(buffer, offset, size))

    def record(self, work: Sequence[Any]) -> Sequence[Any]:
        return work

    def submit(self, *work: Sequence[Any]) -> int:
        """Run work to its end."""
        if refusal := self._call("submit", list(itertools.chain(*work))):
            raise DmlError(f"{self.info}: {refusal}")
        self._serial += 1
        return self._serial

    def is_done(self, serial: int) -> bool:
        return True

    def wait(self, serial: int, timeout: float | None = None) -> bool:
        return True

    def close(self) -> None:
        """The page stays for others."""
