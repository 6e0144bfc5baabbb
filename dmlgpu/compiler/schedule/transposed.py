"""Transposed convolutions as plain ones.

The filter scatters: element p of the input reaches the elements q = p * stride + tap * dilation - start of the output.
Conversely, an element of the output reads the taps for which p is an integer. All elements of a *phase*, whose q have
the same remainder, read the same taps, in steps of one element of the input: each phase is a plain convolution of the
input with a part of the filter, reversed, into a strided part of the output. Strides of 1 have one phase only.

Where the filter is as large as its stride, phases share nothing, and one product computes all: its rows are outputs by
taps, and those of the taps along the last dimension lie side by side in the output.

With very many phases, each a kernel, the filter slides over the input spread out with zeros instead.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dmlgpu.compiler.plan import (
    Body,
    Contract,
    Convolution,
    Convolve,
    Element,
    Map,
    Product,
    RegisterValue,
    Sizes,
    Source,
    Space,
    constants,
)
from dmlgpu.compiler.plan.windows import WindowAxis, Windows
from dmlgpu.compiler.rewrites.sources import AnySource, is_plain, permuted, rewrite, split, stepped
from dmlgpu.compiler.schedule.convolution import implicit_gemm
from dmlgpu.compiler.schedule.gemm import interleaved_steps
from dmlgpu.compiler.schedule.registry import Condition, Schedule, at_least, at_most, only_if, register
from dmlgpu.compiler.schedule.scheduling import StepProblem, schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps

SPREAD, ZERO = "layout/slice_grad", "layout/zero"

MAX_PHASES = 16
"""Maximum number of phases that are worth a kernel each."""

LEAD = (0, 0, 0)
"""First elements along the dimensions before the spatial ones."""


# ---- phases


@dataclass(frozen=True)
class PhaseAxis:
    """A phase along one dimension.

    Attributes:
        first, stride: its first element of the output, and elements from one to the next.
        axis: windows of the part of the filter over the input; its size is 0 if no tap reaches the phase.
        tap, step: the first tap of the filter, and the distance between taps.
    """

    first: int
    stride: int
    axis: WindowAxis
    tap: int
    step: int


@dataclass(frozen=True)
class Phase:
    """A phase along every dimension."""

    parts: tuple[PhaseAxis, ...]

    @property
    def windows(self) -> Windows:
        """Windows of its part of the filter over the input."""
        return tuple(part.axis for part in self.parts)

    @property
    def is_empty(self) -> bool:
        """Whether no tap reaches it."""
        return any(part.axis.size == 0 for part in self.parts)


def phases(windows: Windows) -> Iterator[Phase]:
    """Return the phases of a transposed convolution.

    Args:
        windows: windows of the filter over the *output*: ``spatial`` is the output's size,
            ``positions`` the input's.
    """
    for parts in itertools.product(*(tuple(_parts(axis)) for axis in windows)):
        yield Phase(parts)


def _parts(axis: WindowAxis) -> Iterator[PhaseAxis]:
    common = math.gcd(axis.dilation, axis.stride)
    step, dilation = axis.stride // common, axis.dilation // common
    for first in range(min(axis.stride, axis.spatial)):
        reached = first + axis.start
        tap = axis.size if reached % common else reached // common * pow(dilation, -1, step) % step
        size = max(0, -((tap - axis.size) // step))
        nearest = (reached - tap * axis.dilation) // axis.stride
        positions = -((first - axis.spatial) // axis.stride)
        window = WindowAxis(axis.positions, positions, size, 1, dilation, (size - 1) * dilation - nearest)
        yield PhaseAxis(first, axis.stride, window, tap + (size - 1) * step, -step)


# ---- steps


class TransposedProblem(StepProblem[Convolve]):
    """A transposed convolution, whose windows slide over the output from as many positions as the input has elements,
    and its target."""

    @property
    def count(self) -> int:
        """Number of phases."""
        return math.prod(min(axis.stride, axis.spatial) for axis in self.step.convolution.windows)

    def convolved(self, convolution: Convolution) -> ScheduledSteps:
        """Return the kernels of an equivalent plain convolution."""
        return schedule_step(replace(self.step, convolution=convolution, transposed=False), self.target)


def _spread(problem: TransposedProblem) -> ScheduledSteps:
    """Return a plain convolution of the input with zeros between its elements."""
    why = f"{problem.count} phases are too many kernels: the input is spread out instead"
    return problem.convolved(_spread_out(problem.step.convolution)).because(why)


def _reversed(problem: TransposedProblem) -> ScheduledSteps:
    """Return a plain convolution with the filter reversed."""
    (phase,) = phases(problem.step.convolution.windows)
    why = "strides of 1: the same as a convolution with the filter reversed"
    return problem.convolved(_convolution(problem.step.convolution, phase)).because(why)


INTERLEAVED = (2, 4)
"""Tap counts along the last dimension for which a tile of a product holds whole units of the output."""


def _fits_at_once(problem: TransposedProblem) -> Condition:
    """Return whether a filter is as large as its stride, and its taps may be rows of a product."""
    step, convolution, windows = problem.step, problem.step.convolution, problem.step.convolution.windows
    sources = convolution.input, convolution.filter, step.epilogue
    return (
        only_if(all(map(_is_apart, windows)), "windows overlap or leave gaps")
        and only_if(windows[-1].size in INTERLEAVED, "{} taps in a row, not 2 or 4", windows[-1].size)
        and only_if(all(map(is_plain, sources)), "its operands are computed where they are read")
    )


def _at_once(problem: TransposedProblem) -> ScheduledSteps | Condition:
    """Return one product for all phases, if its tiles hold whole units of the output."""
    step, convolution, windows = problem.step, problem.step.convolution, problem.step.convolution.windows
    taps = tuple(axis.size for axis in windows)
    batch, groups, channels, *positions = convolution.input.sizes
    space = Space((groups,), (convolution.filter.sizes[1], *taps), (batch, *positions), (channels,))
    spatial = range(3, 3 + len(taps))
    filters, seen = permuted(convolution.filter, (0, 1, *spatial, 2)), permuted(convolution.input, (1, 2, 0, *spatial))
    product = Product(space, filters, seen, convolution.accumulator, a_owned=convolution.filter_owned)
    contract = Contract(step.label, product, _by_taps(step.epilogue, taps), _by_taps(step.output, taps), True)
    steps = interleaved_steps(contract, taps[-1], problem.target)
    why = f"windows that do not overlap: one product computes the {problem.count} phases of the strides"
    return steps if isinstance(steps, Condition) else steps.because(why)


def _is_apart(axis: WindowAxis) -> bool:
    """Return whether windows are adjacent, disjoint, and cover the output."""
    dense = axis.size == axis.stride and axis.dilation == 1
    return dense and axis.start == 0 and axis.spatial == axis.size * axis.positions


def _by_taps(source: AnySource, taps: Sizes) -> AnySource:
    """Reorder a tree over {batch, groups, outputs, positions..} to {groups, outputs, taps.. but the last, batch,
    positions..}."""
    for dimension in reversed(range(len(taps) - 1)):
        source = split(source, 3 + dimension, taps[dimension])
    along = range(3, 3 + 2 * (len(taps) - 1))
    return permuted(source, (1, 2, *along[1::2], 0, *along[::2], len(source.sizes) - 1))


def _in_phases(problem: TransposedProblem) -> ScheduledSteps:
    """Return each phase as a separate matrix product."""
    step, target = problem.step, problem.target
    steps, empty = ScheduledSteps(), ScheduledSteps()
    for phase in phases(step.convolution.windows):
        epilogue, output = _part_of(step.epilogue, phase), _part_of(step.output, phase)
        if phase.is_empty:
            nothing = Map("nothing to sum", _without_sum(epilogue), output, keeps_neighbors=True)
            empty += schedule_step(nothing, target)
        else:
            part = Convolve(step.label, _convolution(step.convolution, phase), epilogue, output)
            steps += implicit_gemm(part, target, keeps_neighbors=True)
    return (steps + empty).because(f"each of {problem.count} phases of the strides is a convolution of its own")


def _has_many_phases(problem: TransposedProblem) -> Condition:
    return at_least(problem.count, MAX_PHASES + 1, "phases")


def _has_one_phase(problem: TransposedProblem) -> Condition:
    return at_most(problem.count, 1, "phases")


TRANSPOSED_SCHEDULES: tuple[Schedule[TransposedProblem, ScheduledSteps], ...] = register(
    Schedule("transposed", "spread", _spread, "many phases: zeros between the elements", pays=_has_many_phases),
    Schedule("transposed", "reversed", _reversed, "strides of 1: a plain convolution", _has_one_phase),
    Schedule("transposed", "at-once", _at_once, "filters as large as strides: one product", _fits_at_once),
    Schedule("transposed", "phases", _in_phases, "a plain convolution for each phase of the strides"),
)
"""Schedules of transposed convolutions, in the order in which they are tried."""


def _convolution(transposed: Convolution, phase: Phase) -> Convolution:
    """Return one phase as a plain convolution."""
    sizes = transposed.filter.sizes[:3] + tuple(axis.size for axis in phase.windows)
    start = (*LEAD, *(part.tap for part in phase.parts))
    filters = stepped(transposed.filter, sizes, start, (1, 1, 1, *(part.step for part in phase.parts)))
    return replace(transposed, filter=filters, windows=phase.windows)


def _part_of(source: AnySource, phase: Phase) -> AnySource:
    """Return the elements of a phase of an epilogue or the output."""
    sizes = source.sizes[:3] + tuple(axis.positions for axis in phase.windows)
    start = (*LEAD, *(part.first for part in phase.parts))
    return stepped(source, sizes, start, (1, 1, 1, *(part.stride for part in phase.parts)))


def _without_sum(epilogue: Body) -> Body:
    """Return an epilogue on empty sums."""

    def empty(node: Source) -> Source:
        return Element(ZERO, node.data_type, node.sizes) if isinstance(node, RegisterValue) else node

    return rewrite(epilogue, empty)


def _spread_out(transposed: Convolution) -> Convolution:
    """Return a plain convolution of the input with zeros between its elements."""
    source, windows = transposed.input, transposed.windows
    strides = tuple(axis.stride for axis in windows)
    spatial = tuple(axis.stride * (axis.positions - 1) + 1 for axis in windows)
    sizes, step = source.sizes[:3] + spatial, (1, 1, 1, *strides)
    follows = tuple(d if distance == 1 else None for d, distance in enumerate(step)), (None,) * len(sizes)
    inputs = (("input", source), ("border", Element(ZERO, source.data_type, sizes)))
    values = constants(start=(0,) * len(sizes), step=step)
    spread = Element(SPREAD, source.data_type, sizes, inputs, values, follows=follows)
    (phase,) = phases(
        tuple(replace(axis, stride=1, positions=size) for axis, size in zip(windows, spatial, strict=True))
    )
    return _convolution(replace(transposed, input=spread), phase)
