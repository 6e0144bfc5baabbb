"""Recurrent layers as steps of a plan, and what the cell of a layer sees of a time step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from dmlgpu.catalog.enums import DataType, RecurrentNetworkDirection
from dmlgpu.compiler.operators.fused import activated
from dmlgpu.compiler.operators.lowering import input_tensor, output_tensor
from dmlgpu.compiler.plan import (
    Body,
    Constants,
    Held,
    Recurrence,
    RecurrentLayer,
    Series,
    Source,
    Tensor,
    apply,
)
from dmlgpu.compiler.plan.steps.recurrent import parts_of
from dmlgpu.compiler.rewrites.sources import CONVERT, converted, number

FLOAT32 = DataType.FLOAT32
ADD = "elementwise/element_wise_add"
KEPT = "recurrent/kept"

BACKWARD = {
    RecurrentNetworkDirection.FORWARD: (False,),
    RecurrentNetworkDirection.BACKWARD: (True,),
    RecurrentNetworkDirection.BIDIRECTIONAL: (False, True),
}
"""Of each direction of a layer, whether it starts at the end."""

Cell: TypeAlias = Callable[["TimeStep"], Sequence[Recurrence]]
"""Returns the kernels of a time step."""

Sizes = tuple[int, ...]


def computed(file: str, sizes: Sizes, values: Constants = (), **inputs: Source) -> Body:
    """Return an element-wise body in float32."""
    return apply(file, FLOAT32, sizes, portable=True, values=values, **inputs)


def total(first: Source, second: Source, *others: Source | None) -> Body:
    """Return the sum of sources, without those that are None."""
    found = computed(ADD, first.sizes, a=first, b=second)
    for other in others:
        if other is not None:
            found = computed(ADD, first.sizes, a=found, b=other)
    return found


@dataclass(frozen=True)
class Layer:
    """A recurrent layer.

    Attributes:
        desc: its description.
        gates: rows of weights per element of a state.
        initial: fields of the states that a step hands on to the next, the hidden state's first.
        scratch: tensors of a state's sizes that the kernels of one step hand to each other.
        late_bias: the cell itself adds the biases of the recurrent products, which else come with the inputs.
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
        """1, directions, sequences, elements of a state."""
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
    """What time steps work on.

    Attributes:
        inputs: products of the inputs of each step, gate after gate.
        states: the states before the first step, and after each.
        scratch: what kernels of one step hand to each other.
        lasts: which sequences last at each step; None where all do.
        weights: recurrent weights over (gate, direction, element, element before).
    """

    inputs: Series
    states: Series
    scratch: Series
    lasts: Series | None
    weights: Tensor


@dataclass(frozen=True)
class TimeStep:
    """A step in time, as the cell sees it: tensors over (1, direction, sequence, element).

    Attributes:
        directions: neighbouring directions with the same activations.
    """

    layer: Layer
    temporaries: Temporaries
    directions: range

    @property
    def sizes(self) -> Sizes:
        """The sizes of a state."""
        _, _, sequences, elements = self.layer.state_sizes
        return 1, len(self.directions), sequences, elements

    @property
    def before(self) -> tuple[Tensor, ...]:
        """The states before the step."""
        return parts_of(self._own(self.temporaries.states.at(0)))

    @property
    def scratch(self) -> Tensor:
        """Return a temporary tensor between kernels of the step: (part, direction, sequence, element)."""
        return self._own(self.temporaries.scratch.at(0))

    def inputs(self, gate: int) -> Tensor:
        """Return the products of the step's inputs with a gate's weights, biases added."""
        gates = self._own(self.temporaries.inputs.at(0))
        return replace(gates, sizes=self.sizes, offset=gates.offset + gate * self.sizes[-1])

    def parameter(self, field: str, entry: int) -> Tensor | None:
        """Return one of the vectors that a tensor holds per direction, one after the other; None where it is absent."""
        if getattr(self.layer.desc, field) is None:
            return None
        tensor = input_tensor(self.layer.desc, field)
        _, _, apart, stride = tensor.strides
        offset = self.directions.start * apart + entry * self.sizes[-1] * stride
        return replace(tensor, sizes=self.sizes, strides=(0, apart, 0, stride), offset=offset)

    def sums(self, *gates: int) -> Mapping[int, Held]:
        """Return what stands for the products of a hidden state with the recurrent weights of gates."""
        return {gate: Held(f"sum{number}", FLOAT32, self.sizes) for number, gate in enumerate(gates)}

    def activated(self, body: Body, which: int) -> Body:
        """Return a body with one of the directions' activations after it."""
        activations = self.layer.desc.activation_descs
        each = len(activations) // len(self.layer.backward)
        return activated(body, activations[self.directions.start * each + which])

    def end(self, hidden: Tensor, sums: Mapping[int, Held], *states: Body) -> Recurrence:
        """Return the kernel that computes the states after the step; sequences that do not last keep those before."""
        return self.compute("step", hidden, sums, self._kept(states), self._own(self.temporaries.states.at(1)))

    def compute(
        self, label: str, hidden: Tensor, sums: Mapping[int, Held], values: Sequence[Body], output: Tensor
    ) -> Recurrence:
        """Return the step that computes values from products of a hidden state (see ``plan.Recurrence``)."""
        weights = self._own(self.temporaries.weights)
        return Recurrence(label, hidden, weights, tuple(sums.items()), tuple(values), output)

    def _kept(self, states: Sequence[Body]) -> Sequence[Body]:
        if self.temporaries.lasts is None:
            return states
        now = self._own(self.temporaries.lasts.at(0))
        lasts = replace(now, sizes=self.sizes, strides=(*now.strides[:3], 0))
        pairs = zip(states, self.before, strict=True)
        return [computed(KEPT, self.sizes, lasts=lasts, value=after, other=before) for after, before in pairs]

    def _own(self, tensor: Tensor) -> Tensor:
        """Return the part of a tensor, whose second dimension is the direction, that belongs to these directions."""
        sizes = (tensor.sizes[0], len(self.directions), *tensor.sizes[2:])
        return replace(tensor, sizes=sizes, offset=tensor.offset + self.directions.start * tensor.strides[1])


def recurrent_layer(layer: Layer, cell: Cell, singles: Sequence[str]) -> RecurrentLayer:
    """Return the step that computes a layer.

    Args:
        layer: what is computed.
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


def _optional(desc: Any, field: str, tensor: Callable[[Any, str], Tensor]) -> Tensor | None:
    return None if getattr(desc, field) is None else tensor(desc, field)


def _recurrent_weights(layer: Layer) -> Tensor:
    """Return the recurrent weights over (gate, direction, element, element before)."""
    weights = input_tensor(layer.desc, "recurrence_tensor")
    _, apart, row, column = weights.strides
    _, directions, _, elements = layer.state_sizes
    sizes = (layer.gates, directions, elements, elements)
    return replace(weights, sizes=sizes, strides=(elements * row, apart, row, column))


def _sums(layer: Layer, direction: int) -> Body:
    """Return the products of the inputs with their biases, and with those of the states where the cell does not add
    them itself."""
    _, _, sequences, elements = layer.state_sizes
    product = Held.product(FLOAT32, (layer.desc.input_tensor.sizes[1], sequences, layer.gates * elements))
    if layer.desc.bias_tensor is None:
        return computed(CONVERT, product.sizes, input=product)
    biases = input_tensor(layer.desc, "bias_tensor")
    _, _, apart, stride = biases.strides
    inputs = replace(biases, sizes=product.sizes, strides=(0, 0, stride), offset=direction * apart)
    states = replace(inputs, offset=inputs.offset + product.sizes[-1] * stride)
    return total(product, inputs, None if layer.late_bias else states)


def _initial(layer: Layer, field: str) -> Body:
    if getattr(layer.desc, field) is None:
        return number(0, layer.state_sizes)
    return converted(input_tensor(layer.desc, field), FLOAT32)
