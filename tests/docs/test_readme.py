"""The README's Python runs, in order, and gives what its comments say."""

import re
from pathlib import Path

import numpy as np
import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog import catalog
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler import operators
from tests.unit.rejections import rejection

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


def test_examples_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert np.allclose(names["probabilities"], np.exp([-2, -1, 0]) / np.exp([-2, -1, 0]).sum())
    assert names["hidden"].tolist() == [[1, 0]]
    assert np.array_equal(names["indices"], [[1], [2]])


def test_quoted_error_is_what_is_raised() -> None:
    quoted = "GATHER_ND1: indices_tensor.sizes[-1] must be at most input_dimension_count (2), got 3"
    assert quoted in README.read_text()
    assert quoted in " ".join((ROOT / "docs" / "devices.md").read_text().split())
    desc = descs.GatherNd1(
        input_tensor=TensorDesc(DataType.FLOAT32, (2, 2)),
        indices_tensor=TensorDesc(DataType.INT32, (4, 3)),
        output_tensor=TensorDesc(DataType.FLOAT32, (4, 2)),
        input_dimension_count=2,
        indices_dimension_count=2,
        batch_dimension_count=0,
    )
    assert rejection(desc) == quoted


def test_all_operators_run_as_it_says() -> None:
    assert f"All {len(catalog())} operators of DirectML (feature level 6.4) run" in README.read_text()
    assert operators.implemented() == catalog().keys()
