"""Element-wise operators: of one input, of two, of many; casts."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.onnx_nodes.draw import FLOATS, INTEGERS, MICROSOFT, Draw, NodeCase, allowed_types, families, generator

# Results outside of a function's domain differ between libraries in the sign of NaN only, but whether a place is in
# the domain depends on rounding near its ends: arguments stay inside.
_UNARY = {
    "Abs": (-9, 9),
    "Acos": (-0.9, 0.9),
    "Acosh": (1.25, 9),
    "Asin": (-0.9, 0.9),
    "Asinh": (-9, 9),
    "Atan": (-9, 9),
    "Atanh": (-0.9, 0.9),
    "BitwiseNot": (-9, 99),
    "Ceil": (-9, 9),
    "Cos": (-9, 9),
    "Cosh": (-4, 4),
    "Erf": (-3, 3),
    "Exp": (-5, 4),
    "Floor": (-9, 9),
    "HardSwish": (-9, 9),
    "Identity": (-9, 9),
    "IsNaN": (-9, 9),
    "Log": (0.125, 9),
    "Mish": (-9, 9),
    "Neg": (-9, 9),
    "Not": (0, 1),
    "Reciprocal": (0.25, 9),
    "Relu": (-9, 9),
    "Round": (-9, 9),
    "Sigmoid": (-9, 9),
    "Sign": (-9, 9),
    "Sin": (-9, 9),
    "Sinh": (-4, 4),
    "Softplus": (-9, 9),
    "Softsign": (-9, 9),
    "Sqrt": (0.125, 9),
    "Tan": (-1.3, 1.3),
    "Tanh": (-9, 9),
}
_TOTAL = {"Abs", "Ceil", "Floor", "Identity", "IsNaN", "Neg", "Relu", "Round", "Sign", "Sqrt", "Exp", "Tanh", "Sigmoid"}
"""Functions whose results for NaN, infinities and -0 ONNX or IEEE 754 define."""
_EXACT = {"Abs", "BitwiseNot", "Ceil", "Floor", "Identity", "IsNaN", "Neg", "Not", "Relu", "Round", "Sign"}


@families({name: (name, *ends) for name, ends in _UNARY.items()})
def unary(draw: Draw, row: tuple[str, float, float]) -> NodeCase:
    name, low, high = row
    x = draw.main(low=low, high=high, special=name in _TOTAL, high_rank=6)
    return draw.case(x, exact=name in _EXACT)


_PARAMETERS = {
    "Celu": {"alpha": (0.25, 2)},
    "Elu": {"alpha": (0.25, 2)},
    "HardSigmoid": {"alpha": (0.1, 1), "beta": (0, 1)},
    "LeakyRelu": {"alpha": (-0.5, 2)},
    "Selu": {"alpha": (0.5, 2), "gamma": (0.5, 2)},
    "Shrink": {"bias": (-1, 1), "lambd": (0, 2)},
    "Swish": {"alpha": (0.5, 2)},
    "ThresholdedRelu": {"alpha": (0.25, 2)},
}


@families(_PARAMETERS)
def parametric(draw: Draw, row: dict[str, tuple[float, float]]) -> NodeCase:
    attributes = {name: draw.number(*ends) if draw.chance(0.6) else None for name, ends in row.items()}
    return draw.case(draw.main(), **attributes)


@generator("SwiGLU")
def swiglu(draw: Draw) -> NodeCase:
    gate = draw.main()
    return draw.case(gate, draw.tensor(gate.dtype.name, gate.shape), alpha=draw.maybe(1.0, 1.5), scale=16)


@generator("Gelu")
def gelu(draw: Draw) -> NodeCase:
    return draw.case(draw.main(), approximate=draw.maybe("none", "tanh"))


@generator("IsInf")
def is_inf(draw: Draw) -> NodeCase:
    x = draw.main(special=True)
    return draw.case(x, detect_negative=draw.maybe(0, 1), detect_positive=draw.maybe(0, 1))


@generator("PRelu")
def prelu(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1)
    return draw.case(x, draw.tensor(x.dtype.name, draw.broadcast(x.shape)))


@generator("Clip")
def clip(draw: Draw) -> NodeCase:
    x = draw.main(special=True)
    if draw.version < 11:
        low = draw.maybe(draw.number(-3, 0))
        return draw.case(x, min=low, max=draw.maybe(draw.number(0, 3)), exact=True)
    bounds = [draw.array(x.dtype.name, (), *ends) if draw.chance(0.7) else None for ends in ((-3, 1), (0, 3))]
    return draw.case(x, *bounds, exact=True)


_BINARY = ("Add", "Sub", "Mul", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")


@generator(*_BINARY, *_COMPARISONS)
def binary(draw: Draw) -> NodeCase:
    is_comparison = draw.op_type in _COMPARISONS
    x = draw.main(special=is_comparison, high_rank=5)
    y = draw.tensor(x.dtype.name, draw.broadcast(x.shape), special=is_comparison)
    # Where both are run inputs, either may be the one that is broadcast.
    return draw.case(*((x, y) if draw.chance(0.6) else (y, x)))


@generator("Div")
def div(draw: Draw) -> NodeCase:
    x = draw.main(high_rank=5)
    # Integers divided by 0 trap, or give anything.
    divisor = draw.tensor(x.dtype.name, draw.broadcast(x.shape), 0.5, 5)
    if x.dtype.kind in "if" and draw.chance(0.3):
        divisor = -divisor
    if x.dtype.kind == "f" and draw.chance(0.15):
        divisor = draw.array(x.dtype.name, divisor.shape, special=True)
    return draw.case(x, divisor)


@generator("Mod")
def mod(draw: Draw) -> NodeCase:
    x = draw.main(low=-20, high=20)
    # As for Div; ONNX demands fmod for floats.
    divisor = draw.tensor(x.dtype.name, draw.broadcast(x.shape), 1, 7)
    if x.dtype.kind in "if" and draw.chance(0.4):
        divisor = -divisor
    fmod = 1 if x.dtype.kind == "f" else draw.maybe(0, 1)
    return draw.case(x, divisor, fmod=fmod, exact=True)


@generator("Pow")
def power(draw: Draw) -> NodeCase:
    x = draw.main(low=0.5, high=3)
    # Negative bases have powers that depend on whether the exponent is an integer, which DirectML defines as C does;
    # integers to negative powers are left open, and so are those that overflow.
    dtype = draw.dtype(1) if draw.version >= 12 and draw.chance(0.3) else x.dtype.name
    if x.dtype.kind != "f" and dtype in FLOATS:
        dtype = x.dtype.name
    exponent = draw.array(dtype, draw.broadcast(x.shape), 0 if x.dtype.kind != "f" else -2, 3)
    if x.dtype.kind == "f" and draw.chance(0.3):
        x = draw.array(x.dtype.name, x.shape, -3, 3)
        exponent = np.asarray(draw.array("int32", exponent.shape, 0, 3), dtype)
    return draw.case(x, exponent, scale=32)


@generator("BitShift")
def bit_shift(draw: Draw) -> NodeCase:
    x = draw.main(low=0, high=99)
    # Shifts by the width of the type or more are left open.
    return draw.case(x, draw.array(x.dtype.name, draw.broadcast(x.shape), 0, 7), direction=draw.pick("LEFT", "RIGHT"))


@generator("Max", "Min", "Sum", "Mean")
def variadic(draw: Draw) -> NodeCase:
    x = draw.main()
    exact = draw.op_type in ("Max", "Min")
    others = [
        draw.tensor(x.dtype.name, draw.broadcast(x.shape), special=exact and draw.chance(0.3))
        for _ in range(draw.integer(0, 3))
    ]
    return draw.case(x, *others, exact=exact, scale=8)


@generator("Where")
def where(draw: Draw) -> NodeCase:
    x = draw.main(1)
    return draw.case(
        draw.tensor("bool", draw.broadcast(x.shape)), x, draw.tensor(x.dtype.name, draw.broadcast(x.shape)), exact=True
    )


def _element(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _castable(draw: Draw, target: str) -> np.ndarray:
    """An input whose elements the target holds: floats beyond an integer type's range, and NaN, are left open."""
    low, high = (0, 100) if target.startswith("u") else (-100, 100)
    special = target in FLOATS or target == "bool"
    return draw.main(low=low, high=high, special=special, high_rank=5)


@generator("Cast")
def cast(draw: Draw) -> NodeCase:
    outputs = allowed_types("Cast", "", draw.version, "T2")
    target = draw.dtype("T2", outputs)
    return draw.case(_castable(draw, target), to=_element(target))


@generator("CastLike")
def cast_like(draw: Draw) -> NodeCase:
    target = draw.dtype("T2")
    return draw.case(_castable(draw, target), draw.array(target, draw.shape(0, 2)))


@generator("BitCast")
def bit_cast(draw: Draw) -> NodeCase:
    x = draw.main(low=0, high=100, accept=lambda array: array.dtype != bool, among=(*FLOATS, *INTEGERS))
    targets = [name for name in (*FLOATS, *INTEGERS) if np.dtype(name).itemsize == x.dtype.itemsize]
    return draw.case(x, to=_element(draw.pick(*targets)), exact=True)


@generator("QuickGelu", "BiasGelu", "FastGelu", "Gelu", domain=MICROSOFT)
def microsoft_gelu(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1, among=("float32", "float16"))
    if draw.op_type == "QuickGelu":
        return draw.case(x, alpha=draw.maybe(1.0, 1.702, -0.5))
    bias = draw.tensor(x.dtype.name, x.shape[-1:])
    if draw.op_type == "Gelu" or (draw.op_type == "FastGelu" and draw.chance(0.4)):
        return draw.case(x)
    return draw.case(x, bias)


@generator("Constant")
def constant(draw: Draw) -> NodeCase:
    choices = {"value": onnx.numpy_helper.from_array(draw.array(draw.pick(*FLOATS, *INTEGERS, "bool"), draw.shape()))}
    if draw.version >= 12:
        choices |= {
            "value_float": draw.number(-2, 2),  # type: ignore[dict-item]
            "value_int": draw.integer(-5, 5),  # type: ignore[dict-item]
            "value_floats": [draw.number(-2, 2) for _ in range(draw.integer(1, 3))],  # type: ignore[dict-item]
            "value_ints": [draw.integer(-5, 5) for _ in range(draw.integer(1, 3))],  # type: ignore[dict-item]
        }
    name = draw.pick(*choices)
    return draw.case(**{name: choices[name]}, exact=True)
