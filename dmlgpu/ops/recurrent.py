"""Recurrent networks with ONNX's tensor layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dmlgpu.catalog.enums import RecurrentNetworkDirection
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops import directml
from dmlgpu.ops.shape import integers_of
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, tensor_of
from dmlgpu.tensors.tensor import Tensor

__all__ = ["GruResult", "LstmResult", "gru", "lstm"]


class LstmResult(NamedTuple):
    """Outputs of ``lstm``.

    Attributes:
        sequence: Hidden state after each time step, {S, D, N, H}.
        hidden: Hidden state after the last time step, {D, N, H}.
        cell: Cell state after the last time step, {D, N, H}.
    """

    sequence: Array
    hidden: Array
    cell: Array


class GruResult(NamedTuple):
    """Outputs of ``gru``.

    Attributes:
        sequence: Hidden state after each time step, {S, D, N, H}.
        hidden: Hidden state after the last time step, {D, N, H}.
    """

    sequence: Array
    hidden: Array


@eager
def lstm(
    x: Operand,
    weight: Operand,
    recurrence: Operand,
    bias: Operand | None = None,
    hidden: Operand | None = None,
    cell: Operand | None = None,
    lengths: Operand | None = None,
    peephole: Operand | None = None,
    direction: RecurrentNetworkDirection | str = "forward",
    activations: Sequence[OperatorDesc | str] = ("sigmoid", "tanh", "tanh"),
    *,
    device: Where = None,
) -> LstmResult:
    """Run a layer of long short-term memory over a sequence.

    D is 2 if `direction` is `"bidirectional"`, else 1. The layouts are ONNX's.

    Args:
        x: Tensor or array of float32 or float16, {S, N, I}: time steps, batch, inputs.
        weight: {D, 4 * H, I}, gates in the order input, output, forget, cell.
        recurrence: {D, 4 * H, H}.
        bias: {D, 8 * H}: the biases of `weight`, then those of `recurrence`; defaults to None, zeros.
        hidden: Hidden state before the first time step, {D, N, H}; defaults to None, zeros.
        cell: Cell state before the first time step, {D, N, H}; defaults to None, zeros.
        lengths: Sequence length of each batch entry, {N}, uint32, at most S; defaults to None, all time steps.
        peephole: {D, 3 * H}; defaults to None.
        direction: `"forward"`, the default, `"backward"` or `"bidirectional"`.
        activations: Activations of the gates, the cell and the hidden state, for one direction or for both; names or
            descriptions.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        `LstmResult`: the hidden state after each time step, and the hidden and the cell state after the last one.

    Raises:
        InvalidArgument: If shapes or dtypes do not fit, or a length of an array or a list is out of range.

    Examples:
        >>> x = np.ones((5, 1, 3), np.float32)
        >>> weight, recurrence = np.ones((1, 8, 3), np.float32), np.ones((1, 8, 2), np.float32)
        >>> ops.lstm(x, weight, recurrence).sequence.shape
        (5, 1, 1, 2)

    See also:
        `gru`.

    Computed by LSTM (`ns-directml-dml_lstm_operator_desc`).
    """
    sequence = _four_dimensional("x", x, 3)
    outputs: Any = directml.lstm(
        sequence,
        _four_dimensional("weight", weight, 3),
        _four_dimensional("recurrence", recurrence, 3),
        _four_dimensional("bias", bias, 2),
        _four_dimensional("hidden", hidden, 3),
        _four_dimensional("cell", cell, 3),
        _lengths(lengths, sequence),
        _four_dimensional("peephole", peephole, 2),
        activation_descs=_activations(activations, 3, weight),
        direction=direction,
    )
    return LstmResult(outputs.output_sequence, outputs.output_single.squeeze(0), outputs.output_cell_single.squeeze(0))


@eager
def gru(
    x: Operand,
    weight: Operand,
    recurrence: Operand,
    bias: Operand | None = None,
    hidden: Operand | None = None,
    lengths: Operand | None = None,
    direction: RecurrentNetworkDirection | str = "forward",
    activations: Sequence[OperatorDesc | str] = ("sigmoid", "tanh"),
    linear_before_reset: bool = False,
    *,
    device: Where = None,
) -> GruResult:
    """Run a layer of gated recurrent units over a sequence.

    D is 2 if `direction` is `"bidirectional"`, else 1. The layouts are ONNX's.

    Args:
        x: Tensor or array of float32 or float16, {S, N, I}: time steps, batch, inputs.
        weight: {D, 3 * H, I}, gates in the order update, reset, hidden.
        recurrence: {D, 3 * H, H}.
        bias: {D, 6 * H}: the biases of `weight`, then those of `recurrence`; defaults to None, zeros.
        hidden: Hidden state before the first time step, {D, N, H}; defaults to None, zeros.
        lengths: Sequence length of each batch entry, {N}, uint32, at most S; defaults to None, all time steps.
        direction: `"forward"`, the default, `"backward"` or `"bidirectional"`.
        activations: Activations of the gates and the hidden state, for one direction or for both; names or
            descriptions.
        linear_before_reset: Whether the reset gate applies after the product with `recurrence`; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        `GruResult`: the hidden state after each time step, and after the last one.

    Raises:
        InvalidArgument: If shapes or dtypes do not fit, or a length of an array or a list is out of range.

    Examples:
        >>> x = np.ones((5, 1, 3), np.float32)
        >>> weight, recurrence = np.ones((1, 6, 3), np.float32), np.ones((1, 6, 2), np.float32)
        >>> ops.gru(x, weight, recurrence).hidden.shape
        (1, 1, 2)

    See also:
        `lstm`.

    Computed by GRU (`ns-directml-dml_gru_operator_desc`).
    """
    sequence = _four_dimensional("x", x, 3)
    outputs: Any = directml.gru(
        sequence,
        _four_dimensional("weight", weight, 3),
        _four_dimensional("recurrence", recurrence, 3),
        _four_dimensional("bias", bias, 2),
        _four_dimensional("hidden", hidden, 3),
        _lengths(lengths, sequence),
        activation_descs=_activations(activations, 2, weight),
        direction=direction,
        linear_before_reset=linear_before_reset,
    )
    return GruResult(outputs.output_sequence, outputs.output_single.squeeze(0))


def _four_dimensional(name: str, value: Any, rank: int) -> Any:
    """Return a tensor with DirectML's four dimensions."""
    if value is None:
        return None
    tensor: Tensor = tensor_of(name, value)
    if tensor.ndim != rank:
        raise InvalidArgument(f"{caller()}: {name} must have {rank} dimensions, got sizes {list(tensor.sizes)}")
    return tensor.expand_dims(tuple(range(4 - rank)))


def _lengths(lengths: Any, sequence: Tensor) -> Any:
    """Return sequence lengths; those that the host knows are at most the number of time steps."""
    steps = sequence.sizes[1]
    if lengths is not None:
        integers_of("lengths", lengths, None, 0, steps, " for {high} time steps")
    return _four_dimensional("lengths", lengths, 1)


def _activations(activations: Sequence[OperatorDesc | str], count: int, weight: Operand) -> list[OperatorDesc | str]:
    """Return the activations of both directions, given those of one or of both."""
    if not isinstance(activations, list | tuple):
        raise InvalidArgument(f"{caller()}: activations must be a list of {count} names or descriptions")
    directions = tensor_of("weight", weight).sizes[0]
    repeats = 2 if len(activations) == count and directions == 2 else 1
    return list(activations) * repeats
