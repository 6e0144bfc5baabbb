"""Sampling on the device: the next token from logits, without reading them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import ops
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import random
from dmlgpu.runtime.buffer import Readback
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tracing.compiled import compile as traced

if TYPE_CHECKING:
    from dmlgpu.frontends.generation.grammar import Matcher

_SEEDS = 2**64
_LARGEST = 3.4e38
"""Largest absolute value of an option: the device computes in float32."""

_MIN_TEMPERATURE = 1e-6
"""Lower temperatures give the same tokens, but the divided logits would overflow."""

_MIN_POSITIVE = 1e-30


@dataclass(frozen=True)
class SamplingOptions:
    """Options that choose the next token.

    They apply in this order: penalties and biases change the logits, the temperature divides them, and ``top_k``,
    ``top_p`` and ``min_p`` remove tokens, by their probabilities after the temperature.

    Attributes:
        temperature: Divides the logits; 0 always takes the most likely token.
        top_k: Samples from this many of the most likely tokens; 0 means all.
        top_p: Samples from the most likely tokens whose probabilities together reach this sum.
        min_p: Samples from tokens at least this fraction as probable as the most likely one; 0 means all.
        repetition_penalty: Divides positive logits of tokens that occurred in the prompt or the answer, and multiplies
            negative ones.
        presence_penalty: Subtracted from the logits of tokens that occurred in the answer.
        frequency_penalty: Subtracted from the logits of tokens once for each time that they occurred in the answer.
        logit_bias: Numbers added to logits, by token id; -1e30 forbids a token.
        seed: Key of the random numbers, 0 to 2^64 - 1; None draws one from the operating system.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None

    def check(self, label: str, vocabulary: int | None = None) -> None:
        """Raise InvalidArgument if an option is out of range.

        Args:
            label: Beginning of the message.
            vocabulary: Number of logits, if it is known.
        """
        limits: dict[str, tuple[bool, str]] = {
            "temperature": (_is_number(self.temperature) and self.temperature >= 0, "a number from 0 to 3.4e38"),
            "top_k": (_is_integer(self.top_k) and self.top_k >= 0, "an integer of at least 0"),
            "top_p": (_is_number(self.top_p) and 0 < self.top_p <= 1, "above 0 and at most 1"),
            "min_p": (_is_number(self.min_p) and 0 <= self.min_p <= 1, "from 0 to 1"),
            "repetition_penalty": (
                _is_number(self.repetition_penalty) and self.repetition_penalty > 0,
                "above 0, at most 3.4e38",
            ),
            "presence_penalty": (_is_number(self.presence_penalty), "a number from -3.4e38 to 3.4e38"),
            "frequency_penalty": (_is_number(self.frequency_penalty), "a number from -3.4e38 to 3.4e38"),
            "logit_bias": (_is_bias(self.logit_bias), "a mapping from token ids to numbers"),
            "seed": (self.seed is None or (_is_integer(self.seed) and 0 <= self.seed < _SEEDS), "from 0 to 2^64 - 1"),
        }
        for name, (holds, expected) in limits.items():
            if not holds:
                raise InvalidArgument(f"{label}: {name} must be {expected}, got {shown(getattr(self, name))}")
        outside = [token for token in self.logit_bias or () if vocabulary is not None and not 0 <= token < vocabulary]
        if vocabulary is not None and outside:
            raise InvalidArgument(
                f"{label}: logit_bias must have tokens from 0 to {vocabulary - 1}, got {shown(outside[0])}"
            )

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token of the unchanged logits is always taken."""
        return self._is_certain and not (self._repeats or self._counts or self.logit_bias)

    @property
    def _is_certain(self) -> bool:
        return self.temperature == 0 or self.top_k == 1

    @property
    def _repeats(self) -> bool:
        """Whether tokens of prompt and answer are penalized."""
        return self.repetition_penalty != 1

    @property
    def _counts(self) -> bool:
        """Whether tokens of the answer are penalized."""
        return self.presence_penalty != 0 or self.frequency_penalty != 0


def _is_bias(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, Mapping) and all(_is_integer(key) and _is_number(bias) for key, bias in value.items())


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float | np.floating | np.integer)
        and not isinstance(value, bool)
        and bool(-_LARGEST <= value <= _LARGEST)
    )


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@dataclass(frozen=True)
class _SamplingKind:
    """The steps that choose a token. Each combination has one compiled function.

    Attributes:
        top: Number of the most likely tokens to sample from.
        is_certain: Whether the most likely token is always taken.
        nucleus: Whether ``top_p`` removes tokens.
        minimum: Whether ``min_p`` removes tokens.
        repeats: Whether there is a repetition penalty.
        counts: Whether there is a presence or frequency penalty.
        biased: Whether there are biases.
    """

    top: int
    is_certain: bool
    nucleus: bool
    minimum: bool
    repeats: bool
    counts: bool
    biased: bool


CHAT_DEFAULTS: Mapping[str, float] = {"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.05}
"""Options of models whose files recommend none. Small models repeat themselves if the most likely token is taken."""

_RECOMMENDED = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def recommended(settings: Mapping[str, Any]) -> dict[str, float]:
    """Return the sampling options that the files of a model recommend.

    Args:
        settings: Values by the names of Transformers. All are ignored if ``do_sample`` is false. A value that is out of
            range, such as a ``top_k`` of -1, is ignored.
    """
    if settings.get("do_sample") is False:
        return {}
    options: dict[str, float] = {}
    for name in _RECOMMENDED:
        try:
            SamplingOptions(**{name: settings[name]}).check(name)
        except (InvalidArgument, KeyError):
            continue
        options[name] = settings[name]
    return {"temperature": 1.0, **options} if options else {}


@dataclass(frozen=True)
class TokenLogprob:
    """Probability of a token, before sampling options change the logits.

    Attributes:
        token: The token.
        logprob: Natural logarithm of its probability.
        top: The most likely tokens with theirs, the most likely one first.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()

    @classmethod
    def of_row(cls, token: int, row: NDArray[np.float32]) -> TokenLogprob:
        """Return the probabilities of a row of ``Sampler.logprobs``."""
        first, *rest = row.tolist()
        half = len(rest) // 2
        return cls(token, first, tuple(zip(map(int, rest[half:]), rest[:half], strict=True)))


@dataclass
class SamplingState:
    """Options of a generation, and what its next token depends on.

    Attributes:
        options: The options.
        random: State of the random numbers.
        inputs: Numbers and biases on the device.
        penalties: Tokens that occurred, by row.
        matchers: The tokens that a grammar allows, by row; empty without a grammar. They need each token before the
            next one is taken.
    """

    options: SamplingOptions
    random: tuple[int, int] = (0, 0)
    inputs: list[Tensor] = field(default_factory=list)
    penalties: list[Tensor] = field(default_factory=list)
    matchers: Sequence[Matcher] = ()


class Sampler:
    """Takes tokens from logits.

    Args:
        device: Device of the logits.
        vocabulary: Number of logits.

    Attributes:
        current: State of the generation whose tokens are taken. Generations may alternate.
    """

    def __init__(self, device: Device, vocabulary: int):
        self._device, self._vocabulary = device, vocabulary
        self._compiled: dict[_SamplingKind, Any] = {}
        self._logprobs: dict[int, Any] = {}
        self._random = random.default_rng(0, device=device)
        self.current = SamplingState(SamplingOptions())

    def begin(
        self, options: SamplingOptions, prompts: Sequence[Sequence[int]], matchers: Sequence[Matcher] = ()
    ) -> SamplingState:
        """Start a generation, and return its state."""
        key = random.default_rng(None).state[1] if options.seed is None else int(options.seed)
        positive = (
            (_MIN_TEMPERATURE, options.temperature or 1.0),
            (_MIN_POSITIVE, options.top_p),
            (_MIN_POSITIVE, options.repetition_penalty),
        )
        numbers = [max(bound, value) for bound, value in positive]
        numbers += [options.min_p, options.presence_penalty, options.frequency_penalty]
        arrays = [np.array(numbers, np.float32)]
        if options.logit_bias:
            bias = np.zeros((1, self._vocabulary), np.float32)
            bias[0, list(options.logit_bias)] = list(options.logit_bias.values())
            arrays.append(bias)
        shape = len(prompts), self._vocabulary
        states = []
        if options._repeats:
            states.append(np.zeros(shape, np.float32))
            for row, prompt in zip(states[0], prompts, strict=True):
                row[list(prompt)] = 1
        if options._counts:
            states.append(np.zeros(shape, np.float32))
        inputs, penalties = ([Tensor(array, device=self._device) for array in each] for each in (arrays, states))
        self.current = SamplingState(options, (0, key), inputs, penalties, matchers)
        return self.current

    def next(self, logits: Tensor, best: Tensor) -> Tensor:
        """Return the next tokens {batch, 1} INT32, from logits {batch, vocabulary} and the most likely tokens."""
        current = self.current
        options = current.options
        if current.matchers:
            bias = np.stack([matcher.bias() for matcher in current.matchers])
            logits = logits + Tensor(bias, device=self._device)
            best = ops.argmax(logits, axis=1, keepdims=True).astype("int32")
        if options.is_greedy:
            return best
        top = min(options.top_k or self._vocabulary, self._vocabulary)
        certain = options._is_certain
        kind = _SamplingKind(
            1 if certain else top,
            certain,
            not certain and options.top_p < 1,
            not certain and (options.min_p > 0 or bool(current.matchers)),  # never a token without probability
            options._repeats,
            options._counts,
            bool(options.logit_bias),
        )
        if kind not in self._compiled:
            self._compiled[kind] = traced(self._function(kind))
        token: Tensor
        self._random.state = current.random
        token, *current.penalties = self._compiled[kind](logits, *current.inputs, *current.penalties)
        current.random = self._random.state
        return token

    def next_of_draft(self, logits: Tensor, best: Tensor) -> tuple[Tensor, list[SamplingState]]:
        """Return the tokens {count, 1} after each token of a draft, and the state of each.

        The token after a draft is that of ``next`` if all drafts before it equal the tokens. The first token that
        differs from its draft is the last one that counts, and its state continues: ``current`` must be set to it.
        """
        if self.current.options.is_greedy:
            return best, [self.current] * best.shape[0]
        tokens, states = [], []
        for row in range(best.shape[0]):
            tokens.append(self.next(logits[row : row + 1], best[row : row + 1]))
            states.append(replace(self.current))
        return ops.concatenate(tokens, axis=0), states

    def logprobs(self, logits: Tensor, tokens: Tensor, count: int) -> Tensor:
        """Return log probabilities, before options change the logits: {batch, 1 + 2 count} FLOAT.

        A row has the log probability of its token, those of the ``count`` most likely tokens, and the ids of these.
        """
        count = min(count, self._vocabulary)
        if count not in self._logprobs:

            def values(logits: Tensor, tokens: Tensor) -> Tensor:
                logs = ops.log_softmax(logits, axis=1)
                columns = [ops.take_along_axis(logs, tokens, axis=1)]
                if count:
                    largest, ids = ops.topk(logs, count, axis=1)
                    columns += [largest, ids.astype("float32")]
                return ops.concatenate(columns, axis=1)

            self._logprobs[count] = traced(values)
        result: Tensor = self._logprobs[count](logits, tokens)
        return result

    def _function(self, kind: _SamplingKind) -> Any:
        """Return the function that computes tokens and new states from logits, numbers, biases and states."""
        vocabulary, generator = self._vocabulary, self._random

        def penalized(logits: Tensor, numbers: Tensor, rest: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
            bias, states = (rest[:1], rest[1:]) if kind.biased else ((), rest)
            if kind.repeats:
                penalty = _column(numbers, 2)
                lower = ops.where(logits < 0, logits * penalty, logits / penalty)
                logits = ops.where(states[0] > 0, lower, logits)
            if kind.counts:
                counts = states[-1]
                logits = logits - _column(numbers, 5) * counts
                logits = logits - _column(numbers, 4) * (counts > 0).astype("float32")
            return (logits + bias[0] if bias else logits), states

        def chosen(logits: Tensor, numbers: Tensor) -> Tensor:
            if kind.is_certain:
                return ops.argmax(logits, axis=1, keepdims=True).astype("int32")
            logits = logits / _column(numbers, 0)
            ids = None
            if kind.top < vocabulary or kind.nucleus:
                logits, ids = ops.topk(logits, kind.top, axis=1)
            weights = ops.softmax(logits, axis=1)
            largest = ops.max(weights, axis=1, keepdims=True) if kind.minimum else None
            sums = ops.cumsum(weights, axis=1)
            if kind.nucleus:  # a token stays unless the tokens before it reach the sum
                weights = ops.where(sums - weights < _column(numbers, 1), weights, 0.0)
            if largest is not None:
                weights = ops.where(weights < largest * _column(numbers, 3), 0.0, weights)
            if kind.nucleus or kind.minimum:
                sums = ops.cumsum(weights, axis=1)
            threshold = generator.random((logits.shape[0], 1)) * ops.sum(weights, axis=1, keepdims=True)
            # Sums are rounded: the last token that stays gets the remainder.
            below = ops.sum((sums <= threshold).astype("float32"), axis=1, keepdims=True)
            if ids is None and not kind.minimum:
                return ops.minimum(below, float(vocabulary - 1)).astype("int32")
            if ids is None:
                every_id = ops.arange(vocabulary, dtype="float32", device=self._device).reshape(1, vocabulary)
                last = ops.max(ops.where(weights > 0, every_id, 0.0), axis=1, keepdims=True)
                return ops.minimum(below, last).astype("int32")
            last = ops.sum((weights > 0).astype("float32"), axis=1, keepdims=True) - 1.0
            return ops.take_along_axis(ids, ops.minimum(below, last).astype("int32"), axis=1).astype("int32")

        def step(logits: Tensor, numbers: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
            logits, states = penalized(logits, numbers, rest)
            token = chosen(logits, numbers)
            if not states:
                return (token,)
            every_id = ops.arange(vocabulary, dtype="int32", device=self._device).reshape(1, vocabulary)
            taken = (every_id == token).astype("float32")
            seen = [ops.maximum(states[0], taken)] if kind.repeats else []
            return (token, *seen, *([states[-1] + taken] if kind.counts else []))

        return step


def read_words(tensor: Tensor) -> Readback:
    """Start reading elements of 32 bits."""
    readback: Readback = tensor.buffer.read_async(0, 4 * math.prod(tensor.sizes))
    return readback


def _column(numbers: Tensor, index: int) -> Tensor:
    """Return one of the numbers as {1, 1}."""
    column: Tensor = numbers[index : index + 1].reshape(1, 1)
    return column
