"""Products by cooperative matrices on adapters without them: functions take the place of the operations on matrices.

This shows that tiles, slabs, sums and epilogues are right, and whether the measurement of adapters finds mistakes.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog.enums import DataType, MatrixTransform, TensorFlags
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler.program import Program, RenderedKernel
from dmlgpu.compiler.schedule import cooperative as cooperative_products
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import SOFTWARE_FLOAT16, Matrices, MatrixDialect, Profile, Target
from dmlgpu.compiler.wgsl import matrices as writers
from dmlgpu.compiler.wgsl.matrices import MatrixWriter
from dmlgpu.runtime.wgpu import GpuBackend, cooperative
from dmlgpu.runtime.wgpu.measured import seconds_of
from dmlgpu.runtime.wgpu.native import NATIVE
from tests.gpu import descriptions
from tests.gpu.gpu_programs import with_text
from tests.gpu.test_packed_products import PRODUCTS as INTEGERS
from tests.gpu.test_packed_products import product as product_of_integers

F16 = DataType.FLOAT16
UNITS = Matrices(
    4,
    16,
    8,
    block=2,
    lanes=32,
    floats=Matrices(4, 16, 8, block=2, lanes=32, component="f32"),
    integers=Matrices(4, 16, 8, block=2, lanes=32, component="i8"),
)
"""Sizes that differ, so that none can stand in for another."""

FUNCTIONS = """
var<private> lane: u32;
var<private> lanes: u32;
var<private> matrices: array<f32, 64>;  // this lane's elements of four matrices of sums
fn multiply_add(a: u32, b: u32, sums: u32) -> u32 {
    for (var i = lane; i < 64u; i += lanes) {
        var sum = matrices[sums + i / lanes];
        for (var k = 0u; k < 8u + opaque_zero(); k++) {
            sum += a_slab[a][A_PLACE] * b_slab[b][B_PLACE];
        }
        matrices[sums + i / lanes] = sum;
    }
    return sums;
}
fn store_rows(sums_place: u32, first: u32) {
    for (var i = lane; i < 64u; i += lanes) { sums[first + i] = matrices[sums_place + i / lanes]; }
}
"""
"""Matrices of sums as places in private memory, of the operands as their numbers in slabs."""

INTEGER_FUNCTIONS = FUNCTIONS.replace("f32", "i32").replace(
    "a_slab[a][A_PLACE] * b_slab[b][B_PLACE]",
    "extractBits(a_slab[(a + A_PLACE) / 4u], (a + A_PLACE) % 4u * 8u, 8u)"
    " * extractBits(b_slab[(b + B_PLACE) / 4u], (b + B_PLACE) % 4u * 8u, 8u)",
)
"""The same of integers, four to a word of the slabs; places count integers."""


class Emulated(MatrixWriter):
    """Calls of ``FUNCTIONS``."""

    extensions = ()

    def __init__(self, units: Matrices):
        super().__init__(units)
        self._sums = itertools.count(0, 16)

    def zero(self) -> str:
        return f"{next(self._sums)}u"

    def _load(self, name: str, slab: str, index: str, stride: int, *, row_major: bool) -> str:
        row, column = ("(i / 16u)", "k") if name == "a" else ("k", "(i % 16u)")
        if not row_major:
            row, column = column, row
        number = slab.partition("[")[2].rpartition("]")[0]
        return f"{number or index} /* {name}: {row} * {stride}u + {column} */"

    def multiply_add(self, a: str, b: str, sums: str) -> str:
        return f"multiply_add({a}, {b}, {sums})"

    def store(self, sums: str, array: str, index: str, stride: int = 0) -> str:
        return f"store_rows({sums}, {index})"

    def load_sums(self, array: str, index: str, stride: int) -> str:
        raise NotImplementedError("products do not load sums")


def emulated(kernel: RenderedKernel) -> RenderedKernel:
    """The kernel with the functions, and float32 in place of float16."""
    wgsl, of_integers = kernel.wgsl, "integers" in kernel.label
    for pattern, replacement in (
        *([(r"enable f16;\n", ""), (r"\bf16\b", "f32")] if "enable f16" in wgsl else []),
        (
            r"@builtin\(subgroup_id\) subgroup: u32,\n",
            r"\g<0>@builtin(subgroup_invocation_id) l: u32, @builtin(subgroup_size) s: u32,",
        ),
        (r"    let number = group", "    lane = l; lanes = s;\n\\g<0>"),
    ):
        wgsl, count = re.subn(pattern, replacement, wgsl)
        assert count, pattern
    functions = INTEGER_FUNCTIONS if of_integers else FUNCTIONS
    for name in "ab":
        (place,) = set(re.findall(rf"/\* {name}: (.*?) \*/", wgsl))
        functions = functions.replace(f"{name.upper()}_PLACE", place)
    return with_text(kernel, wgsl + functions)


@pytest.fixture
def target(backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target with matrix units, whose kernels are emulated."""
    if not backend.target.has("subgroup"):
        pytest.skip("cooperative matrices belong to subgroups")

    def compile_emulated(desc: OperatorDesc, target: Target) -> Program:
        program = compile_operator(desc, target)
        kernels = (emulated(kernel) if "cooperative" in kernel.label else kernel for kernel in program.kernels)
        return replace(program, kernels=tuple(kernels))

    monkeypatch.setattr(writers, "WRITERS", dict.fromkeys(MatrixDialect, Emulated))
    monkeypatch.setattr("dmlgpu.compiler.wgsl.steps.cooperative.WRITERS", writers.WRITERS)
    monkeypatch.setattr(descriptions.compiler, "compile_operator", compile_emulated)
    exact = backend.target.exact
    return replace(exact, profile=Profile.DISCRETE, float16=SOFTWARE_FLOAT16, matrices=UNITS)


def _stored(array: np.ndarray, padding: int) -> tuple[TensorDesc, np.ndarray]:
    """The description of an array whose rows lie apart, and the array."""
    *outer, rows, columns = array.shape
    stride = columns + padding
    strides = (outer[1] * rows * stride, rows * stride, stride, 1)
    return TensorDesc(F16, array.shape, strides), array


@pytest.mark.parametrize(
    ("sizes", "stored", "units"),
    [
        ((2, 1, 32, 48, 128), ("", 0), UNITS),  # slabs of 16 steps
        ((1, 2, 16, 64, 64), ("a", 0), replace(UNITS, block=1, turns=False)),
        ((1, 1, 20, 36, 36), ("b", 4), replace(UNITS, block=1)),  # partial tiles and slabs
        ((1, 3, 17, 17, 35), ("ab", 3), replace(UNITS, block=1)),  # element by element
        ((1, 1, 9, 31, 33), ("", 2), replace(UNITS, block=1, turns=False)),
    ],
)
def test_products_are_those_of_numpy(
    backend: GpuBackend,
    target: Target,
    sizes: tuple[int, int, int, int, int],
    stored: tuple[str, int],
    units: Matrices,
) -> None:
    """``stored`` names the operands that are transposed, and elements between rows."""
    transposed, padding = stored
    batch, channels, rows, inner, columns = sizes
    rng = np.random.default_rng(3)
    # Small integers, whose sums are exact in any order.
    a = rng.integers(-4, 5, (batch, channels, rows, inner)).astype(np.float16)
    b = rng.integers(-4, 5, (batch, channels, inner, columns)).astype(np.float16)
    c = rng.integers(-9, 9, (1, 1, 1, columns)).astype(np.float16)
    as_stored = (array.swapaxes(2, 3) if name in transposed else array for name, array in (("a", a), ("b", b)))
    whole = (batch, channels, rows, columns)
    transforms = [MatrixTransform.TRANSPOSE if name in transposed else MatrixTransform.NONE for name in "ab"]
    (a_desc, a_array), (b_desc, b_array) = (_stored(array, padding) for array in as_stored)
    desc = descs.Gemm(
        a_tensor=a_desc,
        b_tensor=b_desc,
        c_tensor=TensorDesc(F16, whole, (0, 0, 0, 1)),
        output_tensor=TensorDesc(F16, whole),
        trans_a=transforms[0],
        trans_b=transforms[1],
        alpha=1.0,
        beta=2.0,
        fused_activation=descs.ActivationRelu(),
    )
    inputs = [a_array, b_array, np.broadcast_to(c, whole)]
    (result,) = descriptions.run_desc(backend, desc, inputs, replace(target, matrices=units))
    (kernel,) = compile_operator(desc, replace(target, matrices=units)).kernels
    assert "cooperative" in kernel.label
    expected = a.astype(np.float32) @ b.astype(np.float32) + 2 * c.astype(np.float32)
    np.testing.assert_array_equal(result, np.maximum(expected, 0).astype(np.float16))


def _tensor(array: np.ndarray, channels_last: bool) -> TensorDesc:
    """The description of images or filters, with channels innermost or not."""
    _, channels, height, width = array.shape
    strides = (channels * height * width, 1, width * channels, channels) if channels_last else None
    return TensorDesc(F16, array.shape, strides)


@dataclass(frozen=True)
class Windows:
    """A convolution: batch, channels and groups, filters, sides of the image and of the window; which of input, filter
    and output have channels innermost."""

    sizes: tuple[int, int, int, int, int, int, int]
    stride: int = 1
    dilation: int = 1
    padding: int = 1
    channels_last: str = ""
    flags: TensorFlags = TensorFlags.NONE


@pytest.mark.parametrize(
    ("windows", "units"),
    [
        (Windows((2, 32, 1, 16, 8, 8, 3)), UNITS),
        (Windows((1, 20, 1, 9, 9, 7, 3), stride=2, flags=TensorFlags.OWNED_BY_DML), replace(UNITS, turns=False)),
        (Windows((1, 34, 2, 16, 7, 8, 3), dilation=2, padding=2), UNITS),  # groups of 17 channels
        (Windows((1, 16, 1, 32, 8, 5, 3), padding=0, channels_last="io"), UNITS),  # in units of channels
        (Windows((1, 18, 1, 32, 8, 5, 3), channels_last="o"), replace(UNITS, block=1)),
        (Windows((1, 24, 1, 16, 8, 8, 2), channels_last="if"), replace(UNITS, block=1)),
        (Windows((1, 24, 1, 16, 8, 8, 1), stride=2), replace(UNITS, block=1)),  # outside of the image
    ],
)
def test_convolutions_are_those_of_numpy(
    backend: GpuBackend, target: Target, windows: Windows, units: Matrices
) -> None:
    batch, channels, groups, filters, height, width, side = windows.sizes
    rng = np.random.default_rng(4)
    images = rng.integers(-4, 5, (batch, channels, height, width)).astype(np.float16)
    taps = rng.integers(-4, 5, (filters, channels // groups, side, side)).astype(np.float16)
    bias = rng.integers(-9, 9, (1, filters, 1, 1)).astype(np.float16)
    expected = np.maximum(_convolved(images, taps, windows) + bias, 0).astype(np.float16)
    last = windows.channels_last
    desc = descs.Convolution(
        input_tensor=_tensor(images, "i" in last),
        filter_tensor=replace(_tensor(taps, "f" in last), flags=windows.flags),
        bias_tensor=TensorDesc(F16, bias.shape),
        output_tensor=_tensor(expected, "o" in last),
        strides=(windows.stride,) * 2,
        dilations=(windows.dilation,) * 2,
        start_padding=(windows.padding,) * 2,
        end_padding=(windows.padding,) * 2,
        group_count=groups,
        fused_activation=descs.ActivationRelu(),
    )
    own = replace(target, matrices=units).with_overrides(schedule="cooperative")
    (result,) = descriptions.run_desc(backend, desc, [images, taps, bias], own)
    assert "cooperative" in compile_operator(desc, own).kernels[-1].label
    np.testing.assert_array_equal(result, expected)


def _convolved(images: np.ndarray, taps: np.ndarray, windows: Windows) -> np.ndarray:
    """The convolution by NumPy, in float32: sums of small integers are exact."""
    groups, extent = windows.sizes[2], windows.dilation * (taps.shape[-1] - 1) + 1
    padding = ((0, 0), (0, 0), *((windows.padding,) * 2,) * 2)
    views = np.lib.stride_tricks.sliding_window_view(np.pad(images, padding), (extent, extent), (2, 3))
    seen = views[:, :, :: windows.stride, :: windows.stride, :: windows.dilation, :: windows.dilation]
    parts = zip(np.split(seen.astype(np.float32), groups, 1), np.split(taps.astype(np.float32), groups), strict=True)
    return np.concatenate([np.einsum("nchwij,ocij->nohw", *part) for part in parts], 1)


@pytest.mark.parametrize("tile", [(2, 1), (1, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("name", INTEGERS)
def test_products_of_integers_are_exact(
    backend: GpuBackend, target: Target, name: str, tile: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tiles of several blocks, and in parts."""
    desc, inputs, expected = product_of_integers(name)
    monkeypatch.setattr(cooperative_products, "_fastest", lambda *_: tile)
    own = replace(target, name=str(tile)).with_overrides(schedule="cooperative")
    assert "cooperative integers" in compile_operator(desc, own).kernels[0].label
    (result,) = descriptions.run_desc(backend, desc, inputs, own)
    np.testing.assert_array_equal(result, expected)


def test_convolutions_of_integers_are_exact(backend: GpuBackend, target: Target) -> None:
    """Padding stands for the zero point."""
    rng = np.random.default_rng(6)
    images, taps = rng.integers(0, 256, (2, 8, 9, 7)).astype(np.uint8), rng.integers(-128, 128, (16, 8, 3, 3))
    expected = np.einsum("nchwij,ocij->nohw", _seen(images.astype(np.int64) - 130, 3, 1), taps)
    zero = np.array([[[[130]]]], np.uint8)
    desc = descs.ConvolutionInteger(
        input_tensor=TensorDesc(DataType.UINT8, images.shape),
        input_zero_point_tensor=TensorDesc(DataType.UINT8, zero.shape),
        filter_tensor=TensorDesc(DataType.INT8, taps.shape),
        output_tensor=TensorDesc(DataType.INT32, expected.shape),
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(1, 1),
        end_padding=(1, 1),
        group_count=1,
    )
    own = target.with_overrides(schedule="cooperative")
    assert "cooperative integers" in compile_operator(desc, own).kernels[-1].label
    (result,) = descriptions.run_desc(backend, desc, [images, zero, taps.astype(np.int8)], own)
    np.testing.assert_array_equal(result, expected)


def _seen(images: np.ndarray, side: int, padding: int) -> np.ndarray:
    """What windows see of padded images."""
    padded = np.pad(images, ((0, 0), (0, 0), *((padding,) * 2,) * 2))
    return np.lib.stride_tricks.sliding_window_view(padded, (side, side), (2, 3))


@pytest.fixture
def product(target: Target) -> RenderedKernel:
    """The product that adapters are measured by."""
    return cooperative.rendered_product(UNITS, "float16")


@pytest.mark.parametrize("own", [1.0, 2.0])
@pytest.mark.parametrize("numbers", ["float16", "float32", "int8"])
def test_right_products_are_usable_if_they_are_faster(
    backend: GpuBackend, target: Target, numbers: str, own: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"matrix_multiply_integer packed" if numbers == "int8" else "gemm shared": 1.5}
    product = cooperative.rendered_product(UNITS, numbers)
    labels: list[str] = []
    monkeypatch.setattr(cooperative, "matrix_units", lambda adapter: UNITS)
    monkeypatch.setattr(cooperative, "rendered_product", _renderer(product, cooperative.rendered_product, labels))
    monkeypatch.setattr(cooperative, "seconds_of", lambda *_, **__: seconds.get(labels.pop(0), own))
    monkeypatch.setattr(NATIVE, "create_unchecked_module", lambda *_, **__: None)
    measure = {
        "float16": cooperative.measure,
        "float32": cooperative.measure_floats,
        "int8": cooperative.measure_integers,
    }[numbers]
    assert measure(backend.wgpu_device) == ({"equal", "faster"} if own < 1.5 else {"equal"})


def _renderer(product: RenderedKernel, rendered: object, labels: list[str]) -> object:
    """``rendered_product`` with an emulated product to check, which notes the kernels that are timed."""

    def render(units: Matrices | None, numbers: str, *sizes: tuple[int, int, int]) -> RenderedKernel:
        if not sizes:
            return product
        kernel = rendered(units, numbers, *sizes)  # type: ignore[operator]
        labels.append(kernel.label.removesuffix(" x4"))
        return kernel

    return render


ITERATIONS = """@group(0) @binding(0) var<storage, read_write> counts: array<u32>;
@compute @workgroup_size(1) fn main() {
    for (var i = 0u; i < counts[0]; i++) { counts[1] = (counts[1] ^ i) * 3u; }
}"""


def test_kernels_are_timed(backend: GpuBackend) -> None:
    """Ten thousand times the iterations take longer, also on a machine that does other things."""
    module = backend.wgpu_device.create_shader_module(code=ITERATIONS)
    few, many = (
        seconds_of(backend.wgpu_device, module, [np.array([count, 1], np.uint32)], workgroups=(1,), enough=1e-3)
        for count in (100, 1_000_000)
    )
    assert 0 < few < many


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("a_mine + 4u", "a_mine + 0u"),  # another matrix
        ("* b_slab[b][(i % 16u)", "* b_slab[b][(i / 16u)"),  # other columns
        ("sum += ", "sum = bitcast<f32>(bitcast<u32>(sum) & 0xffffe000u) + "),  # sums of float16
    ],
)
def test_wrong_products_are_not(
    backend: GpuBackend, product: RenderedKernel, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert right in product.wgsl
    monkeypatch.setattr(cooperative, "matrix_units", lambda adapter: Matrices())
    monkeypatch.setattr(
        cooperative, "rendered_product", lambda *_, **__: with_text(product, product.wgsl.replace(right, wrong))
    )
    assert cooperative.measure(backend.wgpu_device) == frozenset()
