"""Entries of the catalog: frozen values for operators, fields, tensor tables, enumerations, feature levels."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dmlgpu.catalog.enums import DataType, FeatureLevel


class FieldKind(StrEnum):
    """Role of a field of a description."""

    INPUT = "input"
    OUTPUT = "output"
    ATTRIBUTE = "attribute"


@dataclass(frozen=True)
class FieldSchema:
    """One field of an operator's structure.

    Attributes:
        name: DirectML's name, ``IndicesTensor``.
        python_name: The name in Python, ``indices_tensor``.
        kind: Input, output or attribute.
        type: TENSOR, UINT, INT, FLOAT, BOOL, SCALE_BIAS, SIZE_2D, SCALAR_UNION, OPERATOR_DESC or ``DML_<enumeration>``.
        optional: Whether it may be absent (None).
        count_field: For an array, DirectML's name of the field that holds its length; else None.
        is_count: Whether it holds the length of an array, and so does not exist in Python.
    """

    name: str
    python_name: str
    kind: FieldKind
    type: str
    optional: bool = False
    count_field: str | None = None
    is_count: bool = False

    @property
    def is_array(self) -> bool:
        """Whether the field holds any number of values."""
        return self.count_field is not None

    @property
    def is_tensor(self) -> bool:
        """Whether the field holds tensors."""
        return self.type == "TENSOR"


@dataclass(frozen=True)
class TensorSupport:
    """Data types and ranks that a tensor may have.

    Attributes:
        min_dimensions: Smallest dimension count.
        max_dimensions: Largest dimension count.
        types: The data types, in the order of the page.
        shape: The page's size pattern, or None; a name in square brackets is a dimension that may be absent.
    """

    min_dimensions: int
    max_dimensions: int
    types: tuple[DataType, ...]
    shape: str | None = None


SupportTable = Mapping[str, TensorSupport]
"""Support by tensor field (DirectML's name)."""


@dataclass(frozen=True)
class Variant:
    """Narrower tables for some values of one attribute (REDUCE: groups of functions).

    Attributes:
        field: DirectML's name of the attribute, ``Function``.
        members: Names of the enumeration's members to which it applies.
        support: Tables by the level from which each is valid.
    """

    field: str
    members: frozenset[str]
    support: Mapping[FeatureLevel, SupportTable]


@dataclass(frozen=True)
class Relation:
    """Tensors that must agree.

    Attributes:
        same: The property that agrees: ``DataType``, ``DimensionCount``, ``Sizes``.
        tensors: DirectML's names, in the order of the structure; an array stands for all its elements.
    """

    same: tuple[str, ...]
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class CountRule:
    """Required length of the arrays of one count field.

    Attributes:
        tensor: DirectML's name of the tensor whose dimension count decides, or None.
        less: Dimensions of the tensor that have no entry (2 where batch and channel are omitted).
        minimum: Smallest length where no tensor decides.
    """

    tensor: str | None = None
    less: int = 0
    minimum: int = 0


@dataclass(frozen=True)
class Fusion:
    """Support of an operator as a fused activation.

    Attributes:
        level: Lowest feature level that supports it.
        into: The operators that take it, or None for every operator that takes activations.
    """

    level: FeatureLevel
    into: tuple[str, ...] | None = None


@dataclass(frozen=True)
class OperatorSchema:
    """Entry of one operator.

    Attributes:
        name: DirectML's name, ``GATHER_ND1``.
        enum_value: Value in DML_OPERATOR_TYPE.
        feature_level: Level that introduced it.
        document: The DirectML page.
        summary: One line.
        formula: The computation, as the pages define it.
        notes: Gaps and contradictions of the pages.
        constraints: Rules in prose, one each.
        fields: In the order of the structure, count fields included.
        aliases: Further names of the same operator.
        supersedes: The older operator of its line, or None.
        superseded_by: The newer operator of its line, or None.
        in_place: Whether an output may share its buffer with an input.
        owned_inputs: Whether inputs may be OWNED_BY_DML.
        accepts_fused_activation: Whether it has a FusedActivation.
        fusion: Its support as a fused activation, or None.
        defaults: Defaults of attributes by the pages (the interface itself has no defaults).
        counts: Array lengths, by count field.
        relations: Tensors that must agree.
        support: Per level at which something changed, the tables valid from there up to the next.
        variants: Narrower tables for values of an attribute.
        examples: The pages' examples, as the catalog holds them.
    """

    name: str
    enum_value: int
    feature_level: FeatureLevel
    document: str
    summary: str
    formula: str
    notes: str
    constraints: tuple[str, ...]
    fields: tuple[FieldSchema, ...]
    aliases: tuple[str, ...]
    supersedes: str | None
    superseded_by: str | None
    in_place: bool
    owned_inputs: bool
    accepts_fused_activation: bool
    fusion: Fusion | None
    defaults: Mapping[str, float]
    counts: Mapping[str, CountRule]
    relations: tuple[Relation, ...]
    support: Mapping[FeatureLevel, SupportTable]
    variants: tuple[Variant, ...]
    examples: tuple[Mapping[str, Any], ...]

    @property
    def stem(self) -> str:
        """Lower-case name used for files, functions and labels, ``gather_nd1``."""
        return self.name.lower()

    @property
    def class_name(self) -> str:
        """Name of the description class, ``GatherNd1``."""
        return class_name(self.name)

    @functools.cached_property
    def python_fields(self) -> tuple[FieldSchema, ...]:
        """Fields that exist in Python: all but the counts of arrays."""
        return tuple(field for field in self.fields if not field.is_count)

    @functools.cached_property
    def tensor_fields(self) -> tuple[FieldSchema, ...]:
        """Inputs and outputs in the order of the structure."""
        return tuple(field for field in self.fields if field.is_tensor)

    def field(self, name: str) -> FieldSchema:
        """Return the field with a DirectML or a Python name.

        Raises:
            KeyError: If there is none.
        """
        for field in self.fields:
            if name in (field.name, field.python_name):
                return field
        raise KeyError(name)

    def support_at(self, level: FeatureLevel, variant: Variant | None = None) -> SupportTable:
        """Return the table valid at a feature level; empty if the operator does not exist yet."""
        tables = self.support if variant is None else variant.support
        reached = [start for start in tables if start <= level]
        return tables[max(reached)] if reached and level >= self.feature_level else {}


@dataclass(frozen=True)
class EnumSchema:
    """One enumeration of the header.

    Attributes:
        name: Without the prefix ``DML_``, ``REDUCE_FUNCTION``.
        level: Level that introduced it.
        values: Numeric value by member name.
        value_levels: Level of members that came later.
    """

    name: str
    level: FeatureLevel
    values: Mapping[str, int]
    value_levels: Mapping[str, FeatureLevel]


@dataclass(frozen=True)
class FeatureLevelSchema:
    """One feature level.

    Attributes:
        level: The level.
        directml_version: The release that brought it.
        introduced: Operators new in it.
        changed_operators: Operators that it extends.
    """

    level: FeatureLevel
    directml_version: str
    introduced: tuple[str, ...]
    changed_operators: tuple[str, ...]


_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ACRONYMS = {"roi": "ROI"}
_KEPT = 1024
"""Cache size: more than the catalog has names; models contain arbitrary names."""


@functools.lru_cache(maxsize=_KEPT)
def to_snake(name: str) -> str:
    """Return the Python name of a DirectML field: ``OutputROIGradientTensor`` -> ``output_roi_gradient_tensor``."""
    return _WORD_STARTS.sub("_", name).lower()


@functools.lru_cache(maxsize=_KEPT)
def to_directml(name: str) -> str:
    """Return the DirectML name of a Python field: ``a_zero_point_tensor`` -> ``AZeroPointTensor``."""
    return "".join(_ACRONYMS.get(word, word.capitalize()) for word in name.split("_"))


def class_name(operator: str) -> str:
    """Return the name of an operator's description class: ``UPSAMPLE_2D`` -> ``Upsample2d``."""
    return "".join(word.capitalize() for word in operator.split("_"))
