"""The operators whose errors are measured as a whole, with their true results in float64.

A workload is an operator on ordinary numbers, computed in one way: by the schedule that suits the adapter, by another
one, or with what trades digits for speed allowed or forbidden. True results are computed here, from the formulas, and
share nothing with the shaders or the NumPy reference.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.descs import (
    ActivationLogSoftmax1,
    ActivationSoftmax1,
    AveragePooling1,
    BatchNormalization,
    Convolution,
    CumulativeSummation,
    Gemm,
    LocalResponseNormalization,
    LpNormalization,
    MeanVarianceNormalization2,
    MultiheadAttention,
    Reduce,
)
from dmlgpu.catalog.enums import (
    AxisDirection,
    ConvolutionDirection,
    ConvolutionMode,
    DataType,
    MatrixTransform,
    MultiheadAttentionMaskType,
    ReduceFunction,
)
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.accuracy import truths
from dmlgpu.conformance.accuracy.functions import Doubles
from dmlgpu.conformance.accuracy.truths import Truth

Sizes: TypeAlias = tuple[int, ...]

FLOAT32, FLOAT16 = DataType.FLOAT32, DataType.FLOAT16


@dataclass(frozen=True)
class Workload:
    """An operator on ordinary numbers, and how it is to be computed.

    Attributes:
        operator: its stem.
        way: the schedule, or what is special about the numbers.
        limit: roundings that the result may be off by, see ``operator_errors.Errors``.
        build: the description for a data type.
        truth: the true result of inputs in float64, and what its errors are measured by.
        scale, offset: of the normal distribution that the first input is drawn from; the others are standard normal.
        data_types: types that it is measured in.
        schedule: the name that ``Target.schedule`` gets; empty: the adapter's choice.
        precise: whether the device is opened with ``precise``.
        half_precision: whether ALLOW_HALF_PRECISION_COMPUTATION is set.
    """

    operator: str
    way: str
    limit: float
    build: Callable[[DataType], OperatorDesc]
    truth: Callable[..., Truth]
    scale: float = 1.0
    offset: float = 0.0
    data_types: tuple[DataType, ...] = (FLOAT32, FLOAT16)
    schedule: str = ""
    precise: bool = False
    half_precision: bool = False

    def name(self, data_type: DataType) -> str:
        """The name of its case in a type: ``gemm-accuracy-float32-register``."""
        return f"{self.operator}-accuracy-{data_type.name.lower()}-{self.way}"

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


def _gemm(data_type: DataType) -> Gemm:
    a, b, output = (TensorDesc(data_type, (1, 1, *sizes)) for sizes in ((64, 1024), (1024, 48), (64, 48)))
    return Gemm(
        a_tensor=a,
        b_tensor=b,
        output_tensor=output,
        trans_a=MatrixTransform.NONE,
        trans_b=MatrixTransform.NONE,
        alpha=1.0,
        beta=0.0,
    )


def _convolution(
    channels: int, outputs: int, groups: int, *, backward: bool = False
) -> Callable[[DataType], OperatorDesc]:
    """Windows of 3 x 3 over 16 x 16 positions, with a border of one."""
    filters = (channels, outputs) if backward else (outputs, channels // groups)

    def build(data_type: DataType) -> Convolution:
        return Convolution(
            input_tensor=TensorDesc(data_type, (1, channels, 16, 16)),
            filter_tensor=TensorDesc(data_type, (*filters, 3, 3)),
            output_tensor=TensorDesc(data_type, (1, outputs, 16, 16)),
            mode=ConvolutionMode.CROSS_CORRELATION,
            direction=ConvolutionDirection.BACKWARD if backward else ConvolutionDirection.FORWARD,
            strides=(1, 1),
            dilations=(1, 1),
            start_padding=(1, 1),
            end_padding=(1, 1),
            output_padding=(0, 0),
            group_count=groups,
        )

    return build


_DENSE = _convolution(64, 32, 1)

PRODUCTS = (
    *(
        Workload("gemm", way, 6.0, _gemm, truths.product, schedule=way)
        for way in ("small", "register", "shared", "small-split", "register-split", "shared-split")
    ),
    Workload("gemm", "half-precision", 6.0, _gemm, truths.product, data_types=(FLOAT16,), half_precision=True),
    *(
        Workload("convolution", way, limit, _DENSE, truths.convolution, schedule=way)
        for way, limit in (("implicit-gemm", 6.0), ("winograd-2", 6.0), ("winograd-4", 100.0))
    ),
    Workload("convolution", "precise", 6.0, _DENSE, truths.convolution, precise=True),
    Workload("convolution", "depthwise", 6.0, _convolution(32, 32, 32), truths.convolution),
    Workload("convolution", "transposed", 6.0, _convolution(64, 32, 1, backward=True), truths.transposed, precise=True),
)

# ---- normalisations


def _mean_variance(data_type: DataType) -> MeanVarianceNormalization2:
    tensor = TensorDesc(data_type, (1, 1, 32, 1024))
    return MeanVarianceNormalization2(
        input_tensor=tensor, output_tensor=tensor, axes=(3,), use_mean=True, use_variance=True, epsilon=1e-5
    )


def _batch(data_type: DataType) -> BatchNormalization:
    tensor, parameter = TensorDesc(data_type, (2, 16, 16, 16)), TensorDesc(data_type, (1, 16, 1, 1))
    return BatchNormalization(
        input_tensor=tensor,
        mean_tensor=parameter,
        variance_tensor=parameter,
        scale_tensor=parameter,
        bias_tensor=parameter,
        output_tensor=tensor,
        spatial=True,
        epsilon=1e-5,
    )


def _local_response(data_type: DataType) -> LocalResponseNormalization:
    tensor = TensorDesc(data_type, (1, 32, 16, 16))
    return LocalResponseNormalization(
        input_tensor=tensor, output_tensor=tensor, cross_channel=True, local_size=5, alpha=0.5, beta=0.75, bias=1.0
    )


def _lp(data_type: DataType) -> LpNormalization:
    tensor = TensorDesc(data_type, (1, 1, 32, 1024))
    return LpNormalization(input_tensor=tensor, output_tensor=tensor, axis=3, epsilon=0.0, p=2)


NORMALIZATIONS = (
    Workload("mean_variance_normalization2", "centred", 4.0, _mean_variance, truths.mean_variance),
    Workload("mean_variance_normalization2", "mean-100", 4.0, _mean_variance, truths.mean_variance, offset=100.0),
    Workload("batch_normalization", "default", 4.0, _batch, truths.batch),
    Workload("local_response_normalization", "default", 8.0, _local_response, truths.local_response),
    Workload("lp_normalization", "default", 4.0, _lp, truths.lp),
)

# ---- softmax, attention


def _softmax(desc: type[ActivationSoftmax1] | type[ActivationLogSoftmax1]) -> Callable[[DataType], OperatorDesc]:
    def build(data_type: DataType) -> OperatorDesc:
        tensor = TensorDesc(data_type, (1, 1, 32, 1000))
        return desc(input_tensor=tensor, output_tensor=tensor, axes=(3,))

    return build


def _attention(data_type: DataType) -> MultiheadAttention:
    rows, keys = TensorDesc(data_type, (1, 64, 128)), TensorDesc(data_type, (1, 200, 128))
    return MultiheadAttention(
        query_tensor=rows,
        key_tensor=keys,
        value_tensor=keys,
        output_tensor=rows,
        scale=0.125,
        mask_filter_value=-1e9,
        head_count=2,
        mask_type=MultiheadAttentionMaskType.NONE,
    )


SOFTMAX = (
    Workload("activation_softmax1", "default", 4.0, _softmax(ActivationSoftmax1), truths.softmax, scale=4.0),
    Workload("activation_log_softmax1", "default", 4.0, _softmax(ActivationLogSoftmax1), truths.log_softmax, scale=4.0),
    Workload("multihead_attention", "default", 3.0, _attention, truths.attention),
)

# ---- reductions


def _reduce(function: ReduceFunction, count: int) -> Callable[[DataType], OperatorDesc]:
    def build(data_type: DataType) -> Reduce:
        sizes = (1, 1, 16, count)
        return Reduce(
            function=function,
            input_tensor=TensorDesc(data_type, sizes),
            output_tensor=TensorDesc(data_type, (*sizes[:3], 1)),
            axes=(3,),
        )

    return build


def _running_sum(data_type: DataType) -> CumulativeSummation:
    tensor = TensorDesc(data_type, (1, 1, 4, 8192))
    return CumulativeSummation(
        input_tensor=tensor,
        output_tensor=tensor,
        axis=3,
        axis_direction=AxisDirection.INCREASING,
        has_exclusive_sum=False,
    )


def _average_pooling(data_type: DataType) -> AveragePooling1:
    return AveragePooling1(
        input_tensor=TensorDesc(data_type, (1, 8, 32, 32)),
        output_tensor=TensorDesc(data_type, (1, 8, 26, 26)),
        strides=(1, 1),
        window_size=(7, 7),
        start_padding=(0, 0),
        end_padding=(0, 0),
        dilations=(1, 1),
        include_padding=False,
    )


_LONG = 20000

REDUCTIONS = (
    Workload("reduce", "sum", 1.0, _reduce(ReduceFunction.SUM, _LONG), truths.total),
    Workload("reduce", "average", 1.0, _reduce(ReduceFunction.AVERAGE, _LONG), truths.average),
    Workload("reduce", "sum-square", 1.0, _reduce(ReduceFunction.SUM_SQUARE, _LONG), truths.sum_square),
    Workload("reduce", "l2", 1.0, _reduce(ReduceFunction.L2, _LONG), truths.l2),
    Workload("reduce", "log-sum-exp", 2.0, _reduce(ReduceFunction.LOG_SUM_EXP, 2000), truths.log_sum_exp),
    Workload("reduce", "multiply", 1.0, _reduce(ReduceFunction.MULTIPLY, 200), truths.multiply, scale=0.01, offset=1.0),
    Workload("cumulative_summation", "default", 1.0, _running_sum, truths.running_sum),
    Workload("average_pooling1", "default", 2.0, _average_pooling, truths.average_pooling),
)

WORKLOADS = (*PRODUCTS, *NORMALIZATIONS, *SOFTMAX, *REDUCTIONS)


def true_result(workload: Workload, inputs: tuple[NDArray[np.floating], ...]) -> tuple[Doubles, Doubles]:
    """The true result, and what its errors are measured by, both of the output's sizes."""
    with np.errstate(under="ignore"):
        truth, terms = workload.truth(*(array.astype(np.float64) for array in inputs))
    return truth, np.broadcast_to(terms, truth.shape)
