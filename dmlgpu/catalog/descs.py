"""Typed descriptions of DirectML's operators, one class each, created from ``operators.json`` on first access.

DirectML's interface has no defaults. Those of attributes here are the recommendations of its documentation, and the
defaults of DirectMLX, PyDirectML and ONNX (``dmlgpu/catalog/defaults.py``). Data types and ranks in the docstrings are
those of the newest feature level; ``dmlgpu.catalog.catalog()`` has those of all levels. ``dmlgpu ops NAME`` prints the
formula and all other facts about an operator.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from dmlgpu.catalog import aliases, catalog, class_name
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias, Size2D, desc_class  # noqa: F401 - fields have these types
from dmlgpu.catalog.tensor_desc import TensorDesc  # noqa: F401
from dmlgpu.common.errors import InvalidArgument, shown


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return ["OperatorDesc", "ScaleBias", "Size2D", "TensorDesc", *_operators(), "all_descs", "by_name"]
    operator = _operators().get(name)
    if operator is not None:
        # Another thread may have been first: its class stays.
        return globals().setdefault(name, desc_class(catalog()[operator], __name__))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_operators()})


@functools.cache
def _operators() -> Mapping[str, str]:
    return {class_name(operator): operator for operator in catalog()}


def all_descs() -> tuple[type[OperatorDesc], ...]:
    """Return all description classes, in the order of DML_OPERATOR_TYPE."""
    return tuple(map(by_name, catalog()))


def by_name(operator: str) -> type[OperatorDesc]:
    """Return the description class of an operator by DirectML's name (``GATHER_ND1``) or an alias (``SCATTER``).

    Raises:
        InvalidArgument: If there is no such operator.
    """
    name = None
    if isinstance(operator, str):
        name = operator if operator in catalog() else aliases().get(operator)
    if name is None:
        raise InvalidArgument(f"DirectML has no operator {shown(operator)}")
    return globals().get(class_name(name)) or __getattr__(class_name(name))
