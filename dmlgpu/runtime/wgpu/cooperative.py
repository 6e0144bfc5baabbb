"""Matrix units: adapters with the feature ``cooperative-matrix``, which is experimental in wgpu.

wgpu-native 29 lists the feature but does not enable it. Every new device requests it, in case a version enables it.
WGSL does not specify how an adapter's matrix units compute, and wgpu-native does not report which matrices they take.
So a product is compared with NumPy's, once per adapter and driver: of integers whose sums fit float32 but not float16.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import wgpu

from dmlgpu.compiler.target import COOPERATIVE, Profile, Target
from dmlgpu.runtime.wgpu.libraries import library_of
from dmlgpu.runtime.wgpu.measured import contents_after

if TYPE_CHECKING:
    from dmlgpu.compiler.program import RenderedKernel

EQUAL: Final = "equal"
"""Name of the fact that products by cooperative matrices are correct."""

NEEDED: Final = frozenset({COOPERATIVE, "shader-f16", "subgroup"})
"""Features that products by cooperative matrices need."""

_ROWS, _INNER, _COLUMNS = 128, 64, 128
_LARGEST = 60


def request_device(adapter: Any, features: Collection[str], disabled: Collection[str]) -> wgpu.GPUDevice:
    """Return a device with features, and with cooperative matrices if the adapter has them and wgpu enables them.

    Args:
        adapter: A wgpu adapter.
        features: Features to enable.
        disabled: Features not to enable.

    Raises:
        RuntimeError: If the driver cannot create a device.
    """
    if adapter.features >= NEEDED and not NEEDED & set(disabled):
        try:
            return request_features(adapter, {*features, *NEEDED})
        except RuntimeError:
            pass
    return request_features(adapter, features)


def request_features(adapter: Any, features: Collection[str]) -> wgpu.GPUDevice:
    """Return a device with features and all limits of the adapter."""
    return library_of(adapter).request_device(adapter, features)


def measure(device: wgpu.GPUDevice) -> frozenset[str]:
    """Return whether a device computes a product by cooperative matrices correctly."""
    from dmlgpu.compiler.program import parameter_bytes  # noqa: PLC0415 - see ``rendered_product``

    rng = np.random.default_rng(1)
    a, b = (
        rng.integers(-_LARGEST, _LARGEST + 1, sizes).astype(np.float16)
        for sizes in ((_ROWS, _INNER), (_INNER, _COLUMNS))
    )
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    kernel = rendered_product()
    roles = [slot.role.value for slot in kernel.slots]
    tensors = [(a, b)[slot.index] if slot.role.value == "input" else np.zeros_like(expected) for slot in kernel.slots]
    parameters = np.frombuffer(parameter_bytes((0,) * len(kernel.slots)), np.uint32)
    module = library_of(device).create_module(device, kernel.label, kernel.wgsl)
    words = contents_after(device, module, (*tensors, parameters), workgroups=kernel.grid)
    result = words[roles.index("output")].view(np.float16).reshape(expected.shape)
    return frozenset({EQUAL} if np.array_equal(result, expected) else ())


def rendered_product() -> RenderedKernel:
    """Return the kernel that is measured."""
    # Only for the measurement: adapters are listed without the compiler.
    from dmlgpu.catalog import descs  # noqa: PLC0415
    from dmlgpu.catalog.enums import DataType  # noqa: PLC0415
    from dmlgpu.catalog.tensor_desc import TensorDesc  # noqa: PLC0415
    from dmlgpu.compiler.stages import compile_operator  # noqa: PLC0415

    a, b, output = (
        TensorDesc(DataType.FLOAT16, (1, 1, *sizes))
        for sizes in ((_ROWS, _INNER), (_INNER, _COLUMNS), (_ROWS, _COLUMNS))
    )
    target = Target("measured", Profile.DISCRETE, NEEDED - {"shader-f16"})
    (kernel,) = compile_operator(descs.Gemm(a_tensor=a, b_tensor=b, output_tensor=output), target).kernels
    return kernel
