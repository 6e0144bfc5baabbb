"""CUMULATIVE_SUMMATION, CUMULATIVE_PRODUCT, NONZERO_COORDINATES: validation, output sizes, plans."""

from __future__ import annotations

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import AxisDirection, DataType, FeatureLevel
from dmlgpu.catalog.tensor_desc import TensorDesc, aligned
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.operators.inference import complete
from dmlgpu.compiler.operators.lowering import lowering
from dmlgpu.compiler.schedule.scan import TOTAL
from dmlgpu.compiler.schedule.steps.reductions import ScanSchedule, ScheduledScan
from dmlgpu.compiler.target import Profile, Target
from tests.schedules import steps_of
from tests.unit.rejections import rejection

F32, F16, I32, U32, I64, U64 = (DataType[name] for name in ("FLOAT32", "FLOAT16", "INT32", "UINT32", "INT64", "UINT64"))
ANY, GPU = Target("any"), Target("any", Profile.DISCRETE)
SUM, PRODUCT = descs.CumulativeSummation, descs.CumulativeProduct


def cumulative(desc_class=SUM, data_type=F32, axis=1, *, output=(4, 5, 6), direction=0, exclusive=False):
    flag = "has_exclusive_sum" if desc_class is SUM else "has_exclusive_product"
    return desc_class(
        input_tensor=TensorDesc(data_type, (4, 5, 6)),
        output_tensor=TensorDesc(data_type, output),
        axis=axis,
        axis_direction=AxisDirection(direction),
        **{flag: exclusive},
    )


def nonzero(sizes=(1, 1, 4, 5), rows=(1, 1, 20, 2), count=(1, 1, 1, 1), data_type=F32):
    return descs.NonzeroCoordinates(
        input_tensor=TensorDesc(data_type, sizes),
        output_count_tensor=TensorDesc(U32, count),
        output_coordinates_tensor=TensorDesc(U32, rows),
    )


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (
            cumulative(axis=3),
            "CUMULATIVE_SUMMATION: axis must be below input_tensor's dimension count (3), got 3",
        ),
        (
            nonzero(count=(1, 2)),
            "NONZERO_COORDINATES: output_count_tensor.sizes must be [1, 1] (one count), got [1, 2]",
        ),
        (
            nonzero(rows=(1, 19, 2)),
            "NONZERO_COORDINATES: output_coordinates_tensor.sizes must be [1, 20, 2]"
            " (leading 1s, input_tensor's elements, coordinates), got [1, 19, 2]",
        ),
        (
            nonzero(rows=(2, 20, 2)),
            "NONZERO_COORDINATES: output_coordinates_tensor.sizes must be [1, 20, 2]"
            " (leading 1s, input_tensor's elements, coordinates), got [2, 20, 2]",
        ),
        (
            nonzero(rows=(20, 1)),
            "NONZERO_COORDINATES: output_coordinates_tensor.sizes[-1] must be between input_tensor's dimension count"
            " without leading 1s (2) and with them (4), got 1",
        ),
        (
            nonzero(rows=(20, 5)),
            "NONZERO_COORDINATES: output_coordinates_tensor.sizes[-1] must be between input_tensor's dimension count"
            " without leading 1s (2) and with them (4), got 5",
        ),
    ],
)
def test_invalid_descriptions_are_rejected(desc, message):
    assert rejection(desc) == message


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [((1, 2, 3, 4), (24, 3)), ((1, 2, 3, 4), (24, 4)), ((1, 1, 5, 5, 5), (1, 125, 3)), ((1, 1, 1, 1), (1, 1))],
)
def test_leading_ones_may_be_omitted(sizes, rows):
    operators.check(nonzero(sizes, rows, (1,)))


def test_below_4_0_dimension_counts_are_equal():
    operators.check(nonzero(), FeatureLevel.LEVEL_3_1)
    operators.check(nonzero(count=(1,)), FeatureLevel.LEVEL_4_0)
    assert rejection(nonzero(rows=(1, 1, 1, 20, 2)), FeatureLevel.LEVEL_3_1) == (
        "NONZERO_COORDINATES: output_coordinates_tensor.dimension_count must be input_tensor's dimension count (4)"
        " below feature level 4_0, got 5"
    )


def test_output_sizes():
    values = {"input_tensor": TensorDesc(U32, (4, 5, 6)), "axis": 1}
    assert complete(PRODUCT, values).output_tensor.sizes == (4, 5, 6)
    desc = nonzero((3, 7), (1, 1, 21, 2), (1, 1, 1))
    assert lowering("NONZERO_COORDINATES").output_sizes(desc) == {
        "output_count_tensor": (1, 1, 1),
        "output_coordinates_tensor": (1, 1, 21, 2),
    }


@pytest.mark.parametrize("desc_class", [SUM, PRODUCT])
@pytest.mark.parametrize("data_type", [I64, U64])
def test_64_bit_integers_need_no_feature(desc_class, data_type):
    (kernel,) = compiler.compile_operator(cumulative(desc_class, data_type), ANY).kernels
    assert "i64" not in kernel.wgsl and "u64" not in kernel.wgsl.replace("u64_words", "")


def test_coordinates_use_counts_per_block_and_the_total_of_an_empty_block():
    desc = nonzero((1, 300, 100), (30000, 3), (1, 1))
    totals, starts, rows, count = steps_of(desc, ANY)
    assert (totals.advance, rows.advance) == (TOTAL, "scanning/nonzero_coordinates")
    assert starts.of_totals and starts.output == rows.starts == totals.output
    assert totals.source.lanes == 4 and totals.source.file == "scanning/is_nonzero"
    assert totals.units == 7500 and (totals.blocks - 1) * totals.length >= 7500
    assert count.label == "count"
    assert compiler.compile_operator(desc, ANY).temporary_size == aligned(4 * totals.blocks)


def test_coordinates_on_a_gpu_are_found_by_workgroups():
    steps = steps_of(nonzero((4096, 4096), (1 << 24, 2), (1,)), GPU)
    scans = [step for step in steps if isinstance(step, ScheduledScan)]
    assert scans[0].schedule is scans[-1].schedule is ScanSchedule.TREE


def test_large_coordinates_are_split_into_bindings():
    def largest(program):
        return max(slot.size for kernel in program.kernels for slot in kernel.slots)

    fitting = compiler.compile_operator(nonzero((4096, 4096), (1 << 24, 2), (1,)), ANY)
    assert not any(slot.is_continued for kernel in fitting.kernels for slot in kernel.slots)
    divided = compiler.compile_operator(nonzero((16, 256, 4096), (1 << 24, 3), (1,)), ANY)
    assert any(slot.is_continued for kernel in divided.kernels for slot in kernel.slots)
    assert largest(fitting) == largest(divided) == ANY.max_binding_size
