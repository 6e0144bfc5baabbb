"""A simple recurrent layer: the hidden state is the tanh of the sum of the
weighted input, the weighted previous state and the bias.
"""

import numpy as np

import dmlgpu
from dmlgpu import TensorDesc, descs, ops
from dmlgpu.catalog.enums import DataType, RecurrentNetworkDirection

steps, batch, inputs, hidden = 4, 2, 3, 5
rng = np.random.default_rng(0)
x = rng.standard_normal((1, steps, batch, inputs)).astype(np.float32)
weight = rng.standard_normal((1, 1, hidden, inputs)).astype(np.float32)
recurrence = rng.standard_normal((1, 1, hidden, hidden)).astype(np.float32)

state, states = np.zeros((batch, hidden)), []
for step in x[0].astype(np.float64):
    state = np.tanh(step @ weight[0, 0].T + state @ recurrence[0, 0].T)
    states.append(state)

result = ops.directml.rnn(
    x, weight, recurrence, activation_descs=["tanh"], direction="forward"
)
assert np.allclose(result.output_sequence[:, 0], states, atol=1e-5)

rnn = descs.Rnn(
    input_tensor=TensorDesc.of(x),
    weight_tensor=TensorDesc.of(weight),
    recurrence_tensor=TensorDesc.of(recurrence),
    output_sequence_tensor=TensorDesc(
        DataType.FLOAT32, (steps, 1, batch, hidden)
    ),
    output_single_tensor=TensorDesc(DataType.FLOAT32, (1, 1, batch, hidden)),
    activation_descs=(descs.ActivationTanh(),),
    direction=RecurrentNetworkDirection.FORWARD,
)
inputs = [x, weight, recurrence]
sequence, last = dmlgpu.evaluate(
    rnn, inputs + [None] * (len(rnn.inputs) - len(inputs))
)
assert np.allclose(sequence[:, 0], states, atol=1e-5)
assert np.allclose(last[0, 0], states[-1], atol=1e-5)
