"""The schedules of convolutions, and which one suits a convolution and an adapter.

| name | what it does |
|---|---|
| ``implicit-gemm`` | a matrix product with the windows as a virtual operand, by the schedule that suits the product |
| ``depthwise`` | one input channel per group: nothing to sum but the window (convolution.py) |
| ``winograd-2``, ``winograd-4`` | windows of 3 x 3 in tiles of 2 x 2 or 4 x 4 positions (winograd.py) |

Where a schedule of matrix products is requested, convolutions are such products, and so are those of float16 on
adapters with matrix units (``cooperative``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from dmlgpu.compiler.plan import Convolve
from dmlgpu.compiler.schedule.convolution import (
    IMPLICIT_GEMM,
    as_product,
    depthwise_steps,
    fits_depthwise,
    implicit_gemm,
)
from dmlgpu.compiler.schedule.cooperative import fills_matrices, fits_matrix_units
from dmlgpu.compiler.schedule.gemm import PRODUCT_SCHEDULES
from dmlgpu.compiler.schedule.registry import (
    NONE,
    Condition,
    Schedule,
    by_profile,
    choose,
    no,
    only_if,
    pick,
    register,
    requested,
)
from dmlgpu.compiler.schedule.scheduling import StepProblem, schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.transposed import TRANSPOSED_SCHEDULES, TransposedProblem
from dmlgpu.compiler.schedule.winograd import fits_winograd, pays_winograd, winograd_steps
from dmlgpu.compiler.target import Target

DEPTHWISE = "depthwise"

ConvolutionProblem: TypeAlias = StepProblem[Convolve]


def _entry(
    name: str, build: Callable[[Convolve, Target], ScheduledSteps], reason: str, **conditions: Any
) -> Schedule[ConvolutionProblem, ScheduledSteps]:
    """Return the entry of a schedule whose kernels give its reason."""
    return Schedule(
        "convolution", name, lambda problem: build(problem.step, problem.target).because(reason), reason, **conditions
    )


def _winograd(tile: int, reason: str, **conditions: Any) -> Schedule[ConvolutionProblem, ScheduledSteps]:
    """Return the entry of Winograd's filtering in tiles of a size."""
    return _entry(
        f"winograd-{tile}",
        lambda step, target: winograd_steps(step.convolution, step.epilogue, step.output, target, tile),
        reason,
        fits=lambda problem: fits_winograd(problem.step.convolution, problem.target, tile),
        **conditions,
    )


def _is_free(problem: ConvolutionProblem) -> Condition:
    """Return whether a convolution need not be a product."""
    return only_if(not requested(PRODUCT_SCHEDULES, problem.target), "a schedule of products is requested")


def _multiplies_less(problem: ConvolutionProblem) -> Condition:
    """Return whether filtering with fewer multiplications of float32 pays. It does not if matrix units multiply
    float16, in a tenth of the time or less."""
    step, target = problem.step, problem.target
    if target.matrices is not None:
        product = as_product(step, target)
        if fits_matrix_units(product, target) and fills_matrices(product, target):
            return no("matrix units multiply float16 faster")
    return pays_winograd(step.convolution, 4, target)


CONVOLUTION_SCHEDULES: tuple[Schedule[ConvolutionProblem, ScheduledSteps], ...] = register(
    _entry(
        DEPTHWISE,
        lambda step, target: depthwise_steps(step.convolution, step.epilogue, step.output, target),
        "one input channel per group: there is nothing to sum but the window",
        fits=lambda problem: fits_depthwise(problem.step.convolution, problem.target),
        pays=_is_free,
    ),
    _winograd(
        4,
        "dense windows of 3 x 3, channels and tiles enough: Winograd multiplies less",
        pays=lambda problem: _is_free(problem) and _multiplies_less(problem),
    ),
    _winograd(2, "less than half as fast as winograd-4, but loses fewer digits", profiles=NONE),
    _entry(IMPLICIT_GEMM, implicit_gemm, "a product with what the windows see"),
)
"""Schedules of convolutions, in the order in which they are tried."""


def alternatives(problem: ConvolutionProblem) -> tuple[str, ...]:
    """Return the names of the schedules that fit, the built-in choice first. Products have choices of their own."""
    first = pick(CONVOLUTION_SCHEDULES, problem)
    fitting = (schedule for schedule in (first, *CONVOLUTION_SCHEDULES) if schedule and schedule.fits(problem))
    return tuple(dict.fromkeys(schedule.name for schedule in fitting))


def _tuned(problem: ConvolutionProblem) -> str:
    """Return the name of the schedule that tuning found fastest; empty if there is none."""
    convolution = problem.step.convolution
    image, filters = ("x".join(map(str, source.sizes)) for source in (convolution.input, convolution.filter))
    windows = ", ".join(
        f"{axis.positions} in steps of {axis.stride} by {axis.dilation}" for axis in convolution.windows
    )
    question = f"convolution {image} with {filters}: {windows}"
    return problem.target.overrides.tuned.answer(question, lambda: alternatives(problem))


_SAVED = by_profile(cpu={IMPLICIT_GEMM: 0.25, DEPTHWISE: -1.0, "winograd-2": -0.03, "winograd-4": -0.03}, gpus={})
"""Shares of the time of the multiplications of a plain convolution that channels innermost save, by schedule: products
over windows of several elements, for example. Measured on lavapipe; none on GPUs, on which they were not measured."""


def saved_by_channels_last(step: Convolve, target: Target) -> float:
    """Return the time that a convolution saves if one side has channels innermost, in multiplications."""
    shares = _SAVED[target.profile]
    if step.transposed or not shares:
        return 0.0
    problem, window = StepProblem(step, target), math.prod(axis.size for axis in step.convolution.windows)
    schedule = pick(CONVOLUTION_SCHEDULES, problem, _tuned(problem))
    if schedule is None or (schedule.name == IMPLICIT_GEMM and window == 1):
        return 0.0
    return shares[schedule.name] * math.prod(step.output.sizes) * step.convolution.filter.sizes[2] * window


@schedule_step.register
def _convolve(step: Convolve, target: Target) -> ScheduledSteps:
    if step.transposed:
        return choose(TRANSPOSED_SCHEDULES, TransposedProblem(step, target))
    problem = StepProblem(step, target)
    return choose(CONVOLUTION_SCHEDULES, problem, _tuned(problem))
