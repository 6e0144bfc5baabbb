"""The suites of special values: among the contents of the operators' cases, and every float16 value.

``values``: a case's name is an operator's with ``values`` after the stem: ``gemm-values-float32-2x3-packed-s0``.
Numeric inputs get NaN of both signs with payloads, infinities, both zeros, subnormals, limits and random bit patterns;
indices, lengths and regions are unchanged. Not every operator can be compared on all of them: ``SpecialKind`` says why,
and which operators get fewer.

``halves``: every float16 value goes through every element-wise operator and activation of one tensor. A case's name is
an operator's with ``halves`` after the stem: ``activation_elu-halves-float16-65536-packed-s1``. The operator's
attributes come from the seed, so that one with parameters is run with several sets.
"""

from __future__ import annotations

import enum
import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.accuracy.functions import FUNCTIONS
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.contents import any_bits, specials
from dmlgpu.conformance.cases.keys import PLAIN, PROFILES, Key, Types
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases
from dmlgpu.conformance.cases.registry import OPERATOR_CASES, case_by_name
from dmlgpu.conformance.cases.tolerance import Accumulated, as_bits
from dmlgpu.conformance.suites.operators import CaseSuite, first

INFIX = "-values-"

NOT_NUMBERS = frozenset(
    {
        "indices_tensor",
        "batch_indices_tensor",
        "sequence_lengths_tensor",
        "past_sequence_lengths_tensor",
        "roi_tensor",
        "input_state_tensor",
        "training_step_tensor",
    }
)
"""Inputs that say where elements go, or how many there are."""


class SpecialKind(enum.Enum):
    """Kinds of special values among an operator's operands."""

    ALL = enum.auto()
    NOT_LARGE = enum.auto()
    """No finite numbers near the limits: the order of a sum decides whether they overflow on the way. Infinities and
    NaN come out the same in every order."""
    NORMAL = enum.auto()
    """No subnormals: adapters may take them for 0, and results must be exact."""
    FINITE = enum.auto()
    """Zeros and small numbers only: an adapter may take ``0 * x`` and ``x - x`` for 0, as WGSL allows, and skip what
    has no weight, where the reference multiplies; transforms of a convolution spread what is not finite."""
    NONE = enum.auto()
    """None: squares of subnormals vanish in float32 before they are divided by. The operator's own cases have what can
    be compared."""


KINDS: Mapping[str, SpecialKind] = {
    "adam_optimizer": SpecialKind.NONE,
    "batch_normalization*": SpecialKind.FINITE,  # x - mean of one element; products with gradients of 0
    "mean_variance_normalization*": SpecialKind.FINITE,  # x - mean of one element
    "multihead_attention*": SpecialKind.FINITE,  # keys that are masked
    "roi_align*": SpecialKind.FINITE,  # neighbors of weight 0
    "convolution": SpecialKind.FINITE,  # padding; transforms of whole tiles
    "gemm": SpecialKind.FINITE,  # alpha or beta of 0
    "quantized_linear_average_pooling": SpecialKind.NORMAL,  # integers of quotients
    "*quantized_linear*": SpecialKind.FINITE,  # products and quotients of scales
    "*quantize*": SpecialKind.NORMAL,  # integers of quotients
}
"""Operators, as shell patterns, that get fewer than their tolerance allows (``Accumulated``: NOT_LARGE)."""

SHARES = (0.3, 0.03, 0.003)
"""Shares of special elements in summed inputs: a sum with one NaN hides its other terms."""


def declared_kind(stem: str) -> SpecialKind:
    """Return the kind of special values that an operator declares."""
    return next((kind for pattern, kind in KINDS.items() if fnmatch.fnmatchcase(stem, pattern)), SpecialKind.ALL)


def kind_of(case: Case) -> SpecialKind:
    """Return the special values on which a case can be compared."""
    declared = declared_kind(case.desc.operator.lower())
    return (
        SpecialKind.NOT_LARGE if declared is SpecialKind.ALL and isinstance(case.tolerance, Accumulated) else declared
    )


def with_special_values(case: Case, name: str) -> Case:
    """Return the case under another name, with special values among its contents."""
    kind = kind_of(case)

    def fill(contents: np.random.Generator) -> Arrays:
        share = 0.5 if kind in (SpecialKind.ALL, SpecialKind.NORMAL) else float(contents.choice(SHARES))
        arrays = case.fill(contents)
        slots = zip(case.desc.inputs, arrays, strict=True)
        return tuple(
            array
            if array is None or slot.tensor is None or slot.field in NOT_NUMBERS
            else _with_special_values(contents, slot.tensor.data_type, array, share, kind)
            for slot, array in slots
        )

    measure = case.magnitude
    magnitude = None if measure is None else (lambda inputs: measure(tuple(map(_numbers, inputs))))
    return replace(case, name=name, fill=fill, magnitude=magnitude)


def _numbers(array: Array | None) -> Array | None:
    """Replace infinities and NaN by zeros, so that the error bound of the other elements remains finite."""
    if array is None or array.dtype.kind != "f":
        return array
    return np.where(np.isfinite(array), array, array.dtype.type(0))


def _with_special_values(
    rng: np.random.Generator, data_type: DataType, array: Array, share: float, kind: SpecialKind
) -> Array:
    """Return the array with some of its elements replaced."""
    chosen = rng.choice(special_values(data_type, kind), array.shape)
    if kind is SpecialKind.ALL and data_type.bits >= 8:  # 4-bit integers come in bytes
        chosen = np.where(rng.random(array.shape) < 0.3, any_bits(rng, data_type, array.shape), chosen)
    return np.where(rng.random(array.shape) < share, chosen, array)


def special_values(data_type: DataType, kind: SpecialKind = SpecialKind.ALL) -> Array:
    """Return the special values of a type and a kind."""
    values = specials(data_type)
    if not data_type.is_float:
        maximum = (1 << data_type.bits - data_type.is_signed) - 1
        return np.unique(np.clip(values, -maximum - 1 if data_type.is_signed else 0, maximum))
    sizes = np.abs(values)
    if kind is SpecialKind.FINITE:
        return values[(sizes == 0) | ((sizes >= 0.5) & (sizes <= 4))]
    if kind is SpecialKind.NORMAL:
        values = values[(sizes == 0) | ~(sizes < np.finfo(data_type.numpy).smallest_normal)]
    if kind is SpecialKind.NOT_LARGE:
        values = values[~(np.isfinite(values) & (sizes > 4))]
    return np.concatenate([values, _payloads(data_type)])


def _payloads(data_type: DataType) -> Array:
    """Quiet and signalling NaN of both signs, with payloads."""
    dtype = data_type.numpy
    infinity = int(as_bits(np.array([np.inf], dtype))[0])
    digits = np.finfo(dtype).nmant
    sign = 1 << (data_type.bits - 1)
    payloads = (1 << (digits - 1) | 5, 1, (1 << digits) - 1)
    bits = [infinity | payload | side for payload in payloads for side in (0, sign)]
    return np.array(bits, np.dtype(f"u{dtype.itemsize}")).view(dtype)


class SpecialValueSuite(CaseSuite):
    """Cases of every operator that takes numbers: those of the operators' suite that its profiles take."""

    profiles = PROFILES

    def names(self, profile: str) -> tuple[str, ...]:
        return tuple(
            f"{stem}{INFIX}{name.removeprefix(f'{stem}-')}"
            for stem, cases in OPERATOR_CASES.items()
            if _takes_numbers(cases)
            for name in _chosen(cases, profile)
        )

    def case(self, name: str) -> Case:
        stem, infix, rest = name.partition(INFIX)
        if not infix or not _is_comparable(stem, rest):
            raise InvalidArgument(f"{name!r} names no case such as gemm-values-float32-2x3-packed-s0")
        return with_special_values(case_by_name(f"{stem}-{rest}"), name)


def _is_comparable(stem: str, rest: str) -> bool:
    """Return whether a case of an operator can have more special values.

    Examples have what they print, scaled cases numbers for which a ScaleBias is exact, special ones subnormals.
    """
    kind = declared_kind(stem)
    is_fixed = rest.startswith("example") or "-scaled-" in rest
    return not (
        is_fixed
        or kind is SpecialKind.NONE
        or (kind in (SpecialKind.FINITE, SpecialKind.NORMAL) and "-special-" in rest)
    )


def _takes_numbers(cases: OperatorCases) -> bool:
    """Return whether an operator has an input that can hold special values."""
    return declared_kind(cases.stem) is not SpecialKind.NONE and any(
        field.kind == "input" and field.python_name not in NOT_NUMBERS for field in cases.schema.tensor_fields
    )


def _chosen(cases: OperatorCases, profile: str) -> Iterator[str]:
    """Names of an operator's cases: all that are listed first, a few, or one, of floats if it has any."""
    names = [name for name in cases.names("standard") if _is_comparable(*name.split("-", 1))]
    if profile == "full":
        yield from names
    elif profile == "standard":
        yield from first(names)
    else:
        listed = cases.names("quick")  # drivers have their kernels by then
        quick = [name for name in names if name in listed]
        floats = [name for name in (*quick, *names) if name.split("-")[1].startswith("float")]
        yield (floats or quick or names)[0]


# ---- all halves ------------------------------------------------------------------------------------------------------


HALVES_INFIX = "-halves-"
COUNT = 1 << 16
PARAMETER_SETS = {"quick": 1, "standard": 3, "full": 12}
"""Number of attribute sets of an operator, by profile."""


def is_unary(cases: OperatorCases) -> bool:
    """Return whether an operator computes each element from one element; CAST does, rows of SOFTMAX do not."""
    schema = cases.schema
    is_elementwise = cases.stem.startswith(("element_wise_", "activation_", "cast")) and "max" not in cases.stem
    return is_elementwise and [field.kind for field in schema.tensor_fields] == ["input", "output"]


def all_halves() -> np.ndarray:
    """Return every value of float16, NaN with all payloads among them."""
    return np.arange(COUNT, dtype=np.uint16).view(np.float16)


def _half_types(cases: OperatorCases) -> tuple[Types, ...]:
    """Return the combinations of types that read float16."""
    return tuple(types for types in cases.types if types[0] is DataType.FLOAT16)


def _has_attributes(cases: OperatorCases) -> bool:
    tensors = {field.name for field in cases.schema.tensor_fields}
    return any(field.name not in tensors and field.type != "SCALE_BIAS" for field in cases.schema.python_fields)


class HalvesSuite(CaseSuite):
    """Every operator of one tensor that takes float16.

    Quick omits those whose function is measured anyway, and takes one set of parameters, one type of the result.
    """

    profiles = tuple(PARAMETER_SETS)

    def names(self, profile: str) -> tuple[str, ...]:
        return tuple(
            name for cases in OPERATOR_CASES.values() if is_unary(cases) for name in _halves_names(cases, profile)
        )

    def case(self, name: str) -> Case:
        stem, infix, rest = name.partition(HALVES_INFIX)
        cases = OPERATOR_CASES.get(stem)
        if not infix or cases is None or not is_unary(cases) or not rest.startswith("float16-"):
            raise InvalidArgument(f"{name!r} names no case such as activation_elu-halves-float16-65536-packed-s1")
        case = case_by_name(f"{stem}-{rest}")
        tensor = case.desc.inputs[0].tensor
        if tensor is None or tensor.sizes != (COUNT,):
            raise InvalidArgument(f"{name!r}: float16 has {COUNT} values, so the sizes must be {COUNT}")
        return replace(case, name=name, fill=lambda contents: (all_halves(),))


def _is_measured(stem: str) -> bool:
    """Return whether the suite ``accuracy`` measures the operator's function, on all float16 values too."""
    function = stem.removeprefix("element_wise_").removeprefix("activation_")
    return any(known.name in (function, f"{function}_f32") for known in FUNCTIONS)


def _halves_names(cases: OperatorCases, profile: str) -> Iterator[str]:
    types = _half_types(cases)
    if profile == "quick" and _is_measured(cases.stem):
        return
    for chosen in types[:1] if profile == "quick" else types:
        for seed in range(PARAMETER_SETS[profile] if _has_attributes(cases) else 1):
            yield f"{cases.stem}{HALVES_INFIX}{Key(chosen, (COUNT,), TensorLayout.PACKED, PLAIN, seed)}"
