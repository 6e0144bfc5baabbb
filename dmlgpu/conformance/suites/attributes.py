"""The suite of attributes: special values for every float attribute of every operator, over special inputs.

A case's name contains the operator, ``attributes``, a data type, the attribute and its value:
``activation_elu-attributes-float32-alpha-zero``, ``gemm-attributes-float32-fused_activation.activation_elu.alpha-nan``.
The rest of the description is that of one of the operator's cases, the first one in which the attribute matters.

Results are compared by class: NaN, an infinity, zero with its sign, or a nearby number (the operators' own cases test
how near). Values that an operator rejects are cases too.

An attribute is named by its path: the names of fields with dots between them; a fused activation's field is followed by
the activation.
"""

from __future__ import annotations

import functools
import itertools
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import reference
from dmlgpu.catalog import FieldKind, FieldSchema, loader
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias
from dmlgpu.catalog.validation import fusable_activations, validate
from dmlgpu.common.errors import DmlError, InvalidArgument, InvalidDescription, NotSupported
from dmlgpu.compiler import operators
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.keys import PROFILES
from dmlgpu.conformance.cases.registry import OPERATOR_CASES, case_by_name
from dmlgpu.conformance.cases.tolerance import Accumulated, Bound, Tolerance, ulp
from dmlgpu.conformance.drivers.pairwise import Allowance
from dmlgpu.conformance.drivers.pairwise_run import CaseOutputs
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.suites.operators import CaseSuite
from dmlgpu.conformance.suites.special_values import NOT_NUMBERS, SpecialKind, declared_kind
from dmlgpu.runtime.device import Device

NUMBERS = ("FLOAT", "SCALAR_UNION")
SCALED = ScaleBias(1.5, 0.25)
"""ScaleBias if only one of its numbers matters."""


@functools.cache  # bounded by the catalog
def attribute_paths(stem: str) -> tuple[str, ...]:
    """Return the float attributes of an operator, its ScaleBias and its fused activations included.

    Args:
        stem: The operator's name in lower case.
    """
    schema = loader.operator(stem.upper())
    return tuple(
        path
        for field in schema.python_fields
        if field.kind is FieldKind.ATTRIBUTE
        for path in _paths_of(schema.name, field)
    )


def _paths_of(operator: str, field: FieldSchema) -> Iterator[str]:
    if field.type in NUMBERS:
        yield field.python_name
    elif field.type == "SCALE_BIAS":
        yield from (f"{field.python_name}.{part}" for part in ("scale", "bias"))
    elif field.type == "OPERATOR_DESC":
        for name in fusable_activations(operator, max(FeatureLevel)):
            yield from (f"{field.python_name}.{name.lower()}.{path}" for path in attribute_paths(name.lower()))


def field_of(path: str) -> str:
    """Return the field of the operator's own description."""
    return path.partition(".")[0]


def is_fused(path: str) -> bool:
    """Whether the attribute belongs to a fused activation."""
    return field_of(path) in ("fused_activation", "activation_descs")


def with_attribute(desc: OperatorDesc, path: str, value: float) -> OperatorDesc:
    """Return the description with one of its attributes changed; of an array, the last number, or every activation.

    Raises:
        InvalidDescription: If the description's constructor rejects it.
    """
    field, _, rest = path.partition(".")
    current: Any = getattr(desc, field)
    changed: Any = value
    if rest in ("scale", "bias"):
        scaling = current or SCALED
        changed = ScaleBias(value, scaling.bias) if rest == "scale" else ScaleBias(scaling.scale, value)
    elif rest:
        activation = _activation(rest, value)
        changed = (activation,) * len(current) if isinstance(current, tuple) else activation
    elif isinstance(current, tuple):
        changed = (*current[:-1], value)
    return desc.replace(**{field: changed})


def _activation(path: str, value: float) -> OperatorDesc:
    """Return an activation without tensors, with one of its attributes as given."""
    stem, _, rest = path.partition(".")
    usual = OPERATOR_CASES[stem].case(first_name(stem, "float32")).desc
    tensors = dict.fromkeys((*usual.input_fields, *usual.output_fields))
    return with_attribute(usual.replace(**tensors), rest, value)


def first_name(stem: str, first_type: str) -> str:
    """Return the name of an operator's first case of a type, which is not an example of the page."""
    return next(name for name in OPERATOR_CASES[stem].names("standard") if name.startswith(f"{stem}-{first_type}-"))


# ---- cases -----------------------------------------------------------------------------------------------------------


INFIX = "-attributes-"

VALUES: Mapping[str, float] = {
    "zero": 0.0,
    "negative_zero": -0.0,
    "one": 1.0,
    "minus_one": -1.0,
    "subnormal": 1e-40,
    "tiny": 1e-300,  # 0 in float32
    "infinity": math.inf,
    "negative_infinity": -math.inf,
    "nan": math.nan,
}

_NOT_FINITE = frozenset({"infinity", "negative_infinity", "nan"})
_NOT_POSITIVE = frozenset({"zero", "negative_zero", "minus_one", "subnormal", "tiny"})

REJECTED: Mapping[str, frozenset[str]] = {
    "adam_optimizer.beta1": _NOT_FINITE | {"minus_one"},
    "adam_optimizer.beta2": _NOT_FINITE | {"minus_one"},
    **{
        f"{stem}.{field}": _NOT_FINITE
        for stem in ("roi_align1", "roi_align_grad")
        for field in ("spatial_scale_x", "spatial_scale_y", "input_pixel_offset", "output_pixel_offset")
    },
    "roi_align.spatial_scale_x": _NOT_FINITE,
    "roi_align.spatial_scale_y": _NOT_FINITE,
    "roi_pooling.spatial_scale": _NOT_FINITE,
    **{
        f"{stem}.scales": _NOT_FINITE | _NOT_POSITIVE
        for stem in ("resample", "resample1", "resample2", "resample3", "resample_grad", "resample_grad1")
    },
    **{
        f"{stem}.{side}_pixel_offsets": _NOT_FINITE
        for stem in ("resample1", "resample2", "resample3", "resample_grad", "resample_grad1")
        for side in ("input", "output")
    },
}
"""Values that an operator rejects, by operator and attribute."""

ZEROS = (0.0, -0.0)
SPECIALS = (math.nan, math.inf, -math.inf, *ZEROS)
ORDINARY = (1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, 0.25)
"""Elements of inputs, with so few digits that sums are exact."""

FACTORS = frozenset(
    {
        "bias_tensor",
        "scale_tensor",
        "fused_add_tensor",
        "query_tensor",
        "key_tensor",
        "relative_position_bias_tensor",
    }
)
"""Inputs with special numbers although the others must be finite (``FINITE``): each affects only its own weights."""

MAX_ELEMENTS = 4000
ORDINARY_ATTRIBUTES = (0.25, 0.75, 3.0)
"""Values of which every attribute may be two; where they change no result, the attribute does not matter."""


@dataclass(frozen=True)
class SameKind(Tolerance):
    """NaN for NaN, the same infinity, zero of the same sign, and numbers of which the first digits agree.

    Attributes:
        is_sum: Numbers are summed in an adapter-specific order: they may cancel, and zeros have either sign.
    """

    is_sum: bool

    def accepts(self, expected: Array, got: Array, magnitude: Bound | None) -> NDArray[np.bool_]:
        """Accept results of the same kind, or flushed."""
        if expected.dtype.kind != "f":
            return np.abs(expected.astype(np.float64) - got.astype(np.float64)) <= 1
        with np.errstate(invalid="ignore"):
            difference = np.abs(expected.astype(np.float64) - got.astype(np.float64))
        near = np.isfinite(expected) & np.isfinite(got) & (difference <= self.bound(expected, magnitude))
        if not self.is_sum:
            zeros = (expected == 0) & (got == 0)
            near &= ~zeros | (np.signbit(expected) == np.signbit(got))
        same = (expected == got) & ~np.isfinite(expected) | (np.isnan(expected) & np.isnan(got))
        return near | same | self._accepts_flush(expected, got)

    def bound(self, expected: Array, magnitude: Bound | None) -> Bound:
        """Return a hundredth of the number; of sums, also a thousandth of the largest one."""
        if expected.dtype.kind != "f":
            return np.ones(expected.shape)
        sizes = np.where(np.isfinite(expected), np.abs(expected.astype(np.float64)), 0.0)
        slack = 1e-3 * sizes.max(initial=0.0) if self.is_sum else 0.0
        return np.where(expected == 0, slack, 0.01 * sizes + slack + ulp(expected))

    def __str__(self) -> str:
        return "of the same kind"


@dataclass(frozen=True)
class _Named:
    """Parsed name of a case."""

    stem: str
    data_type: DataType
    path: str
    value: str

    @classmethod
    def read(cls, name: str) -> _Named:
        """Read a name.

        Raises:
            InvalidArgument: If it names no case.
        """
        stem, _, rest = name.partition(INFIX)
        parts = rest.split("-")
        if len(parts) == 3 and parts[2] in VALUES and stem in OPERATOR_CASES:
            for data_type in _types(stem, parts[1]):
                if data_type.name.lower() == parts[0]:
                    return cls(stem, data_type, parts[1], parts[2])
        raise InvalidArgument(f"{name!r} names no case such as activation_elu-attributes-float32-alpha-zero")

    def __str__(self) -> str:
        return f"{self.stem}{INFIX}{self.data_type.name.lower()}-{self.path}-{self.value}"

    @property
    def is_rejected(self) -> bool:
        """Whether the operator must reject the value."""
        return self.value in REJECTED.get(f"{self.stem}.{self.path}", ())


def _types(stem: str, path: str) -> tuple[DataType, ...]:
    """Return the types of the operator's first tensor, FLOAT32 first, for which it has the attribute as a float."""
    if path not in attribute_paths(stem):
        return ()
    data_types = dict.fromkeys(types[0] for types in OPERATOR_CASES[stem].types)
    is_union = OPERATOR_CASES[stem].schema.field(field_of(path)).type == "SCALAR_UNION"
    usable = [data_type for data_type in data_types if data_type.is_float or not is_union]
    return tuple(sorted(usable, key=lambda data_type: (data_type is not DataType.FLOAT32, not data_type.is_float)))


@functools.cache  # bounded by the catalog: operators, types and attributes
def _base(stem: str, data_type: DataType, path: str) -> Case:
    """Return the first of an operator's cases of a type in which an attribute matters."""
    start = f"{stem}-{data_type.name.lower()}-"
    for name in (name for profile in ("standard", "full") for name in OPERATOR_CASES[stem].names(profile)):
        if name.startswith(start) and not name.endswith(("-inplace-s0", "-owned-s0")):
            case = case_by_name(name)
            slots = (*case.desc.inputs, *case.desc.outputs)
            largest = max(math.prod(tensor.sizes) for _, _, tensor in slots if tensor is not None)
            if largest <= MAX_ELEMENTS and _matters(case, path):
                return case
    raise DmlError(f"{stem}: no case of {data_type.name} depends on {path}")


def _matters(case: Case, path: str) -> bool:
    """Return whether the reference's result depends on an attribute."""
    inputs = case.inputs()
    described = (with_attribute(case.desc, path, value) for value in ORDINARY_ATTRIBUTES)
    results = [reference.evaluate(desc, inputs) for desc in described if _is_valid(desc)]
    pairs = (pair for other in results[1:] for pair in zip(results[0], other, strict=True))
    return any(a is not None and (a != b).any() for a, b in pairs)


def _is_valid(desc: OperatorDesc) -> bool:
    try:
        validate(desc)
        operators.check(desc)
    except InvalidDescription:
        return False
    return True


def _contents(case: Case, contents: np.random.Generator) -> Arrays:
    """Return the case's inputs with ordinary and special numbers in place of those that are computed with."""
    share = 0.05 if isinstance(case.tolerance, Accumulated) else 0.5
    slots = zip(case.desc.inputs, case.fill(contents), strict=True)
    return tuple(
        array
        if array is None or slot.field in NOT_NUMBERS or array.dtype.kind != "f"
        else np.where(
            contents.random(array.shape) < share,
            contents.choice(SPECIALS if _may_be_special(case, slot.field) else ZEROS, array.shape),
            contents.choice(ORDINARY, array.shape),
        ).astype(array.dtype)
        for slot, array in slots
    )


def _may_be_special(case: Case, field: str) -> bool:
    """Return whether an input may hold infinities and NaN. Inputs of GEMM always may, where the attribute is the one
    that matters."""
    stem = case.desc.operator.lower()
    return stem == "gemm" or field in FACTORS or declared_kind(stem) is not SpecialKind.FINITE


def _flushed(desc: OperatorDesc, path: str, inputs: Arrays) -> tuple[Array, ...]:
    """Return the reference's result where an adapter takes a subnormal attribute for 0."""
    if (desc.operator, path) == ("GEMM", "beta"):  # drops C where it is 0, but multiplies where it is flushed
        a, b, c = inputs
        assert c is not None
        with np.errstate(invalid="ignore"):
            nothing = c * c.dtype.type(0)
        return reference.evaluate(with_attribute(desc, path, 1.0), (a, b, nothing))
    return reference.evaluate(with_attribute(desc, path, 0.0), inputs)


class AttributeSuite(CaseSuite):
    """Every float attribute of every operator."""

    profiles = PROFILES

    def names(self, profile: str) -> tuple[str, ...]:
        return tuple(str(named) for stem in OPERATOR_CASES for named in _chosen(stem, profile))

    def has(self, name: str) -> bool:
        try:
            _Named.read(name)
        except InvalidArgument:
            return False
        return True

    def case(self, name: str) -> Case:
        named = _Named.read(name)
        base = _base(named.stem, named.data_type, named.path)
        desc = with_attribute(base.desc, named.path, VALUES[named.value])

        return Case(
            name,
            desc,
            functools.partial(_contents, base),
            SameKind(is_sum=isinstance(base.tolerance, Accumulated)),
            alternatives=functools.partial(_flushed, desc, named.path) if named.value == "subnormal" else None,
            in_place=base.in_place,
            needs=base.needs,
        )

    def is_rejected(self, name: str) -> bool:
        """Return whether the operator must reject the value of a case; then nothing is computed."""
        return _Named.read(name).is_rejected

    def run(self, name: str, device: Device) -> Outcome:
        """Compare the adapter's outputs with the reference, or check that the value is rejected.

        Raises:
            DmlError: If the case cannot be run although the adapter has what it needs.
        """
        named = _Named.read(name)
        if not named.is_rejected:
            return super().run(name, device)
        try:
            device.create_operator(self.case(name).desc)
        except InvalidDescription as error:
            if error.field.partition("[")[0] == field_of(named.path):
                return Outcome(name, Status.PASS, "refused")
            raise
        return Outcome(name, Status.FAIL, "refused", message=f"{named.path} must be rejected")

    def outputs(self, name: str, device: Device, poison: int) -> tuple[Array, ...]:
        """Return the outputs of a device (see ``OutputSuite``).

        Raises:
            NotSupported: For a value that is rejected.
        """
        if _Named.read(name).is_rejected:
            raise NotSupported(f"{name!r} must be rejected: there is nothing to compare")
        return CaseOutputs(self).outputs(name, device, poison)

    def allowance(self, name: str) -> Allowance:
        """Return the allowed distance of a case's outputs from the true ones."""
        return CaseOutputs(self).allowance(name)


def _chosen(stem: str, profile: str) -> Iterator[_Named]:
    """Yield the cases of an operator.

    Full has all. Standard has one type, and of each fused activation's attribute one value. Quick has one case.
    """
    paths = attribute_paths(stem)
    if profile == "quick":
        yield from itertools.islice(
            (_single_value(stem, path) for path in paths[_number(stem) % max(len(paths), 1) :]), 1
        )
        return
    for path in paths:
        types = _types(stem, path)
        if profile == "standard" and is_fused(path):
            yield _single_value(stem, path)
        else:
            for data_type in types if profile == "full" else types[:1]:
                yield from (_Named(stem, data_type, path, value) for value in VALUES)


def _single_value(stem: str, path: str) -> _Named:
    """One of the cases of an attribute."""
    return _Named(stem, _types(stem, path)[0], path, list(VALUES)[_number(f"{stem}.{path}") % len(VALUES)])


def _number(text: str) -> int:
    """Return a number that looks random."""
    return zlib.crc32(text.encode())
