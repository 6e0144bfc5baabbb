"""A tiny decoder with a cache, written by scripts/export_decoder.py, and generation with it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from dmlgpu.frontends.onnx.session import Session

SCRIPT = Path(__file__).parent.parent / "scripts" / "export_decoder.py"
CACHE = 16

Step = Callable[[Sequence[int], int], np.ndarray]
"""Scores of the next token, from new tokens and the number of earlier ones."""


def exporter() -> Any:
    """Import the script as a module."""
    spec = importlib.util.spec_from_file_location("export_decoder", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["export_decoder"] = module
    spec.loader.exec_module(module)
    return module


def tiny() -> tuple[onnx.ModelProto, Any]:
    """A decoder of two layers, and its size."""
    module = exporter()
    size = module.Size(layers=2, heads=2, hidden=32, vocabulary=50, places=CACHE, deviation=0.3)
    return module.decoder(size), size


def empty_caches(size: Any) -> dict[str, np.ndarray]:
    """Caches of zeros, by the names of inputs."""
    rows = (1, size.heads, CACHE, size.hidden // size.heads)
    return {past: np.zeros(rows, np.float32) for past, _ in size.caches}


def numbers(new: Sequence[int], before: int) -> dict[str, np.ndarray]:
    """Return the inputs of a step other than the caches."""
    last = before + len(new) - 1
    return {
        "input_ids": np.array([new], np.int64),
        "seqlens_k": np.array([last], np.int32),
        "total_sequence_length": np.array(last + 1, np.int32),
    }


def stepping(session: Session, size: Any) -> Step:
    """Steps of a session whose caches stay on the device."""
    zeros = empty_caches(size)
    for past, present in size.caches:
        session.bind(past, zeros[past], updated_by=present)
    return lambda new, before: session.run(numbers(new, before))["logits"][0]


def generated(step: Step, prompt: Sequence[int], count: int) -> list[int]:
    """Return the most likely tokens after a prompt."""
    tokens: list[int] = []
    new, before = list(prompt), 0
    for _ in range(count):
        token = int(step(new, before).argmax())
        before += len(new)
        new = [token]
        tokens.append(token)
    return tokens
