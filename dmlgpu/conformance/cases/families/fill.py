"""Cases of the operators that fill a tensor from a few numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.conformance.cases.case import Arrays, Case
from dmlgpu.conformance.cases.contents import numbers, specials
from dmlgpu.conformance.cases.families.arithmetic import SPECIAL, VariedCases
from dmlgpu.conformance.cases.keys import PLAIN, Key, Types
from dmlgpu.conformance.cases.layouts import Layout
from dmlgpu.conformance.cases.operator_cases import cases, draw_tensors
from dmlgpu.conformance.cases.tolerance import EXACT, Accumulated, Bound


class _FillCases(VariedCases):
    """A tensor and a few numbers of its type."""

    type_fields = ("OutputTensor",)

    def allowed_variants(self, types: Types, layout: Layout) -> tuple[str, ...]:
        """There is no input to hand over or to share."""
        return self.variants(types)

    def number(self, key: Key, rng: np.random.Generator) -> Any:
        """A number of the tensor's type."""
        data_type = key.types[0]
        choices = specials(data_type) if key.variant == SPECIAL else numbers(rng, data_type, (9,))
        return choices[rng.integers(choices.size)].item()


def _no_inputs(contents: np.random.Generator) -> Arrays:
    return ()


@cases(descs.FillValueConstant)
class FillValueConstantCases(_FillCases):
    """FILL_VALUE_CONSTANT."""

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, SPECIAL)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        (output,) = draw_tensors(key, rng, (key.types[0], key.sizes, True))
        desc = descs.FillValueConstant(output_tensor=output, value_data_type=key.types[0], value=self.number(key, rng))
        return Case(name, desc, _no_inputs, EXACT)


@cases(descs.FillValueSequence)
class FillValueSequenceCases(_FillCases):
    """FILL_VALUE_SEQUENCE: places and products of floats are rounded, and the sum."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        (data_type,) = key.types
        (output,) = draw_tensors(key, rng, (data_type, key.sizes, True))
        start, delta = self.number(key, rng), self.number(key, rng)
        desc = descs.FillValueSequence(
            output_tensor=output, value_data_type=data_type, value_start=start, value_delta=delta
        )
        if not data_type.is_float:
            return Case(name, desc, _no_inputs, EXACT)

        def magnitude(inputs: Arrays) -> Bound:
            places = np.arange(math.prod(key.sizes), dtype=np.float64).reshape(key.sizes)
            return abs(start) + np.abs(delta * places)

        return Case(name, desc, _no_inputs, Accumulated(2), magnitude=magnitude)
