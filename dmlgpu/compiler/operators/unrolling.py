"""Recurrent layers as plans: what all steps in time share is computed at once, then they follow one after the other.

1. The products of the inputs with their weights, biases added, of all steps: a matrix product per direction.
2. The initial states, as float32 whatever the layer's type; states stay float32 from step to step.
3. The steps: ``plan.Repeat`` over the kernels of one step (``plan.Recurrence``), both directions in one kernel where
   their activations agree. Each step reads the states that the one before wrote.
4. The outputs, from the states of all steps: for backward directions in opposite order, 0 where a sequence is over.

Where a temporary tensor for all steps would be too large, parts of the time share it, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.operators.elementwise import cast
from dmlgpu.compiler.operators.lowering import input_tensor, output_tensor
from dmlgpu.compiler.operators.normalization import number
from dmlgpu.compiler.operators.timestep import (
    FLOAT32,
    KEPT,
    Layer,
    Series,
    Sizes,
    Temporaries,
    TimeStep,
    computed,
    parts_of,
    total,
)
from dmlgpu.compiler.plan import (
    MOST_KERNELS,
    Body,
    Contract,
    Held,
    Map,
    Plan,
    Product,
    Repeat,
    Space,
    Step,
    Tensor,
    View,
    apply,
    constants,
    element,
)
from dmlgpu.compiler.rewrites.sources import CONVERT, identity
from dmlgpu.compiler.target import Target

LASTS = "recurrent/lasts"

LARGEST = 64 << 20
"""Bytes of a temporary tensor with something of every step beyond which time is taken in parts."""

MOST_PARTS = 64
"""Parts of the time: each has kernels of its own, which take time to make."""

LEAST_REUSE = 4
"""Steps from which on it pays to lay recurrent weights out anew, those of neighbouring elements side by side."""

Cell = Callable[[TimeStep], Sequence[Step]]
"""The kernels of a step in time."""


def unrolled(layer: Layer, cell: Cell, singles: Sequence[str], target: Target) -> Plan:
    """Return the plan of a layer.

    Args:
        cell: makes the kernels of a step.
        singles: the output field of each state after the last step.
    """
    return _Unrolled(layer, target).plan(cell, singles)


class _Unrolled:
    """A plan in the making."""

    def __init__(self, layer: Layer, target: Target):
        self.layer, self.desc, self.target = layer, layer.desc, target
        self.steps: list[Step] = []
        _, directions, sequences, elements = layer.state_sizes
        inputs = (1, directions, sequences, layer.gates * elements)
        states = (len(layer.initial), directions, sequences, elements)
        self.part = self._part(inputs, states)
        self.found = Temporaries(
            Series.temporary("inputs", FLOAT32, inputs),
            Series.temporary("states", FLOAT32, states),
            Series.temporary("scratch", FLOAT32, (layer.scratch, *states[1:])),
            self._lasts(),
            self._weights(),
        )

    def plan(self, cell: Cell, singles: Sequence[str]) -> Plan:
        """Return the plan of all steps."""
        self._begin()
        for first in range(0, self.layer.steps, self.part):
            count = min(self.part, self.layer.steps - first)
            if first:
                self._continue()
            self._run(cell, first, count)
            self._store_sequence(first, count)
        for field, state in zip(singles, parts_of(self.found.states.at(count)), strict=True):
            if getattr(self.desc, field) is not None:
                output = output_tensor(self.desc, field)
                self.steps.append(Map(field.removesuffix("_tensor"), _converted(state, output.data_type), output))
        return Plan(self.desc.operator, tuple(self.steps))

    # ---- temporary tensors

    def _part(self, *blocks: Sizes) -> int:
        """Return the steps of a part of the time, split as evenly as can be.

        Raises:
            NotSupported: when there are too many steps, or would be too many parts.
        """
        room = min(LARGEST, self.target.max_binding_size) // (4 * max(math.prod(sizes) for sizes in blocks))
        parts = -(-self.layer.steps // max(1, room - 1))
        if self.layer.steps > MOST_KERNELS:
            raise NotSupported(
                f"{self.layer.steps} steps in time exceed the {MOST_KERNELS} that one execution may have"
            )
        if parts > MOST_PARTS:
            raise NotSupported(
                f"{self.layer.steps} steps in time fit into temporary tensors only in {parts} parts,"
                f" more than the {MOST_PARTS} that one execution may have"
            )
        return -(-self.layer.steps // parts)

    def _lasts(self) -> Series | None:
        """Add the map that marks which sequences last at each step."""
        if self.desc.sequence_lengths_tensor is None:
            return None
        lengths = input_tensor(self.desc, "sequence_lengths_tensor")
        lengths = replace(lengths, sizes=lengths.sizes[3:], strides=lengths.strides[3:])
        _, directions, sequences, _ = self.layer.state_sizes
        steps = self.layer.steps
        series = Series.temporary("sequences that last", DataType.UINT32, (1, directions, sequences, 1))
        for direction, backward in enumerate(self.layer.backward):
            lasting = series.during(0, steps, direction)
            values = constants(backward=backward, steps=steps)
            body = element(LASTS, lasting.data_type, lasting.sizes, values=values, lengths=lengths)
            self.steps.append(Map("sequences that last", body, lasting))
        return series

    def _weights(self) -> Tensor:
        """Return the recurrent weights, copied into a better layout where that pays."""
        given = input_tensor(self.desc, "recurrence_tensor")
        _, apart, row, column = given.strides
        _, directions, _, elements = self.layer.state_sizes
        sizes = (self.layer.gates, directions, elements, elements)
        weights = replace(given, sizes=sizes, strides=(elements * row, apart, row, column))
        size = 4 * math.prod(sizes)
        if self.layer.steps < LEAST_REUSE or size > self.target.max_binding_size:
            return weights
        square = elements * elements
        strides = (square, self.layer.gates * square, 1, elements)
        laid = Tensor.temporary("weights", FLOAT32, sizes, strides)
        self.steps.append(Map("lay out weights", _converted(weights, FLOAT32), laid))
        return laid

    # ---- steps

    def _begin(self) -> None:
        """Add the steps that write the states before the first step."""
        for field, state in zip(self.layer.initial, parts_of(self.found.states.at(0)), strict=True):
            given = getattr(self.desc, field)
            body = number(0, state.sizes) if given is None else _converted(input_tensor(self.desc, field), FLOAT32)
            self.steps.append(Map("initial state", body, state))

    def _continue(self) -> None:
        """Add the copies that make the states after a part of the time those before the next."""
        last = replace(self.found.states.at(self.part), view=View.RAW)
        self.steps.append(Map("hand states on", identity(last), self.found.states.at(0)))

    def _run(self, cell: Cell, first: int, count: int) -> None:
        """Add some steps in time, and before them what they share."""
        for direction in range(len(self.layer.backward)):
            self._multiply_inputs(first, count, direction)
        now = [TimeStep(self.layer, self.found, alike, first) for alike in self.layer.alike]
        steps = tuple(step for each in now for step in cell(each))
        found = self.found
        moving = [(found.inputs, 0), (found.states, 0), (found.states, 1)]
        moving += [(found.lasts, first)] if found.lasts is not None else []
        advances = tuple((series.at(at).binding, 4 * series.block) for series, at in moving)
        self.steps.append(Repeat("steps", steps, count, advances))

    def _multiply_inputs(self, first: int, count: int, direction: int) -> None:
        """Add the products of the inputs of some steps with a direction's weights."""
        output = self.found.inputs.during(0, count, direction)
        _, sequences, rows = output.sizes
        a, b = self._inputs(first, count, direction), input_tensor(self.desc, "weight_tensor")
        inner = a.sizes[-1]
        _, apart, row, column = b.strides
        b = replace(b, sizes=(inner, rows), strides=(column, row), offset=direction * apart)
        product = Product(Space((), (count, sequences), (rows,), (inner,)), a, b, FLOAT32)
        epilogue = self._with_biases(Held.product(FLOAT32, output.sizes), direction)
        self.steps.append(Contract("", product, epilogue, output))

    def _inputs(self, first: int, count: int, direction: int) -> Tensor:
        """Return the inputs of some steps over (step, sequence, element), in the order of execution."""
        given = input_tensor(self.desc, "input_tensor")
        _, step, *strides = given.strides
        start, step = (self.layer.steps - 1 - first, -step) if self.layer.backward[direction] else (first, step)
        sizes = (count, *given.sizes[2:])
        return replace(given, sizes=sizes, strides=(step, *strides), offset=start * given.strides[1])

    def _with_biases(self, product: Held, direction: int) -> Body:
        """Products with biases of the inputs, and of the states where the cell does not add them itself."""
        if self.desc.bias_tensor is None:
            return computed(CONVERT, product.sizes, input=product)
        given = input_tensor(self.desc, "bias_tensor")
        _, _, apart, stride = given.strides
        inputs = replace(given, sizes=product.sizes, strides=(0, 0, stride), offset=direction * apart)
        states = replace(inputs, offset=inputs.offset + product.sizes[-1] * stride)
        return total(product, inputs, None if self.layer.late_bias else states)

    # ---- outputs

    def _store_sequence(self, first: int, count: int) -> None:
        """Add the map that stores the hidden states of some steps, in the order of time."""
        if self.desc.output_sequence_tensor is None:
            return
        whole = output_tensor(self.desc, "output_sequence_tensor")
        for direction, backward in enumerate(self.layer.backward):
            start = self.layer.steps - first - count if backward else first
            offset = start * whole.strides[0] + direction * whole.strides[1]
            state = self.found.states.during(1, count, direction, reverse=backward)
            output = replace(whole, sizes=state.sizes, strides=(whole.strides[0], *whole.strides[2:]), offset=offset)
            body = self._while_lasting(state, first, direction, output.data_type)
            self.steps.append(Map("output sequence", body, output, keeps_neighbours=output.sizes != whole.sizes))

    def _while_lasting(self, state: Tensor, first: int, direction: int, data_type: DataType) -> Body:
        """Return the hidden states of steps, 0 where the sequence is over."""
        if self.found.lasts is None:
            return _converted(state, data_type)
        backward = self.layer.backward[direction]
        lasts = self.found.lasts.during(first, state.sizes[0], direction, reverse=backward)
        lasts = replace(lasts, sizes=state.sizes, strides=(*lasts.strides[:2], 0))
        zero = number(0, state.sizes)
        return apply(KEPT, data_type, state.sizes, portable=True, lasts=lasts, value=state, other=zero)


def _converted(source: Tensor, data_type: DataType) -> Body:
    """Return a tensor converted to a type, or its bits where it has that type."""
    if source.data_type is data_type:
        return identity(replace(source, view=View.RAW))
    return cast(source, data_type)
