"""The operators whose errors are measured as a whole, with their true results in float64.

A workload is an operator on ordinary numbers, computed in one way: by the schedule that suits the adapter, by another
one, or with what trades digits for speed allowed or forbidden. True results are computed here, from the formulas, and
share nothing with the shaders or the NumPy reference.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.descs import BatchNormalization, Convolution
from dmlgpu.catalog.enums import ConvolutionDirection, DataType, ExecutionFlags, ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.accuracy import ground_truth
from dmlgpu.conformance.accuracy.functions import Doubles
from dmlgpu.conformance.accuracy.ground_truth import Truth
from dmlgpu.conformance.samples import SAMPLES, Sizes
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.evaluate import run_compiled

FLOAT32, FLOAT16 = DataType.FLOAT32, DataType.FLOAT16


@dataclass(frozen=True)
class AccuracyWorkload:
    """An operator on ordinary numbers, and how it is to be computed.

    Attributes:
        operator: Its stem.
        way: The schedule, or what is special about the numbers.
        limit: Roundings that the result may be off by, see ``operator_errors.Errors``.
        truth: The true result of inputs in float64, and what its errors are measured by.
        sizes: Sizes of its sample (``conformance.samples``), by name.
        attributes: Fields of the description that differ from the sample's.
        scale, offset: Parameters of the normal distribution of the first input; the others are standard normal.
        data_types: Types that it is measured in.
        schedule: The name that ``Overrides.schedule`` gets; empty: the adapter's choice.
        precise: Whether the device is opened with ``precise``.
        half_precision: Whether ALLOW_HALF_PRECISION_COMPUTATION is set.
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
        """Return the name of its case in a type: ``gemm-accuracy-float32-register``."""
        return f"{self.operator}-accuracy-{data_type.name.lower()}-{self.way}"

    def desc(self, data_type: DataType) -> OperatorDesc:
        """Return the description for a data type."""
        desc = SAMPLES[self.operator.upper()].desc(self.sizes, data_type, **self.attributes)
        if isinstance(desc, Convolution) and desc.direction is ConvolutionDirection.BACKWARD:
            outputs, channels, *window = desc.filter_tensor.sizes
            return desc.replace(filter_tensor=TensorDesc(data_type, (channels, outputs, *window)))
        return desc

    @property
    def needs_shaders(self) -> bool:
        """Whether the workload computes in a way that only kernels of GPUs have."""
        return bool(self.schedule) or self.half_precision

    def inputs(self, desc: OperatorDesc) -> tuple[NDArray[np.floating], ...]:
        """Return arrays of ordinary numbers, in the types of the description; the same on every call."""
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
_DEPTHWISE: Sizes = {**_DENSE, "channels": 32, "groups": 32}
_BACKWARD = {"direction": ConvolutionDirection.BACKWARD}

PRODUCTS = (
    *(
        AccuracyWorkload("gemm", way, 6.0, ground_truth.product, _PRODUCT, schedule=way)
        for way in ("small", "register", "shared", "small-split", "register-split", "shared-split")
    ),
    AccuracyWorkload(
        "gemm", "half-precision", 6.0, ground_truth.product, _PRODUCT, data_types=(FLOAT16,), half_precision=True
    ),
    *(
        AccuracyWorkload("convolution", way, limit, ground_truth.convolution, _DENSE, schedule=way)
        for way, limit in (("implicit-gemm", 6.0), ("winograd-2", 6.0), ("winograd-4", 100.0))
    ),
    AccuracyWorkload("convolution", "precise", 6.0, ground_truth.convolution, _DENSE, precise=True),
    AccuracyWorkload(
        "convolution", "depthwise", 6.0, ground_truth.convolution, {**_DENSE, "channels": 32, "groups": 32}
    ),
    AccuracyWorkload("convolution", "transposed", 6.0, ground_truth.transposed, _DENSE, _BACKWARD, precise=True),
)

# ---- normalizations

_MEAN_VARIANCE = "mean_variance_normalization2"
_LINES: Sizes = {"rows": 32, "columns": 1024}
_UNSCALED = {"scale_tensor": None, "bias_tensor": None, "epsilon": 1e-5}

NORMALIZATIONS = (
    *(
        AccuracyWorkload(
            "mean_variance_normalization2", way, 4.0, ground_truth.mean_variance, _LINES, _UNSCALED, offset=offset
        )
        for way, offset in (("centred", 0.0), ("mean-100", 100.0))
    ),
    AccuracyWorkload(
        "batch_normalization",
        "default",
        4.0,
        ground_truth.batch,
        {"batch": 2, "channels": 16, "height": 16, "width": 16},
        {"epsilon": 1e-5},
    ),
    AccuracyWorkload(
        "local_response_normalization",
        "default",
        8.0,
        ground_truth.local_response,
        {"channels": 32, "height": 16, "width": 16},
        {"alpha": 0.5, "beta": 0.75, "bias": 1.0},
    ),
    AccuracyWorkload("lp_normalization", "default", 4.0, ground_truth.lp, _LINES, {"epsilon": 0.0}),
)

# ---- softmax, attention

_LOGITS: Sizes = {"rows": 32, "columns": 1000}
_HEADS: Sizes = {"heads": 2, "queries": 64, "keys": 200}

SOFTMAX = (
    AccuracyWorkload("activation_softmax1", "default", 4.0, ground_truth.softmax, _LOGITS, scale=4.0),
    AccuracyWorkload("activation_log_softmax1", "default", 4.0, ground_truth.log_softmax, _LOGITS, scale=4.0),
    AccuracyWorkload("multihead_attention", "default", 3.0, ground_truth.attention, _HEADS),
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
    _reduction(ReduceFunction.SUM, _LONG, ground_truth.total),
    _reduction(ReduceFunction.AVERAGE, _LONG, ground_truth.average),
    _reduction(ReduceFunction.SUM_SQUARE, _LONG, ground_truth.sum_square),
    _reduction(ReduceFunction.L2, _LONG, ground_truth.l2),
    _reduction(ReduceFunction.LOG_SUM_EXP, 2000, ground_truth.log_sum_exp, limit=2.0),
    _reduction(ReduceFunction.MULTIPLY, 200, ground_truth.multiply, scale=0.01, offset=1.0),
    AccuracyWorkload("cumulative_summation", "default", 1.0, ground_truth.running_sum, {"rows": 4, "columns": 8192}),
    AccuracyWorkload(
        "average_pooling1",
        "default",
        2.0,
        ground_truth.average_pooling,
        {"channels": 8, "height": 32, "width": 32, "window": 7, "stride": 1},
    ),
)

WORKLOADS = (*PRODUCTS, *NORMALIZATIONS, *SOFTMAX, *REDUCTIONS)


def true_result(workload: AccuracyWorkload, inputs: tuple[NDArray[np.floating], ...]) -> tuple[Doubles, Doubles]:
    """Return the true result and the magnitude for its errors, both of the output's shape."""
    with np.errstate(under="ignore"):
        truth, terms = workload.truth(*(array.astype(np.float64) for array in inputs))
    return truth, np.broadcast_to(terms, truth.shape)


# ---- errors ----------------------------------------------------------------------------------------------------------


ROUNDING = 2.0**-24
"""Maximum relative error of rounding to float32."""


@dataclass(frozen=True)
class OperatorErrors:
    """A result and the true result.

    Attributes:
        got: In the type of the operator's output.
        true: In float64.
        terms: Sum of the absolute values of the terms of each element (see ``ground_truth``).
        inputs: Inputs.
        kernels: Kernels.
    """

    got: NDArray[np.floating]
    true: Doubles
    terms: Doubles
    inputs: tuple[NDArray[np.floating], ...] = ()
    kernels: tuple[str, ...] = ()

    @cached_property
    def absolute(self) -> Doubles:
        """Return absolute differences; infinite where either value is not a number."""
        difference = np.abs(self.got.astype(np.float64) - self.true)
        return np.where(np.isfinite(difference), difference, np.inf)

    @cached_property
    def ulp(self) -> Doubles:
        """The differences in units of the last place of the true result, in the output's type."""
        return self.absolute / self.units

    @cached_property
    def roundings(self) -> Doubles:
        """The differences beyond the last rounding, to the output's type, in roundings of the terms to float32.

        1 is what one rounding of the sum of the terms' absolute values may lose; a good sum of many terms of both signs
        loses less than its every addition, because their errors cancel.
        """
        return np.maximum(self.absolute - self.units / 2, 0.0) / (self.terms * ROUNDING)

    @cached_property
    def units(self) -> Doubles:
        """A unit of the last place of each true result, in the output's type."""
        smallest = np.finfo(self.got.dtype).tiny
        return np.spacing(np.maximum(np.abs(self.true), smallest).astype(self.got.dtype)).astype(np.float64)

    @property
    def summary(self) -> Mapping[str, float]:
        """Errors by measure.

        ``largest``: largest difference relative to the largest result; ``rms``: root mean square of the differences
        relative to that of the results; ``ulp_max``, ``ulp_rms``: in ULP; ``roundings``: largest number of roundings.
        """
        squares = float(np.mean(self.true**2))
        return {
            "largest": float(self.absolute.max() / np.abs(self.true).max()),
            "rms": float(np.sqrt(np.mean(self.absolute**2) / squares)),
            "ulp_max": float(self.ulp.max()),
            "ulp_rms": float(np.sqrt(np.mean(self.ulp**2))),
            "roundings": float(self.roundings.max()),
        }


def limit_of(workload: AccuracyWorkload, kernels: tuple[str, ...]) -> float:
    """Return the roundings that the result of some kernels may be off by: the workload's limit, or that of attention by
    matrix units, which rounds weights to float16 (half a ULP of each, and of their sum)."""
    rounds_weights = any("schedules/attention_cooperative" in kernel for kernel in kernels)
    return 2 * 2.0**-11 / ROUNDING if rounds_weights else workload.limit


def operator_errors(workload: AccuracyWorkload, data_type: DataType, device: Device) -> OperatorErrors:
    """Return the errors of a workload in a type on a device, with the schedule of the workload.

    Raises:
        NotSupported: If the adapter lacks what the operator needs.
    """
    desc = workload.desc(data_type)
    inputs = workload.inputs(desc)
    flags = ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION if workload.half_precision else ExecutionFlags.NONE
    backend = device.backend
    is_precise = workload.precise or device.backend.target.policies.precise
    own = Device(device.adapter, precise=is_precise, specialize="always")
    try:
        # The profile of the device selects the measured family of schedules.
        own.backend.target = replace(own.backend.target, profile=backend.target.profile).with_overrides(
            schedule=workload.schedule
        )
        compiled = own.compile_operator(own.create_operator(desc), flags)
        remaining = iter(inputs)
        tensors = [port.desc for port in compiled.inputs]
        arrays = [None if tensor is None else next(remaining) for tensor in tensors]
        (raw,) = [data for data in run_compiled(compiled, arrays, tensors, desc.operator) if data is not None]
        kernels = () if compiled.program is None else compiled.program.summaries
    finally:
        own.remove()
    output = desc.outputs[0].tensor
    assert output is not None
    true, terms = true_result(workload, inputs)
    return OperatorErrors(output.decode(raw), true, terms, inputs, kernels)
