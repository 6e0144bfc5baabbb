"""Python types and docstrings of description classes and of functions, from the catalog.

Data types and ranks in docstrings are those of the newest feature level.
"""

from __future__ import annotations

from collections.abc import Iterator

from dmlgpu.catalog.defaults import default_value
from dmlgpu.catalog.model import FieldKind, FieldSchema, OperatorSchema, TensorSupport, class_name

WIDTH = 120

_PYTHON_TYPES = {
    "TENSOR": "TensorDesc",
    "UINT": "int",
    "INT": "int",
    "FLOAT": "float",
    "BOOL": "bool",
    "SCALE_BIAS": "ScaleBias",
    "SIZE_2D": "Size2D",
    "SCALAR_UNION": "int | float",
    "OPERATOR_DESC": "OperatorDesc",
    "DML_TENSOR_DATA_TYPE": "DataType",
}

_MEANINGS = {
    "UINT": "unsigned 32-bit integer",
    "INT": "signed 32-bit integer",
    "FLOAT": "32-bit float",
    "BOOL": "bool",
    "SCALE_BIAS": "scale and bias applied to the input first",
    "SIZE_2D": "width and height",
    "SCALAR_UNION": "number of the data type in the adjacent field",
    "OPERATOR_DESC": "activation applied to the result, described without tensors",
}


def single_type(field: FieldSchema) -> str:
    """Return the Python type of one value of a field."""
    return _PYTHON_TYPES.get(field.type) or class_name(field.type.removeprefix("DML_"))


def annotation(field: FieldSchema) -> str:
    """Return the Python type of a field."""
    single = f"tuple[{single_type(field)}, ...]" if field.is_array else single_type(field)
    return f"{single} | None" if field.optional else single


def output_names(schema: OperatorSchema) -> tuple[str, ...]:
    """Return the Python names of the fields that hold outputs."""
    return tuple(field.python_name for field in schema.fields if field.kind is FieldKind.OUTPUT)


def default_source(schema: OperatorSchema, field: FieldSchema) -> str | None:
    """Return the source of an attribute's default, or of each entry of an array; None if it is required."""
    value = default_value(schema, field)
    if value is None or field.optional or field.type == "OPERATOR_DESC":
        return None
    if isinstance(value, str):
        return f"{single_type(field)}.{value}"
    return repr(float(value)) if single_type(field) == "float" else repr(value)


def description_docstring(schema: OperatorSchema) -> str:
    """Return the docstring of a description class, indented as in a module."""
    newer = f", superseded by {schema.superseded_by}" if schema.superseded_by else ""
    lines = [
        *wrapped(schema.summary, 4),
        "",
        "    Attributes:",
        *(
            line
            for field in schema.python_fields
            for line in wrapped(f"{field.python_name}: {field_meaning(schema, field)}.", 8, 4)
        ),
        "",
        *wrapped(f"DirectML: {schema.document}, from feature level {schema.feature_level.label}{newer}.", 4),
        "    ",
    ]
    return "\n".join(lines).lstrip()


def field_meaning(schema: OperatorSchema, field: FieldSchema) -> str:
    """Return the description of a field, with its default."""
    if field.is_tensor:
        return tensor_meaning(schema, field)
    default = "" if default_source(schema, field) is None else f"; defaults to {default_value(schema, field)}"
    return attribute_meaning(schema, field) + default


def tensor_meaning(schema: OperatorSchema, field: FieldSchema) -> str:
    """Return ranks and data types of a tensor; types equal to those of an earlier field are not repeated."""
    table = schema.support[max(schema.support)]
    support = table[field.name]
    plural = "s" if field.is_array else ""
    types = ", ".join(data_type.name for data_type in support.types)
    first = next(other for other in schema.tensor_fields if table[other.name].types == support.types)
    if first is not field and len(support.types) > 2:
        types = f"types of {first.python_name}"
    shape = f"; {support.shape}" if support.shape else ""
    return f"{'optional ' * field.optional}{field.kind}{plural}; {_ranks(support)}; {types}{shape}"


def attribute_meaning(schema: OperatorSchema, field: FieldSchema) -> str:
    """Return the type and meaning of an attribute."""
    meaning = _MEANINGS.get(field.type) or f"a {single_type(field)}"
    if field.is_array:
        meaning = "activations, described without tensors" if field.type == "OPERATOR_DESC" else f"{meaning}s"
    return f"{'optional ' * field.optional}{meaning}{_length_meaning(schema, field)}"


def _ranks(support: TensorSupport) -> str:
    low, high = support.min_dimensions, support.max_dimensions
    if low == high:
        return f"{low} dimension{'s' * (low > 1)}"
    return f"{low} to {high} dimensions"


def _length_meaning(schema: OperatorSchema, field: FieldSchema) -> str:
    rule = schema.counts.get(field.count_field or "")
    if rule is None or rule.tensor is None:
        return ""
    dimension = "spatial dimension" if rule.less else "dimension"
    return f", one per {dimension} of {schema.field(rule.tensor).python_name}"


def wrapped(text: str, indent: int, hanging: int = 0) -> Iterator[str]:
    """Yield the lines of a paragraph, at most 120 columns; all but the first are indented by ``hanging`` more."""
    line = " " * (indent - 1)
    for word in text.split():
        if len(line) + len(word) >= WIDTH:
            yield line
            line = " " * (indent + hanging - 1)
        line += " " + word
    yield line
