"""Recurrent layers: RNN, GRU and LSTM."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, RecurrentNetworkDirection
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.frontends.onnx.expressions import reshaped, transposed, unowned
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators import MICROSOFT
from dmlgpu.frontends.onnx.operators.quantization import Quantization, dequantized
from dmlgpu.frontends.onnx.registry import Result, operator
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

_DIRECTIONS = {
    "forward": RecurrentNetworkDirection.FORWARD,
    "reverse": RecurrentNetworkDirection.BACKWARD,
    "bidirectional": RecurrentNetworkDirection.BIDIRECTIONAL,
}

_FUNCTIONS: dict[str, tuple[Callable[..., OperatorDesc], dict[str, float]]] = {
    "relu": (descs.ActivationRelu, {}),
    "tanh": (descs.ActivationTanh, {}),
    "sigmoid": (descs.ActivationSigmoid, {}),
    "affine": (descs.ActivationLinear, {"alpha": 1.0, "beta": 0.0}),
    "leakyrelu": (descs.ActivationLeakyRelu, {"alpha": 0.01}),
    "thresholdedrelu": (descs.ActivationThresholdedRelu, {"alpha": 1.0}),
    "scaledtanh": (descs.ActivationScaledTanh, {"alpha": 1.0, "beta": 1.0}),
    "hardsigmoid": (descs.ActivationHardSigmoid, {"alpha": 0.2, "beta": 0.5}),
    "elu": (descs.ActivationElu, {"alpha": 1.0}),
    "softsign": (descs.ActivationSoftsign, {}),
    "softplus": (descs.ActivationSoftplus, {"steepness": 1.0}),
}
"""Activations by ONNX's lower-case name, with the defaults of their parameters."""


def _activations(node: OnnxNode, usual: tuple[str, ...], directions: int) -> list[OperatorDesc]:
    """Return the activations of all directions; each takes the next values of the attributes for its parameters."""
    named = node.attribute("activations")
    names = [name.decode() for name in named] if named else [*usual] * directions
    if len(names) != len(usual) * directions:
        raise node.rejection(f"activations must be {len(usual) * directions}, got {len(names)}")
    rests = {name: iter(node.numbers(f"activation_{name}") or ()) for name in ("alpha", "beta")}
    activations = []
    for name in names:
        if name.lower() not in _FUNCTIONS:
            raise node.rejection(f"activation {name} is not supported")
        make, parameters = _FUNCTIONS[name.lower()]
        none: Iterator[float] = iter(())
        activations.append(make(**{key: next(rests.get(key, none), value) for key, value in parameters.items()}))
    return activations


class _Layer:
    """The inputs that every kind of layer has, as DirectML takes them: 4 dimensions, time before sequences."""

    def __init__(self, node: OnnxNode, usual: tuple[str, ...]):
        self.node, self.batch_first = node, node.flag("layout")
        direction = node.text("direction", "forward")
        if direction not in _DIRECTIONS:
            raise node.rejection(f"direction must be one of {', '.join(_DIRECTIONS)}, got {direction!r}")
        if node.has(4) and node.data_type(4) is not DataType.INT32:
            raise node.rejection(f"sequence_lens must be of INT32, got {node.data_type(4).name}")
        for index in range(3):
            node.check_rank(index, 3)
        self.x = self._turned(0)
        if node.has(4):
            node.check_range(4, 0, node.shape(0)[self.batch_first], "sequence_lens")
        bias = node.optional_tensor(3)
        lengths = node.optional_tensor(4)
        directions = 2 if direction == "bidirectional" else 1
        self.tensors: dict[str, Any] = {
            "input": self.x,
            "weight": _raised(node.tensor(1)),
            "recurrence": _raised(node.tensor(2)),
            "bias": None if bias is None else _raised(bias),
            "hidden_init": self.state(5),
            "sequence_lengths": None if lengths is None else dml.cast(_raised(lengths), DataType.UINT32),
        }
        self.settings: dict[str, Any] = {
            "activation_descs": _activations(node, usual, directions),
            "direction": _DIRECTIONS[direction],
        }

    def _turned(self, index: int) -> Tensor:
        """Return an input of 3 dimensions, the first two exchanged if the batch comes first."""
        tensor = self.node.tensor(index)
        return _raised(dml.identity(transposed(tensor, (1, 0, 2))) if self.batch_first else tensor)

    def state(self, index: int) -> Tensor | None:
        """Return an initial state, None if it is absent."""
        return self._turned(index) if self.node.has(index) else None

    def outputs(self, sequence: Tensor | None, *states: Tensor | None) -> list[Result]:
        """Return ONNX's outputs: the hidden states of all time steps, and the last states."""
        results: list[Result] = []
        if sequence is None:
            results.append(None)
        else:
            turned = transposed(sequence, (2, 0, 1, 3)) if self.batch_first else sequence
            results.append(self.node.valued(turned))
        for state in states:
            results.append(None if state is None else self._last(state))
        return results

    def _last(self, state: Tensor) -> OnnxValue:
        plain = reshaped(state, state.sizes[1:])
        return self.node.valued(transposed(plain, (1, 0, 2)) if self.batch_first else plain)


def _raised(tensor: Tensor) -> Tensor:
    """Return a tensor with leading dimensions of size 1, 4 in all."""
    return reshaped(unowned(tensor), (*(1,) * (4 - len(tensor.sizes)), *tensor.sizes))


@operator("RNN")
def rnn(node: OnnxNode) -> list[Result]:
    """Vanilla recurrent network: one activation of inputs and hidden state."""
    _without_clip(node)
    layer = _Layer(node, ("Tanh",))
    result = directml.rnn(**layer.tensors, **layer.settings, **_requested_outputs(node))
    return layer.outputs(result.output_sequence, result.output_single)


@operator("GRU")
def gru(node: OnnxNode) -> list[Result]:
    """Gated recurrent units."""
    _without_clip(node)
    layer = _Layer(node, ("Sigmoid", "Tanh"))
    result = directml.gru(
        **layer.tensors,
        **layer.settings,
        **_requested_outputs(node),
        linear_before_reset=node.flag("linear_before_reset"),
    )
    return layer.outputs(result.output_sequence, result.output_single)


@operator("LSTM")
def lstm(node: OnnxNode) -> list[Result]:
    """Long short-term memory."""
    layer = _Layer(node, ("Sigmoid", "Tanh", "Tanh"))
    peephole = node.optional_tensor(7)
    clips = node.attribute("clip") is not None
    result = directml.lstm(
        **layer.tensors,
        cell_mem_init=layer.state(6),
        peephole=None if peephole is None else _raised(peephole),
        **layer.settings,
        **_requested_outputs(node),
        clip_threshold=node.number("clip"),
        use_clip_threshold=clips,
        couple_input_forget=node.flag("input_forget"),
        output_cell_single=node.wants(2),
    )
    return layer.outputs(result.output_sequence, result.output_single, result.output_cell_single)


@operator("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(node: OnnxNode) -> list[Result]:
    """LSTM with 8-bit weights, which are dequantized when they are laid out; inputs and states stay floats.

    onnxruntime also rounds inputs and states to 8 bits, by the range of the rows of a thread. Here, the exact layer is
    computed.
    """
    weights = [_dequantized(node, weight, scale) for weight, scale in ((1, 8), (2, 10))]
    rest = [node.value(index) if node.has(index) else None for index in range(3, 8)]
    return lstm(node.replaced([node.value(0), *weights, *rest]))


def _dequantized(node: OnnxNode, index: int, scale: int) -> OnnxValue:
    """Return weights {directions, inputs, gates} as floats {directions, gates, inputs}, LSTM's layout.

    There is one scale and one zero point (the next input) per direction, or one per gate.
    """
    node.check_rank(index, 3)
    directions, _, gates = node.shape(index)
    for parameter in (scale, scale + 1):
        shape = node.shape(parameter) if node.has(parameter) else (directions,)
        if shape not in ((directions,), (directions, gates), (directions, 1)):
            raise node.rejection(
                f"input {parameter} must be of shape {[directions]} or {[directions, gates]}, got {list(shape)}"
            )
    entries = (directions, 1, math.prod(node.shape(scale)) // directions)
    zero = reshaped(node.tensor(scale + 1), entries) if node.has(scale + 1) else None
    x = node.tensor(index)
    blocks = tuple(size if count == 1 else 1 for count, size in zip(entries, x.sizes, strict=True))
    floats = dequantized(x, Quantization(reshaped(node.tensor(scale), entries), zero, blocks))
    return node.valued(dml.identity(transposed(floats, (0, 2, 1))))


def _without_clip(node: OnnxNode) -> None:
    if node.attribute("clip") is not None:
        raise node.rejection("clip is supported by LSTM only")


def _requested_outputs(node: OnnxNode) -> dict[str, Any]:
    return {"output_sequence": node.wants(0), "output_single": node.wants(1)}
