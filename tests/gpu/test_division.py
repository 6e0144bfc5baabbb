"""Which quotients and square roots of an adapter are exact, as a kernel measures it."""

from __future__ import annotations

import pytest

from dmlgpu.compiler.target import Division
from dmlgpu.runtime.wgpu import GpuBackend, division


def test_software_rasterizers_divide_exactly(backend: GpuBackend) -> None:
    if not backend.info.is_software:
        pytest.skip(f"{backend.info} may divide as it likes")
    assert Division.NATIVE in division.measure(backend.wgpu_device)


@pytest.mark.parametrize(
    ("quotient", "root"),
    [
        ("pair.x * (1.0 / pair.y)", "sqrt(abs(pair.x))"),
        ("pair.x / pair.y", "abs(pair.x) * inverseSqrt(abs(pair.x))"),
        ("select(pair.x / pair.y, 0.0, abs(pair.y) > 1e38)", "sqrt(abs(pair.x))"),
    ],
)
def test_operations_that_round_otherwise_are_found(
    quotient: str, root: str, backend: GpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(division._OPERATIONS, Division.NATIVE, (quotient, root))
    assert Division.NATIVE not in division.measure(backend.wgpu_device)
