"""Operators that crop regions of interest and scale them to one size, pooled in bins or sampled (ROI align), and the
gradients of the latter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, InterpolationMode, ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.operators.indexing import last_dimensions
from dmlgpu.compiler.operators.lowering import (
    Lowering,
    check_sizes,
    input_tensor,
    invalid,
    output_tensor,
)
from dmlgpu.compiler.plan import (
    Element,
    Lookup,
    Loop,
    Map,
    Plan,
    PlanTensor,
    RegionAxis,
    RegionGradient,
    Sampling,
    Sizes,
    Step,
    View,
    constants,
    element,
)
from dmlgpu.compiler.rewrites.resampling import bits_of_float

FLOAT32, UINT32 = DataType.FLOAT32, DataType.UINT32

MAX_SAMPLES = 256
"""Maximum MinimumSamplesPerOutput: more samples than the input has elements mostly lie between the same elements.
(The number of samples that follows from a region's size needs no limit: only those inside the input are read.)"""

BESIDE = 8
"""Number of samples that shaders check in addition to those on the input: at the edges, and for rounding."""

ZERO = "layout/zero"

INCLUDED = ("regions/sampling", "regions/samples", "regions/interpolated")
"""Files that the shaders of ROI align include."""


def _check_sampling(desc: Any) -> int:
    """Raise InvalidDescription unless regions, their batches and the sampling parameters match.

    Returns:
        The number of regions.
    """
    *ones, regions, _ = desc.roi_tensor.sizes
    expected = (*(1 for _ in ones), regions, 4)
    check_sizes(desc, "roi_tensor", expected, "leading 1s, regions, 4 numbers of each")
    leading = (1,) * (desc.batch_indices_tensor.dimension_count - 1)
    check_sizes(desc, "batch_indices_tensor", (*leading, regions), "leading 1s, one index per region")
    if desc.reduction_function not in (ReduceFunction.AVERAGE, ReduceFunction.MAX):
        raise invalid(desc, "reduction_function", f"must be AVERAGE or MAX, got {desc.reduction_function.name}")
    for field in ("spatial_scale_x", "spatial_scale_y", "input_pixel_offset", "output_pixel_offset"):
        _check_finite(desc, field)
    fewest, most = desc.minimum_samples_per_output, desc.maximum_samples_per_output
    if fewest > MAX_SAMPLES:
        raise invalid(desc, "minimum_samples_per_output", f"must be at most {MAX_SAMPLES}, got {fewest}")
    if most < 1:
        raise invalid(desc, "maximum_samples_per_output", f"must be at least 1, got {most}")
    if fewest > most:
        reason = f"must be at most maximum_samples_per_output ({most}), got {fewest}"
        raise invalid(desc, "minimum_samples_per_output", reason)
    return int(regions)


def _check_finite(desc: OperatorDesc, field: str) -> None:
    """Raise InvalidDescription for an infinite number, or NaN; a description may lack the field."""
    value = getattr(desc, field, 0.0)
    if not math.isfinite(value):
        raise invalid(desc, field, f"must be finite, got {value}")


def _region_inputs(desc: OperatorDesc) -> dict[str, PlanTensor]:
    """Return the regions, {regions, 4}, and their batch indices, {regions}."""
    return {
        "roi": last_dimensions(input_tensor(desc, "roi_tensor"), 2),
        "batch": last_dimensions(input_tensor(desc, "batch_indices_tensor", View.INDEX), 1),
    }


def sampling_of(desc: Any, spatial: Sizes, outputs: Sizes) -> Sampling:
    """Return the sampling of regions by ROI_ALIGN1 or its gradient.

    Args:
        desc: the description.
        spatial, outputs: height and width of the forward operator's input and output.
    """
    fewest, most = max(desc.minimum_samples_per_output, 1), desc.maximum_samples_per_output
    inset = 1 if desc.align_regions_to_corners else 0
    scales = (desc.spatial_scale_y, desc.spatial_scale_x)
    y, x = (
        # If the region's size decides their number, samples are about one element apart; a minimum number brings them
        # closer.
        RegionAxis(name, entry, n, m, bits_of_float(scale), inset - 1, n - inset, min(most, max(fewest, n + BESIDE)))
        for name, entry, n, m, scale in zip("yx", (1, 0), spatial, outputs, scales, strict=True)
    )
    return Sampling(
        (y, x),
        fewest,
        most,
        desc.interpolation_mode is InterpolationMode.LINEAR,
        desc.align_regions_to_corners,
        bits_of_float(desc.input_pixel_offset),
        bits_of_float(desc.output_pixel_offset),
    )


class RoiPooling(Lowering):
    """The largest element of each bin of a region, moved bit by bit.

    The page does not specify the following: corners are scaled in float32 and rounded to integers with ties away from
    zero, and a region whose second corner lies before its first has one row or column, as in onnxruntime's MaxRoiPool.
    Bins have integer bounds: their starts are rounded down, their ends up. A bin without elements gives 0, and so does
    a region with an invalid batch index (of a fraction, the integer part counts). As in MAX_POOLING2, the first of
    equal elements is taken, 0 and -0 are equal, and NaN is taken only if all elements are NaN.
    """

    desc = descs.RoiPooling
    shaders = ("regions/roi_pooling", "regions/largest")
    most_bins = 1 << 16

    @classmethod
    def output_sizes(cls, desc: descs.RoiPooling) -> Mapping[str, tuple[int, ...]]:
        """{regions, channels, height, width}."""
        pooled = desc.pooled_size
        return {"output_tensor": (desc.roi_tensor.sizes[2], desc.input_tensor.sizes[1], pooled.height, pooled.width)}

    @classmethod
    def check(cls, desc: descs.RoiPooling) -> None:
        check_sizes(desc, "roi_tensor", (1, 1, desc.roi_tensor.sizes[2], 5), "1, 1, regions, 5 numbers of each")
        expected = cls.output_sizes(desc)["output_tensor"]
        check_sizes(desc, "output_tensor", expected, "regions, channels, pooled_size")
        _check_finite(desc, "spatial_scale")
        for name, size in zip(("height", "width"), expected[2:], strict=True):
            if size > cls.most_bins:
                raise invalid(desc, f"pooled_size.{name}", f"must be at most {cls.most_bins}, got {size}")

    @classmethod
    def lower(cls, desc: descs.RoiPooling) -> Plan:
        """Lower to the positions of the largest elements, then a gather."""
        file, largest = cls.shaders
        output, source = output_tensor(desc), input_tensor(desc, "input_tensor")
        values = constants(scale_bits=bits_of_float(desc.spatial_scale))
        roi = last_dimensions(input_tensor(desc, "roi_tensor"), 2)
        places = PlanTensor.temporary("largest", UINT32, output.sizes)
        body = element(largest, UINT32, output.sizes, portable=True, values=values, input=source, roi=roi)
        values = constants(count=math.prod(source.sizes), steps=packed_strides(source.sizes))
        inputs = (
            ("input", input_tensor(desc, "input_tensor", View.RAW)),
            ("largest", replace(places, view=View.INDEX)),
        )
        alone = ((None,) * output.rank,) * 2
        moved = Lookup(file, output.data_type, output.sizes, inputs, values, follows=alone)
        search = Loop("", body, places, block=(source.sizes[2], source.sizes[3]))
        return Plan(desc.operator, (search, Map("take", moved, output)))


class RoiAlign1(Lowering):
    """The mean or the maximum of samples of a region. Where the page is silent or contradicts itself:

    Along each axis there are clamp(ceil(size of the region / size of the output), MinimumSamplesPerOutput,
    MaximumSamplesPerOutput) samples per output element, at least one; a mirrored region, whose size is negative, has
    the minimum. (The page's loops take one more, and its step along y repeats that along x.) Sample s of n along an
    axis, counted through all output elements, lies at

        x1 + (s - OutputPixelOffset) * step - InputPixelOffset    with step = (x2 - x1) / n

    in scaled coordinates, each step rounded to float32. With AlignRegionsToCorners step = (x2 - x1) / (n - 1), and the
    only sample, if n is 1, lies in the middle: so TensorFlow's crop_and_resize has it, for which DirectML is used so.

    A sample below -1 or above the size of the input lies outside, as in ONNX's RoiAlign; with AlignRegionsToCorners one
    below 0 or above the size less 1, as in TensorFlow. It counts as OutOfBoundsInputValue. Others are clamped to the
    input; nearest-neighbor interpolation rounds ties down, as the page's example requires. A region lies outside if its
    batch index is invalid, or if its corners are not finite. A NaN makes the mean and the maximum NaN. (ONNX's MAX is
    another function: it takes the largest of the four weighted elements.)

    A MinimumSamplesPerOutput above 256 is rejected: it would sample the same few elements repeatedly.

    All is computed in float32 and rounded once to the output's type; sums are compensated for rounding errors.
    """

    desc = descs.RoiAlign1
    shaders = ("regions/roi_align1", *INCLUDED)

    @classmethod
    def check(cls, desc: descs.RoiAlign1) -> None:
        regions = _check_sampling(desc)
        expected = (regions, desc.input_tensor.sizes[1], *desc.output_tensor.sizes[2:])
        check_sizes(desc, "output_tensor", expected, "regions, channels, any height and width")

    @classmethod
    def lower(cls, desc: descs.RoiAlign1) -> Plan:
        output = output_tensor(desc)
        sampling = sampling_of(desc, desc.input_tensor.sizes[2:], output.sizes[2:])
        outside = bits_of_float(desc.out_of_bounds_input_value)
        maximum = desc.reduction_function is ReduceFunction.MAX
        values = sampling.values(maximum=maximum, outside_bits=outside, outside_counts=outside << 1 != 0)
        inputs = {"input": input_tensor(desc, "input_tensor"), **_region_inputs(desc)}
        body = element(cls.shaders[0], FLOAT32, output.sizes, portable=True, values=values, **inputs)
        return Plan(desc.operator, (Loop("", body, output, block=sampling.block),))


Lowering.older(
    descs.RoiAlign,
    descs.RoiAlign1,
    "ROI_ALIGN1 with pixels at their centers and regions not aligned to corners.",
    input_pixel_offset=0.5,
    output_pixel_offset=-0.5,
    align_regions_to_corners=False,
)


class RoiAlignGrad(Lowering):
    """ROI_ALIGN1's derivatives times InputGradient. The page is incomplete or contradictory on the following:

    Samples lie as in ROI_ALIGN1. AVERAGE gives each of them an equal share of the gradient; MAX gives all of it to the
    largest, the first of equal ones in row-major order. NaN counts as largest, samples outside the input count as 0; if
    one of these is the largest, the gradient is dropped.

    OutputROIGradient follows the chain rule: d coordinate / d x1 = SpatialScaleX * (1 - f) and d coordinate / d x2 =
    SpatialScaleX * f, where f is the relative position of the sample in the region (the page's pseudo-code has the
    gradient's coordinates and an undefined size in their place, which differ by a factor). As there, the slope of the
    input is 0 at integer coordinates, and also where coordinates are clamped to the input. The numbers of samples count
    as constant. With nearest-neighbor interpolation OutputROIGradient is 0.

    Every element is summed in twice the precision of float32, always in the same order.
    """

    desc = descs.RoiAlignGrad
    shaders = (
        "regions/roi_align_grad",
        "regions/roi_align_grad_regions",
        "regions/weights",
        "regions/touched",
        "regions/reaching",
        "regions/winner",
        "regions/winning_place",
        "regions/winning",
        "regions/fractions",
        *INCLUDED,
    )

    @classmethod
    def output_sizes(cls, desc: descs.RoiAlignGrad) -> Mapping[str, tuple[int, ...]]:
        """Return the sizes of the regions, and of the input if it is present."""
        like = {"output_roi_gradient_tensor": desc.roi_tensor}
        if desc.input_tensor is not None:
            like["output_gradient_tensor"] = desc.input_tensor
        return {field: tensor.sizes for field, tensor in like.items() if getattr(desc, field) is not None}

    @classmethod
    def check(cls, desc: descs.RoiAlignGrad) -> None:
        regions = _check_sampling(desc)
        _check_given(desc)
        whole = "input_tensor" if desc.output_gradient_tensor is None else "output_gradient_tensor"
        sizes = getattr(desc, whole).sizes
        expected = (regions, sizes[1], *desc.input_gradient_tensor.sizes[2:])
        check_sizes(desc, "input_gradient_tensor", expected, "regions, channels, any height and width")
        if desc.input_tensor is not None:
            check_sizes(desc, "input_tensor", sizes, f"{whole}.sizes")
        if desc.output_roi_gradient_tensor is not None:
            check_sizes(desc, "output_roi_gradient_tensor", desc.roi_tensor.sizes, "roi_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.RoiAlignGrad) -> Plan:
        """Lower either gradient, or both; that of regions is 0 if samples do not move with them."""
        output, region_output = None, None
        if desc.output_gradient_tensor is not None:
            output = output_tensor(desc, "output_gradient_tensor")
        if desc.output_roi_gradient_tensor is not None:
            region_output = last_dimensions(output_tensor(desc, "output_roi_gradient_tensor"), 2)
        whole = desc.output_gradient_tensor or desc.input_tensor
        assert whole is not None
        gradient = input_tensor(desc, "input_gradient_tensor")
        sampling = sampling_of(desc, whole.sizes[2:], gradient.sizes[2:])
        steps: list[Step] = []
        if region_output is not None and not sampling.linear:
            steps.append(Map("zeros", Element(ZERO, region_output.data_type, region_output.sizes), region_output))
            region_output = None
        if output is not None or region_output is not None:
            source = None if desc.input_tensor is None else input_tensor(desc, "input_tensor")
            maximum = desc.reduction_function is ReduceFunction.MAX
            roi, batch = _region_inputs(desc).values()
            gradients = RegionGradient("", sampling, gradient, roi, batch, source, maximum, output, region_output)
            steps.insert(0, gradients)
        return Plan(desc.operator, tuple(steps))


def _check_given(desc: descs.RoiAlignGrad) -> None:
    """Raise InvalidDescription if a tensor that is optional elsewhere is missing."""
    if desc.output_gradient_tensor is None and desc.output_roi_gradient_tensor is None:
        raise invalid(desc, "output_gradient_tensor", "must be given where output_roi_gradient_tensor is not, got None")
    if desc.input_tensor is None and desc.output_roi_gradient_tensor is not None:
        raise invalid(desc, "input_tensor", "must be given where output_roi_gradient_tensor is, got None")
    if desc.input_tensor is None and desc.reduction_function is ReduceFunction.MAX:
        raise invalid(desc, "input_tensor", "must be given where reduction_function is MAX, got None")
