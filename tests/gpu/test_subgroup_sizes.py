"""Kernels whose workgroups combine values by subgroups, for every size of subgroups: their operations are replaced by
equal ones in workgroup memory, which any adapter runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.special
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.catalog.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.program_cache import without_files
from dmlgpu.compiler.target import Profile
from dmlgpu.compiler.wgsl.writer import ShaderWriter
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc

F32, I32, I64, U8, U32 = (DataType[name] for name in ("FLOAT32", "INT32", "INT64", "UINT8", "UINT32"))
FUNCTION = re.compile(r"^fn (\w+)\(mine: (\w+), subgroup: u32, lane: u32, size: u32\).*?^}$", re.MULTILINE | re.DOTALL)
MAIN = re.compile(r"^@compute.*^}$", re.MULTILINE | re.DOTALL)
BUILTINS = re.compile(r"@builtin\(subgroup_id\) subgroup: u32, .*?\) lanes: u32")
PLACES = {
    "subgroupShuffleXor": "me / {lanes}u * {lanes}u + (me % {lanes}u ^ other)",
    "subgroupShuffle": "me / {lanes}u * {lanes}u + other",
    "subgroupBroadcastFirst": "me / {lanes}u * {lanes}u",
}


def emulated(text: str, lanes: int) -> str:
    """Return the source of a kernel with its subgroup operations in workgroup memory."""
    workgroup = re.search(r"@workgroup_size\((\d+)\)", text)
    if workgroup is None or "@builtin(subgroup_id)" not in text:
        return text
    number = "@builtin(local_invocation_index) me_here: u32"
    helpers = ""

    def renamed(region: str, name: str, accumulator: str, me: str) -> str:
        nonlocal helpers
        for operation, place in PLACES.items():
            if f"{operation}(" not in region:
                continue
            own = f"{name}_{operation}"
            words = "vec2<u32>" if f"{operation}(words_of" in region else accumulator
            helpers += (
                f"var<workgroup> {own}_values: array<{words}, {workgroup[1]}>;\n"
                f"fn {own}(value: {words}, other: u32, me: u32) -> {words} {{\n    {own}_values[me] = value;\n"
                f"    workgroupBarrier();\n    let result = {own}_values[{place.format(lanes=lanes)}];\n"
                f"    workgroupBarrier();\n    return result;\n}}\n"
            )
            region = re.sub(rf"{operation}\((.*?\))(?:, ([^,;]*?))?\)(?=[;)])", _call(own, me), region)
        return region

    text = FUNCTION.sub(lambda match: renamed(match[0], match[1], match[2], f"(subgroup * {lanes}u + lane)"), text)
    exchanged = "bits_t" if "bits_t" in text else "record_t"  # of scans, of sorting
    text = MAIN.sub(lambda match: renamed(match[0], "main", exchanged, "me"), text)
    text = BUILTINS.sub(number, text)
    start = f"let lanes = {lanes}u; let subgroup = me_here / lanes; let lane = me_here % lanes;"
    text = text.replace("    let me = subgroup * lanes + lane;", f"    {start}\n    let me = me_here;")
    assert not re.search(r"\bsubgroup[A-Z]\w*\(|@builtin\(subgroup", text)
    return text + helpers


def _call(function: str, me: str) -> Callable[[re.Match[str]], str]:
    return lambda match: f"{function}({match[1]}, {match[2] or '0u'}, {me})"


@pytest.fixture(params=[4, 16, 32, 64, 128])
def lanes(backend: GpuBackend, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A size of subgroups that all kernels are run with."""
    if backend.info.backend == "OpenGL":
        pytest.skip("takes long to compile the same text")
    size: int = request.param
    finish = ShaderWriter.finish
    kernels: list[bool] = []

    def finished(writer: ShaderWriter, text: str) -> tuple[str, set[str]]:
        body, used = finish(writer, text)
        kernels.append(BUILTINS.search(body) is not None)
        return emulated(body, size), used | {"workgroup", "workgroupBarrier"}

    monkeypatch.setattr(ShaderWriter, "finish", finished)
    with without_files():
        yield size
    assert any(kernels)


def run(backend: GpuBackend, desc: OperatorDesc, array: NDArray[Any], lanes: int) -> list[NDArray[Any]]:
    features = (backend.target.features | {"subgroup"}) - {"immediates"}
    target = replace(backend.target.exact, name=f"{lanes} lanes", profile=Profile.DISCRETE, features=features)
    return list(run_desc(backend, desc, [array], replace(target, subgroup_lanes=4)))


def tensor(data_type: DataType, *sizes: int) -> TensorDesc:
    return TensorDesc(data_type, sizes)


def numbers(*sizes: int) -> NDArray[np.float32]:
    return np.random.default_rng(sizes[-1]).standard_normal(sizes).astype(np.float32)


@pytest.mark.parametrize("count", [33, 132, 260, 1000, 5000])
def test_softmax(backend: GpuBackend, lanes: int, count: int) -> None:
    x = numbers(3, count)
    rows = tensor(F32, *x.shape)
    (y,) = run(backend, descs.ActivationSoftmax1(input_tensor=rows, output_tensor=rows, axes=(1,)), x, lanes)
    np.testing.assert_allclose(y, scipy.special.softmax(x.astype(float), 1), 1e-6)


@pytest.mark.parametrize(
    ("function", "data_type", "expected"),
    [
        (ReduceFunction.SUM, F32, lambda x: x.astype(float).sum(1)),
        (ReduceFunction.SUM, I64, lambda x: x.sum(1)),
        (ReduceFunction.MAX, U8, lambda x: x.max(1)),
        (ReduceFunction.L2, F32, lambda x: np.sqrt((x.astype(float) ** 2).sum(1))),
        (ReduceFunction.LOG_SUM_EXP, F32, lambda x: scipy.special.logsumexp(x.astype(float), 1)),
        (ReduceFunction.MULTIPLY, I32, lambda x: np.prod(x, 1, dtype=np.int32)),
        (ReduceFunction.ARGMIN, I32, lambda x: x.argmin(1)),
    ],
)
def test_reduce(
    backend: GpuBackend, lanes: int, function: ReduceFunction, data_type: DataType, expected: Callable[..., Any]
) -> None:
    for count in (140, 1001):
        x = np.random.default_rng(count).integers(0 if data_type is U8 else -100, 101, (5, count))
        x = x.astype(data_type.numpy)
        desc = descs.Reduce(
            function=function,
            input_tensor=tensor(data_type, *x.shape),
            output_tensor=tensor(U32 if function is ReduceFunction.ARGMIN else data_type, 5, 1),
            axes=(1,),
        )
        (y,) = run(backend, desc, x, lanes)
        np.testing.assert_allclose(y[:, 0], expected(x), 3e-7)


def test_layer_normalization(backend: GpuBackend, lanes: int) -> None:
    x = numbers(3, 516) + 100
    rows = tensor(F32, *x.shape)
    desc = descs.MeanVarianceNormalization1(
        input_tensor=rows, output_tensor=rows, axes=(1,), normalize_variance=True, epsilon=1e-5
    )
    (y,) = run(backend, desc, x, lanes)
    wide = x.astype(float)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, expected, 1e-4, 1e-4)


@pytest.mark.parametrize("data_type", [F32, I64, I32])
@pytest.mark.parametrize("count", [100, 1025, 9000])
def test_running_sums(backend: GpuBackend, lanes: int, count: int, data_type: DataType) -> None:
    x = np.random.default_rng(count).integers(-100, 101, (2, count)).astype(data_type.numpy)
    lines = tensor(data_type, *x.shape)
    for exclusive in (False, True):
        desc = descs.CumulativeSummation(
            input_tensor=lines,
            output_tensor=lines,
            axis=1,
            axis_direction=AxisDirection.INCREASING,
            has_exclusive_sum=exclusive,
        )
        (y,) = run(backend, desc, x, lanes)
        np.testing.assert_array_equal(y, np.cumsum(x, 1) - (x if exclusive else 0))


@pytest.mark.parametrize("data_type", [F32, I64])
@pytest.mark.parametrize("count", [40, 300, 700])
def test_sorting(backend: GpuBackend, lanes: int, count: int, data_type: DataType) -> None:
    x = np.random.default_rng(count).integers(-100, 101, (3, count)).astype(data_type.numpy)
    desc = descs.TopK1(
        input_tensor=tensor(data_type, *x.shape),
        output_value_tensor=tensor(data_type, *x.shape),
        output_index_tensor=tensor(U32, *x.shape),
        axis=1,
        k=count,
        axis_direction=AxisDirection.INCREASING,
    )
    values, places = run(backend, desc, x, lanes)
    np.testing.assert_array_equal(places, np.argsort(x, 1, kind="stable"))
    np.testing.assert_array_equal(values, np.sort(x, 1))
