"""FOLD and UNFOLD against ONNX's Col2Im and NumPy's sliding windows."""

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference.helpers import run, tensor
from tests.reference.onnx_oracle import onnx_reference

SHAPES = {
    "line": ((2, 3, 11), {"window_sizes": (3,), "strides": (2,), "dilations": (1,)}, ((1,), (2,))),
    "image": ((1, 2, 7, 9), {"window_sizes": (2, 3), "strides": (2, 1), "dilations": (1, 2)}, ((1, 0), (0, 2))),
    "volume": (
        (2, 1, 4, 5, 6),
        {"window_sizes": (2, 1, 3), "strides": (1, 2, 2), "dilations": (2, 1, 1)},
        ((1, 0, 1), (1, 1, 0)),
    ),
}


def positions(sizes, fields, padding):
    values = zip(sizes[2:], fields["window_sizes"], fields["strides"], fields["dilations"], *padding, strict=True)
    return [(n + a + b - (k - 1) * d - 1) // s + 1 for n, k, s, d, a, b in values]


def columns(sizes, fields, padding):
    return sizes[0], sizes[1] * int(np.prod(fields["window_sizes"])), int(np.prod(positions(sizes, fields, padding)))


@pytest.mark.parametrize("shape", SHAPES)
def test_unfold_like_sliding_windows(shape):
    sizes, fields, padding = SHAPES[shape]
    x = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    axes = len(sizes) - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(*padding, strict=True)])
    reach = [(k - 1) * d + 1 for k, d in zip(fields["window_sizes"], fields["dilations"], strict=True)]
    views = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=tuple(range(2, 2 + axes)))
    steps = [slice(None, None, stride) for stride in fields["strides"]]
    places = [slice(None, None, dilation) for dilation in fields["dilations"]]
    views = views[(slice(None), slice(None), *steps, *places)]
    order = (0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))
    expected = views.transpose(order).reshape(columns(sizes, fields, padding))
    desc = descs.Unfold(
        input_tensor=tensor(x),
        output_tensor=TensorDesc(DataType.FLOAT32, expected.shape),
        start_padding=padding[0],
        end_padding=padding[1],
        **fields,
    )
    np.testing.assert_array_equal(run(desc, x), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_fold_like_col2im(shape):
    sizes, fields, padding = SHAPES[shape]
    x = np.random.default_rng(0).standard_normal(columns(sizes, fields, padding)).astype(np.float32)
    expected = onnx_reference(
        "Col2Im",
        [x, np.array(sizes[2:], np.int64), np.array(fields["window_sizes"], np.int64)],
        np.float32,
        strides=fields["strides"],
        dilations=fields["dilations"],
        pads=padding[0] + padding[1],
    )
    desc = descs.Fold(
        input_tensor=tensor(x),
        output_tensor=TensorDesc(DataType.FLOAT32, sizes),
        start_padding=padding[0],
        end_padding=padding[1],
        **fields,
    )
    np.testing.assert_allclose(run(desc, x), expected, rtol=1e-5, atol=1e-5)
