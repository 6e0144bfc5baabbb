"""A photograph reduced to a palette by k-means, written with DirectML's operators; each dispatch checked against NumPy.

Needs the ``demo`` extra."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dmlgpu import reference
from dmlgpu.catalog import descs
from dmlgpu.catalog.descs import ElementWiseDifferenceSquare, Reduce
from dmlgpu.catalog.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.files import load_picture
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.conformance.cases.tolerance import CORRECTLY_ROUNDED, EXACT, Accumulated, Tolerance, Ulp
from dmlgpu.conformance.running.outcome import Verdict, compare
from dmlgpu.demo.drawing import BACKGROUND, FAINT, INK, paste_rounded, write
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.tensors import directml as dml
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.tensor import Tensor


@dataclass(frozen=True)
class DeviceArray:
    """A tensor in a buffer of the device."""

    buffer: Buffer
    desc: TensorDesc

    def view(self, *sizes: int, strides: Sequence[int] | None = None) -> DeviceArray:
        """Return a view of the same bytes with other sizes, and strides in elements (0 repeats)."""
        desc = replace(self.desc, sizes=sizes, strides=None if strides is None else tuple(strides))
        return DeviceArray(self.buffer, replace(desc, total_tensor_size_in_bytes=self.desc.byte_size))

    def numpy(self) -> NDArray[Any]:
        """Return the values, read back from the device."""
        return self.desc.decode(self.buffer.read(0, self.desc.byte_size))


@dataclass(frozen=True)
class Observation:
    """Measurements of one dispatch.

    Attributes:
        operator: DirectML's operator name.
        elements: Number of elements written.
        seconds: Wall-clock time from submission to the fence.
        tolerance: Tolerance of the result.
        verdict: Comparison with the reference.
        difference: The largest absolute difference from the reference.
        kernels: The labels of the kernels that ran, each once; none on ``numpy``.
    """

    operator: str
    elements: int
    seconds: float
    tolerance: Tolerance
    verdict: Verdict
    difference: float
    kernels: tuple[str, ...] = ()


class Workbench:
    """Compiles, dispatches, times and checks operators on one device.

    Attributes:
        observations: One for each dispatch, in order.
        compile_seconds: Time spent on compiling and initializing operators.
    """

    def __init__(self, device: Device, observe: Callable[[Observation], None] = lambda _: None):
        self.device = device
        self.observations: list[Observation] = []
        self.compile_seconds = 0.0
        self._observe = observe
        self._compiled: dict[OperatorDesc, CompiledOperator] = {}
        self._recorder = device.create_command_recorder()
        self._fence = device.create_fence()
        self._signal = 0

    def upload(self, array: NDArray[Any]) -> DeviceArray:
        """Return a packed copy of a NumPy array on the device."""
        desc = TensorDesc(DataType.from_numpy(array.dtype), array.shape)
        result = self.empty(desc)
        result.buffer.write(desc.encode(array))
        return result

    def empty(self, desc: TensorDesc) -> DeviceArray:
        """Return an array of zeros."""
        return DeviceArray(self.device.create_buffer(desc.byte_size), desc)

    def run(self, desc: OperatorDesc, *inputs: DeviceArray) -> DeviceArray:
        """Dispatch an operator with one output on its inputs; the result is checked against the reference."""
        compiled = self._compile(desc)
        ((_, _, output_desc),) = desc.outputs
        assert output_desc is not None
        output = self.empty(output_desc)
        seconds = self._dispatch(compiled, [array.buffer for array in inputs], [output.buffer])
        self._check(compiled, desc, inputs, output, seconds)
        return output

    def _compile(self, desc: OperatorDesc) -> CompiledOperator:
        if desc not in self._compiled:
            start = time.perf_counter()
            compiled = self.device.compile_operator(self.device.create_operator(desc))
            self._dispatch(self.device.create_operator_initializer([compiled]), [], [])
            self.compile_seconds += time.perf_counter() - start
            self._compiled[desc] = compiled
        return self._compiled[desc]

    def _dispatch(self, dispatchable: Any, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> float:
        table = self.device.create_binding_table(dispatchable)
        if inputs or outputs:
            table.bind_inputs(list(inputs))
            table.bind_outputs(list(outputs))
            size = dispatchable.binding_properties.temporary_resource_size
            if size:
                table.bind_temporary_resource(self.device.create_buffer(size))
        commands = self.device.create_command_list()
        self._recorder.record_dispatch(commands, dispatchable, table)
        commands.close()
        self._signal += 1
        start = time.perf_counter()
        self.device.queue.execute([commands])
        self.device.queue.signal(self._fence, self._signal)
        self._fence.wait(self._signal)
        return time.perf_counter() - start

    def _check(
        self,
        compiled: CompiledOperator,
        desc: OperatorDesc,
        inputs: Sequence[DeviceArray],
        output: DeviceArray,
        seconds: float,
    ) -> None:
        # Each tensor is decoded as the operator saw it: a buffer may be bound with other sizes than it was made with.
        descs = [tensor for _, _, tensor in desc.inputs if tensor is not None]
        arrays = [DeviceArray(operand.buffer, seen).numpy() for operand, seen in zip(inputs, descs, strict=True)]
        (expected,) = reference.evaluate(desc, arrays)
        got = output.numpy()
        tolerance, magnitude = _tolerance(desc, arrays)
        verdict = compare(expected, got, tolerance, magnitude)
        difference = float(np.abs(expected.astype(np.float64) - got.astype(np.float64)).max(initial=0.0))
        ran = () if compiled.program is None else compiled.program.kernels
        kernels = tuple(dict.fromkeys(kernel.label for kernel in ran))
        observation = Observation(desc.operator, got.size, seconds, tolerance, verdict, difference, kernels)
        self.observations.append(observation)
        self._observe(observation)


def _tolerance(desc: OperatorDesc, inputs: Sequence[NDArray[Any]]) -> tuple[Tolerance, NDArray[np.float64] | None]:
    """Return the tolerance of a result."""
    if isinstance(desc, Reduce):
        terms = math.prod(desc.input_tensor.sizes[axis] for axis in desc.axes)
        magnitude = np.abs(inputs[0].astype(np.float64)).sum(desc.axes, keepdims=True)
        return Accumulated(terms), magnitude
    if isinstance(desc, ElementWiseDifferenceSquare):
        return Ulp(2), None  # the difference is rounded once, then its square
    ((_, _, output),) = desc.outputs
    return (CORRECTLY_ROUNDED if output is not None and output.data_type.is_float else EXACT), None


Pixels = NDArray[np.uint8]
"""Sizes {height, width, 3}: red, green, blue."""

SAMPLES = 1 << 14
"""The palette is found on about this many of the photograph's pixels."""

MAX_ELEMENTS = 1 << 23
"""Largest tensor at a time: 32 MiB of floats, well below what an adapter binds."""


@dataclass(frozen=True)
class PaletteReduction:
    """A photograph and its reduction to a palette.

    Attributes:
        photo, painted: Before and after.
        mirrored: The middle of ``painted``, left and right swapped.
        strip: One swatch for each color, from dark to light.
        colors: The palette, {K, 3}, from dark to light.
        shares: The part of all pixels that has each color, {K}.
    """

    photo: Pixels
    painted: Pixels
    mirrored: Pixels
    strip: Pixels
    colors: NDArray[np.uint8]
    shares: NDArray[np.float64]


def reduce_to_palette(
    bench: Workbench,
    photo: Pixels,
    *,
    colors: int,
    iterations: int,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> PaletteReduction:
    """Find ``colors`` colors that suit a photograph and paint it with them; deterministic."""
    height, width, _ = photo.shape
    pixels = bench.upload(photo[np.newaxis])
    progress("sampling")
    step = max(1, math.ceil(math.sqrt(height * width / SAMPLES)))
    samples = _cast(bench, _every(bench, pixels, step), DataType.FLOAT32)
    samples = samples.view(1, 1, samples.desc.element_count // 3, 3)
    start = bench.upload(starting_pixels(photo[::step, ::step], colors, seed).reshape(1, 1, colors, 1))
    palette = _pick(bench, samples, start)
    means = _Means(bench, samples, colors)
    for iteration in range(iterations):
        progress(f"k-means, iteration {iteration + 1} of {iterations}")
        palette = means.improve(palette)
    progress("painting")
    return _paint(bench, photo, pixels, palette)


def _paint(bench: Workbench, photo: Pixels, pixels: DeviceArray, palette: DeviceArray) -> PaletteReduction:
    height, width, _ = photo.shape
    colors = palette.desc.sizes[2]
    nearest = _nearest_everywhere(bench, pixels, palette)
    rounded = _cast(bench, _identity(bench, palette, palette.desc, bias=0.5), DataType.UINT8)
    painted = _pick(bench, rounded, nearest).view(1, height, width, 3)
    order = np.argsort(rounded.numpy().reshape(colors, 3) @ [0.299, 0.587, 0.114], kind="stable").astype(np.uint32)
    ordered = _pick(bench, rounded, bench.upload(order.reshape(1, 1, colors, 1)))
    counts = np.bincount(nearest.numpy().ravel(), minlength=colors)[order]
    return PaletteReduction(
        photo,
        painted.numpy()[0],
        _mirrored_middle(bench, painted).numpy()[0],
        _swatches(bench, ordered, swatch=32).numpy().reshape(32, colors * 32, 3),
        ordered.numpy().reshape(colors, 3),
        counts / counts.sum(),
    )


class _Means:
    """A step of k-means: moves each color to the mean of the samples nearest to it."""

    def __init__(self, bench: Workbench, samples: DeviceArray, colors: int):
        self.bench, self.samples, self.colors = bench, samples, colors
        self.count = samples.desc.sizes[2]
        self.zero = bench.upload(np.zeros((1, 1, 1, 1), np.float32))
        self.unit = bench.upload(np.ones((1, 1, 1, 1), np.float32))
        # None of the operators at hand divides; a count of members is looked up in this table of reciprocals instead.
        # A color without members stays where it is.
        reciprocals = np.zeros(self.count + 1, np.float32)
        reciprocals[1:] = 1 / np.arange(1, self.count + 1)
        self.reciprocals = bench.upload(reciprocals.reshape(1, 1, 1, -1))

    def improve(self, palette: DeviceArray) -> DeviceArray:
        """Return the next palette."""
        n, k = self.count, self.colors
        nearest = _nearest(self.bench, self.samples, palette)
        members = self._members(nearest)
        away = _subtract(self.bench, _pick(self.bench, palette, nearest), self.samples)
        pulls = _multiply(
            self.bench, away.view(1, n, k, 3, strides=(0, 3, 0, 1)), members.view(1, n, k, 3, strides=(0, k, 1, 0))
        )
        inverse = self._inverse_sizes(members).view(1, 1, k, 3, strides=(0, 0, 1, 0))
        step = _multiply(self.bench, _sum(self.bench, pulls, axis=1), inverse)
        return _subtract(self.bench, palette, step)

    def _members(self, nearest: DeviceArray) -> DeviceArray:
        """Return {1, 1, N, K}: 1 if the color is nearest to the sample, else 0."""
        n, k = self.count, self.colors
        zeros, ones = self.zero.view(1, 1, n, k, strides=(0,) * 4), self.unit.view(1, 1, n, 1, strides=(0,) * 4)
        desc = descs.ScatterElements(
            input_tensor=zeros.desc,
            indices_tensor=nearest.desc,
            updates_tensor=ones.desc,
            output_tensor=TensorDesc(DataType.FLOAT32, (1, 1, n, k)),
            axis=3,
        )
        return self.bench.run(desc, zeros, nearest, ones)

    def _inverse_sizes(self, members: DeviceArray) -> DeviceArray:
        """Return {1, 1, 1, K}: the reciprocal of the number of samples of each color."""
        counts = _cast(self.bench, _sum(self.bench, members, axis=2), DataType.UINT32).view(1, 1, self.colors, 1)
        desc = descs.GatherNd1(
            input_tensor=self.reciprocals.desc,
            indices_tensor=counts.desc,
            output_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 1, self.colors)),
            input_dimension_count=1,
            indices_dimension_count=2,
            batch_dimension_count=0,
        )
        return self.bench.run(desc, self.reciprocals, counts)


def starting_pixels(image: Pixels, colors: int, seed: int) -> NDArray[np.uint32]:
    """Choose pixels whose colors are far from each other (k-means++)."""
    points = image.reshape(-1, 3).astype(np.float64)
    draw = np.random.default_rng(seed)
    chosen = [int(draw.integers(len(points)))]
    distance = np.full(len(points), np.inf)
    while len(chosen) < colors:
        distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(-1))
        reach = np.cumsum(distance)
        chosen.append(min(int(np.searchsorted(reach, draw.random() * reach[-1], side="right")), len(points) - 1))
    return np.array(chosen, np.uint32)


def _nearest_everywhere(bench: Workbench, pixels: DeviceArray, palette: DeviceArray) -> DeviceArray:
    """Apply ``_nearest`` to each pixel of {1, H, W, 3}, with as many rows at a time as the tensors allow."""
    _, height, width, _ = pixels.desc.sizes
    rows = min(height, max(1, MAX_ELEMENTS // (width * palette.desc.sizes[2] * 3)))
    parts = []
    for top in range(0, height, rows):
        count = min(rows, height - top)
        band = pixels if count == height else _slice(bench, pixels, (top, 0), (count, width), (1, 1))
        points = _cast(bench, band, DataType.FLOAT32).view(1, 1, count * width, 3)
        parts.append(_nearest(bench, points, palette))
    return parts[0] if len(parts) == 1 else bench.upload(np.concatenate([part.numpy() for part in parts], axis=2))


# ---- One operator each ------------------------------------------------------------------------------------------


def _nearest(bench: Workbench, points: DeviceArray, palette: DeviceArray) -> DeviceArray:
    """Return for each point {1, 1, N, 3} the number of the nearest color, {1, 1, N, 1}."""
    n, k = points.desc.sizes[2], palette.desc.sizes[2]
    a, b = points.view(1, n, k, 3, strides=(0, 3, 0, 1)), palette.view(1, n, k, 3, strides=(0, 0, 3, 1))
    squares = bench.run(
        descs.ElementWiseDifferenceSquare(
            a_tensor=a.desc, b_tensor=b.desc, output_tensor=TensorDesc(DataType.FLOAT32, (1, n, k, 3))
        ),
        a,
        b,
    )
    distances = _sum(bench, squares, axis=3)
    desc = descs.Argmin(
        input_tensor=distances.desc,
        output_tensor=TensorDesc(DataType.UINT32, (1, n, 1, 1)),
        axes=(2,),
        axis_direction=AxisDirection.INCREASING,
    )
    return bench.run(desc, distances).view(1, 1, n, 1)


def _pick(bench: Workbench, rows: DeviceArray, indices: DeviceArray) -> DeviceArray:
    """Return the rows {1, 1, N, 3} of {1, 1, M, 3} that indices {1, 1, N, 1} name."""
    desc = descs.GatherNd1(
        input_tensor=rows.desc,
        indices_tensor=indices.desc,
        output_tensor=TensorDesc(rows.desc.data_type, (1, 1, indices.desc.sizes[2], 3)),
        input_dimension_count=2,
        indices_dimension_count=2,
        batch_dimension_count=0,
    )
    return bench.run(desc, rows, indices)


def _sum(bench: Workbench, array: DeviceArray, axis: int) -> DeviceArray:
    sizes = tuple(1 if dimension == axis else size for dimension, size in enumerate(array.desc.sizes))
    output = TensorDesc(array.desc.data_type, sizes)
    desc = descs.Reduce(function=ReduceFunction.SUM, input_tensor=array.desc, output_tensor=output, axes=(axis,))
    return bench.run(desc, array)


def _subtract(bench: Workbench, a: DeviceArray, b: DeviceArray) -> DeviceArray:
    output = TensorDesc(a.desc.data_type, a.desc.sizes)
    return bench.run(descs.ElementWiseSubtract(a_tensor=a.desc, b_tensor=b.desc, output_tensor=output), a, b)


def _multiply(bench: Workbench, a: DeviceArray, b: DeviceArray) -> DeviceArray:
    output = TensorDesc(a.desc.data_type, a.desc.sizes)
    return bench.run(descs.ElementWiseMultiply(a_tensor=a.desc, b_tensor=b.desc, output_tensor=output), a, b)


def _cast(bench: Workbench, array: DeviceArray, data_type: DataType) -> DeviceArray:
    output = TensorDesc(data_type, array.desc.sizes)
    return bench.run(descs.Cast(input_tensor=array.desc, output_tensor=output), array)


def _identity(bench: Workbench, array: DeviceArray, output: TensorDesc, bias: float = 0.0) -> DeviceArray:
    scale_bias = descs.ScaleBias(scale=1.0, bias=bias) if bias else None
    desc = descs.ElementWiseIdentity(input_tensor=array.desc, output_tensor=output, scale_bias=scale_bias)
    return bench.run(desc, array)


def _swatches(bench: Workbench, colors: DeviceArray, swatch: int) -> DeviceArray:
    """Return {1, swatch, K, swatch, 3}: every color of {1, 1, K, 3} spread over a square."""
    k = colors.desc.sizes[2]
    spread = colors.view(1, swatch, k, swatch, 3, strides=(0, 0, 3, 0, 1))
    return _identity(bench, spread, TensorDesc(colors.desc.data_type, spread.desc.sizes))


def _every(bench: Workbench, image: DeviceArray, step: int) -> DeviceArray:
    """Return every ``step``-th pixel of {1, H, W, 3} in both directions."""
    _, height, width, _ = image.desc.sizes
    return _slice(bench, image, (0, 0), (height, width), (step, step))


def _mirrored_middle(bench: Workbench, image: DeviceArray) -> DeviceArray:
    """Return the middle of {1, H, W, 3}, half as high and wide, with left and right swapped."""
    _, height, width, _ = image.desc.sizes
    window = (max(height // 2, 1), max(width // 2, 1))
    return _slice(bench, image, (height // 16, width // 4), window, (1, -1))


def _slice(
    bench: Workbench, image: DeviceArray, offsets: tuple[int, int], window: tuple[int, int], strides: tuple[int, int]
) -> DeviceArray:
    """Return a window of {1, H, W, 3} with ``strides`` along height and width."""
    sizes = [1 + (size - 1) // abs(stride) for size, stride in zip(window, strides, strict=True)]
    desc = descs.Slice1(
        input_tensor=image.desc,
        output_tensor=TensorDesc(image.desc.data_type, (1, *sizes, 3)),
        input_window_offsets=(0, *offsets, 0),
        input_window_sizes=(1, *window, 3),
        input_window_strides=(1, *strides, 1),
    )
    return bench.run(desc, image)


NAMES = ("painted", "palette")
"""Names of the graph's outputs; its input is ``photo``."""


def palette_graph(
    height: int, width: int, *, colors: int = 16, iterations: int = 8, start: Sequence[int] | None = None
) -> GraphDesc:
    """Return the graph that paints a photograph, UINT8 of sizes {1, height, width, 3}, in few colors.

    Its outputs are the painted photograph and the palette, FLOAT32 of sizes {1, 1, colors, 3}.

    Args:
        height, width: Size of the photograph, in pixels.
        colors: In the palette.
        iterations: Rounds of k-means.
        start: Numbers of the sampled pixels that the palette starts as; None takes some at even distances.
    """
    graph = Graph(name="palette")
    photo = graph.input((1, height, width, 3), DataType.UINT8, name="photo")
    step = max(1, math.ceil(math.sqrt(height * width / SAMPLES)))
    sampled = dml.slice1(photo, input_window_sizes=(1, height, width, 3), input_window_strides=(1, step, step, 1))
    samples = _points(sampled)
    count = samples.sizes[2]
    chosen = np.linspace(0, count - 1, colors, dtype=np.uint32) if start is None else np.array(start, np.uint32)
    palette = _pick_rows(samples, graph.constant(chosen.reshape(1, 1, colors, 1)))
    for _ in range(iterations):
        palette = _improved(graph, samples, palette)
    rounded = dml.cast(palette + 0.5, output_type=DataType.UINT8)
    painted = _pick_rows(rounded, _nearest_color(_points(photo), palette))
    return graph.desc([dml.element_wise_identity(painted.reinterpret(photo.sizes)), palette])


def _points(image: Tensor) -> Tensor:
    """Return the pixels of {1, H, W, 3} as points {1, 1, N, 3}."""
    _, height, width, _ = image.sizes
    return dml.cast(image, output_type=DataType.FLOAT32).reinterpret((1, 1, height * width, 3))


def _nearest_color(points: Tensor, palette: Tensor) -> Tensor:
    """Return for each point {1, 1, N, 3} the number of the nearest color, {1, 1, N, 1}."""
    n, k = points.sizes[2], palette.sizes[2]
    a, b = points.reinterpret((1, n, k, 3), (0, 3, 0, 1)), palette.reinterpret((1, n, k, 3), (0, 0, 3, 1))
    distances = dml.reduce(dml.element_wise_difference_square(a, b), function=ReduceFunction.SUM, axes=(3,))
    return dml.argmin(distances, axes=(2,), output_type=DataType.UINT32).reinterpret((1, 1, n, 1))


def _pick_rows(rows: Tensor, indices: Tensor) -> Tensor:
    """Return the rows {1, 1, N, 3} of {1, 1, M, 3} that indices {1, 1, N, 1} name."""
    return dml.gather_nd1(rows, indices, input_dimension_count=2, indices_dimension_count=2)


def _improved(graph: Graph, samples: Tensor, palette: Tensor) -> Tensor:
    """Move each color to the mean of the samples nearest to it; colors without samples stay."""
    n, k = samples.sizes[2], palette.sizes[2]
    nearest = _nearest_color(samples, palette).reinterpret((1, n, k, 1), (0, 1, 0, 1))
    numbers = graph.constant(np.arange(k, dtype=np.uint32).reshape(1, 1, k, 1)).reinterpret((1, n, k, 1), (0, 0, 1, 1))
    member = dml.cast(nearest == numbers, output_type=DataType.FLOAT32)
    away = samples.reinterpret((1, n, k, 3), (0, 3, 0, 1)) - palette.reinterpret((1, n, k, 3), (0, 0, 3, 1))
    pull = dml.reduce(away * member.broadcast_to((1, n, k, 3)), function=ReduceFunction.SUM, axes=(1,))
    size = dml.reduce(member, function=ReduceFunction.SUM, axes=(1,))
    floor = graph.constant(np.ones((1, 1, 1, 1), np.float32)).broadcast_to(size.sizes)
    divisor = dml.element_wise_max(size, floor).broadcast_to((1, 1, k, 3))
    return palette + pull / divisor


MARGIN, GAP, PANEL = 36, 24, 400


def load_photo(path: Path | None, size: int) -> NDArray[np.uint8]:
    """Return a photograph {height, width, 3}, its longer side shrunk to at most ``size`` pixels.

    Args:
        path: Any file that Pillow reads; None is the portrait of Eileen Collins (NASA, public domain) that
            scikit-image ships.
        size: In pixels.

    Raises:
        OSError: If the file is missing or is no picture.
    """
    if path is None:
        from skimage import data  # noqa: PLC0415 - slow to import, and not needed for one's own photograph

        image = Image.fromarray(data.astronaut())
    else:
        image = load_picture(path)
    image.thumbnail((size, size), Image.Resampling.LANCZOS)
    return np.asarray(image, np.uint8)


def compose(reduction: PaletteReduction, subtitle: str) -> Image.Image:
    """Return the picture: before, after and a mirrored detail side by side, the palette below."""
    height, width, _ = reduction.photo.shape
    panel = (PANEL, max(1, round(PANEL * height / width)))
    captions = _captions(reduction)
    images = (reduction.photo, reduction.painted, reduction.mirrored)
    top, strip = MARGIN + 74, 56
    canvas = Image.new("RGB", (2 * MARGIN + 3 * PANEL + 2 * GAP, top + panel[1] + 66 + strip + 44 + MARGIN), BACKGROUND)
    write(canvas, (MARGIN, MARGIN - 4), f"A photograph in {len(reduction.colors)} colors", INK, 30)
    write(canvas, (MARGIN, MARGIN + 38), subtitle, FAINT, 16)
    for index, (image, (title, operators)) in enumerate(zip(images, captions, strict=True)):
        left = MARGIN + index * (PANEL + GAP)
        paste_rounded(canvas, Image.fromarray(image), (left, top), panel)
        write(canvas, (left, top + panel[1] + 8), title, INK, 17)
        write(canvas, (left, top + panel[1] + 31), operators, FAINT, 13)
    _draw_palette(canvas, reduction, top + panel[1] + 66, strip)
    return canvas


def _captions(reduction: PaletteReduction) -> Sequence[tuple[str, str]]:
    before = len(np.unique(reduction.photo.reshape(-1, 3), axis=0))
    return (
        (f"Before: {before:,} colors", "the original pixels"),
        (f"After: {len(reduction.colors)} colors", "DIFFERENCE_SQUARE, REDUCE, ARGMIN, GATHER_ND1"),
        ("A detail in the mirror", "SLICE1 with a negative stride"),
    )


def _draw_palette(canvas: Image.Image, reduction: PaletteReduction, top: int, height: int) -> None:
    span = canvas.width - 2 * MARGIN
    strip = Image.fromarray(reduction.strip)
    paste_rounded(canvas, strip, (MARGIN, top), (span, height))
    count = len(reduction.colors)
    for index, (color, share) in enumerate(zip(reduction.colors, reduction.shares, strict=True)):
        if span / count < 60:
            break  # no room for words
        middle = MARGIN + span * (2 * index + 1) // (2 * count)
        text = "#" + "".join(f"{channel:02x}" for channel in color)
        write(canvas, (middle, top + height + 8), text, INK, 14, anchor="ma")
        write(canvas, (middle, top + height + 27), f"{share:.1%}", FAINT, 13, anchor="ma")
