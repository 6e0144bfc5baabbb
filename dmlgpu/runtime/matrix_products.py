"""Products that show whether the matrix units of an adapter are right and faster, for all executors on WebGPU.

WGSL does not specify how an adapter's matrix units compute. So products of float16, float32 and int8, each by itself,
are compared with NumPy's: those of integers whose sums fit float32 but not float16, and of random numbers. Some drivers
emulate matrix units, so products are timed as well. CPU adapters always emulate them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
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

if TYPE_CHECKING:
    from dmlgpu.compiler.program import Program

TIMED_SIZES: Final = (256, 1024)
"""Rows, products per sum and columns of products that are timed: more if an adapter takes ``ENOUGH`` for fewer."""

ENOUGH: Final = 5e-3
"""Seconds that are measured well."""

_ROWS, _INNER, _COLUMNS = 128, 64, 128
_SHAPES = (_ROWS, _INNER), (_INNER, _COLUMNS)
_SUMS = {"float16": "float16", "float32": "float32", "int8": "int32"}
_LARGEST = 60

_CONFIGURATIONS = ("f16", "f32", 16), ("f32", "f32", 16), ("i8", "i32", 32)
"""Types that are multiplied and summed, and the steps of the least slab."""


def configured_units(configurations: Collection[Mapping[str, Any]], *, turns: bool) -> Matrices | None:
    """Return the matrix units among the subgroup matrices of an adapter that kernels use: the largest that multiply
    float16, float32 and int8 with sums of 32 bits; None if there are none of floats.

    Args:
        configurations: Sizes ``m``, ``n`` and ``k``, types and subgroup sizes.
        turns: As of ``Matrices``.
    """
    halves, floats, integers = (_largest(configurations, *each, turns) for each in _CONFIGURATIONS)
    return combined(halves, floats, integers)


def combined(halves: Matrices | None, floats: Matrices | None, integers: Matrices | None) -> Matrices | None:
    """Return the matrix units of float16 with the others: those of float32, as on Apple's GPUs, if there are no other
    ones; None if there are none of floats."""
    units = halves or floats
    return units and replace(units, floats=floats, integers=integers)


def units_of(matrices: Matrices, numbers: str) -> Matrices | None:
    """Return the matrix units that multiply ``float16``, ``float32`` or ``int8``; None if there are none."""
    return {"float16": matrices, "float32": matrices.floats, "int8": matrices.integers}[numbers]


def _largest(
    configurations: Iterable[Mapping[str, Any]], component: str, result: str, slab: int, turns: bool
) -> Matrices | None:
    """Return the largest matrices of a type with sums of another that divide slabs of some steps; None if there are
    none."""
    types = {"component_type": component, "result_component_type": result}
    units = (
        Matrices(
            each["m"],
            each["n"],
            each["k"],
            lanes=each["max_subgroup_size"],
            dialect=MatrixDialect.TINT,
            turns=turns,
            component=component,
        )
        for each in configurations
        if types.items() <= each.items()
    )
    usable = (each for each in units if each.divide_slabs(slab))
    return max(usable, key=lambda each: each.rows * each.columns * each.steps, default=None)


def samples(numbers: str) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Return operands of products that are compared with NumPy's, of a type."""
    rng = np.random.default_rng(1)
    if numbers == "int8":
        a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in _SHAPES)
        return [(a, b)]
    integers = (rng.integers(-_LARGEST, _LARGEST + 1, shape).astype(numbers) for shape in _SHAPES)
    floats = (rng.standard_normal(shape).astype(numbers) for shape in _SHAPES)
    return [(*integers,), (*floats,)]  # type: ignore[list-item]


def sum_type(a: NDArray[Any]) -> str:
    """Return the data type of the product of an operand, as NumPy names it."""
    return _SUMS[a.dtype.name]


def is_right(a: NDArray[Any], b: NDArray[Any], result: NDArray[Any]) -> bool:
    """Return whether a product is within the tolerance of its arithmetic: each product is rounded to float32, each
    addition has an error of an ULP of the sum of magnitudes, and results are rounded to their type. Products of
    integers are exact."""
    computed = result.astype(np.float64)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    exact, magnitude = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)
    if np.array_equal(a, np.round(a)):
        return np.array_equal(computed, exact.astype(sum_type(a)).astype(np.float64))
    error = a.shape[1] * np.finfo(np.float32).eps * magnitude + np.spacing(np.abs(exact).astype(sum_type(a))) / 2
    return bool(np.all(np.abs(computed - exact) <= error))


def product_program(
    matrices: Matrices | None, numbers: str, sizes: tuple[int, int, int] = (_ROWS, _INNER, _COLUMNS)
) -> Program:
    """Return the program of a product, which is one kernel.

    Args:
        matrices: Matrix units of the adapter; None for an ordinary product.
        numbers: The type that is multiplied: ``float16``, ``float32`` or ``int8``.
        sizes: Rows, products per sum, columns.
    """
    # Only for the measurement: adapters are listed without the compiler.
    from dmlgpu.catalog import descs  # noqa: PLC0415
    from dmlgpu.catalog.enums import DataType  # noqa: PLC0415
    from dmlgpu.catalog.tensor_desc import TensorDesc  # noqa: PLC0415
    from dmlgpu.compiler.stages import compile_operator  # noqa: PLC0415

    rows, inner, columns = sizes
    multiplied, summed = (DataType[name.upper()] for name in (numbers, _SUMS[numbers]))
    a, b = (TensorDesc(multiplied, (1, 1, *shape)) for shape in ((rows, inner), (inner, columns)))
    output = TensorDesc(summed, (1, 1, rows, columns))
    product, ordinary = (descs.MatrixMultiplyInteger, "packed") if numbers == "int8" else (descs.Gemm, "shared")
    target = Target(
        "measured",
        Profile.DISCRETE,
        frozenset({COOPERATIVE, "subgroup"}),
        float16=Float16Conversions(decodes=True),
        max_workgroup_storage=32 << 10,  # of which adapters with matrix units have as much or more
        policies=Policies(checked=False),
        matrices=matrices,
    ).with_overrides(schedule="cooperative" if matrices else ordinary)
    return compile_operator(product(a_tensor=a, b_tensor=b, output_tensor=output), target)
