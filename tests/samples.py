"""Samples of cases: a different part on each adapter, all with ``--profile full``."""

from __future__ import annotations

import zlib

import pytest


def share_and_place(request: pytest.FixtureRequest, share: int, *names: object) -> tuple[int, int]:
    """Return the number of parts of the cases, and the index of this one, for an adapter and other parameters of a
    test."""
    share = 1 if request.config.getoption("--profile") == "full" else share
    return share, zlib.crc32(" ".join(map(str, names)).encode()) % share
