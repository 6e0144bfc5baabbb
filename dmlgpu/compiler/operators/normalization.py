"""Normalization by the statistics of a tensor's own rows, by a norm, or by the sum of squares around an element.

All compute in float32, float16 as well, and round once to the output's type. A row's mean and variance are computed in
one pass, merged pairwise, and stay accurate for a mean far from 0. Variances divide by the count (the pages are silent;
so do the operators of ONNX that map to these). A row with NaN or infinity becomes NaN; squares beyond float32 are
infinite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.operators.elementwise import activated
from dmlgpu.compiler.operators.lowering import (
    Lowering,
    check_axes,
    check_axis,
    check_positive,
    check_size,
    check_sizes,
    input_tensor,
    invalid,
    output_tensor,
)
from dmlgpu.compiler.plan import (
    Body,
    Constants,
    Element,
    Map,
    Plan,
    PlanTensor,
    Source,
    Stage,
    Step,
    apply,
    constants,
    in_float32,
    portable,
    repeated,
)
from dmlgpu.compiler.plan.reductions import rows
from dmlgpu.compiler.rewrites.sources import NUMBER, number
from dmlgpu.compiler.rewrites.windows import WINDOW_SUM
from dmlgpu.compiler.sizes.arithmetic import is_broadcastable

FLOAT32 = DataType.FLOAT32

NORMALIZE = "normalization/normalize"
MOMENTS = Stage("moments", "normalization/moments", 4, parts=("mean", "lack", "variance"), longest=1024)
"""Mean, its rounding error in float32, and variance."""


def _attribute(value: float, sizes: tuple[int, ...]) -> Body:
    return in_float32(NUMBER, sizes, values=constants(compute=FLOAT32, value=value))


def normalized(data_type: DataType, epsilon: float, sources: Mapping[str, Source]) -> Body:
    """Return ``scale * (input - mean) / sqrt(variance + epsilon) + bias`` in a type.

    Args:
        sources: ``input`` and any of ``mean``, ``lack`` (a second part of the mean), ``variance``, ``scale``, ``bias``;
            missing ones have no effect.
    """
    source, sizes = sources["input"], sources["input"].sizes
    neutral = {"mean": 0, "lack": 0, "variance": 1, "scale": 1, "bias": 0}
    inputs = {name: sources.get(name) or number(value, sizes) for name, value in neutral.items()}
    values = constants(compute=FLOAT32, epsilon=float(epsilon) if "variance" in sources else "0.0f")
    return apply(NORMALIZE, data_type, sizes, portable=True, values=values, input=source, **inputs)


def broadcast(desc: OperatorDesc, fields: Mapping[str, str]) -> dict[str, PlanTensor]:
    """Return the tensors of some fields, by other names, broadcast to the sizes of the input; absent ones omitted."""
    sizes = desc.inputs[0].tensor.sizes  # type: ignore[union-attr]
    present = {name: field for name, field in fields.items() if getattr(desc, field) is not None}
    return {name: repeated(input_tensor(desc, field), sizes) for name, field in present.items()}


def check_broadcast(desc: Any, *fields: str) -> None:
    """Raise InvalidDescription unless each dimension of these tensors, if present, is 1 or the input's."""
    for field in fields:
        tensor = getattr(desc, field)
        for axis, (size, full) in enumerate(zip(tensor.sizes, desc.input_tensor.sizes, strict=True) if tensor else ()):
            if not is_broadcastable(size, full):
                expected = f"must be 1 or input_tensor.sizes[{axis}] ({full}), got {size}"
                raise invalid(desc, f"{field}.sizes[{axis}]", expected)


class MeanVarianceNormalization2(Lowering):
    """Layer normalization, and without the mean root-mean-square normalization: then the variance is the mean square
    (as onnxruntime's SimplifiedLayerNormalization needs it; the page says nothing). Neither leaves scale and bias.

    Unsorted axes are taken as a set; none at all and repeated ones are rejected (the page is silent).
    """

    desc = descs.MeanVarianceNormalization2
    shaders = (
        NORMALIZE,
        NUMBER,
        "normalization/moments",
        "normalization/moments_at_once",
        "normalization/mean_square",
    )
    same_sizes: ClassVar[Mapping[str, str]] = {"output_tensor": "input_tensor"}

    @classmethod
    def check(cls, desc: Any) -> None:
        check_axes(desc)
        check_sizes(desc, "output_tensor", desc.input_tensor.sizes, "input_tensor.sizes")
        check_broadcast(desc, "scale_tensor", "bias_tensor")

    @classmethod
    def lower(cls, desc: descs.MeanVarianceNormalization2) -> Plan:
        """Lower to one kernel if rows are short enough, else to reductions and a map."""
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
    """Below 5_2 scale and bias require each other."""
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
        """Below 5_2 scale and bias require each other; below 4_0 they have the input's channels."""
        _check_scale_with_bias(desc, level)
        if level >= FeatureLevel.LEVEL_4_0 or desc.input_tensor.dimension_count < 2:
            return
        for field, tensor in (("scale_tensor", desc.scale_tensor), ("bias_tensor", desc.bias_tensor)):
            if tensor is not None:
                check_size(desc, field, tensor, 1, "input_tensor", when=" below feature level 4_0")

    @classmethod
    def upgrade(cls, desc: descs.MeanVarianceNormalization1) -> OperatorDesc:
        fields = dict(desc.values)
        use_variance = fields.pop("normalize_variance")
        return descs.MeanVarianceNormalization2(**fields, use_mean=True, use_variance=use_variance)


class MeanVarianceNormalization(Lowering):
    """MEAN_VARIANCE_NORMALIZATION1 over height and width, and over channels too if CrossChannel is set."""

    desc = descs.MeanVarianceNormalization
    newer = descs.MeanVarianceNormalization1

    @classmethod
    def check(cls, desc: descs.MeanVarianceNormalization) -> None:
        check_broadcast(desc, "scale_tensor", "bias_tensor")

    @classmethod
    def check_level(cls, desc: descs.MeanVarianceNormalization, level: FeatureLevel) -> None:
        """Below 5_2 scale and bias require each other."""
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
        check_axis(desc, "input_tensor")
        if desc.p not in (1, 2):
            raise invalid(desc, "p", f"must be 1 or 2, got {desc.p}")

    @classmethod
    def lower(cls, desc: descs.LpNormalization) -> Plan:
        """Lower to one kernel if rows are short enough, else to a reduction and a map."""
        body, stage, form, exponent = cls.shaders[0], *cls._norm(desc)
        values = constants(compute=FLOAT32, form=form, exponent=exponent)
        if form != "scaled":
            values += constants(epsilon=float(desc.epsilon))
        if form != "plain":
            values += constants(epsilon_of_unit=math.ldexp(desc.epsilon, -exponent), of_unit=math.ldexp(1, -exponent))

        def divided(data_type: DataType, sources: Mapping[str, Source]) -> Body:
            return apply(body, data_type, sources["input"].sizes, portable=True, values=values, **sources)

        source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        return Plan(desc.operator, (rows((stage,), divided, source, (desc.axis,), output),))

    @classmethod
    def _norm(cls, desc: descs.LpNormalization) -> tuple[Stage, str, int]:
        """Return the reduction, the mode of the body that reads its result, and the exponent of the unit."""
        _, absolute, squares, absolute_halves, square_halves = cls.shaders
        if desc.input_tensor.data_type is DataType.FLOAT16:  # norms of float16 are far from the limits of float32
            return (Stage("norm", absolute_halves, 2) if desc.p == 1 else Stage("norm", square_halves, 4)), "plain", 0
        if desc.p == 2:
            return Stage("norm", squares, 4), "signed", 86
        exponent = desc.input_tensor.sizes[desc.axis].bit_length() + 1
        # Sums of numbers that are subnormal in this unit lose less than 2^(2 exponent - 127), which is negligible
        # beside such an epsilon.
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
    def lower(cls, desc: descs.ValueScale2d) -> Plan:
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
        body = portable(file, output, values=values, input=source, bias=bias)
        return Plan(desc.operator, (Map("map", body, output),))


MAX_NEIGHBORS = 1 << 16
"""Elements of a region along one dimension."""

SQUARE = "normalization/square"


class _LocalResponse(Lowering):
    """Base of the operator and its gradient."""

    @classmethod
    def check(cls, desc: Any) -> None:
        check_positive(desc, "local_size")

    @classmethod
    def values(cls, desc: Any, exponent: float, **more: float) -> Constants:
        """Return the constants of a body with a power of ``bias + alpha / local_size * total``."""
        share = float(desc.alpha) / desc.local_size
        return constants(compute=FLOAT32, bias=float(desc.bias), share=share, exponent=float(exponent), **more)


@dataclass
class _Windows:
    """Builder of a plan.

    Attributes:
        axes: Dimensions of a region.
        before, after: Extent of a region before and after its element.
    """

    sizes: tuple[int, ...]
    axes: tuple[int, ...]
    before: int
    after: int
    steps: list[Step]

    @classmethod
    def of(cls, desc: Any) -> _Windows:
        """Read the regions from a description.

        Raises:
            NotSupported: when a region is too long.
        """
        sizes = desc.input_tensor.sizes
        axes = (1,) if desc.cross_channel else (3, 2)
        longest = min(desc.local_size, max(sizes[axis] for axis in axes))
        if longest > MAX_NEIGHBORS:
            raise NotSupported(
                f"a region of {longest} elements in a row exceeds the {MAX_NEIGHBORS} that are summed per element"
            )
        return cls(sizes, axes, (desc.local_size - 1) // 2, desc.local_size // 2, [])

    def sum(self, source: Source, *, mirrored: bool = False) -> Body:
        """Return the sum over each element's region, dimension by dimension; mirrored: over all elements in whose
        region it lies."""
        *first, last = self.axes
        for axis in first:
            source = self.stored(self._along(axis, source, mirrored))
        return self._along(last, source, mirrored)

    def _along(self, axis: int, source: Source, mirrored: bool) -> Body:
        before, after = (self.after, self.before) if mirrored else (self.before, self.after)
        reach = self.sizes[axis] - 1
        values = constants(axis=axis, before=min(before, reach), after=min(after, reach))
        follows = tuple(None if d == axis else d for d in range(len(self.sizes)))
        return Element(WINDOW_SUM, FLOAT32, self.sizes, (("input", source),), values, follows=(follows,), portable=True)

    def stored(self, body: Body) -> PlanTensor:
        """Add a map into a temporary tensor, for bodies that are read many times, and return that tensor."""
        stored = PlanTensor.temporary("sums", FLOAT32, self.sizes)
        self.steps.append(Map(f"map {len(self.steps)}", body, stored))
        return stored

    def squares(self, source: Source) -> Body:
        """Return the sum of squares over each element's region."""
        return self.sum(in_float32(SQUARE, self.sizes, input=source))

    def plan(self, operator: str, body: Body, output: PlanTensor) -> Plan:
        """Return the plan that ends with a map into the output."""
        return Plan(operator, (*self.steps, Map("map", body, output)))


class LocalResponseNormalization(_LocalResponse):
    """The region of an element runs across channels if CrossChannel is set (as onnxruntime needs it for ONNX's LRN),
    else across height and width; the two pages contradict each other. Of LocalSize elements (LocalSize - 1) / 2,
    rounded down, lie before it, the others after it, as in ONNX; elements outside the tensor are excluded. Alpha is
    divided by LocalSize even if the region has two dimensions, as in the printed formula. Regions of more than 65536
    elements in a row are rejected.

    Sums and powers are computed in float32 and rounded once to the output's type.
    """

    desc = descs.LocalResponseNormalization
    shaders = ("normalization/local_response_normalization", WINDOW_SUM, SQUARE)

    @classmethod
    def lower(cls, desc: descs.LocalResponseNormalization) -> Plan:
        """Lower to one map, or two if the region has two dimensions."""
        windows = _Windows.of(desc)
        source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        total = windows.squares(source)
        values = cls.values(desc, -desc.beta)
        body = portable(cls.shaders[0], output, values=values, input=source, total=total)
        return windows.plan(desc.operator, body, output)


class LocalResponseNormalizationGrad(_LocalResponse):
    """The gradient of LOCAL_RESPONSE_NORMALIZATION, its formula differentiated (the page prints none); regions lie and
    Alpha is divided as there."""

    desc = descs.LocalResponseNormalizationGrad
    shaders = (
        "normalization/local_response_normalization_grad",
        "normalization/local_response_weight",
        WINDOW_SUM,
        SQUARE,
    )

    @classmethod
    def lower(cls, desc: descs.LocalResponseNormalizationGrad) -> Plan:
        """Lower to the sums of squares, the contribution of every element to other gradients, and a map that sums
        these."""
        file, weight, *_ = cls.shaders
        windows = _Windows.of(desc)
        output = output_tensor(desc, "output_gradient_tensor")
        total = windows.stored(windows.squares(input_tensor(desc, "input_tensor")))
        inputs: dict[str, Source] = {
            "gradient": input_tensor(desc, "input_gradient_tensor"),
            "input": input_tensor(desc, "input_tensor"),
            "total": total,
        }
        values = cls.values(desc, -desc.beta - 1)
        weights = windows.stored(in_float32(weight, output.sizes, values=values, **inputs))
        values = cls.values(desc, -desc.beta, twice=2 * float(desc.beta) * desc.alpha / desc.local_size)
        sums = windows.sum(weights, mirrored=True)
        body = portable(file, output, values=values, **inputs, weights=sums)
        return windows.plan(desc.operator, body, output)
