"""The operators whose errors are measured as a whole, with their true results in float64.

A workload is an operator on ordinary numbers, computed in one way: by the schedule that suits the adapter, by another
one, or with what trades digits for speed allowed or forbidden. True results are computed here, from the formulas, and
share nothing with the shaders or the NumPy reference.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.descs import BatchNormalization, Convolution
from dmlgpu.catalog.enums import ConvolutionDirection, DataType, ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.samples import SAMPLES, Sizes
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.accuracy import truths
from dmlgpu.conformance.accuracy.functions import Doubles
from dmlgpu.conformance.accuracy.truths import Truth

FLOAT32, FLOAT16 = DataType.FLOAT32, DataType.FLOAT16


@dataclass(frozen=True)
class AccuracyWorkload:
    """An operator on ordinary numbers, and how it is to be computed.

    Attributes:
        operator: its stem.
        way: the schedule, or what is special about the numbers.
        limit: roundings that the result may be off by, see ``operator_errors.Errors``.
        truth: the true result of inputs in float64, and what its errors are measured by.
        sizes: of its sample (``catalog.samples``), by name.
        attributes: fields of the description that differ from the sample's.
        scale, offset: of the normal distribution that the first input is drawn from; the others are standard normal.
        data_types: types that it is measured in.
        schedule: the name that ``Target.schedule`` gets; empty: the adapter's choice.
        precise: whether the device is opened with ``precise``.
        half_precision: whether ALLOW_HALF_PRECISION_COMPUTATION is set.
    """

    operator: str
    way: str
    limit: float
    truth: Callable[..., Truth]
    sizes: Sizes
    attributes: Mapping[str, Any] = field(default_factory=dict)
    scale: float = 1.0
    offset: float = 0.0
    data_types: tuple[DataType, ...] = (FLOAT32, FLOAT16)
    schedule: str = ""
    precise: bool = False
    half_precision: bool = False

    def name(self, data_type: DataType) -> str:
        """The name of its case in a type: ``gemm-accuracy-float32-register``."""
        return f"{self.operator}-accuracy-{data_type.name.lower()}-{self.way}"

    def desc(self, data_type: DataType) -> OperatorDesc:
        """The description for a data type."""
        desc = SAMPLES[self.operator.upper()].desc(self.sizes, data_type, **self.attributes)
        if isinstance(desc, Convolution) and desc.direction is ConvolutionDirection.BACKWARD:
            outputs, channels, *window = desc.filter_tensor.sizes
            return desc.replace(filter_tensor=TensorDesc(data_type, (channels, outputs, *window)))
        return desc

    @property
    def needs_shaders(self) -> bool:
        """Whether it is a way of computing that only GPUs' kernels have."""
        return bool(self.schedule) or self.half_precision

    def inputs(self, desc: OperatorDesc) -> tuple[NDArray[np.floating], ...]:
        """Arrays of ordinary numbers, in the types of the description; the same on every call."""
        rng = np.random.default_rng(zlib.crc32(f"{self.operator}-{self.way}".encode()))
        tensors = [slot.tensor for slot in desc.inputs if slot.tensor is not None]
        drawn = [rng.standard_normal(tensor.sizes) for tensor in tensors]
        drawn[0] = drawn[0] * self.scale + self.offset
        if isinstance(desc, BatchNormalization):
            drawn[2] = 0.5 + np.abs(drawn[2])  # the variance
        return tuple(array.astype(tensor.data_type.numpy) for array, tensor in zip(drawn, tensors, strict=True))


# ---- products and convolutions

_PRODUCT: Sizes = {"m": 64, "k": 1024, "n": 48}
_DENSE: Sizes = {"channels": 64, "height": 16, "width": 16, "filters": 32}
_BACKWARD = {"direction": ConvolutionDirection.BACKWARD}

PRODUCTS = (
    *(
        AccuracyWorkload("gemm", way, 6.0, truths.product, _PRODUCT, schedule=way)
        for way in ("small", "register", "shared", "small-split", "register-split", "shared-split")
    ),
    AccuracyWorkload(
        "gemm", "half-precision", 6.0, truths.product, _PRODUCT, data_types=(FLOAT16,), half_precision=True
    ),
    *(
        AccuracyWorkload("convolution", way, limit, truths.convolution, _DENSE, schedule=way)
        for way, limit in (("implicit-gemm", 6.0), ("winograd-2", 6.0), ("winograd-4", 100.0))
    ),
    AccuracyWorkload("convolution", "precise", 6.0, truths.convolution, _DENSE, precise=True),
    AccuracyWorkload("convolution", "depthwise", 6.0, truths.convolution, {**_DENSE, "channels": 32, "groups": 32}),
    AccuracyWorkload("convolution", "transposed", 6.0, truths.transposed, _DENSE, _BACKWARD, precise=True),
)

# ---- normalisations

_MEAN_VARIANCE = "mean_variance_normalization2"
_LINES: Sizes = {"rows": 32, "columns": 1024}
_UNSCALED = {"scale_tensor": None, "bias_tensor": None, "epsilon": 1e-5}

NORMALIZATIONS = (
    *(
        AccuracyWorkload(
            "mean_variance_normalization2", way, 4.0, truths.mean_variance, _LINES, _UNSCALED, offset=offset
        )
        for way, offset in (("centred", 0.0), ("mean-100", 100.0))
    ),
    AccuracyWorkload(
        "batch_normalization",
        "default",
        4.0,
        truths.batch,
        {"batch": 2, "channels": 16, "height": 16, "width": 16},
        {"epsilon": 1e-5},
    ),
    AccuracyWorkload(
        "local_response_normalization",
        "default",
        8.0,
        truths.local_response,
        {"channels": 32, "height": 16, "width": 16},
        {"alpha": 0.5, "beta": 0.75, "bias": 1.0},
    ),
    AccuracyWorkload("lp_normalization", "default", 4.0, truths.lp, _LINES, {"epsilon": 0.0}),
)

# ---- softmax, attention

_LOGITS: Sizes = {"rows": 32, "columns": 1000}

SOFTMAX = (
    AccuracyWorkload("activation_softmax1", "default", 4.0, truths.softmax, _LOGITS, scale=4.0),
    AccuracyWorkload("activation_log_softmax1", "default", 4.0, truths.log_softmax, _LOGITS, scale=4.0),
    AccuracyWorkload("multihead_attention", "default", 3.0, truths.attention, {"heads": 2, "queries": 64, "keys": 200}),
)

# ---- reductions


def _reduction(
    function: ReduceFunction,
    columns: int,
    truth: Callable[..., Truth],
    limit: float = 1.0,
    *,
    scale: float = 1.0,
    offset: float = 0.0,
) -> AccuracyWorkload:
    way, sizes = function.name.lower().replace("_", "-"), {"rows": 16, "columns": columns}
    return AccuracyWorkload("reduce", way, limit, truth, sizes, {"function": function}, scale, offset)


_LONG = 20000

REDUCTIONS = (
    _reduction(ReduceFunction.SUM, _LONG, truths.total),
    _reduction(ReduceFunction.AVERAGE, _LONG, truths.average),
    _reduction(ReduceFunction.SUM_SQUARE, _LONG, truths.sum_square),
    _reduction(ReduceFunction.L2, _LONG, truths.l2),
    _reduction(ReduceFunction.LOG_SUM_EXP, 2000, truths.log_sum_exp, limit=2.0),
    _reduction(ReduceFunction.MULTIPLY, 200, truths.multiply, scale=0.01, offset=1.0),
    AccuracyWorkload("cumulative_summation", "default", 1.0, truths.running_sum, {"rows": 4, "columns": 8192}),
    AccuracyWorkload(
        "average_pooling1",
        "default",
        2.0,
        truths.average_pooling,
        {"channels": 8, "height": 32, "width": 32, "window": 7, "stride": 1},
    ),
)

WORKLOADS = (*PRODUCTS, *NORMALIZATIONS, *SOFTMAX, *REDUCTIONS)


def true_result(workload: AccuracyWorkload, inputs: tuple[NDArray[np.floating], ...]) -> tuple[Doubles, Doubles]:
    """The true result, and what its errors are measured by, both of the output's sizes."""
    with np.errstate(under="ignore"):
        truth, terms = workload.truth(*(array.astype(np.float64) for array in inputs))
    return truth, np.broadcast_to(terms, truth.shape)
