"""The rendered text is standard WGSL: literals that their types hold."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu.wgsl.expressions import literal
from dmlgpu.wgsl.types import Scalar
from tests.quick_programs import PROFILES, quick_programs

pytestmark = pytest.mark.xdist_group("rendered kernels")

LARGEST = {Scalar.F32: Fraction(float(np.finfo(np.float32).max)), Scalar.F16: Fraction(65504)}
_DECIMAL = re.compile(r"(?<![\w.])(?:\d+\.\d*|\.\d+|\d+(?=[ef]))(?:e[+-]?\d+)?")
_COMMENT = re.compile(r"//[^\n]*")


def decimals(text: str) -> set[str]:
    """The decimal floating-point literals of a text, without suffix."""
    return set(_DECIMAL.findall(_COMMENT.sub("", text)))


def texts(profile):
    programs, _ = quick_programs(profile)
    return {kernel.wgsl for made in programs.values() for kernel in (*made.initialization, *made.kernels)}


@pytest.mark.parametrize("profile", PROFILES)
def test_no_literal_exceeds_float32(profile):
    """Rounding would bring some back to the largest float32; WGSL refuses them all the same."""
    found = set().union(*map(decimals, texts(profile)))
    assert len(found) > 100
    assert {text for text in found if Fraction(text) > LARGEST[Scalar.F32]} == set()


@pytest.mark.parametrize("kind", LARGEST)
@given(number=st.floats(width=32) | st.floats(width=16))
def test_a_literal_never_exceeds_its_type(kind, number):
    written = decimals(literal(number, kind))
    assert all(Fraction(text) <= LARGEST[kind] for text in written)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (65504.0, "f16(65504.0f)"),
        (65519.0, "f16(65504.0f)"),
        (65520.0, "f16(bitcast<f32>(0x7f800000u | params.zero))"),
        (-1e30, "f16(bitcast<f32>(0xff800000u | params.zero))"),
        (0.3, "f16(0.30000001192092896f)"),
    ],
)
def test_what_a_half_cannot_hold_is_rounded_beforehand(number, text):
    """A constant beyond the largest half is an error in WGSL, not an infinity."""
    assert literal(number, Scalar.F16) == text
