"""The catalog of DirectML's operators as package data: names, fields, types, ranks, levels, formulas, examples."""

from dmlgpu.catalog.loader import aliases, catalog, constants, enumerations, feature_levels, operator
from dmlgpu.catalog.model import (
    CountRule,
    EnumSchema,
    FeatureLevelSchema,
    FieldKind,
    FieldSchema,
    Fusion,
    OperatorSchema,
    Relation,
    SupportTable,
    TensorSupport,
    Variant,
    class_name,
    to_directml,
    to_snake,
)

__all__ = [
    "CountRule",
    "EnumSchema",
    "FeatureLevelSchema",
    "FieldKind",
    "FieldSchema",
    "Fusion",
    "OperatorSchema",
    "Relation",
    "SupportTable",
    "TensorSupport",
    "Variant",
    "aliases",
    "catalog",
    "class_name",
    "constants",
    "enumerations",
    "feature_levels",
    "operator",
    "to_directml",
    "to_snake",
]
