"""Drafts of the next tokens, for speculative decoding.

A step takes nearly the same time for one token as for a few, if weights are read from memory once. So some cheap method
drafts tokens, and one step of the model takes its own token after each of them. Drafts that equal the model's tokens
are kept, and the first token that differs from its draft replaces it: the answer is that of the model alone. For
sampled tokens, this is rejection sampling: a draft is kept with the probability that the model gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from dmlgpu.frontends.generation.decoding import CachedDecoding
from dmlgpu.frontends.generation.sampling import read_words
from dmlgpu.ops import concatenate
from dmlgpu.tensors.tensor import Tensor

_NGRAMS = (3, 2)
"""Numbers of tokens that must have occurred before, the first one that has."""


class DraftMethod(Protocol):
    """A method of drafting tokens.

    Attributes:
        count: Maximum number of tokens of a draft.
    """

    count: int

    def begin(self) -> None:
        """Start a generation."""

    def propose(self, tokens: Sequence[int]) -> list[int]:
        """Return tokens that may follow prompt and answer so far; empty if there is no guess."""


def agreed_count(drafts: Sequence[int], tokens: Sequence[int]) -> int:
    """Return how many drafts equal the tokens that the model takes in their place."""
    pairs = enumerate(zip(drafts, tokens, strict=False))
    return next((index for index, (draft, token) in pairs if draft != token), len(drafts))


class NgramDraft:
    """Drafts the tokens that followed the last ones when they occurred before, in the prompt or the answer."""

    count = 7

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget the last generation."""
        self._following: dict[tuple[int, ...], int] = {}
        self._end = 0

    def propose(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens after the last occurrence of the last three or two tokens."""
        for end in range(self._end, len(tokens)):
            self._following |= {tuple(tokens[end - size : end]): end for size in _NGRAMS if size <= end}
        self._end = len(tokens)
        for size in _NGRAMS:
            start = self._following.get(tuple(tokens[-size:]))
            if start is not None:
                return list(tokens[start : start + self.count])
        return []


class ModelDraft:
    """Drafts the most likely tokens of a smaller model.

    Args:
        decoding: Decoding of the model, which nothing else uses.

    Attributes:
        memory: Device memory of the model.
    """

    count = 3

    def __init__(self, decoding: CachedDecoding):
        self._decoding = decoding
        self.memory = decoding.memory
        self._cached: list[int] = []

    def begin(self) -> None:
        """Keep the caches, of which the next prompt may use rows."""

    def propose(self, tokens: Sequence[int]) -> list[int]:
        """Run the tokens that are not in the caches, and some of the most likely tokens."""
        if len(tokens) + self.count > self._decoding.context:
            return []
        cached, self._cached = self._cached, []  # after an exception, the content of the caches is unknown
        pairs = enumerate(zip(tokens[:-1], cached, strict=False))
        known = next((index for index, (token, other) in pairs if token != other), min(len(tokens) - 1, len(cached)))
        rest = tokens[known:]
        if len(rest) > 2:
            _, best = self._decoding.prefill([tokens], self._decoding.prepare([tokens], cached))
        else:
            self._decoding.keep([known])
            for token in rest:
                _, best = self._decoding.step(self._tensor(token))
        drafts = [best]
        while len(drafts) < self.count:
            drafts.append(self._decoding.step(drafts[-1])[1])
        words = read_words(concatenate(drafts, axis=0)).result().view(np.int32)
        result = [int(word) for word in words]
        self._cached = [*tokens, *result[:-1]]
        return result

    def _tensor(self, token: int) -> Tensor:
        return Tensor(np.array([[token]], np.int32), device=self._decoding.device)
