"""Messages of rejected descriptions."""

from __future__ import annotations

import pytest

from dmlgpu.catalog import validation
from dmlgpu.catalog.enums import FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidDescription
from dmlgpu.compiler import operators

NEWEST = FeatureLevel.LEVEL_6_4


def rejection(desc: OperatorDesc, level: FeatureLevel = NEWEST) -> str:
    """Return the whole message with which an operator's own checks reject a description."""
    with pytest.raises(InvalidDescription) as caught:
        operators.check(desc, level)
    return str(caught.value)


def table_rejection(desc: OperatorDesc, level: FeatureLevel = NEWEST) -> str:
    """Return the whole message with which the catalog's tables reject a description."""
    with pytest.raises(InvalidDescription) as caught:
        validation.validate(desc, level)
    return str(caught.value)
