"""Which matrix units kernels use, and which of their products are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dmlgpu.compiler.target import Matrices, MatrixDialect
from dmlgpu.runtime.matrix_products import configured_units, is_right, product_program, samples, sum_type, units_of

INTEL = {"component_type": "f16", "m": 8, "n": 16, "k": 16, "min_subgroup_size": 16, "max_subgroup_size": 16}
LAVAPIPE = {"component_type": "f16", "m": 8, "n": 8, "k": 8, "min_subgroup_size": 8, "max_subgroup_size": 8}


def test_matrix_units_are_the_largest_of_float16() -> None:
    of_halves, of_floats = ({**INTEL, "result_component_type": kind} for kind in ("f16", "f32"))
    of_integers = {**INTEL, "component_type": "i8", "k": 32, "result_component_type": "i32"}
    small = {**LAVAPIPE, "result_component_type": "f32"}
    units = configured_units([of_halves, small, of_floats, of_integers], turns=True)
    integers = Matrices(8, 16, 32, lanes=16, dialect=MatrixDialect.TINT, component="i8")
    assert units == replace(integers, steps=16, component="f16", integers=integers)
    of_nvidia = Matrices(8, 8, 8, lanes=8, dialect=MatrixDialect.TINT, turns=False)
    assert configured_units([small], turns=False) == of_nvidia
    assert configured_units([of_halves, of_integers], turns=True) is None


def test_matrix_units_of_apple_are_of_float32() -> None:
    of_floats, of_halves = (
        {**LAVAPIPE, "component_type": kind, "result_component_type": kind, "max_subgroup_size": 32}
        for kind in ("f32", "f16")
    )
    floats = Matrices(8, 8, 8, lanes=32, dialect=MatrixDialect.TINT, component="f32")
    assert configured_units([of_floats, of_halves], turns=True) == replace(floats, floats=floats)
    halves = {**of_halves, "result_component_type": "f32"}
    both = configured_units([of_floats, halves], turns=True)
    assert both == replace(floats, component="f16", floats=floats)
    assert [units_of(both, numbers) for numbers in ("float16", "float32", "int8")] == [both, floats, None]


@pytest.mark.parametrize("numbers", ["float16", "float32", "int8"])
def test_products_that_are_off_are_wrong(numbers: str) -> None:
    of_integers = numbers == "int8"
    share = {"float16": 64, "float32": 1 << 12}.get(numbers, 1)
    for a, b in samples(numbers):
        kind = np.int64 if of_integers else np.float64
        right = (a.astype(kind) @ b.astype(kind)).astype(sum_type(a))
        assert right.shape == (128, 128) and is_right(a, b, right)
        for place in ((0, 0), (127, 64)):
            wrong = right.copy()
            wrong[place] += 1 if of_integers else max(64 / share, abs(wrong[place]) / share)
            assert not is_right(a, b, wrong)


def test_sums_of_float16_are_wrong() -> None:
    for a, b in samples("float16"):
        sums = np.zeros((128, 128), np.float16)
        for step in range(a.shape[1]):
            sums += np.outer(a[:, step], b[step])
        assert not is_right(a, b, sums)


def test_products_of_rounded_float32_are_wrong() -> None:
    """Matrix units of NVIDIA round float32 to 11 bits, where an interface allows it."""
    a, b = samples("float32")[1]
    rounded, factor = (x.astype(np.float16).astype(np.float64) for x in (a, b))
    assert not is_right(a, b, (rounded @ factor).astype(np.float32))


def test_ordinary_products_use_no_matrix_units() -> None:
    for numbers in ("float16", "float32", "int8"):
        (kernel,) = product_program(None, numbers, (256, 256, 256)).kernels
        assert "subgroup" not in kernel.wgsl
