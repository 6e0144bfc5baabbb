"""A page per operator, from the catalog, docstrings and cases, and two indices of all operators."""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from enum import Enum

from dmlgpu import enums, ops, reference
from dmlgpu.catalog import FieldKind, FieldSchema, OperatorSchema, TensorSupport, catalog
from dmlgpu.catalog.defaults import default_value
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.model import class_name
from dmlgpu.catalog.search import SOURCES, newest, synonyms, tasks
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.cli.ops import family, functions, is_implemented, shader_paths, signature
from dmlgpu.compiler import operators
from dmlgpu.compiler.operators.lowering import lowering

from .example import example
from .practice import sections

DOCUMENTS = "https://learn.microsoft.com/windows/win32/api/directml/"
UP = "../../"
PADDING = (
    "gaps around elements of fewer than 32 bits are overwritten by whole words, unless the operator is compiled with "
    "[`preserve_padding`](../devices.md#padding)"
)


WIDTH = 80
"""Columns of code on the pages."""

OLDER = "---\nsearch:\n  boost: 0.25\n---\n"
"""Front matter by which a search lists the pages of older versions of operators last."""


WIDE = "---\nhide: [navigation, toc]\n---\n"
"""Front matter of pages whose table needs the width of the window."""


MAX_SECTIONS = 12
"""Functions up to which each has a section; more are listed."""


def page(schema: OperatorSchema) -> str:
    """The Markdown of one operator's page."""
    parts = [f"# {schema.name}", schema.summary, _signatures(schema)]
    if schema.superseded_by:
        parts.append(f"{_link(newest(schema.name))} supersedes this operator, and `dmlgpu.ops` uses it.")
    elif len(functions(schema)) > MAX_SECTIONS:
        links = (f"[`{name}`][{_anchor(name)}]" for name in functions(schema))
        parts += ["## Functions", f"[`dmlgpu.ops`](../reference/ops.md) calls it in {', '.join(links)}."]
    else:
        parts += itertools.chain.from_iterable(map(_function, functions(schema)))
    code = example(schema) if is_implemented(schema) else None
    if code:
        parts += sections(schema.stem, code)
    parts += ["## Names in other libraries", _table(("library", "names"), _names(schema))]
    parts += ["## Formula", *schema.formula.splitlines()]
    parts += ["## Fields", _table(("field", "in DirectML", "kind", "type", "default"), _fields(schema))]
    parts += ["## Types by feature level", *_support(schema)]
    if schema.constraints:
        parts += ["## Rules", "\n".join(f"- {rule}" for rule in schema.constraints)]
    choices = (inspect.getdoc(lowering(schema.name)) if is_implemented(schema) else None) or ""
    source = f"[DirectML's page]({DOCUMENTS}{schema.document}) is called *the page* here."
    for title, text in (("Undocumented by DirectML", schema.notes), ("In dmlgpu", choices)):
        if text:
            parts.append(f"## {title}")
            if re.search(r"\bpages?\b", text) and source not in parts:
                parts.append(source)
            parts.append(text)
    parts += ["## Properties", _table(("property", "value"), _facts(schema))]
    return (OLDER if schema.superseded_by else "") + "\n\n".join(_escaped(part) for part in parts) + "\n"


def _signatures(schema: OperatorSchema) -> str:
    """The functions that call the operator, as code."""
    lines = [
        line
        for name in (*functions(schema), f"directml.{schema.stem}")
        for line in textwrap.wrap(signature(name), WIDTH, subsequent_indent="    ", break_long_words=False)
    ]
    return "\n".join(["```py", *lines, "```"])


def _function(name: str) -> Iterator[str]:
    """A section on a function of ``dmlgpu.ops``: what it returns, and the example of its docstring."""
    docstring = inspect.getdoc(getattr(ops, name)) or ""
    yield f"## ops.{name}"
    yield docstring.partition("\n")[0]
    example_lines = docstring.partition("Examples:\n")[2].partition("\n\n")[0]
    yield f"```pycon\n{textwrap.dedent(example_lines)}\n```"
    yield f"[Arguments and exceptions][{_anchor(name)}]"


def _anchor(name: str) -> str:
    """The heading of a function of ``dmlgpu.ops`` in the API reference, which `dmlgpu.array` repeats."""
    return f"{getattr(ops, name).__module__}.{name}"


def _link(name: str) -> str:
    return f"[{name}]({name.lower()}.md)"


def _names(schema: OperatorSchema) -> Iterator[tuple[str, str]]:
    yield "DirectML", ", ".join(f"`{name}`" for name in (f"DML_OPERATOR_{schema.name}", *schema.aliases))
    for source, title in SOURCES.items():
        names = synonyms()[schema.name].of(source)
        if title and names:
            yield title, ", ".join(f"`{name}`" for name in names)


def _escaped(part: str) -> str:
    """Prose in which Markdown sees no emphasis and no tags, and enumerations have their names in Python."""
    if part.startswith(("```", "|", "#", "<details>", "[")):
        return part
    part = re.sub(r"\bDML_[A-Z0-9_]+", lambda match: _in_python(match[0]), part)
    pieces = re.split(r"(`[^`\n]*`)", part)  # code is every other one, and needs no escapes
    pieces[::2] = [piece.replace("*", "\\*").replace("<", "&lt;").replace("_", "\\_") for piece in pieces[::2]]
    return "".join(pieces)


def _table(heading: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _facts(schema: OperatorSchema) -> Iterator[tuple[str, str]]:
    yield "class", f"`dmlgpu.descs.{schema.class_name}`"
    yield "since", f"feature level {schema.feature_level.label}"
    for name, other in (("supersedes", schema.supersedes), ("superseded by", schema.superseded_by)):
        if other:
            yield name, _link(other)
    yield "in place", "the output may share an input's memory" if schema.in_place else "no"
    if has_small_outputs(schema):
        yield "padding", PADDING
    if not is_implemented(schema):
        yield "status", "not implemented yet"
        return
    yield "family", family(schema)
    yield "shaders", "<br>".join(f"[{path}]({UP}{path})" for path in shader_paths(schema))
    function = reference.find(schema.name)
    if function is not None:
        path = f"{function.__module__.replace('.', '/')}.py"
        yield "reference", f"[{path}]({UP}{path}), `{function.__name__}`"
    yield "DirectML", f"[{schema.document}]({DOCUMENTS}{schema.document})"


def has_small_outputs(schema: OperatorSchema) -> bool:
    """Whether an output's elements may be smaller than a word."""
    outputs = [field.name for field in schema.tensor_fields if field.kind is FieldKind.OUTPUT]
    types = (support.types for table in schema.support.values() for support in map(table.get, outputs) if support)
    return any(data_type.bits < WORD_BITS for data_types in types for data_type in data_types)


def _fields(schema: OperatorSchema) -> Iterator[tuple[str, ...]]:
    for field in schema.python_fields:
        value = None if field.is_tensor or field.optional else default_value(schema, field)
        yield f"`{field.python_name}`", field.name, _kind(field), _type(field), "" if value is None else str(value)


def _type(field: FieldSchema) -> str:
    """Enumerations by their names in Python, with their members."""
    enumeration = _enumeration(field.type)
    if enumeration is None:
        return field.type
    members = "" if enumeration is DataType else f": {', '.join(enumeration.__members__)}"
    return f"`{enumeration.__name__}`{members}"


def _enumeration(name: str) -> type[Enum] | None:
    """The class of an enumeration that DirectML calls ``DML_<NAME>``."""
    enum_class = getattr(enums, _OTHER_NAMES.get(name) or class_name(name.removeprefix("DML_")), None)
    return (
        enum_class
        if name.startswith("DML_") and isinstance(enum_class, type) and issubclass(enum_class, Enum)
        else None
    )


_OTHER_NAMES = {"DML_TENSOR_DATA_TYPE": "DataType", "DML_TENSOR_FLAG": "TensorFlags"}
"""Enumerations that Python calls otherwise."""


def _in_python(name: str) -> str:
    """``DML_AXIS_DIRECTION_INCREASING`` as ``AxisDirection.INCREASING``; what is no enumeration as it is."""
    words = name.split("_")
    for count in range(len(words), 1, -1):
        enumeration = _enumeration("_".join(words[:count]))
        member = "_".join(words[count:])
        if enumeration is not None and (not member or member in enumeration.__members__):
            return ".".join(filter(None, (enumeration.__name__, member)))
    return name


def _kind(field: FieldSchema) -> str:
    words = ["optional" if field.optional else "", field.kind.value, "(any number)" if field.is_array else ""]
    return " ".join(word for word in words if word)


def _support(schema: OperatorSchema) -> Iterator[str]:
    """A table per feature level that changed something, and per group of an attribute's values."""
    for level, table in schema.support.items():
        yield f"From feature level {level.label}:"
        yield _table(("tensor", "dimensions", "types"), _rows(schema, table.items()))
    for variant in schema.variants:
        members = ", ".join(sorted(variant.members))
        for level, table in variant.support.items():
            yield f"From feature level {level.label}, if {schema.field(variant.field).python_name} is one of {members}:"
            yield _table(("tensor", "dimensions", "types"), _rows(schema, table.items()))


def _rows(schema: OperatorSchema, entries: Iterator[tuple[str, TensorSupport]]) -> Iterator[tuple[str, ...]]:
    for name, support in entries:
        low, high = support.min_dimensions, support.max_dimensions
        ranks = str(low) if low == high else f"{low} to {high}"
        types = ", ".join(data_type.name for data_type in support.types)
        yield f"`{schema.field(name).python_name}`", ranks, types


def index() -> str:
    """The Markdown of the list of all operators, with their names in other libraries."""
    libraries = ("onnx", "torch", "numpy")
    rows = (
        (
            f"[{schema.name}]({schema.stem}.md)",
            ", ".join(f"[{name}][{_anchor(name)}]" for name in functions(schema)),
            *(", ".join(synonyms()[schema.name].of(source)) for source in libraries),
        )
        for schema in catalog().values()
    )
    count = len(operators.implemented())
    heading = (
        f"{WIDE}# Operators by name\n\n{count} of DirectML's {len(catalog())} operators run. The table lists each with "
        "the functions of `dmlgpu.ops` that it computes and with its names in other libraries. "
        "[Operators by task](by_task.md) groups the newest versions. `dmlgpu ops WORD` searches the same names.\n\n"
    )
    columns = ("DirectML", "dmlgpu.ops", *(SOURCES[source] for source in libraries))
    return heading + _table(columns, rows) + "\n"


def index_by_task() -> str:
    """The Markdown of the list of operators by what they are for, with their names elsewhere."""
    parts = [
        "---\nhide: [navigation]\n---\n# Operators by task",
        "The newest version of each operator, with the functions of ONNX, PyTorch, NumPy and WebNN that it computes, "
        "completely or for the most part. Older versions are in [the list by name](README.md). `dmlgpu ops WORD` "
        "searches these names.",
    ]
    libraries = {source: title for source, title in SOURCES.items() if title}
    for task in tasks():
        rows = (
            (
                f"[{name}]({schema.stem}.md)",
                schema.summary,
                *(", ".join(f"`{other}`" for other in synonyms()[name].of(source)) for source in libraries),
            )
            for name, schema in catalog().items()
            if newest(name) == name and synonyms()[name].task == task
        )
        parts += [f"## {task}", _table(("operator", "what it does", *libraries.values()), rows)]
    return "\n\n".join(parts) + "\n"


def navigation() -> list[dict[str, list[str]]]:
    """The files of operators' pages by task, older versions after the operator that supersedes them."""
    by_task: dict[str, list[str]] = {task: [] for task in tasks()}
    for name, schema in sorted(catalog().items(), key=lambda item: (newest(item[0]), item[0] != newest(item[0]))):
        by_task[synonyms()[newest(name)].task].append(f"{schema.stem}.md")
    return [{task: files} for task, files in by_task.items()]


@functools.cache
def pages() -> dict[str, str]:
    """The Markdown of every page, by its file's name."""
    indices = {"README.md": index(), "by_task.md": index_by_task()}
    return indices | {f"{schema.stem}.md": page(schema) for schema in catalog().values()}
