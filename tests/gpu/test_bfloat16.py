"""Operators with tensors of bfloat16 instead of float16, against the NumPy reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DataType, TensorDesc, reference
from dmlgpu.catalog.enums import BFLOAT16
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from dmlgpu.runtime.device import Device

pytest.importorskip("ml_dtypes", reason="NumPy's bfloat16 is not installed")

SHARE = 2.0**-9
"""Allowed error relative to the largest element, besides an ULP: of operators that round intermediate results."""


def replaced(value: Any) -> Any:
    """Return a field of a description with BFLOAT16 in the places of FLOAT16."""
    if value is DataType.FLOAT16:
        return BFLOAT16
    if isinstance(value, TensorDesc) and value.data_type is DataType.FLOAT16:
        return dataclasses.replace(value, data_type=BFLOAT16)
    return tuple(map(replaced, value)) if isinstance(value, tuple) else value


def cases() -> Iterator[Case]:
    """Yield a case of float16 of every operator that has one."""
    for family in OPERATOR_CASES.values():
        name = next((name for name in family.names("quick") if "float16" in name), None)
        if name is not None:
            yield family.case(name)


@pytest.mark.slow
def test_operators(device: Device) -> None:
    count = 0
    for case in cases():
        desc = case.desc.replace(**{name: replaced(value) for name, value in case.desc.values.items()})
        with np.errstate(all="ignore"):
            inputs = [
                array if array is None or array.dtype != np.float16 else array.astype(BFLOAT16.numpy)
                for array in case.inputs()
            ]
        results = [array for array in dmlgpu.evaluate(desc, inputs, device=device) if array is not None]
        outputs = zip(desc.outputs, reference.evaluate(desc, inputs), strict=True)
        expected = [array for slot, array in outputs if slot.tensor is not None]
        for result, array in zip(results, expected, strict=True):
            assert result.dtype == array.dtype, case.name
            assert_near(result, array, case.name)
        count += 1
    assert count > 60


def assert_near(result: Any, expected: Any, name: str) -> None:
    with np.errstate(all="ignore"):
        got, want = result.astype(np.float64), expected.astype(np.float64)
        largest = np.abs(want[np.isfinite(want)]).max(initial=0)
        is_near = np.abs(got - want) <= 2.0**-7 * np.abs(want) + SHARE * largest
    is_near |= (got == want) | (np.isnan(got) & np.isnan(want))
    assert is_near.all(), f"{name}: {got[~is_near]} instead of {want[~is_near]}"
