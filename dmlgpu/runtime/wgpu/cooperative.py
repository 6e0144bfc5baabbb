"""Matrix units: adapters with the feature ``cooperative-matrix``, which is experimental in wgpu and in Dawn.

wgpu-native 29 lists the feature but does not enable it. Every new device requests it, in case a version enables it.
Dawn enables it, and reports the sizes of the matrices (``Library.matrix_units``).
WGSL does not specify how an adapter's matrix units compute. So products are compared with NumPy's, once per adapter and
driver: of integers whose sums fit float32 but not float16, of random numbers, and of int8. Some drivers emulate matrix
units, so products are timed as well. CPU adapters always emulate them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import wgpu
from numpy.typing import NDArray

from dmlgpu.compiler.target import (
    COOPERATIVE,
    Float16Conversions,
    Matrices,
    MatrixDialect,
    Policies,
    Profile,
    Target,
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

_ROWS, _INNER, _COLUMNS = 128, 64, 128
_SHAPES = (_ROWS, _INNER), (_INNER, _COLUMNS)
_SUMS = {"float16": "float16", "int8": "int32"}
_LARGEST = 60
_TIMED_SIZES = (256, 1024)
_ENOUGH = 5e-3


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
    """Return whether a device computes products by cooperative matrices correctly, and faster than ordinary ones.

    Raises:
        GPUError: If the driver rejects the kernel.
    """
    rng = np.random.default_rng(1)
    integers = [rng.integers(-_LARGEST, _LARGEST + 1, shape).astype(np.float16) for shape in _SHAPES]
    floats = [rng.standard_normal(shape).astype(np.float16) for shape in _SHAPES]
    return _facts(device, integers, floats)


def measure_integers(device: wgpu.GPUDevice) -> frozenset[str]:
    """Return the same of products of int8; that none is wrong if the matrix units multiply only float16.

    Raises:
        GPUError: If the driver rejects the kernel.
    """
    matrices, rng = matrix_units(device.adapter), np.random.default_rng(1)
    if matrices is None or matrices.integers is None:
        return frozenset({EQUAL})
    return _facts(device, [rng.integers(-128, 128, shape).astype(np.int8) for shape in _SHAPES])


def _facts(device: wgpu.GPUDevice, *samples: list[NDArray[Any]]) -> frozenset[str]:
    """Return the facts of products of matrices of one type."""
    matrices, (a, _) = matrix_units(device.adapter), samples[0]
    assert matrices is not None
    kernel = rendered_product(matrices, of_integers=a.dtype == np.int8)
    if not all(_is_right(device, kernel, *sample) for sample in samples):
        return frozenset()
    return frozenset({EQUAL, FASTER} if _is_faster(device, matrices, a.dtype) else {EQUAL})


def _is_right(device: wgpu.GPUDevice, kernel: RenderedKernel, a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Return whether a kernel computes a product within the tolerance of its arithmetic: products are exact in float32,
    each addition has an error of an ULP of the sum of magnitudes, and results are rounded to float16. Products of
    integers are exact."""
    arrays = _operands(kernel, a, b)
    module = library_of(device).create_module(device, kernel.label, kernel.wgsl)
    words = contents_after(device, module, arrays, workgroups=kernel.grid)
    output = [slot.role.value for slot in kernel.slots].index("output")
    result = words[output].view(_SUMS[a.dtype.name]).reshape(len(a), -1).astype(np.float64)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    exact, magnitude = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)
    if np.array_equal(a, np.round(a)):
        return np.array_equal(result, exact.astype(_SUMS[a.dtype.name]).astype(np.float64))
    error = a.shape[1] * np.finfo(np.float32).eps * magnitude + np.spacing(np.abs(exact).astype(np.float16)) / 2
    return bool(np.all(np.abs(result - exact) <= error))


def _is_faster(device: wgpu.GPUDevice, matrices: Matrices, data_type: np.dtype[Any]) -> bool:
    """Return whether a product by cooperative matrices takes less time than an ordinary one, of a size that fills a GPU
    unless an adapter needs long for a small one."""
    for size in _TIMED_SIZES:
        a = b = np.ones((size, size), data_type)
        kernels = [
            rendered_product(units, (size, size, size), of_integers=data_type == np.int8) for units in (None, matrices)
        ]
        ordinary, own = (
            seconds_of(
                device,
                library_of(device).create_unchecked_module(device, kernel.label, kernel.wgsl, bounds_loops=False),
                _operands(kernel, a, b),
                workgroups=kernel.grid,
                enough=_ENOUGH,
            )
            for kernel in kernels
        )
        if ordinary > _ENOUGH:
            break
    return own < ordinary


def _operands(kernel: RenderedKernel, a: NDArray[Any], b: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the contents of the buffers of a product's kernel."""
    from dmlgpu.compiler.program import parameter_bytes  # noqa: PLC0415 - see ``rendered_product``

    output = np.zeros((len(a), b.shape[1]), _SUMS[a.dtype.name])
    tensors = [output if slot.role.value != "input" else b if slot.index else a for slot in kernel.slots]
    return [*tensors, np.frombuffer(parameter_bytes((0,) * len(kernel.slots)), np.uint32)]


def rendered_product(
    matrices: Matrices | None, sizes: tuple[int, int, int] = (_ROWS, _INNER, _COLUMNS), *, of_integers: bool = False
) -> RenderedKernel:
    """Return the kernel of a product.

    Args:
        matrices: Matrix units that multiply; None for an ordinary product.
        sizes: Rows, products per sum, columns.
        of_integers: Whether int8 is multiplied and summed in int32, not float16.
    """
    # Only for the measurement: adapters are listed without the compiler.
    from dmlgpu.catalog import descs  # noqa: PLC0415
    from dmlgpu.catalog.enums import DataType  # noqa: PLC0415
    from dmlgpu.catalog.tensor_desc import TensorDesc  # noqa: PLC0415
    from dmlgpu.compiler.stages import compile_operator  # noqa: PLC0415

    rows, inner, columns = sizes
    multiplied, summed = (DataType.INT8, DataType.INT32) if of_integers else (DataType.FLOAT16, DataType.FLOAT16)
    a, b = (TensorDesc(multiplied, (1, 1, *shape)) for shape in ((rows, inner), (inner, columns)))
    output = TensorDesc(summed, (1, 1, rows, columns))
    product = descs.MatrixMultiplyInteger if of_integers else descs.Gemm
    ordinary = "packed" if of_integers else "shared"
    target = Target(
        "measured",
        Profile.DISCRETE,
        NEEDED - {"shader-f16"},
        float16=Float16Conversions(decodes=True),
        max_workgroup_storage=32 << 10,  # of which adapters with matrix units have as much or more
        policies=Policies(checked=matrices is not None and matrices.dialect is MatrixDialect.TINT),
        matrices=matrices,
    ).with_overrides(schedule="cooperative" if matrices else ordinary)
    (kernel,) = compile_operator(product(a_tensor=a, b_tensor=b, output_tensor=output), target).kernels
    return kernel
