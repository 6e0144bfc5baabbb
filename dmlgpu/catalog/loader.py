"""Reads the catalog. The file is read once (a millisecond); each operator is parsed when it is first used."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dmlgpu.catalog.enums import DataType, FeatureLevel
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
    to_snake,
)
from dmlgpu.common.errors import InvalidArgument, shown

_DIRECTORY = Path(__file__).parent
_ENTRY = re.compile(r'^ "(\w+)": (\{.*?^ \})', re.MULTILINE | re.DOTALL)
"""An operator of ``operators.json``: its name and its JSON text, indented as ``scripts/import_schema.py`` does."""


class _Catalog(Mapping[str, OperatorSchema]):
    """The operators in enumeration order, parsed on access.

    Until then, an operator is its text: all of the file as parsed JSON would slow down every garbage collection.
    """

    def __init__(self, texts: Mapping[str, str]):
        self._texts = texts
        self._parsed: dict[str, OperatorSchema] = {}

    def __getitem__(self, name: str) -> OperatorSchema:
        schema = self._parsed.get(name)
        if schema is None:
            schema = self._parsed[name] = _operator(name, self._texts[name])
        return schema

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    @functools.cached_property
    def aliases(self) -> Mapping[str, str]:
        """The operator of each alias."""
        named = (name for name, text in self._texts.items() if '"aliases"' in text)
        return {alias: name for name in named for alias in self[name].aliases}


@functools.cache
def catalog() -> Mapping[str, OperatorSchema]:
    """Return all operators by DirectML's name, in the order of DML_OPERATOR_TYPE."""
    return _catalog()


def operator(name: str) -> OperatorSchema:
    """One operator by its name in any case (``GATHER_ND1``, ``gather_nd1``) or an alias (``SCATTER``).

    Raises:
        InvalidArgument: If there is none; the message offers names that others have for it, or similar ones.
    """
    operators = _catalog()
    requested = name.upper() if isinstance(name, str) else ""
    requested = operators.aliases.get(requested, requested)
    if requested not in operators:
        from dmlgpu.catalog.search import hint  # noqa: PLC0415 - only messages need it, and it needs the catalog

        raise InvalidArgument(f"DirectML has no operator {shown(name)}{hint(requested)}")
    return operators[requested]


def aliases() -> Mapping[str, str]:
    """Return the operator of each alias."""
    return _catalog().aliases


@functools.cache
def enumerations() -> Mapping[str, EnumSchema]:
    """Return the header's enumerations by name without ``DML_`` (``TENSOR_DATA_TYPE``)."""
    by_name = {}
    for full_name, raw in _read("enums.json")["enums"].items():
        name = full_name.removeprefix("DML_")
        levels = {member: FeatureLevel.from_label(label) for member, label in raw.get("value_levels", {}).items()}
        by_name[name] = EnumSchema(name, FeatureLevel.from_label(raw["level"]), raw["values"], levels)
    return MappingProxyType(by_name)


@functools.cache
def constants() -> Mapping[str, int]:
    """Return the header's constants by full name."""
    return MappingProxyType({name: entry["value"] for name, entry in _read("enums.json")["constants"].items()})


@functools.cache
def feature_levels() -> Mapping[FeatureLevel, FeatureLevelSchema]:
    """Return the feature levels, oldest first."""
    levels = {}
    for label, raw in _read("enums.json")["feature_levels"].items():
        level = FeatureLevel.from_label(label)
        introduced, changed = tuple(raw["introduced"]), tuple(raw["changed_operators"])
        levels[level] = FeatureLevelSchema(level, raw["directml_version"], introduced, changed)
    return MappingProxyType(dict(sorted(levels.items())))


@functools.cache
def _catalog() -> _Catalog:
    text = (_DIRECTORY / "operators.json").read_text(encoding="utf-8")
    return _Catalog(dict(_ENTRY.findall(text)))


def _read(name: str) -> Any:
    return json.loads((_DIRECTORY / name).read_text(encoding="utf-8"))


def _operator(name: str, text: str) -> OperatorSchema:
    raw = json.loads(text)
    fields = _fields(raw["fields"])
    order = [field.name for field in fields]
    lists: dict[str, Any] = {key: tuple(raw.get(key, ())) for key in ("constraints", "aliases", "examples")}
    return OperatorSchema(
        name=name,
        feature_level=FeatureLevel.from_label(raw["feature_level"]),
        **{key: raw[key] for key in ("enum_value", "document", "summary", "formula")},
        notes=raw.get("notes", ""),
        fields=fields,
        **lists,
        **{key: raw.get(key) for key in ("supersedes", "superseded_by")},
        **{key: raw.get(key, False) for key in ("in_place", "owned_inputs", "accepts_fused_activation")},
        fusion=_fusion(raw.get("fusion")),
        defaults=MappingProxyType(raw.get("defaults", {})),
        counts=MappingProxyType({count: CountRule(**rule) for count, rule in raw.get("counts", {}).items()}),
        relations=tuple(
            Relation(tuple(entry["same"]), tuple(sorted(entry["tensors"], key=order.index)))
            for entry in raw.get("relations", ())
        ),
        support=_Tables(lambda: json.loads(text)["support"]),
        variants=tuple(
            Variant(
                entry["field"], frozenset(entry["members"]), _Tables(functools.partial(_variant_support, text, place))
            )
            for place, entry in enumerate(raw.get("variants", ()))
        ),
    )


def _fields(raw: list[dict[str, Any]]) -> tuple[FieldSchema, ...]:
    counts = {entry["count"] for entry in raw if "count" in entry}
    return tuple(
        FieldSchema(
            name=entry["name"],
            python_name=to_snake(entry["name"]),
            kind=FieldKind(entry["kind"]),
            type=entry["type"],
            optional=entry.get("optional", False),
            count_field=entry.get("count"),
            is_count=entry["name"] in counts,
        )
        for entry in raw
    )


def _fusion(raw: dict[str, Any] | None) -> Fusion | None:
    if raw is None:
        return None
    return Fusion(FeatureLevel.from_label(raw["level"]), None if raw["into"] is None else tuple(raw["into"]))


def _variant_support(text: str, place: int) -> dict[str, Any]:
    return json.loads(text)["variants"][place]["support"]


class _Tables(Mapping[FeatureLevel, SupportTable]):
    """Tables by level, parsed on first access: most of an operator's entry, and its description needs none of them."""

    def __init__(self, read: Callable[[], dict[str, Any]]):
        self._read = read

    @functools.cached_property
    def _tables(self) -> dict[FeatureLevel, SupportTable]:
        return {
            FeatureLevel.from_label(label): MappingProxyType({name: _support(entry) for name, entry in table.items()})
            for label, table in self._read().items()
        }

    def __getitem__(self, level: FeatureLevel) -> SupportTable:
        return self._tables[level]

    def __iter__(self) -> Iterator[FeatureLevel]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


def _support(raw: dict[str, Any]) -> TensorSupport:
    low, high = raw["dims"][0], raw["dims"][-1]
    return TensorSupport(low, high, tuple(DataType[name] for name in raw["types"]), raw.get("shape"))
