"""Operators that crop regions of interest and bring them to one size: pooled in bins, or sampled (ROI align)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.operators.indices import last_dimensions
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, input_tensor, invalid, output_tensor
from dmlgpu.compiler.plan import Lookup, Map, Plan, Source, Tensor, View, constants
from dmlgpu.compiler.rewrites.regions import Sampling, Shares, Work, element
from dmlgpu.compiler.rewrites.resampling import bits_of_float
from dmlgpu.compiler.target import Target

FLOAT32, UINT32 = DataType.FLOAT32, DataType.UINT32

MOST_SAMPLES = 256
"""Samples of one output element along an axis that a description may ask for whatever the size of the region: of more
than its input has elements, most lie between the same neighbours. (Those that a region's size asks for are looked at
only where they lie on the input, which bounds them.)"""

INCLUDED = ("regions/sampling", "regions/samples", "regions/interpolated")
"""What the shaders of ROI align share."""


def check_sampling(desc: Any) -> int:
    """Raise InvalidDescription unless regions, their batches and how they are sampled fit together.

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
        check_finite(desc, field)
    fewest, most = desc.minimum_samples_per_output, desc.maximum_samples_per_output
    if fewest > MOST_SAMPLES:
        raise invalid(desc, "minimum_samples_per_output", f"must be at most {MOST_SAMPLES}, got {fewest}")
    if most < 1:
        raise invalid(desc, "maximum_samples_per_output", f"must be at least 1, got {most}")
    if fewest > most:
        reason = f"must be at most maximum_samples_per_output ({most}), got {fewest}"
        raise invalid(desc, "minimum_samples_per_output", reason)
    return int(regions)


def check_finite(desc: OperatorDesc, field: str) -> None:
    """Raise InvalidDescription for an infinite number, or NaN; a description may lack the field."""
    value = getattr(desc, field, 0.0)
    if not math.isfinite(value):
        raise invalid(desc, field, f"must be finite, got {value}")


def region_inputs(desc: OperatorDesc) -> dict[str, Source]:
    """Return the regions, {regions, 4}, and the batches that they lie in, {regions}."""
    return {
        "roi": last_dimensions(input_tensor(desc, "roi_tensor"), 2),
        "batch": last_dimensions(input_tensor(desc, "batch_indices_tensor", View.INDEX), 1),
    }


class RoiPooling(Lowering):
    """The largest element of each bin of a region, moved bit by bit.

    Where the page is silent: corners are scaled in float32 and rounded to integers, halves away from zero, and a region
    whose second corner lies before its first has one row or column, as in onnxruntime's MaxRoiPool. Bins divide it in
    integers: their first elements are rounded down, their ends up. A bin without elements gives 0, and so does a region
    of a batch that there is not (of a fraction, the integer part counts). As in MAX_POOLING2, the first of equal
    elements is taken, 0 and -0 are equal, and NaN is taken only where there is no number.
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
        check_finite(desc, "spatial_scale")
        for name, size in zip(("height", "width"), expected[2:], strict=True):
            if size > cls.most_bins:
                raise invalid(desc, f"pooled_size.{name}", f"must be at most {cls.most_bins}, got {size}")

    @classmethod
    def lower(cls, desc: descs.RoiPooling, target: Target) -> Plan:
        """Where the largest elements are; a map takes them from there."""
        file, largest = cls.shaders
        output, source, work = output_tensor(desc), input_tensor(desc, "input_tensor"), Work(target)
        values = constants(scale_bits=bits_of_float(desc.spatial_scale))
        roi = last_dimensions(input_tensor(desc, "roi_tensor"), 2)
        found = Tensor.temporary("largest", UINT32, output.sizes)
        body = element(largest, UINT32, output.sizes, portable=True, values=values, input=source, roi=roi)
        work.in_shares(body, found, Shares.of(source.sizes[2], source.sizes[3], target))
        values = constants(count=math.prod(source.sizes), steps=packed_strides(source.sizes))
        inputs = (
            ("input", input_tensor(desc, "input_tensor", View.RAW)),
            ("largest", replace(found, view=View.INDEX)),
        )
        alone = ((None,) * output.rank,) * 2
        moved = Lookup(file, output.data_type, output.sizes, inputs, values, follows=alone)
        work.steps.append(Map("take", moved, output))
        return work.plan(desc.operator)


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
    input; the nearest neighbour of a half is the lower element, as the page's example needs it. A region lies outside
    if there is no such batch, or if its corners are not finite. A NaN makes the mean and the maximum NaN. (ONNX's MAX
    is another function: it takes the largest of the weighted neighbours.)

    A MinimumSamplesPerOutput above 256 is refused: it would ask for work without end on a few elements.

    All is computed in float32 and rounded once to the output's type; sums keep their rounding errors.
    """

    desc = descs.RoiAlign1
    shaders = ("regions/roi_align1", *INCLUDED)

    @classmethod
    def check(cls, desc: descs.RoiAlign1) -> None:
        regions = check_sampling(desc)
        expected = (regions, desc.input_tensor.sizes[1], *desc.output_tensor.sizes[2:])
        check_sizes(desc, "output_tensor", expected, "regions, channels, any height and width")

    @classmethod
    def lower(cls, desc: descs.RoiAlign1, target: Target) -> Plan:
        """One map, or several where loops must be short."""
        output, work = output_tensor(desc), Work(target)
        sampling = Sampling.of(desc, desc.input_tensor.sizes[2:], output.sizes[2:])
        outside = bits_of_float(desc.out_of_bounds_input_value)
        maximum = desc.reduction_function is ReduceFunction.MAX
        values = sampling.values(maximum=maximum, outside_bits=outside, outside_counts=outside << 1 != 0)
        inputs = {"input": input_tensor(desc, "input_tensor"), **region_inputs(desc)}
        body = element(cls.shaders[0], FLOAT32, output.sizes, portable=True, values=values, **inputs)
        work.in_shares(body, output, sampling.shares(target))
        return work.plan(desc.operator)


class RoiAlign(Lowering):
    """ROI_ALIGN1 with pixels at their centres and regions not aligned to corners."""

    desc = descs.RoiAlign
    newer = descs.RoiAlign1
    filled: ClassVar[Mapping[str, Any]] = {
        "input_pixel_offset": 0.5,
        "output_pixel_offset": -0.5,
        "align_regions_to_corners": False,
    }
