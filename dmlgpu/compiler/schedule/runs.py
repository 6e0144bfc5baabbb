"""Maps along runs: on a CPU adapter, an invocation computes a whole contiguous run and reads operands that are constant
along it once (the parameters of a channel, for example), instead of once per unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import Apply, Body, PlanTensor, View, row_sizes
from dmlgpu.compiler.rewrites.sources import is_elementwise, leaves, split
from dmlgpu.compiler.schedule.launch import choose_walk, loop_launch
from dmlgpu.compiler.schedule.registry import Condition, no, only_if
from dmlgpu.compiler.schedule.steps.maps import ScheduledRuns
from dmlgpu.compiler.sizes.arithmetic import computed, is_many, smallest
from dmlgpu.compiler.target import Target

SHORTEST_RUN = 16
"""Minimum units of a run for which reading once pays."""

RUNS_IN_FLIGHT = 1024
"""Number of runs that fill the lanes and threads of an adapter; longer runs are split until there are this many."""

LONGEST_STEP = 1024
"""Maximum bytes from one unit of a run to the next: a stride of 4 KiB made ADD half as fast."""


def fixed_leaves(body: Body, axes: Sequence[int]) -> list[tuple[str, PlanTensor]]:
    """Return name and tensor of each leaf in memory that is constant along some dimensions."""

    def is_fixed(tensor: PlanTensor) -> bool:
        return all(tensor.strides[axis] == 0 or tensor.sizes[axis] == 1 for axis in axes)

    tensors = dict.fromkeys(filter(is_fixed, leaves(body)))
    return [(f"fixed{index}", tensor) for index, tensor in enumerate(tensors)]


def can_run(body: Body, output: PlanTensor) -> Condition:
    """Return whether a packed tree can be computed run by run: it is only arithmetic on elements at equal
    coordinates, without copies and indices."""
    plain = all(leaf.view is View.COMPUTE for leaf in leaves(body))
    is_computed = plain and isinstance(body, Apply) and is_elementwise(body)
    return only_if(output.unit_bits >= WORD_BITS and is_computed, "it is more than arithmetic on whole words")


def runs_pay(body: Body, output: PlanTensor) -> Condition:
    """Return whether reading what is the same along a run once saves more than the strides between its units cost."""
    axis = _axis(body, output)
    if axis is None:
        return no("no run of {} units", SHORTEST_RUN)
    saved, count = len(fixed_leaves(body, [axis])), len(set(leaves(body)))
    if output.strides[axis] * output.unit_bits // 8 <= LONGEST_STEP:
        return only_if(2 * saved >= count, "{} of {} tensors are the same along a run, less than half", saved, count)
    pays = 4 * saved >= 3 * count
    return only_if(pays, "{} of {} tensors are the same along a run across rows, less than 3/4", saved, count)


def _axis(body: Body, output: PlanTensor) -> int | None:
    """Return the dimension of the runs that save most reads."""
    candidates = [axis for axis in range(output.rank) if output.sizes[axis] >= SHORTEST_RUN]
    saved = {axis: len(fixed_leaves(body, [axis])) for axis in candidates}
    return max(candidates, key=lambda axis: (saved[axis], -output.strides[axis]), default=None)


def schedule_runs(label: str, body: Body, output: PlanTensor, target: Target) -> ScheduledRuns | Condition:
    """Return the map of a packed tree along the runs that save most reads."""
    axis = _axis(body, output)
    parts = None if axis is None else _parts(output, axis, target)
    if axis is None or parts is None:
        return no("no run of {} units in the loops that the driver runs to their end", SHORTEST_RUN)
    read, saved = len(set(leaves(body))), len(fixed_leaves(body, [axis]))
    if is_many(parts):
        length = output.sizes[axis] // parts
        body, output, axis = split(body, axis, length), split(output, axis, length), axis + 1
    walk = choose_walk(replace(output, sizes=row_sizes(output.sizes, (axis,))))
    shared = f"{saved} of {read} tensors are the same along {output.sizes[axis]} units: read once"
    reason = f"on a CPU adapter, {shared if read else 'an invocation writes whole runs and reads no tensor'}"
    launch = loop_launch(walk.count, target)
    return ScheduledRuns(label, launch, output, body, walk, axis, tuple(fixed_leaves(body, [axis])), reason=reason)


def _parts(output: PlanTensor, axis: int, target: Target) -> int | None:
    """Return the minimum number of equal parts of runs that gives every lane of the adapter some and keeps loops below
    its limit; None if that is impossible."""
    units = output.sizes[axis]
    count = math.prod(output.sizes) // units
    longest = units if target.loop_limit is None else smallest(units, target.loop_limit)
    chosen = computed(_divisor, units, count, longest)
    return None if units // chosen > longest else chosen


def _divisor(units: int, count: int, longest: int) -> int:
    """Return the number of parts of ``count`` runs: the smallest divisor of their units that is enough and leaves no
    part too short, or else the largest below."""
    min_parts, max_parts = max(1, -(-RUNS_IN_FLIGHT // count), -(-units // longest)), units // SHORTEST_RUN
    small = [divisor for divisor in range(1, math.isqrt(units) + 1) if units % divisor == 0]
    divisors = [divisor for divisor in (*small, *(units // divisor for divisor in small)) if divisor <= max_parts]
    return min((divisor for divisor in divisors if divisor >= min_parts), default=max(divisors))
