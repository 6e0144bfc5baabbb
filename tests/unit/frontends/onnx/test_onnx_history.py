"""Every version of every operator that has several from operator set 7 on: computed as that version defines it.

Expected values are onnxruntime's, or those of ONNX's reference where onnxruntime has no kernel of the version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.onnx_against import expected_of

OLDEST = 7
NOT_COVERED = {
    "Attention": "test_onnx_attention.py",
    "Bernoulli": "random: test_onnx_indices.py",
    **{f"Random{item}": "random: test_onnx_indices.py" for item in ("Normal", "NormalLike", "Uniform", "UniformLike")},
    "Multinomial": "random: test_onnx_indices.py",
    "Optional": "DirectML has no optionals",
    "OptionalGetElement": "DirectML has no optionals",
    "OptionalHasElement": "DirectML has no optionals",
    "SplitToSequence": "DirectML has no sequences",
}
"""Operators that the table omits: the reason, or the file that tests them."""


AS_BEFORE = {("GlobalLpPool", 22): 7, ("MaxRoiPool", 22): 7, ("Scatter", 11): 9, ("Upsample", 10): 9}
"""Versions that neither onnxruntime nor ONNX's reference computes, and those that differ in types or warnings only."""


@dataclass
class Case:
    """A node: its inputs, None for absent ones, and attributes; inputs in ``held`` are initializers."""

    inputs: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    held: tuple[int, ...] = ()


def case(*inputs: Any, outputs: int = 1, held: Sequence[int] = (), **attributes: Any) -> Case:
    return Case(inputs, attributes, outputs, tuple(held))


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng((seed, *shape)).standard_normal(shape) * 2).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def scalar(number: float, kind: Any = np.float32) -> np.ndarray:
    return np.array(number, kind)


X = floats(2, 3, 4)
COLUMN = floats(3, 1)
UNIT = np.linspace(-0.9, 0.9, 24, dtype=np.float32).reshape(2, 3, 4)
POSITIVE = np.abs(X) + np.float32(1)
WHOLE = np.random.default_rng(1).integers(-9, 9, (2, 3, 4)).astype(np.int32)
TRUTHS = WHOLE > 0
IMAGE = floats(1, 3, 6, 5)
QUARTERS = floats(1, 4, 3, 5)

Cases = Callable[[int], "list[Case]"]


def unary(x: np.ndarray, *more: tuple[int, np.ndarray], **attributes: Any) -> Cases:
    """Cases of item input, and of reference from a version on."""
    return lambda v: [case(x, **attributes), *(case(other, **attributes) for since, other in more if v >= since)]


def binary(*more: tuple[int, np.ndarray, np.ndarray], x: np.ndarray = X, y: np.ndarray = COLUMN) -> Cases:
    return lambda v: [case(x, y), *(case(a, b) for since, a, b in more if v >= since)]


def reduction(*, axes_since: int, more: tuple[tuple[int, np.ndarray], ...] = ()) -> Cases:
    def cases(v: int) -> list[Case]:
        x = POSITIVE
        result = [case(x), case(x, keepdims=0)]
        for axes in ([1], [0, 2], *([[-1]] if v >= 11 else [])):
            if v < axes_since:
                result.append(case(x, axes=axes, keepdims=0))
            else:
                result += [case(x, ints(*axes), keepdims=0), case(x, ints(*axes), held=[1])]
        if v >= axes_since:
            result += [case(x, noop_with_empty_axes=1), case(x, ints(), noop_with_empty_axes=1, held=[1])]
        return [*result, *(case(other) for since, other in more if v >= since)]

    return cases


def argument(v: int) -> list[Case]:
    ties = np.array([[1, 3, 3], [2, 2, 0]], np.float32)
    result = [case(X), case(X, axis=1, keepdims=0), case(ties, axis=1)]
    result += [case(X, axis=-1)] if v >= 11 else []
    return [*result, *([case(ties, axis=1, select_last_index=1)] if v >= 12 else [])]


def pooling(name: str) -> Cases:
    def cases(v: int) -> list[Case]:
        since = {"AveragePool": (10, 19), "MaxPool": (10, 10), "LpPool": (18, 18)}[name]
        common: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 2]}
        result = [
            case(IMAGE, **common),
            case(IMAGE, **common, pads=[1, 0, 1, 1]),
            case(IMAGE, **common, auto_pad="SAME_UPPER"),
            case(IMAGE, **common, auto_pad="SAME_LOWER"),
        ]
        if name == "AveragePool":
            result.append(case(IMAGE, **common, pads=[1, 0, 1, 1], count_include_pad=1))
        if name == "LpPool":
            result.append(case(IMAGE, **common, p=3))
        if name == "MaxPool" and v >= 8:
            result.append(case(IMAGE, **common, outputs=2, pads=[1, 0, 1, 1]))
            result.append(case(IMAGE, **common, outputs=2, storage_order=1))
        if v >= since[0]:
            result.append(case(IMAGE, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1))
        if v >= since[1]:
            result.append(case(IMAGE, kernel_shape=[2, 2], dilations=[2, 3]))
        if name == "MaxPool" and v >= 12:
            result.append(case((IMAGE * 20).astype(np.int8), **common))
        return result

    return cases


def convolution(v: int) -> list[Case]:
    w, b = floats(4, 3, 3, 2), floats(4)
    return [
        case(IMAGE, w),
        case(IMAGE, w, b, pads=[1, 0, 1, 1], strides=[2, 1], dilations=[1, 2]),
        case(IMAGE, w, auto_pad="SAME_UPPER", strides=[2, 2]),
        case(IMAGE, w, auto_pad="SAME_LOWER", strides=[2, 2]),
        case(IMAGE, floats(3, 1, 3, 2), group=3),
    ]


def transposed_convolution(v: int) -> list[Case]:
    w = floats(3, 2, 3, 2)
    result = [
        case(IMAGE, w, floats(2)),
        case(IMAGE, w, strides=[2, 2], pads=[1, 0, 1, 1], output_padding=[1, 0]),
        case(IMAGE, w, strides=[2, 3], output_shape=[14, 15]),
        case(IMAGE, floats(3, 1, 3, 2), group=3, dilations=[2, 1]),
    ]
    return [*result, *(case(IMAGE, w, strides=[2, 2], auto_pad=f"SAME_{item}") for item in ("UPPER", "LOWER"))]


def batch_normalization(v: int) -> list[Case]:
    parameters = [np.abs(floats(3, seed=seed)) + np.float32(0.1) for seed in range(4)]
    result = [case(IMAGE, *parameters), case(IMAGE, *parameters, epsilon=1e-2)]
    if v < 9:
        places = [np.abs(floats(3, 4, seed=seed)) + np.float32(0.1) for seed in range(4)]
        result.append(case(X, *places, spatial=0))
    if v < 14:  # more outputs mean training
        result.append(case(IMAGE, *parameters, outputs=5, momentum=0.7))
    if v >= 14:
        result.append(case(IMAGE, *parameters, outputs=3, training_mode=1, momentum=0.7))
    return result


def clip(v: int) -> list[Case]:
    if v < 11:
        return [case(X), case(X, max=1.0), case(X, min=-1.0), case(X, min=-1.0, max=1.0)]
    result = [case(X, scalar(-1), scalar(1)), case(X, None, scalar(1)), case(X, scalar(-1), held=[1]), case(X)]
    return result + ([case(WHOLE, scalar(-2, np.int32), scalar(3, np.int32))] if v >= 12 else [])


def pad(v: int) -> list[Case]:
    pads = [0, 1, 2, 0, 1, 1]
    modes = ["constant", "reflect", "edge", *(["wrap"] if v >= 19 else [])]
    if v < 11:
        return [case(X, pads=pads, mode=mode) for mode in modes] + [
            case(X, pads=pads, value=2.5),
            case(X, pads=[0, 0, -1, 0, 1, 1]),
        ]
    result = [case(X, ints(*pads), held=[1], mode=mode) for mode in modes]
    result += [case(X, ints(*pads), scalar(2.5), held=[1]), case(X, ints(0, 0, -1, 0, 1, 1), held=[1])]
    return result + ([case(X, ints(1, 2), None, ints(-1), held=[1, 3])] if v >= 18 else [])


def slice_(v: int) -> list[Case]:
    if v < 10:
        return [case(X, starts=[0, -2], ends=[1, 1000], axes=[0, 2]), case(X, starts=[0, 1], ends=[1, -1])]
    result = [case(X, ints(0, -2), ints(1, 1000), ints(0, 2)), case(X, ints(3), ints(-1000), ints(2), ints(-2))]
    return result + ([case(X, ints(1), ints(3), ints(-1))] if v >= 11 else [])


def split(v: int) -> list[Case]:
    result = [case(X, outputs=2, axis=2, **({"num_outputs": 2} if v >= 18 else {}))]
    result += (
        [case(X, outputs=2, axis=1, split=[1, 2])] if v < 13 else [case(X, ints(1, 2), outputs=2, axis=1, held=[1])]
    )
    result += [case(X, outputs=3, axis=2, num_outputs=3), case(X, outputs=2, axis=1, num_outputs=2)] if v >= 18 else []
    return result + ([case(X, outputs=2, axis=-1)] if 11 <= v < 18 else [])


def axes_of(x: np.ndarray, axes: list[int], *, is_optional: bool) -> Cases:
    def cases(v: int) -> list[Case]:
        axes_now = axes if v >= 11 else [item % 4 for item in axes]
        common = case(x, axes=axes_now) if v < 13 else case(x, ints(*axes_now), held=[1])
        return [common, *([case(x)] if is_optional else [])]

    return cases


def top_k(v: int) -> list[Case]:
    if v < 10:
        return [case(X, k=2, outputs=2), case(X, k=2, axis=1, outputs=2)]
    result = [case(X, ints(2), outputs=2, held=[1]), case(X, ints(2), axis=1, outputs=2, held=[1])]
    return result + ([case(X, ints(2), axis=1, largest=0, outputs=2, held=[1])] if v >= 11 else [])


def along_axes(v: int) -> list[Case]:
    return [case(X), *(case(X, axis=axis) for axis in (0, 1, 2, *([-2] if v >= 11 else [])))]


def gemm(v: int) -> list[Case]:
    a, b = floats(3, 4), floats(4, 5, seed=1)
    result = [case(a, b, c, alpha=0.5, beta=2.0) for c in (floats(5), floats(3, 1), floats(3, 5), floats(1))]
    result += [case(a.T.copy(), b.T.copy(), floats(5), transA=1, transB=1)]
    return result + ([case(a, b)] if v >= 11 else [])


def dropout(v: int) -> list[Case]:
    if v < 12:
        return [case(X, ratio=0.3), case(X)]
    return [case(X), case(X, scalar(0.3)), case(X, scalar(0.3), np.array(False), outputs=2, held=[2])]


def several(v: int) -> list[Case]:
    result = [case(X), case(X, floats(2, 3, 4, seed=1))]
    return result + ([case(X, floats(4), floats(3, 1))] if v >= 8 else [])


def extreme(v: int) -> list[Case]:
    return several(v) + (
        [case(WHOLE, WHOLE[:1] + 1), case(WHOLE.astype(np.int8), WHOLE[0].astype(np.int8))] if v >= 12 else []
    )


def resize(v: int) -> list[Case]:
    scales = np.array([1, 1, 1.5, 2], np.float32)
    down = np.array([1, 1, 0.5, 0.6], np.float32)
    if v < 11:
        pairs = [(mode, item) for mode in ("nearest", "linear") for item in (scales, down)]
        return [case(IMAGE, item, mode=mode, held=[1]) for mode, item in pairs]
    roi = np.zeros(0, np.float32) if v < 13 else None
    held = [1, 2] if v < 13 else [2]
    result = [
        case(IMAGE, roi, item, mode=mode, held=held)
        for mode in ("nearest", "linear", "cubic")
        for item in (scales, down)
    ]
    how = ["asymmetric", "align_corners", "pytorch_half_pixel", *(["half_pixel_symmetric"] if v >= 19 else [])]
    result += [case(IMAGE, roi, scales, mode="linear", coordinate_transformation_mode=item, held=held) for item in how]
    result += (
        [case(IMAGE, roi, scales, coordinate_transformation_mode="tf_half_pixel_for_nn", held=held)] if v < 13 else []
    )
    nothing = np.zeros(0, np.float32) if v < 13 else None
    result += [case(IMAGE, roi, nothing, ints(1, 3, 9, 7), mode="linear", held=[*([1, 2] if v < 13 else []), 3])]
    if v >= 18:
        result += [case(IMAGE, None, scales[2:], axes=[2, 3], mode="linear", held=[2])]
        result += [case(IMAGE, None, down, mode="linear", antialias=1, held=[2])]
        result += [case(IMAGE, None, None, ints(9, 9), axes=[2, 3], keep_aspect_ratio_policy="not_larger", held=[3])]
    return result


def upsample(v: int) -> list[Case]:
    scales = [1.0, 1.0, 2.0, 3.0]
    if v < 9:
        return [case(IMAGE, scales=scales, mode=mode) for mode in ("nearest", "linear")]
    return [case(IMAGE, np.array(scales, np.float32), mode=mode, held=[1]) for mode in ("nearest", "linear")]


def region_align(v: int) -> list[Case]:
    boxes = np.array([[0.3, 0.2, 3.7, 4.1], [1, 1, 2, 2.5]], np.float32)
    common: dict[str, Any] = {"output_height": 2, "output_width": 3, "spatial_scale": 0.9, "sampling_ratio": 2}
    result = [case(IMAGE, boxes, ints(0, 0), **common), case(IMAGE, boxes, ints(0, 0), **common, mode="max")]
    how = ("half_pixel", "output_half_pixel") if v >= 16 else ()
    return result + [case(IMAGE, boxes, ints(0, 0), **common, coordinate_transformation_mode=item) for item in how]


def grid_sample(v: int) -> list[Case]:
    grid = np.random.default_rng(0).uniform(-1.2, 1.2, (1, 4, 3, 2)).astype(np.float32)
    modes = ("bilinear", "bicubic", "nearest") if v < 20 else ("linear", "cubic", "nearest")
    result = [case(IMAGE, grid), *(case(IMAGE, grid, mode=mode, align_corners=1) for mode in modes)]
    if v >= 20:
        volume = np.random.default_rng(0).uniform(-1.2, 1.2, (1, 2, 4, 3, 3)).astype(np.float32)
        result.append(case(floats(1, 2, 3, 4, 5), volume))
    return result


def fourier(v: int) -> list[Case]:
    x = floats(2, 5, 4, 1)
    if v < 20:
        return [case(x), case(x, axis=2), case(x, axis=1, onesided=1), case(floats(2, 5, 4, 2), axis=2, inverse=1)]
    result = [case(x), case(x, None, scalar(1, np.int64), held=[2]), case(floats(2, 5, 4, 2), inverse=1)]
    return [*result, case(x, None, scalar(1, np.int64), onesided=1, held=[2])]


def quantize(v: int) -> list[Case]:
    zero = np.array(3, np.uint8)
    result = [case(X, scalar(0.1), zero), case(X, scalar(0.1))]
    if v >= 13:
        scales = np.array([0.1, 0.2, 0.3], np.float32)
        result.append(case(X, scales, np.array([1, -2, 3], np.int8), axis=1))
    if v >= 21:
        result.append(
            case(X, floats(2, 3, 2) ** 2 + np.float32(0.1), np.zeros((2, 3, 2), np.int8), axis=2, block_size=2)
        )
        result.append(case(X, scalar(0.01), output_dtype=TensorProto.INT16))
    return result


def dequantize(v: int) -> list[Case]:
    x = (X * 20).astype(np.int8)
    result = [case(x, scalar(0.1), np.array(3, np.int8)), case(x, scalar(0.1)), case(WHOLE, scalar(0.1))]
    if v >= 13:
        result.append(case(x, np.array([0.1, 0.2, 0.3], np.float32), np.array([1, -2, 3], np.int8), axis=1))
    if v >= 21:
        result.append(case(x, np.abs(floats(2, 3, 2)), np.zeros((2, 3, 2), np.int8), axis=2, block_size=2))
    return result


def quantized_product(v: int) -> list[Case]:
    a = np.random.default_rng(0).integers(0, 255, (3, 4)).astype(np.uint8)
    b = np.random.default_rng(1).integers(0, 255, (4, 5)).astype(np.uint8)
    item, zero = scalar(0.02), np.array(120, np.uint8)
    return [case(a, item, zero, b, item, zero, scalar(0.05), zero)]


def cast(v: int) -> list[Case]:
    kinds = (TensorProto.INT32, TensorProto.FLOAT16, TensorProto.BOOL, TensorProto.UINT8)
    return [case(np.abs(X), to=kind) for kind in kinds] + [case(WHOLE, to=TensorProto.FLOAT)]


def recurrent(name: str, gates: int) -> Cases:
    def cases(v: int) -> list[Case]:
        x, w, r = (
            floats(4, 2, 3) * np.float32(0.3),
            floats(1, gates * 5, 3) * np.float32(0.3),
            floats(1, gates * 5, 5) * np.float32(0.3),
        )
        b = floats(1, 2 * gates * 5)
        lengths = np.array([4, 2], np.int32)
        outputs = 3 if name == "LSTM" else 2
        result = [
            case(x, w, r, hidden_size=5, outputs=outputs),
            case(x, w, r, b, lengths, hidden_size=5, outputs=outputs),
        ]
        result.append(case(x, w, r, b, hidden_size=5, direction="reverse", outputs=outputs))
        if name == "GRU":
            result.append(case(x, w, r, b, hidden_size=5, linear_before_reset=1, outputs=outputs))
        if v >= 14:
            result.append(case(x.transpose(1, 0, 2).copy(), w, r, b, hidden_size=5, layout=1, outputs=outputs))
        return result

    return cases


def one_hot(v: int) -> list[Case]:
    values = np.array([2, 5], np.float32)
    result = [case(ints(0, 3, 1, 9), ints(4), values, held=[1]), case(ints(0, 3, 1), ints(4), values, axis=0, held=[1])]
    return result + ([case(ints(0, -1, -9), ints(4), values, held=[1])] if v >= 11 else [])


def scatter_elements(v: int) -> list[Case]:
    common = (X, np.array([[[0, 1, 1, 0]]], np.int64), floats(1, 1, 4, seed=3))
    result = [case(*common, axis=1), case(*common)]
    if v >= 11:
        result.append(case(X, np.array([[[-1, -2, 0, 1]]], np.int64), common[2], axis=-2))
    kinds = ["add", "mul"] if v >= 16 else []
    kinds += ["max", "min"] if v >= 18 else []
    return result + [case(X, np.zeros((1, 2, 4), np.int64), floats(1, 2, 4), axis=1, reduction=kind) for kind in kinds]


def scatter_nd(v: int) -> list[Case]:
    result = [case(X, np.array([[1, 2], [0, 0]], np.int64), floats(2, 4))]
    kinds = ["add", "mul"] if v >= 16 else []
    kinds += ["max", "min"] if v >= 18 else []
    again = np.array([[1, 2], [1, 2]], np.int64)
    return result + [case(X, again, floats(2, 4), reduction=kind) for kind in kinds]


def gather_nd(v: int) -> list[Case]:
    result = [case(X, np.array([[1, 2], [0, -1]], np.int64))]
    return result + ([case(X, np.array([[1], [-1]], np.int64), batch_dims=1)] if v >= 12 else [])


def loss(v: int) -> list[Case]:
    labels = np.array([[0, 1, 2, 1], [2, 2, 0, 1]], np.int64)
    result = [case(X, labels), case(X, labels, floats(3) ** 2, reduction="sum"), case(X, labels, reduction="none")]
    return [*result, case(X, labels, floats(3) ** 2, ignore_index=2)]


def group_normalization(v: int) -> list[Case]:
    count = 2 if v < 21 else 4
    return [
        case(QUARTERS, floats(count), floats(count, seed=1), num_groups=2),
        case(floats(2, 4), floats(count), floats(count, seed=1), num_groups=2, epsilon=0.1),
        case(QUARTERS, floats(count), floats(count, seed=1), num_groups=2, held=[1, 2]),
    ]


def moved(name: str) -> Cases:
    def cases(v: int) -> list[Case]:
        x = floats(1, 8, 2, 3) if name == "DepthToSpace" else floats(1, 2, 4, 6)
        modes = {"DepthToSpace": 11, "SpaceToDepth": 28}[name]
        return [case(x, blocksize=2), *(case(x, blocksize=2, mode=m) for m in ("DCR", "CRD") if v >= modes)]

    return cases


def constant(v: int) -> list[Case]:
    result = [case(value=numpy_helper.from_array(X)), case(value=numpy_helper.from_array(WHOLE))]
    if v >= 12:
        result += [case(value_float=2.5), case(value_floats=[1.0, 2.0]), case(value_int=3), case(value_ints=[1, 2])]
    return result


def body(nodes: list[Any], inputs: dict[str, tuple[int, list[int]]], outputs: dict[str, tuple[int, list[int]]]) -> Any:
    infos = [
        [helper.make_tensor_value_info(name, *item) for name, item in common.items()] for common in (inputs, outputs)
    ]
    return helper.make_graph(nodes, "body", *infos)


F, INT64, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def if_(v: int) -> list[Case]:
    branches = {
        f"{name}_branch": body(
            [helper.make_node("Constant", [], ["z"], value=numpy_helper.from_array(array))],
            {},
            {"z": (F, list(array.shape))},
        )
        for name, array in (("then", X), ("else", UNIT))
    }
    return [case(np.array(truth), **branches) for truth in (True, False)]


def loop(v: int) -> list[Case]:
    nodes = [helper.make_node("Add", ["s", "s"], ["t"]), helper.make_node("Neg", ["t"], ["row"])]
    nodes.append(helper.make_node("Identity", ["c"], ["on"]))
    graph = body(
        nodes, {"i": (INT64, []), "c": (B, []), "s": (F, [3])}, {"on": (B, []), "t": (F, [3]), "row": (F, [3])}
    )
    return [
        case(scalar(3, np.int64), np.array(True), floats(3), body=graph, outputs=2),
        case(scalar(2, np.int64), None, floats(3), body=graph, outputs=2),
    ]


def scan(v: int) -> list[Case]:
    nodes = [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Neg", ["t"], ["row"])]
    graph = body(nodes, {"s": (F, [3]), "x": (F, [3])}, {"t": (F, [3]), "row": (F, [3])})
    if v < 9:
        common = (None, floats(2, 3), floats(2, 4, 3))
        return [case(*common, body=graph, num_scan_inputs=1, outputs=2, **more) for more in ({}, {"directions": [1]})]
    result = [case(floats(3), floats(4, 3), body=graph, num_scan_inputs=1, outputs=2)]
    more: dict[str, Any] = {
        "scan_input_axes": [1],
        "scan_input_directions": [1],
        "scan_output_axes": [1],
        "scan_output_directions": [1],
    }
    return [*result, case(floats(3), floats(3, 4), body=graph, num_scan_inputs=1, outputs=2, **more)]


SPECIAL = np.array([np.nan, np.inf, -np.inf, 1, 0], np.float32)
NUMBERS = (WHOLE, WHOLE[0] + 20)
BYTES = WHOLE.astype(np.int8)
SIGNED = np.array([7, -7, 7, -7], np.int32), np.array([3, 3, -3, -3], np.int32)
INT8S = (14, BYTES, BYTES[0] | 1)
AS_BYTES = np.random.default_rng(2).integers(0, 255, (3, 4)).astype(np.uint8)

TABLE: dict[str, Cases] = {
    **{name: unary(X, (7, WHOLE)) for name in ("Abs", "Neg", "Sign")},
    **{
        name: unary(X)
        for name in ("Atan", "Asinh", "Cos", "Cosh", "Sin", "Sinh", "Tan", "Tanh", "Ceil", "Floor", "Round", "Exp")
    },
    **{
        name: unary(X)
        for name in ("Erf", "Sigmoid", "Softplus", "Softsign", "Selu", "HardSwish", "Mish", "HardSigmoid")
    },
    **{name: unary(UNIT) for name in ("Acos", "Asin", "Atanh")},
    **{name: unary(POSITIVE) for name in ("Acosh", "Log", "Sqrt", "Reciprocal")},
    **{name: unary(X, alpha=0.3) for name in ("Celu", "Elu", "LeakyRelu", "ThresholdedRelu")},
    **{name: binary((7, *NUMBERS), INT8S) for name in ("Add", "Sub", "Mul", "Div")},
    **{name: binary((9, *NUMBERS)) for name in ("Greater", "Less")},
    **{name: binary((12, *NUMBERS)) for name in ("GreaterOrEqual", "LessOrEqual")},
    **{
        name: reduction(axes_since=18)
        for name in (
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMean",
            "ReduceProd",
            "ReduceSumSquare",
        )
    },
    **{name: reduction(axes_since=18, more=((12, BYTES), (20, TRUTHS))) for name in ("ReduceMax", "ReduceMin")},
    **dict.fromkeys(("ArgMax", "ArgMin"), argument),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), along_axes),
    **{name: pooling(name) for name in ("AveragePool", "MaxPool", "LpPool")},
    **{name: unary(IMAGE) for name in ("GlobalAveragePool", "GlobalMaxPool")},
    **dict.fromkeys(("Sum", "Mean"), several),
    **dict.fromkeys(("Max", "Min"), extreme),
    **{name: moved(name) for name in ("DepthToSpace", "SpaceToDepth")},
    **{name: recurrent(name, gates) for name, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))},
    "BatchNormalization": batch_normalization,
    "BitShift": lambda v: (
        [case(AS_BYTES, AS_BYTES % 8, direction=item) for item in ("LEFT", "RIGHT")]
        + ([case(WHOLE, np.abs(WHOLE) % 8, direction=item) for item in ("LEFT", "RIGHT")] if v >= 28 else [])
    ),
    "Cast": cast,
    "CastLike": lambda v: [case(X, WHOLE), case(WHOLE, X)],
    "Clip": clip,
    "Compress": lambda v: (
        [case(X, np.array([True, False, True]), axis=1), case(X, np.arange(24) % 3 == 0)]
        + ([case(X, np.array([True, False, True]), axis=-2)] if v >= 11 else [])
    ),
    "Concat": lambda v: [case(X, floats(2, 3, 2), axis=2), *([case(X, X, axis=-2)] if v >= 11 else [])],
    "Constant": constant,
    "ConstantOfShape": lambda v: [
        case(ints(2, 3), value=numpy_helper.from_array(np.array([5], np.int32))),
        case(ints(2, 3)),
    ],
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "CumSum": lambda v: [
        case(X, scalar(1, np.int32), held=[1]),
        case(X, scalar(-1, np.int64), exclusive=1, reverse=1, held=[1]),
    ],
    "DFT": fourier,
    "DeformConv": lambda v: [case(IMAGE, floats(2, 3, 2, 2), floats(1, 8, 5, 4), floats(2))],
    "DequantizeLinear": dequantize,
    "Det": unary(floats(2, 3, 3)),
    "Dropout": dropout,
    "Einsum": lambda v: [case(floats(3, 4), floats(4, 5), equation="ij,jk->ik"), case(floats(3, 3), equation="ii")],
    "Equal": binary((11, X, X[0]), (7, TRUTHS, TRUTHS[0]), x=WHOLE, y=WHOLE[0]),
    "Expand": lambda v: [case(floats(3, 1), ints(2, 3, 4), held=[1]), case(floats(3, 1), ints(1, 4), held=[1])],
    "EyeLike": lambda v: [case(X[0]), case(X[0], k=1, dtype=TensorProto.INT32)],
    "Flatten": lambda v: [case(X), case(X, axis=2), case(X, axis=0), *([case(X, axis=-1)] if v >= 11 else [])],
    "Gather": lambda v: [case(X, ints(1, 0, 2), axis=1), *([case(X, ints(-1, 0), axis=-1)] if v >= 11 else [])],
    "GatherElements": lambda v: [case(X, np.array([[[0, 1, -1, -2]]], np.int64), axis=1)],
    "GatherND": gather_nd,
    "Gemm": gemm,
    "GlobalLpPool": unary(IMAGE, p=3),
    "GridSample": grid_sample,
    "GroupNormalization": group_normalization,
    "Identity": unary(X, (7, TRUTHS)),
    "If": if_,
    "InstanceNormalization": lambda v: [case(IMAGE, floats(3), floats(3, seed=1), epsilon=1e-3)],
    "IsInf": lambda v: [case(SPECIAL), case(SPECIAL, detect_negative=0), case(SPECIAL, detect_positive=0)],
    "IsNaN": unary(SPECIAL, (9, SPECIAL.astype(np.float16))),
    "LRN": lambda v: [case(IMAGE, size=3, alpha=0.1, beta=0.5, bias=2.0)],
    "Loop": loop,
    "LpNormalization": lambda v: [case(X), case(X, p=1, axis=1)],
    "MatMul": binary((9, WHOLE.reshape(6, 4), WHOLE.reshape(4, 6)), y=floats(4, 2)),
    "MaxRoiPool": lambda v: [
        case(IMAGE, np.array([[0, 0, 0, 3, 4], [0, 1, 1, 4, 5]], np.float32), pooled_shape=[2, 2])
    ],
    "MaxUnpool": lambda v: [
        case(floats(1, 1, 2, 2), np.array([[[[0, 3], [9, 15]]]], np.int64), kernel_shape=[2, 2], strides=[2, 2]),
        case(
            floats(1, 1, 2, 2),
            np.array([[[[0, 3], [9, 15]]]], np.int64),
            ints(1, 1, 5, 5),
            kernel_shape=[2, 2],
            strides=[2, 2],
            held=[2],
        ),
    ],
    "MeanVarianceNormalization": lambda v: [case(IMAGE), case(IMAGE, axes=[1, 2])],
    "Mod": lambda v: [case(*SIGNED), case(*SIGNED, fmod=1), case(X, floats(4), fmod=1)],
    "NegativeLogLikelihoodLoss": loss,
    "NonMaxSuppression": lambda v: [
        case(
            np.abs(np.sort(floats(1, 6, 4), -1)),
            np.abs(floats(1, 2, 6)),
            ints(3),
            scalar(0.4),
            scalar(0.5),
            center_point_box=item,
        )
        for item in (0, 1)
    ],
    "NonZero": unary(np.maximum(X, 0), (9, TRUTHS)),
    "OneHot": one_hot,
    "PRelu": lambda v: [case(X, floats(3, 1)), case(X, floats(1)), *([case(WHOLE, WHOLE[0])] if v >= 9 else [])],
    "Pad": pad,
    "Pow": binary((12, X, np.array(2, np.int32)), (12, WHOLE, np.array(2, np.float32)), x=POSITIVE),
    "QLinearMatMul": quantized_product,
    "QuantizeLinear": quantize,
    "Range": lambda v: [
        case(scalar(1), scalar(6), scalar(1.5), held=[0, 1, 2]),
        case(*(scalar(item, np.int64) for item in (9, -2, -3))),
    ],
    "ReduceSum": reduction(axes_since=13, more=((7, WHOLE),)),
    "Relu": unary(X, (14, WHOLE)),
    "Reshape": lambda v: (
        [case(X, ints(4, 0, -1), held=[1])] + ([case(X[:0], ints(3, 0), allowzero=1, held=[1])] if v >= 14 else [])
    ),
    "Resize": resize,
    "ReverseSequence": lambda v: [case(X.reshape(4, 2, 3), ints(3, 1)), case(X, ints(2, 3), batch_axis=0, time_axis=1)],
    "RoiAlign": region_align,
    "Scan": scan,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Shape": lambda v: [case(X), *([case(X, start=1), case(X, start=-2, end=-1)] if v >= 15 else [])],
    "Size": unary(X),
    "Slice": slice_,
    "SoftmaxCrossEntropyLoss": loss,
    "Split": split,
    "Squeeze": axes_of(floats(1, 3, 1, 4), [0, -2], is_optional=True),
    "Tile": lambda v: [case(X, ints(2, 1, 3), held=[1])],
    "TopK": top_k,
    "Transpose": lambda v: [case(X), case(X, perm=[1, 2, 0])],
    "Unique": lambda v: [
        case(ints(3, 1, 3, 2).astype(np.float32), outputs=4),
        case(ints(3, 1, 3, 2).astype(np.float32), sorted=0, outputs=4),
    ],
    "Unsqueeze": axes_of(floats(3, 4), [0, -1], is_optional=False),
    "Upsample": upsample,
    "Where": lambda v: [case(TRUTHS, X, floats(4)), case(TRUTHS[0], WHOLE.astype(np.int64), WHOLE[0].astype(np.int64))],
}


@cache
def history() -> dict[str, list[int]]:
    """Return the versions of operators that models of operator sets from 7 on may have, if there are several."""
    result: dict[str, list[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain:
            result.setdefault(schema.name, []).append(schema.since_version)
    for name, versions in result.items():
        first = max((item for item in versions if item <= OLDEST), default=0)
        result[name] = sorted(item for item in versions if item >= first)
    return {name: versions for name, versions in result.items() if len(versions) > 1}


def expected(name: str, item: Case, version: int) -> list[Any]:
    """Return onnxruntime's outputs, or those of ONNX's reference if it has no kernel, or must not run the version."""
    model, feeds = model_of_case(name, item, AS_BEFORE.get((name, version), version))
    try:
        return expected_of(model, feeds)
    except Exception:  # whatever onnxruntime raises for a missing kernel
        return list(ReferenceEvaluator(model).run(None, feeds))


def model_of_case(name: str, item: Case, version: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    names = ["" if array is None else f"x{index}" for index, array in enumerate(item.inputs)]
    arrays = {f"x{index}": np.asarray(array) for index, array in enumerate(item.inputs) if array is not None}
    weights = [numpy_helper.from_array(arrays.pop(f"x{index}"), f"x{index}") for index in item.held]
    outputs = [f"y{index}" for index in range(item.outputs)]
    infos = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for key, array in arrays.items()
    ]
    node = helper.make_node(name, names, outputs, **item.attributes)
    graph = helper.make_graph(
        [node], "case", infos, [helper.make_empty_tensor_value_info(key) for key in outputs], weights
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10), arrays


def test_every_operator_with_several_versions_is_in_the_table() -> None:
    assert set(history()) - set(TABLE) - set(NOT_COVERED) == set()


@pytest.mark.parametrize(
    ("name", "version"),
    [(name, version) for name in TABLE for version in history().get(name, ())],
    ids=str,
)
def test_versions(name: str, version: int) -> None:
    opset = max(version, OLDEST)
    for index, item in enumerate(TABLE[name](opset)):
        model, feeds = model_of_case(name, item, opset)
        result = load(model, "numpy").run(feeds)
        if (name, item.outputs) == ("BatchNormalization", 5):
            del result["y4"]  # the variance, which onnxruntime replaces by 1 / sqrt(variance + epsilon)
        reference = expected(name, item, opset)[: len(result)]
        for (key, array), other in zip(result.items(), reference, strict=True):
            label = f"case {index} {item.attributes}: {key}"
            assert (array.dtype, array.shape) == (np.asarray(other).dtype, np.shape(other)), label
            np.testing.assert_allclose(array, other, rtol=1e-4, atol=1e-5, err_msg=label)
