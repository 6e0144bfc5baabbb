"""Operators that move the largest element that a sliding window sees, their gradient, and their inverse."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dmlgpu import descs
from dmlgpu.enums import DataType
from dmlgpu.kernels.windows import covering, taken, within
from dmlgpu.operators.elementwise import cast
from dmlgpu.operators.lowering import Lowering, check_sizes, input_tensor, output_tensor
from dmlgpu.operators.pooling import FLOAT32, LEAD, SUM, UINT32, Pooling, Undilated, reduced, temporary
from dmlgpu.plan import (
    Element,
    Map,
    Plan,
    Pool,
    Reduce,
    Reduction,
    Scatter,
    Step,
    Tensor,
    View,
    apply,
    constants,
    element,
)
from dmlgpu.plan.windows import Sizes, Windows, positions_of, sizes_of
from dmlgpu.target import Profile, Target
from dmlgpu.tensor import WORD_BITS, packed_strides

MOST_ACROSS = 32
"""Elements of a window along its last dimension up to which a kernel may go through them one by one."""


def _chosen(source: Tensor, windows: Windows) -> tuple[Tensor, Reduce]:
    """Return what each position chooses, as the number of a place in its window, and the step that finds it.

    That is the largest element, the first of equal ones; the reduction compares ranks, in which padding comes last.
    """
    wide = source.data_type.bits == 64
    rank = apply(
        "pooling/rank",
        DataType.UINT64 if wide else UINT32,
        source.sizes[:LEAD] + positions_of(windows) + sizes_of(windows),
        portable=True,
        input=taken(source, windows),
        inside=within(source.sizes[:LEAD], windows),
    )
    values = constants(order="ascending", decreasing=False)
    file, lanes = ("reduction/argmin_wide", 4) if wide else ("reduction/argmin", 2)
    reduction = Reduction(file, UINT32, lanes, portable=True, constants=values, ordered=True)
    chosen = temporary(rank, UINT32, len(windows))
    return replace(chosen, view=View.INDEX), reduced(reduction, rank, chosen, len(windows))


def _at_once(output: Tensor, windows: Windows, target: Target) -> bool:
    taps, limit = math.prod(sizes_of(windows)), target.loop_limit
    is_short = windows[-1].size <= MOST_ACROSS and (limit is None or taps < limit)
    return target.profile is Profile.CPU and output.data_type.bits <= WORD_BITS and is_short


def _choosing(windows: Windows) -> dict[str, Any]:
    return {"lead": LEAD, "axes": windows, "count": math.prod(sizes_of(windows))}


class MaxPooling2(Pooling):
    """The largest element, moved bit by bit, and its number in the whole input, row by row.

    Of equal elements the first in the window is taken; 0 and -0 are equal. Padding is never chosen, nor is NaN where
    there is a number (the page is silent; onnxruntime's maximum skips NaN too).
    """

    desc = descs.MaxPooling2
    shaders = (
        "pooling/max_pooling2",
        "pooling/max_pooling2_indices",
        "pooling/max_tile",
        "pooling/rank",
        "window/taken",
        "window/within",
    )

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, Sizes]:
        """The same for elements and for their numbers, which MAX_POOLING does not have."""
        fields = [field for field in desc.output_fields if getattr(desc, field) is not None]
        return dict.fromkeys(fields, cls.pooled_sizes(desc))

    @classmethod
    def check(cls, desc: Any) -> None:
        super().check(desc)
        if getattr(desc, "output_indices_tensor", None) is not None:
            check_sizes(desc, "output_indices_tensor", desc.output_tensor.sizes, "output_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.MaxPooling2, target: Target) -> Plan:
        """Places first; a map takes the elements there, another numbers them. On CPU adapters, whose kernels can choose
        elements of many positions at once, the elements alone, if nobody asks for their numbers."""
        windows, output = cls.windows(desc), output_tensor(desc)
        if desc.output_indices_tensor is None and _at_once(output, windows, target):
            return Plan(desc.operator, (Pool("", input_tensor(desc, "input_tensor"), windows, output),))
        places, finding = _chosen(input_tensor(desc, "input_tensor"), windows)
        inputs = {"input": input_tensor(desc, "input_tensor", View.RAW), "places": places}
        values = constants(**_choosing(windows))
        body = element(cls.shaders[0], output.data_type, output.sizes, portable=False, values=values, **inputs)
        steps: list[Step] = [finding, Map("maximum", body, output)]
        if desc.output_indices_tensor is not None:
            steps.append(cls._numbers(desc, replace(places, view=View.COMPUTE), windows))
        return Plan(desc.operator, tuple(steps))

    @classmethod
    def _numbers(cls, desc: descs.MaxPooling2, places: Tensor, windows: Windows) -> Map:
        output = output_tensor(desc, "output_indices_tensor")
        values = constants(**_choosing(windows), steps=packed_strides(desc.input_tensor.sizes))
        numbers = element(cls.shaders[1], UINT32, output.sizes, values=values, places=places)
        return Map("indices", cast(numbers, output.data_type), output)


class MaxPooling1(Undilated):
    """MAX_POOLING2 without dilations."""

    desc = descs.MaxPooling1
    newer = descs.MaxPooling2


class MaxPooling(Lowering):
    """MAX_POOLING1 without indices."""

    desc = descs.MaxPooling
    newer = descs.MaxPooling1


class MaxPoolingGrad(Pooling):
    """Each element of the output's gradient adds up the gradients of the positions that chose it, as MAX_POOLING2
    chooses."""

    desc = descs.MaxPoolingGrad
    shaders = ("pooling/max_pooling_grad", "pooling/rank", "window/taken", "window/within")
    pooled = "input_gradient_tensor"

    @classmethod
    def check(cls, desc: Any) -> None:
        super().check(desc)
        check_sizes(desc, "output_gradient_tensor", desc.input_tensor.sizes, "input_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.MaxPoolingGrad, target: Target) -> Plan:
        """Places first; then a reduction over the positions that may cover an element."""
        windows, gradient = cls.windows(desc), input_tensor(desc, "input_gradient_tensor")
        places, finding = _chosen(input_tensor(desc, "input_tensor"), windows)
        inputs = {"gradient": gradient, "places": places}
        values = constants(**_choosing(windows))
        sizes = covering(gradient, windows).sizes
        shares = element(cls.shaders[0], FLOAT32, sizes, portable=True, values=values, **inputs)
        output = output_tensor(desc, "output_gradient_tensor")
        return Plan(desc.operator, (finding, reduced(SUM, shares, output, len(windows))))


class MaxUnpooling(Lowering):
    """0, then every element at the place that its index names, counted row by row over the whole output.

    Where the page is silent: an index beyond the output is dropped. Of several elements for one place any wins; on a
    deterministic device the last in row-major order does.
    """

    desc = descs.MaxUnpooling
    shaders = ("pooling/max_unpooling", "layout/zero")

    @classmethod
    def check(cls, desc: descs.MaxUnpooling) -> None:
        check_sizes(desc, "indices_tensor", desc.input_tensor.sizes, "input_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.MaxUnpooling, target: Target) -> Plan:
        output = output_tensor(desc, view=View.RAW)
        updates = input_tensor(desc, "input_tensor", View.RAW)
        indices = input_tensor(desc, "indices_tensor", View.INDEX)
        values = constants(count=math.prod(output.sizes), steps=packed_strides(output.sizes))
        nowhere = (None,) * updates.rank
        scatter = Scatter("scatter", cls.shaders[0], updates, (("indices", indices),), output, values, nowhere)
        clear = Map("clear", Element("layout/zero", output.data_type, output.sizes), output_tensor(desc))
        return Plan(desc.operator, (clear, scatter))
