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
from numpy.typing import NDArray

from dmlgpu.compiler.target import COOPERATIVE, AdapterInfo, Profile, Target
from dmlgpu.runtime.wgpu import native
from dmlgpu.runtime.wgpu.measured import MeasuredFacts, contents_after
from dmlgpu.runtime.wgpu.waiting import without_signals

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
    # Without required_limits wgpu-py asks for the adapter's own.
    device = adapter.request_device_sync(label="dmlgpu", required_features=sorted(features))
    return native.without_cycle(device)


def is_usable(device: wgpu.GPUDevice, info: AdapterInfo, disabled: Collection[str]) -> bool:
    """Return whether a device multiplies by cooperative matrices: it has the feature and computes correctly, which is
    measured unless cached."""
    if not device.features >= NEEDED or NEEDED & set(disabled):
        return False
    facts = FACTS.known(info)
    return EQUAL in (FACTS.measured(device, info) if facts is None else facts)


def describe_support(adapter: Any, info: AdapterInfo) -> str:
    """Describe whether products of an adapter use its matrix units, with the reason if not; empty if wgpu lists none.

    Args:
        adapter: A wgpu adapter.
        info: Its facts.
    """
    if not adapter.features >= NEEDED:
        return ""
    try:
        device = request_features(adapter, NEEDED)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        return f"{COOPERATIVE} is not used, because wgpu-native rejects it: {reason}"
    is_right = is_usable(device, info, ())
    native.destroy(device)
    return f"{COOPERATIVE}" if is_right else f"{COOPERATIVE} is not used, because its products differ from NumPy's"


def measure(device: wgpu.GPUDevice) -> frozenset[str]:
    """Return whether a device computes a product by cooperative matrices correctly."""
    rng = np.random.default_rng(1)
    a, b = (
        rng.integers(-_LARGEST, _LARGEST + 1, sizes).astype(np.float16)
        for sizes in ((_ROWS, _INNER), (_INNER, _COLUMNS))
    )
    result = without_signals(lambda: _product(device, rendered_product(), a, b))
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
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


def _product(
    device: wgpu.GPUDevice, kernel: RenderedKernel, a: NDArray[np.float16], b: NDArray[np.float16]
) -> NDArray[np.float16]:
    """Return the product of two matrices, computed by the kernel."""
    from dmlgpu.compiler.program import parameter_bytes  # noqa: PLC0415 - as above

    module = device.create_shader_module(code=kernel.wgsl)
    result = np.zeros((_ROWS, _COLUMNS), np.float16)
    parameters = np.frombuffer(parameter_bytes((0,) * len(kernel.slots)), np.uint32)
    operands = [result if slot.role.value == "output" else (a, b)[slot.index] for slot in kernel.slots]
    words = contents_after(device, module, (*operands, parameters), workgroups=kernel.grid)
    index = next(index for index, slot in enumerate(kernel.slots) if slot.role.value == "output")
    return words[index].view(np.float16).reshape(_ROWS, _COLUMNS)


FACTS: Final = MeasuredFacts("matrices", measure)
"""Cached facts: whether adapters compute products by cooperative matrices correctly."""
