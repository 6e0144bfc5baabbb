"""Gathers that are copied block by block."""

from __future__ import annotations

import pytest

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.plan import Element, Lookup, PlanBinding, PlanTensor, Role, View, constants
from dmlgpu.compiler.schedule.copies import find_blocks
from dmlgpu.compiler.target import Profile, Target

CPU, GPU = Target("cpu"), Target("gpu", Profile.DISCRETE)
F32, U8 = DataType.FLOAT32, DataType.UINT8


def gather(rows, units, *, kind=Lookup, follows=1, data_type=F32, lanes=4, strides=None):
    source = PlanTensor(PlanBinding(Role.INPUT, 0), data_type, (9, units), (units, 1), View.RAW, lanes=lanes)
    indices = PlanTensor(PlanBinding(Role.INPUT, 1), DataType.UINT32, (rows, 1), (1, 1), View.INDEX)
    output = PlanTensor(
        PlanBinding(Role.OUTPUT, 0),
        data_type,
        (rows, units),
        strides or packed_strides((rows, units)),
        View.RAW,
        0,
        lanes,
    )
    body = kind(
        "indexing/gather_nd1",
        data_type,
        output.sizes,
        (("input", source), ("indices", indices)),
        constants(batch=0, tuple=1, lead=1),
        follows=((None, follows), (None, None)),
        lanes=lanes,
    )
    return "gather", body, output


@pytest.mark.parametrize(("rows", "units"), [(4096, 64), (256, 1024)])
def test_long_enough_blocks_of_many(rows, units):
    blocks = find_blocks(*gather(rows, units), CPU)
    assert (blocks.dimension, blocks.followed, blocks.launch.total) == (1, 1, rows)


@pytest.mark.parametrize(
    ("rows", "units", "changes"),
    [
        (255, 64, {}),
        (4096, 16, {}),
        (256, 1025, {}),
        (4096, 64, {"kind": Element}),
        (4096, 64, {"follows": None}),
        (4096, 64, {"data_type": U8, "lanes": 1}),
        (4096, 64, {"strides": (1, 4096)}),
    ],
)
def test_other_gathers_are_copied_unit_by_unit(rows, units, changes):
    assert find_blocks(*gather(rows, units, **changes), CPU) is None


def test_gpus_copy_unit_by_unit():
    assert find_blocks(*gather(4096, 64), GPU) is None
