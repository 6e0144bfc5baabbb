"""What a wrong call prints: the line that was typed, one frame of dmlgpu, one sentence that ends with the cure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAD = "import numpy as np\nimport dmlgpu\nimport dmlgpu.array as xp\nfrom dmlgpu import Tensor, ops\n"

CALLS = {
    'ops.softmax("x")': "softmax: x must be a Tensor or an array, got str",
    "ops.softmax(np.ones((2, 2), np.int32))": (
        "softmax: x must be float32 or float16 in ACTIVATION_SOFTMAX1, got int32; convert it with x.astype('float32')"
    ),
    "ops.softmax([[1, 2]])": (
        "softmax: x must be float32 or float16 in ACTIVATION_SOFTMAX1, got int64; convert it with "
        "ops.astype(x, 'float32')"
    ),
    "ops.conv2d(np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 3, 3), np.float16))": (
        "conv2d: weight must be float32 like the other operands, got float16; convert it with weight.astype('float32')"
    ),
    "ops.concatenate([Tensor([1.5]), np.ones((2,) * 9, np.float32)])": (
        "concatenate: arrays[1] must have at most 8 dimensions, got 9"
    ),
    "Tensor([1], 'uint64') + Tensor([1])": (
        "a + b: operands must have a common type, got UINT64 of a and INT64 of b; convert one of them, such as "
        "b.astype('uint64')"
    ),
    "Tensor([True]) - Tensor([True])": (
        "a - b: a and b must not both be masks; a ^ b (logical_xor) is where they differ, a.astype('int64') makes "
        "integers"
    ),
    "Tensor([1]) ** -1": (
        "a ** b: exponents of integers must not be negative, got -1; convert the base with astype('float32')"
    ),
    "xp.sort(Tensor([True]))": (
        "sort: x must be of a type of kind integer or floating-point, got BOOL; x.astype('int64') converts it"
    ),
}


def printed(line: str, tmp_path: Path, **environment: str) -> str:
    """Run a script of one line, which must fail, and return what it prints."""
    script = tmp_path / "typed.py"
    script.write_text(f"{HEAD}\n{line}\n", encoding="utf-8")
    variables = {**os.environ, "DMLGPU_ADAPTER": "numpy", **environment}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 1
    return done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("line", CALLS)
def test_a_wrong_call_prints_its_line_and_one_sentence(line: str, tmp_path: Path) -> None:
    text = printed(line, tmp_path)
    assert text.count("Traceback") == 1
    assert text.count("  File ") == 2, text
    assert f'typed.py", line 6, in <module>\n    {line}' in text
    assert text.endswith(f"dmlgpu.common.errors.InvalidArgument: {CALLS[line]}\n")


@pytest.mark.slow
def test_all_frames_can_be_kept(tmp_path: Path) -> None:
    line = "ops.softmax(np.ones((2, 2), np.int32))"
    text = printed(line, tmp_path, DMLGPU_TRACEBACK="full")
    assert text.count("  File ") > 10
    assert "validation.py" in text
    assert "The above exception was the direct cause of the following exception" in text
    assert text.endswith(f"dmlgpu.common.errors.InvalidArgument: {CALLS[line]}\n")


@pytest.mark.slow
def test_frames_of_the_users_own_functions_stay(tmp_path: Path) -> None:
    line = "step = lambda x: ops.softmax(x); dmlgpu.compile(step)(Tensor([1, 2]))"
    text = printed(line, tmp_path)
    assert "in <lambda>" in text
    assert text.count("Traceback") == 1
    assert text.endswith("softmax: x must be float32 or float16 in ACTIVATION_SOFTMAX1, got int64; convert it with "
                         "x.astype('float32')\n")  # fmt: skip


def test_a_misspelled_function_is_suggested_once(tmp_path: Path) -> None:
    text = printed("ops.sofmax(1)", tmp_path)
    assert text.endswith("module 'dmlgpu.ops' has no attribute 'sofmax'; did you mean ops.softmax?\n")
