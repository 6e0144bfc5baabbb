"""Recurrent networks with the dimensions that ONNX gives their tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dmlgpu.catalog.enums import RecurrentNetworkDirection
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, tensor_of
from dmlgpu.tensors.tensor import Tensor

__all__ = [
    "GruResult",
    "LstmResult",
    "gru",
    "lstm",
]


class LstmResult(NamedTuple):
    """What ``lstm`` computes.

    Attributes:
        sequence: the hidden state after each step, {S, D, N, H}.
        hidden: after the last one, {D, N, H}.
        cell: the cell after the last one, {D, N, H}.
    """

    sequence: Array
    hidden: Array
    cell: Array


class GruResult(NamedTuple):
    """What ``gru`` computes.

    Attributes:
        sequence: the hidden state after each step, {S, D, N, H}.
        hidden: after the last one, {D, N, H}.
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
    """A layer of long short-term memory; D is 2 where it runs both ways, else 1.

    Args:
        x: {S, N, I}: steps, batch, inputs.
        weight: {D, 4 * H, I}, gates in the order input, output, forget, cell.
        recurrence: {D, 4 * H, H}.
        bias: {D, 8 * H}: those of ``weight``, then those of ``recurrence``.
        hidden, cell: states before the first step, {D, N, H}; None for zeros.
        lengths: how many steps each of the batch has, {N}, UINT32; None for all.
        peephole: {D, 3 * H}.
        direction: forward, backward or bidirectional.
        activations: of the gates, the cell and the hidden state, for each way where there are two.

    Raises:
        InvalidArgument: sizes that do not fit.
    """
    found: Any = directml.lstm(
        _shown("x", x, 3),
        _shown("weight", weight, 3),
        _shown("recurrence", recurrence, 3),
        _shown("bias", bias, 2),
        _shown("hidden", hidden, 3),
        _shown("cell", cell, 3),
        _shown("lengths", lengths, 1),
        _shown("peephole", peephole, 2),
        activation_descs=_activations(activations, 3, weight),
        direction=direction,
    )
    return LstmResult(found.output_sequence, found.output_single.squeeze(0), found.output_cell_single.squeeze(0))


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
    """A layer of gated recurrent units; D is 2 where it runs both ways, else 1.

    Args:
        x: {S, N, I}: steps, batch, inputs.
        weight: {D, 3 * H, I}, gates in the order update, reset, hidden.
        recurrence: {D, 3 * H, H}.
        bias: {D, 6 * H}: those of ``weight``, then those of ``recurrence``.
        hidden: the state before the first step, {D, N, H}; None for zeros.
        lengths: how many steps each of the batch has, {N}, UINT32; None for all.
        direction: forward, backward or bidirectional.
        activations: of the gates and the hidden state, for each way where there are two.
        linear_before_reset: whether the reset gate applies after the recurrence's product.

    Raises:
        InvalidArgument: sizes that do not fit.
    """
    found: Any = directml.gru(
        _shown("x", x, 3),
        _shown("weight", weight, 3),
        _shown("recurrence", recurrence, 3),
        _shown("bias", bias, 2),
        _shown("hidden", hidden, 3),
        _shown("lengths", lengths, 1),
        activation_descs=_activations(activations, 2, weight),
        direction=direction,
        linear_before_reset=linear_before_reset,
    )
    return GruResult(found.output_sequence, found.output_single.squeeze(0))


def _shown(name: str, value: Any, rank: int) -> Any:
    """Return a tensor with the four dimensions that DirectML wants."""
    if value is None:
        return None
    tensor: Tensor = tensor_of(name, value)
    if tensor.ndim != rank:
        raise InvalidArgument(f"{caller()}: {name} must have {rank} dimensions, got sizes {list(tensor.sizes)}")
    return tensor.expand_dims(tuple(range(4 - rank)))


def _activations(given: Sequence[OperatorDesc | str], count: int, weight: Operand) -> list[OperatorDesc | str]:
    """Return the activations of one way for each way, or those of both."""
    if not isinstance(given, list | tuple):
        raise InvalidArgument(f"{caller()}: activations must be a list of {count} names or descriptions")
    ways = tensor_of("weight", weight).sizes[0]
    return [*given, *given] if len(given) == count and ways == 2 else list(given)
