"""A test case: an operator description with seeded contents, expected results and tolerance."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu import reference
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.catalog.validation import validate
from dmlgpu.common.errors import DmlError
from dmlgpu.conformance.cases.tolerance import EXACT, Bound, Tolerance, flush

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = tuple[Array | None, ...]
Fill: TypeAlias = Callable[[np.random.Generator], Arrays]


@dataclass(frozen=True)
class Case:
    """One test of one operator. Equal names mean equal cases: contents are drawn from a seed made of the name.

    Attributes:
        name: What ``-k`` and ``case_by_name`` accept: letters, digits, ``-``, ``_``, ``.``.
        desc: The description.
        tolerance: Allowed difference from the expected result.
        fill: Makes one array per flat input from a generator.
        documented: The result that DirectML's page prints, instead of the reference's; anything for absent outputs.
        alternatives: Further right results, where the order of invocations decides; a deterministic device has none.
        magnitude: Sum of absolute values per output element, for ``Accumulated``; a tuple of such
            arrays for several outputs.
        in_place: Flat input whose buffer the output shares, or None.
        needs: Adapter feature without which the operator may be rejected, or None: it must run everywhere.
    """

    name: str
    desc: OperatorDesc
    fill: Fill = field(repr=False, compare=False)
    tolerance: Tolerance = EXACT
    documented: tuple[Array, ...] | None = field(default=None, repr=False, compare=False)
    alternatives: Callable[[Arrays], tuple[Array, ...]] | None = field(default=None, repr=False, compare=False)
    magnitude: Callable[[Arrays], Bound | tuple[Bound, ...]] | None = field(default=None, repr=False, compare=False)
    in_place: int | None = None
    needs: str | None = None

    @property
    def seed(self) -> int:
        """Seed of the contents."""
        return zlib.crc32(self.name.encode())

    @functools.cached_property
    def level(self) -> FeatureLevel:
        """The lowest feature level that allows the description.

        Raises:
            InvalidDescription: If none does.
        """
        for level in FeatureLevel:
            try:
                validate(self.desc, level)
            except DmlError:
                if level is max(FeatureLevel):
                    raise
            else:
                return level
        raise AssertionError("unreachable")

    def inputs(self) -> Arrays:
        """One array of logical sizes per flat input; equal along dimensions of stride 0."""
        arrays = self.fill(np.random.default_rng([self.seed, 1]))
        return tuple(_as_stored(slot.tensor, array) for slot, array in zip(self.desc.inputs, arrays, strict=True))

    def expected(self, inputs: Arrays) -> tuple[Array, ...]:
        """Return the result: the page's, or the reference's."""
        return self.documented or reference.evaluate(self.desc, inputs)

    def outcomes(self, inputs: Arrays, *, deterministic: bool = False) -> tuple[tuple[Array, ...], ...]:
        """Return all correct results, the preferred one first; each element may match any of them."""
        results = [self.expected(inputs)]
        if self.alternatives is not None and not deterministic:
            results.append(self.alternatives(inputs))
        if self.tolerance.flush_to_zero:
            flushed = tuple(None if array is None else flush(array) for array in inputs)
            if any(new is not old for new, old in zip(flushed, inputs, strict=True)):
                results.append(reference.evaluate(self.desc, flushed))
        return tuple(results)

    def magnitudes(self, inputs: Arrays) -> tuple[Bound | None, ...]:
        """Return the magnitudes of each output for the tolerance ``Accumulated``."""
        magnitudes = None if self.magnitude is None else self.magnitude(inputs)
        return magnitudes if isinstance(magnitudes, tuple) else (magnitudes,) * len(self.desc.outputs)

    def __str__(self) -> str:
        return self.name


def _as_stored(desc: TensorDesc | None, array: Array | None) -> Array | None:
    """Return the array as the tensor's memory holds it: a dimension of stride 0 has one element only."""
    if desc is None or array is None:
        return None
    repeats = any(stride == 0 and size > 1 for size, stride in zip(desc.sizes, desc.element_strides, strict=True))
    return desc.decode(desc.encode(array)) if repeats else array


def of_first(function: Callable[[Array], Bound]) -> Callable[[Arrays], Bound]:
    """Return a ``magnitude`` that depends on the first input only."""

    def magnitude(inputs: Arrays) -> Bound:
        assert inputs[0] is not None
        return function(inputs[0])

    return magnitude


def evaluate_in_float32(desc: OperatorDesc, inputs: Arrays, **changes: Any) -> tuple[Bound, ...]:
    """Evaluate the reference with all tensors except indices packed and in FLOAT32, in which large sums stay finite."""
    slots = (*desc.inputs, *desc.outputs)
    wide = {
        slot.field: TensorDesc(DataType.FLOAT32, slot.tensor.sizes)
        for slot in slots
        if slot.tensor is not None and "indices" not in slot.field
    }
    arrays = tuple(
        array if array is None or "indices" in slot.field else array.astype(np.float32)
        for slot, array in zip(desc.inputs, inputs, strict=True)
    )
    results = reference.evaluate(desc.replace(**wide, **changes), arrays)
    return tuple(np.zeros(0) if result is None else result.astype(np.float64) for result in results)
