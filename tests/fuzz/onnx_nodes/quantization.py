"""Quantized elements and products, ONNX's and onnxruntime's."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz.onnx_nodes.draw import MICROSOFT, Array, Draw, NodeCase, generator
from tests.fuzz.onnx_nodes.windows import picture, window

_BYTES = ("uint8", "int8")


def _scale(draw: Draw, shape: tuple[int, ...] = (), dtype: str = "float32") -> Array:
    """Scales that are no powers of 2, so that quotients are seldom halfway between integers."""
    return draw.array(dtype, shape, 0.0203, 0.1307)


def _zero(draw: Draw, dtype: str, shape: tuple[int, ...] = ()) -> Array:
    return draw.array(dtype, shape, *((100, 150) if dtype == "uint8" else (-20, 20)))


def _elements(draw: Draw, dtype: str, shape: tuple[int, ...]) -> Array:
    return draw.array(dtype, shape, -128, 255)


@generator("QuantizeLinear", "DequantizeLinear")
def linear(draw: Draw) -> NodeCase:
    quantizes = draw.op_type == "QuantizeLinear"
    among = ("float32", "float16", "int32") if draw.version < 19 else ("float32", "float16")  # the scale's type from 19
    x = draw.main(low_rank=1, among=among) if quantizes else None
    shape = x.shape if x is not None else draw.shape(1, 4)
    kinds = _BYTES if draw.version < 21 else (*_BYTES, "uint16", "int16", "uint4", "int4")
    if not quantizes and draw.chance(0.1):
        kinds = ("int32",)
    kind = draw.pick(*kinds)
    floats = "float32" if draw.version < 19 or quantizes or draw.chance(0.7) else "float16"
    if x is not None and x.dtype == "float16":
        floats = "float16" if draw.version >= 19 else "float32"
        x = np.asarray(x, floats)
    axis = draw.axis(len(shape))
    options: dict[str, Any] = {}
    choice = draw.integer(0, 2 if draw.version >= 21 else 1) if draw.version >= 13 else 0
    parameters: tuple[int, ...] = ()
    if choice == 1:
        options["axis"] = axis
        parameters = (shape[axis],)
    elif choice == 2 and shape[axis]:
        block = draw.pick(*(size for size in range(1, shape[axis] + 1) if shape[axis] % size == 0))
        blocks = list(shape)
        blocks[axis] //= block
        parameters = tuple(blocks)
        options |= {"axis": axis, "block_size": block}
    scale = _scale(draw, parameters, floats)
    if kind in ("uint4", "int4"):
        element = getattr(ml_dtypes, kind)
        low, high = (0, 15) if kind == "uint4" else (-8, 7)
        zero: Array | None = draw.array("int32", parameters, low, high).astype(element)
        elements = draw.array("int32", shape, low, high).astype(element)
        constants: tuple[int, ...] = (0, 2) if not quantizes else (2,)
    else:
        zero = draw.array(kind, parameters, *((0, 0) if kind == "int32" else (0, 150) if kind[0] == "u" else (-20, 20)))
        elements = draw.array(kind, shape, -128, 255)
        constants = ()
    if draw.chance(0.2) and (not quantizes or kind == "uint8"):
        zero = None
    if x is not None and kind not in ("uint8", "int8"):
        x = np.asarray(x * 1.01, x.dtype)
    if draw.version < 21 and x is not None and x.dtype == "float16" and floats == "float32":
        x = np.asarray(x, "float32")
    first = x if x is not None else elements
    return draw.case(
        first, scale, zero, constants=constants, slack=0 if floats == "float32" else 1, scale=16, **options
    )


@generator("QuantizeLinear", "DequantizeLinear", domain=MICROSOFT)
def microsoft_linear(draw: Draw) -> NodeCase:
    shape = draw.shape(1, 4)
    kind = draw.pick("uint8", "int8", "uint16", "int16")
    axis = draw.axis(len(shape))
    parameters = (shape[axis],) if draw.chance(0.4) else ()
    x = draw.tensor("float32", shape) if draw.op_type == "QuantizeLinear" else draw.array(kind, shape, -128, 255)
    zero = draw.array(kind, parameters, *((0, 150) if kind[0] == "u" else (-20, 20)))
    return draw.case(x, _scale(draw, parameters), zero, axis=axis if parameters else None, scale=16)


@generator("DynamicQuantizeLinear")
def dynamic(draw: Draw) -> NodeCase:
    return draw.case(draw.main(special=False), outputs=3, slack=1)


@generator("MatMulInteger")
def matmul_integer(draw: Draw) -> NodeCase:
    m, k, n = draw.integer(1, 5), draw.pick(1, 2, 3, 8, 17), draw.integer(1, 6)
    batch = draw.shape(0, 1, most=3)
    kinds = draw.pick(*_BYTES), draw.pick(*_BYTES)
    a, b = _elements(draw, kinds[0], (*batch, m, k)), _elements(draw, kinds[1], (*draw.broadcast(batch), k, n))
    zeros = [_zero(draw, kinds[0]), _zero(draw, kinds[1], draw.pick((), (n,)))]
    return draw.case(a, b, *zeros[: draw.integer(0, 2)])


@generator("ConvInteger")
def conv_integer(draw: Draw) -> NodeCase:
    options = window(draw, 2)
    groups = draw.pick(1, 1, 2)
    x = picture(draw, 2, groups * draw.integer(1, 2), draw.dtype(0, _BYTES))
    x = _elements(draw, x.dtype.name, x.shape)
    kind = draw.dtype(1, _BYTES)
    weight = _elements(draw, kind, (groups * draw.integer(1, 2), x.shape[1] // groups, *options["kernel_shape"]))
    zeros = [_zero(draw, x.dtype.name), _zero(draw, kind)]
    return draw.case(x, weight, *zeros[: draw.integer(0, 2)], group=groups if groups > 1 else None, **options)


@generator("QLinearMatMul")
def qlinear_matmul(draw: Draw) -> NodeCase:
    m, k, n = draw.integer(1, 5), draw.pick(1, 2, 3, 8, 17), draw.integer(1, 6)
    kinds = [draw.pick(*_BYTES) for _ in range(2)]
    kinds.append(kinds[0])
    batch = draw.shape(0, 1, most=3)
    shapes = ((*batch, m, k), (*batch, k, n))
    columns = draw.pick((), (n,))
    a, b = (_elements(draw, kind, shape) for kind, shape in zip(kinds, shapes, strict=False))
    inputs = [a, _scale(draw), _zero(draw, kinds[0]), b, _scale(draw, columns), _zero(draw, kinds[1], columns)]
    return draw.case(*inputs, draw.array("float32", (), 1.03, 4.07), _zero(draw, kinds[2]), slack=1)


@generator("QLinearConv")
def qlinear_conv(draw: Draw) -> NodeCase:
    options = window(draw, draw.pick(1, 2, 2))
    groups = draw.pick(1, 1, 2)
    # The fourth pair is not known to onnxruntime, and the reference computes no scales by channel.
    kind, weight_kind = draw.pick(("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8"))
    x = picture(draw, len(options["kernel_shape"]), groups * draw.integer(1, 2), "float32")
    filters = groups * draw.integer(1, 3)
    weight = _elements(draw, weight_kind, (filters, x.shape[1] // groups, *options["kernel_shape"]))
    rows = draw.pick((), (filters,))
    bias = draw.array("int32", (filters,), -500, 500) if draw.chance(0.5) else None
    inputs = [_elements(draw, kind, x.shape), _scale(draw), _zero(draw, kind), weight, _scale(draw, rows)]
    # Zero points of weights that differ between channels are not known to onnxruntime.
    zero = np.full(rows, _zero(draw, weight_kind), weight_kind)
    result = [draw.array("float32", (), 1.03, 4.07), _zero(draw, kind)]
    return draw.case(*inputs, zero, *result, bias, group=groups if groups > 1 else None, slack=1, **options)


@generator("QLinearConv", domain=MICROSOFT)
def microsoft_qlinear_conv(draw: Draw) -> NodeCase:
    case = qlinear_conv(draw)
    if draw.chance(0.5):
        case.attributes["channels_last"] = 1
        x = case.inputs[0]
        assert x is not None
        case.inputs[0] = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    return case


@generator("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_binary(draw: Draw) -> NodeCase:
    kind = draw.pick(*_BYTES)
    inputs: list[Array] = []
    for shape in draw.broadcasting(2):
        inputs += [_elements(draw, kind, shape), _scale(draw), _zero(draw, kind)]
    return draw.case(*inputs, _scale(draw), _zero(draw, kind), slack=1)


@generator("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_unary(draw: Draw) -> NodeCase:
    kind = draw.pick(*_BYTES)
    alpha = draw.maybe(0.1, 0.5) if draw.op_type == "QLinearLeakyRelu" else None
    x = _elements(draw, kind, draw.shape())
    return draw.case(x, _scale(draw), _zero(draw, kind), _scale(draw), _zero(draw, kind), alpha=alpha, slack=1)


@generator("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(draw: Draw) -> NodeCase:
    kind = draw.pick(*_BYTES)
    x = _elements(draw, kind, draw.shape(1, 3))
    zero = np.array(0 if kind == "uint8" else -128, kind)
    result = [np.array(1 / 256, "float32"), zero]
    return draw.case(
        x, _scale(draw), _zero(draw, kind), *result, axis=draw.axis(x.ndim), opset=draw.pick(13, 13, 12), slack=1
    )


@generator("QLinearAveragePool", "QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_pool(draw: Draw) -> NodeCase:
    kind = draw.pick(*_BYTES)
    options: dict[str, Any] = {"channels_last": draw.maybe(0, 1)}
    if draw.op_type == "QLinearAveragePool":
        options |= window(draw, 2, dilated=False, pools=True) | {
            "count_include_pad": draw.maybe(0, 1),
            "ceil_mode": draw.maybe(0, 1),
        }
        options.pop("dilations")
    x = picture(draw, 2, draw.integer(1, 3), "float32")
    x = np.moveaxis(x, 1, -1) if options["channels_last"] else x
    quantized = [_scale(draw), _zero(draw, kind), _scale(draw), _zero(draw, kind)]
    return draw.case(_elements(draw, kind, x.shape), *quantized, slack=1, **options)


@generator("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(draw: Draw) -> NodeCase:
    kind = draw.pick(*_BYTES)
    shape = draw.shape(1, 3)
    axis = draw.axis(len(shape))
    inputs: list[Array] = [_scale(draw), _zero(draw, kind)]
    for _ in range(draw.integer(1, 3)):
        sizes = list(shape)
        sizes[axis] = draw.integer(1, 3)
        inputs += [_elements(draw, kind, tuple(sizes)), _scale(draw), _zero(draw, kind)]
    return draw.case(*inputs, axis=axis, slack=1)


@generator("QLinearWhere", domain=MICROSOFT)
def qlinear_where(draw: Draw) -> NodeCase:
    kind = draw.pick(*_BYTES)
    condition, *shapes = draw.broadcasting(3)
    inputs: list[Array] = [draw.array("bool", condition)]
    for shape in shapes:
        inputs += [_elements(draw, kind, shape), _scale(draw), _zero(draw, kind)]
    # onnxruntime reads scales and zero points as constants, and crashes if they are not.
    return draw.case(*inputs, _scale(draw), _zero(draw, kind), slack=1, constants=(2, 3, 5, 6, 7, 8))


@generator("QGemm", domain=MICROSOFT)
def qgemm(draw: Draw) -> NodeCase:
    m, k, n = draw.integer(1, 5), draw.pick(1, 3, 8), draw.integer(1, 6)
    trans_a, trans_b = draw.pick(0, 1), draw.pick(0, 1)
    kind, weight_kind = draw.pick("uint8", "int8"), draw.pick(*_BYTES)
    columns = draw.pick((), (n,))
    a = _elements(draw, kind, (k, m) if trans_a else (m, k))
    b = _elements(draw, weight_kind, (n, k) if trans_b else (k, n))
    inputs: list[Array | None] = [
        a,
        _scale(draw),
        _zero(draw, kind),
        b,
        _scale(draw, columns),
        _zero(draw, weight_kind, columns),
    ]
    inputs.append(draw.array("int32", (n,), -500, 500) if draw.chance(0.5) else None)
    if draw.chance(0.6):
        inputs += [draw.array("float32", (), 1.03, 4.07), _zero(draw, kind)]
    return draw.case(*inputs, transA=trans_a, transB=trans_b, alpha=draw.maybe(0.5), slack=1, length=k, scale=100)


@generator("MatMulIntegerToFloat", domain=MICROSOFT)
def integer_to_float(draw: Draw) -> NodeCase:
    m, k, n = draw.integer(1, 5), draw.pick(1, 3, 8), draw.integer(1, 6)
    kinds = draw.pick(*_BYTES), draw.pick(*_BYTES)
    columns = draw.pick((1,), (n,))
    a, b = _elements(draw, kinds[0], (m, k)), _elements(draw, kinds[1], (k, n))
    inputs: list[Array | None] = [a, b, _scale(draw, (1,)), _scale(draw, columns)]
    inputs += [_zero(draw, kinds[0], (1,)) if draw.chance(0.6) else None]
    inputs += [_zero(draw, kinds[1], columns) if draw.chance(0.6) else None]
    inputs += [draw.array("float32", (n,)) if draw.chance(0.5) else None]
    return draw.case(*inputs, length=k, scale=1000)


@generator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_matmul(draw: Draw) -> NodeCase:
    k, n = draw.pick(2, 3, 8), draw.integer(1, 6)
    kind = draw.pick(*_BYTES)
    a = draw.tensor("float32", (*draw.shape(1, 2, empty=0), k))
    columns = draw.pick((1,), (n,))
    inputs: list[Array | None] = [a, _elements(draw, kind, (k, n)), _scale(draw, columns)]
    inputs += [_zero(draw, kind, columns) if draw.chance(0.6) else None]
    inputs += [draw.array("float32", (n,)) if draw.chance(0.5) else None]
    # A different rounding of one element of A changes sums by a step.
    return draw.case(*inputs, length=k * 2000, scale=1000)


@generator("MatMulNBits", domain=MICROSOFT)
def nbits(draw: Draw) -> NodeCase:
    bits, block = draw.pick(4, 4, 4, 8), draw.pick(16, 32)
    k, n = draw.pick(16, 32, 40, 64), draw.integer(1, 6)
    blocks = -(-k // block)
    a = draw.tensor("float32", (*draw.shape(1, 2, empty=0), k))
    b = draw.array("uint8", (n, blocks, block * bits // 8), 0, 255)
    scales = _scale(draw, (n, blocks))
    zeros = draw.array("uint8", (n, -(-blocks * bits // 8)), 0, 255) if draw.chance(0.5) else None
    return draw.case(
        a, b, scales, zeros, K=k, N=n, bits=bits, block_size=block, constants=(1, 2, 3), length=k, scale=60
    )


@generator("GatherBlockQuantized", domain=MICROSOFT)
def gather_block(draw: Draw) -> NodeCase:
    rows, columns, block = draw.integer(2, 5), draw.pick(16, 32, 40), draw.pick(16, 32)
    kind = draw.pick("uint4", "int4")
    low, high = (0, 15) if kind == "uint4" else (-8, 7)
    element = getattr(ml_dtypes, kind)
    data = draw.array("int32", (rows, columns), low, high).astype(element)
    parameters = (rows, -(-columns // block))
    zero = draw.array("int32", parameters, low, high).astype(element) if draw.chance(0.5) else None
    indices = draw.array("int64", draw.shape(0, 2, empty=0), 0, rows - 1)
    constants = (0, 2, 3)
    return draw.case(
        data,
        indices,
        _scale(draw, parameters),
        zero,
        gather_axis=0,
        quantize_axis=1,
        block_size=block,
        constants=constants,
    )
