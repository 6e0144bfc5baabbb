"""Networks of one kind on each adapter: kernels that other sizes share compute what the reference does."""

from __future__ import annotations

import pytest

from dmlgpu.conformance.suites.graphs import GraphExpectation
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.specialization import Specialize, Specializer
from dmlgpu.runtime.wgpu import GpuBackend
from tests.samples import share_and_place
from tests.unit.compiler.sizes.test_networks import pairs

SHAPES = [
    (2, 4, 6, 8),
    (3, 8, 10, 12),
    (1, 8, 10, 12),
    (1, 4, 6, 8),
    (3, 1, 6, 8),
    (2, 4, 1, 8),
    (2, 4, 6, 1),
    (5, 3, 7, 9),
    (2, 8, 10, 16),
]
"""The second one is planned on symbols; others have sizes of 1, divide by less, or suit other tiles."""

SHARE = 32
"""Of how many pairs one runs; all do with ``--profile full``."""


@pytest.mark.slow
def test_sizes_of_one_kind(
    device: Device,
    backend: GpuBackend,
    schedules: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    share, place = share_and_place(request, SHARE, device.adapter, schedules)
    monkeypatch.setattr(backend, "specializer", Specializer(Specialize.AUTO))
    monkeypatch.setattr(backend, "target", backend.target.with_policies(precise=True))  # else it rounds within Winograd
    computed = 0
    for index, pair in enumerate(pairs()):
        for sizes in SHAPES if index % share == place else ():
            try:
                expected = GraphExpectation.of_example(pair.example(sizes))
            except Exception:  # some need even sizes
                continue
            for verdict in expected.verdicts(device, ()):
                assert verdict.ok, f"{pair} of {sizes}: {verdict}"
                computed += 1
    assert computed > 400 // share
