"""Cases of CAST."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.conformance.cases.case import Arrays, Case
from dmlgpu.conformance.cases.contents import any_bits, conversion_edges, numbers
from dmlgpu.conformance.cases.keys import Key
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors
from dmlgpu.conformance.cases.tolerance import CORRECTLY_ROUNDED, EXACT


@cases(descs.Cast)
class CastCases(OperatorCases):
    """CAST: all pairs of types, on random bits, ordinary numbers and every edge of the conversion."""

    standard_count = 40

    def standard_keys(self) -> Iterator[Key]:
        """A covering selection, then one key for every pair of types."""
        yield from super().standard_keys()
        found = list(self.combinations())
        order = np.random.default_rng(len(found)).permutation(len(found))
        yield from map(self.key_of, {found[i].types: found[i] for i in order}.values())

    type_fields = ("InputTensor", "OutputTensor")

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        source_type, target_type = key.types
        source, output = draw_tensors(key, rng, (source_type, key.sizes, False), (target_type, key.sizes, True))

        def fill(contents: np.random.Generator) -> Arrays:
            edges = contents.permutation(conversion_edges(source_type, target_type))
            count = math.prod(key.sizes)
            values = np.where(
                contents.random(count) < 0.5,
                any_bits(contents, source_type, (count,)),
                numbers(contents, source_type, (count,)),
            )
            values[: edges.size] = edges[:count]
            return (contents.permutation(values).reshape(key.sizes),)

        desc = descs.Cast(input_tensor=source, output_tensor=output)
        return Case(name, desc, fill, CORRECTLY_ROUNDED if target_type.is_float else EXACT)
