"""The C types that wgpu-py requests from cffi by name, parsed in one batch.

For each new string like ``"WGPULimits *"``, cffi has pycparser parse a line for every one of the hundreds of types in
wgpu's header: 10 ms each, some forty times before the first result of a process. Parsing one string with all of them
takes as long as one. The results go into cffi's own cache; cffi parses other strings as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cffi  # type: ignore[import-untyped]
from wgpu.backends.wgpu_native._ffi import ffi

TEXTS = (
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
"""Type names that wgpu-py and ``native`` pass to cffi when a device computes."""


def look_up_together(known: cffi.FFI, texts: Iterable[str]) -> None:
    """Look up types by one text, for an FFI to find each by its own.

    Where cffi keeps them is its inside: one that keeps them elsewhere stays as it is, as does one whose header lacks
    one of the types.
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
        is_function = "(" in text and "(*" not in text  # which stands for a pointer to it, in callbacks alone
        parsed[text] = (c_type.item if "[" in text else c_type), is_function


look_up_together(ffi, TEXTS)
