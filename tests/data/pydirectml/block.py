"""One block of a network: padding, convolution, instance normalization, up-sampling, a join with a repeated input.

Arguments: an .npz file with ``image`` and the weights by name; the .npy file to write.
"""

import sys

import numpy as np
import pydirectml as dml

weights = np.load(sys.argv[1])
device = dml.Device(True, True)
builder = dml.GraphBuilder(device)
bindings = []


def bind(name, *form):
    tensor = dml.input_tensor(builder, len(bindings), dml.TensorDesc(dml.TensorDataType.FLOAT32, *form))
    bindings.append(dml.Binding(tensor, weights[name]))
    return tensor


image = bind("image", [1, 3, 6, 5])
weight = bind("filter", dml.TensorFlags.OWNED_BY_DML, [4, 3, 3, 3])
scale, bias = (bind(name, dml.TensorFlags.OWNED_BY_DML, [1, 4, 1, 1]) for name in ("scale", "bias"))
repeated = bind("repeated", [1, 2, 12, 10], [2, 1, 0, 0])

padded = dml.padding(image, dml.PaddingMode.REFLECTION, 0, [0, 0, 1, 1], [0, 0, 1, 1])
features = dml.convolution(padded, weight, fused_activation=dml.FusedActivation(dml.OperatorType.ACTIVATION_TANH))
normal = dml.mean_variance_normalization(
    features, scale, bias, [0, 2, 3], True, 1e-5, dml.FusedActivation(dml.ACTIVATION_RELU)
)
larger = dml.up_sample_2d(normal, dml.Size2D(2, 2), dml.InterpolationMode.NEAREST_NEIGHBOR)
output = dml.join([larger, repeated], 1)

model = builder.build(dml.ExecutionFlags.NONE, [output])
np.save(sys.argv[2], np.array(device.compute(model, bindings, [output])[0]))
