"""Functions and activations over all float16 values, and powers at the edges of float32, on every adapter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dmlgpu import descs, reference
from dmlgpu.conformance.tolerance import Tolerance, Ulp, compare
from dmlgpu.device.device import Device
from dmlgpu.device.evaluate import evaluate
from dmlgpu.enums import DataType
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.operators import activation, functions
from dmlgpu.operators.lowering import Lowering, lowering
from dmlgpu.schema import loader
from dmlgpu.target import AdapterInfo
from dmlgpu.tensor import TensorDesc

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
UNUSUAL = {"Alpha": 0.75, "Beta": -0.5, "Exponent": 1.5}
"""Attributes whose usual value the pages don't give."""


def unary_operators() -> list[str]:
    """Operators of the two families that take one float16 tensor."""
    found = []
    for module in (functions, activation):
        for item in vars(module).values():
            if isinstance(item, type) and issubclass(item, Lowering) and "desc" in vars(item):
                found += [item.desc.operator] if len(item.desc.input_fields) == 1 else []
    return sorted(set(found))


@pytest.fixture(scope="module")
def device(adapter: AdapterInfo) -> Iterator[Device]:
    """A device on each adapter."""
    device = Device(adapter)
    yield device
    device.remove()


def check(device: Device, desc: OperatorDesc, inputs: list[NDArray[Any]], tolerance: Tolerance) -> None:
    (expected,) = reference.evaluate(desc, inputs)
    (got,) = evaluate(desc, inputs, device)
    verdict = compare(expected, got, tolerance)
    assert verdict.ok, f"{desc.operator} of {[array[verdict.worst] for array in inputs]}: {verdict}"


def test_the_families_are_found() -> None:
    assert len(unary_operators()) == 35
    assert all(lowering(operator).shaders for operator in unary_operators())


@pytest.mark.parametrize("operator", unary_operators())
def test_all_halves(device: Device, operator: str) -> None:
    schema = loader.operator(operator)
    fields = [field for field in schema.python_fields if field.type == "FLOAT"]
    attributes = {field.python_name: schema.defaults.get(field.name, UNUSUAL.get(field.name)) for field in fields}
    tensor = TensorDesc(DataType.FLOAT16, HALVES.shape)
    desc = descs.by_name(operator)(input_tensor=tensor, output_tensor=tensor, **attributes)
    check(device, desc, [HALVES], Ulp(1))


def power(base: NDArray[Any], exponent: NDArray[Any]) -> OperatorDesc:
    tensors = [TensorDesc(DataType.from_numpy(array.dtype), array.shape) for array in (base, exponent, base)]
    return descs.ElementWisePow(input_tensor=tensors[0], exponent_tensor=tensors[1], output_tensor=tensors[2])


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_exponents_beyond_the_digits_of_float32(device: Device, dtype: Any) -> None:
    """Bases near 1, of both signs, whose powers lie all over the range."""
    rng = np.random.default_rng(41)
    limits = np.iinfo(dtype)
    exponent = rng.integers(limits.min, int(limits.max) + 1, 1 << 16).astype(dtype)
    exponent[:2] = limits.min, limits.max
    logarithm = rng.uniform(-100, 88, exponent.size) / np.where(exponent == 0, 1, exponent).astype(np.float64)
    base = (np.exp(logarithm) * rng.choice([-1, 1], exponent.size)).astype(np.float32)
    check(device, power(base, exponent), [base, exponent], Ulp(4))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int16, np.uint16])
def test_powers_of_integers_that_are_whole_come_out_whole(device: Device, dtype: Any) -> None:
    """Float32 holds them up to 2**24; from 2**23 they may be one off, as float32 is."""
    pairs = [(b, n) for n in range(9) for b in range(256) if b**n < min(1 << 23, np.iinfo(dtype).max)]
    roots = [(b * b, 0.5) for b in range(2896) if b * b < min(1 << 23, np.iinfo(dtype).max)]
    base, exponent = np.array(pairs + roots).T
    base, exponent = base.astype(dtype), exponent.astype(np.float32)
    (got,) = evaluate(power(base, exponent), [base, exponent], device)
    expected = np.array([b**n for b, n in pairs] + [round(b**0.5) for b, _ in roots]).astype(dtype)
    np.testing.assert_array_equal(got, expected)
