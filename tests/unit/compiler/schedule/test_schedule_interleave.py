"""Copies between planes and groups in whole units, and their kernels."""

from __future__ import annotations

import math
import re

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.operators import lower
from dmlgpu.compiler.plan import PlanBinding, PlanTensor, Role, View, apply
from dmlgpu.compiler.rewrites.sources import identity
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.schedule.copies import MAX_PLANES, find_interleave
from dmlgpu.compiler.schedule.registry import Condition
from dmlgpu.compiler.schedule.steps.maps import ScheduledInterleave
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.compiler.wgsl.render import render
from tests.kernel_sources import with_values

CPU, GPU = Target("cpu"), Target("gpu", Profile.DISCRETE)
U8, F16, F32, I64 = DataType.UINT8, DataType.FLOAT16, DataType.FLOAT32, DataType.INT64


def problem(sizes, source_strides, strides, data_type=F32, offset=0):
    source = PlanTensor(PlanBinding(Role.INPUT, 0), data_type, sizes, source_strides, View.RAW, offset)
    return "copy", identity(source), PlanTensor(PlanBinding(Role.OUTPUT, 0), data_type, sizes, strides, View.RAW)


@pytest.mark.parametrize("target", [CPU, GPU], ids=lambda target: target.name)
@pytest.mark.parametrize("data_type", [U8, F16, F32, I64], ids=lambda data_type: data_type.name)
@pytest.mark.parametrize("count", [2, 3, MAX_PLANES])
def test_planes_and_groups_are_read_and_written_in_units(count, data_type, target):
    lanes = 2 if data_type is I64 else 4
    split = find_interleave(*problem((count, 20), (1, count), (20, 1), data_type), target)
    join = find_interleave(*problem((20, count), (1, 20), (count, 1), data_type), target)
    for step, splits, dimension in ((split, True, 1), (join, False, 0)):
        assert (step.splits, step.dimension, step.planes, step.count) == (splits, dimension, 1 - dimension, count)
        planar, groups = (step.output, step.source) if splits else (step.source, step.output)
        assert (planar.lanes, groups.lanes, step.launch.total) == (lanes, lanes, 20 // lanes)
        assert (planar.sizes[dimension], groups.sizes[dimension]) == (20 // lanes, 20 * count // lanes)
        assert math.prod(planar.sizes) == math.prod(groups.sizes) == 20 * count // lanes


@pytest.mark.parametrize(
    ("sizes", "source_strides", "strides", "offset"),
    [
        pytest.param((3, 20), (20, 1), (20, 1), 0, id="the same order"),
        pytest.param((3, 18), (1, 3), (18, 1), 0, id="planes that whole units do not divide"),
        pytest.param((3, 20), (1, 4), (20, 1), 0, id="gaps between groups"),
        pytest.param((3, 20), (1, 3), (21, 1), 0, id="unaligned planes"),
        pytest.param((3, 20), (1, 3), (20, 1), 2, id="an unaligned source"),
        pytest.param((9, 20), (1, 9), (20, 1), 0, id="more planes than registers hold"),
        pytest.param((2, 3, 20), (62, 1, 3), (60, 20, 1), 0, id="unaligned rows of groups"),
    ],
)
def test_other_copies_go_unit_by_unit(sizes, source_strides, strides, offset):
    assert isinstance(find_interleave(*problem(sizes, source_strides, strides, offset=offset), CPU), Condition)


def test_only_plain_copies_are_interleaved():
    label, body, output = problem((3, 20), (1, 3), (20, 1))
    source = body.inputs[0][1]
    difference = apply("elementwise/element_wise_subtract", F32, (3, 20), a=source, b=source)
    for other in (difference, identity(body)):
        assert str(find_interleave(label, other, output, CPU)) == "it is no plain copy of a tensor"


def kernel(source, output):
    """Return the only kernel of a copy, and its text."""
    plan = lower(descs.ElementWiseIdentity(input_tensor=source, output_tensor=output))
    scheduled = schedule(plan, GPU)
    (step,), (rendered,) = scheduled.steps, render(scheduled).kernels
    return step, with_values(rendered)


def test_pixels_become_planes_unit_by_unit():
    pixels, planes = TensorDesc(F32, (1, 3, 4, 8), (96, 1, 24, 3)), TensorDesc(F32, (1, 3, 4, 8))
    step, text = kernel(pixels, planes)
    assert isinstance(step, ScheduledInterleave) and step.launch.total == 8
    assert step.reason == "a plain copy, groups of 3 become planes: an invocation reads and writes 3 whole units"
    stores = re.findall(r"output_unit\(plane\), (.*)\);", text)
    assert stores[0] == "vec4<u32>(unit0.x, unit0.w, unit1.z, unit2.y)"
    assert stores[2] == "vec4<u32>(unit0.z, unit1.y, unit2.x, unit2.w)"
    step, text = kernel(planes, pixels)
    assert step.reason.startswith("a plain copy, 3 planes become groups")
    stores = re.findall(r"output_unit\(group\), (.*)\);", text)
    assert stores[0] == "vec4<u32>(unit0.x, unit1.x, unit2.x, unit0.y)"


def test_squares_of_units_stay_transposes():
    step, _ = kernel(TensorDesc(F32, (1, 4, 4, 8), (128, 1, 32, 4)), TensorDesc(F32, (1, 4, 4, 8)))
    assert step.kind == "transpose"


def test_pairs_of_planes_are_no_squares_of_smaller_units():
    step, _ = kernel(TensorDesc(F32, (1, 2, 4, 8), (64, 1, 16, 2)), TensorDesc(F32, (1, 2, 4, 8)))
    assert step.kind == "interleave"
