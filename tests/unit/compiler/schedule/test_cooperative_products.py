"""Products by cooperative matrices, and requests for the feature."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler import operators
from dmlgpu.compiler.program import Checks
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.schedule.steps.cooperative import ScheduledCooperative
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import COOPERATIVE, AdapterInfo, Policies, Profile, Target
from dmlgpu.runtime.wgpu import cooperative, native
from dmlgpu.runtime.wgpu.context import matrix_support

GPU = Target(
    "GPU",
    Profile.DISCRETE,
    frozenset({COOPERATIVE, "subgroup"}),
    max_workgroup_storage=32768,
    policies=Policies(checked=False),
)
F16, F32 = DataType.FLOAT16, DataType.FLOAT32
CARD = AdapterInfo("Card", "Vulkan", "discrete", "maker", "driver 1")


def gemm(rows: int, inner: int, columns: int, data_type: DataType = F16) -> descs.Gemm:
    a, b, output = (
        TensorDesc(data_type, (1, 1, *sizes)) for sizes in ((rows, inner), (inner, columns), (rows, columns))
    )
    return descs.Gemm(a_tensor=a, b_tensor=b, output_tensor=output)


def schedules(desc: descs.Gemm, target: Target) -> list[type]:
    return [type(step) for step in schedule(operators.lower(desc), target).steps]


@pytest.mark.parametrize(
    ("desc", "target"),
    [
        (gemm(128, 32, 128), replace(GPU, features=frozenset({"subgroup"}))),
        (gemm(128, 32, 128), replace(GPU, profile=Profile.CPU)),
        (gemm(128, 32, 128), GPU.with_policies(precise=True)),
        (gemm(128, 32, 128), GPU.with_overrides(schedule="shared")),
        (gemm(128, 32, 128), replace(GPU, max_workgroup_storage=8192)),
        (gemm(128, 32, 128, F32), GPU),
        (gemm(128, 24, 128), GPU),
        (gemm(127, 32, 128), GPU),
        (gemm(128, 32, 192), GPU),
    ],
)
def test_other_products_keep_their_schedules(desc: descs.Gemm, target: Target) -> None:
    assert schedules(gemm(128, 32, 128), GPU) == [ScheduledCooperative]
    assert ScheduledCooperative not in schedules(desc, target)


def test_slabs_fill_workgroup_memory() -> None:
    """16 KiB of slabs of 32 steps and 4 KiB of sums, or half the slabs."""
    (large,) = compile_operator(gemm(128, 32, 128), GPU).kernels
    (small,) = compile_operator(gemm(128, 32, 128), replace(GPU, max_workgroup_storage=16384)).kernels
    assert "a_slab: array<f16, 4096>" in large.wgsl and "a_slab: array<f16, 2048>" in small.wgsl
    assert large.checks is Checks.NONE
    assert large.wgsl.split("\n")[:2] == ["enable f16;", "enable wgpu_cooperative_matrix;"]


class _Adapter:
    """An adapter that records what is requested."""

    def __init__(self, features: set[str], error: str = ""):
        self.features, self.error, self.requested = features, error, []

    def request_device_sync(self, *, label: str, required_features: list[str]) -> Any:
        self.requested.append(required_features)
        if self.error and COOPERATIVE in required_features:
            raise RuntimeError(self.error)
        return required_features


REJECTED = "Validation Error\n\nCaused by:\n  Some experimental features, X, were requested, but they are not enabled\n"


@pytest.fixture(autouse=True)
def plain_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "without_cycle", lambda device: device)


@pytest.mark.parametrize(
    ("features", "error", "disabled", "expected"),
    [
        (cooperative.NEEDED, "", (), [["cooperative-matrix", "shader-f16", "subgroup"]]),
        (cooperative.NEEDED, REJECTED, (), [["cooperative-matrix", "shader-f16", "subgroup"], ["subgroup"]]),
        (cooperative.NEEDED, "", ("shader-f16",), [["subgroup"]]),
        ({"subgroup", "shader-f16"}, "", (), [["subgroup"]]),
    ],
)
def test_devices_are_asked_for_matrix_units(
    features: set[str], error: str, disabled: tuple[str, ...], expected: list[list[str]]
) -> None:
    adapter = _Adapter(set(features), error)
    cooperative.request_device(adapter, {"subgroup"}, disabled)
    assert adapter.requested == expected


def test_a_rejection_is_described() -> None:
    text = matrix_support(_Adapter(set(cooperative.NEEDED), REJECTED), CARD)
    assert text == (
        "cooperative-matrix is not used, because wgpu-native rejects it: "
        "Some experimental features, X, were requested, but they are not enabled"
    )
    assert matrix_support(_Adapter({"subgroup"}), CARD) == ""
