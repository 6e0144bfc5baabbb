"""Recurrent layers as steps of a plan, and the view of a time step for the cell of a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, FeatureLevel, RecurrentNetworkDirection
from dmlgpu.common.errors import InvalidDescription
from dmlgpu.compiler.operators.elementwise import ADD, CLIP, MULTIPLY, activated
from dmlgpu.compiler.operators.lowering import (
    Lowering,
    check_sizes,
    input_tensor,
    invalid,
    lowering,
    output_tensor,
)
from dmlgpu.compiler.plan import (
    Body,
    Plan,
    PlanTensor,
    Recurrence,
    RecurrentLayer,
    RegisterValue,
    Series,
    Sizes,
    Source,
    constants,
    in_float32,
)
from dmlgpu.compiler.plan.products import parts_of
from dmlgpu.compiler.rewrites.sources import CONVERT, as_type, number

FLOAT32 = DataType.FLOAT32
KEPT = "recurrent/kept"

BACKWARD = {
    RecurrentNetworkDirection.FORWARD: (False,),
    RecurrentNetworkDirection.BACKWARD: (True,),
    RecurrentNetworkDirection.BIDIRECTIONAL: (False, True),
}
"""Whether each direction of a layer starts at the end."""

Cell: TypeAlias = Callable[["TimeStep"], Sequence[Recurrence]]
"""Function that returns the kernels of a time step."""


def total(first: Source, second: Source, *others: Source | None) -> Body:
    """Return the sum of sources, ignoring None."""
    result = in_float32(ADD, first.sizes, a=first, b=second)
    for other in others:
        if other is not None:
            result = in_float32(ADD, first.sizes, a=result, b=other)
    return result


@dataclass(frozen=True)
class Layer:
    """A recurrent layer.

    Attributes:
        desc: Its description.
        gates: Rows of weights per element of a state.
        initial: Fields of the states that a time step passes to the next, the hidden state first.
        scratch: Tensors of a state's sizes that the kernels of one time step pass to each other.
        late_bias: Whether the cell adds the biases of the recurrent products; else they are added to the inputs.
    """

    desc: Any
    gates: int
    initial: tuple[str, ...]
    scratch: int = 0
    late_bias: bool = False

    @property
    def backward(self) -> tuple[bool, ...]:
        """Whether each direction starts at the end."""
        return BACKWARD[self.desc.direction]

    @property
    def state_sizes(self) -> Sizes:
        """Sizes of a state: 1, directions, sequences, elements."""
        return 1, len(self.backward), self.desc.input_tensor.sizes[2], self.desc.recurrence_tensor.sizes[3]

    @property
    def alike(self) -> tuple[range, ...]:
        """Group the directions by their activations."""
        directions, activations = len(self.backward), self.desc.activation_descs
        each = len(activations) // directions
        if activations[:each] == activations[-each:]:
            return (range(directions),)
        return tuple(range(direction, direction + 1) for direction in range(directions))


@dataclass(frozen=True)
class Temporaries:
    """The temporary tensors of time steps.

    Attributes:
        inputs: products of the inputs of each step, gate after gate.
        states: the states before the first step, and after each.
        scratch: intermediate results between kernels of one step.
        lasts: whether each sequence is at least as long as each step; None if all are.
        weights: recurrent weights over (gate, direction, element, element before).
    """

    inputs: Series
    states: Series
    scratch: Series
    lasts: Series | None
    weights: PlanTensor


@dataclass(frozen=True)
class TimeStep:
    """View of a time step for a cell: tensors over (1, direction, sequence, element).

    Attributes:
        directions: adjacent directions with the same activations.
    """

    layer: Layer
    temporaries: Temporaries
    directions: range

    @property
    def sizes(self) -> Sizes:
        """Sizes of a state."""
        _, _, sequences, elements = self.layer.state_sizes
        return 1, len(self.directions), sequences, elements

    @property
    def before(self) -> tuple[PlanTensor, ...]:
        """The states before the step."""
        return parts_of(self._own(self.temporaries.states.at(0)))

    @property
    def scratch(self) -> PlanTensor:
        """Return a temporary tensor between kernels of the step: (part, direction, sequence, element)."""
        return self._own(self.temporaries.scratch.at(0))

    def inputs(self, gate: int) -> PlanTensor:
        """Return the products of the step's inputs with a gate's weights, biases added."""
        gates = self._own(self.temporaries.inputs.at(0))
        return replace(gates, sizes=self.sizes, offset=gates.offset + gate * self.sizes[-1])

    def parameter(self, field: str, entry: int) -> PlanTensor | None:
        """Return one of the vectors that a tensor has per direction, or None if the tensor is absent."""
        if getattr(self.layer.desc, field) is None:
            return None
        tensor = input_tensor(self.layer.desc, field)
        _, _, apart, stride = tensor.strides
        offset = self.directions.start * apart + entry * self.sizes[-1] * stride
        return replace(tensor, sizes=self.sizes, strides=(0, apart, 0, stride), offset=offset)

    def sums(self, *gates: int) -> Mapping[int, RegisterValue]:
        """Return placeholders for the products of a hidden state with the recurrent weights of gates."""
        return {gate: RegisterValue(f"sum{index}", FLOAT32, self.sizes) for index, gate in enumerate(gates)}

    def activated(self, body: Body, which: int) -> Body:
        """Return a body with one of the directions' activations after it."""
        activations = self.layer.desc.activation_descs
        each = len(activations) // len(self.layer.backward)
        return activated(body, activations[self.directions.start * each + which])

    def end(self, hidden: PlanTensor, sums: Mapping[int, RegisterValue], *states: Body) -> Recurrence:
        """Return the kernel that computes the states after the step; sequences that are over keep theirs."""
        return self.compute("step", hidden, sums, self._keep_ended(states), self._own(self.temporaries.states.at(1)))

    def compute(
        self,
        label: str,
        hidden: PlanTensor,
        sums: Mapping[int, RegisterValue],
        values: Sequence[Body],
        output: PlanTensor,
    ) -> Recurrence:
        """Return the step that computes values from products of a hidden state (see ``plan.Recurrence``)."""
        weights = self._own(self.temporaries.weights)
        return Recurrence(label, hidden, weights, tuple(sums.items()), tuple(values), output)

    def _keep_ended(self, states: Sequence[Body]) -> Sequence[Body]:
        if self.temporaries.lasts is None:
            return states
        now = self._own(self.temporaries.lasts.at(0))
        lasts = replace(now, sizes=self.sizes, strides=(*now.strides[:3], 0))
        pairs = zip(states, self.before, strict=True)
        return [in_float32(KEPT, self.sizes, lasts=lasts, value=after, other=before) for after, before in pairs]

    def _own(self, tensor: PlanTensor) -> PlanTensor:
        """Return the part of a tensor, whose second dimension is the direction, that belongs to these directions."""
        sizes = (tensor.sizes[0], len(self.directions), *tensor.sizes[2:])
        return replace(tensor, sizes=sizes, offset=tensor.offset + self.directions.start * tensor.strides[1])


def recurrent_layer(layer: Layer, cell: Cell, singles: Sequence[str]) -> RecurrentLayer:
    """Return the step that computes a layer.

    Args:
        layer: the layer.
        cell: returns the kernels of a time step.
        singles: the output field of each state after the last time step.
    """
    desc = layer.desc
    _, directions, sequences, elements = layer.state_sizes
    states = (len(layer.initial), directions, sequences, elements)
    lengths, lasts = _optional(desc, "sequence_lengths_tensor", input_tensor), None
    if lengths is not None:
        lengths = replace(lengths, sizes=lengths.sizes[3:], strides=lengths.strides[3:])
        lasts = Series.temporary("sequences that last", DataType.UINT32, (1, directions, sequences, 1))
    temporaries = Temporaries(
        Series.temporary("inputs", FLOAT32, (1, directions, sequences, layer.gates * elements)),
        Series.temporary("states", FLOAT32, states),
        Series.temporary("scratch", FLOAT32, (layer.scratch, *states[1:])),
        lasts,
        _recurrent_weights(layer),
    )
    cells = ((alike.start, tuple(cell(TimeStep(layer, temporaries, alike)))) for alike in layer.alike)
    return RecurrentLayer(
        "",
        layer.backward,
        input_tensor(desc, "input_tensor"),
        input_tensor(desc, "weight_tensor"),
        tuple(_sums(layer, direction) for direction in range(directions)),
        temporaries.weights,
        tuple(_initial(layer, field) for field in layer.initial),
        lengths,
        tuple(cells),
        temporaries.inputs,
        temporaries.states,
        lasts,
        _optional(desc, "output_sequence_tensor", output_tensor),
        tuple((field.removesuffix("_tensor"), _optional(desc, field, output_tensor)) for field in singles),
    )


def _optional(desc: Any, field: str, tensor: Callable[[Any, str], PlanTensor]) -> PlanTensor | None:
    return None if getattr(desc, field) is None else tensor(desc, field)


def _recurrent_weights(layer: Layer) -> PlanTensor:
    """Return the recurrent weights over (gate, direction, element, element before)."""
    weights = input_tensor(layer.desc, "recurrence_tensor")
    _, apart, row, column = weights.strides
    _, directions, _, elements = layer.state_sizes
    sizes = (layer.gates, directions, elements, elements)
    return replace(weights, sizes=sizes, strides=(elements * row, apart, row, column))


def _sums(layer: Layer, direction: int) -> Body:
    """Return the products of the inputs with their biases, and with those of the states if the cell does not add them
    itself."""
    _, _, sequences, elements = layer.state_sizes
    product = RegisterValue.product(FLOAT32, (layer.desc.input_tensor.sizes[1], sequences, layer.gates * elements))
    if layer.desc.bias_tensor is None:
        return in_float32(CONVERT, product.sizes, input=product)
    biases = input_tensor(layer.desc, "bias_tensor")
    _, _, apart, stride = biases.strides
    inputs = replace(biases, sizes=product.sizes, strides=(0, 0, stride), offset=direction * apart)
    states = replace(inputs, offset=inputs.offset + product.sizes[-1] * stride)
    return total(product, inputs, None if layer.late_bias else states)


def _initial(layer: Layer, field: str) -> Body:
    if getattr(layer.desc, field) is None:
        return number(0, layer.state_sizes)
    return as_type(input_tensor(layer.desc, field), FLOAT32)


BLEND = "recurrent/blend"
PRODUCTS = "recurrent/products"
SHARED = (KEPT, "recurrent/lasts", ADD, CONVERT)


class _Recurrent(Lowering):
    """Base of the three.

    Class attributes:
        gates: rows of weights per element of the hidden state.
        activations: number of activations of a direction.
        initial: fields of the initial states, the hidden state's first.
        singles: fields of the outputs that hold the last of these states.
    """

    gates: ClassVar[int]
    activations: ClassVar[int]
    initial: ClassVar[tuple[str, ...]] = ("hidden_init_tensor",)
    singles: ClassVar[tuple[str, ...]] = ("output_single_tensor",)

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, Sizes]:
        """Return sizes from the steps, the directions, the sequences and the elements of the hidden state."""
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
        """Raise InvalidDescription unless there is the number of activations that the directions need."""
        directions, count = len(BACKWARD[desc.direction]), len(desc.activation_descs)
        if count != cls.activations * directions:
            reason = f"must hold {cls.activations * directions} ({cls.activations} per direction), got {count}"
            raise invalid(desc, "activation_descs", reason)

    @classmethod
    def check_level(cls, desc: Any, level: FeatureLevel) -> None:
        for place, inner in enumerate(desc.activation_descs):
            try:
                lowering(inner.operator).check_level(inner, level)
            except InvalidDescription as error:
                raise invalid(desc, f"activation_descs[{place}].{error.field}", error.reason) from None

    @classmethod
    def layer(cls, desc: Any) -> Layer:
        """Return the layer of a description."""
        return Layer(desc, cls.gates, cls.initial)

    @classmethod
    def cell(cls, now: TimeStep) -> Sequence[Recurrence]:
        """Return the kernels of a time step."""
        raise NotImplementedError

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        return Plan(desc.operator, (recurrent_layer(cls.layer(desc), cls.cell, cls.singles),))


class Rnn(_Recurrent):
    """H' = f(X * W^T + H * R^T + biases)."""

    desc = descs.Rnn
    shaders = SHARED
    gates = 1
    activations = 1

    @classmethod
    def cell(cls, now: TimeStep) -> Sequence[Recurrence]:
        """Return one step."""
        sums = now.sums(0)
        (hidden,) = now.before
        return [now.end(hidden, sums, now.activated(total(now.inputs(0), sums[0]), 0))]


class Lstm(_Recurrent):
    """Long short-term memory.

    As in ONNX, the output gate's peephole reads the new cell state; the page's text has the previous one. The backward
    direction has peepholes of its own, though the page's equations print the forward ones.
    """

    desc = descs.Lstm
    shaders = (*SHARED, MULTIPLY, CLIP, BLEND, PRODUCTS)
    gates = 4
    activations = 3
    initial = ("hidden_init_tensor", "cell_mem_init_tensor")
    singles = ("output_single_tensor", "output_cell_single_tensor")

    @classmethod
    def cell(cls, now: TimeStep) -> Sequence[Recurrence]:
        """Return one step; coupled gates need no products for the forget gate."""
        coupled = now.layer.desc.couple_input_forget
        sums = now.sums(*((0, 1, 3) if coupled else (0, 1, 2, 3)))
        hidden, memory = now.before
        write = cls._gate(now, sums, 0, 0, _seen(now, 0, memory))
        candidate = cls._gate(now, sums, 3, 1)
        if coupled:
            cell = in_float32(BLEND, now.sizes, share=write, a=memory, b=candidate)
        else:
            forget = cls._gate(now, sums, 2, 0, _seen(now, 2, memory))
            cell = in_float32(PRODUCTS, now.sizes, a=forget, b=memory, c=write, d=candidate)
        shown = cls._gate(now, sums, 1, 0, _seen(now, 1, cell))
        return [now.end(hidden, sums, in_float32(MULTIPLY, now.sizes, a=shown, b=now.activated(cell, 2)), cell)]

    @classmethod
    def _gate(
        cls,
        now: TimeStep,
        sums: Mapping[int, RegisterValue],
        gate: int,
        activation: int,
        peephole: Source | None = None,
    ) -> Body:
        """Return a gate: its products and its peephole of the cell state, clipped, then activated."""
        result = total(now.inputs(gate), sums[gate], peephole)
        desc = now.layer.desc
        if desc.use_clip_threshold:
            bound = np.float32(desc.clip_threshold)
            result = in_float32(CLIP, now.sizes, constants(min=-bound, max=bound), input=result)
        return now.activated(result, activation)


def _seen(now: TimeStep, entry: int, cell: Source) -> Body | None:
    """Return the product of a cell state and a gate's peephole weights."""
    weights = now.parameter("peephole_tensor", entry)
    return None if weights is None else in_float32(MULTIPLY, now.sizes, a=weights, b=cell)


class Gru(_Recurrent):
    """Gated recurrent unit. An absent bias is 0."""

    desc = descs.Gru
    shaders = (*SHARED, MULTIPLY, BLEND)
    gates = 3
    activations = 2

    @classmethod
    def layer(cls, desc: descs.Gru) -> Layer:
        """Lower to kernels of a time step; products after the reset gate need their own kernel."""
        late = desc.linear_before_reset
        return Layer(desc, cls.gates, cls.initial, scratch=0 if late else 2, late_bias=late)

    @classmethod
    def cell(cls, now: TimeStep) -> Sequence[Recurrence]:
        """Return one step, or one for the gates and one for the state."""
        return cls._reset_after(now) if now.layer.desc.linear_before_reset else cls._reset_before(now)

    @classmethod
    def _reset_after(cls, now: TimeStep) -> Sequence[Recurrence]:
        """Return the step in which the reset gate scales the product of the hidden state."""
        sums = now.sums(0, 1, 2)
        (hidden,) = now.before
        update, reset = (
            now.activated(total(now.inputs(gate), sums[gate], now.parameter("bias_tensor", 3 + gate)), 0)
            for gate in (0, 1)
        )
        bias = now.parameter("bias_tensor", 5)
        product = sums[2] if bias is None else total(sums[2], bias)
        scaled = in_float32(MULTIPLY, now.sizes, a=reset, b=product)
        candidate = now.activated(total(now.inputs(2), scaled), 1)
        return [now.end(hidden, sums, in_float32(BLEND, now.sizes, share=update, a=candidate, b=hidden))]

    @classmethod
    def _reset_before(cls, now: TimeStep) -> Sequence[Recurrence]:
        """Return the steps in which the reset gate scales the hidden state before its product."""
        (hidden,) = now.before
        sums = now.sums(0, 1)
        update, reset = (now.activated(total(now.inputs(gate), sums[gate]), 0) for gate in (0, 1))
        scaled = in_float32(MULTIPLY, now.sizes, a=reset, b=hidden)
        gates = now.compute("gates", hidden, sums, (update, scaled), now.scratch)
        update_now, scaled_now = parts_of(now.scratch)
        sums = now.sums(2)
        candidate = now.activated(total(now.inputs(2), sums[2]), 1)
        return [gates, now.end(scaled_now, sums, in_float32(BLEND, now.sizes, share=update_now, a=candidate, b=hidden))]
