"""Every operator's eager function, on the conformance cases: it computes what ``evaluate`` does with them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlgpu import Device, DmlError, OperatorDesc, Tensor, TensorDesc, evaluate
from dmlgpu.catalog import catalog
from dmlgpu.conformance.cases import registry
from dmlgpu.ops import directml
from tests.wrong_arguments import HUGE, Hostile

ROOT = Path(__file__).parents[3]
QUICK = (ROOT / "dmlgpu/conformance/cases/quick.txt").read_text(encoding="utf-8").split()

LEADING_ONES = ("MULTIHEAD_ATTENTION", "MULTIHEAD_ATTENTION1", "NONZERO_COORDINATES")
"""Operators whose outputs have as many leading 1s as their description says; functions give them none."""

PER_OPERATOR = 3

CASES: dict[str, list[Any]] = {}
for _case in map(registry.case_by_name, QUICK):
    CASES.setdefault(_case.desc.operator, []).append(_case)


@pytest.fixture(scope="module")
def device() -> Device:
    return Device("numpy")


def call(desc: OperatorDesc, arrays: Any, device: Device) -> list[Any]:
    """What an operator's function returns for a case's inputs and attributes, flat."""
    function = getattr(directml, desc.stem)
    parameters = inspect.signature(function).parameters
    flat = iter(arrays)

    def tensor(desc: TensorDesc | None) -> Tensor | None:
        array = next(flat)
        return None if desc is None or array is None else Tensor(array, desc.data_type, device=device)

    def parameter(field: str) -> str:
        return field.replace("_tensors", "s").removesuffix("_tensor")

    arguments: dict[str, Any] = {}
    for field in desc.input_fields:
        value = getattr(desc, field)
        arguments[parameter(field)] = [tensor(entry) for entry in value] if isinstance(value, tuple) else tensor(value)
    for field, value in desc.values.items():
        if field not in desc.input_fields and field not in desc.output_fields:
            arguments[parameter(field)] = value
        if field in desc.output_fields and parameter(field) in parameters:
            arguments[parameter(field)] = value is not None
    present = [slot.tensor for slot in desc.outputs if slot.tensor is not None]
    if "output_sizes" in parameters and not (
        desc.operator == "ROI_ALIGN_GRAD" and desc.values["output_gradient_tensor"] is None
    ):
        arguments["output_sizes"] = (
            [output.sizes for output in present] if desc.operator == "SPLIT" else list(present[0].sizes)
        )
    if "output_type" in parameters:
        arguments["output_type"] = present[-1].data_type.name.lower()
    result = function(**arguments, device=device)
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("operator", catalog())
def test_results_match_evaluate(operator: str, device: Device) -> None:
    for case in CASES[operator][:PER_OPERATOR]:
        arrays = case.inputs()
        expected = evaluate(case.desc, arrays, device)
        results = [output for output in call(case.desc, arrays, device) if output is not None]
        assert len(results) == len(expected)
        for tensor, want in zip(results, expected, strict=True):
            got = np.asarray(tensor)
            if operator == "NONZERO_COORDINATES" and want.shape[-1] > 1:  # a case may request fewer coordinates
                got = got[: want.shape[-2], -want.shape[-1] :]
            if operator in LEADING_ONES:
                got = got.reshape(want.shape)
            assert isinstance(tensor, Tensor)
            assert got.shape == want.shape
            assert np.array_equal(got, want, equal_nan=want.dtype.kind == "f"), case.name


def test_every_function_names_its_parameters() -> None:
    for operator in catalog().values():
        function = getattr(directml, operator.stem)
        parameters = inspect.signature(function).parameters
        assert function.__doc__ is not None
        assert [name for name in parameters if f"\n        {name}: " not in function.__doc__] == []


WRONG = ("x", [], [object()], object(), HUGE, Hostile(), np.array([None]), 1.5, -99)
"""Wrong values for most arguments; what some of them take is taken."""


@pytest.mark.slow
def test_wrong_arguments_are_rejected(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dmlgpu.runtime.device._Default.by_environment", device
    )  # for arrays without a tensor among the operands
    x = Tensor(np.ones((1, 2, 4, 4), np.float32), device=device)
    usual = {
        "int": 1,
        "float": 1.0,
        "bool": False,
        "Sequence[int]": (1, 1, 1, 1),
        "Sequence[Operand]": [x],
        "Operand": x,
    }
    refused = 0
    for operator in catalog().values():
        function = getattr(directml, operator.stem)
        parameters = inspect.signature(function).parameters.values()
        good = {
            parameter.name: usual.get(str(parameter.annotation), "x")
            for parameter in parameters
            if parameter.default is parameter.empty
        }
        for name, wrong in ((parameter.name, wrong) for parameter in parameters for wrong in WRONG):
            try:
                function(**{**good, name: wrong})
            except DmlError as error:
                refused += 1
                assert len(str(error)) < 1000
            except Exception as error:
                raise AssertionError(f"{operator.stem}({name}={type(wrong).__name__}): {error!r}") from error
    assert refused > 5000
