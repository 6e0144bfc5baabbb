"""The schedules of convolutions, and which one suits a convolution and an adapter.

| name | what it does |
|---|---|
| ``implicit-gemm`` | a matrix product with the windows as a virtual operand, by the schedule that suits the product |
| ``small``, ``register``, ``shared``, ``...-split`` | the same, by this schedule of matrix products |
| ``depthwise`` | one input channel per group: nothing to sum but the window (depthwise.py) |
| ``winograd-2``, ``winograd-4`` | windows of 3 x 3 in tiles of 2 x 2 or 4 x 4 positions (winograd.py) |
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dmlgpu.errors import InvalidArgument
from dmlgpu.plan import Convolution, Convolve
from dmlgpu.schedule import gemm_choice
from dmlgpu.schedule.convolution import IMPLICIT_GEMM, implicit_gemm
from dmlgpu.schedule.depthwise import depthwise_fits, depthwise_steps
from dmlgpu.schedule.scheduling import schedule_step
from dmlgpu.schedule.steps import Steps
from dmlgpu.schedule.transposed import transposed_steps
from dmlgpu.schedule.winograd import winograd_fits, winograd_pays, winograd_steps
from dmlgpu.target import Target

DEPTHWISE = "depthwise"
WINOGRAD = {"winograd-2": 2, "winograd-4": 4}
"""Outputs of a tile, along each dimension, by name."""

FASTER_WINOGRAD = "winograd-4"
"""The other is less than half as fast, but loses fewer digits."""

NAMES = (IMPLICIT_GEMM, DEPTHWISE, *WINOGRAD, *gemm_choice.NAMES)
"""The names that ``Target.schedule`` may have."""


def fits(convolution: Convolution, target: Target, name: str) -> bool:
    """Return whether a schedule can compute a convolution."""
    if name == DEPTHWISE:
        return depthwise_fits(convolution, target)
    return name not in WINOGRAD or winograd_fits(convolution, target, WINOGRAD[name])


@dataclass(frozen=True)
class Choice:
    """The name of a schedule, and why it was chosen, for people."""

    name: str
    reason: str = field(default="", compare=False)


def choose(convolution: Convolution, target: Target) -> Choice:
    """Return the schedule for a convolution: ``Target.schedule``, if it is set.

    Raises:
        InvalidArgument: for a name that is not in ``NAMES``, or of a schedule that does not fit.
    """
    name = target.schedule
    if not name:
        return _suited(convolution, target)
    if name not in NAMES:
        raise InvalidArgument(f"convolutions have no schedule {name!r}; there are {', '.join(NAMES)}")
    if not fits(convolution, target, name):
        raise InvalidArgument(f"the schedule {name!r} does not fit this convolution")
    return Choice(name, f"{name!r} is asked for")


def alternatives(convolution: Convolution, target: Target) -> tuple[str, ...]:
    """Return the names of the schedules that fit, the built-in choice first. Products have choices of their own."""
    first = _built_in(convolution, target).name
    names = (first, IMPLICIT_GEMM, DEPTHWISE, *WINOGRAD)
    return tuple(dict.fromkeys(name for name in names if fits(convolution, target, name)))


def _suited(convolution: Convolution, target: Target) -> Choice:
    """Return what tuning found fastest, if it fits, or else the built-in choice."""
    image, filters = ("x".join(map(str, source.sizes)) for source in (convolution.input, convolution.filter))
    windows = ", ".join(
        f"{axis.positions} in steps of {axis.stride} by {axis.dilation}" for axis in convolution.windows
    )
    question = f"convolution {image} with {filters}: {windows}"
    answer = target.tuned.answer(question, lambda: alternatives(convolution, target))
    if answer and answer in alternatives(convolution, target):
        return Choice(answer, "dmlgpu tune found it fastest on this adapter")
    return _built_in(convolution, target)


def _built_in(convolution: Convolution, target: Target) -> Choice:
    """Return the choice that does not depend on tuning."""
    if fits(convolution, target, DEPTHWISE):
        return Choice(DEPTHWISE, "one input channel per group: there is nothing to sum but the window")
    tile = WINOGRAD[FASTER_WINOGRAD]
    if winograd_pays(convolution, target, tile):
        return Choice(FASTER_WINOGRAD, "dense windows of 3 x 3, channels and tiles enough: Winograd multiplies less")
    return Choice(IMPLICIT_GEMM, f"a product with what the windows see; {_objection(convolution, target, tile)}")


def _objection(convolution: Convolution, target: Target, tile: int) -> str:
    """Return why a convolution does not go through Winograd's filtering."""
    if winograd_fits(convolution, target, tile):
        return "too few channels, outputs or tiles for Winograd's filtering"
    if target.keeps_digits and winograd_fits(convolution, replace(target, precise=False, deterministic=False), tile):
        return "Winograd's filtering loses digits, which the device forbids"
    return "does not fit Winograd's filtering"


@schedule_step.register
def _convolve(step: Convolve, target: Target) -> Steps:
    """Compute a convolution by the schedule that suits it, or by that which ``Target.schedule`` names."""
    if step.transposed:
        return transposed_steps(step, target, _convolve)
    chosen = choose(step.convolution, target)
    return _steps(step, target, chosen.name).because(chosen.reason)


def _steps(step: Convolve, target: Target, name: str) -> Steps:
    convolution, epilogue, output = step.convolution, step.epilogue, step.output
    inner = replace(target, schedule=name if name in gemm_choice.NAMES else "")
    if name == DEPTHWISE:
        return depthwise_steps(convolution, epilogue, output, target)
    if name in WINOGRAD:
        return winograd_steps(convolution, epilogue, output, inner, WINOGRAD[name])
    return implicit_gemm(step, inner)
