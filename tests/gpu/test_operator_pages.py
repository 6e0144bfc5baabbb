"""The example of every operator's page, run as it stands on every adapter."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dmlgpu
from dmlgpu import Device, NotSupported, evaluate
from dmlgpu.target import AdapterInfo

PAGES = sorted((Path(__file__).parents[2] / "docs" / "operators").glob("[!R]*.md"))


@pytest.fixture(scope="module")
def device(adapter: AdapterInfo) -> Iterator[Device]:
    """A device on each adapter."""
    device = Device(adapter)
    yield device
    device.remove()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_example_of_a_page(page: Path, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, rest = page.read_text(encoding="utf-8").partition("```python\n")
    code, _, _ = rest.partition("```")
    assert "assert" in code
    monkeypatch.setattr(dmlgpu, "evaluate", functools.partial(evaluate, device=device))
    names: dict[str, Any] = {}
    try:
        exec(code, names)
    except NotSupported as reason:
        pytest.skip(str(reason))
