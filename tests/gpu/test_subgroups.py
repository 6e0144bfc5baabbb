"""The measurement of subgroups, and devices whose subgroups are not what kernels assume."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dmlgpu import Device, TensorDesc, descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.target import Profile
from dmlgpu.runtime.wgpu import GpuBackend, context, measured, probes, subgroups
from tests.gpu.descriptions import run_desc

ROWS = TensorDesc(DataType.FLOAT32, (3, 1000))
SOFTMAX = descs.ActivationSoftmax1(input_tensor=ROWS, output_tensor=ROWS, axes=(1,))


@pytest.fixture
def with_subgroups(backend: GpuBackend) -> GpuBackend:
    """A backend whose adapter has the feature."""
    if not backend.target.has("subgroup"):
        pytest.skip("no feature subgroup")
    return backend


def test_subgroups_of_software_adapters_are_full(with_subgroups: GpuBackend) -> None:
    assert subgroups.measure(with_subgroups.wgpu_device) == {subgroups.FULL}


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("subgroup * lanes + lane", "subgroup * lanes + lane / 2u"),
        ("subgroup * lanes + lane", "subgroup * lanes * 2u + lane"),
        ("subgroupShuffleXor(value, {distance}u)", "value"),
        ("subgroupBroadcastFirst(me)", "me"),
        ("subgroupShuffle(me, size - 1u - subgroup % size)", "subgroupShuffle(me, 0u)"),
    ],
)
def test_wrong_subgroups_are_noticed(
    with_subgroups: GpuBackend, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_KERNEL", "_SHUFFLE"):
        monkeypatch.setattr(subgroups, name, getattr(subgroups, name).replace(right, wrong))
    assert subgroups.measure(with_subgroups.wgpu_device) == set()


@pytest.mark.parametrize("is_full", [True, False])
def test_gpus_are_measured_once(with_subgroups: GpuBackend, is_full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter passes for a GPU."""
    monkeypatch.setenv("DMLGPU_CACHE", "off")
    monkeypatch.delenv(probes.SUBGROUPS.variable, raising=False)
    monkeypatch.setattr(measured, "CACHED", {})
    results = [frozenset({subgroups.FULL} if is_full else ())]
    monkeypatch.setattr(probes, "PROBES", [replace(probes.SUBGROUPS, measure=lambda device: results.pop())])
    info, target = replace(with_subgroups.info, kind="discrete"), with_subgroups.target
    assert probes.with_facts(info, target).has("subgroup")
    for _ in range(2):
        target_of_gpu = context.with_measured_facts(with_subgroups.wgpu_device, info, target, ())
        assert target_of_gpu.has("subgroup") is is_full
    assert probes.with_facts(info, target).has("subgroup") is is_full


def test_a_device_without_subgroups_uses_none(with_subgroups: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_SUBGROUPS", "never")
    device = Device(with_subgroups.info)
    assert isinstance(device.backend, GpuBackend)
    assert not device.backend.target.has("subgroup")
    x = np.random.default_rng(1).standard_normal((3, 1000)).astype(np.float32)
    target = replace(device.backend.target.exact, profile=Profile.DISCRETE)
    (by_tree,) = run_desc(device.backend, SOFTMAX, [x], target)
    device.remove()
    target = replace(with_subgroups.target.exact, profile=Profile.DISCRETE)
    (by_subgroups,) = run_desc(with_subgroups, SOFTMAX, [x], target)
    np.testing.assert_allclose(by_tree, by_subgroups, 1e-6)
