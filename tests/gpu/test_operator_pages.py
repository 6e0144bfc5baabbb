"""The first example of every operator's page, run as it stands on every adapter."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
from pages.operators import page

import dmlgpu
from dmlgpu import Device, NotSupported, evaluate
from dmlgpu.catalog import operator
from dmlgpu.compiler import operators
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime import device as devices


@pytest.fixture(scope="module")
def device(adapter: AdapterInfo) -> Iterator[Device]:
    """A device on each adapter."""
    device = Device(adapter)
    yield device
    device.remove()


@pytest.mark.parametrize("stem", sorted(name.lower() for name in operators.implemented()))
def test_the_example_of_a_page(stem: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, rest = page(operator(stem)).partition("```python\n")
    code, _, _ = rest.partition("```")
    assert "assert" in code
    monkeypatch.setattr(dmlgpu, "evaluate", functools.partial(evaluate, device=device))
    monkeypatch.setattr(devices._Default, "by_environment", device)
    names: dict[str, Any] = {}
    try:
        exec(code, names)
    except NotSupported as reason:
        pytest.skip(str(reason))
