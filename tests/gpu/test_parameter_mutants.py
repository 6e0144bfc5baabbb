"""Wrong parameters of kernels: results differ from the reference, whichever parameter is wrong."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from dmlgpu import Device
from dmlgpu.common.errors import DmlError
from dmlgpu.compiler.program import Program, RenderedKernel
from dmlgpu.conformance.cases.registry import case_by_name
from dmlgpu.conformance.running.runner import run_case
from dmlgpu.runtime.specialization import Specialize, Specializer
from dmlgpu.runtime.wgpu import GpuBackend

CASES = (
    "argmax-uint8-int32-3x3x4x5x8-near-outer-s0",
    "batch_normalization-float32-1x3x4x5x3x2x3x2-explicit-s0",
    "element_wise_quantize_linear-int32-float32-uint8-1x11x16x1x8-broadcast-bare-s0",
    "gather-int16-int32-3x4x13x1x4-slack-negative-s0",
    "gemm-float32-7x11x4-aligned-bare-s0",
    "join-int64-1x5x8x11x4-strided-rows-s0",
    "matrix_multiply_integer-uint8-int8-15x7x2x7-permuted-single-s0",
    "padding1-int32-9x5x2x9x4-packed-wrap-s0",
    "reduce-float32-3x31x7x5-permuted-sum-s0",
    "slice1-float32-9x5x7x5-slack-shifted-s0",
    "unfold-float32-32x3x3-interleaved-padding-s0",
)
"""Cases of several families whose results depend on all of their parameters."""

MAX_ITERATIONS = 1 << 16
"""Parameters from here on are bits or multipliers; as the end of a loop they would take minutes."""

MIN_MULTIPLIER = 1 << 31

WIDTH = re.compile(r"(?:id|group)\.y \* sizes\.s(\d+)u")
"""How a kernel reads the width of its grid."""

READ = re.compile(r"\b(?:mod_|sizes\.)s(\d+)")
"""How a kernel reads a size; quotients read multipliers only."""


def multiplier(divisor: int) -> tuple[int, int]:
    """Return the multiplier and the shift that stand for a divisor (see ``compiler.wgsl.parameters``)."""
    bits = (divisor - 1).bit_length()
    return (1 << 31 + bits) // divisor + 1, bits


def mutants(kernel: RenderedKernel) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield parameters of which one is too small, two are swapped, or a multiplier is that of the next divisor; the
    width of a grid of one row stays, since it is multiplied by 0."""
    body = kernel.source.body
    unused = {int(number) for number in WIDTH.findall(body)} if kernel.grid[1] == 1 else set[int]()
    read = {int(number) for number in READ.findall(body)} - unused
    values = kernel.parameters
    small = [index for index, value in enumerate(values) if value < MAX_ITERATIONS and index in read]
    for index in small:
        if values[index] > 1:
            yield f"{index} too small", (*values[:index], values[index] - 1, *values[index + 1 :])
        for other in small:
            if other < index and values[other] != values[index]:
                swapped = list(values)
                swapped[index], swapped[other] = values[other], values[index]
                yield f"{other} and {index} swapped", tuple(swapped)
    for index, pair in enumerate(itertools.pairwise(values)):
        divisor = round((1 << 31 + min(pair[1], 31)) / pair[0]) if pair[0] >= MIN_MULTIPLIER else 0
        if divisor > 1 and multiplier(divisor) == pair:
            wrong = multiplier(divisor + 1)
            yield f"{index} divides by {divisor + 1}", (*values[:index], *wrong, *values[index + 2 :])


@pytest.mark.parametrize("name", CASES)
def test_every_wrong_parameter_is_noticed(device: Device, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, prepare = case_by_name(name), GpuBackend.prepare
    monkeypatch.setattr(device.backend, "specializer", Specializer(Specialize.NEVER))
    programs: list[Program] = []

    def is_right(mutate: Callable[[int, RenderedKernel], RenderedKernel]) -> bool:
        def prepared(self: GpuBackend, program: Program) -> object:
            programs.append(program)
            kernels = tuple(mutate(index, kernel) for index, kernel in enumerate(program.kernels))
            return prepare(self, replace(program, kernels=kernels))

        monkeypatch.setattr(GpuBackend, "prepare", prepared)
        try:
            return run_case(case, Device.from_backend(device.backend)).ok  # a new device: nothing is cached
        except DmlError:  # rejected
            return False

    assert is_right(lambda _, kernel: kernel)
    (program,) = programs
    tried, missed = 0, []
    for index, kernel in enumerate(program.kernels):
        for what, parameters in mutants(kernel):
            tried += 1
            wrong = replace(kernel, parameters=parameters)
            if is_right(lambda place, kernel: wrong if place == index else kernel):  # noqa: B023 - called at once
                missed.append(f"{kernel.label}, {kernel.parameters}: {what}")
    assert tried > 1
    assert missed == []
