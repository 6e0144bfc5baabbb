"""Signals: transforms and windows. Random operators."""

from __future__ import annotations

import numpy as np
import onnx

from tests.fuzz.onnx_nodes.draw import FLOATS, Draw, NodeCase, generator

_FLOAT = onnx.TensorProto.FLOAT


@generator("DFT")
def dft(draw: Draw) -> NodeCase:
    rank = draw.integer(3, 4)
    shape = [draw.integer(1, 3) for _ in range(rank - 1)] + [draw.integer(1, 2)]
    inverse, onesided = draw.maybe(0, 1), draw.maybe(0, 1, probability=0.3)
    axis = draw.integer(1, rank - 2)
    shape[axis] = draw.pick(1, 2, 3, 4, 5, 8, 9, 16)
    if onesided and not inverse:
        shape[-1] = 1
    if inverse and not onesided and draw.chance(0.8):
        shape[-1] = 2
    if inverse and onesided:
        onesided = None
    length = np.array(draw.integer(1, 10), "int64") if draw.chance(0.3) else None
    x = draw.tensor(draw.dtype(0, FLOATS), shape)
    axis = axis - rank if draw.chance(0.3) else axis
    options = {"inverse": inverse, "onesided": onesided, "length": 16, "scale": 16.0}
    if draw.version < 20:
        return draw.case(x, length, axis=axis, **options)
    return draw.case(x, length, np.array(axis, "int64") if draw.chance(0.8) or shape[-2] < 1 else None, **options)


@generator("STFT")
def stft(draw: Draw) -> NodeCase:
    frame, step = draw.pick(4, 5, 8), draw.integer(1, 4)
    signal = draw.tensor(draw.dtype(0, FLOATS), (draw.integer(1, 2), frame + draw.integer(0, 12), draw.pick(1, 1, 2)))
    window = draw.array(signal.dtype.name, (frame,), 0, 1) if draw.chance(0.6) else None
    length = np.array(frame, "int64") if window is None or draw.chance(0.5) else None
    onesided = draw.maybe(0, 1) if signal.shape[-1] == 1 else 0
    return draw.case(signal, np.array(step, "int64"), window, length, onesided=onesided, length=frame, scale=16)


@generator("MelWeightMatrix")
def mel(draw: Draw) -> NodeCase:
    bins, dft_length, rate = draw.integer(1, 8), draw.pick(16, 32, 64), draw.pick(8000, 16000)
    edges = np.array(draw.pick(0.0, 100.0), "float32"), np.array(draw.pick(3000.0, 4000.0), "float32")
    dtype = draw.pick("int64", "int32")
    counts = [np.array(number, dtype) for number in (bins, dft_length, rate)]
    return draw.case(*counts, *edges)


@generator("BlackmanWindow", "HammingWindow", "HannWindow")
def windows(draw: Draw) -> NodeCase:
    size = np.array(draw.integer(1, 20), draw.pick("int64", "int32"))
    return draw.case(size, output_datatype=draw.maybe(_FLOAT, onnx.TensorProto.FLOAT16), periodic=draw.maybe(0, 1))


@generator("RandomNormal", "RandomUniform")
def creation(draw: Draw) -> NodeCase:
    names = ("mean", "scale") if draw.op_type == "RandomNormal" else ("low", "high")
    options = {name: draw.maybe(number) for name, number in zip(names, (0.5, 2.0), strict=True)}
    shape = list(draw.shape(1, 3))
    return draw.case(
        shape=shape,
        seed=draw.maybe(1.0),
        dtype=draw.maybe(_FLOAT, onnx.TensorProto.FLOAT16),
        random=True,
        **_attributes(options),
    )


def _attributes(options: dict[str, object]) -> dict[str, object]:
    """Attributes, one of which has the name of an option of ``NodeCase``."""
    options.pop("scale", None)
    return options


@generator("RandomNormalLike", "RandomUniformLike", "Bernoulli")
def like(draw: Draw) -> NodeCase:
    x = draw.main(low=0, high=1, low_rank=1)
    dtype = draw.maybe(_FLOAT, onnx.TensorProto.FLOAT16)
    if draw.op_type != "Bernoulli" and dtype is None and x.dtype.kind != "f":
        dtype = _FLOAT
    return draw.case(x, dtype=dtype, seed=draw.maybe(1.0), random=True)


@generator("Multinomial")
def multinomial(draw: Draw) -> NodeCase:
    x = draw.tensor(draw.dtype(0, ("float32", "float16")), (draw.integer(1, 3), draw.integer(1, 5)), -2, 2)
    dtype = draw.maybe(onnx.TensorProto.INT32, onnx.TensorProto.INT64)
    return draw.case(x, sample_size=draw.maybe(1, 4), dtype=dtype, seed=draw.maybe(1.0), random=True)


@generator("Dropout")
def dropout(draw: Draw) -> NodeCase:
    x = draw.main(0)
    outputs = draw.integer(1, 2) if draw.version >= 10 else 1
    if draw.version < 12:
        return draw.case(x, ratio=draw.maybe(0.5), outputs=outputs, exact=True)
    training = draw.chance(0.2)
    ratio = np.array(draw.pick(0.0, 0.5), "float32") if training or draw.chance(0.5) else None
    mode = np.array(training) if training or draw.chance(0.5) else None
    is_random = training and (ratio is None or ratio > 0)
    return draw.case(x, ratio, mode, seed=draw.maybe(1), outputs=outputs, random=bool(is_random), exact=True)
