"""Cases of local response normalisation and its gradient."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.conformance.cases.case import Arrays, Case
from dmlgpu.conformance.cases.families.normalization import NormalizationCases, elements, four, wide
from dmlgpu.conformance.cases.keys import Key, SizesList, Types
from dmlgpu.conformance.cases.operator_cases import cases
from dmlgpu.conformance.cases.tolerance import Accumulated, Bound
from dmlgpu.reference import evaluate

CROSSED = "crossed"  # regions across channels
WITHIN = "within"  # regions of height and width
WIDE = "wide"  # regions wider than the tensor


class _LocalResponseCases(NormalizationCases):
    """Regions of any size; numbers of which every part of the formula matters."""

    standard_count: ClassVar[int] = 24
    large_sizes: ClassVar[SizesList] = ((3, 5, 200, 300),)
    inputs: ClassVar[tuple[str, ...]]
    output: ClassVar[str]

    def variants(self, types: Types) -> tuple[str, ...]:
        return (CROSSED, WITHIN, WIDE)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        sizes = four(key.sizes)
        tensors = self.describe(key, rng, dict.fromkeys(self.inputs, sizes), {self.output: sizes})
        crossed = key.variant == CROSSED or (key.variant == WIDE and bool(rng.integers(2)))
        local = int(rng.integers(1, 8)) if key.variant != WIDE else int(rng.choice([64, 1000, 2**32 - 1]))
        beta = float(rng.choice([0.5, 0.75, 1.0, 2.0]))
        attributes = {"local_size": local, "alpha": 0.25 * min(local, 1000), "beta": beta, "bias": 1.5}
        desc = self.desc_class(**tensors, cross_channel=crossed, **attributes)

        def fill(contents: np.random.Generator) -> Arrays:
            return tuple(elements(contents, key, sizes) for _ in self.inputs)

        terms = sizes[1] if crossed else sizes[2] * sizes[3]
        return Case(name, desc, fill, Accumulated(terms), magnitude=lambda arrays: self.magnitude(desc, arrays))

    def magnitude(self, desc: Any, arrays: Arrays) -> Bound:
        """What is added up, times what the power makes of an error."""
        sizes = [np.abs(wide(array)) for array in arrays]
        (result,) = evaluate(desc, sizes)
        return (8 + 4 * desc.beta) * self.terms(result, *sizes)

    @abstractmethod
    def terms(self, result: Bound, *sizes: Bound) -> Bound:
        """What is added up to a result that comes of absolute values."""


@cases(descs.LocalResponseNormalization)
class LocalResponseNormalizationCases(_LocalResponseCases):
    """LOCAL_RESPONSE_NORMALIZATION."""

    inputs = ("input_tensor",)
    output = "output_tensor"

    def terms(self, result: Bound, *sizes: Bound) -> Bound:
        """The result."""
        return result


@cases(descs.LocalResponseNormalizationGrad)
class LocalResponseNormalizationGradCases(_LocalResponseCases):
    """LOCAL_RESPONSE_NORMALIZATION_GRAD."""

    inputs = ("input_tensor", "input_gradient_tensor")
    output = "output_gradient_tensor"

    def terms(self, result: Bound, *sizes: Bound) -> Bound:
        """The gradient times a power below 1 (the bias is above 1), less the sum over the neighbours."""
        return 2 * sizes[1] - result
