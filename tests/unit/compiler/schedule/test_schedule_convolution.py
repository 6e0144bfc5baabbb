"""Depthwise and Winograd convolution: requirements, patches, tiles, transforms and plans, as data."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import aligned, packed_strides
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.plan import Body, Convolution, Convolve, PlanBinding, PlanTensor, RegisterValue, Role, apply
from dmlgpu.compiler.plan.windows import WindowAxis, windows_over
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.rewrites.packing import is_paired
from dmlgpu.compiler.schedule.convolution import depthwise_steps, fits_depthwise
from dmlgpu.compiler.schedule.convolution_choice import CONVOLUTION_SCHEDULES
from dmlgpu.compiler.schedule.registry import Condition, pick
from dmlgpu.compiler.schedule.scheduling import StepProblem, as_schedule, schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.products import OperandLayout, Patch, ScheduledContract, ScheduledTiles
from dmlgpu.compiler.schedule.tiles import packed_patch, tiles, unchanged
from dmlgpu.compiler.schedule.winograd import TRANSFORMS, fits_winograd, pays_winograd, terms, winograd_steps
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.compiler.wgsl.render import render

F32, F16, I32 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT32
CPU, GPU = Target("CPU"), Target("GPU", Profile.DISCRETE)
LLVMPIPE = Target("llvmpipe", features=frozenset({"shader-int64"}))


def tensor(role: Role, index: int, sizes: Sequence[int], data_type: DataType = F32) -> PlanTensor:
    return PlanTensor(PlanBinding(role, index), data_type, tuple(sizes), packed_strides(tuple(sizes)))


def convolution(
    spatial: Sequence[int],
    window: Sequence[int],
    *,
    lead: tuple[int, int, int] = (1, 4, 1),
    outputs: int = 1,
    padding: int = 1,
    stride: int = 1,
    dilation: int = 1,
    accumulator: DataType = F32,
    owned: bool = False,
) -> Convolution:
    """``lead``: images, groups, channels of a group."""
    each = {
        name: [value] * len(spatial)
        for name, value in {"strides": stride, "dilations": dilation, "start": padding, "end": padding}.items()
    }
    windows = windows_over(spatial, size=window, **each)
    source = tensor(Role.INPUT, 0, (*lead, *spatial), accumulator)
    filters = tensor(Role.INPUT, 1, (lead[1], outputs, lead[2], *window), accumulator)
    return Convolution(source, filters, windows, accumulator, owned)


def operands(problem: Convolution) -> tuple[Convolution, Body, PlanTensor]:
    sizes = problem.output_sizes
    return problem, unchanged(problem.accumulator, sizes), tensor(Role.OUTPUT, 0, sizes)


def tiled(label: str, body: Body, tile: Sequence[int], output: PlanTensor) -> ScheduledTiles:
    (step,) = tiles(label, body, tuple(tile), unchanged(F32, output.sizes), output, target=CPU).steps
    assert isinstance(step, ScheduledTiles)
    return step


def program_of(steps: ScheduledSteps, target: Target) -> Program:
    return render(as_schedule("TEST", steps, target, ()))


# ---- patches


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize(
    ("stride", "dilation", "size", "start"), [(1, 1, 3, 1), (2, 3, 2, 5), (4, 1, 7, -2), (1, 2, 1, 0)]
)
def test_a_patch_reads_the_elements_of_its_windows(
    lanes: int, stride: int, dilation: int, size: int, start: int
) -> None:
    """Every position and tap finds, by name, its element of the input."""
    axis = WindowAxis(32, 8, size, stride, dilation, start)
    patch = Patch(axis, 4, lanes)
    image = np.arange(1, axis.spatial + 1)
    for first in (0, 4):
        held = {}
        for index, unit in enumerate(patch.units):
            for lane in range(lanes):
                place = (first // 4 * patch.step + unit) * lanes + lane
                held[index, lane] = image[place] if 0 <= place < axis.spatial else 0
        for position, tap in itertools.product(range(4), range(size)):
            at = (first + position) * stride + tap * dilation - start
            seen = image[at] if 0 <= at < axis.spatial else 0
            assert held[patch.place(patch.element(position, tap))] == seen


def test_a_patch_checks_units_that_may_lie_outside_the_input() -> None:
    patch = Patch(WindowAxis(16, 16, 3, 1, 1, 1), 4, 4)
    assert patch.units == (-1, 0, 1)
    assert [patch.is_checked(unit) for unit in patch.units] == [True, False, True]
    uneven = Patch(WindowAxis(16, 14, 3, 1, 1, 0), 4, 4)
    assert [(unit, uneven.is_checked(unit)) for unit in uneven.units] == [(0, False), (1, True)]


def test_tiles_that_are_cut_off_check_the_same_elements_at_every_width() -> None:
    """Including those that only wider rows have, so that kernels that read sizes work for several widths."""
    for width in (7, 14, 13):
        patch = Patch(WindowAxis(width, width, 5, 1, 1, 2), 8)
        assert [patch.is_checked(unit) for unit in patch.units] == [True, True, False, *[True] * 9]
    inside = Patch(WindowAxis(20, 16, 5, 1, 1, 0), 8)
    assert not any(map(inside.is_checked, inside.units))


def test_every_use_of_an_element_is_found_once() -> None:
    patch = Patch(WindowAxis(20, 9, 3, 2, 1, 1), 3)
    uses = [use for element in patch.seen for use in patch.uses(element)]
    assert sorted(uses) == list(itertools.product(range(3), range(3)))


def test_a_patch_is_packed_only_if_tiles_begin_at_units() -> None:
    source = tensor(Role.INPUT, 0, (1, 1, 1, 8, 16))
    assert packed_patch(source, WindowAxis(16, 16, 3, 1, 1, 1), 4, CPU)[1].lanes == 4
    assert packed_patch(source, WindowAxis(16, 16, 3, 1, 1, 1), 2, CPU)[1].lanes == 1
    assert packed_patch(source, WindowAxis(16, 8, 3, 2, 1, 1), 2, CPU)[1].lanes == 4
    odd = tensor(Role.INPUT, 0, (1, 1, 1, 8, 15))
    assert packed_patch(odd, WindowAxis(15, 15, 3, 1, 1, 1), 4, CPU) == (odd, Patch(WindowAxis(15, 15, 3, 1, 1, 1), 4))


def test_units_are_read_in_pairs_if_tiles_begin_at_them() -> None:
    doubles = replace(CPU, features=frozenset({"shader-int64"}))
    whole, seen = PlanTensor.temporary("x", F32, (1, 1, 1, 8, 16)), WindowAxis(16, 16, 3, 1, 1, 1)
    source, patch = packed_patch(whole, seen, 8, doubles)
    assert is_paired(source)
    assert patch.units == (-2, -1, 0, 1, 2, 3)
    assert list(patch.reads) == [(-2, (0, 1)), (0, (2, 3)), (2, (4, 5))]
    assert [patch.place(element) for element in (0, 1, 8, 9)] == [(1, 3), (2, 0), (3, 3), (4, 0)]
    assert list(packed_patch(whole, seen, 8, CPU)[1].reads) == [(-1, (0,)), (0, (1,)), (1, (2,)), (2, (3,))]
    for other, tile in ((whole, 4), (replace(whole, binding=PlanBinding(Role.INPUT, 0)), 8)):
        assert not packed_patch(other, seen, tile, doubles)[1].paired


# ---- tiles


def test_tiles_cover_every_element_once() -> None:
    output = tensor(Role.OUTPUT, 0, (2, 5, 9))
    step = tiled("tiles", Body("", F32, output.sizes), (1, 2, 4), output)
    assert step.edges == ((1, 5), (2, 9))
    assert step.walk.count == 2 * 3 * 3
    inside = []
    for which in itertools.product(range(2), range(3), range(3)):
        for offset in step.offsets():
            at = tuple(w * units + o for w, units, o in zip(which, step.units, offset, strict=True))
            if all(at[dimension] < size for dimension, size in step.edges):
                inside.append(at)
    assert sorted(inside) == list(itertools.product(range(2), range(5), range(9)))


def test_tiles_are_stored_in_units_if_memory_allows() -> None:
    output = tensor(Role.OUTPUT, 0, (2, 6, 8))
    step = tiled("tiles", Body("", F32, output.sizes), (1, 2, 8), output)
    assert (step.output.lanes, step.units, step.edges) == (4, (1, 2, 2), ())
    apart = replace(output, strides=(96, 16, 2))
    assert tiled("tiles", step.body, (1, 2, 8), apart).output.lanes == 1


def test_inputs_of_the_epilogue_that_do_not_vary_within_a_tile_are_read_once() -> None:
    sizes = (1, 4, 1, 20, 24)
    biased, varying = (
        PlanTensor(PlanBinding(Role.INPUT, index), F32, sizes, strides)
        for index, strides in ((2, (0, 1, 0, 0, 0)), (3, packed_strides(sizes)))
    )
    product = RegisterValue.product(F32, sizes)
    epilogue = apply("elementwise/element_wise_add", F32, sizes, a=product, b=biased)
    epilogue = apply("elementwise/element_wise_add", F32, sizes, a=epilogue, b=varying)
    problem, _, output = operands(convolution((20, 24), (3, 3)))
    steps = depthwise_steps(problem, epilogue, output, CPU)
    (step,) = steps.steps
    assert isinstance(step, ScheduledTiles)
    assert [tensor.binding for tensor in step.held] == [biased.binding]
    (kernel,) = program_of(steps, CPU).kernels
    assert kernel.wgsl.count("held0_load(first)") == 1
    assert kernel.wgsl.index("held0_load(first)") < kernel.wgsl.index("tile(first)")


# ---- depth-wise


def test_depthwise_is_for_single_channels() -> None:
    assert fits_depthwise(convolution((8, 8), (3, 3)), CPU)
    assert not fits_depthwise(convolution((8, 8), (3, 3), lead=(1, 4, 2)), CPU)
    assert fits_depthwise(convolution((40,), (32,)), CPU)
    assert not fits_depthwise(convolution((40,), (33,)), CPU)
    assert not fits_depthwise(convolution((300, 40), (300, 30), padding=10), replace(CPU, loop_limit=300))


@pytest.mark.parametrize(
    ("problem", "target", "tile"),
    [
        pytest.param(convolution((56, 56), (3, 3)), CPU, (1, 1, 1, 4, 8), id="CPU"),
        pytest.param(convolution((56, 56), (3, 3)), GPU, (1, 1, 1, 2, 4), id="GPU"),
        pytest.param(convolution((7, 3), (3, 3)), CPU, (1, 1, 1, 4, 3), id="narrow"),
        pytest.param(convolution((9, 9), (3, 3)), CPU, (1, 1, 1, 4, 4), id="the second unit nearly empty"),
        pytest.param(convolution((32,), (3,)), CPU, (1, 1, 1, 8), id="one dimension"),
        pytest.param(convolution((4, 8, 8), (3, 3, 3)), CPU, (1, 1, 1, 1, 4, 8), id="three dimensions"),
        pytest.param(convolution((8, 8), (7, 7), padding=3), CPU, (1, 1, 1, 2, 8), id="fewer rows"),
        pytest.param(convolution((8, 8), (5, 5), padding=2), GPU, (1, 1, 1, 2, 4), id="fewer places on a GPU"),
        pytest.param(convolution((20, 24), (11, 11), padding=5), CPU, (1, 1, 1, 1, 8), id="rows in a loop"),
    ],
)
def test_depthwise_tiles(problem: Convolution, target: Target, tile: tuple[int, ...]) -> None:
    steps = depthwise_steps(*operands(problem), target)
    (step,) = steps.steps
    assert isinstance(step, ScheduledTiles)
    assert step.tile == tile
    (kernel,) = program_of(steps, target).kernels
    assert kernel.label.startswith("test depthwise")


@pytest.mark.parametrize(
    ("problem", "rows"),
    [
        pytest.param(convolution((56, 56), (3, 3), lead=(1, 64, 1)), 14, id="equal shares"),
        pytest.param(convolution((56, 56), (3, 3), lead=(1, 2, 1)), 4, id="few invocations"),
        pytest.param(convolution((17, 56), (3, 3), lead=(1, 64, 1)), 9, id="the last one shorter"),
        pytest.param(convolution((5, 56), (3, 3)), 3, id="more rows than a tile has"),
        pytest.param(convolution((9, 56), (5, 5), padding=2, stride=2), 3, id="strides"),
        pytest.param(convolution((3, 56), (3, 3)), 3, id="three rows"),
        pytest.param(convolution((2, 56), (3, 3)), 0, id="two rows"),
        pytest.param(convolution((58, 56), (3, 3), dilation=2), 0, id="gaps between the taps"),
        pytest.param(convolution((20, 24), (11, 11), padding=5), 0, id="large windows"),
        pytest.param(convolution((56,), (3,)), 0, id="one dimension"),
        pytest.param(convolution((4, 8, 8), (3, 3, 3)), 0, id="three dimensions"),
    ],
)
def test_depthwise_rows_are_streamed_if_reads_dominate(problem: Convolution, rows: int) -> None:
    steps = depthwise_steps(*operands(problem), LLVMPIPE)
    (step,) = steps.steps
    assert isinstance(step, ScheduledTiles) and step.rows == rows
    if rows:
        *_, positions, _ = step.output.sizes
        assert step.tile[-2] == 1 and step.walk.count == step.output.sizes[1] * -(-positions // rows) * 7
    (kernel,) = program_of(steps, LLVMPIPE).kernels
    assert ("for (var turn" in kernel.wgsl) == bool(rows)
    (written_out,) = depthwise_steps(*operands(problem), CPU).steps
    assert isinstance(written_out, ScheduledTiles) and not written_out.rows


# ---- Winograd


@pytest.mark.parametrize("tile", TRANSFORMS)
def test_the_transforms_filter(tile: int) -> None:
    """Exactly, in rational numbers: At [(G g) * (Bt d)] is the correlation of any g and d."""
    transforms = TRANSFORMS[tile]
    rng = np.random.default_rng(1)
    taps = [Fraction(int(n)) for n in rng.integers(-9, 10, 3)]
    patch = [Fraction(int(n)) for n in rng.integers(-9, 10, tile + 2)]

    def applied(matrix: Sequence[Sequence[Fraction]], values: Sequence[Fraction]) -> list[Fraction]:
        return [sum((a * b for a, b in zip(row, values, strict=True)), Fraction(0)) for row in matrix]

    pairs = zip(applied(transforms.filter, taps), applied(transforms.input, patch), strict=True)
    got = applied(transforms.output, [a * b for a, b in pairs])
    assert got == [sum(taps[k] * patch[position + k] for k in range(3)) for position in range(tile)]


def test_terms_omit_zeros() -> None:
    assert terms([Fraction(1), Fraction(0), Fraction(-1), Fraction(1, 4)]) == ((0, 1.0), (2, -1.0), (3, 0.25))


def test_winograd_is_for_dense_windows_of_3_x_3() -> None:
    channels = (1, 1, 8)
    assert fits_winograd(convolution((8, 8), (3, 3), lead=channels), CPU, 4)
    for other in (
        convolution((8, 8), (3, 2), lead=channels),
        convolution((8, 8), (3, 3), lead=channels, stride=2),
        convolution((8, 8), (3, 3), lead=channels, dilation=2),
        convolution((8,), (3,), lead=channels),
        convolution((8, 8), (3, 3), lead=channels, accumulator=I32),
    ):
        assert not fits_winograd(other, CPU, 4)
    assert not fits_winograd(convolution((64, 64), (3, 3), lead=channels), replace(CPU, max_binding_size=1 << 18), 4)


def test_winograd_pays_for_long_sums() -> None:
    assert pays_winograd(convolution((56, 56), (3, 3), lead=(1, 1, 64), outputs=64), 4, CPU)
    assert not pays_winograd(convolution((56, 56), (3, 3), lead=(1, 1, 2), outputs=64), 4, CPU)
    few = pays_winograd(convolution((4, 4), (3, 3), lead=(1, 1, 64), outputs=64), 4, CPU)
    assert str(few) == "64 tiles times channels or outputs, at least 320"


@pytest.mark.parametrize(
    ("target", "width", "channels", "outputs"),
    [
        (CPU, 56, 3, 3),
        (GPU, 56, 3, 3),
        (LLVMPIPE, 56, 20, 20),
        (LLVMPIPE, 57, 10, 10),
        (LLVMPIPE.with_policies(varying=True), 56, 10, 10),
    ],
)
def test_winograd_pays_if_elements_of_tiles_are_used_often(
    target: Target, width: int, channels: int, outputs: int
) -> None:
    def pays(channels: int, outputs: int) -> Condition:
        problem = convolution((width, width), (3, 3), lead=(1, 1, channels), outputs=outputs)
        return pays_winograd(problem, 4, target)

    assert pays(channels, outputs) and not pays(channels - 1, outputs) and not pays(channels, outputs - 1)


def test_the_reason_against_winograd_is_products() -> None:
    problem = convolution((56, 56), (3, 3), lead=(1, 1, 3), outputs=64)
    assert str(pays_winograd(problem, 4, LLVMPIPE)) == "192 products of a tile, at least 670"


@pytest.mark.parametrize("owned", [False, True])
def test_the_steps_of_winograd(owned: bool) -> None:
    problem = convolution((9, 13), (3, 3), lead=(2, 3, 5), outputs=6, owned=owned)
    steps = winograd_steps(*operands(problem), CPU, 4)
    labels = ["winograd filters", "winograd patches", "register", "winograd results"]
    assert [step.label for step in (*steps.initialization, *steps.steps)] == labels
    assert len(steps.initialization) == owned
    # 36 elements of 3 groups: 2 x 3 x 4 tiles; 6 outputs rounded up to 8
    # and a channel with the marks
    patches, results, filters = 4 * 36 * 3 * 6 * 24, 4 * 36 * 3 * 8 * 24, 4 * 36 * 3 * 5 * 8
    patches, results, filters = map(aligned, (patches, results, filters))
    program, held = program_of(steps, CPU), filters if owned else 0
    assert (program.temporary_size, program.persistent_size) == (patches + results + filters - held, held)
    (product,) = (step for step in steps.steps if isinstance(step, ScheduledContract))
    assert (product.a.layout, product.b.layout, product.output.lanes) == (OperandLayout.ACROSS, OperandLayout.ACROSS, 4)


def test_cpus_transform_four_patches_at_a_time() -> None:
    """If they are adjacent, as in rows of whole units."""
    for width, target, expected in ((16, CPU, 4), (13, CPU, 4), (12, CPU, 1), (16, GPU, 1), (16, LLVMPIPE, 1)):
        problem = convolution((9, width), (3, 3), lead=(2, 3, 5), outputs=6)
        kernels = winograd_steps(*operands(problem), target, 4).steps
        (step,) = (kernel for kernel in kernels if kernel.label == "winograd patches")
        assert isinstance(step, ScheduledTiles)
        assert (step.tile, step.output.lanes) == ((36, 1, 1, expected), expected)


# ---- names


def chosen(problem: Convolution, target: Target) -> str:
    """Return the name of the schedule of a convolution."""
    schedule = pick(CONVOLUTION_SCHEDULES, StepProblem(Convolve("", *operands(problem)), target))
    return "" if schedule is None else schedule.name


def test_schedules_are_chosen_and_rejected_by_name() -> None:
    single, many = convolution((8, 8), (3, 3)), convolution((56, 56), (3, 3), lead=(1, 1, 64), outputs=64)
    assert chosen(single, CPU) == "depthwise"
    assert chosen(many, CPU) == "winograd-4"
    for name in ("implicit-gemm", "convolution/implicit-gemm", "product/shared", "register-split"):
        assert chosen(many, CPU.with_overrides(schedule=name)) == "implicit-gemm"
        assert chosen(single, CPU.with_overrides(schedule=name)) == "implicit-gemm"
    with pytest.raises(InvalidArgument, match=r"'convolution/depthwise' cannot compute .* 64 input channels per group"):
        schedule_step(Convolve("", *operands(many)), CPU.with_overrides(schedule="depthwise"))


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("implicit-gemm", ["small"]),
        ("register", ["register"]),
        ("depthwise", ["depthwise"]),
        ("winograd-2", ["winograd filters", "winograd patches", "small", "winograd results"]),
    ],
)
def test_a_named_schedule_is_taken(name: str, labels: list[str]) -> None:
    problem = convolution((8, 8), (3, 3), lead=(1, 2, 1))
    steps = schedule_step(Convolve("", *operands(problem)), CPU.with_overrides(schedule=name))
    assert [step.label for step in steps.steps] == labels


@pytest.mark.parametrize(
    ("side", "outputs", "expected"),
    [
        (56, 64, (196, 64)),  # 14 x 14 tiles: 64 outputs fill tiles of 32 columns, 196 do not
        (32, 24, (24, 64)),
    ],
)
def test_the_products_of_winograd_waste_least(side: int, outputs: int, expected: tuple[int, int]) -> None:
    steps = winograd_steps(*operands(convolution((side, side), (3, 3), lead=(1, 1, 64), outputs=outputs)), CPU, 4)
    (product,) = (step for step in steps.steps if isinstance(step, ScheduledContract))
    rows, columns = product.output.sizes[-2], product.output.sizes[-1] * product.output.lanes
    assert (rows, columns) == expected
    elements, _, row, _ = product.output.strides
    assert (elements, row) == (columns // product.output.lanes, 36 * columns // product.output.lanes)


@pytest.mark.parametrize(("tile", "columns"), [(2, 8), (4, 4)])
def test_winograd_has_the_tiles_of_its_name(tile: int, columns: int) -> None:
    """Four adjacent ones, if they fit."""
    problem = convolution((8, 8), (3, 3), lead=(1, 2, 1))
    *_, last = schedule_step(Convolve("", *operands(problem)), CPU.with_overrides(schedule=f"winograd-{tile}")).steps
    assert isinstance(last, ScheduledTiles) and last.tile == (1, 1, 1, tile, columns)


def test_positions_that_lie_contiguously_are_one_dimension_of_columns() -> None:
    """Units of four then cross rows of an image."""
    problem = convolution((10, 14), (1, 1), lead=(1, 1, 96), outputs=64, padding=0)

    def product(strides: tuple[int, ...]) -> ScheduledContract:
        source, epilogue, output = operands(problem)
        source = replace(source, input=replace(source.input, strides=strides))
        steps = schedule_step(Convolve("test", source, epilogue, output), CPU.with_overrides(schedule="register"))
        (step,) = (step for step in steps.steps if isinstance(step, ScheduledContract))
        return step

    packed = product((13440, 13440, 140, 14, 1))
    assert (packed.space.columns, packed.output.lanes, packed.b.layout) == ((1, 140), 4, OperandLayout.ACROSS)
    assert product((15360, 15360, 160, 16, 1)).space.columns == (1, 10, 14)
