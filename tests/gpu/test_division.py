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
        ("a * (1.0 / b)", "sqrt(x)"),
        ("a / b", "x * inverseSqrt(x)"),
        ("select(a / b, 0.0, abs(b) > 1e38)", "sqrt(x)"),
    ],
)
def test_operations_that_round_otherwise_are_found(
    quotient: str, root: str, backend: GpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(division._OPERATIONS, Division.NATIVE, (quotient, root))
    assert Division.NATIVE not in division.measure(backend.wgpu_device)
