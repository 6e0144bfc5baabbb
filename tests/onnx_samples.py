"""One small valid node per ONNX operator, in sizes that may be chosen one by one: 0, for example."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Sample:
    """A node of one operator with its feeds.

    Attributes:
        op: the operator.
        domain: its domain.
        opset: version of the domain's operator set.
        inputs: arrays, None for an omitted one.
        attributes: of the node.
        outputs: Number of outputs, except those with empty names.
        sizes: Names and defaults of the sizes that it was built from.
        build: builds inputs and attributes of sizes.
    """

    op: str
    domain: str
    opset: int
    inputs: tuple[Array | None, ...]
    attributes: Mapping[str, Any]
    outputs: int
    sizes: Mapping[str, int] = field(repr=False)
    build: Callable[..., Any] = field(repr=False)

    @property
    def label(self) -> str:
        """The operator with its domain."""
        return f"{self.domain}.{self.op}" if self.domain else self.op

    def sized(self, **sizes: int) -> Sample:
        """Return the sample in other sizes."""
        inputs, attributes = _parts(self.build(**sizes))
        return replace(self, inputs=inputs, attributes=attributes)

    def model(self, constants: Sequence[int] = ()) -> onnx.ModelProto:
        """Return a model of the node; inputs whose indices are in ``constants`` are initializers."""
        names = ["" if input is None else f"x{index}" for index, input in enumerate(self.inputs)]
        outputs = [f"y{index}" for index in range(self.outputs)]
        node = helper.make_node(self.op, names, outputs, domain=self.domain, name="sample", **self.attributes)
        tensors = {name: input for name, input in zip(names, self.inputs, strict=True) if input is not None}
        held = [name for index, name in enumerate(names) if index in constants and name]
        graph = helper.make_graph(
            [node],
            "sample",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(tensor.dtype), tensor.shape)
                for name, tensor in tensors.items()
                if name not in held
            ],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            [numpy_helper.from_array(tensors[name], name) for name in held],
        )
        versions = {"": 21 if self.domain else self.opset, **({self.domain: self.opset} if self.domain else {})}
        imports = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def feeds(self, constants: Sequence[int] = ()) -> dict[str, Array]:
        """Return the feeds of ``model``."""
        return {
            f"x{index}": input
            for index, input in enumerate(self.inputs)
            if input is not None and index not in constants
        }


_SAMPLES: list[Sample] = []


def samples() -> list[Sample]:
    """Return the table."""
    return list(_SAMPLES)


def _parts(built: Any) -> tuple[tuple[Array | None, ...], dict[str, Any]]:
    inputs, attributes = built if isinstance(built, tuple) else (built, {})
    return tuple(inputs), dict(attributes)


def _add(op: str, build: Callable[..., Any], *, outputs: int = 1, domain: str = "", opset: int = 0) -> None:
    sizes = {name: parameter.default for name, parameter in inspect.signature(build).parameters.items()}
    inputs, attributes = _parts(build())
    version = opset or (1 if domain else 22)
    _SAMPLES.append(Sample(op, domain, version, inputs, attributes, outputs, sizes, build))


def f(*shape: int) -> Array:
    """Floats between 0 and 1, of a shape."""
    return np.random.default_rng((7, *shape)).uniform(0.1, 0.9, shape).astype(np.float32)


def i(*shape: int, most: int = 2, kind: Any = np.int64) -> Array:
    """Integers from 0 on, of a shape."""
    return np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) % most).astype(kind)


def b(*shape: int) -> Array:
    """Booleans, of a shape."""
    return i(*shape).astype(np.bool_)


def n(*numbers: float, kind: Any = None) -> Array:
    """Numbers in a row: int64, or float32 if there are floats among them."""
    return np.array(numbers, kind or (np.float32 if any(isinstance(number, float) for number in numbers) else np.int64))


def s(number: float, kind: Any = np.float32) -> Array:
    """A scalar."""
    return np.array(number, kind)


U8, I8, I32 = np.uint8, np.int8, np.int32

# ---- element by element

_UNARY = (
    "Abs Acos Asin Asinh Atan Atanh Ceil Celu Cos Cosh Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish Hardmax "
    "Identity IsInf IsNaN LeakyRelu Log LogSoftmax LpNormalization Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid "
    "Sign Sin Sinh Softmax Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Flatten Transpose"
)
for _name in _UNARY.split():
    _add(_name, lambda p=2, q=3: [f(p, q)])
_add("Acosh", lambda p=2, q=3: [f(p, q) + 1])
_add("Swish", lambda p=2, q=3: [f(p, q)], opset=24)
_add("SwiGLU", lambda p=2, q=4: [f(p, q)], opset=28)
_add("Not", lambda p=2, q=3: [b(p, q)])
_add("BitwiseNot", lambda p=2, q=3: [i(p, q, kind=I32)])
for _name in [
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Pow",
    "PRelu",
    "Equal",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
    "Max",
    "Min",
    "Sum",
    "Mean",
]:
    _add(_name, lambda p=2, q=3: [f(p, q), f(q)])
_add("Mod", lambda p=2, q=3: ([f(p, q), f(q)], {"fmod": 1}))
for _name in ["And", "Or", "Xor"]:
    _add(_name, lambda p=2, q=3: [b(p, q), b(q)])
for _name in ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]:
    _add(_name, lambda p=2, q=3: [i(p, q, kind=I32), i(q, kind=I32)])
_add("BitShift", lambda p=2, q=3: ([i(p, q, kind=U8), i(q, kind=U8)], {"direction": "LEFT"}))
_add("Where", lambda p=2, q=3: [b(p, 1), f(p, q), f(q)])
_add("Clip", lambda p=2, q=3: [f(p, q), s(0.2), s(0.7)])
_add("Cast", lambda p=2, q=3: ([f(p, q)], {"to": TensorProto.INT32}))
_add("CastLike", lambda p=2, q=3: [f(p, q), i(1)])
_add("BitCast", lambda p=2, q=3: ([f(p, q)], {"to": TensorProto.INT32}), opset=26)
_add("CumSum", lambda p=2, q=3: [f(p, q), s(1, np.int64)])
_add("CumProd", lambda p=2, q=3: [f(p, q), s(1, np.int64)], opset=26)
_add("Trilu", lambda p=2, q=3: [f(p, q), s(0, np.int64)])
_add("Bernoulli", lambda p=2, q=3: ([f(p, q)], {"seed": 1.0}))
_add("RandomNormalLike", lambda p=2, q=3: ([f(p, q)], {"seed": 1.0}))
_add("RandomUniformLike", lambda p=2, q=3: ([f(p, q)], {"seed": 1.0}))
_add("RandomNormal", lambda p=2, q=3: ([], {"seed": 1.0, "shape": [p, q]}))
_add("RandomUniform", lambda p=2, q=3: ([], {"seed": 1.0, "shape": [p, q]}))
_add("Multinomial", lambda p=2, q=3, k=4: ([f(p, q)], {"seed": 1.0, "sample_size": k}), opset=20)

# ---- shapes

_add("Shape", lambda p=2, q=3: [f(p, q)])
_add("Size", lambda p=2, q=3: [f(p, q)])
_add("Reshape", lambda p=2, q=3: ([f(p, q), n(q, p)], {"allowzero": 1}))
_add("Squeeze", lambda p=2, q=3: [f(p, 1, q), n(1)])
_add("Unsqueeze", lambda p=2, q=3: [f(p, q), n(1)])
_add("Expand", lambda p=2, q=3: [f(p, 1), n(p, q)])
_add("Tile", lambda p=2, q=3, r=2: [f(p, q), n(r, 2)])
_add("Concat", lambda p=2, q=3, r=1: ([f(p, q), f(r, q)], {"axis": 0}))
_add("Split", lambda p=1, q=2, r=2: ([f(p + r, q), n(r, p)], {"axis": 0}), outputs=2)
_add("Slice", lambda p=4, q=3, r=2: [f(p, q), n(0), n(r), n(0), n(1)])
_add("Pad", lambda p=2, q=3, r=1: [f(p, q), n(0, r, 1, 0)])
_add("DepthToSpace", lambda p=1, q=1, r=2, t=3: ([f(p, q * 4, r, t)], {"blocksize": 2}))
_add("SpaceToDepth", lambda p=1, q=2, r=1, t=2: ([f(p, q, r * 2, t * 2)], {"blocksize": 2}))
_add("ReverseSequence", lambda p=3, q=2: [f(p, q), n(*[1] * q, kind=np.int64)])
_add("CenterCropPad", lambda p=4, q=3, r=2: [f(p, q), n(r, 5)])
_add("ConstantOfShape", lambda p=2, q=3: [n(p, q)])
_add("Range", lambda p=3: [s(0, np.int64), s(p, np.int64), s(1, np.int64)])
_add("EyeLike", lambda p=2, q=3: [f(p, q)])

# ---- indices

_add("Gather", lambda p=3, q=2, k=2: [f(p, q), i(k)])
_add("GatherElements", lambda p=3, q=2, k=2: [f(p, q), i(k, q)])
_add("GatherND", lambda p=3, q=2, k=2: [f(p, q), i(k, 1)])
_add("Scatter", lambda p=3, q=2, k=1: [f(p, q), i(k, q), f(k, q)], opset=10)
_add("ScatterElements", lambda p=3, q=2, k=1: [f(p, q), i(k, q), f(k, q)])
_add("ScatterElements", lambda p=3, q=2, k=1: ([f(p, q), i(k, q), f(k, q)], {"reduction": "add"}))
_add("ScatterND", lambda p=3, q=2, k=2: [f(p, q), i(k, 1), f(k, q)])
_add("ScatterND", lambda p=3, q=2, k=2: ([f(p, q), i(k, 1), f(k, q)], {"reduction": "max"}))
_add("TensorScatter", lambda p=2, q=4, k=2, r=3: [f(p, q, r), f(p, k, r), i(p)], opset=24)
_add("OneHot", lambda p=2, q=3, k=4: [i(p, q), s(k, np.int64), n(0.0, 1.0)])
_add("NonZero", lambda p=2, q=3: [i(p, q)])
_add("Compress", lambda p=2, q=3, k=3: ([f(p, q), b(k)], {"axis": 1}))
_add("Pad", lambda p=2, q=3, r=1: [f(p, q), n(-p, 0, r, 0), s(0.5)])
_add("Unique", lambda p=4: [i(p)], outputs=4)
_add("Unique", lambda p=2, q=3: ([i(p, q)], {"axis": 1}), outputs=4)
_add("TopK", lambda p=2, q=3, k=2: [f(p, q), n(k)], outputs=2)
_add("ArgMax", lambda p=2, q=3: ([f(p, q)], {"axis": 1}))
_add("ArgMin", lambda p=2, q=3: ([f(p, q)], {"axis": 0, "keepdims": 0}))
_add("NonMaxSuppression", lambda p=1, q=3, k=2: [f(p, q, 4), f(p, k, q), s(2, np.int64), s(0.5), s(0.1)])
_add(
    "MaxUnpool",
    lambda p=1, q=1, r=2, t=2: ([f(p, q, r, t), i(p, q, r, t, most=16)], {"kernel_shape": [2, 2], "strides": [2, 2]}),
)

# ---- reductions and norms

_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"
for _name in _REDUCTIONS.split():
    _add(f"Reduce{_name}", lambda p=2, q=3: [f(p, q), n(1)])
    _add(f"Reduce{_name}", lambda p=2, q=3: ([f(p, q)], {"keepdims": 0}))
_add("BatchNormalization", lambda p=2, q=3, r=2: [f(p, q, r), f(q), f(q), f(q), f(q)])
_add("InstanceNormalization", lambda p=2, q=3, r=2: [f(p, q, r), f(q), f(q)])
_add("LayerNormalization", lambda p=2, q=3, r=2: [f(p, q, r), f(r), f(r)], outputs=3)
_add("GroupNormalization", lambda p=2, q=1, r=2: ([f(p, q * 4, r), f(q * 4), f(q * 4)], {"num_groups": 2}))
_add("RMSNormalization", lambda p=2, q=3, r=2: [f(p, q, r), f(r)], opset=23)
_add("SimplifiedLayerNormalization", lambda p=2, q=3, r=2: [f(p, q, r), f(r)])
_add("MeanVarianceNormalization", lambda p=2, q=3, r=2, t=2: [f(p, q, r, t)])
_add("LRN", lambda p=2, q=3, r=2, t=2: ([f(p, q, r, t)], {"size": 3}))
_add("SoftmaxCrossEntropyLoss", lambda p=2, q=3, r=2: [f(p, q, r), i(p, r)], outputs=2)
_add("NegativeLogLikelihoodLoss", lambda p=2, q=3, r=2: [f(p, q, r), i(p, r)])

# ---- products

_add("MatMul", lambda p=2, q=3, r=4: [f(p, q), f(q, r)])
_add("MatMul", lambda p=2, q=3, r=4, t=2: [f(t, p, q), f(q, r)])
_add("Gemm", lambda p=2, q=3, r=4: [f(p, q), f(q, r)])
_add("Gemm", lambda p=2, q=3, r=4: ([f(p, q), f(r, q), f(r)], {"transB": 1, "alpha": 0.5, "beta": 2.0}))
_add("Einsum", lambda p=2, q=3, r=4: ([f(p, q), f(q, r)], {"equation": "ij,jk->ik"}))
_add("Det", lambda p=2, q=3: [f(p, q, q)])
_add("MatMulInteger", lambda p=2, q=3, r=4: [i(p, q, kind=U8), i(q, r, kind=U8), s(1, U8), s(2, U8)])
_add(
    "QLinearMatMul",
    lambda p=2, q=3, r=4: [i(p, q, kind=U8), s(0.1), s(1, U8), i(q, r, kind=U8), s(0.1), s(1, U8), s(0.2), s(3, U8)],
)
_add("QuantizeLinear", lambda p=2, q=3: [f(p, q), f(q), i(q, kind=U8)])
_add("DequantizeLinear", lambda p=2, q=3: [i(p, q, kind=U8), f(q), i(q, kind=U8)])
_add("DynamicQuantizeLinear", lambda p=2, q=3: [f(p, q)], outputs=3)

# ---- windows

_add("Conv", lambda p=1, q=2, r=4, t=4, o=3: [f(p, q, r, t), f(o, q, 2, 3), f(o)])
_add("Conv", lambda p=1, q=2, r=4, o=3: ([f(p, q, r), f(o, q, 3)], {"pads": [1, 1]}))
_add("ConvTranspose", lambda p=1, q=2, r=3, t=3, o=2: [f(p, q, r, t), f(q, o, 2, 2), f(o)])
_add("ConvTranspose", lambda p=1, q=2, r=3, o=2: ([f(p, q, r), f(q, o, 2)], {"strides": [2]}))
_add("ConvInteger", lambda p=1, q=2, r=4, t=4, o=3: [i(p, q, r, t, kind=U8), i(o, q, 2, 3, kind=U8), s(1, U8)])
_add(
    "QLinearConv",
    lambda p=1, q=2, r=4, t=4, o=3: [
        *(i(p, q, r, t, kind=U8), s(0.1), s(1, U8), i(o, q, 2, 2, kind=U8), s(0.1), s(1, U8), s(0.2), s(3, U8)),
        i(o, kind=I32),
    ],
)
_add(
    "DeformConv",
    lambda p=1, q=2, o=3: ([f(p, q, 3, 3), f(o, q, 2, 2), f(p, 8, 2, 2)], {"kernel_shape": [2, 2]}),
)
for _name in ["AveragePool", "MaxPool", "LpPool"]:
    _add(_name, lambda p=1, q=2, r=4, t=4: ([f(p, q, r, t)], {"kernel_shape": [2, 2]}))
_add("AveragePool", lambda p=1, q=2, r=4: ([f(p, q, r)], {"kernel_shape": [3], "pads": [2, 2]}))
_add("MaxPool", lambda p=1, q=2, r=4: ([f(p, q, r)], {"kernel_shape": [2], "strides": [2]}), outputs=2)
for _name in ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"]:
    _add(_name, lambda p=1, q=2, r=4, t=4: [f(p, q, r, t)], opset=20)
_add("Col2Im", lambda p=1, q=1, r=4: [f(p, q * 4, r), n(3, 3), n(2, 2)])
_add("Resize", lambda p=1, q=2, r=4, t=4: [f(p, q, r, t), None, n(1.0, 1.0, 0.5, 2.0)])
_add("Resize", lambda p=1, q=2, r=4, t=4, u=3: ([f(p, q, r, t), None, None, n(p, q, u, 6)], {"mode": "linear"}))
_add("Upsample", lambda p=1, q=2, r=2, t=2: [f(p, q, r, t), n(1.0, 1.0, 2.0, 2.0)], opset=9)
_add("GridSample", lambda p=1, q=2, r=3, t=3, u=2, v=2: [f(p, q, r, t), f(p, u, v, 2)])
_add("AffineGrid", lambda p=1, q=2, r=3, t=3: [f(p, 2, 3), n(p, q, r, t)])
_add("RoiAlign", lambda p=1, q=2, r=4, t=4, k=2: [f(p, q, r, t), f(k, 4), i(k, most=1)])
_add(
    "MaxRoiPool",
    lambda p=1, q=2, r=4, t=4, k=2: ([f(p, q, r, t), np.floor(f(k, 5))], {"pooled_shape": [2, 2]}),
    opset=20,
)

# ---- sequences

_RNN = {"hidden_size": 2}
for _name, _gates, _outputs in (("RNN", 1, 2), ("GRU", 3, 2), ("LSTM", 4, 3)):
    _add(
        _name,
        lambda t=3, p=2, q=2, _gates=_gates: ([f(t, p, q), f(1, _gates * 2, q), f(1, _gates * 2, 2)], _RNN),
        outputs=_outputs,
    )
    _add(
        _name,
        lambda t=3, p=2, q=2, _gates=_gates: (
            [f(t, p, q), f(1, _gates * 2, q), f(1, _gates * 2, 2), f(1, _gates * 4), None, f(1, p, 2)],
            _RNN,
        ),
        outputs=_outputs,
    )
_add("Attention", lambda p=1, h=2, q=3, k=4, d=2: [f(p, h, q, d), f(p, h, k, d), f(p, h, k, d)], opset=23)
_add(
    "Attention",
    lambda p=1, h=2, q=2, k=2, d=2, t=2: [
        *(f(p, h, q, d), f(p, h, k, d), f(p, h, k, d), b(q, k + t), f(p, h, t, d), f(p, h, t, d)),
    ],
    outputs=3,
    opset=23,
)
_add("RotaryEmbedding", lambda p=1, h=2, q=3: [f(p, h, q, 4), f(5, 2), f(5, 2), i(p, q)], opset=23)

# ---- signals

_add("DFT", lambda p=1, q=4: [f(p, q, 1), None, s(1, np.int64)])
_add("STFT", lambda p=1, q=8: [f(p, q, 1), s(2, np.int64), f(4), s(4, np.int64)])
_add("MelWeightMatrix", lambda k=4: [s(k, np.int64), s(16, np.int64), s(8000, np.int64), s(0.0), s(4000.0)])
for _name in ["BlackmanWindow", "HammingWindow", "HannWindow"]:
    _add(_name, lambda k=5: [s(k, np.int64)])

# ---- com.microsoft

for _name in ["FastGelu", "Gelu", "QuickGelu"]:
    _add(_name, lambda p=2, q=3: [f(p, q)], domain=MICROSOFT)
for _name in ("BiasGelu",):
    _add(_name, lambda p=2, q=3: [f(p, q), f(q)], domain=MICROSOFT)
_add("FusedMatMul", lambda p=2, q=3, r=4: ([f(p, q), f(q, r)], {"alpha": 0.5}), domain=MICROSOFT)
_add("TransposeMatMul", lambda p=2, q=3, r=4: ([f(q, p), f(q, r)], {"transA": 1}), domain=MICROSOFT)
_add(
    "FusedMatMul",
    lambda p=2, q=3, r=4, t=2: ([f(t, p, q), f(q, t, r)], {"transBatchB": 1}),
    domain=MICROSOFT,
)
_add(
    "FusedMatMul",
    lambda p=2, q=3, r=4, t=2: ([f(q, t, p), f(t, q, r)], {"transBatchA": 1, "transA": 1}),
    domain=MICROSOFT,
)
_add("FusedGemm", lambda p=2, q=3, r=4: ([f(p, q), f(q, r), f(r)], {"activation": "Relu"}), domain=MICROSOFT)
_add(
    "FusedConv",
    lambda p=1, q=2, r=4, o=3: ([f(p, q, r, 4), f(o, q, 2, 3), f(o)], {"activation": "Relu"}),
    domain=MICROSOFT,
)
_add("SkipLayerNormalization", lambda p=2, q=3, r=4: [f(p, q, r), f(p, q, r), f(r), f(r), f(r)], domain=MICROSOFT)
_add("SkipSimplifiedLayerNormalization", lambda p=2, q=3, r=4: [f(p, q, r), f(p, q, r), f(r)], domain=MICROSOFT)
_add("RotaryEmbedding", lambda p=1, q=3, h=2: [f(p, q, h * 4), i(p, q), f(5, 2), f(5, 2)], domain=MICROSOFT)
_add(
    "MultiHeadAttention",
    lambda p=1, q=3, k=2: ([f(p, q, 4), f(p, k, 4), f(p, k, 4)], {"num_heads": 2}),
    domain=MICROSOFT,
)
_add("Attention", lambda p=1, q=3, r=4: ([f(p, q, r), f(r, 12), f(12)], {"num_heads": 2}), domain=MICROSOFT)
_add(
    "GroupQueryAttention",
    lambda p=1, q=1: (
        [f(p, q, 4), f(p, q, 2), f(p, q, 2), f(p, 1, 4, 2), f(p, 1, 4, 2), i(p, kind=I32) + I32(1), s(2, I32)],
        {"num_heads": 2, "kv_num_heads": 1},
    ),
    outputs=3,
    domain=MICROSOFT,
)
_add("DynamicQuantizeMatMul", lambda p=2, q=3, r=4: [f(p, q), i(q, r, kind=U8), s(0.1), s(1, U8)], domain=MICROSOFT)
_add(
    "MatMulIntegerToFloat",
    lambda p=2, q=3, r=4: [i(p, q, kind=U8), i(q, r, kind=U8), s(0.1), s(0.2), s(1, U8), s(2, U8)],
    domain=MICROSOFT,
)
_add(
    "MatMulNBits",
    lambda p=2, r=4: ([f(p, 16), i(r, 1, 8, most=255, kind=U8), f(r)], {"K": 16, "N": r, "bits": 4, "block_size": 16}),
    domain=MICROSOFT,
)
_add("QLinearAdd", lambda p=2, q=3: [i(p, q, kind=U8), s(0.1), s(1, U8)] * 2 + [s(0.2), s(3, U8)], domain=MICROSOFT)
_add("QLinearMul", lambda p=2, q=3: [i(p, q, kind=U8), s(0.1), s(1, U8)] * 2 + [s(0.2), s(3, U8)], domain=MICROSOFT)
_add(
    "QLinearWhere",
    lambda p=2, q=3: [
        *(b(p, 1), i(p, q, kind=U8), s(0.1), s(1, U8), i(q, kind=U8), s(0.3), s(2, U8)),
        *(s(0.2), s(3, U8)),
    ],
    domain=MICROSOFT,
)
for _last in (0, 1):
    _add(
        "QLinearConv",
        lambda p=1, r=4, o=3, _last=_last: (
            [
                *(i(p, r, 4, 2, kind=U8) if _last else i(p, 2, r, 4, kind=U8), s(0.1), s(1, U8)),
                *(i(o, 2, 2, 2, kind=U8), s(0.1), s(1, U8), s(0.2), s(3, U8), i(o, kind=I32)),
            ],
            {"channels_last": _last},
        ),
        domain=MICROSOFT,
    )
_add("QLinearSigmoid", lambda p=2, q=3: [i(p, q, kind=U8), s(0.1), s(1, U8), s(0.2), s(3, U8)], domain=MICROSOFT)
_add("QLinearLeakyRelu", lambda p=2, q=3: [i(p, q, kind=U8), s(0.1), s(1, U8), s(0.2), s(3, U8)], domain=MICROSOFT)
_add(
    "QLinearConcat",
    lambda p=2, q=3, r=1: (
        [s(0.2), s(3, U8), i(p, q, kind=U8), s(0.1), s(1, U8), i(r, q, kind=U8), s(0.3), s(2, U8)],
        {"axis": 0},
    ),
    domain=MICROSOFT,
)
_add(
    "QLinearGlobalAveragePool",
    lambda p=1, q=2, r=3: [i(p, q, r, 3, kind=U8), s(0.1), s(1, U8), s(0.2), s(3, U8)],
    domain=MICROSOFT,
)
_add(
    "QLinearGlobalAveragePool",
    lambda p=1, q=2: ([i(p, 4, 3, q, kind=U8), s(0.1), s(1, U8), s(0.2), s(3, U8)], {"channels_last": 1}),
    domain=MICROSOFT,
)
_add(
    "QLinearAveragePool",
    lambda p=1, q=2, r=3: ([i(p, q, r, 3, kind=U8), s(0.1), s(1, U8), s(0.2), s(3, U8)], {"kernel_shape": [2, 2]}),
    domain=MICROSOFT,
)
_add(
    "QLinearSoftmax",
    lambda p=2, q=3: ([i(p, q, kind=U8), s(0.1), s(1, U8), s(0.2), s(3, U8)], {"opset": 13, "axis": 1}),
    domain=MICROSOFT,
)
_add("QuantizeLinear", lambda p=2, q=3: [f(p, q), s(0.1), s(1, U8)], domain=MICROSOFT)
_add("DequantizeLinear", lambda p=2, q=3: [i(p, q, kind=U8), s(0.1), s(1, U8)], domain=MICROSOFT)
_add(
    "QGemm",
    lambda p=2, q=3, r=4: [i(p, q, kind=U8), s(0.1), s(1, U8), i(q, r, kind=U8), s(0.2), s(2, U8)],
    domain=MICROSOFT,
)
_add(
    "EmbedLayerNormalization",
    lambda p=1, q=3: [i(p, q, kind=I32), i(p, q, kind=I32), f(5, 4), f(6, 4), f(2, 4), f(4), f(4)],
    outputs=2,
    domain=MICROSOFT,
)
