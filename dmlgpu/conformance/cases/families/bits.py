"""Cases of the operators on bits. All are exact."""

from __future__ import annotations

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.conformance.cases.case import Arrays, Case
from dmlgpu.conformance.cases.contents import any_bits
from dmlgpu.conformance.cases.keys import Key
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors, register


class _BitCases(OperatorCases):
    """Random bits of one type."""

    standard_count = 44

    def draw(self, key: Key, contents: np.random.Generator, count: int) -> Arrays:
        """Contents of so many inputs."""
        return tuple(any_bits(contents, key.types[0], key.sizes) for _ in range(count))

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        fields = self.schema.tensor_fields
        tensors = draw_tensors(key, rng, *((key.types[0], key.sizes, field.kind == "output") for field in fields))
        desc = self.desc_class(**dict(zip((field.python_name for field in fields), tensors, strict=True)))
        return Case(name, desc, lambda contents: self.draw(key, contents, len(desc.inputs)))


register(_BitCases, descs.ElementWiseBitAnd, descs.ElementWiseBitOr, descs.ElementWiseBitXor, descs.ElementWiseBitNot)


class _ShiftCases(_BitCases):
    """Counts below, at and beyond the width."""

    def draw(self, key: Key, contents: np.random.Generator, count: int) -> Arrays:
        """Random bits; most counts below twice 64."""
        bits, any_count = super().draw(key, contents, count)
        assert any_count is not None
        small = contents.integers(0, 130, key.sizes).astype(any_count.dtype)
        return bits, np.where(contents.random(key.sizes) < 0.8, small, any_count)


register(_ShiftCases, descs.ElementWiseBitShiftLeft, descs.ElementWiseBitShiftRight)


@cases(descs.ElementWiseBitCount)
class BitCountCases(OperatorCases):
    """ELEMENT_WISE_BIT_COUNT: every type, and both types of the count."""

    standard_count = 40
    type_fields = ("InputTensor", "OutputTensor")

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        source, output = draw_tensors(key, rng, *((t, key.sizes, i == 1) for i, t in enumerate(key.types)))
        desc = descs.ElementWiseBitCount(input_tensor=source, output_tensor=output)
        return Case(name, desc, lambda contents: (any_bits(contents, key.types[0], key.sizes),))
