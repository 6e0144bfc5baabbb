"""Convolutions: of floats, in both directions, of integers, of quantized numbers.

All become a ``plan.Convolution``: groups are a dimension of their own, a flipped filter is a view, a transposed
convolution is one or several plain ones (schedule/transposed.py). Everything after the sum is the epilogue of the same
kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import ConvolutionDirection, ConvolutionMode, DataType, FeatureLevel
from dmlgpu.compiler.operators.elementwise import activated, check_activation_level
from dmlgpu.compiler.operators.lowering import (
    Lowering,
    check_padded,
    check_positive,
    check_sizes,
    input_tensor,
    invalid,
    output_tensor,
    windows_of,
)
from dmlgpu.compiler.operators.quantization import (
    DIFFERENCE,
    GATHERED,
    check_per_channel,
    difference,
    gather,
    limits,
    no_zero_point,
    parameters_of,
    per_channel,
)
from dmlgpu.compiler.plan import (
    Body,
    Convolution,
    Convolve,
    Plan,
    PlanTensor,
    RegisterValue,
    Source,
    apply,
    constants,
    portable,
)
from dmlgpu.compiler.plan.windows import Sizes, WindowAxis, Windows, positions_of
from dmlgpu.compiler.rewrites.sources import CONVERT, cast, permuted, split, stepped

FLOAT32, INT32 = DataType.FLOAT32, DataType.INT32
QUANTIZED_PRODUCT = "quantization/quantized_product"
LEAD = 2
"""Number of dimensions before the spatial ones: batch and channel, or outputs and channels."""


# ---- sizes


GIVEN = "determined by input, filter, strides, dilations and padding"
"""Explanation of an output's sizes, for messages."""


class _Forward(Lowering):
    """Base of all: {N, C, spatial..} and {outputs, C / groups, window..}; the output has a position for every window
    that fits into the padded input. Windows that contain only padding are allowed."""

    @classmethod
    def windows(cls, desc: Any) -> Windows:
        """Return the windows of the filter over the input of a forward convolution."""
        return windows_of(desc, desc.input_tensor.sizes[LEAD:], desc.filter_tensor.sizes[LEAD:])

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, Sizes]:
        """Return the output sizes: images of the input, outputs of the filter, positions of the window."""
        sizes = (desc.input_tensor.sizes[0], desc.filter_tensor.sizes[0], *positions_of(cls.windows(desc)))
        return {"output_tensor": sizes}

    @classmethod
    def check(cls, desc: Any) -> None:
        _check_steps(desc)
        cls.check_channels(desc)
        cls.check_room(desc)
        expected = cls.output_sizes(desc)["output_tensor"]
        cls.check_output_sizes(desc, expected)
        if getattr(desc, "bias_tensor", None) is not None:
            ones = (1,) * (len(expected) - LEAD)
            check_sizes(desc, "bias_tensor", (1, expected[1], *ones), "one element per channel of output_tensor")

    @classmethod
    def check_output_sizes(cls, desc: Any, expected: Sizes) -> None:
        """Raise InvalidDescription unless the output has the expected sizes."""
        check_sizes(desc, "output_tensor", expected, GIVEN)

    @classmethod
    def check_channels(cls, desc: Any) -> None:
        """Raise InvalidDescription unless groups divide channels and outputs."""
        channels, outputs, groups = desc.input_tensor.sizes[1], desc.filter_tensor.sizes[0], desc.group_count
        _check_filter(desc, 1, channels // groups, f"{channels} channels of input_tensor in {groups} groups")
        if outputs % groups:
            reason = f"must be a multiple of group_count ({groups}), got {outputs}"
            raise invalid(desc, "filter_tensor.sizes[0]", reason)

    @classmethod
    def check_room(cls, desc: Any) -> None:
        """Raise InvalidDescription unless the window fits into the padded input."""
        for index, axis in enumerate(cls.windows(desc)):
            if axis.positions < 1:
                padded = axis.spatial + desc.start_padding[index] + desc.end_padding[index]
                reason = f"must reach no further than the padded input ({padded}), but it reaches over {axis.reach}"
                raise invalid(desc, f"filter_tensor.sizes[{LEAD + index}]", reason)
        check_padded(desc, desc.input_tensor.sizes[LEAD:])


def _check_steps(desc: Any) -> None:
    check_positive(desc, "strides", "dilations")
    channels = desc.input_tensor.sizes[1]
    if desc.group_count < 1 or channels % desc.group_count:
        reason = f"must be a divisor of the channels of input_tensor ({channels}), got {desc.group_count}"
        raise invalid(desc, "group_count", reason)


def _check_filter(desc: Any, dimension: int, expected: int, why: str) -> None:
    got = desc.filter_tensor.sizes[dimension]
    if got != expected:
        raise invalid(desc, f"filter_tensor.sizes[{dimension}]", f"must be {expected} ({why}), got {got}")


# ---- parts of plans


def _grouped(tensor: PlanTensor, dimension: int, groups: int) -> PlanTensor:
    """Split one of a tensor's dimensions into groups and the channels of each."""
    return split(tensor, dimension, tensor.sizes[dimension] // groups)


def _grouped_output(desc: Any) -> PlanTensor:
    return _grouped(output_tensor(desc), 1, desc.group_count)


def _of_output(tensor: PlanTensor, desc: Any) -> PlanTensor:
    """Repeat a scale, zero point or bias over the grouped output."""
    return _grouped(per_channel(tensor, desc.output_tensor.sizes), 1, desc.group_count)


# ---- CONVOLUTION


class ConvolutionOperator(_Forward):
    """Sums and bias in float32, also of float16; rounded to the output's type before the activation.

    BACKWARD is the transpose of FORWARD in the same mode (with CROSS_CORRELATION ONNX's ConvTranspose): its filter has
    sizes {channels of the input, outputs / groups, window..}, and the elements that ``output_padding`` adds are
    computed like all others, so that they need not be zeros where there is ``end_padding``. Its output may be larger by
    less than a stride than the formula says, as if that were output padding: a convolution of all these sizes forward
    has the input's. (The page has no formula; a sample of Microsoft's for PyDirectML has such an output.) FORWARD takes
    no output padding, since the page does not say what it would mean.

    Windows of 3 x 3 in steps of 1 may go through Winograd's filtering: an infinity or NaN in the input then reaches all
    outputs of its tile of 4 x 4.
    """

    desc = descs.Convolution
    shaders = ("convolution/convolution", CONVERT, "window/taken", "layout/slice_grad")

    @classmethod
    def output_sizes(cls, desc: descs.Convolution) -> Mapping[str, Sizes]:
        """Return the output sizes; for BACKWARD the range covered by windows at all positions, less the padding."""
        if desc.direction is ConvolutionDirection.FORWARD:
            return super().output_sizes(desc)
        batch, _, *spatial = desc.input_tensor.sizes
        _, outputs, *window = desc.filter_tensor.sizes
        covered = (
            stride * (size - 1) + dilation * (places - 1) + 1
            for size, places, stride, dilation in zip(spatial, window, desc.strides, desc.dilations, strict=True)
        )
        ends = zip(covered, desc.start_padding, desc.end_padding, desc.output_padding, strict=True)
        sizes = (size - start - end + more for size, start, end, more in ends)
        return {"output_tensor": (batch, outputs * desc.group_count, *sizes)}

    @classmethod
    def check_output_sizes(cls, desc: descs.Convolution, expected: Sizes) -> None:
        """Check output sizes; BACKWARD accepts all sizes from which a forward convolution gives the input's."""
        if desc.direction is ConvolutionDirection.FORWARD:
            super().check_output_sizes(desc, expected)
            return
        sizes = desc.output_tensor.sizes
        slack = (1, 1, *desc.strides)
        if not all(low <= size < low + more for size, low, more in zip(sizes, expected, slack, strict=True)):
            largest = [low + more - 1 for low, more in zip(expected, slack, strict=True)]
            requirement = f"must be {list(expected)}" + (f", at most {largest}" if largest != list(expected) else "")
            raise invalid(desc, "output_tensor.sizes", f"{requirement} ({GIVEN}), got {list(sizes)}")

    @classmethod
    def check_channels(cls, desc: descs.Convolution) -> None:
        """For BACKWARD the filter has as many channels as the input."""
        if desc.direction is ConvolutionDirection.FORWARD:
            super().check_channels(desc)
        else:
            _check_filter(desc, 0, desc.input_tensor.sizes[1], "channels of input_tensor")

    @classmethod
    def check_room(cls, desc: descs.Convolution) -> None:
        """FORWARD: the window fits and there is no output padding; BACKWARD: the padding leaves some of the output."""
        if desc.direction is ConvolutionDirection.FORWARD:
            super().check_room(desc)
            if any(desc.output_padding):
                reason = f"must be 0 with direction FORWARD, got {list(desc.output_padding)}"
                raise invalid(desc, "output_padding", reason)
            return
        for index, size in enumerate(cls.output_sizes(desc)["output_tensor"][LEAD:]):
            if size < 1:
                padding = desc.start_padding[index] + desc.end_padding[index]
                reason = f"must leave at least 1 of the {size + padding} elements of the output, got {padding}"
                raise invalid(desc, f"start_padding[{index}] + end_padding[{index}]", reason)
        check_padded(desc, cls.output_sizes(desc)["output_tensor"][LEAD:])

    @classmethod
    def check_level(cls, desc: descs.Convolution, level: FeatureLevel) -> None:
        check_activation_level(desc, level)

    @classmethod
    def lower(cls, desc: descs.Convolution) -> Plan:
        """Lower to one convolution, or one per phase, with its epilogue."""
        output = _grouped_output(desc)
        forward = desc.direction is ConvolutionDirection.FORWARD
        convolution = _plain(desc) if forward else _transposed(desc)
        step = Convolve("", convolution, cls._epilogue(desc, output), output, transposed=not forward)
        return Plan(desc.operator, (step,))

    @classmethod
    def _epilogue(cls, desc: descs.Convolution, output: PlanTensor) -> Body:
        held = RegisterValue.product(FLOAT32, output.sizes)
        if desc.bias_tensor is None:
            body = cast(held, output.data_type)
        else:
            bias = _of_output(input_tensor(desc, "bias_tensor"), desc)
            values = constants(compute=FLOAT32)
            body = portable(cls.shaders[0], output, values=values, sum=held, bias=bias)
        return activated(body, desc.fused_activation)


def _plain(desc: descs.Convolution) -> Convolution:
    """Return the sums of FORWARD."""
    source, filters = _operands(desc)
    return Convolution(source, filters, ConvolutionOperator.windows(desc), FLOAT32, desc.filter_tensor.owned_by_dml)


def _transposed(desc: descs.Convolution) -> Convolution:
    """Return the sums of BACKWARD: windows slide over the output (see ``Convolve.transposed``)."""
    source, filters = _operands(desc)
    spatial = zip(desc.output_tensor.sizes, desc.input_tensor.sizes, desc.filter_tensor.sizes, strict=True)
    slides = zip(desc.strides, desc.dilations, desc.start_padding, strict=True)
    windows = tuple(WindowAxis(*sizes, *slide) for sizes, slide in zip(list(spatial)[LEAD:], slides, strict=True))
    filters = permuted(filters, (0, 2, 1, *range(3, filters.rank)))
    return Convolution(source, filters, windows, FLOAT32, desc.filter_tensor.owned_by_dml)


def _operands(desc: descs.Convolution) -> tuple[PlanTensor, PlanTensor]:
    """Return input and filter in groups; with mode CONVOLUTION the window is reversed."""
    source = _grouped(input_tensor(desc, "input_tensor"), 1, desc.group_count)
    filters = _grouped(input_tensor(desc, "filter_tensor"), 0, desc.group_count)
    if desc.mode is ConvolutionMode.CROSS_CORRELATION:
        return source, filters
    start = (0, 0, 0, *(size - 1 for size in filters.sizes[3:]))
    return source, stepped(filters, filters.sizes, start, (1, 1, 1, *(-1 for _ in filters.sizes[3:])))


# ---- integers


def _differences(desc: Any, name: str, dimension: int) -> Source:
    """Return the grouped input or filter, less its zero point, in the type of the sums."""
    tensor = input_tensor(desc, f"{name}_tensor")
    values = _grouped(tensor, dimension, desc.group_count)
    if getattr(desc, f"{name}_zero_point_tensor") is None:
        return cast(values, INT32)
    zero = per_channel(input_tensor(desc, f"{name}_zero_point_tensor"), tensor.sizes, dimension)
    return difference(values, _grouped(zero, dimension, desc.group_count), INT32)


class _Integers(_Forward):
    """Forward cross-correlation of 8-bit integers.

    What lies in the padding counts as the zero point, that is, adds nothing. A missing zero point is 0. Sums wrap
    around beyond 2**31. Scales and zero points of input and output come one for all, those of the filter also one per
    output: along the second dimension, or the only one.
    """

    single: ClassVar[tuple[str, ...]] = ("input_zero_point_tensor",)
    several: ClassVar[tuple[str, ...]] = ("filter_zero_point_tensor",)

    @classmethod
    def check(cls, desc: Any) -> None:
        super().check(desc)
        for field in cls.single:
            tensor = getattr(desc, field)
            if tensor is not None:
                check_sizes(desc, field, (1,) * tensor.dimension_count, "one for all")
        for field in cls.several:
            check_per_channel(desc, field, desc.filter_tensor.sizes[0])

    @classmethod
    def convolution(cls, desc: Any) -> Convolution:
        """Return the convolution of input and filter, each less its zero point."""
        owned = [tensor.owned_by_dml for tensor in (desc.filter_tensor, desc.filter_zero_point_tensor) if tensor]
        source, filters = _differences(desc, "input", 1), _differences(desc, "filter", 0)
        return Convolution(source, filters, cls.windows(desc), INT32, all(owned))


class ConvolutionInteger(_Integers):
    """The plain sums."""

    desc = descs.ConvolutionInteger
    shaders = ("convolution/convolution_integer", DIFFERENCE, CONVERT, "window/taken")

    @classmethod
    def lower(cls, desc: descs.ConvolutionInteger) -> Plan:
        output = _grouped_output(desc)
        body = apply(cls.shaders[0], INT32, output.sizes, portable=True, sum=RegisterValue.product(INT32, output.sizes))
        return Plan(desc.operator, (Convolve("", cls.convolution(desc), body, output),))


class QuantizedLinearConvolution(_Integers):
    """clamp(round((sum + bias) * (scale of input * scale of filter) / scale of output) + its zero point).

    The bias counts in units of the product of the scales and is added to the sum in INT32, as in onnxruntime (the page
    is silent). The following steps are float32; the quotient is rounded once to an integer with ties to even, and the
    zero point is added in integers. A first, small kernel packs scales, biases and the output's zero point into one
    tensor.
    """

    desc = descs.QuantizedLinearConvolution
    shaders = (QUANTIZED_PRODUCT, "convolution/biased_sum", GATHERED, DIFFERENCE, CONVERT, "window/taken")
    single = ("input_scale_tensor", "input_zero_point_tensor", "output_scale_tensor", "output_zero_point_tensor")
    several = ("filter_scale_tensor", "filter_zero_point_tensor")
    gathered: ClassVar[tuple[str, ...]] = (
        "input_scale_tensor",
        "filter_scale_tensor",
        "output_scale_tensor",
        "output_zero_point_tensor",
        "bias_tensor",
    )

    @classmethod
    def lower(cls, desc: descs.QuantizedLinearConvolution) -> Plan:
        """Lower to a copy of the parameters into one tensor, and the convolution with an epilogue."""
        parameters = parameters_of(desc, cls.gathered)
        step, buffer = gather(parameters)
        views = {parameter.field: _of_output(parameter.view(buffer), desc) for parameter in parameters}
        output = _grouped_output(desc)
        body = cls._epilogue(output, views)
        return Plan(desc.operator, (step, Convolve("", cls.convolution(desc), body, output)))

    @classmethod
    def _epilogue(cls, output: PlanTensor, parameters: Mapping[str, PlanTensor]) -> Body:
        total: Source = RegisterValue.product(INT32, output.sizes)
        if "bias_tensor" in parameters:
            total = apply(cls.shaders[1], INT32, output.sizes, portable=True, sum=total, bias=parameters["bias_tensor"])
        low, high = limits(output.data_type)
        return portable(
            QUANTIZED_PRODUCT,
            output,
            values=constants(compute=FLOAT32, low=low, high=high),
            product=total,
            a_scale=parameters["input_scale_tensor"],
            b_scale=parameters["filter_scale_tensor"],
            scale=parameters["output_scale_tensor"],
            zero_point=parameters.get("output_zero_point_tensor") or no_zero_point(output.sizes),
        )
