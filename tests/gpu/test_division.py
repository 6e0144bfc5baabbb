"""Whether quotients and square roots of an adapter are exact, as a kernel measures it."""

from __future__ import annotations

import pytest

from dmlgpu.runtime.wgpu import GpuBackend, division


def test_software_rasterizers_divide_exactly(backend: GpuBackend) -> None:
    if not backend.info.is_software:
        pytest.skip(f"{backend.info} may divide as it likes")
    assert division.measure(backend.wgpu_device) == {division.EXACT}


@pytest.mark.parametrize(
    ("exact", "rounded"),
    [
        ("pair.x / pair.y", "pair.x * (1.0 / pair.y)"),
        ("sqrt(abs(pair.x))", "abs(pair.x) * inverseSqrt(abs(pair.x))"),
        ("pair.x / pair.y", "select(pair.x / pair.y, 0.0, abs(pair.y) > 1e38)"),
    ],
)
def test_operations_that_round_otherwise_are_found(
    exact: str, rounded: str, backend: GpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert exact in division._KERNEL
    monkeypatch.setattr(division, "_KERNEL", division._KERNEL.replace(exact, rounded))
    assert division.measure(backend.wgpu_device) == frozenset()
