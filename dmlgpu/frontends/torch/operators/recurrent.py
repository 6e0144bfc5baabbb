"""Cells of recurrent networks, from which PyTorch composes LSTM and GRU layers on a device."""

from __future__ import annotations

from typing import Any

from dmlgpu.frontends.torch.operators.registry import aten
from dmlgpu.ops import directml
from dmlgpu.ops.shape import joined
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.gradients.rules import total
from dmlgpu.tensors.tensor import Tensor


def _parts(x: Tensor, count: int) -> list[Tensor]:
    """Return equal parts of the last axis."""
    width = x.sizes[-1] // count
    return [x[..., index * width : (index + 1) * width] for index in range(count)]


def _sum(x: Tensor, *addends: Tensor | None) -> Tensor:
    for addend in addends:
        x = x if addend is None else x + addend
    return x


def _sigmoid(x: Tensor) -> Tensor:
    result: Tensor = directml.activation_sigmoid(x)
    return result


def _tanh(x: Tensor) -> Tensor:
    result: Tensor = directml.activation_tanh(x)
    return result


@aten("_thnn_fused_lstm_cell")
def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cell: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return hidden state, cell state and activated gates after a step of a long short-term memory."""
    gates = _sum(input_gates, hidden_gates, input_bias, hidden_bias)
    into, forget, update, output = _parts(gates, 4)
    into, forget, update, output = _sigmoid(into), _sigmoid(forget), _tanh(update), _sigmoid(output)
    state = forget * cell + into * update
    return output * _tanh(state), state, joined([into, forget, update, output], -1)


@aten("_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(
    of_hidden: Tensor | None, of_cell: Tensor | None, cell: Tensor, state: Tensor, gates: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of gates, cell state and bias of `_thnn_fused_lstm_cell`."""
    into, forget, update, output = _parts(gates, 4)
    active = _tanh(state)
    zeros = filled(cell, (1,) * cell.ndim).broadcast_to(cell.sizes)
    of_hidden = zeros if of_hidden is None else of_hidden
    of_state = _sum(of_hidden * output * (1.0 - active * active), of_cell)
    of_gates = joined(
        [
            of_state * update * into * (1.0 - into),
            of_state * cell * forget * (1.0 - forget),
            of_state * into * (1.0 - update * update),
            of_hidden * active * output * (1.0 - output),
        ],
        -1,
    )
    of_bias: Any = total(of_gates, (0,)).squeeze(0) if has_bias else None
    return of_gates, of_state * forget, of_bias


@aten("_thnn_fused_gru_cell")
def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hidden: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return hidden state and activated gates after a step of a gated recurrent unit."""
    reset_input, update_input, new_input = _parts(_sum(input_gates, input_bias), 3)
    reset_hidden, update_hidden, new_hidden = _parts(_sum(hidden_gates, hidden_bias), 3)
    reset, update = _sigmoid(reset_input + reset_hidden), _sigmoid(update_input + update_hidden)
    new = _tanh(new_input + reset * new_hidden)
    return new + update * (hidden - new), joined([reset, update, new, hidden, new_hidden], -1)


@aten("_thnn_fused_gru_cell_backward")
def gru_cell_backward(
    gradient: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of both gates, the hidden state and both biases of `_thnn_fused_gru_cell`."""
    reset, update, new, hidden, new_hidden = _parts(workspace, 5)
    of_update = gradient * (hidden - new) * update * (1.0 - update)
    of_new = gradient * (1.0 - update) * (1.0 - new * new)
    of_reset = of_new * new_hidden * reset * (1.0 - reset)
    of_input = joined([of_reset, of_update, of_new], -1)
    of_gates = joined([of_reset, of_update, of_new * reset], -1)
    of_biases: list[Any] = [total(gradient, (0,)).squeeze(0) if has_bias else None for gradient in (of_input, of_gates)]
    return of_input, of_gates, gradient * update, of_biases[0], of_biases[1]
