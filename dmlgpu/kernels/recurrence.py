"""Recurrent networks: planning a step in time, ``Recurrence``, for RNN, LSTM and GRU.

One kernel sums up, for each element of the hidden state, the products of the hidden state before with a row of weights
per gate, and makes the states after of these sums, in element-wise trees whose leaves ``Held`` stand for the sums:

    sums[g][direction, sequence, j] = sum over k of hidden[direction, sequence, k] * weights[gates[g], direction, j, k]
    output[s, direction, sequence, j] = states[s](sums ..)

All steps in time share the kernel (``plan.Repeat``): what differs is where the resources start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dmlgpu.enums import DataType
from dmlgpu.kernels.packing import pack_tensor, packs_tensor
from dmlgpu.plan import Body, Held, Step, Tensor
from dmlgpu.target import Profile, Target

UNIT = 4
"""Neighbouring elements that kernels take at once where they lie side by side."""

STATE, ROW, INNER = 3, 2, 3
"""Dimensions: of a state along which its elements lie; of the weights that says of which element, and of which one
before, a weight is."""

MOST_ROWS = 8
"""Sequences that an invocation takes at once."""

BUSY = {Profile.CPU: 64, Profile.INTEGRATED: 1 << 12, Profile.DISCRETE: 1 << 14}
"""Invocations that keep an adapter busy."""


@dataclass(frozen=True)
class Recurrence(Step):
    """A step in time of recurrent networks.

    Attributes:
        hidden: the hidden state before, over (1, direction, sequence, element): in units where ``along``.
        weights: over (gate, direction, element, element before), in units of elements or, where ``along``, of those
            before, or not at all.
        gates: those whose sums are computed.
        sums: what stands for each of them among the leaves of ``states``.
        states: element-wise trees over (1, direction, sequence, element).
        output: over (state, direction, sequence, element).
        along: units lie along what is summed up.
        rows: sequences that an invocation takes.
    """

    hidden: Tensor
    weights: Tensor
    gates: tuple[int, ...]
    sums: tuple[Held, ...]
    states: tuple[Body, ...]
    output: Tensor
    along: bool
    rows: int


def held_sums(count: int, sizes: tuple[int, ...]) -> tuple[Held, ...]:
    """What stands for so many different sums for each element of a state of these sizes."""
    return tuple(Held(f"sum{number}", DataType.FLOAT32, sizes) for number in range(count))


def recurrence(
    label: str,
    hidden: Tensor,
    weights: Tensor,
    *,
    sums: Mapping[int, Held],
    states: Sequence[Body],
    output: Tensor,
    target: Target,
) -> Recurrence:
    """The step, in units where memory and the number of invocations let them.

    Args:
        label: what the kernel does.
        sums: what stands for the sums of gates, by their numbers.
        hidden, weights, states, output: as ``Recurrence`` has them, in elements.
        target: the adapter.
    """
    wide, along = _is_wide(weights, output, target), False
    if wide:
        weights = pack_tensor(weights, ROW, UNIT)
    elif packs_tensor(weights, INNER, UNIT) and packs_tensor(hidden, STATE, UNIT):
        weights, hidden, along = pack_tensor(weights, INNER, UNIT), pack_tensor(hidden, STATE, UNIT), True
    rows = _rows(output, UNIT if wide else 1, target)
    gates, held = tuple(sums), tuple(sums.values())
    return Recurrence(label, hidden, weights, gates, held, tuple(states), output, along, rows)


def _is_wide(weights: Tensor, output: Tensor, target: Target) -> bool:
    """Whether an invocation takes four elements of a state: CPU adapters like that, GPUs where there are enough."""
    enough = target.profile is Profile.CPU or math.prod(output.sizes[1:]) >= UNIT * BUSY[target.profile]
    return enough and packs_tensor(weights, ROW, UNIT)


def _rows(output: Tensor, wide: int, target: Target) -> int:
    """As many sequences at once as leave enough invocations: they read the same weights."""
    _, directions, sequences, elements = output.sizes
    rows, invocations = 1, directions * sequences * elements // wide
    while 2 * rows <= min(MOST_ROWS, sequences) and invocations >= 2 * rows * BUSY[target.profile]:
        rows *= 2
    return rows
