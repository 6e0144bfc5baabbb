"""What the tests of the pages share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def adapter_environment() -> dict[str, str]:
    """The environment of a process that computes on the adapter `numpy`."""
    return {**os.environ, "DMLGPU_ADAPTER": "numpy"}
