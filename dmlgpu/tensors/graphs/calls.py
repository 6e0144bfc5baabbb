"""What the functions of operators share: they find the graph among their operands and add a node to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidDescription
from dmlgpu.tensors.graphs.expression import Expression
from dmlgpu.tensors.graphs.graph import Graph


def several(
    kind: type[OperatorDesc],
    name: str | None,
    values: Mapping[str, Any],
    *,
    graph: Graph | None = None,
    types: Mapping[str, DataType | None] | None = None,
    sizes: Mapping[str, Any] | None = None,
    wanted: Mapping[str, bool] | None = None,
) -> tuple[Any, ...]:
    """Add an operator to the graph of its operands and return its outputs, None for absent ones.

    Args:
        kind: the operator's description.
        name: of the node.
        values: expressions and attributes by field.
        graph: where no operand tells.
        types: data types of outputs, None for the usual one.
        sizes: sizes of outputs, None for those that follow from the inputs.
        wanted: whether optional outputs are computed.

    Raises:
        InvalidDescription: no operand is an expression, or as ``Graph.add``.
    """
    owner = graph or next((one.graph for field in kind.input_fields for one in _expressions(values.get(field))), None)
    if owner is None:
        field = kind.input_fields[0] if kind.input_fields else "graph"
        raise InvalidDescription(kind.operator, field, "must be an Expression, or `graph` be given, got neither")
    return owner.add(
        kind,
        values,
        name=name,
        types={field: given for field, given in (types or {}).items() if given is not None},
        sizes={field: given for field, given in (sizes or {}).items() if given is not None},
        absent=[field for field, present in (wanted or {}).items() if not present],
    )


def single(kind: type[OperatorDesc], name: str | None, values: Mapping[str, Any], **options: Any) -> Expression:
    """Add an operator with one output; see ``several``."""
    output: Expression = several(kind, name, values, **options)[0]
    return output


def _expressions(given: Any) -> Iterator[Expression]:
    if isinstance(given, Expression):
        yield given
    elif isinstance(given, Sequence):
        yield from (one for one in given if isinstance(one, Expression))
