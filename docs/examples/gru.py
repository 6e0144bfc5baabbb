"""A layer of gated recurrent units. The order of the gates is update, reset,
hidden; PyTorch's order is reset, update, hidden. PyTorch computes the variant
`linear_before_reset=True`.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType, RecurrentNetworkDirection

steps, batch, inputs, hidden = 4, 2, 3, 5
rng = np.random.default_rng(0)
x = rng.standard_normal((steps, batch, inputs)).astype(np.float32)
weight = rng.standard_normal((1, 3 * hidden, inputs)).astype(np.float32)
recurrence = rng.standard_normal((1, 3 * hidden, hidden)).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


state, states = np.zeros((batch, hidden)), []
for step in x.astype(np.float64):
    from_input = np.split(step @ weight[0].T, 3, axis=1)
    from_state = np.split(state @ recurrence[0].T, 3, axis=1)
    update, reset = (
        sigmoid(from_input[gate] + from_state[gate]) for gate in (0, 1)
    )
    change = np.tanh(from_input[2] + reset * from_state[2])
    state = (1 - update) * change + update * state
    states.append(state)

result = ops.gru(x, weight, recurrence, linear_before_reset=True)
assert np.allclose(result.sequence[:, 0], states, atol=1e-5)

gru = descs.Gru(
    input_tensor=TensorDesc(DataType.FLOAT32, (1, steps, batch, inputs)),
    weight_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 3 * hidden, inputs)),
    recurrence_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 3 * hidden, hidden)),
    output_sequence_tensor=TensorDesc(
        DataType.FLOAT32, (steps, 1, batch, hidden)
    ),
    output_single_tensor=TensorDesc(DataType.FLOAT32, (1, 1, batch, hidden)),
    activation_descs=(descs.ActivationSigmoid(), descs.ActivationTanh()),
    direction=RecurrentNetworkDirection.FORWARD,
    linear_before_reset=True,
)
inputs = [x[None], weight[None], recurrence[None]]
sequence, last = dmlgpu.evaluate(
    gru, inputs + [None] * (len(gru.inputs) - len(inputs))
)
assert np.allclose(sequence[:, 0], states, atol=1e-5)
assert np.allclose(last[0, 0], states[-1], atol=1e-5)
