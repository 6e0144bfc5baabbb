"""The adapter that ``--adapter`` names."""

from __future__ import annotations

import sys
import warnings

from dmlgpu.device.adapters import SoftwareAdapterWarning, choose
from dmlgpu.target import AdapterInfo


def choose_adapter(wanted: str | None, announce: bool = True) -> AdapterInfo:
    """The adapter whose number or part of a name is given; None leaves the choice to dmlgpu.

    A software adapter that nobody asked for is announced on standard error in one line, once in a process.

    Raises:
        AdapterNotFound: nothing matches; the message lists all adapters.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SoftwareAdapterWarning)
        info = choose(wanted, announce=announce)
    for warning in caught:
        print(f"dmlgpu: {warning.message}", file=sys.stderr)
    return info
