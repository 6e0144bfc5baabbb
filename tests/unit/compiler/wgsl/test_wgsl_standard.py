"""Rendered sources are standard WGSL: literals are in range, and extensions of naga require their feature."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Matrices, Profile, Target
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.expressions import literal
from dmlgpu.compiler.wgsl.types import Scalar
from dmlgpu.conformance.cases.registry import case_by_name
from tests.quick_programs import PROFILES, quick_programs

pytestmark = pytest.mark.xdist_group("rendered kernels")

LARGEST = {Scalar.F32: Fraction(float(np.finfo(np.float32).max)), Scalar.F16: Fraction(65504)}
_DECIMAL = re.compile(r"(?<![\w.])(?:\d+\.\d*|\.\d+|\d+(?=[ef]))(?:e[+-]?\d+)?")
_COMMENT = re.compile(r"//[^\n]*")


def decimals(text: str) -> set[str]:
    """Return the decimal floating-point literals of a source, without suffix."""
    return set(_DECIMAL.findall(_COMMENT.sub("", text)))


def texts_of(programs) -> set[str]:
    return {kernel.wgsl for program in programs for kernel in (*program.initialization, *program.kernels)}


def texts(profile):
    return texts_of(quick_programs(profile)[0].values())


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_no_literal_exceeds_float32(profile):
    """Rounding would bring some back to the largest float32; WGSL rejects them nevertheless."""
    numbers = set().union(*map(decimals, texts(profile)))
    assert len(numbers) > 100
    assert {text for text in numbers if Fraction(text) > LARGEST[Scalar.F32]} == set()


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
        (65520.0, "f16(bitcast<f32>(0x7f800000u | opaque_zero()))"),
        (-1e30, "f16(bitcast<f32>(0xff800000u | opaque_zero()))"),
        (0.3, "f16(0.30000001192092896f)"),
    ],
)
def test_constants_beyond_float16_are_rounded_beforehand(number, text):
    """A constant beyond the largest float16 is an error in WGSL, not an infinity."""
    assert literal(number, Scalar.F16) == text


# ---- extensions of naga


class Extension(NamedTuple):
    """A row of the table of extensions."""

    feature: str
    words: tuple[str, ...]
    files: tuple[str, ...]

    def stands_in(self, text: str) -> bool:
        """Return whether a type, keyword or suffix of a literal belongs to the extension."""
        return re.search(rf"(?:\b|(?<=\d))(?:{'|'.join(self.words)})\b", _COMMENT.sub("", text)) is not None


def extensions() -> list[Extension]:
    page = Path(__file__).parents[4].joinpath("docs/internals/wgsl.md").read_text(encoding="utf-8")
    table = page.partition("| extension of naga |")[2].partition("\n\n")[0]
    rows = [[re.findall(r"`([^`]+)`", cell) for cell in line.split("|")[1:4]] for line in table.splitlines()[2:]]
    return [Extension(feature, tuple(words), tuple(files)) for words, (feature,), files in rows]


EXTENSIONS = extensions()
WIDE = Target("Wide", features=frozenset(extension.feature for extension in EXTENSIONS), matrices=Matrices())


def test_the_extensions_of_naga_are_known():
    assert [extension.feature for extension in EXTENSIONS] == [
        *("shader-int64", "shader-f64", "immediates", "subgroup", "cooperative-matrix")
    ]


@pytest.mark.parametrize("extension", EXTENSIONS, ids=lambda extension: extension.feature)
class TestExtension:
    @pytest.mark.parametrize("profile", PROFILES)
    def test_it_is_not_used_without_its_feature(self, extension, profile):
        assert not [text for text in texts(profile) if extension.stands_in(text)]

    def test_it_is_used_with_its_feature(self, extension):
        names = (
            "element_wise_identity-float64-7x11-near-scaled-s0",
            "element_wise_add-int64-2x3-packed-s0",
            "convolution-float32-8x3x5x15-mixed-grouped-s0",
        )
        square = TensorDesc(DataType.FLOAT16, (1, 1, 128, 128))
        product = descs.Gemm(a_tensor=square, b_tensor=square, output_tensor=square)
        programs = [
            *(compile_operator(case_by_name(name).desc, WIDE) for name in names),
            compile_operator(product, replace(WIDE, profile=Profile.DISCRETE)),
        ]
        assert any(map(extension.stands_in, texts_of(programs)))

    def test_its_words_are_only_in_its_files(self, extension):
        files = [file for folder in templates.folders() for file in templates.files(folder)]
        used = {f"shaders/{file}.wgsl" for file in files if extension.stands_in(templates.source(file))}
        assert used == set(extension.files)
