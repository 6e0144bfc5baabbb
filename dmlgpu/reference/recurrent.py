"""Recurrent networks, step by step in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, RecurrentNetworkDirection
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.reference.elementwise import attribute
from dmlgpu.reference.registry import Array, activated, claim, reference

Wide = NDArray[np.float64]
Optional = Array | None
States = tuple[Wide, ...]
"""States of a layer, the hidden state first."""


def _wide(array: Array) -> Wide:
    return array.astype(np.float64)


def _function(desc: OperatorDesc) -> Callable[[Wide], Wide]:
    """Return an activation as a function in float64."""
    return lambda values: activated(values, desc, TensorDesc(DataType.FLOAT64, values.shape))


@dataclass(frozen=True)
class _Direction:
    """Parameters of one direction of a layer.

    Attributes:
        index: Index of the direction.
        weights, recurrence: Matrices by gate.
        biases: Vectors by gate, of the products of the inputs, then of those of the hidden state; 0 where absent.
        functions: The activations.
    """

    index: int
    weights: Sequence[Wide]
    recurrence: Sequence[Wide]
    biases: Sequence[Wide]
    functions: Sequence[Callable[[Wide], Wide]]

    def inputs(self, gate: int, x: Wide) -> Wide:
        """Return the product of inputs with a gate's weights, and its bias."""
        return x @ self.weights[gate].T + self.biases[gate]

    def products(self, gate: int, hidden: Wide) -> Wide:
        """Return the product of a hidden state with a gate's weights, and its bias."""
        return hidden @ self.recurrence[gate].T + self.biases[len(self.recurrence) + gate]


Step = Callable[[_Direction, Wide, States], States]
"""Function of a direction, the inputs of a time step and the previous states that returns the next states."""


def _direction(desc: Any, index: int, weights: Array, recurrence: Array, bias: Optional) -> _Direction:
    _, directions, rows, hidden = recurrence.shape
    gates, each = rows // hidden, len(desc.activation_descs) // directions
    return _Direction(
        index,
        np.split(_wide(weights[0, index]), gates),
        np.split(_wide(recurrence[0, index]), gates),
        np.split(np.zeros(2 * rows) if bias is None else _wide(bias[0, 0, index]), 2 * gates),
        [_function(inner) for inner in desc.activation_descs[index * each : (index + 1) * each]],
    )


def _layer(
    desc: Any, step: Step, tensors: tuple[Array, Array, Array, Optional], initial: Sequence[Optional], lengths: Optional
) -> tuple[Optional, ...]:
    """Return the hidden states of every step, 0 after the end of a sequence, then each final state."""
    x, weights, recurrence, bias = tensors
    (_, steps, sequences, _), (_, directions, _, hidden) = x.shape, recurrence.shape
    shape = (directions, sequences, hidden)
    states = [np.zeros(shape) if state is None else _wide(state[0]) for state in initial]
    claim("the states of all steps", steps, *shape, each=16)
    whole = np.zeros((steps, *shape))
    lasting = np.full(sequences, steps) if lengths is None else lengths.ravel()
    for index in range(directions):
        own = _direction(desc, index, weights, recurrence, bias)
        for time in _times(desc, index, steps):
            lasts = time < lasting
            after = step(own, _wide(x[0, time, lasts]), tuple(state[index, lasts] for state in states))
            for state, value in zip(states, after, strict=True):
                state[index, lasts] = value
            whole[time, index, lasts] = after[0]
    outputs = [whole, *(state[np.newaxis] for state in states)]
    given_outputs = zip(desc.outputs, outputs, strict=True)
    return tuple(None if slot.tensor is None else output.astype(x.dtype) for slot, output in given_outputs)


def _times(desc: Any, index: int, steps: int) -> Iterable[int]:
    """Return the steps in the order of execution; a backward direction reaches short sequences at their last step."""
    backward = index == 1 or desc.direction is RecurrentNetworkDirection.BACKWARD
    return reversed(range(steps)) if backward else range(steps)


@reference(descs.Rnn)
def rnn(desc: descs.Rnn, x: Array, w: Array, r: Array, bias: Optional, hidden: Optional, lengths: Optional) -> Any:
    """``H' = f(W X + R H + biases)``."""

    def step(own: _Direction, now: Wide, states: States) -> States:
        (f,), (before,) = own.functions, states
        return (f(own.inputs(0, now) + own.products(0, before)),)

    return _layer(desc, step, (x, w, r, bias), [hidden], lengths)


@reference(descs.Lstm)
def lstm(desc: descs.Lstm, x: Array, w: Array, r: Array, *optional: Optional) -> Any:
    """Gates i, o, f, c; the output gate's peephole reads the new cell state."""
    bias, hidden, cell, lengths, peephole = optional
    bound = attribute(desc.clip_threshold) if desc.use_clip_threshold else np.inf

    def step(own: _Direction, now: Wide, states: States) -> States:
        (f, g, h), (before, memory) = own.functions, states

        def gate(which: int, function: Callable[[Wide], Wide], seen: Wide | None = None) -> Wide:
            total = own.inputs(which, now) + own.products(which, before)
            if peephole is not None and seen is not None:
                total = total + np.split(_wide(peephole)[0, 0, own.index], 3)[which] * seen
            return function(np.maximum(np.minimum(total, bound), -bound))

        write = gate(0, f, memory)
        forget = 1 - write if desc.couple_input_forget else gate(2, f, memory)
        after = forget * memory + write * gate(3, g)
        return gate(1, f, after) * h(after), after

    return _layer(desc, step, (x, w, r, bias), [hidden, cell], lengths)


@reference(descs.Gru)
def gru(desc: descs.Gru, x: Array, w: Array, r: Array, bias: Optional, hidden: Optional, lengths: Optional) -> Any:
    """Gates z, r, h; with LinearBeforeReset the reset gate scales the product, else the hidden state."""

    def step(own: _Direction, now: Wide, states: States) -> States:
        (f, g), (before,) = own.functions, states
        update, reset = (f(own.inputs(gate, now) + own.products(gate, before)) for gate in (0, 1))
        product = reset * own.products(2, before) if desc.linear_before_reset else own.products(2, reset * before)
        return ((1 - update) * g(own.inputs(2, now) + product) + update * before,)

    return _layer(desc, step, (x, w, r, bias), [hidden], lengths)
