"""Write single-number constants of a graph as literals in kernels, so that nothing is loaded and drivers can fold them.

A load costs a driver as much whether or not all threads read the same element, and in the epilogue of a product it is
one of a few instructions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dmlgpu.catalog.enums import DataType, float_limits
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.graph.passes.rewriting import Rewriting, StepPass
from dmlgpu.compiler.plan import Apply, Body, PlanTensor, Role, Source, View, apply, constants
from dmlgpu.compiler.plan.parts import replace_parts
from dmlgpu.compiler.rewrites.sources import rewrite
from dmlgpu.compiler.sizes.arithmetic import is_many

NUMBER = "elementwise/number"


def write_numbers(rewriting: Rewriting) -> None:
    """Replace single-element constants that elementwise bodies read by literals.

    Passes before it see such a constant as a tensor. Those after it ask schedules, which know dequantization by its
    numbers.
    """
    data = rewriting.network.bound_constants
    tensors: list[PlanTensor] = []

    def number(source: Source) -> Source:
        if not isinstance(source, PlanTensor) or source.binding.role is not Role.CONSTANT:
            return source
        dimensions = zip(source.sizes, source.strides, strict=True)
        repeats = all(stride == 0 or not is_many(size) for size, stride in dimensions)
        if not repeats or source.view is not View.COMPUTE or source.data_type.bits > WORD_BITS:
            return source
        value = _value(source, data)
        if _is_subnormal(value, source.data_type):
            return source
        tensors.append(source)
        values = constants(compute=DataType.FLOAT32, number=value)
        return apply(NUMBER, source.data_type, source.sizes, portable=True, values=values)

    def known(source: Source) -> Source:
        return source.over(map(number, source.children)) if isinstance(source, Apply) else source

    for index, step in rewriting.indexed():
        tensors.clear()
        changed = replace_parts(step, Body, lambda body: rewrite(body, known))
        if tensors:
            rewriting.replace(index, changed)
            rewriting.note(step.label, f"has {len(tensors)} numbers in its text")


NUMBERS = StepPass("numbers", write_numbers)


def _is_subnormal(value: float | int, data_type: DataType) -> bool:
    """Return whether drivers may flush a number to 0 if it is loaded, but not if it is a literal."""
    return isinstance(value, float) and 0 < abs(value) < float(float_limits(data_type).tiny)


def _value(tensor: PlanTensor, data: Sequence[bytes]) -> float | int:
    """Return the element that a tensor repeats."""
    assert isinstance(tensor.binding.index, int)
    stored, bits = data[tensor.binding.index], tensor.data_type.bits
    place = 8 * tensor.binding.offset + tensor.offset * bits
    if bits < 8:
        integer = stored[place // 8] >> place % 8 & ((1 << bits) - 1)
        return integer - (1 << bits) if tensor.data_type.is_signed and integer >> (bits - 1) else integer
    return np.frombuffer(stored, tensor.data_type.numpy, 1, place // 8)[0].item()
