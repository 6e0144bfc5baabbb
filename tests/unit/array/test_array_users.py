"""What scikit-learn and SciPy dispatch by the array API gives on tensors what it gives on NumPy's arrays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_scikit_learn_and_scipy() -> None:
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "DMLGPU_ADAPTER": "numpy", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.unit.array.array_users"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if not line.endswith(": as NumPy")] == []
    assert {"MinMaxScaler()", "StandardScaler()", "rbf_kernel", "r2_score", "scipy.special.logsumexp"} <= {
        line.partition(": ")[0] for line in lines
    }
