"""An LSTM layer over a sequence. The order of the gates is input, output,
forget, cell; PyTorch's order is input, forget, cell, output, so its weights
must be reordered. All tensors have four dimensions.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType, RecurrentNetworkDirection

steps, batch, inputs, hidden = 4, 2, 3, 5
rng = np.random.default_rng(0)
x = rng.standard_normal((steps, batch, inputs)).astype(np.float32)
weight = rng.standard_normal((1, 4 * hidden, inputs)).astype(np.float32)
recurrence = rng.standard_normal((1, 4 * hidden, hidden)).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


state, cell, states = np.zeros((batch, hidden)), np.zeros((batch, hidden)), []
for step in x.astype(np.float64):
    gates = step @ weight[0].T + state @ recurrence[0].T
    input_gate, output_gate, forget_gate, change = np.split(gates, 4, axis=1)
    cell = sigmoid(forget_gate) * cell + sigmoid(input_gate) * np.tanh(change)
    state = sigmoid(output_gate) * np.tanh(cell)
    states.append(state)

result = ops.lstm(x, weight, recurrence)
assert np.allclose(result.sequence[:, 0], states, atol=1e-5)

lstm = descs.Lstm(
    input_tensor=TensorDesc(DataType.FLOAT32, (1, steps, batch, inputs)),
    weight_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 4 * hidden, inputs)),
    recurrence_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 4 * hidden, hidden)),
    output_sequence_tensor=TensorDesc(
        DataType.FLOAT32, (steps, 1, batch, hidden)
    ),
    output_single_tensor=TensorDesc(DataType.FLOAT32, (1, 1, batch, hidden)),
    activation_descs=(
        descs.ActivationSigmoid(),
        descs.ActivationTanh(),
        descs.ActivationTanh(),
    ),
    direction=RecurrentNetworkDirection.FORWARD,
    clip_threshold=0.0,
    use_clip_threshold=False,
    couple_input_forget=False,
)
inputs = [x[None], weight[None], recurrence[None]]
sequence, last = dmlgpu.evaluate(
    lstm, inputs + [None] * (len(lstm.inputs) - len(inputs))
)[:2]
assert np.allclose(sequence[:, 0], states, atol=1e-5)
assert np.allclose(last[0, 0], states[-1], atol=1e-5)
