"""A suite whose results change in an altered environment: for tests of comparisons of adapters."""

from __future__ import annotations

import os

import numpy as np

from dmlgpu.common.errors import DmlError, NotSupported
from dmlgpu.conformance.cases.case import Array
from dmlgpu.conformance.cases.tolerance import EXACT, Ulp
from dmlgpu.conformance.drivers.pairwise import Allowance
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.runtime.device import Device

VARIABLE = "ALTERED"
"""Environment variable: 1 makes cases come out otherwise."""

NAMES = ("same-1", "near-1", "far-1", "bits-1", "unwritten-1", "alternatives-1", "refused-1", "raises-1", "crash-1")
ULP = np.float32(2**-23)


class AlteredSuite:
    """Each case's name says what happens where it is altered."""

    profiles = ("quick",)

    def names(self, profile: str) -> tuple[str, ...]:
        return NAMES

    def has(self, name: str) -> bool:
        return name in NAMES

    def run(self, name: str, device: Device) -> Outcome:
        wrong = self._is_altered and name.startswith("far")
        return Outcome(name, Status.FAIL if wrong else Status.PASS, "exact", digest="ab")

    def outputs(self, name: str, device: Device, poison: int) -> tuple[Array, ...]:
        kind = name.partition("-")[0]
        if self._is_altered and kind in ("refused", "raises", "crash"):
            getattr(self, kind)()
        if kind == "unwritten":
            return (np.full(4, poison, np.uint8),)
        if kind == "bits":
            return np.array([1, 2], np.int32), np.array([[3, 4 + self._is_altered]], np.int32)
        steps = {"near": 2, "far": 3, "alternatives": 100}.get(kind, 0) * self._is_altered
        return (np.array([2, 1 + steps * ULP], np.float32),)

    def allowance(self, name: str) -> Allowance:
        exact = name.startswith(("bits", "unwritten"))
        return Allowance(EXACT if exact else Ulp(1), is_unique=not name.startswith("alternatives"))

    @property
    def _is_altered(self) -> bool:
        return os.environ.get(VARIABLE) == "1"

    def refused(self) -> None:
        raise NotSupported("needs the adapter feature shader-f64")

    def raises(self) -> None:
        raise DmlError("output_tensor: 4 bytes were written out of bounds, the first at byte -4")

    def crash(self) -> None:
        os._exit(3)
