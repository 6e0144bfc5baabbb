"""Cases of pooling and sampling regions of interest, and of the gradients."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import InterpolationMode, ReduceFunction
from dmlgpu.catalog.operator_desc import Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.case import Array, Arrays, Case, evaluate_in_float32
from dmlgpu.conformance.cases.contents import any_bits, few, numbers
from dmlgpu.conformance.cases.discriminating import SHARE
from dmlgpu.conformance.cases.families.indexing import OUTSIDE, draw_indices
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors, register
from dmlgpu.conformance.cases.tolerance import EXACT, Accumulated, Bound

TIES = "ties"
NAN = "nan"
BEYOND = "beyond"  # regions that reach far over the input, are mirrored, empty or no numbers at all
ADAPTIVE = "adaptive"  # the regions decide how many samples there are
CORNERS = "corners"  # aligned to them

ANY = 2**32 - 1
"""The number of samples that follows from the size of a region."""

MAX_ELEMENTS = 6000
"""Elements of a case, so that the reference stays quick."""


def _corners(rng: np.random.Generator, key: Key, regions: int, scales: Array, *, exact: bool = False) -> Array:
    """x1, y1, x2, y2 of some regions before scaling: anywhere on the input and slightly outside, half of them (all, if
    ``exact``) on multiples of a quarter element; arbitrary numbers for some variants."""
    extents = np.array(key.sizes[:1:-1] * 2)
    spread = 3.0 if key.variant == BEYOND else 1.4
    places = extents * (0.5 + spread * (rng.random((regions, 4)) - 0.5))
    places = np.where((rng.random((regions, 1)) < 0.5) | exact, np.round(4 * places) / 4, places)
    if key.variant != BEYOND:
        places = np.sort(places.reshape(-1, 2, 2), 1).reshape(-1, 4)
        return np.asarray((places / scales).astype(key.types[0].numpy))
    places[rng.random(regions) < 0.1] *= 1000
    places[rng.random(regions) < 0.2, 2:] = 1  # the first corner may lie there as well
    places[rng.random(regions) < 0.2, :2] = 1
    places[rng.random(regions) < 0.1] = np.nan
    with np.errstate(over="ignore"):
        return np.asarray((places / scales).astype(key.types[0].numpy))


def _put_on_borders(rng: np.random.Generator, key: Key, corners: Array, scales: Array, offset: float) -> None:
    """Make a third of the regions empty along an axis, all their samples on the outermost place that counts as inside
    or on the first or last element: what leaves borders out, or gives regions a least size, shows there."""
    regions = np.flatnonzero(rng.random(len(corners)) < SHARE)
    axes = rng.integers(0, 2, regions.size)
    extents = np.array(key.sizes[:1:-1])[axes]
    places = np.choose(rng.integers(0, 4, regions.size), [-1 + 0 * extents, 0 * extents, extents - 1, extents])
    corners[regions, axes] = corners[regions, axes + 2] = (places + offset) / scales[axes]


@cases(descs.RoiPooling)
class RoiPoolingCases(OperatorCases):
    """ROI_POOLING: the key has the input's sizes."""

    standard_count = 26
    ranks = (4,)
    long_sizes: ClassVar[SizesList] = ((1, 2, 150, 151),)
    large_sizes: ClassVar[SizesList] = ((3, 2, 1025, 1031),)
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, TIES, NAN, BEYOND, OUTSIDE)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        (data_type,) = key.types
        regions, height, width = (int(n) for n in rng.integers(1, 8, 3))
        pooled = (regions, key.sizes[1], height, width)
        source, roi, output = draw_tensors(
            key, rng, (data_type, key.sizes, False), (data_type, (1, 1, regions, 5), False), (data_type, pooled, True)
        )
        scale = float(rng.choice([1.0, 0.5, 0.0625, 0.3]))
        desc = descs.RoiPooling(
            input_tensor=source,
            roi_tensor=roi,
            output_tensor=output,
            spatial_scale=scale,
            pooled_size=Size2D(width, height),
        )

        def fill(contents: np.random.Generator) -> Arrays:
            batches = contents.integers(0, key.sizes[0], (regions, 1)).astype(data_type.numpy)
            if key.variant == OUTSIDE:
                strange = np.array([-1, -0.5, key.sizes[0] - 0.5, key.sizes[0], np.nan, np.inf], data_type.numpy)
                batches = np.where(
                    contents.random(batches.shape) < 0.5, contents.choice(strange, batches.shape), batches
                )
            corners = _corners(contents, key, regions, np.full(4, scale))
            return _image(contents, key), np.concatenate([batches, corners], 1)[None, None]

        return Case(name, desc, fill, EXACT)


def _image(rng: np.random.Generator, key: Key) -> Array:
    """Draw the input: any bits, or the special values of the variant."""
    (data_type, *_), sizes = key.types, key.sizes
    if key.variant == TIES:
        return few(rng, data_type, sizes)
    values = any_bits(rng, data_type, sizes)
    return np.where(rng.random(sizes) < 0.8, values.dtype.type(np.nan), values) if key.variant == NAN else values


class _SampledRegionCases(OperatorCases):
    """Sampled regions; the key has the sizes of the forward operator's input."""

    standard_count = 30
    type_fields = ("ROITensor", "BatchIndicesTensor")
    ranks = (4,)
    long_sizes: ClassVar[SizesList] = ((1, 2, 70, 71),)
    large_sizes: ClassVar[SizesList] = ((1, 3, 1025, 1031),)

    def variants(self, types: Types) -> tuple[str, ...]:
        has_corners = any(field.name == "AlignRegionsToCorners" for field in self.schema.fields)
        return (PLAIN, NAN, BEYOND, ADAPTIVE, OUTSIDE, *([CORNERS] if has_corners else []))

    def fields(self, key: Key, rng: np.random.Generator) -> dict[str, Any]:
        """Attributes, as far as the description has them."""
        fewest = int(rng.integers(0, 4))
        drawn = {
            "reduction_function": [ReduceFunction.AVERAGE, ReduceFunction.MAX][rng.integers(2)],
            "interpolation_mode": list(InterpolationMode)[rng.integers(2)],
            "spatial_scale_x": float(rng.choice([1.0, 0.5, 0.0625, 0.3])),
            "spatial_scale_y": float(rng.choice([1.0, 0.25, 2.0, 0.7])),
            "input_pixel_offset": float(rng.choice([0.0, 0.5, 0.5, 0.3])),
            "output_pixel_offset": float(rng.choice([0.0, -0.5, -0.5, -0.3])),
            "out_of_bounds_input_value": float(rng.choice([0.0, 1.5, -3.0])),
            "minimum_samples_per_output": fewest,
            "maximum_samples_per_output": ANY if key.variant == ADAPTIVE else max(fewest, int(rng.integers(1, 5))),
            "align_regions_to_corners": key.variant == CORNERS,
        }
        return {name: drawn[name] for name in self.desc_class.field_names if name in drawn}

    def tensors(
        self, key: Key, rng: np.random.Generator, *fields: str, counts: tuple[int, ...] = ()
    ) -> tuple[dict[str, TensorDesc], tuple[int, ...]]:
        """Return the tensors of some fields, and the sizes of the forward operator's output, which may be chosen from
        some."""
        data_type, index_type = key.types
        regions, height, width = int(rng.integers(1, 7)), *(int(n) for n in rng.choice(counts or (1, 2, 3, 4, 5, 7), 2))
        if math.prod(key.sizes) > MAX_ELEMENTS:
            regions = 1
        sampled = (regions, key.sizes[1], height, width)
        roi_sizes = (*(1,) * int(rng.integers(3)), regions, 4)
        index_sizes = (*(1,) * int(rng.integers(4)), regions)
        sizes = {
            "input_tensor": (data_type, key.sizes, False),
            "output_tensor": (data_type, sampled, True),
            "input_gradient_tensor": (data_type, sampled, False),
            "roi_tensor": (data_type, roi_sizes, False),
            "batch_indices_tensor": (index_type, index_sizes, False),
            "output_gradient_tensor": (data_type, key.sizes, True),
            "output_roi_gradient_tensor": (data_type, roi_sizes, True),
        }
        tensors = draw_tensors(key, rng, *(sizes[field] for field in fields))
        return dict(zip(fields, tensors, strict=True)), sampled

    def regions(
        self, contents: np.random.Generator, key: Key, desc: Any, *, exact: bool = False
    ) -> tuple[Array, Array]:
        """Return contents of the regions and their batches."""
        scales = np.array([desc.spatial_scale_x, desc.spatial_scale_y] * 2)
        corners = _corners(contents, key, desc.roi_tensor.sizes[-2], scales, exact=exact)
        _put_on_borders(contents, key, corners, scales, getattr(desc, "input_pixel_offset", 0.5))
        batches = draw_indices(
            contents, key.types[1], np.array(key.sizes[0]), desc.batch_indices_tensor.sizes, key.variant
        )
        return corners.reshape(desc.roi_tensor.sizes), batches


def _values(rng: np.random.Generator, key: Key) -> Array:
    """Return the image: numbers of one magnitude, or some that are none."""
    image = rng.standard_normal(key.sizes).astype(key.types[0].numpy)
    if key.variant == NAN:
        image[rng.random(key.sizes) < 0.05] = np.nan
    return image


class _RoiAlignCases(_SampledRegionCases):
    """Means and maxima."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        names = ("input_tensor", "roi_tensor", "batch_indices_tensor", "output_tensor")
        tensors, _ = self.tensors(key, rng, *names)
        desc: Any = self.desc_class(**tensors, **self.fields(key, rng))

        def fill(contents: np.random.Generator) -> Arrays:
            return _values(contents, key), *self.regions(contents, key, desc)

        def magnitude(inputs: Arrays) -> Bound:
            image, *others = inputs
            assert image is not None
            outside = abs(desc.out_of_bounds_input_value)
            (total,) = evaluate_in_float32(desc, (np.abs(image), *others), out_of_bounds_input_value=outside)
            return 2 * total

        return Case(name, desc, fill, Accumulated(64), magnitude=magnitude)


register(_RoiAlignCases, descs.RoiAlign1)
register(_RoiAlignCases, descs.RoiAlign, standard_count=14)


@cases(descs.RoiAlignGrad)
class RoiAlignGradCases(_SampledRegionCases):
    """ROI_ALIGN_GRAD: both gradients or one of them."""

    standard_count = 20

    def variants(self, types: Types) -> tuple[str, ...]:
        """Ties in place of NaN, which would reach whole regions."""
        return tuple(TIES if variant == NAN else variant for variant in super().variants(types))

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        fields, exact = self._exact(key, self.fields(key, rng), rng)
        names = self._names(fields, rng)
        tensors, sampled = self.tensors(key, rng, *names, counts=exact)
        desc = descs.RoiAlignGrad(**(fields | tensors))

        def fill(contents: np.random.Generator) -> Arrays:
            image = few(contents, key.types[0], key.sizes) if exact or key.variant == TIES else _values(contents, key)
            gradient = numbers(contents, key.types[0], sampled)
            corners, batches = self.regions(contents, key, desc, exact=bool(exact))
            return image if "input_tensor" in names else None, gradient, corners, batches

        def magnitude(inputs: Arrays) -> tuple[Bound, ...]:
            image, gradient, corners, batches = inputs
            assert gradient is not None and batches is not None
            to_input, *_ = evaluate_in_float32(desc, (image, np.abs(gradient), corners, batches))
            return 2 * to_input, _slopes(desc, image, np.abs(gradient.astype(np.float64)), batches.ravel())

        return Case(name, desc, fill, Accumulated(64), magnitude=magnitude)

    def _exact(
        self, key: Key, fields: dict[str, Any], rng: np.random.Generator
    ) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Draw attributes with which interpolation is exact where the largest sample is looked for (else rounding would
        decide which one it is), and heights and widths of the output to choose from; none where any will do."""
        linear = fields["interpolation_mode"] is InterpolationMode.LINEAR
        if fields["reduction_function"] is not ReduceFunction.MAX or not linear:
            return fields, ()
        if key.variant == ADAPTIVE:
            return {**fields, "interpolation_mode": InterpolationMode.NEAREST_NEIGHBOR}, ()
        samples = 1 if key.variant == CORNERS else int(rng.choice([1, 2, 4]))
        offsets = {"input_pixel_offset": 0.5 * rng.integers(2), "output_pixel_offset": -0.5 * rng.integers(2)}
        scales = {"spatial_scale_x": 0.0625, "spatial_scale_y": 2.0}
        counts = {"minimum_samples_per_output": samples, "maximum_samples_per_output": samples}
        return {**fields, **offsets, **scales, **counts}, (2, 3, 5) if key.variant == CORNERS else (1, 2, 4)

    def _names(self, fields: dict[str, Any], rng: np.random.Generator) -> tuple[str, ...]:
        """Return the tensors that a description has."""
        gradients = [["output_gradient_tensor"], ["output_roi_gradient_tensor"]]
        outputs = [gradients[0], gradients[1], gradients[0] + gradients[1]][rng.integers(3)]
        needs_input = fields["reduction_function"] is ReduceFunction.MAX or len(outputs) == 2 or outputs == gradients[1]
        images = ["input_tensor"] if needs_input or rng.integers(2) else []
        return (*images, "input_gradient_tensor", "roi_tensor", "batch_indices_tensor", *outputs)


def _slopes(desc: descs.RoiAlignGrad, image: Array | None, gradient: Bound, batches: Array) -> Bound:
    """Return the maximum slopes of each region."""
    if image is None:
        return np.zeros(0)
    largest = np.abs(image.astype(np.float64)).max((2, 3))
    places = np.minimum(batches, len(image) - 1).astype(np.int64)
    total = (gradient.sum((2, 3)) * largest[places]).sum(1)
    scales = np.array([desc.spatial_scale_x, desc.spatial_scale_y] * 2)
    return np.asarray((2 * total[:, None] * scales).reshape(desc.roi_tensor.sizes))
