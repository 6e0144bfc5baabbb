"""The float attributes of operators, as paths into their descriptions.

A path is the names of fields with dots between them; a fused activation's field is followed by the activation:

    alpha    scale_bias.scale    fused_activation.activation_elu.alpha    activation_descs.element_wise_clip.min
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from dmlgpu.catalog import FieldKind, FieldSchema, loader
from dmlgpu.catalog.enums import FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias
from dmlgpu.catalog.validation import fusable_activations
from dmlgpu.conformance.cases.registry import OPERATOR_CASES

NUMBERS = ("FLOAT", "SCALAR_UNION")
SCALED = ScaleBias(1.5, 0.25)
"""What a ScaleBias is where only one of its numbers matters."""


@functools.cache  # bounded by the catalog
def attribute_paths(stem: str) -> tuple[str, ...]:
    """The float attributes of an operator, its ScaleBias and its fused activations included.

    Args:
        stem: the operator's name in lower case.
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
    """The field of the operator's own description."""
    return path.partition(".")[0]


def is_fused(path: str) -> bool:
    """Whether the attribute is that of a fused activation."""
    return field_of(path) in ("fused_activation", "activation_descs")


def with_attribute(desc: OperatorDesc, path: str, value: float) -> OperatorDesc:
    """The description with one of its attributes changed; of an array, the last number, or every activation.

    Raises:
        InvalidDescription: when the description's constructor refuses it.
    """
    field, _, rest = path.partition(".")
    given: Any = getattr(desc, field)
    changed: Any = value
    if rest in ("scale", "bias"):
        scaling = given or SCALED
        changed = ScaleBias(value, scaling.bias) if rest == "scale" else ScaleBias(scaling.scale, value)
    elif rest:
        activation = _activation(rest, value)
        changed = (activation,) * len(given) if isinstance(given, tuple) else activation
    elif isinstance(given, tuple):
        changed = (*given[:-1], value)
    return desc.replace(**{field: changed})


def _activation(path: str, value: float) -> OperatorDesc:
    """An activation without tensors, with one of its attributes as given."""
    stem, _, rest = path.partition(".")
    usual = OPERATOR_CASES[stem].case(first_name(stem, "float32")).desc
    tensors = dict.fromkeys((*usual.input_fields, *usual.output_fields))
    return with_attribute(usual.replace(**tensors), rest, value)


def first_name(stem: str, first_type: str) -> str:
    """The name of an operator's first case of a type, which is not an example of the page."""
    return next(name for name in OPERATOR_CASES[stem].names("standard") if name.startswith(f"{stem}-{first_type}-"))
