"""Cases of recurrent networks. A key's sizes are the time steps, the sequences, and the inputs of a step.

Errors of a step propagate to all later ones. The recurrent weights are small enough for them to fade (each row's
absolute sum is at most 0.5), activations are continuous with a slope of at most 1, and those of gates are at most 1; so
the sum of the errors is bounded: see ``_magnitudes``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dmlgpu import reference
from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, RecurrentNetworkDirection
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.discriminating import SHARE
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList
from dmlgpu.conformance.cases.layouts import EDGE_SIZES
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors, register
from dmlgpu.conformance.cases.tolerance import Accumulated, Bound

BARE = "bare"  # without optional inputs
WHOLE = "whole"  # with all of them, and all outputs
UNLIKE = "unlike"  # both directions, each with its own activations

GATES: tuple[OperatorDesc, ...] = (
    descs.ActivationSigmoid(),
    descs.ActivationHardSigmoid(alpha=0.25, beta=0.5),
    descs.ActivationTanh(),
    descs.ActivationScaledTanh(alpha=0.5, beta=1.5),
    descs.ActivationSoftsign(),
)
"""At most 1."""

FUNCTIONS: tuple[OperatorDesc, ...] = (
    *GATES,
    descs.ActivationElu(alpha=0.75),
    descs.ActivationCelu(alpha=1.25),
    descs.ActivationIdentity(),
    descs.ActivationLeakyRelu(alpha=0.25),
    descs.ActivationLinear(alpha=-0.5, beta=0.25),
    descs.ActivationParametricSoftplus(alpha=0.5, beta=1.5),
    descs.ActivationRelu(),
    descs.ActivationScaledElu(alpha=1.25, gamma=0.75),
    descs.ActivationSoftplus(steepness=2.0),
    descs.ActivationThresholdedRelu(alpha=0.0),
    descs.ActivationShrink(bias=0.25, threshold=0.25),
    descs.ActivationGelu(),
)
"""All that the catalog allows."""

Sizes = tuple[int, ...]


class _RecurrentCases(OperatorCases):
    """Base class of the three recurrent layers.

    Attributes:
        gates: Rows of weights per element of the hidden state.
        pools: From which activations each of a direction's is drawn.
    """

    standard_count = 14
    ranks = (3,)
    long_sizes: ClassVar[SizesList] = ((100, 1, 8), (3, 70, 5))
    large_sizes: ClassVar[SizesList] = ((40, 65, 129),)
    gates: ClassVar[int]
    pools: ClassVar[tuple[tuple[OperatorDesc, ...], ...]]

    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, BARE, WHOLE, UNLIKE)

    def attributes(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw the operator's own attributes."""
        return {}

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        direction = RecurrentNetworkDirection(int(rng.integers(3)))
        if key.variant == UNLIKE:
            direction = RecurrentNetworkDirection.BIDIRECTIONAL
        tensors = self._tensors(key, rng, 1 + (direction is RecurrentNetworkDirection.BIDIRECTIONAL))
        desc = self.desc_class(
            **tensors,
            direction=direction,
            activation_descs=self._activations(key, rng, direction),
            **self.attributes(rng),
        )

        def fill(contents: np.random.Generator) -> Arrays:
            return tuple(
                None if slot.tensor is None else _contents(contents, slot.field, slot.tensor, key.sizes[0])
                for slot in desc.inputs
            )

        recurrence = tensors["recurrence_tensor"]
        assert recurrence is not None
        terms = key.sizes[2] + recurrence.sizes[3]
        return Case(name, desc, fill, Accumulated(terms), magnitude=lambda inputs: _magnitudes(desc, inputs))

    def _tensors(self, key: Key, rng: np.random.Generator, directions: int) -> dict[str, TensorDesc | None]:
        (steps, sequences, inputs), (data_type,) = key.sizes, key.types
        hidden = int(rng.choice([size for size in EDGE_SIZES if size <= 33]))
        rows, state = self.gates * hidden, (1, directions, sequences, hidden)
        sizes: dict[str, Sizes] = {
            "input_tensor": (1, *key.sizes),
            "weight_tensor": (1, directions, rows, inputs),
            "recurrence_tensor": (1, directions, rows, hidden),
            "bias_tensor": (1, 1, directions, 2 * rows),
            "sequence_lengths_tensor": (1, 1, 1, sequences),
            "peephole_tensor": (1, 1, directions, 3 * hidden),
            "output_sequence_tensor": (steps, *state[1:]),
        }
        fields = (*self.desc_class.input_fields, *self.desc_class.output_fields)
        tensors = draw_tensors(
            key,
            rng,
            *(
                (
                    DataType.UINT32 if field == "sequence_lengths_tensor" else data_type,
                    sizes.get(field, state),
                    field.startswith("output"),
                )
                for field in fields
            ),
        )
        absent = self._absent(key, rng)
        return {field: None if field in absent else desc for field, desc in zip(fields, tensors, strict=True)}

    def _absent(self, key: Key, rng: np.random.Generator) -> set[str]:
        """Draw optional tensors that are omitted, never all outputs."""
        if key.variant == WHOLE:
            return set()
        inputs = set(self.desc_class.input_fields[3:])
        outputs = [str(field) for field in rng.permutation(self.desc_class.output_fields)]
        present = set() if key.variant == BARE else {field for field in sorted(inputs) if rng.integers(2)}
        return (inputs - present) | set(outputs[: rng.integers(len(outputs))])

    def _activations(
        self, key: Key, rng: np.random.Generator, direction: RecurrentNetworkDirection
    ) -> tuple[OperatorDesc, ...]:
        def drawn() -> tuple[OperatorDesc, ...]:
            return tuple(pool[rng.integers(len(pool))] for pool in self.pools)

        forward = drawn()
        if direction is not RecurrentNetworkDirection.BIDIRECTIONAL:
            return forward
        return (*forward, *(drawn() if key.variant == UNLIKE else forward))


def _contents(rng: np.random.Generator, field: str, tensor: TensorDesc, steps: int) -> Array:
    """Draw lengths of all kinds, a third of them 0, 1 or whole; recurrent weights whose rows sum to 0.5 at most."""
    if field == "sequence_lengths_tensor":
        edges = rng.choice([0, 1, steps], tensor.sizes)
        lengths = np.where(rng.random(tensor.sizes) < SHARE, edges, rng.integers(0, steps + 2, tensor.sizes))
        return lengths.astype(np.uint32)
    values = rng.standard_normal(tensor.sizes)
    if field == "weight_tensor":
        values /= np.sqrt(tensor.sizes[3])
    if field == "recurrence_tensor":
        values /= 2 * np.maximum(1, np.abs(values).sum(-1, keepdims=True))
    if field == "peephole_tensor":
        values /= 4 * np.maximum(1, np.abs(values))
    return values.astype(tensor.data_type.numpy)


def _magnitudes(desc: Any, inputs: Arrays) -> tuple[Bound, ...]:
    """The error of a gate's sum grows with its absolute sum; states accumulate and scale the errors of all steps."""
    x, weights, _, *optional = (None if array is None else np.abs(array.astype(np.float64)) for array in inputs)
    assert x is not None and weights is not None
    sums = np.einsum("tbi,dri->tbdr", x[0], weights[0]).max()
    biases = 0 if optional[0] is None else 2 * optional[0].max()
    results = reference.evaluate(desc, inputs)
    states = [np.abs(array.astype(np.float64)).max() for array in (*results, *optional[1:3]) if array is not None]
    largest = 1 + max(states, default=0)
    bound = 4 * (sums + biases + 2 * largest) * largest
    return tuple(np.full(1 if array is None else array.shape, bound) for array in results)


register(_RecurrentCases, descs.Rnn, gates=1, pools=(FUNCTIONS,))


@cases(descs.Lstm)
class LstmCases(_RecurrentCases):
    """LSTM; clipped or not, its gates coupled or not."""

    gates = 4
    pools = (GATES, FUNCTIONS, FUNCTIONS)

    def attributes(self, rng: np.random.Generator) -> dict[str, Any]:
        clip, couple = (bool(flag) for flag in rng.integers(0, 2, 2))
        threshold = float(rng.choice([0.5, 1.25, 3.0]))
        return {"clip_threshold": threshold, "use_clip_threshold": clip, "couple_input_forget": couple}


@cases(descs.Gru)
class GruCases(_RecurrentCases):
    """GRU, the reset before or after the product."""

    gates = 3
    pools = (GATES, FUNCTIONS)

    def attributes(self, rng: np.random.Generator) -> dict[str, Any]:
        return {"linear_before_reset": bool(rng.integers(2))}
