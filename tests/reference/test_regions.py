"""Regions of interest against onnxruntime, ONNX's evaluator and formulas written here; gradients against central
differences of the forward operator."""

import itertools
import math

import numpy as np
import pytest

from dmlgpu import descs, reference
from dmlgpu.catalog.enums import DataType, InterpolationMode, ReduceFunction
from dmlgpu.catalog.operator_desc import Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference.helpers import bits, run, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

AVERAGE, MAX = ReduceFunction.AVERAGE, ReduceFunction.MAX
NEAREST, LINEAR = InterpolationMode.NEAREST_NEIGHBOR, InterpolationMode.LINEAR
ANY = 2**32 - 1

IMAGE = np.random.default_rng(0).standard_normal((2, 3, 9, 12)).astype(np.float32)
REGIONS = np.array(
    [[0, 0, 24, 18], [3, 2, 9.5, 7], [-2, -1.5, 8, 30], [20, 15, 31, 29], [40, 40, 50, 50], [4.25, 3, 6.5, 17]],
    np.float32,
)
BATCHES = np.array([0, 1, 1, 0, 0, 1], np.uint32)


def align(image=IMAGE, regions=REGIONS, batches=BATCHES, size=(4, 5), **attributes):
    """A description of ROI_ALIGN1, with defaults."""
    defaults = {
        "reduction_function": AVERAGE,
        "interpolation_mode": LINEAR,
        "spatial_scale_x": 0.5,
        "spatial_scale_y": 0.5,
        "input_pixel_offset": 0.5,
        "output_pixel_offset": -0.5,
        "out_of_bounds_input_value": 0.0,
        "minimum_samples_per_output": 2,
        "maximum_samples_per_output": 2,
        "align_regions_to_corners": False,
    }
    output = TensorDesc(DataType.from_numpy(image.dtype), (len(regions), image.shape[1], *size))
    return descs.RoiAlign1(
        input_tensor=tensor(image),
        roi_tensor=tensor(regions),
        batch_indices_tensor=tensor(batches),
        output_tensor=output,
        **(defaults | attributes),
    )


# ---- pooling


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.0625])
@pytest.mark.parametrize("size", [(1, 1), (3, 2), (7, 7)])
def test_pooling_like_onnxruntime(scale, size):
    rng = np.random.default_rng(1)
    corners = np.concatenate([REGIONS, np.sort(rng.uniform(-4, 14, (9, 2, 2)), 1).reshape(9, 4), [[5, 6, 3, 1]]])
    corners[6:12] = np.round(2 * corners[6:12]) / 2  # halves, which are rounded away from zero
    batches = np.concatenate([BATCHES, rng.integers(0, 2, 10)])
    rois = np.concatenate([batches[:, None], corners / (2 * scale)], 1).astype(np.float32)
    expected = onnx_runtime("MaxRoiPool", [IMAGE, rois], pooled_shape=size, spatial_scale=scale)
    assert (expected == 0).any() and (expected != 0).any()
    got = run(pooling(rois, scale, size), IMAGE, rois[None, None])
    np.testing.assert_array_equal(got, expected)


def pooling(rois, scale, size, image=IMAGE):
    return descs.RoiPooling(
        input_tensor=tensor(image),
        roi_tensor=tensor(rois[None, None]),
        output_tensor=TensorDesc(DataType.FLOAT32, (len(rois), image.shape[1], *size)),
        spatial_scale=scale,
        pooled_size=Size2D(size[1], size[0]),
    )


def test_pooling_moves_bits_and_takes_the_first_of_equal_elements():
    image = np.array([-0.0, 0.0, np.nan, np.nan, -np.inf, np.nan, 3.0, 2.0], np.float32).reshape(1, 1, 1, 8)
    rois = np.array([[0, 0, 0, 7, 0], [-1, 0, 0, 7, 0], [1, 0, 0, 7, 0], [np.nan, 0, 0, 7, 0]], np.float32)
    got = run(pooling(rois, 1.0, (1, 4), image), image, rois[None, None])
    expected = np.zeros((4, 1, 1, 4), np.float32)
    expected[0] = [-0.0, np.nan, -np.inf, 3.0]
    np.testing.assert_array_equal(bits(got), bits(expected))


# ---- sampling


@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("oracle", [onnx_runtime, onnx_reference])
def test_mean_of_interpolated_samples_like_onnx(mode, ratio, oracle):
    expected = oracle(
        "RoiAlign",
        [IMAGE, REGIONS, BATCHES.astype(np.int64)],
        coordinate_transformation_mode=mode,
        mode="avg",
        output_height=4,
        output_width=5,
        sampling_ratio=ratio,
        spatial_scale=0.5,
    )
    desc = align(
        input_pixel_offset=0.5 if mode == "half_pixel" else 0.0,
        minimum_samples_per_output=ratio or 1,
        maximum_samples_per_output=ratio or ANY,
    )
    got = run(desc, IMAGE, REGIONS, BATCHES)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_maximum_at_whole_coordinates_like_onnxruntime():
    regions = np.array([[0, 0, 8, 4], [2, 1, 10, 5]], np.float32)
    batches = np.array([1, 0], np.uint32)
    words = {"output_height": 2, "output_width": 4, "sampling_ratio": 2, "spatial_scale": 1.0, "mode": "max"}
    expected = onnx_runtime(
        "RoiAlign",
        [np.abs(IMAGE), regions, batches.astype(np.int64)],
        coordinate_transformation_mode="half_pixel",
        **words,
    )
    options = {"spatial_scale_x": 1.0, "spatial_scale_y": 1.0, "reduction_function": MAX}
    desc = align(regions=regions, batches=batches, size=(2, 4), **options)
    np.testing.assert_array_equal(run(desc, np.abs(IMAGE), regions, batches), expected)


def naive(desc, plane, region, row, column):
    """One output element by the page's loops, one sample at a time, in Python's floats."""
    scales = (desc.spatial_scale_x, desc.spatial_scale_y) * 2
    x1, y1, x2, y2 = (float(number) * scale for number, scale in zip(region, scales, strict=True))
    result = [
        naive_sample(desc, plane, y, x)
        for y in naive_coordinates(desc, y1, y2, desc.output_tensor.sizes[2], row)
        for x in naive_coordinates(desc, x1, x2, desc.output_tensor.sizes[3], column)
    ]
    return max(result) if desc.reduction_function is MAX else sum(result) / len(result)


def naive_coordinates(desc, near, far, outputs, output):
    expected = math.ceil((far - near) / outputs)
    count = min(max(expected, desc.minimum_samples_per_output), desc.maximum_samples_per_output)
    for sample in range(output * count, (output + 1) * count):
        moved = sample - desc.output_pixel_offset
        if not desc.align_regions_to_corners:
            yield near + moved * (far - near) / (outputs * count) - desc.input_pixel_offset
        elif outputs * count == 1:
            yield (near + far) / 2 - desc.input_pixel_offset
        else:
            yield near + moved * (far - near) / (outputs * count - 1) - desc.input_pixel_offset


def naive_sample(desc, plane, y, x):
    height, width = plane.shape
    inset = 1 if desc.align_regions_to_corners else 0
    if not (inset - 1 <= y <= height - inset and inset - 1 <= x <= width - inset):
        return desc.out_of_bounds_input_value
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    if desc.interpolation_mode is NEAREST:
        return plane[math.ceil(y - 0.5), math.ceil(x - 0.5)]
    rows = {math.floor(y): 1 - y % 1, math.floor(y) + 1: y % 1}
    columns = {math.floor(x): 1 - x % 1, math.floor(x) + 1: x % 1}
    pairs = itertools.product(rows.items(), columns.items())
    return sum(above * beside * plane[r, c] for (r, above), (c, beside) in pairs if above * beside)


@pytest.mark.parametrize("function", [AVERAGE, MAX])
@pytest.mark.parametrize("mode", [NEAREST, LINEAR])
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("samples", [(1, 1), (0, 3), (3, ANY)])
def test_samples_by_the_pages_loops(function, mode, corners, samples):
    regions = REGIONS + np.float32(0.37)
    regions[1] = regions[1, [2, 1, 0, 3]]  # mirrored
    regions[3, 2:] = regions[3, :2]  # empty
    desc = align(
        regions=regions,
        reduction_function=function,
        interpolation_mode=mode,
        out_of_bounds_input_value=0.25,
        spatial_scale_x=0.4,
        minimum_samples_per_output=max(samples[0], 1),
        maximum_samples_per_output=samples[1],
        input_pixel_offset=0.3,
        output_pixel_offset=0.0 if corners else -0.4,
        align_regions_to_corners=corners,
    )
    expected = np.zeros(desc.output_tensor.sizes)
    for place in np.ndindex(expected.shape):
        plane = IMAGE[BATCHES[place[0]], place[1]].astype(float)
        expected[place] = naive(desc, plane, regions[place[0]], *place[2:])
    got = run(desc.replace(minimum_samples_per_output=samples[0]), IMAGE, regions, BATCHES)
    assert {0.25} < set(got.ravel().tolist())
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("mode", [NEAREST, LINEAR])
def test_aligned_corners_crop_and_resize_as_tensorflow_does(mode):
    boxes = np.array([[0, 0, 1, 1], [0.2, 0.1, 0.7, 0.9], [0.9, 0.3, 0.4, 1.2]], np.float32)  # y1, x1, y2, x2
    height, width = IMAGE.shape[2:]
    desc = align(
        regions=boxes[:, [1, 0, 3, 2]],
        batches=BATCHES[:3],
        size=(3, 1),
        interpolation_mode=mode,
        spatial_scale_x=width - 1.0,
        spatial_scale_y=height - 1.0,
        input_pixel_offset=0.0,
        output_pixel_offset=0.0,
        out_of_bounds_input_value=7.0,
        minimum_samples_per_output=1,
        maximum_samples_per_output=1,
        align_regions_to_corners=True,
    )
    got = run(desc, IMAGE, boxes[:, [1, 0, 3, 2]], BATCHES[:3])
    for (index, box), row in itertools.product(enumerate(boxes.astype(float)), range(3)):
        y = box[0] * (height - 1) + row * (box[2] - box[0]) * (height - 1) / 2
        x = 0.5 * (box[1] + box[3]) * (width - 1)
        expected = [naive_sample(desc, plane.astype(float), y, x) for plane in IMAGE[BATCHES[index]]]
        np.testing.assert_allclose(got[index, :, row, 0], expected, rtol=2e-5, atol=1e-6)


def test_the_older_operator_has_pixels_at_their_centers():
    names = [name for name in descs.RoiAlign.__dataclass_fields__ if name != "operator"]
    newer = align(minimum_samples_per_output=1, maximum_samples_per_output=3, reduction_function=MAX)
    older = descs.RoiAlign(**{name: getattr(newer, name) for name in names})
    inputs = (IMAGE, REGIONS, BATCHES)
    np.testing.assert_array_equal(run(older, *inputs), run(newer, *inputs))


def test_invalid_regions_lie_outside():
    regions = np.array([[0, 0, 8, 8], [0, 0, np.nan, 8], [0, 0, np.inf, 8], [0, 0, 8, 8]], np.float32)
    batches = np.array([0, 0, 0, 2], np.uint32)
    desc = align(regions=regions, batches=batches, out_of_bounds_input_value=5.0)
    got = run(desc, IMAGE, regions, batches)
    assert (got[0] != 5).all() and (got[1:] == 5).all()


# ---- gradients


def gradient_of(forward, regions, *, to_input, to_regions):
    """The gradient's description for a forward description with float64 tensors."""
    shared = {
        name: getattr(forward, name)
        for name in descs.RoiAlignGrad.__dataclass_fields__
        if name in descs.RoiAlign1.__dataclass_fields__ and name not in ("operator", "output_tensor")
    }
    return descs.RoiAlignGrad(
        input_gradient_tensor=forward.output_tensor,
        output_gradient_tensor=forward.input_tensor if to_input else None,
        output_roi_gradient_tensor=tensor(regions) if to_regions else None,
        **shared,
    )


def by_differences(total, start, step):
    """The derivatives of a function of an array, by central differences."""
    result = np.zeros(start.shape)
    for place in np.ndindex(start.shape):
        moved = np.zeros_like(start)
        moved[place] = step
        result[place] = (total(start + moved) - total(start - moved)) / (2 * step)
    return result


@pytest.mark.parametrize("function", [AVERAGE, MAX])
@pytest.mark.parametrize("mode", [NEAREST, LINEAR])
@pytest.mark.parametrize("corners", [False, True])
def test_gradients_are_the_derivatives(function, mode, corners):
    rng = np.random.default_rng(5)
    image = rng.standard_normal((2, 2, 5, 6))
    regions = np.array([[0.3, 0.9, 10.1, 9.3], [7.7, 2.1, 1.2, 8.2], [-1.3, -2.1, 5.7, 3.3], [9.1, 7.3, 15.9, 12.7]])
    batches = np.array([1, 0, 0, 1], np.uint32)
    forward = align(
        image,
        regions,
        batches,
        (3, 2),
        reduction_function=function,
        interpolation_mode=mode,
        spatial_scale_y=0.4,
        align_regions_to_corners=corners,
        output_pixel_offset=0.0 if corners else -0.5,
    )
    gradient = rng.standard_normal(forward.output_tensor.sizes)
    evaluate = reference.find("ROI_ALIGN1")

    def total(image, regions):
        return (evaluate(forward, image, regions, batches) * gradient).sum()

    desc = gradient_of(forward, regions, to_input=True, to_regions=True)
    to_input, to_regions = reference.evaluate(desc, [image, gradient, regions, batches])
    np.testing.assert_allclose(to_input, by_differences(lambda x: total(x, regions), image, 1e-4), atol=1e-9)
    expected = by_differences(lambda moved: total(image, moved), regions, 1e-6)
    assert np.abs(expected).max() > 0.1 or mode is NEAREST
    np.testing.assert_allclose(to_regions, expected, atol=1e-7)


def test_either_gradient_may_be_absent():
    forward = align(IMAGE.astype(np.float64), REGIONS.astype(np.float64))
    gradient = np.random.default_rng(6).standard_normal(forward.output_tensor.sizes)
    regions = REGIONS.astype(np.float64)
    inputs = [IMAGE.astype(np.float64), gradient, regions, BATCHES]
    both = reference.evaluate(gradient_of(forward, regions, to_input=True, to_regions=True), inputs)
    first = reference.evaluate(
        gradient_of(forward, regions, to_input=True, to_regions=False).replace(input_tensor=None), [None, *inputs[1:]]
    )
    second = reference.evaluate(gradient_of(forward, regions, to_input=False, to_regions=True), inputs)
    np.testing.assert_array_equal(first[0], both[0])
    np.testing.assert_array_equal(second[1], both[1])
    assert first[1] is None and second[0] is None


def test_equal_samples_give_the_gradient_to_the_first():
    image, gradient = np.full((1, 1, 2, 4), 3.0, np.float32), np.full((1, 1, 1, 1), 5.0, np.float32)
    regions, batches = np.array([[0, 0, 4, 2]], np.float32), np.zeros(1, np.uint32)
    forward = align(
        image,
        regions,
        batches,
        (1, 1),
        reduction_function=MAX,
        interpolation_mode=NEAREST,
        spatial_scale_x=1.0,
        spatial_scale_y=1.0,
        maximum_samples_per_output=ANY,
    )
    desc = gradient_of(forward, regions, to_input=True, to_regions=False)
    got = reference.evaluate(desc, [image, gradient, regions, batches])[0]
    np.testing.assert_array_equal(got, [[[[5, 0, 0, 0], [0, 0, 0, 0]]]])
    image[0, 0, 1, 2] = np.nan  # NaN is the maximum
    got = reference.evaluate(desc, [image, gradient, regions, batches])[0]
    np.testing.assert_array_equal(got, [[[[0, 0, 0, 0], [0, 0, 5, 0]]]])
    got = reference.evaluate(desc, [image * 0 - 1, gradient, regions - 9, batches])[0]
    np.testing.assert_array_equal(got, np.zeros((1, 1, 2, 4)))  # what lies outside counts as 0
