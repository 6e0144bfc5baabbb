"""Operators that move the largest element that a sliding window sees, their gradient, and their inverse."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.operators.elementwise import cast
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, input_tensor, output_tensor
from dmlgpu.compiler.operators.pooling import FLOAT32, SUM, UINT32, Pooling, Undilated
from dmlgpu.compiler.plan import (
    Element,
    Map,
    Plan,
    Pool,
    Scatter,
    Tensor,
    View,
    constants,
    element,
)
from dmlgpu.compiler.plan.windows import Sizes, Windows
from dmlgpu.compiler.rewrites.windows import (
    MAX_POOLING,
    covering,
    largest_places,
    place_values,
    reduced,
    taken_from_places,
)


class MaxPooling2(Pooling):
    """The largest element, moved bit by bit, and its number in the whole input, row by row.

    Of equal elements the first in the window is taken; 0 and -0 are equal. Padding is never chosen, nor is NaN where
    there is a number (the page is silent; onnxruntime's maximum skips NaN too).
    """

    desc = descs.MaxPooling2
    shaders = (
        MAX_POOLING,
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
    def lower(cls, desc: descs.MaxPooling2) -> Plan:
        """A pool if only the elements are asked for; else places first, then a map takes the elements there, and
        another numbers them."""
        pool = Pool("", input_tensor(desc, "input_tensor"), cls.windows(desc), output_tensor(desc))
        if desc.output_indices_tensor is None:
            return Plan(desc.operator, (pool,))
        finding, places = largest_places(pool.input, pool.windows)
        numbers = cls._numbers(desc, replace(places, view=View.COMPUTE), pool.windows)
        return Plan(desc.operator, (finding, taken_from_places(pool, places), numbers))

    @classmethod
    def _numbers(cls, desc: descs.MaxPooling2, places: Tensor, windows: Windows) -> Map:
        output = output_tensor(desc, "output_indices_tensor")
        values = constants(**place_values(windows), steps=packed_strides(desc.input_tensor.sizes))
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
    def lower(cls, desc: descs.MaxPoolingGrad) -> Plan:
        """Places first; then a reduction over the positions that may cover an element."""
        windows, gradient = cls.windows(desc), input_tensor(desc, "input_gradient_tensor")
        finding, places = largest_places(input_tensor(desc, "input_tensor"), windows)
        inputs = {"gradient": gradient, "places": places}
        values = constants(**place_values(windows))
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
    def lower(cls, desc: descs.MaxUnpooling) -> Plan:
        output = output_tensor(desc, view=View.RAW)
        updates = input_tensor(desc, "input_tensor", View.RAW)
        indices = input_tensor(desc, "indices_tensor", View.INDEX)
        values = constants(count=math.prod(output.sizes), steps=packed_strides(output.sizes))
        nowhere = (None,) * updates.rank
        scatter = Scatter("scatter", cls.shaders[0], updates, (("indices", indices),), output, values, nowhere)
        clear = Map("clear", Element("layout/zero", output.data_type, output.sizes), output_tensor(desc))
        return Plan(desc.operator, (clear, scatter))
