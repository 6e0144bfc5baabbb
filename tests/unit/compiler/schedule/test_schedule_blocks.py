"""Gathers that are copied block by block."""

from __future__ import annotations

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc, packed_strides
from dmlgpu.compiler.plan import Element, Lookup, PlanBinding, PlanTensor, Role, View, constants
from dmlgpu.compiler.schedule.copies import blocks_pay, has_blocks, schedule_blocks
from dmlgpu.compiler.target import Profile, Target
from tests import schedules

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
    label, body, output = gather(rows, units)
    assert has_blocks(body, output) and blocks_pay(output)
    blocks = schedule_blocks(label, body, output, CPU)
    assert (blocks.dimension, blocks.followed, blocks.launch.total) == (1, 1, rows)


@pytest.mark.parametrize(
    ("rows", "units", "why"),
    [
        (255, 64, "255 blocks, at least 256"),
        (4096, 16, "16 units of a block, at least 32"),
        (256, 1025, "1,025 units of a block, at most 1,024"),
    ],
)
def test_few_and_short_blocks_do_not_pay(rows, units, why):
    _, body, output = gather(rows, units)
    assert has_blocks(body, output) and str(blocks_pay(output)) == why


@pytest.mark.parametrize(
    "changes",
    [{"kind": Element}, {"follows": None}, {"data_type": U8, "lanes": 1}, {"strides": (1, 4096)}],
)
def test_other_gathers_are_copied_unit_by_unit(changes):
    _, body, output = gather(4096, 64, **changes)
    assert not has_blocks(body, output)


@pytest.mark.parametrize(("target", "kind"), [(CPU, "blocks"), (GPU, "map")])
def test_gpus_copy_unit_by_unit(target, kind):
    desc = descs.Gather(
        input_tensor=TensorDesc(F32, (9, 256)),
        indices_tensor=TensorDesc(DataType.UINT32, (1, 4096)),
        output_tensor=TensorDesc(F32, (4096, 256)),
        axis=0,
        index_dimensions=1,
    )
    (kernel,) = schedules.steps_of(desc, target)
    assert kernel.kind == kind
