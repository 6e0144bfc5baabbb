"""Recurrent networks: RNN, LSTM and GRU, forward, backward and in both directions.

What they share, where the pages are silent:

- Beyond the length of a sequence the output sequence is 0. A backward direction starts at the last step of each
  sequence. A length of 0 leaves a sequence its initial states; lengths above the number of steps count as that.
- Everything is computed in float32, states between the steps as well, and rounded to the type of an output once.
- At least one output must be given.
- More than 8192 steps in time, or kernels for them, are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import FeatureLevel
from dmlgpu.common.errors import InvalidDescription
from dmlgpu.compiler.operators.arithmetic import ElementWiseClip1, ElementWiseMultiply
from dmlgpu.compiler.operators.elementwise import CAST
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, invalid, lowering
from dmlgpu.compiler.operators.timestep import ADD, BACKWARD, KEPT, Layer, TimeStep, computed, parts_of, total
from dmlgpu.compiler.operators.unrolling import LASTS, unrolled
from dmlgpu.compiler.plan import Body, Held, Plan, Source, Step, constants
from dmlgpu.compiler.target import Target

MULTIPLY = ElementWiseMultiply.shaders[0]
CLIP = ElementWiseClip1.shaders[0]
BLEND = "recurrent/blend"
PRODUCTS = "recurrent/products"
SHARED = (KEPT, LASTS, ADD, CAST)

Sizes = tuple[int, ...]


class _Recurrent(Lowering):
    """What the three share.

    Class attributes:
        gates: rows of weights per element of the hidden state.
        activations: how many a direction has.
        initial: fields of the initial states, the hidden state's first.
        singles: fields of the outputs that hold the last of these states.
    """

    gates: ClassVar[int]
    activations: ClassVar[int]
    initial: ClassVar[tuple[str, ...]] = ("hidden_init_tensor",)
    singles: ClassVar[tuple[str, ...]] = ("output_single_tensor",)

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, Sizes]:
        """They follow from the steps, the directions, the sequences and the elements of the hidden state."""
        _, steps, sequences, _ = desc.input_tensor.sizes
        directions, hidden = len(BACKWARD[desc.direction]), desc.recurrence_tensor.sizes[3]
        singles = dict.fromkeys(cls.singles, (1, directions, sequences, hidden))
        return {"output_sequence_tensor": (steps, directions, sequences, hidden), **singles}

    @classmethod
    def check(cls, desc: Any) -> None:
        _, _, sequences, inputs = desc.input_tensor.sizes
        directions, hidden = len(BACKWARD[desc.direction]), desc.recurrence_tensor.sizes[3]
        states = (1, directions, sequences, hidden)
        expected = {
            "input_tensor": (1, *desc.input_tensor.sizes[1:]),
            "weight_tensor": (1, directions, cls.gates * hidden, inputs),
            "recurrence_tensor": (1, directions, cls.gates * hidden, hidden),
            "bias_tensor": (1, 1, directions, 2 * cls.gates * hidden),
            **dict.fromkeys(cls.initial, states),
            "sequence_lengths_tensor": (1, 1, 1, sequences),
            "peephole_tensor": (1, 1, directions, 3 * hidden),
            **cls.output_sizes(desc),
        }
        why = f"{desc.direction.name}, {sequences} sequences, {inputs} inputs, {hidden} hidden elements"
        for field in (*desc.input_fields, *desc.output_fields):
            if getattr(desc, field) is not None:
                check_sizes(desc, field, expected[field], why)
        cls._check_activations(desc)
        if all(slot.tensor is None for slot in desc.outputs):
            names = " or ".join(desc.output_fields)
            raise invalid(desc, desc.output_fields[0], f"must be given, or another output ({names}), got none")

    @classmethod
    def _check_activations(cls, desc: Any) -> None:
        """Raise InvalidDescription unless there are as many activations as the directions need."""
        directions, given = len(BACKWARD[desc.direction]), len(desc.activation_descs)
        if given != cls.activations * directions:
            reason = f"must hold {cls.activations * directions} ({cls.activations} per direction), got {given}"
            raise invalid(desc, "activation_descs", reason)

    @classmethod
    def check_level(cls, desc: Any, level: FeatureLevel) -> None:
        for number, inner in enumerate(desc.activation_descs):
            try:
                lowering(inner.operator).check_level(inner, level)
            except InvalidDescription as error:
                raise invalid(desc, f"activation_descs[{number}].{error.field}", error.reason) from None

    @classmethod
    def layer(cls, desc: Any) -> Layer:
        """Return the layer that a description asks for."""
        return Layer(desc, cls.gates, cls.initial)

    @classmethod
    def cell(cls, now: TimeStep) -> Sequence[Step]:
        """Return the kernels of a step in time."""
        raise NotImplementedError

    @classmethod
    def lower(cls, desc: Any, target: Target) -> Plan:
        return unrolled(cls.layer(desc), cls.cell, cls.singles, target)


class Rnn(_Recurrent):
    """H' = f(X * W^T + H * R^T + biases)."""

    desc = descs.Rnn
    shaders = SHARED
    gates = 1
    activations = 1

    @classmethod
    def cell(cls, now: TimeStep) -> Sequence[Step]:
        """Return one step."""
        sums = now.sums(0)
        (hidden,) = now.before
        return [now.end(hidden, sums, now.activated(total(now.inputs(0), sums[0]), 0))]


class Lstm(_Recurrent):
    """Long short-term memory.

    As in ONNX, the output gate's peephole looks at the new cell state; the page's text has the one before. The backward
    direction has peepholes of its own, though the page's equations print the forward ones.
    """

    desc = descs.Lstm
    shaders = (*SHARED, MULTIPLY, CLIP, BLEND, PRODUCTS)
    gates = 4
    activations = 3
    initial = ("hidden_init_tensor", "cell_mem_init_tensor")
    singles = ("output_single_tensor", "output_cell_single_tensor")

    @classmethod
    def cell(cls, now: TimeStep) -> Sequence[Step]:
        """Return one step; coupled gates need no products for the forget gate."""
        coupled = now.layer.desc.couple_input_forget
        sums = now.sums(*((0, 1, 3) if coupled else (0, 1, 2, 3)))
        hidden, memory = now.before
        write = cls._gate(now, sums, 0, 0, _seen(now, 0, memory))
        candidate = cls._gate(now, sums, 3, 1)
        if coupled:
            cell = computed(BLEND, now.sizes, share=write, a=memory, b=candidate)
        else:
            forget = cls._gate(now, sums, 2, 0, _seen(now, 2, memory))
            cell = computed(PRODUCTS, now.sizes, a=forget, b=memory, c=write, d=candidate)
        shown = cls._gate(now, sums, 1, 0, _seen(now, 1, cell))
        return [now.end(hidden, sums, computed(MULTIPLY, now.sizes, a=shown, b=now.activated(cell, 2)), cell)]

    @classmethod
    def _gate(
        cls, now: TimeStep, sums: Mapping[int, Held], gate: int, activation: int, peephole: Source | None = None
    ) -> Body:
        """Return a gate: its products and what it sees of the cell state, clipped, after an activation."""
        found = total(now.inputs(gate), sums[gate], peephole)
        desc = now.layer.desc
        if desc.use_clip_threshold:
            bound = np.float32(desc.clip_threshold)
            found = computed(CLIP, now.sizes, constants(min=-bound, max=bound), input=found)
        return now.activated(found, activation)


def _seen(now: TimeStep, entry: int, cell: Source) -> Body | None:
    """Return the product of a cell state and a gate's peephole weights."""
    weights = now.parameter("peephole_tensor", entry)
    return None if weights is None else computed(MULTIPLY, now.sizes, a=weights, b=cell)


class Gru(_Recurrent):
    """Gated recurrent unit. An absent bias is 0."""

    desc = descs.Gru
    shaders = (*SHARED, MULTIPLY, BLEND)
    gates = 3
    activations = 2

    @classmethod
    def layer(cls, desc: descs.Gru) -> Layer:
        """Products after the reset gate need a kernel of their own."""
        late = desc.linear_before_reset
        return Layer(desc, cls.gates, cls.initial, scratch=0 if late else 2, late_bias=late)

    @classmethod
    def cell(cls, now: TimeStep) -> Sequence[Step]:
        """Return one step, or one for the gates and one for the state."""
        return cls._reset_after(now) if now.layer.desc.linear_before_reset else cls._reset_before(now)

    @classmethod
    def _reset_after(cls, now: TimeStep) -> Sequence[Step]:
        """Return the step in which the reset gate scales the product of the hidden state."""
        sums = now.sums(0, 1, 2)
        (hidden,) = now.before
        update, reset = (
            now.activated(total(now.inputs(gate), sums[gate], now.parameter("bias_tensor", 3 + gate)), 0)
            for gate in (0, 1)
        )
        bias = now.parameter("bias_tensor", 5)
        product = sums[2] if bias is None else total(sums[2], bias)
        scaled = computed(MULTIPLY, now.sizes, a=reset, b=product)
        candidate = now.activated(total(now.inputs(2), scaled), 1)
        return [now.end(hidden, sums, computed(BLEND, now.sizes, share=update, a=candidate, b=hidden))]

    @classmethod
    def _reset_before(cls, now: TimeStep) -> Sequence[Step]:
        """Return the steps in which the reset gate scales the hidden state before its product."""
        (hidden,) = now.before
        sums = now.sums(0, 1)
        update, reset = (now.activated(total(now.inputs(gate), sums[gate]), 0) for gate in (0, 1))
        scaled = computed(MULTIPLY, now.sizes, a=reset, b=hidden)
        gates = now.compute("gates", hidden, sums, (update, scaled), now.scratch)
        update_now, scaled_now = parts_of(now.scratch)
        sums = now.sums(2)
        candidate = now.activated(total(now.inputs(2), sums[2]), 1)
        return [gates, now.end(scaled_now, sums, computed(BLEND, now.sizes, share=update_now, a=candidate, b=hidden))]
