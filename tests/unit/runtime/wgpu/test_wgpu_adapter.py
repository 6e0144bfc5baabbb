"""Descriptions of adapters, and messages of compile errors, without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.common.memory import host_memory
from dmlgpu.compiler.program import KernelSource, RenderedKernel
from dmlgpu.compiler.target import SCHEDULES_VARIABLE, AdapterInfo, Profile
from dmlgpu.runtime.rendered import excerpt
from dmlgpu.runtime.wgpu.adapter import describe, subgroup_lanes, target_of
from dmlgpu.runtime.wgpu.native import NATIVE
from dmlgpu.runtime.wgpu.pipelines import compile_error

LIMITS = {
    "max-storage-buffers-per-shader-stage": 10,
    "max-compute-workgroups-per-dimension": 65535,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-storage-size": 16384,
    "max-storage-buffer-binding-size": 1 << 30,
    "max-immediate-size": 128,
}
CARD = AdapterInfo("Radeon RX", "Vulkan", "discrete", "AMD", "RADV Mesa 24.1.0", ("immediates", "shader-f16"), LIMITS)
SOFT = AdapterInfo("llvmpipe (LLVM 15.0.6, 256 bits)", "Vulkan", "cpu", "llvmpipe", "Mesa 25.0.7 (LLVM 15)", (), LIMITS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llvmpipe (LLVM 15.0.6, 256 bits)", 8),
        ("llvmpipe (LLVM 19.1.7, 512 bits)", 16),
        ("llvmpipe (LLVM 15.0.7, 128 bits)", 4),
        ("llvmpipe", 4),
        ("SwiftShader Device (Subzero)", 4),
        ("Radeon RX (256 bits)", 4),
    ],
)
def test_subgroups_are_as_wide_as_llvmpipe_says(name: str, expected: int) -> None:
    assert subgroup_lanes(AdapterInfo(name, "Vulkan", "cpu", "", "")) == expected


def test_describe_keeps_the_features_of_the_list_only() -> None:
    raw = {
        "device": "X",
        "backend_type": "Metal",
        "adapter_type": "IntegratedGPU",
        "vendor": "apple",
        "description": "",
    }
    info = describe(NATIVE, raw, {"texture-compression-bc", "shader-f16", "immediates"}, {"max-buffer-size": 5})
    assert info == AdapterInfo(
        "X", "Metal", "integrated", "apple", "", ("immediates", "shader-f16"), {"max-buffer-size": 5}
    )
    assert str(info) == "Metal: X"
    assert describe(NATIVE, {**raw, "adapter_type": "Unknown"}, (), {}).kind == "unknown"


@pytest.mark.parametrize(
    ("requested", "kind", "profile"),
    [
        ("gpu", "cpu", Profile.DISCRETE),
        ("cpu", "cpu", Profile.CPU),
        ("cpu", "discrete", Profile.CPU),
        ("gpu", "integrated", Profile.INTEGRATED),
        ("gpu", "unknown", Profile.DISCRETE),
    ],
)
def test_the_environment_selects_schedules(monkeypatch, requested: str, kind: str, profile: Profile) -> None:
    monkeypatch.setenv(SCHEDULES_VARIABLE, requested)
    assert target_of(replace(CARD, kind=kind)).profile is profile


def test_unknown_schedules_of_the_environment_are_rejected(monkeypatch) -> None:
    monkeypatch.setenv(SCHEDULES_VARIABLE, "GPU")
    with pytest.raises(InvalidArgument, match="DMLGPU_SCHEDULES must be one of cpu, gpu, got 'GPU'"):
        target_of(CARD)


def test_target_takes_over_limits_and_features() -> None:
    target = target_of(CARD, deterministic=True)
    assert target.profile is Profile.DISCRETE
    assert target.features == {"immediates", "shader-f16"}
    assert target.policies.deterministic
    assert target.max_storage_buffers == 10
    assert target.max_binding_size == 1 << 30
    assert target.max_workgroup_invocations == 256
    assert target_of(SOFT).profile is Profile.CPU


def test_a_target_avoids_the_quirks_of_its_driver() -> None:
    old = replace(SOFT, driver="4.5 (Core Profile) Mesa 22.3.6", backend="OpenGL")
    assert (target_of(old).loop_limit, target_of(SOFT).loop_limit) == (65535, None)


def test_target_without_disabled_features_and_small_immediates() -> None:
    assert target_of(CARD, disabled_features=["shader-f16"]).features == {"immediates"}
    small = AdapterInfo("Y", "Vulkan", "unknown", "", "", ("immediates",), {**LIMITS, "max-immediate-size": 32})
    assert target_of(small).features == frozenset()
    assert target_of(small).profile is Profile.DISCRETE


@pytest.mark.parametrize(
    ("kind", "is_used"), [("cpu", True), ("integrated", False), ("discrete", False), ("unknown", False)]
)
def test_only_software_adapters_have_their_memory_read_in_place(kind: str, is_used: bool) -> None:
    """wgpu warns of the feature on discrete GPUs."""
    features = ("immediates", "mappable-primary-buffers")
    target = target_of(AdapterInfo("Y", "Vulkan", kind, "", "", features, LIMITS))
    assert target.features == set(features if is_used else features[:1])


def test_copies_pay_on_software_adapters_of_few_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert (target_of(SOFT).least_copy, target_of(CARD).least_copy) == (65536, None)
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    assert target_of(SOFT).least_copy is None


def test_host_memory_is_plausible() -> None:
    memory = host_memory()
    assert memory is None or 1 << 28 < memory < 1 << 50


def test_excerpt_at_both_ends() -> None:
    source = "\n".join(f"line {index}" for index in range(1, 13))
    assert excerpt(source, 1) == "> 1 | line 1\n  2 | line 2\n  3 | line 3\n  4 | line 4"
    assert excerpt(source, 11) == ("   8 | line 8\n   9 | line 9\n  10 | line 10\n> 11 | line 11\n  12 | line 12")


def test_compile_error_without_a_place() -> None:
    error = RuntimeError(
        "Validation Error\n\nCaused by:\n  In f\n    Error matching\n      Unable to find entry point 'main'"
    )
    kernel = RenderedKernel("map", KernelSource(""), (), (1, 1, 1))
    assert compile_error("SLICE1", kernel, "X", error) == (
        "SLICE1: kernel 'map' does not compile on X: Unable to find entry point 'main'"
    )
