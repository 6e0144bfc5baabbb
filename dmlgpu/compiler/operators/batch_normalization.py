"""Batch normalization, with given statistics or with those of the batch, and the gradients of both.

All compute in float32, float16 as well, and round once to the output's type; sums keep the rounding error of every
addition. Variances divide by the count, as the gradient's formula has it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.compiler.operators.elementwise import ADD, activated
from dmlgpu.compiler.operators.lowering import Lowering, check_size, input_tensor, output_tensor
from dmlgpu.compiler.operators.normalization import (
    FLOAT32,
    MOMENTS,
    NORMALIZE,
    broadcast,
    check_broadcast,
    normalized,
)
from dmlgpu.compiler.plan import (
    Body,
    Map,
    Plan,
    PlanTensor,
    Source,
    Stage,
    Step,
    apply,
    constants,
    in_float32,
    reduce_stage,
    repeated,
    row_sizes,
)
from dmlgpu.compiler.plan.reductions import rows
from dmlgpu.compiler.rewrites.sources import CONVERT, NUMBER, number

TOTAL = "reduction/reduce_sum_float"
PRODUCT = "normalization/centered_product"
GRADIENT = "normalization/batch_normalization_grad"


class BatchNormalization(Lowering):
    """scale * (input - mean) / sqrt(variance + epsilon) + bias, then a fused activation on the rounded result.

    Spatial has an effect below 4_0 only: without it the mean and the variance are as high and wide as the input (their
    dimensions from the third on).
    """

    desc = descs.BatchNormalization
    shaders = (NORMALIZE, NUMBER)

    @classmethod
    def check(cls, desc: descs.BatchNormalization) -> None:
        check_broadcast(desc, "mean_tensor", "variance_tensor", "scale_tensor", "bias_tensor")

    @classmethod
    def check_level(cls, desc: descs.BatchNormalization, level: FeatureLevel) -> None:
        """Below 4_0 Spatial says which sizes mean and variance have."""
        if desc.spatial or level >= FeatureLevel.LEVEL_4_0:
            return
        for name, tensor in (("mean_tensor", desc.mean_tensor), ("variance_tensor", desc.variance_tensor)):
            for axis in range(2, desc.input_tensor.dimension_count):
                check_size(desc, name, tensor, axis, "input_tensor", when=" below feature level 4_0 unless spatial")

    @classmethod
    def lower(cls, desc: descs.BatchNormalization) -> Plan:
        output = output_tensor(desc)
        names = ("mean", "variance", "scale", "bias")
        sources: dict[str, Source] = {"input": input_tensor(desc, "input_tensor")}
        sources |= broadcast(desc, {name: f"{name}_tensor" for name in names})
        body = normalized(output.data_type, desc.epsilon, sources)
        return Plan(desc.operator, (Map("map", activated(body, desc.fused_activation), output),))


@dataclass
class _Batch:
    """Builder of a plan, over tensors whose kept dimensions come first and the reduced ones last.

    Attributes:
        tensors: Inputs and outputs by name, each broadcast to the sizes of the batch.
        axes: Dimensions over which the statistics are computed.
    """

    tensors: dict[str, PlanTensor]
    axes: tuple[int, ...]
    steps: list[Step] = field(default_factory=list)

    @classmethod
    def of(cls, desc: Any, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> _Batch:
        """Return the batch of a description, whose axes are those along which the scale has size 1.

        Args:
            inputs, outputs: fields by the names that bodies use.
        """
        sizes = desc.input_tensor.sizes
        tensors = {
            **broadcast(desc, inputs),
            **{name: repeated(output_tensor(desc, field), sizes) for name, field in outputs.items()},
        }
        # One more dimension, of size 1, makes every element a row of its own where the scale is as large as the input.
        longer = {
            name: replace(tensor, sizes=(*sizes, 1), strides=(*tensor.strides, 0)) for name, tensor in tensors.items()
        }
        axes = (axis for axis, size in enumerate(desc.scale_tensor.sizes) if size == 1)
        return cls(longer, (*axes, len(sizes)))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the batch."""
        return next(iter(self.tensors.values())).sizes

    @property
    def count(self) -> int:
        """Number of elements per statistic."""
        return math.prod(self.sizes[axis] for axis in self.axes)

    def named(self, *names: str) -> dict[str, Source]:
        """Return some of the tensors by name."""
        return {name: self.tensors[name] for name in names if name in self.tensors}

    def reduce(self, stage: Stage, source: Source) -> dict[str, PlanTensor]:
        """Add a reduction and return its results by name, each repeated along its row."""
        step, results = reduce_stage(stage, source, self.axes)
        self.steps.append(step)
        return results

    def total(self, name: str, source: Source) -> PlanTensor:
        """Add a sum over the batch."""
        return self.reduce(Stage(name, TOTAL, 2), source)[name]

    def store(self, output: str, body: Body) -> None:
        """Add a map into an output of the batch's sizes."""
        self.steps.append(Map(output, body, self.tensors[output]))

    def store_statistic(self, output: str, file: str, values: tuple[Any, ...] = (), **sources: Source) -> None:
        """Add a map into an output with one element per row, over sources that are the same along rows."""
        small = row_sizes(self.sizes, self.axes)
        result = replace(self.tensors[output], sizes=small)
        inputs = {name: replace(source, sizes=small) for name, source in sources.items()}
        body = apply(file, result.data_type, small, portable=True, values=values, **inputs)
        self.steps.append(Map(output, body, result))

    def plan(self, operator: str) -> Plan:
        """Return the plan."""
        return Plan(operator, tuple(self.steps))


class BatchNormalizationTraining(Lowering):
    """BATCH_NORMALIZATION by the batch's own mean and variance, over all dimensions in which the scale has size 1; the
    fused addition comes before the activation, in float32. A mean far from 0 costs the variance nothing."""

    desc = descs.BatchNormalizationTraining
    shaders = (NORMALIZE, NUMBER, "normalization/moments", ADD, CONVERT)

    @classmethod
    def check(cls, desc: descs.BatchNormalizationTraining) -> None:
        check_broadcast(desc, "scale_tensor")

    @classmethod
    def lower(cls, desc: descs.BatchNormalizationTraining) -> Plan:
        inputs = {name: f"{name}_tensor" for name in ("input", "scale", "bias", "fused_add")}
        outputs = {name: f"{name}_tensor" for name in ("output", "output_mean", "output_variance")}
        batch = _Batch.of(desc, inputs, outputs)
        small = row_sizes(batch.sizes, batch.axes)
        mean, variance = (replace(batch.tensors[name], sizes=small) for name in ("output_mean", "output_variance"))

        def body(data_type: DataType, sources: Mapping[str, Source]) -> Body:
            added = sources.get("fused_add")
            result = normalized(data_type if added is None else FLOAT32, desc.epsilon, sources)
            if added is not None:
                result = apply(ADD, data_type, batch.sizes, portable=True, a=result, b=added)
            return activated(result, desc.fused_activation)

        def mean_of(data_type: DataType, results: Mapping[str, Source]) -> Body:
            return apply(ADD, data_type, small, portable=True, a=results["mean"], b=results["lack"])

        def variance_of(data_type: DataType, results: Mapping[str, Source]) -> Body:
            return apply(CONVERT, data_type, small, portable=True, input=results["variance"])

        others = {name: tensor for name, tensor in batch.tensors.items() if name in {"scale", "bias", "fused_add"}}
        tensors = batch.tensors["input"], batch.axes, batch.tensors["output"]
        statistics = (mean_of, mean), (variance_of, variance)
        return Plan(desc.operator, (rows((MOMENTS,), body, *tensors, others=others, statistics=statistics),))


_GRADIENTS = {
    "output": "output_gradient_tensor",
    "output_scale": "output_scale_gradient_tensor",
    "output_bias": "output_bias_gradient_tensor",
}


class _Gradient(Lowering):
    """Base of both gradients."""

    @classmethod
    def check(cls, desc: Any) -> None:
        check_broadcast(desc, "mean_tensor")

    @classmethod
    def batch(cls, desc: Any) -> _Batch:
        """Return the tensors over which the gradients are computed."""
        names = {"gradient": "input_gradient_tensor"}
        names |= {name: f"{name}_tensor" for name in ("input", "mean", "variance", "scale")}
        return _Batch.of(desc, names, _GRADIENTS)


class BatchNormalizationGrad(_Gradient):
    """Gradients of BATCH_NORMALIZATION, its mean and variance held constant. An absent Epsilon is 0."""

    desc = descs.BatchNormalizationGrad
    shaders = (GRADIENT, PRODUCT, TOTAL, NUMBER, CONVERT)

    @classmethod
    def lower(cls, desc: descs.BatchNormalizationGrad) -> Plan:
        batch = cls.batch(desc)
        values = constants(compute=FLOAT32, epsilon=float(desc.epsilon or 0))
        gradient, variance = batch.tensors["gradient"], batch.tensors["variance"]
        scaled = {"gradient": gradient, "variance": variance, "factor": batch.tensors["scale"]}
        batch.store("output", apply(GRADIENT, gradient.data_type, batch.sizes, portable=True, values=values, **scaled))
        sources = {**batch.named("gradient", "input", "mean"), "lack": number(0, batch.sizes)}
        products = batch.total("products", in_float32(PRODUCT, batch.sizes, (), **sources))
        ones = number(1, batch.sizes)
        batch.store_statistic("output_scale", GRADIENT, values, gradient=products, variance=variance, factor=ones)
        batch.store_statistic("output_bias", CONVERT, input=batch.total("total", gradient))
        return batch.plan(desc.operator)


class BatchNormalizationTrainingGrad(_Gradient):
    """Gradients of BATCH_NORMALIZATION_TRAINING. As the page has it, the input's gradient takes the input's own mean
    (its formula for the centered input refers to itself; input - mean(input) is meant), the scale's the given one."""

    desc = descs.BatchNormalizationTrainingGrad
    shaders = (
        "normalization/batch_normalization_training_grad",
        "normalization/moved_products",
        "normalization/moments",
        GRADIENT,
        PRODUCT,
        TOTAL,
        CONVERT,
    )

    @classmethod
    def lower(cls, desc: descs.BatchNormalizationTrainingGrad) -> Plan:
        file, moved, *_ = cls.shaders
        batch = cls.batch(desc)
        epsilon = float(desc.epsilon)
        moments = batch.reduce(MOMENTS, batch.tensors["input"])
        own = {name: moments[name] for name in ("mean", "lack")}
        total = batch.total("total", batch.tensors["gradient"])
        centered = {**batch.named("gradient", "input"), **own}
        products = batch.total("products", in_float32(PRODUCT, batch.sizes, (), **centered))
        sources = {**centered, **batch.named("variance", "scale"), "total": total, "products": products}
        values = constants(compute=FLOAT32, epsilon=epsilon, count=batch.count)
        data_type = desc.output_gradient_tensor.data_type
        batch.store("output", apply(file, data_type, batch.sizes, portable=True, values=values, **sources))
        small = row_sizes(batch.sizes, batch.axes)
        inputs = {"products": products, "total": total, **own, "given": batch.tensors["mean"]}
        about = {name: replace(source, sizes=small) for name, source in inputs.items()}
        batch.store_statistic(
            "output_scale",
            GRADIENT,
            constants(compute=FLOAT32, epsilon=epsilon),
            gradient=in_float32(moved, small, (), **about),
            variance=batch.tensors["variance"],
            factor=number(1, small),
        )
        batch.store_statistic("output_bias", CONVERT, input=total)
        return batch.plan(desc.operator)
