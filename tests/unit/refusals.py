"""The texts with which descriptions are refused."""

from __future__ import annotations

import pytest

from dmlgpu import operators, validation
from dmlgpu.enums import FeatureLevel
from dmlgpu.errors import InvalidDescription
from dmlgpu.operator_desc import OperatorDesc

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
