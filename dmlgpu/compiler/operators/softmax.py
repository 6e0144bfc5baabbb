"""Softmax, its logarithm, and the place of the largest element, of rows along any axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler.operators.lowering import Lowering, check_axes, input_tensor, invalid, output_tensor
from dmlgpu.compiler.plan import (
    Body,
    Element,
    Map,
    Plan,
    Reduce,
    Reduction,
    Rows,
    Source,
    Stage,
    Tensor,
    apply,
    constants,
    repeated,
    row_sizes,
)
from dmlgpu.compiler.rewrites.collapse import merge_tensor, row_groups
from dmlgpu.compiler.rewrites.rows import rows
from dmlgpu.compiler.rewrites.sources import HARDMAX, HARDMAX_FLAT


class _AlongAxes(Lowering):
    """What the operators with axes share. Unsorted axes are taken as a set; none at all and repeated ones are refused
    (the pages are silent)."""

    @classmethod
    def check(cls, desc: Any) -> None:
        check_axes(desc)


class _Stable(_AlongAxes):
    """Rows are shifted by their largest element, so that nothing overflows; sums keep the rounding error of every
    addition, whatever the length of a row.

    The formula in IEEE arithmetic decides the rest: a row with NaN or positive infinity, or of nothing but negative
    infinity, becomes NaN (as in onnxruntime and SciPy); negative infinity among finite numbers is a weight of 0.
    """

    stages: ClassVar[tuple[Stage, ...]]

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        """One kernel where rows are short enough; else reductions and a map."""
        source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        return Plan(desc.operator, (cls.rows(source, desc.axes, output),))

    @classmethod
    def rows(cls, source: Tensor, axes: Sequence[int], output: Tensor) -> Rows:
        """Return the step for a tensor whose rows lie along axes."""

        def body(data_type: DataType, sources: Mapping[str, Source]) -> Body:
            return apply(cls.shaders[0], data_type, source.sizes, portable=True, values=(), **sources)

        return rows(cls.stages, body, source, axes, output)


_MAXIMUM = Stage("maximum", "softmax/maximum", 1)


class ActivationSoftmax1(_Stable):
    """e^(x - maximum) over its sum along the axes, in float32."""

    desc = descs.ActivationSoftmax1
    shaders = (
        "softmax/activation_softmax1",
        "softmax/maximum",
        "softmax/exponential",
        "softmax/total",
        "softmax/weights",
    )
    stages = (_MAXIMUM, Stage("total", "softmax/total", 2, "softmax/exponential"))


class ActivationLogSoftmax1(_Stable):
    """x - maximum - log(sum of e^(x - maximum)), in float32; precise also where the result is near 0."""

    desc = descs.ActivationLogSoftmax1
    shaders = ("softmax/activation_log_softmax1", "softmax/maximum", "softmax/exponential", "softmax/log_total")
    stages = (_MAXIMUM, Stage("log_total", "softmax/log_total", 2, "softmax/exponential"))


class ActivationHardmax1(_AlongAxes):
    """1 at the first largest element along the axes in row-major order, 0 elsewhere.

    NaN is skipped, as in ARGMAX; a row of nothing but NaN has its 1 at the start (the page is silent).
    """

    desc = descs.ActivationHardmax1
    shaders = (HARDMAX, "reduction/argmin", HARDMAX_FLAT)

    @classmethod
    def lower(cls, desc: descs.ActivationHardmax1) -> Plan:
        """ARGMAX, then a map that compares places and does not read the input again."""
        source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        kept, along = row_groups(source.sizes, sorted(desc.axes), [source, output])
        source, output = merge_tensor(source, kept + along), merge_tensor(output, kept + along)
        axes = tuple(range(len(kept), source.rank))
        first = Tensor.temporary("first", DataType.UINT32, row_sizes(source.sizes, axes))
        order = constants(order="descending", decreasing=False)
        argmax = Reduction("reduction/argmin", DataType.UINT32, 2, portable=True, constants=order, ordered=True)
        body = Element(
            HARDMAX,
            output.data_type,
            output.sizes,
            (("first", repeated(first, output.sizes)),),
            constants(sizes=output.sizes, axes=axes),
            portable=True,
            follows=(tuple(range(output.rank)),),
        )
        return Plan(desc.operator, (Reduce("", argmax, source, axes, first), Map("map", body, output)))


class _OfRows(Lowering):
    """The older operators: rows lie along the last dimension, and at most one other is larger than 1."""

    newer: ClassVar[type[OperatorDesc]]

    @classmethod
    def check(cls, desc: Any) -> None:
        sizes = desc.input_tensor.sizes
        if any(size > 1 for size in sizes[:-2]):
            raise invalid(
                desc,
                "input_tensor.sizes",
                f"must have 1 in all dimensions but the last two ({cls.newer.operator} takes any), got {list(sizes)}",
            )

    @classmethod
    def upgrade(cls, desc: Any) -> OperatorDesc:
        return cls.newer(**desc.values, axes=(desc.input_tensor.dimension_count - 1,))


class ActivationSoftmax(_OfRows):
    """SOFTMAX1 along the last axis."""

    desc = descs.ActivationSoftmax
    newer = descs.ActivationSoftmax1


class ActivationLogSoftmax(_OfRows):
    """LOG_SOFTMAX1 along the last axis."""

    desc = descs.ActivationLogSoftmax
    newer = descs.ActivationLogSoftmax1


class ActivationHardmax(_OfRows):
    """HARDMAX1 along the last axis."""

    desc = descs.ActivationHardmax
    newer = descs.ActivationHardmax1
