"""Cases of the suite ``driver``: a kernel in plain WGSL, its inputs, and the results that WGSL allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common.errors import NotSupported
from dmlgpu.conformance.cases.tolerance import EXACT, Array, ulp_distance
from dmlgpu.conformance.running.outcome import Verdict, compare
from dmlgpu.conformance.running.places import describe_places
from dmlgpu.conformance.suites.driver.intervals import Interval
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.executor import ShaderBackend
from dmlgpu.tensors.kernels import Kernel


@dataclass(frozen=True, eq=False)
class Accepted:
    """Results of an output that WGSL allows.

    Attributes:
        interval: Interval of each element.
        view: Dtype of the elements that are packed into the words of the output; defaults to the dtype of the output.
    """

    interval: Interval
    view: str = ""


Expectation: TypeAlias = Array | Accepted
Judged: TypeAlias = Mapping[str, tuple[Array, Expectation]]
"""Results and their expectations, by a name for messages."""


@dataclass(frozen=True, eq=False)
class KernelCase:
    """A kernel with its inputs and expected results.

    Attributes:
        source: WGSL with the entry point ``main``.
        inputs: Contents of bindings by name; an output that has one is not in ``outputs``.
        expected: Expectations by output; other outputs are not compared.
        grid: Number of workgroups.
        outputs: Shape and dtype of the outputs that start with zeros.
        features: Features that the adapter needs.
        judge: Returns the results and expectations to compare instead of ``expected``, from the results by output: if
            they depend on the order of invocations, or on subgroups.
    """

    source: str
    inputs: Mapping[str, Array]
    expected: Mapping[str, Expectation]
    grid: tuple[int, ...] = (1,)
    outputs: Mapping[str, tuple[tuple[int, ...], Any]] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    judge: Callable[[Mapping[str, Array]], Judged] | None = None

    def run(self, name: str, device: Device) -> Verdict:
        """Run the kernel and return the verdict on the output with the most wrong elements.

        Raises:
            NotSupported: If the adapter lacks a feature, or runs no shaders.
            ShaderError: If the kernel does not compile.
        """
        if not isinstance(device.backend, ShaderBackend):
            raise NotSupported(f"{device.adapter} runs no kernels of users")
        for feature in self.features:
            if feature not in device.adapter.features:
                raise NotSupported(f"{device.adapter} lacks the feature {feature}")
        kernel = Kernel(self.source, name=name)
        results = kernel(**self.inputs, outputs=self.outputs, grid=self.grid, device=device)
        arrays = results if isinstance(results, tuple) else (results,)
        named = {binding.name: np.asarray(array) for binding, array in zip(kernel.outputs, arrays, strict=True)}
        if self.judge is None:
            judged: Judged = {output: (named[output], expected) for output, expected in self.expected.items()}
        else:
            judged = self.judge(named)
        verdicts = {output: _verdict(expected, result) for output, (result, expected) in judged.items()}
        worst = max(verdicts, key=lambda output: (not verdicts[output].ok, verdicts[output].wrong))
        verdict = verdicts[worst]
        return verdict if verdict.ok or len(verdicts) == 1 else replace(verdict, problem=f"output {worst!r}")


def _verdict(expected: Expectation, result: Array) -> Verdict:
    if not isinstance(expected, Accepted):
        return compare(expected, result, EXACT)
    return _within(expected.interval, result.view(expected.view) if expected.view else result)


def _within(interval: Interval, results: Array) -> Verdict:
    """Return the verdict on results that must be in an interval; the expected result is its middle."""
    low, high = (np.broadcast_to(side, results.shape) for side in (interval.low, interval.high))
    interval = Interval(low, high)
    wrong = ~interval.accepts(results)
    with np.errstate(invalid="ignore"):  # signaling NaN
        numbers = results.astype(np.float64)
    is_free = interval.is_free
    middle = np.where(is_free, numbers, np.where(is_free, 0, low) / 2 + np.where(is_free, 0, high) / 2)
    with np.errstate(all="ignore"):
        half = np.where(is_free, 1.0, high - middle)
        distance = np.abs(numbers - middle)
        errors: NDArray[np.float64] = np.where(distance == 0, 0.0, distance / half)
    errors = np.where(is_free, 0.0, np.where(np.isfinite(errors), errors, np.inf))
    errors = np.where(wrong, np.maximum(errors, np.nextafter(1.0, 2)), np.minimum(errors, 1.0))
    worst = tuple(int(index) for index in np.unravel_index(int(errors.argmax()), errors.shape))
    nearest = middle.astype(results.dtype)
    ulps = ulp_distance(nearest, results)
    ulps = np.where(is_free, 0.0, ulps)
    return Verdict(
        ok=not wrong.any(),
        of_bound=float(errors[worst]),
        max_ulp=float(ulps[worst]),
        mean_ulp=float(ulps[np.isfinite(ulps)].mean()) if np.isfinite(ulps).any() else 0.0,
        wrong=int(wrong.sum()),
        elements=results.size,
        worst=worst,
        expected=nearest[worst],
        got=results[worst],
        bound=float(half[worst]),
        places=describe_places(wrong),
    )
