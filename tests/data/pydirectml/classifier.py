"""A classifier with joins, depth-wise convolutions and several pools in the manner of PyDirectML's samples.

Arguments: an .npz file with ``image`` and the weights by name; the .npy file to write.
"""

import sys

import numpy as np
import pydirectml as dml

weights = np.load(sys.argv[1])
device = dml.Device()
builder = dml.GraphBuilder(device)
data_type, flags = dml.FLOAT32, dml.OWNED_BY_DML
relu = dml.FusedActivation(dml.ACTIVATION_RELU)

bindings = []


def bind(name, *form):
    tensor = dml.input_tensor(builder, len(bindings), dml.TensorDesc(data_type, *form))
    bindings.append(dml.Binding(tensor, weights[name]))
    return tensor


def owned(name):
    return bind(name, flags, weights[name].shape)


def convolve(tensor, name, padding=0, activation=relu, **options):
    pads = {"start_padding": [padding] * 2, "end_padding": [padding] * 2} if padding else {}
    return dml.convolution(
        tensor, owned(name + "_filter"), owned(name + "_bias"), fused_activation=activation, **pads, **options
    )


def fire(tensor, name):
    squeezed = convolve(tensor, name + "_squeeze")
    return dml.join([convolve(squeezed, name + "_one"), convolve(squeezed, name + "_three", 1)], 1)


def normalized(tensor, name, *activation):
    channels = tensor.get_output_desc().sizes[1]
    parts = [bind(f"{name}_{part}", flags, [1, channels, 1, 1]) for part in ("mean", "variance", "scale", "bias")]
    return dml.batch_normalization(tensor, *parts, 1, 1e-5, *activation)


image = bind("image", weights["image"].shape)
stem = convolve(image, "stem", strides=[2, 2])
pooled = dml.max_pooling(stem, window_sizes=[3, 3], strides=[2, 2], end_padding=[1, 1])
joined = fire(fire(pooled.values, "fire1"), "fire2")
responses = dml.local_response_normalization(joined, True, 3, 0.02, 0.75, 1.5)

depthwise = dml.convolution(
    responses, owned("depthwise_filter"), start_padding=[1, 1], end_padding=[1, 1], group_count=8
)
linear = normalized(depthwise, "depthwise_norm", relu)
residual = dml.add(
    normalized(convolve(linear, "point", activation=dml.FusedActivation(dml.INVALID)), "norm"), responses
)

average = dml.average_pooling(residual, [1, 1], [3, 3], [1, 1], [1, 1], 0)
included = dml.average_pooling(residual, [1, 1], [3, 3], [1, 1], [1, 1], 1)
both = dml.join([average, included * 0.5 - 1.0], 1)
count = int(np.prod(both.get_output_desc().sizes))
row = dml.reinterpret(both, data_type, [1, 1, 1, count], [count, count, count, 1])
matrix = dml.activation_identity(owned("matrix"))
bias = bind("bias", [1, 1, 1, 10], [0, 0, 0, 1])
scores = dml.gemm(row, matrix, bias, trans_b=dml.MatrixTransform.TRANSPOSE, alpha=0.5, beta=2.0)
probabilities = dml.activation_soft_max(scores)

model = builder.build(dml.ExecutionFlags.NONE, [probabilities, both])
results = device.compute(model, bindings, [probabilities, both])
np.savez(sys.argv[2], probabilities=np.array(results[0], np.float32), features=np.array(results[1]))
print("class", int(np.argmax(results[0])))
