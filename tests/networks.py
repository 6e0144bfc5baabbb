"""Descriptions of recurrent networks for tests."""

from __future__ import annotations

from typing import Any

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, RecurrentNetworkDirection
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc

F32, U32 = DataType.FLOAT32, DataType.UINT32
FORWARD, BACKWARD, BOTH = RecurrentNetworkDirection
CLASSES = {"RNN": descs.Rnn, "LSTM": descs.Lstm, "GRU": descs.Gru}
GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
SIGMOID, TANH = descs.ActivationSigmoid(), descs.ActivationTanh()
ACTIVATIONS: dict[str, tuple[OperatorDesc, ...]] = {
    "RNN": (TANH,),
    "LSTM": (SIGMOID, TANH, TANH),
    "GRU": (SIGMOID, TANH),
}
FLAGS: dict[str, dict[str, Any]] = {
    "RNN": {},
    "LSTM": {"clip_threshold": 0.0, "use_clip_threshold": False, "couple_input_forget": False},
    "GRU": {"linear_before_reset": False},
}


def network(
    operator: str,
    sizes: tuple[int, int, int, int] = (7, 2, 3, 8),
    direction: RecurrentNetworkDirection = FORWARD,
    data_type: DataType = F32,
    **fields: Any,
) -> Any:
    """Return a recurrent network of the given sizes with every optional tensor."""
    steps, sequences, inputs, hidden = sizes
    directions, rows = 1 + (direction is BOTH), GATES[operator] * hidden
    state = (directions, sequences, hidden)
    sizes_of = {
        "input_tensor": (1, steps, sequences, inputs),
        "weight_tensor": (1, directions, rows, inputs),
        "recurrence_tensor": (1, directions, rows, hidden),
        "bias_tensor": (1, 1, directions, 2 * rows),
        "peephole_tensor": (1, 1, directions, 3 * hidden),
        "output_sequence_tensor": (steps, *state),
    }
    desc_class = CLASSES[operator]
    names = (*desc_class.input_fields, *desc_class.output_fields)
    values: dict[str, Any] = {name: TensorDesc(data_type, sizes_of.get(name, (1, *state))) for name in names}
    values["sequence_lengths_tensor"] = TensorDesc(U32, (1, 1, 1, sequences))
    values |= {"direction": direction, "activation_descs": ACTIVATIONS[operator] * directions, **FLAGS[operator]}
    return desc_class(**values | fields)
