"""Gradient rules of recurrent layers: backpropagation through time, by operators that recompute each time step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import RecurrentNetworkDirection
from dmlgpu.tensors import directml as operators
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.execution import call_op
from dmlgpu.tensors.gradients.rules import Gradients, activated, decomposed, rule, where

directml: Any = operators  # whose functions are made at first use

States: TypeAlias = tuple[Any, ...]
"""The hidden state of one direction, and the cell state of an LSTM: {N, H} each."""

Step: TypeAlias = Callable[["_LayerDirection", Any, States], States]
"""Returns the states after a time step, by its inputs, {N, I}, and the states before."""

_INPUTS = (
    "input_tensor", "weight_tensor", "recurrence_tensor", "bias_tensor", "hidden_init_tensor", "cell_mem_init_tensor",
    "peephole_tensor",
)  # fmt: skip
"""Inputs that have a gradient."""


class _LayerDirection:
    """The weights and the activations of one direction of a layer.

    Args:
        desc: The layer.
        tensors: Its inputs by field; absent ones are None.
        index: Index of the direction.
    """

    def __init__(self, desc: Any, tensors: dict[str, Any], index: int):
        recurrence = tensors["recurrence_tensor"]
        _, directions, rows, hidden = recurrence.sizes
        self._weight, self._recurrence = tensors["weight_tensor"][0, index], recurrence[0, index]
        self._bias = None if tensors["bias_tensor"] is None else tensors["bias_tensor"][0, 0, index]
        peephole = tensors.get("peephole_tensor")
        self._peephole = None if peephole is None else peephole[0, 0, index]
        self._rows, self._hidden = rows, hidden
        count = len(desc.activation_descs) // directions
        self.activations = desc.activation_descs[index * count : (index + 1) * count]

    def of_input(self, x: Any) -> list[Any]:
        """Return the products of inputs with the weights of each gate, and their biases."""
        return self._gates(x @ self._weight.T, 0)

    def of_hidden(self, hidden: Any, gate: int | None = None) -> Any:
        """Return the products of a hidden state with the recurrent weights of each gate or of one, and their biases."""
        if gate is None:
            return self._gates(hidden @ self._recurrence.T, self._rows)
        rows = slice(gate * self._hidden, (gate + 1) * self._hidden)
        product = hidden @ self._recurrence[rows].T
        return product if self._bias is None else product + self._bias[self._rows :][rows]

    def _gates(self, products: Any, begin: int) -> list[Any]:
        if self._bias is not None:
            products = products + self._bias[begin : begin + self._rows]
        return [products[:, first : first + self._hidden] for first in range(0, self._rows, self._hidden)]

    def peephole(self, gate: int, total: Any, cell: Any) -> Any:
        """Add a gate's peephole connection to the cell state."""
        if self._peephole is None:
            return total
        return total + self._peephole[gate * self._hidden : (gate + 1) * self._hidden] * cell


def _layer(record: Any, step: Step, initial: Sequence[str], gradients: Sequence[Any]) -> Gradients:
    """Pass gradients through a layer.

    Args:
        record: The call.
        step: Computes a time step.
        initial: Fields of the states before the first step.
        gradients: Gradients of the states of all time steps, and of each state after the last one.
    """
    desc = record.desc
    fields = [field for field in _INPUTS if record[field] is not None]

    def computed(*operands: Any) -> list[Any]:
        tensors = {**dict.fromkeys(_INPUTS), **dict(zip(fields, operands, strict=True))}
        x, lengths = tensors["input_tensor"][0], record["sequence_lengths_tensor"]
        _, directions, _, hidden = tensors["recurrence_tensor"].sizes
        last: list[States] = []
        sequences = []
        for index in range(directions):
            direction = _LayerDirection(desc, tensors, index)
            states = tuple(
                filled(x, (x.sizes[1], hidden)) if tensors[field] is None else tensors[field][0, index]
                for field in initial
            )
            is_backward = index == 1 or desc.direction is RecurrentNetworkDirection.BACKWARD
            rows: dict[int, Any] = {}
            for time in reversed(range(x.sizes[0])) if is_backward else range(x.sizes[0]):
                after = step(direction, x[time], states)
                if lengths is None:
                    rows[time], states = after[0], after
                else:
                    lasts = (lengths.reshape(-1, 1) > time).broadcast_to(after[0].sizes)
                    states = tuple(where(lasts, new, old) for new, old in zip(after, states, strict=True))
                    rows[time] = where(lasts, after[0], 0.0)
            last.append(states)
            sequences.append(_stacked([rows[time] for time in range(x.sizes[0])]))
        results = [_stacked(sequences).transpose(1, 0, 2, 3)]
        results += [_stacked(states).expand_dims(0) for states in zip(*last, strict=True)]
        return results

    return decomposed(record, fields, computed, gradients)


def _stacked(tensors: Sequence[Any]) -> Any:
    """Return tensors along a new first axis."""
    rows = [tensor.expand_dims(0) for tensor in tensors]
    return rows[0] if len(rows) == 1 else call_op(descs.Join, {"input_tensors": rows, "axis": 0})[0]


@rule("RNN")
def _rnn(record: Any, *gradients: Any) -> Gradients:
    def step(own: _LayerDirection, x: Any, states: States) -> States:
        (total,), (product,) = own.of_input(x), own.of_hidden(states[0])
        return (activated(total + product, own.activations[0]),)

    return _layer(record, step, ["hidden_init_tensor"], gradients)


@rule("GRU")
def _gru(record: Any, *gradients: Any) -> Gradients:
    def step(own: _LayerDirection, x: Any, states: States) -> States:
        (hidden,), (gate, candidate) = states, own.activations
        of_input = own.of_input(x)
        update, reset = (activated(of_input[index] + own.of_hidden(hidden, index), gate) for index in (0, 1))
        if record.desc.linear_before_reset:
            product = reset * own.of_hidden(hidden, 2)
        else:
            product = own.of_hidden(reset * hidden, 2)
        return ((1 - update) * activated(of_input[2] + product, candidate) + update * hidden,)

    return _layer(record, step, ["hidden_init_tensor"], gradients)


@rule("LSTM")
def _lstm(record: Any, *gradients: Any) -> Gradients:
    desc = record.desc

    def step(own: _LayerDirection, x: Any, states: States) -> States:
        hidden, cell = states
        gate_activation, cell_activation, output_activation = own.activations
        totals = [total + product for total, product in zip(own.of_input(x), own.of_hidden(hidden), strict=True)]

        def gate(index: int, activation: Any, seen: Any = None) -> Any:
            total = totals[index] if seen is None else own.peephole(index, totals[index], seen)
            if desc.use_clip_threshold:
                bound = float(desc.clip_threshold)
                total = directml.element_wise_clip(total, min=-bound, max=bound)
            return activated(total, activation)

        write = gate(0, gate_activation, cell)
        forget = 1 - write if desc.couple_input_forget else gate(2, gate_activation, cell)
        after = forget * cell + write * gate(3, cell_activation)
        return gate(1, gate_activation, after) * activated(after, output_activation), after

    return _layer(record, step, ["hidden_init_tensor", "cell_mem_init_tensor"], gradients)
