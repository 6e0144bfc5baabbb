"""The interface of operators: checks that the catalog's tables cannot express, output sizes, upgrade, plan."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog.enums import DataType, FeatureLevel, as_elements
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidDescription, OperatorNotImplemented
from dmlgpu.compiler.plan import Plan, PlanTensor, Role, View
from dmlgpu.compiler.plan.windows import Sizes, Windows, windows_over

MAX_PADDED = 2**31 - 1
"""Maximum size of a spatial dimension with its padding: shaders use signed 32-bit integers."""

_LOWERINGS: dict[str, type[Lowering]] = {}


class Lowering:
    """Lowers one operator from its description to a plan. Subclasses register by setting ``desc``.

    Class attributes:
        desc: The description that this class lowers.
        folder: Folder below ``shaders/`` of the operator's own body; defaults to the module's name.
        shaders: Files below ``shaders/`` with the operator's bodies; defaults to the file in ``folder`` with the
            operator's name, or to none if the operator upgrades to another.
        newer: Description of the next version, to which an older operator upgrades. Its checks and output sizes apply
            unless the older operator overrides them.
        filled: Fields that only the newer description has, with the values that preserve the older behavior.
        same_sizes: Outputs that have the sizes of another tensor, by field.
    """

    desc: ClassVar[type[OperatorDesc]]
    folder: ClassVar[str] = ""
    shaders: ClassVar[tuple[str, ...]] = ()
    newer: ClassVar[type[OperatorDesc] | None] = None
    filled: ClassVar[Mapping[str, Any]] = {}
    same_sizes: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "desc" in cls.__dict__:
            _LOWERINGS[cls.desc.operator] = cls
            if cls.newer is None and not cls.shaders:
                folder = cls.folder or cls.__module__.rpartition(".")[-1]
                cls.shaders = (f"{folder}/{cls.desc.operator.lower()}",)

    @classmethod
    def rows(cls, table: Mapping[type[OperatorDesc], str]) -> None:
        """Register operators that need only their shaders.

        Args:
            table: docstring per description: the computation, and the choices that its page leaves open.
        """
        module = sys._getframe(1).f_globals["__name__"]
        for desc, doc in table.items():
            type(desc.__name__, (cls,), {"desc": desc, "__doc__": doc, "__module__": module})

    @classmethod
    def older(cls, desc: type[OperatorDesc], newer: type[OperatorDesc], doc: str, **filled: Any) -> None:
        """Register an older operator that only upgrades to a newer one.

        Args:
            desc, newer: its description, and that of the next operator of its line.
            doc: how the two differ.
            filled: the fields that it lacks, with equivalent values.
        """
        module = sys._getframe(1).f_globals["__name__"]
        body = {"desc": desc, "newer": newer, "filled": filled, "__doc__": doc, "__module__": module}
        type(desc.__name__, (cls,), body)

    @classmethod
    def check(cls, desc: Any) -> None:
        """Raise InvalidDescription for relations that the catalog's tables cannot express."""
        if cls.newer is not None:
            lowering(cls.newer.operator).check(desc)

    @classmethod
    def check_level(cls, desc: Any, level: FeatureLevel) -> None:
        """Raise InvalidDescription for attribute values that only later feature levels allow."""

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        """Return the required sizes of output tensors, by field, as far as they follow from the inputs."""
        if cls.newer is not None:
            return lowering(cls.newer.operator).output_sizes(desc)
        return {field: getattr(desc, other).sizes for field, other in cls.same_sizes.items()}

    @classmethod
    def check_output(cls, desc: Any, why: str) -> None:
        """Raise InvalidDescription unless the output has the sizes that follow from the inputs."""
        check_sizes(desc, "output_tensor", cls.output_sizes(desc)["output_tensor"], why)

    @classmethod
    def default_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        """Return sizes for outputs whose sizes the caller chooses, by field: the largest, or those of DirectMLX.

        They follow from the inputs; the description's outputs may have any sizes.
        """
        return {} if cls.newer is None else lowering(cls.newer.operator).default_sizes(desc)

    @classmethod
    def upgrade(cls, desc: Any) -> OperatorDesc | None:
        """Return an equivalent description of a newer operator, or None if this is the newest of its line."""
        return None if cls.newer is None else cls.newer(**desc.values, **cls.filled)

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        """Return the operator's plan, which is the same for every adapter."""
        raise NotImplementedError


def lowering(operator: str) -> type[Lowering]:
    """Return the lowering of an operator.

    Raises:
        OperatorNotImplemented: when the operator has none.
    """
    if operator not in _LOWERINGS:
        raise OperatorNotImplemented(operator)
    return _LOWERINGS[operator]


def registered() -> frozenset[str]:
    """Return names of all operators with a lowering."""
    return frozenset(_LOWERINGS)


def invalid(desc: OperatorDesc, field: str, reason: str) -> InvalidDescription:
    """Return the error for a field of a description."""
    return InvalidDescription(desc.operator, field, reason)


def check_sizes(desc: OperatorDesc, field: str, expected: tuple[int, ...], why: str) -> None:
    """Raise InvalidDescription unless a tensor has these sizes."""
    sizes = getattr(desc, field).sizes
    if sizes != expected:
        raise invalid(desc, f"{field}.sizes", f"must be {list(expected)} ({why}), got {list(sizes)}")


def check_axes(desc: Any) -> None:
    """Raise InvalidDescription unless the axes name different dimensions of the input, at least one.

    They need not be sorted. The pages are silent on none at all and on repeated ones; both are rejected.
    """
    rank = desc.input_tensor.dimension_count
    if not desc.axes:
        raise invalid(desc, "axes", "must name at least one axis, got none")
    for position, axis in enumerate(desc.axes):
        if axis >= rank:
            raise invalid(
                desc, f"axes[{position}]", f"must be below input_tensor's dimension count ({rank}), got {axis}"
            )
        if axis in desc.axes[:position]:
            raise invalid(desc, f"axes[{position}]", f"must not repeat an axis, got {axis} again")


def check_axis(desc: Any, field: str) -> None:
    """Check that an operator's axis is a dimension of a tensor."""
    rank = getattr(desc, field).dimension_count
    if desc.axis >= rank:
        raise invalid(desc, "axis", f"must be below {field}'s dimension count ({rank}), got {desc.axis}")


def check_size(desc: Any, name: str, tensor: TensorDesc, dimension: int, like: str, *, when: str = "") -> None:
    """Check that a tensor has the size of another one along a dimension."""
    expected, size = getattr(desc, like).sizes[dimension], tensor.sizes[dimension]
    if size != expected:
        reason = f"must be {like}.sizes[{dimension}] ({expected}){when}, got {size}"
        raise invalid(desc, f"{name}.sizes[{dimension}]", reason)


def check_sizes_beside_axis(desc: Any, name: str, tensor: TensorDesc, like: str) -> None:
    """Check that a tensor has the sizes of another one but for those along an operator's axis."""
    for dimension in range(getattr(desc, like).dimension_count):
        if dimension != desc.axis:
            check_size(desc, name, tensor, dimension, like)


def check_positive(desc: Any, *fields: str) -> None:
    """Check that attributes, or their entries, are at least 1."""
    for field in fields:
        value = getattr(desc, field)
        for index, entry in enumerate(value if isinstance(value, tuple) else (value,)):
            if entry < 1:
                place = f"{field}[{index}]" if isinstance(value, tuple) else field
                raise invalid(desc, place, f"must be at least 1, got {entry}")


def check_padded(desc: Any, spatial: Sequence[int]) -> None:
    """Check that no spatial dimension with its padding has too many elements for a kernel."""
    for index, ends in enumerate(zip(spatial, desc.start_padding, desc.end_padding, strict=True)):
        if sum(ends) > MAX_PADDED:
            field = f"start_padding[{index}] + end_padding[{index}]"
            raise invalid(
                desc, field, f"must give a padded dimension of at most {MAX_PADDED} elements, got {sum(ends)}"
            )


def windows_of(desc: Any, spatial: Sizes, size: Sizes) -> Windows:
    """Return the windows of a description over spatial dimensions."""
    return windows_over(
        spatial,
        size=size,
        strides=desc.strides,
        dilations=getattr(desc, "dilations", (1,) * len(size)),
        start=desc.start_padding,
        end=desc.end_padding,
    )


def input_tensor(desc: OperatorDesc, field: str, view: View = View.COMPUTE) -> PlanTensor:
    """Return an input field's tensor as kernels read it."""
    return _tensor(desc, field, Role.INPUT, view)


def output_tensor(desc: OperatorDesc, field: str = "output_tensor", view: View = View.COMPUTE) -> PlanTensor:
    """Return an output field's tensor as kernels write it."""
    return _tensor(desc, field, Role.OUTPUT, view)


def everywhere(tensor: PlanTensor, sizes: tuple[int, ...], element: int = 0) -> PlanTensor:
    """Broadcast the element of a tensor at the index ``element`` to other sizes."""
    return replace(tensor, sizes=sizes, strides=(0,) * len(sizes), offset=tensor.offset + element)


def _tensor(desc: OperatorDesc, field: str, role: Role, view: View) -> PlanTensor:
    entries = desc.inputs if role is Role.INPUT else desc.outputs
    for index, (name, _, tensor) in enumerate(entries):
        if name == field and tensor is not None:
            return PlanTensor.of(role, index, tensor, view)
    raise KeyError(field)


def converted(number: float, data_type: DataType) -> int | float:
    """Return a number in a tensor's type, as CAST converts it.

    It is rounded to the nearest float, ties to even, or cut to an integer, which saturates; NaN gives 0 there.
    """
    if data_type.is_float:
        with np.errstate(over="ignore"):
            return float(as_elements(data_type, number))
    if isinstance(number, float) and math.isnan(number):
        return 0
    limits = np.iinfo(data_type.numpy)
    smallest, largest = int(limits.min), int(limits.max)
    return int(min(max(number, smallest), largest)) if math.isinf(number) else min(max(int(number), smallest), largest)


def bits_of(number: float, data_type: DataType) -> int:
    """Return the bits of a number of a type; integers are taken modulo their width."""
    if not data_type.is_float:
        return int(number) % (1 << data_type.bits)
    with np.errstate(over="ignore"):
        return int.from_bytes(as_elements(data_type, number).tobytes(), "little")


def words_of(number: float, data_type: DataType) -> tuple[int, ...]:
    """Return the bits of a number of a type as 32-bit words, the lowest first; narrow types take one word."""
    bits = bits_of(number, data_type)
    return (bits & 0xFFFFFFFF, bits >> 32) if data_type.bits == 64 else (bits,)
