"""Loops of kernels that drivers would unroll: their ends are opaque, so that drivers take milliseconds, not seconds."""

import re

import pytest

from dmlgpu import Graph, TensorDesc
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler import operators
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.target import Overrides, Profile, Target
from dmlgpu.compiler.wgsl.render import render
from dmlgpu.ops import directml as functions
from tests.kernel_sources import with_values

CPU = Target("any", Profile.CPU)
KNOWN = r"for \(var \w+ = [^;]*; \w+ < \d+u;"
"""A loop whose end is a number."""


def product(graph):
    return functions.gemm(graph.input((1, 1, 1, 24)), graph.input((1, 1, 24, 3)))


def runs(graph):
    repeated = TensorDesc(DataType.FLOAT32, (1, 1, 4000, 25), (4000, 4000, 1, 0))
    return functions.element_wise_multiply(graph.input((1, 1, 4000, 25)), graph.input(repeated))


def window_of_one_row(graph):
    return functions.convolution(
        graph.input((1, 8, 16, 16)),
        graph.input((8, 1, 11, 11)),
        start_padding=(5, 5),
        end_padding=(5, 5),
        group_count=8,
    )


@pytest.mark.parametrize(
    ("build", "label"),
    [(product, "gemm small"), (runs, "map_runs"), (window_of_one_row, "convolution depthwise x4")],
)
def test_no_driver_knows_where_a_loop_ends(build, label):
    graph = Graph()
    build(graph)
    program = render(schedule(operators.lower(graph.nodes[-1].desc), CPU))
    (kernel,) = program.kernels
    assert label in kernel.label or f"schedules/{label}" in kernel.wgsl
    text = with_values(kernel)
    assert "for (" in text
    assert re.findall(KNOWN, text) == []
    assert "opaque_zero()" in text


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
@pytest.mark.parametrize("inner", [64, 5000], ids=["sums", "sums and totals"])
def test_cpu_adapters_keep_sums_of_products_in_arrays(profile, inner):
    graph = Graph()
    functions.gemm(graph.input((1, 1, 64, inner)), graph.input((1, 1, inner, 64)))
    chosen = schedule(
        operators.lower(graph.nodes[-1].desc), Target("any", profile, overrides=Overrides(schedule="register"))
    )
    text = next(kernel.wgsl for kernel in render(chosen).kernels if "register" in kernel.label)
    names = {"sum", "total"} if inner == 5000 else {"sum"}
    arrays = {f"{name}_{lane}" for name in names for lane in "xyzw"}
    assert set(re.findall(r"var (\w+) = array<f32, \d+>", text)) == (arrays if profile is Profile.CPU else set())
    assert set(re.findall(r"var ([a-z]+)\d+_\d+ = sum_t\(\)", text)) == (set() if profile is Profile.CPU else names)


def test_cpu_adapters_loop_once_over_inner_dimensions():
    graph = Graph()
    functions.convolution(graph.input((1, 16, 12, 12)), graph.input((16, 16, 5, 5)))
    chosen = schedule(operators.lower(graph.nodes[-1].desc), CPU.with_overrides(schedule="register"))
    text = next(kernel.wgsl for kernel in render(chosen).kernels if "register" in kernel.label)
    assert re.findall(r"for \(var (\w+) =", text) == ["turn", "place"]
