"""tinygrad through Dawn: functions of device tensors as calls that run once and wait, to measure beside ours.

Needs ``pip install .[peers]``. tinygrad takes the adapter that Dawn prefers: on a machine with one, the same as ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from platform import machine
from typing import Any

import numpy as np
from harness import Call
from numpy.typing import NDArray

SUFFIX = "dylib" if sys.platform == "darwin" else "so"

try:
    import pydawn

    (_library,) = (Path(pydawn.__file__).parent / "lib").glob(f"*_{machine()}.{SUFFIX}")
    os.environ |= {"DEV": "WEBGPU", "WEBGPU_PATH": str(_library)}  # tinygrad reads them when it is imported
    import tinygrad
except ImportError as error:
    raise SystemExit(f"{error}: install the benchmarks' peers with: pip install .[peers]") from error

WARM_UP = 3
"""Runs after which tinygrad replays what it has captured."""


def upload(array: NDArray[np.float32]) -> Any:
    """A tensor on the device."""
    return tinygrad.Tensor(array).realize()


def call(function: Callable[[Any], Any], inputs: Sequence[NDArray[np.float32]]) -> Call:
    """A function of one tensor, captured once and replayed; call number n takes the n-th input."""
    device = tinygrad.Device["WEBGPU"]
    captured = tinygrad.TinyJit(lambda x: function(x).realize())
    tensors = [upload(array) for array in inputs]

    def run(number: int) -> object:
        result = captured(tensors[number % len(tensors)])
        device.synchronize()
        return result

    for number in range(WARM_UP):
        run(number)
    return run
