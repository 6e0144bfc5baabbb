"""Suggestions in messages about missing names."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import dmlgpu
import dmlgpu.array as xp
from dmlgpu import Tensor, ops
from dmlgpu.common import suggestions

NAMES: dict[str, Any] = {"dmlgpu": dmlgpu, "ops": ops, "xp": xp, "tensor": Tensor([1.0], device="numpy")}

SUGGESTED = {
    # typed: how the message ends
    "ops.tensordot": "; use dmlgpu.array.tensordot",
    "ops.hstack": "; use numpy.hstack, which computes on the device of a Tensor",
    "xp.interp": "; use numpy.interp, which computes on the device of a Tensor",
    "ops.repeat": "; use dmlgpu.array.repeat",
    "ops.expm1": "; use dmlgpu.array.expm1",
    "xp.softmax": "; use dmlgpu.ops.softmax",
    "dmlgpu.zeros": "; use dmlgpu.ops.zeros",
    "dmlgpu.float16": "; use dmlgpu.array.float16",
    "dmlgpu.softmax": "; use dmlgpu.ops.softmax",
    "dmlgpu.random.normal": "; use dmlgpu.random.default_rng(seed).normal",
    "dmlgpu.random.randn": "; use dmlgpu.random.default_rng(seed).normal",
    "dmlgpu.random.rand": "; use dmlgpu.random.default_rng(seed).random",
    "dmlgpu.random.manual_seed": "; use dmlgpu.random.seed",
    "dmlgpu.random.choice": "; use dmlgpu.random.default_rng(seed).choice",
    "ops.randint": "; use dmlgpu.random.default_rng(seed).integers",
    "ops.clamp": "; use dmlgpu.ops.clip",
    "xp.clamp": "; use dmlgpu.ops.clip",
    "tensor.clamp": "; use dmlgpu.ops.clip",
    "tensor.relu": "; use dmlgpu.ops.relu",
    "tensor.signbit": "; use dmlgpu.array.signbit",
    # misspelled
    "ops.sofmax": "; did you mean ops.softmax?",
    "ops.layernorm": "; did you mean ops.layer_norm?",
    "ops.argmx": "; did you mean ops.argmax?",
    "ops.conv2": "; did you mean ops.conv2d?",
    "xp.resahpe": "; did you mean array.reshape?",
    "dmlgpu.Tensr": "; did you mean Tensor?",
    "dmlgpu.Devise": "; did you mean Device?",
    "dmlgpu.random.defalt_rng": "; did you mean random.default_rng?",
}

MISLEADING = {
    # must not be suggested
    "ops.quantile": "quantize",
    "ops.tensordot": "sort",
    "ops.outer": "power",
    "ops.svd": "std",
    "ops.nanmean": "did you mean",
    "ops.median": "did you mean",
    "ops.relu6": "did you mean",
    "ops.erfc": "erf?",
    "ops.l1_loss": "nll_loss",
    "ops.mish": "did you mean",
    "ops.softmin": "did you mean",
    "ops.log_sigmoid": "did you mean",
    "dmlgpu.zeros": "errors",
    "dmlgpu.float16": "set_float64",
    "dmlgpu.ndarray": "did you mean",
    "xp.linalg": "did you mean",
    "tensor.iloc": "use",
    "tensor._ipython_display_": ";",
    "ops._sum": ";",
}


def message_of(expression: str) -> str:
    """Return the message of an expression with a missing name; empty if the name exists."""
    try:
        eval(expression, NAMES)
    except AttributeError as error:
        return str(error)
    return ""


def test_names_are_suggested() -> None:
    for expression, end in SUGGESTED.items():
        message, name = message_of(expression), expression.rpartition(".")[2]
        if message:  # ops may have it by now
            assert message.endswith(f"has no attribute {name!r}{end}"), message


def test_nothing_misleading_is_suggested() -> None:
    for expression, suggestion in MISLEADING.items():
        assert suggestion not in message_of(expression), message_of(expression)


def test_equivalents_exist() -> None:
    generator = dmlgpu.random.default_rng(0)
    for name, equivalent in suggestions.EQUIVALENTS.items():
        for target in equivalent.split(", or "):
            assert eval(
                target.removeprefix("dmlgpu."),
                {**vars(dmlgpu), "ops": ops, "array": xp, "random": dmlgpu.random, "Tensor": Tensor, "seed": 0},
            ), name
    drawing = {name for name in dir(generator) if not name.startswith("_")} - {"next_value", "random_raw", "state"}
    assert drawing - {"random"} <= suggestions.EQUIVALENTS.keys()


def test_messages_are_attribute_errors_for_probes() -> None:
    for holder in (dmlgpu, ops, xp, dmlgpu.random, NAMES["tensor"]):
        for name in ("nonsense", "quantum", "no.name"):
            assert getattr(holder, name, None) is None
    with pytest.raises(ImportError):
        from dmlgpu.array import nonsense  # type: ignore[attr-defined]  # noqa: F401


def test_modules_are_imported_without_suggestions() -> None:
    """Importing a module of the package looks up an attribute first, which must not load ``dmlgpu.ops``."""
    code = "import sys; from dmlgpu import common; print('dmlgpu.ops' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
