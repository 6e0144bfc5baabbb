"""What the cell of a recurrent layer sees of a step in time, and the temporary tensors that steps work on.

Temporary tensors are in the order of execution: a backward direction starts at the end of the longest possible
sequence, and a sequence that is shorter keeps its initial states until its own end is reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dmlgpu.catalog.enums import DataType, RecurrentNetworkDirection
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.operators.fused import activated
from dmlgpu.compiler.operators.lowering import input_tensor
from dmlgpu.compiler.plan import Binding, Body, Constants, Held, Recurrence, Source, Tensor, apply

FLOAT32 = DataType.FLOAT32
ADD = "elementwise/element_wise_add"
KEPT = "recurrent/kept"

WORDS = 4
"""What is bound starts at multiples of so many words."""

BACKWARD = {
    RecurrentNetworkDirection.FORWARD: (False,),
    RecurrentNetworkDirection.BACKWARD: (True,),
    RecurrentNetworkDirection.BIDIRECTIONAL: (False, True),
}
"""Of each direction of a layer, whether it starts at the end."""

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
    def steps(self) -> int:
        """Steps of the longest possible sequence."""
        return int(self.desc.input_tensor.sizes[1])

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
class Series:
    """A temporary tensor with a block of (part, direction, sequence, element) for each of some steps."""

    binding: Binding
    data_type: DataType
    sizes: Sizes

    @classmethod
    def temporary(cls, label: str, data_type: DataType, sizes: Sizes) -> Series:
        """Return a series in new memory."""
        return cls(Tensor.temporary(label, data_type, sizes).binding, data_type, sizes)

    @property
    def block(self) -> int:
        """Words of a block."""
        return -(-packed_strides(self.sizes)[0] * self.sizes[0] // WORDS) * WORDS

    def at(self, step: int) -> Tensor:
        """Return a view of one block."""
        binding = replace(self.binding, offset=4 * self.block * step)
        return Tensor(binding, self.data_type, self.sizes, packed_strides(self.sizes))

    def during(self, first: int, steps: int, direction: int, *, reverse: bool = False) -> Tensor:
        """View some steps, in order or the last one first, over (step, sequence, element)."""
        _, apart, *strides = packed_strides(self.sizes)
        start = (first + steps - 1 if reverse else first) * self.block + direction * apart
        stride = -self.block if reverse else self.block
        sizes = (steps, *self.sizes[2:])
        return Tensor(self.binding, self.data_type, sizes, (stride, *strides), offset=start)


@dataclass(frozen=True)
class Temporaries:
    """What steps in time work on.

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


def parts_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors that lie along the first dimension."""
    sizes, stride = (1, *tensor.sizes[1:]), tensor.strides[0]
    return tuple(replace(tensor, sizes=sizes, offset=tensor.offset + part * stride) for part in range(tensor.sizes[0]))


@dataclass(frozen=True)
class TimeStep:
    """A step in time, as the cell sees it: tensors over (1, direction, sequence, element).

    Attributes:
        directions: neighbouring directions with the same activations.
        number: of the step; only what ``lasts`` says depends on it.
    """

    layer: Layer
    temporaries: Temporaries
    directions: range
    number: int

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
        now = self._own(self.temporaries.lasts.at(self.number))
        lasts = replace(now, sizes=self.sizes, strides=(*now.strides[:3], 0))
        pairs = zip(states, self.before, strict=True)
        return [computed(KEPT, self.sizes, lasts=lasts, value=after, other=before) for after, before in pairs]

    def _own(self, tensor: Tensor) -> Tensor:
        """Return the part of a tensor, whose second dimension is the direction, that belongs to these directions."""
        sizes = (tensor.sizes[0], len(self.directions), *tensor.sizes[2:])
        return replace(tensor, sizes=sizes, offset=tensor.offset + self.directions.start * tensor.strides[1])
