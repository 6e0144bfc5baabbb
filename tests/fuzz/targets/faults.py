"""Findings on purpose, a kind per seed, by which the tests see that a campaign notices them."""

from __future__ import annotations

import os
import threading
import time

import numpy as np

from tests.fuzz.monitor import CPU_LIMIT, Monitor


def _raw() -> None:
    raise KeyError("raw")


def _thread() -> None:
    thread = threading.Thread(target=_raw)
    thread.start()
    thread.join()


def _busy() -> None:
    end = time.thread_time() + 1.1 * CPU_LIMIT
    while time.thread_time() < end:
        pass


FAULTS = (
    lambda: None,
    _raw,
    os.abort,
    lambda: time.sleep(3600),
    lambda: np.ones(1 << 36, np.uint8),
    lambda: np.ones(1 << 29, np.uint8).sum(),
    _busy,
    _thread,
)
"""Nothing, an exception, an abort, a hang, too much memory, much memory, too long, an exception in a thread."""


def run(seed: int, monitor: Monitor) -> None:
    monitor.call(FAULTS[seed])
