"""The logits of a generation, recorded where tokens are chosen from them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dmlgpu.frontends.generation.sampling import Sampler


@contextlib.contextmanager
def recorded_logits() -> Iterator[list[NDArray[np.float32]]]:
    """Collect the logits {batch, vocabulary} of each step of the generations inside the block."""
    steps: list[NDArray[np.float32]] = []
    take = Sampler.next

    def recording(self: Sampler, logits: Any, best: Any) -> Any:
        steps.append(logits.numpy())
        return take(self, logits, best)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Sampler, "next", recording)
        yield steps
