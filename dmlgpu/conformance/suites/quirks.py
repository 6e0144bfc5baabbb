"""The suite of quirks: for each known fault of a driver (``compiler/quirks.toml``) a shader that shows it.

A name has that of the quirk: ``quirk-mesa-loops``. The shader is run as it is, so the suite finds the fault whether
kernels avoid it or not. On the adapters of the quirk a failure is expected.
"""

from __future__ import annotations

import time

import numpy as np

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.quirks import quirks
from dmlgpu.conformance.cases.keys import PROFILES
from dmlgpu.conformance.cases.tolerance import EXACT
from dmlgpu.conformance.running.outcome import Outcome, compare
from dmlgpu.conformance.suites.registry import Suite
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.kernels import Kernel


class QuirkSuite(Suite):
    """A case for each quirk, the same in all profiles."""

    profiles = PROFILES

    def names(self, profile: str) -> tuple[str, ...]:
        return tuple(quirk.case for quirk in quirks())

    def has(self, name: str) -> bool:
        return any(quirk.case == name for quirk in quirks())

    def run(self, name: str, device: Device) -> Outcome:
        """Run the shader of a quirk.

        Raises:
            InvalidArgument: If no quirk has this case.
            NotSupported: On an adapter that runs no shaders.
            ShaderError: If the shader does not compile.
        """
        quirk = next((quirk for quirk in quirks() if quirk.case == name), None)
        if quirk is None:
            raise InvalidArgument(f"{name!r} names no case of a quirk")
        start = time.perf_counter()
        kernel = Kernel(quirk.wgsl, name=quirk.name)
        words = np.asarray(kernel(np.array(quirk.before, np.uint32), grid=1, device=device))
        verdict = compare(np.array(quirk.after, np.uint32), words, EXACT)
        return Outcome.of_verdict(name, str(EXACT), verdict, time.perf_counter() - start)
