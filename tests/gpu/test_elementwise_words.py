"""Element-wise operators on 64-bit integers, on devices that may not use the adapter's own 64-bit arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dmlgpu.conformance.cases.registry import OPERATOR_CASES, case_by_name
from dmlgpu.conformance.running.runner import run_case
from dmlgpu.runtime.device import Device
from tests.gpu.usable import usable_adapters

ARITHMETIC = [
    *("abs", "add", "clip", "clip1", "clip_grad", "clip_grad1", "divide", "max", "min", "modulus_floor"),
    *("modulus_truncate", "multiply", "negate", "sign", "subtract"),
]
BITS = ["bit_and", "bit_count", "bit_not", "bit_or", "bit_shift_left", "bit_shift_right", "bit_xor", "if"]
RELATIONS = ["equals", "greater_than", "greater_than_or_equal", "less_than", "less_than_or_equal"]
STEMS = [
    *(f"element_wise_{name}" for name in (*ARITHMETIC, *BITS)),
    *(f"element_wise_logical_{name}" for name in RELATIONS),
    *("fill_value_constant", "fill_value_sequence"),
]
PER_OPERATOR = 6


def _names() -> Iterator[str]:
    for stem in STEMS:
        cases = OPERATOR_CASES[stem]
        wide = [
            combination
            for combination in cases.combinations()
            if combination.types[0].bits == 64 and not combination.types[0].is_float
        ]
        yield from (f"{stem}-{cases.key_of(combination)}" for combination in wide[:: max(len(wide) // PER_OPERATOR, 1)])


CAPABLE = [info for info in usable_adapters(numpy=True) if "shader-int64" in info.features]
REASON = "no adapter of this machine has 64-bit integers that could be left unused"


@pytest.fixture(
    scope="module",
    params=CAPABLE or [pytest.param(None, marks=pytest.mark.skip(reason=REASON))],
    ids=lambda info: "none" if info is None else f"{info.backend}-{info.name.split(' (')[0]}",
)
def without_wide(request: pytest.FixtureRequest) -> Iterator[Device]:
    """A device that leaves the adapter's 64-bit integers alone."""
    device = Device(request.param, disabled_features=("shader-int64",))
    yield device
    device.remove()


@pytest.mark.parametrize("name", list(_names()))
def test_pairs_of_words(without_wide: Device, name: str) -> None:
    verdict = run_case(case_by_name(name), without_wide)
    assert verdict.ok, f"{name}: {verdict}"
