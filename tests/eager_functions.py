"""Calls of ``dmlgpu.ops`` with what NumPy, SciPy or ONNX compute, for devices on any adapter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special

from dmlgpu import ops

RNG = np.random.default_rng(17)


def floats(*sizes: int) -> Any:
    """Normal float32 numbers."""
    return RNG.standard_normal(sizes).astype(np.float32)


def integers(*sizes: int, low: int = -20, high: int = 20, dtype: Any = np.int32) -> Any:
    """Integers of a range."""
    return RNG.integers(low, high, sizes).astype(dtype)


@dataclass(frozen=True)
class Example:
    """A call, and what must come out.

    Attributes:
        name: of the function, and of the variant.
        call: takes the operands.
        operands: arrays.
        expected: computed from the operands.
    """

    name: str
    call: Callable[..., Any]
    operands: tuple[Any, ...]
    expected: Any


EXAMPLES: list[Example] = []

SHAPED_BY_VALUES = ("nonzero", "unique", "unique inverse")
"""Functions whose results have shapes that depend on values, so that they cannot be traced."""


def example(name: str, call: Callable[..., Any], oracle: Callable[..., Any], *operands: Any) -> None:
    """Note a call and its oracle."""
    with np.errstate(all="ignore"):
        EXAMPLES.append(Example(name, call, operands, oracle(*operands)))


X, Y, Z = floats(2, 3, 4), floats(2, 3, 4), floats(3, 1)
POSITIVE = np.abs(X) + np.float32(0.5)
UNIT = np.float32(0.9) * np.tanh(X)
WHOLE, STEPS = integers(3, 4), integers(1, 4, low=1)
BITS = integers(2, 3, dtype=np.uint8, low=0, high=2)

for _name in ("abs", "sign", "negative", "exp", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil", "square"):
    example(_name, getattr(ops, _name), getattr(np, _name), X)
for _name in ("log", "sqrt", "reciprocal"):
    example(_name, getattr(ops, _name), getattr(np, _name), POSITIVE)
for _name, _theirs in (("asin", np.arcsin), ("acos", np.arccos), ("atan", np.arctan), ("atanh", np.arctanh)):
    example(_name, getattr(ops, _name), _theirs, UNIT)
example("asinh", ops.asinh, np.arcsinh, X)
example("acosh", ops.acosh, np.arccosh, POSITIVE + 1)
example("erf", ops.erf, scipy.special.erf, X)
example("round", ops.round, np.round, X * 4)
example("rsqrt", ops.rsqrt, lambda x: 1 / np.sqrt(x), POSITIVE)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0, 1], np.float32)
example("isnan", ops.isnan, np.isnan, SPECIAL)
example("isinf", ops.isinf, np.isinf, SPECIAL)
example("logical_not", ops.logical_not, np.logical_not, BITS)
example("bitwise_not", ops.bitwise_not, np.bitwise_not, WHOLE)
for _name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "equal", "not_equal", "less", "greater"):
    example(_name, getattr(ops, _name), getattr(np, _name), X, Z)
for _name in ("floor_divide", "remainder", "fmod", "less_equal", "greater_equal", "bitwise_and", "bitwise_or"):
    example(_name, getattr(ops, _name), getattr(np, _name), WHOLE, STEPS)
for _name in ("logical_and", "logical_or", "logical_xor"):
    example(_name, getattr(ops, _name), getattr(np, _name), BITS, BITS[::-1].copy())
example("floor_divide floats", ops.floor_divide, np.floor_divide, X, Z)
example("bitwise_xor", ops.bitwise_xor, np.bitwise_xor, WHOLE, STEPS)
example("left_shift", ops.left_shift, np.left_shift, np.abs(WHOLE).astype(np.uint32), STEPS.astype(np.uint32))
example("right_shift", ops.right_shift, np.right_shift, np.abs(WHOLE).astype(np.uint32), STEPS.astype(np.uint32))
example("atan2", ops.atan2, np.arctan2, X, Y)
example("power", ops.power, np.power, POSITIVE, Y)
example("power by a number", lambda x: ops.power(x, 3), lambda x: x**3, X)
example("add a number", lambda x: ops.add(x, 2), lambda x: x + 2, WHOLE)
example("subtract from a number", lambda x: ops.subtract(1, x), lambda x: 1 - x, X)
example("clip", lambda x: ops.clip(x, -0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5), X)
example("clip from below", lambda x: ops.clip(x, min=3), lambda x: np.clip(x, 3, None), WHOLE)
example("where", ops.where, np.where, BITS[:, :, None], X, Z)
example("where numbers", lambda c, a: ops.where(c, a, 0), lambda c, a: np.where(c, a, 0), BITS[:, :, None], X)
example("astype", lambda x: ops.astype(x, "int32"), lambda x: x.astype(np.int32), X * 10)
example("cast", lambda x: ops.cast(x, "int32"), lambda x: x.astype(np.int32), X * 10)

for _name in ("sum", "mean", "min", "max", "prod", "var", "std"):
    for _axis in (None, -1, (0, 2)):
        example(
            f"{_name} {_axis}",
            lambda x, name=_name, axis=_axis: getattr(ops, name)(x, axis=axis),
            lambda x, name=_name, axis=_axis: getattr(np, name)(x, axis=axis),
            X,
        )
example("sum kept", lambda x: ops.sum(x, 1, keepdims=True), lambda x: x.sum(1, keepdims=True), X)
example("sum of integers", ops.sum, lambda x: np.sum(x, dtype=np.int64), WHOLE)
example("mean of the last", lambda x: ops.mean(x, -1, True), lambda x: x.mean(-1, keepdims=True), X)
example("var corrected", lambda x: ops.var(x, 0, correction=1), lambda x: x.var(0, ddof=1), X)
example("logsumexp", lambda x: ops.logsumexp(x, 1), lambda x: scipy.special.logsumexp(x, 1), X)
example("norm", lambda x: ops.norm(x, (1, 2)), lambda x: np.linalg.norm(x, axis=(1, 2)), X)
for _name in ("argmin", "argmax"):
    for _axis in (None, 0, -1):
        example(
            f"{_name} {_axis}",
            lambda x, name=_name, axis=_axis: getattr(ops, name)(x, axis=axis),
            lambda x, name=_name, axis=_axis: getattr(np, name)(x, axis=axis),
            X,
        )
example("argmax kept", lambda x: ops.argmax(x, keepdims=True), lambda x: np.argmax(x, keepdims=True), X)
for _name in ("cumsum", "cumprod"):
    example(_name, getattr(ops, _name), getattr(np, _name), X)
    example(
        f"{_name} 1",
        lambda x, name=_name: getattr(ops, name)(x, 1),
        lambda x, name=_name: getattr(np, name)(x, 1),
        X,
    )
example("topk", lambda x: ops.topk(x, 2).values, lambda x: -np.sort(-x, -1)[..., :2], X)
example("topk indices", lambda x: ops.topk(x, 2, 1, False).indices, lambda x: np.argsort(x, 1)[:, :2], X)
example("sort", lambda x: ops.sort(x, 0), lambda x: np.sort(x, 0), X)
example("sort down", lambda x: ops.sort(x, descending=True), lambda x: -np.sort(-x), X)
example("argsort", ops.argsort, np.argsort, X)

example("concatenate", lambda x, y: ops.concatenate([x, y], axis=-1), lambda x, y: np.concatenate([x, y], -1), X, Y)
example("stack", lambda x, y: ops.stack([x, y], axis=1), lambda x, y: np.stack([x, y], 1), X, Y)
example("split", lambda x: ops.split(x, 2, -1)[1], lambda x: np.split(x, 2, -1)[1], X)
example("split at", lambda x: ops.split(x, [1, 2], 1)[2], lambda x: np.split(x, [1, 2], 1)[2], X)
example("pad", lambda x: ops.pad(x, 1, value=2), lambda x: np.pad(x, 1, constant_values=2), X)
example("pad pairs", lambda x: ops.pad(x, [(0, 1), (2, 0), (0, 0)]), lambda x: np.pad(x, [(0, 1), (2, 0), (0, 0)]), X)
example("pad edge", lambda x: ops.pad(x, 2, "edge"), lambda x: np.pad(x, 2, "edge"), X)
example("flip", ops.flip, np.flip, X)
example("flip 1", lambda x: ops.flip(x, 1), lambda x: np.flip(x, 1), X)
example("roll", lambda x: ops.roll(x, 3), lambda x: np.roll(x, 3), X)
example("roll -1", lambda x: ops.roll(x, -1, 2), lambda x: np.roll(x, -1, 2), X)
example("tile", lambda x: ops.tile(x, reps=(2, 1, 3)), lambda x: np.tile(x, (2, 1, 3)), X)
PLACES = np.array([[0, 2], [-1, 1]], np.int32)
for _axis in (None, 0, 1, 2):
    example(
        f"take {_axis}",
        lambda x, i, axis=_axis: ops.take(x, i, axis),
        lambda x, i, axis=_axis: np.take(x, i, axis),
        X[:, :, :3].copy() if _axis != 0 else floats(3, 3, 4),
        PLACES,
    )
ORDER = np.argsort(X, 1).astype(np.int32)
example(
    "take_along_axis", lambda x, i: ops.take_along_axis(x, i, 1), lambda x, i: np.take_along_axis(x, i, 1), X, ORDER
)
LABELS = np.array([[0, 3], [1, 2]], np.int32)
example("one_hot", lambda i: ops.one_hot(i, 4), lambda i: np.eye(4, dtype=np.float32)[i], LABELS)
example(
    "one_hot 0",
    lambda i: ops.one_hot(i, 4, axis=0, dtype="int32", on=5, off=-1),
    lambda i: np.moveaxis(np.where(np.eye(4)[i] > 0, 5, -1), -1, 0),
    LABELS,
)
example("moveaxis", lambda x: ops.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, 0, -1), X)
example("transpose", lambda x: ops.transpose(x, (1, 2, 0)), lambda x: x.transpose(1, 2, 0), X)
example("reshape", lambda x: ops.reshape(x, (4, -1)), lambda x: x.reshape(4, -1), X)
example("broadcast_to", lambda x: ops.broadcast_to(x, (2, 3, 5)), lambda x: np.broadcast_to(x, (2, 3, 5)), Z)
example("expand_dims", lambda x: ops.expand_dims(x, (0, -1)), lambda x: np.expand_dims(x, (0, -1)), X)
example("squeeze", ops.squeeze, np.squeeze, Z)

example("cat", lambda x, y: ops.cat([x, y], 1), lambda x, y: np.concatenate([x, y], 1), X, Y)
example("concat", lambda x, y: ops.concat([x, y], 1), lambda x, y: np.concatenate([x, y], 1), X, Y)
example(
    "concat dtypes", lambda x, y: ops.concat([x, y]), lambda x, y: np.concatenate([x, y]), WHOLE, WHOLE.astype("i8")
)
example("permute", lambda x: ops.permute(x, (1, 2, 0)), lambda x: x.transpose(1, 2, 0), X)
example("view", lambda x: ops.view(x, (4, -1)), lambda x: x.reshape(4, -1), X)
example("unsqueeze", lambda x: ops.unsqueeze(x, -1), lambda x: x[..., None], X)
example("flatten", ops.flatten, np.ravel, X)
example("flatten some", lambda x: ops.flatten(x, -2), lambda x: x.reshape(2, 12), X)
example("flatten others", lambda x: ops.flatten(x, 0, 1), lambda x: x.reshape(6, 4), X)
example("flatten a scalar", ops.flatten, lambda x: x.reshape(1), np.float32(3))

example("zeros_like", ops.zeros_like, np.zeros_like, X)
example("ones_like", lambda x: ops.ones_like(x, "int8"), lambda x: np.ones_like(x, np.int8), X)
example("empty_like", lambda x: ops.empty_like(x) * 0, np.zeros_like, X)
example("full_like", lambda x: ops.full_like(x, 7), lambda x: np.full_like(x, 7), WHOLE)
example("tril", lambda x: ops.tril(x, -1), lambda x: np.tril(x, -1), X)
example("triu", lambda x: ops.triu(x, 1), lambda x: np.triu(x, 1), X)
example("meshgrid", lambda *x: ops.meshgrid(*x)[0], lambda *x: np.meshgrid(*x)[0], X[0, 0], Y[0, 0, :3])

SPARSE = np.where(integers(3, 5) > 5, integers(3, 5), 0)
for _name in ("any", "all", "count_nonzero"):
    for _axis in (None, 0, -1):
        example(
            f"{_name} {_axis}",
            lambda x, name=_name, axis=_axis: getattr(ops, name)(x, axis),
            lambda x, name=_name, axis=_axis: getattr(np, name)(x, axis),
            SPARSE,
        )
example("all kept", lambda x: ops.all(x, 1, True), lambda x: np.all(x, 1, keepdims=True), SPARSE)
example("any nan", ops.any, np.any, SPECIAL[:1])
example("nonzero", lambda x: ops.nonzero(x)[1], lambda x: np.nonzero(x)[1], SPARSE)
example("unique", ops.unique, np.unique, SPARSE)
example("unique inverse", lambda x: ops.unique(x, False, True)[1], lambda x: np.unique(x, False, True)[1], SPARSE)
example("searchsorted", ops.searchsorted, np.searchsorted, np.sort(WHOLE, None), SPARSE)
example("trunc", ops.trunc, np.trunc, X * 3)
example("isfinite", ops.isfinite, np.isfinite, SPECIAL)
example("log2", ops.log2, np.log2, POSITIVE)
example("log10", ops.log10, np.log10, POSITIVE)
for _name in ("floor", "ceil", "round", "trunc", "isnan", "isinf", "isfinite", "sign"):
    example(f"{_name} of integers", getattr(ops, _name), getattr(np, _name), WHOLE)
example("abs of unsigned integers", ops.abs, np.abs, BITS)
example("negative of unsigned integers", ops.negative, np.negative, BITS)
example("sign of special numbers", ops.sign, np.sign, SPECIAL)
for _name in ("max", "min", "argmax", "argmin"):
    example(f"{_name} of NaN", getattr(ops, _name), getattr(np, _name), SPECIAL)
example("maximum of NaN", ops.maximum, np.maximum, SPECIAL, SPECIAL[::-1].copy())
example("sum of booleans", ops.sum, np.sum, SPARSE > 0)
example(
    "sum of bytes", lambda x: ops.sum(x, 0), lambda x: np.sum(x, 0), integers(40, 3, low=100, high=127, dtype=np.int8)
)
example("prod of unsigned bytes", ops.prod, np.prod, np.arange(1, 9, dtype=np.uint8))
example("sum in a narrow type", lambda x: ops.sum(x, dtype="int8"), lambda x: np.sum(x, dtype=np.int8), WHOLE * 9)
example("cumsum of booleans", lambda x: ops.cumsum(x, 0), lambda x: np.cumsum(x, 0), SPARSE > 0)
example("max of booleans", lambda x: ops.max(x, 0), lambda x: np.max(x, 0), SPARSE > 0)
example("add dtypes", ops.add, np.add, WHOLE, WHOLE.astype(np.int8))
example("less dtypes", ops.less, np.less, WHOLE, STEPS.astype(np.int64))
example("where dtypes", ops.where, np.where, WHOLE > 0, WHOLE, STEPS.astype(np.int64))
example("take by bytes", lambda x, i: ops.take(x, i, 1), lambda x, i: np.take(x, i, 1), X, np.array([0, -1], np.int8))
example("var of too few", lambda x: ops.var(x, 0, correction=2), lambda x: x.var(0) * np.nan, X)

example("einsum", lambda *x: ops.einsum("ijk,ljk->il", *x), lambda *x: np.einsum("ijk,ljk->il", *x), X, floats(5, 3, 4))
example("embedding", ops.embedding, lambda i, w: w[i], LABELS, floats(5, 3))
example("mse_loss", ops.mse_loss, lambda x, y: np.mean((x - y) ** 2), X, Y)


def cross_entropy(x: Any, target: Any) -> Any:
    """The mean of the negative logarithms of the softmax at the targets."""
    return -np.take_along_axis(scipy.special.log_softmax(x, 1), target[:, None], 1).mean()


SCORES, CLASSES = floats(6, 4), integers(6, low=0, high=4)
example("cross_entropy", ops.cross_entropy, cross_entropy, SCORES, CLASSES)
example("nll_loss", ops.nll_loss, lambda x, t: -np.mean(x[np.arange(6), t]), SCORES, CLASSES)
example("dropout", lambda x: ops.dropout(x, 0.5, False), lambda x: x, X)
example(
    "interpolate",
    lambda x: ops.interpolate(x, scale_factor=2),
    lambda x: x.repeat(2, -1).repeat(2, -2),
    floats(1, 2, 3, 4),
)
example(
    "gelu tanh",
    lambda x: ops.gelu(x, "tanh"),
    lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    X,
)

example("softmax", ops.softmax, lambda x: scipy.special.softmax(x, -1), X)
example("softmax axes", lambda x: ops.softmax(x, (0, -2)), lambda x: scipy.special.softmax(x, (0, 1)), X)
example("log_softmax", lambda x: ops.log_softmax(x, 0), lambda x: scipy.special.log_softmax(x, 0), X)
example("relu", ops.relu, lambda x: np.maximum(x, 0), X)
example("leaky_relu", lambda x: ops.leaky_relu(x, 0.1), lambda x: np.where(x < 0, x * np.float32(0.1), x), X)
example("elu", ops.elu, lambda x: np.where(x < 0, np.expm1(x), x), X)
example("gelu", ops.gelu, lambda x: x * scipy.special.ndtr(x), X)
example("sigmoid", ops.sigmoid, scipy.special.expit, X)
example("silu", ops.silu, lambda x: x * scipy.special.expit(x), X)
example("softplus", ops.softplus, lambda x: np.logaddexp(0, x), X)


def normalized(x: Any, axis: Any, epsilon: float = 1e-5) -> Any:
    """Mean 0 and variance 1 along axes."""
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + epsilon)


WEIGHT, BIAS = floats(4), floats(4)
IMAGE = floats(2, 4, 5, 6)
example("layer_norm", ops.layer_norm, lambda x, w, b: normalized(x, -1) * w + b, X, WEIGHT, BIAS)
example("layer_norm axes", lambda x: ops.layer_norm(x, axis=(1, 2)), lambda x: normalized(x, (1, 2)), X)
example("rms_norm", ops.rms_norm, lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w, X, WEIGHT)


def channels(values: Any) -> Any:
    """One number per channel of an image."""
    return values[:, None, None]


example(
    "group_norm",
    lambda x, w, b: ops.group_norm(x, 2, w, b),
    lambda x, w, b: normalized(x.reshape(2, 2, -1), 2).reshape(x.shape) * channels(w) + channels(b),
    IMAGE,
    WEIGHT,
    BIAS,
)
example(
    "instance_norm",
    ops.instance_norm,
    lambda x, w, b: normalized(x, (2, 3)) * channels(w) + channels(b),
    IMAGE,
    WEIGHT,
    BIAS,
)
example(
    "batch_norm",
    ops.batch_norm,
    lambda x, m, v, w, b: (x - channels(m)) / np.sqrt(channels(v) + 1e-5) * channels(w) + channels(b),
    IMAGE,
    floats(4),
    np.abs(floats(4)),
    WEIGHT,
    BIAS,
)
example(
    "batch_norm plain",
    ops.batch_norm,
    lambda x, m, v: (x - channels(m)) / np.sqrt(channels(v) + 1e-5),
    IMAGE,
    floats(4),
    np.abs(floats(4)),
)

example(
    "batch_norm_training",
    lambda x, w, b: ops.batch_norm_training(x, w, b).output,
    lambda x, w, b: normalized(x, (0, 2, 3)) * channels(w) + channels(b),
    IMAGE,
    WEIGHT,
    BIAS,
)
example("batch_norm_training mean", lambda x: ops.batch_norm_training(x).mean, lambda x: x.mean((0, 2, 3)), IMAGE)
example(
    "batch_norm_training variance", lambda x: ops.batch_norm_training(x).variance, lambda x: x.var((0, 2, 3)), IMAGE
)

for _left, _right in (((3, 4), (4, 2)), ((4,), (4, 2)), ((3, 4), (4,)), ((4,), (4,)), ((5, 3, 4), (4, 2))):
    example(f"matmul {_left} {_right}", ops.matmul, np.matmul, floats(*_left), floats(*_right))
example("matmul of stacks", ops.matmul, np.matmul, floats(2, 1, 2, 3, 4), floats(3, 1, 4, 2))
example("matmul transposed", lambda a, b: ops.matmul(a, b.T), lambda a, b: a @ b.T, floats(3, 4), floats(2, 4))
example("linear", ops.linear, lambda x, w, b: x @ w.T + b, X, floats(5, 4), floats(5))


def attended(query: Any, key: Any, value: Any, bias: Any) -> Any:
    """Attention with two heads."""
    cut = [array.reshape(*array.shape[:2], 2, -1).transpose(0, 2, 1, 3) for array in (query, key, value)]
    scores = cut[0] @ cut[1].transpose(0, 1, 3, 2) / np.sqrt(cut[0].shape[-1]) + bias
    return (scipy.special.softmax(scores, -1) @ cut[2]).transpose(0, 2, 1, 3).reshape(*query.shape[:2], -1)


example(
    "attention",
    lambda q, k, v, b: ops.attention(q, k, v, num_heads=2, bias=b),
    attended,
    floats(2, 3, 8),
    floats(2, 5, 8),
    floats(2, 5, 8),
    floats(3, 5),
)
QUANTIZED = integers(2, 3, 4, low=0, high=200, dtype=np.uint8)
example(
    "dequantize",
    lambda x, s, z: ops.dequantize(x, s, z, axis=1),
    lambda x, s, z: (x.astype(np.float32) - z[:, None]) * s[:, None],
    QUANTIZED,
    np.array([0.5, 0.25, 2], np.float32),
    np.array([1, 2, 3], np.uint8),
)
example(
    "quantize",
    lambda x, s, z: ops.quantize(x, s, z, axis=-1),
    lambda x, s, z: np.clip(np.rint(x / s) + z, 0, 255),
    X,
    np.array([0.5, 0.25, 2, 1], np.float32),
    np.array([1, 2, 3, 100], np.uint8),
)
example(
    "resize nearest",
    lambda x: ops.resize(x, scales=(2, 2), mode="nearest"),
    lambda x: x.repeat(2, -1).repeat(2, -2),
    IMAGE,
)


# ---- statistics, products, diagonals ---------------------------------------------------------------------------------


def same(name: str, *operands: Any, call: Callable[..., Any] = lambda function, *arrays: function(*arrays)) -> None:
    """Note a call of the function of a name that NumPy has too, with the same arguments."""
    ours, theirs = getattr(ops, name.split(maxsplit=1)[0]), getattr(np, name.split(maxsplit=1)[0])
    example(name, lambda *arrays: call(ours, *arrays), lambda *arrays: call(theirs, *arrays), *operands)


HOLES = np.where(floats(3, 5) < -0.5, np.float32(np.nan), floats(3, 5))
for _name in ("nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin", "nanmedian"):
    same(_name, HOLES, call=lambda function, x: function(x, 1))
for _name in ("nanargmax", "nanargmin", "nancumsum", "nancumprod"):
    same(_name, HOLES, call=lambda function, x: function(x, 1))
same("nan_to_num", SPECIAL)
same("quantile", X, call=lambda function, x: function(x, (0.1, 0.5, 0.75), -1))
same("quantile lower", X, call=lambda function, x: function(x, 0.4, 0, method="lower"))
same("nanquantile", HOLES, call=lambda function, x: function(x, (0.1, 0.5, 0.75), -1))
same("percentile", X, call=lambda function, x: function(x, 30))
same("nanpercentile", HOLES, call=lambda function, x: function(x, 30))
same("median", X)
same("ptp", X, call=lambda function, x: function(x, 1))
same("histogram", X, call=lambda function, x: function(x, 6, (-2, 2))[0])
same("histogram weights", X, Y, call=lambda function, x, w: function(x, [-1, 0, 0.5, 2], weights=w)[0])
same("bincount", integers(20, low=0, high=9), call=lambda function, x: function(x, minlength=9))
same("digitize", X, call=lambda function, x: function(x, [-1, 0.5]))
same("diff", X, call=lambda function, x: function(x, 2, 1))
same("expm1", X)
same("log1p", UNIT)
same("isclose", X, Y, call=lambda function, x, y: function(x, y, atol=0.5))
same("allclose", X, Y, call=lambda function, x, y: function(x, y, atol=9))
same("array_equal", X, X)
same("round decimals", X * 4, call=lambda function, x: function(x, 1))
for _name in ("dot", "inner", "outer", "kron"):
    same(_name, floats(3, 4), floats(4, 4))
same("tensordot", X, floats(4, 3, 2), call=lambda function, a, b: function(a, b, ((1, 2), (1, 0))))
same("vecdot", X, Y)
same("diag", floats(4), call=lambda function, x: function(x, 1))
same("diagonal", X, call=lambda function, x: function(x, 1, 0, 2))
same("trace", X)
same("repeat", X, call=lambda function, x: function(x, [1, 0, 2], 1))
same("swapaxes", X, call=lambda function, x: function(x, 0, -1))
example("relu6", lambda x: ops.relu6(x * 5), lambda x: np.clip(x * 5, 0, 6), X)
example("hardsigmoid", ops.hardsigmoid, lambda x: np.clip(x / 6 + 0.5, 0, 1), X)
example("hardswish", ops.hardswish, lambda x: x * np.clip(x / 6 + 0.5, 0, 1), X)
example("mish", ops.mish, lambda x: x * np.tanh(np.logaddexp(0, x)), X)
example("selu", ops.selu, lambda x: 1.0507009873554805 * np.where(x < 0, 1.6732632423543772 * np.expm1(x), x), X)
