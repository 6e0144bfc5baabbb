"""Matrix units: adapters with the feature ``cooperative-matrix``, which is experimental in wgpu and in Dawn.

wgpu-native 29 lists the feature but does not enable it. Every new device requests it, in case a version enables it.
Dawn enables it, and reports the sizes of the matrices (``Library.matrix_units``).
Products by cooperative matrices are compared and timed (``matrix_products``) once per adapter and driver.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import wgpu
from numpy.typing import NDArray

from dmlgpu.compiler.target import COOPERATIVE, Matrices
from dmlgpu.runtime.matrix_products import (
    ENOUGH,
    TIMED_SIZES,
    is_right,
    product_program,
    samples,
    sum_type,
    units_of,
)
from dmlgpu.runtime.wgpu.libraries import features_of, library_of
from dmlgpu.runtime.wgpu.measured import contents_after, seconds_of

if TYPE_CHECKING:
    from dmlgpu.compiler.program import RenderedKernel

EQUAL: Final = "equal"
"""Name of the fact that products by cooperative matrices are correct."""

FASTER: Final = "faster"
"""Name of the fact that they are also faster than ordinary products."""

NEEDED: Final = frozenset({COOPERATIVE, "shader-f16", "subgroup"})
"""Features that products by cooperative matrices need."""


def request_device(adapter: Any, features: Collection[str], disabled: Collection[str]) -> wgpu.GPUDevice:
    """Return a device with features, and with cooperative matrices if its adapter has them and its library enables it.

    Args:
        adapter: An adapter of a library.
        features: Features to enable.
        disabled: Features not to enable.

    Raises:
        RuntimeError: If the driver cannot create a device.
    """
    if not NEEDED & set(disabled) and matrix_units(adapter) is not None:
        try:
            return request_features(adapter, {*features, *NEEDED})
        except RuntimeError:
            pass
    return request_features(adapter, features)


def request_features(adapter: Any, features: Collection[str]) -> wgpu.GPUDevice:
    """Return a device with features and all limits of the adapter."""
    return library_of(adapter).request_device(adapter, features)


def matrix_units(adapter: Any) -> Matrices | None:
    """Return the matrix units of an adapter; None if there are none that kernels can use."""
    return library_of(adapter).matrix_units(adapter) if set(features_of(adapter)) >= NEEDED else None


def measure(device: wgpu.GPUDevice) -> frozenset[str]:
    """Return whether a device computes products of float16 by cooperative matrices correctly, and faster than ordinary
    ones.

    Raises:
        GPUError: If the driver rejects the kernel.
    """
    return _facts(device, "float16")


def measure_floats(device: wgpu.GPUDevice) -> frozenset[str]:
    """Return the same of products of float32; that none is wrong if no matrices multiply it.

    Raises:
        GPUError: If the driver rejects the kernel.
    """
    return _facts(device, "float32")


def measure_integers(device: wgpu.GPUDevice) -> frozenset[str]:
    """Return the same of products of int8.

    Raises:
        GPUError: If the driver rejects the kernel.
    """
    return _facts(device, "int8")


def _facts(device: wgpu.GPUDevice, numbers: str) -> frozenset[str]:
    matrices = matrix_units(device.adapter)
    if matrices is None or units_of(matrices, numbers) is None:
        return frozenset({EQUAL})
    kernel = rendered_product(matrices, numbers)
    if not all(is_right(a, b, _result(device, kernel, a, b)) for a, b in samples(numbers)):
        return frozenset()
    return frozenset({EQUAL, FASTER} if _is_faster(device, matrices, numbers) else {EQUAL})


def _result(device: wgpu.GPUDevice, kernel: RenderedKernel, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return the product that a kernel computes."""
    arrays = _operands(kernel, a, b)
    module = library_of(device).create_module(device, kernel.label, kernel.wgsl)
    words = contents_after(device, module, arrays, workgroups=kernel.grid)
    output = [slot.role.value for slot in kernel.slots].index("output")
    return words[output].view(sum_type(a)).reshape(len(a), -1)


def _is_faster(device: wgpu.GPUDevice, matrices: Matrices, numbers: str) -> bool:
    """Return whether a product by cooperative matrices takes less time than an ordinary one, of a size that fills a GPU
    unless an adapter needs long for a small one."""
    for size in TIMED_SIZES:
        a = b = np.ones((size, size), numbers)
        kernels = [rendered_product(units, numbers, (size,) * 3) for units in (None, matrices)]
        ordinary, own = (
            seconds_of(
                device,
                library_of(device).create_unchecked_module(device, kernel.label, kernel.wgsl, bounds_loops=False),
                _operands(kernel, a, b),
                workgroups=kernel.grid,
                enough=ENOUGH,
            )
            for kernel in kernels
        )
        if ordinary > ENOUGH:
            break
    return own < ordinary


def _operands(kernel: RenderedKernel, a: NDArray[Any], b: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the contents of the buffers of a product's kernel."""
    from dmlgpu.compiler.program import parameter_bytes  # noqa: PLC0415 - adapters are listed without the compiler

    output = np.zeros((len(a), b.shape[1]), sum_type(a))
    tensors = [output if slot.role.value != "input" else b if slot.index else a for slot in kernel.slots]
    return [*tensors, np.frombuffer(parameter_bytes((0,) * len(kernel.slots)), np.uint32)]


def rendered_product(*args: Any) -> RenderedKernel:
    """Return the kernel of ``product_program``."""
    (kernel,) = product_program(*args).kernels
    return kernel
