"""``dmlgpu ops``: the catalog of DirectML's operators."""

from __future__ import annotations

import enum
import inspect
import json
import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from dmlgpu import catalog as schema
from dmlgpu.catalog import FieldSchema, OperatorSchema, search
from dmlgpu.catalog.descs import by_name
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.search import SOURCES, synonyms
from dmlgpu.cli import tables
from dmlgpu.compiler import operators
from dmlgpu.compiler.operators.lowering import lowering

NAMES = 3
"""Number of names in other libraries shown per operator in search results."""

_PAGES = "https://learn.microsoft.com/windows/win32/api/directml/"


def show(word: str | None = None, implemented: bool = False, as_json: bool = False) -> None:
    """Print the catalog, one operator, or search results.

    Args:
        word: Name or alias of an operator, or a word to search for.
        implemented: Print only implemented operators.
        as_json: Print JSON.

    Raises:
        InvalidArgument: If nothing is found.
    """
    matches = () if word is None else search.find(word)
    if word is not None and matches and not _is_name(word):
        _show_matches(word, [match for match in matches if not implemented or is_implemented(match.operator)], as_json)
        return
    if word is not None:
        entry = schema.operator(word)
        if as_json:
            print(json.dumps(_as_json(entry), indent=2, ensure_ascii=False))
        else:
            tables.facts(f"{entry.name}: {entry.summary}", _facts(entry))
        return
    entries = [entry for entry in schema.catalog().values() if not implemented or is_implemented(entry)]
    if as_json:
        print(json.dumps([_row_json(entry) for entry in entries], indent=2, ensure_ascii=False))
        return
    tables.table(
        ("operator", "level", "implemented", "family", "summary"),
        [
            (
                entry.name,
                entry.feature_level.label,
                "yes" if is_implemented(entry) else "no",
                family(entry),
                entry.summary,
            )
            for entry in entries
        ],
    )


def _is_name(word: str | None) -> bool:
    """Return whether a word is the full name or an alias of an operator."""
    catalog = schema.catalog()
    name = (word or "").upper()
    return name in catalog or any(name in entry.aliases for entry in catalog.values())


def _show_matches(word: str, matches: Sequence[search.Match], as_json: bool) -> None:
    """Print search results, the best first, with their functions, those that contain the word first."""
    if as_json:
        records = [_row_json(match.operator) | {"found_as": list(match.names)} for match in matches]
        print(json.dumps(records, indent=2, ensure_ascii=False))
        return
    rows = []
    for match in matches:
        entry = match.operator
        names = sorted(_all_functions(entry), key=lambda name: _letters(word) not in _letters(name))
        of_ops = _some([_qualified(name) for name in names], 1)
        rows.append((entry.name, entry.feature_level.label, of_ops, _some(match.names), entry.summary))
    tables.table(("operator", "level", "functions", "found as", "summary"), rows)


def _letters(name: str) -> str:
    """Return the letters and digits of a name in lower case."""
    return re.sub(r"[\W_]", "", name).lower()


def _some(names: Sequence[str], limit: int = NAMES) -> str:
    """Return the first names, and the number of further ones."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def is_implemented(entry: OperatorSchema) -> bool:
    """Return whether dmlgpu runs the operator on a GPU."""
    return entry.name in operators.implemented()


def shader_paths(entry: OperatorSchema) -> tuple[str, ...]:
    """Return the shaders of the operator, or of the newer operator that it runs as; empty if there are none."""
    if not is_implemented(entry):
        return ()
    files = operators.shader_files(entry.name)
    if not files and entry.superseded_by is not None:
        return shader_paths(schema.operator(entry.superseded_by))
    return tuple(f"shaders/{file}.wgsl" for file in files)


def family(entry: OperatorSchema) -> str:
    """Return the folder of the shaders, such as ``indexing``; a dash if there are none."""
    paths = shader_paths(entry)
    return paths[0].split("/")[1] if paths else "-"


def functions(entry: OperatorSchema) -> tuple[str, ...]:
    """Return the names of the functions of ``dmlgpu.ops`` that the operator, or its newest version, computes."""
    from dmlgpu import ops  # noqa: PLC0415 - the catalog does without

    return _computed_by(entry, ops)


def _all_functions(entry: OperatorSchema) -> tuple[str, ...]:
    """Return the names of ``functions``, and those of ``dmlgpu.random`` with the prefix ``random.``."""
    from dmlgpu import random  # noqa: PLC0415 - the catalog does without

    return (*functions(entry), *(f"random.{name}" for name in _computed_by(entry, random)))


def _computed_by(entry: OperatorSchema, module: ModuleType) -> tuple[str, ...]:
    """Return the names of a module's functions that the operator, or its newest version, computes."""
    newest = search.newest(entry.name)
    return tuple(
        name
        for name in module.__all__
        if inspect.isfunction(getattr(module, name))
        and newest in _computing_operators(getattr(module, name).__doc__ or "")
    )


def _qualified(name: str) -> str:
    """Return a name of ``_all_functions`` as users write it."""
    return f"dmlgpu.{name}" if name.startswith("random.") else f"ops.{name}"


def _computing_operators(docstring: str) -> list[str]:
    """Return the newest versions of the operators that a docstring names in its paragraph "Computed by"."""
    _, _, text = docstring.partition("Computed by ")
    names = re.findall(r"\b[A-Z][A-Z0-9_]+\b", text)
    return [search.newest(name) for name in names if name in schema.catalog()]


def signature(name: str) -> str:
    """Return the signature, without annotations, of a function of ``dmlgpu.ops``: ``"relu"``, ``"directml.gemm"``."""
    from dmlgpu import ops, random  # noqa: PLC0415, F401 - the catalog does without

    function: Any = ops
    for part in name.split("."):
        function = getattr(function, part)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_DefaultSource.of(parameter.default))
        for parameter in inspect.signature(function).parameters.values()
    ]
    return f"{_qualified(name)}{inspect.Signature(parameters)}"


class _DefaultSource(str):
    """The source text of a default: ``PaddingMode.EDGE`` instead of ``<PaddingMode.EDGE: 2>``."""

    __repr__ = str.__str__

    @classmethod
    def of(cls, default: Any) -> Any:
        """Return a default whose ``repr`` is source text."""
        return cls(f"{type(default).__name__}.{default.name}") if isinstance(default, enum.Enum) else default


def _choices(entry: OperatorSchema) -> str:
    """Return dmlgpu's choices where the public documentation is ambiguous."""
    return inspect.getdoc(lowering(entry.name)) or "" if is_implemented(entry) else ""


def _reference(entry: OperatorSchema) -> str:
    """Return the qualified name of the NumPy function; empty if there is none."""
    from dmlgpu import reference  # noqa: PLC0415 - the catalog does without

    function = reference.find(entry.name)
    return f"{function.__module__}.{function.__name__}" if function else ""


def _facts(entry: OperatorSchema) -> list[tuple[str, str]]:
    return [
        ("functions", "\n".join(signature(name) for name in (*_all_functions(entry), f"directml.{entry.stem}"))),
        ("status", "implemented" if is_implemented(entry) else "not implemented yet"),
        ("class", f"dmlgpu.descs.{by_name(entry.name).__name__}"),
        ("since", f"feature level {entry.feature_level.label}"),
        ("also called", ", ".join(entry.aliases)),
        ("elsewhere", "\n".join(_elsewhere(entry))),
        ("supersedes", entry.supersedes or ""),
        ("superseded by", entry.superseded_by or ""),
        ("fields", "\n".join(_field(field) for field in entry.python_fields)),
        ("types", "\n".join(_types(entry))),
        ("formula", entry.formula),
        ("constraints", "\n".join(entry.constraints)),
        ("notes", entry.notes),
        ("choices", _choices(entry)),
        ("in place", "the output may share an input's memory" if entry.in_place else ""),
        ("shader", "\n".join(shader_paths(entry))),
        ("reference", _reference(entry)),
        ("document", _PAGES + entry.document),
    ]


def _elsewhere(entry: OperatorSchema) -> list[str]:
    """Return the names of the operator in other libraries."""
    known = {title: synonyms()[entry.name].of(source) for source, title in SOURCES.items() if title}
    return [f"{title}: {', '.join(names)}" for title, names in known.items() if names]


def _field(field: FieldSchema) -> str:
    kind = f"tuple of {field.type}" if field.is_array else field.type
    optional = ", optional" if field.optional else ""
    return f"{field.python_name}: {kind} ({field.kind.value}{optional})"


def _types(entry: OperatorSchema) -> list[str]:
    """Return the ranks and types of each tensor, per feature level that changed them."""
    lines = []
    for level, table in entry.support.items():
        lines.append(f"from {level.label}")
        for name, support in table.items():
            ranks = f"{support.min_dimensions} to {support.max_dimensions}"
            if support.min_dimensions == support.max_dimensions:
                ranks = str(support.min_dimensions)
            types = ", ".join(DataType(data_type).name for data_type in support.types)
            lines.append(f"  {entry.field(name).python_name}: {ranks} dimensions; {types}")
    return lines


def _row_json(entry: OperatorSchema) -> dict[str, Any]:
    return {
        "name": entry.name,
        "feature_level": entry.feature_level.label,
        "implemented": is_implemented(entry),
        "family": family(entry),
        "summary": entry.summary,
    }


def _as_json(entry: OperatorSchema) -> dict[str, Any]:
    return _row_json(entry) | {
        "class": f"dmlgpu.descs.{by_name(entry.name).__name__}",
        "functions": [signature(name) for name in (*_all_functions(entry), f"directml.{entry.stem}")],
        "aliases": list(entry.aliases),
        "task": synonyms()[entry.name].task,
        "elsewhere": {source: list(synonyms()[entry.name].of(source)) for source in SOURCES},
        "supersedes": entry.supersedes,
        "superseded_by": entry.superseded_by,
        "in_place": entry.in_place,
        "fields": [
            {
                "name": field.python_name,
                "directml_name": field.name,
                "kind": field.kind.value,
                "type": field.type,
                "array": field.is_array,
                "optional": field.optional,
            }
            for field in entry.python_fields
        ],
        "support": {
            level.label: {
                entry.field(name).python_name: {
                    "dimension_counts": [support.min_dimensions, support.max_dimensions],
                    "types": [data_type.name for data_type in support.types],
                }
                for name, support in table.items()
            }
            for level, table in entry.support.items()
        },
        "formula": entry.formula,
        "constraints": list(entry.constraints),
        "notes": entry.notes,
        "choices": _choices(entry),
        "shaders": list(shader_paths(entry)),
        "reference": _reference(entry) or None,
        "document": _PAGES + entry.document,
    }
