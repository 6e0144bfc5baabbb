"""wgpu-native, the WebGPU library of the package wgpu.

wgpu-py requests C types from cffi by name. For each new string like ``"WGPULimits *"``, cffi has pycparser parse a line
for every one of the hundreds of types in wgpu's header: 10 ms each, some forty times before the first result of a
process. Parsing one string with all of them takes as long as one, so they are parsed in one batch when this module is
imported. The results go into cffi's own cache; cffi parses other strings as before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import cffi  # type: ignore[import-untyped]
import wgpu
from wgpu.backends.wgpu_native import _api
from wgpu.backends.wgpu_native._ffi import ffi, lib

from dmlgpu.compiler.target import Matrices
from dmlgpu.runtime.wgpu.library import NVIDIA, Library, without_cycle

C_TYPES = (
    *("char []", "uint8_t[]", "uint8_t []", "uint8_t *", "uintptr_t", "void(*)(int)"),
    *("WGPUAdapter[]", "WGPUAdapterInfo *", "WGPUInstanceDescriptor *", "WGPULimits *", "WGPUNativeLimits *"),
    *("WGPUChainedStruct *", "WGPUChainedStruct * ", "WGPUStringView *", "WGPUFeatureName[]"),
    *("WGPUDeviceDescriptor *", "WGPUDeviceExtras *", "WGPUQueueDescriptor *"),
    *("WGPUDeviceLostCallbackInfo *", "WGPUUncapturedErrorCallbackInfo *", "WGPURequestDeviceCallbackInfo *"),
    "void(WGPUDevice const *, WGPUDeviceLostReason, WGPUStringView, void *, void *)",
    "void(WGPUDevice const *, WGPUErrorType, WGPUStringView, void *, void *)",
    "void(WGPURequestDeviceStatus, WGPUDevice, WGPUStringView, void *, void *)",
    *("WGPUBindGroupLayoutEntry *", "WGPUBindGroupLayoutEntry[]", "WGPUBindGroupLayoutDescriptor *"),
    *("WGPUBufferBindingLayout *", "WGPUBindGroupLayout[]", "WGPUPipelineLayoutDescriptor *"),
    *("WGPUShaderSourceWGSL *", "WGPUShaderModuleDescriptor *", "WGPUConstantEntry *", "WGPUConstantEntry[]"),
    *("WGPUComputeState *", "WGPUComputePipelineDescriptor *"),
    *("WGPUBufferDescriptor *", "WGPUBindGroupEntry *", "WGPUBindGroupEntry[]", "WGPUBindGroupDescriptor *"),
    *("WGPUCommandEncoderDescriptor *", "WGPUComputePassDescriptor *", "WGPUCommandBufferDescriptor *"),
    *("WGPUQuerySetDescriptor *", "WGPUPassTimestampWrites *", "WGPUCommandBuffer[]"),
    *("WGPUQueueWorkDoneCallbackInfo *", "WGPUQueueWorkDoneCallback"),
    *("WGPUBufferMapCallbackInfo *", "WGPUBufferMapCallback"),
)
"""Type names that wgpu-py and this package pass to cffi when a device computes."""


def look_up_together(known: cffi.FFI, texts: Iterable[str]) -> None:
    """Parse types in one string, and add each to the cache of an FFI.

    The cache is private to cffi. If cffi has none, or the header lacks one of the types, this does nothing.
    """
    parsed: Any = getattr(known, "_parsed_types", None)
    if not isinstance(parsed, dict):
        return
    missing = [text for text in texts if text not in parsed]
    try:
        # Arguments of a function may be of any type but arrays, of which pointers are taken.
        function = known.typeof(f"void(*)({', '.join(text.replace('[', '(*)[') for text in missing)})")
    except (cffi.FFIError, cffi.CDefError):
        return
    for text, c_type in zip(missing, function.args, strict=True):
        is_function = "(" in text and "(*" not in text  # cffi takes such a type for a pointer to it, in callbacks only
        parsed[text] = (c_type.item if "[" in text else c_type), is_function


look_up_together(ffi, C_TYPES)


class WgpuNative(Library):
    """wgpu-native."""

    def adapters(self) -> list[Any]:
        return list(wgpu.gpu.enumerate_adapters_sync())

    def driver(self, info: Mapping[str, Any]) -> str:
        return str(info["description"])

    def features(self, raw: Collection[str], limits: Mapping[str, int]) -> Collection[str]:
        return raw

    def matrix_units(self, adapter: Any) -> Matrices | None:
        is_nvidia = adapter.info["vendor_id"] == NVIDIA  # others: AMD's
        return Matrices(lanes=32, turns=False) if is_nvidia else Matrices()

    def request_device(self, adapter: Any, features: Collection[str]) -> Any:
        # Without required_limits, wgpu-py requests the limits of the adapter.
        return without_cycle(adapter.request_device_sync(label="dmlgpu", required_features=sorted(features)))

    def check_wrapped(self, device: Any) -> None:
        pass  # any device will do

    def poll(self, device: Any) -> None:
        self.lib.wgpuDevicePoll(device._internal, False, self.ffi.NULL)

    def why_lost(self, device: Any) -> str | None:
        return None  # the next call raises

    def create_module(self, device: Any, label: str, wgsl: str) -> Any:
        return device.create_shader_module(label=label, code=wgsl)

    def create_unchecked_module(self, device: Any, label: str, wgsl: str, bounds_loops: bool) -> Any:
        text, name = ffi.from_buffer(wgsl.encode()), ffi.from_buffer(label.encode())
        source, descriptor = ffi.new("WGPUShaderSourceWGSL *"), ffi.new("WGPUShaderModuleDescriptor *")
        source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
        source.code.data, source.code.length = text, len(text)
        descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
        descriptor.label.data, descriptor.label.length = name, len(name)
        checks = lib.WGPUShaderRuntimeChecks_ForceLoopBounding if bounds_loops else lib.WGPUShaderRuntimeChecks_None
        module = self.libf.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, checks)
        return _api.GPUShaderModule(label, module, device)

    def timestamp_period(self, queue: Any) -> float:
        return float(self.lib.wgpuQueueGetTimestampPeriod(queue._internal))


NATIVE: Final = WgpuNative("wgpu-native", wgpu, _api, ffi, lib)
"""The library, loaded."""
