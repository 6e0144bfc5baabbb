"""A style transfer network in the manner of PyDirectML's samples.

Arguments: an .npz file with ``image`` and the weights by name; the .npy file to write.
"""

import sys

import numpy as np
import pydirectml as dml

weights = np.load(sys.argv[1])
image = weights["image"]

device = dml.Device(True, False)
builder = dml.GraphBuilder(device)
data_type = dml.TensorDataType.FLOAT32
flags = dml.TensorFlags.OWNED_BY_DML
relu = dml.FusedActivation(dml.OperatorType.ACTIVATION_RELU)

bindings = []


def bind(name, desc):
    tensor = dml.input_tensor(builder, len(bindings), desc)
    bindings.append(dml.Binding(tensor, weights[name]))
    return tensor


def owned(name):
    return bind(name, dml.TensorDesc(data_type, flags, weights[name].shape))


def instance_norm(tensor, name, *activation):
    scale = bind(name + "_scale", dml.TensorDesc(data_type, weights[name + "_scale"].shape))
    return dml.mean_variance_normalization(tensor, scale, owned(name + "_bias"), [0, 2, 3], 1, 1e-5, *activation)


def convolve(tensor, name, **options):
    return dml.convolution(tensor, owned(name + "_filter"), owned(name + "_bias"), **options)


height, width = image.shape[2:]
pixels = bind("image", dml.TensorDesc(data_type, image.shape))
scaled = dml.value_scale_2d(pixels, 0.5, [-1.5, 0.25, 2.0])
padded = dml.padding(scaled, dml.PaddingMode.REFLECTION, 0.0, [0, 0, 4, 4], [0, 0, 4, 4])

stem = instance_norm(convolve(padded, "stem", start_padding=[2, 2], end_padding=[2, 2]), "stem_norm", relu)
down = convolve(stem, "down", strides=[2, 2], start_padding=[1, 1], end_padding=[1, 1])
features = instance_norm(down, "down_norm", relu)

for block in ("block1", "block2"):
    rows, columns = features.get_output_desc().sizes[2:]
    first = instance_norm(convolve(features, block + "_a"), block + "_a_norm", relu)
    second = instance_norm(convolve(first, block + "_b"), block + "_b_norm")
    channels = features.get_output_desc().sizes[1]
    crop = dml.slice(features, [0, 0, 2, 2], [1, channels, rows - 4, columns - 4], [1, 1, 1, 1])
    features = dml.add(second, crop)

rows, columns = features.get_output_desc().sizes[2:]
up = convolve(
    features,
    "up",
    mode=dml.ConvolutionMode.CROSS_CORRELATION,
    direction=dml.ConvolutionDirection.BACKWARD,
    strides=[2, 2],
    output_sizes=[1, 4, 2 * rows + 2, 2 * columns + 2],
)
up = instance_norm(up, "up_norm", relu)
larger = dml.up_sample_2d(up, dml.Size2D(2, 2), dml.InterpolationMode.NEAREST_NEIGHBOR)
tanh = dml.FusedActivation(dml.OperatorType.ACTIVATION_TANH)
styled = dml.activation_linear(convolve(larger, "last", fused_activation=tanh), 150, 0)

sizes = styled.get_output_desc().sizes
factor = bind("factor", dml.TensorDesc(data_type, sizes, [3, 1, 0, 0]))
offset = bind("offset", dml.TensorDesc(data_type, sizes, [3, 1, 0, 0]))
output = dml.add(dml.multiply(styled, factor), offset)

model = builder.build(dml.ExecutionFlags.NONE, [output])
(result,) = device.compute(model, bindings, [output])
np.save(sys.argv[2], np.array(result))
print("styled", sizes)
