"""scripts/torch_operators.py: what results are compared with, and how much they may err."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, whose operators are tested, is not installed")

import torch_operators  # noqa: E402
from torch.testing._internal.opinfo.core import SampleInput  # noqa: E402


def verdict(name: str, dtype: Any, cpu: float, dml: float, sample: SampleInput) -> str:
    """Return the verdict on an operator that returns 1e5 and 1, to which each device adds an error in `dtype`."""

    def operator(x: Any, **options: Any) -> Any:
        result = torch.tensor([1e5, 1.0], dtype=options.get("dtype", x.dtype), device=x.device)
        if result.dtype is dtype:
            result[1] += {"cpu": cpu, "dml": dml}[x.device.type]
        return result

    operator.name = name  # type: ignore[attr-defined]
    options = argparse.Namespace(repeats=1, gradients=False)
    ((_, status, _),) = torch_operators.try_sample(operator, sample, options)
    return status


@pytest.mark.parametrize(
    ("name", "error", "status"), [("matrix_exp", 0.09, "right"), ("matrix_exp", 0.2, "wrong"), ("exp", 0.09, "wrong")]
)
def test_inexact_operators_may_err_by_twice_the_error_of_the_cpu(name: str, error: float, status: str) -> None:
    assert verdict(name, torch.float32, 0.05, error, SampleInput(torch.ones(2))) == status


@pytest.mark.parametrize(("error", "status"), [(0.0, "right"), (0.25, "right"), (1.0, "wrong")])
def test_bfloat16_is_compared_with_float32_if_only_a_dtype_asks_for_it(error: float, status: str) -> None:
    sample = SampleInput(torch.ones(2), kwargs={"dtype": torch.bfloat16})
    assert verdict("logspace", torch.bfloat16, 0.25, error, sample) == status
