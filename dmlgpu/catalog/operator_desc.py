"""Base class of operator descriptions: typed, immutable values with validation.

Descriptions behave as frozen, keyword-only dataclasses (``dataclasses.fields``, ``replace`` and ``asdict`` work), but
are created by a lighter mechanism: 177 dataclasses would add a tenth of a second to every import.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, dataclass_transform

from dmlgpu.catalog import FieldSchema, OperatorSchema, enums
from dmlgpu.catalog.defaults import default_value, length
from dmlgpu.catalog.documentation import annotation, description_docstring, output_names, single_type
from dmlgpu.catalog.model import to_directml, to_snake
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common import coercion
from dmlgpu.common.coercion import CoercionError, Converter
from dmlgpu.common.errors import InvalidDescription

__all__ = [
    "OMITTED",
    "Entries",
    "OperatorDesc",
    "ScaleBias",
    "Size2D",
    "TensorSlot",
    "desc_class",
    "entries",
    "to_directml",
    "to_snake",
]

OMITTED: Any = None
"""Default of the tensors of an activation: a fused activation has none, a stand-alone one needs both."""


@dataclass(frozen=True)
class Entries:
    """Default of an array attribute: a repeated value, whose count depends on another field.

    Attributes:
        value: Each entry.
        like: Array of the same length, or a tensor.
        less: Difference between the tensor's rank and the number of entries.
    """

    value: float
    like: str
    less: int = 0

    def of(self, values: Mapping[str, Any]) -> tuple[float, ...] | None:
        """Return the array, given other fields; None if they do not determine its length."""
        like = values.get(self.like)
        if isinstance(like, TensorDesc):
            return (self.value,) * max(like.dimension_count - self.less, 0)
        return (self.value,) * len(like) if isinstance(like, tuple | list) else None


def entries(value: float, like: str, *, less: int = 0) -> Any:
    """Return an ``Entries`` default of a field."""
    return Entries(value, like, less)


class TensorSlot(NamedTuple):
    """A numbered input or output of an operator.

    Attributes:
        field: Python name of the field, ``input_tensors``.
        position: Index in a field of several tensors; None for a field of one.
        tensor: The tensor; None if an optional one is absent.
    """

    field: str
    position: int | None
    tensor: TensorDesc | None

    @property
    def label(self) -> str:
        """Name in messages: ``input_tensors[1]``."""
        return self.field if self.position is None else f"{self.field}[{self.position}]"


@dataclass(frozen=True)
class ScaleBias:
    """Scale and bias of each input element: ``x * scale + bias`` (DirectML: DML_SCALE_BIAS).

    Raises:
        InvalidDescription: If a value is not a number.
    """

    scale: float
    bias: float

    def __post_init__(self) -> None:
        _normalize(self, coercion.real)


@dataclass(frozen=True)
class Size2D:
    """Width and height (DirectML: DML_SIZE_2D).

    Raises:
        InvalidDescription: If a value is not an integer.
    """

    width: int
    height: int

    def __post_init__(self) -> None:
        _normalize(self, coercion.integer)


def _normalize(record: ScaleBias | Size2D, convert: Converter[Any]) -> None:
    for field in dataclasses.fields(record):
        try:
            object.__setattr__(record, field.name, convert(getattr(record, field.name)))
        except CoercionError as wrong:
            raise InvalidDescription(type(record).__name__, field.name, wrong.describe()) from None


def _converters() -> dict[str, Converter[Any]]:
    """Return the converter of each field annotation of the catalog."""
    single: dict[str, Converter[Any]] = {
        "int": coercion.integer,
        "float": coercion.real,
        "int | float": coercion.number,
        "bool": coercion.boolean,
        "ScaleBias": coercion.instance_of(ScaleBias, "a ScaleBias"),
        "Size2D": coercion.instance_of(Size2D, "a Size2D"),
        "TensorDesc": coercion.instance_of(TensorDesc, "a TensorDesc"),
    }
    members = {name: value for name, value in vars(enums).items() if isinstance(value, type)}
    single |= {name: coercion.member_of(cls) for name, cls in members.items() if issubclass(cls, IntEnum)}
    arrays = {
        "tuple[int, ...]": coercion.tuple_of(coercion.integer, "integers"),
        "tuple[float, ...]": coercion.tuple_of(coercion.entry, "numbers"),
        "tuple[TensorDesc, ...]": coercion.tuple_of(single["TensorDesc"], "TensorDesc"),
    }
    converters = single | arrays
    return converters | {f"{name} | None": coercion.optional(convert) for name, convert in converters.items()}


_CONVERTERS = _converters()


def _identity(value: Any) -> Any:
    """Return a key that differs if results may differ: 0.0 is not -0.0, 1 is not 1.0, NaN equals NaN."""
    if isinstance(value, float):
        return value.hex()  # "nan" represents every NaN
    if isinstance(value, tuple):
        return tuple(_identity(item) for item in value)
    if isinstance(value, ScaleBias):
        return (_identity(value.scale), _identity(value.bias))
    return value


class _FromDataclass:
    """Attributes that ``dataclasses`` and ``inspect`` need, taken on demand from an equivalent dataclass."""

    def __init__(self, get: Callable[[type[Any]], Any]):
        self._get = get

    def __get__(self, instance: object, owner: type[OperatorDesc]) -> Any:
        twin = _TWINS.get(owner)
        if twin is None:
            twin = _TWINS[owner] = _twin(owner)
        return self._get(twin)


_TWINS: dict[type[Any], type[Any]] = {}  # bounded by the catalog: one per class of descriptions


def _twin(cls: type[Any]) -> type[Any]:
    entries: list[Any] = []
    for name in cls.field_names:
        annotation = cls.__annotations__[name]
        default = {"default": vars(cls)[name]} if name in vars(cls) else {}
        entries.append((name, annotation, dataclasses.field(**default)))
    return dataclasses.make_dataclass(cls.__name__, entries, frozen=True, kw_only=True)


@dataclass_transform(eq_default=True, frozen_default=True, kw_only_default=True)
class OperatorDesc:
    """Description of an operator (DirectML: DML_OPERATOR_DESC).

    Each operator has a subclass with its fields, in the order of DirectML's struct, without the lengths of arrays.
    Sequences become tuples; integers become floats or members of enumerations where the field needs them. Descriptions
    are hashable. Equality distinguishes -0.0 from 0.0 and 1 from 1.0, and NaN equals NaN.

    Attributes:
        operator: DirectML's name, ``GATHER_ND1``.
        output_fields: Names of the output tensors.
        input_fields: Names of the input tensors: all other tensors.
        field_names: Names of all fields, in order.
        defaults: Defaults of optional attributes.

    Raises:
        InvalidDescription: If a field is missing, unknown or of the wrong type.
    """

    operator: ClassVar[str] = ""
    output_fields: ClassVar[tuple[str, ...]] = ("output_tensor",)
    input_fields: ClassVar[tuple[str, ...]] = ()
    field_names: ClassVar[tuple[str, ...]] = ()
    _convert: ClassVar[tuple[tuple[str, Converter[Any]], ...]] = ()
    defaults: ClassVar[Mapping[str, Any]] = {}

    __dataclass_fields__: ClassVar[Any] = _FromDataclass(lambda twin: twin.__dataclass_fields__)
    __dataclass_params__: ClassVar[Any] = _FromDataclass(lambda twin: twin.__dataclass_params__)
    __signature__: ClassVar[Any] = _FromDataclass(inspect.signature)

    def __init_subclass__(cls, operator: str) -> None:
        cls.operator = operator
        cls.field_names = tuple(cls.__annotations__)
        tensors = (name for name, annotation in cls.__annotations__.items() if "TensorDesc" in annotation)
        cls.input_fields = tuple(name for name in tensors if name not in cls.output_fields)
        cls._convert = tuple((name, _CONVERTERS[annotation]) for name, annotation in cls.__annotations__.items())
        cls.defaults = {name: vars(cls)[name] for name in cls.field_names if name in vars(cls)}

    def __init__(self, **values: Any) -> None:
        put, defaults = self.__dict__, self.defaults
        repeated = []
        for name, convert in self._convert:
            value = values.pop(name, self)
            if value is self:
                if name not in defaults:
                    raise InvalidDescription(self.operator, name, "is required")
                put[name] = value = defaults[name]
                if type(value) is Entries:
                    repeated.append(name)
            elif value is None and defaults.get(name, self) is None:
                put[name] = None
            else:
                put[name] = self._converted(name, convert, value)
        for name in repeated:
            default = put[name] = defaults[name].of(put)
            if default is None:
                raise InvalidDescription(self.operator, name, "is required")
        for name in values:
            fields = ", ".join(self.field_names)
            raise InvalidDescription(self.operator, name, f"is not a field; the fields are {fields}")

    def _converted(self, name: str, convert: Converter[Any], value: Any) -> Any:
        try:
            return convert(value)
        except CoercionError as wrong:
            raise InvalidDescription(self.operator, name + wrong.where, wrong.describe()) from None

    @property
    def stem(self) -> str:
        """Lower-case name, as in functions and file names: ``gather_nd1``."""
        return self.operator.lower()

    @functools.cached_property
    def inputs(self) -> tuple[TensorSlot, ...]:
        """Inputs as DirectML numbers them: struct order, arrays flattened, absent ones included."""
        return self._slots(self.input_fields)

    @functools.cached_property
    def outputs(self) -> tuple[TensorSlot, ...]:
        """Outputs as DirectML numbers them: struct order, arrays flattened, absent ones included."""
        return self._slots(self.output_fields)

    def _slots(self, names: tuple[str, ...]) -> tuple[TensorSlot, ...]:
        slots: list[TensorSlot] = []
        for name in names:
            value = getattr(self, name)
            if isinstance(value, tuple):
                slots.extend(TensorSlot(name, index, tensor) for index, tensor in enumerate(value))
            else:
                slots.append(TensorSlot(name, None, value))
        return tuple(slots)

    @property
    def values(self) -> Mapping[str, Any]:
        """Fields by Python name, in order."""
        return MappingProxyType({name: self.__dict__[name] for name in self.field_names})

    @property
    def directml_fields(self) -> Mapping[str, Any]:
        """Fields by DirectML's name, in struct order, without the lengths of arrays."""
        return MappingProxyType({to_directml(name): self.__dict__[name] for name in self.field_names})

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed.

        Raises:
            InvalidDescription: As the constructor.
        """
        return type(self)(**{**self.values, **changes})

    __replace__ = replace

    @functools.cached_property
    def _valid_levels(self) -> set[enums.FeatureLevel]:
        """Feature levels at which the description was found valid."""
        return set()

    @functools.cached_property
    def _key(self) -> tuple[Any, ...]:
        return tuple(_identity(self.__dict__[name]) for name in self.field_names)

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.operator, self._key))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OperatorDesc):
            return NotImplemented
        return type(self) is type(other) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.values.items())})"

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}; use replace({name}=...)")

    def __delattr__(self, name: str) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        # Hashes of strings differ between processes, so cached ones must not travel.
        return dict(self.values)


_DESCRIPTION = coercion.instance_of(OperatorDesc, "an OperatorDesc")
_CONVERTERS["OperatorDesc | None"] = coercion.optional(_DESCRIPTION)
_CONVERTERS["tuple[OperatorDesc, ...]"] = coercion.tuple_of(_DESCRIPTION, "OperatorDesc")


class _Documentation:
    """Docstring of a description class, generated on access."""

    def __init__(self, schema: OperatorSchema):
        self._schema = schema

    def __get__(self, instance: object, owner: object = None) -> str:
        return description_docstring(self._schema)


def desc_class(schema: OperatorSchema, module: str) -> type[OperatorDesc]:
    """Create a class of descriptions.

    Args:
        schema: The operator.
        module: Name of the module that exports the class.
    """
    fields = schema.python_fields
    members: dict[str, Any] = {
        "__module__": module,
        "__qualname__": schema.class_name,
        "__doc__": _Documentation(schema),
        "__annotations__": {field.python_name: annotation(field) for field in fields},
        "output_fields": output_names(schema),
    }
    for field in fields:
        if field.optional:
            members[field.python_name] = None
        elif field.is_tensor:
            if schema.fusion:
                members[field.python_name] = OMITTED
        elif field.type != "OPERATOR_DESC" and (value := default_value(schema, field)) is not None:
            members[field.python_name] = _default(schema, field, value)
    return type(schema.class_name, (OperatorDesc,), members, operator=schema.name)


def _default(schema: OperatorSchema, field: FieldSchema, value: float | str) -> Any:
    if isinstance(value, str):
        return getattr(enums, single_type(field))[value]
    if single_type(field) == "float":
        value = float(value)
    if not field.is_array:
        return value
    like, less = length(schema, field)
    return entries(value, like, less=less)
