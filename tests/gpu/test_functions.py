"""Functions and activations over all float16 values, and powers at the edges of float32, on every adapter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dmlgpu import descs, reference
from dmlgpu.catalog import loader
from dmlgpu.catalog.enums import DataType, FeatureLevel, IsInfinityMode, RoundingMode
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler.operators.activation import Activation
from dmlgpu.compiler.operators.arithmetic import FloatFunction
from dmlgpu.compiler.operators.elementwise import ElementWise, ElementWiseIdentity
from dmlgpu.compiler.operators.lowering import Lowering, lowering
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.cases.tolerance import CORRECTLY_ROUNDED, Tolerance, Ulp
from dmlgpu.conformance.running.outcome import compare
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.evaluate import evaluate

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
UNUSUAL = {"Alpha": 0.75, "Beta": -0.5, "Exponent": 1.5, "Min": -1.5, "Max": 2.5}
"""Attributes whose default the pages omit."""
MODES: dict[str, Any] = {"DML_ROUNDING_MODE": RoundingMode, "DML_IS_INFINITY_MODE": IsInfinityMode}
FUNCTIONS = (FloatFunction, Activation)
ARITHMETIC = (ElementWise, ElementWiseIdentity)


def unary_operators(*families: type[Lowering]) -> list[str]:
    """Operators of some families, without those of others, that take one tensor, which may be of float16."""
    names = {name for name in operators.implemented() if issubclass(lowering(name), families)}
    if families == ARITHMETIC:
        names -= {"CAST", *unary_operators(*FUNCTIONS)}
    return sorted(name for name in names if len(inputs := tensors(name)) == 1 and DataType.FLOAT16 in inputs[0].types)


def tensors(operator: str) -> list[loader.TensorSupport]:
    """What the newest feature level says of an operator's inputs."""
    schema = loader.operator(operator)
    support = schema.support_at(FeatureLevel.LEVEL_6_4)
    return [support[field.name] for field in schema.tensor_fields if field.kind is loader.FieldKind.INPUT]


def of_halves(operator: str) -> Iterator[OperatorDesc]:
    """Descriptions over all float16 values, one for every member of an enumeration."""
    schema = loader.operator(operator)
    members = [(None, None)]
    attributes: dict[str, Any] = {}
    for field in schema.python_fields:
        if field.type in ("FLOAT", "SCALAR_UNION"):
            attributes[field.python_name] = schema.defaults.get(field.name, UNUSUAL.get(field.name))
        elif field.type == "DML_TENSOR_DATA_TYPE":
            attributes[field.python_name] = DataType.FLOAT16
        elif field.type in MODES:
            members = [(field.python_name, member) for member in MODES[field.type]]
    results = schema.support_at(FeatureLevel.LEVEL_6_4)["OutputTensor"].types
    output = TensorDesc(DataType.FLOAT16 if DataType.FLOAT16 in results else DataType.UINT8, HALVES.shape)
    tensor = TensorDesc(DataType.FLOAT16, HALVES.shape)
    for name, member in members:
        chosen = {} if name is None else {name: member}
        yield descs.by_name(operator)(input_tensor=tensor, output_tensor=output, **attributes, **chosen)


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
    assert (len(unary_operators(*FUNCTIONS)), len(unary_operators(*ARITHMETIC))) == (35, 14)
    assert all(lowering(operator).shaders for operator in unary_operators(*FUNCTIONS))


@pytest.mark.parametrize("operator", unary_operators(*FUNCTIONS))
def test_functions_of_all_float16(device: Device, operator: str) -> None:
    for desc in of_halves(operator):
        check(device, desc, [HALVES], Ulp(1))


@pytest.mark.parametrize("operator", unary_operators(*ARITHMETIC))
def test_arithmetic_on_all_float16(device: Device, operator: str) -> None:
    for desc in of_halves(operator):
        check(device, desc, [HALVES], CORRECTLY_ROUNDED)


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
