"""The texts with which descriptions are refused."""

from __future__ import annotations

import pytest

from dmlgpu.catalog import validation
from dmlgpu.catalog.enums import FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidDescription
from dmlgpu.compiler import operators

NEWEST = FeatureLevel.LEVEL_6_4


def refusal(desc: OperatorDesc, level: FeatureLevel = NEWEST) -> str:
    """Return the whole text with which an operator's own checks refuse a description."""
    with pytest.raises(InvalidDescription) as caught:
        operators.check(desc, level)
    return str(caught.value)


def table_refusal(desc: OperatorDesc, level: FeatureLevel = NEWEST) -> str:
    """Return the whole text with which the catalog's tables refuse a description."""
    with pytest.raises(InvalidDescription) as caught:
        validation.validate(desc, level)
    return str(caught.value)
