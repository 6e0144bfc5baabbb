"""Normalisation by the statistics of a tensor's own rows: mean and variance, root mean square, Lp norms.

All compute in float32, halves as well, and round once to the output's type. A row's mean and variance come of one pass,
merged pairwise; a mean far from 0 costs them nothing. Variances divide by the count (the pages are silent; so do the
operators of ONNX that map on these). A row with NaN or infinity becomes NaN; squares beyond float32 are infinite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler.operators.fused import activated
from dmlgpu.compiler.operators.lowering import (
    Lowering,
    check_axes,
    check_sizes,
    input_tensor,
    invalid,
    output_tensor,
)
from dmlgpu.compiler.plan import Body, Element, Map, Plan, Source, Stage, Tensor, apply, constants, repeated
from dmlgpu.compiler.rewrites.rows import rows
from dmlgpu.compiler.target import Target

FLOAT32 = DataType.FLOAT32

NORMALIZE = "normalization/normalize"
NUMBER = "normalization/number"
MOMENTS = Stage("moments", "normalization/moments", 4, parts=("mean", "lack", "variance"), longest=1024)
"""The mean, what its float32 lacks, and the variance."""


def number(value: int, sizes: tuple[int, ...]) -> Body:
    """Return a virtual tensor of one whole number that compilers know: they leave out what it does not change."""
    return apply(NUMBER, FLOAT32, sizes, portable=True, values=constants(value=f"{value}.0f"))


def _attribute(value: float, sizes: tuple[int, ...]) -> Body:
    """Return a virtual tensor of a number of the description."""
    return apply(NUMBER, FLOAT32, sizes, portable=True, values=constants(compute=FLOAT32, value=value))


def normalized(data_type: DataType, epsilon: float, sources: Mapping[str, Source]) -> Body:
    """Return ``scale * (input - mean) / sqrt(variance + epsilon) + bias`` in a type.

    Args:
        sources: ``input`` and any of ``mean``, ``lack`` (a second part of the mean), ``variance``, ``scale``, ``bias``;
            those that are missing change nothing.
    """
    given, sizes = sources["input"], sources["input"].sizes
    neutral = {"mean": 0, "lack": 0, "variance": 1, "scale": 1, "bias": 0}
    inputs = {name: sources.get(name) or number(value, sizes) for name, value in neutral.items()}
    values = constants(compute=FLOAT32, epsilon=float(epsilon) if "variance" in sources else "0.0f")
    return apply(NORMALIZE, data_type, sizes, portable=True, values=values, input=given, **inputs)


def broadcast(desc: OperatorDesc, fields: Mapping[str, str]) -> dict[str, Tensor]:
    """Return the tensors of some fields, by other names, repeated to the sizes of the input; absent ones left out."""
    sizes = desc.inputs[0].tensor.sizes  # type: ignore[union-attr]
    present = {name: field for name, field in fields.items() if getattr(desc, field) is not None}
    return {name: repeated(input_tensor(desc, field), sizes) for name, field in present.items()}


def check_broadcast(desc: Any, *fields: str) -> None:
    """Raise InvalidDescription unless each dimension of these tensors, where they are present, is 1 or the input's."""
    for field in fields:
        tensor = getattr(desc, field)
        for axis, (size, wanted) in enumerate(
            zip(tensor.sizes, desc.input_tensor.sizes, strict=True) if tensor else ()
        ):
            if size not in (1, wanted):
                expected = f"must be 1 or input_tensor.sizes[{axis}] ({wanted}), got {size}"
                raise invalid(desc, f"{field}.sizes[{axis}]", expected)


class MeanVarianceNormalization2(Lowering):
    """Layer normalisation, and without the mean root-mean-square normalisation: then the variance is the mean square
    (as onnxruntime's SimplifiedLayerNormalization needs it; the page says nothing). Neither leaves scale and bias.

    Unsorted axes are taken as a set; none at all and repeated ones are refused (the page is silent).
    """

    desc = descs.MeanVarianceNormalization2
    shaders = (
        NORMALIZE,
        NUMBER,
        "normalization/moments",
        "normalization/moments_at_once",
        "normalization/mean_square",
    )

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        return {"output_tensor": desc.input_tensor.sizes}

    @classmethod
    def check(cls, desc: Any) -> None:
        check_axes(desc)
        check_sizes(desc, "output_tensor", desc.input_tensor.sizes, "input_tensor.sizes")
        check_broadcast(desc, "scale_tensor", "bias_tensor")

    @classmethod
    def lower(cls, desc: descs.MeanVarianceNormalization2, target: Target) -> Plan:
        """One kernel where rows are short enough; else reductions and a map."""
        source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        others = broadcast(desc, {"scale": "scale_tensor", "bias": "bias_tensor"})

        def body(data_type: DataType, sources: Mapping[str, Source]) -> Body:
            used = {name: source for name, source in sources.items() if desc.use_variance or name != "variance"}
            return activated(normalized(data_type, desc.epsilon, used), desc.fused_activation)

        stages = _statistics(desc)
        if not stages:
            return Plan(desc.operator, (Map("map", body(output.data_type, {"input": source, **others}), output),))
        return Plan(desc.operator, (rows(stages, body, source, desc.axes, output, others=others),))


def _statistics(desc: descs.MeanVarianceNormalization2) -> tuple[Stage, ...]:
    if desc.use_mean:
        return (MOMENTS,)
    if not desc.use_variance:
        return ()
    count = math.prod(desc.input_tensor.sizes[axis] for axis in desc.axes)
    return (Stage("variance", "normalization/mean_square", 2, constants=constants(count=count)),)


def _check_scale_with_bias(desc: Any, level: FeatureLevel) -> None:
    """Below 5_2 scale and bias come together."""
    present = [field for field in ("scale_tensor", "bias_tensor") if getattr(desc, field) is not None]
    if level < FeatureLevel.LEVEL_5_2 and len(present) == 1:
        (absent,) = {"scale_tensor", "bias_tensor"} - set(present)
        raise invalid(desc, absent, f"must be present where {present[0]} is, below feature level 5_2")


class MeanVarianceNormalization1(Lowering):
    """MEAN_VARIANCE_NORMALIZATION2 with the mean. The channel dimension, which below 4_0 may not be broadcast, is the
    second one."""

    desc = descs.MeanVarianceNormalization1
    newer = descs.MeanVarianceNormalization2

    @classmethod
    def check_level(cls, desc: descs.MeanVarianceNormalization1, level: FeatureLevel) -> None:
        """Below 5_2 scale and bias come together; below 4_0 they have the input's channels."""
        _check_scale_with_bias(desc, level)
        if level >= FeatureLevel.LEVEL_4_0 or desc.input_tensor.dimension_count < 2:
            return
        channels = desc.input_tensor.sizes[1]
        for field, tensor in (("scale_tensor", desc.scale_tensor), ("bias_tensor", desc.bias_tensor)):
            if tensor is not None and tensor.sizes[1] != channels:
                raise invalid(
                    desc,
                    f"{field}.sizes[1]",
                    f"must be input_tensor.sizes[1] ({channels}) below feature level 4_0, got {tensor.sizes[1]}",
                )

    @classmethod
    def upgrade(cls, desc: descs.MeanVarianceNormalization1) -> OperatorDesc:
        fields = dict(desc.values)
        use_variance = fields.pop("normalize_variance")
        return descs.MeanVarianceNormalization2(**fields, use_mean=True, use_variance=use_variance)


class MeanVarianceNormalization(Lowering):
    """MEAN_VARIANCE_NORMALIZATION1 over height and width, and over channels too where they are crossed."""

    desc = descs.MeanVarianceNormalization
    newer = descs.MeanVarianceNormalization1

    @classmethod
    def check(cls, desc: descs.MeanVarianceNormalization) -> None:
        check_broadcast(desc, "scale_tensor", "bias_tensor")

    @classmethod
    def check_level(cls, desc: descs.MeanVarianceNormalization, level: FeatureLevel) -> None:
        """Below 5_2 scale and bias come together."""
        _check_scale_with_bias(desc, level)

    @classmethod
    def upgrade(cls, desc: descs.MeanVarianceNormalization) -> OperatorDesc:
        fields = dict(desc.values)
        axes = (1, 2, 3) if fields.pop("cross_channel") else (2, 3)
        return descs.MeanVarianceNormalization1(**fields, axes=axes)


class LpNormalization(Lowering):
    """input / max(norm, epsilon): the page says only that epsilon guards the division. A row with NaN becomes NaN; a
    norm beyond float32, or one whose squares are, is taken in larger units, so that the quotients are what they are."""

    desc = descs.LpNormalization
    shaders = (
        "normalization/lp_normalization",
        "normalization/absolute_sum",
        "normalization/root_of_squares",
        "reduction/reduce_l1_float",
        "reduction/reduce_l2",
    )

    @classmethod
    def check(cls, desc: descs.LpNormalization) -> None:
        rank = desc.input_tensor.dimension_count
        if desc.axis >= rank:
            raise invalid(desc, "axis", f"must be below input_tensor's dimension count ({rank}), got {desc.axis}")
        if desc.p not in (1, 2):
            raise invalid(desc, "p", f"must be 1 or 2, got {desc.p}")

    @classmethod
    def lower(cls, desc: descs.LpNormalization, target: Target) -> Plan:
        """One kernel where rows are short enough; else a reduction and a map."""
        body, stage, form, exponent = cls.shaders[0], *cls._norm(desc)
        values = constants(
            compute=FLOAT32,
            form=form,
            exponent=exponent,
            epsilon=float(desc.epsilon),
            epsilon_of_unit=math.ldexp(desc.epsilon, -exponent),
            of_unit=math.ldexp(1, -exponent),
        )

        def divided(data_type: DataType, sources: Mapping[str, Source]) -> Body:
            return apply(body, data_type, sources["input"].sizes, portable=True, values=values, **sources)

        source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        return Plan(desc.operator, (rows((stage,), divided, source, (desc.axis,), output),))

    @classmethod
    def _norm(cls, desc: descs.LpNormalization) -> tuple[Stage, str, int]:
        """Return the reduction, the form in which the body gets its result, and the exponent of the unit."""
        _, absolute, squares, absolute_halves, square_halves = cls.shaders
        if desc.input_tensor.data_type is DataType.FLOAT16:  # no norm of halves comes near the limits of float32
            return (Stage("norm", absolute_halves, 2) if desc.p == 1 else Stage("norm", square_halves, 4)), "plain", 0
        if desc.p == 2:
            return Stage("norm", squares, 4), "signed", 86
        exponent = desc.input_tensor.sizes[desc.axis].bit_length() + 1
        # What a sum loses of numbers that are subnormal in this unit is below 2^(2 exponent - 127): nothing beside such
        # an epsilon.
        if desc.epsilon >= math.ldexp(1, 2 * exponent - 100):
            return Stage("norm", absolute, 2, constants=constants(exponent=exponent)), "scaled", exponent
        return Stage("norm", absolute, 4, constants=constants(exponent=0, absolute=True)), "signed", 64


class ValueScale2d(Lowering):
    """scale * input + bias, with a bias per channel (the page's text says per dimension)."""

    desc = descs.ValueScale2d
    shaders = ("normalization/value_scale_2d", "normalization/of_channel", NUMBER)

    @classmethod
    def check(cls, desc: descs.ValueScale2d) -> None:
        channels = desc.input_tensor.sizes[1]
        if channels not in (1, 3):
            raise invalid(desc, "input_tensor.sizes[1]", f"must be 1 or 3, got {channels}")
        if len(desc.bias) != channels:
            raise invalid(
                desc,
                "bias",
                f"must have input_tensor.sizes[1] ({channels}) entries, one per channel, got {len(desc.bias)}",
            )

    @classmethod
    def lower(cls, desc: descs.ValueScale2d, target: Target) -> Plan:
        file, of_channel, _ = cls.shaders
        output = output_tensor(desc)
        biases = tuple((f"channel{c}", _attribute(bias, output.sizes)) for c, bias in enumerate(desc.bias))
        along = (0, None, 2, 3)
        bias = Element(
            of_channel,
            FLOAT32,
            output.sizes,
            biases,
            constants(channels=len(biases)),
            follows=(along,) * len(biases),
            portable=True,
        )
        values = constants(compute=FLOAT32, scale=float(desc.scale))
        source = input_tensor(desc, "input_tensor")
        body = apply(file, output.data_type, output.sizes, portable=True, values=values, input=source, bias=bias)
        return Plan(desc.operator, (Map("map", body, output),))
