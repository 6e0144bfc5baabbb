"""Products of float16 and integers on real matrix units, by Dawn: those of a GPU, or of llvmpipe from Mesa 26.1 on.

``scripts/test --all`` unpacks such a Mesa and runs this module on it. To run it on a driver of your own, name its
manifest: ``VK_DRIVER_FILES=/path/icd.json pytest tests/gpu/test_matrix_units.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import wgpu
from numpy.typing import NDArray
from onnx import TensorProto

from dmlgpu import Device, TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType, ExecutionFlags, MatrixTransform
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler.program import Program, RenderedKernel
from dmlgpu.compiler.schedule import cooperative as cooperative_products
from dmlgpu.compiler.schedule import cooperative_attention
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import MIN_LANES, Matrices, MatrixDialect, Target
from dmlgpu.conformance.cases.registry import OPERATOR_CASES, case_by_name
from dmlgpu.conformance.running.runner import run_case
from dmlgpu.runtime.browser import matrices as page_matrices
from dmlgpu.runtime.evaluate import run_compiled
from dmlgpu.runtime.wgpu import GpuBackend, cooperative, dawn_adapters, measured
from dmlgpu.runtime.wgpu.adapter import wgpu_adapter
from dmlgpu.runtime.wgpu.context import matrix_support
from dmlgpu.runtime.wgpu.measured import Probe
from dmlgpu.runtime.wgpu.probes import INTEGER_MATRICES, MATRICES
from tests.gpu import test_quantized_caches as caches
from tests.gpu.descriptions import run_desc
from tests.gpu.gpu_programs import with_text
from tests.gpu.test_packed_products import PRODUCTS as INTEGERS
from tests.gpu.test_packed_products import product as product_of_integers

INFO = next((info for info in dawn_adapters() if cooperative.matrix_units(wgpu_adapter(info)) is not None), None)
if INFO is None:
    pytest.skip("Dawn is not installed, or finds no adapter with matrix units", allow_module_level=True)

F16, F32 = DataType.FLOAT16, DataType.FLOAT32
OPERATION = "subgroupMatrixMultiplyAccumulate"


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    """A device that uses matrix units, also on llvmpipe."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DMLGPU_MATRICES", "always")
        device = Device(INFO)
        yield device
        device.remove()


@pytest.fixture
def backend(device: Device) -> GpuBackend:
    assert isinstance(device.backend, GpuBackend)
    return device.backend


def uses_matrices(desc: OperatorDesc, target: Target) -> bool:
    return any(OPERATION in kernel.wgsl for kernel in compile_operator(desc, target).kernels)


def stored(array: NDArray[Any], padding: int) -> tuple[TensorDesc, NDArray[Any]]:
    """The description of an array whose rows lie apart, and the array."""
    *outer, rows, columns = array.shape
    stride = columns + padding
    strides = (outer[1] * rows * stride, rows * stride, stride, 1)
    return TensorDesc(F16, array.shape, strides), array


@pytest.mark.parametrize(
    ("sizes", "storage", "changes"),
    [
        ((1, 1, 64, 32, 64), ("", 0), {"block": 2}),  # whole tiles
        ((2, 1, 48, 48, 96), ("a", 0), {}),  # whole tiles, slabs of 16 steps, batches
        ((1, 2, 48, 48, 96), ("a", 0), {"turns": False}),
        ((1, 1, 52, 40, 36), ("b", 4), {"turns": False}),  # partial tiles and slabs
        ((1, 3, 33, 17, 67), ("ab", 3), {}),  # element by element
        ((1, 1, 33, 17, 67), ("", 3), {"turns": False}),
        ((2, 1, 33, 100, 67), ("", 0), {"parts": 3}),  # the last part has 4 of 48 steps
    ],
)
def test_products_are_those_of_numpy(
    backend: GpuBackend,
    sizes: tuple[int, int, int, int, int],
    storage: tuple[str, int],
    changes: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``storage`` names the operands that are transposed, and the elements between rows."""
    changes = {"block": 1, "parts": 1, **changes}
    tile = changes["block"], changes.pop("parts")
    monkeypatch.setattr(cooperative_products, "_fastest", lambda *_: tile)
    transposed, padding = storage
    batch, channels, rows, inner, columns = sizes
    rng = np.random.default_rng(3)
    # Small integers, whose sums are exact in any order.
    a = rng.integers(-4, 5, (batch, channels, rows, inner)).astype(np.float16)
    b = rng.integers(-4, 5, (batch, channels, inner, columns)).astype(np.float16)
    c = rng.integers(-9, 9, (1, 1, 1, columns)).astype(np.float16)
    whole = (batch, channels, rows, columns)
    (a_desc, a_array), (b_desc, b_array) = (
        stored(array.swapaxes(2, 3) if name in transposed else array, padding) for name, array in (("a", a), ("b", b))
    )
    desc = descs.Gemm(
        a_tensor=a_desc,
        b_tensor=b_desc,
        c_tensor=TensorDesc(F16, whole, (0, 0, 0, 1)),
        output_tensor=TensorDesc(F16, whole),
        trans_a=MatrixTransform("a" in transposed),
        trans_b=MatrixTransform("b" in transposed),
        alpha=1.0,
        beta=2.0,
        fused_activation=descs.ActivationRelu(),
    )
    units = backend.target.matrices
    assert units is not None and units.dialect is MatrixDialect.TINT
    target = replace(backend.target, matrices=replace(units, **changes))
    assert uses_matrices(desc, target)
    (result,) = run_desc(backend, desc, [a_array, b_array, np.broadcast_to(c, whole)], target)
    expected = a.astype(np.float32) @ b.astype(np.float32) + 2 * c.astype(np.float32)
    np.testing.assert_array_equal(result, np.maximum(expected, 0).astype(np.float16))


@pytest.mark.parametrize("name", INTEGERS)
def test_products_of_integers_are_exact(backend: GpuBackend, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in tiles of one block and of several, or in parts."""
    tile = [(1, 1), (2, 1), (1, 2)][list(INTEGERS).index(name) % 3]
    monkeypatch.setattr(cooperative_products, "_fastest", lambda *_: tile)
    desc, inputs, expected = product_of_integers(name)
    target = replace(backend.target, name=str(tile)).with_overrides(schedule="cooperative")
    assert uses_matrices(desc, target)
    (result,) = run_desc(backend, desc, inputs, target)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("stem", "count"),
    [
        *[("gemm", 4), ("convolution", 3), ("gru", 1), ("lstm", 1), ("rnn", 1)],
        *[("matrix_multiply_integer", 2), ("matrix_multiply_integer_to_float", 2), ("convolution_integer", 2)],
        *[("quantized_linear_matrix_multiply", 2), ("quantized_linear_convolution", 2)],
    ],
)
def test_cases(device: Device, stem: str, count: int) -> None:
    """Cases of products, with all their epilogues, whose kernels use matrix units."""
    names = [name for name in OPERATOR_CASES[stem].names("standard") if "-float16-" in name or "int8-" in name]
    chosen = [name for name in names if uses_matrices(case_by_name(name).desc, device.backend.target)]
    assert chosen
    for name in chosen[:count]:
        verdict = run_case(case_by_name(name), device)
        assert verdict.ok, verdict


def rounded_product(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The product of operands that are rounded to float16, and the error that its sums may have."""
    with np.errstate(over="ignore"):
        a, b = (x.astype(np.float16).astype(np.float64) for x in (a, b))
    return a @ b, a.shape[-1] * 2.0**-23 * (np.abs(a) @ np.abs(b))


@pytest.mark.parametrize("flags", [ExecutionFlags.NONE, ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION])
def test_float32_is_rounded_if_the_operator_allows_it(
    device: Device, compiled: list[str], flags: ExecutionFlags
) -> None:
    """Sums are float32, and may exceed float16; an operand beyond its range becomes infinite."""
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal((1, 1, *sizes)).astype(np.float32) for sizes in ((48, 40), (40, 56)))
    a[0, 0, 1] *= 3e4
    b[..., 2] *= 8
    a[0, 0, 0, 0] = 1e5
    desc = descs.Gemm(
        a_tensor=TensorDesc(F32, a.shape),
        b_tensor=TensorDesc(F32, b.shape),
        output_tensor=TensorDesc(F32, (1, 1, 48, 56)),
    )
    operator = device.compile_operator(device.create_operator(desc), flags)
    (raw,) = run_compiled(operator, [a, b, None], [desc.a_tensor, desc.b_tensor, None], "GEMM")
    result = TensorDesc(F32, (1, 1, 48, 56)).decode(raw)[0, 0].astype(np.float64)
    (expected,), (error,) = (x[0] for x in rounded_product(a, b))
    if flags is ExecutionFlags.NONE:
        assert not any(OPERATION in text for text in compiled)
        wide = a[0, 0].astype(np.float64)
        assert np.all(np.abs(result - wide @ b[0, 0]) <= 40 * 2.0**-23 * (np.abs(wide) @ np.abs(b[0, 0])))
    else:
        assert any(OPERATION in text for text in compiled)
        assert np.isinf(result[0]).all() and np.isfinite(result[1:]).all() and np.abs(result[1]).max() > 65504
        assert np.all(np.abs(result - expected)[1:] <= error[1:])


@pytest.mark.parametrize("parts", [3, 5])
def test_convolutions_in_parts(device: Device, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over the taps of a window."""
    target = replace(device.backend.target, name=f"{parts} parts")
    monkeypatch.setattr(device.backend, "target", target)
    monkeypatch.setattr(cooperative_products, "_fastest", lambda *_: (1, parts))
    names = (name for name in OPERATOR_CASES["convolution"].names("standard") if "-float16-" in name)
    name = next(name for name in names if splits(case_by_name(name).desc, target))
    verdict = run_case(case_by_name(name), device)
    assert verdict.ok, verdict


def splits(desc: OperatorDesc, target: Target) -> bool:
    return any("cooperative split" in kernel.label for kernel in compile_operator(desc, target).kernels)


@pytest.fixture
def compiled(backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """WGSL of the kernels that the device compiles meanwhile."""
    texts: list[str] = []
    create = backend.context.library.create_module

    def record(device: Any, label: str, wgsl: str) -> Any:
        texts.append(wgsl)
        return create(device, label, wgsl)

    monkeypatch.setattr(backend.context.library, "create_module", record)
    return texts


def test_matmul_uses_them_by_itself(device: Device, compiled: list[str]) -> None:
    """Products are exact in float32, in which they are summed; results are rounded to float16."""
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((40, 96)).astype(np.float16), rng.standard_normal((96, 72)).astype(np.float16)
    result = np.asarray(ops.matmul(a, b, device=device)).astype(np.float64)
    exact, magnitude = a.astype(np.float64) @ b, np.abs(a.astype(np.float64)) @ np.abs(b)
    assert any(OPERATION in text for text in compiled)
    assert np.all(np.abs(result - exact) <= 96 * 2.0**-23 * magnitude + np.spacing(np.abs(exact).astype(np.float16)))


@pytest.mark.parametrize(
    "case",
    [
        ((2, 1), 24, False, 2),
        ((2, 2), 36, True, 1),  # with so many matrices of queries that they are used at once
        ((2, 2), 56, False, 2),  # with so many sums that subgroups share columns
        ((1, 1), 16, False, 1),
        ((1, 2), 12, True, 1),
        ((1, 2), 12, False, 4),  # eight invocations share a row, of which four exchange their largest scores
    ],
)
def test_attention_uses_them_by_itself(
    device: Device, compiled: list[str], case: tuple[tuple[int, int], int, bool, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores and sums are float32; weights and results are rounded to float16. Workgroups may have several times
    four subgroups, which repeat the work of the first four."""
    tile, head, is_causal, times = case
    backend = device.backend
    assert isinstance(backend, GpuBackend) and backend.target.matrices is not None
    matrices = replace(backend.target.matrices, lanes=times * backend.target.matrices.lanes)
    target = replace(backend.target, matrices=matrices, subgroup_lanes=MIN_LANES)
    monkeypatch.setattr(backend, "target", target)
    monkeypatch.setattr(cooperative_attention, "TILES", (tile,))
    rng = np.random.default_rng(5)
    query, key, value = (rng.standard_normal((2, 3, 72, head)).astype(np.float16) for _ in range(3))
    result = np.asarray(ops.attention(query, key, value, causal=is_causal, device=device)).astype(np.float64)
    scores = query.astype(np.float64) @ key.swapaxes(2, 3) / np.sqrt(head)
    if is_causal:
        scores = np.where(np.tri(72, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    assert any(OPERATION in text for text in compiled)
    magnitude = weights @ np.abs(value.astype(np.float64))
    assert np.all(
        np.abs(result - weights @ value) <= 2.0**-9 * magnitude + np.spacing(np.abs(result).astype(np.float16))
    )


@pytest.mark.parametrize("blocks", [1, 4])
def test_attention_dequantizes_int8_caches(device: Device, compiled: list[str], blocks: int) -> None:
    """Rows of a prompt see those before; each row and head of the caches has a number of scales."""
    sizes = caches.BATCH, caches.SHARED, caches.ROWS
    stored = [np.zeros((*sizes, caches.SIZE), np.int8)] * 2 + [np.zeros((*sizes, blocks), np.float32)] * 2
    session = caches.bound(caches.model(TensorProto.FLOAT16, blocks), device, stored)
    rng = np.random.default_rng(6)
    past, count = np.array([5, 0]), 32
    widths = {"query": caches.HEADS, "key": caches.SHARED, "value": caches.SHARED}
    new = {name: rng.standard_normal((caches.BATCH, count, width * caches.SIZE)) for name, width in widths.items()}
    inputs = {name: array.astype(np.float16) for name, array in new.items()}
    last = (past + count - 1).astype(np.int32)
    lengths = {"seqlens_k": last, "total": np.array(last.max() + 1, np.int32)}
    result = session.run(inputs | lengths)["output"]
    assert any(OPERATION in text and "dequantize" in text for text in compiled)
    expected, _ = caches.simulated(list(inputs.values()), stored, past, 0.0)
    # Keys, values, weights and results are rounded to float16.
    np.testing.assert_allclose(result, expected, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("data_type", [F16, F32])
def test_tint_takes_matrices_of_float32(backend: GpuBackend, data_type: DataType) -> None:
    """Those of Apple's GPUs: Tint validates the module, although the device has no such matrices."""
    floats = Matrices(8, 8, 8, lanes=32, dialect=MatrixDialect.TINT, component="f32")
    target = replace(backend.target.exact, matrices=replace(floats, floats=floats))
    a, b, output = (TensorDesc(data_type, (1, 2, *sizes)) for sizes in ((70, 40), (40, 66), (70, 66)))
    query, key, value, result = (TensorDesc(data_type, (1, 64, 2 * 32)) for _ in range(4))
    attention = descs.MultiheadAttention(
        query_tensor=query,
        key_tensor=key,
        value_tensor=value,
        output_tensor=result,
        scale=0.2,
        mask_filter_value=-1e4,
        head_count=2,
    )
    for desc in (descs.Gemm(a_tensor=a, b_tensor=b, output_tensor=output), attention):
        (text,) = (kernel.wgsl for kernel in compile_operator(desc, target).kernels if OPERATION in kernel.wgsl)
        assert "subgroup_matrix_left<f32, 8, 8>" in text
        backend.context.library.create_module(backend.wgpu_device, "floats", text)
        wrong = text.replace("<f32, 8, 8>", "<f33, 8, 8>")
        with pytest.raises(wgpu.GPUError, match="f33"):
            backend.context.library.create_module(backend.wgpu_device, "wrong", wrong)


def test_the_measurement_finds_them_right(backend: GpuBackend) -> None:
    assert cooperative.EQUAL in cooperative.measure(backend.wgpu_device)
    assert cooperative.EQUAL in cooperative.measure_integers(backend.wgpu_device)
    units = backend.target.matrices
    assert units is not None and units.integers is not None
    used = f"{units.size}, float16 with float32 sums; {units.integers.size}, int8 with int32 sums"
    assert matrix_support(wgpu_adapter(backend.info), backend.info) == used


@pytest.mark.parametrize("numbers", ["float16", "int8"])
def test_the_measurement_through_an_executor_finds_them_right(
    backend: GpuBackend, numbers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of pages, which WebGPU executors of this process run as well."""
    units = backend.target.matrices
    assert units is not None
    timed: list[Matrices | None] = []
    monkeypatch.setattr(page_matrices, "_are_faster", lambda backend, units, _: timed.append(units) or True)
    before = backend.allocated
    assert page_matrices.are_usable(backend, units, numbers)
    assert timed == [units] and backend.allocated == before
    render = page_matrices.product_program

    def wrong(*args: Any, **options: Any) -> Program:
        program = render(*args, **options)
        (kernel,) = program.kernels
        return replace(program, kernels=(with_text(kernel, kernel.wgsl.replace("true, ", "false, ")),))

    monkeypatch.setattr(page_matrices, "product_program", wrong)
    assert not page_matrices.are_usable(backend, units, numbers)


@pytest.mark.parametrize("probe", [MATRICES, INTEGER_MATRICES], ids=lambda probe: probe.name)
@pytest.mark.parametrize(
    ("change", "failure"),
    [
        (("true, ", "false, "), ""),  # another layout
        ((OPERATION, "multiply"), "unresolved call target 'multiply'"),
    ],
)
def test_the_measurement_finds_faults(
    backend: GpuBackend, probe: Probe, change: tuple[str, str], failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels that compute something else, and that do not compile."""
    text, replacement = change
    units = backend.target.matrices
    assert units is not None
    product = cooperative.rendered_product(units, "int8" if probe is INTEGER_MATRICES else "float16")
    assert text in product.wgsl
    wrong: RenderedKernel = with_text(product, product.wgsl.replace(text, replacement))
    monkeypatch.setattr(cooperative, "rendered_product", lambda *_: wrong)
    monkeypatch.setattr(measured, "CACHED", {})
    monkeypatch.setattr(measured, "FAILURES", {})
    assert probe.measured(backend.wgpu_device, backend.info) == frozenset()
    assert (failure in probe.failure(backend.info)) if failure else probe.failure(backend.info) == ""
