"""Matrix products: checks, and plans as data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog.enums import DataType, FeatureLevel, MatrixTransform, TensorFlags
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.schedule.gemm import CHUNK
from dmlgpu.compiler.schedule.gemm_choice import NAMES, Shape, alternatives, choose, expected_cost
from dmlgpu.compiler.schedule.steps.products import OperandLayout, ProductSchedule, ScheduledContract
from dmlgpu.compiler.schedule.steps.reductions import ScheduledRows
from dmlgpu.compiler.sizes.arithmetic import Recording
from dmlgpu.compiler.target import Overrides, Profile, Target
from tests.schedules import steps_of
from tests.unit.rejections import rejection

F32, U8, I32 = DataType.FLOAT32, DataType.UINT8, DataType.INT32
CPU, GPU = Target("CPU"), Target("GPU", Profile.DISCRETE)
NONE, TRANSPOSE = MatrixTransform.NONE, MatrixTransform.TRANSPOSE


def gemm(a: Any, b: Any, output: Any, **fields: Any) -> descs.Gemm:
    flags = fields.pop("b_flags", TensorFlags.NONE)
    values = {"c_tensor": None, "trans_a": NONE, "trans_b": NONE, "alpha": 1.0, "beta": 1.0, **fields}
    return descs.Gemm(
        a_tensor=TensorDesc(F32, a),
        b_tensor=TensorDesc(F32, b, flags=flags),
        output_tensor=TensorDesc(F32, output),
        **values,
    )


def square(size: int, **fields: Any) -> descs.Gemm:
    return gemm(*[(size, size)] * 3, **fields)


def test_gemm_checks_sizes() -> None:
    operators.check(gemm((2, 4, 3), (2, 3, 5), (2, 4, 5)))
    operators.check(gemm((3, 4), (5, 3), (4, 5), trans_a=TRANSPOSE, trans_b=TRANSPOSE))
    assert rejection(gemm((2, 4, 3), (2, 7, 5), (2, 4, 5))) == (
        "GEMM: b_tensor.sizes must be [2, 3, 5] (a_tensor has batch sizes [2] and inner size 3), got [2, 7, 5]"
    )
    assert rejection(gemm((4, 3), (5, 7), (4, 5), trans_b=TRANSPOSE)) == (
        "GEMM: b_tensor.sizes must be [5, 3] (a_tensor has batch sizes [] and inner size 3), got [5, 7]"
    )
    assert rejection(gemm((4, 3), (3, 5), (5, 4))) == (
        "GEMM: output_tensor.sizes must be [4, 5] (4 rows of a_tensor, 5 columns of b_tensor), got [5, 4]"
    )


def test_the_axes_of_a_fused_softmax_are_checked() -> None:
    desc = square(4, fused_activation=descs.ActivationSoftmax1(axes=(2,)))
    assert rejection(desc) == ("GEMM: fused_activation.axes[0] must be below input_tensor's dimension count (2), got 2")


def test_the_level_of_a_fused_softplus_is_checked() -> None:
    desc = square(4, fused_activation=descs.ActivationSoftplus(steepness=0.5))
    operators.check(desc)
    assert rejection(desc, FeatureLevel.LEVEL_6_3) == (
        "GEMM: fused_activation.steepness must be at least 1 below feature level 6_4, got 0.5"
    )


def integer(**changes: Any) -> descs.MatrixMultiplyInteger:
    fields: dict[str, Any] = {
        "a_tensor": TensorDesc(U8, (4, 3)),
        "b_tensor": TensorDesc(U8, (3, 5)),
        "output_tensor": TensorDesc(I32, (4, 5)),
        "a_zero_point_tensor": None,
        "b_zero_point_tensor": None,
    }
    return descs.MatrixMultiplyInteger(**fields | changes)


@pytest.mark.parametrize("sizes", [(1,), (4,), (4, 1), (1, 4, 1), (1, 1, 4, 1), (1, 1, 1, 1)])
def test_zero_points_of_rows(sizes: tuple[int, ...]) -> None:
    operators.check(integer(a_zero_point_tensor=TensorDesc(U8, sizes)))


def test_zero_points_elsewhere_are_rejected() -> None:
    assert rejection(integer(a_zero_point_tensor=TensorDesc(U8, (1, 4)))) == (
        "MATRIX_MULTIPLY_INTEGER: a_zero_point_tensor.sizes must be [1, 1] (one for all) or [4, 1] (one per row),"
        " got [1, 4]"
    )
    assert rejection(integer(b_zero_point_tensor=TensorDesc(U8, (3,)))) == (
        "MATRIX_MULTIPLY_INTEGER: b_zero_point_tensor.sizes must be [1] (one for all) or [5] (one per column), got [3]"
    )


# ---- schedules


def test_small_products_are_computed_element_by_element() -> None:
    for target in (CPU, GPU):
        assert choose(Shape(1, 8, 8, 8), target).name == "small"


def test_each_profile_has_its_schedule() -> None:
    shape = Shape(1, 1024, 1024, 1024)
    assert (choose(shape, CPU).name, choose(shape, GPU).name) == ("register", "shared")


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("kind", [{}, {"streams": True}, {"along": True}, {"packs": True}])
def test_choices_of_symbolic_shapes_have_one_guard(kind: dict[str, bool], target: Target) -> None:
    recording = Recording([40])
    with recording.active():
        choice = choose(Shape(1, recording.symbols[0], 512, 512, **kind), target)
        replay = recording.replay([])
    assert len(recording.guards) == 1
    assert choice == choose(Shape(1, 40, 512, 512, **kind), target)
    shapes = {rows: Shape(1, rows, 512, 512, **kind) for rows in range(1, 300)}
    replayed = {rows for rows in shapes if replay([rows]) is not None}
    assert {rows for rows, shape in shapes.items() if choose(shape, target) == choice} <= replayed
    tiles = {
        rows: {(each.schedule, each.tile) for each in alternatives(shapes[rows], target).values()} for rows in replayed
    }
    assert all((choice.schedule, choice.tile) in fitting for fitting in tiles.values())
    assert 10 < len(replayed) < 290


@pytest.mark.parametrize(
    ("rows", "trans_b", "expected"),
    [
        (1, TRANSPOSE, ["small"]),
        (1, NONE, ["register split", "sum of parts"]),
        (2, TRANSPOSE, ["register split", "sum of parts"]),
    ],
)
def test_a_row_by_contiguous_columns_needs_no_tiles(rows: int, trans_b: MatrixTransform, expected: list[str]) -> None:
    desc = gemm((rows, 512), (512, 512), (rows, 512), trans_b=trans_b)
    assert [step.label for step in steps_of(desc, CPU)] == expected


def test_long_sums_of_few_outputs_are_split() -> None:
    for target in (CPU, GPU):
        choice = choose(Shape(1, 16, 16, 100_000), target)
        assert choice.name.endswith("-split") and choice.parts > 1


def test_no_invocation_takes_more_steps_than_the_driver_allows() -> None:
    limited = Target("Limited", loop_limit=65535)
    for name in ("small", "register", "shared"):
        choice = choose(Shape(1, 512, 512, 200_000), limited, name)
        assert -(-200_000 // choice.parts) <= 65535 // 2


@pytest.mark.parametrize("name", NAMES)
def test_a_name_overrides_the_choice(name: str) -> None:
    assert choose(Shape(1, 64, 64, 1024, packs=True, streams=True), CPU, name).name == name


def test_an_unknown_name_is_rejected() -> None:
    with pytest.raises(InvalidArgument, match=r"a schedule must be one of .* got 'regist'; did you mean 'register'"):
        steps_of(square(4), CPU.with_overrides(schedule="regist"))


def test_only_integers_have_packed_products() -> None:
    with pytest.raises(InvalidArgument) as caught:
        choose(Shape(1, 64, 64, 64), GPU, "packed")
    assert str(caught.value) == ("the schedule 'packed' does not fit this product: its operands are not 8-bit integers")


def test_only_columns_in_units_of_four_are_streamed() -> None:
    with pytest.raises(InvalidArgument) as caught:
        choose(Shape(1, 8, 64, 64), GPU, "streamed-split")
    assert str(caught.value) == (
        "the schedule 'streamed-split' does not fit this product: its columns have no units of four"
    )


@pytest.mark.parametrize(
    ("side", "batch", "outputs"), [(256, 1, 4), (1024, 1, 8), (1536, 1, 16), (4096, 1, 16), (256, 64, 16)]
)
def test_tiles_in_workgroup_memory_grow_with_the_work(side: int, batch: int, outputs: int) -> None:
    """Large tiles multiply more per load, if there are enough workgroups to keep a GPU busy."""
    tile = choose(Shape(batch, side, side, 4096), GPU).tile
    assert tile.rows * tile.units == outputs


def test_tiles_in_workgroup_memory_cover_few_rows_exactly() -> None:
    """64 rows are one tile of 64 x 128, and half of one of 128 x 64."""
    tile = choose(Shape(36, 64, 512, 64), GPU).tile
    assert (tile.rows, tile.units) == (4, 2)


def test_two_levels_of_sums_take_no_large_tiles() -> None:
    exact, large = GPU.with_policies(precise=True), Shape(1, 4096, 4096, 4096)
    tile = choose(large, exact).tile
    assert tile.rows * tile.units == 8
    assert choose(replace(large, inner=CHUNK), exact).tile == choose(large, GPU).tile


# ---- plans


def contract(desc: Any, target: Target) -> ScheduledContract:
    (step,) = [step for step in steps_of(desc, target) if isinstance(step, ScheduledContract)]
    return step


def test_operands_are_read_in_units_if_memory_allows() -> None:
    forms = {
        (NONE, NONE): (OperandLayout.ALONG, OperandLayout.ACROSS),
        (TRANSPOSE, TRANSPOSE): (OperandLayout.ACROSS, OperandLayout.ALONG),
    }
    for (trans_a, trans_b), expected in forms.items():
        step = contract(square(256, trans_a=trans_a, trans_b=trans_b), GPU)
        assert (step.schedule, step.a.layout, step.b.layout) == (ProductSchedule.SHARED, *expected)
    odd = contract(square(255), GPU)
    assert (odd.a.layout, odd.b.layout, odd.output.lanes) == (OperandLayout.SINGLE, OperandLayout.SINGLE, 1)


@pytest.mark.parametrize("b_flags", [TensorFlags.NONE, TensorFlags.OWNED_BY_DML])
def test_invocations_in_the_same_rows_broadcast_them(b_flags: TensorFlags) -> None:
    """Each invocation then reads one of the units of ``a`` that a subgroup's tiles need per iteration; only if
    there are subgroups, on CPUs."""
    in_step = replace(CPU, features=frozenset({"subgroup"}))
    step = contract(square(256, b_flags=b_flags), in_step)
    assert (step.sharing, step.tile.rows, step.tile.down) == (4, 32, 1)
    text = compiler.compile_operator(square(256, b_flags=b_flags), in_step).kernels[-1].wgsl
    assert (text.count("= a_fetch("), text.count("subgroupBroadcast(")) == (2 * step.steps, 8 * step.steps)
    assert step.steps == 2
    wide = replace(in_step, subgroup_lanes=16)
    assert contract(square(256, b_flags=b_flags), wide).sharing == step.tile.across == 8
    text = compiler.compile_operator(square(256, b_flags=b_flags), wide).kernels[-1].wgsl
    assert (text.count("= a_fetch("), text.count("subgroupBroadcast(")) == (step.steps, 8 * step.steps)
    for target in (CPU, replace(GPU, features=in_step.features), in_step.with_overrides(schedule="shared")):
        assert contract(square(256), target).sharing == 1
        assert "subgroup" not in compiler.compile_operator(square(256), target).kernels[-1].wgsl


def test_a_single_invocation_reads_all_its_rows() -> None:
    """Eight columns are two units, so that larger workgroups have several rows of tiles."""
    in_step = replace(CPU, features=frozenset({"subgroup"})).with_overrides(schedule="register")
    step = contract(gemm((512, 64), (64, 8), (512, 8)), in_step)
    assert (step.sharing, step.tile.down > 1) == (1, True)


def test_the_cost_of_a_product_decides_its_orientation() -> None:
    """200 columns are 224 in tiles of 32, 200 rows are 208 in tiles of 16."""
    in_step = replace(CPU, features=frozenset({"subgroup"}))
    costs = [expected_cost(Shape(36, *sizes, 64), in_step) for sizes in ((200, 64), (64, 200))]
    assert costs[0] < costs[1]


def test_an_owned_operand_is_repacked_once() -> None:
    program = compiler.compile_operator(square(256, trans_b=TRANSPOSE, b_flags=TensorFlags.OWNED_BY_DML), CPU)
    assert [kernel.label for kernel in program.initialization] == ["gemm lay out b x4"]
    assert program.persistent_size == 4 * 256 * 256
    read = {slot.index for kernel in program.kernels for slot in kernel.slots if slot.role is Role.INPUT}
    assert read == {0}


def test_operands_with_many_reads_are_repacked_in_panels_of_tiles() -> None:
    steps = steps_of(square(512), CPU)
    assert [step.label for step in steps] == ["lay out a", "lay out b", "register"]
    product = steps[-1]
    rows, columns = product.tile.down * product.tile.rows, product.tile.across * product.tile.units * 4
    assert product.a.own == (512 // rows, rows)
    assert product.b.own == (512 // columns, columns)
    # {inner, panel, unit}: a panel lies in one piece, step by step
    assert product.b.source == replace(
        product.b.source,
        sizes=(512, 512 // columns, columns // 4),
        strides=(columns // 4, 512 * columns // 4, 1),
        lanes=4,
    )


def test_operands_with_few_reads_or_uneven_panels_are_not_repacked() -> None:
    for desc in (gemm((512, 64), (64, 500), (512, 500)), gemm((128, 512), (512, 512), (128, 512))):
        assert "lay out b" not in [step.label for step in steps_of(desc, CPU)]


def test_long_sums_are_computed_in_chunks() -> None:
    desc = gemm((64, 5000), (5000, 64), (64, 64))
    assert contract(desc, Target("CPU", overrides=Overrides(schedule="register"))).chunk == CHUNK
    assert contract(square(256), CPU).chunk == 0
    assert contract(square(2048), GPU).chunk == 0
    assert contract(square(2048), GPU.with_policies(precise=True)).chunk == CHUNK


@pytest.mark.parametrize(("inner", "whole"), [(64, True), (48, True), (40, False), (33, False)])
def test_steps_are_checked_only_if_slabs_do_not_divide_them(inner: int, whole: bool) -> None:
    desc = gemm((64, inner), (inner, 64), (64, 64))
    step = contract(desc, GPU)
    assert (step.tile.depth, step.whole) == (8, whole)
    text = compiler.compile_operator(desc, GPU).kernels[0].wgsl
    assert ("slab_step < stop" in text) is not whole


def test_parts_of_long_sums_are_whole_slabs() -> None:
    step = contract(gemm((64, 10_000), (10_000, 64), (64, 64)), GPU)
    assert step.parts > 1 and step.share % (2 * step.tile.depth) == 0


@pytest.mark.parametrize(
    ("target", "data_type", "in_float16"),
    [
        (replace(GPU, features=frozenset({"shader-f16"})), DataType.FLOAT16, True),
        (replace(GPU, features=frozenset({"shader-f16"})), F32, False),
        (replace(GPU, features=frozenset({"shader-f16"})).exact, DataType.FLOAT16, False),
        (replace(CPU, features=frozenset({"shader-f16"})), DataType.FLOAT16, False),
    ],
    ids=["allowed", "float32", "not allowed", "CPU"],
)
def test_float16_is_multiplied_natively_if_the_caller_allows_it(
    target: Target, data_type: DataType, in_float16: bool
) -> None:
    tensor = TensorDesc(data_type, (256, 256))
    desc = descs.Gemm(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
    assert contract(desc, target).in_float16 is in_float16
    text = compiler.compile_operator(desc, target).kernels[-1].wgsl
    assert ("var sum0_0 = vec4<f16>();" in text) is in_float16


def test_a_column_is_transposed() -> None:
    (step,) = steps_of(gemm((4096, 512), (512, 1), (4096, 1)), CPU)
    assert (step.label, step.output.sizes) == ("small", (1, 4096))


def test_a_softmax_takes_its_rows_from_a_temporary() -> None:
    *_, product, softmax = steps_of(square(64, fused_activation=descs.ActivationSoftmax()), CPU)
    assert isinstance(product, ScheduledContract) and product.output.binding.role is Role.TEMPORARY
    assert isinstance(softmax, ScheduledRows) and softmax.output.binding.role is Role.OUTPUT


def test_a_beta_of_0_binds_no_c() -> None:
    c = TensorDesc(F32, (64, 64))
    small = Target("CPU", overrides=Overrides(schedule="small"))
    with_c, without = (
        compiler.compile_operator(square(64, c_tensor=c, beta=beta), small).kernels[0].slots for beta in (1.0, 0.0)
    )
    assert (len(with_c), len(without)) == (4, 3)
