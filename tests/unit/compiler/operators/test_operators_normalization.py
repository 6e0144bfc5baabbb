"""Normalizations: validation, upgrades of older operators, and steps."""

from dataclasses import replace

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.schedule.registry import observed_choices
from dmlgpu.compiler.schedule.steps.maps import ScheduledMap, ScheduledRuns
from dmlgpu.compiler.schedule.steps.reductions import ScheduledReduce, ScheduledRows
from dmlgpu.compiler.target import Profile, Target
from tests.schedules import steps_of
from tests.unit.rejections import rejection

F32, F16 = DataType.FLOAT32, DataType.FLOAT16
CPU, GPU = Target("any", Profile.CPU), Target("any", Profile.DISCRETE)
BATCH = (2, 3, 4, 5)


def tensor(*sizes, data_type=F32):
    return TensorDesc(data_type, sizes)


def batch(spatial=True, **sizes):
    parameters = {name: sizes.get(name, (1, 3, 1, 1)) for name in ("mean", "variance", "scale", "bias")}
    return descs.BatchNormalization(
        input_tensor=tensor(*BATCH),
        output_tensor=tensor(*BATCH),
        spatial=spatial,
        epsilon=1e-5,
        **{f"{name}_tensor": tensor(*shape) for name, shape in parameters.items()},
    )


def rows(sizes=BATCH, axes=(3,), desc_class=descs.MeanVarianceNormalization2, data_type=F32, **fields):
    switches = {"use_mean": True, "use_variance": True}
    if desc_class is descs.MeanVarianceNormalization1:
        switches = {"normalize_variance": True}
    whole = tensor(*sizes, data_type=data_type)
    return desc_class(input_tensor=whole, axes=axes, epsilon=1e-5, **{"output_tensor": whole, **switches, **fields})


def training(scale, sizes=BATCH):
    small = tensor(*scale)
    return descs.BatchNormalizationTraining(
        input_tensor=tensor(*sizes),
        scale_tensor=small,
        bias_tensor=small,
        output_tensor=tensor(*sizes),
        output_mean_tensor=small,
        output_variance_tensor=small,
        epsilon=1e-5,
    )


def gradient(desc_class):
    whole, small = tensor(*BATCH), tensor(1, 3, 1, 1)
    fields = ("mean_tensor", "variance_tensor", "scale_tensor")
    fields += ("output_scale_gradient_tensor", "output_bias_gradient_tensor")
    return desc_class(
        input_tensor=whole,
        input_gradient_tensor=whole,
        output_gradient_tensor=whole,
        epsilon=1e-5,
        **dict.fromkeys(fields, small),
    )


# ---- checks


@pytest.mark.parametrize("name", ["mean", "variance", "scale", "bias"])
def test_parameters_of_a_batch_broadcast(name):
    assert rejection(batch(**{name: (1, 2, 1, 1)})) == (
        f"BATCH_NORMALIZATION: {name}_tensor.sizes[1] must be 1 or input_tensor.sizes[1] (3), got 2"
    )


def test_spatial_has_an_effect_below_level_4_0():
    assert rejection(batch(spatial=False), FeatureLevel.LEVEL_3_1) == (
        "BATCH_NORMALIZATION: mean_tensor.sizes[2] must be input_tensor.sizes[2] (4) below feature level 4_0 unless"
        " spatial, got 1"
    )
    operators.check(batch(spatial=False), FeatureLevel.LEVEL_4_0)
    operators.check(batch(), FeatureLevel.LEVEL_3_1)
    operators.check(batch(spatial=False, mean=(1, 3, 4, 5), variance=(1, 1, 4, 5)), FeatureLevel.LEVEL_3_1)


@pytest.mark.parametrize("desc_class", [descs.MeanVarianceNormalization1, descs.MeanVarianceNormalization2])
def test_rows(desc_class):
    def message(**fields):
        return rejection(rows(desc_class=desc_class, **fields)).removeprefix(f"{desc_class.operator}: ")

    assert message(axes=()) == "axes must name at least one axis, got none"
    assert message(axes=(4,)) == "axes[0] must be below input_tensor's dimension count (4), got 4"
    assert message(axes=(1, 1)) == "axes[1] must not repeat an axis, got 1 again"
    assert message(output_tensor=tensor(2, 3, 4, 6)) == (
        "output_tensor.sizes must be [2, 3, 4, 5] (input_tensor.sizes), got [2, 3, 4, 6]"
    )
    assert message(scale_tensor=tensor(1, 1, 1, 4)) == (
        "scale_tensor.sizes[3] must be 1 or input_tensor.sizes[3] (5), got 4"
    )


def test_scale_and_bias_come_together_below_level_5_2():
    desc = rows(desc_class=descs.MeanVarianceNormalization1, scale_tensor=tensor(1, 3, 1, 1))
    assert rejection(desc, FeatureLevel.LEVEL_5_1) == (
        "MEAN_VARIANCE_NORMALIZATION1: bias_tensor must be present where scale_tensor is, below feature level 5_2"
    )
    operators.check(desc, FeatureLevel.LEVEL_5_2)


def test_channels_are_not_broadcast_below_level_4_0():
    scalar = tensor(1, 1, 1, 1)
    desc = rows(desc_class=descs.MeanVarianceNormalization1, scale_tensor=scalar, bias_tensor=scalar)
    assert rejection(desc, FeatureLevel.LEVEL_3_1) == (
        "MEAN_VARIANCE_NORMALIZATION1: scale_tensor.sizes[1] must be input_tensor.sizes[1] (3) below feature level 4_0,"
        " got 1"
    )
    operators.check(desc, FeatureLevel.LEVEL_4_0)


def test_lp_normalization():
    values = {"input_tensor": tensor(2, 3), "output_tensor": tensor(2, 3), "epsilon": 1e-5}
    assert rejection(descs.LpNormalization(axis=2, p=1, **values)) == (
        "LP_NORMALIZATION: axis must be below input_tensor's dimension count (2), got 2"
    )
    assert rejection(descs.LpNormalization(axis=0, p=3, **values)) == "LP_NORMALIZATION: p must be 1 or 2, got 3"


def scaled(channels, bias):
    whole = tensor(2, channels, 4, 5)
    return descs.ValueScale2d(input_tensor=whole, output_tensor=whole, scale=2.0, bias=bias)


def test_value_scale():
    operators.check(scaled(3, (1.0, 2.0, 3.0)))
    assert rejection(scaled(2, (1.0, 2.0))) == "VALUE_SCALE_2D: input_tensor.sizes[1] must be 1 or 3, got 2"
    assert rejection(scaled(3, (1.0,))) == (
        "VALUE_SCALE_2D: bias must have input_tensor.sizes[1] (3) entries, one per channel, got 1"
    )


def local(size, sizes=BATCH, *, crossed=True):
    whole = tensor(*sizes)
    attributes = {"cross_channel": crossed, "local_size": size, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}
    return descs.LocalResponseNormalization(input_tensor=whole, output_tensor=whole, **attributes)


def test_local_response():
    assert rejection(local(0)) == "LOCAL_RESPONSE_NORMALIZATION: local_size must be at least 1, got 0"


def test_a_region_beyond_the_loop_limit_is_rejected():
    target = Target("short", Profile.CPU, loop_limit=65535)
    with pytest.raises(NotSupported) as error:
        steps_of(local(100_000, (1, 1, 2, 65_536), crossed=False), target)
    assert str(error.value) == (
        "a region of 65536 elements in a row exceeds the loops that 'short' runs to their end (65535)"
    )
    steps_of(local(100_000, (1, 1, 2, 60_000), crossed=False), target)


def test_an_excessively_long_region_is_rejected_on_every_target():
    with pytest.raises(NotSupported) as error:
        operators.lower(local(100_000, (1, 1, 2, 80_000), crossed=False))
    assert str(error.value) == "a region of 80000 elements in a row exceeds the 65536 that are summed per element"
    operators.lower(local(2**32 - 1, (1, 1, 2, 60_000), crossed=False))


# ---- upgrades


@pytest.mark.parametrize("crossed", [True, False])
def test_the_older_operators_upgrade_to_the_newest(crossed):
    scale, activation = tensor(1, 3, 1, 1), descs.ActivationRelu()
    desc = descs.MeanVarianceNormalization(
        input_tensor=tensor(*BATCH),
        scale_tensor=scale,
        output_tensor=tensor(*BATCH),
        cross_channel=crossed,
        normalize_variance=False,
        epsilon=1e-5,
        fused_activation=activation,
    )
    axes = (1, 2, 3) if crossed else (2, 3)
    want = rows(axes=axes, scale_tensor=scale, use_variance=False, fused_activation=activation)
    assert operators.upgrade(desc) == want


# ---- schedules


def kinds(desc, target):
    """Return the kinds of steps, with runs counted as maps."""
    return [ScheduledMap if isinstance(step, ScheduledRuns) else type(step) for step in steps_of(desc, target)]


def test_short_rows_take_one_kernel_and_long_ones_several():
    for target in (CPU, GPU):
        assert kinds(rows((4096, 1024), (1,)), target) == [ScheduledRows]
        assert kinds(rows((2, 1 << 20), (1,)), target) == [ScheduledReduce, ScheduledReduce, ScheduledMap]
        assert kinds(rows((3, 5), (1,), data_type=F16), target) == [ScheduledReduce, ScheduledMap]


def test_adjacent_invocations_store_rows_with_common_operands_or_small_units_together():
    in_step = Target("in step", Profile.CPU, features=frozenset({"subgroup"}))

    def together(desc, target=in_step):
        (step,) = steps_of(desc, target)
        return step.together

    scaled = rows((100, 1024), (1,), scale_tensor=tensor(1, 1024))
    assert together(scaled)
    assert not together(scaled, CPU) and not together(scaled, replace(in_step, profile=Profile.DISCRETE))
    assert not together(rows((100, 1024), (1,), scale_tensor=tensor(100, 1)))
    assert together(rows((100, 1023), (1,)))
    assert not together(rows((100, 63), (1,)))  # little work
    assert not together(rows((100, 63, 37), (1,)))  # neighboring rows lie side by side


@pytest.mark.parametrize(
    ("sizes", "features", "why"),
    [
        ((100, 1023), {"subgroup"}, "taken: "),
        ((100, 63), {"subgroup"}, "does not pay: 6,300 units, at least 8,192"),
        ((100, 1024), {"subgroup"}, "does not pay: rows share no operand, and units are wide"),
        ((100, 1023), set(), "does not fit: a workgroup is not a subgroup"),
    ],
)
def test_why_rows_are_stored_together_or_not(sizes, features, why):
    with observed_choices() as choices:
        steps_of(rows(sizes, (1,), scale_tensor=tensor(sizes[0], 1)), Target("any", features=frozenset(features)))
    first = choices[0]
    assert first.kind == "rows"
    assert next(str(tried) for tried in first.tried if tried.name == "together").startswith(why)


def test_without_mean_and_variance_no_row_is_reduced():
    assert kinds(rows(use_mean=False, use_variance=False), CPU) == [ScheduledMap]


def test_batches_read_their_input_twice_at_most():
    assert kinds(batch(), CPU) == [ScheduledMap]
    for target in (CPU, GPU):
        assert kinds(training((1, 3, 1, 1)), target) == kinds(training(BATCH), target) == [ScheduledRows]
        few_channels = kinds(training((1, 2, 1, 1), (8, 2, 512, 512)), target)
        assert few_channels == [ScheduledReduce, ScheduledReduce, ScheduledMap, ScheduledMap, ScheduledMap]


@pytest.mark.parametrize("desc_class", [descs.BatchNormalizationGrad, descs.BatchNormalizationTrainingGrad])
def test_gradients_need_few_buffers(desc_class):
    for target in (CPU, GPU):
        assert max(len(kernel.slots) for kernel in compiler.compile_operator(gradient(desc_class), target).kernels) <= 8


def test_regions_of_two_dimensions_are_summed_one_after_the_other():
    assert kinds(local(5), CPU) == [ScheduledMap]
    assert kinds(local(5, crossed=False), CPU) == [ScheduledMap, ScheduledMap]
