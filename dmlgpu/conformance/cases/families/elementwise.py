"""Cases of IDENTITY."""

from __future__ import annotations

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import ScaleBias
from dmlgpu.conformance.cases.case import Arrays, Case
from dmlgpu.conformance.cases.contents import any_bits, numbers
from dmlgpu.conformance.cases.keys import PLAIN, Key, Types
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors
from dmlgpu.conformance.cases.tolerance import EXACT, Accumulated, Bound

SPECIAL = "special"
SCALED = "scaled"


@cases(descs.ElementWiseIdentity)
class IdentityCases(OperatorCases):
    """ELEMENT_WISE_IDENTITY: a copy of bits into any layout; with ScaleBias arithmetic in every type."""

    large_sizes = ((16_700_001,), (65537, 129))

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, SCALED)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type = key.types[0]
        source, output = draw_tensors(key, rng, (data_type, key.sizes, False), (data_type, key.sizes, True))
        if key.variant != SCALED:
            desc = descs.ElementWiseIdentity(input_tensor=source, output_tensor=output)
            return Case(name, desc, lambda contents: (any_bits(contents, data_type, key.sizes),))
        scale, bias = _scale_bias(rng, data_type)
        desc = descs.ElementWiseIdentity(
            input_tensor=source, output_tensor=output, scale_bias=ScaleBias(scale=scale, bias=bias)
        )

        def magnitude(inputs: Arrays) -> Bound:
            assert inputs[0] is not None
            return np.abs(inputs[0].astype(np.float64) * scale) + abs(bias)

        return Case(
            name,
            desc,
            lambda contents: (numbers(contents, data_type, key.sizes),),
            Accumulated(2) if data_type.is_float else EXACT,
            magnitude=magnitude,
            needs="shader-f64" if data_type is DataType.FLOAT64 else None,
        )


def _scale_bias(rng: np.random.Generator, data_type: DataType) -> tuple[float, float]:
    """Any scale for floats. Powers of two for integers: their products are exact, whether or not an adapter fuses."""
    if data_type.is_float:
        return float(np.float32(rng.normal())), float(np.float32(rng.normal()))
    return float(rng.choice([-2.0, -1.0, 0.25, 0.5, 1.0, 4.0])), float(rng.integers(-40, 40)) / 4
