"""Kernels that other sizes share: how many sources the shapes of a model need, and by which rule they need no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dmlgpu import Tensor, ops
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.graphs.graph import Graph
from tests.unit.compiler.sizes.test_networks import Compiler

TARGET = Target("CPU", Profile.CPU, frozenset({"shader-int64", "subgroup", "immediates"}), subgroup_lanes=8).varying

NARROW = ((14, 14), (20, 20), (10, 18), (20, 30))
WIDE = ((28, 28), (40, 40), (28, 36), (60, 84))


def weights(*sizes: int) -> np.ndarray:
    return np.ones(sizes, np.float32)


def depthwise(x: Tensor) -> Tensor:
    return ops.conv2d(x, weights(96, 1, 3, 3), padding=1, groups=96)


def heads(x: Tensor) -> Tensor:
    """Return picked rows, each as columns of channels: a view whose steps are sizes."""
    channels, rows, columns = x.shape[1:]
    picked = ops.take(x.reshape(rows, channels * columns), np.array([2, 0, 1], np.int32), axis=0)
    return picked.reshape(3, channels, columns).transpose(0, 2, 1) + 1.0


CASES = {
    "rows of few columns are read one by one": (depthwise, 96, NARROW, 1),
    "all tiles check their edges": (depthwise, 96, WIDE, 1),
    "upsampling repeats elements as often for all sizes": (
        lambda x: ops.interpolate(x, scale_factor=2.0) + 1.0,
        24,
        (*NARROW, *WIDE),
        1,
    ),
    "few tiles take Winograd's kernels too": (lambda x: ops.conv2d(x, weights(24, 96, 3, 3), padding=1), 96, NARROW, 5),
    "few columns are laid out, aligned or not": (
        lambda x: ops.conv2d(x, weights(256, 256, 1, 1)),
        256,
        ((5, 7), (6, 10), (10, 15), (7, 12)),
        2,
    ),
    "products of little work take one step at a time, and any tile": (
        lambda x: x @ ops.swapaxes(x, 2, 3),
        8,
        ((20, 15), (25, 15), (40, 15), (33, 14)),
        1,
    ),
    "few elements are reduced one by one": (lambda x: ops.mean(x, axis=(2, 3)), 240, NARROW, 2),
    "short rows are stored one by one": (ops.softmax, 8, ((20, 20), (25, 25), (40, 40), (33, 33)), 1),
    "steps of views are sizes": (heads, 8, NARROW, 1),
    "runs of few elements are read one by one": (
        lambda x: ops.multiply(x, weights(1, 480, 1, 1)),
        480,
        ((5, 7), (6, 10), (10, 15), (8, 10)),
        1,
    ),
}


@pytest.mark.parametrize(("function", "channels", "images", "count"), CASES.values(), ids=CASES)
def test_shapes_share_kernels(
    function: Callable[[Tensor], Tensor], channels: int, images: Sequence[tuple[int, int]], count: int
) -> None:
    compiler, sources = Compiler(), []
    for image in images:
        graph = Graph(Device("numpy"))
        network = resolve(graph.desc([function(graph.input((1, channels, *image)))]))
        sources.append({kernel.wgsl for kernel in compiler.program(network, TARGET).kernels})
    # The first shape is compiled with plain integers: sources differ where one of them is 0 or 1.
    assert len(set().union(*sources[1:])) <= count


def residuals(graph: Graph, rows: int) -> list[Tensor]:
    """Return products to which a tensor is added that is held by rows, and one that is held by columns."""
    x, by_rows, by_columns = (graph.input(sizes) for sizes in ((rows, 64), (rows, 120), (120, rows)))
    return [x @ weights(64, 120) + by_rows, x @ weights(64, 120) + ops.swapaxes(by_columns, 0, 1)]


def convolutions(graph: Graph, rows: int) -> list[Tensor]:
    """Return convolutions with a result by rows, and by columns."""
    xs = graph.input((1, 24, rows, 11)), graph.input((1, 24, rows, 11))
    by_rows, by_columns = (ops.conv2d(x, weights(24, 24, 3, 3), stride=2) + 1.0 for x in xs)
    return [by_rows, ops.swapaxes(by_columns, 2, 3)]


@pytest.mark.parametrize(("function", "label"), [(residuals, "gemm"), (convolutions, "convolution")])
def test_results_by_rows_and_by_columns_share_a_kernel(
    function: Callable[[Graph, int], list[Tensor]], label: str
) -> None:
    compiler = Compiler()
    for rows in (37, 42):
        graph = Graph(Device("numpy"))
        kernels = compiler.program(resolve(graph.desc(function(graph, rows))), TARGET).kernels
    products = [kernel.wgsl for kernel in kernels if label in kernel.label and "lay out" not in kernel.label]
    assert len(products) == 2 and len(set(products)) == 1


def test_large_images_are_read_in_units() -> None:
    compiler, labels = Compiler(), set()
    for image in ((14, 14), (20, 20), (320, 480)):
        graph = Graph(Device("numpy"))
        network = resolve(graph.desc([depthwise(graph.input((1, 96, *image)))]))
        labels = {kernel.label.rpartition(" ")[2] for kernel in compiler.program(network, TARGET).kernels}
    assert labels == {"x4"}
