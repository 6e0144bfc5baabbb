"""Cases of the operators that compare or choose. All are exact: booleans are integers, and choosing moves bits."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, IsInfinityMode
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.contents import any_bits, few, numbers
from dmlgpu.conformance.cases.discriminating import EQUAL_PAIRS, DiscriminatingInputs
from dmlgpu.conformance.cases.families.arithmetic import OPERANDS, SPECIAL, VariedCases, of_both_signs
from dmlgpu.conformance.cases.keys import PLAIN, Key
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors, register


class _RelationCases(VariedCases):
    """Two tensors of one type, and booleans of another."""

    discriminating = (DiscriminatingInputs("< for <=, zeros of either sign that differ", OPERANDS, EQUAL_PAIRS),)

    type_fields = ("ATensor", "OutputTensor")
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, SPECIAL)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type, truth = key.types
        a, b, output = draw_tensors(
            key, rng, (data_type, key.sizes, False), (data_type, key.sizes, False), (truth, key.sizes, True)
        )

        def fill(contents: np.random.Generator) -> Arrays:
            draw = of_both_signs if key.variant == SPECIAL else numbers
            a, b = (draw(contents, data_type, key.sizes) for _ in "ab")
            return a, np.where(contents.random(key.sizes) < 0.3, a, b)  # equal elements are rare otherwise

        return Case(name, self.desc_class(a_tensor=a, b_tensor=b, output_tensor=output), fill)


register(
    _RelationCases,
    descs.ElementWiseLogicalEquals,
    descs.ElementWiseLogicalGreaterThan,
    descs.ElementWiseLogicalLessThan,
    descs.ElementWiseLogicalGreaterThanOrEqual,
    descs.ElementWiseLogicalLessThanOrEqual,
)


def draw_booleans(rng: np.random.Generator, data_type: DataType, sizes: tuple[int, ...]) -> Array:
    """Zeros, ones and other numbers that count as true."""
    return np.where(rng.random(sizes) < 0.4, data_type.numpy.type(0), few(rng, data_type, sizes) * 51)


class _LogicalCases(OperatorCases):
    """Booleans of one type."""

    standard_count = 20
    type_fields = ("OutputTensor",)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        desc = self.desc_class(**self.uniform_tensors(key, rng))

        def fill(contents: np.random.Generator) -> Arrays:
            return tuple(draw_booleans(contents, key.types[0], key.sizes) for _ in desc.inputs)

        return Case(name, desc, fill)


register(
    _LogicalCases,
    descs.ElementWiseLogicalAnd,
    descs.ElementWiseLogicalOr,
    descs.ElementWiseLogicalXor,
    descs.ElementWiseLogicalNot,
)


class _ClassCases(VariedCases):
    """Floats, and whether they are of a kind."""

    type_fields = ("InputTensor", "OutputTensor")
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, SPECIAL)

    def attributes(self, rng: np.random.Generator) -> dict[str, Any]:
        """Values of all fields except the tensors."""
        return {}

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type, truth = key.types
        source, output = draw_tensors(key, rng, (data_type, key.sizes, False), (truth, key.sizes, True))
        draw = of_both_signs if key.variant == SPECIAL else any_bits
        desc = self.desc_class(input_tensor=source, output_tensor=output, **self.attributes(rng))
        return Case(name, desc, lambda contents: (draw(contents, data_type, key.sizes),))


register(_ClassCases, descs.ElementWiseIsNan)


@cases(descs.ElementWiseIsInfinity)
class IsInfinityCases(_ClassCases):
    """ELEMENT_WISE_IS_INFINITY."""

    def attributes(self, rng: np.random.Generator) -> dict[str, Any]:
        return {"infinity_mode": IsInfinityMode(int(rng.integers(len(IsInfinityMode))))}


@cases(descs.ElementWiseIf)
class IfCases(OperatorCases):
    """ELEMENT_WISE_IF: bits of every type."""

    standard_count = 40
    type_fields = ("ATensor",)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type, sizes = key.types[0], key.sizes
        condition, a, b, output = draw_tensors(
            key,
            rng,
            (DataType.UINT8, sizes, False),
            *((data_type, sizes, is_output) for is_output in (False, False, True)),
        )

        def fill(contents: np.random.Generator) -> Arrays:
            choices = draw_booleans(contents, DataType.UINT8, sizes)
            return choices, any_bits(contents, data_type, sizes), any_bits(contents, data_type, sizes)

        desc = descs.ElementWiseIf(condition_tensor=condition, a_tensor=a, b_tensor=b, output_tensor=output)
        return Case(name, desc, fill)
