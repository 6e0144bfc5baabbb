"""A PyDirectML script on every adapter of the machine gives what onnxruntime makes of the same network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dmlgpu.compiler.target import AdapterInfo
from tests.pydirectml_scripts import SCRIPTS, block_expected, block_weights, run_here


def test_a_block_of_a_network(adapter: AdapterInfo, tmp_path: Path) -> None:
    weights = block_weights()
    np.savez(tmp_path / "weights.npz", **weights)
    run_here(SCRIPTS / "block.py", [tmp_path / "weights.npz", tmp_path / "result.npy"], str(adapter))
    np.testing.assert_allclose(np.load(tmp_path / "result.npy"), block_expected(weights), rtol=1e-4, atol=1e-4)
