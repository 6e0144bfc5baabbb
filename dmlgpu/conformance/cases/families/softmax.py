"""Cases of softmax, its logarithm, and the place of the largest element."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from dmlgpu import reference
from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.conformance.cases.case import Array, Case, of_first
from dmlgpu.conformance.cases.contents import few, numbers
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_axes, draw_tensors, register
from dmlgpu.conformance.cases.tolerance import EXACT, Accumulated, Bound, Tolerance, Ulp

INNER = "inner"  # the last axis alone
OUTER = "outer"  # the first axis alone
EVERY = "every"  # all axes
MASKED = "masked"  # many elements are negative infinity, in some rows all
SPECIAL = "special"  # infinities and NaN in some rows
PEAKED = "peaked"  # one element far above the rest, so that the logarithm of its weight is near 0
TIES = "ties"
LARGE = "large"  # numbers whose powers would overflow

REFERENCE_ERROR = 2.0**-50 / 2.0**-24
"""An error of float64 near 1, in the unit that magnitudes are counted in."""


def _contents(rng: np.random.Generator, key: Key, sizes: tuple[int, ...]) -> Array:
    """Elements of a row's kind; whole rows along the last axis are special, others mixed."""
    data_type = key.types[0]
    values = (4 * rng.standard_normal(sizes)).astype(data_type.numpy)
    line = (*sizes[:-1], 1)
    if key.variant == MASKED:
        values[rng.random(sizes) < 0.5] = -math.inf
        values[np.broadcast_to(rng.random(line) < 0.3, sizes)] = -math.inf
    if key.variant == SPECIAL:
        for value in (math.inf, -math.inf, math.nan):
            values[(rng.random(sizes) < 0.2) & (rng.random(line) < 0.3)] = value
    if key.variant == PEAKED:
        values.ravel()[:: max(1, values.size // 7)] += 20
    if key.variant == TIES:
        return few(rng, data_type, sizes)
    if key.variant == LARGE:
        with np.errstate(over="ignore"):  # infinities are welcome
            return numbers(rng, data_type, sizes) * data_type.numpy.type(500)
    return values


class _SoftmaxRowCases(OperatorCases):
    """Any axes; short rows, rows of some thousands, rows of a million."""

    long_sizes: ClassVar[SizesList] = (
        (1_000_003,),
        (3, 20011),
        (20011, 3),
        (70, 4096),
        (260, 4096),
        (80, 20000),
        (2, 70001),
        (1, 65540, 2),
    )
    large_sizes: ClassVar[SizesList] = ((4_200_000,), (65537, 129))
    example: ClassVar[Tolerance] = EXACT
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, INNER, OUTER, EVERY, MASKED, SPECIAL, PEAKED, TIES, LARGE)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        axes = draw_axes(key, rng)
        return self.case_along(key, name, rng, key.sizes, axes, axes=axes)

    def case_along(
        self,
        key: Key,
        name: str,
        rng: np.random.Generator,
        sizes: tuple[int, ...],
        along: tuple[int, ...],
        **fields: Any,
    ) -> Case:
        """The case of a key whose rows lie ``along`` some axes."""
        data_type = key.types[0]
        source, output = draw_tensors(key, rng, (data_type, sizes, False), (data_type, sizes, True))
        desc = self.desc_class(input_tensor=source, output_tensor=output, **fields)
        count = math.prod(sizes[axis] for axis in along)

        return Case(
            name,
            desc,
            lambda contents: (_contents(contents, key, sizes),),
            self.tolerance_of(count),
            magnitude=of_first(lambda x: self.magnitude(desc, x, along)),
        )

    def tolerance_of(self, count: int) -> Tolerance:
        """The tolerance for rows of ``count`` elements."""
        return Accumulated(count)

    def magnitude(self, desc: OperatorDesc, values: Array, axes: tuple[int, ...]) -> Bound:
        """Total effect of errors of one ULP of float32, per element."""
        raise NotImplementedError

    def tolerance(self, desc: OperatorDesc) -> Tolerance:
        """Tolerance of the documented examples."""
        return self.example


def _shifted(values: Array, axes: tuple[int, ...]) -> Bound:
    """How far each element lies below the largest of its row."""
    with np.errstate(invalid="ignore"):
        return values.max(axes, keepdims=True).astype(np.float64) - values


class _SoftmaxCases(_SoftmaxRowCases):
    """An error of 0.5 ULP in x - maximum causes one of |x - maximum| / 2 ULP in its exponential; exponentials and
    quotient add some."""

    example = Ulp(4)
    added_keys: ClassVar[tuple[Key, ...]] = (
        Key((DataType.FLOAT32,), (70, 131), TensorLayout.PACKED, SPECIAL),
        Key((DataType.FLOAT32,), (130, 256), TensorLayout.PACKED),
        Key((DataType.FLOAT32,), (140, 244), TensorLayout.PACKED, SPECIAL),
    )
    """Rows of odd length, enough for adjacent invocations to store theirs together, and enough for subgroups."""

    def magnitude(self, desc: OperatorDesc, values: Array, axes: tuple[int, ...]) -> Bound:
        """The result times 4 + |x - maximum|."""
        (result,) = reference.evaluate(desc, [values])
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(result.astype(np.float64) * (4 + _shifted(values, axes)))


class _LogSoftmaxCases(_SoftmaxRowCases):
    """Where the result is far from 0, x - maximum and the logarithm are rounded; where it is near 0 the weight of the
    other elements decides, down to what the reference knows of it."""

    example = Accumulated(8)
    added_keys: ClassVar[tuple[Key, ...]] = (Key((DataType.FLOAT32,), (140, 244), TensorLayout.PACKED, PEAKED),)
    """Enough rows for subgroups to hold them."""

    def magnitude(self, desc: OperatorDesc, values: Array, axes: tuple[int, ...]) -> Bound:
        """Twice |x - maximum|, four times the logarithm of the total, and the reference's own error."""
        below = _shifted(values, axes)
        with np.errstate(invalid="ignore"):
            weights = np.exp(-below)
            total = weights.sum(axes, keepdims=True)
            weighted = np.nan_to_num(below * weights).sum(axes, keepdims=True) / total
            return np.nan_to_num(2 * below + 8 * np.log(total) + 2 * weighted + REFERENCE_ERROR, posinf=0.0)

    def documented(self, case: Case) -> Case:
        """The examples need the sum of absolute values too."""
        axes = case.desc.axes  # type: ignore[attr-defined]

        return replace(case, magnitude=of_first(lambda x: self.magnitude(case.desc, x, axes)))


class _HardmaxCases(_SoftmaxRowCases):
    """Places are exact."""

    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, INNER, OUTER, EVERY, MASKED, SPECIAL, TIES)

    def tolerance_of(self, count: int) -> Tolerance:
        return EXACT

    def magnitude(self, desc: OperatorDesc, values: Array, axes: tuple[int, ...]) -> Bound:
        return np.zeros(values.shape)


register(_SoftmaxCases, descs.ActivationSoftmax1)
register(_LogSoftmaxCases, descs.ActivationLogSoftmax1)
register(_HardmaxCases, descs.ActivationHardmax1)


class _LastAxis(_SoftmaxRowCases):
    """The older operators: rows along the last dimension, all but the last two dimensions of size 1."""

    long_sizes: ClassVar[SizesList] = ((1_000_003,), (3, 20011), (70, 4096))
    large_sizes: ClassVar[SizesList] = ((65537, 129),)

    def variants(self, types: Types) -> tuple[str, ...]:
        """What can be special about a case: the axes are not."""
        return tuple(variant for variant in super().variants(types) if variant not in (INNER, OUTER, EVERY))

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        """The case of a key; of its sizes the last two count."""
        rank = len(key.sizes)
        sizes = (1,) * (rank - 2) + key.sizes[-2:]
        return self.case_along(key, name, rng, sizes, (rank - 1,))


@cases(descs.ActivationSoftmax)
class SoftmaxCases(_LastAxis, _SoftmaxCases):
    """ACTIVATION_SOFTMAX."""


@cases(descs.ActivationLogSoftmax)
class LogSoftmaxCases(_LastAxis, _LogSoftmaxCases):
    """ACTIVATION_LOG_SOFTMAX."""


@cases(descs.ActivationHardmax)
class HardmaxCases(_LastAxis, _HardmaxCases):
    """ACTIVATION_HARDMAX."""
