"""The schedules of convolutions, and which one suits a convolution and an adapter.

| name | what it does |
|---|---|
| ``implicit-gemm`` | a matrix product with the windows as a virtual operand, by the schedule that suits the product |
| ``small``, ``register``, ``shared``, ``packed``, ``...-split`` | the same, by this schedule of matrix products |
| ``depthwise`` | one input channel per group: nothing to sum but the window (depthwise.py) |
| ``winograd-2``, ``winograd-4`` | windows of 3 x 3 in tiles of 2 x 2 or 4 x 4 positions (winograd.py) |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.plan import Convolution, Convolve
from dmlgpu.compiler.schedule import gemm_choice
from dmlgpu.compiler.schedule.convolution import IMPLICIT_GEMM, depthwise_fits, depthwise_steps, implicit_gemm
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.transposed import transposed_steps
from dmlgpu.compiler.schedule.winograd import winograd_fits, winograd_pays, winograd_steps
from dmlgpu.compiler.target import Profile, Target

DEPTHWISE = "depthwise"
WINOGRAD = {"winograd-2": 2, "winograd-4": 4}
"""Outputs of a tile along each dimension, by schedule name."""

NAMES = (IMPLICIT_GEMM, DEPTHWISE, *WINOGRAD, *gemm_choice.NAMES)
"""Values of ``Overrides.schedule``."""


@dataclass(frozen=True)
class ConvolutionSchedule:
    """A schedule of convolutions.

    Attributes:
        name: as in ``NAMES``.
        fits: whether it can compute a convolution.
        suits: whether it is chosen if it fits, unless an earlier one is.
        reason: reason of the choice, for explanations.
        build: returns the kernels; the target names a schedule of products at most.
    """

    name: str
    fits: Callable[[Convolution, Target], bool]
    suits: Callable[[Convolution, Target], bool]
    reason: str
    build: Callable[[Convolve, Target], ScheduledSteps]


def _winograd(name: str, reason: str, *, is_fastest: bool) -> ConvolutionSchedule:
    """Return Winograd's filtering in tiles of a size."""
    tile = WINOGRAD[name]
    return ConvolutionSchedule(
        name,
        lambda convolution, target: winograd_fits(convolution, target, tile),
        lambda convolution, target: is_fastest and winograd_pays(convolution, target, tile),
        reason,
        lambda step, target: winograd_steps(step.convolution, step.epilogue, step.output, target, tile),
    )


CONVOLUTION_SCHEDULES = (
    ConvolutionSchedule(
        DEPTHWISE,
        depthwise_fits,
        depthwise_fits,
        "one input channel per group: there is nothing to sum but the window",
        lambda step, target: depthwise_steps(step.convolution, step.epilogue, step.output, target),
    ),
    _winograd(
        "winograd-4",
        "dense windows of 3 x 3, channels and tiles enough: Winograd multiplies less",
        is_fastest=True,
    ),
    _winograd("winograd-2", "less than half as fast as winograd-4, but loses fewer digits", is_fastest=False),
    ConvolutionSchedule(
        IMPLICIT_GEMM,
        lambda convolution, target: True,
        lambda convolution, target: True,
        "a product with what the windows see",
        implicit_gemm,
    ),
)
"""Schedules of convolutions, in the order in which they are tried."""

_BY_NAME = {schedule.name: schedule for schedule in CONVOLUTION_SCHEDULES}


def _named(name: str) -> ConvolutionSchedule:
    """Return a schedule by its name; schedules of products compute a convolution as a product."""
    return _BY_NAME.get(name, _BY_NAME[IMPLICIT_GEMM])


@dataclass(frozen=True)
class ConvolutionChoice:
    """Name of a schedule, and the reason of the choice."""

    name: str
    reason: str = field(default="", compare=False)


def choose(convolution: Convolution, target: Target) -> ConvolutionChoice:
    """Return the schedule for a convolution: ``Overrides.schedule``, if it is set.

    Raises:
        InvalidArgument: for a name that is not in ``NAMES``, or of a schedule that does not fit.
    """
    name = target.overrides.schedule
    if not name:
        return _suited(convolution, target)
    if name not in NAMES:
        raise InvalidArgument(f"convolutions have no schedule {name!r}; there are {', '.join(NAMES)}")
    if not _named(name).fits(convolution, target):
        raise InvalidArgument(f"the schedule {name!r} does not fit this convolution")
    return ConvolutionChoice(name, f"{name!r} is requested")


def alternatives(convolution: Convolution, target: Target) -> tuple[str, ...]:
    """Return the names of the schedules that fit, the built-in choice first. Products have choices of their own."""
    first = _built_in(convolution, target).name
    names = (first, IMPLICIT_GEMM, DEPTHWISE, *WINOGRAD)
    return tuple(dict.fromkeys(name for name in names if _named(name).fits(convolution, target)))


SAVED_BY_WINDOWS, LOST_BY_TILES = 0.25, 0.03
"""Shares of the time of the multiplications of a plain convolution that products over windows of several
elements save, and that Winograd's filtering loses, measured on lavapipe."""


def saved_by_channels_last(step: Convolve, target: Target) -> float:
    """Return the time that a convolution saves if one side has channels innermost, in multiplications; none on GPUs, on
    which it was not measured."""
    if step.transposed or target.profile is not Profile.CPU:
        return 0.0
    convolution = step.convolution
    window = math.prod(axis.size for axis in convolution.windows)
    count = math.prod(step.output.sizes) * convolution.filter.sizes[2] * window
    match choose(convolution, target).name:
        case name if name in WINOGRAD:
            return -LOST_BY_TILES * count
        case name if name == IMPLICIT_GEMM:
            return SAVED_BY_WINDOWS * count if window > 1 else 0.0
        case _:
            return -count


def _suited(convolution: Convolution, target: Target) -> ConvolutionChoice:
    """Return the fastest schedule of tuning, if it fits, or else the built-in choice."""
    image, filters = ("x".join(map(str, source.sizes)) for source in (convolution.input, convolution.filter))
    windows = ", ".join(
        f"{axis.positions} in steps of {axis.stride} by {axis.dilation}" for axis in convolution.windows
    )
    question = f"convolution {image} with {filters}: {windows}"
    answer = target.overrides.tuned.answer(question, lambda: alternatives(convolution, target))
    if answer and answer in alternatives(convolution, target):
        return ConvolutionChoice(answer, "dmlgpu tune found it fastest on this adapter")
    return _built_in(convolution, target)


def _built_in(convolution: Convolution, target: Target) -> ConvolutionChoice:
    """Return the choice that does not depend on tuning."""
    schedule = next(each for each in CONVOLUTION_SCHEDULES if each.suits(convolution, target))
    objection = f"; {_objection(convolution, target)}" if schedule.name == IMPLICIT_GEMM else ""
    return ConvolutionChoice(schedule.name, schedule.reason + objection)


def _objection(convolution: Convolution, target: Target) -> str:
    """Return the reason why a convolution does not use Winograd's filtering."""
    winograd = _named("winograd-4")
    if winograd.fits(convolution, target):
        return "too few channels, outputs or tiles for Winograd's filtering"
    if target.keeps_digits and winograd.fits(convolution, target.with_policies(precise=False, deterministic=False)):
        return "Winograd's filtering loses digits, which the device forbids"
    return "does not fit Winograd's filtering"


@schedule_step.register
def _convolve(step: Convolve, target: Target) -> ScheduledSteps:
    """Schedule a convolution by the built-in choice, or by the schedule that ``Overrides.schedule`` names."""
    if step.transposed:
        return transposed_steps(step, target, _convolve)
    choice = choose(step.convolution, target)
    product = choice.name if choice.name in gemm_choice.NAMES else ""
    return _named(choice.name).build(step, target.with_overrides(schedule=product)).because(choice.reason)
