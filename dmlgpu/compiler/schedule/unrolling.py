"""Recurrent layers, unrolled: the common part of all time steps is computed at once, then the steps run sequentially.

1. The products of the inputs with their weights, biases added, of all time steps: a matrix product per direction.
2. The initial states, as float32 for any type of the layer; states stay float32 between time steps.
3. The time steps: ``plan.Repeat`` over the kernels of one (``plan.Recurrence``), both directions in one kernel if their
   activations agree. Each reads the states that the previous one wrote.
4. The outputs, from the states of all time steps: for backward directions in reverse order, 0 after a sequence's end.

If a temporary tensor for all time steps would be too large, groups of time steps share it, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import (
    MAX_KERNELS,
    Body,
    Contract,
    Map,
    PlanBinding,
    PlanTensor,
    Product,
    Recurrence,
    RecurrentLayer,
    Repeat,
    Space,
    Step,
    View,
    apply,
    constants,
    element,
)
from dmlgpu.compiler.plan.parts import replace_parts
from dmlgpu.compiler.plan.products import parts_of
from dmlgpu.compiler.rewrites.sources import as_type, identity, number, stepped
from dmlgpu.compiler.schedule.scheduling import plain_steps
from dmlgpu.compiler.target import Target

FLOAT32 = DataType.FLOAT32
LASTS, KEPT = "recurrent/lasts", "recurrent/kept"

LARGEST = 64 << 20
"""Maximum bytes of a temporary tensor over all time steps; beyond it, time is split into parts."""

MAX_PARTS = 64
"""Maximum number of parts: each has its own kernels, which take time to compile."""

MIN_REUSE = 4
"""Minimum time steps for which repacking recurrent weights, with adjacent elements contiguous, pays off."""


@plain_steps.register
def _unrolled(step: RecurrentLayer, target: Target) -> Sequence[Step]:
    return _Unrolled(step, target).unroll()


class _Unrolled:
    """Builder of the steps of a layer."""

    def __init__(self, layer: RecurrentLayer, target: Target):
        self.layer, self.target = layer, target
        self.steps: list[Step] = []

    def unroll(self) -> Sequence[Step]:
        """Return the steps of all time steps."""
        layer = self.layer
        part = self._part()
        self._mark_lasting()
        weights = self._weights()
        for body, state in zip(layer.initial, parts_of(layer.states.at(0)), strict=True):
            self.steps.append(Map("initial state", body, state))
        for first in range(0, layer.time_steps, part):
            count = min(part, layer.time_steps - first)
            if first:
                last = replace(layer.states.at(part), view=View.RAW)
                self.steps.append(Map("hand states on", identity(last), layer.states.at(0)))
            self._run(first, count, weights)
            self._store_sequence(first, count)
        for (label, output), state in zip(layer.singles, parts_of(layer.states.at(count)), strict=True):
            if output is not None:
                self.steps.append(Map(label, as_type(state, output.data_type), output))
        return self.steps

    # ---- choices

    def _part(self) -> int:
        """Return the time steps of a part, split as evenly as possible.

        Raises:
            NotSupported: when there are too many time steps, or would be too many parts.
        """
        count = self.layer.time_steps
        block = max(math.prod(series.sizes) for series in (self.layer.inputs, self.layer.states))
        room = min(LARGEST, self.target.max_binding_size) // (4 * block)
        parts = -(-count // max(1, room - 1))
        if count > MAX_KERNELS:
            raise NotSupported(f"{count} time steps exceed the {MAX_KERNELS} that one execution may have")
        if parts > MAX_PARTS:
            raise NotSupported(
                f"{count} time steps fit into temporary tensors only in {parts} parts,"
                f" more than the {MAX_PARTS} that one execution may have"
            )
        return -(-count // parts)

    def _weights(self) -> PlanTensor:
        """Return the recurrent weights, copied into a better layout if that pays."""
        weights = self.layer.recurrence
        gates, _, elements, _ = weights.sizes
        if self.layer.time_steps < MIN_REUSE or 4 * math.prod(weights.sizes) > self.target.max_binding_size:
            return weights
        square = elements * elements
        laid = PlanTensor.temporary("weights", FLOAT32, weights.sizes, (square, gates * square, 1, elements))
        self.steps.append(Map("lay out weights", as_type(weights, FLOAT32), laid))
        return laid

    # ---- time steps

    def _mark_lasting(self) -> None:
        """Add the maps that mark the active sequences of each time step."""
        layer = self.layer
        if layer.lasts is None or layer.lengths is None:
            return
        for direction, backward in enumerate(layer.backward):
            lasting = layer.lasts.during(0, layer.time_steps, direction)
            values = constants(backward=backward, steps=layer.time_steps)
            body = element(LASTS, lasting.data_type, lasting.sizes, values=values, lengths=layer.lengths)
            self.steps.append(Map("sequences that last", body, lasting))

    def _run(self, first: int, count: int, weights: PlanTensor) -> None:
        """Add some time steps, after their common steps."""
        layer = self.layer
        for direction in range(len(layer.backward)):
            self._multiply_inputs(first, count, direction)
        steps = tuple(
            self._from(kernel, first, weights, direction) for direction, kernels in layer.cells for kernel in kernels
        )
        moving = [(layer.inputs, 0), (layer.states, 0), (layer.states, 1)]
        moving += [(layer.lasts, first)] if layer.lasts is not None else []
        advances = tuple((series.at(at).binding, 4 * series.block) for series, at in moving)
        self.steps.append(Repeat("steps", steps, count, advances))

    def _from(self, kernel: Recurrence, first: int, weights: PlanTensor, direction: int) -> Recurrence:
        """Return a kernel of the first time step for another one, with the weights' layout."""
        own = replace(weights, sizes=kernel.weights.sizes, offset=weights.offset + direction * weights.strides[1])
        lasts = self.layer.lasts
        if lasts is None or first == 0:
            return replace(kernel, weights=own)
        before, now = lasts.at(0).binding, lasts.at(first).binding
        moved: Recurrence = replace_parts(kernel, PlanBinding, lambda binding: now if binding == before else binding)
        return replace(moved, weights=own)

    def _multiply_inputs(self, first: int, count: int, direction: int) -> None:
        """Add the products of the inputs of some time steps with a direction's weights."""
        output = self.layer.inputs.during(0, count, direction)
        _, sequences, rows = output.sizes
        a, b = self._inputs(first, count, direction), self.layer.weights
        inner = a.sizes[-1]
        _, apart, row, column = b.strides
        b = replace(b, sizes=(inner, rows), strides=(column, row), offset=direction * apart)
        product = Product(Space((), (count, sequences), (rows,), (inner,)), a, b, FLOAT32)
        sums = stepped(self.layer.sums[direction], output.sizes, (0, 0, 0), (1, 1, 1))
        self.steps.append(Contract("", product, sums, output))

    def _inputs(self, first: int, count: int, direction: int) -> PlanTensor:
        """Return the inputs of some time steps over (time step, sequence, element), in the order of execution."""
        inputs, last = self.layer.input, self.layer.time_steps - 1
        _, step, *strides = inputs.strides
        start, stride = (last - first, -step) if self.layer.backward[direction] else (first, step)
        return replace(inputs, sizes=(count, *inputs.sizes[2:]), strides=(stride, *strides), offset=start * step)

    # ---- outputs

    def _store_sequence(self, first: int, count: int) -> None:
        """Add the maps that store the hidden states of some time steps, in the order of time."""
        whole = self.layer.output
        if whole is None:
            return
        for direction, backward in enumerate(self.layer.backward):
            start = self.layer.time_steps - first - count if backward else first
            offset = start * whole.strides[0] + direction * whole.strides[1]
            state = self.layer.states.during(1, count, direction, reverse=backward)
            output = replace(whole, sizes=state.sizes, strides=(whole.strides[0], *whole.strides[2:]), offset=offset)
            body = self._while_lasting(state, first, direction, output.data_type)
            self.steps.append(Map("output sequence", body, output, keeps_neighbors=output.sizes != whole.sizes))

    def _while_lasting(self, state: PlanTensor, first: int, direction: int, data_type: DataType) -> Body:
        """Return the hidden states of time steps, 0 if the sequence is over."""
        if self.layer.lasts is None:
            return as_type(state, data_type)
        backward = self.layer.backward[direction]
        lasts = self.layer.lasts.during(first, state.sizes[0], direction, reverse=backward)
        lasts = replace(lasts, sizes=state.sizes, strides=(*lasts.strides[:2], 0))
        zero = number(0, state.sizes)
        return apply(KEPT, data_type, state.sizes, portable=True, lasts=lasts, value=state, other=zero)
