"""Which matrix units kernels use, and which of their products are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dmlgpu.compiler.target import Matrices, MatrixDialect
from dmlgpu.runtime.matrix_products import configured_units, is_right, product_program, samples, sum_type

INTEL = {"component_type": "f16", "m": 8, "n": 16, "k": 16, "min_subgroup_size": 16, "max_subgroup_size": 16}
LAVAPIPE = {"component_type": "f16", "m": 8, "n": 8, "k": 8, "min_subgroup_size": 8, "max_subgroup_size": 8}


def test_matrix_units_are_the_largest_of_float16() -> None:
    of_halves, of_floats = ({**INTEL, "result_component_type": kind} for kind in ("f16", "f32"))
    of_integers = {**INTEL, "component_type": "i8", "k": 32, "result_component_type": "i32"}
    small = {**LAVAPIPE, "result_component_type": "f32"}
    units = configured_units([of_halves, small, of_floats, of_integers], turns=True)
    integers = Matrices(8, 16, 32, lanes=16, dialect=MatrixDialect.TINT)
    assert units == replace(integers, steps=16, integers=integers)
    of_nvidia = Matrices(8, 8, 8, lanes=8, dialect=MatrixDialect.TINT, turns=False)
    assert configured_units([small], turns=False) == of_nvidia
    assert configured_units([of_halves, of_integers], turns=True) is None


@pytest.mark.parametrize("of_integers", [False, True])
def test_products_that_are_off_are_wrong(of_integers: bool) -> None:
    for a, b in samples(of_integers=of_integers):
        kind = np.int64 if of_integers else np.float64
        right = (a.astype(kind) @ b.astype(kind)).astype(sum_type(a))
        assert right.shape == (128, 128) and is_right(a, b, right)
        for place in ((0, 0), (127, 64)):
            wrong = right.copy()
            wrong[place] += 1 if of_integers else max(1, abs(wrong[place]) / 64)
            assert not is_right(a, b, wrong)


def test_sums_of_float16_are_wrong() -> None:
    for a, b in samples(of_integers=False):
        sums = np.zeros((128, 128), np.float16)
        for step in range(a.shape[1]):
            sums += np.outer(a[:, step], b[step])
        assert not is_right(a, b, sums)


def test_ordinary_products_use_no_matrix_units() -> None:
    for of_integers in (False, True):
        (kernel,) = product_program(None, (256, 256, 256), of_integers=of_integers).kernels
        assert "subgroup" not in kernel.wgsl
