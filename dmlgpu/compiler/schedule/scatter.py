"""Scatters: in which units, and in which kernels so that the order of invocations does not show."""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Element, Map, Scatter, Tensor
from dmlgpu.compiler.rewrites.packing import WIDEST_UNIT_BITS, pack_tensor, packs_tensor
from dmlgpu.compiler.schedule.launch import Launch, fold, map_launch
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps import ScatterSchedule, ScheduledScatter, Steps
from dmlgpu.compiler.target import Profile, Target

MOST_UPDATES, FEWEST_WORKGROUPS = 16, 32
"""Updates that an invocation of a CPU adapter takes, which waits for their places at once, and the workgroups that keep
processors busy."""


@schedule_step.register
def _scatter(step: Scatter, target: Target) -> Steps:
    """Deterministic devices first mark the last update of each element."""
    step = _packed(step)
    if step.distinct or not target.deterministic:
        why = "no two elements go to one place" if step.distinct else "of elements that go to one place any one may win"
        return _kernel(step, step.label, ScatterSchedule.STORE, target).because(why)
    marks = Tensor.temporary("marks", DataType.UINT32, step.output.sizes)
    clear = Map("clear marks", Element("layout/zero", DataType.UINT32, marks.sizes), marks)
    marked = replace(step, inputs=(*step.inputs, ("marks", marks)))
    steps = (
        schedule_step(clear, target)
        + _kernel(replace(step, output=marks), "mark", ScatterSchedule.MARK, target)
        + _kernel(marked, f"{step.label} marked", ScatterSchedule.STORE_MARKED, target)
    )
    return steps.because("a deterministic device: the last element of a place wins, and is marked first")


def _kernel(step: Scatter, label: str, schedule: ScatterSchedule, target: Target) -> Steps:
    launch = _launch(math.prod(step.source.sizes), target)
    what, run = (step.output, step.file, step.source, step.inputs), _run(step, launch.each)
    return Steps((ScheduledScatter(label, launch, *what, schedule, step.constants, run),))


def _launch(total: int, target: Target) -> Launch:
    """Return one invocation per few updates, on CPU adapters for more of them than maps take where there are many."""
    launch = map_launch(total, target)
    groups = -(-total // (launch.workgroup * MOST_UPDATES))
    if target.profile is not Profile.CPU or groups < FEWEST_WORKGROUPS:
        return launch
    return replace(launch, each=MOST_UPDATES, grid=fold(groups, target))


def _run(step: Scatter, each: int) -> tuple[int, int] | None:
    """Return the dimensions of source and output along which so many neighbours lie always, if one place says where all
    of them go."""
    sizes = step.source.sizes
    inner = max((dimension for dimension in range(len(sizes)) if sizes[dimension] > 1), default=0)
    followed = step.follows[inner]
    return None if each == 1 or followed is None or sizes[inner] % each else (inner, followed)


def _packed(step: Scatter) -> Scatter:
    """Return the scatter in the widest units that source and output have along a dimension that both go through."""
    for dimension, followed in enumerate(step.follows):
        lanes = WIDEST_UNIT_BITS // step.output.data_type.bits
        while followed is not None and step.output.sizes[followed] > 1 and lanes > 1:
            if packs_tensor(step.source, dimension, lanes) and packs_tensor(step.output, followed, lanes):
                source, output = pack_tensor(step.source, dimension, lanes), pack_tensor(step.output, followed, lanes)
                return replace(step, source=source, output=output)
            lanes //= 2
    return step
