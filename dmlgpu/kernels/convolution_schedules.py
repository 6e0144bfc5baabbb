"""The schedules of convolutions, and which one suits a convolution and an adapter.

| name | what it does |
|---|---|
| ``implicit-gemm`` | a matrix product with the windows as a virtual operand, by the schedule that suits the product |
| ``small``, ``register``, ``shared``, ``...-split`` | the same, by this schedule of matrix products |
| ``depthwise`` | one input channel per group: nothing to sum but the window (kernels/depthwise.py) |
| ``winograd-2``, ``winograd-4`` | windows of 3 x 3 in tiles of 2 x 2 or 4 x 4 positions (kernels/winograd.py) |
"""

from __future__ import annotations

from dataclasses import replace

from dmlgpu.errors import InvalidArgument
from dmlgpu.kernels import gemm_schedules
from dmlgpu.kernels.convolution import Convolution, implicit_gemm_steps
from dmlgpu.kernels.depthwise import depthwise_fits, depthwise_steps
from dmlgpu.kernels.winograd import winograd_fits, winograd_pays, winograd_steps
from dmlgpu.plan import Body, Steps, Tensor
from dmlgpu.target import Target

IMPLICIT_GEMM, DEPTHWISE = "implicit-gemm", "depthwise"
WINOGRAD = {"winograd-2": 2, "winograd-4": 4}
"""Outputs of a tile, along each dimension, by name."""

FASTER_WINOGRAD = "winograd-4"
"""The other is less than half as fast, but loses fewer digits."""

NAMES = (IMPLICIT_GEMM, DEPTHWISE, *WINOGRAD, *gemm_schedules.NAMES)
"""The names that ``Target.schedule`` may have."""


def fits(convolution: Convolution, target: Target, name: str) -> bool:
    """Whether a schedule can compute a convolution."""
    if name == DEPTHWISE:
        return depthwise_fits(convolution, target)
    return name not in WINOGRAD or winograd_fits(convolution, target, WINOGRAD[name])


def choose(convolution: Convolution, target: Target) -> str:
    """The name of the schedule for a convolution: ``Target.schedule``, if it is set.

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
    return name


def _suited(convolution: Convolution, target: Target) -> str:
    if fits(convolution, target, DEPTHWISE):
        return DEPTHWISE
    return FASTER_WINOGRAD if winograd_pays(convolution, target, WINOGRAD[FASTER_WINOGRAD]) else IMPLICIT_GEMM


def convolution_steps(convolution: Convolution, epilogue: Body, output: Tensor, target: Target) -> Steps:
    """The steps that compute a convolution.

    Args:
        convolution: what is summed.
        epilogue: an element-wise tree over {batch, groups, outputs per group, positions..}, with a leaf ``Held`` of the
            type of the accumulator that stands for the sum.
        output: where the result goes: a view of the same sizes.
        target: the adapter; its ``schedule`` overrides the choice.

    Raises:
        InvalidArgument: for an unknown name of a schedule, or of one that does not fit the convolution.
    """
    name = choose(convolution, target)
    inner = replace(target, schedule=name if name in gemm_schedules.NAMES else "")
    if name == DEPTHWISE:
        return depthwise_steps(convolution, epilogue, output, target)
    if name in WINOGRAD:
        return winograd_steps(convolution, epilogue, output, inner, WINOGRAD[name])
    return implicit_gemm_steps(convolution, epilogue, output, inner)
