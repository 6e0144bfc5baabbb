"""Division of integers on every adapter: all pairs of bytes, and wider integers around all that drivers get wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import dmlgpu
from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.runtime.device import Device
from tests.gpu.usable import identifier, usable_adapters


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


OPERATORS = {
    descs.ElementWiseDivide: lambda a, b: truncated(a, b) if b else -1,
    descs.ElementWiseModulusTruncate: lambda a, b: a - b * truncated(a, b) if b else -1,
    descs.ElementWiseModulusFloor: lambda a, b: a % b if b else -1,
}


@pytest.fixture(scope="module", params=usable_adapters(numpy=True), ids=identifier)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """A device on each adapter."""
    device = Device(request.param)
    yield device
    device.remove()


def numbers(data_type: DataType) -> list[int]:
    """All bytes; of wider types the limits, small numbers, powers of two and their neighbors, and some at random."""
    limits = np.iinfo(data_type.numpy)
    smallest, largest = int(limits.min), int(limits.max)
    if data_type.bits == 8:
        return list(range(smallest, largest + 1))
    powers = [sign * (1 << place) + off for place in range(data_type.bits) for sign in (1, -1) for off in (-1, 0, 1)]
    rng = np.random.default_rng(data_type)
    random = rng.integers(smallest, largest, 60, data_type.numpy, endpoint=True).tolist()
    return [n for n in dict.fromkeys([*range(-12, 13), *powers, *random]) if smallest <= n <= largest]


@pytest.mark.parametrize("data_type", [t for t in DataType if t.bits >= 8 and not t.is_float], ids=lambda t: t.name)
@pytest.mark.parametrize("desc_class", OPERATORS, ids=lambda c: c.operator.lower())
def test_all_pairs(device: Device, desc_class: type, data_type: DataType) -> None:
    chosen = numbers(data_type)
    a = np.repeat(np.array(chosen, data_type.numpy), len(chosen))
    b = np.tile(np.array(chosen, data_type.numpy), len(chosen))
    tensor = TensorDesc(data_type, a.shape)
    (result,) = dmlgpu.evaluate(desc_class(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor), [a, b], device)
    modulus = 1 << data_type.bits
    expected = [OPERATORS[desc_class](x, y) % modulus for x in chosen for y in chosen]
    np.testing.assert_array_equal(result.view(f"u{data_type.bits // 8}"), np.array(expected, np.uint64))
