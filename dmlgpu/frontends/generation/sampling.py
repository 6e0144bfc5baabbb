"""Sampling on the device: the next token from logits, without reading them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlgpu import ops
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import random
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tracing.compiled import compile as traced

_SEEDS = 2**64
_LARGEST = 3.4e38
"""Bound of numbers on the device, which are float32."""

_MIN_TEMPERATURE = 1e-6
"""Lower temperatures give the same tokens, but divided logits would overflow."""

_MIN_POSITIVE = 1e-30


@dataclass(frozen=True)
class SamplingOptions:
    """Options of choosing tokens.

    Attributes:
        temperature: Divides the logits; 0 always takes the most likely token.
        top_k: Only this many of the most likely tokens; 0 for all.
        top_p: Only the most likely tokens whose probabilities reach this sum together.
        repetition_penalty: Divides positive logits of tokens that occurred, in the prompt or after it, and multiplies
            negative ones.
        seed: Key of the random numbers, 0 to 2^64 - 1; None draws one from the operating system.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    def check(self, label: str) -> None:
        """Raise InvalidArgument if an option is out of range."""
        limits: dict[str, tuple[bool, str]] = {
            "temperature": (_is_number(self.temperature) and self.temperature >= 0, "a number from 0 to 3.4e38"),
            "top_k": (_is_integer(self.top_k) and self.top_k >= 0, "an integer of at least 0"),
            "top_p": (_is_number(self.top_p) and 0 < self.top_p <= 1, "above 0 and at most 1"),
            "repetition_penalty": (
                _is_number(self.repetition_penalty) and self.repetition_penalty > 0,
                "above 0, at most 3.4e38",
            ),
            "seed": (self.seed is None or (_is_integer(self.seed) and 0 <= self.seed < _SEEDS), "from 0 to 2^64 - 1"),
        }
        for name, (holds, expected) in limits.items():
            if not holds:
                raise InvalidArgument(f"{label}: {name} must be {expected}, got {shown(getattr(self, name))}")

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken, and logits are used as they are."""
        return self._is_certain and self.repetition_penalty == 1

    @property
    def _is_certain(self) -> bool:
        return self.temperature == 0 or self.top_k == 1


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float | np.floating | np.integer)
        and not isinstance(value, bool)
        and bool(-_LARGEST <= value <= _LARGEST)
    )


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


class Sampler:
    """Takes tokens from logits.

    Args:
        device: Device of the logits.
        vocabulary: Number of logits.
    """

    def __init__(self, device: Device, vocabulary: int):
        self._device, self._vocabulary = device, vocabulary
        self._compiled: dict[tuple[int, bool, bool, bool], Any] = {}
        self._random = random.default_rng(0, device=device)
        self._options = SamplingOptions()
        self._numbers: Tensor | None = None
        self._occurred: Tensor | None = None

    def begin(self, options: SamplingOptions, prompts: Sequence[Sequence[int]]) -> None:
        """Start a generation."""
        self._options = options
        seed = options.seed
        self._random.state = (0, random.default_rng(None).state[1] if seed is None else int(seed))
        bounds = (_MIN_TEMPERATURE, _MIN_POSITIVE, _MIN_POSITIVE)
        values = (options.temperature or 1.0, options.top_p, options.repetition_penalty)
        numbers = [max(bound, value) for bound, value in zip(bounds, values, strict=True)]
        self._numbers = Tensor(np.array(numbers, np.float32), device=self._device)
        self._occurred = None
        if options.repetition_penalty != 1:
            occurred = np.zeros((len(prompts), self._vocabulary), np.float32)
            for row, prompt in zip(occurred, prompts, strict=True):
                row[list(prompt)] = 1
            self._occurred = Tensor(occurred, device=self._device)

    def next(self, logits: Tensor, best: Tensor) -> Tensor:
        """Return the next tokens {batch, 1} INT32, from logits {batch, vocabulary} and the most likely tokens."""
        options = self._options
        if options.is_greedy:
            return best
        top = min(options.top_k or self._vocabulary, self._vocabulary)
        certain, nucleus = options._is_certain, options.top_p < 1
        key = (1 if certain else top, certain, nucleus, self._occurred is not None)
        if key not in self._compiled:
            self._compiled[key] = self._function(*key)
        assert self._numbers is not None
        if self._occurred is None:
            (token,) = self._compiled[key](logits, self._numbers)
        else:
            token, self._occurred = self._compiled[key](logits, self._numbers, self._occurred)
        result: Tensor = token
        return result

    def _function(self, top: int, certain: bool, nucleus: bool, penalized: bool) -> Any:
        """Return the compiled function of a kind of sampling."""
        vocabulary, generator = self._vocabulary, self._random

        def chosen(logits: Tensor, numbers: Tensor) -> Tensor:
            if certain:
                return ops.argmax(logits, axis=1, keepdims=True).astype("int32")
            logits = logits / numbers[0:1].reshape(1, 1)
            places = None
            if top < vocabulary or nucleus:
                logits, places = ops.topk(logits, top, axis=1)
            weights = ops.softmax(logits, axis=1)
            sums = ops.cumsum(weights, axis=1)
            if nucleus:  # a token counts unless those before it reach the sum
                weights = ops.where(sums - weights < numbers[1:2].reshape(1, 1), weights, 0.0)
                sums = ops.cumsum(weights, axis=1)
            threshold = generator.random((logits.shape[0], 1)) * ops.sum(weights, axis=1, keepdims=True)
            # Sums are rounded: the last token that counts gets the remainder.
            below = ops.sum((sums <= threshold).astype("float32"), axis=1, keepdims=True)
            last = ops.sum((weights > 0).astype("float32"), axis=1, keepdims=True) - 1.0
            if places is None:
                return ops.minimum(below, float(vocabulary - 1)).astype("int32")
            position = ops.minimum(below, last).astype("int32")
            return ops.take_along_axis(places, position, axis=1).astype("int32")

        def plain(logits: Tensor, numbers: Tensor) -> tuple[Tensor, ...]:
            return (chosen(logits, numbers),)

        def with_penalty(logits: Tensor, numbers: Tensor, occurred: Tensor) -> tuple[Tensor, ...]:
            penalty = numbers[2:3].reshape(1, 1)
            lower = ops.where(logits < 0, logits * penalty, logits / penalty)
            token = chosen(ops.where(occurred > 0, lower, logits), numbers)
            numbered = ops.arange(vocabulary, dtype="int32", device=self._device).reshape(1, vocabulary)
            return token, ops.maximum(occurred, (numbered == token).astype("float32"))

        return traced(with_penalty if penalized else plain)
