"""A token of a language model, as a workload: ``Workload.model`` is a folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dmlgpu.bench.counting import Counts
from dmlgpu.bench.prepared import Init, Readiness, ResultCheck, Sample
from dmlgpu.common.errors import NotSupported
from dmlgpu.runtime.device import Device

CONTEXT = 1024
"""Rows of the caches. A prompt starts over when they are full."""

PROMPT = (5, 60, 67, 74, 81, 88, 95, 102)
"""Tokens of the prompt."""


class PreparedToken:
    """A language model whose next token is measured, with the choice of the most likely one; caches stay on the device.

    Args:
        device: Device to run on.
        folder: Folder of the model.
        clock: Returns seconds.

    Raises:
        NotSupported: If a package is missing.
        DmlError: If the model cannot be loaded.
    """

    def __init__(self, device: Device, folder: Path, clock: Callable[[], float] = time.perf_counter):
        try:
            from dmlgpu.frontends.generation.generator import Generator  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise NotSupported(f"language models need the extra `dmlgpu[llm]`: {error}") from None
        self._clock = clock
        start = clock()
        self._generator = Generator.load(folder, device, context=CONTEXT)
        self._left, self._tokens = 0, self._start()
        total = clock() - start
        start = clock()
        next(self._tokens)
        self.readiness = Readiness(
            Init(total), clock() - start, ResultCheck("unchecked", "weights are random"), Counts(0, 0)
        )

    def _start(self) -> Iterator[int]:
        """Run the prompt and return the tokens after the first."""
        tokens = self._generator.generate_tokens(list(PROMPT))
        next(tokens)
        self._left = CONTEXT - len(PROMPT) - 2
        return tokens

    def round(self, calls: int) -> Sample:
        """Generate a number of tokens; return the time per token."""
        if calls > self._left:
            self._tokens = self._start()
        self._left -= calls
        cpu, start = time.thread_time(), self._clock()
        for _ in range(calls):
            next(self._tokens)
        wall = (self._clock() - start) / calls
        return Sample(None, wall, (time.thread_time() - cpu) / calls)

    def close(self) -> None:
        """Release the model."""
        del self._tokens, self._generator
