"""Sample descriptions of operators: one table for benchmarks, accuracy measurements and tests of large tensors.

A sample is a function from sizes by name and a maker of tensors to a description, registered under the operators' names
with default sizes. A family of operators shares a sample. Callers choose sizes, data type, layout and attributes:

    SAMPLES["GEMM"].desc({"m": 64, "k": 1024, "n": 48}, DataType.FLOAT16)
    SAMPLES["REDUCE"].desc({"rows": 16}, function=ReduceFunction.MAX)

Three other places describe operators, for other purposes: ``catalog.minimal`` makes the smallest description of every
operator from the catalog, ``conformance.cases`` draws random ones with contents and tolerances from a seed, and
``conformance.suites`` adds operators to graphs and to sequences of dispatches.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import (
    AxisDirection,
    DataType,
    InterpolationMode,
    MultiheadAttentionMaskType,
    ReduceFunction,
)
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc, packed_strides
from dmlgpu.common.errors import InvalidArgument

Sizes: TypeAlias = Mapping[str, int]
"""Sizes by name."""
Operator: TypeAlias = Any
"""A class of descriptions: each sample knows which fields it has."""


@dataclass(frozen=True)
class Contents:
    """Contents of an input.

    Attributes:
        below: Indices lie in 0 up to this; 0 for arbitrary numbers.
        distinct: Whether indices along the first dimension are unique.
        scale: Standard deviation of floats, which are normally distributed.
        constant: Value of every element, which replaces the above; None for random elements.
        density: The share of elements that are not 0.
        corners: Rows hold regions, two opposite corners within 0 up to this, and a 0 before them in rows of five; 0
            for no regions.
    """

    below: int = 0
    distinct: bool = False
    scale: float = 1.0
    constant: float | None = None
    density: float = 1.0
    corners: float = 0.0


LAYOUTS = ("packed", "strided", "padded", "transposed", "channels-last")
"""Memory layouts of the tensors of a sample."""


@dataclass
class TensorMaker:
    """Maker of the tensors of a description, with a type and a layout.

    Attributes:
        data_type: Default type of tensors.
        layout: One of LAYOUTS.
    """

    data_type: DataType
    layout: str = "packed"

    def __call__(self, *sizes: int, type: DataType | None = None) -> TensorDesc:
        """Return an input in the layout."""
        return TensorDesc(type or self.data_type, sizes, laid_out(sizes, self.layout))

    def result(self, *sizes: int) -> TensorDesc:
        """Return an output in the layout; a packed one if inputs are transposed, so that operators transpose."""
        return TensorDesc(self.data_type, sizes, None if self.layout == "transposed" else laid_out(sizes, self.layout))

    def packed(self, *sizes: int, type: DataType | None = None) -> TensorDesc:
        """Return a tensor of parameters or indices, which is packed in every layout."""
        return TensorDesc(type or self.data_type, sizes)

    def repeated(self, *sizes: int, type: DataType | None = None) -> TensorDesc:
        """Return a tensor with one element in memory, which strides of 0 repeat."""
        return TensorDesc(type or self.data_type, sizes, (0,) * len(sizes))


def laid_out(sizes: Sequence[int], layout: str) -> tuple[int, ...] | None:
    """Return strides in elements for a layout; None if they are packed, or the layout does not apply to the sizes.

    Raises:
        InvalidArgument: For a layout that is none of LAYOUTS.
    """
    if layout not in LAYOUTS:
        raise InvalidArgument(f"a layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    rank, packed = len(sizes), packed_strides(sizes)
    strides: tuple[int, ...] | None = None
    if layout == "strided":  # every other element
        strides = tuple(2 * stride for stride in packed)
    elif layout == "padded" and rank > 1:  # rows end in a gap of four elements
        strides = packed_strides((*sizes[:-1], sizes[-1] + 4))
    elif layout == "transposed" and rank > 1:  # the last two dimensions change places
        strides = (*packed[:-2], 1, sizes[-2])
    elif layout == "channels-last" and rank > 2:  # the second dimension is innermost
        first, *inner, _ = packed_strides((sizes[0], *sizes[2:], sizes[1]))
        strides = (first, 1, *inner)
    return strides


def folded(elements: int) -> tuple[int, int]:
    """Return two sizes whose product is a number of elements, as close to each other as powers of two allow."""
    columns = math.gcd(elements, 1 << (elements.bit_length() // 2))
    return elements // columns, columns


Build: TypeAlias = Callable[[Sizes, TensorMaker], OperatorDesc]
ContentsBySizes: TypeAlias = Callable[[Sizes], Mapping[int, Contents]]


def arbitrary(sizes: Sizes) -> Mapping[int, Contents]:
    """Return no contents: every input holds arbitrary numbers."""
    return {}


@dataclass(frozen=True)
class OperatorSample:
    """The sample of an operator.

    Attributes:
        operator: DirectML's name.
        sizes: Names and default values of the sizes.
        build: Function that makes the description.
        data_type: Default data type.
        contents: Function from the sizes to the contents, by input index, of inputs that do not hold arbitrary numbers.
    """

    operator: str
    sizes: Sizes
    build: Build
    data_type: DataType = DataType.FLOAT32
    contents: ContentsBySizes = arbitrary

    def with_sizes(self, sizes: Sizes) -> dict[str, int]:
        """Return the default sizes, updated with sizes of the caller.

        Raises:
            InvalidArgument: For a name that the sample does not have.
        """
        for name in sizes:
            if name not in self.sizes:
                raise InvalidArgument(f"{self.operator} has no size {name!r}; its sizes are {', '.join(self.sizes)}")
        return {**self.sizes, **sizes}

    def desc(
        self, sizes: Sizes, data_type: DataType | None = None, layout: str = "packed", **attributes: Any
    ) -> OperatorDesc:
        """Return the description for some sizes, a data type and a layout.

        Args:
            sizes: Sizes by name, which replace the defaults.
            data_type: Data type of the main tensors; defaults to the sample's.
            layout: One of LAYOUTS.
            attributes: Fields of the description with values that replace the sample's.
        """
        desc = self.build(self.with_sizes(sizes), TensorMaker(data_type or self.data_type, layout))
        return desc.replace(**attributes)


SAMPLES: dict[str, OperatorSample] = {}
"""Samples by operator; bounded by the catalog."""

Builder: TypeAlias = Callable[[type[OperatorDesc], Sizes, TensorMaker], OperatorDesc]


def sample(
    sizes: Sizes,
    *operators: type[OperatorDesc],
    data_type: DataType = DataType.FLOAT32,
    contents: ContentsBySizes = arbitrary,
) -> Callable[[Builder], Builder]:
    """Register a function of a class of descriptions, sizes and a maker of tensors as the sample of operators."""

    def register(function: Builder) -> Builder:
        for operator in operators:
            build = functools.partial(function, operator)
            SAMPLES[operator.operator] = OperatorSample(operator.operator, sizes, build, data_type, contents)
        return function

    return register


# ---- the table

INDEX = DataType.UINT32
MATRICES: Sizes = {"batch": 1, "m": 1024, "k": 1024, "n": 1024}
LINES: Sizes = {"rows": 1024, "columns": 1024}
IMAGES: Sizes = {"batch": 1, "channels": 64, "height": 112, "width": 112}
TABLE: Sizes = {"rows": 32768, "columns": 256, "picked": 4096}


# ---- matrix products and convolutions


@sample(MATRICES, descs.Gemm)
def gemm(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Matrices of m x k by k x n."""
    batch = (n["batch"],) if n["batch"] > 1 else ()
    return descs.Gemm(
        a_tensor=make(*batch, n["m"], n["k"]),
        b_tensor=make(*batch, n["k"], n["n"]),
        output_tensor=make.packed(*batch, n["m"], n["n"]),
    )


@sample(MATRICES, descs.MatrixMultiplyInteger, data_type=DataType.INT8)
def integer_product(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Matrices of m x k by k x n, of small integers."""
    lead = (n["batch"], 1)
    return descs.MatrixMultiplyInteger(
        a_tensor=make(*lead, n["m"], n["k"]),
        b_tensor=make(*lead, n["k"], n["n"]),
        output_tensor=make.packed(*lead, n["m"], n["n"], type=DataType.INT32),
    )


@sample(
    {**IMAGES, "height": 56, "width": 56, "filters": 64, "window": 3, "stride": 1, "groups": 1},
    descs.Convolution,
)
def convolution(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Square windows; padded so that with stride 1 the image keeps its size."""
    before, stride = (n["window"] - 1) // 2, n["stride"]
    after = n["window"] - 1 - before
    outer = [(n[side] - 1) // stride + 1 for side in ("height", "width")]
    return descs.Convolution(
        input_tensor=make(n["batch"], n["channels"], n["height"], n["width"]),
        filter_tensor=make.packed(n["filters"], n["channels"] // n["groups"], n["window"], n["window"]),
        output_tensor=make.result(n["batch"], n["filters"], *outer),
        strides=(stride,) * 2,
        start_padding=(before,) * 2,
        end_padding=(after,) * 2,
        group_count=n["groups"],
    )


@sample(
    {"batch": 1, "heads": 8, "queries": 256, "keys": 256, "size": 64},
    descs.MultiheadAttention,
)
def attention(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Without a mask."""
    width = n["heads"] * n["size"]
    return descs.MultiheadAttention(
        query_tensor=make.packed(n["batch"], n["queries"], width),
        key_tensor=make.packed(n["batch"], n["keys"], width),
        value_tensor=make.packed(n["batch"], n["keys"], width),
        output_tensor=make.packed(n["batch"], n["queries"], width),
        scale=n["size"] ** -0.5,
        mask_filter_value=-1e9,
        head_count=n["heads"],
        mask_type=MultiheadAttentionMaskType.NONE,
    )


# ---- reductions, softmax, normalization


@sample(LINES, descs.Reduce)
def reduction(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """The sum of each row."""
    lines = (n["rows"], n["columns"])
    return descs.Reduce(
        function=ReduceFunction.SUM,
        input_tensor=make(*lines),
        output_tensor=make.packed(n["rows"], 1),
        axes=(1,),
    )


@sample(LINES, descs.Argmin, descs.Argmax)
def extreme(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Index of the smallest or the largest element of each row."""
    result = make.packed(n["rows"], 1, type=INDEX)
    return operator(input_tensor=make(n["rows"], n["columns"]), output_tensor=result, axes=(1,))


@sample(LINES, descs.ActivationSoftmax1, descs.ActivationLogSoftmax1, descs.ActivationHardmax1)
def softmax(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Softmax, or its logarithm or hardmax, of each row."""
    lines = make(n["rows"], n["columns"])
    return operator(input_tensor=lines, output_tensor=make.result(*lines.sizes), axes=(1,))


@sample(LINES, descs.MeanVarianceNormalization2)
def layer_normalization(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Each row normalized, then scaled and shifted per column."""
    lines, columns = make(n["rows"], n["columns"]), make.packed(1, n["columns"])
    return descs.MeanVarianceNormalization2(
        input_tensor=lines,
        scale_tensor=columns,
        bias_tensor=columns,
        output_tensor=make.result(*lines.sizes),
        axes=(1,),
    )


@sample(LINES, descs.LpNormalization)
def lp_normalization(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Each row divided by its Euclidean norm."""
    lines = make(n["rows"], n["columns"])
    return descs.LpNormalization(input_tensor=lines, output_tensor=make.result(*lines.sizes), axis=1, p=2)


@sample(
    {**IMAGES, "batch": 8, "height": 56, "width": 56},
    descs.BatchNormalization,
    contents=lambda sizes: {2: Contents(constant=0.5)},
)
def batch_normalization(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """With given statistics per channel."""
    image, per_channel = make(n["batch"], n["channels"], n["height"], n["width"]), make.packed(1, n["channels"], 1, 1)
    return descs.BatchNormalization(
        input_tensor=image,
        mean_tensor=per_channel,
        variance_tensor=per_channel,
        scale_tensor=per_channel,
        bias_tensor=per_channel,
        output_tensor=make.result(*image.sizes),
        spatial=True,
    )


@sample({**IMAGES, "height": 56, "width": 56, "window": 5}, descs.LocalResponseNormalization)
def local_response(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Over adjacent channels."""
    image = make(n["batch"], n["channels"], n["height"], n["width"])
    return descs.LocalResponseNormalization(
        input_tensor=image, output_tensor=make.result(*image.sizes), cross_channel=True, local_size=n["window"]
    )


# ---- windows and images


@sample({**IMAGES, "window": 2, "stride": 2}, descs.MaxPooling2, descs.AveragePooling1, descs.LpPooling1)
def pooling(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Without padding."""
    outer = [(n[side] - n["window"]) // n["stride"] + 1 for side in ("height", "width")]
    more = {"p": 2} if operator is descs.LpPooling1 else {}
    return operator(
        input_tensor=make(n["batch"], n["channels"], n["height"], n["width"]),
        output_tensor=make.result(n["batch"], n["channels"], *outer),
        strides=(n["stride"],) * 2,
        window_size=(n["window"],) * 2,
        **more,
    )


@sample({**IMAGES, "scale": 2}, descs.Resample3)
def resampling(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Bilinear, larger by a whole number."""
    inner = (n["height"], n["width"])
    return descs.Resample3(
        input_tensor=make(n["batch"], n["channels"], *inner),
        output_tensor=make.result(n["batch"], n["channels"], *(n["scale"] * size for size in inner)),
        interpolation_mode=InterpolationMode.LINEAR,
        scales=(1.0, 1.0, float(n["scale"]), float(n["scale"])),
    )


@sample({**IMAGES, "block": 2}, descs.DepthToSpace1, descs.SpaceToDepth1)
def blocks(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Blocks of pixels become channels, or channels blocks."""
    area = n["block"] ** 2
    wide = (n["batch"], n["channels"], n["block"] * n["height"], n["block"] * n["width"])
    deep = (n["batch"], n["channels"] * area, n["height"], n["width"])
    source, target = (deep, wide) if operator is descs.DepthToSpace1 else (wide, deep)
    return operator(input_tensor=make(*source), output_tensor=make.result(*target), block_size=n["block"])


# ---- moves


@sample({"rows": 2048, "columns": 2048, "stride": 2}, descs.Slice1)
def strided_slice(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """A slice with strides in both dimensions."""
    sizes = (n["rows"], n["columns"])
    return descs.Slice1(
        input_tensor=make(*sizes),
        output_tensor=make.packed(*((size - 1) // n["stride"] + 1 for size in sizes)),
        input_window_sizes=sizes,
        input_window_strides=(n["stride"],) * 2,
    )


@sample({**IMAGES, "border": 1}, descs.Padding1)
def padding(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """A border of zeros around images."""
    border = (0, 0, n["border"], n["border"])
    sizes = (n["batch"], n["channels"], n["height"], n["width"])
    return descs.Padding1(
        input_tensor=make(*sizes),
        output_tensor=make.result(*(size + 2 * more for size, more in zip(sizes, border, strict=True))),
        padding_value_data_type=make.data_type,
        start_padding=border,
        end_padding=border,
    )


@sample({**LINES, "parts": 2}, descs.Join)
def join(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Parts side by side."""
    part = make(n["rows"], n["columns"])
    result = make.packed(n["rows"], n["parts"] * n["columns"])
    return descs.Join(input_tensors=(part,) * n["parts"], output_tensor=result, axis=1)


@sample({**LINES, "repeats": 2}, descs.Tile)
def tile(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Rows repeated side by side."""
    result = make.packed(n["rows"], n["repeats"] * n["columns"])
    return descs.Tile(input_tensor=make(n["rows"], n["columns"]), output_tensor=result, repeats=(1, n["repeats"]))


# ---- indices


@sample(TABLE, descs.Gather, contents=lambda sizes: {1: Contents(below=sizes["rows"])})
def gather(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Rows of a table."""
    return descs.Gather(
        input_tensor=make(n["rows"], n["columns"]),
        indices_tensor=make.packed(1, n["picked"], type=INDEX),
        output_tensor=make.packed(n["picked"], n["columns"]),
        axis=0,
        index_dimensions=1,
    )


@sample(LINES, descs.GatherElements, contents=lambda sizes: {1: Contents(below=sizes["columns"])})
def gather_elements(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """An element of the same row for each element."""
    lines, indices = make(n["rows"], n["columns"]), make.packed(n["rows"], n["columns"], type=INDEX)
    return descs.GatherElements(
        input_tensor=lines, indices_tensor=indices, output_tensor=make.result(*lines.sizes), axis=1
    )


@sample(LINES, descs.ScatterElements, contents=lambda sizes: {1: Contents(below=sizes["rows"], distinct=True)})
def scatter_elements(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Each element moves to another row of its column, no two to the same place."""
    lines, indices = make(n["rows"], n["columns"]), make.packed(n["rows"], n["columns"], type=INDEX)
    return descs.ScatterElements(
        input_tensor=lines,
        indices_tensor=indices,
        updates_tensor=lines,
        output_tensor=make.result(*lines.sizes),
        axis=0,
    )


@sample(
    {"rows": 1024, "columns": 1024, "picked": 512},
    descs.ScatterNd,
    contents=lambda sizes: {1: Contents(below=sizes["rows"], distinct=True)},
)
def scatter_nd(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Some rows of a table, each at most once, are replaced; the others are copied."""
    whole = make(n["rows"], n["columns"])
    return descs.ScatterNd(
        input_tensor=whole,
        indices_tensor=make.packed(n["picked"], 1, type=INDEX),
        updates_tensor=make.packed(n["picked"], n["columns"]),
        output_tensor=make.result(*whole.sizes),
        input_dimension_count=2,
        indices_dimension_count=2,
    )


@sample({"rows": 256, "columns": 4096, "k": 50}, descs.TopK1)
def top_k(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """The largest elements of each row and their indices."""
    first = (n["rows"], n["k"])
    return descs.TopK1(
        input_tensor=make(n["rows"], n["columns"]),
        output_value_tensor=make.packed(*first),
        output_index_tensor=make.packed(*first, type=INDEX),
        axis=1,
        k=n["k"],
        axis_direction=AxisDirection.DECREASING,
    )


@sample(LINES, descs.CumulativeSummation, descs.CumulativeProduct)
def scan(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """Along each row."""
    lines = make(n["rows"], n["columns"])
    return operator(input_tensor=lines, output_tensor=make.result(*lines.sizes), axis=1)


@sample(LINES, descs.ElementWiseQuantizeLinear, contents=lambda sizes: {1: Contents(constant=0.05)})
def quantize(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """To int8, with one scale."""
    lines = (n["rows"], n["columns"])
    return descs.ElementWiseQuantizeLinear(
        input_tensor=make(*lines),
        scale_tensor=make.repeated(*lines),
        output_tensor=make.packed(*lines, type=DataType.INT8),
    )


@sample(LINES, descs.ElementWiseDequantizeLinear, data_type=DataType.INT8)
def dequantize(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """From int8, with one scale."""
    lines = (n["rows"], n["columns"])
    return descs.ElementWiseDequantizeLinear(
        input_tensor=make(*lines),
        scale_tensor=make.repeated(*lines, type=DataType.FLOAT32),
        output_tensor=make.packed(*lines, type=DataType.FLOAT32),
    )


# ---- recurrence


@sample(
    {"batch": 8, "steps": 64, "inputs": 128, "hidden": 256},
    descs.Lstm,
    # Larger weights make the recurrence chaotic: roundings would grow from step to step.
    contents=lambda sizes: {
        1: Contents(scale=0.5 * sizes["inputs"] ** -0.5),
        2: Contents(scale=0.5 * sizes["hidden"] ** -0.5),
    },
)
def lstm(operator: Operator, n: Sizes, make: TensorMaker) -> OperatorDesc:
    """A layer of one direction with its default activations."""
    gates = 4 * n["hidden"]
    return descs.Lstm(
        input_tensor=make.packed(1, n["steps"], n["batch"], n["inputs"]),
        weight_tensor=make.packed(1, 1, gates, n["inputs"]),
        recurrence_tensor=make.packed(1, 1, gates, n["hidden"]),
        output_sequence_tensor=make.packed(n["steps"], 1, n["batch"], n["hidden"]),
        activation_descs=(descs.ActivationSigmoid(), descs.ActivationTanh(), descs.ActivationTanh()),
    )
