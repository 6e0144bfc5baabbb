"""Products by cooperative matrices, which no driver of the tests has: each invocation computes whole matrices instead.

This shows that tiles, slabs, sums and epilogues are right, and whether the measurement of adapters finds mistakes.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog.enums import DataType, MatrixTransform
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import COOPERATIVE, SOFTWARE_FLOAT16, Profile, Target
from dmlgpu.runtime.wgpu import GpuBackend, cooperative
from tests.gpu import descriptions
from tests.gpu.gpu_programs import with_text

F16 = DataType.FLOAT16

FUNCTIONS = """
var<private> lane: u32;
var<private> lanes: u32;
var<private> matrices: array<f32, 1024>;  // this lane's elements of 16 matrices of sums
fn multiply_add(a: u32, b: u32, c: u32) {
    for (var i = lane; i < 256u; i += lanes) {
        var sum = matrices[c + i / lanes];
        for (var k = 0u; k < 16u + opaque_zero(); k++) {
            sum += a_slab[a + (i / 16u) * DEPTH + k] * b_slab[b + (i % 16u) * DEPTH + k];
        }
        matrices[c + i / lanes] = sum;
    }
}
fn store_rows(c: u32, first: u32) {
    for (var i = lane; i < 256u; i += lanes) { sums[first + i] = matrices[c + i / lanes]; }
}
"""
"""Matrices of sums as places in private memory, of the operands as places in their slabs."""

LOADS = r"let ([ab]\d) = coopLoadT?<coop_mat16x16<f16, [AB]>>\(&[ab]_slab\[(.*?)\], \d+u\);"
MULTIPLICATIONS = r"( +sum\d_\d = coopMultiplyAdd\(a\d, b\d, sum\d_\d\);\n){16}"
STORE = (
    r" +if \(subgroup < 4u\) \{ coopStoreT\(sum(\d)_(\d), &sums\[subgroup \* 256u\], 16u\); \}\n"
    r" +workgroupBarrier\(\);\n"
    r" +keep\(0u, batch, row \+ (\d+)u, column \+ (\d+)u, (sum_t\(.*\))\);\n"
    r" +workgroupBarrier\(\);\n"
)
"""Lines that become loops, because drivers take long to compile many copies of a function."""

MULTIPLY_ALL = """
    var a_places = array<u32, 4>(a0, a1, a2, a3);
    var b_places = array<u32, 4>(b0, b1, b2, b3);
    for (var pair = 0u; pair < 16u + opaque_zero(); pair++) {
        multiply_add(a_places[pair / 4u], b_places[pair % 4u], pair * 64u);
    }
"""
STORE_ALL = """
    for (var matrix = 0u; matrix < 16u + opaque_zero(); matrix++) {
        if (subgroup < 4u) { store_rows(matrix * 64u, subgroup * 256u); }
        workgroupBarrier();
        keep(0u, batch, row + matrix / 4u * 16u, column + matrix % 4u * 4u, SUMS);
        workgroupBarrier();
    }
"""


def emulated(wgsl: str) -> str:
    """The text with functions in place of cooperative matrices."""
    slab = re.search(r"coopLoadT<.*?, (\d+u)\);", wgsl)
    if slab is None:
        return wgsl
    blocks = re.findall(STORE, wgsl)
    places = [(row, column) for row in "0123" for column in "0123"]
    assert [block[:4] for block in blocks] == [(r, c, str(16 * int(r)), str(4 * int(c))) for r, c in places]
    sums = re.findall(r"sum(\d_\d) = coopMultiplyAdd\(a(\d), b(\d), sum(\d_\d)\)", wgsl)
    assert sums[:16] == [(f"{r}_{c}", r, c, f"{r}_{c}") for r, c in places]
    for pattern, replacement in (
        (r"enable (?:f16|wgpu_cooperative_matrix);\n", ""),
        (r" +var sum\d_\d = coop_mat16x16<f32, C>\(\);\n", ""),
        (LOADS, r"let \1 = \2;"),
        (MULTIPLICATIONS, MULTIPLY_ALL),
        (f"(?:{STORE}){{16}}", STORE_ALL.replace("SUMS", blocks[0][4])),
        (
            r"@builtin\(subgroup_id\) subgroup: u32,\n",
            r"\g<0>@builtin(subgroup_invocation_id) l: u32, @builtin(subgroup_size) s: u32,",
        ),
        (r"    let number = group", "    lane = l; lanes = s;\n\\g<0>"),
        (r"\bf16\b", "f32"),
    ):
        wgsl, count = re.subn(pattern, replacement, wgsl)
        assert count, pattern
    assert "coop" not in wgsl.partition("fn main")[2]
    return wgsl + FUNCTIONS.replace("DEPTH", slab[1])


@pytest.fixture
def target(backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target with the feature, whose kernels are emulated."""
    if not backend.target.has("subgroup"):
        pytest.skip("cooperative matrices belong to subgroups")

    def compile_emulated(desc: descs.Gemm, target: Target) -> Program:
        program = compile_operator(desc, target)
        assert any("cooperative" in kernel.label for kernel in program.kernels)
        kernels = tuple(with_text(kernel, emulated(kernel.wgsl)) for kernel in program.kernels)
        return replace(program, kernels=kernels)

    monkeypatch.setattr(descriptions.compiler, "compile_operator", compile_emulated)
    features = backend.target.exact.features | {COOPERATIVE}
    return replace(backend.target, profile=Profile.DISCRETE, features=features, float16=SOFTWARE_FLOAT16)


@pytest.mark.parametrize(
    ("sizes", "transposed", "has_c"),
    [
        ((2, 1, 128, 48, 256), "", True),  # slabs of 16 steps
        ((1, 2, 128, 64, 128), "a", True),
        ((1, 1, 256, 32, 128), "b", False),
    ],
)
def test_products_are_those_of_numpy(
    backend: GpuBackend,
    target: Target,
    sizes: tuple[int, int, int, int, int],
    transposed: str,
    has_c: bool,
) -> None:
    batch, channels, rows, inner, columns = sizes
    rng = np.random.default_rng(3)
    # Small integers, whose sums are exact in any order.
    a = rng.integers(-4, 5, (batch, channels, rows, inner)).astype(np.float16)
    b = rng.integers(-4, 5, (batch, channels, inner, columns)).astype(np.float16)
    c = rng.integers(-9, 9, (1, 1, 1, columns)).astype(np.float16)
    stored = [array.swapaxes(2, 3) if name in transposed else array for name, array in (("a", a), ("b", b))]
    whole = (batch, channels, rows, columns)
    transforms = [MatrixTransform.TRANSPOSE if name in transposed else MatrixTransform.NONE for name in "ab"]
    spread = TensorDesc(F16, whole, (0, 0, 0, 1)) if has_c else None
    desc = descs.Gemm(
        a_tensor=TensorDesc(F16, stored[0].shape),
        b_tensor=TensorDesc(F16, stored[1].shape),
        c_tensor=spread,
        output_tensor=TensorDesc(F16, whole),
        trans_a=transforms[0],
        trans_b=transforms[1],
        alpha=1.0,
        beta=2.0,
    )
    inputs = [*map(np.ascontiguousarray, stored), *([np.broadcast_to(c, whole)] if has_c else [])]
    (result,) = descriptions.run_desc(backend, desc, inputs, target)
    expected = a.astype(np.float32) @ b.astype(np.float32) + (2 * c.astype(np.float32) if has_c else 0)
    np.testing.assert_array_equal(result, expected.astype(np.float16))


def test_right_products_are_usable(backend: GpuBackend, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = cooperative.rendered_product()
    monkeypatch.setattr(cooperative, "rendered_product", lambda: with_text(kernel, emulated(kernel.wgsl)))
    assert cooperative.measure(backend.wgpu_device) == {cooperative.EQUAL}


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("first_row + 256u", "first_row + 0u"),  # another matrix
        ("b_slab[b + (i % 16u)", "b_slab[b + (i / 16u)"),  # other columns
        ("sum += ", "sum = bitcast<f32>(bitcast<u32>(sum) & 0xffffe000u) + "),  # sums of float16
    ],
)
def test_wrong_products_are_not(
    backend: GpuBackend, target: Target, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = cooperative.rendered_product()
    text = emulated(kernel.wgsl)
    assert right in text
    monkeypatch.setattr(cooperative, "rendered_product", lambda: with_text(kernel, text.replace(right, wrong)))
    assert cooperative.measure(backend.wgpu_device) == frozenset()
