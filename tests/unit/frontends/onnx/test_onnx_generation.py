"""Generation with a cache by a tiny decoder on the adapter numpy, against onnxruntime and without a cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest

from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.session import runner_of
from tests.decoders import empty_caches, generated, numbers, stepping, tiny

PROMPT, COUNT = [7, 3, 11], 8


@pytest.mark.slow
def test_generation() -> None:
    model, size = tiny()
    session = load(model, "numpy")
    step = stepping(session, size)
    tokens = generated(step, PROMPT, COUNT)
    assert len(set(tokens)) > 1

    other = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    caches = empty_caches(size)

    def other_step(new: Sequence[int], before: int) -> np.ndarray:
        scores, *present = other.run(None, numbers(new, before) | caches)
        caches.update(zip([past for past, _ in size.caches], present, strict=True))
        return np.asarray(scores[0])

    assert generated(other_step, PROMPT, COUNT) == tokens

    # without a cache: all tokens so far at once
    prefix = [*PROMPT, *tokens[:-1]]
    for past, present in size.caches:
        session.bind(past, empty_caches(size)[past], updated_by=present)
    whole = step(prefix, 0)
    cached = stepping(session, size)
    for index, token in enumerate(prefix):
        scores = cached([token], index)
    np.testing.assert_allclose(whole, scores, rtol=1e-4, atol=1e-5)
    assert int(whole.argmax()) == tokens[-1]


def test_steps_share_compiled_graphs() -> None:
    model, size = tiny()
    session = load(model, "numpy")
    generated(stepping(session, size), PROMPT, 3)
    compiled = len(runner_of(session).stages)
    generated(stepping(session, size), PROMPT, 6)
    assert len(runner_of(session).stages) == compiled
