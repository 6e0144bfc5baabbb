"""How an operator tells what a table cannot say: relations between its fields, its output sizes, its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from dmlgpu.catalog.enums import FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidDescription, OperatorNotImplemented
from dmlgpu.compiler.plan import Plan, Role, Tensor, View
from dmlgpu.compiler.rewrites.moves import Move
from dmlgpu.compiler.target import Target

MOST_PADDED = 2**31 - 1
"""Most elements of a spatial dimension with its padding: shaders count them in signed 32-bit integers."""

_LOWERINGS: dict[str, type[Lowering]] = {}


class Lowering:
    """One operator's half of the house up to its plan. Subclasses register themselves by naming their description.

    Class attributes:
        desc: the description that this class lowers.
        folder: the folder below ``shaders/`` of the operator's own body; by default its module's name.
        shaders: the files below ``shaders/`` that hold the operator's bodies; by default the one in ``folder`` that has
            the operator's name, and none where it upgrades to another.
        newer: the description of the next operator of its line, to which an older operator upgrades. Where the older
            one says nothing itself, the newer one's checks and output sizes hold.
        filled: the fields that the newer description has beyond the older one, with the values that mean the same.
    """

    desc: ClassVar[type[OperatorDesc]]
    folder: ClassVar[str] = ""
    shaders: ClassVar[tuple[str, ...]] = ()
    newer: ClassVar[type[OperatorDesc] | None] = None
    filled: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "desc" in cls.__dict__:
            _LOWERINGS[cls.desc.operator] = cls
            if cls.newer is None and not cls.shaders:
                folder = cls.folder or cls.__module__.rpartition(".")[-1]
                cls.shaders = (f"{folder}/{cls.desc.operator.lower()}",)

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
        """Return the sizes that output tensors must have, by field: those of them that follow from the inputs."""
        return {} if cls.newer is None else lowering(cls.newer.operator).output_sizes(desc)

    @classmethod
    def usual_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        """Return sizes for outputs whose sizes the caller chooses, by field: the largest, or those of DirectMLX.

        They follow from the inputs; the description's outputs may have any sizes.
        """
        return {} if cls.newer is None else lowering(cls.newer.operator).usual_sizes(desc)

    @classmethod
    def upgrade(cls, desc: Any) -> OperatorDesc | None:
        """Return the same work as a newer operator's description, or None where this is the newest of its line."""
        return None if cls.newer is None else cls.newer(**desc.values, **cls.filled)

    @classmethod
    def moves(cls, desc: Any) -> tuple[Move, ...]:
        """Return the parts of the outputs that are only elements of the inputs; none where everything is computed."""
        return ()

    @classmethod
    def lower(cls, desc: Any, target: Target) -> Plan:
        """Return the operator's plan."""
        raise NotImplementedError


def lowering(operator: str) -> type[Lowering]:
    """Return the lowering of an operator.

    Raises:
        OperatorNotImplemented: when there is none yet.
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

    They need not be sorted. The pages are silent on none at all and on repeated ones; both are refused.
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


def check_padded(desc: OperatorDesc, padded: Sequence[int]) -> None:
    """Raise InvalidDescription where a spatial dimension has more elements, padding included, than shaders count."""
    for number, size in enumerate(padded):
        if size > MOST_PADDED:
            field = f"start_padding[{number}] + end_padding[{number}]"
            raise invalid(desc, field, f"must give a padded dimension of at most {MOST_PADDED} elements, got {size}")


def input_tensor(desc: OperatorDesc, field: str, view: View = View.COMPUTE) -> Tensor:
    """Return an input field's tensor as kernels read it."""
    return _tensor(desc, field, Role.INPUT, view)


def output_tensor(desc: OperatorDesc, field: str = "output_tensor", view: View = View.COMPUTE) -> Tensor:
    """Return an output field's tensor as kernels write it."""
    return _tensor(desc, field, Role.OUTPUT, view)


def everywhere(tensor: Tensor, sizes: tuple[int, ...], element: int = 0) -> Tensor:
    """Repeat one element of a tensor, so many behind the first, over other sizes."""
    return replace(tensor, sizes=sizes, strides=(0,) * len(sizes), offset=tensor.offset + element)


def _tensor(desc: OperatorDesc, field: str, role: Role, view: View) -> Tensor:
    entries = desc.inputs if role is Role.INPUT else desc.outputs
    for number, (name, _, tensor) in enumerate(entries):
        if name == field and tensor is not None:
            return Tensor.of(role, number, tensor, view)
    raise KeyError(field)
