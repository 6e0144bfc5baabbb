"""The demonstration as one graph: a photograph in few colours, painted without the host's help."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.demo.palette.reduction import SAMPLES
from dmlgpu.tensors.graphs import functions as dml
from dmlgpu.tensors.graphs.expression import Expression
from dmlgpu.tensors.graphs.graph import Graph

NAMES = ("painted", "palette")
"""Of the graph's outputs; its input is ``photo``."""


def palette_graph(
    height: int, width: int, *, colors: int = 16, iterations: int = 8, start: Sequence[int] | None = None
) -> GraphDesc:
    """Return the graph that paints a photograph, UINT8 of sizes {1, height, width, 3}, in few colours.

    Its outputs are the painted photograph and the palette, FLOAT32 of sizes {1, 1, colors, 3}.

    Args:
        height, width: of the photograph, in pixels.
        colors: in the palette.
        iterations: rounds of k-means.
        start: numbers of the sampled pixels that the palette starts as; None takes some at even distances.
    """
    graph = Graph(name="palette")
    photo = graph.input((1, height, width, 3), DataType.UINT8, name="photo")
    step = max(1, math.ceil(math.sqrt(height * width / SAMPLES)))
    sampled = dml.slice1(photo, input_window_sizes=(1, height, width, 3), input_window_strides=(1, step, step, 1))
    samples = _points(sampled)
    count = samples.sizes[2]
    chosen = np.linspace(0, count - 1, colors, dtype=np.uint32) if start is None else np.array(start, np.uint32)
    palette = _pick(samples, graph.constant(chosen.reshape(1, 1, colors, 1)))
    for _ in range(iterations):
        palette = _improved(graph, samples, palette)
    rounded = dml.cast(palette + 0.5, output_type=DataType.UINT8)
    painted = _pick(rounded, _nearest(_points(photo), palette))
    return graph.desc([dml.element_wise_identity(painted.reinterpret(photo.sizes)), palette])


def _points(image: Expression) -> Expression:
    """Return the pixels of {1, H, W, 3} as points {1, 1, N, 3}."""
    _, height, width, _ = image.sizes
    return dml.cast(image, output_type=DataType.FLOAT32).reinterpret((1, 1, height * width, 3))


def _nearest(points: Expression, palette: Expression) -> Expression:
    """Return for each point {1, 1, N, 3} the number of the nearest colour, {1, 1, N, 1}."""
    n, k = points.sizes[2], palette.sizes[2]
    a, b = points.reinterpret((1, n, k, 3), (0, 3, 0, 1)), palette.reinterpret((1, n, k, 3), (0, 0, 3, 1))
    distances = dml.reduce(dml.element_wise_difference_square(a, b), function=ReduceFunction.SUM, axes=(3,))
    return dml.argmin(distances, axes=(2,), output_type=DataType.UINT32).reinterpret((1, 1, n, 1))


def _pick(rows: Expression, indices: Expression) -> Expression:
    """Return the rows {1, 1, N, 3} of {1, 1, M, 3} that indices {1, 1, N, 1} name."""
    return dml.gather_nd1(rows, indices, input_dimension_count=2, indices_dimension_count=2)


def _improved(graph: Graph, samples: Expression, palette: Expression) -> Expression:
    """Move each colour to the mean of the samples nearest to it; one without any stays where it is."""
    n, k = samples.sizes[2], palette.sizes[2]
    nearest = _nearest(samples, palette).reinterpret((1, n, k, 1), (0, 1, 0, 1))
    numbers = graph.constant(np.arange(k, dtype=np.uint32).reshape(1, 1, k, 1)).reinterpret((1, n, k, 1), (0, 0, 1, 1))
    member = dml.cast(nearest == numbers, output_type=DataType.FLOAT32)
    away = samples.reinterpret((1, n, k, 3), (0, 3, 0, 1)) - palette.reinterpret((1, n, k, 3), (0, 0, 3, 1))
    pull = dml.reduce(away * member.broadcast_to((1, n, k, 3)), function=ReduceFunction.SUM, axes=(1,))
    size = dml.reduce(member, function=ReduceFunction.SUM, axes=(1,))
    least = graph.constant(np.ones((1, 1, 1, 1), np.float32)).broadcast_to(size.sizes)
    divisor = dml.element_wise_max(size, least).broadcast_to((1, 1, k, 3))
    return palette + pull / divisor
