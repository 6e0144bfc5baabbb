"""A tiny language model in a folder of onnxruntime-genai, and the tokens that onnxruntime generates with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from dmlgpu.demo.language_model import DecoderSizes, write

SIZES = DecoderSizes(
    layers=2, heads=4, kv_heads=2, head_size=16, feed_forward=96, vocabulary=320, context=160, deviation=0.5
)
ADAPTER = "numpy"


def folder_of(path: Path, sizes: DecoderSizes = SIZES) -> Path:
    """Return a folder with a model."""
    write(path / "tiny", sizes)
    return path / "tiny"


def prompt_of(length: int, seed: int = 0) -> list[int]:
    """Return random tokens, none of them special."""
    return [int(token) for token in np.random.default_rng(seed).integers(4, SIZES.vocabulary, length)]


class Expected:
    """Greedy generation by onnxruntime's CPU provider, one prompt at a time, with caches that grow."""

    def __init__(self, folder: Path, sizes: DecoderSizes = SIZES):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, ["CPUExecutionProvider"])
        empty = np.zeros((1, sizes.kv_heads, 0, sizes.head_size), np.float32)
        self._empty = {
            f"past_key_values.{layer}.{part}": empty for layer in range(sizes.layers) for part in ("key", "value")
        }

    def logits(self, tokens: Sequence[int], following: int) -> list[NDArray[np.float32]]:
        """Return logits after some tokens, and after each of the most likely ones that follow."""
        past, new, total = self._empty, list(tokens), 0
        rows = []
        for _ in range(following):
            total += len(new)
            inputs = {"input_ids": np.array([new], np.int64), "attention_mask": np.ones((1, total), np.int64)}
            outputs = self._session.run(None, inputs | past)
            past = dict(zip(past, outputs[1:], strict=True))
            rows.append(outputs[0][0, -1])
            new = [int(rows[-1].argmax())]
        return rows

    def tokens(self, prompt: Sequence[int], count: int) -> list[int]:
        """Return the most likely tokens, up to the first special one."""
        tokens = [int(row.argmax()) for row in self.logits(prompt, count)]
        return tokens[: tokens.index(0) + 1] if 0 in tokens else tokens
